//! Whether a connection attempt goes ahead: the one rule behind s2n-quic's two doors, that for an Initial without a
//! token (`Limiter`) and that for one with (`address_token`), which s2n-quic does not ask the limiter about.

use crate::{config::Limits, telemetry::WorkerMetrics};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter as Limit, Outcome};
use s2n_quic_core::path::remote_port_blocked;
use std::sync::Arc;

/// What happens to a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The handshake begins.
    Allow,
    /// The client must first prove its address.
    Retry,
    /// Nothing is answered.
    Drop,
    /// CONNECTION_REFUSED is answered.
    Refuse,
}

/// Judges a connection attempt by what its worker has already: `connections`, `handshakes` of which are not done yet.
/// `validated` is whether the client has proved its address.
pub(super) fn judge(limits: &Limits, connections: u64, handshakes: u64, validated: bool) -> Verdict {
    if handshakes >= u64::from(limits.max_handshakes) {
        // Silence: with this many in flight an answer for each attempt is what an attacker wants.
        Verdict::Drop
    } else if connections >= u64::from(limits.max_connections) {
        Verdict::Refuse
    } else if handshakes >= u64::from(limits.retry_handshakes) && !validated {
        Verdict::Retry
    } else {
        Verdict::Allow
    }
}

/// Judges and counts.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    limits: Limits,
    metrics: Arc<WorkerMetrics>,
}

impl Admission {
    pub(super) fn new(limits: Limits, metrics: Arc<WorkerMetrics>) -> Self {
        Self { limits, metrics }
    }

    /// Judges an attempt by the worker's gauges, which all of its endpoints share, and counts what the limits cost.
    pub(super) fn decide(&self, validated: bool) -> Verdict {
        let metrics = &self.metrics;
        let verdict = judge(&self.limits, metrics.connections_open.get(), metrics.handshakes_open.get(), validated);
        match verdict {
            Verdict::Allow => {}
            Verdict::Retry => metrics.retries.increment(),
            Verdict::Drop => {
                metrics.limit_handshakes.increment();
                metrics.handshakes_refused.increment();
            }
            Verdict::Refuse => {
                metrics.limit_connections.increment();
                metrics.handshakes_refused.increment();
            }
        }
        verdict
    }
}

/// s2n-quic's door for Initials without a token.
#[derive(Debug)]
pub(super) struct Limiter(pub(super) Admission);

impl Limit for Limiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        // Ports from which only reflected attacks come (DNS, NTP, …), as s2n-quic's own limiter has it.
        if remote_port_blocked(attempt.remote_address.port()) {
            return Outcome::drop();
        }
        match self.0.decide(false) {
            Verdict::Allow => Outcome::allow(),
            Verdict::Retry => Outcome::retry(),
            Verdict::Drop => Outcome::drop(),
            Verdict::Refuse => Outcome::close(),
        }
    }
}

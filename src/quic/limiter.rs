//! Whether a connection attempt is accepted: the one rule behind s2n-quic's two hooks, that for an Initial without a
//! token (`Limiter`) and that for one with (`address_token`), for which s2n-quic does not call the limiter.

use super::{
    amplification::OwnId,
    answers::{Answers, REFUSALS},
};
use crate::{
    config::{Config, Limits, Live, Network},
    memory::{Pressure, Step},
    quic::Metrics,
    sources::Pool,
};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter as Limit, Outcome};
use s2n_quic_core::event::api::SocketAddress;
use s2n_quic_core::path::remote_port_blocked;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

/// The sources of a worker's connections and handshakes.
#[derive(Debug, Clone)]
pub struct Pools {
    pub(super) connections: Pool<Network>,
    pub(super) handshakes: Pool<Network>,
}

impl Default for Pools {
    fn default() -> Self {
        Self { connections: Pool::new("QUIC connections"), handshakes: Pool::new("QUIC handshakes") }
    }
}

/// The decision on a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// The handshake begins.
    Allow,
    /// The client must first validate its address.
    Retry,
    /// There is no answer.
    Drop,
    /// The answer is CONNECTION_REFUSED.
    Refuse,
}

/// The decision on a connection attempt by the number of its worker's `connections`, `handshakes` of which are not
/// complete yet. `validated` is whether the client has validated its address.
fn by_worker(limits: &Limits, connections: u64, handshakes: u64, validated: bool) -> AttemptOutcome {
    if handshakes >= u64::from(limits.max_handshakes) {
        // No answer: with this many in flight, answers would serve an attacker.
        AttemptOutcome::Drop
    } else if connections >= u64::from(limits.max_connections) {
        AttemptOutcome::Refuse
    } else if handshakes >= u64::from(limits.retry_handshakes) && !validated {
        AttemptOutcome::Retry
    } else {
        AttemptOutcome::Allow
    }
}

/// Decides on connection attempts by the limits in force, and counts.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    config: Live,
    metrics: Arc<Metrics>,
    answers: Arc<Answers>,
    sources: Pools,
    pressure: Pressure,
}

impl Admission {
    pub(super) fn new(config: Live, metrics: Arc<Metrics>, sources: Pools, pressure: Pressure) -> Self {
        Self { config, metrics, answers: Arc::new(Answers::new(REFUSALS)), sources, pressure }
    }

    /// Decides on an attempt by the worker's gauges, which all of its endpoints share, and counts what the limits cost.
    pub(super) fn decide(&self, client: IpAddr, validated: bool) -> AttemptOutcome {
        self.decide_at(client, validated, Instant::now())
    }

    /// The decision, by the client's source, on an attempt that the worker has room for.
    fn by_source(&self, config: &Config, client: IpAddr, validated: bool) -> AttemptOutcome {
        let (metrics, limits) = (&self.metrics, &config.limits);
        let source = config.source(client);
        let (connections, handshakes) = (metrics.connections_held.get(), metrics.handshakes_open.get());
        let step = self.pressure.step();
        let full = if step.refuses(|| self.sources.connections.has(source)) {
            &metrics.limit_memory_connections
        } else if !self.sources.handshakes.admits(source, handshakes, limits.max_handshakes.into()) {
            &metrics.limit_source_handshakes
        } else if !self.sources.connections.admits(source, connections, limits.max_connections.into()) {
            &metrics.limit_source_connections
        } else if step > Step::Normal && !validated {
            // By then a client's number of connections matters: its address has to be validated.
            return AttemptOutcome::Retry;
        } else {
            return AttemptOutcome::Allow;
        };
        full.increment();
        AttemptOutcome::Refuse
    }

    /// Counts an attempt that fails because its token is invalid.
    pub(super) fn refuse_token(&self) {
        self.metrics.retry_tokens_refused.increment();
    }

    fn decide_at(&self, client: IpAddr, validated: bool, now: Instant) -> AttemptOutcome {
        let metrics = &self.metrics;
        let config = self.config.load();
        let outcome =
            by_worker(&config.limits, metrics.connections_held.get(), metrics.handshakes_open.get(), validated);
        let outcome =
            if outcome == AttemptOutcome::Allow { self.by_source(&config, client, validated) } else { outcome };
        if matches!(outcome, AttemptOutcome::Retry | AttemptOutcome::Refuse) && !self.answers.admit(now) {
            metrics.limit_refusals.increment();
            metrics.handshakes_refused.increment();
            return AttemptOutcome::Drop;
        }
        match outcome {
            AttemptOutcome::Allow => {}
            AttemptOutcome::Retry => metrics.retries.increment(),
            AttemptOutcome::Drop => {
                metrics.limit_handshakes.increment();
                metrics.handshakes_refused.increment();
            }
            AttemptOutcome::Refuse => {
                if metrics.connections_held.get() >= config.limits.max_connections.into() {
                    metrics.limit_connections.increment();
                }
                metrics.handshakes_refused.increment();
            }
        }
        outcome
    }
}

/// A client's address without its port.
pub(super) fn ip(address: &SocketAddress<'_>) -> IpAddr {
    SocketAddr::from(address).ip()
}

/// s2n-quic's hook for Initials without a token.
#[derive(Debug)]
pub(super) struct Limiter {
    admission: Admission,
    own_id: OwnId,
}

impl Limiter {
    pub(super) fn new(admission: Admission, own_id: OwnId) -> Self {
        Self { admission, own_id }
    }
}

impl Limit for Limiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        // Ports from which only reflected attacks come (DNS, NTP, …), as s2n-quic's own limiter has it.
        if remote_port_blocked(attempt.remote_address.port()) {
            return Outcome::drop();
        }
        // No client has one of litequic's IDs by chance; it has one with a token, or from a process that is gone.
        if self.own_id.get() {
            return Outcome::drop();
        }
        match self.admission.decide(ip(&attempt.remote_address), false) {
            AttemptOutcome::Allow => Outcome::allow(),
            AttemptOutcome::Retry => Outcome::retry(),
            AttemptOutcome::Drop => Outcome::drop(),
            AttemptOutcome::Refuse => Outcome::close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::time::Duration;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn limits() -> Limits {
        Limits { max_connections: 100, retry_handshakes: 10, max_handshakes: 20, ..Limits::default() }
    }

    #[test]
    fn an_attempt_is_admitted_by_what_the_worker_has() {
        let table = [
            ("idle", 0, 0, false, AttemptOutcome::Allow),
            ("one below retry", 50, 9, false, AttemptOutcome::Allow),
            ("busy", 50, 10, false, AttemptOutcome::Retry),
            ("busy, address proved", 50, 10, true, AttemptOutcome::Allow),
            ("full", 100, 0, false, AttemptOutcome::Refuse),
            ("full, address proved", 100, 0, true, AttemptOutcome::Refuse),
            ("flooded", 50, 20, false, AttemptOutcome::Drop),
            ("flooded, address proved", 50, 20, true, AttemptOutcome::Drop),
            ("full and flooded", 100, 20, true, AttemptOutcome::Drop),
        ];
        for (what, connections, handshakes, validated, expected) in table {
            assert_eq!(by_worker(&limits(), connections, handshakes, validated), expected, "{what}");
        }
    }

    fn admission() -> (Admission, Arc<Metrics>) {
        let metrics = Arc::<Metrics>::default();
        let origin = "http://origin".parse().unwrap();
        let config = Config::simple(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        (
            Admission::new(
                Config { limits: limits(), ..config }.live(),
                Arc::clone(&metrics),
                Pools::default(),
                <_>::default(),
            ),
            metrics,
        )
    }

    #[test]
    fn retries_and_refusals_beyond_the_rate_are_silence_which_is_counted_and_all_others_go_on() {
        for (what, connections, handshakes, answer) in
            [("busy", 50, 10, AttemptOutcome::Retry), ("full", 100, 0, AttemptOutcome::Refuse)]
        {
            let (admission, metrics) = admission();
            let mut now = Instant::now();
            metrics.connections_held.set(connections);
            metrics.handshakes_open.set(handshakes);
            let answered = |admission: &Admission, now, attempts: u32| {
                let outcomes = (0..attempts).map(|_| admission.decide_at(CLIENT, false, now));
                let (answered, silent): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| *outcome == answer);
                assert!(silent.iter().all(|outcome| *outcome == AttemptOutcome::Drop), "{what}");
                u32::try_from(answered.len()).unwrap()
            };
            // A second's worth at once, then what time brings.
            assert_eq!(answered(&admission, now, REFUSALS + 5), REFUSALS, "{what}");
            now += Duration::from_millis(500);
            assert_eq!(answered(&admission, now, REFUSALS), REFUSALS / 2, "{what}");
            assert_eq!(answered(&admission.clone(), now, 1), 0, "{what}: both hooks share the rate");
            let silences = u64::from(5 + REFUSALS / 2 + 1);
            assert_eq!(metrics.limit_refusals.get(), silences, "{what}");
            let counted = [metrics.retries.get(), metrics.limit_connections.get()];
            assert_eq!(counted.iter().sum::<u64>(), u64::from(REFUSALS + REFUSALS / 2), "{what}");
            // A client that needs no such answer is accepted.
            metrics.connections_held.set(50);
            metrics.handshakes_open.set(9);
            assert_eq!(admission.decide_at(CLIENT, false, now), AttemptOutcome::Allow, "{what}");
        }
    }

    #[test]
    fn every_limit_that_bites_is_counted() {
        let (admission, metrics) = admission();
        admission.decide(CLIENT, false);
        metrics.handshakes_open.set(10);
        admission.decide(CLIENT, false);
        metrics.handshakes_open.set(20);
        admission.decide(CLIENT, false);
        metrics.handshakes_open.set(0);
        metrics.connections_held.set(100);
        admission.decide(CLIENT, false);
        assert_eq!(metrics.retries.get(), 1);
        assert_eq!(metrics.limit_handshakes.get(), 1);
        assert_eq!(metrics.limit_connections.get(), 1);
        assert_eq!(metrics.handshakes_refused.get(), 2);
    }
}

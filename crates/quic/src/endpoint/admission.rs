//! Decides whether a connection attempt is accepted: one rule behind s2n-quic's two hooks, one for an Initial without a
//! token (`limits`) and one for an Initial with a token (`address_token`), for which s2n-quic does not call the
//! limiter.

use crate::{connection::datagram_client, metrics::QuicMetrics};
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase},
    token_bucket::SharedTokenBucket,
};
use litequic_config::{Config, Limits, LiveConfig};
use litequic_resources::{
    fairness::{ClientSource, FairPool, PoolSlot},
    memory::{MemoryPressure, MemoryStep},
};
use litequic_telemetry::clients::DenyList;
use parking_lot::Mutex;
use s2n_quic::provider::endpoint_limits::Outcome;
use s2n_quic_core::event::api::SocketAddress;
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

/// Reserved part of the slots: once only an eighth is left, addresses have to be validated, and one source no longer
/// takes all of them.
const RESERVED_PART: u32 = 8;
/// Part of the limit by which connections that are closing may exceed it: a sixteenth.
const CLOSING_PART: u32 = 16;
/// Retry packets and refusals an endpoint sends a second, and as many Version Negotiation packets: more handshakes than
/// a core completes. s2n-quic queues each, of 1.2 KB, until the socket accepts it, without a limit, so a sender faster
/// than the socket would fill the memory.
pub(super) const MAX_RESPONSES_PER_SECOND: u32 = 20_000;

/// A worker's connections and handshakes by source. Slots cannot be taken back: s2n-quic has no handle of a connection
/// whose handshake is in progress, and keeps a closed one for about three probe timeouts. The lock is never contended
/// (`super::endpoint_state`).
#[derive(Debug, Clone, Default)]
pub struct SourceLimits(Arc<Mutex<SourcePools>>);

#[derive(Debug)]
struct SourcePools {
    connections: FairPool<Infallible>,
    handshakes: FairPool<Infallible>,
    next: u64,
}

/// The slots of a connection, given back when dropped.
#[derive(Debug)]
pub(super) struct SourceSlots {
    pools: SourceLimits,
    connection: PoolSlot,
    handshake: Option<PoolSlot>,
}

/// Effect of the limits on a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AdmissionVerdict {
    Allow,
    /// The client has to validate the address before the handshake (Retry).
    Retry,
    /// `Limits::max_handshakes` is reached.
    TooManyHandshakes,
    /// `Limits::max_handshakes` is nearly reached, and the source has handshakes in progress.
    LastHandshakesReserved,
    /// `limits.max_connections` is reached, and no source has more connections than the client's.
    TooManyConnections,
    Memory,
    /// The process drains, or `listen.http3` is false.
    Off,
    /// The operator denies the client's network.
    Denied,
}

impl Default for SourcePools {
    fn default() -> Self {
        Self { connections: FairPool::with_ranking(0), handshakes: FairPool::new(0), next: 0 }
    }
}

impl SourcePools {
    /// Judges an attempt of a client in `network`, whose address is `validated` or not.
    fn judge_attempt(
        &mut self,
        limits: &Limits,
        network: Option<(IpAddr, u8)>,
        validated: bool,
        step: MemoryStep,
    ) -> AdmissionVerdict {
        // No connection has this number.
        let source = ClientSource::new(network, u64::MAX);
        let max = limits.max_connections;
        let with_closing = max.saturating_add(max / CLOSING_PART);
        self.connections.limit = with_closing;
        self.handshakes.limit = limits.max_handshakes;
        let (connections, handshakes) = (self.connections.used_slot_count(), self.handshakes.used_slot_count());
        let is_last = |taken: u32, max: u32| max.saturating_sub(taken) <= max / RESERVED_PART;
        let wants_validation = step > MemoryStep::Normal
            || handshakes >= limits.retry_handshakes
            || is_last(handshakes, limits.max_handshakes)
            || is_last(connections, max);
        if handshakes >= limits.max_handshakes {
            AdmissionVerdict::TooManyHandshakes
        } else if connections >= max
            && !self.admits_beyond_limit(&source, connections >= with_closing - max / CLOSING_PART / 2)
        {
            AdmissionVerdict::TooManyConnections
        } else if step.refuses_connection(|| self.connections.slots_held_by(&source) > 1) {
            AdmissionVerdict::Memory
        } else if wants_validation && !validated {
            // A forged address would take the slot of another client.
            AdmissionVerdict::Retry
        } else if !self.handshakes.admits_to_last_slots(&source) {
            AdmissionVerdict::LastHandshakesReserved
        } else {
            AdmissionVerdict::Allow
        }
    }

    /// Whether `source` gets a slot beyond the limit. If `few` are left, only for a source whose network holds less
    /// than another: otherwise the sources of one network could take all of them in turns.
    fn admits_beyond_limit(&mut self, source: &ClientSource, few: bool) -> bool {
        if self.connections.is_pool_full() {
            false
        } else if few {
            self.connections.has_larger_network(source)
        } else {
            self.connections.largest_source_connections(source).next().is_some()
        }
    }
}

impl SourceLimits {
    /// Takes slots for a connection of a client in `network` whose handshake begins.
    pub(super) fn take_slots(&self, network: Option<(IpAddr, u8)>) -> SourceSlots {
        let mut taken = self.0.lock();
        let source = ClientSource::new(network, taken.next);
        taken.next = taken.next.wrapping_add(1);
        let (connection, handshake) =
            (taken.connections.take_slot_beyond_limit(source), taken.handshakes.take_slot_beyond_limit(source));
        SourceSlots { pools: self.clone(), connection, handshake: Some(handshake) }
    }
}

impl SourceSlots {
    /// Returns the handshake's slot: the handshake has ended.
    pub(super) fn end_handshake(&mut self) {
        if let Some(slot) = self.handshake.take() {
            self.pools.0.lock().handshakes.release_slot(slot);
        }
    }
}

impl Drop for SourceSlots {
    fn drop(&mut self) {
        self.end_handshake();
        self.pools.0.lock().connections.release_slot(self.connection);
    }
}

/// Decides on connection attempts by the limits in force, and counts rejected ones.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) config: LiveConfig,
    pub(super) metrics: Arc<QuicMetrics>,
    pub(super) answers: SharedTokenBucket,
    pub(super) sources: SourceLimits,
    pub(super) pressure: MemoryPressure,
    /// Networks whose clients are refused.
    pub(super) denied: Arc<DenyList>,
    /// Phase of the process: every attempt is refused once the process drains.
    pub(super) watch: PhaseWatch,
}

impl Admission {
    /// Decides on an attempt of `client`, whose address is `validated` or not, by the pools that all endpoints of the
    /// worker share, and counts rejected ones.
    pub(super) fn decide_attempt(&self, client: IpAddr, validated: bool) -> Outcome {
        self.decide_attempt_at(client, validated, Instant::now())
    }

    /// Takes slots for a connection of `client` whose handshake begins.
    pub(super) fn take_client_slots(&self, client: IpAddr) -> SourceSlots {
        self.sources.take_slots(limit_network(&self.config.load(), client))
    }

    fn decide_attempt_at(&self, client: IpAddr, validated: bool, now: Instant) -> Outcome {
        let metrics = &self.metrics;
        let config = self.config.load();
        let verdict = if self.denied.is_client_denied(client, || now) {
            AdmissionVerdict::Denied
        } else if self.watch.watched_phase() >= ProcessPhase::Draining || !config.listen.http3 {
            AdmissionVerdict::Off
        } else {
            let network = limit_network(&config, client);
            self.sources.0.lock().judge_attempt(&config.limits, network, validated, self.pressure.pressure_step())
        };
        let (outcome, limit) = match verdict {
            AdmissionVerdict::Allow => return Outcome::allow(),
            // The client gets CONNECTION_REFUSED.
            AdmissionVerdict::Off => (Outcome::close(), None),
            AdmissionVerdict::Denied => (Outcome::close(), Some(&metrics.denied)),
            AdmissionVerdict::Retry => (Outcome::retry(), Some(&metrics.retries)),
            // The attempt gets no response: at this number of handshakes, responses would serve an attacker.
            AdmissionVerdict::TooManyHandshakes => (Outcome::drop(), Some(&metrics.limit_handshakes)),
            AdmissionVerdict::LastHandshakesReserved => (Outcome::close(), Some(&metrics.limit_handshakes)),
            AdmissionVerdict::TooManyConnections => (Outcome::close(), Some(&metrics.limit_connections)),
            AdmissionVerdict::Memory => (Outcome::close(), Some(&metrics.limit_memory_connections)),
        };
        if outcome != Outcome::drop() && !self.answers.try_take_token(now) {
            metrics.limit_refusals.increment();
            metrics.handshakes_refused.increment();
            return Outcome::drop();
        }
        if let Some(limit) = limit {
            limit.increment();
        }
        if outcome != Outcome::retry() {
            metrics.handshakes_refused.increment();
        }
        outcome
    }
}

/// Network for which a connection from `address` counts; `None` if the address is a source of its own.
pub(super) fn limit_network(config: &Config, address: IpAddr) -> Option<(IpAddr, u8)> {
    config.source_of_client(address).map(|network| (network.address, network.prefix))
}

/// IP address of the client whose datagram from `address` is processed.
pub(super) fn client_ip(address: &SocketAddress<'_>) -> IpAddr {
    datagram_client(SocketAddr::from(address)).ip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_base::lifecycle::Lifecycle;
    use litequic_config::Config;
    use std::time::Duration;

    impl Admission {
        /// Without denied networks; the process never drains.
        pub(in super::super) fn new(
            config: LiveConfig,
            metrics: Arc<QuicMetrics>,
            sources: SourceLimits,
            pressure: MemoryPressure,
        ) -> Self {
            let (answers, denied) = (SharedTokenBucket::new(MAX_RESPONSES_PER_SECOND), Arc::default());
            Self { config, metrics, answers, sources, pressure, denied, watch: Lifecycle::default().watch_phase() }
        }
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn limits() -> Limits {
        Limits { max_connections: 100, retry_handshakes: 10, max_handshakes: 20, ..Limits::default() }
    }

    /// Fills pools with `connections` connections, of which `handshakes` are in their handshake, each of a source of
    /// its own.
    fn filled(pools: &SourceLimits, connections: usize, handshakes: usize) -> Vec<SourceSlots> {
        let mut slots: Vec<SourceSlots> = (0..connections.max(handshakes)).map(|_| pools.take_slots(None)).collect();
        slots.iter_mut().skip(handshakes).for_each(SourceSlots::end_handshake);
        slots
    }

    fn address(network: u8, last: u8) -> Option<(IpAddr, u8)> {
        Some(([192, 0, network, last].into(), 32))
    }

    #[test]
    fn an_attempt_is_judged_by_the_load_of_the_worker() {
        let table = [
            ("idle", 0, 0, false, AdmissionVerdict::Allow),
            ("one below retry", 50, 9, false, AdmissionVerdict::Allow),
            ("busy", 50, 10, false, AdmissionVerdict::Retry),
            ("busy, address proved", 50, 10, true, AdmissionVerdict::Allow),
            ("an eighth is left", 88, 0, false, AdmissionVerdict::Retry),
            ("an eighth is left, address proved", 88, 0, true, AdmissionVerdict::Allow),
            ("full", 100, 0, false, AdmissionVerdict::TooManyConnections),
            ("full, address proved", 100, 0, true, AdmissionVerdict::TooManyConnections),
            ("flooded", 50, 20, false, AdmissionVerdict::TooManyHandshakes),
            ("flooded, address proved", 50, 20, true, AdmissionVerdict::TooManyHandshakes),
            ("full and flooded", 100, 20, true, AdmissionVerdict::TooManyHandshakes),
        ];
        for (what, connections, handshakes, validated, expected) in table {
            let pools = SourceLimits::default();
            let _slots = filled(&pools, connections, handshakes);
            let verdict = pools.0.lock().judge_attempt(&limits(), None, validated, MemoryStep::Normal);
            assert_eq!(verdict, expected, "{what}");
        }
    }

    #[test]
    fn a_smaller_source_gets_connections_beyond_the_limit() {
        let pools = SourceLimits::default();
        let admits =
            |network, validated| pools.0.lock().judge_attempt(&limits(), network, validated, MemoryStep::Normal);
        let mut slots: Vec<SourceSlots> = Vec::new();
        while admits(address(1, 1), true) == AdmissionVerdict::Allow {
            let mut taken = pools.take_slots(address(1, 1));
            taken.end_handshake();
            slots.push(taken);
        }
        assert_eq!(slots.len(), 100);
        assert_eq!(admits(address(1, 1), true), AdmissionVerdict::TooManyConnections);
        assert_eq!(admits(address(2, 1), false), AdmissionVerdict::Retry, "it may be forged");
        for others in 0..6 {
            assert_eq!(admits(address(2, 1), true), AdmissionVerdict::Allow, "{others}");
            let mut taken = pools.take_slots(address(2, 1));
            taken.end_handshake();
            slots.push(taken);
        }
        assert_eq!(admits(address(2, 1), true), AdmissionVerdict::TooManyConnections, "until those have gone");
        slots.clear();
        assert_eq!(pools.0.lock().connections.used_slot_count(), 0);
    }

    #[test]
    fn sources_of_one_network_leave_connections_beyond_the_limit_to_other_networks() {
        let pools = SourceLimits::default();
        let admits = |network| pools.0.lock().judge_attempt(&limits(), network, true, MemoryStep::Normal);
        let mut slots: Vec<SourceSlots> = Vec::new();
        let mut fill = |network| {
            let before = slots.len();
            while admits(network) == AdmissionVerdict::Allow {
                let mut taken = pools.take_slots(network);
                taken.end_handshake();
                slots.push(taken);
            }
            slots.len() - before
        };
        assert_eq!(fill(address(1, 1)), 100);
        let neighbours: usize = (2..=64).map(|last| fill(address(1, last))).sum();
        assert_eq!(neighbours, 3);
        assert_eq!(fill(address(2, 1)), 3);
    }

    #[test]
    fn the_last_handshakes_are_for_sources_that_have_none() {
        let limits =
            Limits { max_connections: 1_000, retry_handshakes: 1_000, max_handshakes: 160, ..Limits::default() };
        let pools = SourceLimits::default();
        let mut slots = Vec::new();
        let mut fill = |network, validated| {
            let mut count = 0;
            while pools.0.lock().judge_attempt(&limits, network, validated, MemoryStep::Normal)
                == AdmissionVerdict::Allow
            {
                slots.push(pools.take_slots(network));
                count += 1;
                assert!(count <= 160);
            }
            (count, pools.0.lock().judge_attempt(&limits, network, validated, MemoryStep::Normal))
        };
        assert_eq!(fill(address(1, 1), false), (140, AdmissionVerdict::Retry));
        assert_eq!(fill(address(1, 1), true), (0, AdmissionVerdict::LastHandshakesReserved));
        assert_eq!(fill(address(2, 1), false), (0, AdmissionVerdict::Retry));
        let others: u32 = (2..=200).map(|last| fill(address(1, last), true).0).sum();
        assert_eq!(others, 10, "of the same network until a sixteenth is left");
        assert_eq!(fill(address(2, 1), true), (1, AdmissionVerdict::LastHandshakesReserved));
        assert_eq!(fill(address(2, 2), true), (0, AdmissionVerdict::LastHandshakesReserved));
        let networks: u32 = (3..=200).map(|network| fill(address(network, 1), true).0).sum();
        assert_eq!(networks, 9);
        assert_eq!(fill(address(201, 1), true), (0, AdmissionVerdict::TooManyHandshakes));
    }

    fn admission() -> (Admission, Arc<QuicMetrics>) {
        let metrics = Arc::<QuicMetrics>::default();
        let origin = "http://origin".parse().unwrap();
        let config = Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        (
            Admission::new(
                Config { limits: limits(), ..config }.into_live(),
                Arc::clone(&metrics),
                SourceLimits::default(),
                <_>::default(),
            ),
            metrics,
        )
    }

    #[test]
    fn retries_and_refusals_above_the_rate_are_dropped_and_counted() {
        for (what, connections, handshakes, answer) in
            [("busy", 50, 10, Outcome::retry()), ("full", 100, 0, Outcome::close())]
        {
            let (admission, metrics) = admission();
            let mut now = Instant::now();
            let slots = filled(&admission.sources, connections, handshakes);
            let answered = |admission: &Admission, now, attempts: u32| {
                let outcomes = (0..attempts).map(|_| admission.decide_attempt_at(CLIENT, false, now));
                let (answered, silent): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| *outcome == answer);
                assert!(silent.iter().all(|outcome| *outcome == Outcome::drop()), "{what}");
                u32::try_from(answered.len()).unwrap()
            };
            // The responses of one second are sent at once, later ones at the rate.
            assert_eq!(answered(&admission, now, MAX_RESPONSES_PER_SECOND + 5), MAX_RESPONSES_PER_SECOND, "{what}");
            now += Duration::from_millis(500);
            assert_eq!(answered(&admission, now, MAX_RESPONSES_PER_SECOND), MAX_RESPONSES_PER_SECOND / 2, "{what}");
            assert_eq!(answered(&admission, now, 1), 0, "{what}: both hooks share the rate");
            let silences = u64::from(5 + MAX_RESPONSES_PER_SECOND / 2 + 1);
            assert_eq!(metrics.limit_refusals.get(), silences, "{what}");
            let counted = [metrics.retries.get(), metrics.limit_connections.get()];
            assert_eq!(
                counted.iter().sum::<u64>(),
                u64::from(MAX_RESPONSES_PER_SECOND + MAX_RESPONSES_PER_SECOND / 2),
                "{what}"
            );
            // A client that needs no such response is accepted.
            drop(slots);
            let _slots = filled(&admission.sources, 50, 9);
            assert_eq!(admission.decide_attempt_at(CLIENT, false, now), Outcome::allow(), "{what}");
        }
    }

    #[test]
    fn a_process_that_drains_refuses_every_attempt() {
        let (admission, metrics) = admission();
        let lifecycle = Lifecycle::default();
        let admission = Admission { watch: lifecycle.watch_phase(), ..admission };
        for (phase, validated, expected) in [
            (ProcessPhase::Ready, false, Outcome::allow()),
            (ProcessPhase::Leaving, true, Outcome::allow()),
            (ProcessPhase::Draining, false, Outcome::close()),
            (ProcessPhase::Draining, true, Outcome::close()),
            (ProcessPhase::Stopping, false, Outcome::close()),
        ] {
            lifecycle.advance_phase(phase);
            assert_eq!(admission.decide_attempt(CLIENT, validated), expected, "{phase:?}");
        }
        assert_eq!(metrics.handshakes_refused.get(), 3);
        let now = Instant::now();
        let answers = (0..MAX_RESPONSES_PER_SECOND * 2)
            .filter(|_| admission.decide_attempt_at(CLIENT, false, now) == Outcome::close());
        assert!(answers.count() <= MAX_RESPONSES_PER_SECOND as usize, "the rate of answers is bounded");
    }

    #[test]
    fn while_http3_is_off_every_attempt_is_refused_and_counted() {
        let (admission, metrics) = admission();
        let mut config = (*admission.config.load_full()).clone();
        config.listen.http3 = false;
        admission.config.store(Arc::new(config));
        for validated in [false, true] {
            assert_eq!(admission.decide_attempt(CLIENT, validated), Outcome::close());
        }
        assert_eq!((metrics.handshakes_refused.get(), metrics.limit_connections.get()), (2, 0));
    }

    #[test]
    fn every_limit_that_rejects_is_counted() {
        let (admission, metrics) = admission();
        for (connections, handshakes) in [(0, 0), (10, 10), (20, 20), (100, 0)] {
            let _slots = filled(&admission.sources, connections, handshakes);
            admission.decide_attempt(CLIENT, false);
        }
        assert_eq!(metrics.retries.get(), 1);
        assert_eq!(metrics.limit_handshakes.get(), 1);
        assert_eq!(metrics.limit_connections.get(), 1);
        assert_eq!(metrics.handshakes_refused.get(), 2);
    }
}

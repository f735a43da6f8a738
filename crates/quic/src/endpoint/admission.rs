//! Whether a connection attempt is accepted: the one rule behind s2n-quic's two hooks, that for an Initial without a
//! token (`limits`) and that for one with (`address_token`), for which s2n-quic does not call the limiter.

use super::response_limit::{MAX_RESPONSES_PER_SECOND, StatelessResponseLimit};
use crate::metrics::Metrics;
use litequic_base::lifecycle::{Phase, PhaseWatch};
use litequic_config::{Config, Limits, Live};
use litequic_resources::{
    fairness::{Fair, Slot, Source},
    memory::{Pressure, Step},
};
use litequic_telemetry::clients::DenyList;
use s2n_quic_core::event::api::SocketAddress;
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Part of the slots that is reserved: once only an eighth is left, addresses have to be validated, and one source no
/// longer takes all of them.
const RESERVED_PART: u32 = 8;
/// Part of the limit by which connections may exceed it: a sixteenth, for those that are closing.
const CLOSING_PART: u32 = 16;

/// A worker's connections and handshakes by source. Slots cannot be taken back: s2n-quic has no handle of a connection
/// whose handshake is in progress, and keeps one that was closed for about three probe timeouts. The lock is never
/// contended (`super::state`).
#[derive(Debug, Clone, Default)]
pub struct SourceLimits(Arc<Mutex<Taken>>);

#[derive(Debug)]
struct Taken {
    connections: Fair<Infallible>,
    handshakes: Fair<Infallible>,
    next: u64,
}

/// The slots of a connection, given back when dropped.
#[derive(Debug)]
pub(super) struct Slots {
    pools: SourceLimits,
    connection: Slot,
    handshake: Option<Slot>,
}

/// What a limit does to a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    /// The client must first validate its address.
    Retry,
    /// `limits.max_handshakes` is reached.
    TooManyHandshakes,
    /// `limits.max_handshakes` is nearly reached, and the source has some in flight.
    HandshakeOfTheLast,
    /// `limits.max_connections` is reached, and no source has more than this one.
    TooManyConnections,
    /// Memory is short.
    Memory,
    /// The process drains, or `listen.http3` is false.
    Off,
    /// The operator denies the client's network.
    Denied,
}

impl Default for Taken {
    fn default() -> Self {
        Self { connections: Fair::ranked(0), handshakes: Fair::new(0), next: 0 }
    }
}

impl Taken {
    /// The verdict on an attempt of a client of `network`, which has `validated` its address.
    fn admits(&mut self, limits: &Limits, network: Option<(IpAddr, u8)>, validated: bool, step: Step) -> Verdict {
        // No connection has the number.
        let source = Source::new(network, u64::MAX);
        let max = limits.max_connections;
        let with_closing = max.saturating_add(max / CLOSING_PART);
        self.connections.set_limit(with_closing);
        self.handshakes.set_limit(limits.max_handshakes);
        let (connections, handshakes) = (self.connections.taken(), self.handshakes.taken());
        let is_last = |taken: u32, max: u32| max.saturating_sub(taken) <= max / RESERVED_PART;
        let wants_validation = step > Step::Normal
            || handshakes >= limits.retry_handshakes
            || is_last(handshakes, limits.max_handshakes)
            || is_last(connections, max);
        if handshakes >= limits.max_handshakes {
            Verdict::TooManyHandshakes
        } else if connections >= max
            && !self.admits_beyond(&source, connections >= with_closing - max / CLOSING_PART / 2)
        {
            Verdict::TooManyConnections
        } else if step.refuses(|| self.connections.held_by(&source) > 1) {
            Verdict::Memory
        } else if wants_validation && !validated {
            // A forged address would take the place of another client's.
            Verdict::Retry
        } else if !self.handshakes.admits_to_the_last(&source) {
            Verdict::HandshakeOfTheLast
        } else {
            Verdict::Allow
        }
    }
}

impl Taken {
    /// Whether `source` gets one of the slots beyond the limit, of which there are `few` left: those are for sources
    /// whose network holds less than another one, or the sources of one network could take all of them in turns.
    fn admits_beyond(&mut self, source: &Source, few: bool) -> bool {
        if self.connections.is_full() {
            false
        } else if few {
            self.connections.has_larger_network(source)
        } else {
            self.connections.giver(source).next().is_some()
        }
    }
}

impl SourceLimits {
    /// The slots of a connection of `network` whose handshake begins.
    pub(super) fn begin(&self, network: Option<(IpAddr, u8)>) -> Slots {
        let mut taken = self.taken();
        let source = Source::new(network, taken.next);
        taken.next = taken.next.wrapping_add(1);
        let (connection, handshake) = (taken.connections.take_beyond(source), taken.handshakes.take_beyond(source));
        Slots { pools: self.clone(), connection, handshake: Some(handshake) }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The handshake is over.
    pub(super) fn handshake_done(&mut self) {
        if let Some(slot) = self.handshake.take() {
            self.pools.taken().handshakes.give_back(slot);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.handshake_done();
        self.pools.taken().connections.give_back(self.connection);
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

/// Decides on connection attempts by the limits in force, and counts.
#[derive(Debug)]
pub(super) struct Admission {
    config: Live,
    metrics: Arc<Metrics>,
    answers: StatelessResponseLimit,
    sources: SourceLimits,
    pressure: Pressure,
    denied: Arc<DenyList>,
    /// The phase of the process. Without it, the process does not drain.
    watch: Option<PhaseWatch>,
}

impl Admission {
    pub(super) fn new(config: Live, metrics: Arc<Metrics>, sources: SourceLimits, pressure: Pressure) -> Self {
        Self {
            config,
            metrics,
            answers: StatelessResponseLimit::new(MAX_RESPONSES_PER_SECOND),
            sources,
            pressure,
            denied: Arc::default(),
            watch: None,
        }
    }

    /// Makes this refuse the clients that are `denied`.
    pub(super) fn refusing(self, denied: Arc<DenyList>) -> Self {
        Self { denied, ..self }
    }

    /// Makes this refuse every attempt once the process drains.
    pub(super) fn until_draining(self, watch: PhaseWatch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    fn drains(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.phase() >= Phase::Draining)
    }

    /// Decides on an attempt by the worker's pools, which all of its endpoints share, and counts what the limits cost.
    pub(super) fn decide(&self, client: IpAddr, validated: bool) -> AttemptOutcome {
        self.decide_at(client, validated, Instant::now())
    }

    /// The slots of a connection of `client` whose handshake begins.
    pub(super) fn begin(&self, client: IpAddr) -> Slots {
        self.sources.begin(network(&self.config.load(), client))
    }

    /// Counts an attempt that fails because its token is invalid.
    pub(super) fn refuse_token(&self) {
        self.metrics.retry_tokens_refused.increment();
    }

    fn decide_at(&self, client: IpAddr, validated: bool, now: Instant) -> AttemptOutcome {
        let metrics = &self.metrics;
        let config = self.config.load();
        let verdict = if self.denied.denies(client, || now) {
            Verdict::Denied
        } else if self.drains() || !config.listen.http3 {
            Verdict::Off
        } else {
            let network = network(&config, client);
            self.sources.taken().admits(&config.limits, network, validated, self.pressure.step())
        };
        let (outcome, limit) = match verdict {
            Verdict::Allow => return AttemptOutcome::Allow,
            Verdict::Off => (AttemptOutcome::Refuse, None),
            Verdict::Denied => (AttemptOutcome::Refuse, Some(&metrics.denied)),
            Verdict::Retry => (AttemptOutcome::Retry, Some(&metrics.retries)),
            // No answer: with this many in flight, answers would serve an attacker.
            Verdict::TooManyHandshakes => (AttemptOutcome::Drop, Some(&metrics.limit_handshakes)),
            Verdict::HandshakeOfTheLast => (AttemptOutcome::Refuse, Some(&metrics.limit_handshakes)),
            Verdict::TooManyConnections => (AttemptOutcome::Refuse, Some(&metrics.limit_connections)),
            Verdict::Memory => (AttemptOutcome::Refuse, Some(&metrics.limit_memory_connections)),
        };
        if outcome != AttemptOutcome::Drop && !self.answers.admit(now) {
            metrics.limit_refusals.increment();
            metrics.handshakes_refused.increment();
            return AttemptOutcome::Drop;
        }
        if let Some(limit) = limit {
            limit.increment();
        }
        if outcome != AttemptOutcome::Retry {
            metrics.handshakes_refused.increment();
        }
        outcome
    }
}

/// The network that a connection from `address` counts for; `None` if it is a source of its own.
pub(super) fn network(config: &Config, address: IpAddr) -> Option<(IpAddr, u8)> {
    config.source(address).map(|network| (network.address, network.prefix))
}

/// A client's address without its port.
pub(super) fn ip(address: &SocketAddress<'_>) -> IpAddr {
    SocketAddr::from(address).ip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_base::lifecycle::Lifecycle;
    use litequic_config::Config;
    use std::time::Duration;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn limits() -> Limits {
        Limits { max_connections: 100, retry_handshakes: 10, max_handshakes: 20, ..Limits::default() }
    }

    /// Pools with so many connections, of which so many handshakes are in progress, of sources of their own.
    fn filled(pools: &SourceLimits, connections: usize, handshakes: usize) -> Vec<Slots> {
        let mut slots: Vec<Slots> = (0..connections.max(handshakes)).map(|_| pools.begin(None)).collect();
        slots.iter_mut().skip(handshakes).for_each(Slots::handshake_done);
        slots
    }

    fn address(network: u8, last: u8) -> Option<(IpAddr, u8)> {
        Some(([192, 0, network, last].into(), 32))
    }

    #[test]
    fn an_attempt_is_admitted_by_what_the_worker_has() {
        let table = [
            ("idle", 0, 0, false, Verdict::Allow),
            ("one below retry", 50, 9, false, Verdict::Allow),
            ("busy", 50, 10, false, Verdict::Retry),
            ("busy, address proved", 50, 10, true, Verdict::Allow),
            ("an eighth is left", 88, 0, false, Verdict::Retry),
            ("an eighth is left, address proved", 88, 0, true, Verdict::Allow),
            ("full", 100, 0, false, Verdict::TooManyConnections),
            ("full, address proved", 100, 0, true, Verdict::TooManyConnections),
            ("flooded", 50, 20, false, Verdict::TooManyHandshakes),
            ("flooded, address proved", 50, 20, true, Verdict::TooManyHandshakes),
            ("full and flooded", 100, 20, true, Verdict::TooManyHandshakes),
        ];
        for (what, connections, handshakes, validated, expected) in table {
            let pools = SourceLimits::default();
            let _slots = filled(&pools, connections, handshakes);
            let verdict = pools.taken().admits(&limits(), None, validated, Step::Normal);
            assert_eq!(verdict, expected, "{what}");
        }
    }

    #[test]
    fn a_source_may_have_all_connections_and_one_that_holds_less_takes_those_beyond_for_the_closing() {
        let pools = SourceLimits::default();
        let admits = |network, validated| pools.taken().admits(&limits(), network, validated, Step::Normal);
        let mut slots: Vec<Slots> = Vec::new();
        while admits(address(1, 1), true) == Verdict::Allow {
            let mut taken = pools.begin(address(1, 1));
            taken.handshake_done();
            slots.push(taken);
        }
        assert_eq!(slots.len(), 100);
        assert_eq!(admits(address(1, 1), true), Verdict::TooManyConnections);
        assert_eq!(admits(address(2, 1), false), Verdict::Retry, "it may be forged");
        for others in 0..6 {
            assert_eq!(admits(address(2, 1), true), Verdict::Allow, "{others}");
            let mut taken = pools.begin(address(2, 1));
            taken.handshake_done();
            slots.push(taken);
        }
        assert_eq!(admits(address(2, 1), true), Verdict::TooManyConnections, "until those have gone");
        slots.clear();
        assert_eq!(pools.taken().connections.taken(), 0);
    }

    #[test]
    fn sources_of_one_network_leave_connections_beyond_the_limit_to_other_networks() {
        let pools = SourceLimits::default();
        let admits = |network| pools.taken().admits(&limits(), network, true, Step::Normal);
        let mut slots: Vec<Slots> = Vec::new();
        let mut fill = |network| {
            let before = slots.len();
            while admits(network) == Verdict::Allow {
                let mut taken = pools.begin(network);
                taken.handshake_done();
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
            while pools.taken().admits(&limits, network, validated, Step::Normal) == Verdict::Allow {
                slots.push(pools.begin(network));
                count += 1;
                assert!(count <= 160);
            }
            (count, pools.taken().admits(&limits, network, validated, Step::Normal))
        };
        assert_eq!(fill(address(1, 1), false), (140, Verdict::Retry));
        assert_eq!(fill(address(1, 1), true), (0, Verdict::HandshakeOfTheLast));
        assert_eq!(fill(address(2, 1), false), (0, Verdict::Retry));
        let others: u32 = (2..=200).map(|last| fill(address(1, last), true).0).sum();
        assert_eq!(others, 10, "of the same network until a sixteenth is left");
        assert_eq!(fill(address(2, 1), true), (1, Verdict::HandshakeOfTheLast));
        assert_eq!(fill(address(2, 2), true), (0, Verdict::HandshakeOfTheLast));
        let networks: u32 = (3..=200).map(|network| fill(address(network, 1), true).0).sum();
        assert_eq!(networks, 9);
        assert_eq!(fill(address(201, 1), true), (0, Verdict::TooManyHandshakes));
    }

    fn admission() -> (Admission, Arc<Metrics>) {
        let metrics = Arc::<Metrics>::default();
        let origin = "http://origin".parse().unwrap();
        let config = Config::simple(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        (
            Admission::new(
                Config { limits: limits(), ..config }.live(),
                Arc::clone(&metrics),
                SourceLimits::default(),
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
            let slots = filled(&admission.sources, connections, handshakes);
            let answered = |admission: &Admission, now, attempts: u32| {
                let outcomes = (0..attempts).map(|_| admission.decide_at(CLIENT, false, now));
                let (answered, silent): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| *outcome == answer);
                assert!(silent.iter().all(|outcome| *outcome == AttemptOutcome::Drop), "{what}");
                u32::try_from(answered.len()).unwrap()
            };
            // A second's worth at once, then what time brings.
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
            // A client that needs no such answer is accepted.
            drop(slots);
            let _slots = filled(&admission.sources, 50, 9);
            assert_eq!(admission.decide_at(CLIENT, false, now), AttemptOutcome::Allow, "{what}");
        }
    }

    #[test]
    fn a_process_that_drains_refuses_every_attempt() {
        let (admission, metrics) = admission();
        let lifecycle = Lifecycle::default();
        let admission = admission.until_draining(lifecycle.watch());
        for (phase, validated, expected) in [
            (Phase::Ready, false, AttemptOutcome::Allow),
            (Phase::Leaving, true, AttemptOutcome::Allow),
            (Phase::Draining, false, AttemptOutcome::Refuse),
            (Phase::Draining, true, AttemptOutcome::Refuse),
            (Phase::Stopping, false, AttemptOutcome::Refuse),
        ] {
            lifecycle.advance(phase);
            assert_eq!(admission.decide(CLIENT, validated), expected, "{phase:?}");
        }
        assert_eq!(metrics.handshakes_refused.get(), 3);
        let now = Instant::now();
        let answers = (0..MAX_RESPONSES_PER_SECOND * 2)
            .filter(|_| admission.decide_at(CLIENT, false, now) == AttemptOutcome::Refuse);
        assert!(answers.count() <= MAX_RESPONSES_PER_SECOND as usize, "the rate of answers is bounded");
    }

    #[test]
    fn while_http3_is_off_every_attempt_is_refused_and_counted() {
        let (admission, metrics) = admission();
        let mut config = (*admission.config.load_full()).clone();
        config.listen.http3 = false;
        admission.config.store(Arc::new(config));
        for validated in [false, true] {
            assert_eq!(admission.decide(CLIENT, validated), AttemptOutcome::Refuse);
        }
        assert_eq!((metrics.handshakes_refused.get(), metrics.limit_connections.get()), (2, 0));
    }

    #[test]
    fn every_limit_that_bites_is_counted() {
        let (admission, metrics) = admission();
        for (connections, handshakes) in [(0, 0), (10, 10), (20, 20), (100, 0)] {
            let _slots = filled(&admission.sources, connections, handshakes);
            admission.decide(CLIENT, false);
        }
        assert_eq!(metrics.retries.get(), 1);
        assert_eq!(metrics.limit_handshakes.get(), 1);
        assert_eq!(metrics.limit_connections.get(), 1);
        assert_eq!(metrics.handshakes_refused.get(), 2);
    }
}

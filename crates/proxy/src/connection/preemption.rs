//! Decides which exchange gives its connection to an origin to a waiting request: that of a slow client, one on whose
//! body nothing moves, or the one that awaits its response for longest. Pure: the time is an argument.

use litequic_resources::fairness::SlotExcess;
use std::{cell::Cell, time::Duration};
use tokio::time::Instant;

/// Wait of a request before it preempts an exchange of a client that holds more: a few round trips, and many times what
/// a small response takes.
pub(crate) const PREEMPTION_DELAY: Duration = Duration::from_millis(250);
/// Time of waiting for a client after which its rate counts: a few round trips, lost packets included.
const RATE_AFTER: Duration = Duration::from_secs(1);
/// Time without bytes in either direction after which a body is silent, before the division by its client's
/// [`SlotExcess::ratio`]: an event stream of a client that holds little stays longer than one of a thousand.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Shortest time after which a body is silent: a few round trips, lost packets included.
const MIN_SILENCE: Duration = Duration::from_secs(1);
/// Rate, in bytes a second, below which a body is slow: half of what EDGE, the slowest mobile network in use,
/// transfers. Only slow bodies are preempted by other connections of their own source.
const MAX_SLOW_RATE: u64 = 16 * 1024;
/// Wait of a request beside a slow body that does not end within the same time.
const MAX_WAIT_BESIDE_SLOW: Duration = Duration::from_secs(2);
/// Time after which a request whose response's header is awaited may be preempted: many times what most responses take.
const SLOW_RESPONSE_AFTER: Duration = Duration::from_secs(1);

/// Reason to preempt an exchange; the larger of two goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PreemptionReason {
    /// The origin has had the request for this time, and has not answered.
    Unanswered(Duration),
    /// No byte has moved on the exchange's body for this time.
    Silent(Duration),
    /// litequic waits for the client, which at its rate needs this time for the rest of the body.
    Slow(Duration, BodyDirection),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BodyDirection {
    Upload,
    Download,
}

/// A waiting request, for which an exchange may be preempted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingRequest {
    /// Longest time for which the request goes on waiting.
    pub(crate) wait_left: Duration,
    /// Whether the request is of another connection of the same source as the exchange's client.
    pub(super) same_source: bool,
    /// Time without bytes after which a body is silent.
    pub(super) silent_after: Duration,
    /// Returns the time since a moment, without the time in which the process did not run.
    pub(crate) elapsed: fn(Instant) -> Duration,
}

impl WaitingRequest {
    /// A request that waits for `wait_left` more, beside an exchange whose client holds more by `excess`.
    pub(crate) fn new(wait_left: Duration, excess: &SlotExcess, elapsed: fn(Instant) -> Duration) -> Self {
        let same_source = excess.between_connections;
        let shorter = if same_source { 1 } else { excess.ratio.max(1) };
        Self { wait_left, same_source, silent_after: (SILENT_AFTER / shorter).max(MIN_SILENCE), elapsed }
    }

    /// The reason to preempt a body on which no byte has moved for the time `silence`, if there is one.
    pub(crate) fn silence_reason(self, silence: Duration) -> Option<PreemptionReason> {
        (silence >= self.silent_after).then_some(PreemptionReason::Silent(silence))
    }

    /// The reason to preempt a request that the origin got at `sent`, and has not answered, if there is one. Only for a
    /// waiting request of a network that holds nothing.
    pub(crate) fn unanswered_reason(self, sent: Instant) -> Option<PreemptionReason> {
        let waited = (self.elapsed)(sent);
        (waited >= SLOW_RESPONSE_AFTER).then_some(PreemptionReason::Unanswered(waited))
    }
}

/// Bytes of a body that a client moved, and time for which litequic waited for the client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientTime {
    bytes: u64,
    waited: Duration,
    /// Start of the present wait for the client, if there is one.
    since: Option<Instant>,
}

impl ClientTime {
    /// Begins the wait for the client, unless it has begun before.
    pub(crate) fn begin_client_wait(&mut self, now: impl FnOnce() -> Instant) {
        self.since = Some(self.since.unwrap_or_else(now));
    }

    /// Ends the wait for the client. `elapsed` returns the time since a moment; the clock is read only if there was a
    /// wait.
    pub(crate) fn end_client_wait(&mut self, elapsed: impl FnOnce(Instant) -> Duration) {
        if let Some(since) = self.since.take() {
            self.waited = self.waited.saturating_add(elapsed(since));
        }
    }

    pub(crate) const fn count_moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The reason to preempt an upload or a download for `taker`: the time that `rest` bytes take at the client's rate,
    /// if litequic waits for the client now, and the rate is known (`later` than usual). A body of unknown length never
    /// ends if it is slow, for a client could choose its rate so that it seems to end soon; the rest of another one is
    /// taken to be as long as what was moved.
    pub(crate) fn slow_reason(
        self,
        direction: BodyDirection,
        rest: Option<u64>,
        later: Duration,
        taker: WaitingRequest,
    ) -> Option<PreemptionReason> {
        let waited = self.waited.saturating_add((taker.elapsed)(self.since?));
        if waited < RATE_AFTER.saturating_add(later) {
            return None;
        }
        let rate = u128::from(self.bytes) * 1_000 / waited.as_millis().max(1);
        let is_slow = rate < u128::from(MAX_SLOW_RATE);
        if taker.same_source && !is_slow {
            return None;
        }
        let rest = u128::from(rest.unwrap_or(if is_slow { u64::MAX } else { self.bytes }));
        // Without a byte so far the rest never ends.
        let remaining =
            (rest * 1_000).checked_div(rate).map_or(u64::MAX, |time| u64::try_from(time).unwrap_or(u64::MAX));
        let remaining = Duration::from_millis(remaining);
        let patience = if is_slow { taker.wait_left.min(MAX_WAIT_BESIDE_SLOW) } else { taker.wait_left };
        (remaining > patience).then_some(PreemptionReason::Slow(remaining, direction))
    }
}

/// Changes the value in a cell.
pub(crate) fn update_cell<T: Copy>(cell: &Cell<T>, change: impl FnOnce(&mut T)) {
    let mut value = cell.get();
    change(&mut value);
    cell.set(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: SlotExcess = SlotExcess::between_sources(2);

    /// A client that moved `bytes` in `waited`, and for which litequic waits now.
    fn client(bytes: u64, waited: Duration) -> ClientTime {
        ClientTime { bytes, waited, since: Some(Instant::now()) }
    }

    #[test]
    fn an_exchange_gives_way_by_what_its_client_still_takes() {
        let secs = Duration::from_secs;
        let other = WaitingRequest::new(secs(5), &EVEN, |_| Duration::ZERO);
        let same = WaitingRequest { same_source: true, ..other };
        for (what, bytes, waited, rest, taker, expected) in [
            ("slow", 3_000, secs(10), Some(3_000_000), other, Some(secs(10_000))),
            ("slow, of its own source", 3_000, secs(10), Some(3_000_000), same, Some(secs(10_000))),
            ("its rate is not known yet", 100, Duration::from_millis(999), Some(3_000_000), other, None),
            ("slow, and over soon", 3_000, secs(10), Some(600), other, None),
            ("slow, and over before the request's time is", 75_000, secs(10), Some(30_000), other, Some(secs(4))),
            ("fast, and long", 10_000_000, secs(10), Some(100_000_000), other, Some(secs(100))),
            ("fast, of its own source", 10_000_000, secs(10), Some(100_000_000), same, None),
            ("fast, and nearly over", 10_000_000, secs(10), Some(1_000_000), other, None),
            ("nothing moved", 0, secs(1), Some(1), other, Some(Duration::from_millis(u64::MAX))),
            ("slow, of unknown length", 2_000, secs(2), None, other, Some(Duration::from_millis(u64::MAX))),
            ("fast, of unknown length", 10_000_000, secs(10), None, other, Some(secs(10))),
            ("fast, of unknown length, just begun", 2_000_000, secs(2), None, other, None),
        ] {
            let reason = client(bytes, waited).slow_reason(BodyDirection::Download, rest, Duration::ZERO, taker);
            let expected = expected.map(|remaining| PreemptionReason::Slow(remaining, BodyDirection::Download));
            assert_eq!(reason, expected, "{what}");
        }
        let idle = ClientTime { since: None, ..client(0, secs(100)) };
        assert_eq!(
            idle.slow_reason(BodyDirection::Download, Some(1), Duration::ZERO, other),
            None,
            "the client is not waited for"
        );
        let expects_continue = client(0, secs(2)).slow_reason(BodyDirection::Upload, None, secs(2), other);
        assert_eq!(expects_continue, None);
    }

    #[test]
    fn the_clients_time_is_the_sum_of_the_waits_for_it() {
        let began = Instant::now();
        let at = |seconds| move || began + Duration::from_secs(seconds);
        let mut time = ClientTime::default();
        time.end_client_wait(|_| panic!("no wait, no clock"));
        time.begin_client_wait(at(1));
        time.begin_client_wait(|| panic!("it has begun"));
        time.count_moved(1_000);
        time.end_client_wait(|since| at(3)().saturating_duration_since(since));
        time.begin_client_wait(at(10));
        let taker = WaitingRequest::new(Duration::ZERO, &EVEN, |_| Duration::from_secs(2));
        let reason = time.slow_reason(BodyDirection::Upload, Some(500), Duration::ZERO, taker);
        assert_eq!(
            reason,
            Some(PreemptionReason::Slow(Duration::from_secs(2), BodyDirection::Upload)),
            "250 bytes a second"
        );
    }

    #[test]
    fn silence_preempts_heavier_clients_sooner_and_slow_bodies_come_first() {
        let ms = Duration::from_millis;
        for (ratio, after) in [(0, ms(10_000)), (1, ms(10_000)), (2, ms(5_000)), (8, ms(1_250)), (512, ms(1_000))] {
            let taker = WaitingRequest::new(ms(1), &SlotExcess::between_sources(ratio), |_| Duration::ZERO);
            assert_eq!(taker.silence_reason(after - ms(1)), None, "{ratio}");
            let silence = taker.silence_reason(after).unwrap();
            assert!(silence < PreemptionReason::Slow(ms(1_000), BodyDirection::Upload), "{ratio}");
            assert!(silence < taker.silence_reason(after + ms(1)).unwrap(), "{ratio}");
        }
        let mut colleague = SlotExcess::between_sources(512);
        colleague.between_connections = true;
        assert_eq!(WaitingRequest::new(ms(1), &colleague, |_| Duration::ZERO).silence_reason(ms(9_999)), None);
    }
}

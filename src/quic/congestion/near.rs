//! How much may be in flight to a client on the same machine or network, where the client's socket is the buffer that
//! overflows (udp(7): net.core.rmem_default holds some ninety full packets, until the program reads them). Pure.
//!
//! Such a path holds next to nothing itself: what is in flight beyond it waits in the socket. TCP's window leaves room
//! for that buffer (RFC 9293 §3.8.6), QUIC's flow control does not know of it.

use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// Paths whose shortest round trip is below this are near.
const NEAR: Duration = Duration::from_millis(2);
/// Packets that may wait for the client at first: a socket with the default buffer holds 92, of which the kernel gives
/// a quarter back late (`udp_rmem_release` of net/ipv4/udp.c).
const FIRST_WAITING: u32 = 48;
/// Packets that may wait at least.
const MIN_WAITING: u32 = 16;
/// Packets by which that grows.
const STEP: u32 = 8;
/// Round trips without a loss after which it does, at first.
const STEP_ROUNDS: u32 = 8;
/// Round trips to which losses prolong that, each by two.
const MAX_STEP_ROUNDS: u32 = 1024;
/// Round trips whose best delivery counts.
const ROUNDS: usize = 8;
/// Losses with [`MIN_WAITING`] packets waiting, after which something else overflows, and the limit ends: a router's
/// buffer that others fill.
const MAX_VAIN: u8 = 3;

/// The limit of one path.
#[derive(Debug, Clone)]
pub(super) struct NearLimit {
    /// The current round trip: when it began, and bytes that were acknowledged since.
    round: Option<(Timestamp, u64)>,
    /// Bytes that were delivered within the shortest round trip, by the rate of each of the last round trips.
    delivered: [u32; ROUNDS],
    next: usize,
    /// Packets that may wait for the client.
    waiting: u32,
    /// Round trips since that changed, and after how many it grows.
    rounds: u32,
    step_rounds: u32,
    /// Losses in spite of the limit.
    vain: u8,
    /// Bytes that may be in flight; `None` where nothing limits them.
    limit: Option<u32>,
}

impl Default for NearLimit {
    fn default() -> Self {
        Self {
            round: None,
            delivered: [0; ROUNDS],
            next: 0,
            waiting: FIRST_WAITING,
            rounds: 0,
            step_rounds: STEP_ROUNDS,
            vain: 0,
            limit: None,
        }
    }
}

impl NearLimit {
    /// Bytes that may be in flight; `None` where the path is not near.
    pub(super) const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// `bytes` were acknowledged at `now`, the newest of them sent at `sent`.
    pub(super) fn on_ack(&mut self, sent: Timestamp, now: Timestamp, bytes: u32, min_rtt: Duration, max_datagram: u16) {
        if min_rtt >= NEAR || min_rtt.is_zero() || self.vain >= MAX_VAIN {
            self.limit = None;
            return;
        }
        let Some((began, delivered)) = &mut self.round else {
            self.round = Some((now, 0));
            return;
        };
        *delivered += u64::from(bytes);
        if sent < *began {
            return;
        }
        let took = now.saturating_duration_since(*began).max(min_rtt);
        let within = u128::from(*delivered) * min_rtt.as_nanos() / took.as_nanos().max(1);
        self.round = Some((now, 0));
        if let Some(slot) = self.delivered.get_mut(self.next) {
            *slot = u32::try_from(within).unwrap_or(u32::MAX);
        }
        self.next = (self.next + 1) % ROUNDS;
        self.rounds += 1;
        if self.rounds >= self.step_rounds {
            (self.rounds, self.waiting) = (0, self.waiting.saturating_add(STEP));
        }
        let best = self.delivered.iter().copied().max().unwrap_or_default();
        self.limit = Some(best.saturating_add(self.waiting.saturating_mul(max_datagram.into())));
    }

    /// The window was reduced for a loss.
    pub(super) fn on_loss(&mut self) {
        if self.limit.is_none() {
            return;
        }
        self.vain += u8::from(self.waiting == MIN_WAITING);
        self.waiting = (self.waiting * 3 / 4).max(MIN_WAITING);
        self.rounds = 0;
        self.step_rounds = (self.step_rounds * 2).min(MAX_STEP_ROUNDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    const DATAGRAM: u16 = 1_200;
    const MIN_RTT: Duration = Duration::from_micros(200);

    /// A client that takes `rate` packets a round trip of `took`, acknowledges all at once, and whose window is full.
    struct Path {
        limit: NearLimit,
        now: Timestamp,
    }

    impl Path {
        fn new() -> Self {
            Self { limit: NearLimit::default(), now: NoopClock.get_time() + Duration::from_secs(1) }
        }

        fn round(&mut self, packets: u32, min_rtt: Duration, took: Duration) -> Option<u32> {
            let sent = self.now;
            self.now += took;
            self.limit.on_ack(sent, self.now, packets * u32::from(DATAGRAM), min_rtt, DATAGRAM);
            self.packets()
        }

        fn packets(&self) -> Option<u32> {
            self.limit.limit().map(|bytes| bytes / u32::from(DATAGRAM))
        }
    }

    #[test]
    fn only_a_near_path_is_limited_and_none_before_it_is_measured() {
        let mut path = Path::new();
        assert_eq!(path.packets(), None);
        assert_eq!(path.round(10, MIN_RTT, MIN_RTT), None, "the first round trip begins");
        assert_eq!(path.round(10, MIN_RTT, MIN_RTT), Some(10 + FIRST_WAITING));
        assert_eq!(path.round(10, NEAR, NEAR), None);
        assert_eq!(path.round(10, Duration::ZERO, MIN_RTT), None);
    }

    #[test]
    fn what_is_delivered_within_the_shortest_round_trip_may_be_in_flight_beside_what_waits() {
        let mut path = Path::new();
        path.round(0, MIN_RTT, MIN_RTT);
        // Twenty round trips' worth of waiting is not the path's.
        assert_eq!(path.round(100, MIN_RTT, 20 * MIN_RTT), Some(5 + FIRST_WAITING));
        assert_eq!(path.round(100, MIN_RTT, 2 * MIN_RTT), Some(50 + FIRST_WAITING));
        for _ in 0..ROUNDS - 3 {
            assert_eq!(path.round(1, MIN_RTT, MIN_RTT), Some(50 + FIRST_WAITING), "the best of the last ones");
        }
    }

    #[test]
    fn what_may_wait_grows_without_losses_and_ever_slower_after_each() {
        let mut path = Path::new();
        path.round(0, MIN_RTT, MIN_RTT);
        let mut rounds_to_grow = |path: &mut Path| {
            let before = path.limit.waiting;
            (1..).find(|_| {
                path.round(0, MIN_RTT, MIN_RTT);
                path.limit.waiting > before
            })
        };
        assert_eq!(rounds_to_grow(&mut path), Some(STEP_ROUNDS));
        path.limit.on_loss();
        assert_eq!(path.limit.waiting, (FIRST_WAITING + STEP) * 3 / 4);
        assert_eq!(rounds_to_grow(&mut path), Some(2 * STEP_ROUNDS));
        (0..3).for_each(|_| path.limit.on_loss());
        assert_eq!(rounds_to_grow(&mut path), Some(16 * STEP_ROUNDS));
    }

    #[test]
    fn losses_in_spite_of_the_least_limit_end_it() {
        let mut path = Path::new();
        path.limit.on_loss();
        assert_eq!(path.limit.waiting, FIRST_WAITING, "nothing was limited");
        for _ in 0..3 {
            path.round(0, MIN_RTT, MIN_RTT);
        }
        let losses = (1..).find(|_| {
            path.limit.on_loss();
            path.round(0, MIN_RTT, MIN_RTT).is_none()
        });
        // 48, 36, 27, 20, and three at 16.
        assert_eq!(losses, Some(4 + u32::from(MAX_VAIN)));
    }
}

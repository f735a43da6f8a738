//! Limits the bytes in flight to a client on the same machine or network, or nearby, where the client's socket is the
//! buffer that overflows (udp(7): net.core.rmem_default holds some ninety full packets, until the program reads them).
//! Pure.
//!
//! Such a path holds next to nothing: further packets in flight wait in the socket. TCP's window leaves room for that
//! buffer (RFC 9293 §3.8.6), QUIC's flow control does not know of it.

use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// Shortest round trip from which on a path is not near: near are a machine, a network, a city. 1 Gbit/s sends the
/// content of a default socket buffer within 1 ms; on a path of 5 ms slow start overflows it as well.
const MAX_NEAR_RTT: Duration = Duration::from_millis(6);
/// Packets that may wait in the client's socket at first: a default buffer holds 92, of which the kernel frees a
/// quarter late (`udp_rmem_release` of net/ipv4/udp.c).
const INITIAL_WAITING_PACKETS: u32 = 48;
/// Least number of packets that may wait in the client's socket.
const MIN_WAITING_PACKETS: u32 = 16;
/// Waiting packets up to which the limit grows by a quarter each round trip; beyond, it grows by a step, until the
/// first loss shows the socket's capacity. Nearly the capacity of a default buffer.
const MAX_FAST_GROWTH_PACKETS: u32 = 64;
/// Part by which the limit of waiting packets grows in fast growth, and falls for a loss: a quarter.
const WAITING_PART: u32 = 4;
/// Packets of one step of growth.
const STEP_PACKETS: u32 = 8;
/// Round trips between two steps after the first loss.
const STEP_ROUNDS: u32 = 16;
/// Largest number of round trips between two steps; each loss doubles it.
const MAX_STEP_ROUNDS: u32 = 1024;
/// Number of round trips of which the best delivery counts.
const DELIVERY_ROUNDS: usize = 8;
/// Losses at [`MIN_WAITING_PACKETS`] after which the limit ends, because something else overflows: a router's buffer
/// that others fill.
const MAX_LOSSES_AT_MINIMUM: u8 = 3;

/// Measurement of the current round trip.
#[derive(Debug, Clone, Copy)]
struct DeliveryRound {
    began: Timestamp,
    /// Bytes acknowledged since `began`.
    delivered: u64,
    /// Longest round trip of an acknowledged packet. Acknowledgements that wait for a server without CPU time come at
    /// once: their packets were not delivered as fast.
    longest: Duration,
}

/// Limit of the bytes in flight on one path.
#[derive(Debug, Clone)]
pub(super) struct NearLimit {
    round: Option<DeliveryRound>,
    /// Bytes delivered within the shortest round trip, by the rate of each of the last round trips.
    delivered: [u32; DELIVERY_ROUNDS],
    next: usize,
    /// Packets that may wait in the client's socket.
    waiting: u32,
    /// Round trips since `waiting` changed.
    rounds: u32,
    /// Round trips after which `waiting` grows by a step; 0 before the first loss.
    step_rounds: u32,
    /// Losses while `waiting` was [`MIN_WAITING_PACKETS`].
    losses_at_minimum: u8,
    /// Bytes that may be in flight; `None` without a limit.
    pub(super) limit: Option<u32>,
}

impl Default for NearLimit {
    fn default() -> Self {
        Self {
            round: None,
            delivered: [0; DELIVERY_ROUNDS],
            next: 0,
            waiting: INITIAL_WAITING_PACKETS,
            rounds: 0,
            step_rounds: 0,
            losses_at_minimum: 0,
            limit: None,
        }
    }
}

impl NearLimit {
    /// `bytes` bytes were acknowledged at `now`, whose newest packet was sent at `sent`.
    pub(super) fn on_bytes_delivered(
        &mut self,
        sent: Timestamp,
        now: Timestamp,
        bytes: u32,
        min_rtt: Duration,
        max_datagram: u16,
    ) {
        if min_rtt >= MAX_NEAR_RTT || min_rtt.is_zero() || self.losses_at_minimum >= MAX_LOSSES_AT_MINIMUM {
            self.limit = None;
            return;
        }
        let next = DeliveryRound { began: now, delivered: 0, longest: Duration::ZERO };
        let Some(round) = &mut self.round else {
            self.round = Some(next);
            return;
        };
        round.delivered += u64::from(bytes);
        round.longest = round.longest.max(now.saturating_duration_since(sent));
        if sent < round.began {
            return;
        }
        let took = now.saturating_duration_since(round.began).max(round.longest).max(min_rtt);
        let within = u128::from(round.delivered) * min_rtt.as_nanos() / took.as_nanos().max(1);
        self.round = Some(next);
        if let Some(slot) = self.delivered.get_mut(self.next) {
            *slot = u32::try_from(within).unwrap_or(u32::MAX);
        }
        self.next = (self.next + 1) % DELIVERY_ROUNDS;
        self.rounds += 1;
        if self.step_rounds == 0 {
            let growth =
                if self.waiting < MAX_FAST_GROWTH_PACKETS { self.waiting / WAITING_PART } else { STEP_PACKETS };
            self.waiting = self.waiting.saturating_add(growth);
        } else if self.rounds >= self.step_rounds {
            (self.rounds, self.waiting) = (0, self.waiting.saturating_add(STEP_PACKETS));
        }
        let best = self.delivered.iter().copied().max().unwrap_or_default();
        self.limit = Some(best.saturating_add(self.waiting.saturating_mul(max_datagram.into())));
    }

    /// The window was reduced because of a loss.
    pub(super) fn on_loss(&mut self) {
        if self.limit.is_none() {
            return;
        }
        self.losses_at_minimum += u8::from(self.waiting == MIN_WAITING_PACKETS);
        // The waiting packets were at most a quarter more than the socket holds.
        self.waiting = (self.waiting - self.waiting / WAITING_PART).max(MIN_WAITING_PACKETS);
        self.rounds = 0;
        self.step_rounds = self.step_rounds.saturating_mul(2).clamp(STEP_ROUNDS, MAX_STEP_ROUNDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    const DATAGRAM: u16 = 1_200;
    const MIN_RTT: Duration = Duration::from_micros(200);

    /// A path to a client that acknowledges a round trip's packets at once, with a full window.
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
            self.limit.on_bytes_delivered(sent, self.now, packets * u32::from(DATAGRAM), min_rtt, DATAGRAM);
            self.packets()
        }

        fn packets(&self) -> Option<u32> {
            self.limit.limit.map(|bytes| bytes / u32::from(DATAGRAM))
        }
    }

    #[test]
    fn only_a_measured_near_path_is_limited() {
        let mut path = Path::new();
        assert_eq!(path.packets(), None);
        assert_eq!(path.round(10, MIN_RTT, MIN_RTT), None, "the first round trip begins");
        assert_eq!(path.round(10, MIN_RTT, MIN_RTT), Some(10 + 60));
        assert_eq!(path.round(10, MAX_NEAR_RTT, MAX_NEAR_RTT), None);
        assert_eq!(path.round(10, Duration::ZERO, MIN_RTT), None);
    }

    #[test]
    fn the_limit_is_the_best_delivery_and_the_waiting_packets() {
        let mut path = Path::new();
        path.round(0, MIN_RTT, MIN_RTT);
        path.round(0, MIN_RTT, MIN_RTT);
        path.limit.on_loss();
        let waiting = path.limit.waiting;
        // Packets of twenty round trips waited in the socket, not on the path.
        assert_eq!(path.round(100, MIN_RTT, 20 * MIN_RTT), Some(5 + waiting));
        assert_eq!(path.round(100, MIN_RTT, 2 * MIN_RTT), Some(50 + waiting));
        for _ in 0..DELIVERY_ROUNDS - 1 {
            assert_eq!(path.round(1, MIN_RTT, MIN_RTT), Some(50 + waiting), "the best of the last ones");
        }
        assert_eq!(path.round(1, MIN_RTT, MIN_RTT), Some(1 + waiting));
    }

    #[test]
    fn waiting_packets_grow_fast_until_the_first_loss() {
        let mut path = Path::new();
        path.round(0, MIN_RTT, MIN_RTT);
        let grown: Vec<_> = (0..4).map(|_| path.round(0, MIN_RTT, MIN_RTT).unwrap()).collect();
        assert_eq!(grown, [60, 75, 83, 91]);
        path.limit.on_loss();
        assert_eq!(path.limit.waiting, 69);
        let rounds_to_grow = |path: &mut Path| {
            let before = path.limit.waiting;
            (1..2000).find(|_| {
                path.round(0, MIN_RTT, MIN_RTT);
                path.limit.waiting > before
            })
        };
        for expected in [16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(rounds_to_grow(&mut path), Some(expected));
            path.limit.on_loss();
            path.limit.waiting = path.limit.waiting.max(2 * MIN_WAITING_PACKETS);
        }
    }

    /// A server without CPU time reads the acknowledgements of one round trip after 90 ms.
    #[test]
    fn acknowledgements_that_waited_for_the_server_show_no_fast_path() {
        let mut path = Path::new();
        path.round(0, MIN_RTT, MIN_RTT);
        path.round(0, MIN_RTT, MIN_RTT);
        path.limit.on_loss();
        let (waiting, sent) = (path.limit.waiting, path.now);
        path.now += Duration::from_millis(90);
        for _ in 0..100 {
            path.limit.on_bytes_delivered(sent, path.now, DATAGRAM.into(), MIN_RTT, DATAGRAM);
        }
        assert_eq!(path.round(0, MIN_RTT, MIN_RTT), Some(waiting));
        assert_eq!(path.round(50, MIN_RTT, MIN_RTT), Some(50 + waiting), "the next round trip counts");
    }

    #[test]
    fn losses_in_spite_of_the_least_limit_end_it() {
        let mut path = Path::new();
        path.limit.on_loss();
        assert_eq!(path.limit.waiting, INITIAL_WAITING_PACKETS, "nothing was limited");
        for _ in 0..2 {
            path.round(0, MIN_RTT, MIN_RTT);
        }
        let losses = (1..20).find(|_| {
            path.limit.on_loss();
            path.round(0, MIN_RTT, MIN_RTT).is_none()
        });
        // 60, 45, 34, 26, 20, and three at 16.
        assert_eq!(losses, Some(5 + u32::from(MAX_LOSSES_AT_MINIMUM)));
    }
}

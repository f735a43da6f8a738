//! Times bursts: each is a millisecond of the current rate, and leaves at a time of its own with one call to the kernel
//! and the network card.
//!
//! For s2n-quic, a packet that is due within a millisecond is due now (`Timestamp::has_elapsed`), and timers fire in
//! steps of one: bursts leave up to a millisecond too early or too late, and the next ones at their own times.

use super::{BURST_INTERVAL, GRANULARITY, SentPacket, is_slow_rate, shortened_bursts::ShortenedBursts};
use s2n_quic_core::{recovery::bandwidth::Bandwidth, time::Timestamp};
use std::time::Duration;

/// Smallest burst in packets: receivers acknowledge every second packet (RFC 9000 §13.2.2).
pub(super) const MIN_BURST_PACKETS: u32 = 2;
/// Smallest burst in packets where bursts leave together every two milliseconds (`quic::io::moderation`): on a path of
/// that length, two packets more harm no buffer, and a message costs the kernel as much as a packet.
const MIN_MODERATED_BURST_PACKETS: u32 = 4;
/// Largest burst in packets: one message of UDP GSO (`UDP_MAX_SEGMENTS`).
const MAX_BURST_PACKETS: u32 = 64;
/// Packets that may leave at once where nothing is in flight: the initial window (RFC 9002 §7.2, §7.7).
const INITIAL_WINDOW_PACKETS: u32 = 10;
/// Part of a round trip for which a burst may be delayed to join others: an eighth.
const COALESCE_PART: u32 = 8;
/// Longest time by which a burst delays the next one at any rate: only further packets correct a rate that was
/// estimated too low.
const MAX_BURST_TIME: Duration = Duration::from_secs(1);

/// Timed bursts of one path: the current burst, and the time of the next.
#[derive(Debug, Clone, Default)]
pub(super) struct TimedBursts {
    /// Time at which the next burst may leave; `None` if at once.
    pub(super) next_send_time: Option<Timestamp>,
    burst: Option<TimedBurst>,
}

impl TimedBursts {
    /// A packet was sent. `rate` is evaluated once a burst, when it begins.
    pub(super) fn add_sent_packet(
        &mut self,
        sent: &SentPacket,
        limit: &mut ShortenedBursts,
        rate: impl FnOnce() -> Bandwidth,
    ) {
        let current = self.burst.get_or_insert_with(|| {
            let rate = rate();
            TimedBurst::from_first_packet(sent, self.next_send_time, rate, limit.begin_burst(rate, sent.max_datagram))
        });
        current.sent = current.sent.saturating_add(sent.bytes);
        if current.sent >= current.max_bytes {
            self.next_send_time = Some(current.next_burst_time());
            self.burst = None;
            limit.end_burst();
        }
    }

    /// An acknowledgement arrived. The released packets begin another burst; with `coalesce`, not within
    /// [`BURST_INTERVAL`] of the last, so that the packets of several acknowledgements leave together.
    pub(super) fn end_burst_on_ack(&mut self, now: Timestamp, max_datagram: u32, coalesce: bool) {
        let Some(burst) = self.burst.take_if(|burst| burst.began < now) else { return };
        let mut end = burst.next_burst_time();
        if coalesce && !is_slow_rate(burst.rate, max_datagram) {
            let wait = BURST_INTERVAL.min(burst.round_trip / COALESCE_PART);
            end = end.max(burst.began + wait + GRANULARITY);
        }
        self.next_send_time = Some(end);
    }
}

/// A burst of packets that leave at once, and may still grow.
#[derive(Debug, Clone, Copy)]
struct TimedBurst {
    /// Time at which the first packet left.
    began: Timestamp,
    /// Time at which the first packet was due.
    due: Timestamp,
    rate: Bandwidth,
    /// Bytes sent.
    sent: u32,
    /// Bytes of the full burst.
    max_bytes: u32,
    round_trip: Duration,
}

impl TimedBurst {
    /// A burst of `bytes` bytes, within the bounds of every burst, with the first packet `first`.
    fn from_first_packet(first: &SentPacket, next_send_time: Option<Timestamp>, rate: Bandwidth, bytes: u32) -> Self {
        let &SentPacket { now, in_flight, round_trip, max_datagram, max_lateness, .. } = first;
        let min_packets = match in_flight {
            0 => INITIAL_WINDOW_PACKETS,
            _ if max_lateness > BURST_INTERVAL => MIN_MODERATED_BURST_PACKETS,
            _ => MIN_BURST_PACKETS,
        };
        let max_bytes = bytes.clamp(min_packets * max_datagram, MAX_BURST_PACKETS * max_datagram);
        let due = next_send_time.map_or(now, |next_send_time| {
            // A timer that fires in steps of a millisecond may be late by two. Time lost in a longer pause is not made
            // up for.
            let by_timer = now.saturating_duration_since(next_send_time) <= 2 * GRANULARITY;
            let lateness = if by_timer { max_lateness.max(GRANULARITY) } else { max_lateness };
            next_send_time.max(Timestamp::checked_sub(now, lateness).unwrap_or(now))
        });
        Self { began: now, due, rate, sent: 0, max_bytes, round_trip }
    }

    /// Time at which the next burst may leave.
    fn next_burst_time(&self) -> Timestamp {
        self.due + (u64::from(self.sent) / self.rate).min(MAX_BURST_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Pacer,
        tests::{DATAGRAM, RTT, rate, send, send_late, start},
    };
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_a_millisecond_of_the_rate_within_bounds() {
        for (megabits, packets) in [(1, 2), (20, 3), (100, 11), (500, 53), (2_000, 64 * 2)] {
            let mut pacer = Pacer::default();
            let now = start();
            // A burst that is due within a millisecond leaves with the first.
            let sent = send(&mut pacer, now, RTT, megabits, 1, 200);
            assert!((packets..=2 * packets).contains(&sent), "{megabits} Mbit/s: {sent}");
        }
    }

    #[test]
    fn the_initial_window_leaves_at_once_after_a_silence() {
        for in_flight in [0, 1] {
            let sent = send(&mut Pacer::default(), start(), RTT, 2, in_flight, 200);
            assert_eq!(sent, if in_flight == 0 { INITIAL_WINDOW_PACKETS } else { MIN_BURST_PACKETS });
        }
    }

    #[test]
    fn an_acknowledgement_within_a_burst_begins_another_when_it_is_time() {
        for (coalesce, waits) in [(false, false), (true, true)] {
            let mut pacer = Pacer::default();
            let began = start();
            assert_eq!(send(&mut pacer, began, RTT, 100, 1, 3), 3);
            let now = began + Duration::from_micros(300);
            pacer.on_ack(now, 2 * DATAGRAM, DATAGRAM, coalesce);
            assert_eq!(send(&mut pacer, now, RTT, 100, 1, 2) == 0, waits, "{coalesce}");
            let now = began + BURST_INTERVAL + Duration::from_micros(1);
            pacer.on_ack(now, 2 * DATAGRAM, DATAGRAM, coalesce);
            if coalesce {
                assert_eq!(send(&mut pacer, now, RTT, 100, 1, 4), 4, "{coalesce}");
            }
        }
    }

    #[test]
    fn late_bursts_do_not_delay_later_ones() {
        let packets = |late| {
            let (mut pacer, mut now, mut packets) = (Pacer::default(), start(), 0);
            for _ in 0..200 {
                packets += send_late(&mut pacer, now, RTT, 20, 1, 1_000, late);
                now += Duration::from_millis(2);
            }
            packets
        };
        let due = 400 * 2_500 / DATAGRAM;
        let caught_up = packets(Duration::from_millis(2));
        assert!(caught_up.abs_diff(due) <= 3 * MIN_MODERATED_BURST_PACKETS, "{caught_up} of {due}");
    }

    /// A worker with little CPU time runs each 10 ms.
    #[test]
    fn missed_bursts_leave_at_once_and_no_more() {
        let sent = |late: u64| {
            let (mut pacer, now) = (Pacer::default(), start());
            let late = Duration::from_millis(late);
            send_late(&mut pacer, now, RTT, 20, 1, 1_000, late);
            send_late(&mut pacer, now + Duration::from_millis(10), RTT, 20, 1, 1_000, late)
        };
        let due = u32::try_from(rate(20) * Duration::from_millis(10)).unwrap() / DATAGRAM;
        assert!(sent(0) <= MIN_MODERATED_BURST_PACKETS, "{}", sent(0));
        assert!(sent(10).abs_diff(due) <= 2 * MIN_MODERATED_BURST_PACKETS, "{} of {due}", sent(10));
        assert!(sent(50).abs_diff(due) <= 2 * MIN_MODERATED_BURST_PACKETS, "{} of {due}", sent(50));
    }

    #[test]
    fn no_rate_keeps_a_burst_waiting_for_more_than_a_second() {
        for rate in [Bandwidth::ZERO, rate(1), Bandwidth::INFINITY] {
            let (mut pacer, now) = (Pacer::default(), start());
            let sent = SentPacket {
                now,
                bytes: MIN_BURST_PACKETS * DATAGRAM,
                in_flight: 1,
                round_trip: RTT,
                max_datagram: DATAGRAM,
                max_lateness: Duration::ZERO,
            };
            for _ in 0..100 {
                pacer.on_packet_sent(sent, || rate);
                let sent = SentPacket { now: now + Duration::from_millis(1), ..sent };
                pacer.on_ack(sent.now, DATAGRAM, DATAGRAM, true);
                assert!(pacer.next_send_time().unwrap() <= now + 100 * MAX_BURST_TIME, "{rate:?}");
            }
        }
    }

    proptest! {
        /// At any times of waking and any lateness, the pacer keeps its rate, exceeded by at most two bursts.
        #[test]
        fn timed_bursts_keep_the_rate(
            megabits in 1_u64..1_000,
            wakes in prop::collection::vec(50_u64..3_000, 50..400),
            coalesce in any::<bool>(),
            late in 0_u64..3,
        ) {
            let mut pacer = Pacer::default();
            let (began, mut now, mut packets) = (start(), start(), 0);
            for wake in wakes {
                packets += u64::from(send_late(&mut pacer, now, RTT, megabits, 1, 1_000, Duration::from_millis(late)));
                now += Duration::from_micros(wake);
                pacer.on_ack(now, DATAGRAM, DATAGRAM, coalesce);
            }
            let due = rate(megabits) * (now - began);
            let least = u64::from(MIN_BURST_PACKETS * DATAGRAM);
            let burst = u64::from(DATAGRAM * MAX_BURST_PACKETS).min((rate(megabits) * BURST_INTERVAL).max(least));
            let sent = packets * u64::from(DATAGRAM);
            prop_assert!(sent <= due + 4 * burst + 2 * u64::from(DATAGRAM), "{sent} of {due}");
        }
    }
}

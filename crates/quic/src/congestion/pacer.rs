//! Pacing: when packets are sent, and how many at once (RFC 9002 §7.7). Pure.
//!
//! Packets are sent in bursts of a millisecond at the current rate, each of which is one call to the kernel and the
//! network card. s2n-quic takes a packet for due that is due within less than a millisecond (`Timestamp::has_elapsed`),
//! and timers fire in steps of one: bursts leave up to a millisecond too early or too late, and the next ones at their
//! own times.

use s2n_quic_core::{recovery::bandwidth::Bandwidth, time::Timestamp};
use std::time::Duration;

/// Time between two bursts. Shorter ones would leave together, as timers have steps of a millisecond.
const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Shortest time between two bursts, where the path's buffer proved too shallow for [`BURST_INTERVAL`];
/// acknowledgements release shorter bursts than timers.
const MIN_BURST_INTERVAL: Duration = Duration::from_micros(250);
/// Packets of a burst at least: receivers acknowledge every second packet (RFC 9000 §13.2.2).
const MIN_BURST_PACKETS: u32 = 2;
/// Packets of a burst at least where bursts leave together every two milliseconds (`quic::io::moderation`): on a path
/// of that length, two packets more harm no buffer, and a message costs the kernel as much as a packet.
const MIN_MODERATED_BURST_PACKETS: u32 = 4;
/// Packets of a burst at most: what one message of UDP GSO takes (`UDP_MAX_SEGMENTS`).
const MAX_BURST_PACKETS: u32 = 64;
/// Packets that may leave at once where nothing is in flight: the initial window (RFC 9002 §7.2, §7.7).
const INITIAL_WINDOW_PACKETS: u32 = 10;
/// Round-trip time below which nothing is paced: waking up by a timer takes longer than delivery. s2n-quic's limit
/// (`MINIMUM_PACING_RTT`).
const MIN_PACED_RTT: Duration = Duration::from_millis(2);
/// Packets that may leave between two acknowledgements on a path that is not paced, in addition to as many as these
/// acknowledge: a burst of a whole window overflows a browser's socket.
const UNPACED_BURST_PACKETS: u32 = 64;
/// Packets of a shortened burst at most where one acknowledgement covered as many: these have left the buffer. Chromium
/// acknowledges up to ten at once.
const MAX_ACKED_BURST_PACKETS: u32 = 8;
/// Time ahead of which a packet counts as due: s2n-quic's timers have steps of a millisecond.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Part of a round trip for which a burst may be delayed to join others: an eighth.
const COALESCE_PART: u32 = 8;
/// Packets of a burst from which on it waits for others: fewer are released by an acknowledgement alone, and a timer
/// would only wake the worker once more.
const MIN_COALESCED_PACKETS: u32 = 4;
/// Longest time for which a burst delays the next one, whatever the rate: a rate that was estimated too low is
/// corrected by further packets alone.
const MAX_BURST_TIME: Duration = Duration::from_secs(1);

/// The state when a packet was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPacket {
    pub(super) now: Timestamp,
    /// The packet's bytes.
    pub(super) bytes: u32,
    /// Bytes that were in flight before it.
    pub(super) in_flight: u32,
    pub(super) round_trip: Duration,
    pub(super) max_datagram: u32,
    /// How late a burst may leave without delaying the next ones: the lateness of timers.
    pub(super) late: Duration,
}

/// The pacing of one path.
#[derive(Debug, Clone, Default)]
pub(super) struct Pacer {
    /// When the next burst may leave.
    next_send_time: Option<Timestamp>,
    /// Time between two bursts, where it is shorter than [`BURST_INTERVAL`].
    limited_interval: Option<Duration>,
    burst: Option<Burst>,
    /// Round trips are too short for timers.
    unpaced: bool,
    /// Bytes that may leave before the next acknowledgement on a path that is not paced.
    unpaced_burst: u32,
    acknowledged: Option<Timestamp>,
    /// Bytes that the last acknowledgement covered, and that the next shortened burst may have.
    acked_burst: u32,
    /// A burst of [`BURST_INTERVAL`] has fewer than [`MIN_COALESCED_PACKETS`].
    is_slow: bool,
    /// An acknowledgement came since the last burst ended.
    is_released: bool,
}

/// Packets that leave at once, and may still become more.
#[derive(Debug, Clone, Copy)]
struct Burst {
    /// When the burst's first packet left.
    began: Timestamp,
    /// When the burst's first packet was due.
    due: Timestamp,
    rate: Bandwidth,
    sent: u32,
    left: u32,
    round_trip: Duration,
}

impl Burst {
    /// When the next burst may leave.
    fn end(&self) -> Timestamp {
        self.due + (u64::from(self.sent) / self.rate).min(MAX_BURST_TIME)
    }
}

impl Pacer {
    /// A packet was sent. `rate` is evaluated once a burst, when it begins.
    pub(super) fn on_packet_sent(&mut self, sent: SentPacket, rate: impl FnOnce() -> Bandwidth) {
        self.unpaced = sent.round_trip < MIN_PACED_RTT;
        if self.unpaced {
            (self.next_send_time, self.burst) = (None, None);
            self.unpaced_burst = self.unpaced_burst.saturating_sub(sent.bytes);
            return;
        }
        let Self { burst, next_send_time, limited_interval, acked_burst, is_slow, is_released, .. } = self;
        let current = burst.get_or_insert_with(|| {
            let rate = rate();
            *is_slow = rate * BURST_INTERVAL < u64::from(MIN_COALESCED_PACKETS * sent.max_datagram);
            let most = u32::try_from(rate * limited_interval.unwrap_or(BURST_INTERVAL)).unwrap_or(u32::MAX);
            let least = if sent.in_flight == 0 {
                INITIAL_WINDOW_PACKETS
            } else if sent.late > BURST_INTERVAL {
                MIN_MODERATED_BURST_PACKETS
            } else {
                MIN_BURST_PACKETS
            };
            let acked_burst = std::mem::take(acked_burst);
            let left = most.max(acked_burst).clamp(least * sent.max_datagram, MAX_BURST_PACKETS * sent.max_datagram);
            let due = next_send_time.map_or(sent.now, |next_send_time| {
                // A timer that fires in steps of a millisecond may be late by two. Behind a pause nothing is made up
                // for.
                let by_timer = sent.now.saturating_duration_since(next_send_time) <= 2 * GRANULARITY;
                let late = if by_timer { sent.late.max(GRANULARITY) } else { sent.late };
                next_send_time.max(Timestamp::checked_sub(sent.now, late).unwrap_or(sent.now))
            });
            Burst { began: sent.now, due, rate, sent: 0, left, round_trip: sent.round_trip }
        });
        current.sent = current.sent.saturating_add(sent.bytes);
        current.left = current.left.saturating_sub(sent.bytes);
        if current.left == 0 {
            *next_send_time = Some(current.end());
            *burst = None;
            *is_released = false;
        }
    }

    /// The path's round-trip time was measured for the first time, or is much shorter than it was: packets paced by a
    /// guess, or by a pause of the path, are due at once.
    pub(super) fn on_rtt_changed(&mut self, rtt: Duration) {
        self.unpaced = rtt < MIN_PACED_RTT;
        (self.next_send_time, self.burst) = (None, None);
    }

    /// An acknowledgement came. The packets that it releases begin another burst; with `coalesce`, not within
    /// [`BURST_INTERVAL`] of the last, so that the packets of several acknowledgements leave together.
    pub(super) fn on_ack(&mut self, now: Timestamp, bytes: u32, max_datagram: u32, coalesce: bool) {
        if self.unpaced {
            self.unpaced_burst =
                if self.acknowledged == Some(now) { self.unpaced_burst } else { UNPACED_BURST_PACKETS * max_datagram };
            self.unpaced_burst = self.unpaced_burst.saturating_add(bytes);
            self.acknowledged = Some(now);
            return;
        }
        self.is_released = true;
        self.acked_burst =
            if self.limited_interval.is_some() { bytes.min(MAX_ACKED_BURST_PACKETS * max_datagram) } else { 0 };
        let Some(burst) = self.burst.take_if(|burst| burst.began < now) else { return };
        let mut next_send_time = burst.end();
        if coalesce
            && self.limited_interval.is_none()
            && burst.rate * BURST_INTERVAL >= u64::from(MIN_COALESCED_PACKETS * max_datagram)
        {
            let wait = BURST_INTERVAL.min(burst.round_trip / COALESCE_PART);
            next_send_time = next_send_time.max(burst.began + wait + GRANULARITY);
        }
        self.next_send_time = Some(next_send_time);
    }

    /// Limits bursts to `share`: the path's buffer holds that much.
    pub(super) fn limit_burst(&mut self, share: Option<Duration>) {
        self.limited_interval =
            share.filter(|share| *share < BURST_INTERVAL).map(|share| share.max(MIN_BURST_INTERVAL));
    }

    /// Returns when the next burst may leave. Shortened bursts do not leave [`GRANULARITY`] too early, which would join
    /// them, unless they are a few packets that an acknowledgement releases: these come at the rate of the path.
    pub(super) fn next_send_time(&self) -> Option<Timestamp> {
        let joins = self.limited_interval.is_some() && !(self.is_slow && self.is_released);
        let early = if joins { GRANULARITY } else { Duration::ZERO };
        self.next_send_time.map(|next_send_time| next_send_time + early)
    }

    /// Whether an acknowledgement has to come before the next packet, with `in_flight` bytes in flight.
    pub(super) fn is_burst_over(&self, in_flight: u32, max_datagram: u32) -> bool {
        self.unpaced && self.unpaced_burst < max_datagram && in_flight >= UNPACED_BURST_PACKETS * max_datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    const DATAGRAM: u32 = 1_200;

    fn rate(megabits: u64) -> Bandwidth {
        Bandwidth::new(megabits * 125_000, Duration::from_secs(1))
    }

    fn start() -> Timestamp {
        NoopClock.get_time() + Duration::from_secs(1)
    }

    /// Sends as many packets as may leave at `now`, `most` at most; says how many.
    fn send(pacer: &mut Pacer, now: Timestamp, rtt: Duration, megabits: u64, in_flight: u32, most: u32) -> u32 {
        send_late(pacer, now, rtt, megabits, in_flight, most, Duration::ZERO)
    }

    /// The same with timers that may be so late.
    fn send_late(
        pacer: &mut Pacer,
        now: Timestamp,
        rtt: Duration,
        megabits: u64,
        in_flight: u32,
        most: u32,
        late: Duration,
    ) -> u32 {
        let mut packets = 0;
        while packets < most && pacer.next_send_time().is_none_or(|next_send_time| next_send_time.has_elapsed(now)) {
            let in_flight = in_flight + packets * DATAGRAM;
            let sent = SentPacket { now, bytes: DATAGRAM, in_flight, round_trip: rtt, max_datagram: DATAGRAM, late };
            pacer.on_packet_sent(sent, || rate(megabits));
            packets += 1;
        }
        packets
    }

    const RTT: Duration = Duration::from_millis(50);

    #[test]
    fn a_burst_is_a_millisecond_of_the_rate_within_bounds() {
        for (megabits, packets) in [(1, 2), (20, 3), (100, 11), (500, 53), (2_000, 64 * 2)] {
            let mut pacer = Pacer::default();
            let now = start();
            // One that is due within a millisecond leaves with the first.
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
    fn bursts_that_leave_late_with_others_leave_no_later_in_all() {
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

    /// As a worker with little CPU time comes, each 10 ms.
    #[test]
    fn what_was_missed_leaves_at_once_and_is_no_more_than_that() {
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

    /// Packets that leave within 200 ms at `megabits`, woken each `wake` microseconds.
    fn shortened(share: Option<Duration>, wake: u64, megabits: u64) -> (u32, u32) {
        let (mut pacer, mut now, mut packets, mut most) = (Pacer::default(), start(), 0, 0);
        pacer.limit_burst(share);
        let until = now + Duration::from_millis(200);
        while now < until {
            let sent = send(&mut pacer, now, RTT, megabits, 1, 1_000);
            (packets, most) = (packets + sent, most.max(sent));
            now += Duration::from_micros(wake);
            pacer.on_ack(now, DATAGRAM, DATAGRAM, true);
        }
        (packets, most)
    }

    #[test]
    fn short_bursts_leave_apart_where_something_wakes_them_and_lose_no_time_where_only_timers_do() {
        for (share, megabits, wake, most_at_once) in [
            (Some(Duration::ZERO), 100, 100, 5),
            (Some(Duration::ZERO), 100, 1_000, 14),
            (Some(Duration::from_micros(500)), 100, 100, 7),
            (Some(Duration::ZERO), 20, 1_000, 4),
            (Some(Duration::from_millis(1)), 100, 100, 24),
            (None, 100, 100, 24),
        ] {
            let (packets, most) = shortened(share, wake, megabits);
            let due = u32::try_from(megabits * 25_000 / u64::from(DATAGRAM)).unwrap();
            assert!(packets.abs_diff(due) <= 30, "{share:?}, {megabits}, {wake}: {packets} of {due}");
            assert!(most <= most_at_once, "{share:?}, {megabits}, {wake}: {most}");
        }
    }

    /// With timers alone a burst would wait for a millisecond more, and with it the acknowledgements that come meanwhile.
    #[test]
    fn an_acknowledgement_releases_a_few_packets_at_once_behind_a_shallow_buffer() {
        for (megabits, leaves) in [(20, true), (100, false)] {
            let (mut pacer, now) = (Pacer::default(), start());
            pacer.limit_burst(Some(Duration::ZERO));
            assert!(send(&mut pacer, now, RTT, megabits, 1, 1_000) > 0);
            let now = now + Duration::from_micros(100);
            assert_eq!(send(&mut pacer, now, RTT, megabits, 1, 1), 0, "{megabits}");
            pacer.on_ack(now, 2 * DATAGRAM, DATAGRAM, true);
            assert_eq!(send(&mut pacer, now, RTT, megabits, 1, 2) > 0, leaves, "{megabits}");
        }
    }

    #[test]
    fn a_short_burst_has_as_many_packets_as_the_acknowledgement_before_it_covered() {
        for (share, covered, packets) in [
            (Some(Duration::ZERO), 1, MIN_BURST_PACKETS),
            (Some(Duration::ZERO), 5, 5),
            (Some(Duration::ZERO), 40, MAX_ACKED_BURST_PACKETS),
            (None, 40, MIN_BURST_PACKETS),
        ] {
            let (mut pacer, mut now) = (Pacer::default(), start());
            pacer.limit_burst(share);
            send(&mut pacer, now, RTT, 10, 1, 1);
            now += Duration::from_millis(20);
            pacer.on_ack(now, covered * DATAGRAM, DATAGRAM, true);
            let bursts = [0, 20].map(|later| {
                now += Duration::from_millis(later);
                let (mut sent, began) = (0, pacer.next_send_time());
                while pacer.next_send_time() == began {
                    sent += send(&mut pacer, now, RTT, 10, 1, 1);
                }
                sent
            });
            assert_eq!(bursts, [packets, MIN_BURST_PACKETS], "{share:?}, {covered}");
        }
    }

    #[test]
    fn short_round_trips_have_no_departures_but_bursts_that_end() {
        let mut pacer = Pacer::default();
        let (now, rtt) = (start(), Duration::from_micros(300));
        assert_eq!(send(&mut pacer, now, rtt, 100, 0, 500), 500);
        assert!(pacer.is_burst_over(500 * DATAGRAM, DATAGRAM));
        assert!(!pacer.is_burst_over(10 * DATAGRAM, DATAGRAM), "who is never acknowledged is never let go");
        pacer.on_ack(now, 100 * DATAGRAM, DATAGRAM, true);
        pacer.on_ack(now, 100 * DATAGRAM, DATAGRAM, true);
        let mut packets = 0;
        while !pacer.is_burst_over(500 * DATAGRAM, DATAGRAM) {
            packets += send(&mut pacer, now, rtt, 100, 500 * DATAGRAM, 1);
        }
        assert_eq!(packets, 200 + UNPACED_BURST_PACKETS);
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
                late: Duration::ZERO,
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
        /// Whatever wakes it, and however late, it keeps its rate: as much as that brings, and two bursts at most.
        #[test]
        fn it_never_exceeds_its_rate_and_keeps_up(
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

        /// Where something wakes it within a millisecond, no time is lost.
        #[test]
        fn it_keeps_up_with_late_wakes(
            megabits in 1_u64..1_000,
            wakes in prop::collection::vec(50_u64..1_000, 50..400),
            share in prop::option::of(0_u64..2_000),
        ) {
            let mut pacer = Pacer::default();
            pacer.limit_burst(share.map(Duration::from_micros));
            let (began, mut now, mut packets) = (start(), start(), 0);
            for wake in wakes {
                packets += u64::from(send(&mut pacer, now, RTT, megabits, 1, 1_000));
                now += Duration::from_micros(wake);
            }
            let due = rate(megabits) * (now - began);
            let wake = rate(megabits) * Duration::from_millis(2);
            let sent = packets * u64::from(DATAGRAM);
            prop_assert!(sent + wake + u64::from(DATAGRAM) >= due, "{sent} of {due}");
        }
    }
}

//! Paces packets: decides when packets are sent, and how many at once (RFC 9002 §7.7). Pure.
//!
//! Packets leave in bursts, each with one call to the kernel and the network card. Every mechanism has a file:
//!
//! - [`timed_bursts`]: a burst is a millisecond of the current rate, and leaves at its own time.
//! - [`shortened_bursts`]: the path's buffer proved too shallow, and bursts are shorter.
//! - [`unpaced_burst`]: round trips are too short for timers, and only acknowledgements bound the packets.
//!
//! [`Pacer`] paces one path: the round trip decides the [`PacingMode`], and each event goes to the mechanisms that need
//! it.

mod shortened_bursts;
mod timed_bursts;
mod unpaced_burst;

use s2n_quic_core::{recovery::bandwidth::Bandwidth, time::Timestamp};
use shortened_bursts::ShortenedBursts;
use std::time::Duration;
use timed_bursts::TimedBursts;
use unpaced_burst::UnpacedBurst;

/// Round-trip time below which nothing is paced: waking up by a timer takes longer than delivery. Equals s2n-quic's
/// limit (`MINIMUM_PACING_RTT`).
const MIN_PACED_RTT: Duration = Duration::from_millis(2);
/// Time between two bursts. Shorter ones would leave together, as timers have steps of a millisecond.
const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Time by which a packet may leave early: s2n-quic's timers have steps of a millisecond.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Packets from which on a burst waits to join others: fewer are released by an acknowledgement alone, and a timer
/// would only wake the worker once more.
const MIN_COALESCED_PACKETS: u32 = 4;

/// Pacer of one path.
#[derive(Debug, Clone, Default)]
pub(super) struct Pacer {
    mode: PacingMode,
    /// Limit of bursts by the path's buffer, which outlasts a change of the mode.
    limit: ShortenedBursts,
    /// Burst in [`PacingMode::Unpaced`]. Outlasts timed bursts: round trips of about [`MIN_PACED_RTT`] change the mode
    /// again and again, and a path must not wait for an acknowledgement each time.
    unpaced: UnpacedBurst,
}

/// Modes of pacing, with the state that ends with the mode.
#[derive(Debug, Clone, Default)]
enum PacingMode {
    /// Packets leave at once, until an [`UnpacedBurst`] is over. The first packet may change the mode.
    #[default]
    Unpaced,
    /// Bursts leave at their own times.
    Timed(TimedBursts),
}

impl Pacer {
    /// A packet was sent. `rate` is evaluated once a burst, when it begins.
    pub(super) fn on_packet_sent(&mut self, sent: SentPacket, rate: impl FnOnce() -> Bandwidth) {
        if matches!(self.mode, PacingMode::Unpaced) != (sent.round_trip < MIN_PACED_RTT) {
            self.on_rtt_changed(sent.round_trip);
        }
        match &mut self.mode {
            PacingMode::Unpaced => self.unpaced.spend_burst_bytes(sent.bytes),
            PacingMode::Timed(bursts) => bursts.add_sent_packet(&sent, &mut self.limit, rate),
        }
    }

    /// The path's round-trip time was measured for the first time, is much shorter than before, or has crossed
    /// [`MIN_PACED_RTT`]: packets paced by a guess, or by a pause of the path, are due at once.
    pub(super) fn on_rtt_changed(&mut self, rtt: Duration) {
        self.mode = if rtt < MIN_PACED_RTT { PacingMode::Unpaced } else { PacingMode::Timed(TimedBursts::default()) };
    }

    /// An acknowledgement arrived. The released packets begin another burst; with `coalesce`, the packets of several
    /// acknowledgements leave together.
    pub(super) fn on_ack(&mut self, now: Timestamp, bytes: u32, max_datagram: u32, coalesce: bool) {
        match &mut self.mode {
            PacingMode::Unpaced => self.unpaced.renew_burst(now, bytes, max_datagram),
            PacingMode::Timed(bursts) => {
                self.limit.record_acked_bytes(bytes, max_datagram);
                bursts.end_burst_on_ack(now, max_datagram, coalesce && self.limit.interval.is_none());
            }
        }
    }

    /// Limits bursts to `burst_limit`, as much as the path's buffer holds.
    pub(super) fn limit_burst(&mut self, burst_limit: Option<Duration>) {
        self.limit.limit_interval(burst_limit);
    }

    /// Time at which the next burst may leave; `None` if at once.
    pub(super) fn next_send_time(&self) -> Option<Timestamp> {
        let PacingMode::Timed(bursts) = &self.mode else { return None };
        bursts.next_send_time.map(|next_send_time| next_send_time + self.limit.burst_delay())
    }

    /// Whether the next packet has to wait for an acknowledgement, with `in_flight` bytes in flight.
    pub(super) fn is_burst_over(&self, in_flight: u32, max_datagram: u32) -> bool {
        matches!(self.mode, PacingMode::Unpaced) && self.unpaced.is_burst_spent(in_flight, max_datagram)
    }
}

/// A sent packet, with the state of the path and of timers at that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPacket {
    pub(super) now: Timestamp,
    /// Bytes of the packet.
    pub(super) bytes: u32,
    /// Bytes in flight before the packet.
    pub(super) in_flight: u32,
    pub(super) round_trip: Duration,
    pub(super) max_datagram: u32,
    /// Lateness at which a burst may leave without delaying the next ones: the lateness of timers.
    pub(super) max_lateness: Duration,
}

/// Whether a burst of [`BURST_INTERVAL`] has fewer than [`MIN_COALESCED_PACKETS`].
fn is_slow_rate(rate: Bandwidth, max_datagram: u32) -> bool {
    rate * BURST_INTERVAL < u64::from(MIN_COALESCED_PACKETS * max_datagram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    pub(super) const DATAGRAM: u32 = 1_200;

    pub(super) fn rate(megabits: u64) -> Bandwidth {
        Bandwidth::new(megabits * 125_000, Duration::from_secs(1))
    }

    pub(super) fn start() -> Timestamp {
        NoopClock.get_time() + Duration::from_secs(1)
    }

    /// Sends as many packets as may leave at `now`, at most `most`, and returns their number.
    pub(super) fn send(
        pacer: &mut Pacer,
        now: Timestamp,
        rtt: Duration,
        megabits: u64,
        in_flight: u32,
        most: u32,
    ) -> u32 {
        send_late(pacer, now, rtt, megabits, in_flight, most, Duration::ZERO)
    }

    /// Like [`send`], with timers that may be late by `late`.
    pub(super) fn send_late(
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
            let sent = SentPacket {
                now,
                bytes: DATAGRAM,
                in_flight,
                round_trip: rtt,
                max_datagram: DATAGRAM,
                max_lateness: late,
            };
            pacer.on_packet_sent(sent, || rate(megabits));
            packets += 1;
        }
        packets
    }

    pub(super) const RTT: Duration = Duration::from_millis(50);

    /// A path whose round trip is about [`MIN_PACED_RTT`] does not wait for an acknowledgement at each change.
    #[test]
    fn unpaced_and_shortened_bursts_outlast_a_change_of_mode() {
        let (short, long) = (MIN_PACED_RTT / 2, MIN_PACED_RTT);
        let (mut pacer, mut now, in_flight) = (Pacer::default(), start(), 500 * DATAGRAM);
        pacer.limit_burst(Some(Duration::ZERO));
        send(&mut pacer, now, short, 10, in_flight, 1);
        pacer.on_ack(now, DATAGRAM, DATAGRAM, true);
        send(&mut pacer, now, short, 10, in_flight, 1);
        assert!(!pacer.is_burst_over(in_flight, DATAGRAM));
        assert!(send(&mut pacer, now, long, 10, in_flight, 100) < 100);
        now += Duration::from_millis(20);
        pacer.on_ack(now, 5 * DATAGRAM, DATAGRAM, true);
        let mut packets = 0;
        while packets == 0 || !pacer.is_burst_over(in_flight, DATAGRAM) {
            packets += send(&mut pacer, now, short, 10, in_flight, 1);
        }
        assert_eq!(packets, 64, "of 64, and one for the acknowledgement, one had left");
        assert_eq!(send(&mut pacer, now, long, 10, in_flight, 5), 5, "the acknowledgement covered five");
        assert!(pacer.next_send_time().is_some_and(|time| time > now));
    }
}

//! Shortens bursts to less than a millisecond if the path's buffer proved too shallow. Acknowledgements release
//! shortened bursts more often than timers fire.

use super::{BURST_INTERVAL, GRANULARITY, is_slow_rate};
use s2n_quic_core::recovery::bandwidth::Bandwidth;
use std::time::Duration;

/// Shortest time between two bursts.
const MIN_BURST_INTERVAL: Duration = Duration::from_micros(250);
/// Largest shortened burst in packets, if one acknowledgement covered as many: these have left the buffer. Chromium
/// acknowledges up to ten at once.
const MAX_ACKED_BURST_PACKETS: u32 = 8;

/// Shortening of one path's bursts.
#[derive(Debug, Clone, Default)]
pub(super) struct ShortenedBursts {
    /// Time between two bursts; `None` means [`BURST_INTERVAL`].
    pub(super) interval: Option<Duration>,
    /// Bytes of the last acknowledgement, which the next shortened burst may have.
    acked_burst: u32,
    /// The rate of the last burst [is slow](is_slow_rate).
    is_slow: bool,
    /// An acknowledgement arrived since the last burst was full.
    is_released: bool,
}

impl ShortenedBursts {
    /// Shortens bursts to `burst_limit`, as much as the path's buffer holds.
    pub(super) fn limit_interval(&mut self, burst_limit: Option<Duration>) {
        self.interval = burst_limit.filter(|limit| *limit < BURST_INTERVAL).map(|limit| limit.max(MIN_BURST_INTERVAL));
    }

    /// A burst begins. Returns its length in bytes.
    pub(super) fn begin_burst(&mut self, rate: Bandwidth, max_datagram: u32) -> u32 {
        self.is_slow = is_slow_rate(rate, max_datagram);
        let bytes = u32::try_from(rate * self.interval.unwrap_or(BURST_INTERVAL)).unwrap_or(u32::MAX);
        bytes.max(std::mem::take(&mut self.acked_burst))
    }

    /// A burst is full.
    pub(super) fn end_burst(&mut self) {
        self.is_released = false;
    }

    /// An acknowledgement of `bytes` bytes arrived.
    pub(super) fn record_acked_bytes(&mut self, bytes: u32, max_datagram: u32) {
        self.is_released = true;
        self.acked_burst = if self.interval.is_some() { bytes.min(MAX_ACKED_BURST_PACKETS * max_datagram) } else { 0 };
    }

    /// Time by which the next burst is delayed. Shortened bursts do not leave [`GRANULARITY`] too early, which would
    /// join them, unless an acknowledgement releases a few packets: acknowledgements arrive at the rate of the path.
    pub(super) fn burst_delay(&self) -> Duration {
        if self.interval.is_some() && !(self.is_slow && self.is_released) { GRANULARITY } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Pacer,
        tests::{DATAGRAM, RTT, rate, send, start},
        timed_bursts::MIN_BURST_PACKETS,
    };
    use super::*;
    use proptest::prelude::*;

    /// Packets that leave within 200 ms at `megabits`, and the most at once, with a wake each `wake` microseconds.
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
    fn shortened_bursts_keep_the_rate_with_frequent_or_rare_wakes() {
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

    /// With timers alone a burst, and packets that acknowledgements release meanwhile, would wait for a millisecond
    /// more.
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
    fn a_shortened_burst_has_the_packets_of_the_last_acknowledgement() {
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

    proptest! {
        /// The pacer keeps up if it is woken within a millisecond.
        #[test]
        fn shortened_bursts_keep_up_with_late_wakes(
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

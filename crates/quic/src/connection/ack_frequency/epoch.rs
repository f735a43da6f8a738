//! Divides the acknowledgements of a connection's client into epochs of a round trip, for [`super::threshold_rule`].
//! Pure.

use super::threshold_rule::AckEpoch;
use std::time::Duration;

/// Least number of batches in an epoch: fewer are not conclusive.
const MIN_EPOCH_BATCHES: u64 = 4;
/// Shortest epoch, whatever the round trip: a client a few microseconds away is evaluated at most a thousand times a
/// second.
const MIN_EPOCH_LENGTH: Duration = Duration::from_millis(1);

/// Counts of one connection since the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AckTotals {
    /// ACK frames since the connection began.
    pub(super) acks: u64,
    /// Receive batches that carried ACK frames.
    pub(super) batches: u64,
    /// The largest packet number acknowledged.
    pub(super) largest: u64,
}

#[derive(Debug, Default)]
pub(super) struct EpochCounter {
    current: Option<CurrentEpoch>,
}

#[derive(Debug)]
struct CurrentEpoch {
    /// Counts when the epoch began.
    before: AckTotals,
    /// Length of the epoch so far. A pause of any length counts as a round trip.
    time: Duration,
    /// Time of the last batch, on the caller's clock.
    last: Duration,
}

impl EpochCounter {
    /// Returns the counts of the epoch, if it has ended, and begins the next. To be called with the first ACK frame of
    /// a batch, at `now`, with the smoothed round-trip time `rtt`.
    pub(super) fn end_epoch(&mut self, now: Duration, rtt: Duration, totals: AckTotals) -> Option<AckEpoch> {
        let round = rtt.max(MIN_EPOCH_LENGTH);
        let current = self.current.get_or_insert(CurrentEpoch { before: totals, time: Duration::ZERO, last: now });
        // After a round trip without an acknowledgement nothing is in flight: a client with nothing to acknowledge is
        // not one that acknowledges rarely.
        current.time = current.time.saturating_add(now.saturating_sub(current.last).min(round));
        current.last = now;
        let CurrentEpoch { before, time, .. } = *current;
        let batches = totals.batches.saturating_sub(before.batches);
        if time < round || batches < MIN_EPOCH_BATCHES {
            return None;
        }
        self.current = Some(CurrentEpoch { before: totals, time: Duration::ZERO, last: now });
        let packets = totals.largest.saturating_sub(before.largest);
        let flight = u128::from(packets) * rtt.as_micros() / time.as_micros().max(1);
        Some(AckEpoch {
            acks: totals.acks.saturating_sub(before.acks),
            batches,
            packets,
            flight: u32::try_from(flight).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn totals(acks: u64, batches: u64) -> AckTotals {
        AckTotals { acks, batches, largest: 2 * acks }
    }

    #[test]
    fn an_epoch_lasts_a_round_trip_and_has_enough_batches() {
        let mut epochs = EpochCounter::default();
        let ms = Duration::from_millis;
        let table = [
            ("the beginning", 0, totals(7, 1), None),
            ("batches, but no time", 9, totals(20, 6), None),
            ("over", 10, totals(27, 7), Some(AckEpoch { acks: 20, batches: 6, packets: 40, flight: 40 })),
            ("time, but few batches", 25, totals(30, 10), None),
            ("over as well", 26, totals(31, 11), Some(AckEpoch { acks: 4, batches: 4, packets: 8, flight: 7 })),
        ];
        for (what, at, totals, expected) in table {
            assert_eq!(epochs.end_epoch(ms(at), RTT, totals), expected, "{what}");
        }
        epochs = EpochCounter::default();
        assert_eq!(epochs.end_epoch(ms(90), RTT, totals(90, 50)), None);
        assert_eq!(
            epochs.end_epoch(ms(100), RTT, totals(94, 54)),
            Some(AckEpoch { acks: 4, batches: 4, packets: 8, flight: 8 }),
            "what was before the restart is left out"
        );
    }

    #[test]
    fn a_pause_counts_as_a_round_trip_however_long_it_is() {
        let flight = |pause: u64| {
            let mut epochs = EpochCounter::default();
            let over = |n: u64| {
                let paused = if n > 5 { pause } else { 0 };
                epochs.end_epoch(Duration::from_millis(2 * n + paused), RTT, totals(10 * n, n))
            };
            (0..20).filter_map(over).map(|epoch| epoch.flight).collect::<Vec<_>>()
        };
        assert_eq!(flight(0), [100, 100, 100]);
        assert_eq!(flight(8), flight(60_000));
        assert_eq!(flight(60_000)[..2], [100, 50]);
    }

    #[test]
    fn a_round_trip_of_nothing_is_bounded() {
        let mut epochs = EpochCounter::default();
        let over =
            (0..10_000).filter(|&n| epochs.end_epoch(Duration::from_micros(n), Duration::ZERO, totals(n, n)).is_some());
        assert_eq!(over.count(), 9);
    }
}

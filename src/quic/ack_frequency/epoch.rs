//! Cuts what a connection's client acknowledges into epochs of a round trip, for [`super::rule`]. Pure.

use super::rule::Epoch;
use std::time::Duration;

/// Batches that an epoch has at least: fewer are chance.
const LEAST_BATCHES: u64 = 4;
/// What an epoch lasts at least, however close the client is: a client a few microseconds away is asked a thousand times a
/// second at most.
const LEAST_TIME: Duration = Duration::from_millis(1);

/// What a connection has seen since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    /// ACK frames.
    pub(super) acks: u64,
    /// Receive batches that carried any of them.
    pub(super) batches: u64,
    /// The largest packet number acknowledged.
    pub(super) largest: u64,
}

/// One connection's epoch.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// When it began, on the clock of whoever asks, and what there was then.
    began: Option<(Duration, Totals)>,
}

impl Epochs {
    /// What the epoch brought, if it is over: then the next begins. To be asked with the first ACK frame of a batch, at
    /// `now`, the smoothed round-trip time being `rtt`.
    pub(super) fn over(&mut self, now: Duration, rtt: Duration, totals: Totals) -> Option<Epoch> {
        let (began, before) = *self.began.get_or_insert((now, totals));
        let batches = totals.batches.saturating_sub(before.batches);
        let time = now.saturating_sub(began);
        if time < rtt.max(LEAST_TIME) || batches < LEAST_BATCHES {
            return None;
        }
        self.began = Some((now, totals));
        let packets = totals.largest.saturating_sub(before.largest);
        let flight = u128::from(packets) * rtt.as_micros() / time.as_micros().max(1);
        Some(Epoch {
            acks: totals.acks.saturating_sub(before.acks),
            batches,
            packets,
            flight: u32::try_from(flight).unwrap_or(u32::MAX),
        })
    }

    /// What there was so far counts for nothing: the next epoch begins with the next batch.
    pub(super) fn restart(&mut self) {
        self.began = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn totals(acks: u64, batches: u64) -> Totals {
        Totals { acks, batches, largest: 2 * acks }
    }

    #[test]
    fn an_epoch_lasts_a_round_trip_and_has_enough_batches() {
        let mut epochs = Epochs::default();
        let ms = Duration::from_millis;
        let table = [
            ("the beginning", 0, totals(7, 1), None),
            ("batches, but no time", 9, totals(20, 6), None),
            ("over", 10, totals(27, 7), Some(Epoch { acks: 20, batches: 6, packets: 40, flight: 40 })),
            ("time, but few batches", 25, totals(30, 10), None),
            ("over as well", 26, totals(31, 11), Some(Epoch { acks: 4, batches: 4, packets: 8, flight: 5 })),
        ];
        for (what, at, totals, expected) in table {
            assert_eq!(epochs.over(ms(at), RTT, totals), expected, "{what}");
        }
        epochs.restart();
        assert_eq!(epochs.over(ms(90), RTT, totals(90, 50)), None);
        assert_eq!(
            epochs.over(ms(100), RTT, totals(94, 54)),
            Some(Epoch { acks: 4, batches: 4, packets: 8, flight: 8 }),
            "what was before the restart is left out"
        );
    }

    #[test]
    fn a_round_trip_of_nothing_is_bounded() {
        let mut epochs = Epochs::default();
        let over =
            (0..10_000).filter(|&n| epochs.over(Duration::from_micros(n), Duration::ZERO, totals(n, n)).is_some());
        assert_eq!(over.count(), 9);
    }
}

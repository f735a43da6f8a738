//! Ends slow start without a loss, once round-trip times rise because the window fills the path's queue (hybrid slow
//! start: Ha and Rhee, *Taming the elephants*, 2011). Pure.

use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// Number of round-trip times of a round that are compared.
const MAX_ROUND_SAMPLES: u32 = 8;
/// Part of the last round's shortest round-trip time that counts as an increase: an eighth.
const INCREASE_PART: u32 = 8;
/// Least increase that counts.
const MIN_INCREASE: Duration = Duration::from_millis(4);
/// Increase that always counts.
const MAX_INCREASE: Duration = Duration::from_millis(16);

/// Detects an increase of the shortest round-trip time from one round to the next. A round ends with the
/// acknowledgement of a packet that was sent after the round began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DelayIncrease {
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// Sending time of the last packet before this round.
    round: Option<Timestamp>,
}

impl DelayIncrease {
    /// A packet sent at `sent` has measured `rtt`, and the last packet was sent at `last_sent`. Returns whether the
    /// delay has increased since the last round: once a round.
    pub(super) fn on_rtt(&mut self, sent: Timestamp, last_sent: Timestamp, rtt: Duration) -> bool {
        if self.round.is_none_or(|round| sent >= round) {
            *self = Self { last: self.current, current: None, samples: 0, round: Some(last_sent) };
        }
        if self.samples >= MAX_ROUND_SAMPLES {
            return false;
        }
        self.samples += 1;
        let current = self.current.map_or(rtt, |current| current.min(rtt));
        self.current = Some(current);
        let increase = |last: Duration| (last / INCREASE_PART).clamp(MIN_INCREASE, MAX_INCREASE);
        self.samples == MAX_ROUND_SAMPLES && self.last.is_some_and(|last| current >= last + increase(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    /// Whether each round shows an increase, if its round-trip times begin with these milliseconds and become longer.
    fn increases(rounds: &[u64]) -> Vec<bool> {
        let mut delay = DelayIncrease::default();
        let mut now = NoopClock.get_time() + Duration::from_secs(1);
        let mut round = |rtt: u64| {
            let (sent, last_sent) = (now, now + Duration::from_secs(1));
            now = last_sent;
            (0..12).filter(|n| delay.on_rtt(sent, last_sent, Duration::from_millis(rtt + n))).count() == 1
        };
        rounds.iter().map(|rtt| round(*rtt)).collect()
    }

    #[test]
    fn an_increase_by_an_eighth_within_bounds_is_found_once_a_round() {
        for (rounds, expected) in [
            (&[40, 44, 50][..], vec![false, false, true]),
            (&[10, 13, 17], vec![false, false, true]),
            (&[400, 415, 431], vec![false, false, true]),
            (&[40, 30, 35], vec![false, false, true]),
            (&[40, 45, 51, 51], vec![false, true, true, false]),
        ] {
            assert_eq!(increases(rounds), expected, "{rounds:?}");
        }
    }

    #[test]
    fn fewer_than_eight_samples_show_no_increase() {
        let mut delay = DelayIncrease::default();
        let now = NoopClock.get_time() + Duration::from_secs(1);
        for round in 0..4_u64 {
            let (sent, last_sent) = (now + Duration::from_secs(round), now + Duration::from_secs(round + 1));
            let rtt = Duration::from_millis(20 << round);
            assert!((0..7).all(|_| !delay.on_rtt(sent, last_sent, rtt)));
        }
    }
}

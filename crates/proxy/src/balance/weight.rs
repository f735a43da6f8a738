//! Computes the effective weight of a server: less during its slow start.

use std::time::Duration;

/// A weight of 1, in thousandths.
const WEIGHT_UNIT: u32 = 1000;
/// Divisor of the weight at the beginning of a slow start: HAProxy's `slowstart` has a hundredth too.
const SLOW_START_DIVISOR: u32 = 100;

/// Effective weight, in thousandths, of a server that was readmitted `back_for` ago, or never ejected. The weight grows
/// linearly for `slow_start`, and is never 0.
pub(crate) fn effective_weight(configured: u16, slow_start: Option<Duration>, back_for: Option<Duration>) -> u32 {
    let full = u32::from(configured).max(1).saturating_mul(WEIGHT_UNIT);
    match (slow_start, back_for) {
        (Some(time), Some(back)) if back < time => {
            let grown = u128::from(full) * back.as_nanos() / time.as_nanos().max(1);
            u32::try_from(grown).unwrap_or(full).max(full / SLOW_START_DIVISOR)
        }
        _ => full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_linearly_from_a_hundredth_to_the_weight() {
        let seconds = Duration::from_secs;
        let slow = Some(seconds(30));
        for (what, configured, slow_start, back_for, expected) in [
            ("without", 3, None, Some(seconds(0)), 3000),
            ("never away", 3, slow, None, 3000),
            ("just back", 3, slow, Some(seconds(0)), 30),
            ("little later", 1, slow, Some(Duration::from_millis(200)), 10),
            ("a third", 1, slow, Some(seconds(10)), 333),
            ("half", 4, slow, Some(seconds(15)), 2000),
            ("nearly", 1, slow, Some(Duration::from_millis(29_999)), 999),
            ("over", 1, slow, Some(seconds(30)), 1000),
            ("long over", 256, slow, Some(seconds(86_400)), 256_000),
        ] {
            assert_eq!(effective_weight(configured, slow_start, back_for), expected, "{what}");
        }
    }
}

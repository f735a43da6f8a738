//! The round-trip time to go by.

use std::time::Duration;

/// The current round-trip time, by the smoothed round-trip time and the latest one. After a pause of the path the
/// smoothed one includes the pause for dozens of acknowledgements, each of which takes an eighth of that from it (RFC
/// 9002 §5.3).
pub(crate) fn current_rtt(smoothed: Duration, latest: Duration) -> Duration {
    if latest < smoothed / 2 { latest } else { smoothed }
}

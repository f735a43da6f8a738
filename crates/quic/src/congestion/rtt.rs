//! Selects the current round-trip time of a path.

use std::time::Duration;

/// Current round-trip time, from the smoothed and the latest one. After a pause of the path the smoothed one includes
/// the pause for dozens of acknowledgements, each of which removes an eighth (RFC 9002 §5.3).
pub(crate) fn current_rtt(smoothed: Duration, latest: Duration) -> Duration {
    if latest < smoothed / 2 { latest } else { smoothed }
}

//! How much a stream may hand over to QUIC, by the state of its connection's path: enough unsent bytes that QUIC has
//! always something to send until the worker's next turn, and no more, since what is queued delays what is more urgent.
//! Unsent bytes have a bound of their own, as with TCP_NOTSENT_LOWAT: the successors of a lost packet, which stay in
//! memory until it is acknowledged, do not count to it and do not stall the connection. Pure.

use super::TRAIN;
use std::time::Duration;

/// Time for which unsent bytes last: a receive batch may be 2 ms late, and slow start sends at twice the rate.
const UNSENT_TIME: Duration = Duration::from_millis(4);
/// Unsent bytes of a connection at least: while a train is sent, another is handed over.
pub const MIN_UNSENT_BYTES: u64 = 2 * TRAIN;
/// Unsent bytes of a connection at most: 4 ms of 1 Gbit/s, and eight full messages of GSO.
const MAX_UNSENT_BYTES: u64 = 512 * 1024;
/// Bytes a millisecond of the shortest round trip that a stream may have outstanding: 8 Gbit/s, more than a core
/// encrypts. On a short path more would only fill the receiver's socket buffer, and be dropped.
const OUTSTANDING_PER_MILLISECOND: u64 = 1_000_000;
/// Outstanding bytes of a stream on the shortest path: long GSO trains need about as much.
const MIN_OUTSTANDING: u64 = 1024 * 1024;

/// Less room than this is not filled at once: small pieces cost as much as large ones.
pub const MIN_REFILL: u64 = 64 * 1024;
/// Less room than this is not filled at once in a stream's own train.
const OWN_MIN_REFILL: u64 = TRAIN / 2;
/// Unsent bytes up to which a stream has room in its own train.
pub const OWN_LOW_WATER: u64 = TRAIN - OWN_MIN_REFILL;

/// What is known of the path that a connection's packets take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendPath {
    /// The congestion window, in bytes.
    pub window: u64,
    /// The smoothed round-trip time (RFC 9002 §5.3), in microseconds.
    pub smoothed_rtt: u64,
    /// The shortest one (RFC 9002 §5.2), in microseconds.
    pub min_rtt: u64,
}

/// The queued bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuedBytes {
    /// Bytes that the connection's streams have handed over and QUIC has not sent.
    pub connection: u64,
    /// Bytes that the stream has handed over and QUIC has not sent.
    pub stream: u64,
    /// Bytes that the stream has handed over and its client has not acknowledged.
    pub outstanding: u64,
}

/// How many bytes a stream may hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAllowance {
    /// At most this number, which is one or more.
    Bytes(u64),
    /// None before QUIC has sent more of what it has.
    Unsent,
    /// None before the client has acknowledged more.
    Unacknowledged,
}

impl SendPath {
    /// How many of the `ready` bytes of a stream may be handed over.
    pub fn stream_allowance(&self, queued: QueuedBytes, ready: u64) -> WriteAllowance {
        let free = |most: u64, used: u64, step: u64| {
            Some(most.saturating_sub(used)).filter(|free| *free > 0 && *free >= ready.min(step))
        };
        let unsent = self.max_unsent();
        let own = free(TRAIN, queued.stream, OWN_MIN_REFILL);
        let Some(unsent) = free(unsent, queued.connection, unsent / 2).max(own) else { return WriteAllowance::Unsent };
        match free(self.max_outstanding(), queued.outstanding, MIN_REFILL) {
            Some(free) => WriteAllowance::Bytes(free.min(unsent).min(ready)),
            None => WriteAllowance::Unacknowledged,
        }
    }

    /// The number of the `ready` bytes of a stream with `outstanding` bytes that may be handed over, whatever is
    /// unsent. `None` before the client has acknowledged more.
    pub fn outstanding_allowance(&self, outstanding: u64, ready: u64) -> Option<u64> {
        let free = self.max_outstanding().saturating_sub(outstanding);
        (free >= ready.min(MIN_REFILL)).then_some(free.min(ready))
    }

    /// Bytes that the streams of a connection may have handed over and unsent together, where they are served by their
    /// priorities. These are sent before a response that becomes the most urgent.
    pub fn unsent_horizon(&self) -> u64 {
        self.max_unsent()
    }

    /// Unsent bytes of a connection at which its waiting streams have room again. A stream with at most [`OWN_LOW`] has
    /// anyway.
    pub fn unsent_low_water(&self) -> u64 {
        self.max_unsent() / 2
    }

    /// Bytes that a connection's streams may have unsent together.
    fn max_unsent(&self) -> u64 {
        let ahead = u64::try_from(UNSENT_TIME.as_micros()).unwrap_or(u64::MAX);
        (self.window.saturating_mul(ahead) / self.smoothed_rtt.max(1)).clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES)
    }

    /// Bytes that a stream may have outstanding.
    fn max_outstanding(&self) -> u64 {
        (self.min_rtt.saturating_mul(OUTSTANDING_PER_MILLISECOND) / 1_000).max(MIN_OUTSTANDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MBIT: u64 = 1_000_000 / 8;

    /// One whose window is just enough for `rate` bytes a second.
    fn path(rate: u64, rtt_ms: u64) -> SendPath {
        SendPath { window: rate * rtt_ms / 1_000, smoothed_rtt: rtt_ms * 1_000, min_rtt: rtt_ms * 1_000 }
    }

    fn alone(unsent: u64, outstanding: u64) -> QueuedBytes {
        QueuedBytes { connection: unsent, stream: unsent, outstanding }
    }

    #[test]
    fn unsent_is_what_leaves_within_milliseconds_whatever_is_in_flight() {
        for (rate, rtt_ms, unsent) in [
            (5 * MBIT, 40, MIN_UNSENT_BYTES),
            (100 * MBIT, 10, 4 * 100 * MBIT / 1_000),
            (100 * MBIT, 100, 4 * 100 * MBIT / 1_000),
            (500 * MBIT, 100, 250_000),
            (10_000 * MBIT, 1, MAX_UNSENT_BYTES),
        ] {
            let path = path(rate, rtt_ms);
            assert_eq!(path.stream_allowance(alone(0, 0), u64::MAX), WriteAllowance::Bytes(unsent), "{rate} {rtt_ms}");
            // As much as a lost packet's successors make it, too.
            let in_flight = alone(0, 2 * path.window.min(MIN_OUTSTANDING / 4));
            assert_eq!(path.stream_allowance(in_flight, u64::MAX), WriteAllowance::Bytes(unsent), "{rate} {rtt_ms}");
        }
    }

    #[test]
    fn long_paths_have_room_for_half_a_gigabit_and_short_ones_for_a_train_of_trains() {
        let long = path(500 * MBIT, 100);
        assert_eq!(long.stream_allowance(alone(0, 4 * long.window), 1_000), WriteAllowance::Bytes(1_000));
        let short = SendPath { min_rtt: 200, smoothed_rtt: 3_000, window: 16 << 20 };
        assert_eq!(
            short.stream_allowance(alone(0, MIN_OUTSTANDING - MIN_REFILL), u64::MAX),
            WriteAllowance::Bytes(MIN_REFILL)
        );
        assert_eq!(
            short.stream_allowance(alone(0, MIN_OUTSTANDING - MIN_REFILL + 1), u64::MAX),
            WriteAllowance::Unacknowledged
        );
        assert_eq!(SendPath::default().stream_allowance(alone(0, MIN_OUTSTANDING), 1), WriteAllowance::Unacknowledged);
    }

    #[test]
    fn a_stream_has_its_train_however_much_the_others_have_unsent() {
        let path = path(100 * MBIT, 20);
        let queued = QueuedBytes { connection: 1 << 20, stream: 0, outstanding: 0 };
        assert_eq!(path.stream_allowance(queued, u64::MAX), WriteAllowance::Bytes(TRAIN));
        assert_eq!(
            path.stream_allowance(QueuedBytes { stream: TRAIN / 2 + 1, ..queued }, u64::MAX),
            WriteAllowance::Unsent
        );
        assert_eq!(
            path.stream_allowance(QueuedBytes { stream: TRAIN / 2 + 1, ..queued }, 1_000),
            WriteAllowance::Bytes(1_000),
            "all that it has"
        );
    }

    proptest! {
        /// Otherwise a stream would wait for what has happened already, or be woken for nothing.
        #[test]
        fn a_stream_that_waits_has_unsent_bytes_and_finds_room_once_they_are_few(
            window in 0_u64..1 << 32, smoothed_rtt in 0_u64..1 << 32, min_rtt in 0_u64..1 << 32,
            others in 0_u64..1 << 22, own in 0_u64..1 << 22, outstanding in 0_u64..1 << 26, ready in 1_u64..1 << 22,
        ) {
            let path = SendPath { window, smoothed_rtt, min_rtt };
            let queued = QueuedBytes { connection: others + own, stream: own, outstanding };
            match path.stream_allowance(queued, ready) {
                WriteAllowance::Bytes(bytes) => prop_assert!(bytes > 0 && bytes <= ready),
                WriteAllowance::Unsent => {
                    prop_assert!(own > OWN_LOW_WATER && queued.connection > path.unsent_low_water());
                    for low in [
                        QueuedBytes { connection: path.unsent_low_water(), ..queued },
                        QueuedBytes { stream: OWN_LOW_WATER, ..queued },
                    ] {
                        prop_assert!(path.stream_allowance(low, ready) != WriteAllowance::Unsent);
                    }
                }
                WriteAllowance::Unacknowledged => {
                    prop_assert!(outstanding > MIN_OUTSTANDING - MIN_REFILL);
                    let acknowledged = QueuedBytes { outstanding: outstanding.min(MIN_OUTSTANDING - MIN_REFILL), ..queued };
                    prop_assert!(matches!(path.stream_allowance(acknowledged, ready), WriteAllowance::Bytes(_)));
                }
            }
        }
    }
}

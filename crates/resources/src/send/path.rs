//! Computes the bytes that a stream may queue in QUIC, by the state of its connection's path: enough unsent bytes that
//! QUIC always has something to send until the worker's next turn, and no more, since queued bytes delay more urgent
//! ones. Unsent bytes have a bound of their own, as with TCP_NOTSENT_LOWAT: the successors of a lost packet, which stay
//! in memory until it is acknowledged, do not count and do not stall the connection. Pure.

use super::TRAIN;
use std::time::Duration;

/// Time for which unsent bytes suffice: a receive batch may be 2 ms late, and slow start sends at twice the rate.
const UNSENT_TIME: Duration = Duration::from_millis(4);
/// Number of turns for which unsent bytes suffice on a worker that is late for [`UNSENT_TIME`]: the connection waits
/// for its own turn, and then the endpoint, which sends, for its turn.
const TURNS_AHEAD: u32 = 2;
/// Minimum of a connection's bound of unsent bytes: while one train is sent, another one is queued.
pub const MIN_UNSENT_BYTES: u64 = 2 * TRAIN;
/// Maximum of a connection's bound of unsent bytes: 4 ms of 1 Gbit/s, and eight full messages of GSO.
const MAX_UNSENT_BYTES: u64 = 512 * 1024;
/// Outstanding bytes of a stream for each millisecond of the shortest round trip: 8 Gbit/s, more than a core encrypts.
/// On a short path, more would only fill the receiver's socket buffer and be dropped.
const OUTSTANDING_PER_MILLISECOND: u64 = 1_000_000;
/// Minimum of a stream's bound of outstanding bytes, for short paths: long GSO trains need about as much.
const MIN_OUTSTANDING: u64 = 1024 * 1024;

/// Smallest free room that is filled at once, as small pieces cost as much as large ones.
pub const MIN_REFILL: u64 = 64 * 1024;
/// Smallest free room in a stream's own train that is filled at once.
const OWN_MIN_REFILL: u64 = TRAIN / 2;
/// Number of unsent bytes up to which a stream has room in its own train.
pub const OWN_LOW_WATER: u64 = TRAIN - OWN_MIN_REFILL;

/// State of the path that a connection's packets take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendPath {
    /// Congestion window, in bytes.
    pub window: u64,
    /// Smoothed round-trip time (RFC 9002 §5.3), in microseconds.
    pub smoothed_rtt: u64,
    /// Shortest round-trip time, `min_rtt` (RFC 9002 §5.2), in microseconds.
    pub min_rtt: u64,
    /// Time for which a woken stream waits for its turn on the worker.
    pub turn_delay: Duration,
}

/// Queued bytes of a connection and of one of its streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuedBytes {
    /// Bytes that the connection's streams have queued and QUIC has not sent.
    pub connection: u64,
    /// Bytes that the stream has queued and QUIC has not sent.
    pub stream: u64,
    /// Bytes that the stream has queued and the client has not acknowledged.
    pub outstanding: u64,
}

/// Bytes that a stream may queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAllowance {
    /// Up to this number of bytes, at least one.
    Bytes(u64),
    /// None before QUIC has sent more of its queued bytes.
    Unsent,
    /// None before the client has acknowledged more.
    Unacknowledged,
}

impl SendPath {
    /// Number of the `ready` bytes that a stream may queue.
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

    /// Number of the `ready` bytes that a stream with `outstanding` bytes may queue, whatever is unsent. `None` before
    /// the client has acknowledged more.
    pub fn outstanding_allowance(&self, outstanding: u64, ready: u64) -> Option<u64> {
        let free = self.max_outstanding().saturating_sub(outstanding);
        (free >= ready.min(MIN_REFILL)).then_some(free.min(ready))
    }

    /// Number of unsent bytes at which a connection's waiting streams have room again. A stream with at most
    /// [`OWN_LOW_WATER`] unsent bytes always has room.
    pub fn unsent_low_water(&self) -> u64 {
        self.max_unsent() / 2
    }

    /// Bound of the unsent bytes of a connection's streams together.
    pub fn max_unsent(&self) -> u64 {
        let bytes_within = |time: Duration| {
            let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            self.window.saturating_mul(time) / self.smoothed_rtt.max(1)
        };
        let until_next_turn = bytes_within(self.turn_delay.saturating_mul(TURNS_AHEAD)).min(self.window);
        bytes_within(UNSENT_TIME).max(until_next_turn).clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES)
    }

    /// Bound of the outstanding bytes of a stream.
    fn max_outstanding(&self) -> u64 {
        (self.min_rtt.saturating_mul(OUTSTANDING_PER_MILLISECOND) / 1_000).max(MIN_OUTSTANDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MBIT: u64 = 1_000_000 / 8;

    /// Path whose window is just enough for `rate` bytes a second.
    fn path(rate: u64, rtt_ms: u64) -> SendPath {
        let rtt = rtt_ms * 1_000;
        SendPath { window: rate * rtt_ms / 1_000, smoothed_rtt: rtt, min_rtt: rtt, turn_delay: Duration::ZERO }
    }

    fn alone(unsent: u64, outstanding: u64) -> QueuedBytes {
        QueuedBytes { connection: unsent, stream: unsent, outstanding }
    }

    #[test]
    fn unsent_bytes_cover_four_milliseconds_whatever_is_in_flight() {
        for (rate, rtt_ms, unsent) in [
            (5 * MBIT, 40, MIN_UNSENT_BYTES),
            (100 * MBIT, 10, 4 * 100 * MBIT / 1_000),
            (100 * MBIT, 100, 4 * 100 * MBIT / 1_000),
            (500 * MBIT, 100, 250_000),
            (10_000 * MBIT, 1, MAX_UNSENT_BYTES),
        ] {
            let path = path(rate, rtt_ms);
            assert_eq!(path.stream_allowance(alone(0, 0), u64::MAX), WriteAllowance::Bytes(unsent), "{rate} {rtt_ms}");
            // The same holds for as many bytes as follow a lost packet.
            let in_flight = alone(0, 2 * path.window.min(MIN_OUTSTANDING / 4));
            assert_eq!(path.stream_allowance(in_flight, u64::MAX), WriteAllowance::Bytes(unsent), "{rate} {rtt_ms}");
        }
    }

    #[test]
    fn unsent_bytes_cover_turns_of_a_saturated_worker_within_the_window() {
        let path = SendPath { window: 123_120, smoothed_rtt: 80_000, min_rtt: 200, turn_delay: Duration::ZERO };
        for (delay, horizon) in
            [(0, MIN_UNSENT_BYTES), (2, MIN_UNSENT_BYTES), (20, 61_560), (40, 123_120), (100, 123_120)]
        {
            let turn_delay = Duration::from_millis(delay);
            assert_eq!(SendPath { turn_delay, ..path }.max_unsent(), horizon, "{delay} ms");
        }
    }

    #[test]
    fn long_paths_carry_half_a_gigabit_and_short_ones_whole_trains() {
        let long = path(500 * MBIT, 100);
        assert_eq!(long.stream_allowance(alone(0, 4 * long.window), 1_000), WriteAllowance::Bytes(1_000));
        let short = SendPath { min_rtt: 200, smoothed_rtt: 3_000, window: 16 << 20, ..SendPath::default() };
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
        /// Otherwise a stream would wait for an event of the past, or be woken for nothing.
        #[test]
        fn a_waiting_stream_finds_room_once_few_bytes_are_unsent(
            window in 0_u64..1 << 32, smoothed_rtt in 0_u64..1 << 32, min_rtt in 0_u64..1 << 32, delay in 0_u64..1 << 32,
            others in 0_u64..1 << 22, own in 0_u64..1 << 22, outstanding in 0_u64..1 << 26, ready in 1_u64..1 << 22,
        ) {
            let path = SendPath { window, smoothed_rtt, min_rtt, turn_delay: Duration::from_micros(delay) };
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

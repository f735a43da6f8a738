//! A drop-tail queue in bytes before a rate.

use super::Rate;
use std::{collections::VecDeque, time::Duration};

/// The queue and the rate that empties it.
#[derive(Debug, Clone)]
pub(crate) struct Bottleneck {
    rate: Rate,
    /// Bytes that the queue holds at most, the packet included whose bits are being sent.
    limit: u64,
    /// When each packet's last bit is sent, and its length.
    queue: VecDeque<(Duration, u32)>,
    bytes: u64,
    /// When the rate is free again.
    free_at: Duration,
    /// When the rate's trace began.
    since: Duration,
}

impl Bottleneck {
    /// An empty queue.
    pub(crate) fn new(rate: Rate, limit: u64) -> Self {
        Self { rate, limit, queue: VecDeque::new(), bytes: 0, free_at: Duration::ZERO, since: Duration::ZERO }
    }

    /// A trace begins anew; the queue stays.
    pub(crate) fn begin_anew(&mut self, now: Duration) {
        self.since = now;
    }

    /// Bytes of packets whose last bit is not sent yet.
    pub(crate) fn queued(&mut self, now: Duration) -> u64 {
        while let Some((_, length)) = self.queue.pop_front_if(|(sent, _)| *sent <= now) {
            self.bytes -= u64::from(length);
        }
        self.bytes
    }

    /// When a packet's last bit is sent; `None`: the queue was full.
    pub(crate) fn pass(&mut self, now: Duration, length: u32) -> Option<Duration> {
        if self.queued(now) + u64::from(length) > self.limit {
            return None;
        }
        let start = self.free_at.max(now) - self.since;
        self.free_at = self.since + self.rate.sent(start, length);
        self.queue.push_back((self.free_at, length));
        self.bytes += u64::from(length);
        Some(self.free_at)
    }
}

//! Limits the rate of responses to clients without a connection: stateless resets, Retry packets, refusals, Version
//! Negotiation. s2n-quic queues each until the socket accepts it, most without a limit, so a sender faster than the
//! socket would fill the memory.

use litequic_base::token_bucket::TokenBucket;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Stateless resets an endpoint sends a second: all clients of a worker that crashed with 20,000 connections get one
/// within 20 seconds, about as long as their own timeouts.
pub(super) const MAX_RESETS_PER_SECOND: u32 = 1_000;
/// Retry packets and refusals an endpoint sends a second, and as many Version Negotiation packets: more handshakes
/// than a core completes.
pub(super) const MAX_RESPONSES_PER_SECOND: u32 = 20_000;
/// Time whose responses may be sent at once: those of a second, all of which s2n-quic may have to queue, of 1.2 KB
/// each.
const RESPONSE_BURST: Duration = Duration::from_secs(1);

/// Rate limit of responses. Has a lock of its own, because s2n-quic calls shared providers (`&self`).
#[derive(Debug)]
pub(super) struct StatelessResponseLimit(Mutex<TokenBucket>);

impl StatelessResponseLimit {
    /// A limit of `per_second` responses.
    pub(super) fn new(per_second: u32) -> Self {
        Self(Mutex::new(TokenBucket::with_burst(per_second, RESPONSE_BURST)))
    }

    /// Whether another response may be sent `now`.
    pub(super) fn admit_response(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_take_token(now)
    }
}

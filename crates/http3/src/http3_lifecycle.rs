//! Tracks one HTTP/3 connection: its phase, its requests, and the rates of its client's suspicious actions.

use super::http3_phase::{Http3End, Http3Event, Http3Phase};
use crate::http3_metrics::Http3Metrics;
use litequic_base::timers::{DeadlineTimer, Throttle};
use litequic_base::token_bucket::TokenBucket;
use litequic_config::Limits;
use litequic_exchange::RequestEnd;
use std::{
    cell::RefCell,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// Phase and counts of one connection, shared by its task and the tasks of its streams.
#[derive(Debug)]
pub(super) struct Http3Lifecycle {
    state: RefCell<Http3LifecycleState>,
    metrics: Arc<Http3Metrics>,
}

#[derive(Debug)]
struct Http3LifecycleState {
    phase: Http3Phase,
    /// Number of accepted requests.
    accepted: u64,
    /// Stream ID behind that of the last accepted request.
    next_stream: u64,
    cancelled: TokenBucket,
    /// Rate limit of small DATA frames.
    small_frames: Throttle,
}

impl Http3Lifecycle {
    /// Creates the state of a connection that begins now.
    pub(super) fn new(limits: &Limits, metrics: Arc<Http3Metrics>) -> Self {
        let state = RefCell::new(Http3LifecycleState {
            phase: Http3Phase::Open,
            accepted: 0,
            next_stream: 0,
            cancelled: TokenBucket::new(limits.max_resets),
            small_frames: Throttle::new(limits.max_small_frames),
        });
        Self { state, metrics }
    }

    pub(super) fn http3_phase(&self) -> Http3Phase {
        self.state.borrow().phase
    }

    /// Returns the end of the open requests, if litequic has ended the connection for a reason of its own.
    pub(super) fn request_end(&self) -> Option<RequestEnd> {
        match self.http3_phase() {
            Http3Phase::Closed { reason: Http3End::Evicted } => Some(RequestEnd::Evicted),
            Http3Phase::Closed { reason: Http3End::Operator } => Some(RequestEnd::Closed),
            _ => None,
        }
    }

    /// Applies `event` to the phase. Returns false if it had no effect.
    pub(super) fn on_event(&self, event: Http3Event) -> bool {
        self.state.borrow_mut().phase.apply_event(event)
    }

    /// Rejects new requests from now on: the client has GOAWAY, or had the time for it. Returns the first rejected
    /// stream ID.
    pub(super) fn on_goaway_received(&self) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.phase.apply_event(Http3Event::GoawayReceived { next: state.next_stream });
        state.next_stream
    }

    /// Counts the request on stream `id`. Returns the number of accepted requests, or `None` if this one is to be
    /// rejected.
    pub(super) fn accept_request(&self, id: u64) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        if state.phase.rejects_stream(id) {
            return None;
        }
        state.next_stream = state.next_stream.max(id.saturating_add(4));
        state.accepted = state.accepted.saturating_add(1);
        Some(state.accepted)
    }

    pub(super) fn accepted_requests(&self) -> u64 {
        self.state.borrow().accepted
    }

    /// Returns the stream ID behind that of the last accepted request.
    pub(super) fn next_stream_id(&self) -> u64 {
        self.state.borrow().next_stream
    }

    /// Counts a request that its client cancelled. Returns false after too many in too short a time.
    pub(super) fn on_request_cancelled(&self) -> bool {
        self.state.borrow_mut().cancelled.take_tokens(1, Instant::now())
    }

    /// Counts small DATA frames. Ready at once, or after too many once the connection's streams may be read again.
    /// Cancel safe.
    pub(super) fn poll_small_frames(&self, count: u32, timer: &mut DeadlineTimer, cx: &mut Context<'_>) -> Poll<()> {
        let throttle = &mut self.state.borrow_mut().small_frames;
        if throttle.count_things(count) {
            self.metrics.shared.limit_small_frames.increment();
        }
        throttle.poll_pause(timer, cx)
    }
}

//! The course of one TCP connection: its phase, its requests, and what its task has to do next.

use super::tcp_phase::{PhaseStep, TcpEvent, TcpPhase};
use litequic_base::token_bucket::TokenBucket;
use litequic_resources::connections::{ConnectionEntry, EvictionReason};
use std::{
    cell::RefCell,
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// The course of one connection. Shared by its task and those of its requests.
#[derive(Debug)]
pub(super) struct TcpLifecycle(RefCell<TcpLifecycleState>);

#[derive(Debug)]
struct TcpLifecycleState {
    phase: TcpPhase,
    /// The step that the connection's task has not taken yet.
    due_step: PhaseStep,
    /// The waker of that task.
    task: Option<Waker>,
    /// Requests that are being served.
    serving: u32,
    /// Requests that were accepted.
    accepted: u64,
    /// Rate limit of cancelled requests.
    cancelled: TokenBucket,
    /// The eviction that was reported already.
    evicted: Option<EvictionReason>,
}

impl TcpLifecycle {
    /// A connection that begins now, whose client may cancel `resets` requests a second.
    pub(super) fn new(resets: u32) -> Self {
        Self(RefCell::new(TcpLifecycleState {
            phase: TcpPhase::New { since: Instant::now() },
            due_step: PhaseStep::Continue,
            task: None,
            serving: 0,
            accepted: 0,
            cancelled: TokenBucket::new(resets),
            evicted: None,
        }))
    }

    pub(super) fn tcp_phase(&self) -> TcpPhase {
        self.0.borrow().phase
    }

    /// Whether the connection ends, or has ended.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.tcp_phase(), TcpPhase::Closed { .. })
    }

    /// Whether its client was told to close it.
    pub(super) fn is_going_away(&self) -> bool {
        matches!(self.tcp_phase(), TcpPhase::GoingAway { .. })
    }

    /// Moves on after `event`, and wakes the connection's task if it has to do something.
    pub(super) fn on_event(&self, event: TcpEvent) {
        let task = {
            let state = &mut *self.0.borrow_mut();
            let step = state.phase.apply_event(event, Instant::now());
            state.due_step = state.due_step.max(step);
            if step == PhaseStep::Continue { None } else { state.task.take() }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes the task of `cx` at the next step.
    pub(super) fn register_task(&self, cx: &Context<'_>) {
        let task = &mut self.0.borrow_mut().task;
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// The next step, once.
    pub(super) fn take_step(&self) -> PhaseStep {
        std::mem::replace(&mut self.0.borrow_mut().due_step, PhaseStep::Continue)
    }

    /// Ready once for each reason why the connection `holder` is to be closed for others.
    pub(super) fn poll_eviction_reason(&self, holder: &ConnectionEntry, cx: &Context<'_>) -> Poll<EvictionReason> {
        holder.poll_eviction(cx, &mut self.0.borrow_mut().evicted)
    }

    /// One more request is being served.
    pub(super) fn on_request_began(&self) {
        let is_first = {
            let state = &mut *self.0.borrow_mut();
            state.serving = state.serving.saturating_add(1);
            state.serving == 1
        };
        if is_first {
            self.on_event(TcpEvent::RequestBegan);
        }
    }

    /// A request that was being served is done.
    pub(super) fn on_request_done(&self) {
        let is_last = {
            let state = &mut *self.0.borrow_mut();
            state.serving = state.serving.saturating_sub(1);
            state.serving == 0
        };
        if is_last {
            self.on_event(TcpEvent::LastEnded);
        }
    }

    /// Requests that are being served.
    pub(super) fn serving_count(&self) -> usize {
        self.0.borrow().serving as usize
    }

    /// Whether any is being served.
    pub(super) fn is_serving(&self) -> bool {
        self.0.borrow().serving > 0
    }

    /// Counts a request that was accepted. Returns how many there were.
    pub(super) fn count_accepted(&self) -> u64 {
        let state = &mut *self.0.borrow_mut();
        state.accepted = state.accepted.saturating_add(1);
        state.accepted
    }

    /// Requests that were accepted.
    pub(super) fn accepted_requests(&self) -> u64 {
        self.0.borrow().accepted
    }

    /// Counts a request that its client cancelled. False once there were too many in too short a time.
    pub(super) fn on_request_cancelled(&self) -> bool {
        self.0.borrow_mut().cancelled.take_tokens(1, std::time::Instant::now())
    }

    /// Requests that its client may cancel at once.
    pub(super) fn max_resets_at_once(&self) -> u64 {
        self.0.borrow().cancelled.burst_tokens()
    }
}

impl Default for TcpLifecycle {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_due_once_and_the_last_one_covers_what_is_before_it() {
        let life = TcpLifecycle::default();
        life.on_request_began();
        life.on_request_began();
        life.on_request_done();
        assert_eq!(
            (life.take_step(), life.tcp_phase(), life.serving_count()),
            (PhaseStep::Continue, TcpPhase::Serving, 1)
        );
        life.on_event(TcpEvent::Exhausted);
        life.on_event(TcpEvent::Drain);
        assert_eq!((life.take_step(), life.take_step()), (PhaseStep::GoAway, PhaseStep::Continue));
        let life = TcpLifecycle::default();
        life.on_event(TcpEvent::Drain);
        life.on_event(TcpEvent::Excessive);
        assert_eq!((life.take_step(), life.take_step()), (PhaseStep::Close, PhaseStep::Continue));
    }

    #[test]
    fn requests_that_its_client_cancels_at_once_are_bounded() {
        let life = TcpLifecycle::new(1);
        assert!((0..life.max_resets_at_once()).all(|_| life.on_request_cancelled()));
        assert!(!life.on_request_cancelled());
    }
}

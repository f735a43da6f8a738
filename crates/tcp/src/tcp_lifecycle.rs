//! Tracks one TCP connection: its phase, its requests, and the next step of its task.

use super::tcp_phase::{PhaseStep, TcpEnd, TcpEvent, TcpPhase};
use litequic_base::token_bucket::TokenBucket;
use litequic_resources::connections::{ConnectionEntry, EvictionReason};
use std::{
    cell::{Cell, RefCell},
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// Phase and counts of one connection, shared by its task and the tasks of its requests.
#[derive(Debug)]
pub(super) struct TcpLifecycle {
    state: RefCell<TcpLifecycleState>,
    /// Number of requests in progress.
    pub(super) serving: Cell<u32>,
    /// Number of accepted requests.
    pub(super) accepted: Cell<u64>,
}

#[derive(Debug)]
struct TcpLifecycleState {
    phase: TcpPhase,
    /// Next step of the connection's task, until it is taken.
    due_step: PhaseStep,
    /// Waker of the connection's task.
    task: Option<Waker>,
    cancelled: TokenBucket,
    /// The eviction that was reported last.
    evicted: Option<EvictionReason>,
}

impl TcpLifecycle {
    /// Creates the state of a new connection, whose client may cancel `resets` requests a second.
    pub(super) fn new(resets: u32) -> Self {
        let state = TcpLifecycleState {
            phase: TcpPhase::New { since: Instant::now() },
            due_step: PhaseStep::Continue,
            task: None,
            cancelled: TokenBucket::new(resets),
            evicted: None,
        };
        Self { state: RefCell::new(state), serving: Cell::new(0), accepted: Cell::new(0) }
    }

    pub(super) fn tcp_phase(&self) -> TcpPhase {
        self.state.borrow().phase
    }

    /// Whether the connection ends, or has ended.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.tcp_phase(), TcpPhase::Closed { .. })
    }

    /// Whether the client was requested to close the connection.
    /// Whether the connection has ended for `reason`.
    pub(super) fn is_closed_for(&self, reason: TcpEnd) -> bool {
        self.tcp_phase() == TcpPhase::Closed { reason }
    }

    pub(super) fn is_going_away(&self) -> bool {
        matches!(self.tcp_phase(), TcpPhase::GoingAway { .. })
    }

    /// Applies `event` to the phase, and wakes the connection's task if that has to act.
    pub(super) fn on_event(&self, event: TcpEvent) {
        let task = {
            let state = &mut *self.state.borrow_mut();
            let step = state.phase.apply_event(event, Instant::now());
            state.due_step = state.due_step.max(step);
            if step == PhaseStep::Continue { None } else { state.task.take() }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Registers the task of `cx`, which the next step wakes.
    pub(super) fn register_task(&self, cx: &Context<'_>) {
        let task = &mut self.state.borrow_mut().task;
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    pub(super) fn take_step(&self) -> PhaseStep {
        std::mem::replace(&mut self.state.borrow_mut().due_step, PhaseStep::Continue)
    }

    /// Ready once for each reason for which the connection `holder` is to be closed for others.
    pub(super) fn poll_eviction_reason(&self, holder: &ConnectionEntry, cx: &Context<'_>) -> Poll<EvictionReason> {
        holder.poll_eviction(cx, &mut self.state.borrow_mut().evicted)
    }

    /// Counts a request that has begun.
    pub(super) fn on_request_began(&self) {
        self.serving.update(|serving| serving.saturating_add(1));
        if self.serving.get() == 1 {
            self.on_event(TcpEvent::RequestBegan);
        }
    }

    /// Counts a request that has ended.
    pub(super) fn on_request_done(&self) {
        self.serving.update(|serving| serving.saturating_sub(1));
        if self.serving.get() == 0 {
            self.on_event(TcpEvent::LastEnded);
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.serving.get() > 0
    }

    /// Counts an accepted request. Returns the number of accepted requests.
    pub(super) fn count_accepted(&self) -> u64 {
        self.accepted.update(|accepted| accepted.saturating_add(1));
        self.accepted.get()
    }

    /// Counts a request that its client cancelled. Returns false after too many in too short a time.
    pub(super) fn on_request_cancelled(&self) -> bool {
        self.state.borrow_mut().cancelled.take_tokens(1, std::time::Instant::now())
    }

    /// Returns the number of requests that the client may cancel at once.
    pub(super) fn max_resets_at_once(&self) -> u64 {
        self.state.borrow().cancelled.burst_tokens()
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
    fn each_step_is_due_once_and_a_later_step_replaces_earlier_ones() {
        let life = TcpLifecycle::default();
        life.on_request_began();
        life.on_request_began();
        life.on_request_done();
        assert_eq!(
            (life.take_step(), life.tcp_phase(), life.serving.get()),
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
    fn requests_cancelled_at_once_are_bounded() {
        let life = TcpLifecycle::new(1);
        assert!((0..life.max_resets_at_once()).all(|_| life.on_request_cancelled()));
        assert!(!life.on_request_cancelled());
    }
}

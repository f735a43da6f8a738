//! The course of one TCP connection: its phase, its requests, and what its task has to do next.

use super::phase::{PhaseStep, TcpEvent, TcpPhase};
use litequic_base::rate::Bucket;
use litequic_resources::connections::{EvictionReason, MemoryAccount};
use std::{
    cell::RefCell,
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;

/// The course of one connection. Shared by its task and those of its requests.
#[derive(Debug)]
pub(super) struct TcpLife(RefCell<State>);

#[derive(Debug)]
struct State {
    phase: TcpPhase,
    /// The step that the connection's task has not taken yet.
    due: PhaseStep,
    /// The waker of that task.
    task: Option<Waker>,
    /// Requests that are being served.
    serving: u32,
    /// Requests that were accepted.
    accepted: u64,
    /// Rate limit of cancelled requests.
    cancelled: Bucket,
    /// The eviction that was reported already.
    evicted: Option<EvictionReason>,
}

impl TcpLife {
    /// A connection that begins now, whose client may cancel `resets` requests a second.
    pub(super) fn new(resets: u32) -> Self {
        Self(RefCell::new(State {
            phase: TcpPhase::New { since: Instant::now() },
            due: PhaseStep::Continue,
            task: None,
            serving: 0,
            accepted: 0,
            cancelled: Bucket::new(resets),
            evicted: None,
        }))
    }

    pub(super) fn phase(&self) -> TcpPhase {
        self.0.borrow().phase
    }

    /// Whether the connection ends, or has ended.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase(), TcpPhase::Closed { .. })
    }

    /// Whether its client was told to close it.
    pub(super) fn is_going_away(&self) -> bool {
        matches!(self.phase(), TcpPhase::GoingAway { .. })
    }

    /// Moves on after `event`, and wakes the connection's task if it has to do something.
    pub(super) fn on(&self, event: TcpEvent) {
        let task = {
            let state = &mut *self.0.borrow_mut();
            let step = state.phase.on(event, Instant::now());
            state.due = state.due.max(step);
            if step == PhaseStep::Continue { None } else { state.task.take() }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes the task of `cx` at the next step.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let task = &mut self.0.borrow_mut().task;
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// The next step, once.
    pub(super) fn take_step(&self) -> PhaseStep {
        std::mem::replace(&mut self.0.borrow_mut().due, PhaseStep::Continue)
    }

    /// Ready once for each reason why the connection `holder` is to be closed for others.
    pub(super) fn poll_evicted(&self, holder: &MemoryAccount, cx: &Context<'_>) -> Poll<EvictionReason> {
        holder.poll_end(cx, &mut self.0.borrow_mut().evicted)
    }

    /// One more request is being served.
    pub(super) fn request_began(&self) {
        let is_first = {
            let state = &mut *self.0.borrow_mut();
            state.serving = state.serving.saturating_add(1);
            state.serving == 1
        };
        if is_first {
            self.on(TcpEvent::RequestBegan);
        }
    }

    /// A request that was being served is done.
    pub(super) fn request_ended(&self) {
        let is_last = {
            let state = &mut *self.0.borrow_mut();
            state.serving = state.serving.saturating_sub(1);
            state.serving == 0
        };
        if is_last {
            self.on(TcpEvent::LastEnded);
        }
    }

    /// Requests that are being served.
    pub(super) fn serving(&self) -> usize {
        self.0.borrow().serving as usize
    }

    /// Whether any is being served.
    pub(super) fn is_serving(&self) -> bool {
        self.0.borrow().serving > 0
    }

    /// Counts a request that was accepted. Returns how many there were.
    pub(super) fn request_accepted(&self) -> u64 {
        let state = &mut *self.0.borrow_mut();
        state.accepted = state.accepted.saturating_add(1);
        state.accepted
    }

    /// Requests that were accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.0.borrow().accepted
    }

    /// Counts a request that its client cancelled. False once there were too many in too short a time.
    pub(super) fn request_cancelled(&self) -> bool {
        self.0.borrow_mut().cancelled.take(1, std::time::Instant::now())
    }

    /// Requests that its client may cancel at once.
    pub(super) fn resets_at_once(&self) -> u64 {
        self.0.borrow().cancelled.capacity()
    }
}

impl Default for TcpLife {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_due_once_and_the_last_one_covers_what_is_before_it() {
        let life = TcpLife::default();
        life.request_began();
        life.request_began();
        life.request_ended();
        assert_eq!((life.take_step(), life.phase(), life.serving()), (PhaseStep::Continue, TcpPhase::Serving, 1));
        life.on(TcpEvent::Exhausted);
        life.on(TcpEvent::Drain);
        assert_eq!((life.take_step(), life.take_step()), (PhaseStep::GoAway, PhaseStep::Continue));
        let life = TcpLife::default();
        life.on(TcpEvent::Drain);
        life.on(TcpEvent::Excessive);
        assert_eq!((life.take_step(), life.take_step()), (PhaseStep::Close, PhaseStep::Continue));
    }

    #[test]
    fn requests_that_its_client_cancels_at_once_are_bounded() {
        let life = TcpLife::new(1);
        assert!((0..life.resets_at_once()).all(|_| life.request_cancelled()));
        assert!(!life.request_cancelled());
    }
}

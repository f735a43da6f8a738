//! The channel of interim (1xx) responses, from the handler to the front end.

use super::fields::Fields;
use http::StatusCode;
use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Interim responses in the channel. Further ones before the final response are dropped: they are advisory (RFC 9110
/// §15.2).
const MAX_WAITING: usize = 8;

/// The handler's end: sends interim responses. By default it drops them.
#[derive(Debug, Clone, Default)]
pub struct Interim(Option<Rc<RefCell<State>>>);

/// The front end's end: receives them.
#[derive(Debug)]
pub struct InterimQueue(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(StatusCode, Fields)>,
    /// The client gets 100 (Continue) alone, and once.
    only_continue: bool,
    waker: Option<Waker>,
}

thread_local! {
    /// Channels of earlier requests, whose ends were dropped.
    static FREE: RefCell<Vec<Rc<RefCell<State>>>> = const { RefCell::new(Vec::new()) };
}

/// Channels that are kept at most.
const KEPT: usize = 128;

/// Keeps the channel for another request, unless the handler has its end yet.
impl Drop for InterimQueue {
    fn drop(&mut self) {
        let Some(state) = Rc::get_mut(&mut self.0) else { return };
        let state = state.get_mut();
        state.waiting.clear();
        (state.only_continue, state.waker) = (false, None);
        // A thread that ends keeps nothing.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(Rc::clone(&self.0));
            }
        });
    }
}

impl Interim {
    /// Creates both ends of a channel.
    pub fn channel() -> (Self, InterimQueue) {
        let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        let state = free.unwrap_or_default();
        (Self(Some(Rc::clone(&state))), InterimQueue(state))
    }

    /// Creates both ends of a channel for a client that gets 100 (Continue) alone: others are dropped.
    pub fn continue_channel() -> (Self, InterimQueue) {
        let (interim, queue) = Self::channel();
        queue.0.borrow_mut().only_continue = true;
        (interim, queue)
    }

    /// Forwards an interim response; false if there was no room for it. 101 does not exist in HTTP/3 (RFC 9114 §4.5):
    /// it is dropped here.
    pub fn send(&self, status: StatusCode, fields: Fields) -> bool {
        let Some(state) = &self.0 else { return true };
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return true;
        }
        let mut state = state.borrow_mut();
        if state.only_continue && (status != StatusCode::CONTINUE || !state.waiting.is_empty()) {
            return true;
        }
        let fits = state.waiting.len() < MAX_WAITING;
        if fits {
            state.waiting.push_back((status, fields));
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        fits
    }
}

impl InterimQueue {
    /// The next interim response, if there is one: for who polls the handler, and looks here behind each poll.
    pub fn take(&self) -> Option<(StatusCode, Fields)> {
        self.0.borrow_mut().waiting.pop_front()
    }

    /// The next interim response; pending until there is one. Loses nothing when dropped and polled again.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<(StatusCode, Fields)> {
        let mut state = self.0.borrow_mut();
        match state.waiting.pop_front() {
            Some(interim) => Poll::Ready(interim),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

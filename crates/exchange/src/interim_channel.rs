//! Passes interim (1xx) responses from the handler to the front end.

use super::fields::Fields;
use http::StatusCode;
use litequic_base::free_list::{FreeList, keep_free, take_free};
use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Largest number of interim responses in the channel. More before the final response are dropped, as interim responses
/// are advisory (RFC 9110 §15.2).
const MAX_QUEUED_INTERIM: usize = 8;

/// The handler's end of the channel: sends interim responses. The default drops all.
#[derive(Debug, Clone, Default)]
pub struct InterimSender(Option<Rc<RefCell<InterimChannel>>>);

/// The front end's end of the channel: receives interim responses.
#[derive(Debug)]
pub struct InterimReceiver(Rc<RefCell<InterimChannel>>);

#[derive(Debug, Default)]
struct InterimChannel {
    waiting: VecDeque<(StatusCode, Fields)>,
    /// The client gets 100 (Continue) once, and no other interim response.
    only_continue: bool,
    waker: Option<Waker>,
}

thread_local! {
    /// Channels of earlier requests, for reuse.
    static FREE_CHANNELS: FreeList<Rc<RefCell<InterimChannel>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the channel for another request, unless the handler still has its end.
impl Drop for InterimReceiver {
    fn drop(&mut self) {
        let Some(state) = Rc::get_mut(&mut self.0) else { return };
        let state = state.get_mut();
        state.waiting.clear();
        (state.only_continue, state.waker) = (false, None);
        keep_free(&FREE_CHANNELS, Rc::clone(&self.0));
    }
}

impl InterimSender {
    /// Creates both ends of a channel.
    pub fn open_channel() -> (Self, InterimReceiver) {
        let free = take_free(&FREE_CHANNELS);
        let state = free.unwrap_or_default();
        (Self(Some(Rc::clone(&state))), InterimReceiver(state))
    }

    /// Creates both ends of a channel for a client that gets 100 (Continue) alone. All others are dropped.
    pub fn open_continue_channel() -> (Self, InterimReceiver) {
        let (interim, queue) = Self::open_channel();
        queue.0.borrow_mut().only_continue = true;
        (interim, queue)
    }

    /// Sends an interim response. Returns false if the channel is full. 101, which HTTP/3 does not have (RFC 9114
    /// §4.5), is dropped.
    pub fn send_interim(&self, status: StatusCode, fields: Fields) -> bool {
        let Some(state) = &self.0 else { return true };
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return true;
        }
        let mut state = state.borrow_mut();
        if state.only_continue && (status != StatusCode::CONTINUE || !state.waiting.is_empty()) {
            return true;
        }
        let fits = state.waiting.len() < MAX_QUEUED_INTERIM;
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

impl InterimReceiver {
    /// Takes the next interim response, if there is one. For a caller that polls the handler first.
    pub fn take_interim(&self) -> Option<(StatusCode, Fields)> {
        self.0.borrow_mut().waiting.pop_front()
    }

    /// Polls for the next interim response. Cancel safe.
    pub fn poll_interim(&self, cx: &mut Context<'_>) -> Poll<(StatusCode, Fields)> {
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

//! Orders the bytes that the responses of one connection hand over to h2 (RFC 9218;
//! docs/adr/0059-priorities-over-http2.md). h2 sends a frame of each stream in turn. It has at most
//! [`MAX_QUEUED_BYTES`] of all streams that TLS has not accepted, fewer on a slow path; TCP_NOTSENT_LOWAT limits the
//! kernel's queue.
//!
//! A response without room, or behind another, waits in the order. Bytes that are sent make room. The response that is
//! granted the room is woken, and the room is reserved until it is polled. A connection with a single response needs no
//! order.

use litequic_exchange::priority::{NextTurn, Priority, PriorityOrder, SendList};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Instant,
};

/// Largest number of bytes of a connection's competing responses in h2: four frames. The connection's task writes them
/// at once if the kernel accepts them, and wakes the responses that have more.
const MAX_QUEUED_BYTES: u64 = 64 * 1024;
/// Length of a frame that h2 sends, in bytes: the smallest that every client accepts (RFC 9113 §4.2).
const FRAME_BYTES: u64 = 16 * 1024;

/// The order of one connection's responses.
pub(crate) struct ResponseOrder {
    order: RefCell<PriorityOrder<Rc<TurnState>>>,
    /// Priorities of open streams, as set by PRIORITY_UPDATE frames or origins.
    updated: RefCell<BTreeMap<u64, Priority>>,
    /// Urgencies that weights have set, of streams that are open or not opened yet and have no other priority set.
    urgencies: RefCell<BTreeMap<u64, u8>>,
    /// Number of responses that hand over bodies.
    open: Cell<u32>,
    /// Number of waiting responses.
    held: Cell<usize>,
    /// Largest number of bytes in h2 while responses compete.
    horizon: Cell<u64>,
    /// Bytes that h2 has and TLS has not accepted.
    unsent: Cell<u64>,
    /// Unsent bytes for which the client's windows have no room.
    stuck: Cell<u64>,
    /// Bytes that were granted, and that their responses have not handed over.
    reserved: Cell<u64>,
    /// Number of unsent and reserved bytes at which the next waiting response has room.
    grant_at: Cell<u64>,
    /// Room is to be granted once the woken responses have run, as they may precede the waiting ones.
    is_due: Cell<bool>,
    /// The response that has handed over bytes while it was alone.
    alone: Cell<Option<Rc<TurnState>>>,
    /// Number of responses in the list, with bytes in h2.
    listed: Cell<u32>,
    /// Number of the list: one more than the times it was cleared.
    list: Cell<u64>,
}

/// The place of one response in its connection's order, until its body was handed over or it is dropped.
pub(crate) struct ResponseTurn {
    /// The shared state of all short responses, which has no place.
    short: Rc<TurnState>,
    id: u64,
    /// Priority of the request.
    priority: Priority,
    /// Set once the response competes, or is longer than a frame.
    state: OnceCell<Rc<TurnState>>,
}

/// State of a response in the order, shared with the pieces of its body in h2.
pub(crate) struct TurnState {
    order: Rc<ResponseOrder>,
    id: u64,
    /// Priority of the request.
    priority: Priority,
    /// Bytes that h2 has and TLS has not accepted.
    unsent: Cell<u64>,
    granted: Cell<u64>,
    is_in_order: Cell<bool>,
    /// Number of the list with this response, by [`ResponseOrder::list`]; 0 for none.
    list: Cell<u64>,
    /// The response hands over no more bytes.
    ended: Cell<bool>,
    /// Waker of the task that waits for a turn.
    waiting: Cell<Option<Waker>>,
}

impl ResponseOrder {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            order: RefCell::new(PriorityOrder::new(SendList::Turns)),
            updated: RefCell::default(),
            urgencies: RefCell::default(),
            open: Cell::new(0),
            held: Cell::new(0),
            horizon: Cell::new(MAX_QUEUED_BYTES),
            unsent: Cell::new(0),
            stuck: Cell::new(0),
            reserved: Cell::new(0),
            grant_at: Cell::new(0),
            is_due: Cell::new(false),
            alone: Cell::new(None),
            listed: Cell::new(0),
            list: Cell::new(1),
        })
    }

    /// Returns the current priority of a stream whose request has `priority`.
    pub(super) fn effective_priority(&self, id: u64, priority: Priority) -> Priority {
        if let Some(updated) = self.updated.borrow().get(&id) {
            return *updated;
        }
        let urgency = self.urgencies.borrow().get(&id).copied().unwrap_or(priority.urgency);
        Priority { urgency, ..priority }
    }

    /// Sets the urgency of a stream that is open or not opened yet. With `most` streams all earlier urgencies are
    /// forgotten, as some streams are never opened.
    pub(super) fn override_urgency(&self, id: u64, urgency: u8, most: usize) {
        self.order.borrow_mut().change_urgency(id, urgency);
        if let Some(updated) = self.updated.borrow_mut().get_mut(&id) {
            updated.urgency = urgency;
            return;
        }
        let mut urgencies = self.urgencies.borrow_mut();
        if urgencies.len() >= most {
            urgencies.clear();
        }
        urgencies.insert(id, urgency);
    }

    /// Sets the priority of an open stream. Returns whether that differs from the last one set.
    pub(super) fn override_priority(&self, id: u64, priority: Priority) -> bool {
        self.order.borrow_mut().change_priority(id, priority);
        self.urgencies.borrow_mut().remove(&id);
        self.updated.borrow_mut().insert(id, priority) != Some(priority)
    }

    /// Forgets the priority of a stream that is no longer open.
    pub(crate) fn forget_overrides(&self, id: u64) {
        self.updated.borrow_mut().remove(&id);
        self.urgencies.borrow_mut().remove(&id);
    }

    /// Begins a run of the connection's task, for whose path no more than `limit` bytes are to be queued. Grants the
    /// room that was due; the woken responses run before the task runs again.
    pub(crate) fn on_run(&self, limit: u64) {
        self.horizon.set(limit.clamp(FRAME_BYTES, MAX_QUEUED_BYTES));
        if self.is_due.take() && self.held.get() > 0 {
            self.grant_room(None);
        }
    }

    /// Ends a run of the connection's task, which has written what it could; with `is_all`, everything for which the
    /// client's windows had room. Returns whether the task has to run again, behind the woken responses.
    pub(crate) fn on_written(&self, is_all: bool) -> bool {
        if is_all {
            self.stuck.set(self.unsent.get());
            if self.listed.take() > 0 {
                self.list.update(|list| list + 1);
                self.order.borrow_mut().clear_send_list();
            }
            self.is_due.set(self.held.get() > 0);
        }
        self.is_due.get()
    }

    /// Returns the number of bytes that responses may still hand over.
    fn free_room(&self) -> u64 {
        self.horizon.get().saturating_sub(self.unsent.get() - self.stuck.get()).saturating_sub(self.reserved.get())
    }

    fn on_bytes_sent(&self, bytes: u64) {
        let unsent = self.unsent.get().saturating_sub(bytes);
        self.unsent.set(unsent);
        self.stuck.update(|stuck| stuck.min(unsent));
    }

    /// Makes a grant due if there is room, after bytes were handed over or accepted by TLS.
    fn schedule_grant(&self) {
        if self.held.get() > 0 && self.unsent.get() - self.stuck.get() + self.reserved.get() <= self.grant_at.get() {
            self.is_due.set(true);
        }
    }

    /// Grants the free room, and wakes the responses that get some. Stops at `own`, which is being polled: it may have
    /// more bytes soon.
    fn grant_room(&self, own: Option<&Rc<TurnState>>) {
        loop {
            let next = {
                let mut order = self.order.borrow_mut();
                let next = order.next_turn(self.free_room(), self.horizon.get(), Instant::now);
                self.held.set(order.waiting);
                next
            };
            match next {
                NextTurn::Grant { stream, bytes, .. } => {
                    self.reserved.update(|reserved| reserved + bytes);
                    stream.granted.set(bytes);
                    if own.is_some_and(|own| Rc::ptr_eq(own, &stream)) {
                        return self.is_due.set(self.held.get() > 0);
                    }
                    if let Some(waiting) = stream.waiting.take() {
                        waiting.wake();
                    }
                }
                NextTurn::Free(bytes) => return self.grant_at.set(self.horizon.get().saturating_sub(bytes)),
                // The last byte of a response makes a grant due.
                NextTurn::Blocked => return self.grant_at.set(0),
            }
        }
    }

    fn remove_response(&self, id: u64) {
        let removed = {
            let mut order = self.order.borrow_mut();
            let removed = order.remove_stream(id);
            self.held.set(order.waiting);
            removed
        };
        drop(removed);
    }
}

impl ResponseTurn {
    /// Creates the place of the response on the stream `id`, whose request has `priority`, in the order of `short`.
    pub(crate) fn new(short: &Rc<TurnState>, id: u64, priority: Priority) -> Self {
        let order = &short.order;
        order.open.update(|open| open + 1);
        if let Some(alone) = order.alone.take().filter(|alone| alone.unsent.get() > 0) {
            alone.enter_h2_list();
        }
        Self { short: Rc::clone(short), id, priority, state: OnceCell::new() }
    }

    /// Polls for the number of `ready` bytes that may be handed over now. Pending while the response waits in the
    /// order.
    pub(crate) fn poll_turn_bytes(&self, ready: u64, cx: &Context<'_>) -> Poll<u64> {
        let order = self.response_order();
        if let Some(bytes) = self.state.get().and_then(|state| state.take_granted(ready)) {
            return Poll::Ready(bytes);
        }
        // On a slow path the bytes of a single response in h2 would last too long.
        if order.open.get() < 2 && order.held.get() == 0 && order.horizon.get() == MAX_QUEUED_BYTES {
            return Poll::Ready(ready);
        }
        // Responses that were granted room are polled first, as all their bytes count.
        let is_next = order.reserved.get() == 0;
        if is_next && order.held.get() == 0 {
            let free = order.free_room();
            if free > 0 && free >= ready.min(order.horizon.get() / 2) && self.delays_none() {
                return Poll::Ready(free.min(ready));
            }
        }
        let state = self.turn_state();
        state.enter_order();
        {
            let mut waiting = order.order.borrow_mut();
            waiting.wait_for_turn(state.id, ready, Instant::now);
            order.held.set(waiting.waiting);
        }
        if is_next {
            order.grant_room(Some(state));
        } else {
            order.is_due.set(true);
        }
        match state.take_granted(ready) {
            Some(bytes) => Poll::Ready(bytes),
            None => {
                state.waiting.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Whether `bytes`, up to the response's end if `is_end`, need no check of the client's window.
    pub(crate) fn is_alone_or_short(&self, bytes: u64, is_end: bool) -> bool {
        self.response_order().open.get() < 2 || is_end && bytes <= FRAME_BYTES
    }

    /// Ends the wait of the response, which has no bytes that it could hand over.
    pub(crate) fn leave_response_order(&self) {
        let Some(state) = self.state.get().filter(|state| state.is_in_order.get()) else { return };
        let order = self.response_order();
        {
            let mut waiting = order.order.borrow_mut();
            waiting.stop_waiting(state.id);
            order.held.set(waiting.waiting);
        }
        order.reserved.update(|reserved| reserved.saturating_sub(state.granted.take()));
        // The connection's task may not run, so that room is granted here.
        if order.held.get() > 0 {
            order.grant_room(None);
        }
    }

    /// Counts `bytes` that h2 gets, the last ones if `is_end`. Returns the state to which their sending is to be
    /// reported.
    pub(crate) fn count_handed_over(&self, bytes: u64, is_end: bool) -> Rc<TurnState> {
        let order = self.response_order();
        order.unsent.update(|unsent| unsent + bytes);
        if is_end && bytes <= FRAME_BYTES && !self.is_in_order() {
            return Rc::clone(&self.short);
        }
        let state = self.turn_state();
        state.unsent.update(|unsent| unsent + bytes);
        if !state.is_in_order.get() && order.open.get() < 2 {
            order.alone.set(Some(Rc::clone(state)));
        } else {
            state.enter_h2_list();
        }
        // The response may have been granted more than it had.
        order.schedule_grant();
        Rc::clone(state)
    }

    /// Whether more bytes of the response delay none that precede it.
    fn delays_none(&self) -> bool {
        if self.response_order().listed.get() == 0 {
            return true;
        }
        self.turn_state().enter_order();
        self.response_order().order.borrow().may_send_more(self.id)
    }

    fn is_in_order(&self) -> bool {
        self.state.get().is_some_and(|state| state.is_in_order.get())
    }

    fn turn_state(&self) -> &Rc<TurnState> {
        self.state.get_or_init(|| TurnState::new(&self.short.order, self.id, self.priority))
    }

    fn response_order(&self) -> &ResponseOrder {
        &self.short.order
    }
}

impl Drop for ResponseTurn {
    fn drop(&mut self) {
        let order = self.response_order();
        order.open.update(|open| open - 1);
        let Some(state) = self.state.get() else { return };
        state.ended.set(true);
        // Dropped here, as the state would stay in memory.
        drop(order.alone.take());
        self.leave_response_order();
        if state.is_in_order.get() && state.unsent.get() == 0 {
            state.is_in_order.set(false);
            order.remove_response(state.id);
        }
    }
}

impl TurnState {
    pub(super) fn new(order: &Rc<ResponseOrder>, id: u64, priority: Priority) -> Rc<Self> {
        Rc::new(Self {
            order: Rc::clone(order),
            id,
            priority,
            unsent: Cell::new(0),
            granted: Cell::new(0),
            is_in_order: Cell::new(false),
            list: Cell::new(0),
            ended: Cell::new(false),
            waiting: Cell::new(None),
        })
    }

    /// Reports `bytes` that TLS has accepted, or h2 has discarded.
    pub(crate) fn report_sent(&self, bytes: u64) {
        let order = &*self.order;
        self.unsent.update(|unsent| unsent.saturating_sub(bytes));
        order.on_bytes_sent(bytes);
        if self.unsent.get() > 0 || !self.is_in_order.get() {
            return order.schedule_grant();
        }
        if self.list.take() == order.list.get() {
            order.listed.update(|listed| listed.saturating_sub(1));
            order.order.borrow_mut().leave_send_list(self.id);
        }
        if self.ended.get() {
            self.is_in_order.set(false);
            order.remove_response(self.id);
        }
        // Responses that must not overtake these bytes may have waited for their sending.
        order.is_due.set(order.held.get() > 0);
    }

    fn take_granted(&self, ready: u64) -> Option<u64> {
        let granted = self.granted.take();
        if granted == 0 {
            return None;
        }
        self.order.reserved.update(|reserved| reserved.saturating_sub(granted));
        Some(granted.min(ready))
    }

    /// Adds the response to the list, as h2 has bytes of it.
    fn enter_h2_list(self: &Rc<Self>) {
        if self.list.get() != self.order.list.get() {
            self.enter_order();
            self.list.set(self.order.list.get());
            self.order.listed.update(|listed| listed + 1);
            self.order.order.borrow_mut().enter_send_list(self.id);
        }
    }

    fn enter_order(self: &Rc<Self>) {
        if !self.is_in_order.replace(true) {
            let priority = self.order.effective_priority(self.id, self.priority);
            self.order.order.borrow_mut().add_stream(self.id, Rc::clone(self), priority, self.unsent.get() > 0);
        }
    }
}

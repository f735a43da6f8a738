//! The order in which the responses of one connection hand over their bytes to h2 (RFC 9218;
//! docs/adr/0059-priorities-over-http2.md). h2 sends a frame of each stream in turn. Together the streams have at most
//! [`MOST`] bytes there that TLS has not accepted, fewer on a slow path; the kernel has what its socket's
//! TCP_NOTSENT_LOWAT allows.
//!
//! A response that finds no room, or another before it, waits in the order. Bytes that leave make room; the response
//! that is granted it is woken, and the room is kept for it until it looks. A connection that sends one response orders
//! nothing.

use litequic_exchange::priority::{NextTurn, Priority, PriorityOrder, SendList};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Instant,
};

/// Bytes that h2 has of a connection's responses while they compete: four frames of its streams. The connection's task
/// writes them at once if the kernel accepts them, and wakes those that have more.
const MAX_QUEUED_BYTES: u64 = 64 * 1024;
/// Bytes of a frame that h2 sends (RFC 9113 §4.2: what a client accepts at least).
const FRAME_BYTES: u64 = 16 * 1024;

/// The order of one connection's responses.
pub(super) struct ResponseOrder {
    order: RefCell<PriorityOrder<Rc<TurnState>>>,
    /// Priorities that PRIORITY_UPDATE frames or origins have set, of open streams.
    updated: RefCell<BTreeMap<u64, Priority>>,
    /// Urgencies that weights have set, of streams that are open or to come and have no other priority set.
    urgencies: RefCell<BTreeMap<u64, u8>>,
    /// Responses that hand over bodies.
    open: Cell<u32>,
    /// Responses that wait in the order.
    held: Cell<usize>,
    /// Bytes that h2 has of responses at most while they compete.
    horizon: Cell<u64>,
    /// Bytes that h2 has and TLS has not accepted.
    unsent: Cell<u64>,
    /// Bytes of these for which clients give no room in their windows.
    stuck: Cell<u64>,
    /// Bytes that were granted, and that their responses have not handed over.
    reserved: Cell<u64>,
    /// Number of unsent and reserved bytes at which the next one that waits has room.
    grant_at: Cell<u64>,
    /// Room is to be granted once the responses that were woken have run: they may be before those that wait.
    is_due: Cell<bool>,
    /// The response that has handed over bytes while it was alone.
    alone: Cell<Option<Rc<TurnState>>>,
    /// Responses in the list of those that h2 has bytes of.
    listed: Cell<u32>,
    /// Counts how often the list was cleared, from 1 on.
    list: Cell<u64>,
}

/// The place of one response in its connection's order, until its body was handed over or it is dropped.
pub(crate) struct ResponseTurn {
    /// What short responses have in common: a state without a place.
    short: Rc<TurnState>,
    id: u64,
    /// The priority by the request.
    priority: Priority,
    /// Once the response competes, or is longer than a frame.
    state: OnceCell<Rc<TurnState>>,
}

/// State of a response in the order, shared with the pieces of its body that h2 has.
pub(crate) struct TurnState {
    order: Rc<ResponseOrder>,
    id: u64,
    /// The priority by the request.
    priority: Priority,
    /// Bytes that h2 has and TLS has not accepted.
    unsent: Cell<u64>,
    granted: Cell<u64>,
    is_in_order: Cell<bool>,
    /// The list that it is in, by [`ResponseOrder::list`]; 0 for none.
    list: Cell<u64>,
    /// Nothing more is handed over.
    ended: Cell<bool>,
    /// The waker of the task that waits for its turn.
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

    /// Returns the state that all responses share which nothing has competed with: whole ones, or their ends, of no
    /// more than a frame.
    pub(super) fn short_state(self: &Rc<Self>) -> Rc<TurnState> {
        TurnState::new(self, 0, Priority::DEFAULT)
    }

    /// Returns the priority of a stream whose request has `priority`.
    pub(super) fn effective_priority(&self, id: u64, priority: Priority) -> Priority {
        if let Some(updated) = self.updated.borrow().get(&id) {
            return *updated;
        }
        let urgency = self.urgencies.borrow().get(&id).copied().unwrap_or(priority.urgency);
        Priority { urgency, ..priority }
    }

    /// Sets the urgency of a stream that is open or to come. Beyond `most` streams those of all are forgotten: some
    /// never come.
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

    /// Sets the priority of an open stream, whatever its request had. Returns whether it was set to another before, or
    /// to none.
    pub(super) fn override_priority(&self, id: u64, priority: Priority) -> bool {
        self.order.borrow_mut().change_priority(id, priority);
        self.urgencies.borrow_mut().remove(&id);
        self.updated.borrow_mut().insert(id, priority) != Some(priority)
    }

    /// A stream is no longer open.
    pub(super) fn forget_overrides(&self, id: u64) {
        let updated = &mut *self.updated.borrow_mut();
        if !updated.is_empty() {
            updated.remove(&id);
        }
        let urgencies = &mut *self.urgencies.borrow_mut();
        if !urgencies.is_empty() {
            urgencies.remove(&id);
        }
    }

    /// The connection's task runs, for whose path no more than `limit` bytes are to be queued: grants the room that was
    /// due when it last ran. What it wakes runs before it does again.
    pub(super) fn on_run(&self, limit: u64) {
        self.horizon.set(limit.clamp(FRAME_BYTES, MAX_QUEUED_BYTES));
        if self.is_due.take() && self.held.get() > 0 {
            self.grant_room(None);
        }
    }

    /// The connection's task has written what it could, if `is_all` all for which clients have given room in their
    /// windows. Returns whether it has to run again: the responses that were woken go first.
    pub(super) fn on_written(&self, is_all: bool) -> bool {
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

    /// Bytes that may be handed over, of all responses.
    fn free_room(&self) -> u64 {
        self.horizon.get().saturating_sub(self.unsent.get() - self.stuck.get()).saturating_sub(self.reserved.get())
    }

    fn on_bytes_sent(&self, bytes: u64) {
        let unsent = self.unsent.get().saturating_sub(bytes);
        self.unsent.set(unsent);
        self.stuck.update(|stuck| stuck.min(unsent));
    }

    /// Bytes of a response were handed over, or TLS has accepted some: others may have room.
    fn schedule_grant(&self) {
        if self.held.get() > 0 && self.unsent.get() - self.stuck.get() + self.reserved.get() <= self.grant_at.get() {
            self.is_due.set(true);
        }
    }

    /// Grants the room that is free, and wakes the responses that have got some, up to `own`, which looks by itself:
    /// it may have more at hand soon.
    fn grant_room(&self, own: Option<&Rc<TurnState>>) {
        loop {
            let next = {
                let mut order = self.order.borrow_mut();
                let next = order.next_turn(self.free_room(), self.horizon.get(), Instant::now);
                self.held.set(order.waiting_streams());
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
                // The last byte of a response makes it due.
                NextTurn::Blocked => return self.grant_at.set(0),
            }
        }
    }

    fn remove_response(&self, id: u64) {
        let removed = {
            let mut order = self.order.borrow_mut();
            let removed = order.remove_stream(id);
            self.held.set(order.waiting_streams());
            removed
        };
        drop(removed);
    }
}

impl ResponseTurn {
    /// The place of the response on the stream `id`, whose request has `priority`, in the order of `short`.
    pub(crate) fn new(short: &Rc<TurnState>, id: u64, priority: Priority) -> Self {
        let order = &short.order;
        order.open.update(|open| open + 1);
        if let Some(alone) = order.alone.take().filter(|alone| alone.unsent.get() > 0) {
            alone.enter_h2_list();
        }
        Self { short: Rc::clone(short), id, priority, state: OnceCell::new() }
    }

    /// Number of `ready` bytes that may be handed over now. Pending: the response waits in the order.
    pub(crate) fn poll_turn_bytes(&self, ready: u64, cx: &Context<'_>) -> Poll<u64> {
        let order = self.response_order();
        if let Some(bytes) = self.state.get().and_then(|state| state.take_granted(ready)) {
            return Poll::Ready(bytes);
        }
        // On a slow path what one response has in h2 would last for too long.
        if order.open.get() < 2 && order.held.get() == 0 && order.horizon.get() == MAX_QUEUED_BYTES {
            return Poll::Ready(ready);
        }
        // Others that were granted room look first: what they have beside it counts.
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
            order.held.set(waiting.waiting_streams());
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

    /// Whether `bytes` that may be handed over, all that the response has to its end, need no look at its client's
    /// window.
    pub(crate) fn is_alone_or_short(&self, bytes: u64, is_end: bool) -> bool {
        self.response_order().open.get() < 2 || is_end && bytes <= FRAME_BYTES
    }

    /// The response has nothing that it could hand over: it waits no more.
    pub(crate) fn leave_response_order(&self) {
        let Some(state) = self.state.get().filter(|state| state.is_in_order.get()) else { return };
        let order = self.response_order();
        {
            let mut waiting = order.order.borrow_mut();
            waiting.stop_waiting(state.id);
            order.held.set(waiting.waiting_streams());
        }
        order.reserved.update(|reserved| reserved.saturating_sub(state.granted.take()));
        // The connection's task may not run.
        if order.held.get() > 0 {
            order.grant_room(None);
        }
    }

    /// h2 gets `bytes` of the response, and no more after them if that `is_end`. Returns whom to report what of them
    /// was sent.
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
        // What it was granted may have been more than it had.
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
        // Not to keep it in memory.
        drop(order.alone.take());
        self.leave_response_order();
        if state.is_in_order.get() && state.unsent.get() == 0 {
            state.is_in_order.set(false);
            order.remove_response(state.id);
        }
    }
}

impl TurnState {
    fn new(order: &Rc<ResponseOrder>, id: u64, priority: Priority) -> Rc<Self> {
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

    /// TLS has accepted `bytes` more, or h2 has discarded them.
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
        // Those that must not overtake its bytes may have waited for that.
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

    /// h2 has bytes of the response.
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

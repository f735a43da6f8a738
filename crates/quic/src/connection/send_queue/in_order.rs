//! The order of a connection's streams (RFC 9218; docs/adr/0053-priorities.md): which of them hands over its bytes to
//! s2n-quic next. Together they have at most the horizon of [`Path`](litequic_resources::send::path::Path) handed over
//! and unsent.
//!
//! A stream that finds no room, or another before it, waits in the order. Bytes that leave make room; the stream that
//! is granted it is woken, and the room is kept for it until it looks. A short response that is whole when it is handed
//! over, and finds the room empty of all but its like, needs no place in the order ([`ShortResponses`](super::short)).

use super::{SendQueue, stream_order::StreamOrder};
use crate::connection::stream::StreamSendState;
use litequic_exchange::priority::{NextTurn, Priority};
use litequic_resources::send::path::{LEAST_HORIZON, WriteAllowance};
use std::{sync::Arc, time::Instant};

/// Bit of a stream's priority as a number: a PRIORITY_UPDATE frame has set it.
const UPDATED: u64 = 1 << 4;

impl SendQueue {
    /// A queue whose streams are served by their priorities.
    pub(crate) fn ordered() -> Self {
        Self { order: Some(StreamOrder::new()), ..Self::default() }
    }

    /// Whether streams are served by their priorities.
    pub(crate) fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// A request stream was opened.
    pub(crate) fn on_opened(&self) {
        self.open.add(1);
    }

    /// Returns the priority of a stream.
    pub(crate) fn priority(state: &StreamSendState) -> Priority {
        Priority::unpack(state.progress.priority.get())
    }

    /// Sets the priority of a stream, unless a PRIORITY_UPDATE frame has set it.
    pub(crate) fn begin_priority(&self, id: u64, state: &StreamSendState, priority: Priority) {
        if state.progress.priority.get() & UPDATED == 0 {
            state.progress.priority.set(priority.pack());
            self.set_in_order(id, state, priority);
        }
    }

    /// Sets the priority of a stream because of a PRIORITY_UPDATE frame. Returns whether it was another.
    pub(crate) fn update_priority(&self, id: u64, state: &StreamSendState, priority: Priority) -> bool {
        let changes = Self::priority(state) != priority || state.progress.priority.get() & UPDATED == 0;
        self.set_priority(id, state, priority);
        state.progress.priority.set(priority.pack() | UPDATED);
        changes
    }

    /// Sets the priority of a stream.
    pub(crate) fn set_priority(&self, id: u64, state: &StreamSendState, priority: Priority) {
        let number = &state.progress.priority;
        number.set(priority.pack() | number.get() & UPDATED);
        self.set_in_order(id, state, priority);
    }

    fn set_in_order(&self, id: u64, state: &StreamSendState, priority: Priority) {
        if let Some(order) = &self.order
            && state.progress.in_order.get() > 0
        {
            order.lock().set_priority(id, priority);
        }
    }

    /// Whether a stream that has handed over `sent` bytes may hand over `length` more at once, which are the rest of
    /// its response if that `is_last`: nothing competes with them. If so they count.
    pub(crate) fn at_once(&self, id: u64, state: &Arc<StreamSendState>, sent: u64, length: u64, is_last: bool) -> bool {
        if self.order.is_none() {
            return true;
        }
        let is_whole = is_last && sent == 0 && state.progress.tracked.get() == 0;
        is_whole && self.add_short(id, length) || self.at_once_in_order(id, state, sent, length)
    }

    /// Whether a response that competes, or has more to hand over, may hand over `length` bytes at once.
    fn at_once_in_order(&self, id: u64, state: &Arc<StreamSendState>, sent: u64, length: u64) -> bool {
        self.track(id, &state.progress, sent);
        if self.held.get() > 0 || self.free() < length || !self.may_hand_over(id, state) {
            return false;
        }
        self.hand_over(id, state, sent.saturating_add(length));
        true
    }

    /// Counts a whole response of `length` bytes that the stream `id` hands over, and returns whether it may: no other
    /// response waits, and none has bytes in the list that may get more. So it is behind all that was handed over, and
    /// all that is handed over later is behind it.
    fn add_short(&self, id: u64, length: u64) -> bool {
        if self.unsent.get() | self.held.get() | self.reserved.get() > 0 {
            return false;
        }
        let unsent = self.short.unsent().saturating_add(length);
        (unsent <= LEAST_HORIZON || unsent <= self.path().horizon()) && self.short.add(id, length)
    }

    /// Bytes of `ready` that may be handed over on a stream that has handed over `sent` bytes, of which `outstanding`
    /// are not acknowledged. [`WriteAllowance::Unsent`]: the stream waits in the order, which wakes it. With none
    /// `ready`, or with [`WriteAllowance::Unacknowledged`], it leaves the order.
    pub(super) fn room_in_order(
        &self,
        order: &StreamOrder,
        id: u64,
        state: &Arc<StreamSendState>,
        sent: u64,
        outstanding: u64,
        ready: u64,
    ) -> WriteAllowance {
        let stream = &state.progress;
        self.on_queued(stream, sent);
        let path = self.path();
        let Some(ready) = path.outstanding_room(outstanding, ready) else {
            self.leave(id, state);
            return WriteAllowance::Unacknowledged;
        };
        if ready == 0 {
            self.leave(id, state);
            return WriteAllowance::Bytes(0);
        }
        if let Some(bytes) = self.take_granted(state, ready) {
            return WriteAllowance::Bytes(bytes);
        }
        if self.held.get() == 0 {
            let (horizon, free) = (path.horizon(), self.free());
            if free > 0 && free >= ready.min(horizon / 2) && self.may_hand_over(id, state) {
                return WriteAllowance::Bytes(free.min(ready));
            }
        }
        self.wait_no_more(stream);
        self.enter(order, id, state);
        {
            let mut order = order.lock();
            order.wait(id, ready, Instant::now);
            self.held.set(order.waiting() as u64);
        }
        self.grant(Some(state));
        match self.take_granted(state, ready) {
            Some(bytes) => WriteAllowance::Bytes(bytes),
            None => WriteAllowance::Unsent,
        }
    }

    /// A stream has handed over `sent` bytes in all.
    pub(crate) fn hand_over(&self, id: u64, state: &Arc<StreamSendState>, sent: u64) {
        let stream = &state.progress;
        let before = stream.unsent();
        self.on_queued(stream, sent);
        let Some(order) = &self.order else { return };
        if before == 0 && stream.unsent() > 0 && (self.open.get() > 1 || stream.in_order.get() > 0) {
            // Before it has a place in the list.
            self.enter_with(order, id, state, false);
            order.lock().enter_list(id);
        }
        // What it was granted may have been more than it had.
        self.grant_if_due();
    }

    /// A stream waits no more: what it was granted is others'.
    fn leave(&self, id: u64, state: &StreamSendState) {
        let Some(order) = &self.order else { return };
        let stream = &state.progress;
        if stream.in_order.get() == 0 {
            return;
        }
        {
            let mut order = order.lock();
            order.leave(id);
            self.held.set(order.waiting() as u64);
        }
        let granted = stream.granted.take();
        self.reserved.subtract(granted);
        if self.held.get() > 0 {
            self.grant(None);
        }
    }

    /// A stream is over, of which nothing counts any more.
    pub(super) fn leave_order(&self, id: u64, state: &StreamSendState) {
        self.open.subtract(1);
        let Some(order) = &self.order else { return };
        let stream = &state.progress;
        if stream.in_order.take() > 0 {
            let removed = {
                let mut order = order.lock();
                let removed = order.remove(id);
                self.held.set(order.waiting() as u64);
                removed
            };
            drop(removed);
            self.reserved.subtract(stream.granted.take());
        }
        if self.held.get() > 0 {
            self.grant(None);
        }
    }

    /// Bytes of a stream were sent, perhaps all that it has handed over.
    pub(super) fn on_room(&self, id: u64, stream: &super::StreamProgress) {
        let Some(order) = &self.order else { return };
        if stream.in_order.get() > 0 && stream.unsent() == 0 {
            order.lock().leave_list(id);
            // Those that must not overtake another's bytes may have waited for that.
            if self.held.get() > 0 {
                self.grant(None);
            }
        } else {
            self.grant_if_due();
        }
    }

    /// Bytes that streams got out of the rest's share since the last call.
    pub(crate) fn take_rest(&self) -> u64 {
        if self.rest.get() > 0 { self.rest.take() } else { 0 }
    }

    fn take_granted(&self, state: &StreamSendState, ready: u64) -> Option<u64> {
        let granted = state.progress.granted.take();
        if granted == 0 {
            return None;
        }
        self.reserved.subtract(granted);
        Some(granted.min(ready))
    }

    /// Bytes that may be handed over, of all streams.
    fn free(&self) -> u64 {
        self.path().horizon().saturating_sub(self.handed_over())
    }

    /// Bytes that were handed over and not sent, or may be at any time.
    fn handed_over(&self) -> u64 {
        self.unsent.get() + self.short.unsent() + self.reserved.get()
    }

    /// Whether more bytes of a stream overtake none that they must not.
    fn may_hand_over(&self, id: u64, state: &Arc<StreamSendState>) -> bool {
        let Some(order) = &self.order else { return true };
        if state.progress.unsent() == 0 || self.open.get() < 2 {
            return true;
        }
        self.enter(order, id, state);
        order.lock().may_hand_over(id)
    }

    fn enter(&self, order: &StreamOrder, id: u64, state: &Arc<StreamSendState>) {
        self.enter_with(order, id, state, state.progress.unsent() > 0);
    }

    fn enter_with(&self, order: &StreamOrder, id: u64, state: &Arc<StreamSendState>, is_sending: bool) {
        if state.progress.in_order.get() == 0 {
            state.progress.in_order.set(1);
            order.lock().insert(id, Arc::clone(state), Self::priority(state), is_sending);
        }
    }

    pub(super) fn grant_if_due(&self) {
        if self.held.get() > 0 && self.handed_over() <= self.grant_at.get() {
            self.grant(None);
        }
    }

    /// Grants the room that is free, and wakes the streams that have got some, but for `own`, which looks by itself.
    fn grant(&self, own: Option<&Arc<StreamSendState>>) {
        let Some(order) = &self.order else { return };
        loop {
            let horizon = self.path().horizon();
            let next = {
                let mut order = order.lock();
                let next = order.next(self.free(), horizon, Instant::now);
                self.held.set(order.waiting() as u64);
                next
            };
            match next {
                NextTurn::Grant { stream, bytes, is_rest } => {
                    self.reserved.add(bytes);
                    if is_rest {
                        self.rest.add(bytes);
                    }
                    stream.progress.granted.set(bytes);
                    if own.is_none_or(|own| !Arc::ptr_eq(own, &stream)) {
                        self.wake(&stream);
                    }
                }
                NextTurn::Free(bytes) => return self.grant_at.set(horizon.saturating_sub(bytes)),
                // A stream's last byte makes it due.
                NextTurn::Blocked => return self.grant_at.set(0),
            }
        }
    }
}

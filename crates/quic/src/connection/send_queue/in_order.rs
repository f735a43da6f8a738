//! Orders a connection's streams by priority (RFC 9218; docs/adr/0053-priorities.md): decides which stream hands over
//! its bytes to s2n-quic next. All streams together have at most the horizon of
//! [`SendPath`](litequic_resources::send::path::SendPath) handed over and unsent.
//!
//! A stream without room, or behind another, waits in the order. Sent bytes make room; the stream that is granted room
//! is woken, and the room stays reserved until the stream reads the grant. A short response that is handed over whole
//! needs no place in the order if only short responses are unsent ([`ShortResponses`](super::short_responses)).

use super::{SendQueue, StreamOrder};
use crate::connection::stream_state::StreamSendState;
use litequic_exchange::priority::{NextTurn, Priority, PriorityOrder, SendList};
use litequic_resources::send::path::{MIN_UNSENT_BYTES, WriteAllowance};
use std::{sync::Arc, time::Instant};

/// Bit of a stream's packed priority that a PRIORITY_UPDATE frame has set.
const PRIORITY_UPDATED: u64 = 1 << 4;

impl SendQueue {
    /// A queue whose streams are served by priority.
    pub(crate) fn new_ordered() -> Self {
        Self { order: Some(StreamOrder::new(PriorityOrder::new(SendList::Front))), ..Self::default() }
    }

    /// Whether streams are served by priority.
    pub(crate) fn has_order(&self) -> bool {
        self.order.is_some()
    }

    pub(crate) fn count_opened_stream(&self) {
        self.open.add_saturating(1);
    }

    pub(crate) fn state_priority(state: &StreamSendState) -> Priority {
        Priority::unpack(state.progress.priority.get())
    }

    /// Sets the priority of a stream, unless a PRIORITY_UPDATE frame has set it.
    pub(crate) fn set_requested_priority(&self, id: u64, state: &StreamSendState, priority: Priority) {
        if state.progress.priority.get() & PRIORITY_UPDATED == 0 {
            state.progress.priority.set(priority.pack());
            self.set_ordered_priority(id, state, priority);
        }
    }

    /// Sets the priority of a stream because of a PRIORITY_UPDATE frame. Returns whether the priority changed.
    pub(crate) fn update_stream_priority(&self, id: u64, state: &StreamSendState, priority: Priority) -> bool {
        let changes = Self::state_priority(state) != priority || state.progress.priority.get() & PRIORITY_UPDATED == 0;
        self.reprioritize_stream(id, state, priority);
        state.progress.priority.set(priority.pack() | PRIORITY_UPDATED);
        changes
    }

    pub(crate) fn reprioritize_stream(&self, id: u64, state: &StreamSendState, priority: Priority) {
        let number = &state.progress.priority;
        number.set(priority.pack() | number.get() & PRIORITY_UPDATED);
        self.set_ordered_priority(id, state, priority);
    }

    fn set_ordered_priority(&self, id: u64, state: &StreamSendState, priority: Priority) {
        if let Some(order) = &self.order
            && state.progress.in_order.get() > 0
        {
            order.lock().change_priority(id, priority);
        }
    }

    /// Whether a stream that has handed over `sent` bytes may hand over `length` more at once, because nothing
    /// competes; the bytes are the rest of its response if `is_last`. If so, the bytes are counted as handed over.
    pub(crate) fn try_hand_over(
        &self,
        id: u64,
        state: &Arc<StreamSendState>,
        sent: u64,
        length: u64,
        is_last: bool,
    ) -> bool {
        if self.order.is_none() {
            return true;
        }
        let is_whole = is_last && sent == 0 && state.progress.tracked.get() == 0;
        is_whole && self.try_add_short(id, length) || self.try_hand_over_in_order(id, state, sent, length)
    }

    /// Whether a response that competes, or has further bytes, may hand over `length` bytes at once; if so, counts
    /// them.
    fn try_hand_over_in_order(&self, id: u64, state: &Arc<StreamSendState>, sent: u64, length: u64) -> bool {
        self.track_stream(id, &state.progress, sent);
        if self.held.get() > 0 || self.free_horizon() < length || !self.may_stream_hand_over(id, state) {
            return false;
        }
        self.record_handed_over(id, state, sent.saturating_add(length));
        true
    }

    /// Counts a whole response of `length` bytes of the stream `id`, and returns whether it may be handed over: no
    /// other response waits, and no ordered one has unsent or reserved bytes. So the response comes behind all bytes
    /// handed over earlier, and before all later ones.
    fn try_add_short(&self, id: u64, length: u64) -> bool {
        if self.unsent.get() | self.held.get() | self.reserved.get() > 0 {
            return false;
        }
        let unsent = self.short.unsent.get().saturating_add(length);
        (unsent <= MIN_UNSENT_BYTES || unsent <= self.send_path().max_unsent()) && self.short.add_response(id, length)
    }

    /// Bytes of `ready` that may be handed over on a stream that has handed over `sent` bytes, of which `outstanding`
    /// are not acknowledged. With [`WriteAllowance::Unsent`] the stream waits in the order, which wakes it. With none
    /// `ready`, or with [`WriteAllowance::Unacknowledged`], it leaves the order.
    pub(super) fn ordered_allowance(
        &self,
        order: &StreamOrder,
        id: u64,
        state: &Arc<StreamSendState>,
        sent: u64,
        outstanding: u64,
        ready: u64,
    ) -> WriteAllowance {
        let stream = &state.progress;
        self.record_queued(stream, sent);
        let path = self.send_path();
        let Some(ready) = path.outstanding_allowance(outstanding, ready) else {
            self.end_order_wait(id, state);
            return WriteAllowance::Unacknowledged;
        };
        if ready == 0 {
            self.end_order_wait(id, state);
            return WriteAllowance::Bytes(0);
        }
        if let Some(bytes) = self.take_granted(state, ready) {
            return WriteAllowance::Bytes(bytes);
        }
        if self.held.get() == 0 {
            let (horizon, free) = (path.max_unsent(), self.free_horizon());
            if free > 0 && free >= ready.min(horizon / 2) && self.may_stream_hand_over(id, state) {
                return WriteAllowance::Bytes(free.min(ready));
            }
        }
        self.clear_wait(stream);
        self.join_order(order, id, state);
        {
            let mut order = order.lock();
            order.wait_for_turn(id, ready, Instant::now);
            self.held.set(order.waiting as u64);
        }
        self.grant_order_room(Some(state));
        match self.take_granted(state, ready) {
            Some(bytes) => WriteAllowance::Bytes(bytes),
            None => WriteAllowance::Unsent,
        }
    }

    /// Records that a stream has handed over `sent` bytes in all.
    pub(crate) fn record_handed_over(&self, id: u64, state: &Arc<StreamSendState>, sent: u64) {
        let stream = &state.progress;
        let before = stream.stream_unsent();
        self.record_queued(stream, sent);
        let Some(order) = &self.order else { return };
        if before == 0 && stream.stream_unsent() > 0 && (self.open.get() > 1 || stream.in_order.get() > 0) {
            // The stream gets its place before it is in the send list.
            self.insert_in_order(order, id, state, false);
            order.lock().enter_send_list(id);
        }
        // The grant may have been larger than the bytes that the stream had.
        self.grant_if_due();
    }

    /// Ends a stream's wait in the order, and releases its grant for other streams.
    fn end_order_wait(&self, id: u64, state: &StreamSendState) {
        let Some(order) = &self.order else { return };
        let stream = &state.progress;
        if stream.in_order.get() == 0 {
            return;
        }
        {
            let mut order = order.lock();
            order.stop_waiting(id);
            self.held.set(order.waiting as u64);
        }
        let granted = stream.granted.take_value();
        self.reserved.subtract_saturating(granted);
        if self.held.get() > 0 {
            self.grant_order_room(None);
        }
    }

    /// Removes a stream that is over from the order, with its grant.
    pub(super) fn remove_from_order(&self, id: u64, state: &StreamSendState) {
        self.open.subtract_saturating(1);
        let Some(order) = &self.order else { return };
        let stream = &state.progress;
        if stream.in_order.take_value() > 0 {
            let removed = {
                let mut order = order.lock();
                let removed = order.remove_stream(id);
                self.held.set(order.waiting as u64);
                removed
            };
            drop(removed);
            self.reserved.subtract_saturating(stream.granted.take_value());
        }
        if self.held.get() > 0 {
            self.grant_order_room(None);
        }
    }

    /// Bytes of a stream were sent, perhaps all that were handed over.
    pub(super) fn on_room_freed(&self, id: u64, stream: &super::StreamProgress) {
        let Some(order) = &self.order else { return };
        if stream.in_order.get() > 0 && stream.stream_unsent() == 0 {
            order.lock().leave_send_list(id);
            // Streams that must not overtake these bytes may have waited for that.
            if self.held.get() > 0 {
                self.grant_order_room(None);
            }
        } else {
            self.grant_if_due();
        }
    }

    /// Takes the number of bytes granted out of turn since the last call.
    pub(crate) fn take_rest_bytes(&self) -> u64 {
        if self.rest.get() > 0 { self.rest.take_value() } else { 0 }
    }

    fn take_granted(&self, state: &StreamSendState, ready: u64) -> Option<u64> {
        let granted = state.progress.granted.take_value();
        if granted == 0 {
            return None;
        }
        self.reserved.subtract_saturating(granted);
        Some(granted.min(ready))
    }

    /// Bytes of all streams that may still be handed over.
    fn free_horizon(&self) -> u64 {
        self.send_path().max_unsent().saturating_sub(self.handed_over_bytes())
    }

    /// Bytes of all streams that were handed over and not sent, or are reserved.
    fn handed_over_bytes(&self) -> u64 {
        self.unsent.get() + self.short.unsent.get() + self.reserved.get()
    }

    /// Whether further bytes of a stream would not overtake bytes of a stream before it.
    fn may_stream_hand_over(&self, id: u64, state: &Arc<StreamSendState>) -> bool {
        let Some(order) = &self.order else { return true };
        if state.progress.stream_unsent() == 0 || self.open.get() < 2 {
            return true;
        }
        self.join_order(order, id, state);
        order.lock().may_send_more(id)
    }

    fn join_order(&self, order: &StreamOrder, id: u64, state: &Arc<StreamSendState>) {
        self.insert_in_order(order, id, state, state.progress.stream_unsent() > 0);
    }

    fn insert_in_order(&self, order: &StreamOrder, id: u64, state: &Arc<StreamSendState>, is_sending: bool) {
        if state.progress.in_order.get() == 0 {
            state.progress.in_order.set(1);
            order.lock().add_stream(id, Arc::clone(state), Self::state_priority(state), is_sending);
        }
    }

    pub(super) fn grant_if_due(&self) {
        if self.held.get() > 0 && self.handed_over_bytes() <= self.grant_at.get() {
            self.grant_order_room(None);
        }
    }

    /// Grants the free room, and wakes the streams that got some, except `own`, which reads its grant itself.
    fn grant_order_room(&self, own: Option<&Arc<StreamSendState>>) {
        let Some(order) = &self.order else { return };
        loop {
            let horizon = self.send_path().max_unsent();
            let next = {
                let mut order = order.lock();
                let next = order.next_turn(self.free_horizon(), horizon, Instant::now);
                self.held.set(order.waiting as u64);
                next
            };
            match next {
                NextTurn::Grant { stream, bytes, is_starved_turn: is_rest } => {
                    self.reserved.add_saturating(bytes);
                    if is_rest {
                        self.rest.add_saturating(bytes);
                    }
                    stream.progress.granted.set(bytes);
                    if own.is_none_or(|own| !Arc::ptr_eq(own, &stream)) {
                        self.wake_stream(&stream);
                    }
                }
                NextTurn::Free(bytes) => return self.grant_at.set(horizon.saturating_sub(bytes)),
                // The last byte of a stream makes the next grant due.
                NextTurn::Blocked => return self.grant_at.set(0),
            }
        }
    }
}

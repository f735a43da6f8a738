//! Applies the priorities that one connection's client and the origins signal (RFC 9218) to the order of its responses.

use super::response_order::{ResponseOrder, TurnState};
use crate::{
    connection_writes::{ConnectionWrites, OpenResponse},
    http2_frames::PriorityUpdate,
    tcp_metrics::TcpMetrics,
};
use litequic_exchange::{
    Fields,
    priority::{self, Priority, PriorityParameters, PrioritySignals, UpdateOutcome},
    read_priority_field,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// The priority signals of one connection, and the order of its responses.
pub(crate) struct Http2Priorities {
    pub(crate) order: Rc<ResponseOrder>,
    /// The shared state of all short responses.
    pub(crate) short: Rc<TurnState>,
    signals: RefCell<PrioritySignals>,
    max_streams: usize,
    metrics: Arc<TcpMetrics>,
}

impl Http2Priorities {
    /// Creates the priorities of a connection whose client may have `max_streams` streams open.
    pub(crate) fn new(max_streams: u32, metrics: Arc<TcpMetrics>) -> Rc<Self> {
        let max_streams = max_streams as usize;
        let signals = RefCell::new(PrioritySignals::new(max_streams));
        let order = ResponseOrder::new();
        let short = TurnState::new(&order, 0, Priority::DEFAULT);
        Rc::new(Self { order, short, signals, max_streams, metrics })
    }

    /// Applies the early priority of the stream `id`, which was opened.
    pub(crate) fn on_stream_opened(&self, id: u32) {
        if let Some(priority) = self.signals.borrow_mut().take_early_in_sequence(id.into()) {
            self.order.override_priority(id.into(), priority);
        }
    }

    /// Returns the priority of the request on the stream `id`, which has `fields`.
    pub(crate) fn assign_request_priority(&self, id: u32, fields: &Fields, is_tunnel: bool) -> Priority {
        let field = read_priority_field(fields);
        if field.is_some() {
            self.metrics.shared.priority_requests.increment();
        }
        let priority = self.signals.borrow_mut().request_priority(field, is_tunnel);
        self.order.effective_priority(id.into(), priority)
    }

    /// Applies the priority in `fields` of the response on the stream `id`, whose request has `priority`. Returns the
    /// new priority, if the fields change it (RFC 9218 §8).
    pub(crate) fn merge_response_priority(&self, id: u32, priority: Priority, fields: &Fields) -> Option<Priority> {
        let field = read_priority_field(fields).filter(|field| *field != PriorityParameters::default())?;
        let priority = field.or_priority(self.order.effective_priority(id.into(), priority));
        self.order.override_priority(id.into(), priority);
        Some(priority)
    }

    /// Applies a PRIORITY_UPDATE frame. `writes` has the open streams.
    ///
    /// # Errors
    ///
    /// The client violates RFC 9218 §7.1, which ends the connection with PROTOCOL_ERROR.
    pub(crate) fn apply_priority_update<R: OpenResponse>(
        &self,
        update: &PriorityUpdate,
        writes: &ConnectionWrites<R>,
    ) -> Result<(), ()> {
        let PriorityUpdate { stream, value } = update;
        // A server's stream is idle, as litequic pushes nothing.
        if stream.is_multiple_of(2) {
            return Err(());
        }
        let is_idle = *stream > writes.newest_stream();
        let field = priority::parse_priority(value);
        let next_stream = u64::from(*stream) + u64::from(!is_idle);
        let outcome = self.signals.borrow_mut().on_priority_update(u64::from(*stream), field, next_stream);
        let metrics = &self.metrics.shared;
        match outcome {
            UpdateOutcome::Known(priority) if writes.is_stream_open(*stream) => {
                self.order.override_priority(u64::from(*stream), priority);
                metrics.priority_updates_applied.increment();
            }
            UpdateOutcome::Known(_) => metrics.priority_updates_late.increment(),
            UpdateOutcome::Early(_)
                if self.signals.borrow().early_count() + writes.open_stream_count() > self.max_streams =>
            {
                return Err(());
            }
            UpdateOutcome::Early(_) => metrics.priority_updates_early.increment(),
            UpdateOutcome::Dropped => return Err(()),
            UpdateOutcome::Invalid => metrics.priority_updates_invalid.increment(),
        }
        Ok(())
    }

    /// Applies a weight for `stream` that expresses an urgency. The last signal counts; whether the response is
    /// incremental is unchanged.
    pub(crate) fn apply_weight<R: OpenResponse>(&self, stream: u32, urgency: u8, writes: &ConnectionWrites<R>) {
        if stream > writes.newest_stream() || writes.is_stream_open(stream) {
            self.order.override_urgency(stream.into(), urgency, 2 * self.max_streams);
        }
    }
}

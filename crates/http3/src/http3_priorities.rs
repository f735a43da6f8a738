//! Applies the priorities that one connection's client and the origins signal (RFC 9218) to its streams.

use super::{error_code::ErrorCode, http3_lifecycle::Http3Lifecycle, http3_metrics::Http3Metrics};
use litequic_exchange::{
    Fields, RequestRecord,
    priority::{self, Priority, PriorityParameters, PrioritySignals, UpdateOutcome},
    read_priority_field,
};
use litequic_resources::transport::{SendWindow, Transport};
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// Difference of the IDs of two request streams of a client, which begin with 0 (RFC 9000 §2.1).
const ID_STEP: u64 = 4;

/// The priority signals of one connection, and their effect on its streams.
pub(super) struct Http3Priorities {
    transport: Rc<dyn Transport>,
    /// s2n-quic's ID of the connection.
    connection: u64,
    pub(super) is_ordered: bool,
    signals: RefCell<PrioritySignals>,
    max_streams: u64,
    metrics: Arc<Http3Metrics>,
}

impl Http3Priorities {
    /// Creates the priorities of a connection, by s2n-quic's ID, whose client may have `max_streams` request streams
    /// open.
    pub(super) fn new(
        transport: Rc<dyn Transport>,
        connection: u64,
        max_streams: u32,
        metrics: Arc<Http3Metrics>,
    ) -> Self {
        let is_ordered = transport.is_connection_ordered(connection);
        let signals = RefCell::new(PrioritySignals::new(max_streams as usize));
        Self { transport, connection, is_ordered, signals, max_streams: max_streams.into(), metrics }
    }

    /// Applies the early priority of the stream `id`, which was opened.
    pub(super) fn on_stream_opened(&self, id: u64) {
        if !self.is_ordered {
            return;
        }
        if let Some(priority) = self.signals.borrow_mut().take_early(id) {
            self.transport.update_priority(self.connection, id, priority);
        }
    }

    /// Sets the priority of a new request with `fields`, on the stream of `window`. `record` gets the priority if it is
    /// obeyed.
    pub(super) fn set_request_priority(
        &self,
        window: &dyn SendWindow,
        fields: &Fields,
        is_tunnel: bool,
        record: &RequestRecord,
    ) {
        if !self.is_ordered {
            return;
        }
        let field = read_priority_field(fields);
        if field.is_some() {
            self.metrics.shared.priority_requests.increment();
        }
        let priority = self.signals.borrow_mut().request_priority(field, is_tunnel);
        // Every stream begins with this priority.
        if priority != Priority::UNSIGNALLED {
            window.begin_priority(priority);
        }
        record.update_facts(|facts| facts.priority = Some(window.stream_priority()));
    }

    /// Applies the priority in `fields` of a response (RFC 9218 §8), on the stream of `window`. `record` gets the
    /// priority if it has changed.
    pub(super) fn apply_response_priority(&self, window: &dyn SendWindow, fields: &Fields, record: &RequestRecord) {
        let field = if self.is_ordered { read_priority_field(fields) } else { None };
        let Some(field) = field.filter(|field| *field != PriorityParameters::default()) else { return };
        let priority = field.or_priority(window.stream_priority());
        window.set_stream_priority(priority);
        record.update_facts(|facts| facts.priority = Some(priority));
    }

    /// Applies a PRIORITY_UPDATE frame for the stream `id` of the connection with this `lifecycle`. Returns whether the
    /// frame changed a priority.
    ///
    /// # Errors
    ///
    /// H3_ID_ERROR if the client may not open the stream yet (RFC 9218 §7.2).
    pub(super) fn apply_update(&self, id: u64, value: &[u8], lifecycle: &Http3Lifecycle) -> Result<bool, ErrorCode> {
        // MAX_STREAMS allows no more streams than have ended and may be open.
        if id / ID_STEP >= lifecycle.accepted_requests().saturating_add(self.max_streams) {
            return Err(ErrorCode::IdError);
        }
        if !self.is_ordered {
            return Ok(false);
        }
        let field = priority::parse_priority(value);
        let next_stream = lifecycle.next_stream_id();
        let (counter, changed) = match self.signals.borrow_mut().on_priority_update(id, field, next_stream) {
            UpdateOutcome::Known(priority) => match self.transport.update_priority(self.connection, id, priority) {
                Some(changed) => (&self.metrics.shared.priority_updates_applied, changed),
                None => (&self.metrics.shared.priority_updates_late, false),
            },
            UpdateOutcome::Early(changed) => (&self.metrics.shared.priority_updates_early, changed),
            UpdateOutcome::Dropped => (&self.metrics.shared.priority_updates_dropped, false),
            UpdateOutcome::Invalid => (&self.metrics.shared.priority_updates_invalid, false),
        };
        counter.increment();
        Ok(changed)
    }
}

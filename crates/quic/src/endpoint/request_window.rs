//! Implements the transport that HTTP/3 uses, and the window of one request stream.

use super::endpoint_state::EndpointState;
use crate::connection::{ConnectionState, SendQueue, StreamSendState};
use litequic_exchange::priority::Priority;
use litequic_resources::{
    receive::ReceiveAccount,
    send::path::WriteAllowance,
    transport::{self, Transport},
};
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

/// The connections of an endpoint, as HTTP/3's transport.
#[derive(Debug)]
pub struct QuicTransport(pub Arc<EndpointState>);

impl Transport for QuicTransport {
    fn open_send_window(&self, connection: u64, stream: u64) -> Box<dyn transport::SendWindow> {
        let open = |connection: &mut ConnectionState| {
            connection.send_queue.count_opened_stream();
            (connection.credit.open_stream_credit(stream), Arc::clone(&connection.send_queue))
        };
        let opened = self.0.with_table(|table| table.connections.connection_mut(connection).map(open));
        // A connection that is gone by now sends nothing any more.
        let (state, send_queue) = opened.unwrap_or_else(|| (StreamSendState::new(0), Arc::default()));
        Box::new(RequestWindow { endpoint: Arc::clone(&self.0), connection, stream, state, send_queue })
    }

    fn receive_account(&self, connection: u64) -> Option<ReceiveAccount> {
        self.0.with_table(|table| table.connections.connection_mut(connection)?.receive_account.clone())
    }

    fn is_connection_ordered(&self, connection: u64) -> bool {
        self.0.with_table(|table| {
            table.connections.connection_mut(connection).is_some_and(|found| found.send_queue.has_order())
        })
    }

    fn update_priority(&self, connection: u64, stream: u64, priority: Priority) -> Option<bool> {
        let (state, send_queue) = self.0.with_table(|table| {
            let connection = table.connections.connection_mut(connection)?;
            Some((connection.credit.open.get(&stream).cloned()?, Arc::clone(&connection.send_queue)))
        })?;
        Some(send_queue.update_stream_priority(stream, &state, priority))
    }

    fn connection_alerts(&self, connection: u64) -> Box<dyn transport::ConnectionAlerts> {
        let alerts = |connection: &mut ConnectionState| connection.control_frames.alert_handle();
        // A connection that is gone by now sends nothing any more.
        Box::new(
            self.0.with_table(|table| table.connections.connection_mut(connection).map(alerts)).unwrap_or_default(),
        )
    }
}

/// Send window of one request stream. Dropped at the stream's end.
#[derive(Debug)]
pub(super) struct RequestWindow {
    endpoint: Arc<EndpointState>,
    connection: u64,
    stream: u64,
    state: Arc<StreamSendState>,
    send_queue: Arc<SendQueue>,
}

impl transport::SendWindow for RequestWindow {
    fn send_limit(&self) -> u64 {
        self.state.limit.load(Ordering::Relaxed)
    }

    fn register_waker(&self, waker: &Waker) {
        self.state.waker.register(waker);
    }

    fn is_stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Relaxed)
    }

    fn is_ordered(&self) -> bool {
        self.send_queue.has_order()
    }

    fn stream_priority(&self) -> Priority {
        SendQueue::state_priority(&self.state)
    }

    fn begin_priority(&self, priority: Priority) {
        self.send_queue.set_requested_priority(self.stream, &self.state, priority);
    }

    fn set_stream_priority(&self, priority: Priority) {
        self.send_queue.reprioritize_stream(self.stream, &self.state, priority);
    }

    fn may_send_at_once(&self, sent: u64, length: u64, is_last: bool) -> bool {
        self.send_queue.try_hand_over(self.stream, &self.state, sent, length, is_last)
    }

    fn write_allowance(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance {
        self.send_queue.send_allowance(self.stream, &self.state, sent, outstanding, ready)
    }

    fn earned_window(&self) -> u64 {
        self.send_queue.earned_window()
    }

    fn on_queued(&self, sent: u64) {
        self.send_queue.record_handed_over(self.stream, &self.state, sent);
    }

    fn wait_until_sent(&self) {
        self.send_queue.wait_until_sent(&self.state.progress);
    }

    fn wait_until_acknowledged(&self, bytes: u64) {
        self.send_queue.wait_until_acknowledged(&self.state.progress, bytes);
    }
}

impl Drop for RequestWindow {
    fn drop(&mut self) {
        self.send_queue.remove_tracked_stream(self.stream, &self.state);
        let rest = self.send_queue.take_rest_bytes();
        if rest > 0 {
            self.endpoint.metrics.priority_rest_bytes.increment_by(rest);
        }
        let closed = self
            .endpoint
            .with_table(|table| table.connections.connection_mut(self.connection)?.credit.open.remove(&self.stream));
        drop(closed);
        StreamSendState::recycle_state(&mut self.state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    #[test]
    fn a_stream_of_a_connection_that_is_gone_may_send_nothing() {
        let endpoint = QuicTransport(EndpointState::for_tests());
        assert_eq!(endpoint.open_send_window(7, 0).send_limit(), 0);
        assert!(endpoint.receive_account(7).is_none());
        assert!(endpoint.connection_alerts(7).poll_alert(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn a_stream_is_forgotten_at_its_end() {
        let endpoint = QuicTransport(EndpointState::for_tests());
        endpoint.0.with_table(|table| drop(table.connections.begin_connection(7, None, false)));
        let close =
            || endpoint.0.with_table(|table| table.connections.connection_mut(7).unwrap().credit.open.remove(&0));
        let window = endpoint.open_send_window(7, 0);
        assert!(close().is_some());
        drop(window);
        drop(endpoint.open_send_window(7, 0));
        assert!(close().is_none());
    }
}

//! Sends messages of the io_uring backend with io_uring_enter(2).

use crate::{
    datagram::OutgoingBatch, flush::SendResult, metrics::SocketMetrics, socket_sender::SendBackend, sys::Ring,
};
use std::net::UdpSocket;

/// Sends with io_uring_enter(2), which tries every message, even after a failure.
impl SendBackend for Ring {
    fn send_first_messages(
        &mut self,
        _: &UdpSocket,
        outgoing: &OutgoingBatch,
        outcomes: &mut Vec<SendResult>,
        metrics: &SocketMetrics,
    ) {
        let calls = Ring::submit_sends(self, outgoing.messages(), |message| outgoing.payload(message), outcomes);
        metrics.syscalls_io_uring_enter.increment_by(calls);
    }
}

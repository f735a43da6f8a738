//! Sends messages of the epoll backend with sendmmsg(2).

use crate::{
    datagram::OutgoingBatch, flush::SendResult, metrics::SocketMetrics, socket_sender::SendBackend, sys::SendBatch,
};
use std::net::UdpSocket;

/// Sends with sendmmsg(2), which stops at the first message that fails.
impl SendBackend for SendBatch {
    fn send_first_messages(
        &mut self,
        socket: &UdpSocket,
        outgoing: &OutgoingBatch,
        outcomes: &mut Vec<SendResult>,
        metrics: &SocketMetrics,
    ) {
        metrics.syscalls_sendmmsg.increment();
        match self.call_sendmmsg(socket, outgoing.messages(), |message| outgoing.payload(message)) {
            Ok(sent) => outcomes.resize(sent.max(1), Ok(())),
            Err(error) => outcomes.push(Err(error.raw_os_error().unwrap_or(0))),
        }
    }
}

//! How epoll passes messages to the kernel.

use crate::{datagram::Outgoing, flush::SendResult, metrics::Metrics, sys::SendBatch, transmit::Call};
use std::net::UdpSocket;

/// sendmmsg(2), which stops at the first message that fails.
impl Call for SendBatch {
    fn send(&mut self, socket: &UdpSocket, outgoing: &Outgoing, outcomes: &mut Vec<SendResult>, metrics: &Metrics) {
        metrics.syscalls_sendmmsg.increment();
        match self.send(socket, outgoing.messages(), |message| outgoing.payload(message)) {
            Ok(sent) => outcomes.resize(sent.max(1), Ok(())),
            Err(error) => outcomes.push(Err(error.raw_os_error().unwrap_or(0))),
        }
    }
}

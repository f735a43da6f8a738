//! How io_uring passes messages to the kernel.

use crate::{datagram::Outgoing, flush::SendResult, metrics::Metrics, sys::Ring, transmit::Call};
use std::net::UdpSocket;

/// io_uring_enter(2), which tries every message, even after a failure.
impl Call for Ring {
    fn send(&mut self, _: &UdpSocket, outgoing: &Outgoing, outcomes: &mut Vec<SendResult>, metrics: &Metrics) {
        let calls = Ring::send(self, outgoing.messages(), |message| outgoing.payload(message), outcomes);
        metrics.syscalls_io_uring_enter.add(calls);
    }
}

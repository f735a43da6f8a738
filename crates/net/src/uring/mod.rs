//! Datagrams over io_uring: the kernel receives by itself, into buffers that it was given, and the worker finds what
//! was received in its next turn; QUIC's packets are sent in the same call that collects what came meanwhile.

mod check;
mod receive;

pub(super) use receive::UringReceiver;

pub(super) use check::check;

use super::{flush::SendResult, sys::Ring, transmit::Call};
use crate::{Metrics, datagram::Outgoing};
use std::net::UdpSocket;

/// io_uring_enter(2), which tries every message, even after a failure.
impl Call for Ring {
    fn send(&mut self, _: &UdpSocket, outgoing: &Outgoing, outcomes: &mut Vec<SendResult>, metrics: &Metrics) {
        let calls = Ring::send(self, outgoing.messages(), |message| outgoing.payload(message), outcomes);
        metrics.syscalls_io_uring_enter.add(calls);
    }
}

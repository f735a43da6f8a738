//! Datagrams over epoll: a socket that is readable is emptied with recvmmsg(2), a batch at a time, and QUIC's packets
//! are sent with sendmmsg(2) in the same turn of the worker's loop. There is no task or queue between.

mod receive;

pub(super) use receive::EpollReceiver;

use super::{flush::SendResult, sys::SendBatch, transmit::Call};
use crate::{Metrics, datagram::Outgoing};
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

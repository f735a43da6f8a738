//! Gathers the endpoint's datagrams for a socket: datagrams of one connection, path and size become one message.

use super::{proxy_flows::ProxyFlows, yield_to_runtime::yield_to_runtime};
use litequic_net::datagram::{NetworkPath, OutgoingBatch, Transmit};
use s2n_quic_core::{
    event::EndpointPublisher,
    io::tx::{self, Error, Message, Outcome, PayloadBuffer, Queue},
    path::Handle as _,
};
use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

/// Bytes that an endpoint may send before other tasks have a turn: four messages, each full but for less than a
/// datagram.
const MAX_TURN_BYTES: usize = 4 * 63 * 1024;

/// The sending half of a socket, as s2n-quic requires it.
pub(super) struct Tx<T> {
    queue: TxQueue<T>,
    state: TxState,
}

/// State by which the endpoint is woken when the queue has room again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TxState {
    /// The buffer had room for all of the endpoint's packets.
    Open,
    /// The endpoint had more to send than one turn allows, and may continue after the other tasks.
    OwesTurn,
    /// The other tasks have had a turn.
    Ready,
    /// The kernel did not accept all messages.
    Blocked,
}

/// Queue of gathered datagrams, sent when the buffer is full or the endpoint has nothing more to send. [`Queue`] has no
/// lifetime, so this type owns the buffer.
pub(super) struct TxQueue<T> {
    transmit: T,
    outgoing: OutgoingBatch,
    /// The socket did not accept all messages.
    blocked: bool,
    /// Bytes of the current turn.
    bytes: usize,
    max_datagram: usize,
    joins: bool,
    /// Flows of load balancers that forget silent ones.
    flows: Option<Arc<ProxyFlows>>,
}

impl<T: Transmit> Tx<T> {
    pub(super) fn new(transmit: T, max_datagram: usize, flows: Option<Arc<ProxyFlows>>) -> Self {
        let outgoing = OutgoingBatch::new(max_datagram);
        let queue = TxQueue { transmit, outgoing, blocked: false, bytes: 0, max_datagram, joins: true, flows };
        Self { queue, state: TxState::Open }
    }
}

impl<T: Transmit> tx::Tx for Tx<T> {
    type PathHandle = NetworkPath;
    type Queue = TxQueue<T>;
    type Error = io::Error;

    /// Ready when the queue has room after it had none: only then the endpoint needs a wake.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            TxState::Open => return Poll::Pending,
            TxState::OwesTurn => {
                self.state = TxState::Ready;
                return yield_to_runtime(cx);
            }
            TxState::Ready => {}
            TxState::Blocked => loop {
                ready!(self.queue.transmit.poll_writable(cx))?;
                self.queue.send_gathered();
                if !self.queue.blocked {
                    break;
                }
            },
        }
        self.state = TxState::Open;
        Poll::Ready(Ok(()))
    }

    fn queue<F: FnOnce(&mut TxQueue<T>)>(&mut self, f: F) {
        if self.queue.blocked {
            // The endpoint processes its timers, and finds no room.
            f(&mut self.queue);
            return;
        }
        self.queue.begin_send_turn();
        f(&mut self.queue);
        self.queue.send_gathered();
        self.state = match (self.queue.blocked, self.queue.bytes >= MAX_TURN_BYTES) {
            (true, _) => TxState::Blocked,
            (false, true) => TxState::OwesTurn,
            (false, false) => TxState::Open,
        };
    }

    fn handle_error<E: EndpointPublisher>(self, error: io::Error, _: &mut E) {
        tracing::error!(%error, "sending on a socket failed: its endpoint ends");
    }
}

impl<T: Transmit> TxQueue<T> {
    fn begin_send_turn(&mut self) {
        self.bytes = 0;
        self.update_gso();
    }

    /// Updates whether the socket still has GSO.
    fn update_gso(&mut self) {
        let max_segments = self.transmit.max_segments();
        self.outgoing.limit_segments(max_segments);
        self.joins = max_segments > 1;
    }

    fn send_gathered(&mut self) {
        if !self.outgoing.is_empty() {
            self.transmit.transmit(&mut self.outgoing);
            self.update_gso();
        }
        self.blocked = !self.outgoing.is_empty();
    }

    /// Makes room for a datagram that begins a message, by sending gathered messages.
    fn make_message_room(&mut self) -> Result<(), Error> {
        if !self.blocked && self.bytes < MAX_TURN_BYTES && self.outgoing.is_buffer_full() {
            self.send_gathered();
        }
        if self.has_capacity() { Ok(()) } else { Err(Error::AtCapacity) }
    }

    fn record_written(&mut self, len: usize) -> Result<Outcome, Error> {
        self.bytes += len;
        if len == 0 { Err(Error::EmptyPayload) } else { Ok(Outcome { len, index: 0 }) }
    }
}

impl<T: Transmit> Queue for TxQueue<T> {
    type Handle = NetworkPath;

    const SUPPORTS_ECN: bool = true;

    fn push<M: Message<Handle = NetworkPath>>(&mut self, mut message: M) -> Result<Outcome, Error> {
        if let Some(open) = self.outgoing.joinable_message() {
            let index = open.count;
            if message.can_gso(open.segment, index)
                && message.path_handle().strict_eq(&open.path)
                && message.ecn() == open.ecn
            {
                let len = self.outgoing.join_message(|room| message.write_payload(PayloadBuffer::new(room), index))?;
                return self.record_written(len);
            }
        }
        self.make_message_room()?;
        let (path, ecn) = (*message.path_handle(), message.ecn());
        if let Some(flows) = &self.flows {
            flows.record_sent(&path, Instant::now());
        }
        let joinable = self.joins && message.can_gso(self.max_datagram, 0);
        let len = self
            .outgoing
            .begin_message(path, ecn, joinable, |room| message.write_payload(PayloadBuffer::new(room), 0))?;
        self.record_written(len)
    }

    /// Ends the current message: connections must not share one.
    fn flush(&mut self) {
        self.outgoing.close_message();
    }

    fn capacity(&self) -> usize {
        if self.blocked || self.bytes >= MAX_TURN_BYTES { 0 } else { usize::MAX }
    }
}

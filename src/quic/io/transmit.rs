//! The endpoint's datagrams on their way to a socket: those of one connection, path and size become one message.

use super::give_way;
use crate::datagram::{Outgoing, Transmit};
use s2n_quic_core::{
    event::EndpointPublisher,
    io::tx::{Error, Message, Outcome, PayloadBuffer, Queue, Tx},
    path::{Handle as _, Tuple},
};
use std::{
    io,
    task::{Context, Poll, ready},
};

/// The sending half of a socket, as s2n-quic asks for it.
pub(super) struct Outlet<T> {
    transmit: T,
    queue: Gathering,
    state: State,
}

/// Whether the endpoint has to be told that there is room again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It had room for all.
    Open,
    /// It had more to say than one batch holds, and may go on after the other tasks.
    OwesTurn,
    /// They have had their turn.
    Ready,
    /// The kernel did not take everything.
    Blocked,
}

/// A batch that gathers. [`Queue`] has no lifetime, so it owns what it fills.
pub(super) struct Gathering {
    outgoing: Outgoing,
    /// The socket did not take the last batch.
    blocked: bool,
    /// Something had no room.
    refused: bool,
    max_datagram: usize,
    joins: bool,
}

impl<T: Transmit> Outlet<T> {
    pub(super) fn new(transmit: T, max_datagram: usize) -> Self {
        let outgoing = Outgoing::new(max_datagram);
        let queue = Gathering { outgoing, blocked: false, refused: false, max_datagram, joins: true };
        Self { transmit, queue, state: State::Open }
    }

    fn send(&mut self) {
        if !self.queue.outgoing.is_empty() {
            self.transmit.transmit(&mut self.queue.outgoing);
        }
        self.queue.blocked = !self.queue.outgoing.is_empty();
    }
}

impl<T: Transmit> Tx for Outlet<T> {
    type PathHandle = Tuple;
    type Queue = Gathering;
    type Error = io::Error;

    /// Ready means that there was no room, and now there is: only then need the endpoint be woken.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            State::Open => return Poll::Pending,
            State::OwesTurn => {
                self.state = State::Ready;
                return give_way(cx);
            }
            State::Ready => {}
            State::Blocked => loop {
                ready!(self.transmit.poll_writable(cx))?;
                self.send();
                if !self.queue.blocked {
                    break;
                }
            },
        }
        self.state = State::Open;
        Poll::Ready(Ok(()))
    }

    fn queue<F: FnOnce(&mut Gathering)>(&mut self, f: F) {
        if self.queue.blocked {
            // For the endpoint's timers; it finds no room.
            f(&mut self.queue);
            return;
        }
        let max_segments = self.transmit.max_segments();
        self.queue.outgoing.limit_segments(max_segments);
        self.queue.joins = max_segments > 1;
        self.queue.refused = false;
        f(&mut self.queue);
        let full = self.queue.refused || self.queue.outgoing.is_full();
        self.send();
        self.state = match (self.queue.blocked, full) {
            (true, _) => State::Blocked,
            (false, true) => State::OwesTurn,
            (false, false) => State::Open,
        };
    }

    fn handle_error<E: EndpointPublisher>(self, error: io::Error, _: &mut E) {
        tracing::error!(%error, "a socket sends no more: its endpoint ends");
    }
}

impl Queue for Gathering {
    type Handle = Tuple;

    const SUPPORTS_ECN: bool = true;

    fn push<M: Message<Handle = Tuple>>(&mut self, mut message: M) -> Result<Outcome, Error> {
        if self.blocked {
            self.refused = true;
            return Err(Error::AtCapacity);
        }
        if let Some(open) = self.outgoing.open() {
            let index = open.count;
            if message.can_gso(open.segment, index)
                && message.path_handle().strict_eq(&open.path)
                && message.ecn() == open.ecn
            {
                let len = self.outgoing.join(|room| message.write_payload(PayloadBuffer::new(room), index))?;
                return written(len);
            }
        }
        if self.outgoing.is_full() {
            self.refused = true;
            return Err(Error::AtCapacity);
        }
        let (path, ecn) = (*message.path_handle(), message.ecn());
        let joinable = self.joins && message.can_gso(self.max_datagram, 0);
        let len =
            self.outgoing.begin(path, ecn, joinable, |room| message.write_payload(PayloadBuffer::new(room), 0))?;
        written(len)
    }

    /// Called between connections, which must not share a message.
    fn flush(&mut self) {
        self.outgoing.close();
    }

    fn capacity(&self) -> usize {
        if self.blocked || self.outgoing.is_full() { 0 } else { usize::MAX }
    }
}

fn written(len: usize) -> Result<Outcome, Error> {
    if len == 0 { Err(Error::EmptyPayload) } else { Ok(Outcome { len, index: 0 }) }
}

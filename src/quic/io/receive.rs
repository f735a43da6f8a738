//! Received batches on their way to the endpoint.

use super::give_way;
use crate::datagram::Receive;
use s2n_quic_core::{
    event::EndpointPublisher,
    inet::datagram::Header,
    io::rx::{Queue, Rx},
    path::Tuple,
};
use std::{
    io,
    task::{Context, Poll, ready},
};

/// The receiving half of a socket, as s2n-quic asks for it.
pub(super) struct Incoming<R> {
    batch: Batch<R>,
    /// A batch was handed over, and nobody else has had a turn since.
    owes_turn: bool,
}

/// What was received at once: its beginning, its end and all of it are known before the first datagram is handed over.
pub(super) struct Batch<R> {
    receive: R,
    len: usize,
}

impl<R> Incoming<R> {
    pub(super) fn new(receive: R) -> Self {
        Self { batch: Batch { receive, len: 0 }, owes_turn: false }
    }
}

impl<R: Receive> Rx for Incoming<R> {
    type PathHandle = Tuple;
    type Queue = Batch<R>;
    type Error = io::Error;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.owes_turn) {
            return give_way(cx);
        }
        self.batch.len = ready!(self.batch.receive.poll_batch(cx))?;
        self.owes_turn = true;
        Poll::Ready(Ok(()))
    }

    fn queue<F: FnOnce(&mut Batch<R>)>(&mut self, f: F) {
        f(&mut self.batch);
    }

    fn handle_error<E: EndpointPublisher>(self, error: io::Error, _: &mut E) {
        tracing::error!(%error, "a socket receives no more: its endpoint ends");
    }
}

impl<R: Receive> Queue for Batch<R> {
    type Handle = Tuple;

    /// In the order of arrival.
    fn for_each<F: FnMut(Header<Tuple>, &mut [u8])>(&mut self, mut on_packet: F) {
        for index in 0..std::mem::take(&mut self.len) {
            if let Some((header, payload)) = self.receive.datagram(index) {
                on_packet(header, payload);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

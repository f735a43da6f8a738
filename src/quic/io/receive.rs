//! Received batches for the endpoint, and the order in which it gets them.

use super::{
    EndpointHooks,
    ack_order::{AckReordering, Arrival},
    batches::ReceiveBatchNumber,
    moderation::{Moderation, ModerationRule},
    yield_to_runtime,
};
use crate::{datagram::Receive, quic::identity::connection_id::Layout, suspension};
use s2n_quic_core::{
    event::EndpointPublisher,
    inet::datagram::Header,
    io::rx::{self, Queue},
    path::Tuple,
};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Batches beyond the first that are received before timers count, after a suspension: more than a socket's buffer
/// holds with the usual `net.core.rmem_max`.
pub(super) const MAX_BATCHES_AFTER_SUSPENSION: usize = 64;

/// The receiving half of a socket, as s2n-quic requires it.
pub(super) struct Rx<R> {
    batch: Batch<R>,
    /// A batch was handed over, the next one may be ready, and no other task has had a turn since.
    owes_turn: bool,
    turns: ReceiveTurns,
}

/// When the next batch is to be taken.
struct ReceiveTurns {
    moderation: Moderation,
    rule: ModerationRule,
    /// Datagrams that were taken last, until the rule has decided on them.
    taken: Option<usize>,
    /// More had arrived than a batch takes.
    more: bool,
    /// The next turn; `None` where arrivals are events.
    next: Option<Pin<Box<Sleep>>>,
}

/// A batch of datagrams received at once, whose length is known before the first is passed on.
pub(super) struct Batch<R> {
    receive: R,
    len: usize,
    batch_number: ReceiveBatchNumber,
    layout: Layout,
    /// Order of the batch; `None` is the order of arrival.
    order: Option<AckReordering<Tuple>>,
}

impl<R> Rx<R> {
    pub(super) fn new(receive: R, hooks: EndpointHooks) -> Self {
        let EndpointHooks { receive_batch: batch_number, layout, newest_first, moderation } = hooks;
        let order = newest_first.then(AckReordering::default);
        let turns = ReceiveTurns { moderation, rule: ModerationRule::default(), taken: None, more: false, next: None };
        Self { batch: Batch { receive, len: 0, batch_number, layout, order }, owes_turn: false, turns }
    }
}

impl ReceiveTurns {
    /// Ready when the next batch is to be taken: with `false` once it has arrived. What was taken last has been
    /// processed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(taken) = self.taken.take() {
            match self.moderation.next(&mut self.rule, taken) {
                None => self.next = None,
                Some(at) => self.wait_until(at),
            }
        }
        let Some(turn) = &mut self.next else { return Poll::Ready(false) };
        if !std::mem::take(&mut self.more) {
            ready!(turn.as_mut().poll(cx));
            self.moderation.expired_at(turn.deadline());
            self.moderation.begin_turn();
        }
        Poll::Ready(true)
    }

    fn wait_until(&mut self, at: Instant) {
        match &mut self.next {
            Some(turn) => turn.as_mut().reset(at),
            none => *none = Some(Box::pin(sleep_until(at))),
        }
    }
}

impl<R: Receive> rx::Rx for Rx<R> {
    type PathHandle = Tuple;
    type Queue = Batch<R>;
    type Error = io::Error;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.owes_turn) && suspension::grace().is_none() {
            return yield_to_runtime(cx);
        }
        self.batch.len = loop {
            let receive = &mut self.batch.receive;
            let len = if ready!(self.turns.poll(cx)) { receive.take_batch()? } else { ready!(receive.poll_batch(cx))? };
            self.turns.taken = Some(len);
            self.turns.more = len > 0 && !receive.is_drained();
            if len > 0 {
                break len;
            }
        };
        // A drained socket waits for an event, and the other tasks run before the runtime does: to yield first would
        // cost an epoll_wait(2) of its own.
        self.owes_turn = !self.batch.receive.is_drained();
        Poll::Ready(Ok(()))
    }

    fn queue<F: FnOnce(&mut Batch<R>)>(&mut self, f: F) {
        f(&mut self.batch);
    }

    fn handle_error<E: EndpointPublisher>(self, error: io::Error, _: &mut E) {
        tracing::error!(%error, "receiving from a socket failed: its endpoint ends");
    }
}

impl<R: Receive> Queue for Batch<R> {
    type Handle = Tuple;

    fn for_each<F: FnMut(Header<Tuple>, &mut [u8])>(&mut self, mut on_packet: F) {
        let mut len = std::mem::take(&mut self.len);
        if len == 0 {
            return;
        }
        self.hand_over(len, &mut on_packet);
        // After this s2n-quic looks at its timers. Datagrams that arrived while the process was suspended come first.
        for _ in 0..MAX_BATCHES_AFTER_SUSPENSION {
            if self.receive.is_drained() || suspension::grace().is_none() {
                return;
            }
            // The next turn finds the socket's failure.
            len = self.receive.take_batch().unwrap_or(0);
            if len == 0 {
                return;
            }
            self.hand_over(len, &mut on_packet);
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<R: Receive> Batch<R> {
    /// Passes what was received at once to `on_packet`, by [`AckReordering`], or as they arrived.
    fn hand_over(&mut self, len: usize, on_packet: &mut impl FnMut(Header<Tuple>, &mut [u8])) {
        self.batch_number.begin();
        let Self { receive, layout, order, .. } = self;
        let mut hand_over = |receive: &mut R, index| {
            if let Some((header, payload)) = receive.datagram(index) {
                on_packet(header, payload);
            }
        };
        match order {
            Some(order) if len > 1 => {
                order.arrange((0..len).map(|index| {
                    let (header, payload) = receive.datagram(index)?;
                    let connection = layout.connection(payload)?;
                    Some(Arrival { connection, path: header.path, len: payload.len() })
                }));
                order.for_each(|index| hand_over(receive, index));
            }
            _ => (0..len).for_each(|index| hand_over(receive, index)),
        }
    }
}

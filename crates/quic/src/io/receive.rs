//! Passes received batches to the endpoint, and orders their datagrams.

use super::{
    ack_reordering::{AckReordering, Arrival},
    hooks::EndpointHooks,
    moderation::{Moderation, ModerationRule},
    proxied_datagrams::ProxiedDatagrams,
    yield_to_runtime::yield_to_runtime,
};
use crate::identity::IdLayout;
use litequic_base::timers;
use litequic_net::datagram::{NetworkPath, Receive, end_migration_check};
use s2n_quic_core::{
    event::EndpointPublisher,
    inet::datagram::Header,
    io::rx::{self, Queue},
};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Further batches that are received before timers count, after a suspension: more than a socket's buffer holds with
/// the usual `net.core.rmem_max`.
pub(super) const MAX_BATCHES_AFTER_SUSPENSION: usize = 64;
/// Packets that open a request or belong to a handshake, and are handed over before other tasks have a turn: the
/// requests are forwarded while their data is in the core's caches, and the origin works while the rest is read. The
/// data of uploads does not count: the more arrives at once, the fewer writes pass it to the origin.
pub(super) const MAX_OPENINGS_AT_ONCE: u8 = 16;

/// The receiving half of a socket, as s2n-quic requires it.
pub(super) struct Rx<R> {
    batch: ReceivedBatch<R>,
    /// The socket may have more datagrams, and no other task has had a turn since the last batch.
    owes_turn: bool,
    turns: ReceiveTurns,
}

/// Decides about the time of the next batch.
struct ReceiveTurns {
    moderation: Moderation,
    rule: ModerationRule,
    /// Number of datagrams of the last batch, until the rule has read it.
    taken: Option<usize>,
    /// More datagrams had arrived than fit into the last batch.
    more: bool,
    /// Timer of the next turn; `None` while arrivals are events.
    next: Option<Pin<Box<Sleep>>>,
}

/// A batch of datagrams received at once, whose number is known before the first is handed over.
pub(super) struct ReceivedBatch<R> {
    receive: R,
    len: usize,
    /// Number of datagrams handed over.
    handed_over: usize,
    /// Other tasks get a turn before the rest is handed over.
    is_interrupted: bool,
    moderation: Moderation,
    layout: IdLayout,
    /// Order of the batch; `None` means the order of arrival.
    order: Option<AckReordering<NetworkPath>>,
    proxied: Option<ProxiedDatagrams>,
}

impl<R> Rx<R> {
    pub(super) fn new(receive: R, hooks: EndpointHooks) -> Self {
        let EndpointHooks { layout, newest_first, moderation, proxied } = hooks;
        let order = newest_first.then(AckReordering::default);
        let batch = ReceivedBatch {
            receive,
            len: 0,
            handed_over: 0,
            is_interrupted: false,
            moderation: moderation.clone(),
            layout,
            order,
            proxied,
        };
        let turns = ReceiveTurns { moderation, rule: ModerationRule::default(), taken: None, more: false, next: None };
        Self { batch, owes_turn: false, turns }
    }
}

impl ReceiveTurns {
    /// Ready when the next batch should be taken: with `false` when it has arrived, with `true` at once. The last batch
    /// has been processed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(taken) = self.taken.take() {
            match self.moderation.next_receive_turn(&mut self.rule, taken) {
                None => self.next = None,
                Some(at) => self.set_next_turn(at),
            }
        }
        let Some(turn) = &mut self.next else { return Poll::Ready(false) };
        if !std::mem::take(&mut self.more) {
            ready!(turn.as_mut().poll(cx));
            self.moderation.record_lateness(turn.deadline());
            self.moderation.count_turn();
        }
        Poll::Ready(true)
    }

    fn set_next_turn(&mut self, at: Instant) {
        match &mut self.next {
            Some(turn) => turn.as_mut().reset(at),
            none => *none = Some(Box::pin(sleep_until(at))),
        }
    }
}

impl<R: Receive> rx::Rx for Rx<R> {
    type PathHandle = NetworkPath;
    type Queue = ReceivedBatch<R>;
    type Error = io::Error;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let owes_turn = std::mem::take(&mut self.owes_turn) | std::mem::take(&mut self.batch.is_interrupted);
        if owes_turn && timers::grace_deadline().is_none() {
            return yield_to_runtime(cx);
        }
        if !self.batch.is_empty() {
            self.owes_turn = !self.batch.receive.is_drained();
            return Poll::Ready(Ok(()));
        }
        let len = loop {
            let receive = &mut self.batch.receive;
            let len = if ready!(self.turns.poll(cx)) { receive.take_batch()? } else { ready!(receive.poll_batch(cx))? };
            self.turns.taken = Some(len);
            self.turns.more = len > 0 && !receive.is_drained();
            if len > 0 {
                break len;
            }
        };
        self.batch.start_batch(len);
        // A drained socket waits for an event, and the other tasks run before the runtime polls for events: yielding
        // first would cost another epoll_wait(2).
        self.owes_turn = !self.batch.receive.is_drained();
        Poll::Ready(Ok(()))
    }

    fn queue<F: FnOnce(&mut ReceivedBatch<R>)>(&mut self, f: F) {
        f(&mut self.batch);
    }

    fn handle_error<E: EndpointPublisher>(self, error: io::Error, _: &mut E) {
        tracing::error!(%error, "receiving from a socket failed: its endpoint ends");
    }
}

impl<R: Receive> Queue for ReceivedBatch<R> {
    type Handle = NetworkPath;

    fn for_each<F: FnMut(Header<NetworkPath>, &mut [u8])>(&mut self, mut on_packet: F) {
        if self.is_empty() {
            return;
        }
        self.hand_over_batch(&mut on_packet);
        // After this s2n-quic checks its timers. Datagrams that arrived while the process was suspended come first.
        for _ in 0..MAX_BATCHES_AFTER_SUSPENSION {
            if !self.is_empty() || self.receive.is_drained() || timers::grace_deadline().is_none() {
                return;
            }
            // The next turn reports an error of the socket.
            let len = self.receive.take_batch().unwrap_or(0);
            if len == 0 {
                return;
            }
            self.start_batch(len);
            self.hand_over_batch(&mut on_packet);
        }
    }

    fn is_empty(&self) -> bool {
        self.handed_over == self.len
    }
}

impl<R: Receive> ReceivedBatch<R> {
    /// Numbers and orders a received batch of `len` datagrams.
    fn start_batch(&mut self, len: usize) {
        self.moderation.begin_batch();
        let Self { receive, layout, order, proxied, .. } = self;
        if let Some(proxied) = proxied {
            proxied.read_headers(len, receive);
        }
        if let Some(order) = order
            && len > 1
        {
            order.order_batch((0..len).map(|index| {
                let (header, payload) = receive.datagram(index)?;
                let payload = match proxied {
                    Some(proxied) => proxied.find_packet(index, payload)?.1,
                    None => payload,
                };
                let connection = layout.connection_key(payload)?;
                Some(Arrival { connection, path: header.path, len: payload.len() })
            }));
        }
        (self.len, self.handed_over) = (len, 0);
    }

    /// Passes the batch to `on_packet`, in the order of [`AckReordering`] or of arrival, up to
    /// [`MAX_OPENINGS_AT_ONCE`].
    fn hand_over_batch(&mut self, on_packet: &mut impl FnMut(Header<NetworkPath>, &mut [u8])) {
        let Self { receive, len, handed_over, moderation, order, proxied, .. } = self;
        let mut hand_over = |index| {
            if let Some((header, payload)) = receive.datagram(index) {
                if let Some(proxied) = proxied {
                    return proxied.hand_over_proxied(index, header, payload, on_packet);
                }
                hand_over_packet(header, payload, on_packet);
            }
        };
        let before = moderation.openings();
        let is_late = timers::grace_deadline().is_some();
        while handed_over < len {
            match order {
                Some(order) if *len > 1 => order.visit_position(*handed_over, &mut hand_over),
                _ => hand_over(*handed_over),
            }
            *handed_over += 1;
            if !is_late && moderation.openings() - before >= MAX_OPENINGS_AT_ONCE.into() {
                break;
            }
        }
        self.is_interrupted = !self.is_empty();
    }
}

/// Passes a datagram to s2n-quic by `on_packet`.
pub(super) fn hand_over_packet(
    header: Header<NetworkPath>,
    packet: &mut [u8],
    on_packet: &mut impl FnMut(Header<NetworkPath>, &mut [u8]),
) {
    header.path.begin_migration_check();
    on_packet(header, packet);
    end_migration_check();
}

//! Splits received messages into datagrams: of one path and codepoint each, and only whole ones.

use super::sys::Arrived;
use crate::{datagram::Received, metrics::Metrics};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{net::SocketAddr, ops::Range, sync::Arc};

/// The datagrams of a batch.
pub(super) struct Cut {
    local: SocketAddr,
    datagrams: Vec<Datagram>,
    metrics: Arc<Metrics>,
}

/// A datagram of the batch: which bytes of which message.
#[derive(Clone)]
pub(super) struct Datagram {
    pub(super) header: Received,
    pub(super) message: usize,
    pub(super) range: Range<usize>,
}

impl Cut {
    /// For a socket that is bound to `local` and receives at most `messages` messages at once.
    pub(super) fn new(local: SocketAddr, messages: usize, metrics: Arc<Metrics>) -> Self {
        Self { local, datagrams: Vec::with_capacity(messages), metrics }
    }

    /// Splits `count` messages, which `arrived` describes, in place of the last batch. Incomplete ones are dropped.
    /// Returns how many datagrams there are.
    pub(super) fn cut(&mut self, count: usize, arrived: impl Fn(usize) -> Option<Arrived>) -> usize {
        self.datagrams.clear();
        let mut bytes = 0;
        for message in 0..count {
            let Some(arrived) = arrived(message) else { break };
            let header = match header(&arrived, self.local) {
                Some(header) if !arrived.truncated => header,
                _ => {
                    self.metrics.datagrams_dropped_truncated.increment();
                    continue;
                }
            };
            bytes += arrived.len;
            let datagram = |range| Datagram { header, message, range };
            self.datagrams.extend(ranges(arrived.len, arrived.segment).map(datagram));
        }
        self.metrics.receive_batches.increment();
        self.metrics.receive_messages.add(count as u64);
        self.metrics.datagrams_received.add(self.datagrams.len() as u64);
        self.metrics.datagram_bytes_received.add(bytes as u64);
        self.datagrams.len()
    }

    /// The datagram `index` of the batch.
    pub(super) fn get(&self, index: usize) -> Option<Datagram> {
        self.datagrams.get(index).cloned()
    }
}

/// The datagrams of a message of `len` bytes. An empty message is none: QUIC has no empty packets.
fn ranges(len: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(segment.max(1)).map(move |start| start..(start + segment).min(len))
}

fn header(arrived: &Arrived, local: SocketAddr) -> Option<Received> {
    let ip = arrived.local.unwrap_or(local.ip());
    Some(Received {
        path: Tuple {
            remote_address: SocketAddress::from(arrived.remote?).into(),
            local_address: SocketAddress::from(SocketAddr::new(ip, local.port())).into(),
        },
        ecn: Ecn::new(arrived.ecn),
    })
}

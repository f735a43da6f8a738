//! Splits received messages into datagrams, which have one path and codepoint each; incomplete messages are dropped.

use super::sys::KernelMessage;
use crate::{
    datagram::{DatagramHeader, NetworkPath},
    metrics::SocketMetrics,
};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::Arc,
};

/// Splits each batch of received messages into datagrams, and holds the last batch's.
pub(super) struct DatagramSplitter {
    local: SocketAddr,
    datagrams: Vec<DatagramSlice>,
    metrics: Arc<SocketMetrics>,
}

/// Place of a received datagram: its message's index in the batch, and its bytes in the message.
#[derive(Clone)]
pub(super) struct DatagramSlice {
    pub(super) header: DatagramHeader,
    pub(super) message: usize,
    pub(super) range: Range<usize>,
}

impl DatagramSplitter {
    /// A splitter for a socket that is bound to `local` and receives at most `messages` messages at once.
    pub(super) fn new(local: SocketAddr, messages: usize, metrics: Arc<SocketMetrics>) -> Self {
        Self { local, datagrams: Vec::with_capacity(messages), metrics }
    }

    /// Splits `count` messages, which `arrived` describes, and replaces the last batch. Incomplete messages are
    /// dropped. Returns the number of datagrams.
    pub(super) fn split_batch(&mut self, count: usize, arrived: impl Fn(usize) -> Option<KernelMessage>) -> usize {
        self.datagrams.clear();
        let mut bytes = 0;
        for message in 0..count {
            let Some(arrived) = arrived(message) else { break };
            let header = match datagram_header(&arrived, self.local) {
                Some(header) if !arrived.truncated => header,
                _ => {
                    self.metrics.datagrams_dropped_truncated.increment();
                    continue;
                }
            };
            bytes += arrived.len;
            let datagram = |range| DatagramSlice { header, message, range };
            self.datagrams.extend(segment_ranges(arrived.len, arrived.segment).map(datagram));
        }
        self.metrics.receive_batches.increment();
        self.metrics.receive_messages.increment_by(count as u64);
        self.metrics.datagrams_received.increment_by(self.datagrams.len() as u64);
        self.metrics.datagram_bytes_received.increment_by(bytes as u64);
        self.datagrams.len()
    }

    /// The datagram `index` of the batch.
    pub(super) fn get(&self, index: usize) -> Option<DatagramSlice> {
        self.datagrams.get(index).cloned()
    }
}

/// Byte ranges of the datagrams in a message of `len` bytes; none of an empty message, as QUIC has no empty packets.
fn segment_ranges(len: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(segment.max(1)).map(move |start| start..(start + segment).min(len))
}

fn datagram_header(arrived: &KernelMessage, local: SocketAddr) -> Option<DatagramHeader> {
    let (remote, ip) = (arrived.remote?, arrived.local.unwrap_or(local.ip()));
    let addresses = Tuple {
        remote_address: SocketAddress::from(remote).into(),
        local_address: SocketAddress::from(SocketAddr::new(ip, local.port())).into(),
    };
    let interface = match (remote, ip) {
        // ipv6(7): the scope of a link-local address is its interface.
        (SocketAddr::V6(remote), _) if remote.scope_id() > 0 => remote.scope_id(),
        (_, IpAddr::V6(ip)) if ip.is_unicast_link_local() => arrived.interface,
        _ => 0,
    };
    Some(DatagramHeader { path: NetworkPath { addresses, interface }, ecn: Ecn::new(arrived.ecn) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_belongs_to_the_path_of_link_local_addresses_alone() {
        let table = [
            ("[fe80::2%7]:9", Some("fe80::1"), 7, 7),
            // The socket is bound to one address, so that none is reported.
            ("[fe80::2%7]:9", None, 0, 7),
            ("[fd00::2]:9", Some("fe80::1"), 7, 7),
            ("[2001:db8::2]:9", Some("2001:db8::1"), 7, 0),
            ("192.0.2.2:9", Some("192.0.2.1"), 7, 0),
            ("169.254.0.2:9", Some("169.254.0.1"), 7, 0),
        ];
        for (remote, local, interface, expected) in table {
            let arrived = KernelMessage {
                remote: Some(remote.parse().unwrap()),
                local: local.map(|local| local.parse().unwrap()),
                interface,
                ecn: 0,
                len: 1,
                segment: 1,
                truncated: false,
            };
            let header = datagram_header(&arrived, "[::]:443".parse().unwrap()).unwrap();
            assert_eq!(header.path.interface, expected, "{remote} {local:?}");
        }
    }
}

//! Takes PROXY protocol headers from the datagrams of load balancers (`listen.proxy_protocol_udp`). Each datagram has
//! one, or is dropped: what follows a header is the client's, whatever it looks like. So no client can name another.

use super::receive::hand_over_packet;
use crate::{connection::set_named_client, metrics::QuicMetrics};
use litequic_config::{Listen, LiveConfig};
use litequic_exchange::{split_proxied_datagram, to_canonical_address};
use litequic_net::datagram::{NetworkPath, Receive};
use s2n_quic_core::inet::datagram::Header;
use std::{net::SocketAddr, sync::Arc};

/// Reader of the headers. Holds 48 bytes for each datagram of the largest batch.
#[derive(Debug)]
pub(crate) struct ProxiedDatagrams {
    config: LiveConfig,
    metrics: Arc<QuicMetrics>,
    /// Datagrams of the batch; `None` stands for one that is dropped.
    batch: Vec<Option<ProxiedDatagram>>,
}

/// Parts of a datagram: header and packet.
#[derive(Debug, Clone, Copy)]
struct ProxiedDatagram {
    /// Bytes of the header, which is no part of the packet.
    header_len: usize,
    /// The client that the header names.
    client: Option<SocketAddr>,
}

impl ProxiedDatagrams {
    /// A reader by the live `config`; `None` if datagrams have no headers.
    pub(crate) fn from_config(config: &LiveConfig, metrics: &Arc<QuicMetrics>) -> Option<Self> {
        let has_headers = config.load().listen.proxy_protocol_udp.has_headers();
        has_headers.then(|| Self { config: Arc::clone(config), metrics: Arc::clone(metrics), batch: Vec::new() })
    }

    /// Reads the headers of a batch of `len` datagrams, in place of the last one. Counts headers; without a valid one,
    /// or without a packet behind it, a datagram is dropped.
    #[inline(never)]
    pub(super) fn read_headers(&mut self, len: usize, receive: &mut impl Receive) {
        let Self { config, metrics, batch } = self;
        let config = config.load();
        batch.clear();
        batch.extend((0..len).map(|index| {
            let (header, datagram) = receive.datagram(index)?;
            let remote = header.path.addresses.remote_address.0.into();
            let Some(proxied) = read_header(&config.listen, remote, datagram) else {
                metrics.udp_proxy_headers_refused.increment();
                tracing::debug!(%remote, "a datagram did not begin with a valid PROXY protocol header");
                return None;
            };
            if proxied.header_len > 0 {
                metrics.udp_proxy_headers_read.increment();
            }
            Some(proxied).filter(|proxied| proxied.header_len < datagram.len())
        }));
    }

    /// The packet of the batch's `datagram` at `index`, without its header; `None` if the datagram is dropped.
    pub(super) fn find_packet<'d>(&self, index: usize, datagram: &'d mut [u8]) -> Option<&'d mut [u8]> {
        datagram.get_mut(self.proxied_datagram(index)?.header_len..)
    }

    /// Passes the packet of the batch's `datagram` at `index` to s2n-quic by `on_packet`, as a packet of the client
    /// that its header names.
    #[inline(never)]
    pub(super) fn hand_over_proxied(
        &self,
        index: usize,
        header: Header<NetworkPath>,
        datagram: &mut [u8],
        on_packet: &mut impl FnMut(Header<NetworkPath>, &mut [u8]),
    ) {
        if let (Some(proxied), Some(packet)) = (self.proxied_datagram(index), self.find_packet(index, datagram)) {
            set_named_client(proxied.client);
            hand_over_packet(header, packet, on_packet);
            set_named_client(None);
        }
    }

    fn proxied_datagram(&self, index: usize) -> Option<&ProxiedDatagram> {
        self.batch.get(index)?.as_ref()
    }
}

/// Reads the header of `datagram` from `remote`, if that is a load balancer. `None` if the header is missing or
/// malformed.
fn read_header(listen: &Listen, remote: SocketAddr, datagram: &[u8]) -> Option<ProxiedDatagram> {
    if !listen.is_proxy_sender(remote.ip()) {
        return Some(ProxiedDatagram { header_len: 0, client: None });
    }
    let (client, packet) = split_proxied_datagram(datagram)?;
    let header_len = datagram.len() - packet.len();
    Some(ProxiedDatagram { header_len, client: client.map(to_canonical_address) })
}

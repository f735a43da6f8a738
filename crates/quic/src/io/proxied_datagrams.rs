//! Takes PROXY protocol headers from the datagrams of load balancers (`listen.proxy_protocol_udp`). Each datagram has
//! one, or is dropped: what follows a header is the client's, whatever it looks like. So no client can name another.

use super::receive::hand_over_packet;
use crate::{connection::set_named_client, metrics::QuicMetrics};
use litequic_config::{Config, LiveConfig};
use litequic_exchange::{split_proxied_datagram, to_canonical_address};
use litequic_net::datagram::NetworkPath;
use s2n_quic_core::inet::datagram::Header;
use std::{net::SocketAddr, sync::Arc};

/// Reader of the headers.
#[derive(Debug)]
pub(crate) struct ProxiedDatagrams {
    config: LiveConfig,
    metrics: Arc<QuicMetrics>,
}

/// Parts of a datagram: header and packet.
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
        has_headers.then(|| Self { config: Arc::clone(config), metrics: Arc::clone(metrics) })
    }

    /// Passes the packet behind the header of `datagram` to s2n-quic by `on_packet`, as the packet of the client that
    /// the header names. Counts headers; without a valid one, or without a packet behind it, the datagram is dropped.
    #[inline(never)]
    pub(super) fn hand_over_proxied(
        &self,
        header: Header<NetworkPath>,
        datagram: &mut [u8],
        on_packet: &mut impl FnMut(Header<NetworkPath>, &mut [u8]),
    ) {
        let remote = header.path.addresses.remote_address.0.into();
        let Some(ProxiedDatagram { header_len, client }) = read_header(&self.config.load(), remote, datagram) else {
            self.metrics.udp_proxy_headers_refused.increment();
            tracing::debug!(%remote, "a datagram did not begin with a valid PROXY protocol header");
            return;
        };
        if header_len > 0 {
            self.metrics.udp_proxy_headers_read.increment();
        }
        if let Some(packet) = datagram.get_mut(header_len..).filter(|packet| !packet.is_empty()) {
            set_named_client(client);
            hand_over_packet(header, packet, on_packet);
            set_named_client(None);
        }
    }

    /// The packet of `datagram` from `remote`, without its header. Counts nothing.
    pub(super) fn find_packet<'d>(&self, remote: SocketAddr, datagram: &'d [u8]) -> Option<&'d [u8]> {
        datagram.get(read_header(&self.config.load(), remote, datagram)?.header_len..)
    }
}

/// Reads the header of `datagram` from `remote`, if that is a load balancer. `None` if the header is missing or
/// malformed.
fn read_header(config: &Config, remote: SocketAddr, datagram: &[u8]) -> Option<ProxiedDatagram> {
    if !config.listen.proxies_datagrams_from(remote.ip()) {
        return Some(ProxiedDatagram { header_len: 0, client: None });
    }
    let (client, packet) = split_proxied_datagram(datagram)?;
    let header_len = datagram.len() - packet.len();
    Some(ProxiedDatagram { header_len, client: client.map(to_canonical_address) })
}

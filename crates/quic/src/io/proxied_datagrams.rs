//! Takes PROXY protocol headers from the datagrams of load balancers (`listen.proxy_protocol_udp`). Each datagram has
//! one, or is dropped: what follows a header is the client's, whatever it looks like. So no client can name another.

use crate::metrics::QuicMetrics;
use litequic_config::{Config, LiveConfig};
use litequic_exchange::{split_proxied_datagram, to_canonical_address};
use std::{net::SocketAddr, sync::Arc};

/// Reader of the headers.
#[derive(Debug)]
pub(crate) struct ProxiedDatagrams {
    config: LiveConfig,
    metrics: Arc<QuicMetrics>,
}

/// Parts of a datagram: header and packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxiedDatagram {
    /// Bytes of the header, which is no part of the packet.
    pub(crate) header_len: usize,
    /// The client that the header names.
    pub(crate) client: Option<SocketAddr>,
}

impl ProxiedDatagrams {
    /// A reader by the live `config`; `None` if datagrams have no headers.
    pub(crate) fn from_config(config: &LiveConfig, metrics: &Arc<QuicMetrics>) -> Option<Self> {
        let has_headers = config.load().listen.proxy_protocol_udp.has_headers();
        has_headers.then(|| Self { config: Arc::clone(config), metrics: Arc::clone(metrics) })
    }

    /// Reads and counts the header of `datagram` from `remote`. `None` if the datagram is to be dropped.
    pub(crate) fn take_header(&self, remote: SocketAddr, datagram: &[u8]) -> Option<ProxiedDatagram> {
        let found = read_header(&self.config.load(), remote, datagram);
        match &found {
            Some(ProxiedDatagram { header_len: 0, .. }) => {}
            Some(_) => self.metrics.udp_proxy_headers_read.increment(),
            None => {
                self.metrics.udp_proxy_headers_refused.increment();
                tracing::debug!(%remote, "a datagram did not begin with a valid PROXY protocol header");
            }
        }
        found
    }

    /// The packet of `datagram` from `remote`, without its header. Counts nothing.
    pub(crate) fn find_packet<'d>(&self, remote: SocketAddr, datagram: &'d [u8]) -> Option<&'d [u8]> {
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

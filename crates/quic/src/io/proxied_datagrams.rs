//! Takes PROXY protocol headers from the datagrams of load balancers (`listen.proxy_protocol_udp`). With `"every"` each
//! datagram has one, or is dropped: what follows a header is the client's, whatever it looks like. So no client can
//! name another. With `"first"` the first one of a flow has a header ([`ProxyFlows`]).

use super::{
    proxy_flows::{ProxyFlows, RefusedHeader},
    receive::hand_over_packet,
};
use crate::{connection::set_named_client, metrics::QuicMetrics};
use litequic_base::proxy_header::proxy_header_len;
use litequic_config::{Config, LiveConfig, ProxyProtocolUdp};
use litequic_exchange::{split_proxied_datagram, to_canonical_address};
use litequic_net::datagram::{NetworkPath, Receive};
use s2n_quic_core::inet::datagram::Header;
use std::{net::SocketAddr, sync::Arc, time::Instant};

/// Reader of the headers. Holds 48 bytes for each datagram of the largest batch.
#[derive(Debug)]
pub(crate) struct ProxiedDatagrams {
    config: LiveConfig,
    metrics: Arc<QuicMetrics>,
    /// Datagrams of the batch; `None` stands for one that is dropped.
    batch: Vec<Option<ProxiedDatagram>>,
    /// Flows whose first datagram alone has a header.
    pub(super) flows: Option<Arc<ProxyFlows>>,
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
    /// A reader by the live `config`, with the process's `flows`; `None` if datagrams have no headers.
    pub(crate) fn from_config(
        config: &LiveConfig,
        metrics: &Arc<QuicMetrics>,
        flows: &Arc<ProxyFlows>,
    ) -> Option<Self> {
        let mode = config.load().listen.proxy_protocol_udp;
        mode.has_headers().then(|| Self {
            config: Arc::clone(config),
            metrics: Arc::clone(metrics),
            batch: Vec::new(),
            flows: matches!(mode, ProxyProtocolUdp::First(_)).then(|| Arc::clone(flows)),
        })
    }

    /// Reads the headers of a batch of `len` datagrams, in place of the last one. Counts headers; without a valid one,
    /// or without a packet behind it, a datagram is dropped.
    #[inline(never)]
    pub(super) fn read_headers(&mut self, len: usize, receive: &mut impl Receive) {
        let Self { config, metrics, batch, flows } = self;
        let (config, now) = (config.load(), Instant::now());
        batch.clear();
        batch.extend((0..len).map(|index| {
            let (header, datagram) = receive.datagram(index)?;
            let proxied = match read_header(&config, flows.as_deref(), &header.path, datagram, now) {
                Ok(proxied) => proxied,
                Err(reason) => {
                    let counter = match reason {
                        RefusedHeader::Missing => &metrics.udp_proxy_headers_refused,
                        RefusedHeader::Forged => &metrics.udp_proxy_headers_forged,
                        RefusedHeader::Full => &metrics.limit_proxy_flows,
                    };
                    counter.increment();
                    let remote = SocketAddr::from(header.path.addresses.remote_address.0);
                    tracing::debug!(%remote, ?reason, "a datagram had no valid PROXY protocol header");
                    return None;
                }
            };
            if proxied.header_len > 0 {
                metrics.udp_proxy_headers_read.increment();
            }
            Some(proxied).filter(|proxied| proxied.header_len < datagram.len())
        }));
    }

    /// The packet of the batch's `datagram` at `index`, without its header, and the client that this names; `None` if
    /// the datagram is dropped.
    pub(super) fn find_packet<'d>(
        &self,
        index: usize,
        datagram: &'d mut [u8],
    ) -> Option<(Option<SocketAddr>, &'d mut [u8])> {
        let ProxiedDatagram { header_len, client } = (*self.batch.get(index)?)?;
        Some((client, datagram.get_mut(header_len..)?))
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
        if let Some((client, packet)) = self.find_packet(index, datagram) {
            set_named_client(client);
            hand_over_packet(header, packet, on_packet);
            set_named_client(None);
        }
    }
}

/// Reads the header of `datagram` on `path`, if it comes from a load balancer; with `flows`, of which only the first
/// datagram has a header, the client may be a known one.
fn read_header(
    config: &Config,
    flows: Option<&ProxyFlows>,
    path: &NetworkPath,
    datagram: &[u8],
    now: Instant,
) -> Result<ProxiedDatagram, RefusedHeader> {
    let remote = SocketAddr::from(path.addresses.remote_address.0);
    if !config.listen.is_proxy_sender(remote.ip()) {
        return Ok(ProxiedDatagram { header_len: 0, client: None });
    }
    let (mut named, mut header_len) = (None, 0);
    if flows.is_none() || proxy_header_len(datagram).is_some() {
        let (client, packet) = split_proxied_datagram(datagram).ok_or(RefusedHeader::Missing)?;
        // A header without a client is the load balancer's own.
        named = Some(to_canonical_address(client.unwrap_or(remote)));
        header_len = datagram.len() - packet.len();
    }
    if let (Some(flows), ProxyProtocolUdp::First(timeout)) = (flows, config.listen.proxy_protocol_udp) {
        named = Some(flows.flow_client(path, named, timeout, now)?);
    }
    Ok(ProxiedDatagram { header_len, client: named })
}

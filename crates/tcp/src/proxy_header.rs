//! Reads PROXY protocol headers (versions 1 and 2, <https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt>), by
//! which a load balancer that forwards TLS describes a connection before its first byte. Only listed peers may send
//! such a header, and they must.

use super::tcp_worker::TcpWorker;
use crate::tcp_metrics::TcpMetrics;
use litequic_base::{
    proxy_header::{FIXED_LEN, SIGNATURE, proxy_header_len},
    timers,
};
use litequic_exchange::{parse_proxy_header, to_canonical_address};
use litequic_resources::connections::ConnectionEntry;
use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
};

/// Shortest header in bytes: the signature of version 2, and version 1 without "N\r\n".
const MIN_HEADER_LEN: usize = SIGNATURE.len();
/// Longest header of version 1 in bytes (PROXY protocol §2.1).
const MAX_V1_LEN: usize = 107;
/// Longest header of version 2 in bytes, with addresses, and extensions, which litequic ignores. A client's certificate
/// is the longest known one.
const MAX_V2_LEN: usize = FIXED_LEN as usize + 4096;

/// The two addresses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionAddresses {
    pub(super) client: SocketAddr,
    /// The local address of the client's connection.
    pub(super) local: SocketAddr,
}

/// Returns the addresses of `stream` from `peer`, by its header if `peer` has to send one. Then the connection `holder`
/// counts for the client in the header. `None`, and counted, if the header is invalid or late, if it names a denied
/// client, or if the connection is gone.
pub(super) async fn read_connection_addresses<H>(
    stream: &mut TcpStream,
    peer: SocketAddr,
    holder: &ConnectionEntry,
    front: &TcpWorker<H>,
) -> Option<ConnectionAddresses> {
    let own = ConnectionAddresses {
        client: to_canonical_address(peer),
        local: to_canonical_address(stream.local_addr().ok()?),
    };
    if !front.current_terms().config.listen.is_proxy_sender(peer.ip()) {
        return Some(own);
    }
    let terms = front.current_terms();
    let metrics: &TcpMetrics = &front.metrics;
    match timers::timeout(terms.timeouts.handshake, read_proxy_header(stream)).await {
        Ok(Ok(header)) => match parse_proxy_header(&header) {
            Some(said) => {
                metrics.tcp_proxy_headers.increment();
                let Some((client, local)) = said else { return Some(own) };
                let ends =
                    ConnectionAddresses { client: to_canonical_address(client), local: to_canonical_address(local) };
                if front.is_denied_counted(ends.client.ip()) {
                    return None;
                }
                holder.set_client_network(front.client_network(ends.client.ip()));
                holder.set_client_address(ends.client);
                return Some(ends);
            }
            None => metrics.tcp_handshakes_proxy_header.increment(),
        },
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => metrics.tcp_handshakes_proxy_header.increment(),
        Ok(Err(_)) => metrics.tcp_handshakes_closed.increment(),
        Err(_) => {
            metrics.timeout_handshake.increment();
            metrics.tcp_handshakes_timeout.increment();
        }
    }
    tracing::debug!(%peer, "a connection did not begin with a valid PROXY protocol header");
    None
}

/// Reads a header, and no byte behind it.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] for an invalid header, or the connection's error.
async fn read_proxy_header(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(MAX_V1_LEN);
    read_exact_count(stream, MIN_HEADER_LEN, &mut header).await?;
    if header == SIGNATURE {
        read_exact_count(stream, usize::from(FIXED_LEN) - MIN_HEADER_LEN, &mut header).await?;
        let length = proxy_header_len(&header).filter(|length| *length <= MAX_V2_LEN);
        let rest = length.ok_or(io::ErrorKind::InvalidData)?.saturating_sub(header.len());
        read_exact_count(stream, rest, &mut header).await?;
        return Ok(header);
    }
    if !header.starts_with(b"PROXY ") || header.contains(&b'\n') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    while !header.ends_with(b"\n") {
        let mut seen = [0; MAX_V1_LEN];
        let room = seen.get_mut(..MAX_V1_LEN.saturating_sub(header.len())).filter(|room| !room.is_empty());
        let count = stream.peek(room.ok_or(io::ErrorKind::InvalidData)?).await?;
        let seen = seen.get(..count).filter(|seen| !seen.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = seen.iter().position(|&byte| byte == b'\n').map_or(count, |newline| newline + 1);
        read_exact_count(stream, line, &mut header).await?;
    }
    Ok(header)
}

/// Reads exactly `count` bytes more.
async fn read_exact_count(stream: &mut (impl AsyncRead + Unpin), count: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let before = into.len();
    stream.take(count as u64).read_to_end(into).await?;
    if into.len() == before + count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

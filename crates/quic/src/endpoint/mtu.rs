//! Limits the packets of each new path to `litequic.max_mtu`, in both directions.

use super::endpoint_state::EndpointState;
use litequic_base::proxy_header::IPV6_CRC_LEN;
use litequic_config::LiteQuic;
use s2n_quic_core::{
    path::mtu::{Builder, Config, Endpoint, PathInfo},
    varint::VarInt,
};
use std::{net::SocketAddr, sync::Arc};

/// Bytes of the headers of UDP and IP, without options: of IPv4, and of IPv6.
const HEADERS_LEN: [u16; 2] = [8 + 20, 8 + 40];
/// Smallest value of max_udp_payload_size (RFC 9000 §18.2).
const MIN_UDP_PAYLOAD_SIZE: u16 = 1200;

/// Configures the path MTU of one endpoint's paths by the current configuration.
#[derive(Debug)]
pub(super) struct PathMtu(pub(super) Arc<EndpointState>);

impl Endpoint for PathMtu {
    fn on_path(&mut self, _: &PathInfo<'_>, endpoint: Config) -> Option<Config> {
        limit_mtu(endpoint, self.0.config.load().litequic.max_mtu)
    }
}

/// Configuration of a path with packets of at most `max_mtu` bytes; `None` for that of the endpoint, whose packets are
/// as small (1228 bytes if the socket cannot prevent fragmentation).
fn limit_mtu(endpoint: Config, max_mtu: u16) -> Option<Config> {
    if max_mtu >= endpoint.max_mtu().into() {
        return None;
    }
    Config::builder().with_max_mtu(max_mtu).and_then(Builder::build).ok()
}

/// Value of max_udp_payload_size (RFC 9000 §18.2) for a client whose datagrams come from `remote`: datagrams in IP
/// packets of at most `max_mtu` bytes, less a PROXY protocol header if they are `proxied`. `None` without either limit:
/// clients then find their own.
pub(super) fn max_udp_payload_size(max_mtu: u16, proxied: bool, remote: SocketAddr) -> Option<VarInt> {
    let [ipv4, ipv6] = HEADERS_LEN;
    let headers = if remote.ip().to_canonical().is_ipv4() { ipv4 } else { ipv6 };
    let headers = headers + if proxied { u16::from(IPV6_CRC_LEN) } else { 0 };
    let size = max_mtu.saturating_sub(headers).max(MIN_UDP_PAYLOAD_SIZE);
    (proxied || max_mtu < LiteQuic::MAX_MTU).then(|| VarInt::from_u16(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paths_packets_are_the_smaller_ones_of_endpoint_and_configuration() {
        let endpoint = |max_mtu: u16| Config::builder().with_max_mtu(max_mtu).and_then(Builder::build).unwrap();
        for (of_endpoint, max_mtu, expected) in [
            (endpoint(1500), 1500, None),
            (endpoint(1500), 1440, Some(1440)),
            (endpoint(1500), 1280, Some(1280)),
            (Config::MIN, 1280, None),
        ] {
            let limited = limit_mtu(of_endpoint, max_mtu).map(|config| u16::from(config.max_mtu()));
            assert_eq!(limited, expected, "{max_mtu}");
        }
    }

    #[test]
    fn clients_get_the_payload_of_their_address_family() {
        for (max_mtu, proxied, remote, expected) in [
            (1500, false, "192.0.2.1:1", None),
            (1500, true, "192.0.2.1:1", Some(1413)),
            (1440, false, "192.0.2.1:1", Some(1412)),
            (1440, false, "[2001:db8::1]:1", Some(1392)),
            (1440, false, "[::ffff:192.0.2.1]:1", Some(1412)),
            (1280, false, "[2001:db8::1]:1", Some(1232)),
            (1280, true, "[2001:db8::1]:1", Some(1200)),
        ] {
            let size = max_udp_payload_size(max_mtu, proxied, remote.parse().unwrap());
            assert_eq!(size.map(|size| size.as_u64()), expected, "{max_mtu}, {proxied}, {remote}");
        }
    }
}

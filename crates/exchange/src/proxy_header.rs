//! Parses PROXY protocol headers (<https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt>), by which load
//! balancers name the client of a connection (versions 1 and 2) or of a datagram (version 2). Pure.

use litequic_base::proxy_header::{SIGNATURE, proxy_header_len};
use ppp::{v1, v2};
use std::net::SocketAddr;

/// Parses a complete header into source and destination; `Some(None)` for one without addresses: LOCAL, UNKNOWN, and
/// families other than IP. `None` if the header is malformed.
pub fn parse_proxy_header(header: &[u8]) -> Option<Option<(SocketAddr, SocketAddr)>> {
    let addresses = if header.starts_with(SIGNATURE) {
        let header = v2::Header::try_from(header).ok().filter(|parsed| parsed.as_bytes().len() == header.len())?;
        match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(ip)) => v1::Addresses::Tcp4(ip),
            (v2::Command::Proxy, v2::Addresses::IPv6(ip)) => v1::Addresses::Tcp6(ip),
            _ => v1::Addresses::Unknown,
        }
    } else {
        v1::Header::try_from(header).ok().filter(|parsed| parsed.header.len() == header.len())?.addresses
    };
    Some(match addresses {
        v1::Addresses::Tcp4(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        v1::Addresses::Tcp6(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        v1::Addresses::Unknown => None,
    })
}

/// Splits a datagram that begins with a header of version 2 into the client that the header names, if any, and the
/// rest. `None` if the header is missing or malformed.
pub fn split_proxied_datagram(datagram: &[u8]) -> Option<(Option<SocketAddr>, &[u8])> {
    let (header, rest) = datagram.split_at_checked(proxy_header_len(datagram)?)?;
    Some((parse_proxy_header(header)?.map(|(client, _)| client), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, payload].concat()
    }

    #[test]
    fn a_proxy_header_names_both_addresses_or_none() {
        let ipv4 = [192, 0, 2, 7, 198, 51, 100, 1, 0x11, 0x51, 0x01, 0xbb];
        let mut ipv6 = [0; 36];
        (ipv6[15], ipv6[31], ipv6[33], ipv6[35]) = (1, 2, 80, 90);
        let with_extension = [&ipv4[..], &[0x04, 0, 2, 9, 9]].concat();
        let v4 = Some(Some(("192.0.2.7:4433", "198.51.100.1:443")));
        let said = |text: &'static str| text.as_bytes().to_vec();
        type Said = Option<Option<(&'static str, &'static str)>>;
        let table: [(Vec<u8>, Said); 25] = [
            (said("PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\r\n"), v4),
            (said("PROXY TCP6 2001:db8::7 ::1 1 65535\r\n"), Some(Some(("[2001:db8::7]:1", "[::1]:65535")))),
            (said("PROXY UNKNOWN\r\n"), Some(None)),
            (said("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"), Some(None)),
            (said("PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\n"), None),
            (said("PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\r\nmore"), None),
            (said("PROXY TCP4 192.0.2.7 198.51.100.1 4433\r\n"), None),
            (said("PROXY TCP4 192.0.2.7 198.51.100.1 4433 65536\r\n"), None),
            (said("PROXY TCP4 2001:db8::7 ::1 1 2\r\n"), None),
            (said("PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n"), None),
            (said("PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n"), None),
            (said("proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n"), None),
            (said("PROXY  \r\n"), None),
            (v2(1, 0x11, &ipv4), v4),
            (v2(1, 0x11, &with_extension), v4),
            (v2(1, 0x21, &ipv6), Some(Some(("[::1]:80", "[::2]:90")))),
            (v2(0, 0x11, &ipv4), Some(None)),
            (v2(0, 0x00, &[]), Some(None)),
            (v2(1, 0x00, &[1, 2, 3]), Some(None)),
            (v2(1, 0x31, &[0; 216]), Some(None)),
            (v2(1, 0x11, &ipv4[..11]), None),
            (v2(2, 0x11, &ipv4), None),
            (v2(1, 0x41, &ipv4), None),
            (v2(1, 0x11, &ipv4)[..20].to_vec(), None),
            ([v2(1, 0x11, &ipv4), vec![0]].concat(), None),
        ];
        for (header, expected) in table {
            let expected = expected.map(|said| said.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())));
            assert_eq!(parse_proxy_header(&header), expected, "{}", String::from_utf8_lossy(&header));
        }
    }

    #[test]
    fn a_datagram_is_split_behind_its_own_header() {
        let ipv4 = [192, 0, 2, 7, 198, 51, 100, 1, 0x11, 0x51, 0x01, 0xbb];
        let client = Some("192.0.2.7:4433".parse().unwrap());
        let with_crc = [&ipv4[..], &[0x03, 0, 4, 1, 2, 3, 4]].concat();
        for (header, named) in [
            (v2(1, 0x12, &ipv4), Some(client)),
            (v2(1, 0x12, &with_crc), Some(client)),
            (v2(1, 0x11, &ipv4), Some(client)),
            (v2(0, 0x00, &[]), Some(None)),
            (v2(1, 0x12, &ipv4[..4]), None),
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\r\n".to_vec(), None),
            (Vec::new(), None),
        ] {
            for rest in [&b""[..], b"packet"] {
                let datagram = [&header, rest].concat();
                let split = split_proxied_datagram(&datagram);
                assert_eq!(split, named.map(|client| (client, rest)), "{header:x?}");
            }
            assert_eq!(split_proxied_datagram(&header[..header.len().saturating_sub(1)]), None);
        }
    }

    proptest! {
        #[test]
        fn no_proxy_header_bytes_panic(bytes: Vec<u8>, v1: String, command: u8, family: u8) {
            let _ = (parse_proxy_header(&bytes), split_proxied_datagram(&bytes));
            let _ = parse_proxy_header(format!("PROXY {v1}\r\n").as_bytes());
            let _ = parse_proxy_header(&[b"PROXY ", &bytes[..], b"\r\n"].concat());
            let _ = (parse_proxy_header(&v2(command & 15, family, &bytes)), split_proxied_datagram(&v2(command & 15, family, &bytes)));
        }
    }
}

//! A PROXY protocol header: whatever its content, litequic's result is that of a header encoded anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_exchange::{parse_proxy_header, split_proxied_datagram};
use std::net::SocketAddr;

fuzz_target!(|bytes: &[u8]| {
    if let Some((_, packet)) = split_proxied_datagram(bytes) {
        assert!(bytes.ends_with(packet) && packet.len() < bytes.len());
    }
    let Some(Some((client, local))) = parse_proxy_header(bytes) else { return };
    let family = if matches!(client, SocketAddr::V4(_)) { "TCP4" } else { "TCP6" };
    let line = format!("PROXY {family} {} {} {} {}\r\n", client.ip(), local.ip(), client.port(), local.port());
    assert_eq!(parse_proxy_header(line.as_bytes()), Some(Some((client, local))));
});

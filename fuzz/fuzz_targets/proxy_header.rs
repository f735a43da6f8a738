//! A PROXY protocol header: whatever its content, litequic's result is that of a header encoded anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_tcp::proxy_header_addresses;
use std::net::SocketAddr;

fuzz_target!(|bytes: &[u8]| {
    let Some(Some((client, local))) = proxy_header_addresses(bytes) else { return };
    let family = if matches!(client, SocketAddr::V4(_)) { "TCP4" } else { "TCP6" };
    let line = format!("PROXY {family} {} {} {} {}\r\n", client.ip(), local.ip(), client.port(), local.port());
    assert_eq!(proxy_header_addresses(line.as_bytes()), Some(Some((client, local))));
});

//! Ports for configurations, which take no port 0. Shared with examples/soak.

use std::{
    net::{TcpListener, UdpSocket},
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

/// A free UDP port of 127.0.0.1, for a configuration, which accepts no port 0.
pub(crate) fn free_udp_port() -> u16 {
    free_port(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok())
}

/// The same for TCP.
pub(crate) fn free_tcp_port() -> u16 {
    free_port(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
}

/// Below the ports that the kernel hands out by itself (net.ipv4.ip_local_port_range), so that no other test is given
/// it before litequic binds it; each once, and each run of the tests begins elsewhere.
fn free_port(is_free: impl Fn(u16) -> bool) -> u16 {
    const FIRST: u16 = 15_000;
    const COUNT: u16 = 15_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);

    let begin = u16::try_from(std::process::id() * 64 % u32::from(COUNT)).unwrap();
    (0..COUNT)
        .map(|_| FIRST + (begin + NEXT.fetch_add(1, Relaxed) % COUNT) % COUNT)
        .find(|port| is_free(*port))
        .expect("a port below those that the kernel hands out")
}

//! Sets TCP keepalive (tcp(7)): while nothing is sent, nothing else would notice that the other end is gone.

use socket2::{SockRef, TcpKeepalive};
use std::{io, time::Duration};

/// Idle time before the first probe.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Longest time for which sent bytes stay unacknowledged (TCP_USER_TIMEOUT): as long as the probes take.
const USER_TIMEOUT: Duration = Duration::from_secs(60);

/// Lets the kernel end the connection of `socket` when the other end has not answered for a minute. Accepted
/// connections inherit the probes of a listener.
///
/// # Errors
///
/// The kernel's.
pub fn enable_keepalive(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))
}

/// Lets the kernel end the connection of `socket` when sent bytes have stayed unacknowledged for a minute.
///
/// # Errors
///
/// The kernel's.
pub fn limit_unacknowledged_time(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

//! Sends the datagrams of sd_notify(3) with a bounded wait: a manager that does not read must not block the control
//! thread. libsystemd waits without a bound, and so does `sd_notify::notify`, which does not support abstract addresses
//! either.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// Sends `message` to the address in `NOTIFY_SOCKET`, and waits at most `timeout` for a manager that is behind.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if the queue of the manager's socket (net.unix.max_dgram_qlen) stays full for that
/// time; others of unix(7), such as for an address without a listener.
pub(super) fn send_notification(to: &OsStr, message: &[u8], timeout: Duration) -> io::Result<()> {
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(to),
    };
    let socket = UnixDatagram::unbound()?;
    if timeout.is_zero() {
        socket.set_nonblocking(true)?;
    } else {
        socket.set_write_timeout(Some(timeout))?;
    }
    // A datagram is sent whole or not at all.
    socket.send_to_addr(message, &address?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_reaches_a_path_and_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("litequic test {}", directory.path().display());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let table = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ];
        for (socket, to) in table {
            send_notification(&to, b"READY=1\n", Duration::from_secs(1)).unwrap();
            let mut bytes = [0; 64];
            let len = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"READY=1\n");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_delays_briefly() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let _unread = UnixDatagram::bind(&path).unwrap();
        let tell = |timeout| send_notification(path.as_os_str(), b"WATCHDOG=1\n", timeout);
        let error = (0..1_000_000).find_map(|_| tell(Duration::ZERO).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(tell(Duration::from_millis(1)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn notifying_an_address_without_a_listener_fails() {
        for to in ["/nowhere/notify", "@litequic test: no listener", "", "vsock:2:1234"] {
            assert!(send_notification(to.as_ref(), b"READY=1\n", Duration::ZERO).is_err(), "{to}");
        }
    }
}

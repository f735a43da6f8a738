//! Detects ICMP port unreachable, so that a closed port is reported at once instead of after the timeout.
//!
//! s2n-quic reads its socket's errors, drops them, and publishes them as events of its next turn, which begins with the
//! retransmission timer, a second later. So the same socket is watched through a second descriptor.

use std::{
    io::{self, ErrorKind},
    net::UdpSocket,
};
use tokio::{io::Interest, net};

/// Waits until the kernel reports that the peer of `socket`, which is connected, is unreachable, and returns the error.
/// To be called inside a tokio runtime.
///
/// # Errors
///
/// The socket cannot be duplicated.
pub(super) fn watch_unreachable(socket: &UdpSocket) -> io::Result<impl Future<Output = io::Error> + use<>> {
    let socket = socket.try_clone()?;
    socket.set_nonblocking(true)?;
    let socket = net::UdpSocket::from_std(socket)?;
    Ok(async move {
        loop {
            if let Err(error) = socket.ready(Interest::ERROR).await {
                return error;
            }
            // The first caller gets the error (SO_ERROR in socket(7)). If s2n-quic was first, the error was an
            // unreachable port: no other is reported so early in a connection.
            let error = match socket.take_error() {
                Ok(Some(error)) | Err(error) => error,
                Ok(None) => ErrorKind::ConnectionRefused.into(),
            };
            if is_final(&error) {
                return error;
            }
            // Clear the readiness, or the next wait would end at once.
            let _ = socket.try_io(Interest::ERROR, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        }
    })
}

/// Whether no later packet would change the error, for a client that gives up within seconds. EMSGSIZE is not final: a
/// probe of the path's MTU was too large.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_closed_port_is_reported() {
        let (socket, gone) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.connect(gone.local_addr().unwrap()).unwrap();
        let refused = watch_unreachable(&socket).unwrap();
        drop(gone);
        socket.send(b"a packet").unwrap();
        let error = timeout(Duration::from_secs(30), refused).await.unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_final_errors_end_the_wait() {
        for (errno, expected) in
            [(libc::ECONNREFUSED, true), (libc::EHOSTUNREACH, true), (libc::ENETUNREACH, true), (libc::EMSGSIZE, false)]
        {
            assert_eq!(is_final(&io::Error::from_raw_os_error(errno)), expected, "{errno}");
        }
    }
}

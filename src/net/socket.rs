//! The workers' UDP sockets: one each, all on the same address.

use super::{Steering, sys};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Octets of received datagrams that the kernel keeps for a worker: 2 Gbit/s for 8 ms, in which the worker does
/// something else. The kernel counts its own overhead too, about as much again.
pub(super) const RECEIVE_BUFFER: usize = 2 * 1024 * 1024;
/// Octets of datagrams on their way out: a few GSO trains of a fast connection.
pub(super) const SEND_BUFFER: usize = 2 * 1024 * 1024;

/// Why a listen address cannot be had. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it, or the system does not allow it.
    #[error("cannot listen on UDP {address}: {source}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A group without members, or with more than a connection ID can name.
    #[error("cannot listen on UDP {address}: {workers} workers are not between 1 and 256")]
    Workers {
        /// Which address.
        address: SocketAddr,
        /// How many were wanted.
        workers: usize,
    },
}

/// Binds a socket a worker to `address`, in one SO_REUSEPORT group, by worker. Port 0 becomes one free port for all;
/// `[::]` takes IPv4 too. The sockets do not block.
///
/// The kernel hands each datagram to the worker that `steering` names. A kernel that cannot do so spreads them by its
/// hash, which serves until a client changes its address; that is said in the log once.
///
/// A process of the same user that has the address with SO_REUSEPORT would share it without a word. It is looked for by
/// a bind without that option first. Two processes that start in the same moment may both find the address free.
///
/// # Errors
///
/// [`BindError`].
pub fn bind_group(address: SocketAddr, workers: usize, steering: &Steering) -> Result<Vec<UdpSocket>, BindError> {
    if !(1..=256).contains(&workers) {
        return Err(BindError::Workers { address, workers });
    }
    let failed = |source| BindError::Bind { address, source };

    if address.port() != 0 {
        open(address).and_then(|probe| probe.bind(&address.into())).map_err(failed)?;
    }
    let mut address = address;
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = bind_member(address).map_err(failed)?;
        // The first may have chosen the port.
        address = socket.local_addr().map_err(failed)?;
        sockets.push(socket);
    }
    if workers > 1
        && let Some(first) = sockets.first()
        && let Err(error) = sys::attach_reuseport_cbpf(first, &steering.program())
    {
        tracing::warn!(
            %address, %error,
            "the kernel does not steer packets by connection ID: connections of clients that change their address will end"
        );
    }
    Ok(sockets)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Whatever the system's default (net.ipv6.bindv6only) is.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    Ok(socket)
}

fn bind_member(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    size_buffers(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Asks for the buffers, and says once what the kernel gave instead: it caps them at net.core.rmem_max and wmem_max.
fn size_buffers(socket: &Socket) -> io::Result<()> {
    static SAID: AtomicBool = AtomicBool::new(false);

    let (receive, send) = buffers(socket)?;
    if (receive < RECEIVE_BUFFER || send < SEND_BUFFER) && !SAID.swap(true, Relaxed) {
        tracing::warn!(
            receive,
            send,
            wanted_receive = RECEIVE_BUFFER,
            wanted_send = SEND_BUFFER,
            "the kernel caps the UDP buffers: raise net.core.rmem_max and net.core.wmem_max, or bursts are lost"
        );
    }
    Ok(())
}

/// Asks for the buffers; returns the octets that the kernel gave to receive and to send.
pub(super) fn buffers(socket: &Socket) -> io::Result<(usize, usize)> {
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    // The kernel doubles what it is asked for, to have room for its own overhead (socket(7), SO_RCVBUF).
    Ok((socket.recv_buffer_size()? / 2, socket.send_buffer_size()? / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const WORKERS: u8 = 4;
    const STEERING: Steering = Steering { id_len: 16, worker_offset: 2, workers: WORKERS as u16 };

    fn group(address: &str) -> (Vec<UdpSocket>, u16) {
        let sockets = bind_group(address.parse().unwrap(), WORKERS.into(), &STEERING).unwrap();
        let port = sockets[0].local_addr().unwrap().port();
        (sockets, port)
    }

    /// Which of the sockets gets the next datagram, and what it says.
    fn receive(sockets: &[UdpSocket]) -> (usize, Vec<u8>) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut buffer = [0; 64];
        while Instant::now() < deadline {
            for (index, socket) in sockets.iter().enumerate() {
                if let Ok(len) = socket.recv(&mut buffer) {
                    return (index, buffer[..len].to_vec());
                }
            }
            std::thread::yield_now();
        }
        panic!("no datagram arrived");
    }

    fn short(worker: u8, tag: u8) -> Vec<u8> {
        [&[0x40, 0xef, tag, worker], &[0; 20][..]].concat()
    }

    fn long(first: u8, worker: u8, tag: u8) -> Vec<u8> {
        [&[first, 0, 0, 0, 1, 16, 0xef, tag, worker], &[0; 20][..]].concat()
    }

    /// From several ports, so that the hash would give itself away.
    fn assert_steered(sockets: &[UdpSocket], from: &str, to: &str) {
        for tag in 0..8 {
            let client = UdpSocket::bind(from).unwrap();
            for worker in 0..WORKERS {
                for datagram in [short(worker, tag), long(0xe0, worker, tag)] {
                    client.send_to(&datagram, to).unwrap();
                    assert_eq!(receive(sockets), (usize::from(worker), datagram), "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn a_packet_reaches_the_worker_that_its_connection_id_names_over_ipv4() {
        let (sockets, port) = group("127.0.0.1:0");
        assert_steered(&sockets, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
    }

    #[test]
    fn a_packet_reaches_the_worker_that_its_connection_id_names_over_ipv6() {
        let (sockets, port) = group("[::1]:0");
        assert_steered(&sockets, "[::1]:0", &format!("[::1]:{port}"));
    }

    #[test]
    fn a_dual_stack_group_steers_both_families() {
        let (sockets, port) = group("[::]:0");
        assert_steered(&sockets, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
        assert_steered(&sockets, "[::1]:0", &format!("[::1]:{port}"));
    }

    #[test]
    fn initials_are_spread_by_the_hash_whatever_they_name_and_stay_together() {
        let (sockets, port) = group("127.0.0.1:0");
        let mut seen = [false; WORKERS as usize];
        for tag in 0..64 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut first = None;
            for worker in 0..WORKERS {
                client.send_to(&long(0xc0, worker, tag), ("127.0.0.1", port)).unwrap();
                let (socket, _) = receive(&sockets);
                seen[socket] = true;
                assert_eq!(*first.get_or_insert(socket), socket, "one client, one worker");
            }
        }
        assert_eq!(seen, [true; WORKERS as usize]);
    }

    #[test]
    fn packets_that_name_nobody_still_arrive() {
        let (sockets, port) = group("127.0.0.1:0");
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in [vec![], vec![0x40], vec![0x40, 0], short(200, 0), long(0xe0, 200, 0), vec![0xff; 30]] {
            client.send_to(&datagram, ("127.0.0.1", port)).unwrap();
            assert_eq!(receive(&sockets).1, datagram);
        }
    }

    #[test]
    fn an_address_that_another_group_has_is_refused() {
        let (_sockets, port) = group("127.0.0.1:0");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let error = bind_group(address, 1, &STEERING).unwrap_err();
        assert!(matches!(&error, BindError::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn a_group_has_between_1_and_256_members() {
        for workers in [0, 257] {
            let result = bind_group(([127, 0, 0, 1], 0).into(), workers, &STEERING);
            assert!(matches!(result, Err(BindError::Workers { .. })));
        }
    }
}

//! Opens the workers' UDP sockets, one for each worker at the same address.

use super::{
    steering::{Generation, MAX_GENERATIONS, Steering, SteeringMask},
    sys,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Receive buffer of a worker's socket, bytes: 2 Gbit/s for 8 ms, in which the worker does other work. The kernel's own
/// overhead takes about as much again.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 2 * 1024 * 1024;
/// Send buffer of a worker's socket, bytes: a few GSO trains of a fast connection.
pub(super) const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Error of binding a UDP listen address; the operator's fault.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process is bound to the address, or the system does not allow it.
    #[error("cannot listen on UDP {address}: {source}")]
    Bind {
        /// Address that cannot be bound.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The number of workers is 0, or more than a connection ID can name.
    #[error("cannot listen on UDP {address}: {workers} workers are not between 1 and 256")]
    Workers {
        /// Address that cannot be bound.
        address: SocketAddr,
        /// Requested number of workers.
        workers: usize,
    },
    /// Too many older processes still drain.
    #[error("cannot listen on UDP {address}: {MAX_GENERATIONS} older processes still drain on it")]
    Full {
        /// Address that cannot be bound.
        address: SocketAddr,
    },
    /// The kernel cannot distinguish the processes' connections.
    #[error("cannot share UDP {address} with the previous process: the kernel does not steer datagrams: {source}")]
    Steer {
        /// Address that cannot be shared.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A group of sockets with SO_REUSEPORT at one address, in the order of bind(2), by which the kernel's program counts
/// them. A socket belongs to this process, to an older one that drains, or to no process any more.
///
/// No socket of a group is closed while a process continues without it: the kernel would move the last socket and its
/// datagrams into the empty place. So a process that takes over holds all sockets.
#[derive(Debug)]
pub struct SocketGroup {
    /// Address of the group. The port is the kernel's choice once the group has sockets.
    pub address: SocketAddr,
    /// Sockets of all processes, in the order of bind(2).
    pub sockets: Vec<UdpSocket>,
    /// Sockets of each process that shares the group.
    pub generations: Vec<Generation>,
    /// Whether connection IDs have a server ID, which needs a longer program in the kernel.
    pub with_server_id: bool,
}

impl SocketGroup {
    /// A group without sockets for `address`. Port 0 becomes one free port for all; `[::]` includes IPv4.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, sockets: Vec::new(), generations: Vec::new(), with_server_id: false }
    }

    /// A group of sockets that another process has bound, in the order of bind(2), with the sockets of each process in
    /// `generations`.
    ///
    /// # Errors
    ///
    /// [`BindError::Bind`] for sockets without an address, [`BindError::Workers`] for no socket.
    pub fn from_sockets(sockets: Vec<UdpSocket>, generations: Vec<Generation>) -> Result<Self, BindError> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let failed = |address| move |source| BindError::Bind { address, source };
        let Some(first) = sockets.first() else { return Err(BindError::Workers { address: unknown, workers: 0 }) };
        let address = first.local_addr().map_err(failed(unknown))?;
        for socket in &sockets {
            prepare_socket(&SockRef::from(socket)).map_err(failed(address))?;
        }
        Ok(Self { address, sockets, generations, with_server_id: false })
    }

    /// Adds the process of generation `number`, and returns a socket for each of its `workers`: sockets that belong to
    /// no process any more, or new ones. The sockets do not block. The kernel passes them nothing before
    /// [`SocketGroup::steer`]; if it does not steer, no process joins a group that others use.
    ///
    /// A socket with SO_REUSEPORT silently shares an address that another process of the same user has, and port 0 may
    /// become the port of such a group. So before the first socket of a group, another one is bound without the option:
    /// if that succeeds, no other group has the address.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn add_process(&mut self, number: u8, workers: usize) -> Result<Vec<UdpSocket>, BindError> {
        let address = self.address;
        if !(1..=256).contains(&workers) {
            return Err(BindError::Workers { address, workers });
        }
        if self.generations.len() >= MAX_GENERATIONS {
            return Err(BindError::Full { address });
        }
        if !self.generations.is_empty() {
            // Otherwise the kernel's hash would pass datagrams of other processes to the new sockets from now on.
            try_steering(address, self.with_server_id).map_err(|source| BindError::Steer { address, source })?;
        }
        let failed = |source| BindError::Bind { address, source };
        let first = find_free_sockets(&self.generations, self.sockets.len(), workers);
        while self.sockets.len() < first + workers {
            let reserved =
                if self.sockets.is_empty() { Some(reserve_address(self.address).map_err(failed)?) } else { None };
            if let Some(reserved) = &reserved {
                self.address = reserved.local_addr().map_err(failed)?;
            }
            let socket = bind_member(self.address).map_err(failed)?;
            // The kernel moves the new socket into the place of the reserved one.
            drop(reserved);
            self.sockets.push(socket);
        }
        self.generations.push(Generation { number, first, workers });
        self.sockets
            .iter()
            .skip(first)
            .take(workers)
            .map(UdpSocket::try_clone)
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    /// Removes the process of generation `number`: its sockets belong to no process any more. To be followed by
    /// [`SocketGroup::steer`].
    pub fn remove_process(&mut self, number: u8) {
        self.generations.retain(|generation| generation.number != number);
    }

    /// Has the kernel pass each datagram to the worker and process that the connection ID names, and new connections to
    /// the process of the `newest` generation.
    ///
    /// # Errors
    ///
    /// The kernel's error if it does not steer. The kernel's hash then distributes datagrams over all sockets, which
    /// works for one process until a client changes its address, and never for two.
    pub fn steer(&self, steering: &Steering, newest: u8) -> io::Result<()> {
        let newest = self.generations.iter().find(|generation| generation.number == newest);
        let ([first, others @ ..], Some(newest)) = (self.sockets.as_slice(), newest) else { return Ok(()) };
        match sys::attach_reuseport_cbpf(first, &steering.steering_program(&self.generations, newest)) {
            // The only socket gets every datagram. A socket that was passed to litequic without SO_REUSEPORT accepts no
            // BPF program, and no second socket.
            Err(_) if others.is_empty() => Ok(()),
            attached => attached,
        }
    }
}

/// Tests on a socket that is never bound whether the kernel steers, for the address family of `address`. With a server
/// ID the longest program of one process is tried, for which the kernel may lack memory (net.core.optmem_max).
///
/// # Errors
///
/// The kernel's error.
pub(super) fn try_steering(address: SocketAddr, with_server_id: bool) -> io::Result<()> {
    let socket = open_udp_socket(address)?;
    socket.set_reuse_port(true)?;
    let mask = with_server_id.then_some(SteeringMask { key: [0; 2], hashed: 1..18 });
    let (first_byte, skips_proxy_header) = ((u8::MAX, 0), true);
    let steering = Steering { id_len: 20, first_byte, issuer_offset: 18, mask, skips_proxy_header };
    let generation = Generation { number: 0, first: 0, workers: 1 };
    sys::attach_reuseport_cbpf(&socket, &steering.steering_program(&[generation], &generation))
}

/// Finds the first of `workers` consecutive sockets that belong to none of `generations`, in a group of `len` sockets
/// that may grow.
fn find_free_sockets(generations: &[Generation], len: usize, workers: usize) -> usize {
    let mut taken: Vec<_> = generations.iter().map(|one| (one.first, one.first + one.workers)).collect();
    taken.sort_unstable();
    let mut at = 0;
    for (first, end) in taken {
        if first.saturating_sub(at) >= workers {
            return at;
        }
        at = at.max(end);
    }
    // Free sockets at the end come first, then new ones.
    at.min(len)
}

fn open_udp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Whatever the system's default (net.ipv6.bindv6only) is.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    Ok(socket)
}

/// Binds a socket to an address that no other socket has, and lets later sockets share it.
fn reserve_address(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open_udp_socket(address)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

/// Binds a socket of a group. With SO_REUSEPORT set before bind(2), even a single socket accepts a BPF program.
fn bind_member(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open_udp_socket(address)?;
    socket.set_reuse_port(true)?;
    prepare_socket(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn prepare_socket(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    size_buffers(socket)
}

/// Requests the buffers, and logs once if the kernel allows less: it caps them at net.core.rmem_max and wmem_max.
fn size_buffers(socket: &Socket) -> io::Result<()> {
    static BUFFER_CAP_LOGGED: AtomicBool = AtomicBool::new(false);

    let (receive, send) = request_buffers(socket)?;
    if (receive < RECEIVE_BUFFER_BYTES || send < SEND_BUFFER_BYTES) && !BUFFER_CAP_LOGGED.swap(true, Relaxed) {
        tracing::warn!(
            receive,
            send,
            wanted_receive = RECEIVE_BUFFER_BYTES,
            wanted_send = SEND_BUFFER_BYTES,
            "the kernel caps the UDP buffers: raise net.core.rmem_max and net.core.wmem_max, or litequic loses \
             datagrams in bursts"
        );
    }
    Ok(())
}

/// Requests the buffers, and returns the allowed bytes for receiving and for sending.
pub(super) fn request_buffers(socket: &Socket) -> io::Result<(usize, usize)> {
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    // The kernel doubles the value for its own overhead (socket(7), SO_RCVBUF).
    Ok((socket.recv_buffer_size()? / 2, socket.send_buffer_size()? / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steering::tests::{masked_layouts, write_named_id};
    use std::{
        collections::HashSet,
        time::{Duration, Instant},
    };

    const WORKERS: u8 = 4;
    const STEERING: Steering =
        Steering { id_len: 16, first_byte: (0xff, 0xef), issuer_offset: 1, mask: None, skips_proxy_header: false };
    const GENERATION: u8 = 7;

    fn bind(address: &str) -> SocketGroup {
        let mut group = SocketGroup::new(address.parse().unwrap());
        group.add_process(GENERATION, WORKERS.into()).unwrap();
        group.steer(&STEERING, GENERATION).unwrap();
        group
    }

    fn group(address: &str) -> (Vec<UdpSocket>, u16) {
        let group = bind(address);
        (group.sockets, group.address.port())
    }

    /// Index of the socket that gets the next datagram, and the datagram's content.
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

    fn short(generation: u8, worker: u8, tag: u8) -> Vec<u8> {
        [&[0x40, 0xef, generation, worker, tag], &[0; 20][..]].concat()
    }

    /// A long-header packet, spread by `tag`.
    fn long(first_byte: u8, generation: u8, worker: u8, tag: u8) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, 16, first_byte, generation, worker, 0, 0, 0, 0, tag], &[0; 20][..]].concat()
    }

    /// Sends from several ports, so that distribution by a hash would be noticed.
    fn assert_steered(sockets: &[UdpSocket], generation: u8, first: usize, from: &str, to: &str) {
        for tag in 0..8 {
            let client = UdpSocket::bind(from).unwrap();
            for worker in 0..WORKERS {
                for datagram in [short(generation, worker, tag), long(0xef, generation, worker, tag)] {
                    client.send_to(&datagram, to).unwrap();
                    assert_eq!(receive(sockets), (first + usize::from(worker), datagram), "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn a_packet_reaches_the_worker_that_its_connection_id_names_over_ipv4() {
        let (sockets, port) = group("127.0.0.1:0");
        assert_steered(&sockets, GENERATION, 0, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
    }

    #[test]
    fn a_packet_reaches_the_worker_that_its_connection_id_names_over_ipv6() {
        let (sockets, port) = group("[::1]:0");
        assert_steered(&sockets, GENERATION, 0, "[::1]:0", &format!("[::1]:{port}"));
    }

    #[test]
    fn a_dual_stack_group_steers_both_families() {
        let (sockets, port) = group("[::]:0");
        assert_steered(&sockets, GENERATION, 0, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
        assert_steered(&sockets, GENERATION, 0, "[::1]:0", &format!("[::1]:{port}"));
    }

    #[test]
    fn first_packets_are_spread_by_the_id_that_the_client_chose() {
        let (sockets, port) = group("127.0.0.1:0");
        for tag in 0..64 {
            // The client's port makes no difference.
            for _ in 0..2 {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.send_to(&long(0xaa, GENERATION, 0, tag), ("127.0.0.1", port)).unwrap();
                assert_eq!(receive(&sockets).0, usize::from(tag % WORKERS));
            }
        }
    }

    #[test]
    fn packets_without_a_known_id_still_arrive() {
        let (sockets, port) = group("127.0.0.1:0");
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let named = [short(GENERATION, 200, 0), short(1, 0, 0), long(0xef, GENERATION, 200, 0)];
        for datagram in named.into_iter().chain([vec![], vec![0x40], vec![0x40, 0], vec![0xff; 30]]) {
            client.send_to(&datagram, ("127.0.0.1", port)).unwrap();
            assert_eq!(receive(&sockets).1, datagram);
        }
    }

    #[test]
    fn the_newest_process_gets_new_connections_and_each_keeps_its_own() {
        let mut group = bind("127.0.0.1:0");
        let to = format!("127.0.0.1:{}", group.address.port());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let first_packets = |group: &SocketGroup, expected: usize| {
            for tag in 0..8 {
                client.send_to(&long(0xaa, 0, 0, tag), &to).unwrap();
                assert_eq!(receive(&group.sockets).0, expected + usize::from(tag % WORKERS));
            }
        };

        group.add_process(8, WORKERS.into()).unwrap();
        // Nothing changes before the program is replaced.
        first_packets(&group, 0);
        group.steer(&STEERING, 8).unwrap();
        first_packets(&group, 4);
        assert_steered(&group.sockets, GENERATION, 0, "127.0.0.1:0", &to);
        assert_steered(&group.sockets, 8, 4, "127.0.0.1:0", &to);

        // The first process has ended, and a third takes its sockets.
        group.remove_process(GENERATION);
        group.steer(&STEERING, 8).unwrap();
        client.send_to(&short(GENERATION, 0, 0), &to).unwrap();
        assert!(receive(&group.sockets).0 >= 4);
        group.add_process(9, WORKERS.into()).unwrap();
        assert_eq!(group.sockets.len(), 8);
        group.steer(&STEERING, 9).unwrap();
        first_packets(&group, 0);
        assert_steered(&group.sockets, 8, 4, "127.0.0.1:0", &to);
        assert_steered(&group.sockets, 9, 0, "127.0.0.1:0", &to);
    }

    #[test]
    fn a_new_process_gets_the_first_sockets_that_are_enough() {
        let generation = |(first, workers)| Generation { number: 0, first, workers };
        /// First socket and number of sockets of each process; sockets of the group; workers of the new process;
        /// expected first socket.
        type Row = (&'static [(usize, usize)], usize, usize, usize);
        let table: &[Row] = &[
            (&[], 0, 4, 0),
            (&[], 8, 4, 0),
            (&[(0, 4)], 4, 4, 4),
            (&[(4, 4)], 8, 4, 0),
            (&[(4, 4)], 8, 2, 0),
            (&[(4, 4)], 8, 5, 8),
            (&[(8, 2), (0, 4)], 10, 4, 4),
            (&[(8, 2), (0, 4)], 10, 5, 10),
            (&[(0, 4)], 6, 4, 4),
        ];
        for (taken, len, workers, expected) in table {
            let taken: Vec<_> = taken.iter().copied().map(generation).collect();
            assert_eq!(find_free_sockets(&taken, *len, *workers), *expected, "{taken:?} {workers}");
        }
    }

    #[test]
    fn a_group_rejects_more_than_the_largest_number_of_processes() {
        let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
        for number in 0..MAX_GENERATIONS {
            group.add_process(u8::try_from(number).unwrap(), 1).unwrap();
        }
        assert!(matches!(group.add_process(200, 1), Err(BindError::Full { .. })));
        group.steer(&STEERING, 0).unwrap(); // This program is the longest possible.
    }

    #[test]
    fn ids_with_a_server_id_steer_between_two_processes_under_any_rotation() {
        for steering in masked_layouts() {
            let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
            group.add_process(GENERATION, WORKERS.into()).unwrap();
            group.add_process(8, WORKERS.into()).unwrap();
            group.steer(&steering, 8).unwrap();
            let to = ("127.0.0.1", group.address.port());
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            for n in 0..=u8::MAX {
                let (generation, worker) = (if n & 4 == 0 { GENERATION } else { 8 }, n % WORKERS);
                let first = if n & 4 == 0 { 0 } else { usize::from(WORKERS) };
                let mut id = vec![n; steering.id_len.into()];
                write_named_id(&steering, n % 7, generation, worker, &mut id);
                let short = [&[0x41], &*id, &[n; 20]].concat();
                let long = [&[0xc0, 0, 0, 0, 1, steering.id_len], &*id, &[n; 20]].concat();
                for datagram in [short, long] {
                    client.send_to(&datagram, to).unwrap();
                    assert_eq!(receive(&group.sockets), (first + usize::from(worker), datagram));
                }
            }
        }
    }

    #[test]
    fn the_kernel_takes_the_longest_program_for_ids_with_a_server_id() {
        let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
        for number in 0..MAX_GENERATIONS {
            group.add_process(u8::try_from(number).unwrap(), 1).unwrap();
        }
        let [.., longest] = masked_layouts();
        group.steer(&longest, 0).unwrap();
        try_steering(([127, 0, 0, 1], 0).into(), true).unwrap();
    }

    #[test]
    fn an_address_that_another_group_has_is_refused() {
        let (_sockets, port) = group("127.0.0.1:0");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let error = SocketGroup::new(address).add_process(0, 1).unwrap_err();
        assert!(matches!(&error, BindError::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    /// One process with one worker, while another one joins that must not get datagrams yet.
    #[test]
    fn the_old_worker_gets_everything_until_the_new_one_is_steered_to() {
        let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
        let to = {
            group.add_process(GENERATION, 1).unwrap();
            group.steer(&STEERING, GENERATION).unwrap();
            format!("127.0.0.1:{}", group.address.port())
        };
        let everything = |group: &SocketGroup, first: usize, own: u8| {
            for tag in 0..32 {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                for (datagram, expected) in [(short(own, 0, tag), 0), (long(0xaa, 0, 0, tag), first)] {
                    client.send_to(&datagram, &to).unwrap();
                    assert_eq!(receive(&group.sockets), (expected, datagram));
                }
            }
        };
        everything(&group, 0, GENERATION);
        group.add_process(8, 1).unwrap();
        everything(&group, 0, GENERATION);
        group.steer(&STEERING, 8).unwrap();
        everything(&group, 1, GENERATION);
    }

    #[test]
    fn groups_at_port_0_share_no_port() {
        let group = |_| {
            let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
            group.add_process(0, 1).unwrap();
            group
        };
        let groups: Vec<_> = (0..600).map(group).collect();
        let ports: HashSet<_> = groups.iter().map(|group| group.address.port()).collect();
        assert_eq!(ports.len(), groups.len());
    }

    #[test]
    fn a_process_has_between_1_and_256_members() {
        for workers in [0, 257] {
            let result = SocketGroup::new(([127, 0, 0, 1], 0).into()).add_process(0, workers);
            assert!(matches!(result, Err(BindError::Workers { .. })));
        }
    }
}

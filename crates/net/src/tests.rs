//! Tests both halves over loopback, inside a runtime, for each backend.

use super::{Backend, OpenSocket, SocketOptions, uring};
use crate::{
    datagram::{NetworkPath, OutgoingBatch, Receive, Transmit},
    metrics::SocketMetrics,
};
use futures_util::poll;
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    convert::Infallible,
    env,
    future::poll_fn,
    io::Write as _,
    net::{SocketAddr, UdpSocket},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Wake},
    time::Duration,
};
use tokio::time::timeout;

const OPTIONS: SocketOptions = SocketOptions { backend: Backend::Epoll, receive_batch: 4, gso: true, gro: true };
const DEADLINE: Duration = Duration::from_secs(5);

/// [`OPTIONS`] for each available backend.
fn backends() -> Vec<SocketOptions> {
    let mut all = vec![OPTIONS];
    match uring::check_io_uring() {
        Ok(()) => all.push(SocketOptions { backend: Backend::IoUring, ..OPTIONS }),
        Err(refusal) => {
            assert!(env::var_os("LITEQUIC_REQUIRE").is_none(), "LITEQUIC_REQUIRE is set, but {refusal}");
            let _ = writeln!(std::io::stderr(), "skipped: io_uring: {refusal}");
        }
    }
    all
}

struct Socket {
    open: OpenSocket,
    address: SocketAddr,
    metrics: Arc<SocketMetrics>,
}

fn socket(options: SocketOptions) -> Socket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let (address, metrics) = (socket.local_addr().unwrap(), Arc::<SocketMetrics>::default());
    let open = OpenSocket::new(socket, options, Arc::clone(&metrics)).unwrap();
    assert_eq!(open.backend, options.backend);
    Socket { open, address, metrics }
}

impl Socket {
    fn path_to(&self, remote: SocketAddr) -> NetworkPath {
        Tuple {
            remote_address: SocketAddress::from(remote).into(),
            local_address: SocketAddress::from(self.address).into(),
        }
        .into()
    }

    /// Sends `count` numbered datagrams of `len` bytes, in as few messages as possible.
    fn send(&mut self, remote: SocketAddr, count: u8, len: usize) {
        let path = self.path_to(remote);
        let mut outgoing = OutgoingBatch::new(1472);
        outgoing.limit_segments(self.open.sender.max_segments());
        for n in 0..count {
            let write = |room: &mut [u8]| {
                room[..len].fill(n);
                Ok::<_, Infallible>(len)
            };
            let Ok(_) = match outgoing.joinable_message() {
                Some(_) => outgoing.join_message(write),
                None => outgoing.begin_message(path, Ecn::Ect0, true, write),
            };
        }
        self.open.sender.transmit(&mut outgoing);
        assert!(outgoing.is_empty());
    }

    /// The datagrams of the next batch: sender, codepoint, length, first byte.
    async fn batch(&mut self) -> Vec<(SocketAddr, Ecn, usize, u8)> {
        let receiver = &mut self.open.receiver;
        let count = timeout(DEADLINE, poll_fn(|cx| receiver.poll_batch(cx))).await.unwrap().unwrap();
        let datagram = |index| {
            let (header, payload) = receiver.datagram(index).unwrap();
            (header.path.destination(), header.ecn, payload.len(), payload[0])
        };
        (0..count).map(datagram).collect()
    }

    /// System calls for datagrams.
    fn calls(&self) -> u64 {
        let SocketMetrics { syscalls_recvmmsg, syscalls_sendmmsg, syscalls_io_uring_enter, .. } = &*self.metrics;
        syscalls_recvmmsg.get() + syscalls_sendmmsg.get() + syscalls_io_uring_enter.get()
    }
}

#[tokio::test]
async fn joined_datagrams_are_handed_over_one_by_one_with_their_path() {
    for options in backends() {
        let (mut one, mut other) = (socket(options), socket(options));
        one.send(other.address, 10, 1200);
        let expected: Vec<_> = (0..10).map(|n| (one.address, Ecn::Ect0, 1200, n)).collect();
        assert_eq!(other.batch().await, expected);
        assert_eq!((one.metrics.gso_messages.get(), one.metrics.gso_segments.get()), (1, 10));
        assert_eq!((one.metrics.datagrams_sent.get(), one.metrics.datagram_bytes_sent.get()), (10, 12_000));
        assert_eq!((other.metrics.receive_messages.get(), other.metrics.datagrams_received.get()), (1, 10));
        assert_eq!(other.metrics.datagram_bytes_received.get(), 12_000);
    }
}

#[tokio::test]
async fn gso_and_gro_can_each_be_switched_off() {
    for options in backends() {
        for (gso, gro, messages_sent, messages_received) in [(false, true, 3, 3), (true, false, 1, 3)] {
            let mut one = socket(SocketOptions { gso, ..options });
            let mut other = socket(SocketOptions { gro, ..options });
            one.send(other.address, 3, 500);
            let mut all = Vec::new();
            while all.len() < 3 {
                all.extend(other.batch().await);
            }
            assert_eq!(all.iter().map(|datagram| datagram.3).collect::<Vec<_>>(), [0, 1, 2]);
            assert_eq!(one.metrics.send_messages.get(), messages_sent);
            assert_eq!(other.metrics.receive_messages.get(), messages_received);
        }
    }
}

#[tokio::test]
async fn a_short_batch_is_not_followed_by_a_call_that_finds_nothing() {
    for options in backends() {
        let (mut one, mut other) = (socket(options), socket(options));
        for round in 1..=3 {
            one.send(other.address, 1, 100);
            assert_eq!(other.batch().await.len(), 1);
            assert_eq!(other.open.receiver.is_drained(), options.backend == Backend::Epoll);
            assert!(poll!(pin!(poll_fn(|cx| other.open.receiver.poll_batch(cx)))).is_pending());
            assert_eq!(other.calls(), round);
        }
    }
}

#[tokio::test]
async fn a_waiting_socket_is_woken_by_each_datagram() {
    for options in backends() {
        let mut other = socket(options);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..200 {
            // Every other time a datagram is sent meanwhile, which the kernel may use as an occasion to receive.
            if n % 2 == 0 {
                other.send(client.local_addr().unwrap(), 1, 9);
            }
            let (address, client) = (other.address, client.try_clone().unwrap());
            let batch = other.batch();
            let mut batch = pin!(batch);
            assert!(poll!(&mut batch).is_pending());
            tokio::task::yield_now().await;
            tokio::task::spawn_blocking(move || client.send_to(&[n; 10], address)).await.unwrap().unwrap();
            assert_eq!(batch.await.into_iter().map(|datagram| datagram.3).collect::<Vec<_>>(), [n]);
        }
    }
}

/// A waker that records a wake.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[tokio::test]
async fn a_send_that_completes_a_receive_wakes_the_reader() {
    for options in backends().into_iter().filter(|options| options.backend == Backend::IoUring) {
        let mut other = socket(options);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let woken = Arc::<Woken>::default();
        let waker = Arc::clone(&woken).into();
        assert!(other.open.receiver.poll_batch(&mut Context::from_waker(&waker)).is_pending());
        other.send(client.local_addr().unwrap(), 1, 9);
        assert!(!woken.0.load(Relaxed), "nothing came");
        client.send_to(&[7; 10], other.address).unwrap();
        other.send(client.local_addr().unwrap(), 1, 9);
        assert!(woken.0.load(Relaxed));
        assert_eq!(other.batch().await.len(), 1);
    }
}

#[tokio::test]
async fn a_full_batch_is_followed_by_the_rest() {
    for options in backends() {
        let mut one = socket(SocketOptions { gso: false, ..options });
        let mut other = socket(options);
        one.send(other.address, 9, 100);
        let mut seen = Vec::new();
        for expected in [4, 4, 1] {
            let batch = other.batch().await;
            assert_eq!(batch.len(), expected);
            seen.extend(batch.into_iter().map(|datagram| datagram.3));
        }
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        assert_eq!(other.metrics.receive_batches.get(), 3);
    }
}

#[tokio::test]
async fn a_truncated_datagram_is_dropped_and_counted() {
    for options in backends() {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut other = socket(SocketOptions { gro: false, ..options });
        client.send_to(&[1; 3000], other.address).unwrap();
        client.send_to(b"", other.address).unwrap();
        client.send_to(&[2; 1000], other.address).unwrap();
        let expected = [(client.local_addr().unwrap(), Ecn::NotEct, 1000, 2)];
        let mut seen = Vec::new();
        while seen.is_empty() {
            seen = other.batch().await;
        }
        assert_eq!(seen, expected);
        assert_eq!(other.metrics.datagrams_dropped_truncated.get(), 1);
    }
}

#[tokio::test]
async fn a_datagram_without_a_route_delays_no_other() {
    for options in backends() {
        let (mut one, mut other) = (socket(options), socket(options));
        // Port 0 is no address to send to: EINVAL, which GSO could be blamed for.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        one.send(nowhere, 3, 100);
        one.send(other.address, 2, 100);
        assert_eq!(other.batch().await.len(), 2);
        assert_eq!(one.metrics.datagrams_dropped_refused.get(), 3);
        assert_eq!(one.metrics.io_degraded_gso_einval.get(), 0);
        assert_eq!(one.open.sender.max_segments(), 64);
    }
}

#[tokio::test]
async fn a_socket_without_free_buffers_continues_and_loses_nothing() {
    for options in backends() {
        let mut one = socket(SocketOptions { gso: false, ..options });
        let mut other = socket(SocketOptions { gro: false, ..options });
        let mut seen = Vec::new();
        for round in 0..20 {
            one.send(other.address, 60, 100);
            for _ in 0..60 / 4 {
                seen.extend(other.batch().await.into_iter().map(|datagram| datagram.3));
            }
            assert_eq!(seen, (0..60).collect::<Vec<_>>(), "{:?}, round {round}", options.backend);
            seen.clear();
        }
        let rearmed = other.metrics.receive_rearmed_buffers.get();
        assert_eq!(rearmed > 0, options.backend == Backend::IoUring, "{rearmed}");
        assert_eq!(other.metrics.receive_rearmed_other.get(), 0);
    }
}

#[tokio::test]
async fn datagrams_that_arrive_during_a_send_need_no_further_call() {
    for options in backends().into_iter().filter(|options| options.backend == Backend::IoUring) {
        let (mut one, mut other) = (socket(options), socket(options));
        one.send(other.address, 3, 100);
        other.send(one.address, 1, 100);
        let before = other.calls();
        assert_eq!(other.batch().await.len(), 3);
        assert_eq!(other.calls(), before);
    }
}

#[tokio::test]
async fn a_dropped_socket_releases_its_address() {
    for options in backends() {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut address = None;
        for _ in 0..20 {
            let socket = UdpSocket::bind(address.unwrap_or(([127, 0, 0, 1], 0).into())).unwrap();
            socket.set_nonblocking(true).unwrap();
            let local = socket.local_addr().unwrap();
            let mut open = OpenSocket::new(socket, options, Arc::default()).unwrap();
            for n in 0..30 {
                client.send_to(&[n; 100], local).unwrap();
            }
            let receiver = &mut open.receiver;
            timeout(DEADLINE, poll_fn(|cx| receiver.poll_batch(cx))).await.unwrap().unwrap();
            client.send_to(&[9; 100], local).unwrap();
            address = Some(local);
        }
    }
}

#[tokio::test]
async fn either_half_may_go_first() {
    for options in backends() {
        let (one, mut other) = (socket(options), socket(options));
        let Socket { open: OpenSocket { mut receiver, sender, .. }, address, .. } = one;
        drop(sender);
        other.send(address, 2, 100);
        let count = timeout(DEADLINE, poll_fn(|cx| receiver.poll_batch(cx))).await.unwrap().unwrap();
        assert!(count > 0);

        let (mut one, Socket { open: OpenSocket { receiver, mut sender, .. }, address, .. }) =
            (socket(options), socket(options));
        drop(receiver);
        let path = Tuple {
            remote_address: SocketAddress::from(one.address).into(),
            local_address: SocketAddress::from(address).into(),
        }
        .into();
        let mut outgoing = OutgoingBatch::new(1472);
        let Ok(_) = outgoing.begin_message(path, Ecn::Ect0, true, |room| {
            room[..9].fill(5);
            Ok::<_, Infallible>(9)
        });
        sender.transmit(&mut outgoing);
        assert_eq!(one.batch().await, [(address, Ecn::Ect0, 9, 5)]);
    }
}

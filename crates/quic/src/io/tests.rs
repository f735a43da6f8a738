//! Tests the packets that s2n-quic gets, and their times, over a socket that is a list.

use super::{
    EndpointHooks,
    moderation::Moderation,
    receive::{MAX_BATCHES_AFTER_SUSPENSION, MAX_OPENINGS_AT_ONCE, Rx},
    transmit::Tx,
};
use crate::{identity::IdLayout, metrics::QuicMetrics};
use futures_util::poll;
use litequic_base::timers;
use litequic_net::datagram::{DatagramHeader, NetworkPath, OutgoingBatch, Receive, Transmit};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddressV4},
    io::{
        rx::{Queue as _, Rx as _},
        tx::{self, Queue as _, Tx as _},
    },
    path::Tuple,
};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

fn path(port: u16) -> NetworkPath {
    Tuple {
        remote_address: SocketAddressV4::new([127, 0, 0, 1], port).into(),
        local_address: SocketAddressV4::new([127, 0, 0, 1], 443).into(),
    }
    .into()
}

/// A socket that always has the same datagrams.
struct Endless {
    buffers: Vec<Vec<u8>>,
    batches: Arc<AtomicUsize>,
    /// Source port of each datagram, by its index.
    port: fn(usize) -> u16,
    /// The socket claims to be empty after each batch.
    drained: bool,
}

fn off() -> Moderation {
    Moderation::new(false, Arc::default())
}

fn ports(index: usize) -> u16 {
    index.try_into().unwrap()
}

impl Receive for Endless {
    fn poll_batch(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.batches.fetch_add(1, Relaxed);
        Poll::Ready(Ok(self.buffers.len()))
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        self.batches.fetch_add(1, Relaxed);
        Ok(self.buffers.len())
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])> {
        let header = DatagramHeader { path: path((self.port)(index)), ecn: Ecn::Ce };
        self.buffers.get_mut(index).map(|buffer| (header, buffer.as_mut_slice()))
    }
}

fn endless(drained: bool) -> (Rx<Endless>, Arc<AtomicUsize>) {
    let batches = Arc::default();
    let buffers = [1, 2, 3].map(|byte| vec![byte; 4]).to_vec();
    (rx(Endless { buffers, batches: Arc::clone(&batches), port: ports, drained }, true), batches)
}

fn rx(endless: Endless, newest_first: bool) -> Rx<Endless> {
    Rx::new(endless, EndpointHooks { layout: IdLayout::default(), newest_first, moderation: off(), proxied: None })
}

/// Last bytes of the datagrams that a socket with `buffers` hands over, in order.
async fn handed_over(buffers: &[Vec<u8>], newest_first: bool) -> Vec<u8> {
    let endless = Endless { buffers: buffers.to_vec(), batches: Arc::default(), port: |_| 1, drained: false };
    let mut rx = rx(endless, newest_first);
    poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
    let mut seen = Vec::new();
    rx.queue(|batch| batch.for_each(|_, payload| seen.extend(payload.last())));
    seen
}

#[tokio::test]
async fn ack_merge_hands_over_the_newest_small_datagrams_first() {
    let short = |id: u8, len: usize, byte: u8| [&[0x41], &[id; 16][..], &vec![0; len], &[byte]].concat();
    let buffers = [short(1, 20, 0), short(2, 1200, 1), short(1, 20, 2), vec![0xc0; 3], short(1, 20, 4)];
    assert_eq!(handed_over(&buffers, true).await, [4, 2, 0, 1, 0xc0]);
    assert_eq!(handed_over(&buffers, false).await, [0, 1, 2, 0xc0, 4]);
}

#[tokio::test]
async fn each_batch_has_a_number_of_its_own() {
    let batches = off();
    let hooks =
        EndpointHooks { layout: IdLayout::default(), newest_first: true, moderation: batches.clone(), proxied: None };
    let endless = Endless { buffers: vec![vec![1; 4]], batches: Arc::default(), port: ports, drained: false };
    let mut rx = Rx::new(endless, hooks);
    for number in 1..4 {
        // Every other poll yields.
        while poll!(pin!(rx.ready())).is_pending() {}
        rx.queue(|batch| batch.for_each(|_, _| assert_eq!(batches.current_batch(), number)));
        rx.queue(|batch| batch.for_each(|_, _| panic!("twice")));
        assert_eq!(batches.current_batch(), number);
    }
}

#[tokio::test]
async fn datagrams_without_a_connection_keep_the_order_of_arrival() {
    let (mut rx, _) = endless(false);
    poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
    let mut seen = Vec::new();
    rx.queue(|batch| {
        assert!(!batch.is_empty());
        batch.for_each(|header, payload| seen.push((header.path, header.ecn, payload.to_vec())));
        assert!(batch.is_empty());
        batch.for_each(|_, _| panic!("twice"));
    });
    let expected = [1, 2, 3].map(|n: u8| (path(u16::from(n) - 1), Ecn::Ce, vec![n; 4]));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn many_requests_of_a_batch_are_handed_over_in_parts() {
    let len = usize::from(MAX_OPENINGS_AT_ONCE) * 5 / 2;
    let half = usize::from(MAX_OPENINGS_AT_ONCE) / 2;
    for (drained, opens, suspended, pieces) in [
        (true, true, false, vec![2 * half, 2 * half, half]),
        (false, true, false, vec![2 * half, 2 * half, half]),
        (true, false, false, vec![len]),
        (true, true, true, vec![len]),
    ] {
        let (moderation, batches) = (off(), Arc::new(AtomicUsize::new(0)));
        let hooks = EndpointHooks {
            layout: IdLayout::default(),
            newest_first: true,
            moderation: moderation.clone(),
            proxied: None,
        };
        let buffers = (0..len).zip(0..).map(|(_, byte)| vec![byte; 4]).collect();
        let mut rx = Rx::new(Endless { buffers, batches: Arc::clone(&batches), port: ports, drained }, hooks);
        if suspended {
            timers::simulate_suspension();
        }
        let (mut seen, mut handed_over) = (Vec::new(), Vec::new());
        for _ in 0..pieces.len() {
            if !seen.is_empty() {
                assert!(poll!(pin!(rx.ready())).is_pending(), "a turn for others");
            }
            poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
            let before = seen.len();
            rx.queue(|batch| {
                batch.for_each(|_, payload| {
                    seen.extend(payload.last().copied());
                    moderation.count_urgent();
                    if opens {
                        moderation.count_opening();
                    }
                });
            });
            handed_over.push(seen.len() - before);
            assert_eq!((batches.load(Relaxed), moderation.current_batch()), (1, 1));
        }
        assert_eq!(handed_over, pieces, "drained: {drained}");
        assert!(seen.into_iter().eq((0..len).zip(0..).map(|(_, byte)| byte)));
        let _ = poll!(pin!(rx.ready()));
        assert_eq!(batches.load(Relaxed), if drained { 2 } else { 1 }, "who is not drained owes a turn: {drained}");
    }
}

/// One task receives batch after batch from a socket that never runs dry; another counts its own turns.
#[tokio::test]
async fn other_tasks_have_a_turn_after_each_batch() {
    let (mut rx, batches) = endless(false);
    let mut endpoint = tokio::spawn(async move {
        for _ in 0..50 {
            poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
            rx.queue(|batch| batch.for_each(|_, _| ()));
        }
    });
    let mut before = 0;
    let mut turns = 0;
    while poll!(&mut endpoint).is_pending() {
        let now = batches.load(Relaxed);
        assert!(now <= before + 1, "{} batches without a turn for others", now - before);
        before = now;
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns >= 49, "{turns}");
}

/// A timer that expired during a suspension must not end a connection whose packet is in the second batch.
#[tokio::test]
async fn after_a_suspension_all_queued_datagrams_are_handed_over_at_once() {
    for (suspended, drained, expected) in
        [(false, false, 1), (true, true, 1), (true, false, 1 + MAX_BATCHES_AFTER_SUSPENSION)]
    {
        let (mut rx, batches) = endless(drained);
        if suspended {
            timers::simulate_suspension();
        }
        poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
        let mut seen = 0;
        rx.queue(|batch| batch.for_each(|_, _| seen += 1));
        assert_eq!((batches.load(Relaxed), seen), (expected, 3 * expected), "{suspended} {drained}");
    }
}

#[tokio::test]
async fn a_socket_that_was_drained_is_waited_for_at_once() {
    for (drained, asked) in [(false, 1), (true, 2)] {
        let (mut rx, batches) = endless(drained);
        poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
        rx.queue(|batch| batch.for_each(|_, _| ()));
        let _ = poll!(pin!(rx.ready()));
        assert_eq!(batches.load(Relaxed), asked, "drained: {drained}");
    }
}

/// A socket at which a datagram arrives each millisecond, for a while.
struct Steady {
    began: Instant,
    lasts: Duration,
    taken: u64,
    next: Pin<Box<Sleep>>,
}

impl Receive for Steady {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            match self.take_batch()? {
                0 if self.began.elapsed() >= self.lasts => return Poll::Pending,
                0 => self.next.as_mut().reset(self.began + Duration::from_millis(self.taken + 1)),
                len => return Poll::Ready(Ok(len)),
            }
            ready!(self.next.as_mut().poll(cx));
        }
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        let arrived = u64::try_from(self.began.elapsed().min(self.lasts).as_millis()).unwrap();
        let len = arrived - std::mem::replace(&mut self.taken, arrived);
        Ok(usize::try_from(len).unwrap())
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn datagram(&mut self, _: usize) -> Option<(DatagramHeader, &mut [u8])> {
        Some((DatagramHeader { path: path(1), ecn: Ecn::NotEct }, &mut []))
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_socket_is_read_at_fixed_times_until_nothing_arrives() {
    const LASTS: Duration = Duration::from_millis(400);
    for (switch, moderations, datagrams_of_the_last) in [(true, 1, 2), (false, 0, 1)] {
        let metrics = Arc::<QuicMetrics>::default();
        let moderation = Moderation::new(switch, Arc::clone(&metrics));
        let began = Instant::now();
        let socket = Steady { began, lasts: LASTS, taken: 0, next: Box::pin(sleep_until(began)) };
        let hooks = EndpointHooks {
            layout: IdLayout::default(),
            newest_first: true,
            moderation: moderation.clone(),
            proxied: None,
        };
        let mut rx = Rx::new(socket, hooks);
        let (mut all, mut last) = (0, 0);
        while began.elapsed() < LASTS {
            poll_fn(|cx| rx.poll_ready(cx)).await.unwrap();
            last = 0;
            rx.queue(|batch| batch.for_each(|_, _| last += 1));
            all += last;
            moderation.count_path(Duration::from_millis(6));
        }
        assert_eq!((all, last), (LASTS.as_millis(), datagrams_of_the_last), "{switch}");
        assert_eq!(metrics.receive_moderations.get(), moderations, "{switch}");
        assert_eq!(moderation.period().is_zero(), !switch);
        let silence = tokio::time::timeout(LASTS, poll_fn(|cx| rx.poll_ready(cx))).await;
        assert!(silence.is_err(), "{switch}");
        assert!(moderation.period().is_zero(), "it waits for events again");
    }
}

/// A socket that appends messages to a list, until it is stopped.
#[derive(Clone, Default)]
struct Kernel {
    /// Port, number of datagrams and bytes of each message.
    sent: Arc<Mutex<Vec<(u16, usize, usize)>>>,
    full: Arc<AtomicBool>,
    no_gso: bool,
}

impl Transmit for Kernel {
    fn max_segments(&self) -> usize {
        if self.no_gso { 1 } else { 64 }
    }

    fn transmit(&mut self, outgoing: &mut OutgoingBatch) {
        let left = if self.full.load(Relaxed) { 1 } else { 0 };
        let count = outgoing.messages().len() - left;
        for message in &outgoing.messages()[..count] {
            let port = message.path.addresses.remote_address.port();
            self.sent.lock().unwrap().push((port, message.count, message.len));
        }
        outgoing.remove_messages(count);
    }

    fn poll_writable(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.full.load(Relaxed) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

/// A packet of `len` bytes that may join others of its size.
struct Packet {
    path: NetworkPath,
    ecn: Ecn,
    len: usize,
}

impl tx::Message for Packet {
    type Handle = NetworkPath;

    fn path_handle(&self) -> &NetworkPath {
        &self.path
    }

    fn ecn(&mut self) -> Ecn {
        self.ecn
    }

    fn delay(&mut self) -> Duration {
        Duration::ZERO
    }

    fn ipv6_flow_label(&mut self) -> u32 {
        0
    }

    fn can_gso(&self, segment_len: usize, _: usize) -> bool {
        segment_len >= self.len
    }

    fn write_payload(&mut self, mut buffer: tx::PayloadBuffer<'_>, _: usize) -> Result<usize, tx::Error> {
        buffer.write(&vec![7; self.len])
    }
}

fn packet(port: u16, len: usize) -> Packet {
    Packet { path: path(port), ecn: Ecn::Ect0, len }
}

/// A packet of 100 bytes to each of `ports`.
fn push<const N: usize>(tx_socket: &mut Tx<Kernel>, ports: [u16; N]) {
    tx_socket.queue(|queue| {
        for port in ports {
            queue.push(packet(port, 100)).unwrap();
        }
    });
}

#[test]
fn packets_of_one_connection_path_size_and_codepoint_are_one_message() {
    let kernel = Kernel::default();
    let mut tx_socket = Tx::new(kernel.clone(), 1472, None);
    tx_socket.queue(|queue| {
        for len in [1200, 1200, 300, 1200] {
            queue.push(packet(1, len)).unwrap();
        }
        // These have another path, then another codepoint.
        queue.push(packet(2, 1200)).unwrap();
        queue.push(Packet { ecn: Ecn::NotEct, ..packet(2, 1200) }).unwrap();
        // This is another connection on the same path.
        queue.flush();
        queue.push(Packet { ecn: Ecn::NotEct, ..packet(2, 1200) }).unwrap();
    });
    let sent = kernel.sent.lock().unwrap().clone();
    assert_eq!(sent, [(1, 3, 2700), (1, 1, 1200), (2, 1, 1200), (2, 1, 1200), (2, 1, 1200)]);
}

#[test]
fn without_gso_each_packet_is_a_message() {
    let kernel = Kernel { no_gso: true, ..Kernel::default() };
    let mut tx_socket = Tx::new(kernel.clone(), 1472, None);
    push(&mut tx_socket, [1, 1, 1]);
    assert_eq!(*kernel.sent.lock().unwrap(), [(1, 1, 100); 3]);
}

#[tokio::test]
async fn an_endpoint_with_more_to_send_yields_to_other_tasks() {
    let kernel = Kernel::default();
    let mut tx_socket = Tx::new(kernel.clone(), 1472, None);
    let mut pushed = 0;
    tx_socket.queue(|queue| {
        while queue.has_capacity() {
            queue.push(packet(1, 1472)).unwrap();
            pushed += 1;
        }
        assert!(matches!(queue.push(packet(1, 1472)), Err(tx::Error::AtCapacity)));
    });
    let sent: usize = kernel.sent.lock().unwrap().iter().map(|(_, count, _)| count).sum();
    assert_eq!(sent, pushed);
    assert_eq!(*kernel.sent.lock().unwrap(), [(1, 44, 44 * 1472); 4], "a turn is several batches, none cut short");
    // The first poll yields, the second is ready, and no further one is.
    assert!(poll!(pin!(tx_socket.ready())).is_pending());
    assert!(poll!(pin!(tx_socket.ready())).is_ready());
    assert!(poll!(pin!(tx_socket.ready())).is_pending());
}

#[tokio::test]
async fn blocked_datagrams_leave_first() {
    let kernel = Kernel::default();
    let mut tx_socket = Tx::new(kernel.clone(), 1472, None);
    kernel.full.store(true, Relaxed);
    push(&mut tx_socket, [1, 2]);
    assert_eq!(*kernel.sent.lock().unwrap(), [(1, 1, 100)]);
    tx_socket.queue(|queue| {
        assert!(!queue.has_capacity());
        assert!(matches!(queue.push(packet(3, 100)), Err(tx::Error::AtCapacity)));
    });
    assert!(poll!(pin!(tx_socket.ready())).is_pending());

    kernel.full.store(false, Relaxed);
    assert!(poll!(pin!(tx_socket.ready())).is_ready());
    push(&mut tx_socket, [3]);
    let ports: Vec<u16> = kernel.sent.lock().unwrap().iter().map(|(port, ..)| *port).collect();
    assert_eq!(ports, [1, 2, 3]);
}

#[test]
fn a_packet_that_writes_nothing_is_an_error_and_leaves_nothing() {
    let kernel = Kernel::default();
    let mut tx_socket = Tx::new(kernel.clone(), 1472, None);
    let mut error = None;
    tx_socket.queue(|queue| error = queue.push(packet(1, 0)).err());
    assert_eq!(error, Some(tx::Error::EmptyPayload));
    assert_eq!(*kernel.sent.lock().unwrap(), []);
}

//! A client on the same machine, whose socket has the size that the kernel gives without a request, and that reads in
//! turns: what is in flight waits there.

use crate::support::prelude::*;
use bytes::Buf as _;
use quinn::{
    AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use socket2::SockRef;
use std::{
    io::{self, IoSliceMut},
    net::UdpSocket,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
    thread,
};

/// Bytes of receive buffer without a request, as distributions have it (net.core.rmem_default).
const BUFFER: usize = 212_992;
/// Datagrams after which the client sleeps.
const TURN: u64 = 100;
/// How long the client sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// A socket whose reader sleeps after each [`TURN`] datagrams.
#[derive(Debug)]
struct PausingSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    received: AtomicU64,
}

impl AsyncUdpSocket for PausingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(messages)) = received {
            let datagrams: usize = meta.iter().take(messages).map(|meta| meta.len.div_ceil(meta.stride.max(1))).sum();
            let before = self.received.fetch_add(datagrams as u64, Relaxed);
            if before / TURN < (before + datagrams as u64) / TURN {
                thread::sleep(PAUSE);
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// The client sleeps on a thread of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_in_turns_loses_few_datagrams() {
    // So many that what is lost before the first loss shows the size of the socket is a small part.
    const BYTES: usize = 120_000_000;
    let litequic = Litequic::demo(|_| {}).await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // The kernel doubles what is requested (socket(7)).
    SockRef::from(&socket).set_recv_buffer_size(BUFFER / 2).unwrap();
    assert_eq!(SockRef::from(&socket).recv_buffer_size().unwrap(), BUFFER);
    let inner = TokioRuntime.wrap_udp_socket(socket).unwrap();
    let socket = Arc::new(PausingSocket { inner, received: AtomicU64::new(0) });
    let client = Client::over(Quic::through(socket, &litequic).await, "localhost").await;
    let mut download = client.begin_get("/bytes/120M").await;
    client::header(&mut download).await;
    let mut bytes = 0;
    while let Some(chunk) = within("the body", download.recv_data()).await.unwrap() {
        bytes += chunk.remaining();
    }
    assert_eq!(bytes, BYTES);
    let (sent, lost) =
        (litequic.sum(|worker| worker.quic.packets_sent.get()), litequic.sum(|worker| worker.quic.packets_lost.get()));
    assert!(lost * 200 <= sent, "{lost} of {sent} packets were lost: more than half a percent");
    litequic.stop().await;
}

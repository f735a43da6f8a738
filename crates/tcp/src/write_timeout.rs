//! Limits the time of a connection's writes. A client that reads nothing for `timeouts.send`, or fewer bytes a second
//! than `limits.min_rate`, counts as gone.

use super::{
    connection_writes::{ConnectionWrites, OpenResponse, WriteState},
    first_records::FirstRecords,
    queue_limit::QueueLimit,
    tcp_worker::TcpTransportFn,
};
use crate::tcp_metrics::TcpMetrics;
use bytes::{Buf as _, BytesMut};
use litequic_exchange::{ClientDeadline, MinimumRate, TimeoutCause};
use litequic_resources::connections::TrafficCounter;
use socket2::SockRef;
use std::{
    io::{self, IoSlice},
    net::Shutdown,
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Largest number of collected bytes: those of a TLS record (RFC 8446 §5.1).
const MAX_COLLECTED: usize = 16 * 1024;

/// The socket of a client, with or without TLS.
pub(super) trait ClientSocket {
    /// Returns the number of accepted bytes that the kernel does not have. TLS queues up to 64 KiB, overhead included.
    fn unsent_bytes(&mut self) -> u64;

    /// Returns the file descriptor of the socket, if there is one.
    fn socket_descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Whether written bytes become TLS records.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Limits the bytes that the kernel accepts and has not sent: it sends them before all later ones.
    fn limit_unsent(&self, _bytes: u32) {}

    /// Ends the writing side without close_notify, so that a cut-off response does not look complete (RFC 8446 §6.1).
    fn end_writes(&self);
}

impl ClientSocket for TcpStream {
    fn socket_descriptor(&self) -> Option<RawFd> {
        Some(self.as_raw_fd())
    }

    fn unsent_bytes(&mut self) -> u64 {
        0
    }

    fn limit_unsent(&self, bytes: u32) {
        // An error means that the client is gone.
        let _ = SockRef::from(self).set_tcp_notsent_lowat(bytes);
    }

    fn end_writes(&self) {
        // An error means that the client is gone.
        let _ = SockRef::from(self).shutdown(Shutdown::Write);
    }
}

impl ClientSocket for TlsStream<TcpStream> {
    fn socket_descriptor(&self) -> Option<RawFd> {
        self.get_ref().0.socket_descriptor()
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn unsent_bytes(&mut self) -> u64 {
        let (_, session) = self.get_mut();
        if !session.wants_write() {
            return 0;
        }
        // All received bytes were processed before; this call only returns the number of queued bytes.
        session.process_new_packets().map_or(u64::MAX, |state| state.tls_bytes_to_write() as u64)
    }

    fn limit_unsent(&self, bytes: u32) {
        self.get_ref().0.limit_unsent(bytes);
    }

    fn end_writes(&self) {
        self.get_ref().0.end_writes();
    }
}

/// A stream with a deadline and accounting for its writes.
pub(super) struct WriteTimeout<S, R: OpenResponse> {
    stream: S,
    first_records: FirstRecords,
    /// Small writes that are passed on together, in one record and one system call.
    collected: BytesMut,
    /// If responses are sent by their priorities: the limit of queued bytes, and the source of reports about the path.
    queue_limit: Option<(QueueLimit, TcpTransportFn)>,
    deadline: ClientDeadline,
    writes: Rc<ConnectionWrites<R>>,
    /// Counts bytes that are read or written.
    motion: TrafficCounter,
    metrics: Arc<TcpMetrics>,
}

impl<S: ClientSocket, R: OpenResponse> WriteTimeout<S, R> {
    pub(super) fn new(
        stream: S,
        pace: MinimumRate,
        writes: Rc<ConnectionWrites<R>>,
        motion: TrafficCounter,
        metrics: Arc<TcpMetrics>,
    ) -> Self {
        writes.socket.set(stream.socket_descriptor());
        let first_records = FirstRecords::new(stream.is_encrypted());
        let (collected, deadline) = (BytesMut::new(), ClientDeadline::new(pace));
        Self { stream, first_records, collected, queue_limit: None, deadline, writes, motion, metrics }
    }

    /// Limits the queued bytes of responses to some milliseconds on the path that `transport` reports.
    pub(super) fn with_queue_limit(mut self, transport: TcpTransportFn) -> Self {
        self.queue_limit = Some((QueueLimit::new(), transport));
        self.update_queue_limit(0);
        self
    }

    /// Counts `bytes` that were written, and measures the path now and then.
    fn update_queue_limit(&mut self, bytes: u64) {
        let Some((limit, transport)) = self.queue_limit.as_mut() else { return };
        if !limit.count_queued_write(bytes) {
            return;
        }
        let Some(socket) = self.stream.socket_descriptor() else { return };
        let bytes = limit.update_limit(&transport(socket));
        if self.writes.queue_limit.replace(bytes) != bytes {
            self.stream.limit_unsent(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Flushes TLS on a slow path. Pending as long as the kernel does not have all bytes that TLS has accepted, which
    /// could be up to 64 KiB.
    fn poll_flush_queue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        if self.queue_limit.as_ref().is_some_and(|(limit, _)| limit.is_below_max()) && self.stream.unsent_bytes() > 0 {
            return Pin::new(&mut self.stream).poll_flush(cx);
        }
        Poll::Ready(Ok(()))
    }

    /// Collects `slices` if that is wanted, and they are small. Not while TLS holds bytes, so that a slow client makes
    /// h2 wait as without this step.
    fn collect_write(&mut self, slices: &[IoSlice<'_>]) -> bool {
        let length = slices.iter().fold(self.collected.len(), |sum, slice| sum.saturating_add(slice.len()));
        if !self.writes.collects.get() || length > MAX_COLLECTED || self.stream.unsent_bytes() > 0 {
            return false;
        }
        if self.collected.capacity() < length {
            self.collected.reserve(MAX_COLLECTED - self.collected.len());
        }
        slices.iter().for_each(|slice| self.collected.extend_from_slice(slice));
        self.writes.has_collected.set(true);
        true
    }

    /// Passes `slices` to the stream. Pending as `poll_flush_queue` is.
    fn poll_write_slices(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        ready!(self.poll_flush_queue(cx))?;
        let stream = Pin::new(&mut self.stream);
        let written = ready!(self.first_records.limit_write(slices, |slices| stream.poll_write_vectored(cx, slices)))?;
        self.first_records.count_written(written);
        Poll::Ready(Ok(written))
    }

    /// Passes the collected bytes on.
    fn poll_write_collected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        while !self.collected.is_empty() {
            let mut collected = std::mem::take(&mut self.collected);
            let written = self.poll_write_slices(cx, &[IoSlice::new(&collected)]);
            if let Poll::Ready(Ok(written)) = written {
                collected.advance(written);
            }
            self.collected = collected;
            if ready!(self.check_deadline(written, |bytes| *bytes, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        if self.writes.has_collected.replace(false) {
            // Memory that idle connections do not need.
            self.collected = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Applies the deadline to the result `written` of an operation. `bytes` returns the number of bytes that were
    /// written.
    fn check_deadline<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        self.writes.write.set(if written.is_pending() { WriteState::Blocked } else { WriteState::Done });
        if self.writes.has_waiting() {
            let unsent = self.unsent_bytes();
            self.writes.complete_written(unsent);
        }
        if let Poll::Ready(result) = written {
            let bytes = result.as_ref().map_or(0, |result| bytes(result) as u64);
            if bytes > 0 {
                self.motion.count_sent(bytes);
                self.update_queue_limit(bytes);
            }
            self.deadline.on_progress(bytes);
            return Poll::Ready(result);
        }
        self.deadline.poll_wait(cx).map(|late| {
            match late {
                TimeoutCause::Idle => self.metrics.shared.timeout_send.increment(),
                TimeoutCause::Slow => self.metrics.shared.limit_download_rate.increment(),
            }
            self.writes.write.set(WriteState::Stalled);
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl<S: ClientSocket, R: OpenResponse> ClientSocket for WriteTimeout<S, R> {
    fn unsent_bytes(&mut self) -> u64 {
        self.stream.unsent_bytes().saturating_add(self.collected.len() as u64)
    }

    fn end_writes(&self) {
        self.writes.closing.set(true);
        self.stream.end_writes();
    }
}

impl<S, R: OpenResponse> Drop for WriteTimeout<S, R> {
    fn drop(&mut self) {
        // Once the socket is closed, its descriptor may be that of another file.
        self.writes.socket.set(None);
        self.writes.on_connection_gone();
    }
}

impl<S: AsyncRead + Unpin, R: OpenResponse> AsyncRead for WriteTimeout<S, R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        let bytes = out.filled().len().saturating_sub(before);
        if bytes > 0 {
            self.motion.count_received(bytes as u64);
        }
        read
    }
}

impl<S: AsyncWrite + ClientSocket + Unpin, R: OpenResponse> AsyncWrite for WriteTimeout<S, R> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.collect_write(slices) {
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            this.writes.on_bytes_accepted(slices, bytes);
            return Poll::Ready(Ok(bytes));
        }
        ready!(this.poll_write_collected(cx))?;
        let written = this.poll_write_slices(cx, slices);
        if let Poll::Ready(Ok(written)) = written {
            this.writes.on_bytes_accepted(slices, written);
        }
        this.check_deadline(written, |bytes| *bytes, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writes.collects.get() && !self.collected.is_empty() {
            // h2 flushes after each DATA frame.
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_write_collected(cx))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.writes.on_flushed();
        }
        self.check_deadline(flushed, |()| 0, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writes.closing.set(true);
        ready!(self.poll_write_collected(cx))?;
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        if let Poll::Ready(Ok(())) = shut {
            self.writes.on_shut_down();
        }
        self.check_deadline(shut, |()| 0, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2_frames::frame_bytes;
    use futures_util::FutureExt as _;
    use std::{cell::Cell, time::Duration};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    impl ClientSocket for DuplexStream {
        fn unsent_bytes(&mut self) -> u64 {
            0
        }

        fn end_writes(&self) {}
    }

    /// Writes to a client that reads `bytes` a second. Returns the time until the client counted as gone, and the
    /// counters of both causes.
    async fn write(bytes: usize, pace: MinimumRate) -> (u64, u64, u64) {
        let (ours, mut theirs) = duplex(1_000);
        let metrics = Arc::new(TcpMetrics::default());
        let writes = Rc::new(ConnectionWrites::<()>::new(Arc::clone(&metrics)));
        let mut timed =
            WriteTimeout::new(ours, pace, Rc::clone(&writes), TrafficCounter::default(), Arc::clone(&metrics));
        let read = async {
            let mut buffer = vec![0; bytes];
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        };
        let began = tokio::time::Instant::now();
        let given_up = tokio::select! {
            written = async { loop { if let Err(error) = timed.write_all(&[0; 100]).await { break error } } } => written,
            () = read => return (100, 0, 0),
        };
        assert_eq!((given_up.kind(), writes.is_stalled()), (io::ErrorKind::TimedOut, true));
        (began.elapsed().as_secs(), metrics.shared.timeout_send.get(), metrics.shared.limit_download_rate.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_or_too_slowly_times_out() {
        let pace = MinimumRate { idle_timeout: Duration::from_secs(30), rate: 200, grace: Duration::from_secs(20) };
        assert_eq!(write(1_000, pace).await, (100, 0, 0));
        // 1,000 bytes are taken at once, and last for five seconds more.
        let (seconds, stalled, slow) = write(100, pace).await;
        assert!((45..=55).contains(&seconds) && (stalled, slow) == (0, 1), "{seconds}, {stalled}, {slow}");
        assert_eq!(write(1, MinimumRate::without_rate(Duration::from_secs(30))).await, (100, 0, 0));
        assert_eq!(write(0, MinimumRate::without_rate(Duration::from_secs(30))).await, (30, 1, 0));
    }

    #[tokio::test]
    async fn small_writes_are_collected_and_count_once_the_kernel_has_them() {
        struct Told(Rc<Cell<usize>>);
        impl OpenResponse for Told {
            fn complete_response(self) {
                self.0.set(self.0.get() + 1);
            }
        }

        let (ours, mut theirs) = duplex(1_000);
        let (metrics, complete) = (Arc::new(TcpMetrics::default()), Rc::new(Cell::new(0)));
        let writes = Rc::new(ConnectionWrites::new(Arc::clone(&metrics)));
        writes.expect_frames();
        let pace = MinimumRate::without_rate(Duration::from_secs(30));
        let mut timed = WriteTimeout::new(ours, pace, Rc::clone(&writes), TrafficCounter::default(), metrics);
        let mut received = vec![0; 20_000];
        writes.collects.set(true);
        for stream in [1_u8, 3, 5] {
            writes.open_stream(stream.into());
            writes.queue_response_end(stream.into(), Told(Rc::clone(&complete)));
            timed.write_all(&frame_bytes(0, 1, stream, 500)).await.unwrap();
            timed.flush().await.unwrap();
        }
        assert_eq!((timed.unsent_bytes(), complete.get()), (3 * 509, 0));
        assert!(theirs.read(&mut received).now_or_never().is_none() && writes.has_collected.get());
        // The kernel takes less than all.
        writes.collects.set(false);
        assert!(timed.flush().now_or_never().is_none());
        assert_eq!((timed.unsent_bytes(), complete.get(), writes.is_blocked()), (527, 1, true));
        assert_eq!(theirs.read(&mut received).await.unwrap(), 1_000);
        timed.flush().await.unwrap();
        assert_eq!((theirs.read(&mut received).await.unwrap(), complete.get()), (527, 3));
        assert!(!writes.has_collected.get() && timed.collected.capacity() == 0);
        // A large write follows what was collected before it.
        writes.collects.set(true);
        timed.write_all(b"small").await.unwrap();
        let large = vec![7; MAX_COLLECTED];
        let writing = async {
            timed.write_all(&large).await.unwrap();
            writes.collects.set(false);
            timed.flush().await.unwrap();
        };
        let ((), read) =
            tokio::join!(writing, async { theirs.read_exact(&mut received[..5 + MAX_COLLECTED]).await.unwrap() });
        assert_eq!((read, &received[..5], &received[5..read]), (5 + MAX_COLLECTED, &b"small"[..], &large[..]));
        // Nothing is left behind at the end.
        writes.collects.set(true);
        timed.write_all(b"last").await.unwrap();
        timed.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut received).await.unwrap(), 4);
    }
}

//! Reads messages that the kernel has received meanwhile, and splits them into datagrams.

use super::super::{
    datagram_splitter::{DatagramSlice, DatagramSplitter},
    receive_errors::MAX_RECEIVE_ERRORS,
    sys::{GRO_MESSAGE_LEN, MultishotReceive, PLAIN_MESSAGE_LEN, Ring, UringError},
};
use crate::{
    datagram::{DatagramHeader, Receive},
    metrics::SocketMetrics,
};
use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::unix::AsyncFd;

/// Receiving half of a socket with the io_uring backend.
pub struct UringReceiver {
    /// Readable when the kernel has received messages, if its events are enabled.
    event: AsyncFd<OwnedFd>,
    local: SocketAddr,
    batch: MultishotReceive,
    cut: DatagramSplitter,
    errors: u32,
    metrics: Arc<SocketMetrics>,
}

impl UringReceiver {
    pub(crate) fn new(
        ring: Ring,
        local: SocketAddr,
        receive_batch: u16,
        gro: bool,
        metrics: Arc<SocketMetrics>,
    ) -> Result<Self, UringError> {
        let messages = usize::from(receive_batch.max(1));
        Ok(Self {
            event: ring.register_events().map_err(UringError::in_step("epoll_ctl"))?,
            local,
            batch: MultishotReceive::new(ring, messages, if gro { GRO_MESSAGE_LEN } else { PLAIN_MESSAGE_LEN })?,
            cut: DatagramSplitter::new(local, messages, Arc::clone(&metrics)),
            errors: 0,
            metrics,
        })
    }

    /// Counts an error. Fails once too many came in a row; a single one may pass.
    fn on_receive_error(&mut self, error: io::Error) -> io::Result<()> {
        self.errors += 1;
        if self.errors >= MAX_RECEIVE_ERRORS { Err(error) } else { Ok(()) }
    }

    /// Takes a batch of received datagrams, and returns their number; `None` if none has arrived.
    fn take_datagrams(&mut self) -> io::Result<Option<usize>> {
        loop {
            let taken = self.batch.take_messages()?;
            self.metrics.syscalls_io_uring_enter.increment_by(taken.calls);
            match taken.ended {
                None => {}
                Some(libc::ENOBUFS) => self.metrics.receive_rearmed_buffers.increment(),
                Some(_) => self.metrics.receive_rearmed_other.increment(),
            }
            if taken.messages == 0 {
                return match taken.ended {
                    None => Ok(None),
                    // The next call restarts the receive.
                    Some(0 | libc::ENOBUFS) => continue,
                    Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                };
            }
            let datagrams = self.cut.split_batch(taken.messages, |message| self.batch.batch_message(message));
            if datagrams > 0 {
                return Ok(Some(datagrams));
            }
        }
    }
}

impl Receive for UringReceiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            match self.take_datagrams() {
                Ok(Some(datagrams)) => {
                    self.errors = 0;
                    self.batch.disable_events();
                    return Poll::Ready(Ok(datagrams));
                }
                // Datagrams may have arrived before events were enabled: look once more.
                Ok(None) if self.batch.enable_events(cx.waker()) => {}
                // Every later arrival is an event of its own (edge-triggered, epoll(7)). The runtime learns of events
                // when it polls, so none can come between the look above and here.
                Ok(None) => ready!(self.event.poll_read_ready(cx))?.clear_ready(),
                Err(error) => self.on_receive_error(error)?,
            }
        }
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        // Events are enabled only while `poll_batch` waits.
        match self.take_datagrams() {
            Ok(datagrams) => {
                self.errors = 0;
                Ok(datagrams.unwrap_or(0))
            }
            Err(error) => self.on_receive_error(error).map(|()| 0),
        }
    }

    /// Always false: the kernel continues to receive.
    fn is_drained(&self) -> bool {
        false
    }

    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])> {
        let DatagramSlice { header, message, range } = self.cut.get(index)?;
        Some((header, self.batch.payload_mut(message, range)?))
    }
}

litequic_base::partial_debug!(UringReceiver { local });

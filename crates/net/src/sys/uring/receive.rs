//! The receiving half of a ring: messages as recvmsg(2) has them, in buffers that the kernel picked.

use super::super::{
    address::Name,
    control::{CONTROL_LEN, Said},
    mmsg::Arrived,
};
use super::UringError;
use super::buffers::{Buffers, MAX_BUFFERS};
use super::message_buffer::{HEADER, NAME, OUT};
use super::ring::{Filled, Ring};
use std::{io, mem::size_of, ops::Range, task::Waker};

/// A batch of received messages, and the memory for it and for what the kernel receives meanwhile.
pub(crate) struct MultishotReceive {
    ring: Ring,
    pub(super) buffers: Buffers,
    room: usize,
    batch: Vec<Filled>,
}

/// What [`MultishotReceive::receive`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MultishotOutcome {
    /// Messages that it took.
    pub(crate) messages: usize,
    /// System calls that it made.
    pub(crate) calls: u64,
    /// Why the receive had ended, if it has to begin anew: an errno, or 0.
    pub(crate) ended: Option<i32>,
}

impl MultishotReceive {
    /// Has `ring` receive `messages` messages of `message_len` bytes at once, and as many more while those are looked
    /// at.
    ///
    /// # Errors
    ///
    /// The kernel is too old, or short of memory.
    pub(crate) fn new(ring: Ring, messages: usize, message_len: usize) -> Result<Self, UringError> {
        let mut buffers = Buffers::new(buffer_count(messages), HEADER + message_len);
        let mut inner = ring.lock();
        buffers.register(&inner).map_err(UringError::Buffers)?;
        inner.arm();
        drop(inner);
        let mut receive = Self { ring, buffers, room: messages, batch: Vec::with_capacity(messages) };
        receive.begin().map(|()| receive)
    }

    /// Submits the receive, which fails at once if it cannot be done at all.
    fn begin(&mut self) -> Result<(), UringError> {
        let mut inner = self.ring.lock();
        inner.enter(0).map_err(UringError::Enter)?;
        inner.collect();
        match inner.ended {
            Some(error) if error < 0 && error != -libc::ENOBUFS => {
                Err(UringError::Receive(io::Error::from_raw_os_error(-error)))
            }
            _ => Ok(()),
        }
    }

    /// Takes the messages that the kernel has received, in place of the last batch, without waiting. If there are none,
    /// the ring is readable when there are.
    ///
    /// # Errors
    ///
    /// Those of io_uring_enter(2). The batch is empty then.
    pub(crate) fn receive(&mut self) -> io::Result<MultishotOutcome> {
        for filled in self.batch.drain(..) {
            self.buffers.provide(filled.buffer);
        }
        self.buffers.publish();
        let mut inner = self.ring.lock();
        let mut calls = 0;
        inner.collect();
        if inner.received.is_empty() {
            if !inner.armed {
                inner.arm();
            }
            if inner.is_worth_a_call() {
                calls = 1;
                inner.enter(0)?;
                inner.collect();
            }
        }
        let messages = inner.received.len().min(self.room);
        self.batch.extend(inner.received.drain(..messages));
        Ok(MultishotOutcome { messages, calls, ended: inner.ended.take().map(|result| result.min(0).saturating_neg()) })
    }

    /// Enables events of the kernel for received messages, and wakes `waker` when a send finds one. True if they were
    /// disabled before: then there may be something already.
    pub(crate) fn listen(&mut self, waker: &Waker) -> bool {
        let mut inner = self.ring.lock();
        match &mut inner.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let before = inner.listening;
        inner.listen(true);
        !before
    }

    /// Disables the kernel's events: the caller polls by itself.
    pub(crate) fn rest(&mut self) {
        self.ring.lock().listen(false);
    }

    /// The kernel's description of message `index` of the batch.
    pub(crate) fn arrived(&self, index: usize) -> Option<Arrived> {
        let filled = self.batch.get(index)?;
        let buffer = self.buffers.get(filled.buffer)?;
        let word = |n: usize| buffer.get(n * 4..n * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let [name_len, control_len, payload_len, flags] = [word(0)?, word(1)?, word(2)?, word(3)?];
        let name = Name::from_bytes(buffer.get(OUT..OUT + size_of::<Name>())?.try_into().ok()?);
        let control = buffer.get(OUT + NAME..OUT + NAME + usize::try_from(control_len).ok()?.min(CONTROL_LEN))?;
        let said = Said::read_slice(control);
        let len = usize::try_from(payload_len).ok()?.min(filled.len.saturating_sub(HEADER));
        Some(Arrived {
            remote: name.address(name_len),
            local: said.local,
            ecn: said.ecn,
            len,
            segment: said.segment.map_or(len, usize::from),
            truncated: flags.cast_signed() & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        })
    }

    /// The bytes `range` of message `index` of the batch.
    pub(crate) fn bytes_mut(&mut self, index: usize, range: Range<usize>) -> Option<&mut [u8]> {
        let filled = self.batch.get(index)?;
        if HEADER + range.end > filled.len {
            return None;
        }
        self.buffers.get_mut(filled.buffer)?.get_mut(HEADER + range.start..HEADER + range.end)
    }
}

impl Drop for MultishotReceive {
    fn drop(&mut self) {
        self.buffers.release(&mut self.ring.lock());
    }
}

/// Completions that receiving `messages` messages at once may bring before they are read.
pub(crate) fn completions(messages: usize) -> usize {
    buffer_count(messages) + 1
}

fn buffer_count(messages: usize) -> usize {
    (2 * messages.max(1)).next_power_of_two().min(MAX_BUFFERS)
}

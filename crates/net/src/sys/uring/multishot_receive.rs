//! Receives messages by a ring, as recvmsg(2) has them, in buffers that the kernel picked.

use super::{
    super::{
        control::{CONTROL_LEN, ControlValues},
        mmsg::KernelMessage,
        raw_address::RawAddress,
    },
    buffer_layout::{ADDRESS_ROOM, BUFFER_HEADER_LEN, RECVMSG_OUT_LEN},
    provided_buffers::{MAX_BUFFERS, ProvidedBuffers},
    ring::{FilledBuffer, Ring},
    uring_error::UringError,
};
use std::{io, mem::size_of, ops::Range, task::Waker};

/// Receiving half of a ring: the last batch of messages, and buffers for messages that the kernel receives meanwhile.
pub(crate) struct MultishotReceive {
    ring: Ring,
    pub(super) buffers: ProvidedBuffers,
    room: usize,
    batch: Vec<FilledBuffer>,
}

/// Result of [`MultishotReceive::take_messages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MultishotOutcome {
    /// Number of messages in the batch.
    pub(crate) messages: usize,
    /// Number of system calls made.
    pub(crate) calls: u64,
    /// Errno, or 0, with which the receive had ended; `None` if it continues.
    pub(crate) ended: Option<i32>,
}

impl MultishotReceive {
    /// Has `ring` receive batches of at most `messages` messages of `message_len` bytes. As many more are received
    /// while a batch is processed.
    ///
    /// # Errors
    ///
    /// The kernel is too old, or has no memory.
    pub(crate) fn new(ring: Ring, messages: usize, message_len: usize) -> Result<Self, UringError> {
        let mut buffers = ProvidedBuffers::new(buffer_count(messages), BUFFER_HEADER_LEN + message_len);
        let mut inner = ring.0.lock();
        buffers.register_buffers(&inner).map_err(UringError::in_step("io_uring_register, buffer ring"))?;
        inner.arm_receive();
        drop(inner);
        let mut receive = Self { ring, buffers, room: messages, batch: Vec::with_capacity(messages) };
        receive.submit_receive().map(|()| receive)
    }

    /// Submits the receive. An unsupported one fails at once.
    fn submit_receive(&mut self) -> Result<(), UringError> {
        let mut inner = self.ring.0.lock();
        inner.enter_kernel(0).map_err(UringError::in_step("io_uring_enter"))?;
        inner.collect_completions();
        match inner.ended {
            Some(error) if error < 0 && error != -libc::ENOBUFS => {
                Err(UringError::Step("multishot recvmsg", io::Error::from_raw_os_error(-error)))
            }
            _ => Ok(()),
        }
    }

    /// Takes the messages that the kernel has received, in place of the last batch, without waiting. If there is none,
    /// the ring becomes readable with the next, if events are enabled.
    ///
    /// # Errors
    ///
    /// The error of io_uring_enter(2). The batch is empty then.
    pub(crate) fn take_messages(&mut self) -> io::Result<MultishotOutcome> {
        for filled in self.batch.drain(..) {
            self.buffers.provide_buffer(filled.buffer);
        }
        self.buffers.publish_tail();
        let mut inner = self.ring.0.lock();
        let mut calls = 0;
        inner.collect_completions();
        if inner.received.is_empty() {
            if !inner.armed {
                inner.arm_receive();
            }
            if inner.needs_enter() {
                calls = 1;
                inner.enter_kernel(0)?;
                inner.collect_completions();
            }
        }
        let messages = inner.received.len().min(self.room);
        self.batch.extend(inner.received.drain(..messages));
        Ok(MultishotOutcome { messages, calls, ended: inner.ended.take().map(|result| result.min(0).saturating_neg()) })
    }

    /// Enables the kernel's events for received messages, and wakes `waker` when a send finds a message. True if events
    /// were disabled before: a message may have arrived already.
    pub(crate) fn enable_events(&mut self, waker: &Waker) -> bool {
        let mut inner = self.ring.0.lock();
        match &mut inner.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let before = inner.events_enabled;
        inner.set_events(true);
        !before
    }

    /// Disables the kernel's events for received messages: the caller polls by itself.
    pub(crate) fn disable_events(&mut self) {
        self.ring.0.lock().set_events(false);
    }

    /// The kernel's description of message `index` of the batch.
    pub(crate) fn batch_message(&self, index: usize) -> Option<KernelMessage> {
        let filled = self.batch.get(index)?;
        let buffer = self.buffers.buffer_bytes(filled.buffer)?;
        let word = |n: usize| buffer.get(n * 4..n * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let [name_len, control_len, payload_len, flags] = [word(0)?, word(1)?, word(2)?, word(3)?];
        let name = RawAddress::from_bytes(
            buffer.get(RECVMSG_OUT_LEN..RECVMSG_OUT_LEN + size_of::<RawAddress>())?.try_into().ok()?,
        );
        let control = buffer.get(
            RECVMSG_OUT_LEN + ADDRESS_ROOM
                ..RECVMSG_OUT_LEN + ADDRESS_ROOM + usize::try_from(control_len).ok()?.min(CONTROL_LEN),
        )?;
        let said = ControlValues::read_control_slice(control);
        let len = usize::try_from(payload_len).ok()?.min(filled.len.saturating_sub(BUFFER_HEADER_LEN));
        Some(KernelMessage {
            remote: name.decode_address(name_len),
            local: said.local,
            interface: said.interface,
            ecn: said.ecn,
            len,
            segment: said.segment.map_or(len, usize::from),
            truncated: flags.cast_signed() & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        })
    }

    /// The bytes `range` of message `index` of the batch.
    pub(crate) fn payload_mut(&mut self, index: usize, range: Range<usize>) -> Option<&mut [u8]> {
        let filled = self.batch.get(index)?;
        if BUFFER_HEADER_LEN + range.end > filled.len {
            return None;
        }
        self.buffers
            .buffer_bytes_mut(filled.buffer)?
            .get_mut(BUFFER_HEADER_LEN + range.start..BUFFER_HEADER_LEN + range.end)
    }
}

impl Drop for MultishotReceive {
    fn drop(&mut self) {
        self.buffers.release_buffers(&mut self.ring.0.lock());
    }
}

/// Largest number of completions that a receive of batches of `messages` messages may have before they are read.
pub(crate) fn max_completions(messages: usize) -> usize {
    buffer_count(messages) + 1
}

fn buffer_count(messages: usize) -> usize {
    (2 * messages.max(1)).next_power_of_two().min(MAX_BUFFERS)
}

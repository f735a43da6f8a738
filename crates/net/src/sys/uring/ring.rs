//! Creates the ring of one socket, and sends by it.
//!
//! Invariants that every `SAFETY` below relies on:
//! - The kernel reads a send's header when it consumes the entry, before the call that submits the entry returns, and
//!   the payload in its only attempt, within the same call (MSG_DONTWAIT). [`Ring::submit_sends`] returns when all have
//!   completed: none is ever in flight beyond. Headers of entries that the kernel did not consume stay at their
//!   addresses, and are invalid for the kernel (`SendBatch::invalidate_headers`).
//! - The kernel writes into a receive buffer from the moment it is provided until a completion names it, and then not
//!   before it is provided again. The buffers' memory outlives their registration, or is never freed.

use super::{
    super::mmsg::{MAX_SEND_MESSAGES, SendBatch},
    buffer_layout,
    uring_error::UringError,
};
use crate::datagram::OutgoingMessage;
use io_uring::{
    EnterFlags, IoUring, Probe, cqueue,
    opcode::{RecvMsgMulti, SendMsg},
    squeue,
    types::Fixed,
};
use libc::msghdr;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{Ordering::SeqCst, fence},
    },
    task::Waker,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Largest number of entries submitted at once: the sends of a call, and the receive.
const MAX_SUBMISSIONS: u32 = 128;
/// Index of the socket, the only registered file.
const SOCKET_FILE: Fixed = Fixed(0);
/// ID of the receive buffers' group, the only one.
pub(super) const BUFFER_GROUP: u16 = 0;
/// Whether the kernel's events may be disabled while the worker is awake. After the kernel has marked new work, it
/// checks whether events are enabled; only if the mark is visible before that check (an atomic operation on x86 is a
/// barrier) can the worker rely on the mark right after enabling events.
const CAN_DISABLE_EVENTS: bool = cfg!(target_arch = "x86_64");
/// `user_data` of the receive; a send's is its number.
const RECEIVE_USER_DATA: u64 = u64::MAX;

/// The ring of one socket, for both of its halves.
///
/// The mutex is there because s2n-quic's providers must be `Send`; one thread alone takes it.
#[derive(Clone)]
pub(crate) struct Ring(pub(super) Arc<Mutex<RingState>>);

/// State of a ring. The field `ring` is dropped before the memory that the kernel points to.
pub(super) struct RingState {
    pub(super) ring: IoUring,
    batch: SendBatch,
    /// Lengths of addresses and control messages for the receive. Boxed: entries point there.
    receive_header: Box<msghdr>,
    /// Number of this call's first send.
    first_send: u64,
    /// Results of this call's sends; `None` if not completed.
    sends: Vec<Option<i32>>,
    /// Number of this call's sends that are not completed.
    incomplete_sends: usize,
    /// Entries may be queued whose invalid headers must not change.
    invalidated: bool,
    /// Received messages that the receiving half has not taken.
    pub(super) received: VecDeque<FilledBuffer>,
    /// The receive continues without another entry.
    pub(super) armed: bool,
    /// Result with which the receive ended, until the receiving half reads it.
    pub(super) ended: Option<i32>,
    /// The kernel signals new work by the eventfd.
    pub(super) events_enabled: bool,
    /// Waker of the task that waits for the eventfd.
    pub(super) waker: Option<Waker>,
}

// SAFETY: io_uring(7): the receive's header points to nothing; the rest is Send.
unsafe impl Send for RingState {}

#[derive(Debug, Clone, Copy)]
pub(super) struct FilledBuffer {
    pub(super) buffer: u16,
    /// Bytes that the kernel wrote.
    pub(super) len: usize,
}

impl Ring {
    /// A ring for `socket`, which is bound to `local`, on the calling thread, with room for `completions` completions
    /// beside those of a call's sends.
    ///
    /// # Errors
    ///
    /// The kernel is too old, or io_uring is forbidden.
    pub(crate) fn new(socket: &UdpSocket, local: SocketAddr, completions: usize) -> Result<Self, UringError> {
        let completions = (completions + MAX_SEND_MESSAGES).next_power_of_two();
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(u32::try_from(completions).unwrap_or(u32::MAX).max(MAX_SUBMISSIONS))
            .build(MAX_SUBMISSIONS)
            .map_err(UringError::in_step("io_uring_setup"))?;
        if !ring.params().is_feature_nodrop() {
            return Err(UringError::Missing("IORING_FEAT_NODROP"));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(UringError::in_step("io_uring_register, probe"))?;
        for (code, name) in [(RecvMsgMulti::CODE, "IORING_OP_RECVMSG"), (SendMsg::CODE, "IORING_OP_SENDMSG")] {
            if !probe.is_supported(code) {
                return Err(UringError::Missing(name));
            }
        }
        ring.submitter()
            .register_files(&[socket.as_raw_fd()])
            .map_err(UringError::in_step("io_uring_register, files"))?;
        let mut inner = RingState {
            ring,
            batch: SendBatch::new(local),
            receive_header: Box::new(buffer_layout::receive_arguments()),
            first_send: 0,
            sends: Vec::with_capacity(MAX_SEND_MESSAGES),
            incomplete_sends: 0,
            invalidated: false,
            received: VecDeque::new(),
            armed: false,
            ended: None,
            events_enabled: true,
            waker: None,
        };
        inner.set_events(false);
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    /// Registers an eventfd(2) of the ring with the runtime of the calling thread, for events that
    /// [`enable_events`](super::MultishotReceive::enable_events) enables. Work that the kernel defers until the next
    /// call makes the ring's own descriptor readable, but does not wake a task that waits for that.
    ///
    /// # Errors
    ///
    /// The error of eventfd(2), io_uring_register(2) or epoll_ctl(2), or the thread has no runtime with I/O.
    pub(crate) fn register_events(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: eventfd(2): takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd(2): a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        self.0.lock().ring.submitter().register_eventfd(fd.as_raw_fd())?;
        // SAFETY: epoll(7): a descriptor must stay open, and the same, until it is taken out of the epoll instance. The
        // OwnedFd owns it and is owned by the AsyncFd, which takes it out before it drops it.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
    }

    /// Sends the first of `messages`, whose bytes `payload` returns, without waiting. Appends their outcomes in order
    /// to `outcomes`, at least one unless there is no message. Returns the number of system calls, in which the kernel
    /// has also received.
    pub(crate) fn submit_sends<'a>(
        &self,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
        outcomes: &mut Vec<Result<(), i32>>,
    ) -> u64 {
        let mut inner = self.0.lock();
        let calls = inner.submit_messages(messages, payload);
        if inner.has_receive_work()
            && let Some(waker) = inner.waker.take()
        {
            waker.wake();
        }
        outcomes.extend(inner.sends.iter().map(|result| match result {
            Some(result) if *result >= 0 => Ok(()),
            Some(errno) => Err(-errno),
            // The kernel has not consumed the entry for lack of memory.
            None => Err(libc::ENOBUFS),
        }));
        calls
    }
}

impl Drop for RingState {
    fn drop(&mut self) {
        // The kernel frees a ring asynchronously, and would hold the socket's address until then.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl RingState {
    fn submit_messages<'a>(
        &mut self,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
    ) -> u64 {
        let mut calls = 0;
        self.first_send += self.sends.len() as u64;
        self.sends.clear();
        self.sends.resize(messages.len().min(MAX_SEND_MESSAGES), None);
        if self.invalidated {
            calls += 1;
            let _ = self.enter_kernel(0);
            self.invalidated = !self.ring.submission().is_empty();
            if self.invalidated {
                return calls;
            }
        }
        let mut number = self.first_send;
        let mut queue = self.ring.submission();
        for header in self.batch.message_headers(messages, payload) {
            let flags = libc::MSG_DONTWAIT.cast_unsigned();
            let entry = SendMsg::new(SOCKET_FILE, header).flags(flags).build().user_data(number);
            // SAFETY: io_uring_enter(2): see the file's head. `headers` stay where they are until the next send, which
            // begins when all entries are consumed; the payloads are borrowed for this call, which ends when all have
            // completed or their headers are defused.
            if unsafe { queue.push(&entry) }.is_err() {
                break;
            }
            number += 1;
        }
        drop(queue);
        let queued = usize::try_from(number - self.first_send).unwrap_or(0);
        self.incomplete_sends = queued;
        while self.incomplete_sends > 0 {
            calls += 1;
            let entered = self.enter_kernel(0);
            self.collect_completions();
            let unconsumed = self.ring.submission().len();
            if entered.is_err() && unconsumed > 0 {
                self.batch.invalidate_headers(queued.saturating_sub(unconsumed));
                self.invalidated = true;
                self.incomplete_sends = self.incomplete_sends.saturating_sub(unconsumed);
            }
            if self.incomplete_sends > 0 && self.ring.submission().is_empty() {
                // A completion that had no room in the queue comes with the next call. An error means that the
                // completion is lost.
                calls += 1;
                let waited = self.enter_kernel(1);
                self.collect_completions();
                if waited.is_err() {
                    self.incomplete_sends = 0;
                }
            }
        }
        calls
    }

    /// Enables or disables the kernel's events. Work that the kernel has when this returns may have no event.
    pub(super) fn set_events(&mut self, listen: bool) {
        if self.events_enabled != listen && CAN_DISABLE_EVENTS {
            let completions = self.ring.completion();
            if listen {
                completions.enable_eventfd();
            } else {
                completions.disable_eventfd();
            }
            drop(completions);
            // Callers check for completions after this.
            fence(SeqCst);
        }
        self.events_enabled = listen;
    }

    /// Submits queued entries, lets the kernel process this ring's work, and waits for `wanted` completions.
    pub(super) fn enter_kernel(&mut self, wanted: u32) -> io::Result<()> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // No event is needed for completions of this very call.
        let listening = self.events_enabled;
        self.set_events(false);
        // SAFETY: io_uring_enter(2): no argument goes with these flags; the caller that queued an entry guarantees it.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(queued, wanted, EnterFlags::GETEVENTS.bits(), None)
        };
        self.set_events(listening);
        match entered {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn collect_completions(&mut self) {
        for entry in self.ring.completion() {
            let (result, flags) = (entry.result(), entry.flags());
            if entry.user_data() != RECEIVE_USER_DATA {
                let index = entry.user_data().checked_sub(self.first_send).and_then(|n| usize::try_from(n).ok());
                if let Some(answer) = index.and_then(|index| self.sends.get_mut(index)) {
                    *answer = Some(result);
                    self.incomplete_sends = self.incomplete_sends.saturating_sub(1);
                }
                continue;
            }
            if let (Ok(len), Some(buffer)) = (usize::try_from(result), cqueue::buffer_select(flags)) {
                self.received.push_back(FilledBuffer { buffer, len });
            }
            if !cqueue::more(flags) {
                self.armed = false;
                self.ended = Some(result);
            }
        }
    }

    /// Queues the multishot receive for the next call.
    pub(super) fn arm_receive(&mut self) {
        let entry = RecvMsgMulti::new(SOCKET_FILE, &raw const *self.receive_header, BUFFER_GROUP)
            .build()
            .user_data(RECEIVE_USER_DATA);
        self.armed = self.push_entry(&entry);
    }

    fn push_entry(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: io_uring_enter(2): the receive's header is this struct's, boxed, never written, and dropped after the
        // ring. Its buffers are those of the group, which see to themselves.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Whether the receiving half has messages or an ended receive to process.
    fn has_receive_work(&mut self) -> bool {
        !self.received.is_empty() || self.ended.is_some() || self.needs_enter()
    }

    /// Whether a system call would bring completions or has entries to submit.
    pub(super) fn needs_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }
}

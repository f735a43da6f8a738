//! The ring of one socket, and its sends.
//!
//! Invariants that every `SAFETY` below relies on:
//! - The kernel reads a send's header when it consumes its entry, which is before the call that submits it returns; its
//!   payload while it tries it, which is once, then and there (MSG_DONTWAIT). [`Ring::send`] returns when all have
//!   completed: none is ever in flight beyond. Headers of entries that the kernel did not consume stay where they are,
//!   and are such that it would not follow them (`SendBatch::defuse`).
//! - The kernel writes into a buffer of the receive from the moment it is provided until a completion names it, and
//!   then no more until it is provided again. Their memory outlives their registration, or is never given back.

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
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{Ordering::SeqCst, fence},
    },
    task::Waker,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Entries that can be submitted at once: all sends of a call, and the receive.
const MAX_SUBMISSIONS: u32 = 128;
/// Index of the only registered file, the socket.
const SOCKET_FILE: Fixed = Fixed(0);
/// ID of the only group of buffers.
pub(super) const BUFFER_GROUP: u16 = 0;
/// Whether the kernel may be told to send no events while the worker is awake. It checks whether it may after it has
/// noted that there is something; only if its note is seen before it checks (an atomic operation on x86 is a barrier)
/// can the worker rely on the note when it has just enabled events.
const CAN_DISABLE_EVENTS: bool = cfg!(target_arch = "x86_64");
/// `user_data` of the receive; a send's is its number.
const RECEIVE_USER_DATA: u64 = u64::MAX;

/// The ring of one socket, for both of its halves.
///
/// The mutex is there because s2n-quic's providers must be `Send`; one thread alone takes it.
#[derive(Clone)]
pub(crate) struct Ring(Arc<Mutex<RingState>>);

/// The ring goes before what it points to.
pub(super) struct RingState {
    pub(super) ring: IoUring,
    batch: SendBatch,
    /// The receive's lengths of addresses and control messages. Boxed: entries point to it.
    receive_header: Box<msghdr>,
    /// Sends of earlier calls have numbers below.
    first_send: u64,
    /// Results of the sends of this call; `None` for a send that is not completed.
    sends: Vec<Option<i32>>,
    /// Sends of this call that are not completed.
    incomplete_sends: usize,
    /// Entries may be queued whose headers must stay as they are.
    invalidated: bool,
    /// Messages that the kernel has received and that were not taken.
    pub(super) received: VecDeque<FilledBuffer>,
    /// Whether the receive goes on by itself.
    pub(super) armed: bool,
    /// Why it ended the last time.
    pub(super) ended: Option<i32>,
    /// Whether the kernel reports by the eventfd when it has something.
    pub(super) events_enabled: bool,
    /// The waker of the task that waits for that.
    pub(super) waker: Option<Waker>,
}

// SAFETY: io_uring(7): the receive's header points to nothing; the rest is Send.
unsafe impl Send for RingState {}

/// A buffer with a message in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilledBuffer {
    pub(super) buffer: u16,
    /// Bytes that the kernel wrote.
    pub(super) len: usize,
}

impl Ring {
    /// A ring for `socket`, which is bound to `local`, on the calling thread. There is room for `completions`
    /// completions beside those of a call's sends.
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
            .map_err(UringError::Setup)?;
        if !ring.params().is_feature_nodrop() {
            return Err(UringError::Missing("IORING_FEAT_NODROP"));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(UringError::Probe)?;
        for (code, name) in [(RecvMsgMulti::CODE, "IORING_OP_RECVMSG"), (SendMsg::CODE, "IORING_OP_SENDMSG")] {
            if !probe.is_supported(code) {
                return Err(UringError::Missing(name));
            }
        }
        ring.submitter().register_files(&[socket.as_raw_fd()]).map_err(UringError::Socket)?;
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

    /// Registers with the runtime of the calling thread for events of a ring that
    /// [listens](super::MultishotReceive::listen), by an eventfd(2): work that the kernel defers until the next call
    /// makes the ring's own descriptor readable, but does not wake a task that waits for that.
    ///
    /// # Errors
    ///
    /// No runtime with I/O, or those of eventfd(2), io_uring_register(2), epoll_ctl(2).
    pub(crate) fn register_events(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: eventfd(2): takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd(2): a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        self.lock_ring().ring.submitter().register_eventfd(fd.as_raw_fd())?;
        // SAFETY: epoll(7): a descriptor must stay open, and the same, until it is taken out of the epoll instance. The
        // OwnedFd owns it and is owned by the AsyncFd, which takes it out before it drops it.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
    }

    /// Sends the first of `messages`, whose bytes `payload` finds, without waiting. Puts into `outcomes` the outcome of
    /// each in turn, one at least unless there are none. Returns how often it called the kernel, which also has
    /// continued receiving.
    pub(crate) fn submit_sends<'a>(
        &self,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
        outcomes: &mut Vec<Result<(), i32>>,
    ) -> u64 {
        let mut inner = self.lock_ring();
        let calls = inner.submit_messages(messages, payload);
        if inner.has_receive_work()
            && let Some(waker) = inner.waker.take()
        {
            waker.wake();
        }
        outcomes.extend(inner.sends.iter().map(|result| match result {
            Some(result) if *result >= 0 => Ok(()),
            Some(errno) => Err(-errno),
            // The kernel has not read it: there is no memory for that.
            None => Err(libc::ENOBUFS),
        }));
        calls
    }

    pub(super) fn lock_ring(&self) -> MutexGuard<'_, RingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
                // A completion that had no room in its queue comes with the next call. An error means that it is lost.
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

    /// Enables or disables the kernel's events. What it has when this returns may have no event.
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

    /// Submits what is queued, has the kernel do what it has to do for this ring, and waits until there are `wanted`
    /// completions.
    pub(super) fn enter_kernel(&mut self, wanted: u32) -> io::Result<()> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // No event is needed for what this very call completes.
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

    /// Reads the completions that are there.
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

    /// Has the kernel receive, from the next call on.
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

    /// Whether there is something for the receiving half.
    fn has_receive_work(&mut self) -> bool {
        !self.received.is_empty() || self.ended.is_some() || self.needs_enter()
    }

    /// Whether a call would bring something, or is owed.
    pub(super) fn needs_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }
}

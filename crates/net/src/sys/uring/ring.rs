//! The ring: sends that are submitted together, and the completions of both halves.

use super::refusal::UringError;
use crate::datagram::Message;
use crate::sys::mmsg::{SEND_AT_ONCE, SendBatch};
use crate::sys::uring::message_buffer;
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
const SUBMISSIONS: u32 = 128;
/// Index of the only registered file, the socket.
const SOCKET: Fixed = Fixed(0);
/// ID of the only group of buffers.
pub(super) const GROUP: u16 = 0;
/// Whether the kernel may be told to send no events while the worker is awake. It checks whether it may after it has
/// noted that there is something; only if its note is seen before it checks (an atomic operation on x86 is a barrier)
/// can the worker rely on the note when it has just enabled events.
const MAY_BE_QUIET: bool = cfg!(target_arch = "x86_64");
/// `user_data` of the receive; a send's is its number.
const RECEIVE: u64 = u64::MAX;

/// The ring of one socket, for both of its halves.
///
/// The mutex is there because s2n-quic's providers must be `Send`; one thread alone takes it.
#[derive(Clone)]
pub(crate) struct Ring(Arc<Mutex<Inner>>);

/// The ring goes before what it points to.
pub(super) struct Inner {
    pub(super) ring: IoUring,
    batch: SendBatch,
    /// The receive's lengths of addresses and control messages. Boxed: entries point to it.
    receive_header: Box<msghdr>,
    /// Sends of earlier calls have numbers below.
    first_send: u64,
    /// Results of the sends of this call; `None` for a send that is not completed.
    sends: Vec<Option<i32>>,
    /// Sends of this call that are not completed.
    unanswered: usize,
    /// Entries may be queued whose headers must stay as they are.
    defused: bool,
    /// Messages that the kernel has received and that were not taken.
    pub(super) received: VecDeque<Filled>,
    /// Whether the receive goes on by itself.
    pub(super) armed: bool,
    /// Why it ended the last time.
    pub(super) ended: Option<i32>,
    /// Whether the kernel reports by the eventfd when it has something.
    pub(super) listening: bool,
    /// The waker of the task that waits for that.
    pub(super) waker: Option<Waker>,
}

// SAFETY: io_uring(7): the receive's header points to nothing; the rest is Send.
unsafe impl Send for Inner {}

/// A buffer with a message in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
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
        let completions = (completions + SEND_AT_ONCE).next_power_of_two();
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(u32::try_from(completions).unwrap_or(u32::MAX).max(SUBMISSIONS))
            .build(SUBMISSIONS)
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
        let mut inner = Inner {
            ring,
            batch: SendBatch::new(local),
            receive_header: Box::new(message_buffer::header()),
            first_send: 0,
            sends: Vec::with_capacity(SEND_AT_ONCE),
            unanswered: 0,
            defused: false,
            received: VecDeque::new(),
            armed: false,
            ended: None,
            listening: true,
            waker: None,
        };
        inner.listen(false);
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    /// Registers with the runtime of the calling thread for events of a ring that [listens](MultishotReceive::listen),
    /// by an eventfd(2): work that the kernel defers until the next call makes the ring's own descriptor readable, but
    /// does not wake a task that waits for that.
    ///
    /// # Errors
    ///
    /// No runtime with I/O, or those of eventfd(2), io_uring_register(2), epoll_ctl(2).
    pub(crate) fn register(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: eventfd(2): takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd(2): a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        self.lock().ring.submitter().register_eventfd(fd.as_raw_fd())?;
        // SAFETY: epoll(7): a descriptor must stay open, and the same, until it is taken out of the epoll instance. The
        // OwnedFd owns it and is owned by the AsyncFd, which takes it out before it drops it.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
    }

    /// Sends the first of `messages`, whose bytes `payload` finds, without waiting. Puts into `outcomes` the outcome of
    /// each in turn, one at least unless there are none. Returns how often it called the kernel, which also has
    /// continued receiving.
    pub(crate) fn send<'a>(
        &self,
        messages: &'a [Message],
        payload: impl Fn(&'a Message) -> &'a [u8],
        outcomes: &mut Vec<Result<(), i32>>,
    ) -> u64 {
        let mut inner = self.lock();
        let calls = inner.send(messages, payload);
        if inner.has_news()
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The kernel frees a ring asynchronously, and would hold the socket's address until then.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl Inner {
    fn send<'a>(&mut self, messages: &'a [Message], payload: impl Fn(&'a Message) -> &'a [u8]) -> u64 {
        let mut calls = 0;
        self.first_send += self.sends.len() as u64;
        self.sends.clear();
        self.sends.resize(messages.len().min(SEND_AT_ONCE), None);
        if self.defused {
            calls += 1;
            let _ = self.enter(0);
            self.defused = !self.ring.submission().is_empty();
            if self.defused {
                return calls;
            }
        }
        let mut number = self.first_send;
        let mut queue = self.ring.submission();
        for header in self.batch.headers(messages, payload) {
            let flags = libc::MSG_DONTWAIT.cast_unsigned();
            let entry = SendMsg::new(SOCKET, header).flags(flags).build().user_data(number);
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
        self.unanswered = queued;
        while self.unanswered > 0 {
            calls += 1;
            let entered = self.enter(0);
            self.collect();
            let unconsumed = self.ring.submission().len();
            if entered.is_err() && unconsumed > 0 {
                self.batch.defuse(queued.saturating_sub(unconsumed));
                self.defused = true;
                self.unanswered = self.unanswered.saturating_sub(unconsumed);
            }
            if self.unanswered > 0 && self.ring.submission().is_empty() {
                // A completion that had no room in its queue comes with the next call. An error means that it is lost.
                calls += 1;
                let waited = self.enter(1);
                self.collect();
                if waited.is_err() {
                    self.unanswered = 0;
                }
            }
        }
        calls
    }

    /// Enables or disables the kernel's events. What it has when this returns may have no event.
    pub(super) fn listen(&mut self, listen: bool) {
        if self.listening != listen && MAY_BE_QUIET {
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
        self.listening = listen;
    }

    /// Submits what is queued, has the kernel do what it has to do for this ring, and waits until there are `wanted`
    /// completions.
    pub(super) fn enter(&mut self, wanted: u32) -> io::Result<()> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // No event is needed for what this very call completes.
        let listening = self.listening;
        self.listen(false);
        // SAFETY: io_uring_enter(2): no argument goes with these flags; the caller that queued an entry guarantees it.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(queued, wanted, EnterFlags::GETEVENTS.bits(), None)
        };
        self.listen(listening);
        match entered {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads the completions that are there.
    pub(super) fn collect(&mut self) {
        for entry in self.ring.completion() {
            let (result, flags) = (entry.result(), entry.flags());
            if entry.user_data() != RECEIVE {
                let index = entry.user_data().checked_sub(self.first_send).and_then(|n| usize::try_from(n).ok());
                if let Some(answer) = index.and_then(|index| self.sends.get_mut(index)) {
                    *answer = Some(result);
                    self.unanswered = self.unanswered.saturating_sub(1);
                }
                continue;
            }
            if let (Ok(len), Some(buffer)) = (usize::try_from(result), cqueue::buffer_select(flags)) {
                self.received.push_back(Filled { buffer, len });
            }
            if !cqueue::more(flags) {
                self.armed = false;
                self.ended = Some(result);
            }
        }
    }

    /// Has the kernel receive, from the next call on.
    pub(super) fn arm(&mut self) {
        let entry = RecvMsgMulti::new(SOCKET, &raw const *self.receive_header, GROUP).build().user_data(RECEIVE);
        self.armed = self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: io_uring_enter(2): the receive's header is this struct's, boxed, never written, and dropped after the
        // ring. Its buffers are those of the group, which see to themselves.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Whether there is something for the receiving half.
    fn has_news(&mut self) -> bool {
        !self.received.is_empty() || self.ended.is_some() || self.is_worth_a_call()
    }

    /// Whether a call would bring something, or is owed.
    pub(super) fn is_worth_a_call(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }
}

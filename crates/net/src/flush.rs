//! The outcome of messages that the kernel sends, does not take yet, or rejects: the decisions of the sending half, and
//! the loop that follows them. Pure but for [`Calls`]. No error stops the others' messages, and none loses a datagram
//! that could have been sent.

use crate::datagram::{MessageAction, OutgoingBatch, OutgoingMessage};

/// The outcome of a message: the kernel has it, or an errno.
pub(super) type SendResult = Result<(), i32>;

/// The system call, which tests replace.
pub(super) trait MessageSink {
    /// Has the kernel try the first messages of `outgoing`, one at least, and puts into `outcomes`, which is empty, the
    /// outcome of each in turn. A message after one that failed may have been sent.
    fn send_first(&mut self, outgoing: &OutgoingBatch, outcomes: &mut Vec<SendResult>);
    /// An event, for the metrics.
    fn record_event(&mut self, event: SendEvent);
}

/// What happens to messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SendEvent {
    /// The kernel has it.
    Sent(OutgoingMessage),
    /// The message is larger than a packet may be on this path, which is how path MTU discovery learns the limit (RFC
    /// 8899).
    TooLarge(OutgoingMessage),
    /// The message cannot be sent at all: there is no route, or a firewall drops it.
    Refused(OutgoingMessage, i32),
    /// From now on every datagram is a message of its own, for this error.
    GsoOff(i32),
}

/// Why messages stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendBlocked {
    /// The socket's buffer is full: epoll reports when it is not.
    Buffer,
    /// A queue below it is full, or memory short: there is no event for that.
    Below,
}

/// Whether several datagrams may be a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GsoState {
    On,
    /// A message was rejected for this error, which may have another reason: its first datagram alone will show.
    Doubted(i32),
    Off,
}

/// The class of an error of send(2): how to handle it.
#[derive(Debug, PartialEq, Eq)]
enum SendErrorClass {
    Again,
    Wait(SendBlocked),
    Split,
    TooLarge,
    Refused,
}

/// The class of the errno of a message of `count` datagrams, of those of send(2), udp(7), ip(7).
fn classify_send_error(errno: i32, count: usize) -> SendErrorClass {
    match errno {
        libc::EINTR => SendErrorClass::Again,
        libc::EAGAIN => SendErrorClass::Wait(SendBlocked::Buffer),
        libc::ENOBUFS | libc::ENOMEM => SendErrorClass::Wait(SendBlocked::Below),
        // EIO: the device cannot compute checksums. EINVAL: segments are unknown, too many, or too large for the
        // device. EMSGSIZE: newer kernels' code for the latter; the last segment may still fit.
        libc::EIO | libc::EINVAL | libc::EMSGSIZE if count > 1 => SendErrorClass::Split,
        libc::EMSGSIZE => SendErrorClass::TooLarge,
        _ => SendErrorClass::Refused,
    }
}

/// The state between two calls.
#[derive(Debug)]
pub(super) struct FlushState {
    gso: GsoState,
    outcomes: Vec<SendResult>,
}

impl FlushState {
    /// Messages may hold several datagrams if `gso`.
    pub(super) fn new(gso: bool) -> Self {
        Self { gso: if gso { GsoState::On } else { GsoState::Off }, outcomes: Vec::new() }
    }

    /// Whether messages may hold several datagrams.
    pub(super) fn gso_state(&self) -> GsoState {
        self.gso
    }

    /// Sends what `outgoing` holds. `Some` if the kernel does not take all of it now: the rest stays, in order.
    pub(super) fn flush_batch(
        &mut self,
        outgoing: &mut OutgoingBatch,
        calls: &mut impl MessageSink,
    ) -> Option<SendBlocked> {
        outgoing.close_message();
        self.split_without_gso(outgoing);
        while !outgoing.is_empty() {
            self.outcomes.clear();
            calls.send_first(outgoing, &mut self.outcomes);
            if let Some(blocked) = self.apply_outcomes(outgoing, calls) {
                return Some(blocked);
            }
            self.split_without_gso(outgoing);
        }
        None
    }

    fn split_without_gso(&self, outgoing: &mut OutgoingBatch) {
        if self.gso == GsoState::Off && outgoing.messages().iter().any(|message| message.count > 1) {
            outgoing.split_messages(usize::MAX);
        }
    }

    /// Follows the outcomes. `Some` if a message has to wait.
    fn apply_outcomes(&mut self, outgoing: &mut OutgoingBatch, calls: &mut impl MessageSink) -> Option<SendBlocked> {
        let Self { gso, outcomes } = self;
        // The retry is of the first: the very datagram that was rejected as a part of a message.
        let doubt = if let GsoState::Doubted(errno) = *gso { Some(errno) } else { None };
        let mut blocked = None;
        outgoing.settle_messages(outcomes.len(), |index, message| {
            let doubt = doubt.filter(|_| index == 0);
            let errno = match outcomes.get(index).copied() {
                None => return MessageAction::Keep,
                Some(Ok(())) => {
                    if let Some(errno) = doubt {
                        *gso = GsoState::Off;
                        calls.record_event(SendEvent::GsoOff(errno));
                    }
                    calls.record_event(SendEvent::Sent(*message));
                    return MessageAction::Remove;
                }
                Some(Err(errno)) => errno,
            };
            match classify_send_error(errno, message.count) {
                SendErrorClass::Again => MessageAction::Keep,
                SendErrorClass::Wait(by) => {
                    blocked.get_or_insert(by);
                    MessageAction::Keep
                }
                SendErrorClass::Split if *gso == GsoState::On && errno != libc::EMSGSIZE => {
                    *gso = GsoState::Doubted(errno);
                    MessageAction::SplitFirst
                }
                SendErrorClass::Split => MessageAction::Split,
                class @ (SendErrorClass::TooLarge | SendErrorClass::Refused) => {
                    if doubt.is_some() {
                        *gso = GsoState::On;
                    }
                    calls.record_event(match class {
                        SendErrorClass::TooLarge => SendEvent::TooLarge(*message),
                        _ => SendEvent::Refused(*message, errno),
                    });
                    MessageAction::Remove
                }
            }
        });
        blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::{
        inet::{ExplicitCongestionNotification as Ecn, SocketAddressV4},
        path::Tuple,
    };
    use std::{collections::VecDeque, convert::Infallible};

    /// A kernel that answers as the test says, and then takes everything. It always rejects what `refuse` returns.
    #[derive(Default)]
    struct Kernel {
        script: VecDeque<Result<usize, i32>>,
        refuse: Option<fn(&OutgoingMessage) -> Option<i32>>,
        /// Whether it continues after a message that it rejects, as io_uring does and sendmmsg(2) does not.
        goes_on: bool,
        /// The datagrams that it took, in order, by their first byte; and those of each call's messages.
        taken: Vec<u8>,
        counts: Vec<usize>,
        events: Vec<SendEvent>,
    }

    impl MessageSink for Kernel {
        fn send_first(&mut self, outgoing: &OutgoingBatch, outcomes: &mut Vec<SendResult>) {
            let most = match self.script.pop_front() {
                Some(Err(errno)) => return outcomes.push(Err(errno)),
                Some(Ok(most)) => most,
                None => usize::MAX,
            };
            for message in outgoing.messages().iter().take(most) {
                if let Some(errno) = self.refuse.and_then(|refuse| refuse(message)) {
                    if self.goes_on || outcomes.is_empty() {
                        outcomes.push(Err(errno));
                    }
                    if self.goes_on {
                        continue;
                    }
                    return;
                }
                self.taken.extend(outgoing.payload(message).chunks(message.segment).map(|datagram| datagram[0]));
                self.counts.push(message.count);
                outcomes.push(Ok(()));
            }
        }

        fn record_event(&mut self, event: SendEvent) {
            self.events.push(event);
        }
    }

    impl Kernel {
        fn scripted(script: &[Result<usize, i32>]) -> Self {
            Self { script: script.iter().copied().collect(), ..Self::default() }
        }

        fn going_on(refuse: fn(&OutgoingMessage) -> Option<i32>) -> Self {
            Self { refuse: Some(refuse), goes_on: true, ..Self::default() }
        }

        fn lost(&self) -> Vec<i32> {
            let lost = self.events.iter().filter_map(|event| match event {
                SendEvent::TooLarge(_) => Some(libc::EMSGSIZE),
                SendEvent::Refused(_, errno) => Some(*errno),
                _ => None,
            });
            lost.collect()
        }
    }

    /// Messages of so many datagrams each of `size` bytes, one to each port from 1 on; datagrams are numbered.
    fn messages(size: usize, counts: &[usize]) -> OutgoingBatch {
        let mut outgoing = OutgoingBatch::new(1472);
        let mut number = 0;
        for (port, count) in (1..).zip(counts) {
            let path = Tuple {
                remote_address: SocketAddressV4::new([127, 0, 0, 1], port).into(),
                local_address: SocketAddressV4::new([127, 0, 0, 1], 443).into(),
            };
            for n in 0..*count {
                let write = |room: &mut [u8]| {
                    room[..size].fill(number);
                    Ok::<_, Infallible>(size)
                };
                let Ok(_) = if n == 0 {
                    outgoing.begin_message(path, Ecn::NotEct, true, write)
                } else {
                    outgoing.join_message(write)
                };
                number += 1;
            }
        }
        outgoing
    }

    fn port(message: &OutgoingMessage) -> u16 {
        std::net::SocketAddr::from(message.path.remote_address.0).port()
    }

    #[test]
    fn a_kernel_that_takes_a_few_at_a_time_gets_everything_in_order() {
        let (mut outgoing, mut flush) = (messages(100, &[3, 1, 2, 4]), FlushState::new(true));
        let mut kernel = Kernel::scripted(&[Ok(1), Err(libc::EINTR), Ok(2)]);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!(kernel.taken, (0..10).collect::<Vec<u8>>());
        assert_eq!(kernel.counts, [3, 1, 2, 4]);
        assert_eq!(kernel.events.len(), 4);
        assert!(outgoing.is_empty());
    }

    #[test]
    fn gso_that_fails_is_switched_off_and_no_datagram_is_lost_or_sent_twice() {
        for errno in [libc::EIO, libc::EINVAL] {
            let (mut outgoing, mut flush) = (messages(100, &[1, 3, 2]), FlushState::new(true));
            let mut kernel = Kernel::scripted(&[Ok(1), Err(errno)]);
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(kernel.taken, (0..6).collect::<Vec<u8>>());
            assert_eq!(flush.gso_state(), GsoState::Off);
            assert_eq!(kernel.events.iter().filter(|event| **event == SendEvent::GsoOff(errno)).count(), 1);
            assert_eq!(kernel.lost(), Vec::<i32>::new());

            // And stays off: what others have gathered meanwhile is sent singly too.
            let (mut outgoing, mut kernel) = (messages(100, &[4]), Kernel::default());
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(kernel.counts, [1; 4]);
        }
    }

    #[test]
    fn a_message_whose_source_address_is_gone_does_not_cost_the_others_gso() {
        let (mut outgoing, mut flush) = (messages(100, &[2, 3, 2]), FlushState::new(true));
        let gone = |message: &OutgoingMessage| (port(message) == 2).then_some(libc::EINVAL);
        let mut kernel = Kernel { refuse: Some(gone), ..Kernel::default() };
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!(kernel.taken, [0, 1, 5, 6]);
        assert_eq!(kernel.counts, [2, 2]);
        assert_eq!(kernel.lost(), [libc::EINVAL; 3]);
        assert_eq!(flush.gso_state(), GsoState::On);

        let (mut outgoing, mut kernel) = (messages(100, &[2, 3, 2]), Kernel::going_on(gone));
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!((kernel.taken.as_slice(), kernel.lost()), ([0, 1, 5, 6].as_slice(), vec![libc::EINVAL; 3]));
        assert_eq!(flush.gso_state(), GsoState::On);
    }

    #[test]
    fn a_kernel_that_goes_on_after_gso_that_fails_gets_every_datagram_once() {
        let no_gso = |message: &OutgoingMessage| (message.count > 1).then_some(libc::EIO);
        let (mut outgoing, mut flush) = (messages(100, &[3, 1, 2]), FlushState::new(true));
        let mut kernel = Kernel::going_on(no_gso);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        kernel.taken.sort_unstable();
        assert_eq!((kernel.taken.as_slice(), flush.gso_state()), ([0, 1, 2, 3, 4, 5].as_slice(), GsoState::Off));
        assert_eq!(kernel.lost(), Vec::<i32>::new());
    }

    #[test]
    fn of_two_messages_that_fail_the_one_that_casts_the_doubt_is_tried_next() {
        // The first is only too large for GSO, but not for the path: its datagrams are sent, which proves nothing.
        let refuse = |message: &OutgoingMessage| match (port(message), message.count > 1) {
            (1, true) => Some(libc::EMSGSIZE),
            (2, _) => Some(libc::EINVAL),
            _ => None,
        };
        let (mut outgoing, mut flush) = (messages(100, &[2, 2, 2]), FlushState::new(true));
        let mut kernel = Kernel::going_on(refuse);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        kernel.taken.sort_unstable();
        assert_eq!((kernel.taken.as_slice(), kernel.lost()), ([0, 1, 4, 5].as_slice(), vec![libc::EINVAL; 2]));
        assert_eq!(flush.gso_state(), GsoState::On);
    }

    #[test]
    fn what_left_beyond_a_message_that_has_to_wait_is_not_sent_again() {
        let full = |message: &OutgoingMessage| (port(message) == 2).then_some(libc::EAGAIN);
        let (mut outgoing, mut flush) = (messages(100, &[1, 2, 1]), FlushState::new(true));
        let mut kernel = Kernel::going_on(full);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(SendBlocked::Buffer));
        kernel.refuse = None;
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!(kernel.taken, [0, 3, 1, 2]);
    }

    #[test]
    fn segments_that_are_too_large_for_the_device_do_not_cost_gso_and_the_last_may_pass() {
        for errno in [libc::EINVAL, libc::EMSGSIZE] {
            let mut outgoing = messages(1472, &[3]);
            let Ok(_) = outgoing.join_message(|room| {
                room[..9].fill(3);
                Ok::<_, Infallible>(9)
            });
            let mut flush = FlushState::new(true);
            let refuse: fn(&OutgoingMessage) -> Option<i32> = if errno == libc::EINVAL {
                |message| {
                    (message.segment > 1000).then_some(if message.count > 1 { libc::EINVAL } else { libc::EMSGSIZE })
                }
            } else {
                |message| (message.segment > 1000).then_some(libc::EMSGSIZE)
            };
            let mut kernel = Kernel { refuse: Some(refuse), ..Kernel::default() };
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!((kernel.taken.as_slice(), flush.gso_state()), ([3].as_slice(), GsoState::On));
            assert_eq!(kernel.lost(), [libc::EMSGSIZE; 3]);
        }
    }

    #[test]
    fn a_path_that_is_gone_stalls_no_other() {
        for errno in [libc::EADDRNOTAVAIL, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EPERM, libc::ECONNREFUSED] {
            let (mut outgoing, mut flush) = (messages(100, &[1, 2, 1]), FlushState::new(true));
            let mut kernel = Kernel::scripted(&[Ok(1), Err(errno)]);
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(kernel.taken, [0, 3]);
            assert_eq!((kernel.lost(), flush.gso_state()), (vec![errno], GsoState::On));
        }
    }

    #[test]
    fn a_full_socket_keeps_the_rest_until_it_has_room() {
        for (errno, expected) in [
            (libc::EAGAIN, SendBlocked::Buffer),
            (libc::ENOBUFS, SendBlocked::Below),
            (libc::ENOMEM, SendBlocked::Below),
        ] {
            let (mut outgoing, mut flush) = (messages(100, &[2, 2, 1]), FlushState::new(true));
            let mut kernel = Kernel::scripted(&[Ok(1), Err(errno), Ok(1), Err(errno)]);
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(expected));
            assert_eq!(kernel.taken, [0, 1]);
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(expected));
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(
                (kernel.taken.as_slice(), kernel.lost(), flush.gso_state()),
                ([0, 1, 2, 3, 4].as_slice(), vec![], GsoState::On)
            );
        }
    }

    #[test]
    fn a_socket_that_fills_up_while_gso_is_in_doubt_decides_later() {
        let (mut outgoing, mut flush) = (messages(100, &[3]), FlushState::new(true));
        let mut kernel = Kernel::scripted(&[Err(libc::EIO), Err(libc::EAGAIN)]);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(SendBlocked::Buffer));
        assert_eq!(flush.gso_state(), GsoState::Doubted(libc::EIO));
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!((kernel.taken.as_slice(), flush.gso_state()), ([0, 1, 2].as_slice(), GsoState::Off));
    }
}

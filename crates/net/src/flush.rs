//! Decides about messages that the kernel sends, does not accept yet, or rejects, and repeats calls until none is left.
//! Pure but for [`MessageSink`]. No error delays other messages, and none loses a datagram that could have been sent.

use crate::datagram::{MessageAction, OutgoingBatch, OutgoingMessage};

/// Result of sending a message: the kernel accepted it, or an errno.
pub(super) type SendResult = Result<(), i32>;

/// Sends messages by a system call. Tests replace it.
pub(super) trait MessageSink {
    /// Has the kernel try the first messages of `outgoing`, at least one, and appends their outcomes in order to
    /// `outcomes`, which is empty. Messages after a failed one may have been sent.
    fn send_first(&mut self, outgoing: &OutgoingBatch, outcomes: &mut Vec<SendResult>);
    /// Counts and logs an event.
    fn record_event(&mut self, event: SendEvent);
}

/// Event of sending, for metrics and the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SendEvent {
    /// The kernel accepted the message.
    Sent(OutgoingMessage),
    /// The message exceeds the path's MTU. Path MTU discovery learns the limit from this (RFC 8899).
    TooLarge(OutgoingMessage),
    /// The message can never be sent: no route exists, or a firewall drops it.
    Refused(OutgoingMessage, i32),
    /// GSO was switched off because of this errno: every datagram is a message of its own.
    GsoOff(i32),
}

/// Reason for which messages stay in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendBlocked {
    /// The socket's buffer is full. epoll reports when it has room again.
    Buffer,
    /// A queue below the socket is full, or memory is short. No event reports the end of that.
    Below,
}

/// Use of GSO on a socket: whether a message may hold several datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GsoState {
    On,
    /// A message was rejected with this errno, perhaps not because of GSO: the outcome of its first datagram alone
    /// decides.
    Doubted(i32),
    Off,
}

/// Classes of errors of send(2), by the reaction.
#[derive(Debug, PartialEq, Eq)]
enum SendErrorClass {
    Again,
    Wait(SendBlocked),
    Split,
    TooLarge,
    Refused,
}

/// Classifies the errno of a message of `count` datagrams; send(2), udp(7) and ip(7) list them.
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

/// State of sending on one socket.
#[derive(Debug)]
pub(super) struct FlushState {
    gso: GsoState,
    outcomes: Vec<SendResult>,
}

impl FlushState {
    /// Sends messages of several datagrams if `gso`.
    pub(super) fn new(gso: bool) -> Self {
        Self { gso: if gso { GsoState::On } else { GsoState::Off }, outcomes: Vec::new() }
    }

    pub(super) fn gso_state(&self) -> GsoState {
        self.gso
    }

    /// Sends the messages of `outgoing`. `Some` if the kernel does not accept all of them now: the others stay, in
    /// order.
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

    /// Removes, keeps or splits messages by their outcomes. `Some` if a message has to wait.
    fn apply_outcomes(&mut self, outgoing: &mut OutgoingBatch, calls: &mut impl MessageSink) -> Option<SendBlocked> {
        let Self { gso, outcomes } = self;
        // The first message is the retry: the datagram with which the rejected message began.
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

    /// A kernel that returns the results of `script`, and then accepts everything. It always rejects with the errno of
    /// `refuse`.
    #[derive(Default)]
    struct Kernel {
        script: VecDeque<Result<usize, i32>>,
        refuse: Option<fn(&OutgoingMessage) -> Option<i32>>,
        /// Continues after a rejected message, as io_uring does and sendmmsg(2) does not.
        goes_on: bool,
        /// First bytes of the accepted datagrams, in order; and the number of datagrams of each accepted message.
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

    /// One message to each port from 1 on, of as many datagrams of `size` bytes as `counts` says; datagrams are
    /// numbered.
    fn messages(size: usize, counts: &[usize]) -> OutgoingBatch {
        let mut outgoing = OutgoingBatch::new(1472);
        let mut number = 0;
        for (port, count) in (1..).zip(counts) {
            let path = Tuple {
                remote_address: SocketAddressV4::new([127, 0, 0, 1], port).into(),
                local_address: SocketAddressV4::new([127, 0, 0, 1], 443).into(),
            }
            .into();
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
        message.path.destination().port()
    }

    #[test]
    fn partial_sends_keep_the_order() {
        let (mut outgoing, mut flush) = (messages(100, &[3, 1, 2, 4]), FlushState::new(true));
        let mut kernel = Kernel::scripted(&[Ok(1), Err(libc::EINTR), Ok(2)]);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!(kernel.taken, (0..10).collect::<Vec<u8>>());
        assert_eq!(kernel.counts, [3, 1, 2, 4]);
        assert_eq!(kernel.events.len(), 4);
        assert!(outgoing.is_empty());
    }

    #[test]
    fn failing_gso_is_switched_off_without_losing_or_repeating_datagrams() {
        for errno in [libc::EIO, libc::EINVAL] {
            let (mut outgoing, mut flush) = (messages(100, &[1, 3, 2]), FlushState::new(true));
            let mut kernel = Kernel::scripted(&[Ok(1), Err(errno)]);
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(kernel.taken, (0..6).collect::<Vec<u8>>());
            assert_eq!(flush.gso_state(), GsoState::Off);
            assert_eq!(kernel.events.iter().filter(|event| **event == SendEvent::GsoOff(errno)).count(), 1);
            assert_eq!(kernel.lost(), Vec::<i32>::new());

            // GSO stays off: messages that other connections have gathered meanwhile are sent singly too.
            let (mut outgoing, mut kernel) = (messages(100, &[4]), Kernel::default());
            assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
            assert_eq!(kernel.counts, [1; 4]);
        }
    }

    #[test]
    fn an_invalid_source_address_does_not_switch_gso_off() {
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
    fn io_uring_gets_every_datagram_once_after_failing_gso() {
        let no_gso = |message: &OutgoingMessage| (message.count > 1).then_some(libc::EIO);
        let (mut outgoing, mut flush) = (messages(100, &[3, 1, 2]), FlushState::new(true));
        let mut kernel = Kernel::going_on(no_gso);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        kernel.taken.sort_unstable();
        assert_eq!((kernel.taken.as_slice(), flush.gso_state()), ([0, 1, 2, 3, 4, 5].as_slice(), GsoState::Off));
        assert_eq!(kernel.lost(), Vec::<i32>::new());
    }

    #[test]
    fn after_two_failures_the_one_that_casts_doubt_is_retried_first() {
        // The first message is only too large for GSO, not for the path: its datagrams are sent, which proves nothing.
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
    fn messages_sent_behind_a_blocked_one_are_not_repeated() {
        let full = |message: &OutgoingMessage| (port(message) == 2).then_some(libc::EAGAIN);
        let (mut outgoing, mut flush) = (messages(100, &[1, 2, 1]), FlushState::new(true));
        let mut kernel = Kernel::going_on(full);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(SendBlocked::Buffer));
        kernel.refuse = None;
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!(kernel.taken, [0, 3, 1, 2]);
    }

    #[test]
    fn segments_too_large_for_the_device_do_not_switch_gso_off() {
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
    fn an_unreachable_path_delays_no_other() {
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
    fn a_full_socket_postpones_the_decision_about_gso() {
        let (mut outgoing, mut flush) = (messages(100, &[3]), FlushState::new(true));
        let mut kernel = Kernel::scripted(&[Err(libc::EIO), Err(libc::EAGAIN)]);
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), Some(SendBlocked::Buffer));
        assert_eq!(flush.gso_state(), GsoState::Doubted(libc::EIO));
        assert_eq!(flush.flush_batch(&mut outgoing, &mut kernel), None);
        assert_eq!((kernel.taken.as_slice(), flush.gso_state()), ([0, 1, 2].as_slice(), GsoState::Off));
    }
}

//! Gathers outgoing datagrams back to back in one buffer: consecutive datagrams of one path and size form one message,
//! which the kernel segments (UDP_SEGMENT in udp(7)). Pure: a backend sends the messages.

use super::network_path::NetworkPath;
use s2n_quic_core::inet::ExplicitCongestionNotification as Ecn;
use std::ops::Range;

/// Largest number of segments in a message: every kernel with UDP_SEGMENT accepts 64 (UDP_MAX_SEGMENTS in linux/udp.h;
/// some accept more).
pub const MAX_SEGMENTS: usize = 64;
/// Largest message in bytes: an IPv4 packet less its header and UDP's. IPv6 would allow 20 more.
pub const MAX_MESSAGE_LEN: usize = 65_507;
/// Bytes that gather before a send: two full messages, which the kernel reads while they are still in the core's cache.
/// Four cost more CPU time; one led to two calls for many small batches.
const OUTGOING_BUFFER_LEN: usize = 2 * MAX_MESSAGE_LEN;
/// Messages that gather before a send, when they are small responses on many connections.
const MAX_MESSAGES: usize = 64;

/// A message to one path: `count` datagrams of `segment` bytes, the last of which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutgoingMessage {
    /// Addresses of both ends.
    pub path: NetworkPath,
    /// The ECN codepoint of each datagram.
    pub ecn: Ecn,
    /// Bytes of each datagram but the last.
    pub segment: usize,
    /// Number of datagrams.
    pub count: usize,
    /// Bytes of all datagrams.
    pub len: usize,
    start: usize,
}

impl OutgoingMessage {
    /// Splits the message into messages of one datagram each.
    fn into_single_datagrams(self) -> impl Iterator<Item = Self> {
        let end = self.start + self.len;
        (0..self.count).map(move |n| {
            let start = self.start + n * self.segment;
            let len = self.segment.min(end - start);
            Self { segment: len, count: 1, len, start, ..self }
        })
    }

    fn buffer_range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Action on a message that was passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageAction {
    /// Remove the message: it was sent, or never will be.
    Remove,
    /// Keep the message at its place in the queue.
    Keep,
    /// Replace the message by one message for each datagram, at its place in the queue.
    Split,
    /// Replace the message by one message for each datagram, ahead of all others: at most one message of a call.
    SplitFirst,
}

/// Queue of messages to send, in order, with their bytes.
#[derive(Debug)]
pub struct OutgoingBatch {
    buffer: Box<[u8]>,
    end: usize,
    messages: Vec<OutgoingMessage>,
    /// Another datagram may join the last message.
    open: bool,
    max_datagram: usize,
    max_segments: usize,
}

impl OutgoingBatch {
    /// An empty batch for datagrams of at most `max_datagram` bytes.
    pub fn new(max_datagram: usize) -> Self {
        Self {
            buffer: vec![0; OUTGOING_BUFFER_LEN].into_boxed_slice(),
            end: 0,
            messages: Vec::with_capacity(MAX_MESSAGES),
            open: false,
            max_datagram: max_datagram.min(MAX_MESSAGE_LEN),
            max_segments: MAX_SEGMENTS,
        }
    }

    /// Allows `max` datagrams a message, [`MAX_SEGMENTS`] at most.
    pub fn limit_segments(&mut self, max: usize) {
        self.max_segments = max.clamp(1, MAX_SEGMENTS);
    }

    /// The messages to send.
    pub fn messages(&self) -> &[OutgoingMessage] {
        &self.messages
    }

    /// Bytes of one of [`OutgoingBatch::messages`].
    pub fn payload(&self, message: &OutgoingMessage) -> &[u8] {
        self.buffer.get(message.buffer_range()).unwrap_or_default()
    }

    /// Whether the batch has no message to send.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the batch has to be sent now: the next message might not have room for all of its datagrams.
    pub fn is_buffer_full(&self) -> bool {
        let longest = MAX_MESSAGE_LEN.min(self.max_segments * self.max_datagram);
        self.messages.len() >= MAX_MESSAGES || self.buffer.len() - self.end < longest
    }

    /// The last message, if another datagram may join it.
    pub fn joinable_message(&self) -> Option<&OutgoingMessage> {
        self.messages.last().filter(|_| self.open)
    }

    /// Ends the last message: no further datagram joins it.
    pub fn close_message(&mut self) {
        self.open = false;
    }

    /// Lets `write` append a datagram to the joinable message: `write` gets room for a segment and returns the length.
    /// A shorter datagram is the message's last. Nothing changes when `write` fails or writes nothing.
    ///
    /// # Errors
    ///
    /// The error of `write`.
    pub fn join_message<E>(&mut self, write: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        let Some(last) = self.messages.last_mut().filter(|_| self.open) else { return Ok(0) };
        let segment = last.segment;
        let room = self.buffer.get_mut(self.end..self.end + segment).unwrap_or_default();
        let len = write(room)?.min(segment);
        if len > 0 {
            last.len += len;
            last.count += 1;
            self.end += len;
        }
        self.open = len == segment && self.has_segment_room();
        Ok(len)
    }

    /// Lets `write` append a datagram that begins a message: `write` gets room for the largest datagram and returns the
    /// length. Further datagrams may join the message if `joinable`. Nothing changes when `write` fails or writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The error of `write`.
    pub fn begin_message<E>(
        &mut self,
        path: NetworkPath,
        ecn: Ecn,
        joinable: bool,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let start = self.end;
        let room = self.buffer.get_mut(start..start + self.max_datagram).unwrap_or_default();
        let len = write(room)?.min(self.max_datagram);
        if len > 0 {
            self.messages.push(OutgoingMessage { path, ecn, segment: len, count: 1, len, start });
            self.end += len;
        }
        self.open = len > 0 && joinable && self.has_segment_room();
        Ok(len)
    }

    /// Whether the last message and the buffer have room for one more segment.
    fn has_segment_room(&self) -> bool {
        self.messages.last().is_some_and(|last| {
            last.count < self.max_segments
                && last.len + last.segment <= MAX_MESSAGE_LEN
                && self.end + last.segment <= self.buffer.len()
        })
    }

    /// Removes the first `count` messages, which were sent or never will be.
    pub fn remove_messages(&mut self, count: usize) {
        self.settle_messages(count, |_, _| MessageAction::Remove);
    }

    /// Does with each of the first `count` messages as `fate` decides from its index and the message.
    pub fn settle_messages(&mut self, count: usize, mut fate: impl FnMut(usize, &OutgoingMessage) -> MessageAction) {
        let (mut first, mut others) = (Vec::new(), Vec::new());
        let count = count.min(self.messages.len());
        for (index, message) in self.messages.iter().take(count).enumerate() {
            match fate(index, message) {
                MessageAction::Remove => {}
                MessageAction::Keep => others.push(*message),
                MessageAction::Split => others.extend(message.into_single_datagrams()),
                MessageAction::SplitFirst => first.extend(message.into_single_datagrams()),
            }
        }
        self.messages.splice(..count, first.into_iter().chain(others));
        // The last message may be another one now, or split.
        self.open = false;
        if self.messages.is_empty() {
            self.end = 0;
        }
    }

    /// Splits the first `count` messages into messages of one datagram each.
    pub fn split_messages(&mut self, count: usize) {
        self.settle_messages(count, |_, _| MessageAction::Split);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use s2n_quic_core::{inet::SocketAddressV4, path::Tuple};
    use std::convert::Infallible;

    fn path(port: u16) -> NetworkPath {
        Tuple {
            remote_address: SocketAddressV4::new([127, 0, 0, 1], port).into(),
            local_address: SocketAddressV4::new([127, 0, 0, 1], 443).into(),
        }
        .into()
    }

    fn fill(byte: u8, len: usize) -> impl FnOnce(&mut [u8]) -> Result<usize, Infallible> {
        move |room| {
            room[..len].fill(byte);
            Ok(len)
        }
    }

    fn begin(outgoing: &mut OutgoingBatch, byte: u8, len: usize) {
        let Ok(written) = outgoing.begin_message(path(1), Ecn::NotEct, true, fill(byte, len));
        assert_eq!(written, len);
    }

    fn join(outgoing: &mut OutgoingBatch, byte: u8, len: usize) {
        let Ok(written) = outgoing.join_message(fill(byte, len));
        assert_eq!(written, len);
    }

    fn shapes(outgoing: &OutgoingBatch) -> Vec<(usize, usize, usize)> {
        outgoing.messages().iter().map(|message| (message.segment, message.count, message.len)).collect()
    }

    #[test]
    fn datagrams_of_one_size_share_a_message_until_a_shorter_one() {
        let mut outgoing = OutgoingBatch::new(1472);
        begin(&mut outgoing, 1, 1200);
        join(&mut outgoing, 2, 1200);
        join(&mut outgoing, 3, 700);
        assert!(outgoing.joinable_message().is_none());
        begin(&mut outgoing, 4, 1200);
        assert_eq!(shapes(&outgoing), [(1200, 3, 3100), (1200, 1, 1200)]);
        let first = outgoing.messages()[0];
        assert_eq!(outgoing.payload(&first), [vec![1; 1200], vec![2; 1200], vec![3; 700]].concat());
    }

    #[test]
    fn a_message_has_at_most_64_segments_and_65507_bytes() {
        let table = [(100, 64), (1200, 54), (1472, 44), (1023, 64), (1024, 63)];
        for (segment, most) in table {
            let mut outgoing = OutgoingBatch::new(1472);
            begin(&mut outgoing, 0, segment);
            while outgoing.joinable_message().is_some() {
                join(&mut outgoing, 0, segment);
            }
            assert_eq!(shapes(&outgoing), [(segment, most, most * segment)]);
        }
    }

    #[test]
    fn without_segments_every_datagram_is_a_message() {
        let mut outgoing = OutgoingBatch::new(1472);
        outgoing.limit_segments(1);
        begin(&mut outgoing, 0, 1200);
        assert!(outgoing.joinable_message().is_none());
    }

    #[test]
    fn a_closed_message_takes_no_further_datagram() {
        let mut outgoing = OutgoingBatch::new(1472);
        begin(&mut outgoing, 0, 1200);
        outgoing.close_message();
        assert!(outgoing.joinable_message().is_none());
        join(&mut outgoing, 0, 0);
        assert_eq!(shapes(&outgoing), [(1200, 1, 1200)]);
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let mut outgoing = OutgoingBatch::new(1472);
        assert_eq!(outgoing.begin_message(path(1), Ecn::Ect0, true, |_| Err("no")), Err("no"));
        assert!(outgoing.is_empty());
        begin(&mut outgoing, 7, 1200);
        assert_eq!(outgoing.join_message(|_| Err("no")), Err("no"));
        join(&mut outgoing, 8, 1200);
        assert_eq!(shapes(&outgoing), [(1200, 2, 2400)]);
    }

    #[test]
    fn a_batch_is_full_before_a_datagram_lacks_room() {
        let mut outgoing = OutgoingBatch::new(1472);
        let mut count = 0;
        while !outgoing.is_buffer_full() {
            begin(&mut outgoing, 0, 1000);
            outgoing.close_message();
            count += 1;
        }
        assert_eq!(count, MAX_MESSAGES);
        outgoing.remove_messages(count - 1);
        assert_eq!(shapes(&outgoing), [(1000, 1, 1000)]);
        outgoing.remove_messages(1);
        assert!(outgoing.is_empty() && !outgoing.is_buffer_full());

        let mut outgoing = OutgoingBatch::new(1472);
        loop {
            match outgoing.joinable_message() {
                Some(_) => join(&mut outgoing, 0, 1472),
                None if outgoing.is_buffer_full() => break,
                None => begin(&mut outgoing, 0, 1472),
            }
        }
        assert_eq!(shapes(&outgoing), [(1472, 44, 44 * 1472); 2], "no message is cut short by the buffer's end");
    }

    #[test]
    fn a_split_message_keeps_the_order_of_its_datagrams() {
        let mut outgoing = OutgoingBatch::new(1472);
        begin(&mut outgoing, 1, 1000);
        join(&mut outgoing, 2, 1000);
        join(&mut outgoing, 3, 10);
        begin(&mut outgoing, 4, 500);
        join(&mut outgoing, 5, 500);
        outgoing.split_messages(1);
        assert_eq!(shapes(&outgoing), [(1000, 1, 1000), (1000, 1, 1000), (10, 1, 10), (500, 2, 1000)]);
        let first: Vec<u8> = outgoing.messages().iter().map(|message| outgoing.payload(message)[0]).collect();
        assert_eq!(first, [1, 2, 3, 4]);
        outgoing.split_messages(9);
        assert_eq!(outgoing.messages().len(), 5);
    }

    #[test]
    fn kept_messages_keep_their_order() {
        let mut outgoing = OutgoingBatch::new(1472);
        for first in [1, 3, 5, 7] {
            begin(&mut outgoing, first, 100);
            join(&mut outgoing, first + 1, 100);
            outgoing.close_message();
        }
        let fates = [MessageAction::Keep, MessageAction::Remove, MessageAction::SplitFirst];
        outgoing.settle_messages(3, |index, message| {
            assert_eq!(message.count, 2);
            fates[index]
        });
        let first = |outgoing: &OutgoingBatch| -> Vec<(u8, usize)> {
            outgoing.messages().iter().map(|message| (outgoing.payload(message)[0], message.count)).collect()
        };
        assert_eq!(first(&outgoing), [(5, 1), (6, 1), (1, 2), (7, 2)]);
        outgoing.settle_messages(9, |index, _| if index < 2 { MessageAction::Remove } else { MessageAction::Split });
        assert_eq!(first(&outgoing), [(1, 1), (2, 1), (7, 1), (8, 1)]);
        outgoing.settle_messages(4, |_, _| MessageAction::Remove);
        assert!(outgoing.is_empty() && !outgoing.is_buffer_full());
    }

    proptest! {
        /// Every datagram is sent, whole or split, with the same bytes in the same order.
        #[test]
        fn no_byte_is_lost_or_moved(sizes in proptest::collection::vec(1_usize..1472, 1..200), apart: bool) {
            let mut outgoing = OutgoingBatch::new(1472);
            let mut expected = Vec::new();
            for (n, size) in sizes.into_iter().enumerate() {
                let byte = u8::try_from(n % 251).unwrap();
                match outgoing.joinable_message() {
                    Some(open) if size <= open.segment => join(&mut outgoing, byte, size),
                    _ if outgoing.is_buffer_full() => break,
                    _ => begin(&mut outgoing, byte, size),
                }
                expected.push(vec![byte; size]);
            }
            if apart {
                outgoing.split_messages(usize::MAX);
            }
            let mut found = Vec::new();
            for message in outgoing.messages() {
                prop_assert!(message.len <= MAX_MESSAGE_LEN && message.count <= MAX_SEGMENTS);
                let cut: Vec<Vec<u8>> = outgoing.payload(message).chunks(message.segment).map(<[u8]>::to_vec).collect();
                prop_assert_eq!(cut.len(), message.count);
                found.extend(cut);
            }
            prop_assert_eq!(found, expected);
        }
    }
}

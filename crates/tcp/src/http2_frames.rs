//! Counts the frames of an HTTP/2 connection by kind, from their headers alone (RFC 9113 §4.1), so that their rate and
//! the memory that h2 needs for them are bounded. Pure.

use litequic_base::token_bucket::TokenBucket;
use litequic_exchange::{
    http2::{
        FRAME_HEADER_LEN, Http2FrameHeader, PREFACE,
        flag::{self, END_HEADERS, END_STREAM},
        kind::{CONTINUATION, DATA, HEADERS, PRIORITY, PRIORITY_UPDATE, RST_STREAM},
    },
    priority,
};
use std::time::Instant;

/// Length of a stream dependency and a weight in bytes, in PRIORITY frames and at the beginning of HEADERS.
const WEIGHT_LEN: u32 = 5;
/// Largest payload of a PRIORITY_UPDATE frame in bytes. A longer one is skipped.
const MAX_UPDATE_LEN: u32 = 64;
/// Payload below which a DATA frame counts as small, in bytes.
const SMALL_DATA_LEN: u32 = 64;

/// Memory of a DATA frame in h2, in bytes: a shorter frame needs as much.
const DATA_FRAME_MEMORY: u32 = 256;

/// Too many frames other than DATA and HEADERS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameFlood;

/// Memory, in bytes, that a DATA frame of `length` bytes needs in h2 beside its payload. An empty frame needs none.
pub(crate) fn data_frame_overhead(length: usize) -> u64 {
    if length == 0 { 0 } else { u64::from(DATA_FRAME_MEMORY).saturating_sub(length as u64) }
}

/// A PRIORITY_UPDATE frame (RFC 9218 §7.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityUpdate {
    /// Stream to which the update applies.
    pub stream: u32,
    /// Value in the syntax of a `Priority` field.
    pub value: Vec<u8>,
}

/// A received priority signal: a PRIORITY_UPDATE frame, or a weight of RFC 7540.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedPriority {
    /// A PRIORITY or HEADERS frame with a weight that expresses an urgency ([`priority::urgency_from_weight`]).
    Weight {
        /// Stream of the frame.
        stream: u32,
        /// Urgency that the weight expresses.
        urgency: u8,
    },
    /// A complete PRIORITY_UPDATE frame.
    Whole(PriorityUpdate),
    /// A PRIORITY_UPDATE frame that was too long, and was skipped.
    Skipped,
    /// A PRIORITY_UPDATE frame on a stream, which is a connection error of type PROTOCOL_ERROR.
    OnStream,
    /// A PRIORITY_UPDATE frame too short for its stream ID, which is a connection error of type FRAME_SIZE_ERROR (RFC
    /// 9113 §4.2).
    Short,
}

/// The effect of a written frame on the response of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFrame {
    /// A header, interim or final, or trailers begin.
    Head,
    /// The response is complete.
    End,
    /// The response was cut off.
    Reset,
}

/// Scans bytes that arrive in pieces for the headers of frames.
#[derive(Debug, Default)]
struct FrameHeaderScanner {
    /// Number of bytes to skip: a preface, then payloads.
    skip: u64,
    partial_header: [u8; FRAME_HEADER_LEN],
    header_len: usize,
}

impl FrameHeaderScanner {
    /// Returns the next header that ends in `rest`, and advances `rest` behind it. `None` once `rest` is used up.
    fn next_header(&mut self, rest: &mut &[u8]) -> Option<Http2FrameHeader> {
        while !rest.is_empty() {
            if self.skip > 0 {
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(rest.len());
                self.skip = self.skip.saturating_sub(skipped as u64);
                *rest = rest.get(skipped..).unwrap_or_default();
                continue;
            }
            let (room, wanted) = (
                self.partial_header.get_mut(self.header_len..).unwrap_or_default(),
                FRAME_HEADER_LEN.saturating_sub(self.header_len),
            );
            let taken = wanted.min(rest.len());
            for (to, from) in room.iter_mut().zip(*rest) {
                *to = *from;
            }
            *rest = rest.get(taken..).unwrap_or_default();
            self.header_len = self.header_len.saturating_add(taken);
            if self.header_len < FRAME_HEADER_LEN {
                return None;
            }
            self.header_len = 0;
            let header = Http2FrameHeader::parse_frame_header(&self.partial_header);
            self.skip = header.length.into();
            return Some(header);
        }
        None
    }
}

/// Scans written bytes for frames that begin, complete or cut off a response.
#[derive(Debug, Default)]
pub(crate) struct SentFrameScanner {
    headers: FrameHeaderScanner,
    /// Number of bytes written so far.
    written: u64,
    /// The header that CONTINUATION frames continue is the whole response.
    ends: bool,
}

impl SentFrameScanner {
    /// Scans `bytes` that are being written. Calls `found` for each such frame with its stream, an offset in all
    /// written bytes, and its effect. The offset is that of the frame's header, or of its end for
    /// [`ResponseFrame::End`].
    pub(crate) fn scan_written(&mut self, bytes: &[u8], mut found: impl FnMut(u32, u64, ResponseFrame)) {
        let end = self.written.saturating_add(bytes.len() as u64);
        let mut rest = bytes;
        while let Some(Http2FrameHeader { length, kind, flags, stream }) = self.headers.next_header(&mut rest) {
            let behind = end.saturating_sub(rest.len() as u64);
            let mut ends = false;
            match kind {
                HEADERS => {
                    found(stream, behind.saturating_sub(FRAME_HEADER_LEN as u64), ResponseFrame::Head);
                    (ends, self.ends) = match (flags & END_STREAM > 0, flags & END_HEADERS > 0) {
                        (is_last, true) => (is_last, false),
                        (is_last, false) => (false, is_last),
                    };
                }
                CONTINUATION => ends = self.ends && flags & END_HEADERS > 0,
                DATA => ends = flags & END_STREAM > 0,
                RST_STREAM => found(stream, behind, ResponseFrame::Reset),
                _ => {}
            }
            if ends {
                found(stream, behind.saturating_add(length.into()), ResponseFrame::End);
            }
        }
        self.written = end;
    }
}

/// Counter of the frames that one client sends.
#[derive(Debug)]
pub struct FrameCounter {
    headers: FrameHeaderScanner,
    control: TokenBucket,
    /// Small DATA frames that the reader has not taken, but for one of each request.
    pub small: u32,
    /// Requests that have begun and whose first DATA frame has not come: that of a short message is no flood.
    first_frames: u32,
    /// Streams with short DATA frames that the reader has not taken, and the memory that h2 needs for these frames
    /// beside their payload, in bytes.
    pub overheads: Vec<(u32, u64)>,
    /// Payload bytes of DATA frames that the reader has not taken, as flow control counts them (RFC 9113 §6.9.1).
    pub data: u64,
    /// HEADERS frames that the reader has not taken.
    pub heads: u32,
    /// Streams of RST_STREAM frames that the reader has not taken.
    pub resets: Vec<u32>,
    /// Priority signals that the reader has not taken; `None` if signals are not read.
    pub updates: Option<Vec<ReceivedPriority>>,
    /// The payload that is being read.
    payload: PartialPayload,
}

/// The part of a payload that was read: of a PRIORITY_UPDATE frame, or the beginning of another.
#[derive(Debug, Default)]
struct PartialPayload {
    bytes: Vec<u8>,
    missing: usize,
    /// Stream of the weight; 0 for a PRIORITY_UPDATE frame.
    stream: u32,
}

impl FrameCounter {
    /// Creates a counter from the preface on, which allows `control` frames other than DATA and HEADERS a second.
    pub fn new(control: u32) -> Self {
        Self {
            headers: FrameHeaderScanner { skip: PREFACE.len() as u64, ..FrameHeaderScanner::default() },
            control: TokenBucket::new(control),
            small: 0,
            first_frames: 0,
            overheads: Vec::new(),
            data: 0,
            heads: 0,
            resets: Vec::new(),
            updates: None,
            payload: PartialPayload::default(),
        }
    }

    /// Counts the frames in received bytes.
    ///
    /// # Errors
    ///
    /// The [`FrameFlood`] for which the connection is to be closed.
    pub fn count_received_frames(&mut self, bytes: &[u8], now: Instant) -> Result<(), FrameFlood> {
        let mut rest = bytes;
        let mut control = 0_u32;
        self.read_payload(&mut rest);
        while let Some(Http2FrameHeader { length, kind, flags, stream }) = self.headers.next_header(&mut rest) {
            match kind {
                HEADERS => {
                    self.heads = self.heads.saturating_add(1);
                    self.first_frames = self.first_frames.saturating_add(1);
                }
                DATA => self.count_data_frame(stream, length),
                _ => control = control.saturating_add(1),
            }
            match kind {
                RST_STREAM => self.resets.push(stream),
                PRIORITY_UPDATE => self.begin_priority_update(length, stream, &mut rest),
                PRIORITY if length == WEIGHT_LEN && stream > 0 => {
                    self.begin_payload(WEIGHT_LEN, length, stream, &mut rest);
                }
                HEADERS if flags & flag::PRIORITY > 0 && stream > 0 => {
                    let count = WEIGHT_LEN + u32::from(flags & flag::PADDED > 0);
                    self.begin_payload(count, length, stream, &mut rest);
                }
                _ => {}
            }
        }
        if control > 0 && !self.control.take_tokens(control, now) {
            return Err(FrameFlood);
        }
        Ok(())
    }

    fn count_data_frame(&mut self, stream: u32, length: u32) {
        self.data = self.data.saturating_add(length.into());
        if length < SMALL_DATA_LEN {
            match self.first_frames.checked_sub(1) {
                Some(left) => self.first_frames = left,
                None => self.small = self.small.saturating_add(1),
            }
        }
        let overhead = data_frame_overhead(length as usize);
        match self.overheads.last_mut() {
            _ if overhead == 0 => {}
            Some((last, sum)) if *last == stream => *sum = sum.saturating_add(overhead),
            _ => self.overheads.push((stream, overhead)),
        }
    }

    /// Handles the header of a PRIORITY_UPDATE frame, with the bytes behind it in `rest`.
    fn begin_priority_update(&mut self, length: u32, stream: u32, rest: &mut &[u8]) {
        let Some(updates) = &mut self.updates else { return };
        match length {
            _ if stream > 0 => updates.push(ReceivedPriority::OnStream),
            0..4 => updates.push(ReceivedPriority::Short),
            4..=MAX_UPDATE_LEN => self.begin_payload(length, length, 0, rest),
            _ => updates.push(ReceivedPriority::Skipped),
        }
    }

    /// Begins to read a payload on `stream`: the first `count` of `length` bytes behind the header.
    fn begin_payload(&mut self, count: u32, length: u32, stream: u32, rest: &mut &[u8]) {
        if self.updates.is_none() {
            return;
        }
        let Some(skip) = length.checked_sub(count) else { return };
        self.headers.skip = skip.into();
        (self.payload.missing, self.payload.stream) = (count as usize, stream);
        self.read_payload(rest);
    }

    /// Reads the missing part of the payload from `rest`, and advances `rest` behind it.
    fn read_payload(&mut self, rest: &mut &[u8]) {
        let PartialPayload { bytes, missing, stream } = &mut self.payload;
        if *missing == 0 {
            return;
        }
        let (taken, behind) = rest.split_at((*missing).min(rest.len()));
        bytes.extend_from_slice(taken);
        *missing -= taken.len();
        *rest = behind;
        if *missing > 0 {
            return;
        }
        let update = match (*stream, bytes.split_first_chunk(), bytes.last_chunk()) {
            (0, Some((id, value)), _) => {
                let stream = u32::from_be_bytes(*id) & 0x7fff_ffff;
                Some(ReceivedPriority::Whole(PriorityUpdate { stream, value: value.to_vec() }))
            }
            (stream, _, Some(weight)) => {
                priority::urgency_from_weight(*weight).map(|urgency| ReceivedPriority::Weight { stream, urgency })
            }
            _ => None,
        };
        if let Some(updates) = &mut self.updates {
            updates.extend(update);
        }
        bytes.clear();
    }
}

/// Encodes a frame.
#[cfg(test)]
pub(crate) fn frame_bytes(kind: u8, flags: u8, stream: u8, length: u32) -> Vec<u8> {
    let [_, a, b, c] = length.to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream][..], &vec![6; length as usize]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    /// Counts these frames, received in pieces of `step` bytes.
    fn read(frames: &[(u8, u32)], step: usize) -> Result<(), FrameFlood> {
        let mut all = PREFACE.to_vec();
        all.extend(frames.iter().flat_map(|(kind, length)| frame_bytes(*kind, 0, 1, *length)));
        // The limits of one frame a second allow ten at once.
        let mut counted = FrameCounter::new(1);
        let now = Instant::now();
        all.chunks(step).try_for_each(|piece| counted.count_received_frames(piece, now))
    }

    #[test]
    fn each_kind_of_frame_has_a_flood_bound() {
        for step in [1, 5, 10_000] {
            for kind in [2, 3, 4, 6, 8, 9, 77] {
                assert_eq!(read(&[(kind, 8); 10], step), Ok(()), "kind {kind}");
                assert_eq!(read(&[(kind, 8); 11], step), Err(FrameFlood), "kind {kind}");
            }
            assert_eq!(read(&vec![(DATA, 1); 100], step), Ok(()));
            assert_eq!(read(&vec![(HEADERS, 3); 100], step), Ok(()));
        }
    }

    #[test]
    fn small_data_frames_are_counted_but_for_one_of_each_request() {
        let mut all = vec![b'P'; PREFACE.len()];
        for (kind, stream, length) in
            [(HEADERS, 1, 9), (DATA, 1, 10), (HEADERS, 3, 9), (DATA, 3, 0), (DATA, 1, 63), (DATA, 1, 0), (DATA, 3, 64)]
        {
            all.extend(frame_bytes(kind, 0, stream, length));
        }
        all.extend(frame_bytes(DATA, 0, 3, 300));
        for step in [1, 7, 10_000] {
            let mut counted = FrameCounter::new(1);
            let mut overheads = std::collections::BTreeMap::<u32, u64>::new();
            for piece in all.chunks(step) {
                counted.count_received_frames(piece, Instant::now()).unwrap();
                counted.overheads.drain(..).for_each(|(stream, bytes)| *overheads.entry(stream).or_default() += bytes);
            }
            assert_eq!(counted.small, 2, "{step}");
            assert_eq!(overheads.into_iter().collect::<Vec<_>>(), [(1, 246 + 193), (3, 192)], "{step}");
        }
    }

    /// Scans `frames` (kind, flags, length), written in pieces of `step` bytes.
    fn find(frames: &[(u8, u8, u32)], step: usize) -> Vec<(u32, u64, ResponseFrame)> {
        let all: Vec<u8> =
            frames.iter().flat_map(|(kind, flags, length)| frame_bytes(*kind, *flags, 1, *length)).collect();
        let (mut sent, mut found) = (SentFrameScanner::default(), Vec::new());
        all.chunks(step).for_each(|piece| sent.scan_written(piece, |stream, at, what| found.push((stream, at, what))));
        found
    }

    #[test]
    fn a_response_begins_with_headers_and_ends_with_end_stream_or_reset() {
        for step in [1, 4, 9, 1_000] {
            let response = [(4, 0, 6), (HEADERS, END_HEADERS, 10), (DATA, 0, 100), (DATA, END_STREAM, 5)];
            assert_eq!(find(&response, step), [(1, 15, ResponseFrame::Head), (1, 157, ResponseFrame::End)]);
            let bodiless = [(HEADERS, END_HEADERS | END_STREAM, 10), (8, 1, 4)];
            assert_eq!(find(&bodiless, step), [(1, 0, ResponseFrame::Head), (1, 19, ResponseFrame::End)]);
            let long = [(HEADERS, END_STREAM, 10), (CONTINUATION, 0, 10), (CONTINUATION, END_HEADERS, 10)];
            assert_eq!(find(&long, step), [(1, 0, ResponseFrame::Head), (1, 57, ResponseFrame::End)]);
            let open = [(HEADERS, 0, 10), (CONTINUATION, END_HEADERS, 10), (RST_STREAM, 0, 4)];
            assert_eq!(find(&open, step), [(1, 0, ResponseFrame::Head), (1, 47, ResponseFrame::Reset)]);
        }
    }

    #[test]
    fn updates_of_priorities_are_read_as_far_as_they_are_short() {
        let update = |stream: u8, payload: &[u8]| {
            let mut bytes = frame_bytes(PRIORITY_UPDATE, 0, stream, 0);
            bytes[2] = u8::try_from(payload.len()).unwrap();
            [&bytes, payload].concat()
        };
        let of = |stream, value: &[u8]| ReceivedPriority::Whole(PriorityUpdate { stream, value: value.to_vec() });
        let all = [
            PREFACE.to_vec(),
            update(0, b"\x00\x00\x00\x05u=1, i"),
            frame_bytes(HEADERS, 0, 1, 12),
            update(0, b"\xff\xff\xff\xff"),
            update(0, &[0; 64]),
            update(0, &[0; 65]),
            update(3, b"\x00\x00\x00\x05u=1"),
            update(0, b"\x00\x00\x05"),
            update(0, b"\x00\x00\x00\x07"),
        ]
        .concat();
        let expected = [
            of(5, b"u=1, i"),
            of(0x7fff_ffff, b""),
            of(0, &[0; 60]),
            ReceivedPriority::Skipped,
            ReceivedPriority::OnStream,
            ReceivedPriority::Short,
            of(7, b""),
        ];
        for step in [1, 3, 7, 1_000] {
            let mut counted = FrameCounter { updates: Some(Vec::new()), ..FrameCounter::new(10) };
            all.chunks(step).for_each(|piece| counted.count_received_frames(piece, Instant::now()).unwrap());
            assert_eq!((counted.updates.as_deref(), counted.heads), (Some(&expected[..]), 1), "{step}");
            let mut unread = FrameCounter::new(10);
            all.chunks(step).for_each(|piece| unread.count_received_frames(piece, Instant::now()).unwrap());
            assert_eq!((unread.updates, unread.heads), (None, 1));
        }
    }

    #[test]
    fn weights_that_express_urgencies_are_read_of_priority_frames_and_headers() {
        let weighted = |kind, flags, stream, payload: &[u8], more: usize| {
            let mut bytes = frame_bytes(kind, flags, stream, 0);
            bytes[2] = u8::try_from(payload.len() + more).unwrap();
            [&bytes, payload, &vec![7; more]].concat()
        };
        let all = [
            PREFACE.to_vec(),
            weighted(HEADERS, flag::PRIORITY | END_HEADERS, 1, &[0x80, 0, 0, 0, 255], 20),
            weighted(HEADERS, flag::PRIORITY | flag::PADDED, 3, &[4, 0x80, 0, 0, 1, 146], 20),
            // Too short for a weight.
            weighted(HEADERS, flag::PRIORITY, 5, &[0x80, 0, 0, 0], 0),
            weighted(PRIORITY, 0, 3, &[0x80, 0, 0, 0, 219], 0),
            // No urgency, not exclusive, too short, no stream.
            weighted(PRIORITY, 0, 3, &[0x80, 0, 0, 0, 15], 0),
            weighted(PRIORITY, 0, 3, &[0, 0, 0, 0, 219], 0),
            weighted(PRIORITY, 0, 3, &[0x80, 0, 0, 0], 0),
            weighted(PRIORITY, 0, 0, &[0x80, 0, 0, 0, 219], 0),
            frame_bytes(HEADERS, 0, 7, 12),
        ]
        .concat();
        let of = |stream, urgency| ReceivedPriority::Weight { stream, urgency };
        for step in [1, 3, 7, 1_000] {
            let mut counted = FrameCounter { updates: Some(Vec::new()), ..FrameCounter::new(10) };
            all.chunks(step).for_each(|piece| counted.count_received_frames(piece, Instant::now()).unwrap());
            assert_eq!(counted.updates, Some(vec![of(1, 0), of(3, 3), of(3, 1)]), "{step}");
            assert_eq!(counted.heads, 4);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_http2_frame_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..20) {
            let mut counted = FrameCounter { updates: Some(Vec::new()), ..FrameCounter::new(1) };
            for piece in bytes.chunks(step) {
                let _ = counted.count_received_frames(piece, Instant::now());
            }
            let mut sent = SentFrameScanner::default();
            bytes.chunks(step).for_each(|piece| sent.scan_written(piece, |_, _, _| {}));
        }
    }
}

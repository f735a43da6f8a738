//! Splits a stream's bytes into frames. Bodies pass through in slices; only small frames are buffered.

use super::{FrameHeader, FrameType};
use crate::{error_code::ErrorCode, varint};
use bytes::{Buf, Bytes, BytesMut};

/// The treatment of a frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadAction {
    /// Return the payload in slices as they arrive.
    Stream,
    /// Keep the payload until it is complete, up to `max` bytes.
    Whole {
        /// Largest payload in bytes.
        max: usize,
    },
    /// Drop the payload.
    Skip,
}

/// The result of reading a stream's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameEvent {
    /// A slice of a streamed payload, never empty.
    Data(Bytes),
    /// A frame, complete with payload.
    Frame {
        /// The frame's type.
        kind: FrameType,
        /// The frame's payload.
        payload: Bytes,
    },
    /// A frame that is longer than allowed. Its payload is dropped as it arrives.
    TooLarge {
        /// Type and announced length of the frame.
        header: FrameHeader,
    },
}

/// Reader of frames from the chunks of one stream. It keeps at most an unfinished frame header and the `max` bytes of
/// an unfinished [`PayloadAction::Whole`], for which memory is allocated as bytes arrive, not as they are announced.
#[derive(Debug, Default)]
pub struct FrameReader {
    state: FrameReaderState,
}

#[derive(Debug)]
enum FrameReaderState {
    Type(varint::PartialVarint),
    Length { kind: FrameType, length: varint::PartialVarint },
    Stream { rest: u64 },
    Whole { kind: FrameType, length: usize, payload: BytesMut },
    Skip { rest: u64 },
}

impl Default for FrameReaderState {
    fn default() -> Self {
        Self::Type(varint::PartialVarint::default())
    }
}

impl FrameReader {
    /// Consumes bytes from the front of `input` up to the next event. Returns `None` once `input` is used up; then call
    /// again with the stream's next chunk.
    ///
    /// `begin` is called once a frame, before the first byte of its payload is read, and decides what to do with it.
    ///
    /// # Errors
    ///
    /// The error of `begin`. The reader must not be used afterwards.
    pub fn read_event(
        &mut self,
        input: &mut Bytes,
        mut begin: impl FnMut(FrameHeader) -> Result<PayloadAction, ErrorCode>,
    ) -> Result<Option<FrameEvent>, ErrorCode> {
        loop {
            match &mut self.state {
                FrameReaderState::Type(partial) => {
                    let Some(kind) = partial.read_partial(input) else { return Ok(None) };
                    let kind = FrameType::from_value(kind);
                    self.state = FrameReaderState::Length { kind, length: varint::PartialVarint::default() };
                }
                FrameReaderState::Length { kind, length } => {
                    let Some(length) = length.read_partial(input) else { return Ok(None) };
                    let header = FrameHeader { kind: *kind, length };
                    self.state = match begin(header)? {
                        PayloadAction::Stream => FrameReaderState::Stream { rest: length },
                        PayloadAction::Skip => FrameReaderState::Skip { rest: length },
                        PayloadAction::Whole { max } => match usize::try_from(length) {
                            Ok(length) if length <= max => {
                                FrameReaderState::Whole { kind: header.kind, length, payload: BytesMut::new() }
                            }
                            _ => {
                                self.state = FrameReaderState::Skip { rest: length };
                                return Ok(Some(FrameEvent::TooLarge { header }));
                            }
                        },
                    };
                }
                FrameReaderState::Stream { rest: 0 } | FrameReaderState::Skip { rest: 0 } => {
                    self.state = FrameReaderState::default();
                }
                FrameReaderState::Stream { rest } => {
                    let piece = take_front(input, rest);
                    return Ok((!piece.is_empty()).then_some(FrameEvent::Data(piece)));
                }
                FrameReaderState::Skip { rest } => {
                    if take_front(input, rest).is_empty() {
                        return Ok(None);
                    }
                }
                FrameReaderState::Whole { kind, length, payload } => {
                    let kind = *kind;
                    let missing = length.saturating_sub(payload.len());
                    let payload = if payload.is_empty() && input.len() >= missing {
                        input.split_to(missing)
                    } else {
                        let piece = input.split_to(missing.min(input.len()));
                        payload.extend_from_slice(&piece);
                        if payload.len() < *length {
                            return Ok(None);
                        }
                        std::mem::take(payload).freeze()
                    };
                    self.state = FrameReaderState::default();
                    return Ok(Some(FrameEvent::Frame { kind, payload }));
                }
            }
        }
    }

    /// Whether the reader is between two frames. A stream that ends elsewhere has cut a frame: H3_FRAME_ERROR (RFC 9114
    /// §7.1).
    pub fn is_between_frames(&self) -> bool {
        match &self.state {
            FrameReaderState::Type(partial) => partial.is_empty(),
            FrameReaderState::Stream { rest } | FrameReaderState::Skip { rest } => *rest == 0,
            FrameReaderState::Length { .. } | FrameReaderState::Whole { .. } => false,
        }
    }
}

/// Takes at most `rest` bytes from the front of `input`, and subtracts them from `rest`.
fn take_front(input: &mut Bytes, rest: &mut u64) -> Bytes {
    let length = usize::try_from(*rest).unwrap_or(usize::MAX).min(input.remaining());
    *rest = rest.saturating_sub(length as u64);
    input.split_to(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 8;

    fn rule(header: FrameHeader) -> Result<PayloadAction, ErrorCode> {
        Ok(match header.kind {
            FrameType::Data => PayloadAction::Stream,
            FrameType::Headers => PayloadAction::Whole { max: MAX },
            FrameType::Reserved(_) => return Err(ErrorCode::FrameUnexpected),
            _ => PayloadAction::Skip,
        })
    }

    /// The events of `chunks`, pieces of one DATA frame joined, then the error or whether the end is between frames.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<FrameEvent>, Result<bool, ErrorCode>) {
        let mut reader = FrameReader::default();
        let mut events = Vec::new();
        for chunk in chunks {
            let mut input = Bytes::copy_from_slice(chunk);
            loop {
                match reader.read_event(&mut input, rule) {
                    Ok(Some(FrameEvent::Data(piece))) => {
                        assert!(!piece.is_empty());
                        match events.last_mut() {
                            Some(FrameEvent::Data(data)) => *data = [&data[..], &piece].concat().into(),
                            _ => events.push(FrameEvent::Data(piece)),
                        }
                    }
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break assert!(input.is_empty()),
                    Err(code) => return (events, Err(code)),
                }
            }
        }
        (events, Ok(reader.is_between_frames()))
    }

    /// The expected result of [`read`], computed from all bytes at once.
    fn oracle(mut bytes: &[u8]) -> (Vec<FrameEvent>, Result<bool, ErrorCode>) {
        let mut events = Vec::new();
        while let Some((header, used)) = FrameHeader::decode_frame_header(bytes) {
            bytes = &bytes[used..];
            let length = usize::try_from(header.length).unwrap().min(bytes.len());
            let (payload, rest) = bytes.split_at(length);
            let whole = length as u64 == header.length;
            match rule(header) {
                Err(code) => return (events, Err(code)),
                Ok(PayloadAction::Stream) if payload.is_empty() => {}
                Ok(PayloadAction::Stream) => match events.last_mut() {
                    Some(FrameEvent::Data(data)) => *data = [&data[..], payload].concat().into(),
                    _ => events.push(FrameEvent::Data(Bytes::copy_from_slice(payload))),
                },
                Ok(PayloadAction::Whole { max }) if header.length > max as u64 => {
                    events.push(FrameEvent::TooLarge { header });
                }
                Ok(PayloadAction::Whole { .. }) if whole => {
                    events.push(FrameEvent::Frame { kind: header.kind, payload: Bytes::copy_from_slice(payload) });
                }
                Ok(PayloadAction::Whole { .. } | PayloadAction::Skip) => {}
            }
            if !whole {
                return (events, Ok(false));
            }
            bytes = rest;
        }
        (events, Ok(bytes.is_empty()))
    }

    #[test]
    fn an_announced_gigabyte_is_not_buffered() {
        // HEADERS and an unknown type of 2^30 bytes
        let (events, end) = read([&[0x01, 0xc0, 0, 0, 0, 0x40, 0, 0, 0][..], &[0; 100]]);
        let header = FrameHeader { kind: FrameType::Headers, length: 1 << 30 };
        assert_eq!((events, end), (vec![FrameEvent::TooLarge { header }], Ok(false)));
        let (events, end) = read([&[0x21, 0xc0, 0, 0, 0, 0x40, 0, 0, 0][..], &[0; 100]]);
        assert_eq!((events, end), (vec![], Ok(false)));
    }

    #[test]
    fn a_whole_frame_in_one_chunk_is_not_copied() {
        let mut input = Bytes::from_static(&[0x01, 0x02, b'a', b'b', 0x00, 0x01, b'c']);
        let inside = input.as_ptr_range();
        let mut reader = FrameReader::default();
        let Ok(Some(FrameEvent::Frame { payload, .. })) = reader.read_event(&mut input, rule) else {
            panic!("no frame")
        };
        assert!(inside.contains(&payload.as_ptr()));
    }

    #[test]
    fn an_empty_frame_is_whole_at_once() {
        let frame = FrameEvent::Frame { kind: FrameType::Headers, payload: Bytes::new() };
        assert_eq!(read([&[0x01, 0x00][..]]), (vec![frame], Ok(true)));
        assert_eq!(read([&[0x00, 0x00, 0x21, 0x00][..]]), (vec![], Ok(true)));
    }

    /// Mostly sensible frames, so that more than the first header is reached.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![Just(0_u64), Just(1), Just(2), Just(0x21), Just(0x1f_ffff)];
        let frame =
            (kind, proptest::collection::vec(any::<u8>(), 0..12), 0_u64..20).prop_map(|(kind, payload, more)| {
                let length = payload.len() as u64 + if more == 19 { more } else { 0 };
                let mut out = BytesMut::new();
                FrameHeader { kind: FrameType::from_value(kind), length }.encode_frame_header(&mut out);
                [&out[..], &payload].concat()
            });
        (proptest::collection::vec(frame, 0..6), 0_usize..3).prop_map(|(frames, cut)| {
            let mut bytes = frames.concat();
            bytes.truncate(bytes.len().saturating_sub(cut));
            bytes
        })
    }

    proptest! {
        #[test]
        fn any_split_into_chunks_gives_the_same_frames(bytes in stream(), cuts: Vec<prop::sample::Index>) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            let expected = oracle(&bytes);
            prop_assert_eq!(read(chunks), expected.clone());
            prop_assert_eq!(read(bytes.chunks(1)), expected);
        }

        #[test]
        fn no_frame_bytes_panic_or_are_kept_beyond_the_bound(bytes: Vec<u8>) {
            let (events, end) = read(bytes.chunks(3));
            prop_assert_eq!((&events, &end), (&oracle(&bytes).0, &oracle(&bytes).1));
            for event in events {
                if let FrameEvent::Frame { payload, .. } = event {
                    prop_assert!(payload.len() <= MAX);
                }
            }
        }
    }
}

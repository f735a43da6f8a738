//! Cuts a stream's bytes into frames as they come. Bodies pass through in slices; only small frames are kept whole.

use super::{FrameHeader, FrameType};
use crate::http3::{error::Code, varint};
use bytes::{Buf, Bytes, BytesMut};

/// What to do with a frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Hand it on in slices as they arrive.
    Stream,
    /// Keep it until it is whole, up to `max` bytes.
    Whole {
        /// Bytes.
        max: usize,
    },
    /// Drop it.
    Skip,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of a streamed frame's payload; never empty.
    Data(Bytes),
    /// A frame with its whole payload.
    Frame {
        /// Its type.
        kind: FrameType,
        /// Its payload.
        payload: Bytes,
    },
    /// A frame longer than it may be. Its payload is dropped as it arrives.
    TooLarge {
        /// Its type and the length that it announced.
        header: FrameHeader,
    },
}

/// Reads frames from the chunks of one stream. Keeps at most an unfinished frame header and the `max` bytes of an
/// unfinished [`Payload::Whole`]; what it has to keep it allocates as the bytes arrive, not as they are announced.
#[derive(Debug, Default)]
pub struct FrameReader {
    state: State,
}

#[derive(Debug)]
enum State {
    Type(varint::Partial),
    Length { kind: FrameType, length: varint::Partial },
    Stream { rest: u64 },
    Whole { kind: FrameType, length: usize, payload: BytesMut },
    Skip { rest: u64 },
}

impl Default for State {
    fn default() -> Self {
        Self::Type(varint::Partial::default())
    }
}

impl FrameReader {
    /// Takes bytes from the front of `input` up to the next event. `None` means that `input` is used up: call again
    /// with the stream's next chunk.
    ///
    /// `begin` is asked once a frame, before the first byte of its payload is looked at, what to do with it.
    ///
    /// # Errors
    ///
    /// What `begin` returned. The reader is of no use afterwards.
    pub fn read(
        &mut self,
        input: &mut Bytes,
        mut begin: impl FnMut(FrameHeader) -> Result<Payload, Code>,
    ) -> Result<Option<Event>, Code> {
        loop {
            match &mut self.state {
                State::Type(partial) => {
                    let Some(kind) = partial.read(input) else { return Ok(None) };
                    let kind = FrameType::from_value(kind);
                    self.state = State::Length { kind, length: varint::Partial::default() };
                }
                State::Length { kind, length } => {
                    let Some(length) = length.read(input) else { return Ok(None) };
                    let header = FrameHeader { kind: *kind, length };
                    self.state = match begin(header)? {
                        Payload::Stream => State::Stream { rest: length },
                        Payload::Skip => State::Skip { rest: length },
                        Payload::Whole { max } => match usize::try_from(length) {
                            Ok(length) if length <= max => {
                                State::Whole { kind: header.kind, length, payload: BytesMut::new() }
                            }
                            _ => {
                                self.state = State::Skip { rest: length };
                                return Ok(Some(Event::TooLarge { header }));
                            }
                        },
                    };
                }
                State::Stream { rest: 0 } | State::Skip { rest: 0 } => self.state = State::default(),
                State::Stream { rest } => {
                    let piece = take(input, rest);
                    return Ok((!piece.is_empty()).then_some(Event::Data(piece)));
                }
                State::Skip { rest } => {
                    if take(input, rest).is_empty() {
                        return Ok(None);
                    }
                }
                State::Whole { kind, length, payload } => {
                    let kind = *kind;
                    let missing = *length - payload.len();
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
                    self.state = State::default();
                    return Ok(Some(Event::Frame { kind, payload }));
                }
            }
        }
    }

    /// True between frames. A stream that ends elsewhere cut a frame: H3_FRAME_ERROR (RFC 9114 §7.1).
    pub fn is_between_frames(&self) -> bool {
        match &self.state {
            State::Type(partial) => partial.is_empty(),
            State::Stream { rest } | State::Skip { rest } => *rest == 0,
            State::Length { .. } | State::Whole { .. } => false,
        }
    }
}

/// The front of `input`, at most `rest` bytes, which are then taken off `rest`.
fn take(input: &mut Bytes, rest: &mut u64) -> Bytes {
    let length = usize::try_from(*rest).unwrap_or(usize::MAX).min(input.remaining());
    *rest -= length as u64;
    input.split_to(length)
}

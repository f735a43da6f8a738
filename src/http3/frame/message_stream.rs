//! A request stream as its receiver sees it: a header, a body, perhaps trailers, in that order (RFC 9114 §4.1).

use super::{Endpoint, Event, FrameHeader, FrameReader, FrameType, Payload};
use crate::http3::error::Code;
use bytes::Bytes;

/// Frames in a row that carry nothing (empty DATA, unknown types) before a stream is called a flood. Clients that
/// grease send one or two a request.
pub const MAX_IDLE_FRAMES: u32 = 128;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The header's encoded field section.
    Header(Bytes),
    /// The header is larger than allowed: 431. Nothing of it is kept; the body still follows.
    HeaderTooLarge,
    /// Bytes of the body; never empty.
    Data(Bytes),
    /// The trailers' encoded field section.
    Trailers(Bytes),
    /// The trailers are larger than allowed. Nothing of them is kept.
    TrailersTooLarge,
}

/// Reads the messages of a peer from one bidirectional stream and holds the peer to the order of frames.
#[derive(Debug)]
pub struct MessageStream {
    reader: FrameReader,
    rules: Rules,
}

#[derive(Debug)]
struct Rules {
    peer: Endpoint,
    expected: Expected,
    max_field_section: usize,
    idle_frames: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Header,
    BodyOrTrailers,
    End,
}

impl MessageStream {
    /// A stream on which `peer` sends; its encoded field sections are at most `max_field_section` bytes long.
    pub fn new(peer: Endpoint, max_field_section: usize) -> Self {
        let rules = Rules { peer, expected: Expected::Header, max_field_section, idle_frames: 0 };
        Self { reader: FrameReader::default(), rules }
    }

    /// Takes bytes from the front of `input` up to the next part. `None` means that `input` is used up.
    ///
    /// # Errors
    ///
    /// The code with which the connection is to be closed.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Part>, Code> {
        let rules = &mut self.rules;
        let Some(event) = self.reader.read(input, |header| rules.begin(header))? else { return Ok(None) };
        // `begin` has moved on already: a header is behind us when a body may follow.
        let trailers = rules.expected == Expected::End;
        Ok(Some(match event {
            Event::Data(data) => {
                rules.idle_frames = 0;
                Part::Data(data)
            }
            Event::Frame { payload, .. } if trailers => Part::Trailers(payload),
            Event::Frame { payload, .. } => Part::Header(payload),
            Event::TooLarge { .. } if trailers => Part::TrailersTooLarge,
            Event::TooLarge { .. } => Part::HeaderTooLarge,
        }))
    }

    /// Lets another header follow the one that was just read: it was an interim response (1xx).
    pub fn expect_another_header(&mut self) {
        self.rules.expected = Expected::Header;
    }

    /// The stream ended with FIN and all its bytes were read.
    ///
    /// # Errors
    ///
    /// H3_FRAME_ERROR if a frame was cut: the connection's error. H3_REQUEST_INCOMPLETE (from a client) or
    /// H3_MESSAGE_ERROR (from a server) if there was no header: the stream's error.
    pub fn finish(&self) -> Result<(), Code> {
        match (self.reader.is_between_frames(), self.rules.expected, self.rules.peer) {
            (false, ..) => Err(Code::FrameError),
            (true, Expected::Header, Endpoint::Client) => Err(Code::RequestIncomplete),
            (true, Expected::Header, Endpoint::Server) => Err(Code::MessageError),
            (true, Expected::BodyOrTrailers | Expected::End, _) => Ok(()),
        }
    }
}

impl Rules {
    fn begin(&mut self, header: FrameHeader) -> Result<Payload, Code> {
        match (header.kind, self.expected) {
            (FrameType::Headers, Expected::Header) => {
                self.expected = Expected::BodyOrTrailers;
                self.idle_frames = 0;
                Ok(Payload::Whole { max: self.max_field_section })
            }
            (FrameType::Headers, Expected::BodyOrTrailers) => {
                self.expected = Expected::End;
                self.idle_frames = 0;
                Ok(Payload::Whole { max: self.max_field_section })
            }
            (FrameType::Data, Expected::BodyOrTrailers) => {
                if header.length == 0 {
                    self.idle()?;
                }
                Ok(Payload::Stream)
            }
            (FrameType::Unknown(_), _) => {
                self.idle()?;
                Ok(Payload::Skip)
            }
            // We never send MAX_PUSH_ID, so that every push ID is larger than allowed (RFC 9114 §7.2.5).
            (FrameType::PushPromise, _) if self.peer == Endpoint::Server => Err(Code::IdError),
            _ => Err(Code::FrameUnexpected),
        }
    }

    fn idle(&mut self) -> Result<(), Code> {
        self.idle_frames += 1;
        if self.idle_frames > MAX_IDLE_FRAMES { Err(Code::ExcessiveLoad) } else { Ok(()) }
    }
}

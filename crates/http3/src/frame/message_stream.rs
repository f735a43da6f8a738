//! Reads a request stream: a header, a body, perhaps trailers, in that order (RFC 9114 §4.1).

use super::{FrameEvent, FrameHeader, FrameReader, FrameType, PayloadAction, PeerRole};
use crate::error_code::ErrorCode;
use bytes::Bytes;

/// Largest number of consecutive frames without content (empty DATA, unknown types). Clients that grease send one or
/// two a request.
pub const MAX_IDLE_FRAMES: u32 = 128;

/// Payload below which a DATA frame counts as small, in bytes: reading the frame costs more than its payload does.
const SMALL_DATA_FRAME: u64 = 64;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
    /// The header's encoded field section.
    Header(Bytes),
    /// The header is larger than allowed, which is answered 431. Nothing of it is kept; the body still follows.
    HeaderTooLarge,
    /// Bytes of the body, never none.
    Data(Bytes),
    /// The trailers' encoded field section.
    Trailers(Bytes),
    /// The trailers are larger than allowed. Nothing of them is kept.
    TrailersTooLarge,
}

/// Reader of the messages of a peer on one bidirectional stream, which enforces the order of frames.
#[derive(Debug)]
pub struct MessageStream {
    reader: FrameReader,
    rules: MessageRules,
}

#[derive(Debug)]
struct MessageRules {
    peer: PeerRole,
    expected: ExpectedFrame,
    max_field_section: usize,
    idle_frames: u32,
    small_frames: u32,
    /// Whether a DATA frame has begun: the first may be short, as that of a short message.
    has_data: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedFrame {
    Header,
    BodyOrTrailers,
    /// After an extended CONNECT (RFC 9114 §4.4).
    Data,
    End,
}

impl MessageStream {
    /// Creates a reader of a stream on which `peer` sends encoded field sections of at most `max_field_section` bytes.
    pub fn new(peer: PeerRole, max_field_section: usize) -> Self {
        let rules = MessageRules {
            peer,
            expected: ExpectedFrame::Header,
            max_field_section,
            idle_frames: 0,
            small_frames: 0,
            has_data: false,
        };
        Self { reader: FrameReader::default(), rules }
    }

    /// Consumes bytes from the front of `input` up to the next part. Returns `None` once `input` is used up.
    ///
    /// # Errors
    ///
    /// The code with which the connection is to be closed.
    pub fn read_part(&mut self, input: &mut Bytes) -> Result<Option<MessagePart>, ErrorCode> {
        let rules = &mut self.rules;
        let Some(event) = self.reader.read_event(input, |header| rules.begin_message_frame(header))? else {
            return Ok(None);
        };
        // `begin_message_frame` has advanced already: once a body may follow, a header was read.
        let trailers = rules.expected == ExpectedFrame::End;
        Ok(Some(match event {
            FrameEvent::Data(data) => {
                rules.idle_frames = 0;
                MessagePart::Data(data)
            }
            FrameEvent::Frame { payload, .. } if trailers => MessagePart::Trailers(payload),
            FrameEvent::Frame { payload, .. } => MessagePart::Header(payload),
            FrameEvent::TooLarge { .. } if trailers => MessagePart::TrailersTooLarge,
            FrameEvent::TooLarge { .. } => MessagePart::HeaderTooLarge,
        }))
    }

    /// Accepts another header, as the last one was that of an interim response (1xx).
    pub fn expect_another_header(&mut self) {
        self.rules.expected = ExpectedFrame::Header;
    }

    /// Accepts only DATA from now on, as the header was that of an extended CONNECT.
    pub fn expect_data_only(&mut self) {
        self.rules.expected = ExpectedFrame::Data;
    }

    /// Returns the number of small DATA frames, but for the first frame, that have begun since the last call.
    pub fn take_small_frames(&mut self) -> u32 {
        std::mem::take(&mut self.rules.small_frames)
    }

    /// Checks that the stream may end here, once all its bytes were read.
    ///
    /// # Errors
    ///
    /// H3_FRAME_ERROR if a frame was cut: the connection's error. H3_REQUEST_INCOMPLETE (from a client) or
    /// H3_MESSAGE_ERROR (from a server) if there was no header: the stream's error.
    pub fn check_end(&self) -> Result<(), ErrorCode> {
        match (self.reader.is_between_frames(), self.rules.expected, self.rules.peer) {
            (false, ..) => Err(ErrorCode::FrameError),
            (true, ExpectedFrame::Header, PeerRole::Client) => Err(ErrorCode::RequestIncomplete),
            (true, ExpectedFrame::Header, PeerRole::Server) => Err(ErrorCode::MessageError),
            (true, ExpectedFrame::BodyOrTrailers | ExpectedFrame::Data | ExpectedFrame::End, _) => Ok(()),
        }
    }
}

impl MessageRules {
    fn begin_message_frame(&mut self, header: FrameHeader) -> Result<PayloadAction, ErrorCode> {
        match (header.kind, self.expected) {
            (FrameType::Headers, ExpectedFrame::Header) => {
                self.expected = ExpectedFrame::BodyOrTrailers;
                self.idle_frames = 0;
                Ok(PayloadAction::Whole { max: self.max_field_section })
            }
            (FrameType::Headers, ExpectedFrame::BodyOrTrailers) => {
                self.expected = ExpectedFrame::End;
                self.idle_frames = 0;
                Ok(PayloadAction::Whole { max: self.max_field_section })
            }
            (FrameType::Data, ExpectedFrame::BodyOrTrailers | ExpectedFrame::Data) => {
                if header.length == 0 {
                    self.count_idle_frame()?;
                }
                if std::mem::replace(&mut self.has_data, true) && header.length < SMALL_DATA_FRAME {
                    self.small_frames = self.small_frames.saturating_add(1);
                }
                Ok(PayloadAction::Stream)
            }
            (FrameType::Unknown(_), _) => {
                self.count_idle_frame()?;
                Ok(PayloadAction::Skip)
            }
            // litequic never sends MAX_PUSH_ID, so that every push ID is larger than allowed (RFC 9114 §7.2.5).
            (FrameType::PushPromise, _) if self.peer == PeerRole::Server => Err(ErrorCode::IdError),
            _ => Err(ErrorCode::FrameUnexpected),
        }
    }

    fn count_idle_frame(&mut self) -> Result<(), ErrorCode> {
        self.idle_frames = self.idle_frames.saturating_add(1);
        if self.idle_frames > MAX_IDLE_FRAMES { Err(ErrorCode::ExcessiveLoad) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4;
    const HEADERS: &[u8] = &[0x01, 0x01, b'h'];
    const DATA: &[u8] = &[0x00, 0x02, b'd', b'd'];
    const EMPTY_DATA: &[u8] = &[0x00, 0x00];
    const UNKNOWN: &[u8] = &[0x21, 0x02, 0xff, 0xff];
    const LARGE_HEADERS: &[u8] = &[0x01, 0x05, 0, 0, 0, 0, 0];

    /// Reads `frames` to their end; parts as letters: H, h (too large), D, T, t (too large).
    fn read(peer: PeerRole, frames: &[&[u8]]) -> (String, Result<(), ErrorCode>) {
        let mut stream = MessageStream::new(peer, MAX);
        let mut input = Bytes::from(frames.concat());
        let mut letters = String::new();
        loop {
            match stream.read_part(&mut input) {
                Ok(Some(part)) => letters.push(match part {
                    MessagePart::Header(_) => 'H',
                    MessagePart::HeaderTooLarge => 'h',
                    MessagePart::Data(_) => 'D',
                    MessagePart::Trailers(_) => 'T',
                    MessagePart::TrailersTooLarge => 't',
                }),
                Ok(None) => return (letters, stream.check_end()),
                Err(code) => return (letters, Err(code)),
            }
        }
    }

    /// Frames, parts, and end.
    type Case<'a> = (&'a [&'a [u8]], &'a str, Result<(), ErrorCode>);

    #[test]
    fn a_request_is_a_header_a_body_and_trailers_in_that_order() {
        let table: [Case<'_>; 22] = [
            (&[HEADERS], "H", Ok(())),
            (&[HEADERS, DATA], "HD", Ok(())),
            (&[HEADERS, DATA, DATA], "HDD", Ok(())),
            (&[HEADERS, EMPTY_DATA], "H", Ok(())),
            (&[HEADERS, HEADERS], "HT", Ok(())),
            (&[HEADERS, DATA, HEADERS], "HDT", Ok(())),
            (&[UNKNOWN, HEADERS, UNKNOWN, DATA, UNKNOWN, HEADERS, UNKNOWN], "HDT", Ok(())),
            (&[LARGE_HEADERS, DATA], "hD", Ok(())),
            (&[HEADERS, LARGE_HEADERS], "Ht", Ok(())),
            // order
            (&[DATA, HEADERS], "", Err(ErrorCode::FrameUnexpected)),
            (&[EMPTY_DATA], "", Err(ErrorCode::FrameUnexpected)),
            (&[HEADERS, HEADERS, HEADERS], "HT", Err(ErrorCode::FrameUnexpected)),
            (&[HEADERS, HEADERS, DATA], "HT", Err(ErrorCode::FrameUnexpected)),
            // frames of other streams: rejected before a byte of payload is there
            (&[HEADERS, &[0x04, 0x7f, 0xff]], "H", Err(ErrorCode::FrameUnexpected)), // SETTINGS
            (&[&[0x07, 0x01]], "", Err(ErrorCode::FrameUnexpected)),                 // GOAWAY
            (&[&[0x03, 0x01]], "", Err(ErrorCode::FrameUnexpected)),                 // CANCEL_PUSH
            (&[&[0x0d, 0x01]], "", Err(ErrorCode::FrameUnexpected)),                 // MAX_PUSH_ID
            (&[HEADERS, &[0x05, 0x01]], "H", Err(ErrorCode::FrameUnexpected)),       // PUSH_PROMISE
            (&[HEADERS, &[0x06, 0x00]], "H", Err(ErrorCode::FrameUnexpected)),       // HTTP/2's PING
            // the end of the stream
            (&[], "", Err(ErrorCode::RequestIncomplete)),
            (&[UNKNOWN], "", Err(ErrorCode::RequestIncomplete)),
            (&[HEADERS, &[0x00, 0x02, b'd']], "HD", Err(ErrorCode::FrameError)),
        ];
        for (frames, letters, end) in table {
            assert_eq!(read(PeerRole::Client, frames), (letters.to_owned(), end), "{frames:02x?}");
        }
    }

    #[test]
    fn a_frame_cut_by_the_end_of_stream_is_an_error() {
        for frame in [HEADERS, DATA, UNKNOWN, LARGE_HEADERS] {
            for cut in 1..frame.len() {
                let (_, end) = read(PeerRole::Client, &[HEADERS, &frame[..cut]]);
                assert_eq!(end, Err(ErrorCode::FrameError), "{frame:02x?} cut after {cut}");
            }
        }
    }

    #[test]
    fn a_client_takes_no_push_and_no_stream_without_a_response() {
        assert_eq!(read(PeerRole::Server, &[HEADERS, &[0x05, 0x01]]), ("H".into(), Err(ErrorCode::IdError)));
        assert_eq!(read(PeerRole::Server, &[UNKNOWN]), (String::new(), Err(ErrorCode::MessageError)));
    }

    #[test]
    fn small_data_frames_are_counted_until_the_count_is_taken() {
        let mut stream = MessageStream::new(PeerRole::Client, MAX);
        let small = [0x00, 0x3f].into_iter().chain([7; 63]).collect::<Vec<u8>>();
        let large = [0x00, 0x40, 0x40].into_iter().chain([7; 64]).collect::<Vec<u8>>();
        let mut input = Bytes::from([HEADERS, DATA, EMPTY_DATA, &small, &large, UNKNOWN].concat());
        while let Ok(Some(_)) = stream.read_part(&mut input) {}
        assert_eq!((stream.take_small_frames(), stream.take_small_frames()), (2, 0));
    }

    #[test]
    fn another_header_may_follow_an_interim_response() {
        let mut stream = MessageStream::new(PeerRole::Server, MAX);
        let mut input = Bytes::from([HEADERS, HEADERS, DATA, HEADERS].concat());
        assert!(matches!(stream.read_part(&mut input), Ok(Some(MessagePart::Header(_)))));
        stream.expect_another_header();
        assert_eq!(stream.check_end(), Err(ErrorCode::MessageError));
        assert!(matches!(stream.read_part(&mut input), Ok(Some(MessagePart::Header(_)))));
        assert!(matches!(stream.read_part(&mut input), Ok(Some(MessagePart::Data(_)))));
        assert!(matches!(stream.read_part(&mut input), Ok(Some(MessagePart::Trailers(_)))));
        assert_eq!((stream.read_part(&mut input), stream.check_end()), (Ok(None), Ok(())));
    }

    #[test]
    fn frames_that_carry_nothing_are_a_flood_after_a_while() {
        for idle in [EMPTY_DATA, UNKNOWN, &[0x21, 0x00]] {
            let at_most = idle.repeat(MAX_IDLE_FRAMES as usize);
            assert_eq!(read(PeerRole::Client, &[HEADERS, &at_most]), ("H".into(), Ok(())));
            assert_eq!(read(PeerRole::Client, &[HEADERS, &at_most, DATA, &at_most]), ("HD".into(), Ok(())));
            let (_, end) = read(PeerRole::Client, &[HEADERS, &at_most, idle]);
            assert_eq!(end, Err(ErrorCode::ExcessiveLoad));
        }
    }
}

//! Reads a peer's control stream: SETTINGS first and once, then GOAWAY, frames about pushes (RFC 9114 §6.2.1, §7.2),
//! and a client's PRIORITY_UPDATE (RFC 9218 §7.2).

use super::{FrameEvent, FrameHeader, FrameReader, FrameType, PayloadAction, PeerRole, settings::Settings};
use crate::{error_code::ErrorCode, varint};
use bytes::{Bytes, BytesMut};

/// Largest number of ignored frames between two calls of [`ControlStream::on_request_progress`]. Browsers send a
/// PRIORITY_UPDATE (RFC 9218) or two a request, and may do so ahead of many requests; some change nothing.
pub const MAX_IGNORED_CONTROL_FRAMES: u32 = 1_024;

/// Largest SETTINGS frame in bytes; clients send under a hundred.
const MAX_SETTINGS_LEN: usize = 512;
/// Largest PRIORITY_UPDATE frame in bytes; browsers send ten. A longer one is skipped.
const MAX_PRIORITY_UPDATE_LEN: usize = 512;
/// Largest frame that holds one integer, in bytes.
const MAX_ID_LEN: usize = 8;

/// A frame of a control stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlFrame {
    /// SETTINGS: always the first frame, and only once.
    Settings(Settings),
    /// GOAWAY. From a client: the first push ID, from a server: the first stream ID, that the sender will not process.
    Goaway(u64),
    /// PRIORITY_UPDATE for the request on a client's bidirectional stream.
    PriorityUpdate {
        /// ID of the stream.
        id: u64,
        /// Value in the syntax of a `Priority` field, not checked yet.
        value: Bytes,
    },
}

/// Reader of a peer's control stream.
#[derive(Debug)]
pub struct ControlStream {
    reader: FrameReader,
    rules: ControlRules,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
}

#[derive(Debug)]
struct ControlRules {
    peer: PeerRole,
    has_settings: bool,
    ignored_frames: u32,
    /// PRIORITY_UPDATE frames that were skipped since [`ControlStream::take_skipped_updates`] was called.
    skipped_updates: u32,
}

impl ControlStream {
    /// Creates a reader of the control stream that `peer` opened.
    pub fn new(peer: PeerRole) -> Self {
        Self {
            reader: FrameReader::default(),
            rules: ControlRules { peer, has_settings: false, ignored_frames: 0, skipped_updates: 0 },
            goaway: None,
            max_push_id: None,
        }
    }

    /// Consumes bytes from the front of `input` up to the next frame of interest. Returns `None` once `input` is used
    /// up.
    ///
    /// A control stream must never end: FIN or a reset is H3_CLOSED_CRITICAL_STREAM, which the caller reports.
    ///
    /// # Errors
    ///
    /// The code with which the connection is to be closed.
    pub fn read_control_frame(&mut self, input: &mut Bytes) -> Result<Option<ControlFrame>, ErrorCode> {
        loop {
            let rules = &mut self.rules;
            let Some(event) = self.reader.read_event(input, |header| rules.begin_control_frame(header))? else {
                return Ok(None);
            };
            let (kind, payload) = match event {
                FrameEvent::Frame { kind, payload } => (kind, payload),
                // SETTINGS may hold any number of unknown settings; their size is limited.
                FrameEvent::TooLarge { header } if header.kind == FrameType::Settings => {
                    return Err(ErrorCode::ExcessiveLoad);
                }
                FrameEvent::TooLarge { .. } => return Err(ErrorCode::FrameError),
                FrameEvent::Data(_) => return Err(ErrorCode::InternalError),
            };
            match kind {
                FrameType::Settings => {
                    return Settings::decode_settings(&payload).map(ControlFrame::Settings).map(Some);
                }
                FrameType::Goaway => return self.check_goaway(&payload).map(ControlFrame::Goaway).map(Some),
                FrameType::MaxPushId => self.check_max_push_id(&payload)?,
                FrameType::PriorityUpdate => return parse_priority_update(payload).map(Some),
                // No push was ever promised, so that no push ID is valid.
                FrameType::PushPriorityUpdate => {
                    varint::decode_varint(&payload).ok_or(ErrorCode::FrameError)?;
                    return Err(ErrorCode::IdError);
                }
                _ => {
                    // CANCEL_PUSH: no push was ever promised or allowed (RFC 9114 §7.2.3).
                    decode_sole_integer(&payload)?;
                    return Err(ErrorCode::IdError);
                }
            }
        }
    }

    /// Resets the count of ignored frames, as a request has begun or ended.
    pub fn on_request_progress(&mut self) {
        self.rules.ignored_frames = 0;
    }

    /// Returns the number of PRIORITY_UPDATE frames that were skipped since the last call.
    pub fn take_skipped_updates(&mut self) -> u32 {
        std::mem::take(&mut self.rules.skipped_updates)
    }

    /// Counts the last PRIORITY_UPDATE frame as ignored, as it has changed nothing.
    ///
    /// # Errors
    ///
    /// H3_EXCESSIVE_LOAD after too many.
    pub fn count_ineffective_update(&mut self) -> Result<(), ErrorCode> {
        self.rules.count_ignored_frame()
    }

    fn check_goaway(&mut self, payload: &[u8]) -> Result<u64, ErrorCode> {
        let id = decode_sole_integer(payload)?;
        // A server names a client-initiated bidirectional stream (RFC 9114 §7.2.6).
        let wrong_kind = self.rules.peer == PeerRole::Server && id % 4 != 0;
        if wrong_kind || self.goaway.is_some_and(|last| id > last) {
            return Err(ErrorCode::IdError);
        }
        self.goaway = Some(id);
        Ok(id)
    }

    fn check_max_push_id(&mut self, payload: &[u8]) -> Result<(), ErrorCode> {
        let id = decode_sole_integer(payload)?;
        if self.max_push_id.is_some_and(|last| id < last) {
            return Err(ErrorCode::IdError);
        }
        self.max_push_id = Some(id);
        Ok(())
    }
}

impl ControlRules {
    fn begin_control_frame(&mut self, header: FrameHeader) -> Result<PayloadAction, ErrorCode> {
        if !self.has_settings {
            if header.kind != FrameType::Settings {
                return Err(ErrorCode::MissingSettings);
            }
            self.has_settings = true;
            return Ok(PayloadAction::Whole { max: MAX_SETTINGS_LEN });
        }
        match header.kind {
            FrameType::Goaway => self.count_ignored_frame()?,
            FrameType::CancelPush => {}
            FrameType::MaxPushId if self.peer == PeerRole::Client => self.count_ignored_frame()?,
            FrameType::PriorityUpdate | FrameType::PushPriorityUpdate if self.peer == PeerRole::Client => {
                if header.length > MAX_PRIORITY_UPDATE_LEN as u64 {
                    self.skipped_updates = self.skipped_updates.saturating_add(1);
                    self.count_ignored_frame()?;
                    return Ok(PayloadAction::Skip);
                }
                return Ok(PayloadAction::Whole { max: MAX_PRIORITY_UPDATE_LEN });
            }
            FrameType::Unknown(_) => {
                self.count_ignored_frame()?;
                return Ok(PayloadAction::Skip);
            }
            _ => return Err(ErrorCode::FrameUnexpected),
        }
        Ok(PayloadAction::Whole { max: MAX_ID_LEN })
    }

    fn count_ignored_frame(&mut self) -> Result<(), ErrorCode> {
        self.ignored_frames = self.ignored_frames.saturating_add(1);
        if self.ignored_frames > MAX_IGNORED_CONTROL_FRAMES { Err(ErrorCode::ExcessiveLoad) } else { Ok(()) }
    }
}

/// Parses a PRIORITY_UPDATE frame of a request.
fn parse_priority_update(payload: Bytes) -> Result<ControlFrame, ErrorCode> {
    let (id, length) = varint::decode_varint(&payload).ok_or(ErrorCode::FrameError)?;
    // The stream must be a client's and bidirectional (RFC 9000 §2.1).
    if id % 4 != 0 {
        return Err(ErrorCode::IdError);
    }
    Ok(ControlFrame::PriorityUpdate { id, value: payload.slice(length..) })
}

/// Returns the integer in `payload`, which must hold nothing else.
fn decode_sole_integer(payload: &[u8]) -> Result<u64, ErrorCode> {
    match varint::decode_varint(payload) {
        Some((id, length)) if length == payload.len() => Ok(id),
        _ => Err(ErrorCode::FrameError),
    }
}

/// Appends a GOAWAY frame: requests on stream `id` and above are not processed.
pub fn encode_goaway(id: u64, out: &mut BytesMut) {
    FrameHeader { kind: FrameType::Goaway, length: varint::varint_len(id) as u64 }.encode_frame_header(out);
    varint::encode_varint(id, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &[u8] = &[0x04, 0x00];
    const UNKNOWN: &[u8] = &[0x21, 0x01, 0x00];
    use PeerRole::{Client, Server};

    /// Reads `frames` byte by byte to their end; results as letters: S, G, P.
    fn read(peer: PeerRole, frames: &[&[u8]]) -> (String, Result<(), ErrorCode>) {
        let mut stream = ControlStream::new(peer);
        let mut letters = String::new();
        for byte in frames.concat() {
            let mut input = Bytes::copy_from_slice(&[byte]);
            loop {
                match stream.read_control_frame(&mut input) {
                    Ok(Some(ControlFrame::Settings(_))) => letters.push('S'),
                    Ok(Some(ControlFrame::Goaway(_))) => letters.push('G'),
                    Ok(Some(ControlFrame::PriorityUpdate { .. })) => letters.push('P'),
                    Ok(None) => break,
                    Err(code) => return (letters, Err(code)),
                }
            }
        }
        (letters, Ok(()))
    }

    /// Sender, frames, results, and end.
    type Case<'a> = (PeerRole, &'a [&'a [u8]], &'a str, Result<(), ErrorCode>);

    #[test]
    fn a_control_stream_begins_with_settings_and_has_allowed_frames_alone() {
        let table: [Case<'_>; 36] = [
            (Client, &[SETTINGS], "S", Ok(())),
            (Client, &[SETTINGS, UNKNOWN], "S", Ok(())),
            // PRIORITY_UPDATE (RFC 9218): a request's has the ID of its stream, and no push has one
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x00]], "SP", Ok(())),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x04, 0x08, b'u', b'=', b'1']], "SP", Ok(())),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x01]], "S", Err(ErrorCode::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x02]], "S", Err(ErrorCode::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x00]], "S", Err(ErrorCode::FrameError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x40]], "S", Err(ErrorCode::FrameError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x01, 0x01, 0x00]], "S", Err(ErrorCode::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x01, 0x00]], "S", Err(ErrorCode::FrameError)),
            (Server, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            // first and once
            (Client, &[&[0x07, 0x01, 0x00]], "", Err(ErrorCode::MissingSettings)),
            (Client, &[UNKNOWN], "", Err(ErrorCode::MissingSettings)),
            (Client, &[&[0x00, 0x00]], "", Err(ErrorCode::MissingSettings)),
            (Client, &[SETTINGS, SETTINGS], "S", Err(ErrorCode::FrameUnexpected)),
            // frames of request streams and of HTTP/2
            (Client, &[SETTINGS, &[0x00, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x01, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x05, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x02, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x06, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x08, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x09, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            // GOAWAY: one integer, which never rises
            (Client, &[SETTINGS, &[0x07, 0x01, 0x05], &[0x07, 0x01, 0x05], &[0x07, 0x01, 0x00]], "SGGG", Ok(())),
            (Client, &[SETTINGS, &[0x07, 0x01, 0x04], &[0x07, 0x01, 0x05]], "SG", Err(ErrorCode::IdError)),
            (Client, &[SETTINGS, &[0x07, 0x00]], "S", Err(ErrorCode::FrameError)),
            (Client, &[SETTINGS, &[0x07, 0x02, 0x00, 0x00]], "S", Err(ErrorCode::FrameError)),
            (Client, &[SETTINGS, &[0x07, 0x09]], "S", Err(ErrorCode::FrameError)),
            (Server, &[SETTINGS, &[0x07, 0x01, 0x04]], "SG", Ok(())),
            (Server, &[SETTINGS, &[0x07, 0x01, 0x05]], "S", Err(ErrorCode::IdError)),
            // MAX_PUSH_ID: a client's, and it never sinks
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x00], &[0x0d, 0x01, 0x05], &[0x0d, 0x01, 0x05]], "S", Ok(())),
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x05], &[0x0d, 0x01, 0x04]], "S", Err(ErrorCode::IdError)),
            (Client, &[SETTINGS, &[0x0d, 0x00]], "S", Err(ErrorCode::FrameError)),
            (Server, &[SETTINGS, &[0x0d, 0x01, 0x00]], "S", Err(ErrorCode::FrameUnexpected)),
            // CANCEL_PUSH: there are no pushes
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x05], &[0x03, 0x01, 0x00]], "S", Err(ErrorCode::IdError)),
            (Server, &[SETTINGS, &[0x03, 0x01, 0x00]], "S", Err(ErrorCode::IdError)),
            (Server, &[SETTINGS, &[0x03, 0x02, 0x00, 0x00]], "S", Err(ErrorCode::FrameError)),
        ];
        for (peer, frames, letters, end) in table {
            assert_eq!(read(peer, frames), (letters.to_owned(), end), "{peer:?} sends {frames:02x?}");
        }
    }

    #[test]
    fn settings_of_any_length_are_not_collected() {
        let (_, end) = read(Client, &[&[0x04, 0x7f, 0xff]]);
        assert_eq!(end, Err(ErrorCode::ExcessiveLoad));
    }

    #[test]
    fn ineffective_frames_are_a_flood_unless_requests_come_between() {
        let mut stream = ControlStream::new(Client);
        let at_most = Bytes::from(UNKNOWN.repeat(MAX_IGNORED_CONTROL_FRAMES as usize));
        assert!(stream.read_control_frame(&mut Bytes::from_static(SETTINGS)).is_ok());
        assert_eq!(stream.read_control_frame(&mut at_most.clone()), Ok(None));
        stream.on_request_progress();
        assert_eq!(stream.read_control_frame(&mut at_most.clone()), Ok(None));
        assert_eq!(stream.read_control_frame(&mut Bytes::from_static(UNKNOWN)), Err(ErrorCode::ExcessiveLoad));
    }

    #[test]
    fn long_priority_updates_are_skipped_and_ineffective_ones_are_ignored() {
        let mut stream = ControlStream::new(Client);
        let long = [&[0x80, 0x0f, 0x07, 0x00, 0x42, 0x01][..], &[0; MAX_PRIORITY_UPDATE_LEN + 1]].concat();
        let short = [&[0x80, 0x0f, 0x07, 0x00, 0x42, 0x00][..], &[0; MAX_PRIORITY_UPDATE_LEN]].concat();
        let mut input = Bytes::from([SETTINGS, &long, &short].concat());
        assert!(matches!(stream.read_control_frame(&mut input), Ok(Some(ControlFrame::Settings(_)))));
        let Ok(Some(ControlFrame::PriorityUpdate { id: 0, value })) = stream.read_control_frame(&mut input) else {
            panic!()
        };
        assert_eq!((value.len(), input.len()), (MAX_PRIORITY_UPDATE_LEN - 1, 0));
        for _ in 1..MAX_IGNORED_CONTROL_FRAMES {
            assert_eq!(stream.count_ineffective_update(), Ok(()));
        }
        assert_eq!(stream.count_ineffective_update(), Err(ErrorCode::ExcessiveLoad), "the long one counts too");
    }

    #[test]
    fn an_encoded_goaway_decodes() {
        for id in [0, 4, 64, varint::MAX_VARINT - 3] {
            let mut out = BytesMut::from(SETTINGS);
            encode_goaway(id, &mut out);
            let mut input = out.freeze();
            let mut stream = ControlStream::new(Server);
            assert!(matches!(stream.read_control_frame(&mut input), Ok(Some(ControlFrame::Settings(_)))));
            assert_eq!(stream.read_control_frame(&mut input), Ok(Some(ControlFrame::Goaway(id))));
            assert!(input.is_empty());
        }
    }
}

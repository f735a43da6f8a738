//! The receiving side of the control stream: SETTINGS first and once, then GOAWAY, frames about pushes (RFC 9114
//! §6.2.1, §7.2), and a client's PRIORITY_UPDATE (RFC 9218 §7.2).

use super::{Endpoint, Event, FrameHeader, FrameReader, FrameType, Payload, settings::Settings};
use crate::{error::Code, varint};
use bytes::{Bytes, BytesMut};

/// Ignored frames before [`ControlStream::progress`] is called. Browsers send a PRIORITY_UPDATE (RFC 9218) or two
/// a request, and may do so ahead of many requests; some change nothing.
pub const MAX_IGNORED_CONTROL_FRAMES: u32 = 1_024;

/// Bytes of a SETTINGS frame; clients send under a hundred.
const MAX_SETTINGS_LEN: usize = 512;
/// Bytes of a PRIORITY_UPDATE frame; browsers send ten. A longer one is skipped.
const MAX_PRIORITY_UPDATE_LEN: usize = 512;
/// Bytes of the one integer that the other frames hold.
const MAX_ID_LEN: usize = 8;

/// What a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// SETTINGS: always the first frame, and only once.
    Settings(Settings),
    /// GOAWAY. From a client: the first push ID, from a server: the first stream ID, that the sender will not process.
    Goaway(u64),
    /// PRIORITY_UPDATE: the priority of the request on the stream `id`, which is a client's and bidirectional, is
    /// `value`, as of a `Priority` field.
    PriorityUpdate {
        /// The stream.
        id: u64,
        /// Not checked yet.
        value: Bytes,
    },
}

/// Reads a peer's control stream.
#[derive(Debug)]
pub struct ControlStream {
    reader: FrameReader,
    rules: Rules,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
}

#[derive(Debug)]
struct Rules {
    peer: Endpoint,
    settings_seen: bool,
    ignored_frames: u32,
    /// PRIORITY_UPDATE frames that were too long, since the last call.
    skipped_updates: u32,
}

impl ControlStream {
    /// The control stream that `peer` opened.
    pub fn new(peer: Endpoint) -> Self {
        Self {
            reader: FrameReader::default(),
            rules: Rules { peer, settings_seen: false, ignored_frames: 0, skipped_updates: 0 },
            goaway: None,
            max_push_id: None,
        }
    }

    /// Takes bytes from the front of `input` up to the next frame of interest. `None` means that `input` is used up.
    ///
    /// A control stream must never end: FIN or a reset is H3_CLOSED_CRITICAL_STREAM, which the caller reports.
    ///
    /// # Errors
    ///
    /// The code with which the connection is to be closed.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Control>, Code> {
        loop {
            let rules = &mut self.rules;
            let Some(event) = self.reader.read(input, |header| rules.begin(header))? else { return Ok(None) };
            let (kind, payload) = match event {
                Event::Frame { kind, payload } => (kind, payload),
                // SETTINGS may hold any number of unknown settings; their size is limited.
                Event::TooLarge { header } if header.kind == FrameType::Settings => return Err(Code::ExcessiveLoad),
                Event::TooLarge { .. } => return Err(Code::FrameError),
                Event::Data(_) => return Err(Code::InternalError),
            };
            match kind {
                FrameType::Settings => return Settings::decode(&payload).map(Control::Settings).map(Some),
                FrameType::Goaway => return self.goaway(&payload).map(Control::Goaway).map(Some),
                FrameType::MaxPushId => self.max_push_id(&payload)?,
                FrameType::PriorityUpdate => return priority_update(payload).map(Some),
                // No push was ever promised.
                FrameType::PushPriorityUpdate => {
                    varint::decode(&payload).ok_or(Code::FrameError)?;
                    return Err(Code::IdError);
                }
                _ => {
                    // CANCEL_PUSH: no push was ever promised to, or allowed for, us (RFC 9114 §7.2.3).
                    only_integer(&payload)?;
                    return Err(Code::IdError);
                }
            }
        }
    }

    /// A request came or ended: the peer does not only send frames without an effect.
    pub fn progress(&mut self) {
        self.rules.ignored_frames = 0;
    }

    /// Number of PRIORITY_UPDATE frames that were skipped since the last call.
    pub fn take_skipped_updates(&mut self) -> u32 {
        std::mem::take(&mut self.rules.skipped_updates)
    }

    /// The last PRIORITY_UPDATE frame has changed nothing: it counts as ignored.
    ///
    /// # Errors
    ///
    /// H3_EXCESSIVE_LOAD after too many.
    pub fn changed_nothing(&mut self) -> Result<(), Code> {
        self.rules.count()
    }

    fn goaway(&mut self, payload: &[u8]) -> Result<u64, Code> {
        let id = only_integer(payload)?;
        // A server names a client-initiated bidirectional stream (RFC 9114 §7.2.6).
        let wrong_kind = self.rules.peer == Endpoint::Server && id % 4 != 0;
        if wrong_kind || self.goaway.is_some_and(|last| id > last) {
            return Err(Code::IdError);
        }
        self.goaway = Some(id);
        Ok(id)
    }

    fn max_push_id(&mut self, payload: &[u8]) -> Result<(), Code> {
        let id = only_integer(payload)?;
        if self.max_push_id.is_some_and(|last| id < last) {
            return Err(Code::IdError);
        }
        self.max_push_id = Some(id);
        Ok(())
    }
}

impl Rules {
    fn begin(&mut self, header: FrameHeader) -> Result<Payload, Code> {
        if !self.settings_seen {
            if header.kind != FrameType::Settings {
                return Err(Code::MissingSettings);
            }
            self.settings_seen = true;
            return Ok(Payload::Whole { max: MAX_SETTINGS_LEN });
        }
        match header.kind {
            FrameType::Goaway => self.count()?,
            FrameType::CancelPush => {}
            FrameType::MaxPushId if self.peer == Endpoint::Client => self.count()?,
            FrameType::PriorityUpdate | FrameType::PushPriorityUpdate if self.peer == Endpoint::Client => {
                if header.length > MAX_PRIORITY_UPDATE_LEN as u64 {
                    self.skipped_updates = self.skipped_updates.saturating_add(1);
                    self.count()?;
                    return Ok(Payload::Skip);
                }
                return Ok(Payload::Whole { max: MAX_PRIORITY_UPDATE_LEN });
            }
            FrameType::Unknown(_) => {
                self.count()?;
                return Ok(Payload::Skip);
            }
            _ => return Err(Code::FrameUnexpected),
        }
        Ok(Payload::Whole { max: MAX_ID_LEN })
    }

    fn count(&mut self) -> Result<(), Code> {
        self.ignored_frames = self.ignored_frames.saturating_add(1);
        if self.ignored_frames > MAX_IGNORED_CONTROL_FRAMES { Err(Code::ExcessiveLoad) } else { Ok(()) }
    }
}

/// Reads a PRIORITY_UPDATE frame of a request.
fn priority_update(payload: Bytes) -> Result<Control, Code> {
    let (id, length) = varint::decode(&payload).ok_or(Code::FrameError)?;
    // A client's and bidirectional (RFC 9000 §2.1).
    if id % 4 != 0 {
        return Err(Code::IdError);
    }
    Ok(Control::PriorityUpdate { id, value: payload.slice(length..) })
}

/// The integer that alone makes up `payload`.
fn only_integer(payload: &[u8]) -> Result<u64, Code> {
    match varint::decode(payload) {
        Some((id, length)) if length == payload.len() => Ok(id),
        _ => Err(Code::FrameError),
    }
}

/// Appends a GOAWAY frame: requests on stream `id` and above are not processed.
pub fn encode_goaway(id: u64, out: &mut BytesMut) {
    FrameHeader { kind: FrameType::Goaway, length: varint::len(id) as u64 }.encode(out);
    varint::encode(id, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &[u8] = &[0x04, 0x00];
    const UNKNOWN: &[u8] = &[0x21, 0x01, 0x00];
    use Endpoint::{Client, Server};

    /// Reads `frames` byte by byte to their end; results as letters: S, G, P.
    fn read(peer: Endpoint, frames: &[&[u8]]) -> (String, Result<(), Code>) {
        let mut stream = ControlStream::new(peer);
        let mut letters = String::new();
        for byte in frames.concat() {
            let mut input = Bytes::copy_from_slice(&[byte]);
            loop {
                match stream.read(&mut input) {
                    Ok(Some(Control::Settings(_))) => letters.push('S'),
                    Ok(Some(Control::Goaway(_))) => letters.push('G'),
                    Ok(Some(Control::PriorityUpdate { .. })) => letters.push('P'),
                    Ok(None) => break,
                    Err(code) => return (letters, Err(code)),
                }
            }
        }
        (letters, Ok(()))
    }

    /// Sender, frames, results, and how it ends.
    type Case<'a> = (Endpoint, &'a [&'a [u8]], &'a str, Result<(), Code>);

    #[test]
    fn a_control_stream_says_settings_once_and_first_and_then_what_its_side_may() {
        let table: [Case<'_>; 36] = [
            (Client, &[SETTINGS], "S", Ok(())),
            (Client, &[SETTINGS, UNKNOWN], "S", Ok(())),
            // PRIORITY_UPDATE (RFC 9218): a request's has the ID of its stream, and no push has one
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x00]], "SP", Ok(())),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x04, 0x08, b'u', b'=', b'1']], "SP", Ok(())),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x01]], "S", Err(Code::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x02]], "S", Err(Code::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x00]], "S", Err(Code::FrameError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x40]], "S", Err(Code::FrameError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x01, 0x01, 0x00]], "S", Err(Code::IdError)),
            (Client, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x01, 0x00]], "S", Err(Code::FrameError)),
            (Server, &[SETTINGS, &[0x80, 0x0f, 0x07, 0x00, 0x01, 0x00]], "S", Err(Code::FrameUnexpected)),
            // first and once
            (Client, &[&[0x07, 0x01, 0x00]], "", Err(Code::MissingSettings)),
            (Client, &[UNKNOWN], "", Err(Code::MissingSettings)),
            (Client, &[&[0x00, 0x00]], "", Err(Code::MissingSettings)),
            (Client, &[SETTINGS, SETTINGS], "S", Err(Code::FrameUnexpected)),
            // frames of request streams and of HTTP/2
            (Client, &[SETTINGS, &[0x00, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x01, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x05, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x02, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x06, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x08, 0x00]], "S", Err(Code::FrameUnexpected)),
            (Client, &[SETTINGS, &[0x09, 0x00]], "S", Err(Code::FrameUnexpected)),
            // GOAWAY: one integer, which never rises
            (Client, &[SETTINGS, &[0x07, 0x01, 0x05], &[0x07, 0x01, 0x05], &[0x07, 0x01, 0x00]], "SGGG", Ok(())),
            (Client, &[SETTINGS, &[0x07, 0x01, 0x04], &[0x07, 0x01, 0x05]], "SG", Err(Code::IdError)),
            (Client, &[SETTINGS, &[0x07, 0x00]], "S", Err(Code::FrameError)),
            (Client, &[SETTINGS, &[0x07, 0x02, 0x00, 0x00]], "S", Err(Code::FrameError)),
            (Client, &[SETTINGS, &[0x07, 0x09]], "S", Err(Code::FrameError)),
            (Server, &[SETTINGS, &[0x07, 0x01, 0x04]], "SG", Ok(())),
            (Server, &[SETTINGS, &[0x07, 0x01, 0x05]], "S", Err(Code::IdError)),
            // MAX_PUSH_ID: a client's, and it never sinks
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x00], &[0x0d, 0x01, 0x05], &[0x0d, 0x01, 0x05]], "S", Ok(())),
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x05], &[0x0d, 0x01, 0x04]], "S", Err(Code::IdError)),
            (Client, &[SETTINGS, &[0x0d, 0x00]], "S", Err(Code::FrameError)),
            (Server, &[SETTINGS, &[0x0d, 0x01, 0x00]], "S", Err(Code::FrameUnexpected)),
            // CANCEL_PUSH: there are no pushes
            (Client, &[SETTINGS, &[0x0d, 0x01, 0x05], &[0x03, 0x01, 0x00]], "S", Err(Code::IdError)),
            (Server, &[SETTINGS, &[0x03, 0x01, 0x00]], "S", Err(Code::IdError)),
            (Server, &[SETTINGS, &[0x03, 0x02, 0x00, 0x00]], "S", Err(Code::FrameError)),
        ];
        for (peer, frames, letters, end) in table {
            assert_eq!(read(peer, frames), (letters.to_owned(), end), "{peer:?} sends {frames:02x?}");
        }
    }

    #[test]
    fn settings_of_any_length_are_not_collected() {
        let (_, end) = read(Client, &[&[0x04, 0x7f, 0xff]]);
        assert_eq!(end, Err(Code::ExcessiveLoad));
    }

    #[test]
    fn frames_that_say_nothing_are_a_flood_unless_requests_come_between() {
        let mut stream = ControlStream::new(Client);
        let at_most = Bytes::from(UNKNOWN.repeat(MAX_IGNORED_CONTROL_FRAMES as usize));
        assert!(stream.read(&mut Bytes::from_static(SETTINGS)).is_ok());
        assert_eq!(stream.read(&mut at_most.clone()), Ok(None));
        stream.progress();
        assert_eq!(stream.read(&mut at_most.clone()), Ok(None));
        assert_eq!(stream.read(&mut Bytes::from_static(UNKNOWN)), Err(Code::ExcessiveLoad));
    }

    #[test]
    fn a_priority_update_that_is_too_long_is_skipped_and_one_that_changes_nothing_is_ignored() {
        let mut stream = ControlStream::new(Client);
        let long = [&[0x80, 0x0f, 0x07, 0x00, 0x42, 0x01][..], &[0; MAX_PRIORITY_UPDATE_LEN + 1]].concat();
        let short = [&[0x80, 0x0f, 0x07, 0x00, 0x42, 0x00][..], &[0; MAX_PRIORITY_UPDATE_LEN]].concat();
        let mut input = Bytes::from([SETTINGS, &long, &short].concat());
        assert!(matches!(stream.read(&mut input), Ok(Some(Control::Settings(_)))));
        let Ok(Some(Control::PriorityUpdate { id: 0, value })) = stream.read(&mut input) else { panic!() };
        assert_eq!((value.len(), input.len()), (MAX_PRIORITY_UPDATE_LEN - 1, 0));
        for _ in 1..MAX_IGNORED_CONTROL_FRAMES {
            assert_eq!(stream.changed_nothing(), Ok(()));
        }
        assert_eq!(stream.changed_nothing(), Err(Code::ExcessiveLoad), "the long one counts too");
    }

    #[test]
    fn a_goaway_that_we_send_is_one_that_we_understand() {
        for id in [0, 4, 64, varint::MAX - 3] {
            let mut out = BytesMut::from(SETTINGS);
            encode_goaway(id, &mut out);
            let mut input = out.freeze();
            let mut stream = ControlStream::new(Server);
            assert!(matches!(stream.read(&mut input), Ok(Some(Control::Settings(_)))));
            assert_eq!(stream.read(&mut input), Ok(Some(Control::Goaway(id))));
            assert!(input.is_empty());
        }
    }
}

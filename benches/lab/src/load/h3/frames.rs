//! Frames of HTTP/3 (RFC 9114 §7) as they come in pieces: of a response, and of the control stream. Pure.

use super::{
    super::check::Digest,
    fields::{self, Head},
};
use litequic_testkit::{
    h3::{DATA, GOAWAY, HEADERS, SETTINGS},
    varint,
};

/// A field section longer than this is refused: no server that is measured sends one.
const LONGEST_SECTION: u64 = 64 * 1024;

/// HEADERS with `section`, and the frame header of a body of `body` bytes.
pub(super) fn request(section: &[u8], body: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(section.len() + 16);
    varint::append(HEADERS, &mut out);
    varint::append(section.len() as u64, &mut out);
    out.extend_from_slice(section);
    if let Some(length) = body.filter(|length| *length > 0) {
        varint::append(DATA, &mut out);
        varint::append(length, &mut out);
    }
    out
}

/// Where between two frames a stream is.
#[derive(Debug, Default)]
struct Frames {
    /// Begun and not complete: a frame's header, or a payload that is wanted whole.
    partial: Vec<u8>,
    /// The current frame: its type, and how much of it is left.
    current: Option<(u64, u64)>,
}

/// A piece of a frame.
enum Piece<'a> {
    /// The next bytes of a DATA frame.
    Data(&'a [u8]),
    /// All of another frame that is wanted.
    Whole(u64, Vec<u8>),
}

impl Frames {
    /// Takes some of `bytes`; the piece that came complete with it.
    fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, String> {
        loop {
            let Some((kind, left)) = &mut self.current else {
                if !self.header(bytes)? {
                    return Ok(None);
                }
                continue;
            };
            if bytes.is_empty() && *left > 0 {
                return Ok(None);
            }
            let kind = *kind;
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            let (piece, rest) = bytes.split_at_checked(taken).unwrap_or((bytes, &[]));
            *bytes = rest;
            *left -= taken as u64;
            let complete = *left == 0;
            if complete {
                self.current = None;
            }
            match kind {
                DATA if !piece.is_empty() => return Ok(Some(Piece::Data(piece))),
                HEADERS | SETTINGS | GOAWAY => {
                    self.partial.extend_from_slice(piece);
                    if complete {
                        return Ok(Some(Piece::Whole(kind, std::mem::take(&mut self.partial))));
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads a frame's type and length; false when they are not complete.
    fn header(&mut self, bytes: &mut &[u8]) -> Result<bool, String> {
        while let Some((byte, rest)) = bytes.split_first() {
            self.partial.push(*byte);
            *bytes = rest;
            let Some((kind, behind)) = varint::decode(&self.partial) else { continue };
            let Some((length, _)) = varint::decode(behind) else { continue };
            self.partial.clear();
            if matches!(kind, HEADERS | SETTINGS | GOAWAY) && length > LONGEST_SECTION {
                return Err(format!("a frame of type {kind} is {length} bytes long"));
            }
            self.current = Some((kind, length));
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether the stream may end here.
    fn between(&self) -> bool {
        self.current.is_none() && self.partial.is_empty()
    }
}

/// A response as far as it came.
#[derive(Debug, Default)]
pub(super) struct Response {
    frames: Frames,
    head: Option<Head>,
    body: Digest,
    trailers: bool,
}

impl Response {
    /// Takes the stream's next bytes; how many of them were body.
    ///
    /// # Errors
    ///
    /// Describes what is malformed.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<u64, String> {
        let before = self.body.length();
        while let Some(piece) = self.frames.next(&mut bytes)? {
            match piece {
                Piece::Data(_) if self.head.is_none() || self.trailers => return Err("DATA out of place".into()),
                Piece::Data(data) => self.body.update(data),
                Piece::Whole(HEADERS, section) => {
                    let head = fields::response(&section)?;
                    match (&self.head, head.status) {
                        // Informational responses come before the one that counts.
                        (None, 100..200) => {}
                        (None, 200..1000) => self.head = Some(head),
                        (None, status) => return Err(format!("status {status}")),
                        (Some(_), 0) if !self.trailers => self.trailers = true,
                        (Some(_), _) => return Err("HEADERS out of place".into()),
                    }
                }
                Piece::Whole(kind, _) => return Err(format!("a frame of type {kind} on a request stream")),
            }
        }
        Ok(self.body.length() - before)
    }

    /// The response, at the stream's end.
    ///
    /// # Errors
    ///
    /// Describes what is missing.
    pub(super) fn finish(self) -> Result<(Head, Digest), String> {
        match self.head {
            Some(head) if self.frames.between() => Ok((head, self.body)),
            Some(_) => Err("the response ends inside a frame".into()),
            None => Err("the response has no head".into()),
        }
    }
}

/// A stream that the server opened: its control stream, or one without meaning without a dynamic table.
#[derive(Debug, Default)]
pub(super) struct Unidirectional {
    frames: Frames,
    kind: Option<u64>,
    first: Vec<u8>,
    settings: bool,
}

impl Unidirectional {
    /// Takes the stream's next bytes; returns from which request stream on the server accepts no more, if it sent that.
    ///
    /// # Errors
    ///
    /// Describes what is malformed.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<Option<u64>, String> {
        while self.kind.is_none() {
            let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
            self.first.push(*byte);
            bytes = rest;
            self.kind = varint::decode(&self.first).map(|(kind, _)| kind);
        }
        let mut goaway = None;
        while self.kind == Some(0x00)
            && let Some(piece) = self.frames.next(&mut bytes)?
        {
            match piece {
                Piece::Whole(SETTINGS, _) if !self.settings => self.settings = true,
                Piece::Whole(GOAWAY, identifier) if self.settings => {
                    let (identifier, _) = varint::decode(&identifier).ok_or("GOAWAY without an identifier")?;
                    goaway = Some(identifier);
                }
                Piece::Data(_) | Piece::Whole(..) => return Err("a frame out of place on the control stream".into()),
            }
        }
        Ok(goaway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 with content-length 5, then "hel" and "lo" with an unknown frame between.
    const ANSWER: &[u8] = b"\x01\x06\x00\x00\xd9\x54\x015\x00\x03hel\x21\x02xx\x00\x02lo";

    fn received(pieces: &[&[u8]]) -> Result<(Head, u64), String> {
        let mut response = Response::default();
        for piece in pieces {
            response.receive(piece)?;
        }
        response.finish().map(|(head, body)| (head, body.length()))
    }

    #[test]
    fn a_response_is_the_same_however_it_is_cut() {
        let expected = Ok((Head { status: 200, content_length: Some(5) }, 5));
        assert_eq!(received(&[ANSWER]), expected);
        for cut in 0..ANSWER.len() {
            let (one, two) = ANSWER.split_at(cut);
            assert_eq!(received(&[one, two]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = ANSWER.chunks(1).collect();
        assert_eq!(received(&bytes), expected);
    }

    #[test]
    fn a_response_that_ends_inside_a_frame_is_an_error() {
        // Between two frames it is complete as far as frames go; the length is held against content-length later.
        let whole = [8, 13, 17];
        for cut in 0..ANSWER.len() {
            assert_eq!(received(&[&ANSWER[..cut]]).is_ok(), whole.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn frames_out_of_place_are_errors() {
        assert!(received(&[b"\x00\x01x"]).is_err());
        assert!(received(&[b"\x04\x00"]).is_err());
        assert!(received(&[b"\x01\x03\x00\x00\xd9\x01\x03\x00\x00\xd9"]).is_err());
        assert!(received(&[b"\x01\x80\xff\xff\xff"]).is_err(), "endless HEADERS");
    }

    #[test]
    fn informational_responses_and_trailers_are_passed_over() {
        let all = b"\x01\x03\x00\x00\xd8\x01\x03\x00\x00\xd9\x00\x02hi\x01\x07\x00\x00\x21x\x02yz";
        assert_eq!(received(&[all]), Ok((Head { status: 200, content_length: None }, 2)));
    }

    #[test]
    fn goaway_is_seen_on_the_control_stream_alone() {
        let mut control = Unidirectional::default();
        assert_eq!(control.receive(b"\x00\x04\x00"), Ok(None));
        assert_eq!(control.receive(b"\x07\x01"), Ok(None));
        assert_eq!(control.receive(b"\x04"), Ok(Some(4)));
        let mut encoder = Unidirectional::default();
        assert_eq!(encoder.receive(b"\x02\x07\x01\x04"), Ok(None));
        assert!(Unidirectional::default().receive(b"\x00\x07\x01\x04").is_err(), "SETTINGS come first");
    }
}

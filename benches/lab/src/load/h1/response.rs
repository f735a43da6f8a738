//! One HTTP/1.1 response as it comes in pieces (RFC 9112). Pure.

use super::super::check::Digest;

/// A head longer than this is refused: no server that is measured sends one.
const LONGEST_HEAD: usize = 64 * 1024;

/// Fields that are understood.
const FIELDS: usize = 64;

/// A response as far as it came.
#[derive(Debug, Default)]
pub(super) struct Response {
    head: Vec<u8>,
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
    /// Whether the connection ends with this response.
    pub(super) last: bool,
    pub(super) body: Digest,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes are left.
    Length(u64),
    /// All until the connection ends.
    UntilEnd,
    Complete,
}

impl Response {
    /// Takes some of `bytes`; how many of them were body.
    ///
    /// # Errors
    ///
    /// Describes what is malformed, or not supported.
    pub(super) fn receive(&mut self, bytes: &mut &[u8]) -> Result<u64, String> {
        let before = self.body.length();
        while self.state == State::Head && !bytes.is_empty() {
            self.read_head(bytes)?;
        }
        let taken = match self.state {
            State::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()),
            State::UntilEnd => bytes.len(),
            State::Head | State::Complete => 0,
        };
        let (piece, rest) = bytes.split_at_checked(taken).unwrap_or((bytes, &[]));
        self.body.update(piece);
        *bytes = rest;
        if let State::Length(left) = &mut self.state {
            *left -= taken as u64;
            if *left == 0 {
                self.state = State::Complete;
            }
        }
        Ok(self.body.length() - before)
    }

    /// Whether it has all come.
    pub(super) fn complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether it has all come when the connection ends now.
    pub(super) fn complete_at_end(&self) -> bool {
        matches!(self.state, State::Complete | State::UntilEnd)
    }

    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<(), String> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        let head = parsed.parse(&self.head).map_err(|error| format!("the response's head: {error}"))?;
        let httparse::Status::Complete(length) = head else {
            *bytes = &[];
            return if self.head.len() > LONGEST_HEAD { Err("the response's head is too long".into()) } else { Ok(()) };
        };
        let status = parsed.code.unwrap_or(0);
        let (mut announced, mut last) = (None, parsed.version == Some(0));
        for field in parsed.headers.iter() {
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            if field.name.eq_ignore_ascii_case("content-length") {
                announced = Some(value.parse().map_err(|_| format!("content-length: {value}"))?);
            } else if field.name.eq_ignore_ascii_case("connection") {
                last = value.eq_ignore_ascii_case("close");
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                // Every contender that serves a file announces its length.
                return Err(format!("transfer-encoding: {value} is not measured"));
            }
        }
        *bytes = bytes.get(length - before..).unwrap_or_default();
        self.head.clear();
        if (100..200).contains(&status) {
            return Ok(());
        }
        (self.status, self.content_length, self.last) = (status, announced, last);
        self.state = match announced {
            _ if matches!(status, 204 | 304) => State::Complete,
            Some(0) => State::Complete,
            Some(length) => State::Length(length),
            None => {
                self.last = true;
                State::UntilEnd
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn a_response_is_the_same_however_it_is_cut() {
        for cut in 0..=ANSWER.len() {
            let mut response = Response::default();
            let (one, two) = ANSWER.split_at(cut);
            for mut piece in [one, two] {
                response.receive(&mut piece).unwrap();
                assert!(piece.is_empty());
            }
            assert!(response.complete(), "cut at {cut}");
            assert_eq!((response.status, response.content_length, response.body.length()), (200, Some(5), 5));
            assert!(!response.last);
        }
    }

    #[test]
    fn what_follows_a_response_is_left() {
        let both = [ANSWER, ANSWER].concat();
        let mut bytes = both.as_slice();
        let mut response = Response::default();
        response.receive(&mut bytes).unwrap();
        assert!(response.complete());
        assert_eq!(bytes, ANSWER);
    }

    #[test]
    fn a_response_without_a_length_ends_with_the_connection() {
        let mut response = Response::default();
        response.receive(&mut &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello"[..]).unwrap();
        assert!(!response.complete() && response.complete_at_end() && response.last);
        assert_eq!(response.body.length(), 5);
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        assert!(
            Response::default().receive(&mut &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..]).is_err()
        );
        assert!(Response::default().receive(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"[..]).is_err());
        assert!(Response::default().receive(&mut &b"SSH-2.0\r\n\r\n"[..]).is_err());
        assert!(Response::default().receive(&mut [b'H'; LONGEST_HEAD + 1].as_slice()).is_err());
    }
}

//! The lines of a response's head, one after the other (RFC 9112 §2.2, §4, §5). They are those that httparse finds, which a
//! test compares: it fills a table of all lines first, and looks for folded lines and others that are an error here.

use super::is_token_byte;
use httparse::Error;

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// Why a line was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// The bytes end within it.
    Partial,
    Invalid(Error),
}

impl<'b> Lines<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that were read.
    pub(super) const fn length(&self) -> usize {
        self.at
    }

    /// Reads the status line, and empty ones before it. Returns whether the version is HTTP/1.0, and the status code.
    pub(super) fn status_line(&mut self) -> Result<(bool, u16), Unread> {
        const VERSION: Unread = Unread::Invalid(Error::Version);
        while self.is_empty_line()? {}
        let rest = self.rest();
        let is_http_10 = match rest.first_chunk() {
            Some(b"HTTP/1.1") => false,
            Some(b"HTTP/1.0") => true,
            None if b"HTTP/1.".starts_with(rest) => return Err(Unread::Partial),
            Some(_) | None => return Err(VERSION),
        };
        self.at = self.at.saturating_add(b"HTTP/1.1".len());
        if self.next()? != b' ' {
            return Err(VERSION);
        }
        let mut status = 0;
        for _ in 0..3 {
            let byte = self.next()?;
            let digit = char::from(byte).to_digit(10).and_then(|digit| u16::try_from(digit).ok());
            status = status * 10 + digit.ok_or(Unread::Invalid(Error::Status))?;
        }
        // A reason phrase has the bytes of a value.
        if self.rest().first() == Some(&b' ') {
            self.value()?;
        }
        self.end(Error::Status)?;
        Ok((is_http_10, status))
    }

    /// The next field's name and value, without blanks around it; `None` at the empty line.
    pub(super) fn field(&mut self) -> Result<Option<(&'b [u8], &'b [u8])>, Unread> {
        if self.is_empty_line()? {
            return Ok(None);
        }
        let rest = self.rest();
        let length = rest.iter().position(|byte| !is_token_byte(*byte)).ok_or(Unread::Partial)?;
        let Some((name, [b':', ..])) = rest.split_at_checked(length).filter(|(name, _)| !name.is_empty()) else {
            return Err(Unread::Invalid(Error::HeaderName));
        };
        self.at = self.at.saturating_add(length).saturating_add(1);
        let value = self.value()?;
        self.end(Error::HeaderValue)?;
        Ok(Some((name, trimmed(value))))
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<u8, Unread> {
        let byte = *self.bytes.get(self.at).ok_or(Unread::Partial)?;
        self.at = self.at.saturating_add(1);
        Ok(byte)
    }

    /// Reads an empty line, if there is one.
    fn is_empty_line(&mut self) -> Result<bool, Unread> {
        let is_empty = matches!(self.rest().first().ok_or(Unread::Partial)?, b'\r' | b'\n');
        if is_empty {
            self.end(Error::NewLine)?;
        }
        Ok(is_empty)
    }

    /// Reads a line's end: CRLF, or LF alone.
    fn end(&mut self, fault: Error) -> Result<(), Unread> {
        match self.next()? {
            b'\n' => Ok(()),
            b'\r' if self.next()? == b'\n' => Ok(()),
            _ => Err(Unread::Invalid(fault)),
        }
    }

    /// Reads all bytes that a value may have.
    fn value(&mut self) -> Result<&'b [u8], Unread> {
        let rest = self.rest();
        let length = value_len(rest).ok_or(Unread::Partial)?;
        self.at = self.at.saturating_add(length);
        Ok(rest.get(..length).unwrap_or_default())
    }
}

/// Bytes before the first one that is in no value (RFC 9110 §5.5): a control character but the tab. `None` if there is
/// none. Eight at a time.
fn value_len(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    /// The highest bit of a byte below `limit` is set, and of some behind the first of these.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES.wrapping_mul(limit as u64)) & !word & HIGHEST
    }
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let (words, _) = bytes.as_chunks();
    let has_suspect = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        below(word, b' ') | below(word ^ ONES.wrapping_mul(0x7f), 1) != 0
    };
    let mut at = words.iter().position(has_suspect).unwrap_or(words.len()).saturating_mul(8);
    loop {
        // Mostly the line's end.
        let rest = bytes.get(at..)?;
        let found = at.saturating_add(rest.iter().take(8).position(|byte| *byte < b' ' || *byte == 0x7f).unwrap_or(8));
        match bytes.get(found) {
            Some(byte) if is_control(byte) => return Some(found),
            Some(_) => at = found.saturating_add(1),
            None => return None,
        }
    }
}

/// `value` without the blanks around it.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use httparse::{EMPTY_HEADER, Response, Status};
    use proptest::prelude::*;

    /// A head's length, version, status and fields.
    type Found = (usize, bool, u16, Vec<(Vec<u8>, Vec<u8>)>);

    fn read(bytes: &[u8]) -> Result<Found, Unread> {
        let mut lines = Lines::new(bytes);
        let (is_http_10, status) = lines.status_line()?;
        let mut fields = Vec::new();
        while let Some((name, value)) = lines.field()? {
            fields.push((name.to_vec(), value.to_vec()));
        }
        Ok((lines.length(), is_http_10, status, fields))
    }

    fn oracle(bytes: &[u8]) -> Result<Found, Unread> {
        let mut lines = [EMPTY_HEADER; 64];
        let mut response = Response::new(&mut lines);
        match response.parse(bytes) {
            Ok(Status::Complete(length)) => {
                let fields = response.headers.iter();
                let fields = fields.map(|field| (field.name.as_bytes().to_vec(), field.value.to_vec())).collect();
                Ok((length, response.version == Some(0), response.code.unwrap(), fields))
            }
            Ok(Status::Partial) => Err(Unread::Partial),
            Err(error) => Err(Unread::Invalid(error)),
        }
    }

    proptest! {
        #[test]
        fn lines_are_those_that_httparse_finds_and_faults_are_its_faults(
            start in "(\\r?\\n){0,2}|\\r|",
            version in prop::sample::select(vec!["HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2", "http/1.1", "HTTP/1."]),
            status in prop::sample::select(vec![" 200 OK", " 404", " 200 ", "  200 OK", " 20 OK", " 2000", " 099 \\t", "", "\\t200"]),
            fields in prop::collection::vec(
                ("[A-Za-z0-9!_-]{0,12}|[ -~]{0,4}", prop::sample::select(vec![":", ": ", ":\t ", "", " :"]), "[ -~\t]{0,40}"),
                0..5,
            ),
            ends in prop::collection::vec(prop::sample::select(vec!["\r\n", "\n", "\r", "\r\n ", "\n\t"]), 7),
            (at, byte) in (any::<prop::sample::Index>(), any::<u8>()),
            is_changed: bool,
        ) {
            let mut text = [&start, version, status, ends[0]].concat();
            for ((name, colon, value), end) in fields.iter().zip(&ends[1..]) {
                text += &[name, *colon, value, *end].concat();
            }
            text += ends[6];
            let mut bytes = text.into_bytes();
            if is_changed && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for length in 0..=bytes.len() {
                let part = &bytes[..length];
                prop_assert_eq!(read(part), oracle(part), "{:?}", String::from_utf8_lossy(part));
            }
        }

        #[test]
        fn a_value_ends_at_its_first_control_character_wherever_that_is(
            text in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'\t'), Just(0xff), Just(0x80), any::<u8>()], 0..40),
            end in prop::sample::select(vec![0_u8, 8, 10, 13, 31, 127]),
        ) {
            let is_value = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
            prop_assert_eq!(value_len(&text), text.iter().position(|byte| !is_value(byte)));
            let text: Vec<u8> = text.into_iter().filter(is_value).collect();
            prop_assert_eq!(value_len(&text), None);
            prop_assert_eq!(value_len(&[&text[..], &[end, b'a']].concat()), Some(text.len()));
        }
    }
}

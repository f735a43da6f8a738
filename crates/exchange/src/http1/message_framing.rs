//! Decides where a message's body ends, by the fields of its head (RFC 9112 §6.3). A request with two readings is
//! rejected; of a response the reading that the RFC prefers counts.

use super::{HeadError, is_name_ignoring_case};
use http::StatusCode;
use httparse::Header;

/// Largest accepted `Content-Length`.
const MAX_CONTENT_LENGTH: u64 = u64::MAX - 2;

/// The delimiter of a message's body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFraming {
    /// The message has no body.
    None,
    /// The body has this number of bytes.
    Length(u64),
    /// The body has the chunked transfer coding.
    Chunked,
    /// The body of a response lasts until the connection ends.
    UntilClose,
}

/// The fields of a head that delimit the body, and the options of `Connection`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FramingFields<'b> {
    /// The number of all `Content-Length` lines, if it is one.
    length: Option<Result<u64, HeadError>>,
    /// Number of members of all `Content-Length` lines.
    lengths: usize,
    /// Value of the last `Transfer-Encoding` line.
    codings: Option<&'b [u8]>,
    has_several_codings: bool,
    has_upgrade: bool,
    /// `Connection` names `close`.
    pub(super) is_closing: bool,
    /// `Connection` names `upgrade`.
    names_upgrade: bool,
    /// `timeout` of `Keep-Alive`, in seconds.
    pub(super) keep_alive: Option<u32>,
}

impl<'b> FramingFields<'b> {
    pub(super) fn read_lines(lines: &[Header<'b>]) -> Self {
        let mut fields = Self::default();
        for Header { name, value } in lines {
            let is_named = |known: &[u8]| is_name_ignoring_case(name.as_bytes(), known);
            // Few names have one of these lengths, so that most are not compared.
            match name.len() {
                7 => fields.has_upgrade |= is_named(b"upgrade"),
                10 if is_named(b"connection") && *value != b"keep-alive" => {
                    for option in split_list(value) {
                        fields.is_closing |= option.eq_ignore_ascii_case(b"close");
                        fields.names_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                    }
                }
                10 if is_named(b"keep-alive") => {
                    let seconds = |option: &[u8]| {
                        let (name, value) = str::from_utf8(option).ok()?.split_once('=')?;
                        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
                    };
                    fields.keep_alive = split_list(value).find_map(seconds).or(fields.keep_alive);
                }
                14 if is_named(b"content-length") => {
                    for item in split_list(value) {
                        fields.lengths = fields.lengths.saturating_add(1);
                        fields.length = Some(match (fields.length, parse_content_length(item)) {
                            (None, length) => length,
                            (Some(Ok(before)), Ok(length)) if before == length => Ok(length),
                            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
                            _ => Err(HeadError::Length),
                        });
                    }
                }
                17 if is_named(b"transfer-encoding") => {
                    fields.has_several_codings = fields.codings.replace(value).is_some();
                }
                _ => {}
            }
        }
        fields
    }

    /// Whether a client asks for another protocol (RFC 9110 §7.8).
    pub(super) const fn asks_for_upgrade(&self) -> bool {
        self.has_upgrade && self.names_upgrade
    }

    /// Whether there are a length and a transfer coding, of which a peer may have meant either (RFC 9112 §6.1).
    pub(super) const fn has_two_framings(&self) -> bool {
        self.length.is_some() && self.codings.is_some()
    }

    fn is_last_coding_chunked(codings: &[u8]) -> bool {
        split_list(codings).last().is_some_and(is_chunked)
    }

    /// Returns the delimiter of a response's body, which the status and the request's method do not exclude.
    ///
    /// # Errors
    ///
    /// The length is not one number, or HTTP/1.0 has a transfer coding.
    pub(super) fn response_framing(&self, is_http_10: bool) -> Result<MessageFraming, HeadError> {
        match (self.codings, self.length) {
            (Some(_), _) if is_http_10 => Err(HeadError::Coding),
            (Some(codings), _) if Self::is_last_coding_chunked(codings) => Ok(MessageFraming::Chunked),
            (Some(_), _) | (None, None) => Ok(MessageFraming::UntilClose),
            (None, Some(length)) => length.map(MessageFraming::Length),
        }
    }

    /// Returns the delimiter of a request's body. Only `chunked` is supported as a transfer coding.
    ///
    /// # Errors
    ///
    /// The response's status, and the reason: another parser may find another delimiter.
    pub(super) fn request_framing(&self, is_http_10: bool) -> Result<MessageFraming, (StatusCode, &'static str)> {
        let reason = match (self.codings, self.length) {
            (None, None) => return Ok(MessageFraming::None),
            (None, Some(Ok(length))) if self.lengths == 1 => return Ok(MessageFraming::Length(length)),
            (None, Some(Ok(_))) => "more than one Content-Length",
            (None, Some(Err(_))) => "Content-Length is not a decimal number",
            (Some(_), Some(_)) => "Transfer-Encoding beside Content-Length",
            (Some(_), None) if is_http_10 => "Transfer-Encoding in HTTP/1.0",
            (Some(_), None) if self.has_several_codings => "more than one Transfer-Encoding",
            (Some(codings), None) if is_chunked(codings) => return Ok(MessageFraming::Chunked),
            (Some(codings), None)
                if Self::is_last_coding_chunked(codings)
                    && split_list(codings).filter(|one| is_chunked(one)).count() == 1 =>
            {
                return Err((StatusCode::NOT_IMPLEMENTED, "a transfer coding other than chunked"));
            }
            (Some(_), None) => "chunked is not the last transfer coding, or occurs more than once",
        };
        Err((StatusCode::BAD_REQUEST, reason))
    }
}

fn is_chunked(coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(b"chunked")
}

/// Returns the members of a list (RFC 9110 §5.6.1), empty ones included.
fn split_list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses the value of `Content-Length` (RFC 9110 §8.6).
fn parse_content_length(digits: &[u8]) -> Result<u64, HeadError> {
    let digit = |number: u64, byte: &u8| {
        let digit = char::from(*byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    let number = digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty()).ok_or(HeadError::Length)?;
    if number > MAX_CONTENT_LENGTH { Err(HeadError::LengthTooLarge) } else { Ok(number) }
}

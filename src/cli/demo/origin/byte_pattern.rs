//! Generates the bodies of `/bytes/N` of any size from one static table, and the parts that a `Range` requests (RFC
//! 9110 §14).

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

/// Size of the largest body, in bytes: minutes at the speed of a laptop's loopback.
pub(super) const MAX_BYTES: u64 = 100_000_000_000;

/// Period of the pattern: a prime, so that a piece lost, doubled or moved by any power of two shows.
const PERIOD: usize = 251;

/// Whole periods of the pattern, about as many bytes as one write takes.
static PATTERN: [u8; PERIOD * 256] = {
    let mut table = [0; PERIOD * 256];
    let mut at = 0;
    while at < table.len() {
        #[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "evaluated by the compiler")]
        {
            table[at] = (at % PERIOD) as u8;
        }
        at += 1;
    }
    table
};

/// Bytes of the pattern from an offset on: byte i is i mod 251.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BytePattern {
    pub(super) offset: u64,
    pub(super) left: u64,
}

impl Body for BytePattern {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let from = usize::try_from(self.offset % PERIOD as u64).unwrap_or_default();
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let to = PATTERN.len().min(from.saturating_add(left));
        let piece = match PATTERN.get(from..to) {
            Some(piece) if !piece.is_empty() => Bytes::from_static(piece),
            _ => return Poll::Ready(None),
        };
        self.offset += piece.len() as u64;
        self.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Parses `10`, `10k`, `10M`, `10G`, at most [`MAX_BYTES`].
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.split_at_checked(text.len().checked_sub(1)?)? {
        (digits, "k") => (digits, 1_000),
        (digits, "M") => (digits, 1_000_000),
        (digits, "G") => (digits, 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|size| *size <= MAX_BYTES)
}

/// Part of a body of `size` bytes that a `Range` field requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The field is absent, not understood, or requests several parts: a server may ignore it (RFC 9110 §14.2).
    Whole,
    /// Status 206.
    Part(BytePattern),
    /// Status 416.
    Unsatisfiable,
}

pub(super) fn parse_range(field: Option<&str>, size: u64) -> RequestedRange {
    let Some((first, last)) = field.and_then(|field| field.strip_prefix("bytes=")?.split_once('-')) else {
        return RequestedRange::Whole;
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (from, to) = match (first, last) {
        ("", suffix) => match number(suffix) {
            Some(0) => return RequestedRange::Unsatisfiable,
            Some(suffix) => (size.saturating_sub(suffix), size),
            None => return RequestedRange::Whole,
        },
        (first, "") => match number(first) {
            Some(first) => (first, size),
            None => return RequestedRange::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(size)),
            _ => return RequestedRange::Whole,
        },
    };
    if from < to {
        RequestedRange::Part(BytePattern { offset: from, left: to - from })
    } else {
        RequestedRange::Unsatisfiable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_range_has_the_same_bytes_as_the_whole_body() {
        let whole = BytePattern { offset: 0, left: 200_000 }.collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 200_000);
        assert!(whole.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
        for (offset, left) in [(0, 1), (250, 2), (64_255, 70_000), (199_999, 1), (5, 0)] {
            let part = BytePattern { offset, left }.collect().await.unwrap().to_bytes();
            let from = usize::try_from(offset).unwrap();
            assert_eq!(part, whole.slice(from..from + usize::try_from(left).unwrap()), "{offset} {left}");
        }
    }

    #[test]
    fn sizes_have_units_and_a_bound() {
        let cases = [
            ("0", Some(0)),
            ("17", Some(17)),
            ("10k", Some(10_000)),
            ("10M", Some(10_000_000)),
            ("100G", Some(MAX_BYTES)),
            ("101G", None),
            ("99999999999999999999", None),
            ("99999999999999999G", None),
            ("", None),
            ("M", None),
            ("-1", None),
            ("1.5M", None),
            ("1é", None),
        ];
        for (text, size) in cases {
            assert_eq!(parse_size(text), size, "{text}");
        }
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        let part = |offset, left| RequestedRange::Part(BytePattern { offset, left });
        let cases = [
            (None, RequestedRange::Whole),
            (Some("bytes=0-0"), part(0, 1)),
            (Some("bytes=0-99"), part(0, 100)),
            (Some("bytes=10-1000"), part(10, 90)),
            (Some("bytes=90-"), part(90, 10)),
            (Some("bytes=-10"), part(90, 10)),
            (Some("bytes=-1000"), part(0, 100)),
            (Some("bytes=100-"), RequestedRange::Unsatisfiable),
            (Some("bytes=100-200"), RequestedRange::Unsatisfiable),
            (Some("bytes=-0"), RequestedRange::Unsatisfiable),
            (Some("bytes=0-18446744073709551615"), part(0, 100)),
            (Some("bytes=5-4"), RequestedRange::Whole),
            (Some("bytes=0-1,3-4"), RequestedRange::Whole),
            (Some("bytes=+1-2"), RequestedRange::Whole),
            (Some("bytes=-"), RequestedRange::Whole),
            (Some("bytes="), RequestedRange::Whole),
            (Some("lines=0-1"), RequestedRange::Whole),
            (Some("bytes=99999999999999999999-"), RequestedRange::Whole),
        ];
        for (field, expected) in cases {
            assert_eq!(parse_range(field, 100), expected, "{field:?}");
        }
        assert_eq!(parse_range(Some("bytes=0-0"), 0), RequestedRange::Unsatisfiable);
    }
}

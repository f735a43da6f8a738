//! Parses and writes trace context (W3C Trace Context, level 2), and defines what a record holds of a trace. Pure, but
//! for random IDs.

use data_encoding::HEXLOWER;
use http::StatusCode;
use std::{fmt, sync::Arc, time::Duration};

fn parse_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (digits.len() == 2 * N && HEXLOWER.decode_mut(digits, &mut bytes).is_ok()).then_some(bytes)
}

/// Writes the lower-case hexadecimal digits of `bytes` to `out`, two for each byte, as far as there is room.
pub fn write_hex(bytes: &[u8], out: &mut [u8]) {
    let count = bytes.len().min(out.len() / 2);
    if let (Some(bytes), Some(out)) = (bytes.get(..count), out.get_mut(..2 * count)) {
        HEXLOWER.encode_mut(bytes, out);
    }
}

macro_rules! id {
    ($(#[$meta:meta])* $name:ident, $length:literal, $bits:ty) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; $length]);

        impl $name {
            /// Creates an ID of these bytes, unless all are zero.
            pub fn new(bytes: [u8; $length]) -> Option<Self> {
                (bytes != [0; $length]).then_some(Self(bytes))
            }

            /// Creates a random ID.
            pub fn random() -> Self {
                // All zeros is not a valid ID. It practically never occurs.
                Self::new(rand::random::<$bits>().to_ne_bytes()).unwrap_or(Self([1; $length]))
            }

            /// Parses the lower-case hexadecimal digits of an ID.
            pub fn parse(digits: &[u8]) -> Option<Self> {
                Self::new(parse_hex(digits)?)
            }

            /// Returns the bytes of the ID.
            pub const fn bytes(&self) -> &[u8; $length] {
                &self.0
            }

            /// Returns the ID in lower-case hexadecimal digits.
            pub fn digits(&self) -> [u8; 2 * $length] {
                let mut out = [0; 2 * $length];
                write_hex(&self.0, &mut out);
                out
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Digits are ASCII.
                f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
            }
        }
    };
}

id! {
    /// ID of a trace (`trace-id`).
    TraceId, 16, u128
}

id! {
    /// ID of a span (`parent-id`).
    SpanId, 8, u64
}

/// Flags of a trace (`trace-flags`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceFlags(pub u8);

impl TraceFlags {
    const SAMPLED: u8 = 1;
    const RANDOM: u8 = 2;

    /// Creates the flags that this version defines. Others are not passed on (Trace Context §3.2.2.5).
    pub const fn new(is_sampled: bool, is_random: bool) -> Self {
        Self((if is_sampled { Self::SAMPLED } else { 0 }) | (if is_random { Self::RANDOM } else { 0 }))
    }

    /// Whether spans of the trace are recorded.
    pub const fn is_sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    /// Whether the last 56 bits of the trace ID are random.
    pub const fn is_random(self) -> bool {
        self.0 & Self::RANDOM != 0
    }
}

/// A parsed `traceparent` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    /// ID of the trace.
    pub trace_id: TraceId,
    /// ID of the span that caused the request.
    pub parent_id: SpanId,
    /// Flags of the trace.
    pub flags: TraceFlags,
}

/// Length of a `traceparent` of version 00, in bytes.
pub const TRACEPARENT_LEN: usize = 55;

impl Traceparent {
    /// Creates the value for attempt `number` of a request whose trace begins here and is not sampled. No process
    /// records the attempt's span: its ID needs only to differ from those of other attempts, and is made of the trace's
    /// random bits.
    pub fn new_unsampled(trace_id: TraceId, number: u32) -> Self {
        let random = trace_id.0.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first));
        // All zeros is not a valid ID.
        let span_id = random.wrapping_add(number.into()).max(1);
        let flags = TraceFlags::new(false, true);
        Self { trace_id, parent_id: SpanId(span_id.to_be_bytes()), flags }
    }

    /// Parses `version "-" trace-id "-" parent-id "-" trace-flags` (Trace Context §3.2): lower-case hexadecimal digits,
    /// and IDs that are not all zeros. A later version may go on after another `-`; `ff` is invalid.
    pub fn parse_traceparent(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(TRACEPARENT_LEN)?;
        let part = |from: usize, length: usize| known.get(from..from.saturating_add(length)).unwrap_or_default();
        let are_parted = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        let [version] = parse_hex::<1>(part(0, 2))?;
        let ends_well = more.is_empty() || (version != 0 && more.starts_with(b"-"));
        if !are_parted || version == 0xff || !ends_well {
            return None;
        }
        let [flags] = parse_hex::<1>(part(53, 2))?;
        let flags = TraceFlags(flags & (TraceFlags::SAMPLED | TraceFlags::RANDOM));
        Some(Self { trace_id: TraceId::parse(part(3, 32))?, parent_id: SpanId::parse(part(36, 16))?, flags })
    }

    /// Returns the value in version 00.
    pub fn to_bytes(&self) -> [u8; TRACEPARENT_LEN] {
        let mut out = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let mut write = |bytes: &[u8], from: usize| write_hex(bytes, out.get_mut(from..).unwrap_or_default());
        // The flags come last: `write_hex` writes a digit pair for each byte alone.
        write(self.trace_id.bytes(), 3);
        write(self.parent_id.bytes(), 36);
        write(&[self.flags.0], 53);
        out
    }
}

/// The place of a request in its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTrace {
    /// ID of the trace.
    pub trace_id: TraceId,
    /// ID of the request's own span.
    pub span_id: SpanId,
    /// ID of the client's span; `None` if the trace begins here.
    pub parent_id: Option<SpanId>,
    /// Flags by litequic's decision.
    pub flags: TraceFlags,
    /// The client's `traceparent`, if the client's decision does not count.
    pub link: Option<Traceparent>,
    /// Attempts at origins, if the request is sampled.
    pub attempts: Vec<AttemptSpan>,
}

impl RequestTrace {
    /// Whether the trace began elsewhere, so that `tracestate` belongs to it.
    pub const fn is_continued(&self) -> bool {
        self.parent_id.is_some()
    }

    /// Returns the `traceparent` of an attempt with the span `span_id`.
    pub const fn attempt_traceparent(&self, span_id: SpanId) -> Traceparent {
        Traceparent { trace_id: self.trace_id, parent_id: span_id, flags: self.flags }
    }
}

/// The span of one attempt at an origin. Times are since the request's beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptSpan {
    /// ID of the span.
    pub span_id: SpanId,
    /// Name of the origin.
    pub origin: Arc<str>,
    /// Address of the server.
    pub server: Arc<str>,
    /// Number of earlier attempts with the same message.
    pub earlier: u32,
    /// Path with its query that the server gets.
    pub target: Box<str>,
    /// Time at which a connection was requested.
    pub began: Duration,
    /// Time at which the response's header arrived, or the attempt failed.
    pub ended: Option<Duration>,
    /// Whether the connection had served a request before.
    pub is_reused: bool,
    /// Status of the response.
    pub status: Option<StatusCode>,
    /// Error type of RFC 9209 §2.3, if there is no response.
    pub error: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_is_valid_or_none() {
        let parent = "00f067aa0ba902b7";
        for (traceparent, expected) in [
            (format!("00-{TRACE}-{parent}-01"), Some((true, false))),
            (format!("00-{TRACE}-{parent}-00"), Some((false, false))),
            (format!("00-{TRACE}-{parent}-03"), Some((true, true))),
            (format!("00-{TRACE}-{parent}-fe"), Some((false, true))),
            (format!("cc-{TRACE}-{parent}-01-what-the-future-brings"), Some((true, false))),
            (format!("cc-{TRACE}-{parent}-01.more"), None),
            (format!("00-{TRACE}-{parent}-01-more"), None),
            (format!("ff-{TRACE}-{parent}-01"), None),
            (format!("00-{}-{parent}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{parent}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{TRACE}-{parent}"), None),
            (format!("00-{TRACE}-{parent}-1"), None),
            (format!("00-{TRACE}-{parent}-0g"), None),
            (format!("00_{TRACE}-{parent}-01"), None),
            (format!(" 00-{TRACE}-{parent}-01"), None),
            ("\n".into(), None),
            (String::new(), None),
        ] {
            let parsed = Traceparent::parse_traceparent(traceparent.as_bytes());
            let flags = parsed.map(|parsed| (parsed.flags.is_sampled(), parsed.flags.is_random()));
            assert_eq!(flags, expected, "{traceparent}");
            if let Some(parsed) = parsed {
                assert_eq!((parsed.trace_id.to_string(), parsed.parent_id.to_string()), (TRACE.into(), parent.into()));
            }
        }
    }

    proptest! {
        #[test]
        fn a_written_traceparent_parses(trace: [u8; 16], parent: [u8; 8], sampled: bool, random: bool) {
            let flags = TraceFlags::new(sampled, random);
            if let (Some(trace_id), Some(parent_id)) = (TraceId::new(trace), SpanId::new(parent)) {
                let traceparent = Traceparent { trace_id, parent_id, flags };
                prop_assert_eq!(Traceparent::parse_traceparent(&traceparent.to_bytes()), Some(traceparent));
                prop_assert_eq!(TraceId::parse(&trace_id.digits()), Some(trace_id));
            }
        }

        #[test]
        fn no_traceparent_bytes_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Traceparent::parse_traceparent(&value);
        }
    }
}

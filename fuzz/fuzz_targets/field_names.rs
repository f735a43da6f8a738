//! A field by each protocol: HTTP/2 and HTTP/3 take the same names and values, and HTTP/1.1 those, with capitals and
//! with blanks around the value besides.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use litequic_exchange::terms::FieldLimits;
use litequic_http3::{message, qpack};
use litequic_tcp::{check_http2_fields, http1::RequestGuardStream};
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::io::{AsyncRead, ReadBuf};

/// Fields that mean something to the framing, or belong to one connection.
const OTHERS: [&[u8]; 8] = [
    b"connection",
    b"content-length",
    b"host",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

fuzz_target!(|field: (&[u8], &[u8])| {
    let (name, value) = field;
    if OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
        return;
    }
    let two = by_http2(name, value);
    assert_eq!(two, by_http3(name, value));
    if two {
        assert!(by_http1(name, value));
    } else if !name.iter().any(is_other_in_http1) && !value.iter().any(is_line_end) && value.trim_ascii() == value {
        assert!(!by_http1(name, value));
    }
});

/// Capitals are HTTP/1.1's alone; a colon ends a name there, and a line's end the line, behind which other fields and
/// requests may stand.
fn is_other_in_http1(byte: &u8) -> bool {
    byte.is_ascii_uppercase() || *byte == b':' || is_line_end(byte)
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// As h2 reads a field that has no pseudo-header's name, and litequic what h2 lets pass.
fn by_http2(name: &[u8], value: &[u8]) -> bool {
    let field = HeaderName::from_lowercase(name).ok().zip(HeaderValue::from_bytes(value).ok());
    field.is_some_and(|field| check_http2_fields(&HeaderMap::from_iter([field])).is_ok())
}

fn by_http3(name: &[u8], value: &[u8]) -> bool {
    // Literals without Huffman coding (RFC 9204 §4.5.6).
    let string = |prefix: u32, flags: u8, text: &[u8]| {
        let limit = (1 << prefix) - 1;
        let mut out = vec![flags | u8::try_from(text.len().min(limit)).unwrap()];
        if let Some(mut rest) = text.len().checked_sub(limit) {
            while rest >= 128 {
                out.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            out.push(u8::try_from(rest).unwrap());
        }
        [&out, text].concat()
    };
    let section = [vec![0, 0], string(3, 0x20, name), string(7, 0, value)].concat();
    qpack::decode_section(&section, &FieldLimits::NONE).is_ok_and(|fields| message::decode_trailers(fields).is_ok())
}

/// Whether all of a request with that field passes its guard.
fn by_http1(name: &[u8], value: &[u8]) -> bool {
    let request = [b"GET / HTTP/1.1\r\nHost: a\r\n", name, b": ", value, b"\r\n\r\n"].concat();
    let bounds = FieldLimits { bytes: 1 << 20, fields: 2 };
    let mut guard = RequestGuardStream::new(&*request, bounds, Duration::from_secs(10), u32::MAX, Rc::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut buffer = vec![0; request.len()];
    let mut passed = Vec::new();
    loop {
        let mut out = ReadBuf::new(&mut buffer);
        match Pin::new(&mut guard).poll_read(&mut context, &mut out) {
            Poll::Ready(Ok(())) if !out.filled().is_empty() => passed.extend_from_slice(out.filled()),
            _ => return passed == request,
        }
    }
}

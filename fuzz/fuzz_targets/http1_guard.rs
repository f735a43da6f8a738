//! An HTTP/1.1 connection behind its guard, however its bytes come and are read: the same pass, and another parser
//! finds in them nothing but whole heads, and bodies that end in one place.
#![no_main]

use httparse::{EMPTY_HEADER, Request, Status};
use libfuzzer_sys::fuzz_target;
use litequic_exchange::terms::FieldLimits;
use litequic_tcp::http1::RequestGuardStream;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    slice::Chunks,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::io::{AsyncRead, ReadBuf};

const BOUNDS: FieldLimits = FieldLimits { bytes: 450, fields: 8 };
/// Lines that trailers of so many bytes can have at most.
const TRAILERS: usize = 100;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (piece, room, bytes) = input;
    let (whole, end) = read(bytes, bytes.len(), 1 << 16);
    let (pieces, pieces_end) = read(bytes, piece.into(), room.into());
    assert_eq!(end, pieces_end);
    if end == End::Malformed {
        // Of a body that breaks the rules more passes the smaller the pieces are.
        assert!(pieces.starts_with(&whole) || whole.starts_with(&pieces));
    } else {
        assert_eq!(whole, pieces);
    }
    for passed in [whole, pieces] {
        walk(&passed);
    }
});

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// As the client's.
    Client,
    Malformed,
    /// Responses are waited for: in front of a refusal, or to a request to switch protocols.
    Waits,
}

/// What passes of `bytes` that come in pieces of `piece`, read `room` at a time.
fn read(bytes: &[u8], piece: usize, room: usize) -> (Vec<u8>, End) {
    let stream = Pieces(bytes.chunks(piece.max(1)), &[]);
    let mut guard = RequestGuardStream::new(stream, BOUNDS, Duration::from_secs(10), u32::MAX, Rc::default());
    let mut context = Context::from_waker(Waker::noop());
    let (mut passed, mut buffer) = (Vec::new(), vec![0; room.max(1)]);
    loop {
        let mut out = ReadBuf::new(&mut buffer);
        match Pin::new(&mut guard).poll_read(&mut context, &mut out) {
            Poll::Ready(Ok(())) if out.filled().is_empty() => return (passed, End::Client),
            Poll::Ready(Ok(())) => passed.extend_from_slice(out.filled()),
            Poll::Ready(Err(_)) => return (passed, End::Malformed),
            Poll::Pending => return (passed, End::Waits),
        }
    }
}

/// A client's bytes, then its end.
struct Pieces<'a>(Chunks<'a, u8>, &'a [u8]);

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.1.is_empty() {
            self.1 = self.0.next().unwrap_or_default();
        }
        let (now, later) = self.1.split_at(self.1.len().min(out.remaining()));
        out.put_slice(now);
        self.1 = later;
        Poll::Ready(Ok(()))
    }
}

/// Reads requests one behind the other, the last of which may lack the end of its body.
fn walk(mut rest: &[u8]) {
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        if rest.is_empty() {
            return;
        }
        let mut fields = [EMPTY_HEADER; BOUNDS.fields + 1];
        let mut request = Request::new(&mut fields);
        let Ok(Status::Complete(head)) = request.parse(rest) else { panic!("no whole head") };
        rest = &rest[head..];
        let named = |name: &str| -> Vec<&[u8]> {
            let lines = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            lines.map(|field| field.value).collect()
        };
        let left = match (&*named("transfer-encoding"), &*named("content-length")) {
            ([], []) => Some(rest),
            ([], [length]) => {
                let length = std::str::from_utf8(length).expect("digits").parse().expect("a number");
                rest.get(length..)
            }
            ([coding], []) => {
                assert!(coding.eq_ignore_ascii_case(b"chunked") && request.version == Some(1));
                behind_chunks(rest)
            }
            both => panic!("{both:?}"),
        };
        match left {
            Some(left) => rest = left,
            None => return,
        }
    }
}

/// What stands behind a body in chunks; `None` if it is not whole.
fn behind_chunks(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let Status::Complete((line, size)) = httparse::parse_chunk_size(rest).expect("a chunk's size") else {
            return None;
        };
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let end = rest.get(usize::try_from(size).ok()?..)?;
        assert!(b"\r\n".starts_with(&end[..end.len().min(2)]), "a chunk ends with its line");
        rest = end.get(2..)?;
    }
    let mut fields = [EMPTY_HEADER; TRAILERS];
    match httparse::parse_headers(rest, &mut fields).expect("trailers") {
        Status::Complete((length, _)) => rest.get(length..),
        Status::Partial => None,
    }
}

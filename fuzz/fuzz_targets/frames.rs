//! A request stream's bytes in any chunks: the same parts, nothing longer than allowed.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use litequic_http3::{Code, frame::{Endpoint, MessageStream, Part}};

const MAX: usize = 64;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (client, chunk, bytes) = input;
    let peer = if client { Endpoint::Client } else { Endpoint::Server };
    let whole = read(peer, std::iter::once(bytes));
    let split = read(peer, bytes.chunks(usize::from(chunk).max(1)));
    assert_eq!(whole, split);
});

/// The parts, bodies joined, and how it ended.
fn read<'a>(peer: Endpoint, chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Part>, Result<(), Code>) {
    let mut stream = MessageStream::new(peer, MAX);
    let mut parts = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match stream.read(&mut input) {
                Ok(Some(part)) => push(&mut parts, part),
                Ok(None) => break assert!(input.is_empty()),
                Err(code) => return (parts, Err(code)),
            }
        }
    }
    (parts, stream.finish())
}

fn push(parts: &mut Vec<Part>, part: Part) {
    match (&part, parts.last_mut()) {
        (Part::Data(more), Some(Part::Data(data))) => {
            assert!(!more.is_empty());
            *data = [&data[..], more].concat().into();
            return;
        }
        (Part::Header(section) | Part::Trailers(section), _) => assert!(section.len() <= MAX),
        _ => {}
    }
    parts.push(part);
}

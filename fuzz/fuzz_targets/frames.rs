//! A request stream's bytes in any chunks: the same parts, nothing longer than allowed.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use litequic_http3::{
    ErrorCode,
    frame::{MessagePart, MessageStream, PeerRole},
};

const MAX: usize = 64;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (client, chunk, bytes) = input;
    let peer = if client { PeerRole::Client } else { PeerRole::Server };
    let whole = read(peer, std::iter::once(bytes));
    let split = read(peer, bytes.chunks(usize::from(chunk).max(1)));
    assert_eq!(whole, split);
});

/// The parts, bodies joined, and how it ended.
fn read<'a>(peer: PeerRole, chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<MessagePart>, Result<(), ErrorCode>) {
    let mut stream = MessageStream::new(peer, MAX);
    let mut parts = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match stream.read_part(&mut input) {
                Ok(Some(part)) => push(&mut parts, part),
                Ok(None) => break assert!(input.is_empty()),
                Err(code) => return (parts, Err(code)),
            }
        }
    }
    (parts, stream.check_end())
}

fn push(parts: &mut Vec<MessagePart>, part: MessagePart) {
    match (&part, parts.last_mut()) {
        (MessagePart::Data(more), Some(MessagePart::Data(data))) => {
            assert!(!more.is_empty());
            *data = [&data[..], more].concat().into();
            return;
        }
        (MessagePart::Header(section) | MessagePart::Trailers(section), _) => assert!(section.len() <= MAX),
        _ => {}
    }
    parts.push(part);
}

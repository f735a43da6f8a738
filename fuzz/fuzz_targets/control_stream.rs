//! A control stream's bytes in any chunks: the same results, SETTINGS first and once, GOAWAY never rising; values of
//! PRIORITY_UPDATE.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use litequic_http3::{Code, frame::{Control, ControlStream, Endpoint}};
use litequic_exchange::priority;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (client, chunk, bytes) = input;
    let peer = if client { Endpoint::Client } else { Endpoint::Server };
    let whole = read(peer, std::iter::once(bytes));
    assert_eq!(whole, read(peer, bytes.chunks(usize::from(chunk).max(1))));

    let mut last = u64::MAX;
    for (index, said) in whole.0.iter().enumerate() {
        match said {
            Control::Settings(_) => assert_eq!(index, 0),
            Control::Goaway(id) => {
                assert!(index > 0 && *id <= last);
                last = *id;
            }
            Control::PriorityUpdate { id, value } => {
                assert!(client && index > 0 && id % 4 == 0);
                let _ = priority::parse(&value);
            }
        }
    }
});

fn read<'a>(peer: Endpoint, chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Control>, Result<(), Code>) {
    let mut stream = ControlStream::new(peer);
    let mut said = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match stream.read(&mut input) {
                Ok(Some(control)) => said.push(control),
                Ok(None) => break,
                Err(code) => return (said, Err(code)),
            }
        }
    }
    (said, Ok(()))
}

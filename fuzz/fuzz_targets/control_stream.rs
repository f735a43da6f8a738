//! A control stream's bytes in any chunks: the same results, SETTINGS first and once, GOAWAY never rising; values of
//! PRIORITY_UPDATE.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use litequic_exchange::priority;
use litequic_http3::{
    ErrorCode,
    frame::{ControlFrame, ControlStream, PeerRole},
};

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (client, chunk, bytes) = input;
    let peer = if client { PeerRole::Client } else { PeerRole::Server };
    let whole = read(peer, std::iter::once(bytes));
    assert_eq!(whole, read(peer, bytes.chunks(usize::from(chunk).max(1))));

    let mut last = u64::MAX;
    for (index, said) in whole.0.iter().enumerate() {
        match said {
            ControlFrame::Settings(_) => assert_eq!(index, 0),
            ControlFrame::Goaway(id) => {
                assert!(index > 0 && *id <= last);
                last = *id;
            }
            ControlFrame::PriorityUpdate { id, value } => {
                assert!(client && index > 0 && id % 4 == 0);
                let _ = priority::parse_priority(&value);
            }
        }
    }
});

fn read<'a>(peer: PeerRole, chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<ControlFrame>, Result<(), ErrorCode>) {
    let mut stream = ControlStream::new(peer);
    let mut said = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match stream.read_control_frame(&mut input) {
                Ok(Some(control)) => said.push(control),
                Ok(None) => break,
                Err(code) => return (said, Err(code)),
            }
        }
    }
    (said, Ok(()))
}

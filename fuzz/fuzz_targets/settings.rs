//! A SETTINGS frame's payload: refused, or the same after it was encoded and decoded again.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use litequic_http3::{frame::{Control, ControlStream, Endpoint}, settings::Settings};

fuzz_target!(|bytes: &[u8]| {
    let Ok(settings) = Settings::decode(bytes) else { return };
    let mut out = BytesMut::new();
    settings.encode(Some(bytes.len() as u64), &mut out);
    let mut frame: Bytes = out.freeze();
    let read = ControlStream::new(Endpoint::Client).read(&mut frame);
    assert_eq!(read, Ok(Some(Control::Settings(settings))));
    assert!(frame.is_empty());
});

//! A SETTINGS frame's payload: refused, or the same after it was encoded and decoded again.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use litequic_http3::{
    frame::{ControlFrame, ControlStream, PeerRole},
    settings::Settings,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(settings) = Settings::decode_settings(bytes) else { return };
    let mut out = BytesMut::new();
    settings.encode_settings(&mut out);
    let mut frame: Bytes = out.freeze();
    let read = ControlStream::new(PeerRole::Client).read_control_frame(&mut frame);
    assert_eq!(read, Ok(Some(ControlFrame::Settings(settings))));
    assert!(frame.is_empty());
});

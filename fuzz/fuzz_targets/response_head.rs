//! A response's header as an origin may send it, given as lines `name=value` behind two bytes of status: whatever
//! litequic takes leaves as a header that HTTP/3 has, with nothing of the origin's connection in it.
#![no_main]

use bytes::{Buf, Bytes};
use http::StatusCode;
use libfuzzer_sys::fuzz_target;
use litequic_exchange::{Fields, NameId, field_syntax, name};
use litequic_http3::{
    message,
    qpack::{FieldLimits, decode_section},
    varint,
};

fuzz_target!(|bytes: &[u8]| {
    let [high, low, lines @ ..] = bytes else { return };
    let Ok(status) = StatusCode::from_u16(u16::from_be_bytes([*high, *low]) % 1000) else { return };
    let mut fields = Fields::new();
    for line in lines.split(|byte| *byte == 0x1e) {
        let at = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        if field_syntax::is_token(name) && field_syntax::is_field_value(value) {
            fields.append_any_case(name, value);
        }
    }
    let mut trailers = Vec::new();
    message::encode_trailers(&fields, &mut trailers);
    let mut out = Vec::new();
    if message::encode_response(status, &fields, &mut out).is_err() {
        return assert_eq!(status, StatusCode::SWITCHING_PROTOCOLS);
    }
    let limits = FieldLimits { bytes: usize::MAX, fields: usize::MAX };
    let section = |frame: Vec<u8>| {
        let mut frame = Bytes::from(frame);
        assert_eq!(frame.get_u8(), 1);
        let (length, used) = varint::decode_varint(&frame).expect("whole");
        frame.advance(used);
        assert_eq!(frame.len() as u64, length);
        decode_section(&frame, &limits).expect("ours")
    };
    message::decode_trailers(section(trailers)).expect("no field that trailers must not have");
    let fields = section(out);
    let lengths = fields.iter().filter(|line| line.id == name::CONTENT_LENGTH.id()).count();
    for line in fields.iter() {
        let forbidden = ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection", "te"];
        assert!(!forbidden.map(NameId::from_const_name).contains(&line.id));
    }
    // The proxy lets one plain Content-Length pass; a response with another is no response to a client either.
    if lengths == 0 {
        assert_eq!(message::decode_response(fields).expect("well-formed").status, status);
    }
});

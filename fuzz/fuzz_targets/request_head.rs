//! The fields of a header, given as lines `name=value`: what passes as a request is safe to write down in HTTP/1.1,
//! byte for byte what came in, and passes again after it was encoded.
#![no_main]

use bytes::{Buf, Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use litequic::{
    exchange::LastAuthority,
    http3::{
        message,
        qpack::{Field, FieldLimits, FieldName, decode},
        varint,
    },
};

fuzz_target!(|bytes: &[u8]| {
    let fields: Vec<Field> = bytes.split(|byte| *byte == 0x1e).map(field).collect();
    let _ = message::response(fields.clone());
    if let Ok(trailers) = message::trailers(fields.clone()) {
        assert!(!trailers.contains_key("content-length") && !trailers.contains_key("transfer-encoding"));
    }
    let path = fields.iter().find(|field| field.name.as_bytes() == b":path").map(|field| field.value.clone());
    let Ok(head) = message::request(fields, true, &LastAuthority::default()) else { return };
    let sent = head.uri.path_and_query().expect("in absolute form").as_str().as_bytes();
    assert_eq!(sent, path.expect("required"));
    assert!(sent.iter().all(u8::is_ascii_graphic));
    assert!(!head.uri.path().split('/').any(|segment| segment == "." || segment == ".."));
    assert!(!head.headers.contains_key("transfer-encoding") && !head.headers.contains_key("host"));
    assert!(head.headers.get_all("content-length").iter().count() <= 1);
    for value in head.headers.values() {
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
    }

    if head.protocol.is_some() {
        return; // litequic's client requests none
    }
    let mut out = BytesMut::new();
    message::encode_request(&head.method, &head.uri, &head.headers, &mut out).expect("has scheme and authority");
    let mut frame = out.freeze();
    assert_eq!(frame.get_u8(), 1);
    let (length, used) = varint::decode(&frame).expect("whole");
    frame.advance(used);
    assert_eq!(frame.len() as u64, length);
    let limits = FieldLimits { bytes: usize::MAX, fields: usize::MAX };
    let again = message::request(decode(frame, &limits).expect("ours"), true, &LastAuthority::default())
        .expect("passed before");
    assert_eq!(again, head);
});

fn field(line: &[u8]) -> Field {
    let at = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
    let (name, value) = line.split_at(at);
    let value = value.get(1..).unwrap_or_default();
    Field { name: FieldName::Raw(Bytes::copy_from_slice(name)), value: Bytes::copy_from_slice(value) }
}

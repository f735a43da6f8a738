//! The fields of a header, given as lines `name=value`: what passes as a request is safe to write down in HTTP/1.1,
//! byte for byte what came in, and passes again after it was encoded.
#![no_main]

use bytes::{Buf, Bytes};
use libfuzzer_sys::fuzz_target;
use litequic_exchange::{DecodedFields, LastAuthority, NameId, field_syntax::is_field_value, name};
use litequic_http3::{
    message,
    qpack::{FieldLimits, decode_section},
    varint,
};

fuzz_target!(|bytes: &[u8]| {
    let mut fields = DecodedFields::default();
    bytes.split(|byte| *byte == 0x1e).for_each(|line| add(&mut fields, line));
    let _ = message::decode_response(fields.clone());
    if let Ok(trailers) = message::decode_trailers(fields.clone()) {
        assert!(!trailers.contains(name::CONTENT_LENGTH) && !trailers.contains(name::TRANSFER_ENCODING));
    }
    let path = fields.iter().find(|line| line.id == name::PATH.id()).map(|line| line.value.to_vec());
    let Ok(passed) = message::decode_request(fields, true, &LastAuthority::default()) else { return };
    let head = &passed.head;
    let sent = head.path_and_query().as_bytes();
    assert_eq!(sent, path.expect("required"));
    assert!(sent.iter().all(u8::is_ascii_graphic));
    assert!(!head.path_without_query().split('/').any(|segment| segment == "." || segment == ".."));
    assert!(!head.fields.contains(name::TRANSFER_ENCODING) && !head.fields.contains(name::HOST));
    assert!(head.fields.all_values(name::CONTENT_LENGTH).count() <= 1);
    assert!(head.fields.iter().all(|line| is_field_value(line.value)));

    if head.upgrade.is_some() {
        return; // litequic's client requests none
    }
    let uri = http::Uri::builder().scheme("https").authority(head.authority()).path_and_query(head.path_and_query());
    let uri = uri.build().expect("a URI");
    let mut out = Vec::new();
    message::encode_request(&head.method, &uri, &head.fields, &mut out).expect("has scheme and authority");
    let mut frame = Bytes::from(out);
    assert_eq!(frame.get_u8(), 1);
    let (length, used) = varint::decode_varint(&frame).expect("whole");
    frame.advance(used);
    assert_eq!(frame.len() as u64, length);
    let limits = FieldLimits { bytes: usize::MAX, fields: usize::MAX };
    let again =
        message::decode_request(decode_section(&frame, &limits).expect("ours"), true, &LastAuthority::default())
            .expect("passed before");
    let parts = |request: &message::DecodedRequest| {
        let head = &request.head;
        let (authority, path) = (head.authority().to_owned(), head.path_and_query().to_owned());
        (head.method.clone(), authority, path, head.fields.clone(), request.content_length)
    };
    assert_eq!(parts(&again), parts(&passed));
});

fn add(fields: &mut DecodedFields, line: &[u8]) {
    let at = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
    let (name, value) = line.split_at(at);
    let (value, begin) = (value.get(1..).unwrap_or_default(), fields.text.len());
    match NameId::from_lower_case(name) {
        NameId::OTHER => {
            fields.text.extend_from_slice(&[name, value].concat());
            fields.push_decoded_line(NameId::OTHER, begin, name.len());
        }
        id => {
            fields.text.extend_from_slice(value);
            fields.push_decoded_line(id, begin, 0);
        }
    }
}

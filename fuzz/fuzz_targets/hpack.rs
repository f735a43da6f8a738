//! A field block of HTTP/2: within its limits, or refused; encoded again it decodes to the same. A response or trailers
//! that are made of it have nothing that HTTP/1.1 or HTTP/3 could not have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_exchange::{
    Fields,
    field_compression::DecodeError,
    field_syntax::{has_blank_edge, is_field_value, is_lower_case_token},
    http2::{HeadFault, decode_block, read_response_head, read_response_trailers, write_field_block},
    name,
    terms::FieldLimits,
    well_formed::CONNECTION_SPECIFIC,
};

fuzz_target!(|bytes: &[u8]| {
    let limits = FieldLimits { bytes: 4096, fields: 32 };
    let decoded = decode_block(bytes, &limits);
    if let Ok(fields) = &decoded {
        let size: usize = fields.iter().map(|line| line.name.len() + line.value.len() + 32).sum();
        assert!(size <= limits.bytes);
    }
    match read_response_head(bytes, &limits) {
        Ok(head) => {
            assert!(head.status.as_u16() >= 100 && head.status.as_u16() != 101);
            check_fields(head.fields);
        }
        Err(HeadFault::Compression(reason)) => assert_eq!(decoded.err(), Some(DecodeError::Failed(reason))),
        Err(HeadFault::TooLarge) => {
            assert!(matches!(decoded, Err(DecodeError::TooManyBytes | DecodeError::TooManyFields)));
        }
        Err(HeadFault::Malformed(_)) => assert!(decoded.is_ok()),
    }
    if let Ok(trailers) = read_response_trailers(bytes, &limits) {
        check_fields(trailers);
    }
});

fn check_fields(mut fields: Fields) {
    for line in fields.iter() {
        assert!(is_lower_case_token(line.name_bytes()) && is_field_value(line.value) && !has_blank_edge(line.value));
        assert!(!CONNECTION_SPECIFIC.contains_id(line.id()));
    }
    let mut block = Vec::new();
    write_field_block(&mut block, fields.iter().map(|line| (line.name_ref(), line.value)));
    // A request's authority is no field.
    fields.remove_field(name::HOST);
    let decoded = decode_block(&block, &FieldLimits::NONE).expect("what was encoded decodes");
    let lines = decoded.iter().map(|line| (line.name, line.value));
    assert!(lines.eq(fields.iter().map(|line| (line.name_bytes(), line.value))));
}

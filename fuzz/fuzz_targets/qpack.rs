//! An encoded field section: within its limits, or refused; encoded again it decodes to the same. The peer's QPACK
//! streams: the same whole and byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_exchange::FieldNameRef;
use litequic_http3::qpack::{DecoderStream, FieldLimits, check_encoder_stream, decode_section, encode_field, encode_prefix};

fuzz_target!(|bytes: &[u8]| {
    let limits = FieldLimits { bytes: 4096, fields: 32 };
    if let Ok(fields) = decode_section(bytes, &limits) {
        let size: usize = fields.iter().map(|line| line.name.len() + line.value.len() + 32).sum();
        assert!(size <= limits.bytes && fields.len() <= limits.fields);

        let mut again = Vec::new();
        encode_prefix(&mut again);
        for line in fields.iter() {
            let Ok(name) = std::str::from_utf8(line.name) else { return };
            encode_field(FieldNameRef::from_lower_case_token(name), line.value, bytes.len() % 2 == 0, &mut again);
        }
        let decoded = decode_section(&again, &limits).expect("what was encoded decodes");
        for (left, right) in fields.iter().zip(decoded.iter()) {
            assert_eq!((left.id, left.name, left.value), (right.id, right.name, right.value));
        }
        assert_eq!(fields.len(), decoded.len());
    }

    let mut decoder = DecoderStream::default();
    assert_eq!(
        check_encoder_stream(bytes),
        bytes.chunks(1).try_for_each(check_encoder_stream)
    );
    assert_eq!(
        DecoderStream::default().read_cancellations(bytes),
        bytes.chunks(1).try_for_each(|chunk| decoder.read_cancellations(chunk))
    );
});

//! An encoded field section: within its limits, or refused; encoded again it decodes to the same. The peer's QPACK
//! streams: the same whole and byte by byte.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use litequic::http3::qpack::{DecoderStream, EncoderStream, FieldLimits, decode, encode_field, encode_prefix};

fuzz_target!(|bytes: &[u8]| {
    let limits = FieldLimits { bytes: 4096, fields: 32 };
    if let Ok(fields) = decode(Bytes::copy_from_slice(bytes), &limits) {
        let size: usize = fields.iter().map(|field| field.name.as_bytes().len() + field.value.len() + 32).sum();
        assert!(size <= limits.bytes && fields.len() <= limits.fields);

        let mut again = BytesMut::new();
        encode_prefix(&mut again);
        for field in &fields {
            let Ok(name) = std::str::from_utf8(field.name.as_bytes()) else { return };
            encode_field(name, &field.value, bytes.len() % 2 == 0, &mut again);
        }
        let decoded = decode(again.freeze(), &limits).expect("what was encoded decodes");
        for (left, right) in fields.iter().zip(&decoded) {
            assert_eq!((left.name.as_bytes(), &left.value), (right.name.as_bytes(), &right.value));
        }
        assert_eq!(fields.len(), decoded.len());
    }

    let (mut encoder, mut decoder) = (EncoderStream::default(), DecoderStream::default());
    assert_eq!(EncoderStream::default().read(bytes), bytes.chunks(1).try_for_each(|chunk| encoder.read(chunk)));
    assert_eq!(DecoderStream::default().read(bytes), bytes.chunks(1).try_for_each(|chunk| decoder.read(chunk)));
});

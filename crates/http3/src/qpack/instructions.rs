//! Reads the peer's QPACK streams (RFC 9204 §4.3, §4.4). Without a dynamic table, hardly any instruction is valid.

use crate::error_code::ErrorCode;
use litequic_exchange::field_compression::add_continuation;

/// Set Dynamic Table Capacity 0, the only valid instruction for litequic's dynamic table, which has no capacity. Any
/// other capacity is above the limit, no insertion fits in, and there is nothing to duplicate.
const SET_CAPACITY_0: u8 = 0x20;

/// Checks the next bytes of the peer's encoder stream.
///
/// # Errors
///
/// QPACK_ENCODER_STREAM_ERROR, which closes the connection.
pub fn check_encoder_stream(chunk: &[u8]) -> Result<(), ErrorCode> {
    let is_valid = chunk.iter().all(|&byte| byte == SET_CAPACITY_0);
    if is_valid { Ok(()) } else { Err(ErrorCode::QpackEncoderStreamError) }
}

/// Reader of the peer's decoder stream: instructions about litequic's field sections, none of which needs a table.
#[derive(Debug, Default)]
pub struct DecoderStream {
    /// An unfinished Stream Cancellation: the stream ID so far, and the bit at which it continues.
    cancellation: Option<(u64, u32)>,
}

impl DecoderStream {
    /// Prefix of a Stream Cancellation, with all bits set if the ID continues in further bytes.
    const CANCELLATION_MASK: u8 = 0x3f;

    /// Reads the next bytes of the stream.
    ///
    /// # Errors
    ///
    /// QPACK_DECODER_STREAM_ERROR, which closes the connection: for an acknowledgement or an insert count, which are
    /// invalid without a table, and for a stream ID above 62 bits.
    pub fn read_cancellations(&mut self, chunk: &[u8]) -> Result<(), ErrorCode> {
        for &byte in chunk {
            self.cancellation = match (self.cancellation, byte) {
                (None, 0x7f) => Some((u64::from(Self::CANCELLATION_MASK), 0)),
                (None, 0x40..0x7f) => None,
                (None, _) => return Err(ErrorCode::QpackDecoderStreamError),
                (Some((id, shift)), _) => {
                    let id = add_continuation(id, byte, shift).map_err(|_| ErrorCode::QpackDecoderStreamError)?;
                    (byte & 0x80 != 0).then_some((id, shift + 7))
                }
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_encoder_may_set_capacity_zero_and_nothing_else() {
        let table: [(&[u8], bool); 8] = [
            (&[], true),
            (&[0x20], true),
            (&[0x20, 0x20], true),
            (&[0x21], false),             // capacity 1
            (&[0x3f, 0xbd, 0x01], false), // capacity 220, RFC 9204 B.2
            (&[0xc0, 0x01, b'a'], false), // insert with name reference
            (&[0x41, b'a', 0x00], false), // insert with literal name
            (&[0x02], false),             // duplicate
        ];
        for (bytes, allowed) in table {
            let expected = if allowed { Ok(()) } else { Err(ErrorCode::QpackEncoderStreamError) };
            assert_eq!(check_encoder_stream(bytes), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_decoder_may_cancel_streams_and_nothing_else() {
        let table: [(&[u8], bool); 9] = [
            (&[], true),
            (&[0x40], true),
            (&[0x48], true), // RFC 9204 B.4: stream 8
            (&[0x7f, 0x80, 0x01, 0x44], true),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], false), // above 62 bits
            (&[0x84], false),                                                             // section acknowledgement
            (&[0x00], false),                                                             // increment by 0
            (&[0x01], false),                                                             // increment by 1
            (&[0x44, 0x01], false),
        ];
        for (bytes, allowed) in table {
            let expected = if allowed { Ok(()) } else { Err(ErrorCode::QpackDecoderStreamError) };
            assert_eq!(DecoderStream::default().read_cancellations(bytes), expected, "{bytes:02x?}");
        }
    }

    proptest! {
        #[test]
        fn the_split_into_chunks_does_not_matter(bytes in proptest::collection::vec(0x3e_u8..=0x82, 0..20), at: usize) {
            let mut whole = DecoderStream::default();
            let expected = whole.read_cancellations(&bytes);
            let (head, tail) = bytes.split_at(at % (bytes.len() + 1));
            let mut split = DecoderStream::default();
            prop_assert_eq!(split.read_cancellations(head).and_then(|()| split.read_cancellations(tail)), expected);
        }
    }
}

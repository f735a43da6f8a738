//! Encodes and decodes the header of a frame: type and length.

use crate::varint;
use bytes::BufMut;

/// A frame's type (RFC 9114 §7.2, §11.2.1; RFC 9218 §7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
    /// Bytes of a body.
    Data,
    /// A field section.
    Headers,
    /// A push that is cancelled.
    CancelPush,
    /// The sender's settings.
    Settings,
    /// A pushed request's header.
    PushPromise,
    /// The sender is closing.
    Goaway,
    /// The number of pushes that are allowed.
    MaxPushId,
    /// The priority of a request (RFC 9218 §7.2).
    PriorityUpdate,
    /// The priority of a push (RFC 9218 §7.2).
    PushPriorityUpdate,
    /// A type that HTTP/2 used and HTTP/3 forbids: 0x02, 0x06, 0x08, 0x09.
    Reserved(u64),
    /// A type that an extension may define, or a reserved one that must be ignored (RFC 9114 §7.2.8, §9).
    Unknown(u64),
}

impl FrameType {
    /// Returns the type with the number `value`.
    pub const fn from_value(value: u64) -> Self {
        match value {
            0x00 => Self::Data,
            0x01 => Self::Headers,
            0x03 => Self::CancelPush,
            0x04 => Self::Settings,
            0x05 => Self::PushPromise,
            0x07 => Self::Goaway,
            0x0d => Self::MaxPushId,
            0xf_0700 => Self::PriorityUpdate,
            0xf_0701 => Self::PushPriorityUpdate,
            0x02 | 0x06 | 0x08 | 0x09 => Self::Reserved(value),
            _ => Self::Unknown(value),
        }
    }

    /// Returns the number of the type.
    pub const fn frame_type_number(self) -> u64 {
        match self {
            Self::Data => 0x00,
            Self::Headers => 0x01,
            Self::CancelPush => 0x03,
            Self::Settings => 0x04,
            Self::PushPromise => 0x05,
            Self::Goaway => 0x07,
            Self::MaxPushId => 0x0d,
            Self::PriorityUpdate => 0xf_0700,
            Self::PushPriorityUpdate => 0xf_0701,
            Self::Reserved(value) | Self::Unknown(value) => value,
        }
    }
}

/// Header of a frame: the type, and the length of the payload in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Type of the frame.
    pub kind: FrameType,
    /// Length of the payload in bytes.
    pub length: u64,
}

impl FrameHeader {
    /// Largest length of a header in bytes.
    pub const MAX_HEADER_LEN: usize = 16;

    /// Decodes the header at the beginning of `input`, and returns it with its length in bytes. `None` if more bytes
    /// are needed.
    pub fn decode_frame_header(input: &[u8]) -> Option<(Self, usize)> {
        let (kind, first) = varint::decode_varint(input)?;
        let (length, second) = varint::decode_varint(input.get(first..)?)?;
        Some((Self { kind: FrameType::from_value(kind), length }, first.saturating_add(second)))
    }

    /// Appends the header to `out`.
    pub fn encode_frame_header(self, out: &mut impl BufMut) {
        varint::encode_varint(self.kind.frame_type_number(), out);
        varint::encode_varint(self.length, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_type_has_the_number_that_the_rfc_gives_it() {
        let table = [
            (0x00, FrameType::Data),
            (0x01, FrameType::Headers),
            (0x02, FrameType::Reserved(2)),
            (0x03, FrameType::CancelPush),
            (0x04, FrameType::Settings),
            (0x05, FrameType::PushPromise),
            (0x06, FrameType::Reserved(6)),
            (0x07, FrameType::Goaway),
            (0x08, FrameType::Reserved(8)),
            (0x09, FrameType::Reserved(9)),
            (0x0a, FrameType::Unknown(10)),
            (0x0d, FrameType::MaxPushId),
            (0x21, FrameType::Unknown(0x21)),
            (0xf_0700, FrameType::PriorityUpdate),
            (0xf_0701, FrameType::PushPriorityUpdate),
            (0xf_0702, FrameType::Unknown(0xf_0702)),
        ];
        for (value, kind) in table {
            assert_eq!(FrameType::from_value(value), kind);
            assert_eq!(kind.frame_type_number(), value);
        }
    }

    proptest! {
        #[test]
        fn a_header_decodes_as_encoded_and_never_from_less(kind in 0..=varint::MAX_VARINT, length in 0..=varint::MAX_VARINT) {
            let header = FrameHeader { kind: FrameType::from_value(kind), length };
            let mut out = Vec::new();
            header.encode_frame_header(&mut out);
            prop_assert!(out.len() <= FrameHeader::MAX_HEADER_LEN);
            prop_assert_eq!(FrameHeader::decode_frame_header(&out), Some((header, out.len())));
            for cut in 0..out.len() {
                prop_assert_eq!(FrameHeader::decode_frame_header(&out[..cut]), None);
            }
        }
    }
}

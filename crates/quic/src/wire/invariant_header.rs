//! Reads of a datagram what all versions of QUIC have in common (RFC 8999 §5.1).

/// Bit of the first byte that marks a long header.
const LONG_HEADER: u8 = 0x80;
/// Version of a Version Negotiation packet (RFC 8999 §6).
const VERSION_NEGOTIATION: u32 = 0;
/// The version that s2n-quic has (RFC 9000 §15).
const VERSION_1: u32 = 1;
/// First byte of an Initial of version 1 (RFC 9000 §17.2.2), without bits that header protection covers.
const INITIAL: u8 = 0xc0;

/// Long header that begins a datagram, in any version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvariantHeader<'a> {
    version: u32,
    /// Destination connection ID, of up to 255 bytes.
    pub(crate) destination: &'a [u8],
    /// Bytes up to the part whose meaning depends on the version.
    len: usize,
}

impl<'a> InvariantHeader<'a> {
    /// Reads the header that begins `datagram`; `None` if it is incomplete, or a short one.
    pub(crate) fn parse_long_header(datagram: &'a [u8]) -> Option<Self> {
        let (_, rest) = datagram.split_first().filter(|(first, _)| **first & LONG_HEADER > 0)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (destination, rest) = split_connection_id(rest)?;
        let (_source, rest) = split_connection_id(rest)?;
        let version = u32::from_be_bytes(*version);
        Some(Self { version, destination, len: datagram.len() - rest.len() })
    }

    /// Bytes of the header if a client may want another version than s2n-quic's.
    pub(crate) fn unsupported_version_len(&self) -> Option<usize> {
        (!matches!(self.version, VERSION_NEGOTIATION | VERSION_1)).then_some(self.len)
    }
}

fn split_connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Makes the first packet of `datagram`, which has a header of `header_len` bytes, an Initial of the same version, with
/// the same connection IDs, without token and payload. For any other packet of an unsupported version s2n-quic sends no
/// Version Negotiation packet, as it reads the rest of the header before the version.
pub(crate) fn convert_to_initial(datagram: &mut [u8], header_len: usize) {
    if let Some(first) = datagram.first_mut() {
        *first = INITIAL;
    }
    // The lengths of token and of packet number and payload.
    datagram.iter_mut().skip(header_len).take(2).for_each(|byte| *byte = 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use s2n_codec::DecoderBufferMut;
    use s2n_quic_core::{
        connection::id::ConnectionInfo, inet::SocketAddress, packet::ProtectedPacket, path::MINIMUM_MAX_DATAGRAM_SIZE,
    };

    fn datagram(first: u8, version: u32, ids: [&[u8]; 2], rest: &[u8]) -> Vec<u8> {
        let [destination, source] = ids.map(|id| [&[u8::try_from(id.len()).unwrap()], id].concat());
        [&[first][..], &version.to_be_bytes(), &destination, &source, rest].concat()
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in vec(any::<u8>(), 0..600), header_len in 0_usize..700) {
            if let Some(header) = InvariantHeader::parse_long_header(&bytes) {
                prop_assert!(header.len >= 7 + header.destination.len() && header.len <= bytes.len());
            }
            let before = bytes.len();
            convert_to_initial(&mut bytes, header_len);
            prop_assert_eq!(bytes.len(), before);
        }

        #[test]
        fn a_truncated_header_is_none(
            id in vec(any::<u8>(), 0..256),
            other in vec(any::<u8>(), 0..256),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = datagram(0x80, 7, [&id, &other], &[]);
            let expected = InvariantHeader { version: 7, destination: &id, len: whole.len() };
            prop_assert_eq!(InvariantHeader::parse_long_header(&whole), Some(expected));
            prop_assert_eq!(InvariantHeader::parse_long_header(&whole[..cut.index(whole.len())]), None);
        }

        #[test]
        fn s2n_quic_reads_every_unsupported_version_as_an_initial(
            first in 0x80_u8..,
            version in 2_u32..,
            destination in vec(any::<u8>(), 0..256),
            source in vec(any::<u8>(), 0..256),
            rest in vec(any::<u8>(), 1200),
        ) {
            let mut bytes = datagram(first, version, [&destination, &source], &rest);
            let len = InvariantHeader::parse_long_header(&bytes).unwrap().unsupported_version_len().unwrap();
            convert_to_initial(&mut bytes, len);
            let address = SocketAddress::default();
            let (buffer, info) = (DecoderBufferMut::new(&mut bytes), ConnectionInfo::new(&address));
            let read = ProtectedPacket::decode(buffer, &info, &8_usize);
            let Ok((ProtectedPacket::Initial(packet), _)) = read else { panic!("no Initial") };
            prop_assert_eq!(packet.version, version);
            prop_assert_eq!(packet.destination_connection_id(), destination);
            prop_assert_eq!(packet.source_connection_id(), source);
        }
    }

    #[test]
    fn version_1_and_version_negotiation_are_left_alone() {
        assert_eq!(MINIMUM_MAX_DATAGRAM_SIZE, 1200);
        for (version, expected) in [(0, None), (1, None), (2, Some(7)), (0x6b33_43cf, Some(7)), (u32::MAX, Some(7))] {
            let bytes = datagram(0xd0, version, [&[], &[]], &[1; 9]);
            let header = InvariantHeader::parse_long_header(&bytes).unwrap();
            assert_eq!(header.unsupported_version_len(), expected, "{version:#x}");
        }
        assert_eq!(InvariantHeader::parse_long_header(&[0x40; 30]), None);
    }
}

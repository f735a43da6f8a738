//! Defines the types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2), and limits the number that a peer opens
//! of each.

use super::{error_code::ErrorCode, frame::PeerRole, varint};
use bytes::BytesMut;

/// Type of a unidirectional stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamType {
    /// Control stream: SETTINGS, GOAWAY.
    Control,
    /// Push stream: a pushed response.
    Push,
    /// QPACK encoder stream: instructions for the dynamic table.
    QpackEncoder,
    /// QPACK decoder stream: acknowledgements of field sections that use the dynamic table.
    QpackDecoder,
    /// Unknown type, to be stopped with H3_STREAM_CREATION_ERROR, or read and dropped.
    Unknown(u64),
}

impl StreamType {
    /// Returns the type with the number `value`, which begins the stream as a [`varint`].
    pub const fn from_stream_value(value: u64) -> Self {
        match value {
            0x00 => Self::Control,
            0x01 => Self::Push,
            0x02 => Self::QpackEncoder,
            0x03 => Self::QpackDecoder,
            _ => Self::Unknown(value),
        }
    }

    /// Returns the number of the type.
    pub const fn stream_type_number(self) -> u64 {
        match self {
            Self::Control => 0x00,
            Self::Push => 0x01,
            Self::QpackEncoder => 0x02,
            Self::QpackDecoder => 0x03,
            Self::Unknown(value) => value,
        }
    }

    /// Appends the type, the first bytes of a stream.
    pub fn encode_stream_type(self, out: &mut BytesMut) {
        varint::encode_varint(self.stream_type_number(), out);
    }
}

/// Largest number of unidirectional streams of unknown types (RFC 9114 §6.2.3) on a connection, so that reserved types
/// do not become a flood.
const MAX_UNKNOWN_STREAMS: u32 = 1_000;

/// The unidirectional streams that a peer has opened.
#[derive(Debug)]
pub struct UnidirectionalStreams {
    peer: PeerRole,
    control: bool,
    encoder: bool,
    decoder: bool,
    unknown: u32,
}

impl UnidirectionalStreams {
    /// Creates the state of a connection on which `peer` has opened no stream.
    pub const fn new(peer: PeerRole) -> Self {
        Self { peer, control: false, encoder: false, decoder: false, unknown: 0 }
    }

    /// Records that the peer has opened a stream of the type `kind`.
    ///
    /// # Errors
    ///
    /// The code that closes the connection: H3_STREAM_CREATION_ERROR for a second critical stream or a push from a
    /// client, H3_ID_ERROR for a push from a server, as litequic never allows one (RFC 9114 §4.6), H3_EXCESSIVE_LOAD
    /// for too many streams of unknown types.
    pub fn register_stream(&mut self, kind: StreamType) -> Result<(), ErrorCode> {
        let seen = match (kind, self.peer) {
            (StreamType::Control, _) => &mut self.control,
            (StreamType::QpackEncoder, _) => &mut self.encoder,
            (StreamType::QpackDecoder, _) => &mut self.decoder,
            (StreamType::Push, PeerRole::Client) => return Err(ErrorCode::StreamCreationError),
            (StreamType::Push, PeerRole::Server) => return Err(ErrorCode::IdError),
            (StreamType::Unknown(_), _) => {
                self.unknown = self.unknown.saturating_add(1);
                return if self.unknown > MAX_UNKNOWN_STREAMS { Err(ErrorCode::ExcessiveLoad) } else { Ok(()) };
            }
        };
        if std::mem::replace(seen, true) { Err(ErrorCode::StreamCreationError) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StreamType::{Control, Push, QpackDecoder, QpackEncoder, Unknown};

    #[test]
    fn each_critical_stream_opens_once_and_a_push_never() {
        let table: [(PeerRole, &[StreamType], Result<(), ErrorCode>); 9] = [
            (PeerRole::Client, &[Control, QpackEncoder, QpackDecoder], Ok(())),
            (PeerRole::Client, &[QpackDecoder, QpackEncoder, Control], Ok(())),
            (PeerRole::Client, &[Control, Control], Err(ErrorCode::StreamCreationError)),
            (PeerRole::Client, &[QpackEncoder, QpackEncoder], Err(ErrorCode::StreamCreationError)),
            (PeerRole::Client, &[QpackDecoder, QpackDecoder], Err(ErrorCode::StreamCreationError)),
            (PeerRole::Client, &[Unknown(0x21), Unknown(0x21)], Ok(())),
            (PeerRole::Client, &[Push], Err(ErrorCode::StreamCreationError)),
            (PeerRole::Server, &[Push], Err(ErrorCode::IdError)),
            (PeerRole::Server, &[Control, Control], Err(ErrorCode::StreamCreationError)),
        ];
        for (peer, kinds, expected) in table {
            let mut streams = UnidirectionalStreams::new(peer);
            let outcome = kinds.iter().try_for_each(|kind| streams.register_stream(*kind));
            assert_eq!(outcome, expected, "{peer:?} opens {kinds:?}");
        }
    }

    #[test]
    fn streams_of_unknown_types_are_too_many_at_some_time() {
        let mut streams = UnidirectionalStreams::new(PeerRole::Client);
        assert!((0..MAX_UNKNOWN_STREAMS).all(|_| streams.register_stream(Unknown(0x21)).is_ok()));
        assert_eq!(streams.register_stream(Unknown(0x21)), Err(ErrorCode::ExcessiveLoad));
    }

    #[test]
    fn a_type_decodes_as_encoded() {
        for kind in [Control, Push, QpackEncoder, QpackDecoder, Unknown(0x21), Unknown(varint::MAX_VARINT)] {
            let mut out = BytesMut::new();
            kind.encode_stream_type(&mut out);
            assert_eq!(varint::decode_varint(&out).map(|(value, _)| StreamType::from_stream_value(value)), Some(kind));
        }
    }
}

//! Rules of RFC 9001 for a ClientHello that rustls does not enforce, checked in its bytes as they come. Pure.

use s2n_quic_core::{crypto::tls, transport::Error};

/// The extension `quic_transport_parameters`. rustls takes the codepoint of QUIC's drafts (0xffa5) for it as well.
const PARAMETERS: usize = 0x39;
/// The type of a ClientHello (RFC 8446 §4).
const CLIENT_HELLO: usize = 1;
/// Bytes before the session ID: version and random (RFC 8446 §4.1.2).
const FIXED: usize = 2 + 32;

/// Reads ClientHello messages. To be asked for what rustls has taken: what it finds in malformed ones means nothing.
#[derive(Debug, Default)]
pub(super) struct Rules {
    field: Field,
    /// The field's bytes so far.
    value: usize,
    gathered: usize,
    /// Bytes to be skipped before the field.
    skip: usize,
    /// Bytes left of the extensions, from the field on.
    left: usize,
    has_parameters: bool,
}

/// What is read; everything between is skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Field {
    #[default]
    Header,
    SessionId,
    CipherSuites,
    Compression,
    Extensions,
    Extension,
    ExtensionLength,
}

impl Field {
    /// Bytes.
    const fn length(self) -> usize {
        match self {
            Self::Header => 4,
            Self::SessionId | Self::Compression => 1,
            Self::CipherSuites | Self::Extensions | Self::Extension | Self::ExtensionLength => 2,
        }
    }
}

impl Rules {
    /// Reads on, in the ClientHello or in the one that follows a HelloRetryRequest.
    ///
    /// # Errors
    ///
    /// The connection's, once a rule is broken.
    pub(super) fn read(&mut self, mut data: &[u8]) -> Result<(), Error> {
        loop {
            let skipped = self.skip.min(data.len());
            self.skip -= skipped;
            data = data.get(skipped..).unwrap_or_default();
            if self.skip == 0 && self.is_over() && !std::mem::take(self).has_parameters {
                // RFC 9001 §8.2
                return Err(tls::Error::MISSING_EXTENSION.with_reason("no QUIC transport parameters").into());
            }
            let Some((byte, rest)) = data.split_first() else { return Ok(()) };
            data = rest;
            self.value = self.value << 8 | usize::from(*byte);
            self.gathered += 1;
            if self.gathered == self.field.length() {
                self.gathered = 0;
                let value = std::mem::take(&mut self.value);
                self.end_field(value)?;
            }
        }
    }

    /// All extensions were read, and skipped as far as they are known.
    fn is_over(&self) -> bool {
        self.field == Field::Extension && self.gathered == 0 && self.left == 0
    }

    fn end_field(&mut self, value: usize) -> Result<(), Error> {
        (self.field, self.skip) = match self.field {
            Field::Header if value >> 24 == CLIENT_HELLO => (Field::SessionId, FIXED),
            // Another message, none of which belongs here.
            Field::Header => (Field::Header, value & 0x00ff_ffff),
            // TLS 1.3 looks like 1.2 to those between, which QUIC hides it from (RFC 9001 §8.4).
            Field::SessionId if value > 0 => {
                return Err(Error::PROTOCOL_VIOLATION.with_reason("TLS compatibility mode"));
            }
            Field::SessionId => (Field::CipherSuites, 0),
            Field::CipherSuites => (Field::Compression, value),
            Field::Compression => (Field::Extensions, value),
            Field::Extensions => {
                self.left = value;
                (Field::Extension, 0)
            }
            Field::Extension => {
                self.has_parameters |= value == PARAMETERS;
                (Field::ExtensionLength, 0)
            }
            Field::ExtensionLength => {
                self.left =
                    self.left.saturating_sub(Field::Extension.length() + Field::ExtensionLength.length() + value);
                (Field::Extension, value)
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Trust, client_config};
    use proptest::prelude::{any, prop};
    use rustls::quic::{ClientConnection, Version};
    use std::sync::Arc;

    fn hello(version: Version) -> Vec<u8> {
        let config = Arc::new(client_config(&Trust::Insecure, false).unwrap());
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(config, version, name, vec![0; 40]).unwrap();
        let mut hello = Vec::new();
        assert!(client.write_hs(&mut hello).is_none());
        hello
    }

    const MISSING_EXTENSION: Result<(), u64> = Err(0x16d);

    fn read(rules: &mut Rules, data: &[u8]) -> Result<(), u64> {
        rules.read(data).map_err(|error| error.code.as_u64())
    }

    #[test]
    fn the_extension_is_found_in_whatever_pieces_the_message_comes() {
        for (version, expected) in [(Version::V1, Ok(())), (Version::V1Draft, MISSING_EXTENSION)] {
            let hello = hello(version);
            for size in [1, 2, 7, 100, hello.len()] {
                let mut rules = Rules::default();
                let mut pieces: Vec<_> = hello.chunks(size).map(|piece| read(&mut rules, piece)).collect();
                assert_eq!(pieces.pop(), Some(expected), "in pieces of {size}");
                assert!(pieces.iter().all(Result::is_ok));
            }
        }
    }

    #[test]
    fn a_second_message_counts_by_itself() {
        let mut rules = Rules::default();
        assert_eq!(read(&mut rules, &hello(Version::V1)), Ok(()));
        assert_eq!(read(&mut rules, &hello(Version::V1Draft)), MISSING_EXTENSION);
        let both = [hello(Version::V1), hello(Version::V1Draft)].concat();
        assert_eq!(read(&mut Rules::default(), &both), MISSING_EXTENSION);
    }

    #[test]
    fn a_hello_without_extensions_and_one_with_a_session_id_break_the_rules() {
        let message = [&[1, 0, 0, 44][..], &[3; FIXED], &[0, 0, 2, 0x13, 1, 1, 0, 0, 0]].concat();
        assert_eq!(read(&mut Rules::default(), &message), MISSING_EXTENSION);
        let message = [&[1, 0, 0, 44][..], &[3; FIXED], &[1, 9]].concat();
        assert_eq!(read(&mut Rules::default(), &message), Err(0x0a));
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
            let mut rules = Rules::default();
            for piece in pieces {
                let _ = rules.read(&piece);
            }
        }
    }
}

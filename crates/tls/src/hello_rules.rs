//! Checks rules of RFC 9001 for a ClientHello that rustls does not enforce, in its bytes as they are received. Pure.

use super::hello::{CLIENT_HELLO_TYPE, HANDSHAKE_HEADER_LEN};
use s2n_codec::{DecoderBuffer, DecoderError};
use s2n_quic_core::{crypto::tls, transport::Error};

/// Type of the extension `quic_transport_parameters`. rustls also accepts the codepoint of QUIC's drafts (0xffa5).
const TRANSPORT_PARAMETERS_TYPE: u16 = 0x39;
/// Bytes of a ClientHello before the session ID: version and random (RFC 8446 §4.1.2).
const BYTES_BEFORE_SESSION_ID: usize = 2 + 32;

/// Reads ClientHello messages, and checks each at its end. Results are only valid if rustls accepts the message.
#[derive(Debug, Default)]
pub(super) struct ClientHelloRules {
    /// CRYPTO data that is not checked: at most a message, of 64 KiB if rustls accepts it, and the rest of its frame.
    pub(super) message: Vec<u8>,
}

impl ClientHelloRules {
    /// Checks `message` and further bytes of a ClientHello, also of the one after a HelloRetryRequest.
    ///
    /// # Errors
    ///
    /// The connection's error, at the end of an invalid message.
    pub(super) fn check_bytes(&mut self, data: &[u8]) -> Result<(), Error> {
        self.message.extend_from_slice(data);
        while let Some([kind, a, b, c]) = self.message.first_chunk().copied() {
            let end = HANDSHAKE_HEADER_LEN + u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(message) = self.message.get(HANDSHAKE_HEADER_LEN..end) else { break };
            if kind == CLIENT_HELLO_TYPE {
                check_client_hello(message)?;
            }
            self.message.drain(..end);
        }
        Ok(())
    }
}

fn check_client_hello(message: &[u8]) -> Result<(), Error> {
    match read_client_hello(message) {
        // TLS 1.3 imitates 1.2 for middleboxes, which cannot see QUIC's handshake (RFC 9001 §8.4).
        Ok((true, _)) => Err(Error::PROTOCOL_VIOLATION.with_reason("TLS compatibility mode")),
        Ok((false, true)) => Ok(()),
        // QUIC requires transport parameters (RFC 9001 §8.2).
        _ => Err(tls::Error::MISSING_EXTENSION.with_reason("no QUIC transport parameters").into()),
    }
}

/// Returns whether a ClientHello (RFC 8446 §4.1.2) has a session ID, and whether it has transport parameters.
fn read_client_hello(message: &[u8]) -> Result<(bool, bool), DecoderError> {
    let buffer = DecoderBuffer::new(message).skip(BYTES_BEFORE_SESSION_ID)?;
    let (session_id, buffer) = buffer.decode_slice_with_len_prefix::<u8>()?;
    // Cipher suites and compression methods.
    let buffer = buffer.skip_with_len_prefix::<u16>()?.skip_with_len_prefix::<u8>()?;
    let (mut extensions, _) = buffer.decode_slice_with_len_prefix::<u16>()?;
    let mut has_parameters = false;
    while !extensions.is_empty() {
        let (kind, rest) = extensions.decode::<u16>()?;
        has_parameters |= kind == TRANSPORT_PARAMETERS_TYPE;
        extensions = rest.skip_with_len_prefix::<u16>()?;
    }
    Ok((!session_id.is_empty(), has_parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerTrust, client_config};
    use proptest::prelude::{any, prop};
    use rustls::quic::{ClientConnection, Version};
    use std::sync::Arc;

    fn hello(version: Version) -> Vec<u8> {
        let config = Arc::new(client_config(&ServerTrust::Insecure).unwrap());
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(config, version, name, vec![0; 40]).unwrap();
        let mut hello = Vec::new();
        assert!(client.write_hs(&mut hello).is_none());
        hello
    }

    const MISSING_EXTENSION: Result<(), u64> = Err(0x16d);

    fn read(rules: &mut ClientHelloRules, data: &[u8]) -> Result<(), u64> {
        rules.check_bytes(data).map_err(|error| error.code.as_u64())
    }

    #[test]
    fn the_extension_is_found_in_whatever_pieces_the_message_comes() {
        for (version, expected) in [(Version::V1, Ok(())), (Version::V1Draft, MISSING_EXTENSION)] {
            let hello = hello(version);
            for size in [1, 2, 7, 100, hello.len()] {
                let mut rules = ClientHelloRules::default();
                let mut pieces: Vec<_> = hello.chunks(size).map(|piece| read(&mut rules, piece)).collect();
                assert_eq!(pieces.pop(), Some(expected), "in pieces of {size}");
                assert!(pieces.iter().all(Result::is_ok));
            }
        }
    }

    #[test]
    fn a_second_message_counts_by_itself() {
        let mut rules = ClientHelloRules::default();
        assert_eq!(read(&mut rules, &hello(Version::V1)), Ok(()));
        assert_eq!(read(&mut rules, &hello(Version::V1Draft)), MISSING_EXTENSION);
        let both = [hello(Version::V1), hello(Version::V1Draft)].concat();
        assert_eq!(read(&mut ClientHelloRules::default(), &both), MISSING_EXTENSION);
    }

    #[test]
    fn a_hello_without_extensions_or_with_a_session_id_is_rejected() {
        for (tail, expected) in [
            (&[0, 0, 2, 0x13, 1, 1, 0, 0, 0][..], MISSING_EXTENSION),
            (&[0, 0, 2, 0x13, 1, 1, 0], MISSING_EXTENSION),
            (&[1, 9, 0, 2, 0x13, 1, 1, 0, 0, 4, 0, 0x39, 0, 0], Err(0x0a)),
            (&[0, 0, 2, 0x13, 1, 1, 0, 0, 4, 0, 0x39, 0, 0], Ok(())),
        ] {
            let length = u8::try_from(BYTES_BEFORE_SESSION_ID + tail.len()).unwrap();
            let message = [&[1, 0, 0, length][..], &[3; BYTES_BEFORE_SESSION_ID], tail].concat();
            let (last, most) = message.split_last().unwrap();
            let mut rules = ClientHelloRules::default();
            assert_eq!(read(&mut rules, most), Ok(()), "not judged before its end: {tail:x?}");
            assert_eq!(read(&mut rules, &[*last]), expected, "{tail:x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
            let mut rules = ClientHelloRules::default();
            for piece in pieces {
                let _ = rules.check_bytes(&piece);
            }
        }
    }
}

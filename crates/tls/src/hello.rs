//! Reads the server name in a ClientHello (RFC 6066 §3) before there is a session, because the certificate request
//! depends on it, and rustls needs that first. Pure.

use rustls::server::Acceptor;

/// Bytes of a handshake message's header: type and length (RFC 8446 §4).
pub(super) const HANDSHAKE_HEADER_LEN: usize = 4;
/// Type of a ClientHello message (RFC 8446 §4).
pub(super) const CLIENT_HELLO_TYPE: u8 = 1;
/// Bytes of a ClientHello that rustls accepts.
const MAX_HELLO_LEN: usize = 0xffff;
/// Bytes of a TLS record at most (RFC 8446 §5.1).
const MAX_RECORD_LEN: usize = 1 << 14;

/// Result of reading a client's first CRYPTO data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HelloName {
    /// The ClientHello is incomplete.
    Unfinished,
    /// The ClientHello is complete, with this server name or none.
    Named(Option<String>),
    /// rustls cannot read the message, and a session will not either.
    Unreadable,
}

/// Reads the server name in the CRYPTO data of a client.
pub(super) fn read_hello_name(data: &[u8]) -> HelloName {
    match data {
        [CLIENT_HELLO_TYPE, a, b, c, ..] => match u32::from_be_bytes([0, *a, *b, *c]) as usize {
            length if length > MAX_HELLO_LEN => HelloName::Unreadable,
            length => data.get(..HANDSHAKE_HEADER_LEN + length).map_or(HelloName::Unfinished, parse_client_hello),
        },
        [CLIENT_HELLO_TYPE, ..] | [] => HelloName::Unfinished,
        _ => HelloName::Unreadable,
    }
}

/// Parses a complete ClientHello by rustls, in records like those over TCP.
fn parse_client_hello(hello: &[u8]) -> HelloName {
    let mut records = Vec::with_capacity(hello.len() + 5 * hello.len().div_ceil(MAX_RECORD_LEN));
    for piece in hello.chunks(MAX_RECORD_LEN) {
        records.extend_from_slice(&[22, 3, 1]);
        records.extend_from_slice(&u16::try_from(piece.len()).unwrap_or(u16::MAX).to_be_bytes());
        records.extend_from_slice(piece);
    }
    let mut records = records.as_slice();
    let mut acceptor = Acceptor::default();
    loop {
        match acceptor.read_tls(&mut records) {
            Ok(0) | Err(_) => return HelloName::Unreadable,
            Ok(_) => {}
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return HelloName::Named(accepted.client_hello().server_name().map(str::to_owned)),
            Ok(None) => {}
            Err(_) => return HelloName::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerTrust, client_config};
    use proptest::prelude::{any, prop};
    use rustls::quic::{ClientConnection, Version};
    use std::sync::Arc;

    /// A ClientHello with `parameters` bytes of transport parameters.
    fn hello(name: &str, parameters: usize) -> Vec<u8> {
        let config = Arc::new(client_config(&ServerTrust::Insecure).unwrap());
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(config, Version::V1, name, vec![0; parameters]).unwrap();
        let mut hello = Vec::new();
        assert!(client.write_hs(&mut hello).is_none());
        hello
    }

    #[test]
    fn a_hello_is_read_when_it_is_whole_and_not_before() {
        for (name, parameters, expected) in [
            ("a.test", 0, Some("a.test")),
            ("A.Test", 0, Some("a.test")),
            ("127.0.0.1", 0, None),
            ("a.test", 60_000, Some("a.test")),
        ] {
            let hello = hello(name, parameters);
            for end in (0..hello.len()).step_by(1 + parameters / 100) {
                assert_eq!(read_hello_name(&hello[..end]), HelloName::Unfinished, "{end} of {}", hello.len());
            }
            let HelloName::Named(found) = read_hello_name(&hello) else { panic!("{name} is unreadable") };
            assert_eq!(found.map(|name| name.to_lowercase()).as_deref(), expected);
            assert_ne!(read_hello_name(&[&hello[..], b"and more"].concat()), HelloName::Unfinished);
        }
    }

    #[test]
    fn bytes_that_are_no_client_hello_are_not_waited_for() {
        assert_eq!(read_hello_name(&[2]), HelloName::Unreadable);
        assert_eq!(read_hello_name(&[1, 1, 0, 0]), HelloName::Unreadable);
        assert_eq!(read_hello_name(&[1, 0, 0, 0]), HelloName::Unreadable);
        assert_eq!(read_hello_name(&[1, 0, 0, 1, 0]), HelloName::Unreadable);
        assert_eq!(read_hello_name(&[1, 0, 0xff, 0xff]), HelloName::Unfinished);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(data in prop::collection::vec(any::<u8>(), 0..300), length in any::<u8>()) {
            let _ = read_hello_name(&data);
            let _ = read_hello_name(&[&[1, 0, 0, length], &data[..]].concat());
        }
    }
}

//! Tests sessions in memory with rustls' QUIC client, and a stand-in for s2n-quic's packet number spaces.

use super::*;
use crate::{
    CertificateResolver, CertificateStore, SelfSigned, ServerTls, ServerTrust, client_config, make_self_signed,
    server_config, tickets,
};
use proptest::prelude::{Strategy, any, prop};
use rustls::{
    ClientConfig, HandshakeKind, ServerConfig,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, kx_group},
    },
    quic::{ClientConnection, Version},
    version::TLS13,
};
use s2n_codec::EncoderValue;
use s2n_quic_core::{
    application::ServerName,
    crypto::{
        HeaderKey, Key, OneRttKey as _, scatter,
        tls::{Endpoint, Session as _},
    },
};
use s2n_quic_crypto::{
    handshake::{HandshakeHeaderKey, HandshakeKey},
    one_rtt::{OneRttHeaderKey, OneRttKey},
};
use std::{
    any::Any,
    error,
    net::SocketAddr,
    sync::{Arc, LazyLock},
    task::Waker,
};

mod asking;
mod spaces;

use spaces::{Encoded, Spaces};

const CLIENT_PARAMETERS: &[u8] = b"\x04\x01\x20\x0f\x00";
const SERVER_PARAMETERS: &[u8] = b"\x04\x01\x21";

fn session(tls: &mut ServerTls) -> QuicTlsSession {
    let address: SocketAddr = ([127, 0, 0, 1], 443).into();
    let info = tls::ConnectionInfo::new(
        s2n_quic_core::path::LocalAddress::from(s2n_quic_core::inet::SocketAddress::from(address)),
        s2n_quic_core::path::RemoteAddress::from(s2n_quic_core::inet::SocketAddress::from(address)),
    );
    tls.new_server_session(&Encoded(SERVER_PARAMETERS), info)
}

fn tls(made: &SelfSigned) -> ServerTls {
    tls_with(made, 1)
}

/// Server with the ticket secret of `byte`, as other processes may have.
fn tls_with(made: &SelfSigned, byte: u8) -> ServerTls {
    let store = CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
    ServerTls::new(server_config(CertificateResolver::new(store), false, &tickets::secret(byte)).unwrap())
}

/// Server with the cryptography of `provider`.
fn tls_of(provider: CryptoProvider) -> ServerTls {
    let store = CertificateStore::new(made().to_loaded_certificate().unwrap(), []);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(CertificateResolver::new(store));
    config.alpn_protocols = vec![b"h3".to_vec()];
    ServerTls::new(Arc::new(config))
}

fn made() -> &'static SelfSigned {
    static MADE: LazyLock<SelfSigned> = LazyLock::new(|| make_self_signed(["localhost"]).unwrap());
    &MADE
}

/// Returns a client's configuration that stores tickets.
fn client() -> Arc<ClientConfig> {
    Arc::new(client_config(&ServerTrust::Insecure).unwrap())
}

fn connect(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(config), Version::V1, name, CLIENT_PARAMETERS.to_vec()).unwrap()
}

struct Shaken {
    client: ClientConnection,
    spaces: Spaces,
    client_keys: Option<(rustls::quic::Keys, rustls::quic::Secrets)>,
    outcome: Result<(), transport::Error>,
}

/// Performs a handshake and receives the tickets; the server gets the client's data in pieces of `piece` bytes.
fn shake(session: &mut QuicTlsSession, mut client: ClientConnection, piece: usize) -> Shaken {
    let mut spaces = Spaces::default();
    let mut level = EncryptionLevel::Initial;
    let mut client_keys = None;
    let mut outcome = Ok(());
    // The client reads one level at a time, and its keys are taken in between; otherwise it writes at the wrong level.
    for _ in 0..8 {
        loop {
            let mut message = Vec::new();
            let change = client.write_hs(&mut message);
            if message.is_empty() && change.is_none() {
                break;
            }
            for piece in message.chunks(piece) {
                match level {
                    EncryptionLevel::Initial => spaces.initial.incoming.extend_from_slice(piece),
                    _ => spaces.handshake.incoming.extend_from_slice(piece),
                }
                if let (Poll::Ready(result), Ok(())) = (session.poll(&mut spaces), &outcome) {
                    outcome = result;
                }
            }
            match change {
                Some(KeyChange::Handshake { .. }) => level = EncryptionLevel::Handshake,
                Some(KeyChange::OneRtt { keys, next }) => {
                    level = EncryptionLevel::Application;
                    client_keys = Some((keys, next));
                }
                None => {}
            }
        }
        let Spaces { initial, handshake, application, .. } = &mut spaces;
        let waiting = [initial, handshake, application].into_iter().find(|space| !space.outgoing.is_empty());
        let Some(space) = waiting else { break };
        client.read_hs(&std::mem::take(&mut space.outgoing)).unwrap();
    }
    Shaken { client, spaces, client_keys, outcome }
}

#[test]
fn a_handshake_tells_both_sides_what_was_agreed_on() {
    for piece in [1, 100, usize::MAX] {
        let shaken = shake(&mut session(&mut tls(made())), connect(&client()), piece);
        shaken.outcome.unwrap();
        let spaces = shaken.spaces;
        assert_eq!((spaces.completed, spaces.failed), (1, 0));
        assert_eq!(spaces.server_name.as_deref(), Some("localhost"));
        assert_eq!(spaces.protocol, b"h3");
        assert!(spaces.group.is_some());
        assert_eq!(spaces.client_parameters, CLIENT_PARAMETERS);
        assert_eq!(shaken.client.quic_transport_parameters(), Some(SERVER_PARAMETERS));
        assert_eq!(shaken.client.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn one_rtt_keys_match_the_clients_through_key_updates() {
    let provider = aws_lc_rs::default_provider();
    let suites: Vec<_> = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_some()).collect();
    assert_eq!(suites.len(), 3);
    for suite in suites {
        let provider = CryptoProvider { cipher_suites: vec![*suite], ..provider.clone() };
        let shaken = shake(&mut session(&mut tls_of(provider)), connect(&client()), usize::MAX);
        fit_through_key_updates(shaken);
    }
}

fn fit_through_key_updates(shaken: Shaken) {
    let (mut packet, header) = shaken.spaces.one_rtt.unwrap();
    let (client, mut next) = shaken.client_keys.unwrap();
    assert_eq!(packet.tag_len(), 16);

    let mut local = client.local.packet;
    let mut remote = client.remote.packet;
    for generation in 0..3 {
        let mut text = *b"hello";
        let tag = local.encrypt_in_place(generation, b"header", &mut text).unwrap();
        let mut sealed = [&text[..], tag.as_ref()].concat();
        let stale = sealed.clone();
        packet.decrypt(generation, b"header", &mut sealed).unwrap();
        assert_eq!(sealed[..5], *b"hello");

        // Stream data stands among the frames, or by reference after them.
        for (frames, data) in [(&b"worldwide"[..], &b""[..]), (b"world", b"wide"), (b"", b"worldwide")] {
            let mut bytes = [0; 25];
            let mut buffer = s2n_codec::EncoderBuffer::new(&mut bytes);
            s2n_codec::Encoder::write_slice(&mut buffer, frames);
            let data = (!data.is_empty()).then(|| Bytes::from_static(data));
            packet.encrypt(generation, b"header", &mut scatter::Buffer::new_with_extra(buffer, data)).unwrap();
            assert_eq!(remote.decrypt_in_place(generation, b"header", &mut bytes).unwrap(), b"worldwide");
        }

        let next_packet = packet.derive_next_key();
        assert!(next_packet.decrypt(generation, b"header", &mut stale.clone()).is_err(), "an update changes the keys");
        packet = next_packet;
        rustls::quic::PacketKeySet { local, remote } = next.next_packet_keys();
    }
    // The client applies its header protection mask, and the server removes it (RFC 9001 §5.4).
    let (mut first, mut number) = (0x43, [0; 4]);
    client.local.header.encrypt_in_place(&[0xa5; 16], &mut first, &mut number).unwrap();
    let mask = header.opening_header_protection_mask(&[0xa5; 16]);
    assert_eq!((first, number), (0x43 ^ mask[0] & 0x1f, [mask[1], mask[2], mask[3], mask[4]]));
    assert_eq!(header.opening_sample_len(), client.local.header.sample_len());
}

#[test]
fn a_ticket_of_one_worker_resumes_on_another_with_new_tickets() {
    let (mut one, config) = (tls(made()), client());
    let mut other = one.clone();
    let first = shake(&mut session(&mut one), connect(&config), usize::MAX);
    assert_eq!(first.client.tls13_tickets_received(), 2);
    for turn in 0..6 {
        let worker = if turn % 2 == 0 { &mut other } else { &mut one };
        let resumed = shake(&mut session(worker), connect(&config), usize::MAX);
        resumed.outcome.unwrap();
        assert_eq!(resumed.client.handshake_kind(), Some(HandshakeKind::Resumed));
        assert_eq!(resumed.client.tls13_tickets_received(), 2);
        assert_eq!(resumed.spaces.server_name.as_deref(), Some("localhost"));
        assert_eq!(resumed.spaces.client_parameters, CLIENT_PARAMETERS);
    }
}

#[test]
fn a_ticket_of_another_process_resumes_with_the_same_secret() {
    for (byte, kind) in [(1, HandshakeKind::Resumed), (2, HandshakeKind::Full)] {
        let config = client();
        shake(&mut session(&mut tls(made())), connect(&config), usize::MAX).outcome.unwrap();
        let again = shake(&mut session(&mut tls_with(made(), byte)), connect(&config), usize::MAX);
        again.outcome.unwrap();
        assert_eq!(again.client.handshake_kind(), Some(kind));
        assert_eq!(again.client.tls13_tickets_received(), 2);
    }
}

/// Returns the client's first and second flight.
fn flights() -> (QuicTlsSession, Spaces, Vec<u8>) {
    let mut session = session(&mut tls(made()));
    let mut spaces = Spaces::default();
    let mut client = connect(&client());
    assert!(client.write_hs(&mut spaces.initial.incoming).is_none());
    assert!(session.poll(&mut spaces).is_pending());
    client.read_hs(&spaces.initial.outgoing).unwrap();
    assert!(matches!(client.write_hs(&mut Vec::new()), Some(KeyChange::Handshake { .. })));
    client.read_hs(&spaces.handshake.outgoing).unwrap();
    let mut finished = Vec::new();
    assert!(matches!(client.write_hs(&mut finished), Some(KeyChange::OneRtt { .. })));
    (session, spaces, finished)
}

fn failure(session: &mut QuicTlsSession, spaces: &mut Spaces) -> u64 {
    let Poll::Ready(Err(error)) = session.poll(spaces) else { panic!("no error") };
    assert_eq!((spaces.completed, spaces.failed), (0, 1));
    error.code.as_u64()
}

#[test]
fn nothing_leaves_at_1_rtt_before_the_clients_finished() {
    let (mut session, mut spaces, finished) = flights();
    assert!(spaces.application.keys, "the server may send data already");
    assert!(spaces.application.outgoing.is_empty());
    let (last, rest) = finished.split_last().unwrap();
    spaces.handshake.incoming.extend_from_slice(rest);
    assert!(session.poll(&mut spaces).is_pending());
    assert!(session.poll(&mut spaces).is_pending(), "polled again for nothing");
    assert_eq!(spaces.completed, 0);
    spaces.handshake.incoming.push(*last);
    assert!(matches!(session.poll(&mut spaces), Poll::Ready(Ok(()))));
    assert_eq!(spaces.completed, 1);
    assert!(!spaces.application.outgoing.is_empty());
    assert!(session.should_discard_session());
}

#[test]
fn a_client_that_breaks_the_rules_gets_the_reason() {
    const KEY_UPDATE: &[u8] = &[24, 0, 0, 1, 0];
    type Change = fn(&[u8]) -> Vec<u8>;
    let changes: [(&str, Change, u64); 4] = [
        ("a KeyUpdate behind Finished", |finished| [finished, KEY_UPDATE].concat(), 0x10a),
        ("a KeyUpdate instead of Finished", |_| KEY_UPDATE.to_vec(), 0x10a),
        ("a wrong Finished", |finished| [&finished[..35], &[!finished[35]]].concat(), 0x133),
        ("a Finished that is too long", |finished| [&[20, 0, 0, 60], &finished[4..], &[0; 28]].concat(), 0x133),
    ];
    for (what, change, code) in changes {
        let (mut session, mut spaces, finished) = flights();
        spaces.handshake.incoming = change(&finished);
        assert_eq!(failure(&mut session, &mut spaces), code, "{what}");
        let _ = session.poll(&mut spaces);
        assert_eq!(spaces.completed, 0, "{what}");
    }
}

#[test]
fn a_missing_common_protocol_is_reported_with_the_server_name() {
    let mut config = client_config(&ServerTrust::Insecure).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let shaken = shake(&mut session(&mut tls(made())), connect(&Arc::new(config)), usize::MAX);
    assert_eq!(shaken.outcome.unwrap_err().code.as_u64(), 0x178);
    assert_eq!(shaken.spaces.server_name.as_deref(), Some("localhost"));
}

#[test]
fn a_client_with_the_wrong_group_gets_a_hello_retry_request() {
    let provider = CryptoProvider { kx_groups: vec![kx_group::SECP384R1], ..aws_lc_rs::default_provider() };
    let shaken = shake(&mut session(&mut tls_of(provider)), connect(&client()), 100);
    shaken.outcome.unwrap();
    assert_eq!(shaken.client.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    assert_eq!(shaken.spaces.completed, 1);
    let group = shaken.spaces.group.unwrap();
    assert_eq!((group.group_name, group.contains_kem), ("secp384r1", false));
}

#[test]
fn a_client_without_transport_parameters_is_refused() {
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut plain = rustls::ClientConnection::new(client(), name).unwrap();
    let mut record = Vec::new();
    plain.write_tls(&mut record).unwrap();
    let mut spaces = Spaces::default();
    spaces.initial.incoming = record.split_off(5); // behind the record's header
    assert_eq!(failure(&mut session(&mut tls(made())), &mut spaces), 0x16d);
}

#[test]
fn a_configuration_that_rustls_refuses_fails_the_handshake_and_nothing_else() {
    let store = CertificateStore::new(made().to_loaded_certificate().unwrap(), []);
    let config = server_config(CertificateResolver::new(store), false, &tickets::secret(1)).unwrap();
    let mut config = Arc::unwrap_or_clone(config);
    config.max_early_data_size = 1;
    let mut spaces = Spaces::default();
    let mut session = session(&mut ServerTls::new(Arc::new(config)));
    assert_eq!(failure(&mut session, &mut spaces), 0x150);
    let mut clients = tls(made()).new_client_session(&Encoded(b""), ServerName::from_static("localhost"));
    assert_eq!(failure(&mut clients, &mut Spaces::default()), 0x150);
}

/// Returns a valid ClientHello.
fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    assert!(connect(&client()).write_hs(&mut hello).is_none());
    hello
}

/// Generates noise after a ClientHello with changed bytes, or after nothing.
fn hostile_hello() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..400);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    (noise, changes, any::<bool>()).prop_map(|(noise, changes, sound)| {
        let mut bytes = if sound { hello() } else { Vec::new() };
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.extend(noise);
        bytes
    })
}

proptest::proptest! {
    #[test]
    fn no_client_hello_makes_a_session_panic(bytes in hostile_hello(), piece in 1_usize..600) {
        let (mut session, mut spaces) = (session(&mut tls(made())), Spaces::default());
        for piece in bytes.chunks(piece) {
            spaces.initial.incoming.extend_from_slice(piece);
            let _ = session.poll(&mut spaces);
        }
        proptest::prop_assert_eq!(spaces.completed, 0);
    }

    #[test]
    fn no_second_flight_makes_a_session_panic(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        flip in any::<prop::sample::Index>(),
        mask in 1_u8..,
    ) {
        let (mut session, mut spaces, mut finished) = flights();
        let at = flip.index(finished.len());
        finished[at] ^= mask;
        finished.extend(noise);
        spaces.handshake.incoming = finished;
        let _ = session.poll(&mut spaces);
        let _ = session.poll(&mut spaces);
        proptest::prop_assert_eq!(spaces.completed, 0);
    }
}

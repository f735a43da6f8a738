//! Tests tickets alone, and in handshakes of rustls' client with two servers.

use super::*;
use crate::{
    CertificateResolver, CertificateStore, ServerTrust, TcpTls, client_config, make_self_signed, server_config,
    suites::ALPN_H3,
};
use litequic_exchange::CertificateRequest;
use proptest::prelude::*;
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
    crypto::{CryptoProvider, aws_lc_rs::cipher_suite},
    pki_types::ServerName,
    version::TLS13,
};
use std::sync::Mutex;

const NOW: u32 = 82_000;
const VALUE: &[u8] = b"a session";

fn tickets(byte: u8, protocol: TicketProtocol) -> SessionTickets {
    SessionTickets::new(secret(byte), protocol)
}

fn of_format(format: &'static str) -> SessionTickets {
    SessionTickets { format, ..tickets(1, TicketProtocol::Quic) }
}

#[test]
fn a_ticket_is_valid_for_one_secret_protocol_and_format() {
    let ticket = tickets(1, TicketProtocol::Quic).encrypt_in(NOW, VALUE).unwrap();
    let table = [
        ("another process", tickets(1, TicketProtocol::Quic), true),
        ("another secret", tickets(2, TicketProtocol::Quic), false),
        ("another protocol", tickets(1, TicketProtocol::Tcp), false),
        ("the same format", of_format(SESSION_VALUE_FORMAT), true),
        ("another format", of_format("rustls 0.24"), false),
    ];
    for (what, other, good) in table {
        assert_eq!(other.decrypt_in(NOW, &ticket), good.then(|| VALUE.to_vec()), "{what}");
    }
}

#[test]
fn a_ticket_is_good_in_its_epoch_and_in_its_neighbours() {
    let (one, other) = (tickets(1, TicketProtocol::Tcp), tickets(1, TicketProtocol::Tcp));
    for epoch in [NOW, 0, u32::MAX] {
        let ticket = one.encrypt_in(epoch, VALUE).unwrap();
        for (later, good) in [(0, true), (1, true), (-1, true), (2, false), (-2, false), (1000, false), (0, true)] {
            let now = epoch.wrapping_add_signed(later);
            assert_eq!(other.decrypt_in(now, &ticket).is_some(), good, "{later} after {epoch}");
        }
    }
    // The epoch is that of the system's clock.
    assert_eq!(other.decrypt(&one.encrypt(VALUE).unwrap()).as_deref(), Some(VALUE));
}

#[test]
fn tickets_of_other_epochs_derive_no_keys() {
    let tickets = tickets(1, TicketProtocol::Quic);
    tickets.encrypt_in(NOW, VALUE).unwrap();
    let before = Arc::as_ptr(&tickets.keys.load_full().unwrap());
    for epoch in [0, NOW - 2, NOW + 2, u32::MAX] {
        let ticket = of_format(SESSION_VALUE_FORMAT).encrypt_in(epoch, VALUE).unwrap();
        assert_eq!(tickets.decrypt_in(NOW, &ticket), None);
    }
    assert_eq!(Arc::as_ptr(&tickets.keys.load_full().unwrap()), before);
}

#[test]
fn a_changed_or_truncated_ticket_is_rejected() {
    let tickets = tickets(1, TicketProtocol::Quic);
    let ticket = tickets.encrypt_in(NOW, VALUE).unwrap();
    assert_eq!(ticket.len(), HEAD_LEN + VALUE.len() + TAG_LEN);
    for bit in 0..ticket.len() * 8 {
        let mut ticket = ticket.clone();
        ticket[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(tickets.decrypt_in(NOW, &ticket), None, "bit {bit}");
    }
    for len in 0..ticket.len() {
        assert_eq!(tickets.decrypt_in(NOW, &ticket[..len]), None, "{len} bytes");
    }
}

#[test]
fn a_value_that_is_too_long_is_neither_encrypted_nor_decrypted() {
    let tickets = tickets(1, TicketProtocol::Quic);
    assert!(tickets.encrypt_in(NOW, &[7; MAX_VALUE_LEN]).is_some());
    assert!(tickets.encrypt_in(NOW, &[7; MAX_VALUE_LEN + 1]).is_none());
    let mut ticket = tickets.encrypt_in(NOW, VALUE).unwrap();
    ticket.resize(64 * 1024, 0);
    assert_eq!(tickets.decrypt_in(NOW, &ticket), None);
}

#[test]
fn the_same_value_never_makes_the_same_ticket() {
    let tickets = tickets(1, TicketProtocol::Quic);
    assert_ne!(tickets.encrypt_in(NOW, VALUE), tickets.encrypt_in(NOW, VALUE));
}

/// Returns a server's configuration with `tickets`.
fn server(tickets: Arc<dyn ProducesTickets>) -> Arc<ServerConfig> {
    let store = CertificateStore::new(make_self_signed(["localhost"]).unwrap().to_loaded_certificate().unwrap(), []);
    let mut config = ServerConfig::clone(&server_config(CertificateResolver::new(store), false, &secret(1)).unwrap());
    config.ticketer = tickets;
    Arc::new(config)
}

fn client() -> ClientConfig {
    client_config(&ServerTrust::Insecure).unwrap()
}

/// Performs a handshake in memory and returns its tickets.
fn shake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> Result<HandshakeKind, rustls::Error> {
    shake_with(server, client, ServerName::try_from("localhost").unwrap())
}

fn shake_with(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<HandshakeKind, rustls::Error> {
    let mut server = Connection::from(ServerConnection::new(Arc::clone(server))?);
    let mut client = Connection::from(ClientConnection::new(Arc::clone(client), name)?);
    for _ in 0..4 {
        for from_client in [true, false] {
            let (from, to) = if from_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut bytes = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut bytes).unwrap();
            }
            to.read_tls(&mut bytes.as_slice()).unwrap();
            to.process_new_packets()?;
        }
    }
    Ok(client.handshake_kind().unwrap())
}

#[test]
fn a_session_resumes_only_at_processes_with_the_same_secret() {
    for (byte, protocol, then) in [
        (1, TicketProtocol::Quic, HandshakeKind::Resumed),
        (2, TicketProtocol::Quic, HandshakeKind::Full),
        (1, TicketProtocol::Tcp, HandshakeKind::Full),
    ] {
        let client = Arc::new(client());
        let one = server(Arc::new(tickets(1, TicketProtocol::Quic)));
        assert_eq!(shake(&one, &client), Ok(HandshakeKind::Full));
        let other = server(Arc::new(tickets(byte, protocol)));
        assert_eq!(shake(&other, &client), Ok(then), "{byte} {protocol:?}");
    }
}

#[test]
fn tls_over_tcp_and_over_quic_have_keys_of_their_own() {
    let made = make_self_signed(["localhost"]).unwrap();
    let store = || CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
    let tcp = |byte| {
        let resolver = CertificateResolver::new(store());
        let tls = TcpTls::new(resolver, false, &secret(byte), |_| CertificateRequest::None).unwrap();
        tls.choose_server_config(Some("localhost"), [127, 0, 0, 1].into(), false).1
    };
    let mut client = client();
    client.alpn_protocols = vec![ALPN_H3.to_vec(), b"h2".to_vec()];
    let client = Arc::new(client);
    let quic = server_config(CertificateResolver::new(store()), false, &secret(1)).unwrap();
    assert_eq!(shake(&quic, &client), Ok(HandshakeKind::Full));
    assert_eq!(shake(&tcp(1), &client), Ok(HandshakeKind::Full), "a ticket of QUIC's");
    assert_eq!(shake(&tcp(1), &client), Ok(HandshakeKind::Resumed), "at another process");
    assert_eq!(shake(&tcp(2), &client), Ok(HandshakeKind::Full), "with another secret");
}

/// Tickets of a rustls version with another encoding of session values, which the current version reads with a wrong
/// secret.
#[derive(Debug)]
struct OtherEncoding(SessionTickets);

impl ProducesTickets for OtherEncoding {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut value = value.to_vec();
        *value.get_mut(SECRET_AT)? ^= 1;
        self.0.encrypt(&value)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let mut value = self.0.decrypt(ticket)?;
        *value.get_mut(SECRET_AT)? ^= 1;
        Some(value)
    }
}

/// Offset of a byte of the secret in a session value of `localhost`: after name, version, suite and the secret's
/// length.
const SECRET_AT: usize = 1 + 1 + 9 + 2 + 2 + 1;

#[test]
fn processes_with_another_format_make_full_handshakes_and_none_fails() {
    let client = Arc::new(client());
    let of_today = server(Arc::new(of_format(SESSION_VALUE_FORMAT)));
    let of_tomorrow = server(Arc::new(OtherEncoding(of_format("rustls 0.24"))));
    assert_eq!(shake(&of_tomorrow, &client), Ok(HandshakeKind::Full));
    assert_eq!(shake(&of_tomorrow, &client), Ok(HandshakeKind::Resumed));
    // The sessions go to the other version and back, as in a rolling upgrade.
    assert_eq!(shake(&of_today, &client), Ok(HandshakeKind::Full));
    assert_eq!(shake(&of_today, &client), Ok(HandshakeKind::Resumed));
    assert_eq!(shake(&of_tomorrow, &client), Ok(HandshakeKind::Full));
    // Without the format in the label, the handshake fails.
    let unnamed = server(Arc::new(OtherEncoding(of_format(SESSION_VALUE_FORMAT))));
    assert_eq!(shake(&unnamed, &client), Ok(HandshakeKind::Full));
    assert!(shake(&of_today, &client).is_err());
}

/// Stores the last session value.
#[derive(Debug, Default)]
struct Values(Mutex<Vec<u8>>);

impl ProducesTickets for Values {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, value: &[u8]) -> Option<Vec<u8>> {
        *self.0.lock().unwrap() = value.to_vec();
        Some(vec![0])
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// If this fails after an update of rustls, the encoding has changed: change [`SESSION_VALUE_FORMAT`] and this test.
#[test]
fn session_values_have_the_format_that_the_label_names() {
    let values = Arc::new(Values::default());
    shake(&server(values.clone()), &Arc::new(client())).unwrap();
    let value = values.0.lock().unwrap().clone();
    let (name, rest) = value.split_at(11);
    assert_eq!(name, b"\x01\x09localhost");
    assert_eq!(rest[..5], [0x03, 0x04, 0x13, 0x01, 32], "TLS 1.3, its suite, a secret of SHA-256");
    let rest = &rest[5 + 32..];
    // The session has neither an extended master secret (TLS 1.2) nor a client's certificate.
    assert_eq!(rest[..2], [0, 0]);
    assert_eq!(rest[2..6], *b"\x01\x02h3");
    assert_eq!(rest[6..8], [0, 0], "no data of the application's");
    let (time, obfuscation) = rest[8..].split_at(8);
    let age =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - u64::from_be_bytes(time.try_into().unwrap());
    assert!(age < 60, "{age}");
    assert_eq!(obfuscation.len(), 4);
}

#[test]
fn the_longest_name_and_secret_fit_into_a_ticket() {
    let values = Arc::new(Values::default());
    let label = "a".repeat(63);
    let name = [&label[..], &label, &label, &label[..61]].join(".");
    assert_eq!(name.len(), 253);
    // SHA-384 has the longest secret.
    let cipher_suites = vec![cipher_suite::TLS13_AES_256_GCM_SHA384];
    let provider = CryptoProvider { cipher_suites, ..crate::suites::tls13_provider() };
    let store = CertificateStore::new(make_self_signed(["localhost"]).unwrap().to_loaded_certificate().unwrap(), []);
    let server = ServerConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[&TLS13]).unwrap();
    let mut server = server.with_no_client_auth().with_cert_resolver(CertificateResolver::new(store));
    server.alpn_protocols = vec![ALPN_H3.to_vec()];
    server.ticketer = values.clone();
    shake_with(&Arc::new(server), &Arc::new(client()), name.try_into().unwrap()).unwrap();
    let len = values.0.lock().unwrap().len();
    assert!((253 + 48..=MAX_VALUE_LEN).contains(&len), "{len}");
}

/// Returns a server's configuration that issues `ticket` to every client.
fn offering(ticket: Vec<u8>) -> Arc<ServerConfig> {
    /// Issues the same bytes as every ticket.
    #[derive(Debug)]
    struct Always(Vec<u8>);

    impl ProducesTickets for Always {
        fn enabled(&self) -> bool {
            true
        }

        fn lifetime(&self) -> u32 {
            LIFETIME_SECONDS
        }

        fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
            Some(self.0.clone())
        }

        fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    server(Arc::new(Always(ticket)))
}

#[test]
fn a_client_with_any_ticket_gets_a_full_handshake() {
    let tickets = tickets(1, TicketProtocol::Quic);
    let good = tickets.encrypt(VALUE).unwrap();
    let old = tickets.encrypt_in(current_epoch() - 2, VALUE).unwrap();
    let table = [
        ("one that decrypts to no session", good.clone()),
        ("one that is cut", good[..good.len() - 1].to_vec()),
        ("one byte", vec![0]),
        ("of an epoch that is over", old),
        ("of another key", SessionTickets::new(secret(2), TicketProtocol::Quic).encrypt(VALUE).unwrap()),
        // The rest of a ClientHello of 64 KiB, which is the most that rustls reads.
        ("as long as it can be", [&good[..], &vec![0; 60_000]].concat()),
    ];
    let litequic = server(Arc::new(tickets));
    for (what, ticket) in table {
        let client = Arc::new(client());
        shake(&offering(ticket), &client).unwrap();
        assert_eq!(shake(&litequic, &client), Ok(HandshakeKind::Full), "{what}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_ticket(bytes in proptest::collection::vec(any::<u8>(), 0..200), fresh: bool) {
        let mut ticket = bytes;
        if fresh && ticket.len() >= EPOCH_LEN {
            ticket[..EPOCH_LEN].copy_from_slice(&NOW.to_be_bytes());
        }
        prop_assert_eq!(tickets(1, TicketProtocol::Quic).decrypt_in(NOW, &ticket), None);
    }

    #[test]
    fn every_value_comes_back(value in proptest::collection::vec(any::<u8>(), 0..=MAX_VALUE_LEN), later in -1..=1_i32) {
        let ticket = tickets(1, TicketProtocol::Tcp).encrypt_in(NOW, &value).unwrap();
        let now = NOW.wrapping_add_signed(later);
        prop_assert_eq!(tickets(1, TicketProtocol::Tcp).decrypt_in(now, &ticket), Some(value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each case is a handshake, so there are fewer.
    #[test]
    fn no_ticket_makes_a_handshake_fail(bytes in proptest::collection::vec(any::<u8>(), 1..400), at in 0..400_usize, real: bool) {
        let tickets = tickets(1, TicketProtocol::Quic);
        let ticket = if real {
            // A valid ticket with one changed byte.
            let mut ticket = tickets.encrypt(VALUE).unwrap();
            let at = at % ticket.len();
            ticket[at] ^= bytes[0] | 1;
            ticket
        } else {
            bytes
        };
        let client = Arc::new(client());
        shake(&offering(ticket), &client).unwrap();
        prop_assert_eq!(shake(&server(Arc::new(tickets)), &client), Ok(HandshakeKind::Full));
    }
}

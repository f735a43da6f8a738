//! Tests TLS to origins with a scripted server that encrypts each record itself, so that the test decides about
//! records, their pieces, and bytes between them.

use super::{
    DEADLINE, Response, Setup, config, data, fed, on_a_worker, origin, proxy_status, request, reset_with_bytes_unread,
    settle, text, tls_configs,
};
use crate::{Proxy, ProxyMetrics, Routing, RoutingFiles, TlsToOrigin, probe_origin_server};
use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use http::Method;
use http_body_util::BodyExt;
use litequic_config::{Config, HealthCheck, OriginAddress, OriginConfig, RouteConfig};
use litequic_exchange::{Abort, Body, BodyError};
use litequic_resources::memory::MemoryPressure;
use proptest::{
    prelude::{ProptestConfig, any},
    prop_assert_eq,
    test_runner::TestRunner,
};
use rustls::{
    ClientConfig, ConnectionTrafficSecrets, ServerConfig, ServerConnection, client::Resumption, crypto::CryptoProvider,
    pki_types::ServerName,
};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Content types of records (RFC 8446 §5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

type Sent = JoinHandle<Result<Response, Abort>>;

/// Key of one direction.
struct Direction {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Self {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another cipher suite") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
        Self { key, iv: iv.as_ref().try_into().unwrap(), sequence }
    }

    /// Returns the next nonce (RFC 8446 §5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, kind: u8, plain: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = plain.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        let [high, low] = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let nonce = self.nonce();
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner).unwrap();
        [&header[..], &inner].concat()
    }

    fn open(&mut self, record: &mut [u8]) -> (u8, Vec<u8>) {
        let (header, body) = record.split_at_mut(5);
        let aad = Aad::from(<[u8; 5]>::try_from(&*header).unwrap());
        let nonce = self.nonce();
        let plain = self.key.open_in_place(nonce, aad, body).unwrap();
        let (kind, plain) = plain.split_last().unwrap();
        (*kind, plain.to_vec())
    }
}

/// Certificate and key of a server, with the authority that a client trusts.
struct Identity {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn identity(names: &[&str]) -> Identity {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let suites = provider.cipher_suites.iter().copied();
    let aes = suites.filter(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256).collect();
    let (server, mut client) = tls_configs(names, CryptoProvider { cipher_suites: aes, ..provider });
    client.resumption = Resumption::disabled();
    // As the program's.
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Identity { server: Arc::new(server), client: Arc::new(client) }
}

impl Identity {
    /// TLS configuration of a client that trusts the server; `version` is that of its files.
    fn tls(&self, version: u8, name: Option<&str>) -> Arc<TlsToOrigin> {
        let name = name.map(|name| ServerName::try_from(name.to_owned()).unwrap());
        Arc::new(TlsToOrigin::new(Arc::clone(&self.client), [version; 32], name, || Some("a reason".into())))
    }
}

/// Server's end of a connection.
struct TlsPeer {
    stream: TcpStream,
    to_client: Direction,
    from_client: Direction,
    seen: Vec<u8>,
}

/// Reads one record with its header; `None` at the connection's end.
async fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).await.ok()?;
    record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
    stream.read_exact(&mut record[5..]).await.ok()?;
    Some(record)
}

/// Performs the handshake as a server whose certificate is refused; returns rustls' error, if there was one.
async fn refused(stream: &mut TcpStream, config: &Arc<ServerConfig>) -> Option<rustls::Error> {
    let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
    while let Some(record) = record(stream).await {
        server.read_tls(&mut &record[..]).unwrap();
        if let Err(error) = server.process_new_packets() {
            return Some(error);
        }
        let mut out = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut out).unwrap();
        }
        stream.write_all(&out).await.unwrap();
    }
    None
}

impl TlsPeer {
    async fn over(mut stream: TcpStream, config: &Arc<ServerConfig>) -> Self {
        let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
        loop {
            let mut out = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut out).unwrap();
            }
            stream.write_all(&out).await.unwrap();
            if !tls.is_handshaking() {
                break;
            }
            let record = record(&mut stream).await.expect("closed within the handshake");
            let mut rest = &record[..];
            while !rest.is_empty() {
                tls.read_tls(&mut rest).unwrap();
                tls.process_new_packets().unwrap();
            }
        }
        let secrets = tls.dangerous_extract_secrets().unwrap();
        let (to_client, from_client) = (Direction::new(secrets.tx), Direction::new(secrets.rx));
        Self { stream, to_client, from_client, seen: Vec::new() }
    }

    fn data(&mut self, text: impl AsRef<[u8]>) -> Vec<u8> {
        self.to_client.seal(DATA, text.as_ref(), 0)
    }

    async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Encrypts one record.
    async fn say(&mut self, text: impl AsRef<[u8]>) {
        let record = self.data(text);
        self.raw(&record).await;
    }

    async fn close_notify(&mut self) {
        let alert = self.to_client.seal(ALERT, &[1, 0], 0);
        self.raw(&alert).await;
    }

    /// Sends a session ticket (RFC 8446 §4.6.1) of `size` bytes.
    fn ticket(&mut self, size: u16) -> Vec<u8> {
        let mut message = vec![4, 0, 0, 0];
        message.extend([0, 0, 0x0e, 0x10, 1, 2, 3, 4, 1, 0]);
        message.extend(size.to_be_bytes());
        message.resize(message.len() + usize::from(size), 7);
        message.extend([0, 0]);
        let [.., high, middle, low] = (message.len() - 4).to_be_bytes();
        message[1..4].copy_from_slice(&[high, middle, low]);
        self.to_client.seal(HANDSHAKE, &message, 0)
    }

    /// Reads the next record; `None` at the end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut record = record(&mut self.stream).await?;
        Some(self.from_client.open(&mut record))
    }

    /// Reads until the received bytes end with `end`, and returns all of them.
    async fn until(&mut self, end: &str) -> String {
        while !self.seen.ends_with(end.as_bytes()) {
            let Some((DATA, plain)) = self.next().await else { panic!("no data: {:?}", self.seen) };
            self.seen.extend(plain);
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }

    async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    async fn serve(&mut self) {
        self.head().await;
        self.say(ANSWER).await;
    }
}

/// A server whose connections the test handles itself.
struct TlsScript {
    listener: TcpListener,
    identity: Identity,
}

impl TlsScript {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, identity: identity(&["127.0.0.1", "origin.test"]) }
    }

    fn address(&self) -> OriginAddress {
        OriginAddress::Https { host: "127.0.0.1".into(), port: self.listener.local_addr().unwrap().port() }
    }

    fn proxy(&self, change: impl FnOnce(&mut Config)) -> Setup {
        proxy(config(self.address(), change), self.identity.tls(1, None))
    }

    async fn accept(&self) -> TlsPeer {
        TlsPeer::over(self.listener.accept().await.unwrap().0, &self.identity.server).await
    }

    /// Whether no connection waits.
    fn is_left_alone(&self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        self.listener.poll_accept(&mut cx).is_pending()
    }
}

fn files(config: &Config, tls: &Arc<TlsToOrigin>) -> RoutingFiles {
    let tls: BTreeMap<_, _> = config.origins.keys().map(|name| (name.clone(), Arc::clone(tls))).collect();
    RoutingFiles { tls, ..RoutingFiles::default() }
}

fn proxy(config: Config, tls: Arc<TlsToOrigin>) -> Setup {
    let routing = Routing::compile_after(&config, files(&config, &tls), None);
    let shared = Arc::new(ArcSwap::from_pointee(routing));
    let metrics = Arc::new(ProxyMetrics::default());
    let proxy = Rc::new(Proxy::new(Arc::clone(&shared), Arc::clone(&metrics), MemoryPressure::default()));
    Setup { proxy, metrics, shared, config }
}

async fn ok(sent: Sent) {
    assert_eq!(text(sent.await.unwrap().unwrap()).await.unwrap(), "ok");
}

/// Status and error type of litequic's own response.
async fn refusal(sent: Sent) -> (u16, String) {
    let response = sent.await.unwrap().unwrap();
    (response.status().as_u16(), proxy_status(&response))
}

fn post(setup: &Setup) -> Sent {
    setup.send(request(Method::POST, "body".into()))
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        let head = peer.head().await;
        assert!(head.starts_with("GET /x?y=1 HTTP/1.1\r\n") && head.contains("host: a.test\r\n"), "{head}");
        peer.say(ANSWER).await;
        ok(sent).await;
        let sent = setup.get();
        peer.serve().await;
        ok(sent).await;
        let sent = post(&setup);
        peer.until("body").await;
        peer.say(ANSWER).await;
        ok(sent).await;
        assert!(script.is_left_alone());
        assert_eq!((setup.metrics.origin_tls_full.get(), setup.metrics.origin_tls_resumed.get()), (1, 0));
    });
}

/// Bytes that a server sends on an idle connection.
enum Idle {
    Tickets(usize, u16),
    SecondAnswer,
    HalfRecord,
    HalfTicket,
    CloseNotify,
    End,
    Garbage,
}

#[test]
fn only_tickets_leave_an_idle_connection_usable() {
    use Idle::{CloseNotify, End, Garbage, HalfRecord, HalfTicket, SecondAnswer, Tickets};
    for (what, is_reused) in [
        (Tickets(1, 100), true),
        (Tickets(5, 13_000), true),
        (SecondAnswer, false),
        (HalfRecord, false),
        (HalfTicket, false),
        (CloseNotify, false),
        (End, false),
        (Garbage, false),
    ] {
        on_a_worker(async {
            let script = TlsScript::new().await;
            let setup = script.proxy(|_| {});
            let sent = setup.get();
            let mut peer = script.accept().await;
            peer.serve().await;
            ok(sent).await;
            match what {
                Tickets(count, size) => {
                    for _ in 0..count {
                        let ticket = peer.ticket(size);
                        peer.raw(&ticket).await;
                    }
                }
                SecondAnswer => peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong").await,
                HalfRecord => {
                    let record = peer.data("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong");
                    peer.raw(&record[..20]).await;
                }
                HalfTicket => {
                    let ticket = peer.ticket(100);
                    peer.raw(&ticket[..20]).await;
                }
                CloseNotify => peer.close_notify().await,
                End => peer.stream.shutdown().await.unwrap(),
                Garbage => peer.raw(&[DATA, 3, 3, 0, 32, 1, 2, 3, 4]).await,
            }
            // Without a wait here tokio may not have noticed the bytes in the socket.
            let sent = post(&setup);
            if is_reused {
                peer.until("body").await;
                peer.say(ANSWER).await;
                ok(sent).await;
                let sent = setup.get();
                peer.serve().await;
                ok(sent).await;
                assert!(script.is_left_alone());
            } else {
                let mut fresh = script.accept().await;
                fresh.until("body").await;
                fresh.say(ANSWER).await;
                ok(sent).await;
            }
        });
    }
}

#[test]
fn a_second_answer_in_the_first_ones_record_is_no_requests() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        // The sizes are within the first read, and beyond it.
        for length in [2, 100_000] {
            let sent = setup.get();
            let mut peer = script.accept().await;
            peer.head().await;
            let first = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
            let all = [first.as_str(), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"].concat();
            let records: Vec<_> = all.as_bytes().chunks(16_000).flat_map(|piece| peer.data(piece)).collect();
            peer.raw(&records).await;
            assert_eq!(text(sent.await.unwrap().unwrap()).await.unwrap().len(), length);
            for _ in 0..2 {
                let sent = setup.get();
                let mut fresh = script.accept().await;
                fresh.head().await;
                fresh.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await;
                ok(sent).await;
            }
        }
    });
}

#[test]
fn a_body_that_ends_with_the_connection_needs_close_notify() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let until_close = "HTTP/1.1 200 OK\r\n\r\npart";
        let known = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npart";
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npart";
        for (answer, notify, whole) in
            [(until_close, true, true), (until_close, false, false), (known, false, true), (cut, true, false)]
        {
            let sent = setup.get();
            let mut peer = script.accept().await;
            peer.head().await;
            let (head, body) = answer.split_at(answer.len() - 4);
            peer.say(head).await;
            let response = sent.await.unwrap().unwrap();
            peer.say(body).await;
            if notify {
                peer.close_notify().await;
            }
            drop(peer);
            let expected = if whole { Ok("part".to_owned()) } else { Err(BodyError::Truncated) };
            assert_eq!(text(response).await, expected, "{answer:?} {notify}");
        }
    });
}

#[test]
fn an_upload_larger_than_the_socket_buffer_is_sent_completely() {
    const LENGTH: usize = 24 << 20;
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let piece = "x".repeat(1 << 20).leak() as &'static str;
        for _ in 0..LENGTH / piece.len() {
            feed.send(data(piece)).unwrap();
        }
        drop(feed);
        let mut peer = script.accept().await;
        // The server reads only once the socket is full.
        settle().await;
        let mut received = 0;
        let mut tail = Vec::new();
        while !tail.ends_with(b"0\r\n\r\n") {
            let (_, plain) = peer.next().await.unwrap();
            received += plain.len();
            tail.extend_from_slice(&plain[plain.len().saturating_sub(5)..]);
        }
        assert!(received > LENGTH);
        peer.say(ANSWER).await;
        ok(sent).await;
    });
}

#[test]
fn an_early_response_survives_a_close_during_the_upload_over_tls() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        // A connection that is closed with unread bytes is reset: the next writes fail, while the answer is read.
        for ends_with_close_notify in [true, false] {
            let setup = script.proxy(|_| {});
            let (feed, body) = fed();
            let sent = setup.send(request(Method::POST, body));
            let mut peer = script.accept().await;
            peer.head().await;
            let page = "x".repeat(100_000);
            peer.say(format!("HTTP/1.1 413 Too Large\r\nContent-Length: {}\r\n\r\n", page.len())).await;
            let response = sent.await.unwrap().unwrap();
            assert_eq!(response.status(), 413);
            for piece in page.as_bytes().chunks(16_000) {
                peer.say(piece).await;
            }
            if ends_with_close_notify {
                peer.close_notify().await;
            }
            reset_with_bytes_unread(peer, &feed).await;
            assert_eq!(text(response).await.unwrap().len(), page.len(), "{ends_with_close_notify}");
            assert_eq!(setup.metrics.origin_tls_protocol.get(), 0);
        }
    });
}

#[test]
fn a_body_without_close_notify_after_a_failed_write_is_truncated() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let (feed, body) = fed();
        let sent = setup.send(request(Method::POST, body));
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\n\r\npart").await;
        let response = sent.await.unwrap().unwrap();
        reset_with_bytes_unread(peer, &feed).await;
        assert!(text(response).await.is_err());
    });
}

#[test]
fn large_bodies_are_read_by_large_reads() {
    const LENGTH: usize = 16 << 20;
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
        let writing = async {
            let piece = vec![b'x'; 16_384];
            for _ in 0..LENGTH / (64 * piece.len()) {
                let records: Vec<_> = (0..64).flat_map(|_| peer.data(&piece)).collect();
                peer.raw(&records).await;
            }
        };
        let reading = async {
            let body = sent.await.unwrap().unwrap().into_body();
            // A front end whose client reads fast does the same.
            body.set_piece_limit(u64::MAX);
            body.collect().await.unwrap().to_bytes().len()
        };
        let (length, ()) = tokio::join!(reading, writing);
        assert_eq!(length, LENGTH);
        let reads = setup.metrics.syscalls_origin_read.get();
        // rustls by itself would need one call a record, and more.
        assert!(reads < (LENGTH / 16_384 / 4) as u64, "{reads} reads");
    });
}

#[test]
fn a_response_is_whole_however_it_is_cut_into_records_and_segments() {
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() });
    let pieces = proptest::collection::vec((0..16_384_usize, 0..200_usize, any::<bool>(), 1..40_000_usize), 1..12);
    runner
        .run(&pieces, |pieces| {
            let (mut expected, mut received) = (Vec::new(), Vec::new());
            on_a_worker(async {
                let script = TlsScript::new().await;
                let setup = script.proxy(|_| {});
                let sent = setup.get();
                let mut peer = script.accept().await;
                peer.head().await;
                let mut records = peer.data("HTTP/1.1 200 OK\r\n\r\n");
                for (n, &(length, padding, ticket, _)) in pieces.iter().enumerate() {
                    let plain: Vec<u8> = (0..length).map(|at| u8::try_from((at + n) % 251).unwrap()).collect();
                    let padding = padding.min(16_384 - length);
                    records.extend(peer.to_client.seal(DATA, &plain, padding));
                    if ticket {
                        records.extend(peer.ticket(50));
                    }
                    expected.extend(plain);
                }
                records.extend(peer.to_client.seal(ALERT, &[1, 0], 0));
                let writing = async {
                    let mut rest = &records[..];
                    for &(.., cut) in pieces.iter().cycle() {
                        let (now, then) = rest.split_at(cut.min(rest.len()));
                        peer.raw(now).await;
                        settle().await;
                        rest = then;
                        if rest.is_empty() {
                            break;
                        }
                    }
                };
                let reading = async {
                    let body = sent.await.unwrap().unwrap().into_body();
                    body.collect().await.unwrap().to_bytes().to_vec()
                };
                (received, ()) = tokio::join!(reading, writing);
            });
            prop_assert_eq!(received, expected);
            Ok(())
        })
        .unwrap();
}

#[test]
fn each_tls_failure_has_its_response_and_counter_and_no_retry() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        // The certificates are of another authority, and of another name.
        let other = identity(&["127.0.0.1"]);
        for tls in [other.tls(1, None), script.identity.tls(1, Some("other.test"))] {
            let setup = proxy(config(script.address(), |_| {}), tls);
            let sent = setup.get();
            let (mut stream, _) = script.listener.accept().await.unwrap();
            let error = refused(&mut stream, &script.identity.server).await;
            assert!(matches!(error, Some(rustls::Error::AlertReceived(_))), "{error:?}");
            assert_eq!(refusal(sent).await, (502, "error=tls_certificate_error".into()));
            assert_eq!(setup.metrics.origin_tls_certificate.get(), 1);
            assert_eq!((setup.metrics.origin_connect_errors.get(), setup.metrics.origin_retries.get()), (1, 0));
            assert!(script.is_left_alone());
        }
        type Counter = fn(&ProxyMetrics) -> u64;
        let table: [(&[u8], &str, Counter); 4] = [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "tls_protocol_error", |metrics| metrics.origin_tls_protocol.get()),
            // handshake_failure, no_application_protocol
            (&[ALERT, 3, 3, 0, 2, 2, 40], "tls_alert_received", |metrics| metrics.origin_tls_alert.get()),
            (&[ALERT, 3, 3, 0, 2, 2, 120], "tls_alert_received", |metrics| metrics.origin_tls_alert.get()),
            (b"", "tls_protocol_error", |metrics| metrics.origin_tls_protocol.get()),
        ];
        for (answer, error, counter) in table {
            let setup = script.proxy(|_| {});
            let sent = setup.get();
            let (mut stream, _) = script.listener.accept().await.unwrap();
            record(&mut stream).await.unwrap();
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(refusal(sent).await, (502, format!("error={error}")));
            assert_eq!(counter(&setup.metrics), 1, "{error}");
        }
        // The server is silent.
        let setup = script.proxy(|config| config.timeouts.connect = Duration::from_millis(50));
        let sent = setup.get();
        let (_silent, _) = script.listener.accept().await.unwrap();
        assert_eq!(refusal(sent).await, (502, "error=connection_timeout".into()));
        assert_eq!((setup.metrics.origin_tls_timeout.get(), setup.metrics.timeout_connect.get()), (1, 1));
    });
}

#[test]
fn an_alert_in_place_of_an_answer_is_one() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.head().await;
        // certificate_required (RFC 8446 §6.2): servers verify clients after the handshake.
        let alert = peer.to_client.seal(ALERT, &[2, 116], 0);
        peer.raw(&alert).await;
        assert_eq!(refusal(sent).await, (502, "error=tls_alert_received".into()));
        assert_eq!((setup.metrics.origin_tls_alert.get(), setup.metrics.origin_retries.get()), (1, 0));
    });
}

#[test]
fn a_forged_record_ends_the_connection_with_an_alert() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.head().await;
        let mut record = peer.data(ANSWER);
        *record.last_mut().unwrap() ^= 1;
        peer.raw(&record).await;
        // bad_record_mac (RFC 8446 §6.2)
        assert_eq!(peer.next().await, Some((ALERT, vec![2, 20])));
        assert_eq!(refusal(sent).await, (502, "error=tls_protocol_error".into()));
    });
}

#[test]
fn a_refused_certificate_leads_to_another_server_and_ejects() {
    on_a_worker(async {
        let (good, bad) = (TlsScript::new().await, TlsScript::new().await);
        let config = config(good.address(), |config| {
            let origin = origin(config);
            origin.servers.push(bad.address().into());
            origin.eject_after = Some(2);
        });
        let setup = proxy(config, good.identity.tls(1, None));
        let identity = Arc::clone(&bad.identity.server);
        let refusing = tokio::task::spawn_local(async move {
            let mut connections = 0;
            loop {
                let (mut stream, _) = bad.listener.accept().await.unwrap();
                connections += 1;
                refused(&mut stream, &identity).await;
                if connections == 2 {
                    return bad;
                }
            }
        });
        let first = setup.get();
        let mut peer = good.accept().await;
        peer.serve().await;
        ok(first).await;
        for _ in 0..5 {
            let sent = setup.get();
            peer.head().await;
            peer.say(ANSWER).await;
            ok(sent).await;
        }
        let bad = refusing.await.unwrap();
        let name = crate::ServerName::new("o", &bad.address().to_string());
        let counters = setup.metrics.servers.counters_for(&name);
        assert_eq!((counters.failures.get(), counters.ejections.get()), (2, 1));
        assert!(bad.is_left_alone());
    });
}

#[test]
fn sessions_are_resumed_within_an_origin_until_its_files_change() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|config| {
            let other = OriginConfig::new(script.address());
            config.origins.insert("other".into(), other);
            let route = RouteConfig { host: Some("b.test".into()), ..RouteConfig::catch_all("other") };
            config.routes.push(route);
        });
        let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        let counts = || (setup.metrics.origin_tls_full.get(), setup.metrics.origin_tls_resumed.get());
        let of_other = || {
            let request = http::Request::builder().uri("https://b.test/").body(Body::empty()).unwrap();
            setup.send(request)
        };
        let exchange = async |sent| {
            let mut peer = script.accept().await;
            peer.head().await;
            peer.say(closing).await;
            ok(sent).await;
        };
        exchange(setup.get()).await;
        exchange(setup.get()).await;
        assert_eq!(counts(), (1, 1));
        exchange(of_other()).await;
        assert_eq!(counts(), (2, 1));
        // The same files are read again; then other files.
        for (version, expected) in [(1, (2, 2)), (2, (3, 2))] {
            let tls = script.identity.tls(version, None);
            let next = Routing::compile_after(&setup.config, files(&setup.config, &tls), Some(&setup.shared.load()));
            setup.shared.store(Arc::new(next));
            exchange(setup.get()).await;
            assert_eq!(counts(), expected);
        }
    });
}

#[test]
fn idle_connections_are_closed_once_the_files_change() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|_| {});
        let sent = setup.get();
        let mut peer = script.accept().await;
        peer.serve().await;
        ok(sent).await;
        for (version, is_reused) in [(1, true), (2, false)] {
            let tls = script.identity.tls(version, None);
            let next = Routing::compile_after(&setup.config, files(&setup.config, &tls), Some(&setup.shared.load()));
            setup.shared.store(Arc::new(next));
            let sent = setup.get();
            if is_reused {
                peer.serve().await;
            } else {
                script.accept().await.serve().await;
                assert!(peer.next().await.is_none_or(|(kind, _)| kind == ALERT));
            }
            ok(sent).await;
        }
    });
}

#[test]
fn the_proxy_header_comes_before_the_client_hello() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let setup = script.proxy(|config| {
            origin(config).proxy_protocol = true;
        });
        let sent = setup.get();
        let (mut stream, _) = script.listener.accept().await.unwrap();
        let mut header = [0; 28];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header[..12], b"\r\n\r\n\0\r\nQUIT\n");
        assert_eq!(&header[16..20], [192, 0, 2, 7]);
        TlsPeer::over(stream, &script.identity.server).await.serve().await;
        ok(sent).await;
        // A probe's connection has no client.
        let server = setup.shared.load().server_states().remove(0);
        let probing = tokio::task::spawn_local(async move {
            probe_origin_server(&server, DEADLINE).await.map_err(|error| error.to_string())
        });
        let (mut stream, _) = script.listener.accept().await.unwrap();
        let mut header = [0; 16];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header[12..], [0x20, 0, 0, 0]);
        TlsPeer::over(stream, &script.identity.server).await;
        probing.await.unwrap().unwrap();
    });
}

#[test]
fn probes_and_health_checks_shake_hands() {
    on_a_worker(async {
        let script = TlsScript::new().await;
        let other = identity(&["127.0.0.1"]);
        let health = HealthCheck { path: "/up".into(), unhealthy: 1, healthy: 1, ..HealthCheck::default() };
        let config = config(script.address(), |config| origin(config).health = Some(health));
        for (tls, is_well) in [(script.identity.tls(1, None), true), (other.tls(1, None), false)] {
            let setup = proxy(config.clone(), tls);
            let server = setup.shared.load().server_states().remove(0);
            let serve = async || {
                let (mut stream, _) = script.listener.accept().await.unwrap();
                if is_well {
                    return Some(TlsPeer::over(stream, &script.identity.server).await);
                }
                refused(&mut stream, &script.identity.server).await;
                None
            };
            let (probed, _) = tokio::join!(probe_origin_server(&server, DEADLINE), serve());
            let reason = "litequic rejected the server's certificate: a reason";
            assert_eq!(probed.err().map(|error| error.to_string()), (!is_well).then(|| reason.to_owned()));
            let checking = crate::check_health(Arc::clone(&setup.shared), Arc::default(), Arc::default());
            let checks = tokio::task::spawn_local(checking);
            if let Some(mut peer) = serve().await {
                assert!(peer.head().await.starts_with("GET /up HTTP/1.1\r\n"));
                peer.say(ANSWER).await;
            }
            let problem = timeout(DEADLINE, async {
                loop {
                    let check = setup.shared.load().server_states().remove(0).check.unwrap();
                    if check.up == is_well && (is_well || check.problem.is_some()) {
                        break check.problem;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            let expected = (!is_well).then(|| "litequic rejected the server's certificate: a reason".to_owned());
            assert_eq!(problem.await.unwrap(), expected);
            checks.abort();
            // Only handshakes of requests are counted: each of these requests has a connection of its own.
            let metrics = &setup.metrics;
            let counters = [&metrics.origin_tls_full, &metrics.origin_tls_resumed, &metrics.origin_tls_certificate];
            assert_eq!(counters.map(|counter| counter.get()), [0; 3]);
        }
    });
}

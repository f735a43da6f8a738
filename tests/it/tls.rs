//! TLS as clients and operators meet it: which certificate is served and for which hosts, what is rejected, which
//! fault in the operator's files is named, and who gets to see the secrets.

use crate::support::{prelude::*, process::litequic};
use futures_util::future;
use litequic_tls::{ServerTrust, client_config};
use quinn::{
    ConnectionError,
    crypto::rustls::QuicClientConfig,
    rustls::pki_types::{CertificateDer, pem::PemObject},
};
use std::net::UdpSocket;

/// RFC 9001 §4.8: 0x100 and the TLS alert, here no_application_protocol.
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;
const MISDIRECTED: u16 = 421;

/// Four certificates; the first is the default.
fn certificates() -> [SelfSigned; 4] {
    let names: [&[&str]; 4] =
        [&["localhost", "127.0.0.1"], &["a.test"], &["*.wild.test", "b.test"], &["exact.wild.test"]];
    names.map(|names| make_self_signed(names.iter().copied()).unwrap())
}

async fn with_certificates(certificates: &[SelfSigned; 4]) -> Litequic {
    let edit = |config: &mut Config| config.listen.workers = Some(2.try_into().unwrap());
    Litequic::showing(certificates, origin::demo().await, edit).await
}

/// Connects with `name` as SNI, trusting any certificate, with `protocols` as ALPN.
async fn connect(address: SocketAddr, name: &str, protocols: &[&[u8]]) -> Result<Quic, ConnectionError> {
    let mut tls = client_config(&ServerTrust::Insecure).unwrap();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    Quic::with_config(address, name, config).await
}

/// The certificate that `quic` was served.
fn served(quic: &Quic) -> CertificateDer<'static> {
    let chain = quic.connection.peer_identity().unwrap().downcast::<Vec<CertificateDer<'static>>>().unwrap();
    chain.first().unwrap().clone()
}

#[tokio::test]
async fn the_certificate_is_chosen_by_the_name_that_a_client_asks_for() {
    let certificates = certificates();
    let litequic = with_certificates(&certificates).await;
    let table = [
        ("localhost", 0),
        ("127.0.0.1", 0), // no SNI: it cannot carry an address
        ("a.test", 1),
        ("A.TEST", 1),
        ("b.test", 2),
        ("one.wild.test", 2),
        ("exact.wild.test", 3),
        ("two.labels.wild.test", 0),
        ("wild.test", 0),
        ("unknown.test", 0),
    ];
    for (name, expected) in table {
        let quic = connect(litequic.address, name, &[b"h3"]).await.unwrap();
        let expected = CertificateDer::from_pem_slice(certificates[expected].cert_pem.as_bytes()).unwrap();
        assert_eq!(served(&quic), expected, "{name}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_trusts_the_chosen_certificate_alone_gets_through() {
    let certificates = certificates();
    let litequic = with_certificates(&certificates).await;
    for (name, made) in [("a.test", &certificates[1]), ("one.wild.test", &certificates[2])] {
        let quic = Quic::connect(litequic.address, name, &made.cert_pem, quinn::TransportConfig::default()).await;
        assert_eq!(Client::over(quic, name).await.get("/status/204").await.status, 204, "{name}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_speak_h3_is_refused_at_once() {
    let litequic = Litequic::demo(|_| {}).await;
    let table: [&[&[u8]]; 4] = [&[b"h2"], &[b"http/1.1", b"hq-interop"], &[b"h3-29"], &[]];
    let attempts = table.map(|protocols| connect(litequic.address, "localhost", protocols));
    for (attempt, protocols) in future::join_all(attempts).await.into_iter().zip(table) {
        match attempt.map(|_| ()) {
            Err(ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(u64::from(close.error_code), NO_APPLICATION_PROTOCOL, "{protocols:?}");
            }
            other => panic!("{protocols:?}: {other:?}"),
        }
    }
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 0);
    // Nothing is kept of what was refused: it would count against the limits for ever.
    litequic.wait_until("handshakes", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.wait_until("connections", |worker| worker.quic.connections_held.get(), |held| held == 0).await;

    let quic = connect(litequic.address, "localhost", &[b"h2", b"h3"]).await.unwrap();
    assert_eq!(Client::over(quic, "localhost").await.get("/status/204").await.status, 204);
    litequic.stop().await;
}

#[tokio::test]
async fn a_host_that_the_certificate_does_not_cover_is_misdirected() {
    let certificates = certificates();
    let litequic = with_certificates(&certificates).await;
    // By the requested name: hosts that its connection may name, and hosts that it may not.
    let table: [(&str, &[&str], &[&str]); 4] = [
        ("a.test", &["a.test", "A.test:8443"], &["b.test", "localhost", "127.0.0.1"]),
        ("one.wild.test", &["one.wild.test", "two.wild.test", "b.test"], &["a.test", "a.b.wild.test"]),
        ("unknown.test", &["unknown.test", "localhost"], &["a.test", "other.test"]),
        ("127.0.0.1", &["127.0.0.1", "localhost", "10.0.0.1"], &["a.test"]),
    ];
    for (name, hosts, others) in table {
        let quic = connect(litequic.address, name, &[b"h3"]).await.unwrap();
        let client = Client::over(quic, name).await;
        let expected = hosts.iter().map(|host| (host, 204)).chain(others.iter().map(|host| (host, MISDIRECTED)));
        for (host, status) in expected {
            let request = client.request(Method::GET, "/").uri(format!("https://{host}/status/204"));
            assert_eq!(client.fetch(request, "").await.status, status, "{name}: {host}");
        }
    }
    litequic.stop().await;
}

/// SNI cannot carry an IP address. Each client trusts the one certificate alone that has the address which it connects
/// to.
#[tokio::test]
async fn a_client_without_sni_gets_the_certificate_of_the_local_address() {
    let names: [&[&str]; 3] = [&["localhost"], &["127.0.0.2", "second.test"], &["127.0.0.1", "first.test"]];
    let certificates = names.map(|names| make_self_signed(names.iter().copied()).unwrap());
    let mut loaded = certificates.iter().map(|made| made.to_loaded_certificate().unwrap());
    let store = CertificateStore::new(loaded.next().unwrap(), loaded);
    let origin = format!("http://{}", origin::demo().await).parse().unwrap();
    let config = Config::with_defaults((Ipv4Addr::UNSPECIFIED, 0).into(), origin, "cert".into(), "key".into());
    let litequic = Litequic::with_certificates(&config, store, certificates[0].cert_pem.clone()).await;
    for (address, made, own, other) in [
        ("127.0.0.1", &certificates[2], "first.test", "second.test"),
        ("127.0.0.2", &certificates[1], "second.test", "first.test"),
    ] {
        let at = |port| SocketAddr::new(address.parse().unwrap(), port);
        let transport = quinn::TransportConfig::default();
        let quic = Quic::connect(at(litequic.address.port()), address, &made.cert_pem, transport).await;
        let client = Client::over(quic, address).await;
        for (host, status) in [(address, 204), (own, 204), (other, MISDIRECTED), ("localhost", MISDIRECTED)] {
            let request = client.request(Method::GET, "/").uri(format!("https://{host}/status/204"));
            assert_eq!(client.fetch(request, "").await.status, status, "{address} over QUIC: {host}");
        }
        for (host, status) in [(address, "204"), (own, "204"), (other, "421"), ("localhost", "421")] {
            let config = tls::config(&made.cert_pem, &["http/1.1"]);
            let mut tcp = Tls::connect(at(litequic.tcp[0].port()), address, config).await.unwrap();
            tcp.say(format!("GET /status/204 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
            let head = tcp.head().await;
            assert!(head.starts_with(&format!("http/1.1 {status} ")), "{address} over TCP: {host}: {head}");
        }
    }
    // An address of no certificate.
    let quic = connect(SocketAddr::new("127.0.0.3".parse().unwrap(), litequic.address.port()), "127.0.0.3", &[b"h3"]);
    let default = CertificateDer::from_pem_slice(certificates[0].cert_pem.as_bytes()).unwrap();
    assert_eq!(served(&quic.await.unwrap()), default);
    litequic.stop().await;
}

/// Writes a configuration in `directory` that listens on `udp` with the certificates named.
fn configuration(directory: &Path, udp: SocketAddr, certificates: &[&str]) -> String {
    let mut text = format!("listen.udp = \"{udp}\"\norigin.url = \"http://127.0.0.1:9\"\n");
    for name in certificates {
        text += &format!("[[certificates]]\ncert = \"{name}.crt\"\nkey = \"{name}.key\"\n");
    }
    let file = directory.join("litequic.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn a_certificate_that_cannot_be_served_is_named_before_anything_is_bound() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let (good, other) = (make_self_signed(["localhost"]).unwrap(), make_self_signed(["localhost"]).unwrap());
    for (name, cert, key) in [
        ("good", &good.cert_pem, &good.key_pem),
        ("mismatch", &good.cert_pem, &other.key_pem),
        ("text", &"no PEM at all".to_owned(), &good.key_pem),
        ("broken", &good.cert_pem.replace("MII", "!!!"), &good.key_pem),
        ("keyless", &good.cert_pem, &good.cert_pem),
    ] {
        write(&format!("{name}.crt"), cert);
        write(&format!("{name}.key"), key);
    }
    fs::create_dir(directory.path().join("unreadable.crt")).unwrap();
    write("unreadable.key", &good.key_pem);

    // A bind of this would fail with another exit code.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = taken.local_addr().unwrap();
    // The place of `cert` or `key` in the second `[[certificates]]`.
    let (cert, key) = ("litequic.toml:7:8: certificates[1].cert = ", "litequic.toml:8:7: certificates[1].key = ");
    let table = [
        ("mismatch", key, "mismatch.key does not match the certificate in "),
        ("text", cert, "text.crt contains no certificate"),
        ("broken", cert, "broken.crt is not valid PEM: "),
        ("keyless", key, "keyless.key contains no unencrypted private key"),
        ("unreadable", cert, "unreadable.crt: "),
        ("missing", cert, "missing.crt: "),
        ("missing", key, "missing.key: "),
    ];
    for (name, place, expected) in table {
        let file = configuration(directory.path(), udp, &["good", name]);
        for command in ["check", "run"] {
            let ended = litequic([command, "--config", &file]);
            assert_eq!(ended.code, Some(78), "{command} {name}: {ended:?}");
            assert!(ended.stderr.contains(place), "{command} {name}: {ended:?}");
            assert!(ended.stderr.contains(expected), "{command} {name}: {ended:?}");
            assert!(!ended.stderr.contains("good."), "{command} {name}: {ended:?}");
        }
    }
    let file = configuration(directory.path(), udp, &["mismatch", "text", "missing"]);
    let ended = litequic(["check", "--config", &file]);
    assert!(ended.stderr.ends_with("\n4 faults\n"), "{ended:?}");
    let file = configuration(directory.path(), udp, &["good"]);
    assert_eq!(litequic(["check", "--config", &file]).code, Some(0));
    assert_eq!(litequic(["run", "--config", &file]).code, Some(69));
    // The options' names stand where there is no file.
    let (cert, key) = (directory.path().join("text.crt"), directory.path().join("absent.key"));
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let ended = litequic(["run", "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:9", "--cert", &cert, "--key", &key]);
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.contains(&format!("--cert: {cert} contains no certificate\n")), "{ended:?}");
    assert!(ended.stderr.contains(&format!("--key: cannot read {key}: ")), "{ended:?}");
}

#[test]
fn secrets_are_written_only_when_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost", "127.0.0.1"]).unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("tls.crt"), &made.cert_pem).unwrap();
    fs::write(path("tls.key"), &made.key_pem).unwrap();
    for asked in [false, true] {
        let secrets = path(&format!("secrets-{asked}"));
        let (cert, key) = (path("tls.crt"), path("tls.key"));
        let mut arguments =
            vec!["run", "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:9", "--cert", &cert, "--key", &key];
        arguments.extend(asked.then_some("--key-log"));
        let mut command = command(arguments);
        command.env("SSLKEYLOGFILE", &secrets);
        let process = Process::spawn(command);
        let url = format!("https://127.0.0.1:{}/", process.address().port());
        assert_eq!(litequic(["get", "--insecure", &url]).code, Some(1));
        process.end_by("TERM").success();
        let written = fs::read_to_string(&secrets).unwrap_or_default();
        assert_eq!(written.contains("CLIENT_HANDSHAKE_TRAFFIC_SECRET "), asked, "{written}");
        assert!(asked || !Path::new(&secrets).exists());
    }
}

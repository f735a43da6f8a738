//! TLS 1.2 over TCP, where `listen.tls_min` allows it: which clients it serves, and what each refusal leads to.

use crate::{
    client_certificates::{person::Authority, route, start},
    support::{
        chromium::Browser,
        needs, origin,
        proxy::Litequic,
        tls::{Tls, config},
        within,
    },
};
use litequic::{
    app::WorkerMetrics,
    config::{AccessField, AccessFormat, AccessLog, AccessTarget, Config, OriginAddress, TlsVersion, Verify},
    tls::{self, CertificateStore, SelfSigned},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::TLS12,
};
use std::{
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The end of a server's random by which it says that it has TLS 1.3, too (RFC 8446 §4.1.3).
const DOWNGRADED: &[u8; 8] = b"DOWNGRD\x01";
/// Extensions of a ClientHello: the extended master secret (RFC 7627).
const EXTENDED_MASTER_SECRET: u16 = 23;

async fn serving(min: TlsVersion) -> Litequic {
    Litequic::start(origin::demo().await, |config| config.listen.tls_min = min).await
}

/// The output of a program, which this runtime does not wait for.
async fn output(mut command: Command) -> String {
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn failed(worker: &WorkerMetrics) -> [u64; 4] {
    let tcp = &worker.tcp;
    [
        tcp.tcp_handshakes_version.get(),
        tcp.tcp_handshakes_tls12_suites.get(),
        tcp.tcp_handshakes_tls12_master_secret.get(),
        tcp.tcp_handshakes_tls12_host.get(),
    ]
}

fn failures(litequic: &Litequic) -> [u64; 4] {
    [0, 1, 2, 3].map(|at| litequic.sum(|worker| failed(worker)[at]))
}

#[tokio::test]
async fn each_suite_of_tls_1_2_is_served_or_refused_by_the_configuration() {
    let Some(openssl) = needs::program("openssl") else { return };
    let shake = async |litequic: &Litequic, more: &[&str]| {
        let mut command = Command::new(&openssl);
        command.args(["s_client", "-servername", "localhost", "-connect", &litequic.tcp[0].to_string()]).args(more);
        output(command).await
    };
    let good = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"];
    let litequic = serving(TlsVersion::Tls12).await;
    for suite in good {
        let shown = shake(&litequic, &["-tls1_2", "-cipher", suite]).await;
        assert!(shown.contains(&format!("New, TLSv1.2, Cipher is {suite}")), "{shown}");
        assert!(shown.contains("Extended master secret: yes") && !shown.contains("TLS session ticket"), "{shown}");
        // Not resumed by an ID either: there is none.
        assert!(shown.contains("Session-ID: \n"), "{shown}");
    }
    let served = litequic.sum(|worker| worker.tcp.tcp_handshakes_tls12.get());
    assert_eq!(served, good.len() as u64);
    // With a CBC cipher; without ECDHE; with a group that litequic does not have.
    let without = [
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"][..],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256"],
        &["-tls1_2", "-groups", "P-521"],
    ];
    for more in without {
        let shown = shake(&litequic, more).await;
        assert!(shown.contains("alert handshake failure"), "{more:?}: {shown}");
    }
    let old = shake(&litequic, &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]).await;
    // Without the extension signature_algorithms, which rustls asks for first.
    assert!(old.contains("alert handshake failure"), "{old}");
    litequic.wait_until("suites", |worker| failed(worker)[1], |failed| failed == 3).await;
    litequic.wait_until("version", |worker| failed(worker)[0], |failed| failed == 1).await;
    // Others are served as before.
    let shown = shake(&litequic, &[]).await;
    assert!(shown.contains("New, TLSv1.3"), "{shown}");
    assert_eq!(litequic.sum(|worker| worker.tcp.groups_tcp_x25519.get()), 1 + good.len() as u64);
    litequic.stop().await;

    let litequic = serving(TlsVersion::Tls13).await;
    let shown = shake(&litequic, &["-tls1_2"]).await;
    assert!(shown.contains("alert protocol version"), "{shown}");
    litequic.wait_until("version", |worker| failed(worker)[0], |failed| failed == 1).await;
    assert_eq!(failures(&litequic), [1, 0, 0, 0]);
    litequic.stop().await;
}

#[tokio::test]
async fn curl_gets_both_protocols_by_tls_1_2() {
    let Some(curl) = needs::program("curl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let litequic = Litequic::start(origin::demo().await, |config| {
        config.listen.tls_min = TlsVersion::Tls12;
        config.access_log = AccessLog {
            path: Some(AccessTarget::File(log.clone())),
            format: AccessFormat::Logfmt,
            fields: vec![AccessField::Protocol, AccessField::Tls],
            ..AccessLog::default()
        };
    })
    .await;
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut command = Command::new(&curl);
        command.args(["--silent", "--show-error", "--insecure", "--noproxy", "*", "--tls-max", "1.2", option]);
        command.args(["--output", "/dev/null", "--write-out", "%{http_version} %{size_download}"]);
        command.arg(format!("https://localhost:{}/bytes/100k", litequic.tcp[0].port()));
        let shown = output(command).await;
        assert_eq!(shown, format!("{version} 100000"), "{option}");
    }
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_handshakes_tls12.get()), 2);
    litequic.stop().await;
    assert_eq!(fs::read_to_string(log).unwrap(), "protocol=HTTP/1.1 tls=1.2\nprotocol=HTTP/2 tls=1.2\n");
}

/// A ClientHello of TLS 1.2 for `name`, as rustls sends it: with the suites of the other version, if they are not removed.
fn hello(name: &str, cert_pem: &str) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()).unwrap();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.version() == &TLS12);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// What comes back after `hello`: its first record.
async fn answered(address: SocketAddr, hello: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(hello).await.unwrap();
    let mut record = vec![0; 5];
    within("a record", stream.read_exact(&mut record)).await.unwrap();
    record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
    within("a record", stream.read_exact(&mut record[5..])).await.unwrap();
    record
}

/// Has an extension be of another, unknown kind.
fn without_extension(mut hello: Vec<u8>, kind: u16) -> Vec<u8> {
    // Record, handshake header, version and random, session ID, suites, compression methods.
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    at += 1 + usize::from(hello[at]) + 2;
    while u16::from_be_bytes([hello[at], hello[at + 1]]) != kind {
        at += 4 + usize::from(u16::from_be_bytes([hello[at + 2], hello[at + 3]]));
    }
    hello[at..at + 2].copy_from_slice(&0xfafa_u16.to_be_bytes());
    hello
}

#[tokio::test]
async fn a_downgrade_shows_and_a_client_without_the_extended_master_secret_is_refused() {
    let litequic = serving(TlsVersion::Tls12).await;
    let hello = hello("localhost", &litequic.cert_pem);
    let answer = answered(litequic.tcp[0], &hello).await;
    // Behind the record's header, the message's and the version.
    assert_eq!((answer[0], &answer[11 + 24..11 + 32]), (22, &DOWNGRADED[..]));
    let answer = answered(litequic.tcp[0], &without_extension(hello, EXTENDED_MASTER_SECRET)).await;
    // A fatal alert: handshake_failure.
    assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 40), "{answer:?}");
    litequic.wait_until("EMS", |worker| failed(worker)[2], |failed| failed == 1).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_host_whose_clients_may_present_a_certificate_refuses_tls_1_2() {
    let authority = Authority::new("root");
    let routes = [route(Some("a.test"), "/", Verify::Optional), route(Some("b.test"), "/", Verify::None)];
    let edit = |config: &mut Config| config.listen.tls_min = TlsVersion::Tls12;
    let litequic = start(origin::demo().await, &authority.pem(), &routes, edit).await;
    let answer = answered(litequic.tcp[0], &hello("a.test", &litequic.cert_pem)).await;
    // A fatal alert: protocol_version.
    assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 70), "{answer:?}");
    litequic.wait_until("host", |worker| failed(worker)[3], |failed| failed == 1).await;
    let answer = answered(litequic.tcp[0], &hello("b.test", &litequic.cert_pem)).await;
    assert_eq!(answer[0], 22, "{answer:?}");
    // With TLS 1.3 the first is asked as before.
    let tls = Tls::connect(litequic.tcp[0], "a.test", config(&litequic.cert_pem, &["http/1.1"])).await;
    assert!(tls.is_ok());
    assert_eq!(failures(&litequic), [0, 0, 0, 1]);
    litequic.stop().await;
}

#[tokio::test]
async fn chromium_without_tls_1_3_gets_the_page() {
    if needs::program("chromium").is_none() {
        return;
    }
    let made: SelfSigned = tls::self_signed(["localhost"]).unwrap();
    let store = CertificateStore::new(made.certificate().unwrap(), []);
    let demo = origin::demo().await;
    let url = OriginAddress::Tcp { host: demo.ip().to_string(), port: demo.port() };
    let mut config = Config::simple(([127, 0, 0, 1], 0).into(), url, "cert".into(), "key".into());
    config.listen.tls_min = TlsVersion::Tls12;
    config.listen.http3 = false;
    let litequic = Litequic::with_certificates(&config, store, made.cert_pem.clone()).await;
    let url = format!("https://localhost:{}/", litequic.tcp[0].port());
    let arguments = vec![
        "--ssl-version-max=tls1.2".to_owned(),
        format!("--ignore-certificate-errors-spki-list={}", made.spki_sha256),
    ];
    let protocol = tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start(&arguments)?;
        browser.open(&url);
        Some(browser.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol"))
    });
    let Some(protocol) = protocol.await.unwrap() else { return };
    assert_eq!(protocol, "h2");
    let old = litequic.sum(|worker| worker.tcp.tcp_handshakes_tls12.get());
    assert!(old > 0);
    litequic.stop().await;
}

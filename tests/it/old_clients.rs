//! TLS 1.2 over TCP, where `listen.tls_min` allows it: which clients it serves, and what each refusal leads to.

use crate::{
    client_certificates::{person::Authority, route, start},
    support::{chromium::Browser, prelude::*, proxy::exempt_all, tls::config},
};
use litequic_config::{AccessField, AccessLog, LogTarget, TlsVersion, VerifyMode};
use litequic_tls::make_self_signed_with;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::TLS12,
};
use serde_json::Value as Json;

/// The end of a server's random by which it says that it has TLS 1.3, too (RFC 8446 §4.1.3).
const DOWNGRADED: &[u8; 8] = b"DOWNGRD\x01";
/// Extensions of a ClientHello: the extended master secret (RFC 7627).
const EXTENDED_MASTER_SECRET: u16 = 23;

async fn serving(min: TlsVersion) -> Litequic {
    Litequic::demo(|config| config.listen.tls_min = min).await
}

/// A proxy with a certificate for each of `keys`, the first for clients that take any.
async fn serving_with(min: TlsVersion, keys: &[&'static SignatureAlgorithm]) -> Litequic {
    let made =
        keys.iter().map(|key| make_self_signed_with(["localhost"], &KeyPair::generate_for(key).unwrap()).unwrap());
    let made: Vec<SelfSigned> = made.collect();
    let edit = |config: &mut Config| {
        config.listen.tls_min = min;
        exempt_all(config);
    };
    Litequic::showing(&made, origin::demo().await, edit).await
}

/// The output of a program, which this runtime does not wait for.
async fn output(mut command: Command) -> String {
    command.stdin(Stdio::null());
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Reasons for which handshakes failed: places in what [`failed`] returns.
const VERSION: usize = 0;
const SUITES: usize = 1;
const MASTER_SECRET: usize = 2;
const HOST: usize = 3;
const OTHER: usize = 4;

fn failed(worker: &WorkerMetrics) -> [u64; 5] {
    let tcp = &worker.tcp;
    [
        tcp.tcp_handshakes_version.get(),
        tcp.tcp_handshakes_tls12_suites.get(),
        tcp.tcp_handshakes_tls12_master_secret.get(),
        tcp.tcp_handshakes_tls12_host.get(),
        tcp.tcp_handshakes_tls.get(),
    ]
}

fn failures(litequic: &Litequic) -> [u64; 5] {
    [VERSION, SUITES, MASTER_SECRET, HOST, OTHER].map(|at| litequic.sum(|worker| failed(worker)[at]))
}

/// What `openssl s_client` shows of a handshake with `more` options.
async fn shake(openssl: &Path, litequic: &Litequic, more: &[&str]) -> String {
    let mut command = Command::new(openssl);
    command.args(["s_client", "-servername", "localhost", "-connect", &litequic.tcp[0].to_string()]).args(more);
    output(command).await
}

#[tokio::test]
async fn tls_1_2_cipher_suites_follow_the_configuration() {
    let Some(openssl) = needs::program("openssl") else { return };
    for (kind, other, key) in [("ECDSA", "RSA", &PKCS_ECDSA_P256_SHA256), ("RSA", "ECDSA", &PKCS_RSA_SHA256)] {
        let litequic = serving_with(TlsVersion::Tls12, &[key]).await;
        let suites = ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"];
        for suite in suites.map(|suite| format!("ECDHE-{kind}-{suite}")) {
            let shown = shake(&openssl, &litequic, &["-tls1_2", "-cipher", &suite]).await;
            assert!(shown.contains(&format!("New, TLSv1.2, Cipher is {suite}")), "{shown}");
            assert!(shown.contains("Extended master secret: yes") && !shown.contains("TLS session ticket"), "{shown}");
            // Not resumed by an ID either: there is none.
            assert!(shown.contains("Session-ID: \n"), "{shown}");
        }
        let served = litequic.sum(|worker| worker.tcp.tcp_handshakes_tls12.get());
        assert_eq!(served, suites.len() as u64, "{kind}");
        let cbc = [format!("ECDHE-{kind}-AES128-SHA"), format!("ECDHE-{kind}-AES256-SHA384")];
        let others = format!("ECDHE-{other}-AES128-GCM-SHA256");
        let (failure, version) = ("alert handshake failure", "alert protocol version");
        let mut expected = [0; 5];
        for (more, alert, reason) in [
            (&["-tls1_2", "-cipher", &cbc[0]][..], failure, SUITES),
            (&["-tls1_2", "-cipher", &cbc[1]], failure, SUITES),
            // Without forward secrecy; with groups of numbers.
            (&["-tls1_2", "-cipher", "AES128-GCM-SHA256:AES256-SHA"], failure, SUITES),
            (&["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"], failure, SUITES),
            // For a certificate, with a group, and with a signature that litequic does not have.
            (&["-tls1_2", "-cipher", &others], failure, SUITES),
            (&["-tls1_2", "-groups", "P-521"], failure, SUITES),
            (&["-tls1_2", "-sigalgs", "RSA+SHA1:ECDSA+SHA1", "-cipher", "DEFAULT@SECLEVEL=0"], failure, OTHER),
            // Without the extension signature_algorithms, which rustls asks for first.
            (&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], failure, VERSION),
            (&["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"], failure, VERSION),
        ] {
            let shown = shake(&openssl, &litequic, more).await;
            assert!(shown.contains(alert), "{kind} {more:?}: {shown}");
            expected[reason] += 1;
            litequic.wait_until("it", |worker| failed(worker)[reason], |failed| failed == expected[reason]).await;
            assert_eq!(failures(&litequic), expected, "{kind} {more:?}");
        }
        // Others are served as before.
        let shown = shake(&openssl, &litequic, &[]).await;
        assert!(shown.contains("New, TLSv1.3"), "{shown}");
        assert_eq!(litequic.sum(|worker| worker.tcp.groups_tcp_x25519.get()), 1 + suites.len() as u64);
        litequic.stop().await;

        let litequic = serving_with(TlsVersion::Tls13, &[key]).await;
        let shown = shake(&openssl, &litequic, &["-tls1_2"]).await;
        assert!(shown.contains(version), "{shown}");
        litequic.wait_until("version", |worker| failed(worker)[VERSION], |failed| failed == 1).await;
        assert_eq!(failures(&litequic), [1, 0, 0, 0, 0]);
        litequic.stop().await;
    }
}

/// The suites of TLS 1.2 that litequic has, as OpenSSL and as IANA name them.
const TLS12_SUITES: [(&str, &str); 6] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// With certificates of both kinds.
#[tokio::test]
async fn of_all_suites_that_openssl_knows_those_six_are_served() {
    let Some(openssl) = needs::program("openssl") else { return };
    let mut list = Command::new(&openssl);
    list.args(["ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]);
    let list = output(list).await;
    let all: Vec<&str> = list.trim().split(':').filter(|suite| !suite.starts_with("TLS_")).collect();
    assert!(all.len() > 50, "{list}");
    let litequic = serving_with(TlsVersion::Tls12, &[&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256]).await;
    let mut served = Vec::new();
    for suite in all {
        let shown = shake(&openssl, &litequic, &["-tls1_2", "-cipher", &format!("{suite}:@SECLEVEL=0")]).await;
        if shown.contains(&format!("New, TLSv1.2, Cipher is {suite}")) {
            served.push(suite.to_owned());
        }
    }
    served.sort();
    assert_eq!(served, TLS12_SUITES.map(|(openssl, _)| openssl));
    litequic.stop().await;
}

/// What sslyze finds at `litequic`.
async fn scanned(sslyze: &Path, litequic: &Litequic) -> Json {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scan.json");
    let mut command = Command::new(sslyze);
    let versions =
        ["--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3", "--elliptic_curves", "--ems"];
    let faults = ["--compression", "--reneg", "--resum", "--early_data", "--fallback", "--heartbleed", "--openssl_ccs"];
    command.args(versions).args(faults).args(["--robot", "--mozilla_config=disable"]);
    command.arg(format!("--json_out={}", file.display()));
    command.arg(format!("localhost:{}{{127.0.0.1}}", litequic.tcp[0].port()));
    let shown = output(command).await;
    let found: Json =
        serde_json::from_slice(&fs::read(file).unwrap_or_else(|error| panic!("{error}: {shown}"))).unwrap();
    let scan = &found["server_scan_results"][0];
    assert_eq!(scan["scan_status"], "COMPLETED", "{shown}");
    let results = scan["scan_result"].as_object().unwrap().iter();
    let completed = results.filter(|(_, result)| result["status"] == "COMPLETED");
    Json::Object(completed.map(|(name, result)| (name.clone(), result["result"].clone())).collect())
}

/// The names in a list of sslyze's, in order.
fn names(list: &Json, name: impl Fn(&Json) -> &Json) -> Vec<String> {
    let mut names: Vec<_> = list.as_array().unwrap().iter().map(|one| name(one).as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_scan_finds_nothing_but_what_is_meant() {
    let Some(sslyze) = needs::program("sslyze") else { return };
    for min in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let litequic = serving_with(min, &[&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256]).await;
        let found = scanned(&sslyze, &litequic).await;
        let suites = |version: &str| {
            let accepted = &found[&format!("{version}_cipher_suites")]["accepted_cipher_suites"];
            names(accepted, |suite| &suite["cipher_suite"]["name"])
        };
        for version in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"] {
            assert_eq!(suites(version), [""; 0], "{version}");
        }
        let serves_old = min == TlsVersion::Tls12;
        let old = suites("tls_1_2");
        assert_eq!(old.is_empty(), !serves_old);
        let is_meant = |suite: &String| TLS12_SUITES.iter().any(|(_, iana)| iana == suite);
        // Not all: sslyze tries those with AES by an OpenSSL that lacks the extended master secret.
        assert!(old.iter().all(is_meant), "{old:?}");
        let aes = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"];
        assert_eq!(suites("tls_1_3"), [aes[0], aes[1], "TLS_CHACHA20_POLY1305_SHA256"]);
        // The hybrid is none of the curves that it tries.
        let curves = names(&found["elliptic_curves"]["supported_curves"], |curve| &curve["name"]);
        assert_eq!(curves, ["X25519", "secp256r1", "secp384r1"]);
        let no = |test: &str, result: &str| assert_eq!(found[test][result], false, "{test} {}", found[test]);
        no("tls_compression", "supports_compression");
        no("tls_1_3_early_data", "supports_early_data");
        no("heartbleed", "is_vulnerable_to_heartbleed");
        no("openssl_ccs_injection", "is_vulnerable_to_ccs_injection");
        no("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos");
        assert_eq!(found["robot"]["robot_result"], "NOT_VULNERABLE_RSA_NOT_SUPPORTED");
        // By a ticket or an ID, of TLS 1.2.
        for kind in ["session_id", "tls_ticket"] {
            let resumed = &found["session_resumption"][format!("{kind}_successful_resumptions_count")];
            assert_eq!(resumed, 0, "{kind} {}", found["session_resumption"]);
        }
        if serves_old {
            assert_eq!(found["session_renegotiation"]["client_renegotiations_success_count"], 0);
            assert_eq!(found["session_renegotiation"]["supports_secure_renegotiation"], true);
            assert_eq!(found["tls_extended_master_secret"]["supports_ems_extension"], true);
            assert_eq!(found["tls_fallback_scsv"]["supports_fallback_scsv"], true);
        }
        assert_eq!(litequic.sum(|worker| worker.tcp.handshakes_tcp_resumed.get()), 0);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn curl_uses_http1_and_http2_over_tls_1_2() {
    let Some(curl) = needs::program("curl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let litequic = Litequic::demo(|config| {
        config.listen.tls_min = TlsVersion::Tls12;
        config.listen.redirect = vec![([127, 0, 0, 1], 0).into()];
        config.access_log = AccessLog {
            path: Some(LogTarget::File(log.clone())),
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
    // Others have the version that they had, and a request that is redirected to https has none.
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    let mut command = Command::new(&curl);
    command.args([
        "--silent",
        "--noproxy",
        "*",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code} %{redirect_url}",
    ]);
    command.arg(format!("http://localhost:{}/a", litequic.redirects[0].port()));
    assert_eq!(output(command).await, format!("308 https://localhost:{}/a", litequic.tcp[0].port()));
    litequic.stop().await;
    let lines = fs::read_to_string(log).unwrap();
    // In the order of the responses' ends.
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    let expected = [("HTTP/1.1", "1.2"), ("HTTP/1.1", "none"), ("HTTP/2", "1.2"), ("HTTP/3", "1.3")];
    assert_eq!(lines, expected.map(|(protocol, tls)| format!("{{\"protocol\":\"{protocol}\",\"tls\":\"{tls}\"}}")));
}

/// A ClientHello of TLS 1.2 for `name`, as rustls sends it, with the suites of TLS 1.2.
fn hello(name: &str, cert_pem: &str) -> Vec<u8> {
    hello_with(name, cert_pem, |suite| suite.version() == &TLS12)
}

/// The same, with the suites of either version that `offers` says.
fn hello_with(name: &str, cert_pem: &str, offers: impl Fn(&SupportedCipherSuite) -> bool) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()).unwrap();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(offers);
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
async fn a_tls_downgrade_is_detected_and_extended_master_secret_required() {
    let litequic = serving(TlsVersion::Tls12).await;
    let hello = hello("localhost", &litequic.cert_pem);
    let answer = answered(litequic.tcp[0], &hello).await;
    // Behind the record's header, the message's and the version.
    assert_eq!((answer[0], &answer[11 + 24..11 + 32]), (22, &DOWNGRADED[..]));
    let answer = answered(litequic.tcp[0], &without_extension(hello, EXTENDED_MASTER_SECRET)).await;
    // A fatal alert: handshake_failure.
    assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 40), "{answer:?}");
    litequic.wait_until("EMS", |worker| failed(worker)[MASTER_SECRET], |failed| failed == 1).await;
    litequic.stop().await;
}

/// rustls shows no extension of a ClientHello that says so before the handshake, and no client but rustls' own, and
/// scanners, are known to be such.
#[tokio::test]
async fn tls_1_3_suites_without_the_version_are_a_version_mismatch() {
    for min in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let litequic = serving(min).await;
        let answer = answered(litequic.tcp[0], &hello_with("localhost", &litequic.cert_pem, |_| true)).await;
        // A fatal alert: protocol_version.
        assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 70), "{answer:?}");
        litequic.wait_until("version", |worker| failed(worker)[VERSION], |failed| failed == 1).await;
        assert_eq!(failures(&litequic), [1, 0, 0, 0, 0]);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_host_whose_clients_may_present_a_certificate_refuses_tls_1_2() {
    let authority = Authority::new("root");
    let routes = [route(Some("a.test"), "/", VerifyMode::Optional), route(Some("b.test"), "/", VerifyMode::None)];
    let edit = |config: &mut Config| config.listen.tls_min = TlsVersion::Tls12;
    let litequic = start(origin::demo().await, &authority.pem(), &routes, edit).await;
    let answer = answered(litequic.tcp[0], &hello("a.test", &litequic.cert_pem)).await;
    // A fatal alert: protocol_version.
    assert_eq!((answer[0], answer[5], answer[6]), (21, 2, 70), "{answer:?}");
    litequic.wait_until("host", |worker| failed(worker)[HOST], |failed| failed == 1).await;
    let answer = answered(litequic.tcp[0], &hello("b.test", &litequic.cert_pem)).await;
    assert_eq!(answer[0], 22, "{answer:?}");
    // With TLS 1.3 the first is asked as before.
    let tls = Tls::connect(litequic.tcp[0], "a.test", config(&litequic.cert_pem, &["http/1.1"])).await;
    assert!(tls.is_ok());
    assert_eq!(failures(&litequic), [0, 0, 0, 1, 0]);
    litequic.stop().await;
}

#[tokio::test]
async fn chromium_without_tls_1_3_gets_the_page() {
    if needs::program("chromium").is_none() {
        return;
    }
    let made: SelfSigned = make_self_signed(["localhost"]).unwrap();
    let spki = format!("--ignore-certificate-errors-spki-list={}", made.spki_sha256);
    let edit = |config: &mut Config| (config.listen.tls_min, config.listen.http3) = (TlsVersion::Tls12, false);
    let litequic = Litequic::showing(&[made], origin::demo().await, edit).await;
    let url = format!("https://localhost:{}/", litequic.tcp[0].port());
    let arguments = vec!["--ssl-version-max=tls1.2".to_owned(), spki];
    let protocol = spawn_blocking(move || {
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

//! Several certificates of one name: which one a client gets by the signature algorithms that it offers, over QUIC and
//! TCP, and that both are known wherever certificates are: 421, reloads, metrics, `/status`, `check`.

use crate::{
    drain::ask,
    reload::{Setup, saying},
    support::{prelude::*, process::litequic},
};
use litequic_tls::make_self_signed_with;
use quinn::{
    ConnectionError,
    crypto::rustls::QuicClientConfig,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        SignatureScheme::{ECDSA_NISTP256_SHA256, ECDSA_NISTP384_SHA384, ED25519, RSA_PSS_SHA256, RSA_PSS_SHA512},
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    },
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, SignatureAlgorithm};
use std::io;

/// RFC 9001 §4.8: 0x100 and the TLS alert, here handshake_failure.
const HANDSHAKE_FAILURE: u64 = 0x100 + 40;
/// Every algorithm that a client of today offers.
const ALL: &[SignatureScheme] = &[RSA_PSS_SHA256, ECDSA_NISTP384_SHA384, ECDSA_NISTP256_SHA256];

fn made(key: &'static SignatureAlgorithm, names: &[&str]) -> SelfSigned {
    make_self_signed_with(names.iter().copied(), &KeyPair::generate_for(key).unwrap()).unwrap()
}

fn der(made: &SelfSigned) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(made.cert_pem.as_bytes()).unwrap()
}

/// A client that accepts any certificate whose key signs with one of these algorithms.
#[derive(Debug)]
struct Offers(&'static [SignatureScheme], CryptoProvider);

impl ServerCertVerifier for Offers {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("litequic serves TLS 1.3 alone".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.1.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.to_vec()
    }
}

fn offering(schemes: &'static [SignatureScheme], protocol: &str) -> ClientConfig {
    let provider = aws_lc_rs::default_provider();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Offers(schemes, provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config
}

/// A QUIC connection of a client that offers `schemes`, with `name` as SNI.
async fn over_quic(
    address: SocketAddr,
    name: &str,
    schemes: &'static [SignatureScheme],
) -> Result<Quic, ConnectionError> {
    let config = QuicClientConfig::try_from(offering(schemes, "h3")).unwrap();
    Quic::with_config(address, name, quinn::ClientConfig::new(Arc::new(config))).await
}

/// The certificate that `quic` was served.
fn served(quic: &Quic) -> CertificateDer<'static> {
    let chain = quic.connection.peer_identity().unwrap().downcast::<Vec<CertificateDer<'static>>>().unwrap();
    chain.first().unwrap().clone()
}

/// The certificate that a client over TCP is served that offers `schemes`.
async fn served_over_tcp(
    address: SocketAddr,
    name: &str,
    schemes: &'static [SignatureScheme],
) -> io::Result<CertificateDer<'static>> {
    let tls = Tls::connect(address, name, offering(schemes, "http/1.1")).await?;
    let (stream, _) = tls.into_parts();
    Ok(stream.get_ref().1.peer_certificates().unwrap().first().unwrap().clone())
}

async fn start(certificates: &[SelfSigned]) -> Litequic {
    Litequic::showing(certificates, origin::demo().await, |_| {}).await
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_its_name_whose_signature_it_verifies() {
    let certificates = [
        made(&PKCS_RSA_SHA256, &["localhost", "both.test"]),
        made(&PKCS_ECDSA_P384_SHA384, &["both.test", "p384.test"]),
        made(&PKCS_ECDSA_P256_SHA256, &["both.test", "localhost", "www.wild.test"]),
        made(&PKCS_RSA_SHA256, &["*.wild.test"]),
    ];
    let litequic = start(&certificates).await;
    let table: [(_, &'static [SignatureScheme], _); 13] = [
        ("both.test", ALL, Some(2)),
        ("both.test", &[RSA_PSS_SHA256, ECDSA_NISTP384_SHA384], Some(1)),
        ("both.test", &[RSA_PSS_SHA512], Some(0)),
        ("both.test", &[ED25519], None),
        ("localhost", ALL, Some(2)),
        ("localhost", &[RSA_PSS_SHA256], Some(0)),
        ("p384.test", ALL, Some(1)),
        ("p384.test", &[ECDSA_NISTP256_SHA256], None),
        ("www.wild.test", ALL, Some(2)),
        ("www.wild.test", &[RSA_PSS_SHA256], Some(3)),
        // The default: a client without a name, and one with a name that no certificate has.
        ("127.0.0.1", ALL, Some(2)),
        ("127.0.0.1", &[RSA_PSS_SHA256], Some(0)),
        ("unknown.test", &[RSA_PSS_SHA256], Some(0)),
    ];
    for (name, schemes, expected) in table {
        let over_quic = over_quic(litequic.address, name, schemes).await;
        let over_tcp = served_over_tcp(litequic.tcp[0], name, schemes).await;
        match expected.map(|place: usize| der(&certificates[place])) {
            Some(expected) => {
                assert_eq!(served(&over_quic.unwrap()), expected, "{name} over QUIC: {schemes:?}");
                assert_eq!(over_tcp.unwrap(), expected, "{name} over TCP: {schemes:?}");
            }
            None => {
                let Err(ConnectionError::ConnectionClosed(close)) = over_quic else { panic!("{name}: {schemes:?}") };
                assert_eq!(u64::from(close.error_code), HANDSHAKE_FAILURE, "{name}: {schemes:?}");
                let error = over_tcp.unwrap_err().to_string();
                assert!(error.contains("HandshakeFailure"), "{name}: {schemes:?}: {error}");
            }
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_serves_the_hosts_that_every_certificate_of_its_name_covers() {
    let certificates =
        [made(&PKCS_RSA_SHA256, &["a.test", "b.test"]), made(&PKCS_ECDSA_P256_SHA256, &["a.test", "b.test", "c.test"])];
    let litequic = start(&certificates).await;
    for schemes in [ALL, &[RSA_PSS_SHA256]] {
        for (name, host, status) in
            [("a.test", "a.test", 204), ("a.test", "b.test", 204), ("a.test", "c.test", 421), ("c.test", "c.test", 204)]
        {
            // Clients with RSA alone are served no certificate of c.test.
            let Ok(quic) = over_quic(litequic.address, name, schemes).await else {
                assert_eq!((name, schemes.len()), ("c.test", 1));
                continue;
            };
            let client = Client::over(quic, name).await;
            let request = client.request(Method::GET, "/").uri(format!("https://{host}/status/204"));
            assert_eq!(client.fetch(request, "").await.status, status, "{name} with {schemes:?}: {host}");
        }
    }
    litequic.stop().await;
}

/// A configuration of two certificates of localhost, the RSA one first, and perhaps a third.
struct Files {
    setup: Setup,
    rsa: SelfSigned,
}

impl Files {
    fn new() -> Self {
        let this = Self { setup: Setup::new(), rsa: made(&PKCS_RSA_SHA256, &["localhost"]) };
        this.write("rsa", &this.rsa);
        this
    }

    fn write(&self, name: &str, made: &SelfSigned) {
        fs::write(self.setup.path(&format!("{name}.crt")), &made.cert_pem).unwrap();
        fs::write(self.setup.path(&format!("{name}.key")), &made.key_pem).unwrap();
    }

    /// The path of a configuration with the certificates `names` behind the setup's own, which is ECDSA with P-256.
    fn configuration(&self, origin: SocketAddr, names: &[&str]) -> String {
        self.setup.write(origin, "");
        let file = self.setup.path("litequic.toml");
        let more: String = names
            .iter()
            .map(|name| format!("[[certificates]]\ncert = \"{name}.crt\"\nkey = \"{name}.key\"\n"))
            .collect();
        fs::write(&file, fs::read_to_string(&file).unwrap() + &more).unwrap();
        file
    }
}

#[tokio::test]
async fn openssl_and_curl_get_the_certificate_that_they_verify() {
    let (Some(openssl), Some(curl)) = (needs::program("openssl"), needs::program("curl")) else { return };
    let (files, origin) = (Files::new(), saying("served").await);
    let process = Process::start(["run", "--config", &files.configuration(origin.address, &["rsa"])]);
    let address = process.address();
    for (algorithms, expected) in [
        (None, Some("ECDSA")),
        (Some("ecdsa_secp256r1_sha256"), Some("ECDSA")),
        (Some("rsa_pss_rsae_sha256"), Some("RSA-PSS")),
        (Some("rsa_pss_rsae_sha512:rsa_pkcs1_sha256"), Some("RSA-PSS")),
        (Some("rsa_pss_rsae_sha384:ecdsa_secp256r1_sha256"), Some("ECDSA")),
        (Some("ecdsa_secp384r1_sha384"), None),
        // TLS 1.3 has no signatures with PKCS #1 padding in handshakes.
        (Some("rsa_pkcs1_sha256"), None),
    ] {
        let mut command = Command::new(&openssl);
        command.args(["s_client", "-connect", &address.to_string(), "-servername", "localhost"]);
        command.args(algorithms.into_iter().flat_map(|algorithms| ["-sigalgs", algorithms]));
        let output = spawn_blocking(move || command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let served = output.lines().find_map(|line| line.strip_prefix("Peer signature type: "));
        assert_eq!(served, expected, "{algorithms:?}: {output}");
    }
    // curl trusts one of the two certificates alone, and offers what OpenSSL's configuration says.
    let only_rsa = files.setup.path("openssl.cnf");
    let text =
        "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nSignatureAlgorithms = RSA-PSS+SHA256\n";
    fs::write(&only_rsa, text).unwrap();
    let (ecdsa, rsa) = (files.setup.path("tls/tls.crt"), files.setup.path("rsa.crt"));
    for (configuration, trusted, expected) in
        [(None, &ecdsa, "served"), (None, &rsa, ""), (Some(&only_rsa), &rsa, "served"), (Some(&only_rsa), &ecdsa, "")]
    {
        let mut command = Command::new(&curl);
        command.args(["--silent", "--noproxy", "*", "--cacert", trusted, "--resolve"]);
        command.args([
            &format!("localhost:{}:127.0.0.1", address.port()),
            &format!("https://localhost:{}/", address.port()),
        ]);
        command.envs(configuration.map(|file| ("OPENSSL_CONF", file)));
        let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{configuration:?}, {trusted}");
    }
}

#[tokio::test]
async fn every_certificate_of_a_name_is_renewed_and_shown() {
    let (files, origin) = (Files::new(), saying("").await);
    let file = files.configuration(origin.address, &["rsa"]);
    let process = Process::start(["run", "--config", &file]);
    let address = process.address();
    let rsa: &[SignatureScheme] = &[RSA_PSS_SHA256];
    for (schemes, expected) in [(ALL, &files.setup.made), (rsa, &files.rsa)] {
        assert_eq!(served(&over_quic(address, "localhost", schemes).await.unwrap()), der(expected), "{schemes:?}");
    }

    // The second alone.
    let renewed = made(&PKCS_RSA_SHA256, &["localhost"]);
    files.write("rsa", &renewed);
    files.setup.reload().await;
    process.await_stderr("rsa.crt renewed, expires");
    for (schemes, expected) in [(ALL, &files.setup.made), (rsa, &renewed)] {
        assert_eq!(served(&over_quic(address, "localhost", schemes).await.unwrap()), der(expected), "{schemes:?}");
        assert_eq!(served_over_tcp(address, "localhost", schemes).await.unwrap(), der(expected), "{schemes:?}");
    }
    let status: serde_json::Value = serde_json::from_str(&ask(files.setup.admin, "GET /status").await.1).unwrap();
    for (place, algorithm) in ["ECDSA P-256", "RSA 2048"].into_iter().enumerate() {
        let certificate = &status["certificates"][place];
        assert_eq!((&certificate["names"][0], &certificate["algorithm"]), (&"localhost".into(), &algorithm.into()));
        let expiry =
            format!("litequic_certificates_expiry_timestamp_seconds{{certificate=\"certificates[{place}]\"}} ");
        assert!(files.setup.metric(&expiry).await > 0);
    }
}

#[test]
fn check_names_a_certificate_that_no_client_gets() {
    let files = Files::new();
    files.write("again", &made(&PKCS_RSA_SHA256, &["localhost"]));
    files.write("p384", &made(&PKCS_ECDSA_P384_SHA384, &["localhost"]));
    let origin = (Ipv4Addr::LOCALHOST, 9).into();
    let unserved = "no client gets this certificate: certificates[1] has the same names";
    for (names, expected) in [
        (&["rsa"][..], None),
        (&["rsa", "p384"], None),
        (&["rsa", "p384", "again"], Some(format!("certificates[3].cert = \"again.crt\": {unserved}"))),
        (&["rsa", "again"], Some(format!("certificates[2].cert = \"again.crt\": {unserved}"))),
    ] {
        let ended = litequic(["check", "--config", &files.configuration(origin, names)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        match expected {
            Some(expected) => assert!(ended.stderr.contains(&format!("warning: {expected}")), "{ended:?}"),
            None => assert_eq!(ended.stderr, "", "{names:?}"),
        }
    }
}

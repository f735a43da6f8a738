//! Fixtures of the tests of clients' certificates: authorities, what they issue and revoke, and clients that present
//! them.

use crate::support::{client::tls_config, prelude::*};
use base64::{Engine, prelude::BASE64_STANDARD};
use quinn::{
    ConnectionError,
    crypto::rustls::QuicClientConfig,
    rustls::{
        SignatureScheme,
        client::ResolvesClientCert,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        sign::CertifiedKey,
    },
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn parameters(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
    }

    pub(crate) fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(Self::parameters(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// Another authority, below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self(CertifiedIssuer::signed_by(Self::parameters(name), KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client's certificate, after `edit` has changed what it likes.
    pub(crate) fn issue(&self, edit: impl FnOnce(&mut CertificateParams)) -> Shown {
        let mut parameters = CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Shown { chain: vec![certificate.der().clone()], key: key.serialize_pem() }
    }

    pub(crate) fn client(&self) -> Shown {
        self.issue(|_| {})
    }

    /// What it has revoked.
    pub(crate) fn crl(&self, serials: &[u64]) -> String {
        let now = SystemTime::now();
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: (now - DAY).into(),
            reason_code: None,
            invalidity_date: None,
        });
        let parameters = CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: (now + DAY).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        parameters.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// A certificate as a client shows it.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// PEM.
    pub(crate) key: String,
}

impl Shown {
    /// The same, with `authority`'s certificate behind it.
    pub(crate) fn with(mut self, authority: &Authority) -> Self {
        self.chain.push(authority.0.der().clone());
        self
    }

    /// RFC 9440 §2.1.
    pub(crate) fn field(&self, at: usize) -> String {
        format!(":{}:", BASE64_STANDARD.encode(&self.chain[at]))
    }
}

/// A client's certificate, and how often it was requested.
#[derive(Debug, Default)]
struct Wallet {
    key: Option<Arc<CertifiedKey>>,
    asked: AtomicUsize,
}

impl ResolvesClientCert for Wallet {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Wallet {
    fn with(certificate: Option<&Shown>) -> Arc<Self> {
        let key = certificate.map(|shown| {
            let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
            let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
            Arc::new(CertifiedKey::new(shown.chain.clone(), key))
        });
        Arc::new(Self { key, asked: AtomicUsize::new(0) })
    }
}

/// A connection over TCP, with HTTP/1.1, of one who shows `certificate`.
pub(crate) async fn by_tcp(litequic: &Litequic, name: &str, certificate: Option<&Shown>) -> Tls {
    let mut config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    config.client_auth_cert_resolver = Wallet::with(certificate);
    Tls::connect(litequic.tcp[0], name, config).await.unwrap()
}

/// A client that connects repeatedly, and keeps session tickets.
pub(crate) struct Person {
    wallet: Arc<Wallet>,
    config: quinn::ClientConfig,
}

impl Person {
    /// One who trusts the server's `cert_pem` and shows `certificate`.
    pub(crate) fn new(cert_pem: &str, certificate: Option<&Shown>) -> Self {
        let wallet = Wallet::with(certificate);
        let mut tls = tls_config(cert_pem);
        tls.client_auth_cert_resolver = Arc::clone(&wallet) as _;
        Self { wallet, config: quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap())) }
    }

    pub(crate) fn asked(&self) -> usize {
        self.wallet.asked.load(Ordering::Relaxed)
    }

    pub(crate) async fn quic(&self, address: SocketAddr, name: &str) -> Result<Quic, ConnectionError> {
        Quic::with_config(address, name, self.config.clone()).await
    }

    pub(crate) async fn connect(&self, address: SocketAddr, name: &str) -> Client {
        Client::over(self.quic(address, name).await.unwrap(), name).await
    }

    /// The code with which the handshake is rejected. For this client it is complete when it has sent its part.
    pub(crate) async fn refused(&self, address: SocketAddr, name: &str) -> u64 {
        let error = match self.quic(address, name).await {
            Ok(quic) => within("the refusal", quic.connection.closed()).await,
            Err(error) => error,
        };
        match error {
            ConnectionError::ConnectionClosed(close) => close.error_code.into(),
            other => panic!("refused otherwise: {other}"),
        }
    }
}

//! TLS of both clients: trust, tickets, and how many handshakes went without a certificate.

use super::arguments::{Arguments, Group};
use anyhow::Context;
use rustls::{
    ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme,
    client::{
        ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Tickets kept: more than connections ever open at once in a handshake load.
const TICKETS: usize = 4096;

/// A client's TLS.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// Certificates that servers showed: a resumed handshake shows none.
    pub(super) certificates: Arc<AtomicU64>,
}

/// TLS 1.3 for `alpn`, by the arguments.
pub(super) fn client(arguments: &Arguments, alpn: &[u8]) -> anyhow::Result<Tls> {
    // One cipher suite, so that all servers seal with the same: each prefers another.
    let suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let mut provider = CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() };
    if let Some(group) = arguments.group {
        provider.kx_groups = vec![match group {
            Group::X25519 => aws_lc_rs::kx_group::X25519,
            Group::Secp256r1 => aws_lc_rs::kx_group::SECP256R1,
            Group::X25519Mlkem768 => aws_lc_rs::kx_group::X25519MLKEM768,
        }];
    }
    let provider = Arc::new(provider);
    let trusted = match &arguments.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in
                CertificateDer::pem_file_iter(path).with_context(|| format!("reading {}", path.display()))?
            {
                roots.add(certificate?)?;
            }
            Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?)
        }
        None => None,
    };
    let certificates = Arc::new(AtomicU64::new(0));
    let verifier = Verifier { trusted, provider: provider.clone(), certificates: certificates.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = match arguments.resume {
        true => Resumption::store(Arc::new(Tickets::default())),
        false => Resumption::disabled(),
    };
    Ok(Tls { config: Arc::new(config), certificates })
}

/// Counts the certificates that it sees.
#[derive(Debug)]
struct Verifier {
    /// None: any certificate is trusted; its key must still have signed.
    trusted: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    certificates: Arc<AtomicU64>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.certificates.fetch_add(1, Ordering::Relaxed);
        match &self.trusted {
            Some(trusted) => trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Tickets of the one server there is. rustls' own store keeps eight, which parallel handshakes use up.
#[derive(Debug, Default)]
struct Tickets {
    group: Mutex<Option<NamedGroup>>,
    tickets: Mutex<VecDeque<Tls13ClientSessionValue>>,
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() == TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        // The newest: the least likely to be too old.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).pop_back()
    }
}

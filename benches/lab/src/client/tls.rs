//! TLS of attackers, of the honest client and of viewers: 1.3, the server's certificate verified, no tickets.

use anyhow::{Context as _, Result};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The name that the certificate is for.
pub(crate) const NAME: &str = "localhost";

/// One configuration for each protocol.
pub(crate) struct Configs {
    roots: Arc<RootCertStore>,
    by_protocol: BTreeMap<&'static str, Arc<ClientConfig>>,
}

impl Configs {
    /// Trusts the certificates in a file.
    pub(crate) fn new(ca: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).with_context(|| format!("reading {}", ca.display()))? {
            roots.add(certificate?)?;
        }
        Ok(Self { roots: Arc::new(roots), by_protocol: BTreeMap::new() })
    }

    /// That of a protocol, by its name in ALPN.
    pub(crate) fn of(&mut self, protocol: &'static str) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.by_protocol.get(protocol) {
            return Ok(Arc::clone(config));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        self.by_protocol.insert(protocol, Arc::clone(&config));
        Ok(config)
    }

    /// That of HTTP/3.
    pub(crate) fn quic(&mut self) -> Result<Arc<QuicClientConfig>> {
        Ok(Arc::new(QuicClientConfig::try_from(self.of("h3")?)?))
    }
}

/// The server's name.
pub(crate) fn name() -> Result<ServerName<'static>> {
    Ok(ServerName::try_from(NAME)?)
}

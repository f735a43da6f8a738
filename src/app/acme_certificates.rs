//! Obtains and renews the certificates of `[[acme]]`, and composes the served ones of these and of files: whenever
//! either is replaced, under one lock. Answers validation requests on behalf of other processes.

use super::active_state::ActiveState;
use litequic_acme::{self as acme, AcmeClient, AcmeHooks, AcmeHostTable, ChallengeResponses};
use litequic_config::{Acme, AcmeHost, CertificateFiles, Config};
use litequic_tls::{self as tls, CertificateStore, LoadedCertificate, ServerTrust};
use rustls::ClientConfig;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

/// Protocol with a CA (RFC 7301 §6).
const CA_ALPN: &[u8] = b"http/1.1";

/// Certificates that were obtained by ACME, by host.
#[derive(Debug, Default)]
pub(super) struct IssuedCertificates(pub(super) BTreeMap<AcmeHost, LoadedCertificate>);

/// State of ACME that workers, admin listeners and the issuer share.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedAcme {
    pub(super) answers: Arc<ChallengeResponses>,
    pub(super) board: Arc<AcmeHostTable>,
}

impl IssuedCertificates {
    /// Loads the certificates that earlier processes have stored.
    pub(super) fn from_storage(config: &Config) -> Self {
        let stored = acme::read_stored_certificates(&config.acme).into_iter();
        Self(
            stored
                .filter_map(|(host, pem)| Some((host.clone(), parse_issued_certificate(&host, &pem).ok()?)))
                .collect(),
        )
    }

    /// Adds to `files` the issued certificates of hosts of `config` for which `files` has none.
    pub(super) fn compose_store(&self, files: &CertificateStore, config: &Config) -> CertificateStore {
        let (mut issued, mut awaited) = (Vec::new(), BTreeSet::new());
        for host in tables_to_obtain(config, files).iter().flat_map(|table| &table.hosts) {
            match self.0.get(host) {
                Some(certificate) => issued.push(certificate.clone()),
                None => {
                    awaited.insert(host.to_string());
                }
            }
        }
        files.with_issued(issued, awaited)
    }
}

/// ACME tables of `config`, without the hosts that have a certificate in `files`: a file's certificate is preferred.
fn tables_to_obtain(config: &Config, files: &CertificateStore) -> Vec<Acme> {
    let mut tables = config.acme.clone();
    for table in &mut tables {
        table.hosts.retain(|host| !has_file_certificate(host, files));
    }
    tables.retain(|table| !table.hosts.is_empty());
    tables
}

/// Returns whether a certificate of a file has exactly the name or address of `host`.
pub(super) fn has_file_certificate(host: &AcmeHost, files: &CertificateStore) -> bool {
    let name = host.to_string();
    files.file_certificates().iter().any(|certificate| match host {
        AcmeHost::Address(address) => certificate.names.ip.contains(address),
        AcmeHost::Name(_) | AcmeHost::Wildcard(_) => certificate.names.dns.contains(&name),
    })
}

/// Parses the chain and the key of `host`, which `pem` has.
fn parse_issued_certificate(host: &AcmeHost, pem: &str) -> Result<LoadedCertificate, String> {
    let name = PathBuf::from(host.to_string());
    let files = CertificateFiles { cert: name.clone(), key: name };
    let certificate =
        LoadedCertificate::from_pem(pem.as_bytes(), pem.as_bytes(), &files).map_err(|error| error.to_string())?;
    let covers = match host {
        AcmeHost::Wildcard(_) => certificate.names.dns.contains(&host.to_string()),
        AcmeHost::Name(_) | AcmeHost::Address(_) => certificate.names.includes_host(&host.to_string()),
    };
    if covers { Ok(certificate) } else { Err(format!("the certificate does not have the name {host}")) }
}

/// TLS configuration for the ACME directory of `table`.
fn directory_tls(table: &Acme) -> Result<ClientConfig, String> {
    let trust = table.ca.clone().map_or(ServerTrust::System, ServerTrust::File);
    let mut config = tls::client_config(&trust).map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![CA_ALPN.to_vec()];
    Ok(config)
}

impl ActiveState {
    /// ACME tables in force whose certificates are obtained.
    fn acme_tables(&self) -> Vec<Acme> {
        tables_to_obtain(&self.config.load(), &self.resolver.current_store())
    }

    /// Serves the certificate of `host` from the next handshake on.
    fn serve_issued(&self, host: &AcmeHost, pem: &str) -> Result<(), String> {
        let certificate = parse_issued_certificate(host, pem)?;
        let mut issued = self.replacing.lock();
        let is_known = issued.0.get(host).is_some_and(|known| known.is_same_chain(&certificate));
        issued.0.insert(host.clone(), certificate);
        if !is_known {
            let store = issued.compose_store(&self.resolver.current_store(), &self.config.load());
            self.resolver.replace_store(store);
        }
        drop(issued);
        if !is_known {
            self.observe_certificates();
        }
        Ok(())
    }

    /// Obtains and renews certificates, and answers validation requests for other processes. Does not end.
    pub(super) async fn obtain_certificates(self) {
        let (tables, of) = (self.clone(), self.clone());
        let wiring = AcmeHooks {
            tables: Box::new(move || tables.acme_tables()),
            trust: Arc::new(directory_tls),
            serve: Arc::new(move |host, pem| of.serve_issued(host, pem)),
        };
        let (answers, board) = (Arc::clone(&self.acme.answers), Arc::clone(&self.acme.board));
        AcmeClient::new(wiring, answers, board, Arc::clone(&self.metrics.acme)).run_renewals().await;
    }

    /// Serves the answers to validation requests that other processes have put into the folder. Does not end.
    pub(super) async fn serve_acme_answers(self) {
        self.acme.answers.read_folders_on_request(|| self.acme_tables()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_config::OriginAddress;
    use litequic_tls::{SelfSigned, make_self_signed};
    use std::net::{IpAddr, Ipv4Addr};

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// ECDSA with P-256 (RFC 8446 §4.2.3), with which the certificates of these tests are signed.
    const ALL: &[rustls::SignatureScheme] = &[rustls::SignatureScheme::ECDSA_NISTP256_SHA256];

    fn made(name: &str) -> SelfSigned {
        make_self_signed([name]).unwrap()
    }

    fn host(name: &str) -> AcmeHost {
        AcmeHost::from(name.to_owned())
    }

    #[test]
    fn an_issued_chain_needs_its_key_and_the_hosts_name() {
        let (one, other) = (made("a.test"), made("a.test"));
        let pem = |cert: &SelfSigned, key: &SelfSigned| cert.cert_pem.clone() + &key.key_pem;
        assert!(parse_issued_certificate(&host("a.test"), &pem(&one, &one)).is_ok());
        let error = parse_issued_certificate(&host("a.test"), &pem(&one, &other)).unwrap_err();
        assert!(error.contains("does not match"), "{error}");
        assert_eq!(
            parse_issued_certificate(&host("b.test"), &pem(&one, &one)).unwrap_err(),
            "the certificate does not have the name b.test"
        );
        assert!(parse_issued_certificate(&host("*.a.test"), &pem(&one, &one)).is_err());
    }

    #[test]
    fn files_are_preferred_and_awaited_hosts_get_no_other_certificate() {
        let origin: OriginAddress = "http://127.0.0.1:9".parse().unwrap();
        let hosts = ["file.test", "issued.test", "awaited.test"].map(host).to_vec();
        let config = Config::for_site(Acme { hosts, ..Acme::default() }, origin);
        let files = CertificateStore::from_file_certificates(vec![made("file.test").to_loaded_certificate().unwrap()]);
        let issued = IssuedCertificates(
            ["file.test", "issued.test", "removed.test"]
                .map(|name| (host(name), made(name).to_loaded_certificate().unwrap()))
                .into(),
        );
        let store = issued.compose_store(&files, &config);
        assert_eq!((store.file_certificates().len(), store.all.len()), (1, 2));
        let served = |name: &str| store.choose_certificate(Some(name), LOCAL, ALL).map(|one| one.names.dns[0].clone());
        for (name, expected) in [
            ("file.test", Some("file.test")),
            ("issued.test", Some("issued.test")),
            ("AWAITED.test", None),
            ("removed.test", Some("file.test")),
        ] {
            assert_eq!(served(name).as_deref(), expected, "{name}");
        }
        assert!(
            store
                .choose_certificate(Some("file.test"), LOCAL, ALL)
                .unwrap()
                .is_same_chain(&files.file_certificates()[0])
        );
        assert!(!store.has_name("awaited.test") && store.has_name("issued.test"));
        let tables = tables_to_obtain(&config, &files);
        assert_eq!(tables[0].hosts, ["issued.test", "awaited.test"].map(host));
        // At the first start no client gets a certificate.
        let none =
            IssuedCertificates::default().compose_store(&CertificateStore::from_file_certificates(Vec::new()), &config);
        assert!(
            none.choose_certificate(None, LOCAL, ALL).is_none()
                && none.choose_certificate(Some("x.test"), LOCAL, ALL).is_none()
        );
    }
}

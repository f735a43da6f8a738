//! Answers the validation requests of CAs, in every worker and process: by the account's key (HTTP-01), and by
//! certificates for a challenge (TLS-ALPN-01). A worker without the response has the control thread read the folder,
//! where another process may have stored it.

use super::account;
use super::failure::{OrderFailure, run_blocking};
use super::folder::{AcmeFolder, challenge_file_name};
use arc_swap::ArcSwap;
use litequic_config::{Acme, AcmeHost};
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

/// Path of HTTP-01 (RFC 8555 §8.3), before the token.
const HTTP01_PREFIX: &str = "/.well-known/acme-challenge/";
/// Bytes of a token at most. RFC 8555 §8.3 requires 128 bits of entropy in base64url; CAs use 43 bytes.
const MAX_TOKEN_LEN: usize = 128;
/// Time for which a validation request waits for the response to appear in the folder: CAs wait ten seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two reads of the folder, for all requests together.
const FOLDER_READ_INTERVAL: Duration = Duration::from_secs(1);

/// A certificate that answers a TLS-ALPN-01 challenge, with its key.
#[derive(Debug)]
pub struct ChallengeCertificate {
    /// The certificate with the acmeIdentifier extension (RFC 8737 §3).
    pub certificate: CertificateDer<'static>,
    /// Private key of the certificate.
    pub key: PrivateKeyDer<'static>,
}

/// Responses that all workers know.
#[derive(Debug, Clone, Default)]
struct KnownResponses {
    /// Thumbprint of the account's key by host, as requests name the host; `None` before there is an account.
    hosts: BTreeMap<String, Option<Arc<str>>>,
    /// Certificates of this process's challenges by server name (SNI). A full folder may lack these certificates.
    local: ChallengeCertificates,
    /// Certificates of challenges that the last read found in the folders.
    shared: ChallengeCertificates,
    /// Time at which the last read of the folders began.
    last_read: Option<Instant>,
}

impl KnownResponses {
    /// Returns the certificate for the challenge of `name`, for a client that connected at `asked`. Another process may
    /// have replaced a certificate that was read earlier.
    fn certificate_since(&self, name: &str, asked: Instant) -> Option<Arc<ChallengeCertificate>> {
        let is_recent =
            || self.last_read.is_some_and(|looked| looked >= asked || looked.elapsed() < FOLDER_READ_INTERVAL);
        let found = || self.shared.get(name).filter(|_| is_recent());
        self.local.get(name).or_else(found).cloned()
    }
}

/// The responses to validation requests of CAs.
#[derive(Debug)]
pub struct ChallengeResponses {
    known: ArcSwap<KnownResponses>,
    /// Signals the control thread that a worker lacks a response.
    read_requested: Notify,
    /// Number of reads of the folders.
    folder_reads: watch::Sender<u64>,
    /// Records that an operator has to set for dns-persist-01, by host.
    records: Mutex<BTreeMap<AcmeHost, String>>,
}

impl Default for ChallengeResponses {
    fn default() -> Self {
        Self {
            known: ArcSwap::default(),
            read_requested: Notify::new(),
            folder_reads: watch::Sender::new(0),
            records: Mutex::default(),
        }
    }
}

impl ChallengeResponses {
    /// Whether `host`, an authority without its port, is one of `[[acme]]`.
    pub fn has_host(&self, host: &str) -> bool {
        self.known.load().hosts.contains_key(&normalize_request_host(host))
    }

    /// Returns the HTTP-01 response for `path` of `host`, or `None` at once for another path or another host.
    pub fn http01_response(
        self: &Arc<Self>,
        host: &str,
        path: &str,
    ) -> Option<impl Future<Output = Option<String>> + 'static> {
        let token = path.strip_prefix(HTTP01_PREFIX).filter(|token| is_challenge_token(token))?.to_owned();
        let host = normalize_request_host(host);
        self.known.load().hosts.get(&host)?;
        let answers = Arc::clone(self);
        Some(async move {
            let thumbprint = answers.find_or_await(|known| known.hosts.get(&host)?.clone()).await?;
            Some(format!("{token}.{thumbprint}"))
        })
    }

    /// Returns the certificate for a ClientHello of TLS-ALPN-01 with `server_name`.
    pub async fn tls_alpn01_certificate(&self, server_name: Option<&str>) -> Option<Arc<ChallengeCertificate>> {
        let name = server_name?.to_ascii_lowercase();
        let is_ours = |known: &KnownResponses| known.hosts.keys().any(|host| challenge_server_name(host) == name);
        if !is_ours(&self.known.load()) {
            return None;
        }
        let asked = Instant::now();
        self.find_or_await(|known| known.certificate_since(&name, asked)).await
    }

    /// Returns the result of `find`, now or after another process has stored the response in the folder.
    async fn find_or_await<T>(&self, find: impl Fn(&KnownResponses) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        let mut looks = self.folder_reads.subscribe();
        loop {
            if let Some(found) = find(&self.known.load()) {
                return Some(found);
            }
            self.read_requested.notify_one();
            timeout_at(deadline, looks.changed()).await.ok()?.ok()?;
        }
    }

    /// Reads the folders of `tables` whenever a worker lacks a response, once a second at most. Never returns.
    pub async fn read_folders_on_request(&self, tables: impl Fn() -> Vec<Acme>) -> std::convert::Infallible {
        loop {
            self.read_requested.notified().await;
            self.refresh_from_folders(&tables()).await;
            sleep(FOLDER_READ_INTERVAL).await;
        }
    }

    /// Reads the accounts and challenges of `tables`, whose hosts replace the former ones.
    pub(super) async fn refresh_from_folders(&self, tables: &[Acme]) {
        let (tables, began) = (tables.to_vec(), Instant::now());
        if let Ok((hosts, found)) = run_blocking(move || read_challenge_folders(&tables)).await {
            self.known.rcu(|known| KnownResponses {
                hosts: hosts.clone(),
                local: known.local.clone(),
                shared: found.clone(),
                last_read: Some(began),
            });
        }
        self.folder_reads.send_modify(|looks| *looks += 1);
    }

    /// Sets the hosts, before the folder has any file.
    pub fn set_hosts(&self, tables: &[Acme]) {
        self.known.rcu(|known| {
            let hosts = tables.iter().flat_map(|table| &table.hosts).map(ToString::to_string);
            let hosts = hosts.map(|host| {
                let thumbprint = known.hosts.get(&host).cloned().flatten();
                (host, thumbprint)
            });
            KnownResponses { hosts: hosts.collect(), ..KnownResponses::clone(known) }
        });
    }

    /// Prepares the certificate of a TLS-ALPN-01 challenge whose key authorization has the digest `digest`. Returns its
    /// server name.
    pub(super) async fn provision_certificate(
        &self,
        folder: &AcmeFolder,
        host: &AcmeHost,
        digest: &[u8],
    ) -> Result<String, OrderFailure> {
        let pem = make_challenge_pem(host, digest)
            .ok_or_else(|| OrderFailure::new("cannot make the certificate of the challenge".into()))?;
        let name = challenge_server_name(&host.to_string());
        if let Some(one) = parse_challenge_pem(&pem) {
            let one = Arc::new(one);
            self.known.rcu(|known| {
                let mut known = KnownResponses::clone(known);
                known.local.insert(name.clone(), Arc::clone(&one));
                known
            });
        }
        let (into, file) = (folder.clone(), challenge_file_name(&name));
        if let Err(error) = run_blocking(move || into.write_stored_file(&file, &pem)).await? {
            tracing::warn!(%host, %error, "cannot store a challenge: other processes cannot answer it");
        }
        Ok(name)
    }

    /// Stores the record that an operator has to set for `host`.
    pub(super) fn set_persistent_record(&self, host: &AcmeHost, record: String) {
        self.records.lock().insert(host.clone(), record);
    }

    /// Returns the record that an operator has to set for `host`, if one is known.
    pub(super) fn persistent_record(&self, host: &AcmeHost) -> Option<String> {
        self.records.lock().get(host).cloned()
    }

    /// Withdraws the certificate of the challenge with the server name `name`.
    pub(super) async fn withdraw_certificate(&self, folder: &AcmeFolder, name: String) {
        self.known.rcu(|known| {
            let mut known = KnownResponses::clone(known);
            known.local.remove(&name);
            known
        });
        let folder = folder.clone();
        // The next challenge overwrites a file that could not be removed.
        let _ = run_blocking(move || folder.remove_stored_file(&challenge_file_name(&name))).await;
    }
}

type HostThumbprints = BTreeMap<String, Option<Arc<str>>>;
type ChallengeCertificates = HashMap<String, Arc<ChallengeCertificate>>;

fn read_challenge_folders(tables: &[Acme]) -> (HostThumbprints, ChallengeCertificates) {
    let (mut hosts, mut challenges) = (BTreeMap::new(), HashMap::new());
    for table in tables {
        let folder = AcmeFolder::new(&table.folder);
        let thumbprint: Option<Arc<str>> = account::stored_thumbprint(&folder, table).map(Arc::from);
        hosts.extend(table.hosts.iter().map(|host| (host.to_string(), thumbprint.clone())));
        for (name, pem) in folder.read_challenge_files() {
            challenges.extend(parse_challenge_pem(&pem).map(|one| (name, Arc::new(one))));
        }
    }
    (hosts, challenges)
}

/// Converts the host of a request to the form in the configuration.
fn normalize_request_host(host: &str) -> String {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match inner.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => inner.strip_suffix('.').unwrap_or(inner).to_ascii_lowercase(),
    }
}

/// Whether `token` is base64url of at most [`MAX_TOKEN_LEN`] bytes (RFC 8555 §8.3).
fn is_challenge_token(token: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_TOKEN_LEN).contains(&token.len()) && token.bytes().all(is_base64)
}

/// Returns the server name of TLS-ALPN-01 for `host`; for an address, its reverse name (RFC 8738 §6).
fn challenge_server_name(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Err(_) => host.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let mut name = String::new();
            for byte in address.octets().iter().rev() {
                // Writing to a String cannot fail.
                let _ = write!(name, "{:x}.{:x}.", byte & 0xf, byte >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

/// Returns, in PEM, a self-signed certificate with the digest of the key authorization (RFC 8737 §3), and its key.
fn make_challenge_pem(host: &AcmeHost, digest: &[u8]) -> Option<String> {
    if digest.len() != 32 {
        return None;
    }
    let mut parameters = CertificateParams::new([host.to_string()]).ok()?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().ok()?;
    let certificate = parameters.self_signed(&key).ok()?;
    Some(certificate.pem() + &key.serialize_pem())
}

fn parse_challenge_pem(pem: &str) -> Option<ChallengeCertificate> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(ChallengeCertificate { certificate, key: PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[test]
    fn tokens_are_base64url_of_bounded_length() {
        for (path, expected) in [
            ("/.well-known/acme-challenge/a-_9Z", true),
            ("/.well-known/acme-challenge/", false),
            ("/.well-known/acme-challenge/a/b", false),
            ("/.well-known/acme-challenge/a.b", false),
            ("/.well-known/acme-challenge/a%2f", false),
            ("/.well-known/acme-challenges", false),
            ("/", false),
        ] {
            assert_eq!(path.strip_prefix(HTTP01_PREFIX).is_some_and(is_challenge_token), expected, "{path}");
        }
        assert!(is_challenge_token(&"a".repeat(MAX_TOKEN_LEN)) && !is_challenge_token(&"a".repeat(MAX_TOKEN_LEN + 1)));
    }

    #[test]
    fn an_address_has_its_reverse_name() {
        assert_eq!(challenge_server_name("a.test"), "a.test");
        assert_eq!(challenge_server_name("127.0.0.1"), "1.0.0.127.in-addr.arpa");
        let expected = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(challenge_server_name("2001:db8::1"), expected);
        for (host, expected) in [("A.Test.", "a.test"), ("[2001:DB8::1]", "2001:db8::1"), ("127.0.0.1", "127.0.0.1")] {
            assert_eq!(normalize_request_host(host), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn http_01_is_answered_by_the_account_key_for_configured_hosts_alone() {
        let answers = Arc::new(ChallengeResponses::default());
        let table = Acme { hosts: vec![AcmeHost::Name("a.test".into())], ..Acme::default() };
        answers.set_hosts(std::slice::from_ref(&table));
        assert!(answers.has_host("A.test.") && !answers.has_host("b.test"));
        assert!(answers.http01_response("b.test", "/.well-known/acme-challenge/x").is_none());
        assert!(answers.http01_response("a.test", "/").is_none());
        let asked = answers.http01_response("a.test", "/.well-known/acme-challenge/x").unwrap();
        assert_eq!(asked.await, None, "no account");
        let parent = tempfile::tempdir().unwrap();
        let table = Acme { folder: parent.path().into(), ..table };
        let key = KeyPair::generate().unwrap().serialize_pem().replace('\n', "\\n");
        let folder = AcmeFolder::new(&table.folder);
        folder.write_stored_file(&account::account_file_name(&table), &format!("{{\"key\": \"{key}\"}}")).unwrap();
        answers.refresh_from_folders(std::slice::from_ref(&table)).await;
        let asked = answers.http01_response("[a.test]", "/.well-known/acme-challenge/x");
        let thumbprint = account::stored_thumbprint(&folder, &table).unwrap();
        assert_eq!(asked.unwrap().await, Some(format!("x.{thumbprint}")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_challenge_of_another_process_is_found_in_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let folder = AcmeFolder::new(&table.folder);
        let (one, other) = (ChallengeResponses::default(), ChallengeResponses::default());
        one.set_hosts(std::slice::from_ref(&table));
        assert!(
            one.tls_alpn01_certificate(Some("b.test")).await.is_none()
                && one.tls_alpn01_certificate(None).await.is_none()
        );
        let prepared = other.provision_certificate(&folder, &host, &[7; 32]).await.unwrap();
        let tables = || vec![table.clone()];
        tokio::select! {
            found = one.tls_alpn01_certificate(Some("A.test")) => assert!(found.is_some()),
            never = one.read_folders_on_request(tables) => match never {},
        }
        other.withdraw_certificate(&folder, prepared).await;
        assert!(folder.read_challenge_files().is_empty());
        advance(FOLDER_READ_INTERVAL).await;
        tokio::select! {
            found = one.tls_alpn01_certificate(Some("a.test")) => assert!(found.is_none(), "it was withdrawn"),
            never = one.read_folders_on_request(tables) => match never {},
        }
        let found = make_challenge_pem(&host, &[7; 31]);
        assert!(found.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_order_of_another_process_is_answered_by_its_own_challenge() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let folder = AcmeFolder::new(&table.folder);
        let (one, other) = (ChallengeResponses::default(), ChallengeResponses::default());
        one.set_hosts(std::slice::from_ref(&table));
        for order in 1..4 {
            let prepared = other.provision_certificate(&folder, &host, &[order; 32]).await.unwrap();
            let expected = parse_challenge_pem(&folder.read_challenge_files()[0].1).unwrap();
            let found = tokio::select! {
                found = one.tls_alpn01_certificate(Some("a.test")) => found.unwrap(),
                never = one.read_folders_on_request(|| vec![table.clone()]) => match never {},
            };
            assert_eq!(found.certificate, expected.certificate, "{order}");
            // Another order may begin before a read has found the end of this one.
            if order % 2 == 0 {
                other.withdraw_certificate(&folder, prepared).await;
            }
            advance(FOLDER_READ_INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_left_replaces_no_challenge_of_this_process() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let (folder, answers) = (AcmeFolder::new(&table.folder), ChallengeResponses::default());
        answers.set_hosts(std::slice::from_ref(&table));
        let prepared = answers.provision_certificate(&folder, &host, &[1; 32]).await.unwrap();
        let expected = parse_challenge_pem(&folder.read_challenge_files()[0].1).unwrap();
        folder
            .write_stored_file(&challenge_file_name("a.test"), &make_challenge_pem(&host, &[2; 32]).unwrap())
            .unwrap();
        answers.refresh_from_folders(std::slice::from_ref(&table)).await;
        let found = answers.tls_alpn01_certificate(Some("a.test")).await.unwrap();
        assert_eq!(found.certificate, expected.certificate);
        answers.withdraw_certificate(&folder, prepared).await;
    }
}

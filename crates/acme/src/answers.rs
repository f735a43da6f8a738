//! What a CA's validation requests are answered with, by every worker and every process: by the account's key
//! (HTTP-01), and by certificates for a challenge (TLS-ALPN-01). A worker that does not know an answer has the control
//! thread look into the folder, where another process may have put it.

use super::account;
use super::failure::{OrderFailure, blocking};
use super::folder::{Folder, challenge_name};
use arc_swap::ArcSwap;
use litequic_config::{Acme, AcmeChallenge, AcmeHost};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

/// The path of HTTP-01 (RFC 8555 §8.3), before its token.
const PREFIX: &str = "/.well-known/acme-challenge/";
/// Bytes of a token at most. RFC 8555 §8.3 wants 128 bits of entropy in base64url; CAs use 43.
const MAX_TOKEN: usize = 128;
/// How long a validation waits for its answer to be found in the folder: CAs wait ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks into the folder, however many requests want one.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A certificate by which TLS-ALPN-01 is answered, with its key.
#[derive(Debug)]
pub struct ChallengeCertificate {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate's private key.
    pub key: PrivateKeyDer<'static>,
}

/// What is known, by every worker.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The thumbprint of the account's key by host, as requests name it; `None` before there is an account.
    hosts: BTreeMap<String, Option<Arc<str>>>,
    /// The certificates of this process's challenges by the name that a ClientHello has (SNI). They may be in no
    /// folder: it may be full.
    own: Challenges,
    /// The certificates of challenges that the last look found in the folders.
    found: Challenges,
    /// When the last look began.
    looked: Option<Instant>,
}

impl Known {
    /// The certificate for the challenge of `name`, which a client wants since `asked`. Another process may have
    /// replaced what an earlier look has found.
    fn challenge(&self, name: &str, asked: Instant) -> Option<Arc<ChallengeCertificate>> {
        let is_recent = || self.looked.is_some_and(|looked| looked >= asked || looked.elapsed() < LOOK_AGAIN);
        let found = || self.found.get(name).filter(|_| is_recent());
        self.own.get(name).or_else(found).cloned()
    }
}

/// The answers to validation requests.
#[derive(Debug)]
pub struct Answers {
    known: ArcSwap<Known>,
    /// A worker needs what it does not know.
    wanted: Notify,
    /// Looks into the folders.
    looks: watch::Sender<u64>,
    /// Records that an operator has to set for dns-persist-01, by host.
    records: Mutex<BTreeMap<AcmeHost, String>>,
}

/// What was prepared for a challenge, to be withdrawn.
#[derive(Debug)]
pub(super) enum PreparedAnswers {
    /// The account's key is the answer, or the answer is in the DNS.
    Nothing,
    /// The certificate for this name.
    Certificate(String),
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            known: ArcSwap::default(),
            wanted: Notify::new(),
            looks: watch::Sender::new(0),
            records: Mutex::default(),
        }
    }
}

impl Answers {
    /// Whether `host`, an authority without its port, is one of `[[acme]]`.
    pub fn has_host(&self, host: &str) -> bool {
        self.known.load().hosts.contains_key(&normalize(host))
    }

    /// The answer to HTTP-01 at `path` of `host`. `None` at once for another path, or another host.
    pub fn http01(self: &Arc<Self>, host: &str, path: &str) -> Option<impl Future<Output = Option<String>> + 'static> {
        let token = path.strip_prefix(PREFIX).filter(|token| is_token(token))?.to_owned();
        let host = normalize(host);
        self.known.load().hosts.get(&host)?;
        let answers = Arc::clone(self);
        Some(async move {
            let thumbprint = answers.find(|known| known.hosts.get(&host)?.clone()).await?;
            Some(format!("{token}.{thumbprint}"))
        })
    }

    /// The certificate for a ClientHello of TLS-ALPN-01 with `server_name`.
    pub async fn tls_alpn01(&self, server_name: Option<&str>) -> Option<Arc<ChallengeCertificate>> {
        let name = server_name?.to_ascii_lowercase();
        let is_ours = |known: &Known| known.hosts.keys().any(|host| sni(host) == name);
        if !is_ours(&self.known.load()) {
            return None;
        }
        let asked = Instant::now();
        self.find(|known| known.challenge(&name, asked)).await
    }

    /// What `find` finds, now or once another process has put it into the folder.
    async fn find<T>(&self, find: impl Fn(&Known) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + PATIENCE;
        let mut looks = self.looks.subscribe();
        loop {
            if let Some(found) = find(&self.known.load()) {
                return Some(found);
            }
            self.wanted.notify_one();
            timeout_at(deadline, looks.changed()).await.ok()?.ok()?;
        }
    }

    /// Looks into the folders of `tables` whenever a worker needs what it does not know, once a second at most. Does
    /// not end.
    pub async fn serve(&self, tables: impl Fn() -> Vec<Acme>) -> std::convert::Infallible {
        loop {
            self.wanted.notified().await;
            self.look(&tables()).await;
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Reads the accounts and challenges of `tables`, whose hosts these are from now on.
    pub(super) async fn look(&self, tables: &[Acme]) {
        let (tables, began) = (tables.to_vec(), Instant::now());
        if let Ok((hosts, found)) = blocking(move || read(&tables)).await {
            self.known.rcu(|known| Known {
                hosts: hosts.clone(),
                own: known.own.clone(),
                found: found.clone(),
                looked: Some(began),
            });
        }
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// Sets the hosts, before there is anything in the folder.
    pub fn expect(&self, tables: &[Acme]) {
        self.known.rcu(|known| {
            let hosts = tables.iter().flat_map(|table| &table.hosts).map(ToString::to_string);
            let hosts = hosts.map(|host| {
                let thumbprint = known.hosts.get(&host).cloned().flatten();
                (host, thumbprint)
            });
            Known { hosts: hosts.collect(), ..Known::clone(known) }
        });
    }

    /// Prepares the answer to a challenge whose key authorization has the digest `digest`.
    pub(super) async fn prepare(
        &self,
        folder: &Folder,
        host: &AcmeHost,
        challenge: AcmeChallenge,
        digest: &[u8],
    ) -> Result<PreparedAnswers, OrderFailure> {
        match challenge {
            AcmeChallenge::Http01 | AcmeChallenge::Dns01 | AcmeChallenge::DnsPersist01 => Ok(PreparedAnswers::Nothing),
            AcmeChallenge::TlsAlpn01 => {
                let pem = challenge_certificate(host, digest)
                    .ok_or_else(|| OrderFailure::new("cannot make the certificate of the challenge".into()))?;
                let name = sni(&host.to_string());
                if let Some(one) = parse(&pem) {
                    let one = Arc::new(one);
                    self.known.rcu(|known| {
                        let mut known = Known::clone(known);
                        known.own.insert(name.clone(), Arc::clone(&one));
                        known
                    });
                }
                let (into, file) = (folder.clone(), challenge_name(&name));
                if let Err(error) = blocking(move || into.write(&file, &pem)).await? {
                    tracing::warn!(%host, %error, "cannot store a challenge: other processes cannot answer it");
                }
                Ok(PreparedAnswers::Certificate(name))
            }
        }
    }

    /// Notes the record that an operator has to set for `host`.
    pub(super) fn set_record(&self, host: &AcmeHost, record: String) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), record);
    }

    /// The record that an operator has to set for `host`, if any is known.
    pub(super) fn record(&self, host: &AcmeHost) -> Option<String> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    /// Withdraws what was prepared.
    pub(super) async fn withdraw(&self, folder: &Folder, prepared: PreparedAnswers) {
        match prepared {
            PreparedAnswers::Nothing => {}
            PreparedAnswers::Certificate(name) => {
                self.known.rcu(|known| {
                    let mut known = Known::clone(known);
                    known.own.remove(&name);
                    known
                });
                let folder = folder.clone();
                // A file that is left is overwritten by the next challenge.
                let _ = blocking(move || folder.remove(&challenge_name(&name))).await;
            }
        }
    }
}

type Hosts = BTreeMap<String, Option<Arc<str>>>;
type Challenges = HashMap<String, Arc<ChallengeCertificate>>;

fn read(tables: &[Acme]) -> (Hosts, Challenges) {
    let (mut hosts, mut challenges) = (BTreeMap::new(), HashMap::new());
    for table in tables {
        let folder = Folder::new(&table.folder);
        let thumbprint: Option<Arc<str>> = account::thumbprint(&folder, table).map(Arc::from);
        hosts.extend(table.hosts.iter().map(|host| (host.to_string(), thumbprint.clone())));
        for (name, pem) in folder.challenges() {
            challenges.extend(parse(&pem).map(|one| (name, Arc::new(one))));
        }
    }
    (hosts, challenges)
}

/// A host of a request as it is configured.
fn normalize(host: &str) -> String {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match inner.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => inner.strip_suffix('.').unwrap_or(inner).to_ascii_lowercase(),
    }
}

/// base64url (RFC 8555 §8.3).
fn is_token(token: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(is_base64)
}

/// The name in the ClientHello of TLS-ALPN-01 for `host`: itself, or an address as its reverse name (RFC 8738 §6).
fn sni(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Err(_) => host.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let mut name = String::new();
            for byte in address.octets().iter().rev() {
                // A String takes everything.
                let _ = write!(name, "{:x}.{:x}.", byte & 0xf, byte >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

/// A self-signed certificate with the digest of the key authorization (RFC 8737 §3), and its key, in PEM.
fn challenge_certificate(host: &AcmeHost, digest: &[u8]) -> Option<String> {
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

fn parse(pem: &str) -> Option<ChallengeCertificate> {
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
            assert_eq!(path.strip_prefix(PREFIX).is_some_and(is_token), expected, "{path}");
        }
        assert!(is_token(&"a".repeat(MAX_TOKEN)) && !is_token(&"a".repeat(MAX_TOKEN + 1)));
    }

    #[test]
    fn an_address_has_its_reverse_name() {
        assert_eq!(sni("a.test"), "a.test");
        assert_eq!(sni("127.0.0.1"), "1.0.0.127.in-addr.arpa");
        let expected = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(sni("2001:db8::1"), expected);
        for (host, expected) in [("A.Test.", "a.test"), ("[2001:DB8::1]", "2001:db8::1"), ("127.0.0.1", "127.0.0.1")] {
            assert_eq!(normalize(host), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn http_01_is_answered_by_the_account_key_for_configured_hosts_alone() {
        let answers = Arc::new(Answers::default());
        let table = Acme { hosts: vec![AcmeHost::Name("a.test".into())], ..Acme::default() };
        answers.expect(std::slice::from_ref(&table));
        assert!(answers.has_host("A.test.") && !answers.has_host("b.test"));
        assert!(answers.http01("b.test", "/.well-known/acme-challenge/x").is_none());
        assert!(answers.http01("a.test", "/").is_none());
        let asked = answers.http01("a.test", "/.well-known/acme-challenge/x").unwrap();
        assert_eq!(asked.await, None, "no account");
        let parent = tempfile::tempdir().unwrap();
        let table = Acme { folder: parent.path().into(), ..table };
        let key = KeyPair::generate().unwrap().serialize_pem().replace('\n', "\\n");
        let folder = Folder::new(&table.folder);
        folder.write(&account::file_name(&table), &format!("{{\"key\": \"{key}\"}}")).unwrap();
        answers.look(std::slice::from_ref(&table)).await;
        let asked = answers.http01("[a.test]", "/.well-known/acme-challenge/x");
        let thumbprint = account::thumbprint(&folder, &table).unwrap();
        assert_eq!(asked.unwrap().await, Some(format!("x.{thumbprint}")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_challenge_of_another_process_is_found_in_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let folder = Folder::new(&table.folder);
        let (one, other) = (Answers::default(), Answers::default());
        one.expect(std::slice::from_ref(&table));
        assert!(one.tls_alpn01(Some("b.test")).await.is_none() && one.tls_alpn01(None).await.is_none());
        let prepared = other.prepare(&folder, &host, AcmeChallenge::TlsAlpn01, &[7; 32]).await.unwrap();
        let tables = || vec![table.clone()];
        tokio::select! {
            found = one.tls_alpn01(Some("A.test")) => assert!(found.is_some()),
            never = one.serve(tables) => match never {},
        }
        other.withdraw(&folder, prepared).await;
        assert!(folder.challenges().is_empty());
        advance(LOOK_AGAIN).await;
        tokio::select! {
            found = one.tls_alpn01(Some("a.test")) => assert!(found.is_none(), "it was withdrawn"),
            never = one.serve(tables) => match never {},
        }
        let found = challenge_certificate(&host, &[7; 31]);
        assert!(found.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_order_of_another_process_is_answered_by_its_own_challenge() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let folder = Folder::new(&table.folder);
        let (one, other) = (Answers::default(), Answers::default());
        one.expect(std::slice::from_ref(&table));
        for order in 1..4 {
            let prepared = other.prepare(&folder, &host, AcmeChallenge::TlsAlpn01, &[order; 32]).await.unwrap();
            let expected = parse(&folder.challenges()[0].1).unwrap();
            let found = tokio::select! {
                found = one.tls_alpn01(Some("a.test")) => found.unwrap(),
                never = one.serve(|| vec![table.clone()]) => match never {},
            };
            assert_eq!(found.certificate, expected.certificate, "{order}");
            // Another order may begin before a look has found that this one has ended.
            if order % 2 == 0 {
                other.withdraw(&folder, prepared).await;
            }
            advance(LOOK_AGAIN).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_left_replaces_no_challenge_of_this_process() {
        let parent = tempfile::tempdir().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![host.clone()], folder: parent.path().into(), ..Acme::default() };
        let (folder, answers) = (Folder::new(&table.folder), Answers::default());
        answers.expect(std::slice::from_ref(&table));
        let prepared = answers.prepare(&folder, &host, AcmeChallenge::TlsAlpn01, &[1; 32]).await.unwrap();
        let expected = parse(&folder.challenges()[0].1).unwrap();
        folder.write(&challenge_name("a.test"), &challenge_certificate(&host, &[2; 32]).unwrap()).unwrap();
        answers.look(std::slice::from_ref(&table)).await;
        let found = answers.tls_alpn01(Some("a.test")).await.unwrap();
        assert_eq!(found.certificate, expected.certificate);
        answers.withdraw(&folder, prepared).await;
    }
}

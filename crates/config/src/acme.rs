//! Defines `[[acme]]`: certificates that litequic obtains and renews by itself.

use super::listen::Listen;
use crate::reading::fault::nearest_word;
use crate::reading::name_kinds::{host_pattern_kind, path_kind};
use crate::reading::rule_readers::join_or;
use crate::reading::section::ConfigSection;
use crate::reading::table::{
    FixedValue, KeyTable as _, custom_key, file_key, keys, list_key, optional_key, required_file_key, required_key,
};
use crate::reading::value_kinds::{RawValue, ValueError, ValueKind, boolean_kind, one_of, text_kind};
use http::{Uri, uri::Scheme};
use litequic_base::named_enum;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

/// Directories by the names that stand for their URLs.
const DIRECTORIES: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];

keys! {
    /// One of `[[acme]]`: hosts whose certificates litequic obtains and renews.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Acme {
        /// Hosts: names, IP addresses, and wildcards by a DNS challenge. Each host gets its own certificate.
        hosts: Vec<AcmeHost> = Vec::new(), custom_key(read_acme_hosts, |all| join_or(all.iter(), ""));

        /// Folder for the account's key, certificates with their keys, and renewal plans. litequic creates it with mode
        /// 0700. Replicas may share it.
        folder: PathBuf = PathBuf::new(), required_file_key(path_kind("the path of a folder"));

        /// Whether you agree to the CA's terms of service: `true`, or no certificate is requested.
        terms_agreed: bool = false, required_key(ValueKind { expected: Self::AGREEMENT.into(), ..boolean_kind() });

        /// The CA's directory: `letsencrypt`, `letsencrypt-staging`, or an https URL.
        directory: String = Self::letsencrypt_url(), directory_kind();

        /// Challenges by which the CA may validate a host, the preferred one first. `http-01` needs `listen.redirect`
        /// at port 80 of the host, `tls-alpn-01` needs `listen.tcp` at port 443. Without the key, each of these two
        /// that has a listener.
        challenges: Vec<AcmeChallenge> = vec![AcmeChallenge::Http01, AcmeChallenge::TlsAlpn01],
            list_key(one_of(AcmeChallenge::NAMES), 1..=AcmeChallenge::NAMES.len());

        /// `mailto:` addresses that the CA may write to.
        contact: Vec<String> = Vec::new(), list_key(contact_kind(), 0..=Self::MAX_CONTACTS);

        /// A profile that the directory lists. Let's Encrypt issues certificates for IP addresses only with
        /// `shortlived`.
        profile: Option<String> = None, optional_key(printable_kind("the name of a profile, such as \"shortlived\""), "none");

        /// Type of the private key. Each certificate gets a new key.
        key: AcmeKey = AcmeKey::P256, one_of(AcmeKey::NAMES);

        /// External Account Binding (RFC 8555 §7.3.4), by which a CA registers your account: the identifier of a key,
        /// a blank, and the file with the HMAC key in base64url, as the CA shows both.
        eab: Option<Eab> = None, optional_key(eab_kind(), "none");

        /// The program that sets and removes a TXT record for `dns-01`, by its absolute path, and its first arguments.
        /// litequic adds three arguments, as lego's `exec` provider does: `present` or `cleanup`, the record's name
        /// with its final dot, and its value. The program has litequic's environment variables. 30 s after its return
        /// from `present` litequic requests the validation, so that all name servers have the record.
        dns_command: Vec<String> = Vec::new(), list_key(argument_kind(), 0..=Self::MAX_ARGUMENTS);

        // The name servers of a zone have a change within seconds.
        /// Time between the return of `dns_command` from `present` and the request for validation.
        dns_wait: Duration = Duration::from_secs(30), FixedValue, no_key;

        /// File with the roots that verify the certificate of the CA's directory, in PEM, in place of the system's.
        ca: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));
    }
}

/// External Account Binding (RFC 8555 §7.3.4): `eab`, such as `"KEY-ID eab.key"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eab {
    /// The identifier of the CA's key.
    pub kid: String,
    /// The file with the CA's HMAC key, in base64url.
    pub key_file: PathBuf,
}

impl Acme {
    const AGREEMENT: &str = "true, if you agree to the terms of service of the CA";
    const MAX_ARGUMENTS: usize = 16;
    /// Number of hosts in a table: Let's Encrypt limits certificates per domain and week, and each renewal validates
    /// every host.
    const HOST_COUNT_RANGE: RangeInclusive<usize> = 1..=100;
    const MAX_CONTACTS: usize = 10;

    fn letsencrypt_url() -> String {
        let [(_, url), _] = DIRECTORIES;
        url.into()
    }

    /// Returns the URL of a directory in a command-line argument.
    ///
    /// # Errors
    ///
    /// A message with the fault and the expected form.
    pub fn parse_directory_argument(written: &str) -> Result<String, String> {
        parse_command_line_value(directory_kind(), written)
    }

    /// Reads a host in a command-line argument.
    ///
    /// # Errors
    ///
    /// A message with the fault and the expected form.
    pub fn parse_host_argument(written: &str) -> Result<AcmeHost, String> {
        parse_command_line_value(acme_host_kind(), written)
    }

    /// Returns the challenges that can validate `host`, the preferred one first.
    pub fn challenges_for_host<'a>(&'a self, host: &'a AcmeHost) -> impl Iterator<Item = AcmeChallenge> + 'a {
        self.challenges.iter().copied().filter(|challenge| challenge.supports_host(host))
    }
}

/// A host of `[[acme]]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AcmeHost {
    /// A DNS name in lower case.
    Name(String),
    /// All names one label below this one.
    Wildcard(String),
    /// An IP address.
    Address(IpAddr),
}

impl fmt::Display for AcmeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Wildcard(parent) => write!(f, "*.{parent}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl From<String> for AcmeHost {
    fn from(host: String) -> Self {
        if let Some(parent) = host.strip_prefix("*.") {
            return Self::Wildcard(parent.into());
        }
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
        inner.parse().map_or_else(|_| Self::Name(host.clone()), |address: IpAddr| Self::Address(address.to_canonical()))
    }
}

named_enum! {
    /// Challenge by which a CA validates a host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum AcmeChallenge {
        /// `http-01` (RFC 8555 §8.3): a response over HTTP.
        Http01 = "http-01",
        /// `tls-alpn-01` (RFC 8737): a certificate in a TLS handshake.
        TlsAlpn01 = "tls-alpn-01",
        /// `dns-01` (RFC 8555 §8.4): a TXT record for each order.
        Dns01 = "dns-01",
        /// `dns-persist-01` (draft-ietf-acme-dns-persist): a permanent TXT record.
        DnsPersist01 = "dns-persist-01",
    }
    /// Returns the name of the challenge type in the IANA registry.
    fn challenge_type;
}

impl AcmeChallenge {
    /// Whether this challenge can validate `host`.
    const fn supports_host(self, host: &AcmeHost) -> bool {
        match self {
            Self::Http01 | Self::TlsAlpn01 => !matches!(host, AcmeHost::Wildcard(_)),
            Self::Dns01 | Self::DnsPersist01 => !matches!(host, AcmeHost::Address(_)),
        }
    }
}

named_enum! {
    /// Kind of a certificate's key: `acme.key`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AcmeKey {
        /// ECDSA with P-256, which every client accepts.
        P256 = "p256",
        /// ECDSA with P-384.
        P384 = "p384",
        /// RSA of 2048 bits, for clients that accept no ECDSA.
        Rsa2048 = "rsa2048",
    }
}

fn parse_command_line_value<T>(kind: ValueKind<T>, written: &str) -> Result<T, String> {
    let expected = kind.expected;
    (kind.read)(RawValue::Text(written.into())).map_err(|wrong| format!("{}; expected {expected}", wrong.problem))
}

fn read_acme_hosts(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<AcmeHost> {
    section.required_list(key, acme_host_kind(), Acme::HOST_COUNT_RANGE, about)
}

fn acme_host_kind() -> ValueKind<AcmeHost> {
    let ValueKind { schema, read, .. } = host_pattern_kind();
    ValueKind {
        expected: "a host such as \"example.com\", \"*.example.com\" or \"192.0.2.1\"".into(),
        schema,
        read: Box::new(move |given| {
            // The parser expects an IPv6 address in brackets, as in a URL.
            let given = match given {
                RawValue::Text(text) if text.parse::<Ipv6Addr>().is_ok() => RawValue::Text(format!("[{text}]")),
                other => other,
            };
            read(given).map(AcmeHost::from)
        }),
        show: Box::new(|host: &AcmeHost| json!(host.to_string())),
    }
}

fn argument_kind() -> ValueKind<String> {
    let parse = |written: String| if written.contains('\0') { Err("has a zero byte".into()) } else { Ok(written) };
    text_kind("an argument", parse, Clone::clone).with_length(1..=1024)
}

fn directory_kind() -> ValueKind<String> {
    let parse = |written: String| {
        if let Some((_, url)) = DIRECTORIES.iter().find(|(name, _)| *name == written) {
            return Ok((*url).to_owned());
        }
        let Ok(uri) = Uri::from_str(&written) else { return Err("not a URL".into()) };
        match uri.authority() {
            _ if uri.scheme() != Some(&Scheme::HTTPS) => {
                let nearest = nearest_word(&written, DIRECTORIES.map(|(name, _)| name));
                Err(ValueError::from("is not an https URL").near(nearest))
            }
            Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => Ok(written),
            _ => Err("has no host, or a user name".into()),
        }
    };
    let show = |url: &String| {
        let known = DIRECTORIES.iter().find(|(_, known)| known == url);
        known.map_or_else(|| url.clone(), |(name, _)| (*name).to_owned())
    };
    text_kind("\"letsencrypt\", \"letsencrypt-staging\" or an https URL", parse, show).with_length(1..=1024)
}

fn contact_kind() -> ValueKind<String> {
    let parse = |written: String| match written.strip_prefix("mailto:") {
        Some(address) if address.contains('@') && address.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(written),
        _ => Err("is not a mailto: address".into()),
    };
    text_kind("an address such as \"mailto:ops@example.com\"", parse, Clone::clone)
        .with_pattern("mailto:[!-~]*@[!-~]*")
        .with_length(9..=320)
}

/// An identifier, a blank, and the path of a file.
pub(crate) fn eab_kind() -> ValueKind<Eab> {
    let parse = |text: String| {
        let (kid, file) = text.split_once(' ').ok_or("has no file behind the identifier")?;
        let kid = (printable_kind("").read)(RawValue::Text(kid.into()))?;
        let key_file = (path_kind("").read)(RawValue::Text(file.trim_start_matches(' ').into()))?;
        Ok(Eab { kid, key_file })
    };
    let expected = "the identifier of a key and the file with the key, such as \"KEY-ID eab.key\"";
    let show = |eab: &Eab| format!("{} {}", eab.kid, eab.key_file.display());
    text_kind(expected, parse, show).with_pattern("[!-~]+ +[^ ][\\s\\S]*")
}

fn printable_kind(expected: &str) -> ValueKind<String> {
    let parse = |written: String| {
        let fits = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(written) } else { Err("contains a space, or a character other than printable ASCII".into()) }
    };
    text_kind(expected, parse, Clone::clone).with_pattern("[!-~]+").with_length(1..=256)
}

/// Hosts of the `[[acme]]` tables read so far with the number of their table, and the number of tables.
#[derive(Debug, Default)]
pub(super) struct SeenHosts(BTreeMap<AcmeHost, usize>, usize);

/// Reads a table of `[[acme]]` after the tables in `seen`.
pub(super) fn read_acme_table(
    section: &mut ConfigSection<'_>,
    listen: &Listen,
    SeenHosts(seen, tables): &mut SeenHosts,
) -> Acme {
    let number = *tables;
    *tables += 1;
    let mut acme = Acme::read_table(section);
    if let Some(eab) = &mut acme.eab {
        eab.key_file = section.base_directory().join(&eab.key_file);
    }
    if section.has_valid_keys(&["terms_agreed"]) && section.has_key("terms_agreed") && !acme.terms_agreed {
        section.note_fault_expecting(
            "terms_agreed",
            "no CA issues a certificate unless you agree to its terms of service",
            "true",
        );
    }
    let reachable = |challenge: AcmeChallenge| match challenge {
        AcmeChallenge::Http01 if listen.redirect.is_empty() => Some("needs an address of listen.redirect"),
        AcmeChallenge::TlsAlpn01 if listen.tcp.is_empty() => Some("needs an address of listen.tcp"),
        AcmeChallenge::Dns01 if acme.dns_command.is_empty() => Some("needs acme.dns_command"),
        _ => None,
    };
    if acme.dns_command.first().is_some_and(|program| !program.starts_with('/')) {
        section.note_list_fault("dns_command", 0, "is not an absolute path");
    }
    if !acme.challenges.contains(&AcmeChallenge::Dns01) {
        let expected = "acme.challenges with \"dns-01\"";
        section.note_fault_expecting("dns_command", "has no effect without dns-01", expected);
    }
    if section.has_key("challenges") {
        for (n, challenge) in acme.challenges.iter().enumerate() {
            if let Some(problem) = reachable(*challenge) {
                section.note_list_fault("challenges", n, problem);
            } else if acme.challenges.iter().take(n).any(|other| other == challenge) {
                section.note_list_fault("challenges", n, "is listed twice");
            }
        }
    } else {
        acme.challenges.retain(|challenge| reachable(*challenge).is_none());
        if acme.challenges.is_empty() {
            let expected = "an address of listen.redirect (http-01) or of listen.tcp (tls-alpn-01)";
            section.note_table_fault("no challenge has a listener", expected);
        }
    }
    for (n, host) in acme.hosts.iter().enumerate() {
        if let Some(other) = seen.insert(host.clone(), number) {
            let problem = if other == number { "is listed twice".into() } else { format!("is also in acme[{other}]") };
            section.note_list_fault("hosts", n, problem);
        }
        if section.is_valid_list("challenges") || !section.has_key("challenges") {
            let problem = match host {
                _ if acme.challenges.is_empty() || acme.challenges_for_host(host).next().is_some() => continue,
                AcmeHost::Wildcard(_) => "a wildcard needs challenges = [\"dns-01\"], and a dns_command",
                AcmeHost::Name(_) | AcmeHost::Address(_) => "an address cannot be validated by DNS",
            };
            section.note_list_fault("hosts", n, problem);
        }
    }
    acme
}

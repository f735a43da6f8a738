//! Selects a client's certificate by its server name (SNI), or without one by the address that it connected to, and by
//! its signature algorithms. Also decides the hosts for which a connection may be used.

use super::authorities::ClientAuthorities;
use super::certificate::{LoadedCertificate, normalize_dns_name, parse_ip};
use super::metrics::CertificateMisses;
use arc_swap::ArcSwap;
use litequic_exchange::ClientTls;
use rustls::{
    CipherSuite, SignatureScheme,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Stands for the address of a connection where it is unknown or irrelevant.
const UNKNOWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Certificates of one configuration. Among the certificates of a name or address, which are indexes into `all`, a
/// client's signature algorithms decide. The cheapest comes first, and each signs with a scheme that no earlier one
/// has.
#[derive(Debug)]
pub struct CertificateStore {
    /// Certificates for clients with an unknown name, or without a name at an unknown address.
    default: Vec<usize>,
    /// Certificates by DNS name; `*.example.com` stands for itself.
    by_name: HashMap<String, Vec<usize>>,
    /// Certificates by IP address.
    by_address: HashMap<IpAddr, Vec<usize>>,
    /// All certificates in the order of the configuration; those issued by ACME are last.
    pub all: Vec<LoadedCertificate>,
    /// Number of certificates from files, at the beginning of `all`.
    files: usize,
    /// Names and addresses whose certificate is still to be issued: their clients get none.
    awaited: BTreeSet<String>,
    /// Authorities for clients' certificates, if these are requested.
    pub authorities: Option<ClientAuthorities>,
}

/// A certificate that no client gets, because others with its names sign with the same algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedCertificate {
    /// Index of the certificate in [`CertificateStore::file_certificates`].
    pub position: usize,
    /// Indexes of the certificates that clients get instead; empty if the certificate has no name.
    pub instead: Vec<usize>,
}

impl CertificateStore {
    /// Creates a store with `default` for clients with an unknown name. A certificate of `others` with all names of
    /// `default` may replace it for clients that offer its signature algorithm.
    pub fn new(default: LoadedCertificate, others: impl IntoIterator<Item = LoadedCertificate>) -> Self {
        Self::from_file_certificates(std::iter::once(default).chain(others).collect())
    }

    /// Creates a store of the certificates of files, the default first. The list may be empty.
    pub fn from_file_certificates(files: Vec<LoadedCertificate>) -> Self {
        let count = files.len();
        Self::compose_groups(files, count)
    }

    fn compose_groups(all: Vec<LoadedCertificate>, files: usize) -> Self {
        let (mut by_name, mut by_address) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (place, certificate) in all.iter().enumerate() {
            for name in &certificate.names.dns {
                by_name.entry(name.clone()).or_default().push(place);
            }
            for address in &certificate.names.ip {
                by_address.entry(address.to_canonical()).or_default().push(place);
            }
        }
        for places in by_name.values_mut().chain(by_address.values_mut()) {
            *places = cheapest_by_scheme(&all, places, &[]);
        }
        // If no certificate with the exact name suits a client's algorithms, the client gets one with a wildcard.
        let exact: Vec<String> = by_name.keys().filter(|name| !name.starts_with("*.")).cloned().collect();
        for name in exact {
            let wild = wildcard_name(&name).and_then(|wildcard| by_name.get(&wildcard)).cloned().unwrap_or_default();
            if let Some(places) = by_name.get_mut(&name) {
                *places = cheapest_by_scheme(&all, places, &wild);
            }
        }
        let names = |certificate: &LoadedCertificate| -> BTreeSet<_> {
            let names = &certificate.names;
            names.dns.iter().cloned().chain(names.ip.iter().map(|address| address.to_canonical().to_string())).collect()
        };
        let first = all.first().map(names).unwrap_or_default();
        // A group covers whatever its first certificate covers. If that has no name, it is the only default.
        let is_default = |(place, certificate): &(usize, &LoadedCertificate)| {
            *place == 0 || (!first.is_empty() && names(certificate).is_superset(&first))
        };
        let default: Vec<usize> = all.iter().enumerate().filter(is_default).map(|(place, _)| place).collect();
        Self {
            default: cheapest_by_scheme(&all, &default, &[]),
            by_name,
            by_address,
            all,
            files,
            awaited: BTreeSet::new(),
            authorities: None,
        }
    }

    /// Replaces the certificates that were `issued` by ACME; those of files and the authorities stay. Hosts in
    /// `awaited`, in lower case, have no certificate yet: their clients get none, rather than another host's.
    #[must_use]
    pub fn with_issued(&self, issued: impl IntoIterator<Item = LoadedCertificate>, awaited: BTreeSet<String>) -> Self {
        let all = self.file_certificates().iter().cloned().chain(issued).collect();
        Self { authorities: self.authorities.clone(), awaited, ..Self::compose_groups(all, self.files) }
    }

    /// Sets the authorities for clients' certificates.
    #[must_use]
    pub fn with_authorities(self, authorities: Option<ClientAuthorities>) -> Self {
        Self { authorities, ..self }
    }

    /// Returns the certificates of files, in the order of the configuration.
    pub fn file_certificates(&self) -> &[LoadedCertificate] {
        self.all.get(..self.files).unwrap_or_default()
    }

    /// Selects the certificate for a client with `sni` at the address `local`: of those for the name, the cheapest that
    /// signs with one of the schemes `offered`. If none does, returns the first one, and rustls ends the handshake.
    /// `None` if there is no certificate yet, and rustls ends the handshake as well.
    pub fn choose_certificate(
        &self,
        sni: Option<&str>,
        local: IpAddr,
        offered: &[SignatureScheme],
    ) -> Option<&LoadedCertificate> {
        let mut group = self.positions_for_name(sni, local).iter().filter_map(|place| self.all.get(*place));
        let first = group.clone().next();
        group.find(|certificate| certificate.algorithm.signs_one_of(offered)).or(first)
    }

    /// Returns the certificates for clients with `sni` at the address `local`: those with exactly this name, else with
    /// a wildcard for its first label, else the default. Clients without a name get those with the address: SNI cannot
    /// carry addresses (RFC 6066 §3), so a client that connects to one sends no name.
    fn positions_for_name(&self, sni: Option<&str>, local: IpAddr) -> &[usize] {
        let name = sni.map(normalize_dns_name);
        let found = match &name {
            Some(name) => self.by_name.get(name).or_else(|| self.by_name.get(&wildcard_name(name)?)),
            None => self.by_address.get(&local.to_canonical()),
        };
        let is_awaited = || match &name {
            Some(name) => {
                self.awaited.contains(name)
                    || wildcard_name(name).is_some_and(|wildcard| self.awaited.contains(&wildcard))
            }
            None => self.awaited.contains(&local.to_canonical().to_string()),
        };
        match found {
            Some(group) => group,
            None if !self.awaited.is_empty() && is_awaited() => &[],
            None => &self.default,
        }
    }

    /// Whether the certificate for clients without a name depends on the address.
    pub(super) fn depends_on_address(&self) -> bool {
        (self.all.len() > 1 && !self.by_address.is_empty()) || self.awaited.iter().any(|host| parse_ip(host).is_some())
    }

    /// Whether a connection whose client sent `sni` to the address `local` may carry requests for `host` (an authority
    /// without its port); 421 otherwise (RFC 9110 §15.5.20, RFC 9114 §3.3).
    ///
    /// Every certificate for clients of this name must cover the host, because the served one is not known here. Two
    /// more hosts are permitted, because after 421 a client would only open another connection like this one:
    /// - the name in `sni` itself: the client has accepted a default certificate that does not cover it;
    /// - an IP address, for a client without a name. The client connected by an address, which may differ from `local`
    ///   (NAT), and accepted the certificate, for example the self-signed one of a sidecar.
    pub fn may_serve_host(&self, sni: Option<&str>, local: IpAddr, host: &str) -> bool {
        let asked_for = match sni {
            // Most names are equal byte by byte, which needs no copy.
            Some(sni) => sni == host || normalize_dns_name(sni) == normalize_dns_name(host),
            None => parse_ip(host).is_some(),
        };
        asked_for || self.all_cover(self.positions_for_name(sni, local), host)
    }

    /// Whether clients of a route for `host` may get a certificate that covers their name. `*.` stands for one or more
    /// labels, so any name below it suffices.
    pub fn covers_route_host(&self, host: &str) -> bool {
        let is_below = |name: &str, parent: &str| name.strip_suffix(parent).is_some_and(|labels| labels.ends_with('.'));
        match host.strip_prefix("*.") {
            Some(parent) => self.by_name.keys().any(|name| is_below(name, parent)),
            None => self.has_name(host),
        }
    }

    /// Whether all certificates for clients of `host` cover the host.
    pub fn has_name(&self, host: &str) -> bool {
        match parse_ip(host) {
            Some(address) => self.by_address.contains_key(&address.to_canonical()),
            None => self.all_cover(self.positions_for_name(Some(host), UNKNOWN_ADDRESS), host),
        }
    }

    fn all_cover(&self, positions: &[usize], host: &str) -> bool {
        let mut group = positions.iter().filter_map(|place| self.all.get(*place));
        !positions.is_empty() && group.all(|certificate| certificate.names.includes_host(host))
    }

    /// Returns the certificates that no client gets.
    pub fn find_unserved(&self) -> Vec<UnservedCertificate> {
        let groups = self.by_name.values().chain(self.by_address.values()).chain([&self.default]);
        let served: BTreeSet<usize> = groups.flatten().copied().collect();
        let unserved = self.all.iter().enumerate().filter(|(place, _)| !served.contains(place));
        unserved
            .map(|(place, certificate)| UnservedCertificate {
                position: place,
                instead: self.find_replacements(certificate),
            })
            .collect()
    }

    /// Returns the certificates that clients get for the names of `certificate`, and that sign with its schemes.
    fn find_replacements(&self, certificate: &LoadedCertificate) -> Vec<usize> {
        let names = certificate.names.dns.iter().filter_map(|name| self.by_name.get(name));
        let addresses = certificate.names.ip.iter().filter_map(|ip| self.by_address.get(&ip.to_canonical()));
        let schemes = &certificate.algorithm.schemes;
        let is_alike = |place: &usize| self.all.get(*place).is_some_and(|other| other.algorithm.signs_one_of(schemes));
        let places: BTreeSet<usize> = names.chain(addresses).flatten().copied().filter(is_alike).collect();
        places.into_iter().collect()
    }
}

/// Returns the signature schemes of a client. A TLS 1.2 client may sign RSA with PKCS #1 padding (RFC 8446 §4.2.3), and
/// gets an RSA certificate as if it offered PSS.
fn accepted_schemes<'a>(offered: &'a [SignatureScheme], suites: &[CipherSuite]) -> Cow<'a, [SignatureScheme]> {
    let is_old = !ClientTls::offers_tls13(suites.iter().map(|suite| u16::from(*suite)));
    let pkcs1 =
        [SignatureScheme::RSA_PKCS1_SHA256, SignatureScheme::RSA_PKCS1_SHA384, SignatureScheme::RSA_PKCS1_SHA512];
    if is_old && offered.iter().any(|scheme| pkcs1.contains(scheme)) {
        return [offered, &[SignatureScheme::RSA_PSS_SHA256]].concat().into();
    }
    offered.into()
}

/// Returns the wildcard for the first label of `name`.
fn wildcard_name(name: &str) -> Option<String> {
    let (_, parent) = name.split_once('.')?;
    Some(format!("*.{parent}"))
}

/// Selects from `first`, then from `then`, each cheapest first, the certificates that sign with a scheme that no
/// selected one has; at least one, if there are any.
fn cheapest_by_scheme(all: &[LoadedCertificate], first: &[usize], then: &[usize]) -> Vec<usize> {
    let mut schemes = BTreeSet::new();
    let mut places = Vec::new();
    for candidates in [first, then] {
        let mut candidates: Vec<_> =
            candidates.iter().filter_map(|place| Some((*place, &*all.get(*place)?.algorithm))).collect();
        candidates.sort_by_key(|(_, algorithm)| algorithm.handshake_cost());
        for (place, algorithm) in candidates {
            let known = schemes.len();
            schemes.extend(algorithm.schemes.iter().map(|scheme| u16::from(*scheme)));
            if schemes.len() > known || places.is_empty() {
                places.push(place);
            }
        }
    }
    places
}

/// Provides certificates to rustls from a store that a reload replaces without touching endpoints.
#[derive(Debug)]
pub struct CertificateResolver(ArcSwap<CertificateStore>, Arc<CertificateMisses>);

impl CertificateResolver {
    /// Creates a resolver for `store`.
    pub fn new(store: CertificateStore) -> Arc<Self> {
        Self::with_miss_counter(store, Arc::default())
    }

    /// Creates a resolver for `store` that counts clients without a certificate in `unanswered`.
    pub fn with_miss_counter(store: CertificateStore, unanswered: Arc<CertificateMisses>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(store), unanswered))
    }

    /// Replaces the store for the following handshakes.
    pub fn replace_store(&self, store: CertificateStore) {
        self.0.store(Arc::new(store));
    }

    /// Calls [`CertificateStore::may_serve_host`] of the current store.
    pub fn may_serve_host_now(&self, sni: Option<&str>, local: IpAddr, host: &str) -> bool {
        self.0.load().may_serve_host(sni, local, host)
    }

    /// Calls [`CertificateStore::has_name`] of the current store.
    pub fn has_name(&self, host: &str) -> bool {
        self.0.load().has_name(host)
    }

    /// Returns a resolver for a handshake at the address `local`; `None` if certificates do not depend on addresses.
    pub(super) fn resolver_at(self: &Arc<Self>, local: IpAddr) -> Option<Arc<dyn ResolvesServerCert>> {
        let at = || -> Arc<dyn ResolvesServerCert> { Arc::new(AddressResolver { resolver: Arc::clone(self), local }) };
        self.0.load().depends_on_address().then(at)
    }

    fn resolve_hello(&self, hello: &ClientHello<'_>, local: IpAddr) -> Option<Arc<CertifiedKey>> {
        let store = self.0.load();
        let schemes = accepted_schemes(hello.signature_schemes(), hello.cipher_suites());
        let chosen = store.choose_certificate(hello.server_name(), local, &schemes);
        if chosen.is_none() {
            self.1.misses.fetch_add(1, Relaxed);
        }
        Some(Arc::clone(&chosen?.key))
    }

    /// Returns the current store.
    pub fn current_store(&self) -> Arc<CertificateStore> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.resolve_hello(&client_hello, UNKNOWN_ADDRESS)
    }
}

/// A [`CertificateResolver`] for one handshake, with the address of the connection, which a ClientHello lacks.
#[derive(Debug)]
struct AddressResolver {
    resolver: Arc<CertificateResolver>,
    local: IpAddr,
}

impl ResolvesServerCert for AddressResolver {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.resolver.resolve_hello(&client_hello, self.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SelfSigned, make_self_signed, make_self_signed_with};
    use rcgen::{
        CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
        SignatureAlgorithm,
    };

    const P256: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    const P384: SignatureScheme = SignatureScheme::ECDSA_NISTP384_SHA384;
    const RSA: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;
    const ALL: &[SignatureScheme] = &[RSA, P384, P256];

    fn certificate(names: &[&str]) -> LoadedCertificate {
        make_self_signed(names.iter().copied()).unwrap().to_loaded_certificate().unwrap()
    }

    fn certificate_with(key: &'static SignatureAlgorithm, names: &[&str]) -> LoadedCertificate {
        let key = KeyPair::generate_for(key).unwrap();
        make_self_signed_with(names.iter().copied(), &key).unwrap().to_loaded_certificate().unwrap()
    }

    /// Kind of key, and names of the certificate.
    type Made<'a> = (&'static SignatureAlgorithm, &'a [&'a str]);

    fn of_kinds(certificates: &[Made<'_>]) -> CertificateStore {
        let mut all = certificates.iter().map(|(key, names)| certificate_with(key, names));
        CertificateStore::new(all.next().unwrap(), all)
    }

    fn store() -> CertificateStore {
        let others = [certificate(&["www.example.com"]), certificate(&["*.example.com", "example.org", "192.0.2.1"])];
        CertificateStore::new(certificate(&["localhost", "::1"]), others)
    }

    #[test]
    fn the_most_specific_name_wins_and_the_first_certificate_is_the_default() {
        let table = [
            (Some("www.example.com"), "www.example.com"),
            (Some("WWW.Example.com."), "www.example.com"),
            (Some("api.example.com"), "*.example.com"),
            (Some("example.org"), "*.example.com"),
            (Some("a.b.example.com"), "localhost"),
            (Some("example.com"), "localhost"),
            (Some("localhost"), "localhost"),
            (Some("elsewhere.net"), "localhost"),
            (Some(""), "localhost"),
            (None, "localhost"),
        ];
        let store = store();
        for (sni, expected) in table {
            assert_eq!(store.choose_certificate(sni, UNKNOWN_ADDRESS, ALL).unwrap().names.dns[0], expected, "{sni:?}");
        }
    }

    #[test]
    fn a_client_without_a_name_gets_the_certificate_that_has_the_address() {
        let table = [
            (None, "192.0.2.1", "*.example.com"),
            (None, "::ffff:192.0.2.1", "*.example.com"),
            (None, "192.0.2.2", "localhost"),
            (None, "::1", "localhost"),
            (Some("www.example.com"), "192.0.2.1", "www.example.com"),
            (Some("elsewhere.net"), "192.0.2.1", "localhost"),
        ];
        let store = store();
        for (sni, local, expected) in table {
            assert_eq!(
                store.choose_certificate(sni, local.parse().unwrap(), ALL).unwrap().names.dns[0],
                expected,
                "{sni:?} at {local}"
            );
        }
        assert!(store.depends_on_address());
        assert!(!CertificateStore::new(certificate(&["localhost", "192.0.2.1"]), []).depends_on_address());
        let named = [certificate(&["www.example.com"])];
        assert!(!CertificateStore::new(certificate(&["localhost"]), named).depends_on_address());
    }

    #[test]
    fn a_connection_serves_the_hosts_of_its_certificate() {
        let table = [
            ("same name", Some("www.example.com"), "www.example.com", true),
            ("another certificate's name", Some("www.example.com"), "api.example.com", false),
            ("a sibling under the wildcard", Some("api.example.com"), "img.example.com", true),
            ("two labels under the wildcard", Some("api.example.com"), "a.b.example.com", false),
            ("another name of the certificate", Some("api.example.com"), "example.org", true),
            ("an address of the certificate", Some("api.example.com"), "192.0.2.1", true),
            ("an address of none", Some("api.example.com"), "192.0.2.2", false),
            ("a name that only the client knows", Some("web.default.svc"), "web.default.svc", true),
            ("a name that was not requested", Some("web.default.svc"), "db.default.svc", false),
            ("reached by address", None, "10.0.0.5", true),
            ("reached by address", None, "[2001:db8::1]", true),
            ("no name, the default's name", None, "localhost", true),
            ("no name, another's name", None, "www.example.com", false),
        ];
        let store = store();
        for (what, sni, host, expected) in table {
            assert_eq!(store.may_serve_host(sni, UNKNOWN_ADDRESS, host), expected, "{what}: {sni:?}, {host}");
        }
        // The certificate for clients without a name depends on the address.
        let address = "192.0.2.1".parse().unwrap();
        for (host, expected) in [("example.org", true), ("localhost", false), ("192.0.2.1", true), ("192.0.2.9", true)]
        {
            assert_eq!(store.may_serve_host(None, address, host), expected, "{host}");
        }
    }

    #[test]
    fn a_route_host_is_covered_if_clients_may_get_its_certificate() {
        let store = store();
        for (host, expected) in [
            ("www.example.com", true),
            ("api.example.com", true),
            ("example.com", false),
            ("elsewhere.test", false),
            ("*.example.com", true),
            ("*.com", true),
            ("*.www.example.com", false),
            ("*.ample.com", false),
            // Clients that connect by address send no name, and get the certificate with the address.
            ("[::1]", true),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
        ] {
            assert_eq!(store.covers_route_host(host), expected, "{host}");
        }
    }

    #[test]
    fn the_cheapest_certificate_that_a_client_verifies_is_served() {
        let rsa: &'static _ = &PKCS_RSA_SHA256;
        let store = of_kinds(&[
            (rsa, &["both.test", "192.0.2.1"]),
            (&PKCS_ECDSA_P384_SHA384, &["both.test", "p384.test"]),
            (&PKCS_ECDSA_P256_SHA256, &["both.test", "www.wild.test", "192.0.2.1"]),
            (rsa, &["*.wild.test"]),
        ]);
        let address = "192.0.2.1".parse().unwrap();
        let table: [(_, _, &[_], _); 16] = [
            (Some("both.test"), UNKNOWN_ADDRESS, ALL, 2),
            (Some("both.test"), UNKNOWN_ADDRESS, &[RSA, P384], 1),
            (Some("both.test"), UNKNOWN_ADDRESS, &[SignatureScheme::RSA_PSS_SHA512], 0),
            // rustls ends the handshake if no certificate suits the client's schemes.
            (Some("both.test"), UNKNOWN_ADDRESS, &[SignatureScheme::ED25519], 2),
            (Some("both.test"), UNKNOWN_ADDRESS, &[SignatureScheme::RSA_PKCS1_SHA256], 2),
            (Some("both.test"), UNKNOWN_ADDRESS, &[], 2),
            (Some("p384.test"), UNKNOWN_ADDRESS, &[P256], 1),
            // An exact name has precedence over a wildcard, if the client verifies the algorithm.
            (Some("www.wild.test"), UNKNOWN_ADDRESS, ALL, 2),
            (Some("www.wild.test"), UNKNOWN_ADDRESS, &[RSA], 3),
            (Some("www.wild.test"), UNKNOWN_ADDRESS, &[P384], 2),
            (Some("api.wild.test"), UNKNOWN_ADDRESS, ALL, 3),
            (None, address, ALL, 2),
            (None, address, &[RSA], 0),
            // The second certificate lacks the first one's address; the third has all names of the first.
            (None, UNKNOWN_ADDRESS, ALL, 2),
            (Some("elsewhere.test"), UNKNOWN_ADDRESS, &[P384, RSA], 0),
            (None, UNKNOWN_ADDRESS, &[P384], 2),
        ];
        for (sni, local, offered, expected) in table {
            let served = store.choose_certificate(sni, local, offered).unwrap();
            assert!(served.is_same_chain(&store.file_certificates()[expected]), "{sni:?} at {local}: {offered:?}");
        }
        assert_eq!(store.find_unserved(), []);
    }

    #[test]
    fn a_connection_serves_what_all_certificates_of_its_name_cover() {
        let store = of_kinds(&[
            (&PKCS_RSA_SHA256, &["a.test", "b.test"]),
            (&PKCS_ECDSA_P256_SHA256, &["a.test", "b.test", "c.test"]),
            (&PKCS_ECDSA_P256_SHA256, &["d.test", "www.wild.test"]),
            (&PKCS_RSA_SHA256, &["*.wild.test"]),
            // This certificate is never served, so its algorithms do not count.
            (&PKCS_ECDSA_P256_SHA256, &["d.test"]),
        ]);
        for (sni, host, expected) in [
            (Some("a.test"), "b.test", true),
            (Some("a.test"), "c.test", false),
            (Some("c.test"), "a.test", true),
            (Some("d.test"), "www.wild.test", true),
            (Some("www.wild.test"), "d.test", false),
            (Some("www.wild.test"), "api.wild.test", false),
            (Some("www.wild.test"), "www.wild.test", true),
            (Some("api.wild.test"), "www.wild.test", true),
            (None, "a.test", true),
            (None, "b.test", true),
            (None, "c.test", false),
        ] {
            assert_eq!(store.may_serve_host(sni, UNKNOWN_ADDRESS, host), expected, "{sni:?}, {host}");
        }
        for name in ["a.test", "b.test", "c.test", "d.test", "www.wild.test", "api.wild.test"] {
            assert!(store.has_name(name), "{name}");
        }
        assert_eq!(store.find_unserved(), [UnservedCertificate { position: 4, instead: vec![2] }]);
    }

    #[test]
    fn an_unserved_certificate_is_reported_with_its_replacements() {
        let (rsa, p256): (&'static _, &'static _) = (&PKCS_RSA_SHA256, &PKCS_ECDSA_P256_SHA256);
        let unserved = |place, instead: &[usize]| UnservedCertificate { position: place, instead: instead.to_vec() };
        let table: [(&[Made<'_>], Vec<UnservedCertificate>); 5] = [
            (&[(rsa, &["a.test"]), (p256, &["a.test"])], vec![]),
            (&[(p256, &["a.test"]), (p256, &["a.test"])], vec![unserved(1, &[0])]),
            (&[(p256, &["a.test"]), (p256, &["a.test", "b.test"])], vec![]),
            (
                &[
                    (rsa, &["other.test"]),
                    (p256, &["a.test"]),
                    (p256, &["192.0.2.1"]),
                    (p256, &["a.test", "192.0.2.1"]),
                ],
                vec![unserved(3, &[1, 2])],
            ),
            // Clients without a name get the default, or another certificate with all its names.
            (&[(rsa, &["a.test"]), (rsa, &["a.test", "b.test"])], vec![]),
        ];
        for (certificates, expected) in table {
            let names: Vec<_> = certificates.iter().map(|(_, names)| names).collect();
            assert_eq!(of_kinds(certificates).find_unserved(), expected, "{names:?}");
        }
        let nameless = || {
            let mut parameters = CertificateParams::new([]).unwrap();
            parameters.distinguished_name = DistinguishedName::new();
            let key = KeyPair::generate().unwrap();
            let (cert_pem, key_pem) = (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem());
            SelfSigned { cert_pem, key_pem, spki_sha256: String::new() }.to_loaded_certificate().unwrap()
        };
        let store = CertificateStore::new(nameless(), [certificate(&["a.test"]), nameless()]);
        assert_eq!(store.find_unserved(), [unserved(2, &[])]);
        assert!(
            store.choose_certificate(None, UNKNOWN_ADDRESS, ALL).unwrap().is_same_chain(&store.file_certificates()[0])
        );
    }

    #[test]
    fn a_replaced_store_serves_from_then_on() {
        let resolver = CertificateResolver::new(CertificateStore::new(certificate(&["old.test"]), []));
        resolver.replace_store(CertificateStore::new(certificate(&["new.test"]), []));
        assert!(resolver.may_serve_host_now(None, UNKNOWN_ADDRESS, "new.test"));
        assert!(!resolver.may_serve_host_now(None, UNKNOWN_ADDRESS, "old.test"));
    }
}

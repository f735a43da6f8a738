//! Selects the certificate of a client, by its name (SNI), or without one by the address that it connected to; and the
//! hosts that its connection may then be used for.

use super::{
    Authorities,
    certificate::{Certificate, normalize, parse_ip},
};
use arc_swap::ArcSwap;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

/// The address of a client's connection where it is not known, or does not matter.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The certificates of one configuration.
#[derive(Debug)]
pub struct CertificateStore {
    /// For a client whose name is in none of the others, or without a name at an address that is in none of them.
    default: Certificate,
    /// By name; `*.example.com` as it is. Of two certificates with one name the first counts.
    by_name: HashMap<String, Certificate>,
    /// The same by IP address.
    by_address: HashMap<IpAddr, Certificate>,
    /// In the order of the configuration.
    all: Vec<Certificate>,
    /// The authorities for clients' certificates, if they are requested.
    authorities: Option<Authorities>,
}

impl CertificateStore {
    /// `default` is also served to a client whose name is in none of the others.
    pub fn new(default: Certificate, others: impl IntoIterator<Item = Certificate>) -> Self {
        let (mut by_name, mut by_address) = (HashMap::new(), HashMap::new());
        let all: Vec<Certificate> = std::iter::once(default.clone()).chain(others).collect();
        for certificate in &all {
            for name in &certificate.names().dns {
                by_name.entry(name.clone()).or_insert_with(|| certificate.clone());
            }
            for address in &certificate.names().ip {
                by_address.entry(address.to_canonical()).or_insert_with(|| certificate.clone());
            }
        }
        Self { default, by_name, by_address, all, authorities: None }
    }

    /// The same, with `authorities` for clients' certificates.
    #[must_use]
    pub fn with_authorities(self, authorities: Option<Authorities>) -> Self {
        Self { authorities, ..self }
    }

    /// The authorities for clients' certificates; `None` if they are not requested.
    pub fn authorities(&self) -> Option<&Authorities> {
        self.authorities.as_ref()
    }

    /// The first, for clients without another one.
    pub fn default_certificate(&self) -> &Certificate {
        &self.default
    }

    /// Every certificate, the default first.
    pub fn certificates(&self) -> &[Certificate] {
        &self.all
    }

    /// The certificate for a client with `sni` at the address `local`: the one with exactly this name, else the one
    /// with a wildcard for its first label, else the default. Without a name the one that has the address: SNI cannot
    /// carry addresses (RFC 6066 §3), so a client that connects to one sends none.
    pub fn choose(&self, sni: Option<&str>, local: IpAddr) -> &Certificate {
        let found = match sni.map(normalize) {
            Some(name) => self.by_name.get(&name).or_else(|| {
                let (_, parent) = name.split_once('.')?;
                self.by_name.get(&format!("*.{parent}"))
            }),
            None => self.by_address.get(&local.to_canonical()),
        };
        found.unwrap_or(&self.default)
    }

    /// Whether a client without a name may get another certificate at one address than at another.
    pub(super) fn depends_on_address(&self) -> bool {
        self.all.len() > 1 && !self.by_address.is_empty()
    }

    /// Whether a connection whose client sent `sni` to the address `local` may carry requests for `host` (an authority
    /// without its port); 421 otherwise (RFC 9110 §15.5.20, RFC 9114 §3.3).
    ///
    /// It may if the certificate that this client was served covers the host. Two more hosts are allowed, because 421
    /// makes a client try again on a connection of its own, and that is the one it has:
    /// - the very name that it sent, which the default certificate does not cover, as the client knows;
    /// - an IP address, from a client that sent no name. This client reached litequic by address, perhaps by another than
    ///   litequic sees (NAT), and accepted what it got: a sidecar's self-signed certificate, say.
    pub fn covers(&self, sni: Option<&str>, local: IpAddr, host: &str) -> bool {
        let asked_for = match sni {
            // Mostly equal letter by letter: that needs no copy.
            Some(sni) => sni == host || normalize(sni) == normalize(host),
            None => parse_ip(host).is_some(),
        };
        asked_for || self.choose(sni, local).names().cover(host)
    }

    /// Whether clients of a route for `host` may get a certificate that covers it. `*.` stands for one or more labels:
    /// a name below it is enough.
    pub fn covers_pattern(&self, host: &str) -> bool {
        let is_below = |name: &str, parent: &str| name.strip_suffix(parent).is_some_and(|labels| labels.ends_with('.'));
        match host.strip_prefix("*.") {
            Some(parent) => self.by_name.keys().any(|name| is_below(name, parent)),
            None => self.has_name(host),
        }
    }

    /// Whether a client of `host` gets a certificate that covers it.
    pub fn has_name(&self, host: &str) -> bool {
        match parse_ip(host) {
            Some(address) => self.by_address.contains_key(&address.to_canonical()),
            None => self.choose(Some(host), UNKNOWN).names().cover(host),
        }
    }
}

/// Provides the certificate to rustls, from a store that a reload replaces without touching any endpoint.
#[derive(Debug)]
pub struct CertificateResolver(ArcSwap<CertificateStore>);

impl CertificateResolver {
    /// Serves `store`.
    pub fn new(store: CertificateStore) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(store)))
    }

    /// Serves `store` from the next handshake on.
    pub fn replace(&self, store: CertificateStore) {
        self.0.store(Arc::new(store));
    }

    /// [`CertificateStore::covers`] of the store that is served now.
    pub fn covers(&self, sni: Option<&str>, local: IpAddr, host: &str) -> bool {
        self.0.load().covers(sni, local, host)
    }

    /// [`CertificateStore::has_name`] of the store that is served now.
    pub fn has_name(&self, host: &str) -> bool {
        self.0.load().has_name(host)
    }

    /// The configuration of a handshake at the address `local`; `None` if this one, which all handshakes share, is the
    /// same.
    pub(super) fn at(self: &Arc<Self>, local: IpAddr) -> Option<Arc<dyn ResolvesServerCert>> {
        let at = || -> Arc<dyn ResolvesServerCert> { Arc::new(AtAddress { resolver: Arc::clone(self), local }) };
        self.0.load().depends_on_address().then(at)
    }

    /// The store that is served now.
    pub fn store(&self) -> Arc<CertificateStore> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.0.load().choose(client_hello.server_name(), UNKNOWN).key()))
    }
}

/// The same for one handshake, whose client connected to an address. A ClientHello does not have it.
#[derive(Debug)]
struct AtAddress {
    resolver: Arc<CertificateResolver>,
    local: IpAddr,
}

impl ResolvesServerCert for AtAddress {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.resolver.0.load().choose(client_hello.server_name(), self.local).key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::self_signed;

    fn certificate(names: &[&str]) -> Certificate {
        self_signed(names.iter().copied()).unwrap().certificate().unwrap()
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
            assert_eq!(store.choose(sni, UNKNOWN).names().dns[0], expected, "{sni:?}");
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
            assert_eq!(store.choose(sni, local.parse().unwrap()).names().dns[0], expected, "{sni:?} at {local}");
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
            assert_eq!(store.covers(sni, UNKNOWN, host), expected, "{what}: {sni:?}, {host}");
        }
        // The certificate of a client without a name depends on the address.
        let address = "192.0.2.1".parse().unwrap();
        for (host, expected) in [("example.org", true), ("localhost", false), ("192.0.2.1", true), ("192.0.2.9", true)]
        {
            assert_eq!(store.covers(None, address, host), expected, "{host}");
        }
    }

    #[test]
    fn a_route_s_host_is_covered_where_a_client_may_get_a_certificate_for_it() {
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
            // Clients of an address send no name, and get the certificate that has it.
            ("[::1]", true),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
        ] {
            assert_eq!(store.covers_pattern(host), expected, "{host}");
        }
    }

    #[test]
    fn a_replaced_store_serves_from_then_on() {
        let resolver = CertificateResolver::new(CertificateStore::new(certificate(&["old.test"]), []));
        resolver.replace(CertificateStore::new(certificate(&["new.test"]), []));
        assert!(resolver.covers(None, UNKNOWN, "new.test"));
        assert!(!resolver.covers(None, UNKNOWN, "old.test"));
    }
}

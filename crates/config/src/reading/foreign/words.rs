//! Lists words of other programs' configurations that operators may use as keys, each with litequic's key, or with a
//! line.

use crate::reading::examples::generic_path;
use ForeignHint::{Key, Line};

/// Hint for a foreign word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignHint {
    /// Path of litequic's key.
    Key(&'static str),
    /// What to use instead, or what litequic does not do.
    Line(&'static str),
}

/// Returns the hint for the unknown key `name` of the table `section`. Case and separators do not matter.
pub(crate) fn foreign_hint(section: &str, name: &str) -> Option<ForeignHint> {
    // A label in quotes has dots.
    let name = name.split('.').next().unwrap_or_default();
    let (section, name) = (generic_path(section), without_separators(name));
    let of_table = TABLE_WORDS.iter().filter(|(table, ..)| *table == section).map(|(_, words, hint)| (words, hint));
    let mut all = of_table.chain(FOREIGN_WORDS.iter().map(|(words, hint)| (words, hint)));
    all.find(|(words, _)| words.split(' ').any(|word| word == name)).map(|(_, hint)| *hint)
}

/// Returns a word in lower case without separators, so that `certificatesResolvers` equals `certificates_resolvers`.
pub(crate) fn without_separators(name: &str) -> String {
    name.chars().filter(|char| !matches!(char, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Words of any table in the form of [`without_separators`], hint.
const FOREIGN_WORDS: &[(&str, ForeignHint)] = &[
    // nginx and Apache
    ("server servers virtualhost", Line("use [[routes]] with host instead of nginx's server")),
    ("location locations", Line("use [[routes]] with path or path_prefix instead of nginx's location")),
    ("upstream upstreams", Line("use [origins.NAME] with url instead of nginx's upstream")),
    ("proxypass grpcpass", Line("use [origin] with url instead of nginx's proxy_pass")),
    ("sslcertificate sslcertificatekey", Line("use [[certificates]] with cert and key")),
    ("sslclientcertificate sslverifyclient clientauth mtls", Line("use [client_certificates]")),
    ("clientmaxbodysize maxrequestbodysize requestbody", Key("limits.max_body_bytes")),
    ("largeclientheaderbuffers clientheaderbuffersize", Key("limits.max_header_bytes")),
    ("tryfiles root alias index fileserver autoindex", Line("litequic does not serve files")),
    ("addheader moreheaders headerdown httpresponse", Line("use response_headers")),
    ("proxysetheader headerup httprequest requestheader", Line("use request_headers")),
    ("header headers", Line("use request_headers or response_headers")),
    ("servername serveralias hostname domain domains", Key("routes[].host")),
    ("workerprocesses nbthread threads nbproc", Key("listen.workers")),
    ("workerconnections maxconn maxclients", Key("limits.max_connections")),
    ("workerrlimitnofile ulimitn fdhardlimit", Line("litequic raises the limit of open files by itself")),
    ("events stream", Line("litequic has no such block; see `litequic example` for configurations")),
    ("keepalivetimeout httpkeepalive idletimeout", Key("timeouts.idle")),
    ("keepaliverequests", Line("a connection ends after 1,000,000 requests")),
    ("proxyconnecttimeout connecttimeout dialtimeout", Key("timeouts.connect")),
    ("proxyreadtimeout responseheadertimeout responsetimeout readtimeout", Key("timeouts.response_header")),
    ("proxysendtimeout sendtimeout writetimeout", Key("timeouts.send")),
    ("clientheadertimeout readheadertimeout readheader", Key("timeouts.request_header")),
    ("clientbodytimeout", Key("timeouts.request_body")),
    ("errorlog logfile loglevel logging", Line("the log is written to standard error; [log] sets its level")),
    ("logformat customlog", Key("access_log.fields")),
    ("errorpage errorfile handleerrors errordocument", Key("error_pages")),
    ("rewrite return redir redirects replacepath", Line("use redirect or rewrite_prefix of a route")),
    ("limitreq limitreqzone sticktable", Line("use rate_limit of a route")),
    ("limitconn limitconnzone", Line("connections are shared between sources (limits.source_exempt)")),
    ("limitrate bandwidth throttle", Line("litequic does not limit the bandwidth of clients")),
    ("setrealipfrom realipheader trustedips forwardedheaders", Key("trusted_proxies")),
    ("fastcgipass uwsgipass scgipass phpfastcgi php", Line("litequic sends only HTTP/1.1 to origins")),
    ("proxybuffering proxyrequestbuffering buffering", Line("litequic streams bodies, and never buffers a whole body")),
    (
        "http2 http1 alpn protocols",
        Line("litequic offers HTTP/1.1 and HTTP/2 by listen.tcp, and HTTP/3 by listen.http3"),
    ),
    ("map if regex splitclients", Line("use match of a route for conditions")),
    (
        "stubstatus stats metrics prometheus ping api dashboard",
        Line("use admin.listen, which serves metrics and status"),
    ),
    // HAProxy
    ("frontend frontends bind", Line("use [listen] instead of HAProxy's frontend")),
    ("backend backends", Line("use [origins.NAME] with url instead of HAProxy's backend")),
    ("defaultbackend usebackend acl", Line("use [[routes]], which select an origin")),
    ("global defaults option", Line("litequic has no such section; see `litequic example` for configurations")),
    ("mode tcp", Line("litequic proxies only HTTP")),
    ("httpchk healthcheck check", Key("origin.health")),
    // Caddy
    ("reverseproxy", Line("use [origin] with url instead of Caddy's reverse_proxy")),
    ("handle handlepath site sites", Line("use [[routes]] with host and path_prefix")),
    (
        "email letsencrypt acmeca autohttps certificatesresolvers certresolver",
        Line("use [[acme]], which obtains certificates"),
    ),
    // Traefik
    ("entrypoints entrypoint address addresses", Key("listen.udp")),
    ("middlewares middleware", Line("use keys of a route instead of Traefik's middlewares")),
    ("routers router rule priority", Line("use [[routes]] with host and path_prefix instead of Traefik's routers")),
    ("services service loadbalancer", Line("use [origins.NAME] with url instead of Traefik's services")),
    ("providers docker", Line("the configuration is one file, which litequic reloads when it changes")),
    (
        "labels label traefik",
        Line("use [[routes]] with host and path_prefix, and [origins.NAME] with url; litequic reads no labels"),
    ),
    ("http https", Line("use [[routes]] and [origins.NAME] instead of Traefik's routers, services and middlewares")),
    // Features that litequic lacks, or that need no key
    (
        "tls ssl ssldefault",
        Line(
            "use [[certificates]] with cert and key; TLS is always on; litequic certificate makes one for development",
        ),
    ),
    (
        "sslprotocols sslciphers ciphers minversion tlsversion sslminver",
        Line("use listen.tls_min, which is 1.3 or 1.2 over TCP"),
    ),
    (
        "insecureskipverify tlsinsecureskipverify proxysslverify sslverify verify skipverify insecure",
        Line("the origin's certificate is always verified; use origin.tls.ca to trust one of your own"),
    ),
    ("proxyssltrustedcertificate cafile rootca rootcas", Key("origin.tls.ca")),
    ("sslstapling ocsp stapling", Line("litequic does not staple OCSP responses")),
    ("sslearlydata allow0rtt earlydata zerortt", Line("litequic does not accept 0-RTT")),
    ("gzip brotli zstd compress compression encode", Line("litequic does not compress responses")),
    ("cache proxycache caching expires", Line("litequic does not cache responses")),
    ("ipallowlist ipwhitelist remoteip whitelist allowlist", Key("routes[].allow")),
    ("blacklist denylist", Key("routes[].deny")),
    ("jwt oidc", Line("use auth of a route, which asks an authentication server")),
    ("basicauth authbasic authbasicuserfile userlist httpauth", Key("routes[].users")),
    ("authrequest forwardauth extauthz", Key("routes[].auth")),
    ("cors", Line("use response_headers with access-control-allow-origin")),
    ("hsts stricttransportsecurity", Line("use response_headers with strict-transport-security")),
    ("waf modsecurity lua script plugin plugins", Line("litequic does not run scripts or plug-ins")),
    ("mirror mirroring shadow", Line("litequic does not mirror requests")),
    ("user group chroot", Line("litequic runs as the user that starts it")),
    (
        "daemon daemonize pid pidfile masterprocess",
        Line("litequic stays in the foreground; start it by a service manager such as systemd"),
    ),
    ("include import includes", Line("the configuration is one file; ${NAME} inserts an environment variable")),
    ("websocket websockets", Line("WebSocket is permitted by default; see upgrade of a route")),
    ("grpc h2c", Line("litequic sends only HTTP/1.1 to origins")),
    ("resolver resolvers dns", Line("litequic resolves names by the system's resolver, every 30 s")),
    ("watch", Line("use reload.on_change; by default litequic applies saved changes at once")),
];

/// Table, words that mean another key of it in the form of [`without_separators`], hint.
const TABLE_WORDS: &[(&str, &str, ForeignHint)] = &[
    ("listen", "port host http https quic address addr bind server", Key("listen.udp")),
    ("origin", "server servers address addresses host upstream backend target to", Key("origin.url")),
    ("origin", "timeout read readtimeout proxyreadtimeout responsetimeout", Key("timeouts.response_header")),
    ("origin", "connect", Key("timeouts.connect")),
    ("origin", "weight backup", Line("write it behind the URL of a server, as in url = \"http://10.0.0.5 weight=3\"")),
    ("origin", "send write", Key("timeouts.send")),
    ("origin", "keepalive keepalivetimeout", Key("origin.idle_timeout")),
    ("origin", "policy lbpolicy algorithm loadbalancing", Key("origin.balance")),
    ("origin", "retries retry proxynextupstream", Key("origin.retry_share")),
    ("routes[]", "location prefix uri url", Key("routes[].path_prefix")),
    ("routes[]", "upstream backend service proxypass reverseproxy to", Key("routes[].origin")),
    ("routes[]", "stripprefix", Key("routes[].rewrite_prefix")),
    ("timeouts", "read server backend origin", Key("timeouts.response_header")),
    ("timeouts", "client write", Key("timeouts.send")),
    ("timeouts", "keepalive", Key("timeouts.idle")),
    ("log", "file path output", Line("the log is written to standard error; for the access log use access_log.path")),
];

/// Values of other programs, in the form of [`without_separators`], and litequic's.
const FOREIGN_VALUES: &[(&str, &str)] = &[
    ("leastconn leastconnections leastrequest leasttime first", "least-requests"),
    ("rr staticrr wrr random", "round-robin"),
];

/// Returns the one of `values` that another program calls `value`.
pub(crate) fn foreign_value(value: &str, mut values: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let value = without_separators(value);
    let (_, own) = FOREIGN_VALUES.iter().find(|(words, _)| words.split(' ').any(|word| word == value))?;
    values.find(|known| known == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_schema;
    use serde_json::Value as Json;
    use std::collections::BTreeSet;

    /// Collects the paths of all keys, with tables as [`generic_path`] writes them.
    fn keys(schema: &Json, path: &str, all: &mut BTreeSet<(String, String)>) {
        for inner in ["items", "additionalProperties"].iter().filter_map(|key| schema.get(*key)) {
            let path = if schema.get("items").is_some() { format!("{path}[]") } else { "origin".into() };
            keys(inner, &path, all);
        }
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            keys(one, path, all);
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            all.insert((path.into(), name.clone()));
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            keys(inner, &path, all);
        }
    }

    fn all() -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        keys(&json_schema(), "", &mut all);
        all
    }

    /// A word for the whole file must not be a top-level key, which has precedence.
    fn words_of_tables() -> impl Iterator<Item = (&'static str, &'static str, ForeignHint)> {
        TABLE_WORDS.iter().copied().chain(FOREIGN_WORDS.iter().map(|(words, hint)| ("", *words, *hint)))
    }

    #[test]
    fn no_word_has_become_a_key() {
        let keys = all();
        for (place, words, _) in words_of_tables() {
            let is_taken = |name: &str| words.split(' ').any(|word| word == without_separators(name));
            let taken: Vec<_> = keys.iter().filter(|(table, name)| table == place && is_taken(name)).collect();
            assert!(taken.is_empty(), "{taken:?}");
        }
    }

    #[test]
    fn every_key_that_a_word_means_exists() {
        let keys = all();
        for (_, words, hint) in words_of_tables() {
            if let Key(path) = hint {
                let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
                assert!(keys.contains(&(table.into(), name.into())), "{words:?}: {path}");
            }
        }
    }

    #[test]
    fn words_are_plain_and_each_stands_once_for_a_table() {
        let mut seen = BTreeSet::new();
        for (place, words, _) in words_of_tables() {
            for word in words.split(' ') {
                assert_eq!(without_separators(word), word);
                assert!(seen.insert((place, word)), "{place}: {word}");
            }
        }
        assert!(seen.len() > 80, "{}", seen.len());
    }

    #[test]
    fn a_word_is_found_however_it_is_written() {
        for name in ["certificatesResolvers", "certificates_resolvers", "certificates-resolvers"] {
            assert_eq!(foreign_hint("", name), Some(Line("use [[acme]], which obtains certificates")), "{name}");
        }
        assert_eq!(foreign_hint("routes[12]", "gzip"), Some(Line("litequic does not compress responses")));
        assert_eq!(foreign_hint("origins.api", "timeout"), Some(Key("timeouts.response_header")));
        assert_eq!(foreign_hint("origins.api.health", "read"), None);
        assert_eq!(foreign_hint("routes[3]", "location"), Some(Key("routes[].path_prefix")));
        assert_eq!(foreign_hint("", "quantum"), None);
        assert!(foreign_hint("", "traefik").is_some());
        assert_eq!(foreign_hint("", "traefik.enable"), foreign_hint("origins.api", "labels"));
    }
}

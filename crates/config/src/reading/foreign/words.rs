//! Lists words of other programs' configurations that operators may use as keys, each with litequic's key, or with a
//! line and a document.

use crate::reading::examples::generic_path;
use ForeignHint::{Key, Line};

/// Hint for a foreign word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignHint {
    /// Path of litequic's key.
    Key(&'static str),
    /// A line, and a document with the anchor of a heading.
    Line(&'static str, &'static str),
}

/// Returns the hint for the unknown key `name` of the table `section`. Case and separators do not matter.
pub(crate) fn foreign_hint(section: &str, name: &str) -> Option<ForeignHint> {
    let (section, name) = (generic_path(section), without_separators(name));
    let of_section = FOREIGN_WORDS.iter().filter(|(place, ..)| *place == section);
    let mut all = of_section.chain(FOREIGN_WORDS.iter().filter(|(place, ..)| *place == ANYWHERE));
    all.find(|(_, words, _)| words.contains(&name.as_str())).map(|(_, _, hint)| *hint)
}

/// Returns a word in lower case without separators, so that `certificatesResolvers` equals `certificates_resolvers`.
pub(crate) fn without_separators(name: &str) -> String {
    name.chars().filter(|char| !matches!(char, '_' | '-')).flat_map(char::to_lowercase).collect()
}

const ANYWHERE: &str = "*";
const NGINX_GUIDE: &str = "docs/reference/directives.md#nginx";
const HAPROXY_GUIDE: &str = "docs/reference/directives.md#haproxy";
const ACME_GUIDE: &str = "docs/how-to/obtain-certificates-by-acme.md";
const CADDY_GUIDE: &str = "docs/reference/directives.md#caddy";
const TRAEFIK_GUIDE: &str = "docs/reference/directives.md#traefik";
const MISSING_FEATURES: &str = "docs/reference/directives.md#missing-gzip-cache-static-files-lua";
const OUT_OF_SCOPE: &str = "docs/limits.md#out-of-scope";

/// Table of the word, or [`ANYWHERE`]; words in the form of [`without_separators`]; hint.
const FOREIGN_WORDS: &[(&str, &[&str], ForeignHint)] = &[
    // nginx and Apache
    (ANYWHERE, &["server", "servers", "virtualhost"], Line("routes with host stand for nginx's server", NGINX_GUIDE)),
    (
        ANYWHERE,
        &["location", "locations"],
        Line("routes with path or path_prefix stand for nginx's location", NGINX_GUIDE),
    ),
    (ANYWHERE, &["upstream", "upstreams"], Line("[origins.NAME] with url stands for nginx's upstream", NGINX_GUIDE)),
    (ANYWHERE, &["proxypass", "grpcpass"], Line("[origin] with url stands for nginx's proxy_pass", NGINX_GUIDE)),
    (
        ANYWHERE,
        &["sslcertificate", "sslcertificatekey"],
        Line("[[certificates]] with cert and key stand for it", "docs/how-to/serve-several-certificates.md"),
    ),
    (
        ANYWHERE,
        &["sslclientcertificate", "sslverifyclient", "clientauth", "mtls"],
        Line("[client_certificates] stands for it", "docs/how-to/require-client-certificates.md"),
    ),
    (ANYWHERE, &["clientmaxbodysize", "maxrequestbodysize", "requestbody"], Key("limits.max_body_bytes")),
    (ANYWHERE, &["largeclientheaderbuffers", "clientheaderbuffersize"], Key("limits.max_header_bytes")),
    (
        ANYWHERE,
        &["tryfiles", "root", "alias", "index", "fileserver", "autoindex"],
        Line("litequic serves no files", MISSING_FEATURES),
    ),
    (
        ANYWHERE,
        &["addheader", "moreheaders", "headerdown", "httpresponse"],
        Line("response_headers stands for it", "docs/how-to/change-header-fields.md"),
    ),
    (
        ANYWHERE,
        &["proxysetheader", "headerup", "httprequest", "requestheader"],
        Line("request_headers stands for it", "docs/how-to/change-header-fields.md"),
    ),
    (
        ANYWHERE,
        &["header", "headers"],
        Line("request_headers or response_headers", "docs/how-to/change-header-fields.md"),
    ),
    (ANYWHERE, &["servername", "serveralias", "hostname", "domain", "domains"], Key("routes[].host")),
    (ANYWHERE, &["workerprocesses", "nbthread", "threads", "nbproc"], Key("listen.workers")),
    (ANYWHERE, &["workerconnections", "maxconn", "maxclients"], Key("limits.max_connections")),
    (
        ANYWHERE,
        &["workerrlimitnofile", "ulimitn", "fdhardlimit"],
        Line("litequic raises its limit itself", "docs/tuning.md#file-descriptors"),
    ),
    (ANYWHERE, &["events", "stream"], Line("litequic has no such block", NGINX_GUIDE)),
    (ANYWHERE, &["keepalivetimeout", "httpkeepalive", "idletimeout"], Key("timeouts.idle")),
    (ANYWHERE, &["keepaliverequests"], Key("limits.max_requests")),
    (ANYWHERE, &["proxyconnecttimeout", "connecttimeout", "dialtimeout"], Key("timeouts.connect")),
    (
        ANYWHERE,
        &["proxyreadtimeout", "responseheadertimeout", "responsetimeout", "readtimeout"],
        Key("timeouts.response_header"),
    ),
    (ANYWHERE, &["proxysendtimeout", "sendtimeout", "writetimeout"], Key("timeouts.send")),
    (ANYWHERE, &["clientheadertimeout", "readheadertimeout", "readheader"], Key("timeouts.request_header")),
    (ANYWHERE, &["clientbodytimeout"], Key("timeouts.request_body")),
    (
        ANYWHERE,
        &["errorlog", "logfile", "loglevel", "logging"],
        Line("the log goes to standard error, [log] has its level", "docs/operating.md#error-log"),
    ),
    (ANYWHERE, &["logformat", "customlog"], Key("access_log.format")),
    (ANYWHERE, &["errorpage", "errorfile", "handleerrors", "errordocument"], Key("error_pages")),
    (
        ANYWHERE,
        &["rewrite", "return", "redir", "redirects", "replacepath"],
        Line("redirect or rewrite_prefix of a route", "docs/how-to/rewrite-and-redirect.md"),
    ),
    (
        ANYWHERE,
        &["limitreq", "limitreqzone", "sticktable"],
        Line("rate_limit of a route stands for it", "docs/how-to/limit-requests-by-client.md"),
    ),
    (
        ANYWHERE,
        &["limitconn", "limitconnzone"],
        Line("[limits] shares connections between sources", "docs/how-to/limit-connections-by-source.md"),
    ),
    (
        ANYWHERE,
        &["limitrate", "bandwidth", "throttle"],
        Line("litequic limits no client's bandwidth", MISSING_FEATURES),
    ),
    (ANYWHERE, &["setrealipfrom", "realipheader", "trustedips", "forwardedheaders"], Key("trusted_proxies")),
    (
        ANYWHERE,
        &["fastcgipass", "uwsgipass", "scgipass", "phpfastcgi", "php"],
        Line("litequic speaks HTTP/1.1 alone to origins", MISSING_FEATURES),
    ),
    (
        ANYWHERE,
        &["proxybuffering", "proxyrequestbuffering", "buffering"],
        Line("bodies are streamed, never buffered as a whole", NGINX_GUIDE),
    ),
    (
        ANYWHERE,
        &["http2", "http1", "alpn", "protocols"],
        Line("HTTP/1.1, HTTP/2 and HTTP/3 are always offered", "docs/proxying.md#alt-svc-and-redirects-to-https"),
    ),
    (
        ANYWHERE,
        &["map", "if", "regex", "splitclients"],
        Line("match of a route has conditions", "docs/how-to/route-by-host-and-path.md"),
    ),
    (
        ANYWHERE,
        &["stubstatus", "stats", "metrics", "prometheus", "ping", "api", "dashboard"],
        Line("the admin listener has metrics and status", "docs/operating.md#admin-api-and-health-probes"),
    ),
    // HAProxy
    (ANYWHERE, &["frontend", "frontends", "bind"], Line("[listen] stands for HAProxy's frontend", HAPROXY_GUIDE)),
    (ANYWHERE, &["backend", "backends"], Line("[origins.NAME] with url stands for HAProxy's backend", HAPROXY_GUIDE)),
    (ANYWHERE, &["defaultbackend", "usebackend", "acl"], Line("routes select an origin", HAPROXY_GUIDE)),
    (ANYWHERE, &["global", "defaults", "option"], Line("litequic has no such section", HAPROXY_GUIDE)),
    (ANYWHERE, &["mode", "tcp"], Line("litequic proxies HTTP alone", MISSING_FEATURES)),
    (ANYWHERE, &["httpchk", "healthcheck", "check"], Key("origin.health")),
    // Caddy
    (ANYWHERE, &["reverseproxy"], Line("[origin] with url stands for Caddy's reverse_proxy", CADDY_GUIDE)),
    (
        ANYWHERE,
        &["handle", "handlepath", "site", "sites"],
        Line("routes with host and path_prefix stand for it", CADDY_GUIDE),
    ),
    (
        ANYWHERE,
        &["email", "letsencrypt", "acmeca", "autohttps", "certificatesresolvers", "certresolver"],
        Line("[[acme]] obtains certificates", ACME_GUIDE),
    ),
    // Traefik
    (ANYWHERE, &["entrypoints", "entrypoint", "address", "addresses"], Key("listen.udp")),
    (ANYWHERE, &["middlewares", "middleware"], Line("keys of a route stand for middlewares", TRAEFIK_GUIDE)),
    (
        ANYWHERE,
        &["routers", "router", "rule", "priority"],
        Line("[[routes]] with host and path_prefix stand for routers", TRAEFIK_GUIDE),
    ),
    (
        ANYWHERE,
        &["services", "service", "loadbalancer"],
        Line("[origins.NAME] with url stands for services", TRAEFIK_GUIDE),
    ),
    (
        ANYWHERE,
        &["providers", "docker", "labels"],
        Line("the configuration is one file, reloaded when it changes", TRAEFIK_GUIDE),
    ),
    (ANYWHERE, &["http", "https"], Line("litequic has no such table", "docs/configuration.md#file-format")),
    // Features that litequic lacks, or that need no key
    (
        ANYWHERE,
        &["tls", "ssl", "ssldefault"],
        Line(
            "[[certificates]] has certificate and key; TLS 1.3 is always on",
            "docs/how-to/serve-several-certificates.md",
        ),
    ),
    (
        ANYWHERE,
        &["sslprotocols", "sslciphers", "ciphers", "minversion", "tlsversion", "sslminver"],
        Line("listen.tls_min: 1.3 or 1.2, over TCP", "docs/limits.md#protocols"),
    ),
    (ANYWHERE, &["sslstapling", "ocsp", "stapling"], Line("litequic staples no OCSP responses", MISSING_FEATURES)),
    (
        ANYWHERE,
        &["sslearlydata", "allow0rtt", "earlydata", "zerortt"],
        Line("litequic accepts no 0-RTT", "docs/limits.md#protocols"),
    ),
    (
        ANYWHERE,
        &["gzip", "brotli", "zstd", "compress", "compression", "encode"],
        Line("litequic compresses nothing", OUT_OF_SCOPE),
    ),
    (ANYWHERE, &["cache", "proxycache", "caching", "expires"], Line("litequic caches nothing", OUT_OF_SCOPE)),
    (ANYWHERE, &["ipallowlist", "ipwhitelist", "remoteip", "whitelist", "allowlist"], Key("routes[].allow")),
    (ANYWHERE, &["blacklist", "denylist"], Key("routes[].deny")),
    (
        ANYWHERE,
        &["jwt", "oidc"],
        Line("routes[].auth has another server decide", "docs/how-to/sign-in-with-oauth2-proxy.md"),
    ),
    (ANYWHERE, &["basicauth", "authbasic", "authbasicuserfile", "userlist", "httpauth"], Key("routes[].users")),
    (ANYWHERE, &["authrequest", "forwardauth", "extauthz"], Key("routes[].auth")),
    (
        ANYWHERE,
        &["cors"],
        Line("response_headers with access-control-allow-origin", "docs/how-to/change-header-fields.md"),
    ),
    (
        ANYWHERE,
        &["hsts", "stricttransportsecurity"],
        Line("response_headers with strict-transport-security", "docs/how-to/change-header-fields.md"),
    ),
    (
        ANYWHERE,
        &["waf", "modsecurity", "lua", "script", "plugin", "plugins"],
        Line("litequic runs no scripts or plug-ins", OUT_OF_SCOPE),
    ),
    (ANYWHERE, &["mirror", "mirroring", "shadow"], Line("litequic mirrors no requests", MISSING_FEATURES)),
    (
        ANYWHERE,
        &["user", "group", "chroot"],
        Line("litequic runs as the user that starts it", "docs/how-to/run-under-systemd.md"),
    ),
    (
        ANYWHERE,
        &["daemon", "daemonize", "pid", "pidfile", "masterprocess"],
        Line("litequic stays in the foreground; a service manager runs it", "docs/how-to/run-under-systemd.md"),
    ),
    (
        ANYWHERE,
        &["include", "import", "includes"],
        Line("the configuration is one file; ${NAME} is an environment variable", "docs/configuration.md#file-format"),
    ),
    (
        ANYWHERE,
        &["websocket", "websockets"],
        Line("upgrade of a route permits WebSocket by default", "docs/how-to/proxy-websockets.md"),
    ),
    (ANYWHERE, &["grpc", "h2c"], Line("litequic speaks HTTP/1.1 alone to origins", OUT_OF_SCOPE)),
    (
        ANYWHERE,
        &["resolver", "resolvers", "dns"],
        Line("names are resolved by the system, each origin.dns_interval", "docs/limits.md#platform"),
    ),
    (ANYWHERE, &["watch"], Line("saved changes are applied at once", "docs/operating.md#reload")),
    // Words that mean another key of their table
    ("listen", &["port", "host", "http", "https", "quic", "address", "addr", "bind", "server"], Key("listen.udp")),
    (
        "origin",
        &["server", "servers", "address", "addresses", "host", "upstream", "backend", "target", "to"],
        Key("origin.url"),
    ),
    (
        "origin",
        &["timeout", "read", "readtimeout", "proxyreadtimeout", "responsetimeout"],
        Key("timeouts.response_header"),
    ),
    ("origin", &["connect"], Key("timeouts.connect")),
    ("origin", &["send", "write"], Key("timeouts.send")),
    ("origin", &["keepalive", "keepalivetimeout"], Key("origin.idle_timeout")),
    ("origin", &["policy", "lbpolicy", "algorithm", "loadbalancing"], Key("origin.balance")),
    ("origin", &["retries", "retry", "proxynextupstream"], Key("origin.retry_share")),
    ("routes[]", &["location", "prefix", "uri", "url"], Key("routes[].path_prefix")),
    ("routes[]", &["upstream", "backend", "service", "proxypass", "reverseproxy", "to"], Key("routes[].origin")),
    ("routes[]", &["stripprefix"], Key("routes[].rewrite_prefix")),
    ("timeouts", &["read", "server", "backend", "origin"], Key("timeouts.response_header")),
    ("timeouts", &["client", "write"], Key("timeouts.send")),
    ("timeouts", &["keepalive"], Key("timeouts.idle")),
    (
        "log",
        &["file", "path", "output"],
        Line(
            "the log goes to standard error; access_log.path is that of the access log",
            "docs/operating.md#error-log",
        ),
    ),
];

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

    #[test]
    fn no_word_has_become_a_key() {
        let keys = all();
        for (place, words, _) in FOREIGN_WORDS {
            // A word for the whole file must not be a top-level key, which has precedence.
            let place = if *place == ANYWHERE { "" } else { place };
            let taken: Vec<_> = keys
                .iter()
                .filter(|(table, name)| table == place && words.contains(&&*without_separators(name)))
                .collect();
            assert!(taken.is_empty(), "{taken:?}");
        }
    }

    #[test]
    fn every_key_that_a_word_means_exists() {
        let keys = all();
        for (_, words, hint) in FOREIGN_WORDS {
            if let Key(path) = hint {
                let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
                assert!(keys.contains(&(table.into(), name.into())), "{words:?}: {path}");
            }
        }
    }

    #[test]
    fn words_are_plain_and_each_stands_once_for_a_table() {
        let mut seen = BTreeSet::new();
        for (place, words, _) in FOREIGN_WORDS {
            for word in *words {
                assert_eq!(without_separators(word), *word);
                assert!(seen.insert((place, word)), "{place}: {word}");
            }
        }
        assert!(seen.len() > 80, "{}", seen.len());
    }

    #[test]
    fn a_word_is_found_however_it_is_written() {
        let leads_to = |section, name, page| matches!(foreign_hint(section, name), Some(Line(_, to)) if to == page);
        for name in ["certificatesResolvers", "certificates_resolvers", "certificates-resolvers"] {
            assert!(leads_to("", name, ACME_GUIDE), "{name}");
        }
        assert!(leads_to("routes[12]", "gzip", OUT_OF_SCOPE));
        assert_eq!(foreign_hint("origins.api", "timeout"), Some(Key("timeouts.response_header")));
        assert_eq!(foreign_hint("origins.api.health", "read"), None);
        assert_eq!(foreign_hint("routes[3]", "location"), Some(Key("routes[].path_prefix")));
        assert_eq!(foreign_hint("", "quantum"), None);
    }
}

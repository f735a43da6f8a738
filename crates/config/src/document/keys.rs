//! Reads the top level of the file, whose tables have modules of their own. The schema and the suggestions for misspelt
//! keys are made of the keys read here, so no key is listed twice.

#[cfg(test)]
mod pattern_tests;

use crate::access_log::{self, AccessLog};
use crate::acme::{self, Acme};
use crate::admin::{self, Admin};
use crate::certificates::{self, CertificateFiles, ClientCertificates};
use crate::config::Config;
use crate::laboratory::Laboratory;
use crate::limits::{self, Limits, Sources};
use crate::listen::{self, Listen};
use crate::log::LogConfig;
use crate::origin::{self, OriginConfig};
use crate::reading::name_kinds::{MAX_NETWORKS, network_kind};
use crate::reading::rule_readers;
use crate::reading::section::ConfigSection;
use crate::reading::table::{ConfigKey, KeyTable};
use crate::reload::ReloadConfig;
use crate::route::{self, EarlierRoutes, RouteConfig, RouteContext};
use crate::server_id::ServerId;
use crate::timeouts::{self, Timeouts};
use crate::traces::{self, Traces};
use crate::transport::{self, LiteQuic};
use std::collections::BTreeSet;

/// Every table of keys, by its head in the file.
const KEY_TABLES: &[(&str, &[ConfigKey])] = &[
    ("listen", Listen::KEYS),
    ("listen.server_id", ServerId::KEYS),
    ("certificates[]", CertificateFiles::KEYS),
    ("acme[]", Acme::KEYS),
    ("client_certificates", ClientCertificates::KEYS),
    ("origin", OriginConfig::KEYS),
    ("routes[]", RouteConfig::KEYS),
    ("limits", Limits::KEYS),
    ("limits", Sources::KEYS),
    ("timeouts", Timeouts::KEYS),
    ("litequic", LiteQuic::KEYS),
    ("admin", Admin::KEYS),
    ("reload", ReloadConfig::KEYS),
    ("log", LogConfig::KEYS),
    ("access_log", AccessLog::KEYS),
    ("traces", Traces::KEYS),
];

fn all_keys() -> impl Iterator<Item = (String, &'static ConfigKey)> {
    let named = |(table, keys): &(&str, &'static [ConfigKey])| {
        let table = (*table).to_owned();
        let keys = keys.iter().filter(|key| key.is_key);
        keys.map(move |key| (format!("{table}.{}", key.name), key)).collect::<Vec<_>>()
    };
    KEY_TABLES.iter().flat_map(named)
}

/// Returns the keys that need a restart: sockets, threads and token keys are created once, and log collectors are
/// configured for one log format.
pub fn restart_keys() -> Vec<String> {
    all_keys().filter(|(_, key)| key.needs_restart).map(|(path, _)| path).collect()
}

/// Returns the metric that counts when the limit of `key` is reached.
pub fn limit_metric(key: &str) -> Option<String> {
    all_keys().find(|(path, _)| path == key).and_then(|(_, key)| key.metric_name())
}

/// Reads `[[certificates]]` and `[[acme]]`, of which at least one entry is required.
fn read_server_certificates(root: &mut ConfigSection<'_>, listen: &Listen) -> (Vec<CertificateFiles>, Vec<Acme>) {
    let certificates = root.read_table_array(
        "certificates",
        "Certificates. A client that requests none of their names gets the first one. If several have the same name, \
         a client gets the cheapest one whose signature algorithm it supports.",
        CertificateFiles::read_table,
    );
    let mut hosts = acme::SeenHosts::default();
    let about = "Certificates that litequic obtains and renews by ACME (RFC 8555): one for each host.";
    let acme = root.read_table_array("acme", about, |section| acme::read_acme_table(section, listen, &mut hosts));
    if !root.has_key("certificates") {
        if acme.is_empty() {
            root.note_missing(
                "certificates",
                "[[certificates]] with cert and key, or [[acme]]: QUIC is always encrypted",
            );
        }
    } else if root.is_empty_list("certificates") {
        root.note_fault("certificates", "has no certificate");
    }
    (certificates, acme)
}

/// Reads the whole file. If there are faults, the result only serves to find more.
pub(crate) fn read_config(root: &mut ConfigSection<'_>) -> Config {
    let listen = root.read_subtable("listen", "The listeners for clients.", listen::read_listen);
    let (certificates, mut acme) = read_server_certificates(root, &listen);
    let about = "Client certificates: whether they are required, and the certificate authorities that sign them.";
    let (client_certificates, has_ca) =
        root.read_subtable("client_certificates", about, certificates::read_client_certificates);

    let has_origin = root.has_key("origin");
    let mut cookies = BTreeSet::new();
    let about = "The origin of every request that matches no route.";
    let simple = root.read_subtable("origin", about, |section| origin::read_origin(section, &mut cookies));
    let mut origins = root.read_named_tables("origins", "Origins, for routes to name.", |name, section| {
        if has_origin && name == Config::ORIGIN_NAME {
            section.note_table_fault("is reserved for [origin]", "another name");
        }
        origin::read_origin(section, &mut cookies)
    });
    if has_origin {
        origins.push((Config::ORIGIN_NAME.into(), simple));
    }

    let about = "Rules for the header of every request, as in a route. A route's own rules for a field replace the rules for that field here.";
    let request_headers = rule_readers::read_request_headers(root, "request_headers", about);
    let about = "Rules for the header of every response, as in a route, also for litequic's own answers to requests without a \
        route. A route's own rules for a field replace the rules for that field here. They do not apply to answers of \
        `listen.redirect`.";
    let response_headers = rule_readers::read_response_headers(root, "response_headers", about);

    let about = "File with the body of litequic's own error responses with this status, unless the route has one: a number from \
        `400` to `599`, or `4xx`, `5xx`. A number has precedence over its class. Read at the start and on a reload, 256 KiB at \
        most; the extension of its name decides its `Content-Type`.";
    let error_pages = rule_readers::read_error_pages(root, "error_pages", about);
    // A route may name an `[origin.NAME]` that was meant as `[origins.NAME]`; that table has its own fault.
    let is_unknown = |name: &&str| OriginConfig::KEYS.iter().all(|key| key.name != *name);
    let meant = root.table_names_within("origin").filter(is_unknown);
    let names: BTreeSet<_> = origins.iter().map(|(name, _)| name.as_str()).chain(meant).collect();
    let mut seen = EarlierRoutes::default();
    let around = RouteContext { origins: &names, has_ca, has_pages: root.has_entries("error_pages") };
    let about = "Routes: which origin serves which requests. The host decides first, an exact one before `*.`; then the path, an \
        exact one before the longest prefix; then the conditions of `match`. Between routes that are equal in all of these, the \
        order in the file decides.";
    let mut routes = root.read_table_array("routes", about, |section| route::read_route(section, &around, &mut seen));
    if has_origin && !seen.has_catch_all() {
        routes.push(RouteConfig::catch_all(Config::ORIGIN_NAME));
    }
    if !has_origin && !root.has_key("routes") {
        root.note_missing("origin", "[origin] with url, or [[routes]] and [origins.NAME]");
    } else if routes.is_empty() && root.is_empty_list("routes") {
        root.note_fault("routes", "has no route");
    }

    let (mut limits, mut sources) = root.read_subtable("limits", "Limits for clients.", limits::read_limits);
    let timeouts = root.read_subtable("timeouts", "Timeouts.", |section| {
        let timeouts = timeouts::read_timeouts(section);
        if let Some(problem) =
            listen.server_id.as_ref().and_then(|server_id| server_id.idle_timeout_fault(timeouts.idle))
        {
            section.note_fault("idle", problem);
        }
        timeouts
    });
    let litequic = root.read_subtable("litequic", "How datagrams are received and sent.", transport::read_transport);
    let admin = root.read_subtable("admin", "Administration interface.", |section| admin::read_admin(section, &listen));
    let reload = root.read_subtable("reload", "How litequic reacts to changed files.", ReloadConfig::read_table);
    let log = root.read_subtable("log", "The log.", LogConfig::read_table);
    let access_log =
        root.read_subtable("access_log", "The access log: a line for each request.", access_log::read_access_log);
    let about = "Traces: a span for each request, and one for each attempt at its origin, sent to a collector by OTLP.";
    let traces = root.read_subtable("traces", about, traces::read_traces);
    let laboratory = root.read_hidden_table("laboratory", Laboratory::read_table);
    laboratory.apply_overrides(&mut limits, &mut sources, &mut acme, origins.iter_mut().map(|(_, origin)| origin));
    let about = "Networks of trusted proxies: litequic appends to the Forwarded and X-Forwarded-* fields of their \
                 requests instead of removing them.";
    let trusted_proxies =
        root.list_values("trusted_proxies", network_kind(), 0..=MAX_NETWORKS, Some(&[]), about).unwrap_or_default();
    Config {
        listen,
        certificates,
        acme,
        client_certificates,
        routes,
        request_headers,
        response_headers,
        error_pages,
        // An origin without servers has a fault.
        origins: origins.into_iter().filter(|(_, origin)| !origin.servers.is_empty()).collect(),
        limits,
        sources,
        timeouts,
        litequic,
        admin,
        reload,
        log,
        access_log,
        traces,
        trusted_proxies,
        laboratory,
    }
}

//! The file's content: the top level, whose tables are in files of their names. The schema and the search for a
//! misspelt key use what is read here, so no key is listed twice.

#[cfg(test)]
mod patterns;

use crate::access::{self, AccessLog};
use crate::acme::{self, Acme, Eab};
use crate::admin::{self, Admin};
use crate::certificates::{self, CertificateFiles, ClientCertificates};
use crate::config::Config;
use crate::laboratory::Laboratory;
use crate::limits::{self, Limits, Sources};
use crate::listen::{self, Listen};
use crate::log::Log;
use crate::origin::{self, Origin, OriginServer};
use crate::reading::names::{MAX_NETWORKS, network};
use crate::reading::rule_readers;
use crate::reading::section::Section;
use crate::reading::table::{ConfigKey, KeyTable};
use crate::reload::Reload;
use crate::route::{self, Around, Route, Seen};
use crate::server_id::ServerId;
use crate::timeouts::Timeouts;
use crate::traces::{self, Traces};
use crate::transport::{self, LiteQuic};
use std::collections::BTreeSet;

/// Every table of keys by the head that it has in the file.
const TABLES: &[(&str, &[ConfigKey])] = &[
    ("listen", Listen::KEYS),
    ("listen.server_id", ServerId::KEYS),
    ("certificates[]", CertificateFiles::KEYS),
    ("acme[]", Acme::KEYS),
    ("acme[].eab", Eab::KEYS),
    ("client_certificates", ClientCertificates::KEYS),
    ("origin", Origin::KEYS),
    ("origin.url[]", OriginServer::KEYS),
    ("routes[]", Route::KEYS),
    ("limits", Limits::KEYS),
    ("limits", Sources::KEYS),
    ("timeouts", Timeouts::KEYS),
    ("litequic", LiteQuic::KEYS),
    ("admin", Admin::KEYS),
    ("reload", Reload::KEYS),
    ("log", Log::KEYS),
    ("access_log", AccessLog::KEYS),
    ("traces", Traces::KEYS),
];

fn all() -> impl Iterator<Item = (String, &'static ConfigKey)> {
    let named = |(table, keys): &(&str, &'static [ConfigKey])| {
        let table = (*table).to_owned();
        let keys = keys.iter().filter(|key| key.is_key);
        keys.map(move |key| (format!("{table}.{}", key.name), key)).collect::<Vec<_>>()
    };
    TABLES.iter().flat_map(named)
}

/// The keys whose change waits for a restart: sockets, threads and token keys are created once, and log collectors are
/// configured for the log's format.
pub fn needs_restart() -> Vec<String> {
    all().filter(|(_, key)| key.needs_restart).map(|(path, _)| path).collect()
}

/// The metric that counts when what `key` bounds is reached.
pub fn metric(key: &str) -> Option<String> {
    all().find(|(path, _)| path == key).and_then(|(_, key)| key.metric())
}

/// The certificates of files, and those that litequic obtains: at least one of either.
fn server_certificates(root: &mut Section<'_>, listen: &Listen) -> (Vec<CertificateFiles>, Vec<Acme>) {
    let certificates = root.tables(
        "certificates",
        "Certificates; the first is served to a client that names none of the others' names. Of several with one name a client gets the \
         cheapest whose signature it verifies.",
        CertificateFiles::read,
    );
    let mut hosts = acme::SeenHosts::default();
    let about = "Certificates that litequic obtains and renews by itself, by ACME (RFC 8555): one for each host.";
    let acme = root.tables("acme", about, |section| acme::read(section, listen, &mut hosts));
    if !root.has("certificates") {
        if acme.is_empty() {
            root.missing("certificates", "[[certificates]] with cert and key, or [[acme]]: QUIC is always encrypted");
        }
    } else if root.is_empty_list("certificates") {
        root.fault("certificates", "has no certificate", None, None);
    }
    (certificates, acme)
}

/// The whole file. If faults were noted it only serves to find more.
pub(crate) fn config(root: &mut Section<'_>) -> Config {
    let listen = root.table("listen", "The listeners for clients.", listen::read);
    let (certificates, acme) = server_certificates(root, &listen);
    let about = "Whether clients present certificates, and the certificate authorities that verify them.";
    let (client_certificates, has_ca) = root.table("client_certificates", about, certificates::read);

    let has_origin = root.has("origin");
    let mut cookies = BTreeSet::new();
    let about = "The origin of every request that matches no route.";
    let simple = root.table("origin", about, |section| origin::read(section, &mut cookies));
    let mut origins = root.named_tables("origins", "Origins, for routes to name.", |name, section| {
        if has_origin && name == Config::ORIGIN {
            section.fault_here("is reserved for [origin]", "another name");
        }
        origin::read(section, &mut cookies)
    });
    if has_origin {
        origins.push((Config::ORIGIN.into(), simple));
    }

    let about = "Rules for the header of every request, as in a route. A route's own rules for a field replace the rules for that field here.";
    let request_headers = rule_readers::request_headers(root, "request_headers", about);
    let about = "Rules for the header of every response, as in a route, also for litequic's own answers to requests without a \
        route. A route's own rules for a field replace the rules for that field here. They do not apply to answers of \
        `listen.redirect`.";
    let response_headers = rule_readers::response_headers(root, "response_headers", about);

    let about = "File with the body of litequic's own error responses with this status, unless the route has one: a number from \
        `400` to `599`, or `4xx`, `5xx`. A number has precedence over its class. Read at the start and on a reload, 256 KiB at \
        most; the extension of its name decides its `Content-Type`.";
    let error_pages = rule_readers::error_pages(root, "error_pages", about);
    // A route may name what was meant by `[origin.NAME]`, which has its own fault.
    let is_unknown = |name: &&str| Origin::KEYS.iter().all(|key| key.name != *name);
    let meant = root.names_within("origin").filter(is_unknown);
    let names: BTreeSet<_> = origins.iter().map(|(name, _)| name.as_str()).chain(meant).collect();
    let mut seen = Seen::default();
    let around = Around { origins: &names, has_ca, has_pages: root.has_entries("error_pages") };
    let about = "Routes: which origin serves which requests. The host decides first, an exact one before `*.`; then the path, an \
        exact one before the longest prefix; then the conditions of `match`. Between routes that are equal in all of these, the \
        order in the file decides.";
    let mut routes = root.tables("routes", about, |section| route::read(section, &around, &mut seen));
    if has_origin && !seen.has_catch_all() {
        routes.push(Route::catch_all(Config::ORIGIN));
    }
    if !has_origin && !root.has("routes") {
        root.missing("origin", "[origin] with url, or [[routes]] and [origins.NAME]");
    } else if routes.is_empty() && root.is_empty_list("routes") {
        root.fault("routes", "has no route", None, None);
    }

    let (mut limits, mut sources) = root.table("limits", "Limits for clients.", limits::read);
    let timeouts = root.table("timeouts", "Timeouts.", |section| {
        let timeouts = Timeouts::read(section);
        if let Some(problem) = listen.server_id.as_ref().and_then(|server_id| server_id.outlasted_by(timeouts.idle)) {
            section.fault("idle", &problem, None, None);
        }
        timeouts
    });
    if timeouts.lingering.is_zero() {
        limits.max_lingering_bytes = 0;
    }
    let litequic = root.table("litequic", "How datagrams are received and sent.", transport::read);
    let admin = root.table("admin", "Administration interface.", |section| admin::read(section, &listen));
    let reload = root.table("reload", "What a changed file does by itself.", Reload::read);
    let log = root.table("log", "The log.", Log::read);
    let access_log = root.table("access_log", "The access log: a line for each request.", access::read);
    let about = "Traces: a span for each request, and one for each attempt at its origin, sent to a collector by OTLP.";
    let traces = root.table("traces", about, traces::read);
    let laboratory = root.table_beside_schema("laboratory", Laboratory::read);
    laboratory.apply(&mut limits, &mut sources, origins.iter_mut().map(|(_, origin)| origin));
    let about = "Networks whose Forwarded and X-Forwarded-* fields are appended to instead of removed.";
    let trusted_proxies = root.list("trusted_proxies", network(), 0..=MAX_NETWORKS, &[], about).unwrap_or_default();
    Config {
        listen,
        certificates,
        acme,
        client_certificates,
        routes,
        request_headers,
        response_headers,
        error_pages,
        // One without a server has a fault.
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

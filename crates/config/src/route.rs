//! Defines `[[routes]]`: matching requests, their targets, and changes on the way.

use super::auth::{Auth, format_auth, read_auth};
use super::certificates::{EXPECTED_CA, VerifyMode};
use super::fixed_response::{FixedResponse, read_respond};
use super::match_conditions::MatchConditions;
use super::rate_limit::{RateLimit, rate_limit_kind};
use super::redirect::{Redirect, redirect_kind};
use super::rules::{ErrorPages, HeaderRules, RouteTimeouts, body_media_type};
use crate::reading::changes::Changes;
use crate::reading::fault::{nearest_word, quote_line};
use crate::reading::name_kinds::{
    MAX_NETWORKS, authority_kind, exact_path_kind, host_pattern_kind, network_kind, origin_name_kind, path_kind,
    path_prefix_kind, route_name_kind, upgrade_kind,
};
use crate::reading::rule_readers;
use crate::reading::section::ConfigSection;
use crate::reading::table::{
    KeyReader, KeyTable as _, TableReader, custom_key, file_key, keys, list_key, optional_key, optional_list_key,
};
use crate::reading::value_kinds::{BODY_BYTES_RANGE, ValueError, boolean_kind, one_of, or_named, size_kind};
use http::{HeaderName, header};
use litequic_base::network::Network;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Number of names in a message at most.
const MAX_LISTED_ORIGINS: usize = 16;

keys! {
    /// A table of `[[routes]]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RouteConfig {
        /// Name of the route in logs, metrics and `litequic ctl`. By default it is made of host, path and `match`.
        name: Option<String> = None, optional_key(route_name_kind(), "made of host and path");

        /// Host of the request, compared without case, port and trailing dot; `*.` stands for one or more labels. By
        /// default every host.
        host: Option<String> = None, optional_key(host_pattern_kind(), "any");

        /// Beginning of the path, by whole segments: `/live` matches `/live/1` and not `/lively`.
        path_prefix: String = "/".into(), path_prefix_kind();

        /// Exact path, in place of `path_prefix`. A slash at its end makes a difference.
        path: Option<String> = None, optional_key(exact_path_kind(), "none");

        /// Further conditions for a request. Of two routes with the same host and path, the one with conditions is
        /// tried first.
        conditions("match"): MatchConditions = MatchConditions::default(), TableReader;

        /// Origin of the route: a name of `[origins.NAME]`, or `origin`. Required without `redirect` and `respond`.
        target("origin"): RouteTarget = RouteTarget::Origin(String::new()), TargetReader;

        /// Replacement of `path_prefix` in the path: with `/api` and `/`, `/api/users` becomes `/users`.
        rewrite_prefix: Option<String> = None, optional_key(path_prefix_kind(), "none");

        /// The `Host` that is sent to the origin. By default the client's.
        rewrite_host: Option<String> = None, optional_key(authority_kind(), "the client's");

        // No stream can carry a longer body.
        /// Maximum bytes of a request's body on this route, in place of `limits.max_body_bytes`. A client that sends
        /// more gets 413.
        max_body_bytes: Option<u64> = None, optional_key(or_named(&[("none", u64::MAX)], size_kind(BODY_BYTES_RANGE)), "limits.max_body_bytes");

        /// Whether clients of this route present a certificate, in place of `client_certificates.verify`.
        client_certificate: Option<VerifyMode> = None, optional_key(one_of(VerifyMode::NAMES), "client_certificates.verify");

        /// Networks whose clients get 403 on this route. Behind one of `trusted_proxies`, the client is the one that
        /// the proxy names, as for `rate_limit`.
        deny: Vec<Network> = Vec::new(), list_key(network_kind(), 0..=MAX_NETWORKS);

        /// Networks whose clients may use this route, except those in `deny`. Clients of other networks get 403. By
        /// default every network.
        allow: Option<Vec<Network>> = None, optional_list_key(network_kind(), 1..=MAX_NETWORKS, "any");

        /// File with the users of this route and the hashes of their passwords, a line `name:hash` each, made by
        /// `htpasswd -B` or `litequic password`. Requests without a valid password get 401, with the route's `name` as
        /// the realm, or `restricted`. Read at the start and when it changes, 1 MiB at most.
        users: Option<PathBuf> = None, file_key(path_kind("the path of a file, such as \"users.htpasswd\""));

        /// Sign-in by another server, which decides about each request of this route before its body is read.
        auth: Option<Auth> = None, custom_key(read_auth, format_auth);

        /// Rules for the request's header: `remove`, then `set`, then `add`. A rule applies to every spelling of its
        /// field (`x_user` for `X-User`), and removes it from trailers. Fields that litequic sets are excluded: `Host`
        /// (use `rewrite_host`), `Forwarded`, `X-Forwarded-*`, `X-Request-ID`, `Client-Cert`; so are
        /// connection-specific and framing fields.
        request_headers: HeaderRules = HeaderRules::default(),
            custom_key(rule_readers::read_request_headers, rule_readers::format_header_rules);

        /// Rules for the response's header, also for litequic's own answers: `remove`, then `set`, then `add`. Fields
        /// that are removed or set are removed from trailers. `Alt-Svc` and connection-specific and framing fields are
        /// excluded.
        response_headers: HeaderRules = HeaderRules::default(),
            custom_key(rule_readers::read_response_headers, rule_readers::format_header_rules);

        /// Timeouts of this route, in place of those of `[timeouts]`.
        timeouts: RouteTimeouts = RouteTimeouts::default(), TableReader;

        /// Rate limit of this route: requests that are permitted in a period, over all workers together; further ones
        /// get 429 with `Retry-After`. `burst` is the number of requests that may come at once after a pause, by
        /// default the same number. Requests of an IPv4 address or an IPv6 /64 are counted together (`by=address`), or
        /// all of the route (`by=route`).
        rate_limit: Option<RateLimit> = None, optional_key(rate_limit_kind(), "none");

        /// File with the body of this route's error responses with this status, in place of `[error_pages]`: a number
        /// from `400` to `599`, or `4xx`, `5xx`. A number has precedence over its class.
        error_pages: ErrorPages = ErrorPages::default(), custom_key(rule_readers::read_error_pages, rule_readers::format_error_pages);

        /// Whether error pages, the route's and those of `[error_pages]`, also replace the origin's error responses.
        /// Requires an error page.
        intercept_errors: bool = false, boolean_kind();

        // Other proxies permit WebSocket by default.
        /// Protocols to which a client and the origin may switch, over HTTP/1.1, HTTP/2 and HTTP/3. `[]` permits none.
        upgrade: Vec<String> = vec!["websocket".into()], list_key(upgrade_kind(), 0..=Self::MAX_UPGRADES);
    }
}

impl RouteConfig {
    /// Number of protocols: each `Upgrade` field is compared with all of them.
    pub const MAX_UPGRADES: usize = 16;

    /// Whether the route decides which clients may use it.
    pub fn has_access_rules(&self) -> bool {
        self.users.is_some()
            || self.auth.is_some()
            || self.allow.is_some()
            || !self.deny.is_empty()
            || self.client_certificate == Some(VerifyMode::Required)
    }

    /// Returns the names of `routes` in logs and metrics: the configured name, or host (`*` for any), prefix (or `=`
    /// and path), and conditions. Of several equal names all but the first get a number.
    pub fn unique_route_names(routes: &[Self]) -> Vec<String> {
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let name = |route: &Self| {
            let name = route.name.clone().unwrap_or_else(|| route.derived_route_name());
            let count = taken.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 { name } else { format!("{name}#{count}") }
        };
        routes.iter().map(name).collect()
    }

    fn derived_route_name(&self) -> String {
        let host = self.host.as_deref().unwrap_or("*");
        match &self.path {
            Some(path) => format!("{host}={path}{}", self.conditions),
            None => format!("{host}{}{}", self.path_prefix, self.conditions),
        }
    }

    /// Returns `path_prefix` without its last slash: `/live/` equals `/live`, and `/` is empty.
    pub fn normalized_prefix(&self) -> &str {
        self.path_prefix.trim_end_matches('/')
    }

    /// Creates a route for every request to `origin`.
    pub fn catch_all(origin: &str) -> Self {
        Self { target: RouteTarget::Origin(origin.into()), ..Self::default() }
    }

    /// Returns the name of the origin in [`Config::origins`](super::Config::origins), unless litequic responds itself.
    pub fn target_origin(&self) -> Option<&str> {
        if let RouteTarget::Origin(name) = &self.target { Some(name) } else { None }
    }

    /// Returns the names of the fields by which litequic tells the origin of the route who the user is.
    pub fn identity_fields(&self) -> impl Iterator<Item = &str> {
        let copied = self.auth.iter().flat_map(|auth| &auth.copy).map(HeaderName::as_str);
        self.users.iter().map(|_| "remote-user").chain(copied)
    }
}

/// The target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// The name of an origin in [`Config::origins`](super::Config::origins).
    Origin(String),
    /// A redirect of the client.
    Redirect(Redirect),
    /// A fixed response.
    Respond(FixedResponse),
}

/// Facts of the configuration that a route's reader needs.
pub(super) struct RouteContext<'a> {
    pub(super) origins: &'a BTreeSet<&'a str>,
    pub(super) has_ca: bool,
    /// Whether there are error pages for all routes.
    pub(super) has_pages: bool,
}

/// Earlier routes, to find conflicts.
#[derive(Debug, Default)]
pub(super) struct EarlierRoutes {
    /// Line of each route by its host, path, prefix and conditions.
    matches: BTreeMap<(Option<String>, Option<String>, String, String), usize>,
    /// Line of each named route.
    names: BTreeMap<String, usize>,
}

impl EarlierRoutes {
    /// Whether an earlier route matches every request.
    pub(super) fn has_catch_all(&self) -> bool {
        self.matches.contains_key(&(None, None, String::new(), String::new()))
    }
}

/// Reads a table of `[[routes]]`; `seen` has the earlier ones.
pub(super) fn read_route(
    section: &mut ConfigSection<'_>,
    &RouteContext { origins, has_ca, has_pages }: &RouteContext<'_>,
    seen: &mut EarlierRoutes,
) -> RouteConfig {
    let route = RouteConfig::read_table(section);
    if !has_ca && route.client_certificate.is_some_and(|verify| verify != VerifyMode::None) {
        section.note_fault_expecting("client_certificate", "has no effect without client_certificates.ca", EXPECTED_CA);
    }
    let answers_itself = section.has_key("redirect") || section.has_key("respond");
    if route.intercept_errors && !has_pages && !section.has_entries("error_pages") && !answers_itself {
        // nginx accepts this and forwards the origin's error: an operator who wants to hide errors would not notice.
        let expected = "pages in [error_pages] or in error_pages of the route";
        section.note_fault_expecting("intercept_errors", "has no effect without an error page", expected);
    }
    section.note_repeated_values("upgrade", &route.upgrade, "is listed twice, ignoring case");
    if !section.has_key("origin") && !answers_itself {
        section.note_missing("origin", "the name of an origin, or redirect, or respond");
    }
    let useless =
        ["origin", "rewrite_host", "max_body_bytes", "request_headers", "timeouts", "intercept_errors", "upgrade"];
    if section.has_key("respond") {
        for key in useless.into_iter().chain(["redirect", "rewrite_prefix"]).filter(|key| section.has_key(key)) {
            section.note_fault(key, "has no effect beside respond");
        }
    } else if section.has_key("redirect") {
        for key in useless.into_iter().filter(|key| section.has_key(key)) {
            section.note_fault(key, "has no effect beside redirect");
        }
    }
    if let RouteTarget::Respond(respond) = &route.target
        && respond.body_file_path().is_some_and(|file| body_media_type(file).is_none())
        && !route.response_headers.set.iter().any(|(name, _)| name == header::CONTENT_TYPE)
    {
        let expected = "response_headers.set.content-type of the route";
        section.note_fault_expecting("respond", "unknown file name extension in body_file", expected);
    }
    if section.has_key("path") {
        section.note_fault("path_prefix", "has no effect beside path");
    }
    if let Some(name) = route.name.as_ref().filter(|_| section.has_valid_keys(&["name"]))
        && let Some(line) = seen.names.insert(name.clone(), section.line())
    {
        section.note_fault("name", format!("the route in line {line} has this name"));
    }
    let is_given = section.has_key("origin") && section.has_valid_keys(&["origin"]);
    if let Some(origin) = route.target_origin().filter(|origin| is_given && !origins.contains(origin)) {
        note_unknown_origin(section, "origin", "no origin has this name".into(), origin, origins);
    }
    if let Some(auth) = route.auth.as_ref().filter(|auth| !auth.origin.is_empty() && !origins.contains(&*auth.origin)) {
        let problem = format!("no origin has the name {}", quote_line(&auth.origin));
        note_unknown_origin(section, "auth", problem, &auth.origin, origins);
    }
    let prefix = if route.path.is_some() { "" } else { route.normalized_prefix() };
    let place = (route.host.clone(), route.path.clone(), prefix.into(), route.conditions.canonical_text());
    if section.has_valid_keys(&["host", "path", "path_prefix", "match"])
        && let Some(line) = seen.matches.insert(place, section.line())
    {
        let keys = ["match", "path", "path_prefix", "host", "origin", "redirect", "respond"];
        let key = keys.into_iter().find(|key| section.has_key(key)).unwrap_or("origin");
        let same = match (&route.path, route.conditions.is_empty()) {
            (None, true) => "host and prefix",
            (Some(_), true) => "host and path",
            (_, false) => "host, path and conditions",
        };
        section.note_fault(key, format!("the route in line {line} has the same {same}"));
    }
    route
}

/// Records the fault of a key that names the unknown `origin`.
fn note_unknown_origin(
    section: &ConfigSection<'_>,
    key: &str,
    problem: String,
    origin: &str,
    origins: &BTreeSet<&str>,
) {
    let near = nearest_word(origin, origins.iter().copied());
    section.note_fault(key, ValueError::from(problem).expecting(list_origin_names(origins)).near(near));
}

/// Formats the names of `origins` as expected values.
fn list_origin_names(origins: &BTreeSet<&str>) -> String {
    if origins.is_empty() {
        return "a name of [origins.NAME]".into();
    }
    let some: Vec<_> = origins.iter().take(MAX_LISTED_ORIGINS).map(|name| quote_line(name)).collect();
    let more = if origins.len() > MAX_LISTED_ORIGINS { ", …" } else { "" };
    format!("one of {}{more}", some.join(", "))
}

/// Reads the keys `origin`, `redirect` and `respond`, of which exactly one is set.
struct TargetReader;

impl KeyReader<RouteTarget> for TargetReader {
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, _: RouteTarget, about: &str) -> RouteTarget {
        let origin = section.optional_value(key, origin_name_kind(), about);
        let about_redirect = "A redirect of the client, instead of an origin: the `Location`, which is a URL with `https://` or `http://`, \
            or a path; before it a status, by default 307. `{host}` is the host that the client requested, alone or after \
            `LABEL.`; `{path}`, at the end, is its path and query after `rewrite_prefix`.";
        let redirect = section.optional_value("redirect", redirect_kind(), about_redirect).map(RouteTarget::Redirect);
        let respond = read_respond(section).map(RouteTarget::Respond);
        // If all are missing, there is a fault.
        redirect.or(respond).unwrap_or_else(|| RouteTarget::Origin(origin.unwrap_or_default()))
    }

    fn format_value(&self, target: &RouteTarget) -> String {
        match target {
            RouteTarget::Origin(name) => name.clone(),
            RouteTarget::Redirect(redirect) => redirect.to_string(),
            RouteTarget::Respond(respond) => respond.to_string(),
        }
    }

    fn compare_value(&self, changes: &mut Changes, key: &str, old: &RouteTarget, new: &RouteTarget) {
        let show =
            |target: &Option<&RouteTarget>| target.map_or_else(|| "none".into(), |target| self.format_value(target));
        let kind_of = |target: &RouteTarget| match target {
            RouteTarget::Origin(_) => ".origin",
            RouteTarget::Redirect(_) => ".redirect",
            RouteTarget::Respond(_) => ".respond",
        };
        for kind in [".origin", ".redirect", ".respond"] {
            let [old, new] = [old, new].map(|target| Some(target).filter(|target| kind_of(target) == kind));
            changes.compare_shown(&key.replace(".origin", kind), &old, &new, show);
        }
    }
}

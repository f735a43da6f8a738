//! `[[routes]]`: which requests match, where they go, and what is changed on the way.

use super::auth::{Auth, auth, show_auth};
use super::certificates::{Verify, WITH_CA};
use super::matching::Match;
use super::rate_limit::{RateLimit, rate_limit, show_rate_limit};
use super::redirect::{Redirect, redirect};
use super::respond::{Respond, respond};
use super::rules::{ErrorPages, HeaderRules, RouteTimeouts};
use crate::reading::changes::Changes;
use crate::reading::fault::{nearest, quote};
use crate::reading::names::{
    MAX_NETWORKS, authority, exact_path, host_pattern, network, origin_name, path, path_prefix, realm, route_name,
    upgrade,
};
use crate::reading::rule_readers;
use crate::reading::section::Section;
use crate::reading::table::{KeyTable as _, Reader, by, file, keys, list, optional, optional_list, table};
use crate::reading::values::{BODY_BYTES, boolean, one_of, or_most, size};
use litequic_base::network::Network;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Names that a message lists at most.
const MAX_NAMES: usize = 16;

keys! {
    /// One of `[[routes]]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Route {
        /// Name of the route in logs, metrics and `litequic ctl`. By default it is made of host, path and `match`.
        name: Option<String> = None, optional(route_name(), "made of host and path");

        /// Host of the request, compared without case, port and trailing dot; `*.` stands for one or more labels. By
        /// default every host.
        host: Option<String> = None, optional(host_pattern(), "any");

        /// Beginning of the path, by whole segments: `/live` matches `/live/1` and not `/lively`.
        path_prefix: String = "/".into(), path_prefix();

        /// Exact path, in place of `path_prefix`. A slash at its end makes a difference.
        path: Option<String> = None, optional(exact_path(), "none");

        /// Further conditions for a request. Of two routes with the same host and path, the one with conditions is
        /// tried first.
        conditions("match"): Match = Match::default(), table();

        /// Origin of the route: a name of `[origins.NAME]`, or `origin`. Required without `redirect` and `respond`.
        target("origin"): Target = Target::Origin(String::new()), OneTarget;

        /// Replacement of `path_prefix` in the path: with `/api` and `/`, `/api/users` becomes `/users`.
        rewrite_prefix: Option<String> = None, optional(path_prefix(), "none");

        /// The `Host` that the origin gets. By default the client's.
        rewrite_host: Option<String> = None, optional(authority(), "the client's");

        // No body is longer than what a stream can carry.
        /// Bytes of a request's body on this route, in place of `limits.max_body_bytes`. Beyond it, the client gets
        /// 413.
        max_body_bytes: Option<u64> = None, optional(or_most(size(BODY_BYTES)), "limits.max_body_bytes");

        /// Whether clients of this route present a certificate, in place of `client_certificates.verify`.
        client_certificate: Option<Verify> = None, optional(one_of(Verify::NAMES), "client_certificates.verify");

        /// Networks whose clients get 403 on this route. The client is the one that `rate_limit` counts: behind one of
        /// `trusted_proxies` the one that it names.
        deny: Vec<Network> = Vec::new(), list(network(), 0..=MAX_NETWORKS);

        /// The only networks whose clients this route serves, less those of `deny`: others get 403. By default every
        /// network.
        allow: Option<Vec<Network>> = None, optional_list(network(), 1..=MAX_NETWORKS, "any");

        /// File with the users of this route and the hashes of their passwords, a line `name:hash` each, by
        /// `htpasswd -B` or `litequic password`. Requests without a right password get 401. Read at the start and when
        /// it changes, 1 MiB at most.
        users: Option<PathBuf> = None, file(path("the path of a file, such as \"users.htpasswd\""));

        /// The realm of the password, which some clients show.
        users_realm: String = "restricted".into(), realm();

        /// Whether the origin gets `Authorization`, with the password.
        users_keep_authorization: bool = false, boolean();

        /// Sign-in by another server, which decides about each request of this route before its body is read.
        auth: Option<Auth> = None, by(auth, show_auth);

        /// Rules for the request's header: `remove`, then `set`, then `add`. A rule applies to every spelling of its
        /// field (`x_user` for `X-User`), and removes it from trailers. Fields that litequic sets are excluded: `Host`
        /// (use `rewrite_host`), `Forwarded`, `X-Forwarded-*`, `X-Request-ID`, `Client-Cert`; so are
        /// connection-specific and framing fields.
        request_headers: HeaderRules = HeaderRules::default(),
            by(rule_readers::request_headers, rule_readers::show_headers);

        /// Rules for the response's header, also for litequic's own answers: `remove`, then `set`, then `add`. Fields
        /// that are removed or set are removed from trailers. `Alt-Svc` and connection-specific and framing fields are
        /// excluded.
        response_headers: HeaderRules = HeaderRules::default(),
            by(rule_readers::response_headers, rule_readers::show_headers);

        /// Timeouts of this route, in place of those of `[timeouts]`.
        timeouts: RouteTimeouts = RouteTimeouts::default(), table();

        /// Rate limit of this route; without this table, none.
        rate_limit: Option<RateLimit> = None, by(rate_limit, show_rate_limit);

        /// File with the body of this route's error responses with this status, in place of `[error_pages]`: a number
        /// from `400` to `599`, or `4xx`, `5xx`. A number has precedence over its class.
        error_pages: ErrorPages = ErrorPages::default(), by(rule_readers::error_pages, rule_readers::show_pages);

        /// Whether error pages, the route's and those of `[error_pages]`, also replace the origin's error responses.
        /// Requires an error page.
        intercept_errors: bool = false, boolean();

        // What other proxies do by default.
        /// Protocols to which a client and the origin may switch, over HTTP/1.1, HTTP/2 and HTTP/3. `[]` permits none.
        upgrade: Vec<String> = vec!["websocket".into()], list(upgrade(), 0..=Self::MAX_UPGRADES);
    }
}

impl Route {
    /// Each is compared with the host of a request.
    pub const MAX_UPGRADES: usize = 16;

    /// The names of `routes` in logs and metrics: the configured name, or its host (`*` for any), its prefix, or `=`
    /// and its path, and its conditions. Of several that would have the same name all but the first have a number.
    pub fn names(routes: &[Self]) -> Vec<String> {
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let name = |route: &Self| {
            let name = route.name.clone().unwrap_or_else(|| route.matched());
            let count = taken.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 { name } else { format!("{name}#{count}") }
        };
        routes.iter().map(name).collect()
    }

    fn matched(&self) -> String {
        let host = self.host.as_deref().unwrap_or("*");
        match &self.path {
            Some(path) => format!("{host}={path}{}", self.conditions),
            None => format!("{host}{}{}", self.path_prefix, self.conditions),
        }
    }

    /// `path_prefix` without its last slash: `/live/` and `/live` are one, and `/` is empty.
    pub fn prefix(&self) -> &str {
        self.path_prefix.trim_end_matches('/')
    }

    /// Every request to `origin`.
    pub fn catch_all(origin: &str) -> Self {
        Self { target: Target::Origin(origin.into()), ..Self::default() }
    }

    /// The name of one of [`Config::origins`](super::Config::origins), unless litequic answers itself.
    pub fn origin(&self) -> Option<&str> {
        match &self.target {
            Target::Origin(name) => Some(name),
            Target::Redirect(_) | Target::Respond(_) => None,
        }
    }
}

/// The target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The one of [`Config::origins`](super::Config::origins) that has this name.
    Origin(String),
    /// A redirect.
    Redirect(Redirect),
    /// A fixed answer of litequic's own.
    Respond(Respond),
}

/// What a route may refer to.
pub(super) struct Around<'a> {
    pub(super) origins: &'a BTreeSet<&'a str>,
    pub(super) has_ca: bool,
    /// There are pages for the errors of all routes.
    pub(super) has_pages: bool,
}

/// The requests that earlier routes match.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Host, path, prefix, conditions.
    places: BTreeSet<(Option<String>, Option<String>, String, String)>,
    names: BTreeSet<String>,
}

impl Seen {
    /// Whether one of them matches every request.
    pub(super) fn has_catch_all(&self) -> bool {
        self.places.contains(&(None, None, String::new(), String::new()))
    }
}

/// Reads one of `[[routes]]`; `seen` has those before it.
pub(super) fn read(
    section: &mut Section<'_>,
    &Around { origins, has_ca, has_pages }: &Around<'_>,
    seen: &mut Seen,
) -> Route {
    let route = Route::read(section);
    if !has_ca && route.client_certificate.is_some_and(|verify| verify != Verify::None) {
        section.fault("client_certificate", "has no effect without an authority", Some(WITH_CA), None);
    }
    let answers_itself = section.has("redirect") || section.has("respond");
    if route.intercept_errors && !has_pages && !section.has_entries("error_pages") && !answers_itself {
        // nginx accepts this, and forwards the origin's error: an operator who wants to hide it would not notice.
        let expected = "pages in [error_pages] or in error_pages of the route";
        section.fault("intercept_errors", "has no effect without an error page", Some(expected), None);
    }
    if !section.has("users") {
        for key in ["users_realm", "users_keep_authorization"] {
            section.fault(key, "has no effect without users", None, None);
        }
    }
    for (n, token) in route.upgrade.iter().enumerate() {
        if route.upgrade.iter().take(n).any(|other| other == token) {
            section.fault_in_list("upgrade", n, "is listed twice, ignoring case");
        }
    }
    if !section.has("origin") && !answers_itself {
        section.missing("origin", "the name of an origin, or redirect, or respond");
    }
    let useless =
        ["origin", "rewrite_host", "max_body_bytes", "request_headers", "timeouts", "intercept_errors", "upgrade"];
    if section.has("respond") {
        for key in useless.into_iter().chain(["redirect", "rewrite_prefix"]).filter(|key| section.has(key)) {
            section.fault(key, "has no effect beside respond", None, None);
        }
    } else if section.has("redirect") {
        for key in useless.into_iter().filter(|key| section.has(key)) {
            section.fault(key, "has no effect beside redirect", None, None);
        }
    }
    if section.has("path") {
        section.fault("path_prefix", "has no effect beside path", None, None);
    }
    if let Some(name) = route.name.as_ref().filter(|_| section.is_right(&["name"]))
        && !seen.names.insert(name.clone())
    {
        section.fault("name", "another route has this name", None, None);
    }
    let is_given = section.has("origin") && section.is_right(&["origin"]);
    if let Some(origin) = route.origin().filter(|origin| is_given && !origins.contains(origin)) {
        unknown(section, origin, origins);
    }
    if let Some(auth) = route.auth.as_ref().filter(|auth| !auth.origin.is_empty() && !origins.contains(&*auth.origin)) {
        let near = nearest(&auth.origin, origins.iter().copied()).map(|name| format!("{name:?}"));
        let problem = format!("no origin has the name {}", quote(&auth.origin));
        section.fault("auth", &problem, Some(&listed(origins)), near.as_deref());
    }
    let prefix = if route.path.is_some() { "" } else { route.prefix() };
    let place = (route.host.clone(), route.path.clone(), prefix.into(), route.conditions.canonical());
    if section.is_right(&["host", "path", "path_prefix", "match"]) && !seen.places.insert(place) {
        let keys = ["match", "path", "path_prefix", "host", "origin", "redirect", "respond"];
        let key = keys.into_iter().find(|key| section.has(key)).unwrap_or("origin");
        let problem = match (&route.path, route.conditions.is_empty()) {
            (None, true) => "another route has the same host and prefix",
            (Some(_), true) => "another route has the same host and path",
            (_, false) => "another route has the same host, path and conditions",
        };
        section.fault(key, problem, None, None);
    }
    route
}

/// Notes that no origin has that name.
fn unknown(section: &Section<'_>, origin: &str, origins: &BTreeSet<&str>) {
    let near = nearest(origin, origins.iter().copied()).map(|name| format!("{name:?}"));
    section.fault("origin", "no origin has this name", Some(&listed(origins)), near.as_deref());
}

/// The names of `origins`, as what is expected.
fn listed(origins: &BTreeSet<&str>) -> String {
    if origins.is_empty() {
        return "a name of [origins.NAME]".into();
    }
    let some: Vec<_> = origins.iter().take(MAX_NAMES).map(|name| quote(name)).collect();
    let more = if origins.len() > MAX_NAMES { ", …" } else { "" };
    format!("one of {}{more}", some.join(", "))
}

/// The keys `origin`, `redirect` and `respond`, exactly one of which is set.
struct OneTarget;

impl Reader<Target> for OneTarget {
    fn read(self, section: &mut Section<'_>, key: &str, _: Target, about: &str) -> Target {
        let origin = section.optional(key, origin_name(), about);
        let redirect = redirect(section).map(Target::Redirect);
        let respond = respond(section).map(Target::Respond);
        // Without any of them there is a fault.
        redirect.or(respond).unwrap_or_else(|| Target::Origin(origin.unwrap_or_default()))
    }

    fn show(&self, target: &Target) -> String {
        match target {
            Target::Origin(name) => name.clone(),
            Target::Redirect(redirect) => format!("{} {}", redirect.status.as_u16(), redirect.to),
            Target::Respond(respond) => respond.to_string(),
        }
    }

    fn compare(&self, changes: &mut Changes, key: &str, old: &Target, new: &Target) {
        let show = |target: &Option<&Target>| target.map_or_else(|| "none".into(), |target| self.show(target));
        let kind_of = |target: &Target| match target {
            Target::Origin(_) => ".origin",
            Target::Redirect(_) => ".redirect",
            Target::Respond(_) => ".respond",
        };
        for kind in [".origin", ".redirect", ".respond"] {
            let [old, new] = [old, new].map(|target| Some(target).filter(|target| kind_of(target) == kind));
            changes.value(&key.replace(".origin", kind), &old, &new, show);
        }
    }
}

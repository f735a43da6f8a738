//! The keys of routes.

use super::{BODY_BYTES, VERIFY, WITH_CA, rules};
use crate::config::{
    PathReading, Route, Target, Verify,
    fault::{nearest, quote},
    names::{authority, host_pattern, path_prefix, upgrade},
    section::Section,
    values::{Kind, boolean, one_of, or_none, size, text},
};
use std::{collections::BTreeSet, path::Path};

/// Names that a message lists at most.
const MAX_NAMES: usize = 16;

/// What a route may count on.
pub(super) struct Around<'a> {
    /// Of the file.
    pub(super) directory: &'a Path,
    pub(super) origins: &'a BTreeSet<&'a str>,
    pub(super) has_ca: bool,
    /// There are pages for the errors of all routes.
    pub(super) has_pages: bool,
}

pub(super) fn route(
    section: &mut Section<'_>,
    around: &Around<'_>,
    seen: &mut BTreeSet<(Option<String>, String)>,
) -> Route {
    let &Around { directory, origins: names, has_ca, has_pages } = around;
    let host = section.optional(
        "host",
        host_pattern(),
        "Compared without case, port and trailing dot; `*.` stands for one or more labels. Without it, every host.",
    );
    let prefix = section.value(
        "path_prefix",
        path_prefix(),
        "/".into(),
        "Matches whole segments: `/live` takes `/live/1` and not `/lively`.",
    );
    let origin = section.optional(
        "origin",
        origin_name(),
        "Who serves it: a name of `[origins.NAME]`, or `origin`. Required without `redirect`.",
    );
    let redirect = rules::redirect(section);
    let path_reading = section.value(
        "path_reading",
        one_of(PathReading::NAMES),
        PathReading::default(),
        "How the origin may read a path: a request that could be read as another route's is answered 400. `any` is \
            percent-decoded, with slashes merged, without `;` parameters, with `\\` as `/`, and regardless of case; \
            `case-sensitive` the same but for case; `raw` byte by byte, so that nothing is refused.",
    );
    let rewrite_prefix = section.optional(
        "rewrite_prefix",
        path_prefix(),
        "What stands in the path in place of `path_prefix`: with `/api` and `/`, `/api/users` becomes `/users`.",
    );
    let rewrite_host = section.optional(
        "rewrite_host",
        authority(),
        "What the origin gets as `Host`. Without it, what the client asked for.",
    );
    let max_body_bytes = section.optional(
        "max_body_bytes",
        or_none(size(BODY_BYTES)),
        "Instead of `limits.max_body_bytes`. 413 beyond.",
    );

    let client_certificate =
        section.optional("client_certificate", one_of(VERIFY), "Instead of `client_certificates.verify`.");
    if !has_ca && client_certificate.is_some_and(|verify| verify != Verify::None) {
        section.fault("client_certificate", "is of no use without an authority", Some(WITH_CA), None);
    }

    let request_headers = rules::request_headers(section);
    let response_headers = rules::response_headers(section);
    let timeouts = rules::route_timeouts(section);
    let rate_limit = rules::rate_limit(section);
    let about = "The file that is the body of this route's errors with that status, before what `[error_pages]` has: \
        a number from `400` to `599`, or `4xx`, `5xx`. A number comes before its class.";
    let error_pages = rules::error_pages(section, directory, about);
    let about = "Whether error pages, the route's and those of `[error_pages]`, also stand in for the origin's \
        errors. There must be one.";
    let intercept_errors = section.value("intercept_errors", boolean(), false, about);
    if intercept_errors && !has_pages && !section.has_entries("error_pages") && !section.has("redirect") {
        // nginx takes it, and passes the origin's error on: whoever asked that nobody sees it would not hear of that.
        let expected = "pages in [error_pages] or in error_pages of the route";
        section.fault("intercept_errors", "is of no use without an error page", Some(expected), None);
    }

    let upgrade = upgrades(section);
    if !section.has("origin") && !section.has("redirect") {
        section.missing("origin", "the name of an origin, or redirect");
    }
    if section.has("redirect") {
        let useless =
            ["origin", "rewrite_host", "max_body_bytes", "request_headers", "timeouts", "intercept_errors", "upgrade"];
        for key in useless.into_iter().filter(|key| section.has(key)) {
            section.fault(key, "is of no use beside redirect", None, None);
        }
    }

    if let Some(origin) = origin.as_deref().filter(|origin| !names.contains(origin)) {
        let some: Vec<_> = names.iter().take(MAX_NAMES).map(|name| quote(name)).collect();
        let more = if names.len() > MAX_NAMES { ", …" } else { "" };
        let expected = format!("one of {}{more}", some.join(", "));
        let expected = if names.is_empty() { "a name of [origins.NAME]" } else { &expected };
        let near = nearest(origin, names.iter().copied()).map(|name| format!("{name:?}"));
        section.fault("origin", "no origin has this name", Some(expected), near.as_deref());
    }
    if section.is_right(&["host", "path_prefix"]) && !seen.insert((host.clone(), prefix.trim_end_matches('/').into())) {
        let keys = ["path_prefix", "host", "origin", "redirect"];
        let key = keys.into_iter().find(|key| section.has(key)).unwrap_or("origin");
        section.fault(key, "another route has the same host and prefix", None, None);
    }
    Route {
        host,
        path_prefix: prefix,
        // Without either there is a fault.
        target: redirect.map_or_else(|| Target::Origin(origin.unwrap_or_default()), Target::Redirect),
        rewrite_prefix,
        rewrite_host,
        // No body is longer than what a stream can carry.
        max_body_bytes: max_body_bytes.map(|bytes| bytes.unwrap_or(u64::MAX)),
        client_certificate,
        request_headers,
        response_headers,
        timeouts,
        rate_limit,
        error_pages,
        intercept_errors,
        upgrade,
        path_reading,
    }
}

fn origin_name() -> Kind<String> {
    text("the name of an origin", Ok, Clone::clone)
}

fn upgrades(section: &mut Section<'_>) -> Vec<String> {
    let about =
        "Protocols to which a client and the origin may switch, by HTTP/1.1 as by HTTP/2 and HTTP/3; with `[]` none.";
    let given = section.list("upgrade", upgrade(), 0..=Route::MAX_UPGRADES, &[Route::UPGRADE.into()], about);
    for (n, token) in given.iter().flatten() {
        if given.iter().flatten().any(|(m, other)| m < n && other == token) {
            section.fault_in_list("upgrade", *n, "stands there twice, with no regard to case: once is enough");
        }
    }
    given.map_or_else(|| vec![Route::UPGRADE.into()], |list| list.into_iter().map(|(_, token)| token).collect())
}

//! Which route serves a request: host first, then path. Pure; compiled once a configuration.
//!
//! Among the routes that match both host and path, the most specific host wins (exact, then the longest `*.`, then
//! any host), and within one host the longest path prefix.

use crate::config;
use http::HeaderValue;
use std::{borrow::Cow, collections::HashMap};

/// Every route, ready to be asked.
#[derive(Debug, Default)]
pub(super) struct Routes {
    exact: HashMap<String, Vec<Route>>,
    /// By what stands after `*.`.
    wildcard: HashMap<String, Vec<Route>>,
    any: Vec<Route>,
}

/// What a request that matches is treated by.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// Without the trailing slash: `/live/` and `/live` are one prefix, and `/` is empty.
    prefix: String,
    /// The origin's name.
    pub(super) origin: String,
    /// What the origin gets as `Host`, instead of `:authority`.
    pub(super) rewrite_host: Option<HeaderValue>,
    /// Bytes of a request's body: 413 beyond.
    pub(super) max_body_bytes: Option<u64>,
}

impl Routes {
    /// Compiles `routes`; `max_body_bytes` is the limit of those that have none of their own.
    pub(super) fn new(routes: &[config::Route], max_body_bytes: Option<u64>) -> Self {
        let mut this = Self::default();
        for route in routes {
            let compiled = Route {
                prefix: route.path_prefix.trim_end_matches('/').to_owned(),
                origin: route.origin.clone(),
                // A checked configuration has no value here that a field could not hold.
                rewrite_host: route.rewrite_host.as_deref().and_then(|host| HeaderValue::from_str(host).ok()),
                max_body_bytes: route.max_body_bytes.or(max_body_bytes),
            };
            let list = match route.host.as_deref() {
                None => &mut this.any,
                Some(host) => match host.strip_prefix("*.") {
                    Some(suffix) => this.wildcard.entry(normalized(suffix).into_owned()).or_default(),
                    None => this.exact.entry(normalized(host).into_owned()).or_default(),
                },
            };
            list.push(compiled);
        }
        let lists = this.exact.values_mut().chain(this.wildcard.values_mut()).chain([&mut this.any]);
        // Stable: of two equal prefixes the file's first wins.
        lists.for_each(|list| list.sort_by_key(|route| std::cmp::Reverse(route.prefix.len())));
        this
    }

    /// The route for `authority` (with or without a port) and `path` (without a query).
    pub(super) fn choose(&self, authority: &str, path: &str) -> Option<&Route> {
        let host = normalized(host_of(authority));
        let exact = self.exact.get(host.as_ref());
        let wildcards = host.match_indices('.').filter_map(|(dot, _)| self.wildcard.get(host.get(dot + 1..)?));
        exact.into_iter().chain(wildcards).chain([&self.any]).flatten().find(|route| route.matches(path))
    }
}

impl Route {
    fn matches(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            // `*` of an OPTIONS request is about the host as a whole.
            || (self.prefix.is_empty() && path == "*")
    }
}

/// The authority's host: without userinfo, which the front door refuses, and without the port. An IPv6 address
/// keeps its brackets.
fn host_of(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => authority.get(..=end).unwrap_or(authority),
        None => authority.split_once(':').map_or(authority, |(host, _port)| host),
    }
}

/// Lower case and without the root's dot; copies only a host that needs it.
fn normalized(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let table = [
            (Some("a.example.com"), "/", "exact"),
            (Some("a.example.com"), "/live", "exact-live"),
            (Some("a.example.com"), "/live/hd/", "exact-live-hd"),
            (Some("*.example.com"), "/", "wildcard"),
            (Some("*.b.example.com"), "/", "longer-wildcard"),
            (Some("only.example.com"), "/app", "only-app"),
            (Some("[::1]"), "/", "ipv6"),
            (None, "/any", "any"),
            (None, "/any", "any-again"),
        ];
        let routes = table.map(|(host, path_prefix, origin)| config::Route {
            host: host.map(str::to_owned),
            path_prefix: path_prefix.to_owned(),
            origin: origin.to_owned(),
            rewrite_host: None,
            max_body_bytes: None,
        });
        Routes::new(&routes, Some(7))
    }

    #[test]
    fn the_most_specific_host_and_the_longest_prefix_win() {
        let routes = routes();
        for (authority, path, expected) in [
            ("a.example.com", "/", Some("exact")),
            ("A.Example.COM", "/x", Some("exact")),
            ("a.example.com.", "/x", Some("exact")),
            ("a.example.com:8443", "/x", Some("exact")),
            ("a.example.com.:8443", "/x", Some("exact")),
            ("a.example.com", "/live", Some("exact-live")),
            ("a.example.com", "/live/", Some("exact-live")),
            ("a.example.com", "/live/x", Some("exact-live")),
            ("a.example.com", "/lively", Some("exact")),
            ("a.example.com", "/Live", Some("exact")),
            ("a.example.com", "/live/hd", Some("exact-live-hd")),
            ("a.example.com", "/live/hd/1", Some("exact-live-hd")),
            ("a.example.com", "/live/hdr", Some("exact-live")),
            ("a.example.com", "*", Some("exact")),
            ("x.example.com", "/", Some("wildcard")),
            ("x.y.example.com", "/", Some("wildcard")),
            ("x.b.example.com", "/", Some("longer-wildcard")),
            ("b.example.com", "/", Some("wildcard")),
            ("example.com", "/", None),
            ("xexample.com", "/", None),
            ("only.example.com", "/app/x", Some("only-app")),
            ("only.example.com", "/other", Some("wildcard")),
            ("[::1]:443", "/", Some("ipv6")),
            ("elsewhere.test", "/any/thing", Some("any")),
            ("elsewhere.test", "/", None),
            ("", "/any", Some("any")),
        ] {
            let chosen = routes.choose(authority, path).map(|route| route.origin.as_str());
            assert_eq!(chosen, expected, "{authority} {path}");
        }
    }

    #[test]
    fn a_route_without_a_body_limit_has_the_general_one() {
        assert_eq!(routes().choose("a.example.com", "/").unwrap().max_body_bytes, Some(7));
    }
}

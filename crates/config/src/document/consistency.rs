//! Checks rules between the tables of a configuration.

use crate::{
    certificates::VerifyMode, config::Config, listen::ProxyProtocolUdp, route::RouteConfig, rules::HeaderRules,
};
use std::collections::{BTreeMap, BTreeSet};

/// Returns routes whose sign-in depends on itself, by number, with the problem: the authentication server is only
/// reachable by a route that it protects, directly or through other servers.
pub(crate) fn find_auth_loops(routes: &[RouteConfig]) -> Vec<(usize, String)> {
    let mut deciding: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let ends = |route: &'_ RouteConfig| Some((route.target_origin()?.to_owned(), route.auth.as_ref()?.origin.clone()));
    for route in routes {
        if let (Some(origin), Some(auth)) = (route.target_origin(), &route.auth) {
            deciding.entry(origin).or_default().insert(&auth.origin);
        }
    }
    let is_reached = |from: &str, to: &str| {
        let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
        while let Some(origin) = left.pop() {
            if origin == to {
                return true;
            }
            left.extend(deciding.get(origin).into_iter().flatten().copied().filter(|next| seen.insert(next)));
        }
        false
    };
    let problem = |(number, route): (usize, &RouteConfig)| {
        let (origin, auth) = ends(route)?;
        let problem = match origin == auth {
            true => "is also the origin of this route: no client could sign in".to_owned(),
            false => format!("has a route whose requests {origin} decides about: no client could sign in"),
        };
        is_reached(&auth, &origin).then_some((number, problem))
    };
    routes.iter().enumerate().filter_map(problem).collect()
}

/// Returns header rules that conflict with tracing, by key, with the problem.
pub(crate) fn find_overruled_rules(config: &Config) -> Vec<(String, &'static str)> {
    if config.traces.endpoint.is_none() {
        return Vec::new();
    }
    let named = |prefix: String, rules: &HeaderRules| {
        let valued = [("set", &rules.set), ("add", &rules.add)];
        let valued = valued.into_iter().flat_map(|(kind, all)| all.iter().map(move |(name, _)| (kind, name)));
        let named = valued.filter(|(_, name)| ["traceparent", "tracestate"].contains(&name.as_str()));
        named.map(|(kind, name)| format!("{prefix}request_headers.{kind}.{name}")).collect::<Vec<_>>()
    };
    let general = named(String::new(), &config.request_headers);
    let routes = config.routes.iter().enumerate();
    let of_routes = routes.flat_map(|(n, route)| named(format!("routes[{n}]."), &route.request_headers));
    let problem = "is set by litequic while traces.endpoint is set";
    general.into_iter().chain(of_routes).map(|key| (key, problem)).collect()
}

/// Returns the fault of `listen.proxy_protocol_udp` in relation to other tables.
pub(crate) fn find_proxy_flow_fault(config: &Config) -> Option<&'static str> {
    let idle = config.timeouts.idle;
    let is_short = matches!(config.listen.proxy_protocol_udp, ProxyProtocolUdp::First(flow) if flow <= idle);
    is_short.then_some("is not longer than timeouts.idle: idle clients would get another flow")
}

/// Returns pairs of routes that can match the same request with equal precedence, so that only their order in the file
/// decides: the index of the earlier one, and of the later one.
pub fn find_ambiguous_routes(routes: &[RouteConfig]) -> Vec<(usize, usize)> {
    let mut alike: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (number, route) in routes.iter().enumerate().filter(|(_, route)| !route.conditions.is_empty()) {
        let place = (route.host.as_deref(), route.path.as_deref(), route.normalized_prefix());
        alike.entry((place, route.conditions.specificity())).or_default().push((number, &route.conditions));
    }
    let mut found = Vec::new();
    for group in alike.values() {
        for (n, (later, conditions)) in group.iter().enumerate() {
            // One earlier route is enough for a message.
            let earlier = group.iter().take(n).find(|(_, earlier)| !earlier.excludes_conditions(conditions));
            found.extend(earlier.map(|(earlier, _)| (*earlier, *later)));
        }
    }
    found.sort_unstable_by_key(|(_, other)| *other);
    found
}

/// Returns routes with access rules for one exact path whose other spelling, with or without a slash at its end,
/// another route with other rules sends to the same origin, which may read both alike: the index of each,
/// and of the other one.
pub fn find_bypassed_paths(routes: &[RouteConfig]) -> Vec<(usize, usize)> {
    fn access(route: &RouteConfig) -> impl PartialEq {
        let needs_certificate = route.client_certificate == Some(VerifyMode::Required);
        (&route.users, &route.auth, &route.allow, &route.deny, needs_certificate)
    }
    let other_route = |route: &RouteConfig| {
        let path = route.path.as_deref().filter(|path| *path != "/" && route.has_access_rules())?;
        let spelling = path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned);
        let matches = |other: &RouteConfig| match &other.path {
            Some(path) => *path == spelling,
            None => {
                let rest = spelling.strip_prefix(other.normalized_prefix());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        };
        let candidates = routes.iter().enumerate().filter(|(_, other)| {
            (other.host.is_none() || other.host == route.host) && other.conditions.is_empty() && matches(other)
        });
        let rank = |other: &RouteConfig| (other.host.is_some(), other.path.is_some(), other.normalized_prefix().len());
        let (number, other) = candidates.max_by_key(|(_, other)| rank(other))?;
        let differs = access(other) != access(route);
        (differs && route.target_origin().is_some() && other.target_origin() == route.target_origin()).then_some(number)
    };
    routes.iter().enumerate().filter_map(|(number, route)| Some((number, other_route(route)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Auth, MatchConditions, match_conditions::tests::conditions};

    fn routes(all: &[(&str, &str)]) -> Vec<RouteConfig> {
        let auth = |origin: &str| Auth { origin: origin.into(), path: "/".into(), ..Auth::default() };
        let route = |(origin, by): &(&str, &str)| RouteConfig {
            auth: (!by.is_empty()).then(|| auth(by)),
            ..RouteConfig::catch_all(origin)
        };
        all.iter().map(route).collect()
    }

    #[test]
    fn a_flows_timeout_is_longer_than_that_of_idle_clients() {
        use ProxyProtocolUdp::{Every, First, Off};
        let origin: crate::OriginAddress = "http://127.0.0.1:9".parse().unwrap();
        let mut config = Config::with_defaults(([127, 0, 0, 1], 1).into(), origin, "cert".into(), "key".into());
        let first = |seconds| First(std::time::Duration::from_secs(seconds));
        for (mode, is_fault) in [(Off, false), (Every, false), (first(30), true), (first(31), false)] {
            config.listen.proxy_protocol_udp = mode;
            assert_eq!(find_proxy_flow_fault(&config).is_some(), is_fault, "{mode:?}");
        }
    }

    #[test]
    fn a_server_that_decides_about_its_own_route_is_a_loop() {
        for (all, expected) in [
            (vec![("app", "auth"), ("auth", "")], vec![]),
            (vec![("app", "auth"), ("auth", "auth")], vec![1]),
            (vec![("app", "app")], vec![0]),
            (vec![("a", "b"), ("b", "c"), ("c", "")], vec![]),
            (vec![("a", "b"), ("b", "a"), ("c", "a")], vec![0, 1]),
            (vec![("a", "b"), ("b", "c"), ("c", "a"), ("d", "")], vec![0, 1, 2]),
            (vec![("a", "b"), ("a", "c"), ("b", "c"), ("c", "b")], vec![2, 3]),
        ] {
            let found: Vec<_> = find_auth_loops(&routes(&all)).into_iter().map(|(number, _)| number).collect();
            assert_eq!(found, expected, "{all:?}");
        }
    }

    #[test]
    fn an_exact_path_with_access_rules_has_another_spelling_elsewhere() {
        let route = |host: &str, path: &str, is_exact: bool, users: &str, origin: &str| RouteConfig {
            host: (!host.is_empty()).then(|| host.into()),
            path: is_exact.then(|| path.into()),
            path_prefix: if is_exact { "/".into() } else { path.into() },
            users: (!users.is_empty()).then(|| users.into()),
            ..RouteConfig::catch_all(origin)
        };
        let general = || route("", "/", false, "", "o");
        for (one, other, expected) in [
            (route("", "/admin", true, "u", "o"), general(), true),
            (route("", "/admin/", true, "u", "o"), general(), true),
            (route("a.test", "/admin", true, "u", "o"), general(), true),
            (route("", "/admin", true, "u", "o"), route("", "/admin/", true, "", "o"), true),
            (route("", "/admin", true, "", "o"), general(), false),
            (route("", "/admin", false, "u", "o"), general(), false),
            (route("", "/", true, "u", "o"), general(), false),
            (route("", "/admin", true, "u", "other"), general(), false),
            (route("", "/admin", true, "u", "o"), route("", "/", false, "u", "o"), false),
            (route("", "/admin", true, "u", "o"), route("", "/adm", false, "", "o"), false),
            (route("", "/admin", true, "u", "o"), route("a.test", "/", false, "", "o"), false),
        ] {
            let found = find_bypassed_paths(&[one.clone(), other.clone()]);
            assert_eq!(found, if expected { vec![(0, 1)] } else { Vec::new() }, "{one:?} {other:?}");
        }
        let protected = route("", "/admin", false, "u", "o");
        assert_eq!(find_bypassed_paths(&[route("", "/admin", true, "u", "o"), general(), protected]), []);
    }

    #[test]
    fn only_routes_that_one_request_can_meet_alike_are_ambiguous() {
        let get = || conditions(&["GET"], &[], &[]);
        let field = |name, pattern| conditions(&[], &[(name, pattern)], &[]);
        for (one, other, expected) in [
            (get(), conditions(&["POST"], &[], &[]), false),
            (get(), conditions(&["GET", "HEAD"], &[], &[]), true),
            (get(), MatchConditions::default(), false),
            (field("a", "1"), field("a", "2"), false),
            (field("a", "1"), field("b", "1"), true),
            // One of the conditions has a higher specificity.
            (field("a", "1"), field("a", "*"), false),
            (field("a", "1*"), field("b", "1"), false),
            (field("a", "x*"), field("a", "y*"), false),
            (conditions(&[], &[], &[("a", "1")]), conditions(&[], &[], &[("b", "2")]), true),
            (conditions(&[], &[("a", "1")], &[("v", "1")]), conditions(&[], &[("b", "1")], &[("v", "2")]), false),
        ] {
            let (text, against) = (one.to_string(), other.to_string());
            let mut routes = [RouteConfig::catch_all("o"), RouteConfig::catch_all("o")];
            (routes[0].conditions, routes[1].conditions) = (one, other);
            let found = find_ambiguous_routes(&routes);
            assert_eq!(found, if expected { vec![(0, 1)] } else { Vec::new() }, "{text} {against}");
            // Routes differ in path or host.
            routes[1].path_prefix = "/a".into();
            assert_eq!(find_ambiguous_routes(&routes), []);
            (routes[1].path_prefix, routes[1].path) = ("/".into(), Some("/".into()));
            assert_eq!(find_ambiguous_routes(&routes), []);
            (routes[1].path, routes[1].host) = (None, Some("a.test".into()));
            assert_eq!(find_ambiguous_routes(&routes), []);
        }
    }
}

//! `routes[].auth`: sign-in by another server.

use super::{
    Route,
    keys::rules::copied_field,
    origin::target,
    route::origin_name,
    table::{keys, list, required},
};
use http::HeaderName;
use std::collections::{BTreeMap, BTreeSet};

keys! {
    /// `auth`: sign-in by another server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Auth {
        /// Origin that decides about each request: a name of `[origins.NAME]`, or `origin`.
        origin: String = String::new(), required(origin_name());

        /// The path of the request to it, with a query if necessary.
        path: String = String::new(), required(target());

        /// Fields of its answer that the route's origin gets. What clients send under these names, in any spelling, is
        /// removed.
        copy: Vec<HeaderName> = Vec::new(), list(copied_field(), 0..=Self::MAX_FIELDS);
    }
}

impl Auth {
    /// Fields of `copy` at most: each is looked for in each request.
    pub const MAX_FIELDS: usize = 16;
}

/// Routes whose sign-in depends on itself, by their numbers, with the problem: the server that decides is reached, for
/// signing in, by a route that it decides about, itself or by way of other servers.
pub(super) fn loops(routes: &[Route]) -> Vec<(usize, String)> {
    let mut deciding: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let ends = |route: &'_ Route| Some((route.origin()?.to_owned(), route.auth.as_ref()?.origin.clone()));
    for route in routes {
        if let (Some(origin), Some(auth)) = (route.origin(), &route.auth) {
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
    let problem = |(number, route): (usize, &Route)| {
        let (origin, auth) = ends(route)?;
        let problem = match origin == auth {
            true => "is the origin of this route: no client could sign in".to_owned(),
            false => format!("has a route that waits for {origin} to decide: no client could sign in"),
        };
        is_reached(&auth, &origin).then_some((number, problem))
    };
    routes.iter().enumerate().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(all: &[(&str, &str)]) -> Vec<Route> {
        let auth = |origin: &str| Auth { origin: origin.into(), path: "/".into(), copy: Vec::new() };
        let route = |(origin, by): &(&str, &str)| Route {
            auth: (!by.is_empty()).then(|| auth(by)),
            ..Route::catch_all(origin)
        };
        all.iter().map(route).collect()
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
            let found: Vec<_> = loops(&routes(&all)).into_iter().map(|(number, _)| number).collect();
            assert_eq!(found, expected, "{all:?}");
        }
    }
}

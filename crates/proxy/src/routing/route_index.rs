//! Finds the routes of a host for a request without a look at each: by the whole path, by its beginnings before each
//! slash, and by the value of a header field or query parameter that a route wants. Pure; compiled once a
//! configuration.

use super::routes::RouteConditions;
use litequic_config::ValuePattern;
use litequic_exchange::{FieldName, Head};
use std::collections::HashMap;

/// Routes by their paths and prefixes, each with its position among the routes of its host.
#[derive(Debug, Default)]
pub(super) struct RouteIndex {
    groups: HashMap<Box<[u8]>, RouteGroup>,
    /// Bytes of the longest path.
    longest: usize,
    /// Most slashes of a path: a request's path costs no more lookups, however many it has.
    deepest: usize,
}

/// Positions of the routes with one path.
#[derive(Debug, Default)]
struct RouteGroup {
    /// Positions of the routes that want no exact value.
    unvalued: Vec<usize>,
    by_value: HashMap<ValueSource, RoutesByValue>,
}

type RoutesByValue = HashMap<Box<[u8]>, Vec<usize>>;

/// Part of a request's head whose value a route wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ValueSource {
    Field(FieldName),
    Parameter(String),
}

impl ValueSource {
    /// Returns the exact values that `conditions` want, each with its source.
    fn wanted_values(conditions: &RouteConditions) -> impl Iterator<Item = (Self, &str)> {
        let fields = conditions.fields.iter().map(|(name, pattern)| (Self::Field(name.clone()), pattern));
        let query = conditions.query.iter().map(|(name, pattern)| (Self::Parameter(name.clone()), pattern));
        fields.chain(query).filter_map(|(source, pattern)| match pattern {
            ValuePattern::Equal(value) => Some((source, value.as_str())),
            ValuePattern::Prefix(_) | ValuePattern::Present => None,
        })
    }

    /// Returns the values that `head` has.
    fn values_in<'a>(&'a self, head: &'a Head) -> impl Iterator<Item = &'a [u8]> {
        let (field, parameter) = match self {
            Self::Field(name) => (Some(name), None),
            Self::Parameter(name) => (None, Some(name)),
        };
        let parameters = parameter.into_iter().flat_map(|name| super::routes::query_values(head, name));
        field
            .into_iter()
            .flat_map(|name| head.fields.all_values(name.as_name_ref()))
            .chain(parameters.map(str::as_bytes))
    }
}

impl RouteIndex {
    /// Indexes routes by their paths and conditions, in their order; prefixes are without a slash at their end.
    pub(super) fn new<'a, P: AsRef<[u8]>>(
        routes: impl Iterator<Item = (P, Option<&'a RouteConditions>)> + Clone,
    ) -> Self {
        let mut index = Self::default();
        // A route is found by the value that the fewest routes want.
        let mut wanted: HashMap<_, usize> = HashMap::new();
        for value in routes.clone().filter_map(|(_, conditions)| conditions).flat_map(ValueSource::wanted_values) {
            *wanted.entry(value).or_default() += 1;
        }
        for (position, (path, conditions)) in routes.enumerate() {
            let path = path.as_ref();
            index.longest = index.longest.max(path.len());
            index.deepest = index.deepest.max(path.iter().filter(|byte| **byte == b'/').count());
            let group = index.groups.entry(path.into()).or_default();
            let values = conditions.into_iter().flat_map(ValueSource::wanted_values);
            let positions = match values.min_by_key(|value| wanted.get(value)) {
                None => &mut group.unvalued,
                Some((source, value)) => {
                    group.by_value.entry(source).or_default().entry(value.as_bytes().into()).or_default()
                }
            };
            positions.push(position);
        }
        index
    }

    /// Returns the positions of the routes whose path or prefix `path` may match, without those that want a value that
    /// `head` does not have.
    pub(super) fn positions_for<'a>(&'a self, path: &'a [u8], head: &'a Head) -> impl Iterator<Item = usize> + 'a {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        // Behind the last slash of the deepest prefix, another one may follow.
        let beginnings = slashes.take(self.deepest.saturating_add(1)).chain([path.len()]);
        let known = beginnings.take_while(|length| *length <= self.longest).filter_map(|length| path.get(..length));
        // `*` of an OPTIONS request is below the empty prefix.
        let root = (!path.starts_with(b"/")).then_some(&b""[..]);
        let groups = known.chain(root).filter_map(|beginning| self.groups.get(beginning));
        groups.flat_map(|group| group.positions_for(head))
    }
}

impl RouteGroup {
    fn positions_for<'a>(&'a self, head: &'a Head) -> impl Iterator<Item = usize> + 'a {
        let by_value = self.by_value.iter();
        let valued = by_value.flat_map(|(source, routes)| source.values_in(head).filter_map(|value| routes.get(value)));
        self.unvalued.iter().chain(valued.flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use litequic_exchange::{Authority, Fields};
    use proptest::prelude::*;

    fn index_of(paths: &[&str]) -> RouteIndex {
        RouteIndex::new(paths.iter().map(|path| (path, None)))
    }

    fn any_head() -> Head {
        Head::new(Method::GET, Authority::new(""), "/", Fields::default())
    }

    #[test]
    fn a_path_is_found_by_itself_and_by_its_beginnings() {
        let index = index_of(&["/a/b", "/a", "", "/a/b/"]);
        for (path, expected) in [
            ("/a/b", &[2, 1, 0][..]),
            ("/a/b/", &[2, 1, 0, 3]),
            ("/a/b/c/d/e", &[2, 1, 0]),
            ("/ab", &[2]),
            ("/", &[2]),
            ("*", &[2]),
        ] {
            let found: Vec<_> = index.positions_for(path.as_bytes(), &any_head()).collect();
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(RouteIndex::default().positions_for(b"/", &any_head()).count(), 0);
    }

    proptest! {
        #[test]
        fn no_route_that_matches_is_missed(
            prefixes in prop::collection::vec("(/[ab]{0,2}){0,4}", 0..12),
            path in "(/[ab]{0,2}){1,6}",
        ) {
            let prefixes: Vec<_> = prefixes.iter().map(|prefix| prefix.strip_suffix('/').unwrap_or(prefix)).collect();
            let index = index_of(&prefixes);
            let found: Vec<_> = index.positions_for(path.as_bytes(), &any_head()).collect();
            for (position, prefix) in prefixes.iter().enumerate() {
                let rest = path.strip_prefix(prefix);
                let matches = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                prop_assert_eq!(matches, found.contains(&position), "{}", prefix);
            }
        }
    }
}

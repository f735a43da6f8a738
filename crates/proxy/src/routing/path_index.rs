//! Finds the routes of a host for a path without a look at each: by the whole path, and by its beginnings before each
//! slash. Pure; compiled once a configuration.

use std::collections::HashMap;

/// Routes by their paths and prefixes, each with its position among the routes of its host.
#[derive(Debug, Default)]
pub(super) struct PathIndex {
    positions: HashMap<Box<[u8]>, Vec<usize>>,
    /// Bytes of the longest path.
    longest: usize,
    /// Most slashes of a path: a request's path costs no more lookups, however many it has.
    deepest: usize,
}

impl PathIndex {
    /// Indexes `paths`, which are in the order of the routes; prefixes are without a slash at their end.
    pub(super) fn new<P: AsRef<[u8]>>(paths: impl Iterator<Item = P>) -> Self {
        let mut index = Self::default();
        for (position, path) in paths.enumerate() {
            let path = path.as_ref();
            index.longest = index.longest.max(path.len());
            index.deepest = index.deepest.max(path.iter().filter(|byte| **byte == b'/').count());
            index.positions.entry(path.into()).or_default().push(position);
        }
        index
    }

    /// Returns the positions of the routes whose path or prefix `path` may match.
    pub(super) fn positions_for<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        // Behind the last slash of the deepest prefix, another one may follow.
        let beginnings = slashes.take(self.deepest.saturating_add(1)).chain([path.len()]);
        let known = beginnings.take_while(|length| *length <= self.longest).filter_map(|length| path.get(..length));
        // `*` of an OPTIONS request is below the empty prefix.
        let root = (!path.starts_with(b"/")).then_some(&b""[..]);
        known.chain(root).filter_map(|beginning| self.positions.get(beginning)).flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_found_by_itself_and_by_its_beginnings() {
        let index = PathIndex::new(["/a/b", "/a", "", "/a/b/"].iter());
        for (path, expected) in [
            ("/a/b", &[2, 1, 0][..]),
            ("/a/b/", &[2, 1, 0, 3]),
            ("/a/b/c/d/e", &[2, 1, 0]),
            ("/ab", &[2]),
            ("/", &[2]),
            ("*", &[2]),
        ] {
            let found: Vec<_> = index.positions_for(path.as_bytes()).collect();
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(PathIndex::default().positions_for(b"/").count(), 0);
    }

    proptest! {
        #[test]
        fn no_route_that_matches_is_missed(
            prefixes in prop::collection::vec("(/[ab]{0,2}){0,4}", 0..12),
            path in "(/[ab]{0,2}){1,6}",
        ) {
            let prefixes: Vec<_> = prefixes.iter().map(|prefix| prefix.strip_suffix('/').unwrap_or(prefix)).collect();
            let index = PathIndex::new(prefixes.iter());
            let found: Vec<_> = index.positions_for(path.as_bytes()).collect();
            for (position, prefix) in prefixes.iter().enumerate() {
                let rest = path.strip_prefix(prefix);
                let matches = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                prop_assert_eq!(matches, found.contains(&position), "{}", prefix);
            }
        }
    }
}

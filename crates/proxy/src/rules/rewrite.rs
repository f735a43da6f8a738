//! Replaces the prefix of a path.

use crate::answer::Error;
use http::Method;
use litequic_exchange as exchange;
use std::borrow::Cow;

/// Replacement of a route's prefix.
#[derive(Debug)]
pub(super) struct PrefixRewrite {
    /// Prefix that is replaced, without the trailing slash, like `to`.
    from: String,
    to: String,
}

impl PrefixRewrite {
    pub(super) fn new(from: &str, to: &str) -> Self {
        let trimmed = |prefix: &str| prefix.trim_end_matches('/').to_owned();
        Self { from: trimmed(from), to: trimmed(to) }
    }

    /// Replaces the prefix of `path`; the rest stays byte for byte. `*`, which has none, is left.
    ///
    /// # Errors
    ///
    /// [`Error::PathTooLong`]
    pub(super) fn rewrite_path<'a>(&self, method: &Method, path: &'a str) -> Result<Cow<'a, str>, Error> {
        // The route was chosen by this prefix.
        let Some(rest) = path.strip_prefix(self.from.as_str()).filter(|_| path != "*") else { return Ok(path.into()) };
        let slash = if self.to.is_empty() && !rest.starts_with('/') { "/" } else { "" };
        let joined = [self.to.as_str(), slash, rest].concat();
        // A valid path and a checked prefix, joined between two segments, can only be too long.
        exchange::check_path(method, joined.as_bytes()).map_err(|_| Error::PathTooLong)?;
        Ok(joined.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewritten(from: &str, to: &str, path: &'static str) -> String {
        PrefixRewrite::new(from, to).rewrite_path(&Method::OPTIONS, path).unwrap().into_owned()
    }

    #[test]
    fn the_prefix_is_replaced_and_nothing_else() {
        for (from, to, path, expected) in [
            ("/api", "/", "/api", "/"),
            ("/api", "/", "/api/", "/"),
            ("/api", "/", "/api/users", "/users"),
            ("/api", "/", "/api?q=/api", "/?q=/api"),
            ("/api", "/", "/api/?q", "/?q"),
            ("/api/", "/", "/api/users/", "/users/"),
            ("/api/", "/", "/api", "/"),
            ("/api", "/v2", "/api", "/v2"),
            ("/api", "/v2", "/api/", "/v2/"),
            ("/api", "/v2/", "/api", "/v2"),
            ("/api", "/v2/", "/api/users?a=b", "/v2/users?a=b"),
            ("/api", "/v2", "/api?q", "/v2?q"),
            ("/", "/v2", "/", "/v2/"),
            ("/", "/v2", "/users", "/v2/users"),
            ("/", "/", "/users", "/users"),
            ("/api", "/", "/api//users", "//users"),
            ("/api", "/v2", "/api//", "/v2//"),
            ("/api", "/", "/api/a%2fb%20c;d=1", "/a%2fb%20c;d=1"),
            ("/a%20b", "/c", "/a%20b/d", "/c/d"),
            ("/api", "/", "/api/api", "/api"),
            ("/", "/v2", "*", "*"),
        ] {
            assert_eq!(rewritten(from, to, path), expected, "{from} {to} {path}");
        }
    }

    #[test]
    fn a_path_that_becomes_too_long_is_refused() {
        let longest = "/".repeat(usize::from(u16::MAX) - 1);
        exchange::check_path(&Method::GET, longest.as_bytes()).unwrap();
        assert_eq!(PrefixRewrite::new("/", "/v2").rewrite_path(&Method::GET, &longest), Err(Error::PathTooLong));
        PrefixRewrite::new("/", "/").rewrite_path(&Method::GET, &longest).unwrap();
    }

    proptest! {
        /// The rest behind the prefix is the client's bytes, and the result is a path that the front end would accept.
        #[test]
        fn every_path_that_passes_still_passes(
            from in "(/[a-z]{0,2}){0,2}",
            to in "(/[a-z]{0,2}){0,2}",
            rest in "((/|%2[fF]|%2[eE]|[.;a?]){0,12})",
        ) {
            let path = format!("{}/{rest}", from.trim_end_matches('/'));
            if exchange::check_path(&Method::GET, path.as_bytes()).is_err() {
                return Ok(());
            }
            let rewritten = PrefixRewrite::new(&from, &to).rewrite_path(&Method::GET, &path).unwrap();
            prop_assert!(rewritten.starts_with('/'));
            let end = format!("/{rest}");
            prop_assert!(rewritten.ends_with(&end));
        }
    }
}

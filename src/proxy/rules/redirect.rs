//! Redirects (RFC 9110 §15.4).

use super::fields::{Uses, Variables};
use crate::{
    config::{self, Template},
    exchange::{Response, field::REQUEST_ID},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, uri::PathAndQuery};

/// Where to, and how.
#[derive(Debug)]
pub(in crate::proxy) struct RedirectRule {
    to: Template,
    status: StatusCode,
}

impl RedirectRule {
    pub(super) fn new(redirect: &config::Redirect) -> Self {
        Self { to: redirect.to.clone(), status: redirect.status }
    }

    /// The values that its `Location` needs.
    pub(super) fn uses(&self) -> Uses {
        Uses::of(&self.to)
    }

    /// The answer to a request for `path`. Its target is the configuration's: that has a slash, or a whole authority,
    /// before anything that the client chose.
    pub(in crate::proxy) fn response(
        &self,
        path: Option<&PathAndQuery>,
        id: &HeaderValue,
        variables: &Variables<'_>,
    ) -> Response {
        // `*` is the server as a whole.
        let path = path.map(PathAndQuery::as_str).filter(|path| *path != "*").unwrap_or_default();
        let mut response = Response::default();
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        // Authority and path are visible ASCII: it is always a valid value.
        if let Ok(location) = HeaderValue::from_maybe_shared(Bytes::from(variables.fill(&self.to, path))) {
            fields.insert(header::LOCATION, location);
        }
        fields.insert(REQUEST_ID, id.clone());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fields::tests::variables, *};
    use crate::config::Variable;

    #[test]
    fn what_the_client_chose_comes_after_what_the_operator_did() {
        let id = HeaderValue::from_static("7f3a");
        for (to, path, location) in [
            ("https://b.test{path}", "/", "https://b.test/"),
            ("https://b.test{path}", "/a?b=c", "https://b.test/a?b=c"),
            ("https://b.test{path}", "//evil.test/", "https://b.test//evil.test/"),
            ("https://b.test{path}", "/@evil.test", "https://b.test/@evil.test"),
            ("https://b.test:8443/new{path}", "/a%2f", "https://b.test:8443/new/a%2f"),
            ("https://b.test{path}", "*", "https://b.test"),
            ("https://{host}{path}", "/a", "https://a.test:444/a"),
            ("https://www.{host}{path}", "//evil.test", "https://www.a.test:444//evil.test"),
            ("/new{path}", "//evil.test", "/new//evil.test"),
            ("/login", "/a", "/login"),
        ] {
            let to = Template::parse(to, &[Variable::Host, Variable::Path]).unwrap();
            let redirect = RedirectRule { to, status: StatusCode::SEE_OTHER };
            let path = PathAndQuery::from_static(path);
            let response = redirect.response(Some(&path), &id, &variables("a.test:444", &id));
            assert_eq!(response.status(), 303);
            assert_eq!(response.headers()[header::LOCATION], location);
        }
    }
}

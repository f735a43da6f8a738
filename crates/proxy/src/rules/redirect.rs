//! Answers with redirects (RFC 9110 §15.4).

use super::field_rules::{UsedVariables, Variables};
use http::StatusCode;
use litequic_config::{self as config, Template};
use litequic_exchange::{Body, Response, field_syntax::is_field_value, name};

/// Redirect of a route: target and status.
#[derive(Debug)]
pub(crate) struct RedirectRule {
    to: Template,
    status: StatusCode,
}

impl RedirectRule {
    pub(super) fn new(redirect: &config::Redirect) -> Self {
        Self { to: redirect.to.clone(), status: redirect.status }
    }

    /// The values that `Location` needs.
    pub(super) fn location_variables(&self) -> UsedVariables {
        UsedVariables::in_template(&self.to)
    }

    /// The response to a request for `path`. Its target is the configuration's: that has a slash, or a whole authority,
    /// before anything that the client chose.
    pub(crate) fn redirect_response(&self, path: &str, id: &str, variables: &Variables<'_>) -> Response {
        // `*` is the server as a whole.
        let path = if path == "*" { "" } else { path };
        let mut response = Response::new(self.status, Body::empty());
        let location = variables.fill_template(&self.to, path);
        // Authority and path are visible ASCII: the value is always valid.
        if is_field_value(location.as_bytes()) {
            response.fields.append(name::LOCATION, location.as_bytes());
        }
        response.fields.append(name::X_REQUEST_ID, id.as_bytes());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{super::field_rules::tests::test_variables, *};
    use litequic_config::Variable;

    #[test]
    fn what_the_client_chose_comes_after_what_the_operator_did() {
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
            let to = Template::parse_variables(to, &[Variable::Host, Variable::Path]).unwrap();
            let redirect = RedirectRule { to, status: StatusCode::SEE_OTHER };
            let response = redirect.redirect_response(path, "7f3a", &test_variables("a.test:444", "7f3a"));
            assert_eq!(response.status, 303);
            assert_eq!(response.fields.get(name::LOCATION), Some(location.as_bytes()));
        }
    }
}

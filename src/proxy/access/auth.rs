//! `routes[].auth`: another server decides about a request. Pure: the request to it, and the meaning of its answer;
//! `Proxy::authenticate` sends the one and receives the other.

use crate::{
    config,
    exchange::{Response, field::REQUEST_ID},
    proxy::{request::PROXY_CONNECTION, spelling},
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, request, response, uri::PathAndQuery,
};

/// Bytes of the body of an answer that a client gets, and so in memory at once for a request.
pub(in crate::proxy) const MAX_BODY: usize = 64 * 1024;

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Fields of the client's request that the server does not get. Its answer is about the request as a whole, so that
/// neither a condition nor a range of the client's is for it, and the body is not sent.
const WITHHELD: [HeaderName; 10] = [
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    PROXY_CONNECTION,
];

/// Names by which servers that decide also read the requested URL and method, in every spelling: a client, or a proxy
/// that passes them on, would choose what is decided about.
const OVERRIDES: [&str; 8] = [
    "x-original-url",
    "x-original-uri",
    "x-original-method",
    "x-original-host",
    "x-original-proto",
    "x-rewrite-url",
    "x-http-method-override",
    "x-method-override",
];

/// Fields of an answer that the client gets, beside its body and its status.
const PASSED_ON: [HeaderName; 7] = [
    header::SET_COOKIE,
    header::LOCATION,
    header::WWW_AUTHENTICATE,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CACHE_CONTROL,
];

/// A server that decides about the requests of a route.
#[derive(Debug)]
pub(in crate::proxy) struct AuthRule {
    /// The server's name among the origins.
    pub(in crate::proxy) origin: String,
    path: PathAndQuery,
    copy: Vec<HeaderName>,
}

/// The meaning of an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) enum AuthDecision {
    /// The request is served; its origin gets these fields.
    Admitted(Vec<(HeaderName, HeaderValue)>),
    /// The client gets the answer.
    Denied,
    /// The client gets the answer, which leads it elsewhere.
    Redirected,
    /// The answer means nothing that is safe to follow.
    Unusable,
}

impl AuthRule {
    pub(in crate::proxy) fn new(config: &config::Auth) -> Self {
        // A checked configuration has no path here that a URL could not have.
        let path = config.path.parse().unwrap_or_else(|_| PathAndQuery::from_static("/"));
        Self { origin: config.origin.clone(), path, copy: config.copy.clone() }
    }

    /// The fields that the answer alone may set.
    pub(in crate::proxy) fn copied(&self) -> impl Iterator<Item = &HeaderName> {
        self.copy.iter()
    }

    /// The request to the server about the request with `head`, less what every request to an origin gets. Fields that
    /// are `granted` by an answer alone are removed.
    pub(in crate::proxy) fn request(&self, head: &request::Parts, granted: &[String]) -> request::Parts {
        let mut uri = http::uri::Parts::default();
        (uri.scheme, uri.authority) = (head.uri.scheme().cloned(), head.uri.authority().cloned());
        uri.path_and_query = Some(self.path.clone());
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::GET;
        // Without an authority there is a `Host`.
        parts.uri = Uri::from_parts(uri).unwrap_or_else(|_| Uri::from(self.path.clone()));
        parts.headers = head.headers.clone();
        for name in &WITHHELD {
            parts.headers.remove(name);
        }
        spelling::remove(&mut parts.headers, |name| {
            let plain = spelling::plain(name);
            OVERRIDES.contains(&&*plain) || granted.iter().any(|granted| *granted == plain)
        });
        parts
    }

    /// Names the request with `head` to the server, in the `fields` for an origin.
    pub(in crate::proxy) fn describe(head: &request::Parts, fields: &mut HeaderMap) {
        if let Ok(method) = HeaderValue::from_str(head.method.as_str()) {
            fields.insert(X_FORWARDED_METHOD, method);
        }
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if let Ok(path) = HeaderValue::from_str(path) {
            fields.insert(X_FORWARDED_URI, path);
        }
        // A route may have another `Host` for its own origin.
        let host = head.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        if let Some(host) = host.or_else(|| head.headers.get(header::HOST).cloned()) {
            fields.insert(header::HOST, host);
        }
    }

    /// The meaning of an answer with `head`.
    pub(in crate::proxy) fn decide(&self, head: &response::Parts) -> AuthDecision {
        match head.status {
            status if status.is_success() => {
                self.admitted(&head.headers).map_or(AuthDecision::Unusable, AuthDecision::Admitted)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AuthDecision::Denied,
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
                if head.headers.get_all(header::LOCATION).iter().count() == 1 =>
            {
                AuthDecision::Redirected
            }
            _ => AuthDecision::Unusable,
        }
    }

    /// The fields of `copy` that `fields` have; `None` if one of them stands there twice, of which only one could be
    /// meant.
    fn admitted(&self, fields: &HeaderMap) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let mut granted = Vec::new();
        for name in &self.copy {
            let mut values = fields.get_all(name).iter();
            let Some(value) = values.next() else { continue };
            if values.next().is_some() {
                return None;
            }
            granted.push((name.clone(), value.clone()));
        }
        Some(granted)
    }
}

/// The server's answer with `head` and `body` for the client of the request with `id`.
pub(in crate::proxy) fn pass_on(head: response::Parts, body: Bytes, id: &HeaderValue) -> Response {
    let mut response = Response::default();
    *response.status_mut() = head.status;
    let fields = response.headers_mut();
    for name in &PASSED_ON {
        for value in head.headers.get_all(name) {
            fields.append(name.clone(), value.clone());
        }
    }
    if !fields.contains_key(header::CACHE_CONTROL) {
        // It is about this client, and about now.
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    fields.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    fields.insert(REQUEST_ID, id.clone());
    *response.body_mut() = body.into();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(copy: &[&str]) -> AuthRule {
        let copy = copy.iter().map(|name| name.parse().unwrap()).collect();
        AuthRule::new(&config::Auth { origin: "auth".into(), path: "/verify?a=b".into(), copy })
    }

    fn answer(status: u16, fields: &[(&'static str, &'static str)]) -> response::Parts {
        let mut response = http::Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_a_clear_answer_is_followed() {
        let rule = rule(&["Remote-User", "Remote-Groups"]);
        let user = ("remote-user", "alice");
        for (status, fields, expected) in [
            (200, vec![], AuthDecision::Admitted(vec![])),
            (204, vec![user], AuthDecision::Admitted(vec![("remote-user".parse().unwrap(), "alice".parse().unwrap())])),
            (202, vec![("remote_user", "mallory"), ("remote-email", "a@b")], AuthDecision::Admitted(vec![])),
            (200, vec![user, ("remote-user", "root")], AuthDecision::Unusable),
            (200, vec![user, user], AuthDecision::Unusable),
            (401, vec![], AuthDecision::Denied),
            (403, vec![user], AuthDecision::Denied),
            (302, vec![("location", "/sign-in")], AuthDecision::Redirected),
            (308, vec![("location", "https://a.test/")], AuthDecision::Redirected),
            (302, vec![], AuthDecision::Unusable),
            (302, vec![("location", "/a"), ("location", "/b")], AuthDecision::Unusable),
            (304, vec![("location", "/a")], AuthDecision::Unusable),
            (300, vec![("location", "/a")], AuthDecision::Unusable),
            (400, vec![], AuthDecision::Unusable),
            (404, vec![], AuthDecision::Unusable),
            (429, vec![], AuthDecision::Unusable),
            (500, vec![], AuthDecision::Unusable),
            (503, vec![], AuthDecision::Unusable),
            (999, vec![], AuthDecision::Unusable),
        ] {
            assert_eq!(rule.decide(&answer(status, &fields)), expected, "{status} {fields:?}");
        }
    }

    #[test]
    fn the_server_is_asked_about_the_request_and_not_for_what_the_client_wants() {
        let rule = rule(&["Remote-User"]);
        let mut asked = Request::builder().method("POST").uri("https://a.test/path?query");
        for (name, value) in [
            ("cookie", "session=1"),
            ("authorization", "Bearer 1"),
            ("accept", "text/html"),
            ("content-type", "text/plain"),
            ("expect", "100-continue"),
            ("te", "trailers"),
            ("range", "bytes=0-1"),
            ("if-none-match", "\"a\""),
            ("x-original-url", "https://a.test/public"),
            ("x_original-uri", "/public"),
            ("x-original-method", "GET"),
            ("remote-user", "root"),
            ("remote_user", "root"),
            ("x-forwarded-uri", "/public"),
            ("x-forwarded-method", "GET"),
        ] {
            asked = asked.header(name, value);
        }
        let head = asked.body(()).unwrap().into_parts().0;
        let mut request = rule.request(&head, &["remote-user".to_owned()]);
        assert_eq!((&request.method, request.uri.to_string()), (&Method::GET, "https://a.test/verify?a=b".into()));
        AuthRule::describe(&head, &mut request.headers);
        let mut fields: Vec<_> =
            request.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        fields.sort();
        let expected = [
            "accept: text/html",
            "authorization: Bearer 1",
            "content-type: text/plain",
            "cookie: session=1",
            "host: a.test",
            "x-forwarded-method: POST",
            "x-forwarded-uri: /path?query",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn the_client_gets_what_it_needs_to_sign_in_and_nothing_else_of_an_answer() {
        let fields = [
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("location", "/sign-in"),
            ("www-authenticate", "Bearer"),
            ("content-type", "text/html"),
            ("content-length", "5000"),
            ("remote-user", "alice"),
            ("server", "auth"),
            ("alt-svc", "h3=\":1\""),
        ];
        let id = HeaderValue::from_static("7f3a");
        let response = pass_on(answer(302, &fields), Bytes::from_static(b"sign in"), &id);
        let mut names: Vec<_> =
            response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        names.sort();
        let expected = [
            "cache-control: no-store",
            "content-length: 7",
            "content-type: text/html",
            "location: /sign-in",
            "set-cookie: a=1",
            "set-cookie: b=2",
            "www-authenticate: Bearer",
            "x-request-id: 7f3a",
        ];
        assert_eq!((response.status().as_u16(), names), (302, expected.map(str::to_owned).to_vec()));
    }
}

//! Builds the request to the server of `routes[].auth`, which decides about a client's request, and reads the decision
//! from its response. Pure: `Proxy::request_auth` sends the one and receives the other.

use crate::message::spelling;
use bytes::Bytes;
use http::{Method, StatusCode};
use litequic_config as config;
use litequic_exchange::{FieldName, FieldNameRef, Fields, Head, NameSet, Response, name};

/// Largest body, in bytes, of an auth response that is forwarded to the client, and held in memory for the request.
pub(crate) const MAX_AUTH_BODY: usize = 64 * 1024;

/// Fields of the client's request that the auth server does not get. The auth server decides about the request as a
/// whole: conditions and ranges are for the origin, and the body is not sent.
const WITHHELD_FIELDS: NameSet = NameSet::from_names(&[
    name::EXPECT,
    name::TE,
    name::TRAILER,
    name::RANGE,
    name::IF_RANGE,
    name::IF_MATCH,
    name::IF_NONE_MATCH,
    name::IF_MODIFIED_SINCE,
    name::IF_UNMODIFIED_SINCE,
    name::PROXY_CONNECTION,
]);

/// Fields in which auth servers also read the requested URL and method, in every spelling. A client, or a proxy that
/// forwards these fields, could choose with them what is decided about.
const OVERRIDE_FIELDS: [&str; 8] = [
    "x-original-url",
    "x-original-uri",
    "x-original-method",
    "x-original-host",
    "x-original-proto",
    "x-rewrite-url",
    "x-http-method-override",
    "x-method-override",
];

/// Fields of an auth response that the client gets beside the body and the status.
const FORWARDED_FIELDS: [FieldNameRef<'static>; 8] = [
    name::SET_COOKIE,
    name::LOCATION,
    name::WWW_AUTHENTICATE,
    name::CONTENT_TYPE,
    name::CONTENT_ENCODING,
    name::CONTENT_LANGUAGE,
    name::CACHE_CONTROL,
    name::RETRY_AFTER,
];

/// The auth server of a route: it decides about the route's requests.
#[derive(Debug)]
pub(crate) struct AuthRule {
    /// Name of the auth server among the origins.
    pub(crate) origin: String,
    path: String,
    copy: Vec<FieldName>,
}

/// Fields of an auth response that admits a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AuthFields {
    pub(crate) to_origin: Vec<(FieldName, Vec<u8>)>,
    /// Values of `Set-Cookie` for the client: a server that renews a session by a cookie accepts the former cookie no
    /// more, so a lost one ends the session.
    pub(crate) cookies: Vec<Vec<u8>>,
}

impl AuthFields {
    /// Adds the cookies, of which there is at least one, to the `response` to the client's request, beside its own.
    pub(crate) fn add_to_response(&self, response: &mut Fields) {
        for cookie in &self.cookies {
            response.append(name::SET_COOKIE, cookie);
        }
        let is_private = |directive: &[u8]| {
            let directive = directive.split(|byte| *byte == b'=').next().unwrap_or_default();
            directive.eq_ignore_ascii_case(b"private") || directive.eq_ignore_ascii_case(b"no-store")
        };
        if !response.list_members(name::CACHE_CONTROL).any(is_private) {
            response.set_field(name::CACHE_CONTROL, b"private");
        }
    }
}

/// Decision of an auth server, read from its response's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthDecision {
    /// The request is served.
    Admitted(AuthFields),
    /// The client gets the auth response.
    Denied,
    /// The client gets the auth response, a redirect.
    Redirected,
    /// The auth response has no meaning that is safe to follow.
    Unusable,
}

impl AuthRule {
    pub(crate) fn new(config: &config::Auth) -> Self {
        let copy = config.copy.iter().map(FieldName::from).collect();
        Self { origin: config.origin.clone(), path: config.path.clone(), copy }
    }

    /// Names of the fields that only an auth response may set.
    pub(crate) fn copied_names(&self) -> impl Iterator<Item = FieldNameRef<'_>> {
        self.copy.iter().map(FieldName::as_name_ref)
    }

    /// Builds the auth request about the request with `head`, without the fields that every request to an origin gets.
    /// Fields that no client may send, by their plain names `withheld`, are removed.
    pub(crate) fn build_auth_request(&self, head: &Head, withheld: impl Fn(&str) -> bool) -> Head {
        let mut asked = head.derive_head(Method::GET, &self.path, &head.fields);
        asked.fields.retain(|line| {
            let plain = spelling::plain_name(line.name_str());
            !OVERRIDE_FIELDS.contains(&&*plain) && !withheld(&plain) && !WITHHELD_FIELDS.contains_id(line.id())
        });
        asked
    }

    /// Adds the method and the target of the request with `head` to the auth request `asked`, whose head is converted
    /// for its origin already.
    pub(crate) fn describe_request(head: &Head, asked: &mut Head) {
        asked.fields.set_field(name::X_FORWARDED_METHOD, head.method.as_str().as_bytes());
        asked.fields.set_field(name::X_FORWARDED_URI, head.path_and_query().as_bytes());
        // A route may set another `Host` for its own origin.
        asked.set_to_authority(name::HOST);
    }

    /// Reads the decision from the `status` and `fields` of an auth response.
    pub(crate) fn read_decision(&self, status: StatusCode, fields: &Fields) -> AuthDecision {
        match status {
            status if status.is_success() => {
                let Some(to_origin) = self.copied_fields(fields) else { return AuthDecision::Unusable };
                let cookies = fields.all_values(name::SET_COOKIE).map(<[u8]>::to_vec).collect();
                AuthDecision::Admitted(AuthFields { to_origin, cookies })
            }
            status if status.is_client_error() => AuthDecision::Denied,
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
                if fields.all_values(name::LOCATION).count() == 1 =>
            {
                AuthDecision::Redirected
            }
            _ => AuthDecision::Unusable,
        }
    }

    /// The fields of `copy` that the auth response has; `None` if one of them occurs twice, because only one could be
    /// meant.
    fn copied_fields(&self, fields: &Fields) -> Option<Vec<(FieldName, Vec<u8>)>> {
        let mut granted = Vec::new();
        for name in &self.copy {
            let mut values = fields.all_values(name.as_name_ref());
            let Some(value) = values.next() else { continue };
            if values.next().is_some() {
                return None;
            }
            granted.push((name.clone(), value.to_vec()));
        }
        Some(granted)
    }
}

/// The auth response for the client of the request with `id`, with `body`.
pub(crate) fn build_auth_response(status: StatusCode, answered: &Fields, body: Bytes, id: &str) -> Response {
    let length = body.len() as u64;
    let mut response = Response::new(status, body);
    let fields = &mut response.fields;
    for name in FORWARDED_FIELDS {
        answered.all_values(name).for_each(|value| fields.append(name, value));
    }
    if !fields.contains(name::CACHE_CONTROL) {
        // The response is about this client at this moment: no cache may store it.
        fields.append(name::CACHE_CONTROL, b"no-store");
    }
    fields.set_number_field(name::CONTENT_LENGTH, length);
    fields.set_field(name::X_REQUEST_ID, id.as_bytes());
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::Authority;

    fn rule(copy: &[&str]) -> AuthRule {
        let copy = copy.iter().map(|name| name.parse().unwrap()).collect();
        AuthRule::new(&config::Auth { origin: "auth".into(), path: "/verify?a=b".into(), copy })
    }

    fn lines(lines: &[(&str, &str)]) -> Fields {
        lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect()
    }

    /// Returns the lines of `fields`, sorted.
    fn sorted(fields: &Fields) -> Vec<String> {
        let text = |value| str::from_utf8(value).unwrap();
        let mut lines: Vec<_> =
            fields.iter().map(|line| format!("{}: {}", line.name_str(), text(line.value))).collect();
        lines.sort();
        lines
    }

    #[test]
    fn only_a_clear_answer_is_followed() {
        let rule = rule(&["Remote-User", "Remote-Groups"]);
        let user = ("remote-user", "alice");
        let admitted = |to_origin: Vec<(FieldName, Vec<u8>)>, cookies: &[&str]| {
            let cookies = cookies.iter().map(|cookie| cookie.as_bytes().to_vec()).collect();
            AuthDecision::Admitted(AuthFields { to_origin, cookies })
        };
        for (status, fields, expected) in [
            (200, vec![], admitted(vec![], &[])),
            (204, vec![user], admitted(vec![(name::REMOTE_USER.into(), b"alice".to_vec())], &[])),
            (202, vec![("remote_user", "mallory"), ("remote-email", "a@b")], admitted(vec![], &[])),
            (200, vec![("set-cookie", "a=1"), ("set-cookie", "b=2")], admitted(vec![], &["a=1", "b=2"])),
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
            (400, vec![], AuthDecision::Denied),
            (404, vec![], AuthDecision::Denied),
            (429, vec![("retry-after", "5")], AuthDecision::Denied),
            (500, vec![], AuthDecision::Unusable),
            (503, vec![], AuthDecision::Unusable),
            (999, vec![], AuthDecision::Unusable),
        ] {
            let answer = lines(&fields);
            assert_eq!(
                rule.read_decision(StatusCode::from_u16(status).unwrap(), &answer),
                expected,
                "{status} {fields:?}"
            );
        }
    }

    #[test]
    fn an_auth_request_describes_the_request_without_conditions_and_forged_fields() {
        let rule = rule(&["Remote-User"]);
        let fields = lines(&[
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
        ]);
        let head = Head::new(Method::POST, Authority::new("a.test"), "/path?query", fields);
        let mut request = rule.build_auth_request(&head, |plain| plain == "remote-user");
        let target = (request.method.clone(), request.authority(), request.target());
        assert_eq!(target, (Method::GET, "a.test", "/verify?a=b"));
        AuthRule::describe_request(&head, &mut request);
        let expected = [
            "accept: text/html",
            "authorization: Bearer 1",
            "content-type: text/plain",
            "cookie: session=1",
            "host: a.test",
            "x-forwarded-method: POST",
            "x-forwarded-uri: /path?query",
        ];
        assert_eq!(sorted(&request.fields), expected);
    }

    #[test]
    fn a_renewed_cookie_reaches_the_client_and_no_shared_cache() {
        for (response, expected) in [
            (&[][..], &["cache-control: private", "set-cookie: s=2"][..]),
            (
                &[("cache-control", "public, max-age=60"), ("set-cookie", "theme=dark")],
                &["cache-control: private", "set-cookie: s=2", "set-cookie: theme=dark"],
            ),
            (
                &[("cache-control", "no-cache, Private=\"x\""), ("x-a", "1")],
                &["cache-control: no-cache, Private=\"x\"", "set-cookie: s=2", "x-a: 1"],
            ),
            (&[("cache-control", "no-store")], &["cache-control: no-store", "set-cookie: s=2"]),
        ] {
            let given = AuthFields { cookies: vec![b"s=2".to_vec()], ..AuthFields::default() };
            let mut fields = lines(response);
            given.add_to_response(&mut fields);
            assert_eq!(sorted(&fields), expected);
        }
    }

    #[test]
    fn a_denied_client_gets_only_the_fields_for_signing_in() {
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
        let response = build_auth_response(StatusCode::FOUND, &lines(&fields), Bytes::from_static(b"sign in"), "7f3a");
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
        assert_eq!((response.status.as_u16(), sorted(&response.fields)), (302, expected.map(str::to_owned).to_vec()));
    }
}

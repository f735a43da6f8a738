//! `routes[].auth`: another server decides about a request. Pure: the request to it, and the meaning of its answer;
//! `Proxy::authenticate` sends the one and receives the other.

use crate::message::spelling;
use bytes::Bytes;
use http::{Method, StatusCode};
use litequic_config as config;
use litequic_exchange::{FieldName, FieldNameRef, Fields, Head, NameSet, Response, name};

/// Bytes of the body of an answer that a client gets, and so in memory at once for a request.
pub(crate) const MAX_AUTH_BODY: usize = 64 * 1024;

/// Fields of the client's request that the server does not get. Its answer is about the request as a whole, so that
/// neither a condition nor a range of the client's is for it, and the body is not sent.
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

/// Names by which servers that decide also read the requested URL and method, in every spelling: a client, or a proxy
/// that passes them on, would choose what is decided about.
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

/// Fields of an answer that the client gets, beside its body and its status.
const FORWARDED_FIELDS: [FieldNameRef<'static>; 7] = [
    name::SET_COOKIE,
    name::LOCATION,
    name::WWW_AUTHENTICATE,
    name::CONTENT_TYPE,
    name::CONTENT_ENCODING,
    name::CONTENT_LANGUAGE,
    name::CACHE_CONTROL,
];

/// A server that decides about the requests of a route.
#[derive(Debug)]
pub(crate) struct AuthRule {
    /// The server's name among the origins.
    pub(crate) origin: String,
    path: String,
    copy: Vec<FieldName>,
}

/// The meaning of an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthDecision {
    /// The request is served; its origin gets these fields.
    Admitted(Vec<(FieldName, Vec<u8>)>),
    /// The client gets the answer.
    Denied,
    /// The client gets the answer, which leads it elsewhere.
    Redirected,
    /// The answer means nothing that is safe to follow.
    Unusable,
}

impl AuthRule {
    pub(crate) fn new(config: &config::Auth) -> Self {
        let copy = config.copy.iter().map(FieldName::from).collect();
        Self { origin: config.origin.clone(), path: config.path.clone(), copy }
    }

    /// The fields that the answer alone may set.
    pub(crate) fn copied_names(&self) -> impl Iterator<Item = FieldNameRef<'_>> {
        self.copy.iter().map(FieldName::as_name_ref)
    }

    /// The request to the server about the request with `head`, less what every request to an origin gets. Fields that
    /// are `granted` by an answer alone are removed.
    pub(crate) fn build_auth_request(&self, head: &Head, granted: &[String]) -> Head {
        let mut asked = head.derive_head(Method::GET, &self.path, &head.fields);
        asked.fields.retain(|line| {
            let plain = spelling::plain_name(line.name_str());
            let is_granted = OVERRIDE_FIELDS.contains(&&*plain) || granted.iter().any(|granted| *granted == plain);
            !is_granted && !WITHHELD_FIELDS.contains_id(line.id())
        });
        asked
    }

    /// Names the request with `head` to the server, in the head for an origin.
    pub(crate) fn describe_request(head: &Head, asked: &mut Head) {
        asked.fields.set_field(name::X_FORWARDED_METHOD, head.method.as_str().as_bytes());
        asked.fields.set_field(name::X_FORWARDED_URI, head.path_and_query().as_bytes());
        // A route may have another `Host` for its own origin.
        asked.set_to_authority(name::HOST);
    }

    /// The meaning of an answer with `head`.
    pub(crate) fn read_decision(&self, status: StatusCode, fields: &Fields) -> AuthDecision {
        match status {
            status if status.is_success() => {
                self.copied_fields(fields).map_or(AuthDecision::Unusable, AuthDecision::Admitted)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AuthDecision::Denied,
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

    /// The fields of `copy` that `fields` have; `None` if one of them stands there twice, of which only one could be
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

/// The server's answer with `body` for the client of the request with `id`.
pub(crate) fn build_auth_response(status: StatusCode, answered: &Fields, body: Bytes, id: &str) -> Response {
    let length = body.len() as u64;
    let mut response = Response::new(status, body);
    let fields = &mut response.fields;
    for name in FORWARDED_FIELDS {
        answered.all_values(name).for_each(|value| fields.append(name, value));
    }
    if !fields.contains(name::CACHE_CONTROL) {
        // It is about this client, and about now.
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

    /// Names and values, sorted.
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
        for (status, fields, expected) in [
            (200, vec![], AuthDecision::Admitted(vec![])),
            (204, vec![user], AuthDecision::Admitted(vec![(name::REMOTE_USER.into(), b"alice".to_vec())])),
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
            let answer = lines(&fields);
            assert_eq!(
                rule.read_decision(StatusCode::from_u16(status).unwrap(), &answer),
                expected,
                "{status} {fields:?}"
            );
        }
    }

    #[test]
    fn the_server_is_asked_about_the_request_and_not_for_what_the_client_wants() {
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
        let mut request = rule.build_auth_request(&head, &["remote-user".to_owned()]);
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

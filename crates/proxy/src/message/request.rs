//! Converts a request, which the front end has checked, for the origin: an HTTP/1.1 head with explicit framing. Pure.
//!
//! `connection::origin_connection` writes this head as it is, and frames the body by the same [`BodyFraming`].

use super::{StreamingCall, forwarded, spelling};
use crate::answer::Error;
use http::Method;
use http_body::Body as HttpBody;
use litequic_config::{self as config, AmbiguousFields, ReservedFields};
use litequic_exchange::{
    CertificateRequest, Client, Fields, Head, NameSet, Propagation, field_syntax::may_be_trailer, name,
};

/// Framing of a body on the connection to the origin (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// The request has no body.
    None,
    /// `Content-Length`
    Length(u64),
    /// `Transfer-Encoding: chunked`
    Chunked,
}

impl BodyFraming {
    pub(crate) fn from_body(body: &impl HttpBody) -> Self {
        match body.size_hint().exact() {
            _ if body.is_end_stream() => Self::None,
            Some(length) => Self::Length(length),
            None => Self::Chunked,
        }
    }
}

/// Fields of a request that an origin does not get.
#[derive(Debug, Clone)]
pub(crate) struct FieldPolicy {
    ambiguous: AmbiguousFields,
    reserved: ReservedFields,
    /// Names of the table that may be reserved.
    suspicious: NameSet,
}

impl Default for FieldPolicy {
    fn default() -> Self {
        Self::new(AmbiguousFields::default(), ReservedFields::default())
    }
}

impl FieldPolicy {
    fn new(ambiguous: AmbiguousFields, reserved: ReservedFields) -> Self {
        Self { suspicious: NameSet::from_predicate(|name| reserved.may_contain(name)), ambiguous, reserved }
    }

    pub(crate) fn from_origin(config: &config::OriginConfig) -> Self {
        Self::new(config.ambiguous_fields, config.reserved_fields.clone())
    }

    /// Whether any of `fields` may be reserved.
    fn may_have_reserved(&self, fields: &Fields) -> bool {
        let others = || fields.iter().filter(|line| !line.id().is_known());
        fields.names.intersects(self.suspicious)
            || fields.names.intersects(NameSet::OTHER)
                && others().any(|line| self.reserved.may_contain(line.name_str()))
    }
}

/// Settings of a route for the heads of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteHead {
    /// Value of `Host` for the origin, instead of `:authority`.
    pub(crate) rewrite_host: Option<String>,
    /// Certificate that clients have to present; 403 without.
    pub(crate) certificate: CertificateRequest,
    /// Whether the method of a request decides between this route and another: a field that overrides the method would
    /// undo that.
    pub(crate) methods_matter: bool,
}

/// Fields that were removed from a request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemovedFields {
    /// Fields with an ambiguous name.
    pub(crate) ambiguous: u64,
    /// Fields that only a trusted proxy may send.
    pub(crate) reserved: u64,
}

/// Converts the head of a client's request for the origin, and returns the numbers of fields that were removed.
///
/// # Errors
///
/// [`Error::NoAuthority`] if the request has no host for `Host`; [`Error::Tunnel`] for CONNECT, which
/// would ask for a tunnel; [`Error::AmbiguousField`] where those are to be rejected.
pub(crate) fn translate_request(
    head: &mut Head,
    framing: BodyFraming,
    route: &RouteHead,
    client: &Client,
    id: &str,
    trusted: bool,
    policy: &FieldPolicy,
) -> Result<RemovedFields, Error> {
    if head.method == Method::CONNECT {
        return Err(Error::Tunnel);
    }
    if head.authority().is_empty() {
        return Err(Error::NoAuthority);
    }
    // Most requests have none of these fields.
    let special = head.fields.names.intersects(SPECIAL_FIELDS);
    let mut removed = RemovedFields::default();
    // Keys of gRPC's metadata may have `_` and `.`, and its servers make no variables of them.
    let is_grpc = special && StreamingCall::classify_call(head, client.protocol).is_some_and(|call| call.is_grpc);
    let ambiguous = if is_grpc { AmbiguousFields::Pass } else { policy.ambiguous };
    let fields = &mut head.fields;
    if special {
        removed.ambiguous = spelling::handle_ambiguous(fields, ambiguous)?;
    }
    // Unless ambiguous names pass, all names are plain now.
    let is_folded = special && ambiguous == AmbiguousFields::Pass;
    if is_folded || !trusted && policy.may_have_reserved(fields) {
        removed.reserved = spelling::remove_names(fields, |name| {
            let plain = !is_folded || spelling::is_plain_name(name);
            // A trusted proxy's fields in another spelling are its client's.
            (!plain || !trusted && policy.reserved.may_contain(name))
                && policy.reserved.reserves_field(&spelling::plain_name(name), route.methods_matter)
        });
    }
    forwarded::set_forwarded(head, client, id, trusted);
    if route.certificate != CertificateRequest::None
        && let Some(certificate) = &client.identity.certificate
    {
        forwarded::set_certificate(&mut head.fields, certificate);
    }
    match &route.rewrite_host {
        Some(host) => head.fields.set_field(name::HOST, host.as_bytes()),
        None => head.set_to_authority(name::HOST),
    }
    if special {
        remove_special(&mut head.fields, framing);
    }
    // The target is the client's, byte for byte. `Early-Data` passes: no intermediary may remove it (RFC 8470 §5.1),
    // and as litequic takes no 0-RTT it never has to add one.
    set_framing(&mut head.fields, &head.method, framing);
    Ok(removed)
}

/// Names that [`remove_special`] removes or changes, or [`spelling::handle_ambiguous`].
const SPECIAL_FIELDS: NameSet = NameSet::from_names(&[
    name::PROXY,
    name::CONNECTION,
    name::KEEP_ALIVE,
    name::PROXY_CONNECTION,
    name::UPGRADE,
    name::TE,
    name::CONTENT_LENGTH,
    name::TRANSFER_ENCODING,
    name::TRAILER,
])
.union(NameSet::AMBIGUOUS);

/// Removes the fields that a client may not send to the origin, and those that frame the body.
fn remove_special(fields: &mut Fields, framing: BodyFraming) {
    // A CGI origin takes such fields for its own `http_proxy` (CVE-2016-5385), and for a second framing.
    fields.remove_field(name::PROXY);
    remove_framing_twins(fields);

    // RFC 9114 §4.2: the front end has rejected these. Should it ever not, they are removed here.
    for name in [name::CONNECTION, name::KEEP_ALIVE, name::PROXY_CONNECTION, name::UPGRADE] {
        fields.remove_field(name);
    }
    // `TE: trailers` is hop-by-hop: litequic accepts trailers, too (RFC 9110 §10.1.4).
    if fields.remove_field(name::TE) {
        fields.append(name::TE, b"trailers");
        fields.append(name::CONNECTION, b"TE");
    }
    fields.remove_field(name::CONTENT_LENGTH);
    fields.remove_field(name::TRANSFER_ENCODING);
    if framing != BodyFraming::Chunked {
        // HTTP/1.1 has trailers only after chunks.
        fields.remove_field(name::TRAILER);
    }
}

/// Removes the fields that, in their plain spelling, would frame the request or belong to its connection.
fn remove_framing_twins(fields: &mut Fields) {
    const FRAMING: [&str; 4] = ["content-length", "transfer-encoding", "keep-alive", "proxy-connection"];
    spelling::remove_names(fields, |name| {
        !spelling::is_plain_name(name) && FRAMING.contains(&&*spelling::plain_name(name))
    });
}

/// Counts down `Max-Forwards` of an OPTIONS request (RFC 9110 §7.6.2), and returns false if it must not be forwarded.
/// Other methods ignore the field, and a value that is not a number is ignored.
pub(crate) fn count_down_max_forwards(method: &Method, fields: &mut Fields) -> bool {
    if *method != Method::OPTIONS {
        return true;
    }
    let Some(digits) = fields.get(name::MAX_FORWARDS) else { return true };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return true;
    }
    let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
    let Some(left) = number.checked_sub(1) else { return false };
    fields.set_number_field(name::MAX_FORWARDS, left);
    true
}

/// Sets the framing fields, after all others were removed.
fn set_framing(fields: &mut Fields, method: &Method, framing: BodyFraming) {
    match framing {
        // RFC 9110 §8.6: a method whose body has a meaning states that there is none.
        BodyFraming::None if matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {
            fields.set_field(name::CONTENT_LENGTH, b"0");
        }
        BodyFraming::None => {}
        BodyFraming::Length(length) => fields.set_number_field(name::CONTENT_LENGTH, length),
        BodyFraming::Chunked => fields.set_field(name::TRANSFER_ENCODING, b"chunked"),
    }
}

/// Removes trailer fields that would have an effect in an origin that merges them into the header (RFC 9110 §6.5.1), in
/// any spelling; those that a rule of the route names; those that only a trusted proxy may send, which has no reason to
/// send them here; and, unless they are to be forwarded, all with an ambiguous name. `is_ruled` says whether a rule
/// names a field, by its plain spelling. Returns the numbers of the last two. Trailers that the request's `Trailer`
/// declared are forwarded.
pub(crate) fn filter_request_trailers(
    fields: &mut Fields,
    is_ruled: impl Fn(&str) -> bool,
    methods_matter: bool,
    policy: &FieldPolicy,
) -> RemovedFields {
    // A 400 is no longer possible here.
    let ambiguous = match policy.ambiguous {
        AmbiguousFields::Pass => 0,
        AmbiguousFields::Drop | AmbiguousFields::Reject => {
            spelling::remove_names(fields, |name| !spelling::is_plain_name(name))
        }
    };
    let reserved = spelling::remove_names(fields, |name| {
        policy.reserved.reserves_field(&spelling::plain_name(name), methods_matter)
    });
    spelling::remove_names(fields, |name| {
        let name = spelling::plain_name(name);
        !may_be_trailer(&name) || is_ruled(&name)
    });
    RemovedFields { ambiguous, reserved }
}

/// Removes the trace context that litequic replaces: each attempt has its own.
pub(crate) fn remove_trace_context(fields: &mut Fields, propagation: Propagation) {
    if propagation == Propagation::Unchanged {
        return;
    }
    fields.remove_field(name::TRACEPARENT);
    if propagation == Propagation::Begun {
        fields.remove_field(name::TRACESTATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RouteState, RuleSet};
    use bytes::Bytes;
    use http::{HeaderName, request};
    use http_body_util::{BodyExt, StreamBody};
    use litequic_config as config;
    use litequic_exchange::{Authority, Body, BodyError, FieldNameRef, LastForwarded, Protocol, TlsIdentity};

    #[test]
    fn whatever_is_removed_is_among_the_names_that_say_whether_anything_is() {
        let names = ["proxy", "connection", "keep-alive", "proxy-connection", "upgrade", "te", "content-length"];
        let twins = ["transfer-encoding", "trailer", "content_length", "transfer_encoding", "keep_alive"];
        for name in names.into_iter().chain(twins).chain(["proxy_connection", "accept", "x-a"]) {
            for framing in [BodyFraming::None, BodyFraming::Chunked] {
                let before = Fields::from_iter([(FieldNameRef::from_lower_case_token(name), &b"1"[..])]);
                let mut after = before.clone();
                remove_special(&mut after, framing);
                assert!(after == before || before.names.intersects(SPECIAL_FIELDS), "{name}");
            }
        }
        assert!(
            !Fields::from_iter([(FieldNameRef::from_lower_case_token("accept"), &b"1"[..])])
                .names
                .intersects(SPECIAL_FIELDS)
        );
    }

    /// One name is in the table, the other is not.
    #[test]
    fn reserved_fields_are_removed_in_and_outside_the_table() {
        let reserved = ["x-requested-with", "x-other"].map(|name| config::ReservedField::Name(name.into()));
        let policy = FieldPolicy::new(AmbiguousFields::Drop, ReservedFields::new(reserved.to_vec()));
        for name in ["x-requested-with", "x-other"] {
            let fields = Fields::from_iter([
                (FieldNameRef::from_lower_case_token(name), &b"1"[..]),
                (FieldNameRef::from_lower_case_token(name), b"2"),
                (name::EXPECT, b"3"),
            ]);
            assert!(policy.may_have_reserved(&fields), "{name}");
            let (head, removed) = translated_by(
                Head::new(Method::GET, Authority::new("a.test"), "/", fields),
                BodyFraming::None,
                None,
                &policy,
            );
            assert_eq!(
                (removed.reserved, head.fields.contains(FieldNameRef::from_lower_case_token(name))),
                (1, false),
                "{name}"
            );
            assert!(head.fields.contains(name::EXPECT));
        }
    }

    fn translated(request: request::Builder, framing: BodyFraming, rewrite: Option<&str>) -> Head {
        let policy = FieldPolicy::new(AmbiguousFields::Pass, ReservedFields::default());
        translated_by(request.body(()).unwrap().into_parts().0.into(), framing, rewrite, &policy).0
    }

    fn translated_by(
        mut head: Head,
        framing: BodyFraming,
        rewrite: Option<&str>,
        policy: &FieldPolicy,
    ) -> (Head, RemovedFields) {
        let route = RouteHead { rewrite_host: rewrite.map(str::to_owned), ..RouteHead::default() };
        let client = Client {
            address: "192.0.2.7:1".parse().unwrap(),
            local: "192.0.2.1:443".parse().unwrap(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: TlsIdentity::default(),
            connection: 0,
        };
        let removed = translate_request(&mut head, framing, &route, &client, "id", false, policy).unwrap();
        (head, removed)
    }

    fn field<'a>(head: &'a Head, name: &'a str) -> Option<&'a str> {
        assert!(head.fields.all_values(FieldNameRef::from_lower_case_token(name)).count() <= 1, "{name} twice");
        head.fields.get(FieldNameRef::from_lower_case_token(name)).map(|value| str::from_utf8(value).unwrap())
    }

    #[test]
    fn framing_is_explicit() {
        for (method, framing, length, coding) in [
            ("GET", BodyFraming::None, None, None),
            ("HEAD", BodyFraming::None, None, None),
            ("DELETE", BodyFraming::None, None, None),
            ("OPTIONS", BodyFraming::None, None, None),
            ("BREW", BodyFraming::None, None, None),
            ("POST", BodyFraming::None, Some("0"), None),
            ("PUT", BodyFraming::None, Some("0"), None),
            ("PATCH", BodyFraming::None, Some("0"), None),
            ("GET", BodyFraming::Length(5), Some("5"), None),
            ("POST", BodyFraming::Length(0), Some("0"), None),
            ("GET", BodyFraming::Chunked, None, Some("chunked")),
            ("HEAD", BodyFraming::Chunked, None, Some("chunked")),
            ("DELETE", BodyFraming::Chunked, None, Some("chunked")),
            ("POST", BodyFraming::Chunked, None, Some("chunked")),
        ] {
            let request = http::Request::builder().method(method).uri("https://a.test/");
            // The client's own declarations have no effect.
            let request = request.header("content-length", "7").header("transfer-encoding", "gzip");
            let parts = translated(request, framing, None);
            assert_eq!(field(&parts, "content-length"), length, "{method} {framing:?}");
            assert_eq!(field(&parts, "transfer-encoding"), coding, "{method} {framing:?}");
        }
    }

    #[test]
    fn a_bodys_framing_follows_what_is_known_of_it() {
        let unknown = StreamBody::new(futures_util::stream::empty::<Result<http_body::Frame<Bytes>, BodyError>>());
        assert_eq!(BodyFraming::from_body(&Body::empty()), BodyFraming::None);
        assert_eq!(BodyFraming::from_body(&Body::from("hello")), BodyFraming::Length(5));
        assert_eq!(BodyFraming::from_body(&Body::from_stream(unknown.boxed_unsync())), BodyFraming::Chunked);
    }

    #[test]
    fn the_target_is_in_origin_form_and_byte_identical() {
        for (uri, expected) in [
            ("https://a.test/", "/"),
            ("https://a.test", "/"),
            ("https://a.test/a/%2e%2E/b;c=d//e?q=%20&r='{}", "/a/%2e%2E/b;c=d//e?q=%20&r='{}"),
            ("https://a.test/?", "/?"),
            ("https://a.test/a?b?c", "/a?b?c"),
        ] {
            assert_eq!(translated(http::Request::get(uri), BodyFraming::None, None).target(), expected);
        }
        let star = http::Uri::builder().scheme("https").authority("a.test").path_and_query("*").build().unwrap();
        let request = http::Request::options(star);
        assert_eq!(translated(request, BodyFraming::None, None).target(), "*");
    }

    #[test]
    fn there_is_one_host_and_it_is_the_authority_unless_rewritten() {
        let request = || http::Request::get("https://A.test:8443/").header("host", "x").header("host", "y");
        assert_eq!(field(&translated(request(), BodyFraming::None, None), "host"), Some("A.test:8443"));
        let rewritten = translated(request(), BodyFraming::None, Some("inner"));
        assert_eq!(field(&rewritten, "host"), Some("inner"));
        assert_eq!(field(&rewritten, "x-forwarded-host"), Some("A.test:8443"));
    }

    #[test]
    fn hop_by_hop_fields_never_pass() {
        let mut request = http::Request::get("https://a.test/");
        for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding"] {
            request = request.header(name, "x");
        }
        let parts =
            translated(request.header("early-data", "1").header("expect", "100-continue"), BodyFraming::None, None);
        for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding", "te"] {
            assert_eq!(field(&parts, name), None);
        }
        assert_eq!(field(&parts, "early-data"), Some("1"));
        assert_eq!(field(&parts, "expect"), Some("100-continue"));
    }

    #[test]
    fn te_trailers_goes_with_connection_te() {
        let parts = translated(http::Request::get("https://a.test/").header("te", "trailers"), BodyFraming::None, None);
        assert_eq!((field(&parts, "te"), field(&parts, "connection")), (Some("trailers"), Some("TE")));
    }

    #[test]
    fn fields_that_imitate_framing_or_the_environment_are_removed() {
        let mut request = http::Request::get("https://a.test/").header("x_other", "1");
        let names =
            ["proxy", "content_length", "content.length", "transfer_encoding", "keep_alive", "proxy_connection"];
        for name in names {
            request = request.header(name, "x");
        }
        let parts = translated(request, BodyFraming::None, None);
        for name in names {
            assert_eq!(field(&parts, name), None, "{name}");
        }
        assert_eq!(field(&parts, "x_other"), Some("1"));
    }

    #[test]
    fn max_forwards_counts_down_for_options_alone() {
        for (method, value, goes_on, after) in [
            (Method::OPTIONS, "0", false, "0"),
            (Method::OPTIONS, "00", false, "00"),
            (Method::OPTIONS, "1", true, "0"),
            (Method::OPTIONS, "10", true, "9"),
            (Method::OPTIONS, "99999999999999999999999", true, "18446744073709551614"),
            (Method::OPTIONS, "-1", true, "-1"),
            (Method::OPTIONS, "", true, ""),
            (Method::GET, "0", true, "0"),
        ] {
            let mut fields = Fields::from_iter([(name::MAX_FORWARDS, value.as_bytes())]);
            assert_eq!(count_down_max_forwards(&method, &mut fields), goes_on, "{method} {value}");
            assert_eq!(fields.get(name::MAX_FORWARDS), Some(after.as_bytes()), "{method} {value}");
        }
        assert!(count_down_max_forwards(&Method::OPTIONS, &mut Fields::new()));
    }

    #[test]
    fn trailers_cannot_say_what_only_a_header_may() {
        let rules = config::HeaderRules {
            remove: vec![HeaderName::from_static("x-user")],
            set: vec![(HeaderName::from_static("x-role"), config::Template(Vec::new()))],
            add: vec![(HeaderName::from_static("x_tag"), config::Template(Vec::new()))],
        };
        let route = config::RouteConfig { request_headers: rules, ..config::RouteConfig::catch_all("o") };
        let (listen, origin) = (([127, 0, 0, 1], 0).into(), "http://o".parse().unwrap());
        let general = config::Config::with_defaults(listen, origin, "c".into(), "k".into());
        let rules = RuleSet::new(&route, &general, RouteState::default());
        let kept = |rules: Option<&RuleSet>, ambiguous| {
            let mut fields = Fields::new();
            for name in [
                "x-checksum",
                "content-length",
                "transfer-encoding",
                "host",
                "proxy",
                "x-forwarded-for",
                "x_forwarded_for",
                "x.real.ip",
                "client-cert",
                "client_cert",
                "x-request-id",
                "cookie",
                "authorization",
                "x-user",
                "x_user",
                "x-role",
                "x.role",
                "x-tag",
                "x_sum",
            ] {
                fields.append(FieldNameRef::from_lower_case_token(name), b"1");
            }
            let policy = FieldPolicy::new(ambiguous, ReservedFields::default());
            let dropped = filter_request_trailers(
                &mut fields,
                |name| rules.is_some_and(|rules| rules.names_request_field(name)),
                false,
                &policy,
            )
            .ambiguous;
            let mut kept: Vec<_> = fields.iter().map(|line| line.name_str()).collect();
            kept.sort_unstable();
            (kept.join(" "), dropped)
        };
        let (pass, drop) = (AmbiguousFields::Pass, AmbiguousFields::Drop);
        assert_eq!(kept(rules.as_ref(), pass), ("x-checksum x_sum".into(), 0));
        assert_eq!(kept(rules.as_ref(), drop), ("x-checksum".into(), 6));
        assert_eq!(kept(rules.as_ref(), AmbiguousFields::Reject), ("x-checksum".into(), 6));
        assert_eq!(kept(None, pass).0, "x-checksum x-role x-tag x-user x.role x_sum x_user");
    }
}

//! Defines a response, a request, and its head: checked by the front end, edited by the proxy for the origin. Pure.

use super::authority::Authority;
use super::body::Body;
use super::fields::{FieldNameRef, Fields, Span, name};
use super::http_date::set_date;
use super::tunnel::Upgrade;
use http::{Method, StatusCode, request};

/// Head of a request. All its texts are parts of one buffer, which the fields own.
#[derive(Debug, Clone)]
pub struct Head {
    /// Method of the request.
    pub method: Method,
    /// Fields of the header. Only the head for an origin has `Host` among them.
    pub fields: Fields,
    /// The protocol switch that the request asks for.
    pub upgrade: Option<Upgrade>,
    authority: Authority,
    authority_span: Span,
    path: Span,
    target: Span,
}

const _: () = assert!(size_of::<Head>() <= 144);

impl Head {
    /// Creates a head with `authority` and `path` (with its query), both checked.
    pub fn new(method: Method, authority: Authority, path: &str, mut fields: Fields) -> Self {
        let (authority_span, path) =
            (fields.append_raw_text(authority.as_str().as_bytes()), fields.append_raw_text(path.as_bytes()));
        Self::from_spans(method, authority, authority_span, path, fields)
    }

    /// Creates a head whose `path`, and whose `authority` at `authority_span`, both checked, lie in the text of
    /// `fields`.
    pub fn from_spans(method: Method, authority: Authority, authority_span: Span, path: Span, fields: Fields) -> Self {
        Self { method, fields, upgrade: None, authority, authority_span, path, target: path }
    }

    fn span_str(&self, span: Span) -> &str {
        // The text was checked, so it is ASCII.
        str::from_utf8(self.fields.span_text(span)).unwrap_or_default()
    }

    /// Returns the authority as the client sent it: a host and perhaps a port.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Sets the field `name` to the authority.
    pub fn set_to_authority(&mut self, name: FieldNameRef<'_>) {
        self.fields.set_span(name, self.authority_span);
    }

    /// Returns the authority's host. An IPv6 address keeps its brackets.
    pub fn host(&self) -> &str {
        self.authority.host_without_port()
    }

    /// Returns the path with its query, byte for byte as the client sent it. `*` is a path, too.
    pub fn path_and_query(&self) -> &str {
        self.span_str(self.path)
    }

    /// Returns the path without the query.
    pub fn path_without_query(&self) -> &str {
        let path = self.path_and_query();
        // A loop over bytes is faster here than a search for a character.
        path.bytes().position(|byte| byte == b'?').and_then(|query| path.get(..query)).unwrap_or(path)
    }

    /// Returns the query without the question mark.
    pub fn query(&self) -> Option<&str> {
        self.path_and_query().split_once('?').map(|(_, query)| query)
    }

    /// Returns the path with its query that the origin gets: the client's, unless a rule has rewritten it.
    pub fn target(&self) -> &str {
        self.span_str(self.target)
    }

    /// Returns the bytes of [`Self::target`].
    pub fn target_bytes(&self) -> &[u8] {
        self.fields.span_text(self.target)
    }

    /// Sets the path with its query that the origin gets.
    pub fn set_target(&mut self, path: &str) {
        self.target = self.fields.append_raw_text(path.as_bytes());
    }

    /// Creates a head for the same authority, with another method and path, and with `fields` alone.
    #[must_use]
    pub fn derive_head(&self, method: Method, path: &str, fields: &Fields) -> Self {
        Self::new(method, self.authority.clone(), path, fields.clone())
    }
}

/// Converts the head of a request of hyper or h2. Without an authority in the URI, `Host` is the authority.
impl From<request::Parts> for Head {
    fn from(parts: request::Parts) -> Self {
        let fields = Fields::from(&parts.headers);
        let host = || fields.get(name::HOST).and_then(|host| str::from_utf8(host).ok()).unwrap_or_default();
        let authority = Authority::new(parts.uri.authority().map_or_else(host, |authority| authority.as_str()));
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        Self::new(parts.method, authority, path, fields)
    }
}

/// A request whose body is a stream.
#[derive(Debug)]
pub struct Request {
    /// The head, as checked by the front end: connection-specific fields were removed or rejected.
    pub head: Head,
    /// The body.
    pub body: Body,
}

impl From<http::Request<Body>> for Request {
    fn from(request: http::Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        Self { head: parts.into(), body }
    }
}

/// A response whose body is a stream.
#[derive(Debug)]
pub struct Response {
    /// Status of the response.
    pub status: StatusCode,
    /// The fields.
    pub fields: Fields,
    /// The body.
    pub body: Body,
}

impl Response {
    /// Creates a response without fields.
    pub fn new(status: StatusCode, body: impl Into<Body>) -> Self {
        Self { status, fields: Fields::new(), body: body.into() }
    }

    /// Creates a response of a front end itself: short plain text with the reason `why`, and the value of
    /// `Proxy-Status`.
    pub fn with_reason(status: StatusCode, why: &str, proxy_status: &'static str) -> Self {
        let mut response = Self::new(status, format!("{status}\n{why}\n"));
        response.fields.append(name::CONTENT_TYPE, b"text/plain; charset=utf-8");
        response.fields.append(name::PROXY_STATUS, proxy_status.as_bytes());
        set_date(&mut response.fields);
        response
    }
}

/// Converts a response for hyper or h2.
impl From<Response> for http::Response<Body> {
    fn from(response: Response) -> Self {
        let mut converted = Self::new(response.body);
        *converted.status_mut() = response.status;
        *converted.headers_mut() = response.fields.into();
        converted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heads_parts_are_those_of_its_text() {
        for (authority, host, path, parts) in [
            ("a.test", "a.test", "/", ("/", None)),
            ("a.test:8443", "a.test", "/a/b?c=d?e", ("/a/b", Some("c=d?e"))),
            ("[::1]:443", "[::1]", "/?", ("/", Some(""))),
            ("[::1]", "[::1]", "*", ("*", None)),
        ] {
            let fields = Fields::from_iter([(name::ALLOW, &b"GET"[..])]);
            let mut head = Head::new(Method::GET, Authority::new(authority), path, fields);
            assert_eq!((head.authority(), head.host()), (authority, host));
            assert_eq!((head.path_and_query(), (head.path_without_query(), head.query())), (path, parts));
            assert_eq!(head.target(), path);
            head.set_target("/other");
            assert_eq!((head.target(), head.path_and_query(), head.fields.len()), ("/other", path, 1));
            let uri = http::Uri::builder().scheme("https").authority(authority).path_and_query(path).build().unwrap();
            let (parts, ()) = http::Request::get(uri).header("allow", "GET").body(()).unwrap().into_parts();
            let converted = Head::from(parts);
            assert_eq!((converted.authority(), converted.path_and_query()), (authority, path));
            assert_eq!(converted.fields, head.fields);
        }
    }
}

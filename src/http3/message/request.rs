//! Decodes a field section into a request: checks that need the header alone (RFC 9114 §4.3.1).

use super::{
    Rejection,
    field::{self, Name},
};
use crate::{
    exchange::{LastAuthority, Upgrade, field::is_token_byte, path},
    http3::qpack::{Field, Pseudo},
};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version, header,
    uri::{PathAndQuery, Scheme},
};

/// A request that may be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// In absolute form. Path and query are byte for byte what the client sent; `*` is a path of its own.
    pub uri: Uri,
    /// The fields, checked. `Host` is not among them, as the URI has the authority; cookie crumbs are one `Cookie`.
    pub headers: HeaderMap,
    /// The length that the body must have.
    pub content_length: Option<u64>,
    /// The protocol that an extended CONNECT requests (RFC 9220).
    pub protocol: Option<HeaderValue>,
}

impl RequestHead {
    /// The request with `body`; for an extended CONNECT the equivalent GET ([`Upgrade`]).
    pub fn into_request<B>(self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        *request.version_mut() = Version::HTTP_3;
        if let Some(protocol) = self.protocol {
            *request.method_mut() = Method::GET;
            request.extensions_mut().insert(Upgrade(protocol));
        }
        request
    }
}

/// Decodes a request from the fields of its header. `extended_connect`: whether `:protocol` was advertised to the
/// client. `last`: the authority of the connection's last request.
///
/// # Errors
///
/// [`Rejection::Malformed`] for violations of HTTP/3, even if there is also a reason for a status;
/// [`Rejection::Status`] for what is well-formed and not served: 400, 414, 501 (CONNECT and TRACE).
pub fn request(fields: Vec<Field>, extended_connect: bool, last: &LastAuthority) -> Result<RequestHead, Rejection> {
    let Collected { pseudo, mut headers, cookie } = collect(fields)?;
    let method = pseudo.method.ok_or(Rejection::Malformed("no :method"))?;
    let method = Method::from_bytes(&method).map_err(|_| Rejection::Malformed(":method is not a token"))?;

    let content_length = field::content_length(&mut headers)?;
    if let Some(cookie) = cookie {
        headers.insert(header::COOKIE, cookie);
    }
    let host = host(&mut headers)?;
    if host.is_some() && pseudo.authority.is_some() && host != pseudo.authority {
        return Err(Rejection::Malformed(":authority and Host differ"));
    }
    let protocol = match pseudo.protocol {
        Some(_) if !extended_connect => return Err(Rejection::Malformed(":protocol is not offered")),
        Some(_) if method != Method::CONNECT => return Err(Rejection::Malformed(":protocol without CONNECT")),
        Some(_) if pseudo.authority.is_none() => return Err(Rejection::Malformed("CONNECT without :authority")),
        Some(protocol) => Some(upgrade_token(protocol)?),
        None => None,
    };
    if method == Method::CONNECT && protocol.is_none() {
        return Err(match (pseudo.authority, pseudo.scheme, pseudo.path) {
            (Some(_), None, None) => Rejection::Status(StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported"),
            _ => Rejection::Malformed("CONNECT needs :authority alone"),
        });
    }
    let scheme = pseudo.scheme.ok_or(Rejection::Malformed("no :scheme"))?;
    let raw_path = pseudo.path.ok_or(Rejection::Malformed("no :path"))?;
    let raw_authority = pseudo.authority.or(host).ok_or(Rejection::Malformed("neither :authority nor Host"))?;

    // From here on a fault is no longer malformed.
    if protocol.is_some() && content_length.is_some() {
        return Err(Rejection::Status(StatusCode::BAD_REQUEST, "CONNECT with Content-Length"));
    }
    if method == Method::TRACE {
        // The origin would reflect fields that litequic adds, cookies and credentials.
        return Err(Rejection::Status(StatusCode::NOT_IMPLEMENTED, "TRACE is not supported"));
    }
    let bad = |reason| Rejection::Status(StatusCode::BAD_REQUEST, reason);
    let scheme = known_scheme(&scheme).ok_or(bad(":scheme is neither https nor http"))?;
    let authority = last.parse(&raw_authority).map_err(bad)?;
    let path = path(&method, raw_path).map_err(|(status, reason)| Rejection::Status(status, reason))?;
    let uri = absolute(scheme, authority, path).ok_or(bad("no valid URI"))?;
    Ok(RequestHead { method, uri, headers, content_length, protocol })
}

/// A name, perhaps with a version (RFC 9110 §16.7).
fn upgrade_token(protocol: Bytes) -> Result<HeaderValue, Rejection> {
    if !protocol.iter().all(|byte| is_token_byte(*byte) || *byte == b'/') {
        return Err(Rejection::Malformed(":protocol is not a protocol's name"));
    }
    field::value(protocol)
}

/// The pseudo-headers of a request as they came.
#[derive(Default)]
struct PseudoHeaders {
    authority: Option<Bytes>,
    method: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
    scheme: Option<Bytes>,
}

/// Fields that a request has when it is forwarded and had not when it came: `Host`, and the client's address.
const ADDED: usize = 6;

struct Collected {
    pseudo: PseudoHeaders,
    headers: HeaderMap,
    cookie: Option<HeaderValue>,
}

fn collect(fields: Vec<Field>) -> Result<Collected, Rejection> {
    let mut pseudo = PseudoHeaders::default();
    // With room for what the proxy adds: a map that grows hashes every name again.
    let mut headers = field::map(fields.len().saturating_add(ADDED))?;
    let mut cookie = Cookie::default();
    let mut regular_seen = false;
    for Field { name, value } in fields {
        match field::name(name)? {
            Name::Pseudo(_) if regular_seen => return Err(Rejection::Malformed("pseudo-header after another field")),
            Name::Pseudo(name) => pseudo.set(name, value)?,
            Name::Regular(name) => {
                regular_seen = true;
                let value = field::value(value)?;
                if name == header::COOKIE {
                    cookie.push(value);
                } else {
                    field::append(&mut headers, name, value)?;
                }
            }
        }
    }
    Ok(Collected { pseudo, headers, cookie: cookie.join()? })
}

impl PseudoHeaders {
    fn set(&mut self, name: Pseudo, value: Bytes) -> Result<(), Rejection> {
        let slot = match name {
            Pseudo::Authority => &mut self.authority,
            Pseudo::Method => &mut self.method,
            Pseudo::Path => &mut self.path,
            Pseudo::Protocol => &mut self.protocol,
            Pseudo::Scheme => &mut self.scheme,
            Pseudo::Status => return Err(Rejection::Malformed(":status in a request")),
        };
        field::check_value(&value)?;
        if value.is_empty() {
            return Err(Rejection::Malformed("empty pseudo-header"));
        }
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(Rejection::Malformed("pseudo-header twice")),
        }
    }
}

/// The crumbs of a Cookie field, which HTTP/1.1 requires as one (RFC 9114 §4.2.1).
#[derive(Default)]
struct Cookie {
    first: Option<HeaderValue>,
    joined: BytesMut,
}

impl Cookie {
    fn push(&mut self, crumb: HeaderValue) {
        let Some(first) = self.first.as_ref().filter(|first| !first.is_empty()) else {
            self.first = Some(crumb);
            return;
        };
        if crumb.is_empty() {
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(first.as_bytes());
        }
        self.joined.extend_from_slice(b"; ");
        self.joined.extend_from_slice(crumb.as_bytes());
    }

    fn join(self) -> Result<Option<HeaderValue>, Rejection> {
        if self.joined.is_empty() {
            return Ok(self.first);
        }
        field::value(self.joined.freeze()).map(Some)
    }
}

/// Removes `Host` from `headers`.
fn host(headers: &mut HeaderMap) -> Result<Option<Bytes>, Rejection> {
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(Rejection::Malformed("several Host"));
    }
    match headers.remove(header::HOST) {
        Some(host) if host.is_empty() => Err(Rejection::Malformed("empty Host")),
        host => Ok(host.map(|host| Bytes::copy_from_slice(host.as_bytes()))),
    }
}

/// Schemes have no case (RFC 3986 §3.1).
fn known_scheme(scheme: &[u8]) -> Option<Scheme> {
    if scheme.eq_ignore_ascii_case(b"https") {
        Some(Scheme::HTTPS)
    } else if scheme.eq_ignore_ascii_case(b"http") {
        Some(Scheme::HTTP)
    } else {
        None
    }
}

fn absolute(scheme: Scheme, authority: http::uri::Authority, path: PathAndQuery) -> Option<Uri> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests;

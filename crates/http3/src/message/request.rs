//! Decodes a field section into a request, with the checks that need the header alone (RFC 9114 §4.3.1).

use http::{Method, StatusCode};
use litequic_exchange::{
    DecodedFields, DecodedLine, FieldNameRef, Fields, Head, LastAuthority, Span, Upgrade, check_path,
    field_syntax::{has_blank_edge, is_token_byte},
    merge_authorities, name, well_formed,
};

/// A decoded and checked request.
#[derive(Debug, Clone)]
pub struct DecodedRequest {
    /// Head of the request. For an extended CONNECT (RFC 9220) it is that of the equivalent GET ([`Upgrade`]). `Host`
    /// is not among the fields, as the head has the authority; cookie crumbs are one `Cookie`.
    pub head: Head,
    /// Length that the body must have, in bytes.
    pub content_length: Option<u64>,
}

/// The reason why a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A malformed message (RFC 9114 §4.1.2): the stream is to be reset with H3_MESSAGE_ERROR.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// A well-formed message, which is answered with this status for this reason.
    #[error("{1} ({0})")]
    Status(StatusCode, &'static str),
}

impl From<well_formed::Malformed> for Rejection {
    fn from(well_formed::Malformed(reason): well_formed::Malformed) -> Self {
        Self::Malformed(reason)
    }
}

/// Decodes a request from the fields of its header. `extended_connect`: whether `:protocol` was advertised to the
/// client. `last`: the authority of the connection's last request.
///
/// # Errors
///
/// [`Rejection::Malformed`] for violations of HTTP/3, even if there is also a reason for a status;
/// [`Rejection::Status`] for a well-formed request that is not served: 400, 414, 501 (CONNECT and TRACE).
pub fn decode_request(
    decoded: DecodedFields,
    extended_connect: bool,
    last: &LastAuthority,
) -> Result<DecodedRequest, Rejection> {
    let (pseudo, mut fields) = split_pseudo_headers(decoded)?;
    let content_length = well_formed::normalize_content_length(&mut fields)?;
    let value = |name: FieldNameRef<'_>| pseudo.find_span(name).map(|span| fields.span_text(span));
    let method = value(name::METHOD).ok_or(Rejection::Malformed("no :method"))?;
    let mut method = Method::from_bytes(method).map_err(|_| Rejection::Malformed(":method is not a token"))?;

    let port: &[u8] =
        if value(name::SCHEME).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http")) { b"80" } else { b"443" };
    let mut authority_name = name::AUTHORITY;
    if let (Some(host), Some(authority)) = (value(name::HOST), value(name::AUTHORITY)) {
        match merge_authorities(authority, host, port) {
            None => return Err(Rejection::Malformed(":authority and Host differ")),
            Some(merged) if merged.len() < authority.len() => authority_name = name::HOST,
            Some(_) => {}
        }
    }
    let upgrade = match value(name::PROTOCOL) {
        Some(_) if !extended_connect => return Err(Rejection::Malformed(":protocol is not offered")),
        Some(_) if method != Method::CONNECT => return Err(Rejection::Malformed(":protocol without CONNECT")),
        Some(_) if !pseudo.has_pseudo(name::AUTHORITY) => {
            return Err(Rejection::Malformed("CONNECT without :authority"));
        }
        Some(protocol) => Some(parse_upgrade(protocol)?),
        None => None,
    };
    if method == Method::CONNECT && upgrade.is_none() {
        let has = [name::AUTHORITY, name::SCHEME, name::PATH].map(|name| pseudo.has_pseudo(name));
        return Err(match has {
            [true, false, false] => Rejection::Status(StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported"),
            _ => Rejection::Malformed("CONNECT with :scheme or :path"),
        });
    }
    let scheme = value(name::SCHEME).ok_or(Rejection::Malformed("no :scheme"))?;
    let is_known_scheme = is_known_scheme(scheme);
    let path_span = pseudo.find_span(name::PATH).ok_or(Rejection::Malformed("no :path"))?;
    let authority_span = pseudo.find_span(authority_name).or(pseudo.find_span(name::HOST));
    let authority_span = authority_span.ok_or(Rejection::Malformed("neither :authority nor Host"))?;

    // Faults from here on are not malformed, but answered with a status.
    if upgrade.is_some() && content_length.is_some() {
        return Err(Rejection::Status(StatusCode::BAD_REQUEST, "CONNECT with Content-Length"));
    }
    if method == Method::TRACE {
        // The origin would reflect fields that litequic adds, cookies and credentials.
        return Err(Rejection::Status(StatusCode::NOT_IMPLEMENTED, "TRACE is not supported"));
    }
    let bad = |reason| Rejection::Status(StatusCode::BAD_REQUEST, reason);
    if !is_known_scheme {
        return Err(bad(":scheme is neither https nor http"));
    }
    let authority = last.parse_authority(fields.span_text(authority_span)).map_err(bad)?;
    check_path(&method, fields.span_text(path_span)).map_err(|(status, reason)| Rejection::Status(status, reason))?;
    if upgrade.is_some() {
        method = Method::GET;
    }
    let mut head = Head::from_spans(method, authority, authority_span, path_span, fields);
    head.upgrade = upgrade;
    Ok(DecodedRequest { head, content_length })
}

/// Parses a protocol name, perhaps with a version (RFC 9110 §16.7).
fn parse_upgrade(protocol: &[u8]) -> Result<Upgrade, Rejection> {
    if !protocol.iter().all(|byte| is_token_byte(*byte) || *byte == b'/') {
        return Err(Rejection::Malformed(":protocol is not a protocol's name"));
    }
    Ok(Upgrade(protocol.into()))
}

/// Places of the values of a request's pseudo-headers, and of `Host`.
#[derive(Default)]
struct PseudoHeaders {
    /// Indexed by the number of the name.
    values: [Option<Span>; 6],
    host: Option<Span>,
}

impl PseudoHeaders {
    fn find_span(&self, name: FieldNameRef<'_>) -> Option<Span> {
        if name == name::HOST { self.host } else { self.values.get(name.id().table_index()).copied().flatten() }
    }

    fn has_pseudo(&self, name: FieldNameRef<'_>) -> bool {
        self.find_span(name).is_some()
    }

    fn set_pseudo(&mut self, line: &DecodedLine<'_>) -> Result<(), Rejection> {
        if line.id == name::STATUS.id() {
            return Err(Rejection::Malformed(":status in a request"));
        }
        check_pseudo_value(line.value)?;
        if line.value.is_empty() {
            return Err(Rejection::Malformed("empty pseudo-header"));
        }
        match self.values.get_mut(line.id.table_index()).and_then(|value| value.replace(line.span)) {
            None => Ok(()),
            Some(_) => Err(Rejection::Malformed("duplicate pseudo-header")),
        }
    }

    fn set_host_span(&mut self, line: &DecodedLine<'_>) -> Result<(), Rejection> {
        if line.value.is_empty() {
            return Err(Rejection::Malformed("empty Host"));
        }
        match self.host.replace(line.span) {
            None => Ok(()),
            Some(_) => Err(Rejection::Malformed("more than one Host")),
        }
    }
}

/// Splits the fields into pseudo-headers with `Host`, and the others. All are checked, and cookie crumbs are one
/// `Cookie`.
fn split_pseudo_headers(decoded: DecodedFields) -> Result<(PseudoHeaders, Fields), Rejection> {
    let (mut pseudo, mut regular_seen) = (PseudoHeaders::default(), false);
    let mut fields = decoded.into_fields(|line| {
        if line.id.is_pseudo() {
            if regular_seen {
                return Err(Rejection::Malformed("pseudo-header after another field"));
            }
            return pseudo.set_pseudo(&line).map(|()| false);
        }
        regular_seen = true;
        well_formed::check_field(&line)?;
        if line.id == name::HOST.id() {
            return pseudo.set_host_span(&line).map(|()| false);
        }
        Ok(true)
    })?;
    well_formed::check_connection_fields(&fields)?;
    join_crumbs(&mut fields);
    Ok((pseudo, fields))
}

/// Checks the value of a pseudo-header: no NUL, CR or LF, and no blanks at its edges.
fn check_pseudo_value(value: &[u8]) -> Result<(), Rejection> {
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Err(Rejection::Malformed("field value with NUL, CR or LF"));
    }
    if has_blank_edge(value) {
        return Err(Rejection::Malformed("field value with leading or trailing whitespace"));
    }
    Ok(())
}

/// Joins the crumbs of a Cookie field, as HTTP/1.1 requires (RFC 9114 §4.2.1).
fn join_crumbs(fields: &mut Fields) {
    if fields.all_values(name::COOKIE).nth(1).is_some() {
        // An empty crumb would leave a blank at an edge.
        let crumbs: Vec<_> = fields.all_values(name::COOKIE).filter(|crumb| !crumb.is_empty()).collect();
        let joined = crumbs.join(&b"; "[..]);
        fields.set_field(name::COOKIE, &joined);
    }
}

/// Whether `scheme` is `https` or `http`. Schemes have no case (RFC 3986 §3.1).
fn is_known_scheme(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

#[cfg(test)]
mod tests;

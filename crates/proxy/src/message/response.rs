//! Converts an origin's head for the client: without connection-specific fields. Pure.
//!
//! `http1` delimits bodies of responses that are rejected here: with `Content-Length` beside `Transfer-Encoding`, or
//! with transfer codings that are not decoded; and reads an unrequested 101.

use crate::answer::Error;
use http::{Method, StatusCode};
use litequic_exchange::{FieldNameRef, Fields, NameSet, field_syntax::may_be_trailer, name};

/// Converts the head of an origin's response to a `method` request for the client. `length` is the body's as it will
/// be delivered, if it is known.
///
/// # Errors
///
/// The response cannot be forwarded.
pub(crate) fn translate_response(
    status: StatusCode,
    fields: &mut Fields,
    method: &Method,
    length: Option<u64>,
) -> Result<(), Error> {
    if status.is_informational() {
        return Err(Error::Upgrade);
    }
    let bodiless = *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);

    let coded = fields.contains(name::TRANSFER_ENCODING);
    if coded && fields.contains(name::CONTENT_LENGTH) {
        // The sender may have meant the other framing (RFC 9112 §6.3); of a response without a body too, whose
        // connection or whose length another request would use.
        return Err(Error::Protocol);
    }
    let mut codings = fields.all_values(name::TRANSFER_ENCODING);
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(only), None) if only.eq_ignore_ascii_case(b"chunked") => {}
        _ if bodiless => {}
        _ => return Err(Error::TransferCoding),
    }
    drop(codings);

    // One Content-Length or none (RFC 9110 §8.6): HTTP/3 allows no list of them.
    let length = match () {
        () if coded || status == StatusCode::NO_CONTENT => None,
        () if bodiless => declared_length(fields)?,
        () => length.filter(|_| fields.contains(name::CONTENT_LENGTH)),
    };
    match length {
        None => drop(fields.remove_field(name::CONTENT_LENGTH)),
        // Several lines, or one with a list.
        Some(length) if !is_single_length(fields) => fields.set_number_field(name::CONTENT_LENGTH, length),
        Some(_) => {}
    }

    // Another step knows which protocols the route permits.
    let upgrade = fields.list_members(name::UPGRADE).collect::<Vec<_>>().join(&b", "[..]);
    remove_hop_by_hop(fields);
    if !upgrade.is_empty() {
        fields.set_field(name::UPGRADE, &upgrade);
    }
    // `Alt-Svc` names the origin's own ports.
    fields.remove_field(name::ALT_SVC);
    Ok(())
}

/// Translates an interim (1xx) response's fields: it has no content (RFC 9110 §8.6).
pub(crate) fn translate_interim(fields: &mut Fields) {
    remove_hop_by_hop(fields);
    for name in [name::CONTENT_LENGTH, name::ALT_SVC] {
        fields.remove_field(name);
    }
}

/// Length that a response without a body declares.
fn declared_length(fields: &Fields) -> Result<Option<u64>, Error> {
    let mut length = None;
    for item in fields.list_members(name::CONTENT_LENGTH) {
        let digits = !item.is_empty() && item.iter().all(u8::is_ascii_digit);
        let item = std::str::from_utf8(item).ok().filter(|_| digits).and_then(|item| item.parse::<u64>().ok());
        match (item, length) {
            (Some(item), None) => length = Some(item),
            (Some(item), Some(before)) if item == before => {}
            _ => return Err(Error::Protocol),
        }
    }
    Ok(length)
}

/// Whether `fields` have one `Content-Length` with one number.
fn is_single_length(fields: &Fields) -> bool {
    let mut lines = fields.all_values(name::CONTENT_LENGTH);
    lines.next().is_some_and(|line| line.iter().all(u8::is_ascii_digit)) && lines.next().is_none()
}

/// Fields that always belong to one connection.
const HOP_BY_HOP: [FieldNameRef<'static>; 6] =
    [name::CONNECTION, name::KEEP_ALIVE, name::PROXY_CONNECTION, name::TRANSFER_ENCODING, name::UPGRADE, name::TE];

/// Removes the fields of one connection (RFC 9110 §7.6.1): `Connection`, the fields it names, and [`HOP_BY_HOP`].
fn remove_hop_by_hop(fields: &mut Fields) {
    const PRESENT: NameSet = NameSet::from_names(&HOP_BY_HOP);
    if !fields.names.intersects(PRESENT) {
        return;
    }
    // Most origins send one of these values, or no `Connection` at all.
    let is_usual = |value: &[u8]| matches!(value, b"keep-alive" | b"close");
    if !fields.all_values(name::CONNECTION).all(is_usual) {
        let named = fields.list_members(name::CONNECTION).filter_map(|token| str::from_utf8(token).ok());
        let named: Vec<String> = named.map(str::to_ascii_lowercase).collect();
        for name in named.iter().filter(|name| !matches!(name.as_str(), "close" | "keep-alive")) {
            fields.remove_field(FieldNameRef::from_lower_case_token(name));
        }
    }
    fields.retain(|line| !PRESENT.contains_id(line.id()));
}

/// Limits `Upgrade` to `permitted` protocols, and names it in `Connection` (RFC 9110 §7.8); removes it without any.
pub(crate) fn filter_upgrade(fields: &mut Fields, permitted: &[String]) {
    if !fields.contains(name::UPGRADE) {
        return;
    }
    let is_permitted = |protocol: &&[u8]| permitted.iter().any(|other| other.as_bytes().eq_ignore_ascii_case(protocol));
    let protocols = fields.list_members(name::UPGRADE).filter(is_permitted).collect::<Vec<_>>().join(&b", "[..]);
    fields.remove_field(name::UPGRADE);
    if !protocols.is_empty() {
        fields.set_field(name::UPGRADE, &protocols);
        fields.set_field(name::CONNECTION, b"Upgrade");
    }
}

/// Removes trailer fields that no recipient may merge into a header (RFC 9110 §6.5.1), and those that a rule of the
/// route `replaces` by removing or setting them in the header.
pub(crate) fn filter_response_trailers(fields: &mut Fields, replaces: impl Fn(FieldNameRef<'_>) -> bool) {
    fields.retain(|line| may_be_trailer(line.name_str()) && !replaces(line.name_ref()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(
        method: Method,
        status: u16,
        lines: &[(&'static str, &'static str)],
        length: Option<u64>,
    ) -> Result<Vec<(String, String)>, Error> {
        let mut fields: Fields =
            lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect();
        translate_response(StatusCode::from_u16(status).unwrap(), &mut fields, &method, length)?;
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let mut fields: Vec<_> = fields.iter().map(|line| (line.name_str().to_owned(), text(line.value))).collect();
        fields.sort();
        Ok(fields)
    }

    #[test]
    fn a_response_has_one_content_length_or_none() {
        const CL: &str = "content-length";
        const TE: &str = "transfer-encoding";
        type Case =
            (Method, u16, &'static [(&'static str, &'static str)], Option<u64>, Result<Option<&'static str>, Error>);
        let cases: [Case; 16] = [
            (Method::GET, 200, &[(CL, "5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[(CL, "5"), (CL, "5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[(CL, "5, 5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[], None, Ok(None)),
            (Method::GET, 200, &[(CL, "5"), (TE, "chunked")], None, Err(Error::Protocol)),
            (Method::HEAD, 200, &[(TE, "chunked"), (CL, "5")], Some(0), Err(Error::Protocol)),
            (Method::GET, 304, &[(CL, "5"), (TE, "chunked")], Some(0), Err(Error::Protocol)),
            (Method::GET, 200, &[(TE, "Chunked")], None, Ok(None)),
            (Method::GET, 200, &[(TE, "gzip, chunked")], None, Err(Error::TransferCoding)),
            (Method::GET, 200, &[(TE, "chunked"), (TE, "chunked")], None, Err(Error::TransferCoding)),
            (Method::GET, 200, &[(TE, "identity")], None, Err(Error::TransferCoding)),
            (Method::HEAD, 200, &[(CL, "5")], Some(0), Ok(Some("5"))),
            (Method::HEAD, 200, &[(CL, "5"), (CL, "6")], Some(0), Err(Error::Protocol)),
            (Method::HEAD, 200, &[(CL, "+5")], Some(0), Err(Error::Protocol)),
            (Method::GET, 304, &[(CL, "5")], Some(0), Ok(Some("5"))),
            (Method::GET, 204, &[(CL, "5")], Some(0), Ok(None)),
        ];
        for (method, status, lines, length, expected) in cases {
            let fields = translated(method.clone(), status, lines, length);
            let found = fields.map(|fields| fields.into_iter().find(|(name, _)| name == CL).map(|(_, value)| value));
            assert_eq!(found, expected.map(|value| value.map(str::to_owned)), "{method} {status} {lines:?}");
        }
    }

    #[test]
    fn what_belongs_to_the_connection_stays_there() {
        let lines = [
            ("connection", "close, X-Inner"),
            ("connection", "x-other"),
            ("x-inner", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("alt-svc", "h3=\":1\""),
            ("date", "today"),
            ("server", "origin"),
            ("x-kept", "1"),
        ];
        let names: Vec<_> =
            translated(Method::GET, 200, &lines, None).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["date", "server", "upgrade", "x-kept"]);
    }

    #[test]
    fn upgrade_names_the_protocols_that_the_route_permits() {
        for (values, permitted, expected) in [
            (&["websocket"][..], &["websocket"][..], Some("websocket")),
            (&["WebSocket, h2c", "x/1"], &["websocket", "x/1"], Some("WebSocket, x/1")),
            (&["h2c"], &["websocket"], None),
            (&["websocket"], &[], None),
            (&[""], &["websocket"], None),
            (&[], &["websocket"], None),
        ] {
            let mut fields: Fields = values.iter().map(|value| (name::UPGRADE, value.as_bytes())).collect();
            let permitted: Vec<_> = permitted.iter().map(|protocol| (*protocol).to_owned()).collect();
            filter_upgrade(&mut fields, &permitted);
            assert_eq!(fields.get(name::UPGRADE), expected.map(str::as_bytes), "{values:?}");
            assert_eq!(fields.get(name::CONNECTION), expected.map(|_| &b"Upgrade"[..]), "{values:?}");
        }
    }

    #[test]
    fn a_protocol_switch_without_a_request_is_rejected() {
        assert_eq!(translated(Method::GET, 101, &[("upgrade", "websocket")], Some(0)), Err(Error::Upgrade));
    }
}

//! Encodes messages into HEADERS frames. Fields that HTTP/3 forbids are always left out.

use crate::{
    frame::{FrameHeader, FrameType},
    qpack,
};
use http::{Method, StatusCode, Uri};
use litequic_exchange::{
    FieldLine, Fields, NameSet, field_syntax::may_be_trailer, name, well_formed::CONNECTION_SPECIFIC,
};

/// The reason why a message cannot be encoded in HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Status 101, which HTTP/3 does not have (RFC 9114 §4.5).
    #[error("status 101 does not exist in HTTP/3")]
    SwitchingProtocols,
    /// A URI that is not in absolute form or, for CONNECT, has no authority.
    #[error("the request's URI lacks its scheme or authority")]
    IncompleteUri,
    /// A URI with user information (RFC 9114 §4.3.1).
    #[error("the request's URI holds user information")]
    UserInformation,
}

/// Appends a response's HEADERS frame, interim or final.
///
/// These fields are left out: connection-specific ones, those that `Connection` names, `TE`, and `Content-Length` where
/// the status forbids it (1xx, 204; RFC 9110 §8.6); blanks around values are cut.
///
/// # Errors
///
/// [`EncodeError::SwitchingProtocols`]; then nothing is appended.
pub fn encode_response(status: StatusCode, fields: &Fields, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(EncodeError::SwitchingProtocols);
    }
    let bodiless = status.is_informational() || status == StatusCode::NO_CONTENT;
    let never = if bodiless { FORBIDDEN_IN_BODILESS } else { FORBIDDEN_IN_RESPONSES };
    write_headers_frame(out, |out| {
        qpack::encode_status(status, out);
        if fields.names.intersects(never) {
            end_to_end_fields(fields)
                .filter(|line| !never.contains_id(line.id()))
                .for_each(|line| qpack::encode_line(&line, out));
        } else {
            // The proxy has removed the fields that `Connection` names.
            fields.iter().for_each(|line| qpack::encode_line(&line, out));
        }
    });
    Ok(())
}

/// Fields that no response may have.
const FORBIDDEN_IN_RESPONSES: NameSet = CONNECTION_SPECIFIC.union(NameSet::from_names(&[name::TE]));
/// Fields that no response without a body may have.
const FORBIDDEN_IN_BODILESS: NameSet = FORBIDDEN_IN_RESPONSES.union(NameSet::from_names(&[name::CONTENT_LENGTH]));

/// Appends a request's HEADERS frame. `:authority` is that of `uri`; a `Host` among `fields` is left out, as are
/// connection-specific fields, those that `Connection` names, and any `TE` other than `trailers`.
///
/// # Errors
///
/// [`EncodeError::IncompleteUri`], [`EncodeError::UserInformation`]; then nothing is appended.
pub fn encode_request(method: &Method, uri: &Uri, fields: &Fields, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let authority = uri.authority().ok_or(EncodeError::IncompleteUri)?.as_str();
    if authority.contains('@') {
        return Err(EncodeError::UserInformation);
    }
    let connect = method == Method::CONNECT;
    let scheme = uri.scheme_str().or(connect.then_some("")).ok_or(EncodeError::IncompleteUri)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    write_headers_frame(out, |out| {
        let mut pseudo = |name, value: &str| qpack::encode_field(name, value.as_bytes(), false, out);
        pseudo(name::METHOD, method.as_str());
        if !connect {
            pseudo(name::SCHEME, scheme);
        }
        pseudo(name::AUTHORITY, authority);
        if !connect {
            pseudo(name::PATH, path);
        }
        for line in end_to_end_fields(fields) {
            let te = line.is_named(name::TE) && !line.value.trim_ascii().eq_ignore_ascii_case(b"trailers");
            if !line.is_named(name::HOST) && !te {
                qpack::encode_line(&line, out);
            }
        }
    });
    Ok(())
}

/// Appends the HEADERS frame of trailers, without the fields that may not be trailers (RFC 9110 §6.5.1).
pub fn encode_trailers(trailers: &Fields, out: &mut Vec<u8>) {
    write_headers_frame(out, |out| {
        for line in trailers.iter().filter(|line| may_be_trailer(line.name_str())) {
            qpack::encode_line(&line, out);
        }
    });
}

/// Returns the fields that are not specific to an HTTP/1.1 connection.
fn end_to_end_fields(fields: &Fields) -> impl Iterator<Item = FieldLine<'_>> {
    let has_named = fields.contains(name::CONNECTION);
    let is_named = move |line: &FieldLine<'_>| {
        has_named
            && fields
                .list_members(name::CONNECTION)
                .any(|option| option.eq_ignore_ascii_case(line.name_str().as_bytes()))
    };
    fields.iter().filter(move |line| !CONNECTION_SPECIFIC.contains_id(line.id()) && !is_named(line))
}

/// Appends a HEADERS frame with the field section that `fields` appends.
fn write_headers_frame(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.reserve(SECTION_CAPACITY);
    // The type, and room for a length of two bytes. A smaller length may take two bytes as well (RFC 9000 §16), and few
    // are larger.
    out.extend_from_slice(&[0x01, 0, 0]);
    qpack::encode_prefix(out);
    fields(out);
    let end = begin.saturating_add(SHORT_HEADER_LEN);
    let length = out.len().saturating_sub(end);
    let short = u16::try_from(length).ok().filter(|length| *length < 1 << 14);
    if let (Some(length), Some([_, place @ ..])) = (short, out.get_mut(begin..end)) {
        place.copy_from_slice(&(length | 1 << 14).to_be_bytes());
    } else {
        let section = out.split_off(end);
        out.truncate(begin);
        FrameHeader { kind: FrameType::Headers, length: section.len() as u64 }.encode_frame_header(out);
        out.extend_from_slice(&section);
    }
}

/// Length of a HEADERS frame's type and of a length in two bytes.
const SHORT_HEADER_LEN: usize = 3;
/// Memory reserved for a HEADERS frame, in bytes. Most are shorter.
const SECTION_CAPACITY: usize = 512;

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_types, reason = "an oracle of fields")]

    use super::super::{DecodedRequest, DecodedResponse, Rejection, decode_request, decode_response, decode_trailers};
    use super::*;
    use crate::qpack::{FieldLimits, decode_section};
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, header};
    use litequic_exchange::{DecodedFields, FieldNameRef, LastAuthority, well_formed::Malformed};
    use proptest::prelude::*;

    /// The fields of the one HEADERS frame in `out`.
    fn fields(out: Vec<u8>) -> DecodedFields {
        let mut frame = Bytes::from(out);
        let (header, used) = FrameHeader::decode_frame_header(&frame).unwrap();
        let section = frame.split_off(used);
        assert_eq!(header, FrameHeader { kind: FrameType::Headers, length: section.len() as u64 });
        decode_section(&section, &FieldLimits { bytes: usize::MAX, fields: usize::MAX }).unwrap()
    }

    fn map(all: &[(&'static str, &'static str)]) -> Fields {
        all.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect()
    }

    fn response_back(status: u16, headers: &Fields) -> Result<DecodedResponse, Malformed> {
        let mut out = Vec::new();
        encode_response(StatusCode::from_u16(status).unwrap(), headers, &mut out).unwrap();
        decode_response(fields(out))
    }

    fn request_back(method: &Method, uri: &'static str, headers: &Fields) -> Result<DecodedRequest, Rejection> {
        let mut out = Vec::new();
        encode_request(method, &Uri::from_static(uri), headers, &mut out).unwrap();
        decode_request(fields(out), false, &LastAuthority::default())
    }

    #[test]
    fn fields_of_an_http1_connection_are_not_encoded_in_a_response() {
        let headers = map(&[
            ("connection", "x-hop, Close"),
            ("connection", "x-other"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("server", " a b "),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        let head = response_back(200, &headers).unwrap();
        assert_eq!(head.fields, map(&[("server", "a b"), ("set-cookie", "a"), ("set-cookie", "b")]));
    }

    #[test]
    fn a_content_length_is_encoded_only_for_statuses_that_allow_one() {
        let headers = map(&[("content-length", "5")]);
        for (status, expected) in [(103, None), (204, None), (200, Some(5)), (206, Some(5)), (304, Some(5))] {
            assert_eq!(response_back(status, &headers).unwrap().content_length, expected, "{status}");
        }
    }

    #[test]
    fn a_field_section_of_any_length_is_appended_as_one_frame() {
        for length in [0, 50, 60, 70, 16_370, 16_380, 16_390, 70_000] {
            // The Huffman word of this letter is longer than a byte, so that the value is sent as it is.
            let value = vec![b'!'; length];
            let headers = Fields::from_iter([(FieldNameRef::from_lower_case_token("x-a"), &value[..])]);
            let mut out = b"before".to_vec();
            encode_response(StatusCode::OK, &headers, &mut out).unwrap();
            let frame = out.split_off(6);
            assert_eq!(out, b"before");
            let fields = fields(frame);
            assert_eq!((fields.len(), fields.iter().nth(1).unwrap().value), (2, &value[..]), "{length}");
        }
    }

    #[test]
    fn status_101_is_not_encoded() {
        let mut out = Vec::new();
        let outcome = encode_response(StatusCode::SWITCHING_PROTOCOLS, &Fields::new(), &mut out);
        assert_eq!((outcome, out.len()), (Err(EncodeError::SwitchingProtocols), 0));
    }

    #[test]
    fn an_encoded_request_is_well_formed() {
        let headers = map(&[("host", "other"), ("te", "gzip"), ("connection", "close"), ("cookie", "a=b")]);
        let head = request_back(&Method::GET, "https://example.com:8443/a?b", &headers).unwrap();
        assert_eq!((head.head.authority(), head.head.path_and_query()), ("example.com:8443", "/a?b"));
        assert_eq!(head.head.fields, map(&[("cookie", "a=b")]));
        let head = request_back(&Method::POST, "https://a", &map(&[("te", "trailers")])).unwrap();
        assert_eq!((head.head.path_without_query(), head.head.fields.len()), ("/", 1));
        let connect = request_back(&Method::CONNECT, "a:443", &Fields::new());
        assert!(matches!(connect, Err(Rejection::Status(StatusCode::NOT_IMPLEMENTED, _))));
    }

    #[test]
    fn a_request_without_scheme_or_authority_or_with_userinfo_is_rejected() {
        for (uri, error) in [
            ("/a", EncodeError::IncompleteUri),
            ("example.com", EncodeError::IncompleteUri),
            ("https://user@example.com/", EncodeError::UserInformation),
        ] {
            let mut out = Vec::new();
            let outcome = encode_request(&Method::GET, &Uri::from_static(uri), &Fields::new(), &mut out);
            assert_eq!((outcome, out.len()), (Err(error), 0), "{uri}");
        }
    }

    #[test]
    fn forbidden_fields_are_not_encoded_in_trailers() {
        let mut out = Vec::new();
        encode_trailers(&map(&[("content-length", "5"), ("connection", "x"), ("grpc-status", "0")]), &mut out);
        assert_eq!(decode_trailers(fields(out)), Ok(map(&[("grpc-status", "0")])));
    }

    proptest! {
        #[test]
        fn a_response_with_any_headers_is_encoded_well_formed(
            status in (100_u16..=999).prop_filter("not in HTTP/3", |status| *status != 101),
            all in proptest::collection::vec(
                ("[a-zA-Z0-9_\"-]{1,12}|connection|te|set-cookie|transfer-encoding", "[ -~\t]{0,30}"), 0..8),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in &all {
                let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else { continue };
                if name != header::CONTENT_LENGTH {
                    headers.append(name, value);
                }
            }
            let head = response_back(status, &Fields::from(headers));
            prop_assert!(head.is_ok_and(|head| head.status == status));
        }
    }
}

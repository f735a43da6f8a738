//! Messages into HEADERS frames. Whatever HTTP/3 forbids stays here, whoever asks for it to be sent.

use super::{field::is_connection_specific, trailers::is_allowed};
use crate::http3::{
    frame::{FrameHeader, FrameType},
    qpack,
};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

/// Why a message cannot be said in HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// RFC 9114 §4.5.
    #[error("status 101 does not exist in HTTP/3")]
    SwitchingProtocols,
    /// A request's URI is not in absolute form (for CONNECT: has no authority).
    #[error("the request's URI lacks its scheme or authority")]
    IncompleteUri,
    /// RFC 9114 §4.3.1.
    #[error("the request's URI holds user information")]
    UserInformation,
}

/// Appends a response's HEADERS frame, interim or final.
///
/// Left out are connection-specific fields, those that `Connection` names, `TE`, and `Content-Length` where the
/// status forbids it (1xx, 204; RFC 9110 §8.6); blanks around values are cut.
///
/// # Errors
///
/// [`EncodeError::SwitchingProtocols`]; then nothing is appended.
pub fn encode_response(status: StatusCode, headers: &HeaderMap, out: &mut BytesMut) -> Result<(), EncodeError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(EncodeError::SwitchingProtocols);
    }
    let bodiless = status.is_informational() || status == StatusCode::NO_CONTENT;
    headers_frame(out, |out| {
        qpack::encode_status(status, out);
        for (name, value) in passing(headers) {
            if name != header::TE && !(bodiless && name == header::CONTENT_LENGTH) {
                field(name, value, out);
            }
        }
    });
    Ok(())
}

/// Appends a request's HEADERS frame. `:authority` is `uri`'s; a `Host` among `headers` is left out, as are
/// connection-specific fields, those that `Connection` names, and any `TE` other than `trailers`.
///
/// # Errors
///
/// [`EncodeError::IncompleteUri`], [`EncodeError::UserInformation`]; then nothing is appended.
pub fn encode_request(method: &Method, uri: &Uri, headers: &HeaderMap, out: &mut BytesMut) -> Result<(), EncodeError> {
    let authority = uri.authority().ok_or(EncodeError::IncompleteUri)?.as_str();
    if authority.contains('@') {
        return Err(EncodeError::UserInformation);
    }
    let connect = method == Method::CONNECT;
    let scheme = uri.scheme_str().or(connect.then_some("")).ok_or(EncodeError::IncompleteUri)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    headers_frame(out, |out| {
        let mut pseudo = |name, value: &str| qpack::encode_field(name, value.as_bytes(), false, out);
        pseudo(":method", method.as_str());
        if !connect {
            pseudo(":scheme", scheme);
        }
        pseudo(":authority", authority);
        if !connect {
            pseudo(":path", path);
        }
        for (name, value) in passing(headers) {
            let te = name == header::TE && !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"trailers");
            if name != header::HOST && !te {
                field(name, value, out);
            }
        }
    });
    Ok(())
}

/// Appends the HEADERS frame of trailers, without the fields that do not belong there (RFC 9110 §6.5.1).
pub fn encode_trailers(trailers: &HeaderMap, out: &mut BytesMut) {
    headers_frame(out, |out| {
        for (name, value) in trailers.iter().filter(|(name, _)| is_allowed(name)) {
            field(name, value, out);
        }
    });
}

/// The fields that do not concern an HTTP/1.1 connection.
fn passing(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let named = headers.get_all(header::CONNECTION);
    let is_named = move |name: &HeaderName| {
        named.iter().any(|options| {
            let mut options = options.as_bytes().split(|byte| *byte == b',');
            options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
        })
    };
    headers.iter().filter(move |(name, _)| !is_connection_specific(name) && !is_named(name))
}

fn field(name: &HeaderName, value: &HeaderValue, out: &mut BytesMut) {
    let secret = [header::COOKIE, header::SET_COOKIE, header::AUTHORIZATION, header::PROXY_AUTHORIZATION];
    let sensitive = value.is_sensitive() || secret.contains(name);
    // A HeaderValue may begin or end with a blank, a field value may not.
    qpack::encode_field(name.as_str(), value.as_bytes().trim_ascii(), sensitive, out);
}

/// Appends a HEADERS frame with the field section that `fields` appends.
fn headers_frame(out: &mut BytesMut, fields: impl FnOnce(&mut BytesMut)) {
    let mut section = BytesMut::with_capacity(USUAL_SECTION);
    qpack::encode_prefix(&mut section);
    fields(&mut section);
    out.reserve(section.len() + FrameHeader::MAX_LEN);
    FrameHeader { kind: FrameType::Headers, length: section.len() as u64 }.encode(out);
    out.extend_from_slice(&section);
}

/// Bytes that most field sections do not exceed.
const USUAL_SECTION: usize = 512;

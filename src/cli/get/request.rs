//! Builds the request that the command line describes. Pure.

use super::GetArguments;
use super::get_error::GetError;
use super::values::HeaderField;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri, header,
    uri::{Authority, Parts},
};

/// Port of https (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;
/// Content type of curl's `--data`.
const FORM_TYPE: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Server of a URL: the host without brackets, and the port.
pub(super) fn server_of_url(url: &Uri) -> Result<(&str, u16), GetError> {
    let wrong = || GetError::Url(url.to_string());
    if url.scheme_str() != Some("https") {
        return Err(wrong());
    }
    let host = url.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?.trim_matches(['[', ']']);
    Ok((host, url.port_u16().unwrap_or(HTTPS_PORT)))
}

/// Builds the request with its body. `Host` becomes `:authority`.
pub(super) fn request_from_arguments(arguments: &GetArguments) -> Result<Request<Bytes>, GetError> {
    let mut headers = HeaderMap::new();
    let mut url = arguments.url.clone();
    for HeaderField(name, value) in &arguments.header {
        if name == header::HOST {
            url = with_authority(&url, value)
                .ok_or_else(|| GetError::Host(String::from_utf8_lossy(value.as_bytes()).into()))?;
        } else {
            headers.append(name, value.clone());
        }
    }
    let default = match (arguments.head, &arguments.data) {
        (true, _) => Method::HEAD,
        (false, Some(_)) => Method::POST,
        (false, None) => Method::GET,
    };
    if let Some(data) = &arguments.data {
        headers.entry(header::CONTENT_TYPE).or_insert(FORM_TYPE);
        headers.insert(header::CONTENT_LENGTH, data.len().into());
    }
    let mut request = Request::new(arguments.data.clone().unwrap_or_default().into());
    *request.method_mut() = arguments.request.clone().unwrap_or(default);
    *request.uri_mut() = url;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Replaces the authority of `url` by `host`.
fn with_authority(url: &Uri, host: &HeaderValue) -> Option<Uri> {
    let authority = Authority::try_from(host.as_bytes()).ok()?;
    let mut parts: Parts = url.clone().into_parts();
    parts.authority = Some(authority);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_host_and_port() {
        for (url, expected) in [
            ("https://example.com/", Some(("example.com", 443))),
            ("https://example.com:8443", Some(("example.com", 8443))),
            ("https://[::1]:1/a", Some(("::1", 1))),
            ("http://example.com/", None),
            ("/a", None),
            ("example.com", None),
        ] {
            assert_eq!(server_of_url(&url.parse().unwrap()).ok(), expected, "{url}");
        }
    }

    #[test]
    fn a_host_field_replaces_the_authority() {
        let url = Uri::from_static("https://127.0.0.1:8443/a?b");
        let host =
            |value: &'static str| with_authority(&url, &HeaderValue::from_static(value)).map(|uri| uri.to_string());
        assert_eq!(host("example.com").as_deref(), Some("https://example.com/a?b"));
        assert_eq!(host("a b"), None);
    }
}

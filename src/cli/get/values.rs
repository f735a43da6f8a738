//! Parses the values of the command line's arguments, as curl has them.

use http::{HeaderName, HeaderValue, Method, Uri, header, uri::InvalidUri};
use std::net::IpAddr;

/// Address that replaces the lookup of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressOverride {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) address: IpAddr,
}

/// Parses `HOST:PORT:ADDRESS`.
pub(super) fn parse_resolve(text: &str) -> Result<AddressOverride, String> {
    let wrong = || format!("{text:?} is not HOST:PORT:ADDRESS, such as example.com:443:127.0.0.1");
    let (host, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (port, address) = rest.split_once(':').ok_or_else(wrong)?;
    Ok(AddressOverride {
        host: host.to_ascii_lowercase(),
        port: port.parse().map_err(|_| wrong())?,
        address: address.trim_matches(['[', ']']).parse().map_err(|_| wrong())?,
    })
}

/// Parses a URL; without a scheme, that of https.
pub(super) fn parse_url(text: &str) -> Result<Uri, InvalidUri> {
    if text.contains("://") { text.parse() } else { format!("https://{text}").parse() }
}

/// A field of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderField(pub(super) HeaderName, pub(super) HeaderValue);

/// Parses `NAME: VALUE`; `NAME;` has no value, as in curl.
pub(super) fn parse_header_field(text: &str) -> Result<HeaderField, String> {
    let wrong = || format!("{text:?} is not NAME: VALUE");
    let (name, value) = text.split_once(':').or_else(|| Some((text.strip_suffix(';')?, ""))).ok_or_else(wrong)?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
    let connection_specific = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    if connection_specific.contains(&name.as_str()) {
        return Err(format!("{name} is not allowed in HTTP/3 (RFC 9114 §4.2)"));
    }
    if name == header::TE && !value.trim().eq_ignore_ascii_case("trailers") {
        return Err("TE must be trailers in HTTP/3 (RFC 9114 §4.2)".into());
    }
    Ok(HeaderField(name, HeaderValue::try_from(value.trim()).map_err(|_| wrong())?))
}

/// Variable of `--write-out`, by curl's name.
pub(super) const STATUS_VARIABLE: &str = "%{http_code}";

/// Parses the text of `--write-out`.
pub(super) fn parse_write_out(text: &str) -> Result<String, String> {
    if text.replace(STATUS_VARIABLE, "").contains("%{") {
        return Err(format!("{STATUS_VARIABLE} is the only variable; curl has others"));
    }
    Ok(text.replace("\\n", "\n"))
}

/// Parses a method that a client can send without a tunnel.
pub(super) fn parse_method(text: &str) -> Result<Method, String> {
    match Method::try_from(text) {
        Ok(Method::CONNECT) => Err("CONNECT is not supported: this client opens no tunnels".into()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{text:?} is not a method")),
    }
}

/// Parses a duration; 0 means no limit.
pub(super) fn parse_timeout(text: &str) -> Result<std::time::Duration, String> {
    if text == "0" { Ok(std::time::Duration::ZERO) } else { humantime::parse_duration(text).map_err(|e| e.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_is_one_of_https() {
        for (text, expected) in [
            ("localhost:8443", "https://localhost:8443/"),
            ("127.0.0.1:8443/a?b", "https://127.0.0.1:8443/a?b"),
            ("[::1]:8443", "https://[::1]:8443/"),
            ("example.com", "https://example.com/"),
            ("https://example.com/", "https://example.com/"),
            ("http://example.com/", "http://example.com/"),
        ] {
            assert_eq!(parse_url(text).unwrap().to_string(), expected, "{text}");
        }
        assert!(parse_url("").is_err() && parse_url("a b").is_err());
    }

    #[test]
    fn resolve_arguments_are_parsed_as_in_curl() {
        let given = |host: &str, address: &str| AddressOverride {
            host: host.into(),
            port: 443,
            address: address.parse().unwrap(),
        };
        assert_eq!(parse_resolve("Example.com:443:127.0.0.1"), Ok(given("example.com", "127.0.0.1")));
        assert_eq!(parse_resolve("example.com:443:[::1]"), Ok(given("example.com", "::1")));
        for wrong in ["example.com", "example.com:443", "example.com:https:127.0.0.1", "example.com:443:localhost"] {
            assert!(parse_resolve(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn header_arguments_are_parsed_as_in_curl() {
        let made = |name: &'static str, value: &'static str| {
            Ok(HeaderField(HeaderName::from_static(name), HeaderValue::from_static(value)))
        };
        assert_eq!(parse_header_field("X-A: b: c "), made("x-a", "b: c"));
        assert_eq!(parse_header_field("x-a:b"), made("x-a", "b"));
        assert_eq!(parse_header_field("X-Empty;"), made("x-empty", ""));
        assert_eq!(parse_header_field("TE: Trailers"), made("te", "Trailers"));
        for wrong in ["X-A", "", ": b", "a b: c", "x-a: a\nb", "Connection: close", "Upgrade: websocket", "TE: gzip"] {
            assert!(parse_header_field(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_methods_and_formats_are_checked() {
        assert_eq!(parse_timeout("0"), Ok(std::time::Duration::ZERO));
        assert_eq!(parse_timeout("2s"), Ok(std::time::Duration::from_secs(2)));
        assert!(parse_timeout("soon").is_err());
        assert_eq!(parse_method("PURGE").unwrap().as_str(), "PURGE");
        assert_eq!(parse_write_out("%{http_code}\\n").as_deref(), Ok("%{http_code}\n"));
        assert!(parse_write_out("%{http_code} %{time_total}").is_err());
        assert!(parse_method("CONNECT").is_err() && parse_method("A B").is_err() && parse_method("").is_err());
    }
}

//! Reads values that name something on the network or on disk: addresses, networks, hosts, paths. Each reader has its
//! pattern for the schema.

use super::value_kinds::{ValueError, ValueKind, text_kind};
use http::{HeaderName, Method};
use litequic_base::network::{Network, NetworkError};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

/// Pattern of an IPv4 address, or of an IPv6 address without brackets. Accepts some invalid addresses.
const IP_PATTERN: &str = "[0-9]+\\.[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*";
/// Pattern of an IPv6 address in brackets, perhaps with a scope.
pub(crate) const IPV6_PATTERN: &str = r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[0-9]+)?\]";
pub(crate) const PORT_PATTERN: &str = "0*[1-9][0-9]{0,4}";
pub(crate) const NAME_PATTERN: &str = r"[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?";
/// Pattern of a DNS name whose last label is not a decimal number. Hexadecimal numbers are not recognized.
const NON_NUMERIC_NAME_PATTERN: &str = r"([0-9A-Za-z_-]{1,63}\.)*[0-9]{0,62}[A-Za-z_-][0-9A-Za-z_-]{0,62}\.?";
const IPV4_PATTERN: &str =
    r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}";
/// Bytes of a path: PATH_MAX of Linux (limits.h).
const MAX_PATH_BYTES: usize = 4096;
/// Bytes of a cookie's name, which every request carries.
const MAX_COOKIE_NAME: usize = 64;
/// Number of networks: each peer's address is compared with all of them.
pub(crate) const MAX_NETWORKS: usize = 256;
/// Bytes of a route's name, which is a label of metrics and an argument of commands.
const MAX_ROUTE_NAME: usize = 64;
/// Bytes of a method: twice the longest of the IANA registry.
const MAX_METHOD: usize = 32;
/// Bytes of a replica's name: as many as of a host's name (RFC 1035 §2.3.4).
const MAX_REPLICA: usize = 253;
/// Pattern of a token (RFC 9110 §5.6.2).
pub(crate) const TOKEN_PATTERN: &str = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";

/// Description of an address with a port, for messages.
const EXPECTED_ADDRESS: &str =
    "an IP address and a port, such as \"[::]:8443\" or \"127.0.0.1:9443\", or \":8443\" for all addresses";

/// A socket address: an IP address and a port above 0.
pub(crate) fn address_kind() -> ValueKind<SocketAddr> {
    let parse = |text: String| match parse_socket_address(&text) {
        Ok(address) if address.port() == 0 => Err("the port is 0".into()),
        Ok(address) => Ok(address),
        Err(problem) => Err(problem.into()),
    };
    text_kind(EXPECTED_ADDRESS, parse, ToString::to_string)
        .with_pattern(&format!(r"(([0-9.]+|{IPV6_PATTERN})?:)?{PORT_PATTERN}"))
}

/// Parses a listen address of the command line; for port 0 the kernel chooses one.
///
/// # Errors
///
/// A message with the fault and the expected form.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    parse_socket_address(text).map_err(|problem| format!("{problem}; expected {EXPECTED_ADDRESS}"))
}

/// Parses an address with a port; a port alone stands for all addresses, as in the manuals of nginx and HAProxy.
fn parse_socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if port.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(port) = port.parse()
    {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    text.parse().map_err(|_| if text.parse::<IpAddr>().is_ok() { "has no port" } else { "not an address" })
}

/// A file path.
pub(crate) fn path_kind(expected: &str) -> ValueKind<PathBuf> {
    let parse = |text: String| if text.is_empty() { Err("empty".into()) } else { Ok(text.into()) };
    text_kind(expected, parse, |path: &PathBuf| path.display().to_string()).with_length(1..=MAX_PATH_BYTES)
}

/// A network in CIDR notation, or a single address.
pub(crate) fn network_kind() -> ValueKind<Network> {
    text_kind("a network such as \"10.0.0.0/8\" or \"fd00::/8\"", |text| parse_network(&text), ToString::to_string)
        .with_pattern(&format!("({IP_PATTERN})(/0*([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?"))
}

fn parse_network(text: &str) -> Result<Network, ValueError> {
    text.parse().map_err(|NetworkError { problem, nearest }| ValueError::from(problem).near(nearest.as_deref()))
}

/// A route's host: a name, `*.` and a name, or an IP address.
pub(crate) fn host_pattern_kind() -> ValueKind<String> {
    let expected = "a host such as \"example.com\", \"*.example.com\" or \"[::1]\"";
    let parse = |text: String| {
        if text == "*" {
            return Err("matches every host, which is the default: remove the key".into());
        }
        match text.strip_prefix("*.") {
            Some(name) => {
                let name = parse_dns_name(name)?;
                if ends_in_a_number(&name) {
                    Err("a wildcard name cannot end in a number".into())
                } else {
                    Ok(format!("*.{name}"))
                }
            }
            None => parse_host(&text).and_then(canonical_host),
        }
    };
    text_kind(expected, parse, Clone::clone)
        .with_pattern(&format!(r"(\*\.)?{NON_NUMERIC_NAME_PATTERN}|{IPV4_PATTERN}\.?|{IPV6_PATTERN}"))
}

/// A host of the admin interface: a name or an IP address.
pub(crate) fn admin_host_kind() -> ValueKind<String> {
    text_kind("a host such as \"litequic.internal\"", |text| parse_host(&text), Clone::clone)
}

/// Converts a host to the form in which requests have it: an IPv4-mapped IPv6 address becomes an IPv4 address. Other
/// spellings of IPv4 addresses than four decimal numbers match no request.
fn canonical_host(host: String) -> Result<String, ValueError> {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()) {
        return Ok(address.to_string());
    }
    if ends_in_a_number(&host) && host.parse::<Ipv4Addr>().is_err() {
        return Err("ends in a number, and is not an IPv4 address such as 192.0.2.1".into());
    }
    Ok(host)
}

/// Whether the last label is a decimal or hexadecimal number, as in `127.1`.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// A value for `Host` (RFC 9110 §7.2): a host with or without a port.
pub(crate) fn authority_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let (host, port) = split_port(&text);
        let host = parse_host(host)?;
        match port.map(parse_port) {
            None => Ok(host),
            Some(Some(port)) => Ok(format!("{host}:{port}")),
            Some(None) => Err("not a port".into()),
        }
    };
    let kind = text_kind("a host with or without a port, such as \"example.com\"", parse, Clone::clone);
    kind.with_pattern(&format!("({NAME_PATTERN}|{IPV6_PATTERN})(:{PORT_PATTERN})?"))
}

/// Parses a port above 0, of digits alone: a URL has no sign there (RFC 3986 §3.2.3).
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits `HOST:PORT`; colons within the brackets of `[::1]` belong to the host.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Parses a host to lower case, without a trailing dot.
pub(crate) fn parse_host(text: &str) -> Result<String, ValueError> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| "not an IPv6 address")?;
        return Ok(format!("[{address}]"));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(ValueError::from("an IPv6 address needs brackets").near(Some(&format!("[{text}]"))));
    }
    parse_dns_name(text)
}

fn parse_dns_name(text: &str) -> Result<String, ValueError> {
    /// Bytes of a DNS name (RFC 1035 §2.3.4).
    const MAX_NAME_BYTES: usize = 253;
    const MAX_LABEL_BYTES: usize = 63;
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let problem = if name.is_empty() {
        "empty"
    } else if !name.is_ascii() {
        "not ASCII: an internationalized name is written as xn--…"
    } else if name.contains("://") || name.contains('/') {
        "a host has no scheme and no path"
    } else if name.contains(':') {
        "a host has no port"
    } else if name.contains('*') {
        "`*.` is allowed at the beginning only"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        "not a host"
    } else if name.len() > MAX_NAME_BYTES
        || name.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL_BYTES)
    {
        "a label is empty or longer than 63 characters, or the name longer than 253"
    } else {
        return Ok(name);
    };
    Err(problem.into())
}

/// Name of a replica among those that share a secret: visible ASCII.
pub(crate) fn replica_kind() -> ValueKind<String> {
    let parse = |text: String| match text.as_bytes() {
        [] => Err("empty".into()),
        bytes if bytes.len() > MAX_REPLICA => Err(format!("has more than {MAX_REPLICA} characters").into()),
        bytes if bytes.iter().all(u8::is_ascii_graphic) => Ok(text),
        _ => Err("contains a character other than visible ASCII".into()),
    };
    text_kind("a name such as \"edge-1\"", parse, Clone::clone).with_pattern(&format!("[!-~]{{1,{MAX_REPLICA}}}"))
}

/// A route's path prefix.
pub(crate) fn path_prefix_kind() -> ValueKind<String> {
    plain_path_kind("a prefix is a plain path, without `?`, `#` and `*`", "a path such as \"/live\"")
}

/// A route's whole path.
pub(crate) fn exact_path_kind() -> ValueKind<String> {
    plain_path_kind("is a plain path, without `?`, `#` and `*`", "a path such as \"/robots.txt\"")
}

fn plain_path_kind(plain: &'static str, expected: &str) -> ValueKind<String> {
    let parse = move |text: String| {
        let problem = if !text.starts_with('/') {
            "does not start with `/`"
        } else if text.contains(['?', '#', '*']) {
            plain
        } else if !text.bytes().all(|b| b.is_ascii_graphic()) {
            "characters other than printable ASCII must be percent-encoded"
        } else if text.split('/').any(|segment| matches!(segment, "." | "..")) {
            "has a dot segment, and litequic rejects requests with dot segments"
        } else {
            return Ok(text);
        };
        Err(problem.into())
    };
    // `any` is a character of a segment, and `no_dot` one other than a dot: no segment is `.` or `..`.
    let (any, no_dot) = ("[!-\"$-)+-.0->@-~]", "[!-\"$-)+,0->@-~-]");
    let segment = format!(r"({no_dot}{any}*|\.{no_dot}{any}*|\.\.{any}+)?");
    text_kind(expected, parse, Clone::clone).with_pattern(&format!("(/{segment})+"))
}

/// A route's name in logs, metrics and commands. It has no slash, unlike names that are made of host and path.
pub(crate) fn route_name_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
        let fits = fits && (1..=MAX_ROUTE_NAME).contains(&text.len());
        if fits { Ok(text) } else { Err("not 1 to 64 letters, digits, `_`, `.` and `-`".into()) }
    };
    text_kind("a name such as \"shop\"", parse, Clone::clone)
        .with_pattern(&format!("[0-9A-Za-z_.-]{{1,{MAX_ROUTE_NAME}}}"))
}

/// A method (RFC 9110 §9.1), in upper case. CONNECT and TRACE never reach a route.
pub(crate) fn method_kind() -> ValueKind<Method> {
    let parse = |text: String| match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => Err("never reaches a route".into()),
        Ok(method) if text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            let upper = method.as_str().to_ascii_uppercase();
            Err(ValueError::from("methods are case-sensitive; write it in upper case").near(Some(&upper)))
        }
        Ok(method) if text.len() <= MAX_METHOD => Ok(method),
        _ => Err("not a method".into()),
    };
    let kind = text_kind("a method such as \"GET\"", parse, ToString::to_string);
    kind.with_pattern("[!#$%&'*+.^_`|~0-9A-Z-]+").with_length(1..=MAX_METHOD)
}

/// A cookie's name (RFC 6265 §4.1.1): a token.
pub(crate) fn cookie_name_kind() -> ValueKind<String> {
    let expected = "the name of a cookie, such as \"origin_server\"";
    let parse = |text: String| if is_http_token(&text) { Ok(text) } else { Err("not a token".into()) };
    text_kind(expected, parse, Clone::clone).with_pattern(TOKEN_PATTERN).with_length(1..=MAX_COOKIE_NAME)
}

/// Name of a request field.
pub(crate) fn field_name_kind() -> ValueKind<HeaderName> {
    let parse = |text: String| {
        let name = HeaderName::from_bytes(text.as_bytes())
            .ok()
            .filter(|_| is_http_token(&text))
            .ok_or("not a field's name")?;
        // Over HTTP/2 and HTTP/3 the host is in `:authority`.
        if name == http::header::HOST {
            Err("cannot be used: HTTP/2 and HTTP/3 requests have no Host field".into())
        } else {
            Ok(name)
        }
    };
    text_kind("a field's name, such as \"x-user\"", parse, ToString::to_string).with_pattern(TOKEN_PATTERN)
}

/// Whether `text` is a token (RFC 9110 §5.6.2).
fn is_http_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A protocol that a route may upgrade to (RFC 9110 §7.8), in lower case: a token, or a token, slash and version.
pub(crate) fn upgrade_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let protocol = text.to_ascii_lowercase();
        let (name, version) = protocol.split_once('/').map_or((&*protocol, None), |(name, rest)| (name, Some(rest)));
        let problem = if !is_http_token(name) || !version.is_none_or(is_http_token) {
            "not a token"
        } else if matches!(name, "http" | "h2c" | "h2" | "h3" | "tls") {
            // Requests inside such a connection would not be checked.
            "would change the protocol between litequic and the client"
        } else {
            return Ok(protocol);
        };
        Err(problem.into())
    };
    text_kind("a protocol such as \"websocket\"", parse, Clone::clone)
        .with_pattern(&format!("{TOKEN_PATTERN}(/{TOKEN_PATTERN})?"))
}

pub(crate) fn origin_name_kind() -> ValueKind<String> {
    text_kind("the name of an origin", Ok, Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::{super::value_kinds::RawValue, *};

    fn read<T>(kind: &ValueKind<T>, text: &str) -> Result<T, String> {
        (kind.read)(RawValue::Text(text.into())).map_err(|wrong| wrong.problem)
    }

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        for (text, address, prefix) in [
            ("10.0.0.0/8", "10.0.0.0", 8),
            ("0.0.0.0/0", "0.0.0.0", 0),
            ("192.0.2.1", "192.0.2.1", 32),
            ("fd00::/8", "fd00::", 8),
            ("::/0", "::", 0),
            ("::1/128", "::1", 128),
        ] {
            assert_eq!(parse_network(text), Ok(Network { address: address.parse().unwrap(), prefix }), "{text}");
        }
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "", "/8", "::/999"] {
            parse_network(text).unwrap_err();
        }
        let wrong = parse_network("::ffff:10.1.2.3/104").unwrap_err();
        assert_eq!(wrong.nearest.as_deref(), Some("\"10.0.0.0/8\""));
        let wrong = parse_network("10.1.2.3/8").unwrap_err();
        assert_eq!(wrong.nearest.as_deref(), Some("\"10.0.0.0/8\""));
        let wrong = parse_network("fd12::1/8").unwrap_err();
        assert_eq!(wrong.nearest.as_deref(), Some("\"fd00::/8\""));
    }

    #[test]
    fn an_ipv4_mapped_network_is_its_ipv4_network() {
        for (text, plain) in [
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::FFFF:c000:200/120", "192.0.2.0/24"),
            ("0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1/128", "192.0.2.1/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0.0.0.0/096", "0.0.0.0/0"),
        ] {
            assert_eq!(parse_network(text), parse_network(plain), "{text}");
        }
        // The prefix covers neither all IPv4 addresses nor any client's IPv6 address.
        for text in ["::ffff:0:0/95", "::ffff:0:0/90", "::ffff:192.0.2.0/24", "::ffff:0:0/0"] {
            let wrong = parse_network(text).unwrap_err();
            assert_eq!(wrong.problem, "has IPv4-mapped addresses, whose prefix is at least 96 bits", "{text}");
            assert_eq!(wrong.nearest.as_deref(), Some("\"0.0.0.0/0\""), "{text}");
        }
        // The networks contain the prefix of mapped addresses, and are IPv6 networks.
        for text in ["::/0", "::/80", "::ffc0:0:0/90", "::/64", "64:ff9b::/96", "::192.0.2.0/120"] {
            assert!(parse_network(text).unwrap().address.is_ipv6(), "{text}");
        }
    }

    #[test]
    fn hosts_are_lowered_and_lose_their_trailing_dot() {
        let kind = host_pattern_kind();
        for (text, host) in [
            ("Example.COM.", "example.com"),
            ("*.Example.com", "*.example.com"),
            ("localhost", "localhost"),
            ("10.0.0.1", "10.0.0.1"),
            ("[::1]", "[::1]"),
            ("[0:0::1]", "[::1]"),
            ("[::FFFF:10.0.0.1]", "10.0.0.1"),
            ("10.0.0.1.", "10.0.0.1"),
            ("1.a", "1.a"),
        ] {
            assert_eq!(read(&kind, text), Ok(host.into()), "{text}");
        }
        for text in [
            "",
            ".",
            "*",
            "*.",
            "a..b",
            "a.*.b",
            "example.com:443",
            "https://example.com",
            "::1",
            "[1.2.3.4]",
            "bücher.de",
            "a b",
            "10.1",
            "010.0.0.1",
            "0x7f.1",
            "2130706433",
            "a.1",
            "*.0.0.1",
        ] {
            read(&kind, text).unwrap_err();
        }
    }

    #[test]
    fn a_rewritten_host_may_have_a_port() {
        for (text, host) in
            [("Example.com", "example.com"), ("a:8080", "a:8080"), ("[::1]:80", "[::1]:80"), ("[::1]", "[::1]")]
        {
            assert_eq!(read(&authority_kind(), text), Ok(host.into()), "{text}");
        }
        for text in ["", ":80", "a:", "a:0", "a:65536", "a:b", "user@a", "a/b"] {
            read(&authority_kind(), text).unwrap_err();
        }
    }

    #[test]
    fn a_path_prefix_is_one_that_a_request_can_have() {
        for text in ["/", "/live", "/live/", "/a%20b/c"] {
            assert_eq!(read(&path_prefix_kind(), text), Ok(text.into()));
        }
        for text in ["", "live", "/live/*", "/a?b", "/a#b", "/a b", "/ü", "/a/../b", "/."] {
            read(&path_prefix_kind(), text).unwrap_err();
        }
    }
}

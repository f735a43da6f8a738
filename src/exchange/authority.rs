//! Which `:authority` or `Host` passes: a host and perhaps a port, nothing that two parsers could read differently.

use bytes::Bytes;
use http::uri::Authority;
use std::net::Ipv6Addr;

/// Takes over an authority: `host`, `host:port`, `[v6]` or `[v6]:port`.
///
/// A host is letters, digits, `-`, `_` and single dots; RFC 3986 §3.2.2 would allow percent-encoding and
/// punctuation, which no name in DNS has.
///
/// # Errors
///
/// Why it does not pass.
pub fn authority(raw: Bytes) -> Result<Authority, &'static str> {
    if raw.contains(&b'@') {
        return Err("authority with userinfo");
    }
    let text = std::str::from_utf8(&raw).map_err(|_| "authority is not ASCII")?;
    let (host_is_valid, rest) = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(Some((address, rest))) => (address.parse::<Ipv6Addr>().is_ok(), rest),
        Some(None) => (false, ""),
        None => {
            let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_name(host), rest)
        }
    };
    if !host_is_valid {
        return Err("authority with a bad host");
    }
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(is_port) {
        return Err("authority with a bad port");
    }
    Authority::from_maybe_shared(raw).map_err(|_| "authority with a forbidden character")
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.strip_suffix('.').unwrap_or(host).split('.').all(label)
}

/// One to five digits, 1 to 65535.
fn is_port(port: &str) -> bool {
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    digits && port.parse::<u16>().is_ok_and(|port| port != 0)
}

//! Checks an `:authority` or `Host`: a host and perhaps a port, nothing that two parsers could read differently.

use std::{
    cell::RefCell,
    net::{Ipv4Addr, Ipv6Addr},
    rc::Rc,
};

/// Default port of https (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;

/// A checked authority, and the length of its host. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority(Rc<AuthorityText>);

#[derive(Debug, PartialEq, Eq)]
struct AuthorityText {
    text: Box<str>,
    host_len: usize,
}

impl Authority {
    /// Creates an authority from `text`, which [`check_authority`] has accepted.
    pub fn new(text: &str) -> Self {
        Self(Rc::new(AuthorityText { text: text.into(), host_len: strip_port(text).len() }))
    }

    /// Returns the authority as the client sent it.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns the port, that of https if there is none.
    fn https_port(&self) -> Option<u16> {
        match self.0.text.get(self.0.host_len..)?.strip_prefix(':') {
            None | Some("") => Some(HTTPS_PORT),
            Some(port) => port.parse().ok(),
        }
    }

    /// Returns the host without the port. An IPv6 address keeps its brackets.
    pub fn host_without_port(&self) -> &str {
        self.0.text.get(..self.0.host_len).unwrap_or_default()
    }
}

/// Returns the host of `authority`, without the port. An IPv6 address keeps its brackets.
pub fn strip_port(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => authority.get(..=end).unwrap_or(authority),
        None => authority.split_once(':').map_or(authority, |(host, _port)| host),
    }
}

/// Returns one of a request's `target` authority and its `host`: the shorter one if both name the same host and port,
/// where the default `port` of the scheme may be missing (RFC 9113 §8.3.1, RFC 3986 §6.2.3); `None` if they differ.
pub fn merge_authorities<'a>(target: &'a [u8], host: &'a [u8], port: &[u8]) -> Option<&'a [u8]> {
    let portless = |authority: &'a [u8]| {
        let name = authority.strip_suffix(port).unwrap_or(authority);
        name.strip_suffix(b":").unwrap_or(authority)
    };
    let shorter = if host.len() < target.len() { host } else { target };
    (target == host || portless(target).eq_ignore_ascii_case(portless(host))).then_some(shorter)
}

/// Checks an authority: `host`, `host:port`, `[v6]` or `[v6]:port`.
///
/// A host is letters, digits, `-`, `_` and single dots; RFC 3986 §3.2.2 would allow percent-encoding and punctuation,
/// which no name in DNS has. A host whose last label is a number is an IPv4 address in four decimal numbers: `127.1`,
/// `0x7f.1` and `2130706433` are the same to the parsers of URLs (WHATWG URL, host parsing) and resolvers, no name in
/// DNS (RFC 3696 §2), and not what a browser sends.
///
/// # Errors
///
/// The reason of the rejection.
pub fn check_authority(raw: &[u8]) -> Result<(), &'static str> {
    if raw.contains(&b'@') {
        return Err("authority with userinfo");
    }
    let text = std::str::from_utf8(raw).map_err(|_| "authority is not ASCII")?;
    let (host_is_valid, rest) = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(Some((address, rest))) => (address.parse::<Ipv6Addr>().is_ok(), rest),
        Some(None) => (false, ""),
        None => {
            let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_host_name(host), rest)
        }
    };
    if !host_is_valid {
        return Err("authority with an invalid host");
    }
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(is_port) {
        return Err("authority with an invalid port");
    }
    Ok(())
}

/// Cache of the authority of a connection's last request: nearly all requests of a connection have the same one.
#[derive(Debug, Clone, Default)]
pub struct LastAuthority(RefCell<Option<Authority>>);

impl LastAuthority {
    /// Longest cached authority, in bytes: a DNS name and a port. A longer one is checked each time.
    const MAX_CACHED_LEN: usize = 255 + ":65535".len();

    /// Checks `raw` as [`check_authority`] does, but not if the last authority had the same bytes.
    ///
    /// # Errors
    ///
    /// The reason of the rejection.
    pub fn parse_authority(&self, raw: &[u8]) -> Result<Authority, &'static str> {
        let mut last = self.0.borrow_mut();
        if let Some(last) = &*last
            && last.as_str().as_bytes() == raw
        {
            return Ok(last.clone());
        }
        check_authority(raw)?;
        let checked = Authority::new(str::from_utf8(raw).map_err(|_| "authority is not ASCII")?);
        if raw.len() <= Self::MAX_CACHED_LEN {
            *last = Some(checked.clone());
        }
        Ok(checked)
    }

    /// Returns the port of the last authority, that of https if it has none; `None` before the first.
    pub fn last_port(&self) -> Option<u16> {
        self.0.borrow().as_ref().and_then(Authority::https_port)
    }
}

fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    name.split('.').all(label) && (!is_last_label_number(name) || name.parse::<Ipv4Addr>().is_ok())
}

/// Whether the last label of `name` is a decimal, octal or hexadecimal number.
fn is_last_label_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether `port` is a number from 1 to 65535 in one to five digits.
fn is_port(port: &str) -> bool {
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    digits && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_authority_is_taken_for_equal_bytes_alone() {
        let last = LastAuthority::default();
        for (raw, passes) in [
            ("a.test", true),
            ("a.test", true),
            ("A.test", true),
            ("a.test:1", true),
            ("a.test@", false),
            ("a.test", true),
        ] {
            let checked = last.parse_authority(raw.as_bytes());
            assert_eq!(
                checked.as_ref().map(|checked| checked.as_str() == raw).map_err(|reason| *reason),
                check_authority(raw.as_bytes()).map(|()| true),
                "{raw}"
            );
            assert_eq!(checked.is_ok(), passes, "{raw}");
        }
        assert_eq!(LastAuthority::default().last_port(), None);
        for (authority, port) in
            [("a.test", 443), ("a.test:1", 1), ("[::1]:8443", 8443), ("[::1]", 443), ("a.test", 443)]
        {
            last.parse_authority(authority.as_bytes()).unwrap();
            assert_eq!(last.last_port(), Some(port), "{authority}");
        }
        let long = "a".repeat(LastAuthority::MAX_CACHED_LEN + 1);
        last.parse_authority(long.as_bytes()).unwrap();
        assert_eq!(*last.0.borrow(), Some(Authority::new("a.test")));
        assert!(LastAuthority::default().parse_authority(b"").is_err());
    }

    #[test]
    fn a_default_port_makes_no_other_authority() {
        for (target, host, port, merged) in [
            ("a.test", "a.test", "443", Some("a.test")),
            ("a.test", "A.test", "443", Some("a.test")),
            ("a.test:443", "a.test", "443", Some("a.test")),
            ("a.test", "A.test:443", "443", Some("a.test")),
            ("a.test:", "a.test", "443", Some("a.test")),
            ("a.test:", "a.test:443", "443", Some("a.test:")),
            ("[::1]:443", "[::1]", "443", Some("[::1]")),
            ("a.test:80", "a.test", "80", Some("a.test")),
            ("a.test:8443", "a.test:8443", "443", Some("a.test:8443")),
            ("a.test:80", "a.test", "443", None),
            ("a.test:443", "a.test", "80", None),
            ("a.test:8443", "a.test", "443", None),
            ("a.test:0443", "a.test", "443", None),
            ("a443", "a", "443", None),
            ("[::443", "[:", "443", None),
            ("a.test", "b.test", "443", None),
            ("a.test", "", "443", None),
            (":443", "", "443", Some("")),
        ] {
            let found = merge_authorities(target.as_bytes(), host.as_bytes(), port.as_bytes());
            assert_eq!(found, merged.map(str::as_bytes), "{target} {host} {port}");
        }
    }

    #[test]
    fn a_host_has_one_spelling_except_case_last_dot_and_ipv6() {
        for (host, passes) in [
            ("localhost", true),
            ("a.example.com.", true),
            ("a.example.com..", false),
            ("a..example.com", false),
            (".", false),
            ("", false),
            ("192.0.2.1", true),
            ("192.0.2.1.", true),
            ("192.0.2.1:443", true),
            ("192.0.2.01", false),
            ("192.0.2.256", false),
            ("192.0.2.1.5", false),
            ("127.1", false),
            ("0x7f.1", false),
            ("127.0x1", false),
            ("127.0X", false),
            ("2130706433", false),
            ("017700000001", false),
            ("a.1", false),
            ("1.a", true),
            ("0xg", true),
            ("0x7f.a", true),
            ("[::1]", true),
            ("[0:0:0:0:0:0:0:1]:443", true),
            ("[::FFFF:192.0.2.1]", true),
            ("[::1].", false),
            ("[fe80::1%25eth0]", false),
            ("[1.2.3.4]", false),
            ("[::1", false),
        ] {
            let checked = check_authority(host.as_bytes());
            assert_eq!(checked.is_ok(), passes, "{host}");
            assert!(checked.is_err() || http::uri::Authority::try_from(host).is_ok(), "{host}");
        }
    }
}

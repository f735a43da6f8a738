//! What a single value may be: durations, sizes, addresses, names. Each kind knows how to read itself, what to say
//! it expected, and its JSON schema.

use super::{Network, OriginAddress, Workers, fault::nearest};
use bytesize::ByteSize;
use serde_json::{Value as Json, json};
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

/// A value as it stands in the file, its environment variables filled in.
#[derive(Debug)]
pub(super) enum Given {
    Text(String),
    Integer(i128),
    Boolean(bool),
    /// None of them: its TOML type.
    Other(&'static str),
}

/// Why a value is refused.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub(super) problem: String,
    pub(super) nearest: Option<String>,
}

impl<S: Into<String>> From<S> for Wrong {
    fn from(problem: S) -> Self {
        Self { problem: problem.into(), nearest: None }
    }
}

impl Given {
    /// The fault of a value of another type than the one that is wanted.
    pub(super) fn wrong_type(&self) -> Wrong {
        let name = match self {
            Self::Text(_) => "string",
            Self::Integer(_) => "integer",
            Self::Boolean(_) => "boolean",
            Self::Other(name) => name,
        };
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        format!("is {article} {name}").into()
    }
}

/// What a value may be.
pub(super) struct Kind<T> {
    /// Follows "expected".
    pub(super) expected: String,
    /// A JSON schema without description and default.
    pub(super) schema: Json,
    pub(super) read: Box<dyn Fn(Given) -> Result<T, Wrong>>,
    /// As one would write it in the file: for the schema's `default`.
    pub(super) show: Box<dyn Fn(&T) -> Json>,
}

/// An integer within `range`.
pub(super) fn number<T: TryFrom<u64> + Into<u64> + Copy + 'static>(range: RangeInclusive<u64>) -> Kind<T> {
    let (least, most) = (*range.start(), *range.end());
    Kind {
        expected: format!("a number from {least} to {most}"),
        schema: json!({ "type": "integer", "minimum": least, "maximum": most }),
        read: Box::new(move |given| match given {
            Given::Integer(number) => within(number, &range),
            other => Err(other.wrong_type()),
        }),
        show: Box::new(|number| json!((*number).into())),
    }
}

/// Bytes within `range`: an integer, or a string with a unit.
pub(super) fn size<T: TryFrom<u64> + Into<u64> + Copy + 'static>(range: RangeInclusive<u64>) -> Kind<T> {
    let (least, most) = (*range.start(), *range.end());
    Kind {
        expected: format!("a size from {} to {}, such as \"64 KiB\"", show_size(least), show_size(most)),
        schema: json!({ "type": ["integer", "string"], "minimum": least, "maximum": most }),
        read: Box::new(move |given| match given {
            Given::Integer(bytes) => within(bytes, &range),
            Given::Text(text) => match text.trim().parse::<ByteSize>() {
                Ok(bytes) => within(bytes.0.into(), &range),
                Err(_) => Err("not a size".into()),
            },
            other => Err(other.wrong_type()),
        }),
        show: Box::new(|bytes| json!(show_size((*bytes).into()))),
    }
}

fn within<T: TryFrom<u64>>(number: i128, range: &RangeInclusive<u64>) -> Result<T, Wrong> {
    if number < i128::from(*range.start()) {
        return Err("too small".into());
    }
    let number = u64::try_from(number).ok().filter(|number| range.contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| "too large".into())
}

/// In the largest unit that leaves no fraction.
pub(super) fn show_size(bytes: u64) -> String {
    let mut rest = bytes;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if rest == 0 || !rest.is_multiple_of(1024) {
            break;
        }
        rest /= 1024;
        unit = larger;
    }
    format!("{rest} {unit}")
}

/// A duration within `range`: numbers with units.
pub(super) fn duration(range: RangeInclusive<Duration>) -> Kind<Duration> {
    let show = |duration: Duration| humantime::format_duration(duration).to_string();
    let (least, most) = (show(*range.start()), show(*range.end()));
    Kind {
        expected: format!("a duration from {least} to {most}, such as \"30s\""),
        schema: json!({ "type": "string", "examples": ["30s", "1m 30s", "500ms"] }),
        read: Box::new(move |given| match given {
            Given::Integer(_) => Err("has no unit".into()),
            Given::Text(text) => match humantime::parse_duration(text.trim()) {
                Ok(duration) if duration < *range.start() => Err("too small".into()),
                Ok(duration) if duration > *range.end() => Err("too large".into()),
                Ok(duration) => Ok(duration),
                Err(humantime::DurationError::NumberOverflow) => Err("too large".into()),
                Err(humantime::DurationError::UnknownUnit { unit, .. }) if unit.is_empty() => Err("has no unit".into()),
                Err(humantime::DurationError::UnknownUnit { unit, .. }) => {
                    Err(format!("unknown unit {:?}", super::fault::quote(&unit)).into())
                }
                Err(_) => Err("not a duration".into()),
            },
            other => Err(other.wrong_type()),
        }),
        show: Box::new(move |duration| json!(show(*duration))),
    }
}

/// The same, or `"none"`.
pub(super) fn or_none<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let (read, show) = (kind.read, kind.show);
    Kind {
        expected: format!("{}, or \"none\"", kind.expected),
        schema: kind.schema,
        read: Box::new(move |given| match given {
            Given::Text(text) if text == "none" => Ok(None),
            given => read(given).map(Some),
        }),
        show: Box::new(move |value| value.as_ref().map_or_else(|| json!("none"), &show)),
    }
}

/// `true` or `false`.
pub(super) fn boolean() -> Kind<bool> {
    Kind {
        expected: "true or false".into(),
        schema: json!({ "type": "boolean" }),
        read: Box::new(|given| match given {
            Given::Boolean(boolean) => Ok(boolean),
            other => Err(other.wrong_type()),
        }),
        show: Box::new(|boolean| json!(boolean)),
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy + PartialEq + 'static>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    Kind {
        expected: format!("one of \"{}\"", names.join("\", \"")),
        schema: json!({ "type": "string", "enum": names }),
        read: Box::new(move |given| match given {
            Given::Text(text) => {
                words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| Wrong {
                    problem: "unknown value".into(),
                    nearest: nearest(&text, words.iter().map(|(name, _)| *name)).map(|word| format!("{word:?}")),
                })
            }
            other => Err(other.wrong_type()),
        }),
        show: Box::new(move |value| json!(words.iter().find(|(_, other)| other == value).map(|(name, _)| name))),
    }
}

/// A string that `parse` understands; `show` is its inverse.
pub(super) fn text<T: 'static>(
    expected: &str,
    parse: impl Fn(String) -> Result<T, Wrong> + 'static,
    show: impl Fn(&T) -> String + 'static,
) -> Kind<T> {
    Kind {
        expected: expected.into(),
        schema: json!({ "type": "string" }),
        read: Box::new(move |given| match given {
            Given::Text(text) => parse(text),
            other => Err(other.wrong_type()),
        }),
        show: Box::new(move |value| json!(show(value))),
    }
}

/// `"auto"` or a count.
pub(super) fn workers(most: u16) -> Kind<Workers> {
    let count = number::<u16>(1..=most.into());
    Kind {
        expected: format!("\"auto\" or {}", count.expected),
        schema: json!({ "anyOf": [{ "const": "auto" }, count.schema] }),
        read: Box::new(move |given| match given {
            Given::Text(text) if text == "auto" => Ok(Workers::Auto),
            Given::Text(_) => Err("unknown value".into()),
            given => {
                let count = NonZeroU16::new((count.read)(given)?);
                count.map(Workers::Count).ok_or_else(|| "too small".into())
            }
        }),
        show: Box::new(|workers| match workers {
            Workers::Auto => json!("auto"),
            Workers::Count(count) => json!(count),
        }),
    }
}

/// An IP address with a port.
pub(super) fn address() -> Kind<SocketAddr> {
    let parse = |text: String| match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err("the port is 0".into()),
        Ok(address) => Ok(address),
        Err(_) if text.parse::<IpAddr>().is_ok() => Err("has no port".into()),
        Err(_) if text.starts_with(':') => Err("has no address".into()),
        Err(_) => Err("not an address".into()),
    };
    text("an IP address and a port, such as \"[::]:8443\" or \"127.0.0.1:9443\"", parse, ToString::to_string)
}

/// An origin's URL.
pub(super) fn origin_address() -> Kind<OriginAddress> {
    text(
        "\"http://HOST:PORT\" or \"unix:/PATH\"",
        |text| text.parse().map_err(|error: super::OriginAddressError| error.to_string().into()),
        ToString::to_string,
    )
}

/// The path of a file.
pub(super) fn path(expected: &str) -> Kind<PathBuf> {
    let parse = |text: String| if text.is_empty() { Err("empty".into()) } else { Ok(text.into()) };
    text(expected, parse, |path: &PathBuf| path.display().to_string())
}

/// A network in CIDR notation, or a single address.
pub(super) fn network() -> Kind<Network> {
    text(
        "a network such as \"10.0.0.0/8\" or \"fd00::/8\"",
        |text| parse_network(&text),
        |network| format!("{}/{}", network.address, network.prefix),
    )
}

fn parse_network(text: &str) -> Result<Network, Wrong> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().map_err(|_| "not a network")?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => bits,
        Some(digits) if !digits.bytes().all(|b| b.is_ascii_digit()) => return Err("not a network".into()),
        Some(digits) => match digits.parse() {
            Ok(prefix) if prefix <= bits => prefix,
            _ => return Err(format!("the prefix is longer than {bits} bits").into()),
        },
    };
    let keep = |all: u128| all.checked_shl(u32::from(bits - prefix)).unwrap_or(0);
    let masked = match address {
        // The shift leaves zeroes on the right; what it pushes beyond 32 bits, the mask with the address drops.
        IpAddr::V4(v4) => {
            IpAddr::V4((v4.to_bits() & u32::try_from(keep(0xffff_ffff) & 0xffff_ffff).unwrap_or(0)).into())
        }
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & keep(u128::MAX)).into()),
    };
    if masked != address {
        return Err(Wrong {
            problem: "has bits beyond its prefix".into(),
            nearest: Some(format!("\"{masked}/{prefix}\"")),
        });
    }
    Ok(Network { address, prefix })
}

/// A route's host: a name, `*.` and a name, or an IP address.
pub(super) fn host_pattern() -> Kind<String> {
    let expected = "a host such as \"example.com\", \"*.example.com\" or \"[::1]\"";
    let parse = |text: String| {
        if text == "*" {
            return Err("matches every host, as no key at all does".into());
        }
        match text.strip_prefix("*.") {
            Some(name) => parse_name(name).map(|name| format!("*.{name}")),
            None => parse_host(&text),
        }
    };
    text(expected, parse, Clone::clone)
}

/// What the origin gets as `Host` (RFC 9110 §7.2).
pub(super) fn authority() -> Kind<String> {
    let parse = |text: String| {
        let (host, port) = split_port(&text);
        let host = parse_host(host)?;
        match port.map(str::parse::<u16>) {
            None => Ok(host),
            Some(Ok(port)) if port > 0 => Ok(format!("{host}:{port}")),
            Some(_) => Err("not a port".into()),
        }
    };
    text("a host with or without a port, such as \"example.com\"", parse, Clone::clone)
}

/// `HOST:PORT` apart; the colons of `[::1]` are the host's.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Lower case, without a trailing dot.
pub(super) fn parse_host(text: &str) -> Result<String, Wrong> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| "not an IPv6 address")?;
        return Ok(format!("[{address}]"));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(Wrong {
            problem: "an IPv6 address stands in brackets".into(),
            nearest: Some(format!("\"[{text}]\"")),
        });
    }
    parse_name(text)
}

fn parse_name(text: &str) -> Result<String, Wrong> {
    /// RFC 1035 §2.3.4.
    const MAX_NAME: usize = 253;
    const MAX_LABEL: usize = 63;
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
        "`*.` stands at the beginning only"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        "not a host"
    } else if name.len() > MAX_NAME || name.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL) {
        "a label is empty or longer than 63 characters, or the name longer than 253"
    } else {
        return Ok(name);
    };
    Err(problem.into())
}

/// A route's path prefix.
pub(super) fn path_prefix() -> Kind<String> {
    let parse = |text: String| {
        let problem = if !text.starts_with('/') {
            "does not start with `/`"
        } else if text.contains(['?', '#', '*']) {
            "a prefix is a plain path, without `?`, `#` and `*`"
        } else if !text.bytes().all(|b| b.is_ascii_graphic()) {
            "other characters than printable ASCII are percent-encoded"
        } else if text.split('/').any(|segment| matches!(segment, "." | "..")) {
            "has a dot segment, which no request has"
        } else {
            return Ok(text);
        };
        Err(problem.into())
    };
    text("a path such as \"/live\"", parse, Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(kind: &Kind<T>, text: &str) -> Result<T, String> {
        (kind.read)(Given::Text(text.into())).map_err(|wrong| wrong.problem)
    }

    #[test]
    fn sizes_are_read_as_humans_write_them() {
        let kind = size::<u64>(1..=1 << 40);
        for (text, bytes) in
            [("64 KiB", 65_536), ("64KiB", 65_536), ("64 kB", 64_000), ("1.5 MiB", 1_572_864), ("7", 7)]
        {
            assert_eq!(read(&kind, text), Ok(bytes), "{text}");
        }
        for (text, problem) in [
            ("64 XB", "not a size"),
            ("", "not a size"),
            ("-1 KiB", "not a size"),
            ("0 B", "too small"),
            ("2 TiB", "too large"),
        ] {
            assert_eq!(read(&kind, text), Err(problem.into()), "{text}");
        }
        assert_eq!((kind.read)(Given::Integer(-1)), Err("too small".into()));
        assert_eq!((kind.read)(Given::Integer(i128::MAX)), Err("too large".into()));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_without_a_fraction() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1536 B"), (1 << 30, "1 GiB")] {
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn durations_are_read_as_humans_write_them() {
        let kind = duration(Duration::from_millis(1)..=Duration::from_secs(86_400));
        for (text, millis) in
            [("30s", 30_000), ("500ms", 500), ("1m 30s", 90_000), ("1h", 3_600_000), ("1day", 86_400_000)]
        {
            assert_eq!(read(&kind, text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, problem) in [
            ("30", "has no unit"),
            ("30 parsecs", "unknown unit \"parsecs\""),
            ("soon", "not a duration"),
            ("", "not a duration"),
            ("0s", "too small"),
            ("25h", "too large"),
            ("99999999999999999999999s", "too large"),
        ] {
            assert_eq!(read(&kind, text), Err(problem.into()), "{text}");
        }
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
        let wrong = parse_network("10.1.2.3/8").unwrap_err();
        assert_eq!(wrong.nearest.as_deref(), Some("\"10.0.0.0/8\""));
        let wrong = parse_network("fd12::1/8").unwrap_err();
        assert_eq!(wrong.nearest.as_deref(), Some("\"fd00::/8\""));
    }

    #[test]
    fn hosts_are_lowered_and_lose_their_trailing_dot() {
        let kind = host_pattern();
        for (text, host) in [
            ("Example.COM.", "example.com"),
            ("*.Example.com", "*.example.com"),
            ("localhost", "localhost"),
            ("10.0.0.1", "10.0.0.1"),
            ("[::1]", "[::1]"),
            ("[0:0::1]", "[::1]"),
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
        ] {
            read(&kind, text).unwrap_err();
        }
    }

    #[test]
    fn a_rewritten_host_may_have_a_port() {
        for (text, host) in
            [("Example.com", "example.com"), ("a:8080", "a:8080"), ("[::1]:80", "[::1]:80"), ("[::1]", "[::1]")]
        {
            assert_eq!(read(&authority(), text), Ok(host.into()), "{text}");
        }
        for text in ["", ":80", "a:", "a:0", "a:65536", "a:b", "user@a", "a/b"] {
            read(&authority(), text).unwrap_err();
        }
    }

    #[test]
    fn a_path_prefix_is_one_that_a_request_can_have() {
        for text in ["/", "/live", "/live/", "/a%20b/c"] {
            assert_eq!(read(&path_prefix(), text), Ok(text.into()));
        }
        for text in ["", "live", "/live/*", "/a?b", "/a#b", "/a b", "/ü", "/a/../b", "/."] {
            read(&path_prefix(), text).unwrap_err();
        }
    }
}

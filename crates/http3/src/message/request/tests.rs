//! The table of requests, a test a row: valid ones, and the statuses of others.

use super::*;
use crate::message::test_support::{
    decode_literal_section, is_malformed_result, literal_fields, push_literal, well_formed_pseudo,
};
use proptest::prelude::*;

/// Decodes a request of a client to which `:protocol` was not advertised.
fn request(fields: DecodedFields) -> Result<DecodedRequest, Rejection> {
    decode_request(fields, false, &LastAuthority::default())
}

/// A valid request, to which `more` is added.
fn with(more: &[(&str, &str)]) -> Result<DecodedRequest, Rejection> {
    request(literal_fields(&[well_formed_pseudo(), more].concat()))
}

/// A valid request, with one pseudo-header replaced.
fn replaced(name: &str, value: &str) -> Result<DecodedRequest, Rejection> {
    let of = |field: &(&'static str, &'static str)| if field.0 == name { value.to_owned() } else { field.1.to_owned() };
    let all: Vec<_> = well_formed_pseudo().iter().map(|field| (field.0, of(field))).collect();
    request(literal_fields(&all.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>()))
}

fn without(name: &str, more: &[(&str, &str)]) -> Result<DecodedRequest, Rejection> {
    let rest = well_formed_pseudo().iter().filter(|field| field.0 != name);
    request(literal_fields(&rest.chain(more).copied().collect::<Vec<_>>()))
}

/// The parts of a request.
fn parts(request: &DecodedRequest) -> (&Method, &str, &str, &Fields, Option<u64>) {
    let DecodedRequest { head, content_length } = request;
    (&head.method, head.authority(), head.path_and_query(), &head.fields, *content_length)
}

/// The value of the one field with this name.
fn value<'a>(request: &'a DecodedRequest, name: &'a str) -> Option<&'a [u8]> {
    assert!(request.head.fields.all_values(FieldNameRef::from_lower_case_token(name)).nth(1).is_none(), "{name} twice");
    request.head.fields.get(FieldNameRef::from_lower_case_token(name))
}

fn status(result: &Result<DecodedRequest, Rejection>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Rejection::Malformed(_)) => 0,
        Err(Rejection::Status(status, _)) => status.as_u16(),
    }
}

#[test]
fn a_request_as_browsers_send_it_passes() {
    let head = with(&[("user-agent", "x"), ("accept", "*/*"), ("te", "trailers"), ("content-length", "5")]).unwrap();
    assert_eq!(head.content_length, Some(5));
    let head = head.head;
    assert_eq!(head.method, Method::GET);
    assert_eq!(
        (head.authority(), head.path_and_query(), head.path_without_query()),
        ("example.com:8443", "/a/b?c=d", "/a/b")
    );
    assert_eq!(head.fields.len(), 4);
}

#[test]
fn pseudo_headers_stand_once_and_first_and_are_not_empty() {
    assert_eq!(status(&with(&[])), 200);
    for name in [":method", ":scheme", ":path", ":authority"] {
        let value = well_formed_pseudo().iter().find(|field| field.0 == name).unwrap().1;
        assert!(is_malformed_result(&without(name, &[])), "no {name}");
        assert!(is_malformed_result(&with(&[(name, value)])), "{name} twice");
        assert!(is_malformed_result(&without(name, &[("x", "y"), (name, value)])), "{name} after a field");
        assert!(is_malformed_result(&replaced(name, "")), "{name} is empty");
        for value in ["a\0", "a\r", "\na", " a", "a ", "\ta"] {
            assert!(is_malformed_result(&replaced(name, value)), "{name}: {value:?}");
        }
    }
}

#[test]
fn unknown_pseudo_headers_and_those_of_responses_are_malformed() {
    for name in [":status", ":protocol", ":unknown", ":", ":Method", ":method ", "::path"] {
        let mut all = vec![(name, "200")];
        all.extend(well_formed_pseudo());
        assert!(is_malformed_result(&request(literal_fields(&all))), "{name}");
    }
}

#[test]
fn authority_and_host_name_the_same_or_one_is_missing() {
    let host = ("host", "example.com:8443");
    let with_authority = with(&[]).unwrap();
    for host in [host, ("host", "EXAMPLE.com:8443")] {
        assert_eq!(parts(&with(&[host]).unwrap()), parts(&with_authority));
    }
    assert_eq!(parts(&without(":authority", &[host]).unwrap()), parts(&with_authority));
    assert!(is_malformed_result(&without(":authority", &[])));
    assert!(is_malformed_result(&without(":authority", &[("host", "")])));
    for hosts in [&[("host", "other.example")][..], &[("host", "example.com:8444")], &[("host", "")], &[host, host]] {
        assert!(is_malformed_result(&with(hosts)), "{hosts:?}");
    }
}

#[test]
fn field_names_are_tokens_in_lower_case() {
    for name in ["X-A", "x-A", "", "a b", "a:", "a\r", "a\0", "é", "a(", "a\"", "a/", "a@", "{", "a,"] {
        assert!(is_malformed_result(&with(&[(name, "v")])), "{name:?}");
    }
    for byte in 0..=u8::MAX {
        let mut all = literal_fields(well_formed_pseudo());
        push_literal(&mut all, &[b'x', byte], b"");
        let allowed = matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert_eq!(status(&request(all)), if allowed { 200 } else { 0 }, "{byte:#x}");
    }
    for name in ["x-a", "x_a", "a.b", "!#$%&'*+-.^_`|~09az"] {
        assert_eq!(status(&with(&[(name, "v")])), 200, "{name:?}");
    }
}

#[test]
fn field_values_have_no_control_characters_and_no_blanks_at_their_edges() {
    for value in ["a\0", "\0", "a\rb", "a\nb", "a\r\nb: c", " a", "a ", "\ta", "a\t", " ", "a\u{1}", "a\u{7f}"] {
        assert!(is_malformed_result(&with(&[("x", value)])), "{value:?}");
    }
    for value in ["", "a b", "a\tb", "é", "\"'<>,;"] {
        assert_eq!(self::value(&with(&[("x", value)]).unwrap(), "x"), Some(value.as_bytes()));
    }
}

#[test]
fn connection_specific_fields_are_malformed_and_never_cleaned() {
    for (name, value) in [
        ("connection", "close"),
        ("connection", "te"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", ""),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("te", "trailers;q=1"),
        ("te", ""),
    ] {
        assert!(is_malformed_result(&with(&[(name, value)])), "{name}: {value}");
    }
    assert!(is_malformed_result(&with(&[("te", "trailers"), ("te", "gzip")])));
    assert_eq!(status(&with(&[("te", "Trailers")])), 200);
}

#[test]
fn a_content_length_is_one_plain_decimal_number() {
    for value in ["", "+5", "-5", "5 ", "5, 5", "5,5", "0x5", "5.0", "1e3", "five", "٥", "18446744073709551616"] {
        assert!(is_malformed_result(&with(&[("content-length", value)])), "{value:?}");
    }
    assert!(is_malformed_result(&with(&[("content-length", "5"), ("content-length", "5")])), "the same twice");
    assert!(is_malformed_result(&with(&[("content-length", "5"), ("content-length", "6")])));
    for (value, length) in [("0", 0), ("5", 5), ("0005", 5), ("18446744073709551615", u64::MAX)] {
        let head = with(&[("content-length", value)]).unwrap();
        assert_eq!(head.content_length, Some(length));
        let plainest = length.to_string();
        assert_eq!(self::value(&head, "content-length"), Some(plainest.as_bytes()));
    }
    assert_eq!(with(&[]).unwrap().content_length, None);
}

#[test]
fn a_method_is_a_token() {
    for method in ["GE T", "GET\u{1}", "G(T", "G\"T", "é"] {
        assert!(is_malformed_result(&replaced(":method", method)), "{method:?}");
    }
    for method in ["GET", "get", "PROPFIND", "M-SEARCH"] {
        assert_eq!(replaced(":method", method).unwrap().head.method, method);
    }
}

#[test]
fn connect_is_answered_501_and_malformed_with_a_path() {
    let connect = (":method", "CONNECT");
    let authority = (":authority", "example.com:443");
    assert_eq!(status(&request(literal_fields(&[connect, authority]))), 501);
    assert!(is_malformed_result(&request(literal_fields(&[connect]))));
    assert!(is_malformed_result(&request(literal_fields(&[connect, ("host", "example.com:443")]))));
    assert!(is_malformed_result(&request(literal_fields(&[connect, authority, (":path", "/")]))));
    assert!(is_malformed_result(&request(literal_fields(&[connect, authority, (":scheme", "https")]))));
    assert!(is_malformed_result(&replaced(":method", "CONNECT")));
    let extended = [connect, authority, (":scheme", "https"), (":path", "/"), (":protocol", "websocket")];
    assert!(is_malformed_result(&request(literal_fields(&extended))), "extended CONNECT is not announced");
}

#[test]
fn an_extended_connect_names_everything_and_becomes_a_get() {
    let all = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat?a"),
        (":authority", "example.com"),
    ];
    let extended = |all: &[(&str, &str)]| decode_request(literal_fields(all), true, &LastAuthority::default());
    let head = extended(&[&all[..], &[("origin", "https://example.com")]].concat()).unwrap();
    let head = head.head;
    assert_eq!((&head.method, head.authority(), head.path_and_query()), (&Method::GET, "example.com", "/chat?a"));
    assert_eq!(&*head.upgrade.unwrap().0, b"websocket");

    for missing in all.map(|(name, _)| name).into_iter().filter(|name| *name != ":protocol") {
        let rest: Vec<_> = all.into_iter().filter(|(name, _)| *name != missing).collect();
        assert!(is_malformed_result(&extended(&rest)), "no {missing}");
        assert!(
            is_malformed_result(&extended(&[&rest[..], &[("host", "example.com")]].concat())),
            "no {missing}, but Host"
        );
    }
    let with = |name: &str, value: &'static str| {
        let replaced = all.map(|(other, before)| (other, if other == name { value } else { before }));
        status(&extended(&replaced))
    };
    for (name, value, expected) in [
        (":method", "GET", 0),
        (":protocol", "", 0),
        (":protocol", "web socket", 0),
        (":protocol", "websocket,h2c", 0),
        (":protocol", "connect-udp", 200),
        (":protocol", "a/1", 200),
        (":scheme", "wss", 400),
        (":path", "*", 400),
        (":path", "chat", 400),
        (":authority", "a@b", 400),
    ] {
        assert_eq!(with(name, value), expected, "{name} = {value:?}");
    }
    assert!(is_malformed_result(&extended(&[&all[..], &[(":protocol", "websocket")]].concat())), ":protocol twice");
    assert!(is_malformed_result(&extended(&[&all[..], &[("upgrade", "websocket")]].concat())));
    for length in ["0", "5"] {
        assert_eq!(status(&extended(&[&all[..], &[("content-length", length)]].concat())), 400);
    }
    assert_eq!(status(&extended(&[(":method", "CONNECT"), (":authority", "example.com:443")])), 501, "a plain one");
}

#[test]
fn a_scheme_is_https_or_http() {
    for (scheme, expected) in
        [("https", 200), ("http", 200), ("HTTPS", 200), ("ftp", 400), ("ws", 400), ("https:", 400), ("h ttp", 400)]
    {
        assert_eq!(status(&replaced(":scheme", scheme)), expected, "{scheme}");
    }
}

#[test]
fn an_authority_is_a_host_and_perhaps_a_port() {
    for authority in [
        "example.com",
        "EXAMPLE.com",
        "example.com.",
        "a_b.example",
        "localhost:1",
        "192.0.2.1:65535",
        "[2001:db8::1]",
        "[::1]:8443",
        "[::ffff:192.0.2.1]:443",
    ] {
        let head = replaced(":authority", authority);
        assert_eq!(head.map(|head| head.head.authority().to_owned()), Ok(authority.to_owned()));
    }
    for authority in [
        "user@example.com",
        "user:pw@example.com",
        "@example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+80",
        "example.com:8a",
        "example.com:080000",
        "example.com:80:80",
        ":443",
        ".",
        ".example.com",
        "a..b",
        "a b",
        "a/b",
        "a?b",
        "a#b",
        "a\\b",
        "a,b",
        "%65xample.com",
        "é.example",
        "::1",
        "[::1",
        "[::1]8443",
        "[::1]:",
        "[]",
        "[fe80::1%25eth0]",
        "[127.0.0.1]",
        "[v1.a]",
    ] {
        assert_eq!(status(&replaced(":authority", authority)), 400, "{authority:?}");
        assert_eq!(status(&without(":authority", &[("host", authority)])), 400, "Host: {authority:?}");
    }
}

#[test]
fn a_path_is_forwarded_byte_for_byte() {
    for path in [
        "/",
        "//",
        "//other.example/",
        "/?",
        "/??a=b?",
        "/a?b=/../c/./d",
        "/a?b=\\..\\",
        "/a/...",
        "/..a/.b/c./d..",
        "/a%2fb",
        "/a%2Fb%5cc",
        "/%25252e%25252e/",
        "/%",
        "/%zz%2",
        "/a;b=c/d",
        "/a;/b",
        "/~!$&'()*+,;=:@-._a",
        "/{a}|b^c\"d?{a}|b^c`d",
    ] {
        let head = replaced(":path", path).unwrap();
        assert_eq!((head.head.path_and_query(), head.head.target()), (path, path));
    }
}

#[test]
fn a_path_that_origins_could_read_in_two_ways_is_answered_400() {
    for path in [
        "a",
        "?a",
        "http://example.com/",
        "*",
        "*a",
        "/a b",
        "/a\tb",
        "/a?b c",
        "/\u{1}",
        "/\u{7f}",
        "/a#b",
        "/a?b#c",
        "#",
        "/é",
        "/?é",
        // what only http::Uri rejects; RFC 3986 §3.3 does not have it either
        "/<",
        "/>",
        "/`",
        "/?\"",
        "/?<",
        "/?>",
        // dot segments
        "/.",
        "/..",
        "/./",
        "/../",
        "/a/.",
        "/a/..",
        "/a/./b",
        "/a/../b",
        "/a/..?b",
        "/%2e",
        "/%2E%2e",
        "/.%2e/a",
        "/%2e./a",
        "/a/%2e%2e",
        // separators for some origins only
        "/a%2f..%2fb",
        "/a/..%2fb",
        "/a%5c..%5Cb",
        "/a%2f%2e%2e",
        "/..;/b",
        "/a/..;x=y/b",
        "/.;/b",
        "/a/%2e%2e%3b/b",
        // and paths that are decoded twice, or end after a decoding
        "/%252e%252e/",
        "/a%252f..%252fb",
        "/a/..%00",
        "/a/..%3fb",
        "/a\\b",
        "/\\..\\",
    ] {
        assert_eq!(status(&replaced(":path", path)), 400, "{path:?}");
    }
    assert_eq!(status(&replaced(":path", &format!("/{}", "a".repeat(70_000)))), 414);
}

#[test]
fn an_asterisk_asks_for_options_alone() {
    let options = [(":method", "OPTIONS"), (":scheme", "https"), (":authority", "a"), (":path", "*")];
    let head = request(literal_fields(&options)).unwrap();
    assert_eq!((head.head.path_without_query(), head.head.path_and_query()), ("*", "*"));
}

#[test]
fn cookie_crumbs_become_one_cookie() {
    for (crumbs, joined) in [
        (&[][..], None),
        (&["a=b"], Some("a=b")),
        (&["a=b", "c=d"], Some("a=b; c=d")),
        (&["a=b", "c=d; e=f", "g"], Some("a=b; c=d; e=f; g")),
        (&[""], Some("")),
    ] {
        let crumbs: Vec<_> = crumbs.iter().map(|crumb| ("cookie", *crumb)).collect();
        let head = with(&crumbs).unwrap();
        assert_eq!(value(&head, "cookie"), joined.map(str::as_bytes));
    }
    // An empty crumb leaves no blank at an edge.
    assert_eq!(value(&with(&[("cookie", ""), ("cookie", "a")]).unwrap(), "cookie"), Some(&b"a"[..]));
    assert_eq!(value(&with(&[("cookie", "a"), ("cookie", "")]).unwrap(), "cookie"), Some(&b"a"[..]));
}

#[test]
fn a_malformed_request_is_malformed_even_if_it_also_deserves_a_status() {
    assert!(is_malformed_result(&request(literal_fields(&[
        (":method", "GET"),
        (":scheme", "ftp"),
        (":authority", "user@a"),
        (":path", "/../"),
        ("connection", "close"),
    ]))));
}

#[test]
fn static_table_entries_and_literals_are_decoded_alike() {
    let known = decode_literal_section(&[0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a', 0xdd]);
    let literal = literal_fields(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "a"),
        ("accept", "*/*"),
    ]);
    assert_eq!(parts(&request(known).unwrap()), parts(&request(literal).unwrap()));
}

proptest! {
    #[test]
    fn no_path_with_a_dot_segment_after_decoding_passes(
        parts in proptest::collection::vec(prop_oneof![
            Just("/"), Just("."), Just("%2e"), Just("%2E"), Just("a"), Just("%2f"), Just("%5C"), Just(";"), Just("?"),
        ], 0..10),
    ) {
        let path = format!("/{}", parts.concat());
        let head = replaced(":path", &path);
        let plain = path.split('?').next().unwrap().replace("%2e", ".").replace("%2E", ".");
        let plain = plain.replace("%2f", "/").replace("%5C", "/");
        let dots = plain.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")));
        prop_assert_eq!(status(&head), if dots { 400 } else { 200 }, "{}", path);
    }

    #[test]
    fn no_request_fields_panic(all in proptest::collection::vec((".{0,8}|:path|:method|host|cookie", ".{0,8}"), 0..8)) {
        let all: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let _ = request(literal_fields(&all));
        let _ = crate::message::decode_response(literal_fields(&all));
        let _ = crate::message::decode_trailers(literal_fields(&all));
    }
}

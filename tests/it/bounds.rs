//! The same message over HTTP/1.1, HTTP/2 and HTTP/3, at, below and above each limit of a header, of trailers and of a
//! response. Where the three differ, the document says so: docs/proxying.md, "Limits of messages".

use crate::support::{
    http2::{END_STREAM, RST_STREAM},
    prelude::*,
};
use std::fmt;

/// How a request ended for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A response with this status, whole.
    Status(u16),
    /// The stream was reset, or the connection closed within the response.
    Broken,
}

use End::{Broken, Status};

/// What HTTP/1.1, HTTP/2 and HTTP/3 answer.
#[derive(Debug, PartialEq, Eq)]
struct Ends {
    one: End,
    two: End,
    three: End,
}

impl Ends {
    const fn all(end: End) -> Self {
        Self { one: end, two: end, three: end }
    }
}

/// A message as all three protocols can send it.
#[derive(Debug, Clone)]
struct Message {
    path: String,
    fields: Vec<(String, String)>,
    /// Sent as lines over HTTP/2 and HTTP/3, and as one over HTTP/1.1 (RFC 6265 §5.4).
    crumbs: Vec<String>,
    /// With them the request is a POST with a body.
    trailers: Vec<(String, String)>,
}

impl Message {
    fn get() -> Self {
        Self { path: "/".into(), fields: Vec::new(), crumbs: Vec::new(), trailers: Vec::new() }
    }

    fn method(&self) -> &'static str {
        if self.trailers.is_empty() { "GET" } else { "POST" }
    }

    fn head(&self) -> Vec<(&str, &str)> {
        let pseudo =
            [(":method", self.method()), (":scheme", "https"), (":authority", "localhost"), (":path", &*self.path)];
        let fields = self.fields.iter().map(|(name, value)| (&**name, &**value));
        pseudo.into_iter().chain(fields).chain(self.crumbs.iter().map(|crumb| ("cookie", &**crumb))).collect()
    }

    fn trailers(&self) -> Vec<(&str, &str)> {
        self.trailers.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    /// The header's bytes by RFC 9114 §4.2.2.
    fn bytes(&self) -> usize {
        self.head().iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    /// With one more field, so that the header has so many bytes.
    fn of_bytes(mut self, bytes: usize) -> Self {
        let value = bytes.checked_sub(self.bytes() + 1 + 32).unwrap();
        self.fields.push(("x".into(), "v".repeat(value)));
        assert_eq!(self.bytes(), bytes);
        self
    }

    /// With so many more fields, each of another name.
    fn with_fields(mut self, count: usize) -> Self {
        self.fields.extend((0..count).map(|n| (format!("x-{n}"), "y".into())));
        self
    }

    fn with_crumbs(mut self, count: usize, crumb: &str) -> Self {
        self.crumbs.extend((0..count).map(|_| crumb.to_owned()));
        self
    }

    fn with_path(mut self, length: usize) -> Self {
        self.path = format!("/{}", "p".repeat(length - 1));
        self
    }

    async fn over_http1(&self, litequic: &Litequic) -> End {
        let mut client = Tls::http1(litequic).await;
        let mut text = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method(), self.path);
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.crumbs.is_empty() {
            text += &format!("Cookie: {}\r\n", self.crumbs.join("; "));
        }
        if !self.trailers.is_empty() {
            text += "Transfer-Encoding: chunked\r\n";
        }
        text += "\r\n";
        if !self.trailers.is_empty() {
            text += "3\r\nabc\r\n0\r\n";
            for (name, value) in &self.trailers {
                text += &format!("{name}: {value}\r\n");
            }
            text += "\r\n";
        }
        // An error means that litequic has answered and closed.
        let _ = client.try_say(text.as_bytes()).await;
        Status(client.head().await.split(' ').nth(1).unwrap().parse().unwrap())
    }

    async fn over_http2(&self, litequic: &Litequic) -> End {
        let mut client = Http2::connect(litequic, &[]).await;
        let section = http2::fields(&self.head());
        let mut bytes = http2::headers(if self.trailers.is_empty() { END_STREAM } else { 0 }, 1, &section);
        if !self.trailers.is_empty() {
            bytes.extend(http2::frame(http2::DATA, 0, 1, b"abc"));
            bytes.extend(http2::headers(END_STREAM, 1, &http2::fields(&self.trailers())));
        }
        let _ = client.try_say(&bytes).await;
        match client.find(&[http2::HEADERS, RST_STREAM, http2::GOAWAY]).await {
            Some(frame) if frame.kind == http2::HEADERS => Status(http2::status(&frame)),
            _ => Broken,
        }
    }

    async fn over_http3(&self, litequic: &Litequic) -> End {
        let mut bytes = raw::headers(&self.head());
        if !self.trailers.is_empty() {
            bytes.extend(raw::data("abc"));
            bytes.extend(raw::headers(&self.trailers()));
        }
        match Raw::to(litequic).await.ask(&bytes).await {
            Outcome::Response(response) => Status(response.fields.status()),
            Outcome::Reset(_) | Outcome::Closed(_) => Broken,
        }
    }

    async fn ends(&self, litequic: &Litequic) -> Ends {
        Ends {
            one: self.over_http1(litequic).await,
            two: self.over_http2(litequic).await,
            three: self.over_http3(litequic).await,
        }
    }
}

/// Sends each message over each protocol. Prints all that differ from what is expected.
async fn check(origin: SocketAddr, edit: impl FnOnce(&mut Config), rows: Vec<(impl fmt::Display, Message, Ends)>) {
    let litequic = Litequic::start(origin, edit).await;
    let mut wrong = Vec::new();
    for (name, message, expected) in rows {
        let ends = message.ends(&litequic).await;
        if ends != expected {
            wrong.push(format!("{name}: {ends:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    litequic.stop().await;
}

const SERVED: Ends = Ends::all(Status(200));
const TOO_LARGE: Ends = Ends::all(Status(431));

#[tokio::test]
async fn a_header_may_have_as_many_fields_over_each_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    for limit in [1, 30, 99, 100, 101, 250] {
        let of = |count| Message::get().with_fields(count);
        let rows = vec![
            ("below", of(limit - 1), SERVED),
            ("at", of(limit), SERVED),
            ("above", of(limit + 1), TOO_LARGE),
            ("far above", of(limit * 4), TOO_LARGE),
            ("cookies below", of(limit - 1).with_crumbs(120, "name=value"), SERVED),
            ("cookies at", of(limit).with_crumbs(2, "name=value"), TOO_LARGE),
        ];
        let rows = rows.into_iter().map(|(name, message, ends)| (format!("{name} {limit}"), message, ends)).collect();
        let edit = |config: &mut Config| {
            config.limits.max_headers = u32::try_from(limit).unwrap();
            config.limits.max_header_bytes = 64 * 1024;
        };
        check(origin.address, edit, rows).await;
    }
    check(
        origin.address,
        defaults,
        vec![
            ("default", Message::get().with_fields(99), SERVED),
            ("above", Message::get().with_fields(100), TOO_LARGE),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_header_may_have_as_many_bytes_over_each_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    for limit in [1024, 32 * 1024, 300_000] {
        let of = |bytes| Message::get().of_bytes(bytes);
        let rows = vec![
            ("below", of(limit - 1), SERVED),
            ("at", of(limit), SERVED),
            ("above", of(limit + 1), TOO_LARGE),
            ("a tenth above", of(limit + limit / 10), TOO_LARGE),
            ("at twice", of(limit * 2), TOO_LARGE),
            ("beyond twice", of(limit * 2 + 1000), TOO_LARGE),
            ("a fields' worth below", Message::get().with_fields(9).of_bytes(limit), SERVED),
            ("a fields' worth above", Message::get().with_fields(9).of_bytes(limit + 1), TOO_LARGE),
            ("a path below", Message::get().with_path(300).of_bytes(limit), SERVED),
            ("a path above", Message::get().with_path(300).of_bytes(limit + 1), TOO_LARGE),
        ];
        let rows = rows.into_iter().map(|(name, message, ends)| (format!("{name} {limit}"), message, ends)).collect();
        check(origin.address, |config| config.limits.max_header_bytes = u32::try_from(limit).unwrap(), rows).await;
    }
}

/// A crumb has 38 bytes beside its value, which bounds how many are decoded; over HTTP/1.1 all are one line, with two
/// bytes between two of them.
#[tokio::test]
async fn cookies_pay_for_each_of_their_lines() {
    let origin = Always::new(Always::EMPTY_200).await;
    let crumbs = |count| Message::get().with_crumbs(count, "a=b");
    // Of (6 + 3 + 32) bytes each.
    let most = (32 * 1024 - Message::get().bytes()) / 41;
    let as_lines = Ends { one: Status(200), two: Status(431), three: Status(431) };
    check(
        origin.address,
        defaults,
        vec![("at", crumbs(most), SERVED), ("above", crumbs(most + 1), as_lines), ("180", crumbs(180), SERVED)],
    )
    .await;
    // More lines than a HeaderMap holds names.
    let many = (1024 * 1024 - Message::get().bytes()) / 38;
    assert!(many > 24_576);
    let crumbs = Message::get().with_crumbs(many, "");
    check(
        origin.address,
        |config| config.limits.max_header_bytes = 1024 * 1024,
        vec![("a MiB of crumbs", crumbs, SERVED)],
    )
    .await;
}

#[tokio::test]
async fn more_fields_than_a_map_holds_are_too_many() {
    let origin = Always::new(Always::EMPTY_200).await;
    let of = |count| Message::get().with_fields(count);
    let edit = |config: &mut Config| {
        (config.limits.max_header_bytes, config.limits.max_headers) = (1024 * 1024, 10_000);
    };
    check(
        origin.address,
        edit,
        vec![("at", of(10_000), SERVED), ("above", of(10_001), TOO_LARGE), ("beyond the map", of(24_600), TOO_LARGE)],
    )
    .await;
}

#[tokio::test]
async fn a_target_may_have_as_many_bytes_over_each_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    let too_long = Ends { one: Status(414), two: Broken, three: Status(414) };
    check(
        origin.address,
        |config| config.limits.max_header_bytes = 200_000,
        vec![
            ("at", Message::get().with_path(65_534), SERVED),
            ("above", Message::get().with_path(65_535), too_long),
            (
                "far above",
                Message::get().with_path(100_000),
                Ends { one: Status(414), two: Broken, three: Status(414) },
            ),
        ],
    )
    .await;
    let first = Ends { one: Status(414), two: Status(431), three: Status(431) };
    check(origin.address, |_| {}, vec![("longer than a header", Message::get().with_path(33_000), first)]).await;
}

/// An origin that answers a request once it has the last chunk of its body.
async fn whole_server() -> Server {
    Server::start(async |mut stream| {
        let mut seen = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut seen).await {
            let body = seen.windows(4).position(|four| four == b"\r\n\r\n").map(|end| &seen[end + 4..]);
            if body.is_some_and(|body| body.ends_with(b"\r\n\r\n")) {
                seen.clear();
                let _ = stream.write_all(Always::EMPTY_200.as_bytes()).await;
            }
        }
    })
    .await
}

/// hyper bounds trailers to 16 KiB and 100 fields by itself.
#[tokio::test]
async fn trailers_may_have_as_many_bytes_and_fields_over_each_protocol() {
    let origin = whole_server().await;
    // With a stream that is open in both directions: HTTP/1.1 and HTTP/2 have a status to answer with.
    let too_large = || Ends { one: Status(400), two: Status(400), three: Broken };
    let closed = || Ends { one: Status(400), two: Broken, three: Broken };
    // h2 drops fields beyond twice the limit, and does not say so.
    let dropped = || Ends { one: Status(400), two: Status(200), three: Broken };
    let bytes = |count: usize| {
        let mut message = Message::get();
        message.trailers.push(("x".into(), "v".repeat(count - 1 - 32)));
        message
    };
    let fields = |count: usize| {
        let mut message = Message::get();
        message.trailers.extend((0..count).map(|n| (format!("x-{n}"), "y".into())));
        message
    };
    for (most, number) in [(1024, 20), (32 * 1024, 99), (100_000, 100), (100_000, 101), (300_000, 1000)] {
        let edit = |config: &mut Config| {
            config.limits.max_header_bytes = u32::try_from(most).unwrap();
            config.limits.max_headers = u32::try_from(number).unwrap();
        };
        let rows = vec![
            ("bytes below", bytes(most - 1), SERVED),
            ("bytes at", bytes(most), SERVED),
            ("bytes above", bytes(most + 1), too_large()),
            ("bytes below twice", bytes(most * 2 - 1), too_large()),
            ("bytes at twice", bytes(most * 2), dropped()),
            // As many CONTINUATION frames as h2 accepts, or more.
            ("bytes far above", bytes(most * 3), if most > 64 * 1024 { closed() } else { dropped() }),
            ("bytes beyond eight times", bytes(most * 8 + 1), closed()),
            ("fields below", fields(number - 1), SERVED),
            ("fields at", fields(number), SERVED),
            ("fields above", fields(number + 1), too_large()),
        ];
        let rows = rows.into_iter().map(|(name, message, ends)| (format!("{name} {most} {number}"), message, ends));
        check(origin.address, edit, rows.collect()).await;
    }
}

#[tokio::test]
async fn a_message_beyond_a_limit_counts_once_over_each_protocol() {
    let origin = whole_server().await;
    let litequic = Litequic::start(origin.address, |config| {
        (config.limits.max_header_bytes, config.limits.max_headers) = (1024, 10);
    })
    .await;
    let trailers = |trailers: Vec<(String, String)>| Message { trailers, ..Message::get() };
    let many = Message::get().with_fields(11).fields;
    let long = |length: usize| vec![("x".to_owned(), "v".repeat(length))];
    let (mut bytes, mut fields) = (0, 0);
    for (name, message, is_bytes) in [
        ("a header's bytes", Message::get().of_bytes(1025), true),
        ("a header's fields", Message::get().with_fields(11), false),
        ("trailers' bytes", trailers(long(1000)), true),
        ("more of them than are read", trailers(long(1500)), true),
        ("trailers' fields", trailers(many), false),
    ] {
        message.ends(&litequic).await;
        if is_bytes {
            bytes += 3;
        } else {
            fields += 3;
        }
        let counts =
            |worker: &WorkerMetrics| (worker.shared.limit_header_bytes.get(), worker.shared.limit_headers.get());
        let sum = || (litequic.sum(|worker| counts(worker).0), litequic.sum(|worker| counts(worker).1));
        // HTTP/1.1 counts some when its connection ends.
        litequic.wait_until(name, |worker| counts(worker).0 + counts(worker).1, |count| count >= bytes + fields).await;
        assert_eq!(sum(), (bytes, fields), "{name}");
    }
    litequic.stop().await;
}

/// hyper parses them, as HTTP/1.1 whatever the client speaks.
#[tokio::test]
async fn a_response_may_have_64_kib_and_100_fields_over_each_protocol() {
    const MOST: usize = 64 * 1024;
    let bad = || Ends::all(Status(502));
    // Framing, so that the connection needs no other.
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{more}\r\n");
    let bytes = |count: usize| head(&format!("x: {}\r\n", "v".repeat(count - head("").len() - 5)));
    let fields = |count: usize| head(&(1..count).map(|n| format!("x-{n}: y\r\n")).collect::<String>());
    assert_eq!(bytes(MOST).len(), MOST);
    for (name, answer, ends) in [
        ("bytes below", bytes(MOST - 1), SERVED),
        ("bytes at", bytes(MOST), SERVED),
        ("bytes above", bytes(MOST + 1), bad()),
        ("fields below", fields(99), SERVED),
        ("fields at", fields(100), SERVED),
        ("fields above", fields(101), bad()),
    ] {
        let origin = Always::new(answer).await;
        check(origin.address, |_| {}, vec![(name, Message::get(), ends)]).await;
    }
}

/// Whether a response arrives whole over HTTP/1.1, HTTP/2 and HTTP/3.
async fn whole(litequic: &Litequic) -> [bool; 3] {
    let mut client = Tls::http1(litequic).await;
    client.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let (text, orderly) = client.rest().await;
    let one = orderly && text.ends_with("\r\n\r\n") && text.contains("\r\n0\r\n");
    let mut client = Http2::connect(litequic, &[]).await;
    client.say(http2::HEADERS, http2::END_HEADERS | END_STREAM, 1, &http2::get(&[])).await;
    let two = loop {
        match client.find(&[http2::HEADERS, http2::DATA, RST_STREAM, http2::GOAWAY]).await {
            Some(frame) if frame.kind == RST_STREAM || frame.kind == http2::GOAWAY => break false,
            Some(frame) if frame.flags & END_STREAM != 0 => break true,
            Some(_) => {}
            None => break false,
        }
    };
    let three = matches!(Raw::to(litequic).await.ask(&raw::get()).await, Outcome::Response(_));
    [one, two, three]
}

#[tokio::test]
async fn response_trailers_have_64_kib_and_100_fields_over_each_protocol() {
    const MOST: usize = 64 * 1024;
    let answer = |trailers: &str| {
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n")
    };
    // hyper counts the lines as they are sent, and the last two bytes.
    let bytes = |count: usize| format!("x: {}\r\n", "v".repeat(count - 5 - 2));
    let fields = |count: usize| (0..count).map(|n| format!("x-{n}: y\r\n")).collect::<String>();
    for (name, trailers, is_whole) in [
        ("bytes below", bytes(MOST - 1), true),
        ("bytes above", bytes(MOST + 1), false),
        ("fields at", fields(100), true),
        ("fields above", fields(101), false),
    ] {
        let (_origin, litequic) = Always::behind_litequic(answer(&trailers), |_| {}).await;
        assert_eq!(whole(&litequic).await, [is_whole; 3], "{name}");
        litequic.stop().await;
    }
}

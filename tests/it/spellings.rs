//! One path in many spellings: no client reaches by one of them what a route protects by a laxer route, whichever
//! protocol it speaks (`everywhere`) and whatever its origin decodes (`origins`: nginx and Python's WSGI server;
//! `table`: others by their documentation).

mod everywhere;
mod origins;
mod table;

use crate::support::prelude::*;
use std::collections::BTreeSet;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: String,
}

/// How a path gets to litequic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Http1,
    /// With the target in absolute form (RFC 9112 §3.2.2).
    Absolute,
    Http2,
    Http3,
}

impl Way {
    const ALL: [Self; 4] = [Self::Http1, Self::Absolute, Self::Http2, Self::Http3];

    /// GET of `path`, byte for byte, at `host`, each on a connection of its own.
    async fn ask(self, litequic: &Litequic, host: &str, path: &str) -> Answer {
        match self {
            Self::Http1 => http1(litequic, host, path).await,
            Self::Absolute => http1(litequic, host, &format!("https://{host}{path}")).await,
            Self::Http2 => http2(litequic, host, path).await,
            Self::Http3 => {
                let fields = [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path)];
                let response = Raw::to(litequic).await.ask(&raw::headers(&fields)).await.response();
                Answer { status: response.fields.status(), body: String::from_utf8(response.body).unwrap() }
            }
        }
    }
}

async fn http1(litequic: &Litequic, host: &str, target: &str) -> Answer {
    let mut tls = Tls::http1(litequic).await;
    tls.say(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
    let (whole, _) = tls.rest().await;
    let (head, body) = whole.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{target}: {whole}"));
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), body: body.to_owned() }
}

async fn http2(litequic: &Litequic, host: &str, path: &str) -> Answer {
    let mut connection = Http2::connect(litequic, &[]).await;
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path)];
    connection.say(http2::HEADERS, http2::END_STREAM | http2::END_HEADERS, 1, &http2::fields(&fields)).await;
    let head = connection.find(&[http2::HEADERS]).await.unwrap();
    let mut answer = Answer { status: http2::status(&head), body: String::new() };
    let mut ended = head.flags & http2::END_STREAM != 0;
    while !ended {
        let frame = connection.find(&[http2::DATA]).await.unwrap();
        answer.body += std::str::from_utf8(&frame.payload).unwrap();
        ended = frame.flags & http2::END_STREAM != 0;
    }
    answer
}

/// Spellings of `/LAST` or `/FIRST/LAST` and of what is below it, which some origin or other serves as that.
fn spellings(path: &str) -> Vec<String> {
    let (parent, last) = path.rsplit_once('/').unwrap();
    let first = last.as_bytes()[0];
    let digits = format!("{first:02x}");
    let (rest, upper) = (&last[1..], path.to_ascii_uppercase());
    let all = [
        format!("{parent}/%{first:02x}{rest}"),
        format!("{parent}/%{first:02X}{rest}/x"),
        format!("{parent}/%25{first:02x}{rest}"),
        format!("{parent}/%25%{:02x}%{:02x}{rest}", digits.as_bytes()[0], digits.as_bytes()[1]),
        format!("{parent}/%u00{first:02x}{rest}"),
        format!("{parent}//{last}"),
        format!("/{path}"),
        format!("//{path}/x"),
        format!("{parent}/;a=b/{last}"),
        format!("{parent};a=b/{last}"),
        format!("{path};a=b"),
        format!("{path};/x"),
        format!("{path}%3bx"),
        format!("{path}%2f"),
        format!("{path}%2Fx"),
        format!("{path}%252fx"),
        format!("{path}%5cx"),
        format!("{path}%255C"),
        format!("{parent}%2f{last}"),
        format!("{parent}%5c{last}"),
        format!("{parent}/%2f{last}"),
        format!("{path}%00"),
        format!("{path}%00.png"),
        format!("{path}%3fx"),
        format!("{path}%23x"),
        format!("{path}%253fx"),
        format!("{parent}//%{first:02x}{rest};x%2fy"),
        format!("{parent}/;x%2fy/%25{first:02x}{rest}%3bz"),
        format!("{upper}/x"),
    ];
    // What has no parent has fewer.
    let distinct: BTreeSet<_> = all.into_iter().filter(|spelling| spelling.starts_with('/')).collect();
    distinct.into_iter().collect()
}

#[test]
fn every_spelling_is_another() {
    for path in ["/admin", "/v1/login"] {
        let all = spellings(path);
        assert!(all.len() >= 20, "{all:#?}");
        assert!(all.iter().all(|spelling| spelling != path && !spelling.starts_with(&format!("{path}/"))), "{all:#?}");
    }
}

//! Trailers have no field that a rule or litequic itself sets in the header, by whichever protocol they come or go.

use super::{PROTOCOLS, Protocol, Request};
use crate::support::{prelude::*, proxy::unbuffered};
use http::HeaderName;
use litequic_config::{AmbiguousFields, HeaderRules, Template};

fn rules(name: &'static str) -> HeaderRules {
    let value = Template::parse_variables("litequic", &[]).unwrap();
    HeaderRules {
        remove: vec![HeaderName::from_static(name)],
        set: vec![(HeaderName::from_static("x-role"), value)],
        ..HeaderRules::default()
    }
}

#[tokio::test]
async fn request_trailers_lose_fields_of_rules_and_of_litequic() {
    let trailers = [
        "x-sum",
        "x-internal-user",
        "x_internal_user",
        "x-role",
        "x.role",
        "x-forwarded-for",
        "x_forwarded_for",
        "forwarded",
        "client-cert",
        "x-request-id",
        "x-real-ip",
        "proxy",
        "x_sum",
    ];
    // Two lines: the test's HPACK writes short strings alone.
    let (one, other) = trailers.split_at(6);
    let (one, other) = (one.join(", "), other.join(", "));
    for (ambiguous, kept) in [
        (AmbiguousFields::Drop, vec!["x-sum: 1"]),
        (AmbiguousFields::Reject, vec!["x-sum: 1"]),
        (AmbiguousFields::Pass, vec!["x-sum: 1", "x_sum: 1"]),
    ] {
        let (origin, litequic) = Script::behind_litequic(|config| {
            config.routes[0].request_headers = rules("x-internal-user");
            config.origins.get_mut(Config::ORIGIN_NAME).unwrap().ambiguous_fields = ambiguous;
        })
        .await;
        for protocol in PROTOCOLS {
            let fields = [("te", "trailers"), ("trailer", &*one), ("trailer", &*other)];
            // TE belongs to an HTTP/1.1 connection, as in Connection.
            let fields = if protocol == Protocol::Http1 { &fields[1..] } else { &fields };
            let request = Request::with_trailers("/", fields, &trailers.map(|name| (name, "1")));
            let body = request.body_at(&origin, &litequic, protocol).await;
            let (chunks, section) = body.split_once("0\r\n").unwrap();
            assert!(chunks.contains("abc"), "{body}");
            let mut found: Vec<_> = section.lines().filter(|line| !line.is_empty()).collect();
            found.sort_unstable();
            assert_eq!(found, kept, "{protocol:?}, {ambiguous:?}");
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn response_trailers_lose_fields_that_a_rule_removes_or_sets() {
    let origin = Always::new(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Debug, X-Role\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Debug: secret\r\nX-Role: origin\r\n\r\n",
    )
    .await;
    let litequic = Litequic::start(origin.address, |config| config.routes[0].response_headers = rules("x-debug")).await;
    let response = Raw::to(&litequic).await.ask(&raw::with("GET", &[("te", "trailers")])).await.response();
    assert_eq!(response.trailers.unwrap().0, [("x-sum".to_owned(), "1".to_owned())]);
    assert_eq!(response.fields.get("x-role"), Some("litequic"));

    let mut tls = Tls::http1(&litequic).await;
    tls.say("GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n").await;
    let (answer, _) = tls.rest().await;
    assert!(answer.contains("ok") && !answer.contains("secret") && !answer.contains("origin"), "{answer}");
    litequic.stop().await;
}

/// h2 lets both pass (RFC 9113 §8.2.1).
#[tokio::test]
async fn trailers_with_invalid_names_or_values_are_malformed() {
    for (name, value) in [("x\"y", "1"), ("x", " 1"), ("x", "1\t")] {
        for protocol in [Protocol::Http2, Protocol::Http3] {
            let (origin, litequic) = Script::behind_litequic(unbuffered).await;
            let request = Request::with_trailers("/", &[("trailer", "x")], &[(name, value)]);
            // Whatever came of the head.
            let answered = async { origin.accept().await.rest().await };
            let (answer, body) = tokio::join!(request.ask(&litequic, protocol), answered);
            let refused = answer.as_ref().is_none_or(|(status, _)| *status == 400);
            assert!(refused && !body.contains("\r\n0\r\n"), "{protocol:?}, {name}, {value:?}: {answer:?}, {body}");
            litequic.stop().await;
        }
    }
    // HTTP/1.1 cuts the blanks off.
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let request = Request::with_trailers("/", &[("trailer", "x")], &[("x", " 1 \t")]);
    let body = request.body_at(&origin, &litequic, Protocol::Http1).await;
    assert!(body.ends_with("0\r\nx: 1\r\n\r\n"), "{body}");
    litequic.stop().await;
}

//! litequic in front of nginx, unmodified, as a server that was not written for these tests.

use crate::support::{client::Answer, nginx::Nginx, prelude::*};
use futures_util::future::join_all;
use http::StatusCode;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Bytes that do not repeat where a buffer might be cut.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

async fn before(nginx: &Nginx) -> (Litequic, Client) {
    edited(nginx, |_| {}).await
}

async fn edited(nginx: &Nginx, edit: impl FnOnce(&mut Config)) -> (Litequic, Client) {
    let litequic = Litequic::start(nginx.address, edit).await;
    let client = Client::to(&litequic).await;
    (litequic, client)
}

/// GET with further fields.
async fn get(client: &Client, path: &str, fields: &[(&str, &str)]) -> Answer {
    let request = client.request(Method::GET, path);
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.fetch(request, Bytes::new()).await
}

/// The page is nginx's own, and so are the fields that no proxy may touch.
fn is_nginxs(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status);
    assert!(answer.field("server").unwrap().starts_with("nginx/"), "{answer:?}");
    assert!(answer.field("date").unwrap().ends_with(" GMT"), "{answer:?}");
    assert_eq!(answer.field("proxy-status"), None);
    assert_eq!((answer.field("connection"), answer.field("transfer-encoding")), (None, None));
}

#[tokio::test]
async fn files_of_every_size_arrive_whole() {
    let Some(nginx) = Nginx::start("") else { return };
    for size in [0, 1, 16_383, 16_384, 16_385, 10_000_000] {
        fs::write(nginx.file(&format!("/{size}")), bytes(size)).unwrap();
    }
    let (tcp, over_tcp) = before(&nginx).await;
    let socket = nginx.socket();
    let (unix, over_unix) = edited(&nginx, |config| {
        config.origins = config.origins.keys().map(|name| (name.clone(), OriginConfig::new(socket.clone()))).collect();
    })
    .await;
    for client in [&over_tcp, &over_unix] {
        for size in [0, 1, 16_383, 16_384, 16_385, 10_000_000] {
            let answer = client.get(&format!("/{size}")).await;
            is_nginxs(&answer, 200);
            assert_eq!(answer.field("content-length"), Some(size.to_string().as_str()));
            assert!(answer.field("etag").is_some() && answer.field("last-modified").is_some());
            assert_eq!(Sha256::digest(&answer.body), Sha256::digest(bytes(size)), "{size}");

            let head = client.fetch(client.request(Method::HEAD, &format!("/{size}")), Bytes::new()).await;
            is_nginxs(&head, 200);
            assert_eq!(head.field("content-length"), Some(size.to_string().as_str()));
            assert!(head.body.is_empty());
        }
    }
    tcp.stop().await;
    unix.stop().await;
}

#[tokio::test]
async fn ranges_and_conditions_are_between_the_client_and_nginx() {
    let Some(nginx) = Nginx::start("") else { return };
    fs::write(nginx.file("/file"), bytes(1000)).unwrap();
    let (litequic, client) = before(&nginx).await;

    let part = get(&client, "/file", &[("range", "bytes=10-19")]).await;
    is_nginxs(&part, 206);
    assert_eq!((part.field("content-range"), part.body.as_slice()), (Some("bytes 10-19/1000"), &bytes(1000)[10..20]));

    let beyond = get(&client, "/file", &[("range", "bytes=1000-")]).await;
    is_nginxs(&beyond, 416);
    assert_eq!(beyond.field("content-range"), Some("bytes */1000"));

    let parts = get(&client, "/file", &[("range", "bytes=0-0,-1")]).await;
    is_nginxs(&parts, 206);
    assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="), "{parts:?}");
    assert_eq!(parts.field("content-length"), Some(parts.body.len().to_string().as_str()));

    let etag = client.get("/file").await.field("etag").unwrap().to_owned();
    let same = get(&client, "/file", &[("if-none-match", &etag)]).await;
    is_nginxs(&same, 304);
    assert_eq!((same.field("etag"), same.body.len()), (Some(etag.as_str()), 0));
    assert_eq!(get(&client, "/file", &[("if-match", "\"other\"")]).await.status, 412);
    // Whatever had no body left the connection clean.
    let connections: BTreeSet<_> = nginx.seen(6).iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn what_nginx_compresses_stays_compressed() {
    let Some(nginx) = Nginx::start("gzip on; gzip_types text/plain; gzip_min_length 1;") else { return };
    let text = "all work and no play ".repeat(10_000);
    fs::write(nginx.file("/a.txt"), &text).unwrap();
    let (litequic, client) = before(&nginx).await;

    let plain = client.get("/a.txt").await;
    is_nginxs(&plain, 200);
    assert_eq!((plain.field("content-encoding"), plain.text() == text), (None, true));

    let packed = get(&client, "/a.txt", &[("accept-encoding", "gzip")]).await;
    is_nginxs(&packed, 200);
    assert_eq!(packed.field("content-encoding"), Some("gzip"));
    // nginx has no length when it begins, and uses chunks. litequic has the length if all of them are there at once.
    let length = packed.body.len().to_string();
    assert!(packed.field("content-length").is_none_or(|field| field == length));
    assert!(packed.body.starts_with(&[0x1f, 0x8b]) && packed.body.len() < text.len() / 10);
    // RFC 1952 §2.3.1: what it was ends with how long it was.
    assert!(packed.body.ends_with(&u32::try_from(text.len()).unwrap().to_le_bytes()));
    litequic.stop().await;
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_whole() {
    let Some(nginx) = Nginx::start("gzip on; gzip_types text/plain; gzip_min_length 1; chunked_transfer_encoding off;")
    else {
        return;
    };
    let text = "all work and no play ".repeat(10_000);
    fs::write(nginx.file("/a.txt"), &text).unwrap();
    let (litequic, client) = before(&nginx).await;
    for _ in 0..5 {
        let packed = get(&client, "/a.txt", &[("accept-encoding", "gzip")]).await;
        is_nginxs(&packed, 200);
        assert!(packed.body.ends_with(&u32::try_from(text.len()).unwrap().to_le_bytes()));
    }
    let connections: BTreeSet<_> = nginx.seen(5).iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 5);
    litequic.stop().await;
}

#[tokio::test]
async fn redirects_and_error_pages_are_nginxs() {
    let Some(nginx) = Nginx::start(
        "location /moved { return 302 https://elsewhere.test/x?y=%20z; }\n\
         location /near { absolute_redirect off; return 301 /there; }\n\
         location /forbidden { deny all; }",
    ) else {
        return;
    };
    fs::write(nginx.file("/file"), bytes(10)).unwrap();
    let (litequic, client) = before(&nginx).await;
    for (path, status, location) in [
        ("/moved", 302, Some("https://elsewhere.test/x?y=%20z")),
        ("/near", 301, Some("/there")),
        ("/forbidden", 403, None),
        ("/nothing", 404, None),
    ] {
        let answer = client.get(path).await;
        is_nginxs(&answer, status);
        assert_eq!(answer.field("location"), location);
        assert!(answer.text().contains("<center>nginx/"), "{answer:?}");
    }
    let refused = client.post("/file", "body").await;
    is_nginxs(&refused, 405);
    assert!(refused.text().contains("<center>nginx/"), "{refused:?}");
    litequic.stop().await;
}

#[tokio::test]
async fn uploads_are_stored_as_they_were_sent() {
    let Some(nginx) = Nginx::start("dav_methods PUT DELETE; client_max_body_size 0;") else { return };
    let (litequic, client) = before(&nginx).await;
    for (number, size) in [0, 1, 16_384, 5_000_000].into_iter().enumerate() {
        for with_length in [true, false] {
            let path = format!("/stored-{number}-{with_length}");
            let mut request = client.request(Method::PUT, &path);
            if with_length {
                request = request.header("content-length", size);
            }
            let answer = client.fetch(request, bytes(size)).await;
            is_nginxs(&answer, 201);
            assert!(fs::read(nginx.file(&path)).unwrap() == bytes(size), "{path}");
            let gone = client.fetch(client.request(Method::DELETE, &path), Bytes::new()).await;
            is_nginxs(&gone, 204);
            assert!(!nginx.file(&path).exists());
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn nginx_may_refuse_an_upload_while_it_is_sent() {
    let Some(nginx) = Nginx::start("dav_methods PUT; client_max_body_size 100k;") else { return };
    let (litequic, client) = edited(&nginx, |config| config.limits.max_lingering_bytes = 1_000_000).await;
    for with_length in [true, false] {
        let mut request = client.request(Method::PUT, "/large");
        if with_length {
            request = request.header("content-length", 50_000_000);
        }
        let mut stream = client.open(request).await;
        for piece in 0.. {
            // STOP_SENDING: there is an answer already.
            if within("room for a piece", stream.send_data(Bytes::from(bytes(100_000)))).await.is_err() {
                break;
            }
            assert!(piece < 500, "the upload was not stopped");
        }
        let answer = client::answer(&mut stream).await;
        is_nginxs(&answer, 413);
        assert!(answer.text().contains("<center>nginx/"), "{answer:?}");
    }
    is_nginxs(&client.get("/nothing").await, 404);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn many_requests_share_few_connections() {
    let Some(nginx) = Nginx::start("location / { return 200 ok; }") else { return };
    let (litequic, client) = before(&nginx).await;
    for _ in 0..100 {
        assert_eq!(client.get("/one-by-one").await.text(), "ok");
    }
    let connections: BTreeSet<_> = nginx.seen(100).iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 1);
    for _ in 0..10 {
        for answer in join_all((0..20).map(|_| client.get("/twenty"))).await {
            assert_eq!(answer.text(), "ok");
        }
    }
    let connections: BTreeSet<_> = nginx.seen(300).iter().map(|seen| seen.connection).collect();
    assert!(connections.len() <= 20, "{}", connections.len());
    litequic.stop().await;
}

#[tokio::test]
async fn a_connection_that_nginx_has_had_enough_of_harms_no_request() {
    let Some(nginx) = Nginx::start("keepalive_requests 3; location / { return 200 ok; }") else { return };
    let (litequic, client) = before(&nginx).await;
    for at in 0..30 {
        let answers = join_all((0..10).map(|_| client.post("/", "x"))).await;
        assert!(answers.iter().all(|answer| answer.text() == "ok"), "round {at}: {answers:?}");
    }
    assert_eq!(nginx.seen(300).len(), 300);
    litequic.stop().await;
}

#[tokio::test]
async fn a_request_on_a_closing_connection_is_retried_if_safe() {
    const TIMES: u32 = 60;
    let Some(nginx) = Nginx::start("keepalive_timeout 20ms; location / { return 200 ok; }") else { return };
    let (litequic, client) = before(&nginx).await;
    let mut answered = Vec::new();
    for at in 0..TIMES {
        // Sweeps over the moment at which nginx closes.
        let pause = Duration::from_micros(19_000 + u64::from(at) * 50);
        sleep(pause).await;
        assert_eq!(client.get(&format!("/get/{at}")).await.text(), "ok", "GET {at}");
        sleep(pause).await;
        let posted = client.post(&format!("/post/{at}"), "x").await;
        assert!(posted.status == 200 || posted.status == StatusCode::BAD_GATEWAY, "POST {at}: {posted:?}");
        answered.push((format!("/post/{at}"), posted.status == 200));
    }
    let seen = nginx.seen(usize::try_from(TIMES).unwrap() + answered.iter().filter(|(_, answered)| *answered).count());
    for (target, answered) in answered {
        let times = seen.iter().filter(|seen| seen.method == "POST" && seen.target == target).count();
        assert_eq!(times, usize::from(answered), "{target}");
    }
    let connections: BTreeSet<_> = seen.iter().map(|seen| seen.connection).collect();
    assert!(connections.len() > 10, "nginx closed only {} connections: nothing was tested", connections.len());
    litequic.stop().await;
}

#[tokio::test]
async fn an_nginx_that_is_gone_is_a_502_until_it_is_back() {
    let Some(mut nginx) = Nginx::start("location / { return 200 ok; }") else { return };
    let (litequic, client) = before(&nginx).await;
    assert_eq!(client.get("/").await.text(), "ok");
    nginx.stop();
    for _ in 0..3 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
        assert!(answer.field("proxy-status").unwrap().starts_with("litequic; error="), "{answer:?}");
        assert!(!answer.text().contains(&nginx.address.to_string()), "{answer:?}");
    }
    nginx.start_again();
    assert_eq!(client.get("/").await.text(), "ok");
    litequic.stop().await;
}

#[tokio::test]
async fn large_fields_pass_and_too_large_ones_are_nginxs_to_refuse() {
    let Some(nginx) = Nginx::start("large_client_header_buffers 4 10k; location / { return 200 $http_x_long; }") else {
        return;
    };
    let (litequic, client) = before(&nginx).await;
    let long = "x".repeat(8192);
    assert_eq!(get(&client, "/", &[("x-long", &long)]).await.text(), long);
    let too_long = "x".repeat(12_000);
    let refused = get(&client, "/", &[("x-long", &too_long)]).await;
    is_nginxs(&refused, 400);
    assert!(refused.text().contains("Request Header Or Cookie Too Large"), "{refused:?}");
    let refused = get(&client, &format!("/{too_long}"), &[]).await;
    is_nginxs(&refused, 414);
    assert_eq!(get(&client, "/", &[("x-long", "short")]).await.text(), "short");
    litequic.stop().await;
}

#[tokio::test]
async fn nginx_hears_who_asks_from_litequic_alone() {
    let Some(nginx) = Nginx::start(
        "underscores_in_headers on;\nlocation / { return 200 \
         \"$http_x_forwarded_for|$http_x_forwarded_proto|$http_x_forwarded_host|$http_forwarded|$http_host|$host|\
         $server_protocol|$http_x_real_ip|$http_te|$http_connection|$http_via|$content_length\"; }",
    ) else {
        return;
    };
    let (litequic, client) = before(&nginx).await;
    let forged = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x-forwarded_for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "evil.test"),
        ("x-real-ip", "6.6.6.6"),
        ("x_real_ip", "6.6.6.6"),
        ("te", "trailers"),
    ];
    let answer = get(&client, "/", &forged).await;
    let port = litequic.address.port();
    assert_eq!(
        answer.text(),
        format!(
            "127.0.0.1|https|localhost:{port}|for=127.0.0.1;host=\"localhost:{port}\";proto=https|localhost:{port}|\
             localhost|HTTP/1.1||trailers|TE||"
        )
    );
    litequic.stop().await;
}

#[tokio::test]
async fn nginx_gets_the_target_byte_for_byte() {
    let Some(nginx) = Nginx::start("merge_slashes off; location / { return 200 $request_uri; }") else { return };
    let (litequic, client) = before(&nginx).await;
    for target in [
        "/",
        "/?",
        "/a%2Fb%2f/c",
        "/%E2%82%AC/%e2%82%ac",
        "/a//b///",
        "/a;b=c,d@e:f!$&'()*+~_-.",
        "/a?b=c&d=%26&e=/../?f",
        "/a?%00%0a%0d",
        "/a...b/.c/..d",
        "/a%20b+c?d+e%20f",
    ] {
        assert_eq!(client.get(target).await.text(), target);
    }
    litequic.stop().await;
}

#[tokio::test]
async fn an_oversized_response_header_gets_502_and_harms_no_other_request() {
    let many: String = (0..1000).map(|at| format!("add_header x-{at} y;\n")).collect();
    let some: String = (0..80).map(|at| format!("add_header x-{at} y;\n")).collect();
    let Some(nginx) = Nginx::start(&format!(
        "location /many {{ {many} return 200 ok; }}\nlocation /some {{ {some} return 200 ok; }}\n"
    )) else {
        return;
    };
    let (litequic, client) = before(&nginx).await;
    for _ in 0..3 {
        let (many, some) = tokio::join!(client.get("/many"), client.get("/some"));
        assert_eq!(many.status, StatusCode::BAD_GATEWAY);
        assert!(many.field("proxy-status").unwrap().contains("error=http_response_header_section_size"), "{many:?}");
        assert_eq!(
            (some.text(), some.fields.keys().filter(|name| name.as_str().starts_with("x-")).count()),
            ("ok", 80)
        );
    }
    litequic.stop().await;
}

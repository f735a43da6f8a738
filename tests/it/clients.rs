//! Who is connected, as the operator sees it, and what the operator does about it: the list of connections, and their
//! end.

mod denial;

use crate::{drain::ask, support::prelude::*};
use serde_json::Value as Json;
use std::num::NonZeroU16;
use tokio::{net::TcpSocket, time::Instant};

/// RFC 9114 §8.1.
const NO_ERROR: u64 = 0x100;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A body that takes longer than any of the tests.
const LONG: &str = "/drip/1000/60";
/// A body of which drops come for half a second.
const SHORT: &str = "/drip/10/50";
/// The environment variable for the number of connections in a long list.
const CLIENTS: &str = "LITEQUIC_TEST_LISTED";
/// Without it: more than a worker looks at in one turn.
const FEW: usize = 2_400;

/// An admin address, TCP beside QUIC, and two workers.
pub(crate) fn edit(config: &mut Config) {
    config.admin.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    config.listen.tcp = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    config.listen.workers = Some(NonZeroU16::new(2).unwrap());
}

async fn start() -> Litequic {
    Litequic::demo(edit).await
}

/// `GET /clients` with `query`.
async fn clients(litequic: &Litequic, query: &str) -> Json {
    let (status, body) = ask(litequic.admin.unwrap(), &format!("GET /clients{query}")).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The list, once `condition` holds of it.
async fn clients_once(litequic: &Litequic, query: &str, condition: impl Fn(&Json) -> bool) -> Json {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let list = clients(litequic, query).await;
        if condition(&list) {
            return list;
        }
        assert!(Instant::now() < deadline, "{list:#}");
        sleep(LOOK_AGAIN).await;
    }
}

/// `POST /close` with `query`.
async fn close(litequic: &Litequic, query: &str) -> (u16, String) {
    ask(litequic.admin.unwrap(), &format!("POST /close?{query}")).await
}

/// `litequic ctl WHAT`, with `more`.
async fn ctl(litequic: &Litequic, more: &[&str]) -> Ended {
    let admin = litequic.admin.unwrap().to_string();
    let mut command = command([&["ctl"], more, &["--admin", &admin]].concat());
    command.env_remove("LITEQUIC_ADMIN_TOKEN").env_remove("LITEQUIC_ADMIN_TOKEN_FILE");
    spawn_blocking(|| Process::spawn(command).end()).await.unwrap()
}

fn rows(list: &Json) -> &Vec<Json> {
    list["clients"].as_array().unwrap()
}

fn protocols(list: &Json) -> Vec<&str> {
    rows(list).iter().map(|row| row["protocol"].as_str().unwrap()).collect()
}

async fn dial(local: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((local, 0).into()).unwrap();
    within("a connection", socket.connect(to)).await.unwrap()
}

async fn http1(local: Ipv4Addr, litequic: &Litequic) -> Tls {
    let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
    Tls::over(dial(local, litequic.tcp[0]).await, "localhost", config).await.unwrap()
}

async fn http2(local: Ipv4Addr, litequic: &Litequic) -> Http2 {
    let config = tls::config(&litequic.cert_pem, &["h2"]);
    Http2::over(Tls::over(dial(local, litequic.tcp[0]).await, "localhost", config).await.unwrap(), &[]).await
}

fn get(path: &str) -> Vec<u8> {
    http2::fields(&http2::pseudo("GET", path))
}

#[tokio::test]
async fn the_list_has_client_protocol_and_state_of_every_connection() {
    let litequic = start().await;
    let client = Client::over(Quic::at(OTHER, &litequic).await.unwrap(), "localhost").await;
    let mut stream = client.begin_get(LONG).await;
    client::header(&mut stream).await;
    let mut over_http1 = http1(Ipv4Addr::LOCALHOST, &litequic).await;
    over_http1.say("GET /bytes/300000 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    over_http1.head().await;
    over_http1.exactly(300_000).await;
    let _over_http2 = http2(Ipv4Addr::LOCALHOST, &litequic).await;
    let _handshake = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    litequic.wait_until("TCP", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 3).await;
    litequic.wait_until("HTTP/2", |worker| worker.tcp.tcp_connections_h2.get(), |open| open == 1).await;

    let list = clients(&litequic, "?sort=sent").await;
    assert_eq!(protocols(&list), ["HTTP/1.1", "HTTP/3", "HTTP/2"], "{list:#}");
    for (sum, count) in [("connections", 3), ("selected", 3), ("handshakes", 1), ("older_processes", 0)] {
        assert_eq!(list[sum], count, "{sum}");
    }
    let [http1, http3, http2] = [0, 1, 2].map(|row| &rows(&list)[row]);
    let local = client.quic.endpoint.local_addr().unwrap().port();
    assert_eq!(http3["client"], format!("{OTHER}:{local}"));
    assert_eq!(http3["local"], litequic.address.to_string());
    assert_eq!((&http3["open"], &http3["requests"], &http3["idle"]), (&1.into(), &1.into(), &Json::Null));
    assert_eq!((&http1["open"], &http1["requests"]), (&0.into(), &1.into()));
    assert!(http1["sent"].as_u64() > Some(300_000) && http1["received"].as_u64() > Some(20), "{http1}");
    assert!(http1["idle"].as_f64().is_some(), "{http1}");
    for row in [http1, http2, http3] {
        assert!(row["tls"] == "1.3" && row["group"].as_str().unwrap().to_lowercase().starts_with("x25519"), "{row}");
        assert_eq!((&row["server_name"], &row["resumed"]), (&"localhost".into(), &false.into()), "{row}");
        assert!(row["held"].as_u64() >= Some(28 * 1024), "{row}");
        assert!(row["rtt"].as_f64() > Some(0.0) && row["congestion_window"].as_u64() > Some(0), "{row}");
    }
    assert!(http3["loss"].as_f64().is_some() && http3["packets_per_ack"].as_f64() > Some(0.0), "{http3}");
    assert_eq!((&http2["loss"], &http2["packets_per_ack"]), (&Json::Null, &Json::Null));

    for (query, expected) in [
        ("?client=127.0.0.2", vec!["HTTP/3"]),
        ("?client=127.0.0.0/31&protocol=h2", vec!["HTTP/2"]),
        ("?client=::ffff:127.0.0.2", vec!["HTTP/3"]),
        ("?client=::/0", vec![]),
        ("?sort=open&limit=1", vec!["HTTP/3"]),
        ("?sort=since&limit=2", vec!["HTTP/3", "HTTP/1.1"]),
        (&format!("?client={}", http2["client"].as_str().unwrap()), vec!["HTTP/2"]),
        (&format!("?client={}", http1["id"].as_str().unwrap()), vec!["HTTP/1.1"]),
    ] {
        let list = clients(&litequic, query).await;
        assert_eq!(protocols(&list), expected, "{query}: {list:#}");
        assert_eq!(list["connections"], 3);
    }
    assert_eq!(ask(litequic.admin.unwrap(), "GET /clients?sort=x").await.0, 400);

    let table = ctl(&litequic, &["clients", "--sort", "sent"]).await.success();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("CLIENT ") && lines[0].ends_with("PACKETS/ACK"), "{table}");
    assert!(lines[1].contains(" HTTP/1.1 ") && lines[2].starts_with(&format!("{OTHER}:{local} ")), "{table}");
    assert_eq!(lines[4], "3 of 3 connections (1 in a handshake)");
    assert_eq!(ctl(&litequic, &["status", "--sort", "sent"]).await.code, Some(64));
    litequic.stop().await;
}

#[tokio::test]
async fn a_busy_connection_has_a_rate_and_comes_first() {
    let litequic = start().await;
    let (busy, _idle) = (Client::to(&litequic).await, Client::to(&litequic).await);
    let mut stream = busy.begin_get("/bytes/4000000000").await;
    client::header(&mut stream).await;
    let reading = async {
        while stream.recv_data().await.unwrap().is_some() {}
        panic!("it has 4 GB");
    };
    let listed = async {
        let list = clients(&litequic, "").await;
        let rates: Vec<u64> = rows(&list).iter().map(|row| row["sent_rate"].as_u64().unwrap()).collect();
        assert!(rates.len() == 2 && rates[0] > 100_000 && rates[1] < 1_000, "{list:#}");
        let port = busy.quic.endpoint.local_addr().unwrap().port();
        assert_eq!(rows(&list)[0]["client"], format!("127.0.0.1:{port}"));
    };
    tokio::select! {
        () = listed => {}
        () = reading => {}
    }
    litequic.stop().await;
}

/// A client that migrated is listed where it is now, and one behind a balancer where the PROXY header says.
#[tokio::test]
async fn clients_are_listed_by_current_address_and_by_proxy_header() {
    let litequic = Litequic::demo(|config| {
        edit(config);
        config.listen.proxy_protocol_from = vec![Network { address: OTHER.into(), prefix: 32 }];
    })
    .await;
    let client = Client::to(&litequic).await;
    client.get("/status/204").await;
    client.quic.change_port();
    client.get("/status/204").await;
    let moved = client.quic.endpoint.local_addr().unwrap();
    clients_once(&litequic, "", |list| rows(list).iter().any(|row| row["client"] == moved.to_string())).await;
    let mut stream = dial(OTHER, litequic.tcp[0]).await;
    stream.write_all(b"PROXY TCP6 2001:db8::7 2001:db8::1 5555 443\r\n").await.unwrap();
    let _named = Tls::over(stream, "localhost", tls::config(&litequic.cert_pem, &["http/1.1"])).await.unwrap();
    let list = clients_once(&litequic, "?client=2001:db8::/32", |list| rows(list).len() == 1).await;
    assert_eq!(rows(&list)[0]["client"], "[2001:db8::7]:5555");
    assert_eq!(
        close(&litequic, "client=2001:db8::7").await.1,
        "1 connection of 2001:db8::7 ends once its requests have ended\n"
    );
    litequic.stop().await;
}

/// The connections are of one network, one of them is elsewhere, and closing lets requests finish.
#[tokio::test]
async fn ctl_close_ends_connections_by_goaway_after_their_requests() {
    let litequic = start().await;
    let other = Client::over(Quic::at(OTHER, &litequic).await.unwrap(), "localhost").await;
    let client = Client::to(&litequic).await;
    let idle = Client::to(&litequic).await;
    let mut stream = client.begin_get(SHORT).await;
    client::header(&mut stream).await;
    let mut over_http1 = http1(Ipv4Addr::LOCALHOST, &litequic).await;
    over_http1.say(format!("GET {SHORT} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
    over_http1.head().await;
    let mut over_http2 = http2(Ipv4Addr::LOCALHOST, &litequic).await;
    over_http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &get(SHORT)).await;
    over_http2.find(&[http2::HEADERS]).await.unwrap();
    let mut handshake = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    litequic.wait_until("TCP", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 3).await;

    let closed = ctl(&litequic, &["close", "127.0.0.1"]).await.answer();
    assert_eq!(closed, "5 connections of 127.0.0.1 end once their requests have ended\n");
    assert_eq!(within("the idle one's end", idle.quic.closed()).await, NO_ERROR);
    assert!(client::body(&mut stream).await.ends_with(b"drop 9\n"));
    assert_eq!(within("the end behind the last request", client.quic.closed()).await, NO_ERROR);
    let goaway = over_http2.find(&[http2::GOAWAY]).await.unwrap();
    assert_eq!(goaway.code(), 0);
    let (rest, _) = over_http1.rest().await;
    assert!(rest.contains("drop 9\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
    while over_http2.next().await.is_some() {}
    let mut byte = [0];
    let handshake = AsyncReadExt::read(&mut handshake, &mut byte);
    assert!(matches!(within("the handshake's end", handshake).await, Ok(0) | Err(_)));
    let list = clients_once(&litequic, "", |list| list["connections"] == 1).await;
    assert!(rows(&list)[0]["client"].as_str().unwrap().starts_with("127.0.0.2:"), "{list:#}");
    assert_eq!(other.get("/status/204").await.status, 204);

    let again = close(&litequic, "client=127.0.0.1").await;
    assert_eq!(again, (200, "no connection of 127.0.0.1 is open\n".into()));
    assert_eq!(litequic.sum(|worker| worker.http3.closed_by_operator.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_operator.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_handshakes_operator.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.shared.streams_reset_by_proxy.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn closing_at_once_ends_requests_too() {
    let litequic = start().await;
    let client = Client::to(&litequic).await;
    let mut stream = client.begin_get(LONG).await;
    client::header(&mut stream).await;
    let upload = Client::to(&litequic).await;
    let mut sending = upload.open(upload.request(Method::POST, "/echo")).await;
    sending.send_data("half of it".into()).await.unwrap();
    let mut over_http1 = http1(Ipv4Addr::LOCALHOST, &litequic).await;
    over_http1.say(format!("GET {LONG} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
    over_http1.head().await;
    let mut over_http2 = http2(Ipv4Addr::LOCALHOST, &litequic).await;
    over_http2.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, 1, &get(LONG)).await;
    over_http2.find(&[http2::HEADERS]).await.unwrap();
    litequic.wait_until("requests", |worker| worker.shared.requests_open.get(), |open| open == 4).await;

    assert_eq!(close(&litequic, "client=127.0.0.0/8&now=on").await.0, 400, "a wide network");
    assert_eq!(ctl(&litequic, &["close", "127.0.0.0/8", "--now"]).await.code, Some(64));
    // One at first, by its name.
    let list = clients(&litequic, "?protocol=h1").await;
    let name = rows(&list)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(close(&litequic, &format!("client={name}&now=on")).await.1, format!("closed 1 connection of {name}\n"));
    let (rest, is_complete) = over_http1.rest().await;
    assert!(!rest.ends_with("0\r\n\r\n") && !is_complete, "{rest}");
    let closed = ctl(&litequic, &["close", "127.0.0.0/8", "--all", "--now"]).await.answer();
    assert_eq!(closed, "closed 3 connections of 127.0.0.0/8\n");
    assert_eq!(within("the end of a download", client.quic.closed()).await, NO_ERROR);
    assert_eq!(within("the end of an upload", upload.quic.closed()).await, NO_ERROR);
    assert_eq!(over_http2.find(&[http2::GOAWAY]).await.unwrap().code(), 0);
    while over_http2.next().await.is_some() {}
    litequic.wait_until_idle().await;
    assert_eq!(litequic.sum(|worker| worker.http3.closed_by_operator.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_operator.get()), 2);
    litequic.stop().await;
}

/// More than a worker looks at in one turn, over QUIC and TCP: none is missing, none is listed twice, and the first are
/// those with most requests.
#[tokio::test]
async fn a_long_list_is_right_in_number_and_order() {
    let count = env::var(CLIENTS).map_or(FEW, |clients| clients.parse().expect(CLIENTS));
    let litequic = Litequic::demo(|config| {
        edit(config);
        config.listen.redirect = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        config.limits.max_connections = u32::try_from(2 * count).unwrap();
    })
    .await;
    let mut over_quic = Vec::new();
    for nth in 0..20_u64 {
        let client = Client::to(&litequic).await;
        for _ in 0..nth / 2 {
            let mut stream = client.begin_get(LONG).await;
            client::header(&mut stream).await;
            over_quic.push((None, Some(stream)));
        }
        over_quic.push((Some(client), None));
    }
    let mut over_tcp = Vec::new();
    while over_tcp.len() < count {
        over_tcp.push(dial(Ipv4Addr::new(127, 0, 1, 1), litequic.redirects[0]).await);
    }
    let plain = u64::try_from(count).unwrap();
    litequic.wait_until("plain", |worker| worker.tcp.tcp_connections_plain.get(), |open| open == plain).await;
    for (query, selected) in [("?sort=open&limit=1000", plain + 20), ("?client=127.0.1.0/24&limit=1000", plain)] {
        let list = clients(&litequic, query).await;
        assert_eq!((&list["connections"], &list["selected"]), (&(plain + 20).into(), &selected.into()));
        let mut names: Vec<&str> = rows(&list).iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 1_000.min(usize::try_from(selected).unwrap()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1_000.min(usize::try_from(selected).unwrap()), "one is listed twice");
    }
    let list = clients(&litequic, "?sort=open").await;
    let open: Vec<u64> = rows(&list).iter().map(|row| row["open"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (0..20).rev().map(|nth| nth / 2).chain([0; 30]).collect();
    assert_eq!(open, expected);
    assert_eq!(
        close(&litequic, "client=127.0.1.1").await.1,
        format!("{count} connections of 127.0.1.1 end once their requests have ended\n")
    );
    litequic.wait_until("closed", |worker| worker.tcp.tcp_closed_operator.get(), |closed| closed == plain).await;
    litequic.stop().await;
}

//! Each timeout works: its client is answered as documented, it is counted, and another client is served all the
//! while.

use crate::support::{
    bystander::{SHORT, beside_a_bystander, counts},
    prelude::*,
    process::litequic,
};
use litequic_http3::ErrorCode;
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

#[tokio::test]
async fn timeouts_of_a_client_s_request_are_408() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.timeouts.request_header, config.timeouts.request_body) = (SHORT, SHORT);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let mut slow = client.open(&raw::get()[..5]).await;
        assert_eq!(slow.outcome().await.status(), 408);
        counts(litequic, "timeout_request_header", |worker| worker.shared.timeout_request_header.get(), 1).await;
        let mut slow = client.open(&[raw::with("POST", &[]), raw::data("abc")].concat()).await;
        assert_eq!(slow.outcome().await.status(), 408);
        counts(litequic, "timeout_request_body", |worker| worker.shared.timeout_request_body.get(), 1).await;
        let mut endless = client.open(&raw::with("POST", &[("content-length", "0")])).await;
        assert_eq!(endless.outcome().await.status(), 408);
        counts(litequic, "timeout_request_body", |worker| worker.shared.timeout_request_body.get(), 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_in_time_is_reset() {
    let demo = origin::demo().await;
    let edit = |config: &mut Config| config.timeouts.send = SHORT;
    beside_a_bystander(demo, edit, async |litequic, _| {
        let client = Raw::with_window(litequic, 16 * 1024).await;
        let mut exchange = client.open(&raw::request("GET", "/bytes/1G")).await;
        counts(litequic, "timeout_send", |worker| worker.shared.timeout_send.get(), 1).await;
        assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::RequestCancelled.wire_value()));
    })
    .await;
}

#[tokio::test]
async fn a_client_that_never_acknowledges_the_end_is_dropped_soon() {
    let script = Script::new().await;
    let edit = |config: &mut Config| config.timeouts.send = SHORT;
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let (_exchange, mut peer) = client.asked_at(&script).await;
        client.quic.vanish();
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        // A first train is leased: the smallest wait there is, well before the idle timeout's 30 seconds.
        counts(litequic, "timeout_send", |worker| worker.shared.timeout_send.get(), 1).await;
    })
    .await;
}

/// A client keeps its connection open while a response is outstanding, not the server (RFC 9114 §5.1).
#[tokio::test]
async fn litequic_get_waits_for_a_response_beyond_the_idle_timeout() {
    let (script, server) = Script::behind_litequic(|config| config.timeouts.idle = Duration::from_secs(1)).await;
    let url = format!("https://{}/", server.address);
    let get = spawn_blocking(move || litequic(["get", "--insecure", &url]));
    let mut peer = script.accept_request().await;
    // A connection that is quiet from now on ends first: that much time has passed.
    let quiet = Quic::to(&server).await;
    let closed = within("the idle timeout", quiet.connection.closed()).await;
    assert!(matches!(closed, quinn::ConnectionError::TimedOut), "{closed}");
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").await;
    let ended = get.await.unwrap();
    assert!(ended.stdout.ends_with("\n\nlate"), "{ended:?}");
    server.stop().await;
}

/// A listener whose queue is full, so that no connection succeeds.
fn deaf() -> (Socket, Vec<Socket>, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Those beyond the queue wait for ever.
        let _ = socket.connect(&address);
        socket
    });
    (listener, fill.collect(), address.as_socket().unwrap())
}

#[tokio::test]
async fn an_origin_that_does_not_accept_in_time_is_a_502() {
    let (listener, fill, address) = deaf();
    let edit = |config: &mut Config| config.timeouts.connect = SHORT;
    beside_a_bystander(address, edit, async |litequic, _| {
        let response = Raw::to(litequic).await.ask(&raw::get()).await.response();
        assert_eq!(response.fields.status(), 502);
        assert!(response.fields.get("proxy-status").unwrap().contains("connection_timeout"));
        counts(litequic, "timeout_connect", |worker| worker.proxy.timeout_connect.get(), 1).await;
    })
    .await;
    drop((listener, fill));
}

#[tokio::test]
async fn a_slow_origin_gets_504_before_and_a_reset_after_the_header() {
    let script = Script::new().await;
    let edit = |config: &mut Config| (config.timeouts.response_header, config.timeouts.response_body) = (SHORT, SHORT);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        assert_eq!(exchange.outcome().await.status(), 504);
        assert_eq!(peer.rest().await, "");
        counts(litequic, "timeout_response_header", |worker| worker.proxy.timeout_response_header.get(), 1).await;
        let (mut exchange, mut peer) = client.asked_at(&script).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        assert_eq!(exchange.outcome().await, Outcome::Reset(ErrorCode::InternalError.wire_value()));
        assert_eq!(peer.rest().await, "");
        counts(litequic, "timeout_response_body", |worker| worker.proxy.timeout_response_body.get(), 1).await;
    })
    .await;
}

#[tokio::test]
async fn an_exchange_timeout_gets_504_before_and_a_reset_after_the_header() {
    let script = Script::new().await;
    let limit = Duration::from_secs(1); // the bystander's exchanges have it, too
    let edit = |config: &mut Config| config.timeouts.request = Some(limit);
    beside_a_bystander(script.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        let (mut hanging, mut dripping) = (client.open(&raw::get()).await, client.open(&raw::get()).await);
        hanging.finish();
        dripping.finish();
        let (mut first, mut second) = (script.accept().await, script.accept().await);
        let is_first = first.head().await;
        second.head().await;
        drop(is_first);
        // Which of the two came first does not matter: one is answered in part, the other not at all.
        first.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        let outcomes = [hanging.outcome().await, dripping.outcome().await];
        assert!(outcomes.contains(&Outcome::Reset(ErrorCode::InternalError.wire_value())), "{outcomes:?}");
        assert!(
            outcomes.iter().any(|outcome| matches!(outcome, Outcome::Response(it) if it.fields.status() == 504)),
            "{outcomes:?}"
        );
        counts(litequic, "timeout_request", |worker| worker.proxy.timeout_request.get(), 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_given_up() {
    let always = Always::new(Always::EMPTY_200).await;
    let edit = |config: &mut Config| config.timeouts.handshake = SHORT * 5;
    beside_a_bystander(always.address, edit, async |litequic, _| {
        // A client's first datagram, caught on its way, and no other.
        let (net, out) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (caught_at, cert_pem) = (net.local_addr().unwrap(), litequic.cert_pem.clone());
        let client = tokio::spawn(async move {
            let transport = quinn::TransportConfig::default();
            let _ = Quic::try_connect(caught_at, "localhost", &cert_pem, transport).await;
        });
        let mut datagram = [0; 2_000];
        let (length, _) = within("a datagram", net.recv_from(&mut datagram)).await.unwrap();
        client.abort();
        out.send_to(&datagram[..length], litequic.address).await.unwrap();
        counts(litequic, "timeout_handshake", |worker| worker.quic.timeout_handshake.get(), 1).await;
        counts(litequic, "handshakes_open", |worker| worker.quic.handshakes_open.get(), 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_ends() {
    let always = Always::new(Always::EMPTY_200).await;
    let edit = |config: &mut Config| config.timeouts.idle = SHORT * 5;
    beside_a_bystander(always.address, edit, async |litequic, _| {
        let client = Raw::to(litequic).await;
        assert_eq!(client.ask(&raw::get()).await.status(), 200);
        client.quic.vanish();
        counts(litequic, "timeout_idle", |worker| worker.quic.timeout_idle.get(), 1).await;
    })
    .await;
}

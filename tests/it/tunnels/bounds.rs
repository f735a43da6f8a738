//! How long a tunnel may be idle, how many there may be, what they buffer, and how a drain ends them.

use super::{YES, is_reset, no_tunnel_is_open, open, other, raw_tunnel};
use crate::{
    support::{prelude::*, tunnel::switch},
    tcp::pieces::send_until_slowed,
};
use litequic_base::lifecycle::ProcessPhase;

#[tokio::test]
async fn a_client_that_takes_nothing_holds_back_its_origin() {
    // More than all buffers on the way together: the kernel's, hyper's, a stream's, the test's.
    const SIZE: usize = 64 << 20;
    const HELD: u64 = 24 << 20;
    let origin = Script::new().await;
    let litequic = other(origin.address, |_| {}).await;
    for over in HttpVersion::ALL {
        let before = litequic.sum(|worker| worker.shared.response_body_bytes.get());
        let (mut stream, peer, _kept) = open(&litequic, over, &origin).await;
        let (_from, mut to) = peer.stream.into_split();
        let sending = tokio::spawn(async move {
            let piece = vec![7; 1 << 16];
            for _ in 0..SIZE / piece.len() {
                to.write_all(&piece).await.unwrap();
            }
        });
        // Once nothing moves any more.
        let mut seen = u64::MAX;
        loop {
            sleep(Duration::from_millis(200)).await;
            let now = litequic.sum(|worker| worker.shared.response_body_bytes.get()) - before;
            if now > 0 && now == seen {
                break;
            }
            seen = now;
        }
        assert!(seen < HELD && !sending.is_finished(), "{over:?}: {seen}");
        let mut piece = vec![0; 1 << 16];
        let mut read = 0;
        while read < SIZE {
            let length = within("bytes", stream.read(&mut piece)).await.unwrap();
            assert!(length > 0 && piece[..length].iter().all(|byte| *byte == 7), "{over:?} after {read}");
            read += length;
        }
        within("the origin", sending).await.unwrap();
    }
    litequic.stop().await;
}

/// As frames of HTTP/2 and HTTP/3 with next to nothing in them are, so are records of TLS.
#[tokio::test]
async fn a_tunnel_by_the_byte_is_slowed() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |config| config.limits.max_small_frames = 100).await;
    let mut client = Tls::http1(&litequic).await;
    client.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n").await;
    let mut peer = origin.accept_request().await;
    peer.say(YES).await;
    client.head().await;
    send_until_slowed(&litequic, &mut client, "x").await;
    client.say("end").await;
    peer.until("end").await;
    drop((client, peer));
    litequic.stop().await;
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_is_ended() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |config| config.timeouts.tunnel = Duration::from_secs(1)).await;
    for (n, over) in HttpVersion::ALL.into_iter().enumerate() {
        let (stream, mut peer, _kept) = open(&litequic, over, &origin).await;
        assert!(is_reset(&mut peer).await, "{over:?}");
        litequic
            .wait_until("timeouts", |worker| worker.shared.timeout_tunnel.get(), |ended| ended == n as u64 + 1)
            .await;
        drop(stream);
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

/// As the one whose client has gone without a word, and whose origin has closed.
#[tokio::test]
async fn a_half_closed_tunnel_ends_after_a_short_timeout() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |config| config.timeouts.tunnel_half_closed = Duration::from_secs(1)).await;
    let mut ended = 0;
    for over in HttpVersion::ALL {
        for by_client in [false, true] {
            let (mut stream, mut peer, _kept) = open(&litequic, over, &origin).await;
            if by_client {
                stream.shutdown().await.unwrap();
            } else {
                peer.stream.shutdown().await.unwrap();
            }
            ended += 1;
            litequic
                .wait_until("timeouts", |worker| worker.shared.timeout_tunnel_half_closed.get(), |now| now == ended)
                .await;
            drop((stream, peer));
        }
    }
    no_tunnel_is_open(&litequic).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_quiet_tunnel_outlives_the_idle_timeout_of_its_connection() {
    let origin = Script::new().await;
    let idle = Duration::from_secs(2);
    let litequic = other(origin.address, |config| config.timeouts.idle = idle).await;
    let mut all = Vec::new();
    for over in HttpVersion::ALL {
        all.push(open(&litequic, over, &origin).await);
    }
    // An idle tunnel ends in that time; there is no event for one that does not.
    sleep(2 * idle).await;
    for ((mut stream, mut peer, _kept), over) in all.into_iter().zip(HttpVersion::ALL) {
        stream.write_all(b"still here").await.unwrap();
        assert_eq!(peer.exactly(10).await, b"still here", "{over:?}");
    }
    litequic.stop().await;
}

/// Each of the two keeps their connection from its idle timeout, and the end of one is not that of the other.
#[tokio::test]
async fn a_quiet_tunnel_outlives_a_response_beside_it_that_was_paused() {
    const SIZE: usize = 1 << 20;
    let origin = Script::new().await;
    let idle = Duration::from_secs(2);
    let litequic = other(origin.address, |config| config.timeouts.idle = idle).await;
    let client = Raw::with_window(&litequic, 64 * 1024).await;
    let (mut tunnel, mut peer) = raw_tunnel(&client, &origin).await;
    let (mut download, mut from) = client.asked_at(&origin).await;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
    let sending = tokio::spawn(async move { from.say([head.into_bytes(), vec![7; SIZE]].concat()).await });
    // The client reads nothing for longer than a pause lasts at least.
    sleep(idle).await;
    assert_eq!(download.outcome().await.response().body.len(), SIZE);
    within("the origin", sending).await.unwrap();
    // As above there is no event for a connection that does not end.
    sleep(2 * idle).await;
    tunnel.send(&raw::data("still here")).await;
    assert_eq!(peer.exactly(10).await, b"still here");
    litequic.stop().await;
}

#[tokio::test]
async fn tunnels_are_as_many_as_there_may_be() {
    let origin = Script::new().await;
    let litequic = other(origin.address, |config| {
        config.limits.max_tunnels = 1;
        // A tunnel is no connection of the pool's any more.
        config.origins.values_mut().for_each(|origin| origin.max_connections = Some(1));
    })
    .await;
    for over in HttpVersion::ALL {
        let (stream, peer, _kept) = open(&litequic, over, &origin).await;
        let refused = switch(&litequic, over, "/", "other", &[]).await;
        assert_eq!(refused.status, 503, "{over:?}");
        assert!(refused.body.contains("the limit of open tunnels") || over == HttpVersion::Http1, "{}", refused.body);
        let plain = async {
            let mut client = Tls::http1(&litequic).await;
            client.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
            client.head().await
        };
        let serve = async {
            let mut peer = origin.accept_request().await;
            peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
            peer
        };
        let (head, _peer) = tokio::join!(plain, serve);
        assert!(head.starts_with("http/1.1 204 "), "{head}");
        drop((stream, peer, _kept));
        no_tunnel_is_open(&litequic).await;
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.tunnels_refused.get()), 3);
    litequic.stop().await;
}

#[tokio::test]
async fn a_drain_lets_tunnels_go_on_and_its_end_ends_them() {
    for over in HttpVersion::ALL {
        let origin = Script::new().await;
        let litequic = other(origin.address, |_| {}).await;
        let (mut stream, mut peer, _kept) = open(&litequic, over, &origin).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(peer.exactly(5).await, b"hello", "{over:?}");
        peer.say("world").await;
        let mut answer = [0; 5];
        within("the answer", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"world");
        litequic.lifecycle.advance_phase(ProcessPhase::Stopping);
        assert!(is_reset(&mut peer).await, "{over:?}");
        litequic.ended().await;
    }
}

#[tokio::test]
async fn a_drain_ends_once_its_tunnels_have() {
    for over in HttpVersion::ALL {
        let origin = Script::new().await;
        let litequic = other(origin.address, |_| {}).await;
        let (mut stream, mut peer, kept) = open(&litequic, over, &origin).await;
        litequic.lifecycle.advance_phase(ProcessPhase::Draining);
        stream.shutdown().await.unwrap();
        assert_eq!(peer.rest().await, "", "{over:?}");
        drop(peer);
        within("the end", stream.read(&mut [0; 1])).await.unwrap();
        litequic.ended().await;
        drop(kept);
    }
}

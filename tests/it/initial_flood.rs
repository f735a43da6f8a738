//! Clients that never complete a handshake: floods of Initials, forged addresses, invalid tokens, and bytes that
//! are not QUIC. litequic limits what it sends them (RFC 9000 §8), drops them in time, and serves the others.

use crate::support::{
    initial::{FULL, Initial, Retry, Stranger, fresh_id, unknown_version, with_length},
    prelude::*,
};
use futures_util::future;
use std::num::NonZeroU16;
use tokio::task::yield_now;

/// Ports from which a flood comes.
const PORTS: usize = 64;
/// Datagrams of a flood between two looks at what else there is to do.
const BURST: usize = 16;
/// How long a handshake may last: until the second probe of a server without an answer (RFC 9002 §6.2: after 1 and 3
/// seconds).
const PROBED: Duration = Duration::from_millis(3_500);

async fn strangers(litequic: &Litequic) -> Vec<Stranger> {
    let first = Stranger::of(litequic).await;
    let mut all = future::join_all((1..PORTS).map(|_| first.elsewhere())).await;
    all.push(first);
    all
}

/// Begins handshakes without end, each from another port, with an ID of its own; counts in `sent`.
async fn flood(strangers: &[Stranger], sent: &mut u64) {
    loop {
        for stranger in strangers.iter().cycle().take(BURST.max(strangers.len())) {
            stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
            *sent += 1;
            if sent.is_multiple_of(BURST as u64) {
                yield_now().await;
            }
        }
    }
}

/// Does `what` while a flood comes; returns the flood's datagrams.
async fn flooded(strangers: &[Stranger], what: impl Future<Output = ()>) -> u64 {
    let mut sent = 0;
    tokio::select! {
        () = what => {}
        () = flood(strangers, &mut sent) => {}
    }
    sent
}

async fn nothing_is_held(litequic: &Litequic) {
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.wait_until("connections_held = 0", |worker| worker.quic.connections_held.get(), |held| held == 0).await;
}

#[tokio::test]
async fn a_flood_of_initials_brings_retries_and_real_clients_still_get_in() {
    let litequic = Litequic::demo(|config| {
        config.limits.retry_handshakes = 8;
        config.timeouts.handshake = Duration::from_secs(2);
    })
    .await;
    let strangers = strangers(&litequic).await;
    let clients = async {
        litequic.wait_until("retries", |worker| worker.quic.retries.get(), |retries| retries > 100).await;
        for _ in 0..5 {
            let client = Client::to(&litequic).await;
            assert_eq!(client.get("/bytes/100k").await.body.len(), 100_000);
            // Clients without a validated address are never more than the limit.
            assert!(litequic.sum(|worker| worker.quic.handshakes_open.get()) <= 8 + 1);
        }
    };
    let sent = flooded(&strangers, clients).await;
    assert!(sent > 100, "{sent}");
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 5);
    assert_eq!(litequic.sum(|worker| worker.quic.limit_handshakes.get()), 0);
    drop(strangers);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_flood_takes_at_most_seven_eighths_of_max_handshakes() {
    let litequic = Litequic::demo(|config| {
        config.limits.max_handshakes = 8;
        config.timeouts.handshake = Duration::from_secs(2);
    })
    .await;
    let client = Client::to(&litequic).await;
    let mut strangers = strangers(&litequic).await;
    let downloads = async {
        // Their addresses have to be validated by then.
        litequic.wait_until("retries", |worker| worker.quic.retries.get(), |retries| retries > 1_000).await;
        for _ in 0..5 {
            assert_eq!(client.get("/bytes/200k").await.body.len(), 200_000);
            assert!(litequic.sum(|worker| worker.quic.handshakes_open.get()) <= 7);
        }
    };
    flooded(&strangers, downloads).await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 1);
    // What is left of the flood in the socket's buffer counts, too, and would between two looks. Above 20,000 a second
    // Initials are dropped, which a busy machine does not send.
    strangers[0].settled().await;
    let (dropped, refused) = (
        litequic.sum(|worker| worker.quic.limit_refusals.get()),
        litequic.sum(|worker| worker.quic.handshakes_refused.get()),
    );
    assert_eq!(dropped, refused);
    assert_eq!(litequic.sum(|worker| worker.quic.limit_handshakes.get()), 0, "that is for validated addresses");
    // The slots come back, and waiting clients get in.
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.stop().await;
}

#[tokio::test]
async fn validated_clients_without_a_handshake_are_bounded_and_expire() {
    let litequic = Litequic::demo(|config| {
        config.limits.retry_handshakes = 0;
        config.limits.max_handshakes = 4;
        config.timeouts.handshake = Duration::from_secs(1);
    })
    .await;
    let first = Stranger::of(&litequic).await;
    let mut all = future::join_all((0..8).map(|_| first.elsewhere())).await;
    // All have tokens before any begins.
    let mut retries = Vec::new();
    for stranger in &mut all {
        retries.push(stranger.retry().await);
    }
    for (stranger, Retry { id, token }) in all.iter().zip(&retries) {
        stranger.send(&stranger.packet(&Initial { token, number: 1, ..Initial::to(id) })).await;
    }
    litequic.wait_until("dropped Initials", |worker| worker.quic.limit_handshakes.get(), |dropped| dropped == 4).await;
    assert_eq!(litequic.sum(|worker| worker.quic.handshakes_open.get()), 4);
    nothing_is_held(&litequic).await;
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.stop().await;
}

/// A litequic whose certificate alone is more than it may send to an address that is not proved.
async fn with_a_large_certificate(edit: impl FnOnce(&mut Config)) -> Litequic {
    let names: Vec<String> = (0..120).map(|number| format!("a-name-of-a-certificate-{number:04}.example")).collect();
    let names = names.iter().map(String::as_str).chain(["localhost"]);
    let certificate = make_self_signed(names).unwrap();
    assert!(certificate.cert_pem.len() > 3 * FULL * 4 / 3, "{}", certificate.cert_pem.len());
    Litequic::showing(&[certificate], origin::demo().await, |config| {
        config.listen.workers = Some(NonZeroU16::MIN);
        edit(config);
    })
    .await
}

#[tokio::test]
async fn an_unvalidated_address_gets_three_times_its_bytes() {
    let litequic = with_a_large_certificate(|config| config.timeouts.handshake = PROBED).await;
    let first = Stranger::of(&litequic).await;
    let table: [(&str, &[usize]); 2] = [("one", &[FULL]), ("three", &[FULL; 3])];
    future::join_all(table.map(async |(what, sizes)| {
        let mut stranger = first.elsewhere().await;
        let id = fresh_id();
        let mut sent = 0;
        for (number, size) in (0..).zip(sizes) {
            let datagram = stranger.packet(&Initial { size: *size, number, ..Initial::to(&id) });
            sent += datagram.len();
            stranger.send(&datagram).await;
        }
        stranger.receive().await;
        assert!(litequic.sum(|worker| worker.quic.handshakes_open.get()) > 0);
        // To the handshake's end: its retransmissions and probes count.
        stranger.receive_until(nothing_is_held(&litequic)).await;
        stranger.settled().await;
        let received = stranger.received;
        // Less than a datagram more (`the_limit_of_what_is_sent_is_rounded_up_to_one_datagram`): whether there is a
        // rest to be rounded up depends on how the answers fell into datagrams.
        assert!(received < 3 * sent + FULL, "{what}: {received} for {sent}");
        // It had more to say: the limit held it back.
        assert!(received > 3 * sent / 2, "{what}: {received} for {sent}");
    }))
    .await;
    // A client that proves its address gets all of it.
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.stop().await;
}

#[tokio::test]
async fn small_datagrams_to_the_id_that_a_client_chose_buy_nothing() {
    let litequic = with_a_large_certificate(|config| config.timeouts.handshake = PROBED).await;
    let first = Stranger::of(&litequic).await;
    // An attacker with a forged address has no other ID. Nothing in these packets can be read.
    let table = [("an Initial", 0xc0), ("0-RTT", 0xd0), ("a Handshake", 0xe0)];
    future::join_all(table.map(async |(what, kind)| {
        let mut stranger = first.elsewhere().await;
        let id = fresh_id();
        stranger.send(&stranger.packet(&Initial::to(&id))).await;
        stranger.receive().await;
        let token: &[u8] = if kind == 0xc0 { &[0] } else { &[] };
        let small = [&[kind, 0, 0, 0, 1, 8], &id[..], &[8], &stranger.id, token, &[21], &[9; 21]].concat();
        for _ in 0..20 {
            stranger.send(&small).await;
            stranger.settled().await;
        }
        stranger.receive_until(nothing_is_held(&litequic)).await;
        stranger.settled().await;
        assert!(stranger.received <= 3 * FULL, "{what}: {}", stranger.received);
    }))
    .await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_initial_to_an_id_like_litequic_s_own_is_not_answered() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut stranger = Stranger::of(&litequic).await;
    // First byte, generation, worker; chosen so, small datagrams would pass for those of a client that was answered.
    let own = [&[0xef, 0, 0][..], &[7; 13]].concat();
    stranger.send(&stranger.packet(&Initial::to(&own))).await;
    assert_eq!(stranger.settled().await, Vec::<Vec<u8>>::new());
    assert_eq!(litequic.sum(|worker| worker.quic.connections_held.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn the_limit_of_what_is_sent_is_rounded_up_to_one_datagram() {
    // s2n-quic's rounding, on purpose: "networking infrastructure mostly cares about the number of packets".
    let litequic = with_a_large_certificate(|config| config.timeouts.handshake = PROBED).await;
    let mut stranger = Stranger::of(&litequic).await;
    stranger.send(&stranger.packet(&Initial { size: FULL + 50, ..Initial::to(&fresh_id()) })).await;
    stranger.receive().await;
    stranger.receive_until(nothing_is_held(&litequic)).await;
    stranger.settled().await;
    assert_eq!(stranger.received, 4 * FULL, "s2n-quic has got better, or worse");
    litequic.stop().await;
}

#[tokio::test]
async fn initials_in_small_datagrams_are_not_answered() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut stranger = Stranger::of(&litequic).await;
    for size in [0, 300, 600, 1000, FULL - 1] {
        let datagram = stranger.packet(&Initial { size, ..Initial::to(&fresh_id()) });
        assert!(datagram.len() < FULL, "{}", datagram.len());
        stranger.send(&datagram).await;
    }
    assert_eq!(stranger.settled().await, Vec::<Vec<u8>>::new());
    assert_eq!(litequic.sum(|worker| worker.quic.connections_held.get()), 0);
    // The same, full.
    stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
    stranger.receive().await;
    litequic.stop().await;
}

#[tokio::test]
async fn retry_refusal_and_version_negotiation_are_smaller_than_their_cause() {
    let retrying = Litequic::demo(|config| config.limits.retry_handshakes = 0).await;
    let full = Litequic::demo(|config| config.limits.max_connections = 0).await;
    for (what, litequic) in [("a Retry", &retrying), ("CONNECTION_REFUSED", &full)] {
        let mut stranger = Stranger::of(litequic).await;
        stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
        stranger.receive().await;
        stranger.settled().await;
        assert!(stranger.received <= FULL, "{what}: {}", stranger.received);
        assert_eq!(litequic.sum(|worker| worker.quic.connections_held.get()), 0, "{what} keeps no state");
    }
    // RFC 9000 §6.1: versions are negotiated with datagrams that are large enough for a version that is known.
    let mut stranger = Stranger::of(&full).await;
    for size in [20, 100, FULL - 1, FULL, 1400] {
        let before = stranger.received;
        stranger.send(&unknown_version(&fresh_id(), size)).await;
        stranger.settled().await;
        let answer = stranger.received - before;
        assert!(answer <= size, "{answer} for {size}");
        assert_eq!(answer > 0, size >= FULL, "{answer} for {size}");
    }
    retrying.stop().await;
    full.stop().await;
}

/// In an unknown version only the fields of RFC 8999 have a meaning, not the bits that are the type in version 1, nor
/// what is behind the connection IDs, which may be longer.
#[tokio::test]
async fn every_unsupported_version_gets_version_negotiation() {
    const VERSION_2: u32 = 0x6b33_43cf;
    let litequic = Litequic::demo(|_| {}).await;
    let mut stranger = Stranger::of(&litequic).await;
    let packet = |first: u8, version: u32, destination: &[u8], source: &[u8], size: usize| {
        let mut packet =
            [&[first][..], &version.to_be_bytes(), &with_length(destination), &with_length(source)].concat();
        packet.resize_with(size, rand::random);
        packet
    };
    let first_bytes = [0x80, 0xc3, 0xd3, 0xe3, 0xf3, 0xff];
    let versions = [VERSION_2, 0x1a2a_3a4a, 2, 0xff00_001d, u32::MAX];
    for (number, (first, version)) in first_bytes.into_iter().flat_map(|f| versions.map(|v| (f, v))).enumerate() {
        let lengths = [0, 8, 20, 21, 255];
        let (destination, source) = (vec![1; lengths[number % 5]], vec![2; lengths[number / 5 % 5]]);
        stranger.send(&packet(first, version, &destination, &source, FULL)).await;
        let answer = stranger.receive().await;
        let (header, supported) = answer.split_at(7 + source.len() + destination.len());
        assert!(header[0] & 0x80 > 0, "a long header");
        let expected = packet(header[0], 0, &source, &destination, header.len());
        assert_eq!(header, expected, "for {first:#x} {version:#x}");
        let supported: Vec<u32> =
            supported.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        assert!(supported.contains(&1) && !supported.contains(&version), "{supported:x?}");
        assert!(
            supported.iter().any(|version| version & 0x0f0f_0f0f == 0x0a0a_0a0a),
            "{supported:x?} has no reserved one"
        );
    }
    for first in first_bytes {
        stranger.send(&packet(first, VERSION_2, &[1; 8], &[2; 8], FULL - 1)).await;
        // Version Negotiation, which brings no other (RFC 9000 §6.1).
        stranger.send(&packet(first, 0, &[1; 8], &[2; 8], FULL)).await;
        // Connection IDs that the datagram has not.
        stranger.send(&[&[first, 0, 0, 0, 9][..], &[255; 200]].concat()).await;
    }
    assert_eq!(stranger.settled().await, Vec::<Vec<u8>>::new());
    litequic.stop().await;
}

#[tokio::test]
async fn a_stateless_reset_is_smaller_than_what_it_answers() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut stranger = Stranger::of(&litequic).await;
    let mut answered = 0;
    for size in (1..100).chain([200, 500, 1000, FULL, 1400]) {
        let before = stranger.received;
        let mut datagram: Vec<u8> = (0..size).map(|_| rand::random()).collect();
        datagram[0] = 0x40 | datagram[0] & 0x3f;
        stranger.send(&datagram).await;
        stranger.settled().await;
        let answer = stranger.received - before;
        assert!(answer < size, "{answer} for {size}");
        answered += u32::from(answer > 0);
    }
    assert!(answered > 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_retry_token_is_valid_once_for_its_address() {
    let litequic = Litequic::demo(|config| config.limits.retry_handshakes = 0).await;
    let mut stranger = Stranger::of(&litequic).await;
    let Retry { id, token } = stranger.retry().await;
    let held = || litequic.sum(|worker| worker.quic.connections_held.get());
    let with = |stranger: &Stranger, id: &[u8], token: &[u8], number| {
        stranger.packet(&Initial { token, number, ..Initial::to(id) })
    };

    let mut thief = stranger.elsewhere().await;
    thief.send(&with(&thief, &id, &token, 1)).await;
    assert_eq!(thief.settled().await, Vec::<Vec<u8>>::new(), "from another port");
    let mut changed = token.clone();
    *changed.last_mut().unwrap() ^= 1;
    let garbage: [&[u8]; 5] = [&changed, &token[1..], &[0], &[0xff; 500], &[token.clone(), vec![0]].concat()];
    for garbage in garbage {
        stranger.send(&with(&stranger, &id, garbage, 1)).await;
    }
    assert_eq!(stranger.settled().await, Vec::<Vec<u8>>::new(), "garbage");
    assert_eq!(held(), 0);

    // All that used nothing up.
    stranger.send(&with(&stranger, &id, &token, 1)).await;
    stranger.receive().await;
    assert_eq!(held(), 1);
    stranger.settled().await;
    // Again, for another connection.
    for _ in 0..10 {
        stranger.send(&with(&stranger, &fresh_id(), &token, 1)).await;
    }
    stranger.settled().await;
    assert_eq!(held(), 1);
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.stop().await;
}

/// s2n-quic adopts the ID that comes with a valid token, whatever it is.
#[tokio::test]
async fn a_token_is_good_for_the_id_of_its_retry_alone() {
    let litequic = Litequic::demo(|config| config.limits.retry_handshakes = 0).await;
    let mut stranger = Stranger::of(&litequic).await;
    let Retry { id, token } = stranger.retry().await;
    assert_eq!(id.len(), 16);
    let random: [u8; 20] = rand::random();
    let others: [(&str, Vec<u8>); 7] = [
        ("16 bytes that begin in the same way", [&id[..3], &random[..13]].concat()),
        ("16 bytes that differ in the last bit", [&id[..15], &[id[15] ^ 1]].concat()),
        ("with another first byte", [&[0x0f], &id[1..]].concat()),
        ("4 bytes", random[..4].to_vec()),
        ("its first 4 bytes", id[..4].to_vec()),
        ("20 bytes", random.to_vec()),
        ("20 bytes that begin with it", [&id[..], &random[..4]].concat()),
    ];
    let held = || litequic.sum(|worker| worker.quic.connections_held.get());
    let refused = || litequic.sum(|worker| worker.quic.retry_tokens_refused.get());
    for (number, (what, other)) in (1..).zip(&others) {
        stranger.send(&stranger.packet(&Initial { token: &token, number: 1, ..Initial::to(other) })).await;
        assert_eq!(stranger.settled().await, Vec::<Vec<u8>>::new(), "{what}");
        assert_eq!((held(), refused()), (0, number), "{what}");
    }
    // None of them used it up.
    stranger.send(&stranger.packet(&Initial { token: &token, number: 1, ..Initial::to(&id) })).await;
    stranger.receive().await;
    assert_eq!(held(), 1);
    litequic.stop().await;
}

/// Behind a balancer that hashes addresses the client's next Initial may reach another replica.
#[tokio::test]
async fn a_token_is_good_at_every_replica_with_the_secret() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), [7; 32]).unwrap();
    let origin = origin::demo().await;
    let replica = async |name: &str, secret: &Path| {
        Litequic::start(origin, |config| {
            config.limits.retry_handshakes = 0;
            config.listen.secret_file = Some(secret.to_owned());
            config.listen.replica = Some(name.to_owned());
        })
        .await
    };
    let other_secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(other_secret.path(), [8; 32]).unwrap();
    let one = replica("one", secret.path()).await;
    for (other, held) in [(replica("two", secret.path()).await, 1), (replica("two", other_secret.path()).await, 0)] {
        let mut stranger = Stranger::of(&one).await;
        let Retry { id, token } = stranger.retry().await;
        stranger.turn_to(&other);
        stranger.send(&stranger.packet(&Initial { token: &token, number: 1, ..Initial::to(&id) })).await;
        stranger.settled().await;
        assert_eq!(other.sum(|worker| worker.quic.connections_held.get()), held);
        assert_eq!(other.sum(|worker| worker.quic.retry_tokens_refused.get()), 1 - held);
        other.stop().await;
    }
    one.stop().await;
}

/// Everything that is no packet of QUIC, or not quite.
fn junk(stranger: &Stranger) -> Vec<Vec<u8>> {
    let noise = |length: usize| (0..length).map(|_| rand::random()).collect::<Vec<u8>>();
    let whole = stranger.packet(&Initial::to(&fresh_id()));
    let mut all = vec![Vec::new()];
    // Every first byte, short and long.
    for first in 0..=255 {
        for length in [0, 5, 40, 1300] {
            all.push([vec![first], noise(length)].concat());
            all.push([&[first, 0, 0, 0, 1][..], &noise(length)].concat());
        }
    }
    // Truncated anywhere in the header, with and without enough behind it.
    for length in 1..60 {
        all.push(whole[..length].to_vec());
        all.push([&whole[..length], &vec![0; FULL]].concat());
        all.push([&whole[..length], &vec![0xff; FULL]].concat());
    }
    // Versions.
    for version in [0_u32, 2, 0x6b33_43cf, 0xff00_001d, 0x0a0a_0a0a, u32::MAX] {
        all.push([&[0xc0][..], &version.to_be_bytes(), &noise(1300)].concat());
        all.push([&[0xff][..], &version.to_be_bytes(), &[0, 0]].concat());
    }
    // Connection IDs of every length, those that there are not too.
    for length in 0..=255_u8 {
        for (destination, source) in [(length, 8), (8, length), (length, length)] {
            let ids = [&[destination][..], &vec![1; destination.into()], &[source], &vec![2; source.into()]].concat();
            let mut datagram = [&[0xc0, 0, 0, 0, 1][..], &ids, &[0, 0x44, 0xb0]].concat();
            datagram.resize(FULL.max(datagram.len()), 7);
            all.push(datagram);
        }
    }
    // Token and packet lengths that lie.
    for lie in [&[0x3f][..], &[0x7f, 0xff], &[0xbf, 0xff, 0xff, 0xff], &[0xff; 8]] {
        for before in [&[][..], &[0]] {
            let mut datagram = [&[0xc0, 0, 0, 0, 1, 8][..], &[1; 8], &[8], &[2; 8], before, lie].concat();
            datagram.resize(FULL, 0);
            all.push(datagram);
        }
    }
    // Valid ones with junk behind them, behind junk, twice, for two connections, as large as a datagram can be.
    let other = stranger.packet(&Initial::to(&fresh_id()));
    all.push([&whole[..], &noise(200)].concat());
    all.push([&noise(200)[..], &whole].concat());
    all.push([&whole[..], &whole].concat());
    all.push([&whole[..], &other].concat());
    all.push([&whole[..], &[0; 60_000]].concat());
    all.push(noise(65_000));
    all
}

#[tokio::test]
async fn junk_of_every_kind_harms_nobody() {
    let litequic = Litequic::demo(|config| config.timeouts.handshake = Duration::from_secs(1)).await;
    let served = Client::to(&litequic).await;
    let mut stranger = Stranger::of(&litequic).await;
    let all = junk(&stranger);
    for (index, datagram) in all.iter().enumerate() {
        stranger.send(datagram).await;
        // Now and then, so that no buffer overflows and all of it arrives.
        if index % 32 == 31 {
            stranger.settled().await;
            assert_eq!(served.get("/status/204").await.status, 204, "before {index}");
        }
    }
    stranger.settled().await;
    assert_eq!(Client::to(&litequic).await.get("/status/204").await.status, 204);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 2);
    assert_eq!(litequic.sum(|worker| worker.http3.connection_errors.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn handshakes_that_are_given_up_give_their_slots_back() {
    let litequic = Litequic::demo(|config| config.timeouts.handshake = Duration::from_secs(1)).await;
    let strangers = strangers(&litequic).await;
    for stranger in &strangers {
        stranger.send(&stranger.packet(&Initial::to(&fresh_id()))).await;
    }
    let open = |worker: &WorkerMetrics| worker.quic.handshakes_open.get();
    litequic.wait_until("handshakes", open, |open| open == PORTS as u64).await;
    nothing_is_held(&litequic).await;
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 0);
    litequic.stop().await;
}

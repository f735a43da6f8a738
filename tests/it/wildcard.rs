//! A listener at a wildcard address of a machine that has several: whatever answers a datagram leaves from the address
//! that it came to. Clients drop anything else.

use crate::support::{
    has_io_uring,
    initial::{FULL, Initial, Stranger, fresh_id, unknown_version},
    prelude::*,
};
use litequic_config::Io;
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};
use tokio::net::UdpSocket;

/// Some of this machine's addresses: all of 127.0.0.0/8 are.
const V4: [IpAddr; 3] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 3, 2, 1))];
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The wildcard addresses, and what reaches each.
fn wildcards() -> [(IpAddr, Vec<IpAddr>); 2] {
    [(Ipv4Addr::UNSPECIFIED.into(), V4.to_vec()), (Ipv6Addr::UNSPECIFIED.into(), [&V4[..], &[V6]].concat())]
}

fn backends() -> Vec<Io> {
    let mut all = vec![Io::Epoll, Io::S2nQuic];
    if has_io_uring() {
        all.push(Io::IoUring);
    }
    all
}

async fn litequic(io: Io, wildcard: IpAddr, edit: impl FnOnce(&mut Config)) -> Litequic {
    Litequic::demo(|config| {
        config.litequic.io = io;
        config.listen.udp = vec![(wildcard, 0).into()];
        config.listen.tcp.clear();
        edit(config);
    })
    .await
}

/// A packet with a short header of a connection that there is not.
fn of_no_connection() -> Vec<u8> {
    [&[0x41, 0xef, 0, 0][..], &[7; 60]].concat()
}

/// What comes back leaves from `at`, which the client checks.
async fn answers(litequic: &Litequic, at: SocketAddr, datagram: impl FnOnce(&Stranger) -> Vec<u8>) -> Vec<u8> {
    let mut stranger = Stranger::at(litequic, at).await;
    stranger.send(&datagram(&stranger)).await;
    stranger.receive().await
}

fn initial(stranger: &Stranger) -> Vec<u8> {
    stranger.packet(&Initial::to(&fresh_id()))
}

/// A ClientHello that is none.
fn refused(stranger: &Stranger) -> Vec<u8> {
    stranger.sealed(&Initial::to(&fresh_id()), vec![0x06, 0, 4, 20, 0, 0, 0])
}

#[tokio::test]
async fn every_answer_leaves_from_the_address_that_was_asked() {
    for io in backends() {
        for (wildcard, addresses) in wildcards() {
            let open = litequic(io, wildcard, |_| {}).await;
            let retrying = litequic(io, wildcard, |config| config.limits.retry_handshakes = 0).await;
            let full = litequic(io, wildcard, |config| config.limits.max_connections = 0).await;
            for ip in addresses {
                let at = |litequic: &Litequic| SocketAddr::new(ip, litequic.address.port());
                let negotiation = answers(&open, at(&open), |_| unknown_version(&fresh_id(), FULL)).await;
                assert_eq!(negotiation[1..5], [0; 4], "Version Negotiation");
                assert_eq!(
                    answers(&open, at(&open), |_| of_no_connection()).await[0] & 0xc0,
                    0x40,
                    "a stateless reset"
                );
                assert_eq!(answers(&open, at(&open), refused).await[0] & 0xf0, 0xc0, "CONNECTION_CLOSE");
                assert_eq!(answers(&open, at(&open), initial).await[0] & 0xf0, 0xc0, "a handshake");
                assert_eq!(answers(&retrying, at(&retrying), initial).await[0] & 0xf0, 0xf0, "a Retry");
                assert_eq!(answers(&full, at(&full), initial).await[0] & 0xf0, 0xc0, "CONNECTION_REFUSED");
                for litequic in [&open, &retrying] {
                    let transport = quinn::TransportConfig::default();
                    let quic = Quic::connect(at(litequic), "localhost", &litequic.cert_pem, transport).await;
                    let client = Client::over(quic, "localhost").await;
                    assert_eq!(client.get("/bytes/100k").await.body.len(), 100_000, "{ip}");
                }
            }
            for litequic in [open, retrying, full] {
                litequic.stop().await;
            }
        }
    }
}

#[tokio::test]
async fn answers_to_one_client_at_several_addresses_are_not_joined() {
    for io in backends() {
        for (wildcard, _) in wildcards() {
            let litequic = litequic(io, wildcard, |_| {}).await;
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let expected: BTreeSet<_> = V4.map(|ip| SocketAddr::new(ip, litequic.address.port())).into();
            let datagrams = [of_no_connection(), unknown_version(&fresh_id(), FULL)];
            for datagram in &datagrams {
                for to in &expected {
                    socket.send_to(datagram, to).await.unwrap();
                }
            }
            let mut found = Vec::new();
            let mut buffer = [0; 2000];
            while found.len() < datagrams.len() * V4.len() {
                let (_, from) = within("an answer", socket.recv_from(&mut buffer)).await.unwrap();
                found.push(from);
            }
            found.sort_unstable();
            assert_eq!(found, expected.iter().flat_map(|from| [*from; 2]).collect::<Vec<_>>(), "{io:?}");
            litequic.stop().await;
        }
    }
}

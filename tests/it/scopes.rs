//! Clients at addresses of a scope that loopback does not have, in a network namespace: IPv6 link-local ones, and ones
//! that move from a private network to the internet.

use crate::support::{has_io_uring, namespace::run_inside, prelude::*};
use litequic_config::Io;
use rustix::net::netdevice::name_to_index;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};

/// Two cables, each of which has the same two link-local addresses at its ends.
const CABLES: &str = "ip link set lo up; ip link add a1 type veth peer name a2; ip link add b1 type veth peer name b2
    for i in a1 a2 b1 b2; do ip link set $i addrgenmode none; ip link set $i up; done
    for i in a b; do for n in 1 2; do ip address add fe80::$n/64 dev $i$n nodad; done; done";
/// Addresses of one machine.
const ADDRESSES: &str = "ip link set lo up
    for a in 10.0.0.1 10.0.0.2 192.168.7.7 100.64.1.1 8.0.0.5 8.0.0.6; do ip address add $a/32 dev lo; done";

fn backends() -> Vec<Io> {
    let uring = has_io_uring().then_some(Io::IoUring);
    [Io::Epoll].into_iter().chain(uring).collect()
}

/// Address of litequic, for a client at the interface `name`.
fn link_local(litequic: &Litequic, name: &str) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let interface = name_to_index(socket, name).unwrap();
    SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), litequic.address.port(), 0, interface).into()
}

#[test]
fn link_local_clients_are_served_over_http3() {
    run_inside(CABLES, || async {
        for io in backends() {
            let litequic = Litequic::demo(|config| {
                config.litequic.io = io;
                config.listen.udp = vec![(Ipv6Addr::UNSPECIFIED, 0).into()];
                config.listen.tcp.clear();
            })
            .await;
            // The first two are the machine itself.
            for name in ["a1", "b1", "a2", "b2"] {
                let server = link_local(&litequic, name);
                let quic = Quic::from(Ipv6Addr::UNSPECIFIED, server, &litequic.cert_pem).await.unwrap();
                let client = Client::over(quic, "localhost").await;
                assert_eq!(client.get("/bytes/100k").await.body.len(), 100_000, "{io:?} {name}");
            }
            litequic.stop().await;
        }
    });
}

#[test]
fn a_client_that_leaves_its_private_network_is_served_on() {
    run_inside(ADDRESSES, || async {
        for io in backends() {
            let litequic = Litequic::demo(|config| {
                config.litequic.io = io;
                config.listen.udp = vec![([10, 0, 0, 1], 0).into()];
                config.listen.tcp.clear();
            })
            .await;
            let moves: [(IpAddr, IpAddr); 4] = [
                ([10, 0, 0, 2].into(), [8, 0, 0, 5].into()),
                ([192, 168, 7, 7].into(), [100, 64, 1, 1].into()),
                ([100, 64, 1, 1].into(), [8, 0, 0, 5].into()),
                ([8, 0, 0, 5].into(), [8, 0, 0, 6].into()),
            ];
            for (before, after) in moves {
                let link = Link::between(litequic.address, Faults::default());
                link.rebind_to(before);
                let transport = client::transport_of_a_client_that_moves();
                let client = Client::connect(link.address, &litequic.cert_pem, transport).await;
                client.get("/bytes/17").await;
                link.rebind_to(after);
                assert_eq!(client.get("/bytes/100k").await.body.len(), 100_000, "{io:?}: from {before} to {after}");
            }
            litequic.stop().await;
        }
    });
}

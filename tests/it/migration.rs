//! A client that migrates to an address from which no answer comes: one that forges it, to direct a download at a
//! victim (RFC 9000 §9.3.1, §21.5).

use crate::support::prelude::*;
use bytes::Buf;
use litequic_quic as quic;
use litequic_tls::{ServerTrust, client_config};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::{net::UdpSocket, select};

/// Bytes of the largest datagram that leaves on a path of which nothing is known yet (RFC 9000 §14.1).
const DATAGRAM: usize = 1_200;
/// Bytes that are sent on a path while none is acknowledged (RFC 9002 §7.2): ten datagrams, and two probes or four.
const FIRST_WINDOW: usize = 14 * DATAGRAM;
/// Datagrams that come from the forged address.
const FORGED: usize = 40;
/// After a time as long without a datagram none is on its way.
const QUIET: Duration = Duration::from_millis(20);

/// Small datagrams of a client that pass once an answer of its was lost, before one may pass: more than s2n-quic's two
/// challenges bring, which leave together.
const UNANSWERED: u64 = 10;

/// What stands between a client and litequic, and can keep what it is given.
struct Relay {
    front: UdpSocket,
    back: UdpSocket,
    server: SocketAddr,
}

impl Relay {
    async fn before(litequic: &Litequic) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        Self { front: bind().await.unwrap(), back: bind().await.unwrap(), server: litequic.address }
    }

    /// Passes datagrams on while `work` goes on.
    async fn beneath<T>(&self, work: impl Future<Output = T>) -> T {
        let pass = async {
            let (mut client, mut up, mut down) = (None, [0; 2_048], [0; 2_048]);
            loop {
                select! {
                    Ok((length, from)) = self.front.recv_from(&mut up) => {
                        client = Some(from);
                        self.back.send_to(&up[..length], self.server).await.unwrap();
                    }
                    Ok((length, _)) = self.back.recv_from(&mut down) => if let Some(client) = client {
                        self.front.send_to(&down[..length], client).await.unwrap();
                    },
                }
            }
        };
        select! {
            done = work => done,
            () = pass => unreachable!("it passes on for ever"),
        }
    }

    /// Passes datagrams on while `work` goes on; from another port once the client has `moved`, as a NAT does that
    /// forgot. The large ones that the client then sends, of which it has none but its answers to PATH_CHALLENGE, are
    /// lost until it has sent a few others, and counted in `lost`. From then on the old port must get no data.
    async fn beneath_a_move<T>(&self, moved: &AtomicBool, lost: &AtomicU64, work: impl Future<Output = T>) -> T {
        let next = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let pass = async {
            let (mut client, mut up, mut down, mut late) = (None, [0; 2_048], [0; 2_048], [0; 2_048]);
            let (mut reached, mut small) = (false, 0);
            loop {
                let datagram = select! {
                    Ok((length, from)) = self.front.recv_from(&mut up) => {
                        client = Some(from);
                        let moved = moved.load(Relaxed);
                        if moved && length >= DATAGRAM && small < UNANSWERED {
                            lost.fetch_add(1, Relaxed);
                            continue;
                        }
                        small += u64::from(lost.load(Relaxed) > 0);
                        let back = if moved { &next } else { &self.back };
                        back.send_to(&up[..length], self.server).await.unwrap();
                        continue;
                    }
                    // What was on its way arrives, so that the client has something to say at its new port.
                    Ok((length, _)) = self.back.recv_from(&mut late) => {
                        assert!(small < UNANSWERED || length < DATAGRAM, "the download went to the old port again");
                        if reached {
                            continue;
                        }
                        &late[..length]
                    }
                    Ok((length, _)) = next.recv_from(&mut down) => {
                        reached = true;
                        &down[..length]
                    }
                };
                if let Some(client) = client {
                    self.front.send_to(datagram, client).await.unwrap();
                }
            }
        };
        select! {
            done = work => done,
            () = pass => unreachable!("it passes on for ever"),
        }
    }

    /// A small datagram of the client that litequic has not got.
    async fn keep(&self) -> Vec<u8> {
        let mut datagram = vec![0; 2_048];
        loop {
            let (length, _) = within("a datagram", self.front.recv_from(&mut datagram)).await.unwrap();
            if length < 100 {
                datagram.truncate(length);
                return datagram;
            }
        }
    }
}

/// Bytes that come until none comes any more.
async fn received(socket: &UdpSocket) -> usize {
    let (mut bytes, mut datagram) = (0, [0; 2_048]);
    while let Ok(received) = timeout(QUIET, socket.recv(&mut datagram)).await {
        bytes += received.unwrap();
    }
    bytes
}

#[tokio::test]
async fn a_spoofed_address_gets_at_most_one_datagram_for_each_received() {
    let litequic = Litequic::demo(|_| {}).await;
    let relay = Relay::before(&litequic).await;
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(50)));
    let connect = async {
        let address = relay.front.local_addr().unwrap();
        let client = Client::connect(address, &litequic.cert_pem, transport).await;
        let mut download = client.begin_get("/bytes/1G").await;
        client::header(&mut download).await;
        within("the download", download.recv_data()).await.unwrap();
        (client, download)
    };
    let (_client, _download) = relay.beneath(connect).await;

    let victim = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    victim.connect(litequic.address).await.unwrap();
    let forged = relay.keep().await;
    let mut bytes = 0;
    for sent in 1..=FORGED {
        // The same one over and over: s2n-quic counts bytes before it checks for duplicates.
        victim.send(&forged).await.unwrap();
        bytes += received(&victim).await;
        assert!(bytes <= sent * DATAGRAM, "{bytes} bytes for {sent} datagrams of {}", forged.len());
    }
    assert!(bytes > 0, "the download went to the forged address");

    // The address is not proved in time: what is sent goes where it went before.
    received(&relay.back).await;
    within("the download at the old address", relay.back.recv(&mut [0; 2_048])).await.unwrap();
    bytes += received(&victim).await;
    assert!(bytes <= FIRST_WINDOW, "{bytes} bytes for {FORGED} datagrams of {}", forged.len());
    within("more of it", relay.back.recv(&mut [0; 2_048])).await.unwrap();
    assert_eq!(received(&victim).await, 0);
    litequic.stop().await;
}

/// What `disable_active_migration` forbids is the client's to leave; a NAT does not ask.
#[tokio::test]
async fn nat_rebinding_is_followed_although_migration_is_disabled() {
    for migration in [false, true] {
        let litequic = Litequic::demo(|config| config.listen.migration = migration).await;
        let tls = client_config(&ServerTrust::Insecure).unwrap();
        let observer = quic::Observer::default();
        let _connection = quic::connect_client(litequic.address, "localhost", tls, DEADLINE, &observer).await.unwrap();
        let observed = observer.observed_state();
        let server = observed.server_parameters.unwrap();
        let mut parameters = server.compare_with(&observed.own_parameters);
        let (_, disabled, own) = parameters.find(|(name, ..)| *name == "disable_active_migration").unwrap();
        assert_eq!((&*disabled, &*own), (if migration { "0" } else { "1" }, "0"));
        drop(parameters);

        let link = Link::between(litequic.address, Faults::default());
        let transport = client::transport_of_a_client_that_moves();
        let client = Client::connect(link.address, &litequic.cert_pem, transport).await;
        let mut download = client.begin_get("/bytes/2M").await;
        client::header(&mut download).await;
        let mut bytes = 0;
        while let Some(chunk) = within("the body", download.recv_data()).await.unwrap() {
            if bytes == 0 {
                link.rebind();
            }
            bytes += chunk.remaining();
        }
        assert_eq!(bytes, 2_000_000);
        assert_eq!(link.moves(), 1);
        drop(client);
        litequic.stop().await;
    }
}

/// The client has nothing to say but its answer, which is sent once.
#[tokio::test]
async fn a_download_survives_migration_with_a_lost_path_response() {
    const BYTES: usize = 5_000_000;
    let litequic = Litequic::demo(|_| {}).await;
    let relay = Relay::before(&litequic).await;
    let mut transport = quinn::TransportConfig::default();
    // Probes of the MTU are large too.
    transport.mtu_discovery_config(None);
    let (moved, lost) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = async {
        let address = relay.front.local_addr().unwrap();
        let client = Client::connect(address, &litequic.cert_pem, transport).await;
        let mut download = client.begin_get("/bytes/5M").await;
        client::header(&mut download).await;
        let mut bytes = 0;
        while let Some(chunk) = within("the body", download.recv_data()).await.unwrap() {
            bytes += chunk.remaining();
            moved.store(true, Relaxed);
        }
        bytes
    };
    assert_eq!(relay.beneath_a_move(&moved, &lost, work).await, BYTES);
    assert!(lost.load(Relaxed) > 0, "the client was asked whether it has moved");
    assert!(litequic.sum(|worker| worker.quic.path_challenges_repeated.get()) > 0);
    litequic.stop().await;
}

//! Tests which changes of its address a client's connection survives, over a socket that pretends the client's address.

use super::{
    QuicEndpoint,
    start::tests::{client_tls, parts, request_echo, spawn_echo},
    start_endpoint,
};
use crate::{SocketIo, identity::WorkerIndex};
use litequic_config::Limits;
use litequic_net::datagram::{DatagramHeader, OutgoingBatch, Receive, Transmit};
use quinn::crypto::rustls::QuicClientConfig;
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};
use tokio::{io::ReadBuf, net::UdpSocket as TokioUdpSocket};

/// Datagrams that a refused address sends before the client gives it up.
const REFUSED_DATAGRAMS: usize = 3;

/// The client's address for the server, and the addresses of datagrams in both directions.
#[derive(Clone)]
struct Pretence(Arc<Mutex<PretenceState>>);

struct PretenceState {
    address: SocketAddr,
    received: Vec<SocketAddr>,
    sent: Vec<SocketAddr>,
}

impl Pretence {
    fn move_client(&self, address: &str) {
        self.0.lock().unwrap().address = address.parse().unwrap();
    }

    fn count_received(&self, address: &str) -> usize {
        self.0.lock().unwrap().received.iter().filter(|from| from.to_string() == address).count()
    }

    fn has_sent(&self, address: &str) -> bool {
        self.0.lock().unwrap().sent.iter().any(|to| to.to_string() == address)
    }
}

/// The receiving half, of one datagram a batch.
struct PretendingReceiver {
    socket: Arc<TokioUdpSocket>,
    client: Arc<Mutex<Option<SocketAddr>>>,
    pretence: Pretence,
    buffer: Vec<u8>,
    header: Option<DatagramHeader>,
    len: usize,
}

impl Receive for PretendingReceiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        let from = ready!(self.socket.poll_recv_from(cx, &mut buffer))?;
        self.len = buffer.filled().len();
        *self.client.lock().unwrap() = Some(from);
        let mut pretence = self.pretence.0.lock().unwrap();
        let client = pretence.address;
        pretence.received.push(client);
        let local = SocketAddress::from(self.socket.local_addr()?);
        let addresses = Tuple { remote_address: SocketAddress::from(client).into(), local_address: local.into() };
        self.header = Some(DatagramHeader { path: addresses.into(), ecn: Ecn::NotEct });
        Poll::Ready(Ok(1))
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn datagram(&mut self, _: usize) -> Option<(DatagramHeader, &mut [u8])> {
        Some((self.header?, self.buffer.get_mut(..self.len)?))
    }
}

/// The sending half, which sends all datagrams to the client's real address.
struct PretendingSender {
    socket: UdpSocket,
    client: Arc<Mutex<Option<SocketAddr>>>,
    pretence: Pretence,
}

impl Transmit for PretendingSender {
    fn max_segments(&self) -> usize {
        1
    }

    fn transmit(&mut self, outgoing: &mut OutgoingBatch) {
        let client = self.client.lock().unwrap().unwrap();
        for message in outgoing.messages() {
            self.pretence.0.lock().unwrap().sent.push(message.path.addresses.remote_address.into());
            self.socket.send_to(outgoing.payload(message), client).unwrap();
        }
        outgoing.remove_messages(outgoing.messages().len());
    }

    fn poll_writable(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Starts an endpoint that sends back received data, to which clients come from the address of the pretence.
fn start_pretending_server(address: &str) -> (SocketAddr, Pretence) {
    let parts = parts(Limits::default());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let local = socket.local_addr().unwrap();
    let state = PretenceState { address: address.parse().unwrap(), received: Vec::new(), sent: Vec::new() };
    let pretence = Pretence(Arc::new(Mutex::new(state)));
    let client = Arc::default();
    let transmit = PretendingSender {
        socket: socket.try_clone().unwrap(),
        client: Arc::clone(&client),
        pretence: pretence.clone(),
    };
    let socket = Arc::new(TokioUdpSocket::from_std(socket).unwrap());
    let (buffer, pretence_of_receiver) = (vec![0; 2048], pretence.clone());
    let receive = PretendingReceiver { socket, client, pretence: pretence_of_receiver, buffer, header: None, len: 0 };
    let io = SocketIo { receive, transmit, local, may_probe_mtu: false };
    let QuicEndpoint { server, .. } = start_endpoint(io, local, WorkerIndex(0), &parts).unwrap();
    spawn_echo(server);
    (local, pretence)
}

#[tokio::test]
async fn a_client_moves_to_an_address_that_reaches_as_far() {
    let table = [
        ("10.0.0.2:5000", "10.0.0.2:6000", true),
        ("10.0.0.2:5000", "8.0.0.5:6000", true),
        ("192.168.7.7:5000", "100.64.1.1:6000", true),
        ("100.64.1.1:5000", "[2600::1]:6000", true),
        ("[fd00::1]:5000", "[2600::1]:6000", true),
        ("[fe80::1]:5000", "[fd00::1]:6000", true),
        ("127.0.0.1:5000", "8.0.0.5:6000", true),
        ("8.0.0.5:5000", "8.0.0.5:1000", true),
        ("8.0.0.5:1000", "8.0.0.6:6000", true),
        ("8.0.0.5:5000", "8.0.0.5:53", false),
        ("8.0.0.5:5000", "10.0.0.2:6000", false),
        ("8.0.0.5:5000", "100.64.1.1:6000", false),
        ("[2600::1]:5000", "[fd00::1]:6000", false),
        ("[2600::1]:5000", "[fe80::1]:6000", false),
        ("10.0.0.2:5000", "169.254.1.1:6000", false),
        ("10.0.0.2:5000", "127.0.0.1:6000", false),
    ];
    for (before, after, is_admitted) in table {
        let (server, pretence) = start_pretending_server(before);
        let mut client = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let tls = QuicClientConfig::try_from(client_tls()).unwrap();
        client.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        let connection = client.connect(server, "localhost").unwrap().await.unwrap();
        request_echo(&connection).await;
        pretence.move_client(after);
        if is_admitted {
            request_echo(&connection).await;
            assert!(pretence.has_sent(after), "from {before} to {after}");
            // Back: a path that is known needs no check.
            pretence.move_client(before);
            request_echo(&connection).await;
        } else {
            let give_up = async {
                while pretence.count_received(after) < REFUSED_DATAGRAMS {
                    tokio::task::yield_now().await;
                }
                pretence.move_client(before);
            };
            tokio::join!(request_echo(&connection), give_up);
            assert!(!pretence.has_sent(after), "from {before} to {after}");
        }
    }
}

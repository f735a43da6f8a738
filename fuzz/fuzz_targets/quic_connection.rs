//! Whole connections over QUIC, beneath s2n-quic's decryption: a real handshake, then whatever frames a client wants in
//! its packets, or streams with whatever HTTP/3. Nothing panics, each connection ends within its timeouts, and no
//! memory stays accounted to one that has ended.
//!
//! The first byte is the settings. Packets follow, each with a kind, a length, and contents.
#![no_main]

mod by_hand;
mod support;

use by_hand::{
    proxy::Litequic,
    wire::{Hello, Level, Sent, Wire, stream},
};
use libfuzzer_sys::fuzz_target;
use litequic_base::lifecycle::Lifecycle;
use litequic_config::{Config, OriginAddress};
use litequic_exchange::{Client, RequestRecorder, terms::CurrentTerms};
use litequic_http3 as http3;
use litequic_net::{Backend, OpenSocket, SocketOptions};
use litequic_quic::{self as quic, EndpointParts, QuicTransport, Secrets, SocketIo, WorkerIndex};
use litequic_resources::{receive::ReceiveBudget, send::SendBudget, transport::Transport};
use litequic_tls::{self as tls, ServerTls};
use std::{
    collections::BTreeMap,
    env,
    net::UdpSocket,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};
use support::{answers::Answers, certificates, on_a_worker, settle};
use tokio::{sync::watch, task::spawn_local, time::sleep};

/// A budget of 1 MiB.
const BUDGET: u64 = 1 << 20;
/// Bytes of a packet's frames at most: with its header and tag it fits into the smallest datagram of QUIC.
const LARGEST: usize = 1100;
/// Packets of an input at most.
const PACKETS: usize = 64;
/// An environment variable with which what came of the server is printed.
const SHOW: &str = "LITEQUIC_FUZZ_SHOW";
/// Longer than `timeouts.idle`, and than the draining period that follows.
const IDLE: Duration = Duration::from_secs(600);

fuzz_target!(|input: &[u8]| {
    let Some((&settings, packets)) = input.split_first() else { return };
    on_a_worker(|| connection(settings, packets));
});

async fn connection(settings: u8, packets: &[u8]) {
    let is = |bit: u8| settings & bit > 0;
    let (is_half, is_early, vanishes) = (is(1), is(2), is(4));
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    socket.set_nonblocking(true).expect("a mode of sockets");
    let address = socket.local_addr().expect("an address");
    let origin = OriginAddress::Tcp { host: "192.0.2.1".into(), port: 80 };
    let config = Config::with_defaults(address, origin, PathBuf::new(), PathBuf::new()).into_live();
    let options = SocketOptions { backend: Backend::Epoll, receive_batch: 16, gso: false, gro: false };
    let open = OpenSocket::new(socket, options, Arc::default()).expect("a socket");
    let io =
        SocketIo { receive: open.receiver, transmit: open.sender, local: address, may_probe_mtu: open.may_probe_mtu };
    let (lifecycle, budget) = (Lifecycle::default(), SendBudget::for_worker(BUDGET));
    let receive = ReceiveBudget::new(BUDGET, 0);
    let parts = EndpointParts::for_one_worker(Arc::clone(&config), server_tls().clone()).expect("random bytes");
    let parts = EndpointParts { receive: receive.clone(), ..parts };
    let metrics = Arc::clone(&parts.metrics);
    let endpoint = quic::start_endpoint(io, address, WorkerIndex(0), &parts).expect("an endpoint");
    let front = Rc::new(http3::Http3Worker {
        terms: CurrentTerms::new(config),
        metrics: Arc::default(),
        covers: Rc::new(|_: &Client, host: &str| host != "elsewhere.test"),
        client_address: quic::client_address,
        transport: |_| None,
        send: Rc::clone(&budget),
        registry: Rc::default(),
        watch: lifecycle.watch_phase(),
        is_enabled: watch::channel(true).1,
        records: RequestRecorder::default(),
        denied: Arc::default(),
    });
    let quic::QuicEndpoint { mut server, connections } = endpoint;
    let windows: Rc<dyn Transport> = Rc::new(QuicTransport(connections));
    let accepting = spawn_local(async move {
        while let Some(connection) = server.accept().await {
            spawn_local(http3::serve_http3(connection, Rc::new(Answers), Rc::clone(&front), Rc::clone(&windows)));
        }
    });

    let litequic = Litequic { address, cert_pem: String::new() };
    let mut wire = Wire::new(&litequic, Hello::to(&litequic)).await;
    let mut packets = Packets::of(packets);
    if is_early {
        // Initials are encrypted with keys that anyone can derive.
        while let Some(packet) = packets.next(Level::Initial) {
            wire.send(&[packet]).await;
            settle().await;
        }
    } else if is_half {
        wire.half_a_handshake().await;
        while wire.close.is_none()
            && let Some(packet) = packets.next(Level::Handshake)
        {
            wire.send(&[packet]).await;
            settle().await;
        }
    } else {
        assert!(wire.handshake().await, "a handshake");
        let answers = |wire: &Wire| wire.close.is_some();
        while !answers(&wire)
            && let Some(packet) = packets.next(Level::OneRtt)
        {
            let is_alone = packets.is_alone;
            wire.send(&[packet]).await;
            if is_alone {
                settle().await;
            }
        }
        if !vanishes {
            // What came in answer, and a wait for more, in which everything is sent once more.
            wire.receive().await;
            wire.receive().await;
            wire.send(&[Sent::new(Level::OneRtt, [0x1c, 0, 0, 0])]).await;
        }
    }
    if env::var_os(SHOW).is_some() {
        eprintln!("{:?}, {:?}", wire.close, wire.streams);
    }
    drop(wire);
    sleep(IDLE).await;
    assert_eq!(
        (budget.leased_bytes(), receive.buffered_bytes(), receive.granted_bytes()),
        (0, 0, 0),
        "of a connection that has ended"
    );
    assert_eq!((metrics.connections_held.get(), metrics.handshakes_open.get()), (0, 0));
    accepting.abort();
    let _ = accepting.await;
    settle().await;
}

/// The packets of an input.
struct Packets<'a> {
    rest: &'a [u8],
    left: usize,
    /// How much was sent on each stream.
    offsets: BTreeMap<u64, u64>,
    /// What comes next is sent once this packet was answered.
    is_alone: bool,
}

impl<'a> Packets<'a> {
    fn of(rest: &'a [u8]) -> Self {
        Self { rest, left: PACKETS, offsets: BTreeMap::new(), is_alone: false }
    }

    /// The next one.
    fn next(&mut self, level: Level) -> Option<Sent> {
        let (&[kind, length], rest) = self.rest.split_first_chunk::<2>()?;
        self.left = self.left.checked_sub(1)?;
        // An odd length is eight times as much.
        let length = usize::from(length >> 1) << (3 * (length & 1));
        let (contents, rest) = rest.split_at(rest.len().min(length).min(LARGEST));
        self.rest = rest;
        self.is_alone = kind & 1 > 0;
        let frames = if level == Level::OneRtt && kind & 2 > 0 {
            // Data of a stream, behind what was sent on it.
            let id = u64::from(kind >> 3);
            let offset = self.offsets.entry(id).or_default();
            let frame = stream(id, *offset, contents, kind & 4 > 0);
            *offset += contents.len() as u64;
            frame
        } else {
            contents.to_vec()
        };
        let flip = if kind & 6 == 4 { kind & 0x38 } else { 0 };
        Some(Sent { flip, ..Sent::new(level, frames) })
    }
}

/// The server's side of TLS, made once.
fn server_tls() -> &'static ServerTls {
    static TLS: OnceLock<ServerTls> = OnceLock::new();
    TLS.get_or_init(|| {
        let secrets = Secrets::from_random().expect("random bytes");
        ServerTls::new(tls::server_config(certificates(), false, &secrets.tickets).expect("a configuration"))
    })
}

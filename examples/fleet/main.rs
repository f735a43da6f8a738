//! A client of several replicas behind a load balancer, for packaging/verify/fleet.sh: connections whose client moves,
//! session tickets of one replica at another, and an attacker who has one replica reset connections of another. Quinn
//! and h3, so that litequic is not measured by its own ideas.
//!
//! Certificates are not verified: for a network of one's own only.
#![expect(clippy::print_stdout, reason = "a command that reports")]

mod origin;
mod tap;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf, Bytes};
use clap::{Args, Parser, Subcommand};
use futures_util::future;
use h3::client::{RequestStream, SendRequest};
use h3_quinn::BidiStream;
use http::Request;
use litequic_tls::{ServerTrust, client_config};
use quinn::{
    AsyncUdpSocket, ClientConfig, ConnectionError, Endpoint, Runtime as _, TokioRuntime, TransportConfig, VarInt,
    crypto::rustls::QuicClientConfig,
    rustls::{
        self, DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tap::Tap;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

/// The name that clients ask for.
const HOST: &str = "fleet.test";
/// How long a handshake and a small request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the rest of a response may take: a client without an answer probes for several seconds, in vain.
const REST: Duration = Duration::from_secs(8);
/// Bytes of a response that is in flight when its client moves, and of them those that a client takes ahead.
const RESPONSE: usize = 2_000_000;
const WINDOW: u32 = 64 * 1024;
/// After a client's port has changed, a server learns of it by what the client sends: one that waits for data which went
/// to its old port has nothing to send.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long an attacker waits for an answer, and a client for what it does to it.
const ANSWER: Duration = Duration::from_millis(300);
/// Ports from which an attacker sends a packet for one connection: a replica of three is met by one of them.
const ATTEMPTS: u32 = 8;
/// Connections before a run gives up to meet another replica.
const MAX_CONNECTIONS: u32 = 1000;

#[derive(Debug, Parser)]
#[command(about = "Connects to replicas behind a load balancer, moves, resumes, and attacks")]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Serves plain HTTP/1.1: `/` is the name of this replica, `/bytes/N` has N bytes.
    Origin { address: SocketAddr, name: String },
    /// Clients whose port changes (NAT), then clients that migrate, each with a response in flight.
    Moves {
        #[command(flatten)]
        peers: Peers,
        /// The address that clients migrate to.
        #[arg(long)]
        to: Ipv4Addr,
    },
    /// Clients with a response in flight each while a command runs, after which they take the rest.
    Through {
        #[command(flatten)]
        peers: Peers,
        /// What happens meanwhile, for sh.
        #[arg(long)]
        command: String,
        /// Every other client's port changes after it, and the others migrate to this address.
        #[arg(long)]
        to: Option<Ipv4Addr>,
    },
    /// Sends a packet with each client's connection ID from other ports, and gives the answers to the client.
    Resets {
        #[command(flatten)]
        peers: Peers,
        /// The attacker's address.
        #[arg(long)]
        to: Ipv4Addr,
    },
    /// Resumes sessions until as many were offered to another replica than the one that issued their ticket.
    Resume {
        #[command(flatten)]
        peers: Peers,
    },
    /// Resumes sessions from the ports that they began at, after a command.
    Across {
        #[command(flatten)]
        peers: Peers,
        /// What happens between the two, for sh.
        #[arg(long)]
        command: String,
    },
    /// Handshakes one after the other, without a request.
    Handshakes {
        #[command(flatten)]
        peers: Peers,
        /// Whether all but the first resume.
        #[arg(long)]
        resumed: bool,
    },
}

#[derive(Debug, Args)]
struct Peers {
    /// The address of the load balancer.
    server: SocketAddr,
    /// The client's address.
    #[arg(long)]
    from: Ipv4Addr,
    /// How many.
    #[arg(long, default_value_t = 30)]
    count: u32,
}

/// Accepts every certificate, and counts full handshakes by them.
#[derive(Debug)]
struct Counting {
    full: Arc<AtomicU32>,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.full.fetch_add(1, Relaxed);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 over QUIC".into()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// A client's configuration with the session tickets of all its connections.
#[derive(Clone)]
struct Browser {
    config: ClientConfig,
    full: Arc<AtomicU32>,
}

impl Browser {
    fn new() -> Result<Self> {
        Self::with_keep_alive(None)
    }

    /// A browser whose connections send a PING after each `interval` of silence.
    fn with_keep_alive(interval: Option<Duration>) -> Result<Self> {
        let mut tls: rustls::ClientConfig = client_config(&ServerTrust::Insecure)?;
        let schemes = tls.crypto_provider().signature_verification_algorithms.supported_schemes();
        let full = Arc::<AtomicU32>::default();
        tls.dangerous().set_certificate_verifier(Arc::new(Counting { full: Arc::clone(&full), schemes }));
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(WINDOW.into());
        transport.keep_alive_interval(interval);
        config.transport_config(Arc::new(transport));
        Ok(Self { config, full })
    }

    fn full_handshakes(&self) -> u32 {
        self.full.load(Relaxed)
    }

    async fn quic(&self, server: SocketAddr, from: SocketAddr) -> Result<(Endpoint, quinn::Connection, Arc<Tap>)> {
        let socket = TokioRuntime.wrap_udp_socket(UdpSocket::bind(from)?)?;
        let tap = Arc::new(Tap::new(socket, server));
        let abstract_socket = Arc::clone(&tap) as Arc<dyn AsyncUdpSocket>;
        let endpoint =
            Endpoint::new_with_abstract_socket(<_>::default(), None, abstract_socket, Arc::new(TokioRuntime))?;
        let connecting = endpoint.connect_with(self.config.clone(), server, HOST)?;
        let quic = timeout(PATIENCE, connecting).await.context("no handshake")??;
        Ok((endpoint, quic, tap))
    }

    async fn connect(&self, server: SocketAddr, from: SocketAddr) -> Result<Client> {
        let (endpoint, quic, tap) = self.quic(server, from).await?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await?;
        let driver = tokio::spawn(async move { drop(future::poll_fn(|cx| driver.poll_close(cx)).await) });
        Ok(Client { endpoint, quic, tap, requests, driver })
    }
}

/// A connection.
struct Client {
    endpoint: Endpoint,
    quic: quinn::Connection,
    tap: Arc<Tap>,
    requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<()>,
}

impl Client {
    /// The body of `path`; `between` runs once its first piece is there.
    async fn get(&mut self, path: &str, between: impl FnOnce(&Self) -> Result<()>) -> Result<Vec<u8>> {
        let request = Request::get(format!("https://{HOST}{path}")).body(())?;
        let mut stream = self.requests.send_request(request).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        ensure!(response.status() == 200, "{}", response.status());
        let (mut body, mut between) = (Vec::new(), Some(between));
        while let Some(mut piece) = stream.recv_data().await? {
            body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
            if let Some(between) = between.take() {
                between(self)?;
            }
        }
        Ok(body)
    }

    /// The name of the replica.
    async fn replica(&mut self) -> Result<String> {
        let body = timeout(PATIENCE, self.get("/", |_| Ok(()))).await.context("no answer")??;
        Ok(String::from_utf8(body)?)
    }

    async fn close(self) {
        self.quic.close(VarInt::from_u32(0x100), b"");
        drop(self.requests);
        let _ = self.driver.await;
        self.endpoint.wait_idle().await;
    }
}

/// Whether the connection goes on when its client moves by `how` in the middle of a response.
async fn moved(peers: &Peers, how: impl FnOnce(&Client) -> Result<()>) -> Result<bool> {
    let mut client = Browser::new()?.connect(peers.server, (peers.from, 0).into()).await?;
    client.replica().await?;
    let download = timeout(REST, client.get(&format!("/bytes/{RESPONSE}"), how)).await;
    let whole = download.is_ok_and(|body| body.is_ok_and(|body| body.len() == RESPONSE));
    client.close().await;
    Ok(whole)
}

async fn moves(peers: Peers, to: Ipv4Addr) -> Result<bool> {
    let peers = Arc::new(peers);
    for (what, migrates) in [("whose port changes", false), ("that migrate", true)] {
        let mut all = JoinSet::new();
        for _ in 0..peers.count {
            let peers = Arc::clone(&peers);
            all.spawn(async move {
                moved(&peers, |client| {
                    if migrates {
                        client.endpoint.rebind(UdpSocket::bind((to, 0))?)?;
                    } else {
                        client.tap.replace(TokioRuntime.wrap_udp_socket(UdpSocket::bind((peers.from, 0))?)?);
                    }
                    Ok(())
                })
                .await
            });
        }
        let kept: Result<Vec<bool>> = all.join_all().await.into_iter().collect();
        let kept = kept?.into_iter().filter(|kept| *kept).count();
        println!("clients {what}: {kept} of {} connections kept", peers.count);
    }
    Ok(true)
}

/// A connection with a response in flight.
struct Downloading {
    client: Client,
    stream: RequestStream<BidiStream<Bytes>, Bytes>,
    received: usize,
}

impl Downloading {
    /// A connection from `peers`, and the first piece of a response.
    async fn begin(peers: &Peers) -> Result<Self> {
        let browser = Browser::with_keep_alive(Some(KEEP_ALIVE))?;
        let mut client = browser.connect(peers.server, (peers.from, 0).into()).await?;
        client.replica().await?;
        let request = Request::get(format!("https://{HOST}/bytes/{RESPONSE}")).body(())?;
        let mut stream = client.requests.send_request(request).await?;
        stream.finish().await?;
        stream.recv_response().await?;
        let received = stream.recv_data().await?.map_or(0, |piece| piece.remaining());
        Ok(Self { client, stream, received })
    }

    /// Whether the whole response arrives.
    async fn finish(mut self) -> bool {
        let rest = async {
            while let Some(piece) = self.stream.recv_data().await? {
                self.received += piece.remaining();
            }
            anyhow::Ok(())
        };
        let is_whole = timeout(REST, rest).await.is_ok_and(|rest| rest.is_ok()) && self.received == RESPONSE;
        drop(self.stream);
        self.client.close().await;
        is_whole
    }
}

async fn through(peers: Peers, command: &str, to: Option<Ipv4Addr>) -> Result<bool> {
    let peers = Arc::new(peers);
    let mut beginning = JoinSet::new();
    for _ in 0..peers.count {
        let peers = Arc::clone(&peers);
        beginning.spawn(async move { Downloading::begin(&peers).await });
    }
    let all: Vec<Downloading> = beginning.join_all().await.into_iter().collect::<Result<_>>()?;
    let status = tokio::process::Command::new("sh").args(["-c", command]).status().await?;
    ensure!(status.success(), "{command}: {status}");
    let mut finishing = JoinSet::new();
    for (n, one) in all.into_iter().enumerate() {
        match to {
            Some(to) if n % 2 == 0 => one.client.endpoint.rebind(UdpSocket::bind((to, 0))?)?,
            Some(_) => one.client.tap.replace(TokioRuntime.wrap_udp_socket(UdpSocket::bind((peers.from, 0))?)?),
            None => {}
        }
        finishing.spawn(one.finish());
    }
    let kept = finishing.join_all().await.into_iter().filter(|kept| *kept).count();
    println!("{kept} of {} connections and responses kept", peers.count);
    Ok(true)
}

/// What came of an attack on one connection.
struct Attack {
    /// A replica that does not have the connection answered.
    answered: bool,
    /// An answer ended the connection.
    reset: bool,
}

async fn attack(peers: &Peers, from: Ipv4Addr) -> Result<Attack> {
    let mut client = Browser::new()?.connect(peers.server, (peers.from, 0).into()).await?;
    client.replica().await?;
    let id = client.tap.destination().context("no packet with a short header")?;
    let mut answered = false;
    for _ in 0..ATTEMPTS {
        let socket = tokio::net::UdpSocket::bind((from, 0)).await?;
        let packet = [&[0x41][..], &id, &rand::random::<[u8; 32]>(), &rand::random::<[u8; 32]>()].concat();
        socket.send_to(&packet, peers.server).await?;
        let mut buffer = [0; 1500];
        // Its own replica drops the packet, which fails authentication.
        let Ok(received) = timeout(ANSWER, socket.recv(&mut buffer)).await else { continue };
        answered = true;
        client.tap.inject(buffer.get(..received?).unwrap_or_default());
        if let Ok(end) = timeout(ANSWER, client.quic.closed()).await {
            ensure!(end == ConnectionError::Reset, "ended otherwise: {end}");
            return Ok(Attack { answered, reset: true });
        }
    }
    client.replica().await?;
    client.close().await;
    Ok(Attack { answered, reset: false })
}

async fn resets(peers: Peers, from: Ipv4Addr) -> Result<bool> {
    let peers = Arc::new(peers);
    let mut all = JoinSet::new();
    for _ in 0..peers.count {
        let peers = Arc::clone(&peers);
        all.spawn(async move { attack(&peers, from).await });
    }
    let attacks: Vec<Attack> = all.join_all().await.into_iter().collect::<Result<_>>()?;
    let count = |what: fn(&Attack) -> bool| attacks.iter().filter(|attack| what(attack)).count();
    let (answered, reset) = (count(|attack| attack.answered), count(|attack| attack.reset));
    println!(
        "another replica answered for {answered} of {} connections; its token was the client's: {reset}",
        peers.count
    );
    Ok(reset == 0 && answered > 0)
}

async fn resume(peers: &Peers) -> Result<bool> {
    let browser = Browser::new()?;
    // Resumed and full handshakes, at the replica that issued the ticket and at another one.
    let mut found = BTreeMap::<(bool, bool), u32>::new();
    let mut last: Option<String> = None;
    let at = |found: &BTreeMap<(bool, bool), u32>, key| found.get(&key).copied().unwrap_or_default();
    for _ in 0..MAX_CONNECTIONS {
        if at(&found, (true, true)) + at(&found, (true, false)) == peers.count {
            break;
        }
        let before = browser.full_handshakes();
        let mut client = browser.connect(peers.server, (peers.from, 0).into()).await?;
        let resumed = browser.full_handshakes() == before;
        let replica = client.replica().await?;
        // rustls offers the newest ticket: that of the connection before.
        if let Some(last) = &last {
            *found.entry((*last != replica, resumed)).or_default() += 1;
        }
        last = Some(replica);
        client.close().await;
    }
    let (resumed, full) = (at(&found, (true, true)), at(&found, (true, false)));
    let (own, own_full) = (at(&found, (false, true)), at(&found, (false, false)));
    println!(
        "sessions resumed at another replica: {resumed} of {}; at the replica that issued the ticket: {own} of {}",
        resumed + full,
        own + own_full
    );
    Ok(resumed == peers.count)
}

async fn across(peers: &Peers, command: &str) -> Result<bool> {
    let mut sessions = Vec::new();
    for _ in 0..peers.count {
        let browser = Browser::new()?;
        let mut client = browser.connect(peers.server, (peers.from, 0).into()).await?;
        let (port, replica) = (client.tap.local_addr()?.port(), client.replica().await?);
        client.close().await;
        sessions.push((browser, port, replica));
    }
    let status = Command::new("sh").args(["-c", command]).status()?;
    ensure!(status.success(), "{command}: {status}");
    let mut resumed = 0;
    for (browser, port, replica) in &sessions {
        let mut client = browser.connect(peers.server, (peers.from, *port).into()).await?;
        ensure!(client.replica().await? == *replica, "the load balancer has changed its mind");
        resumed += u32::from(browser.full_handshakes() == 1);
        client.close().await;
    }
    println!("sessions resumed after it: {resumed} of {}", peers.count);
    Ok(resumed == peers.count)
}

async fn handshakes(peers: &Peers, resumed: bool) -> Result<bool> {
    let browser = Browser::new()?;
    for n in 0..peers.count {
        let browser = if resumed { browser.clone() } else { Browser::new()? };
        let full = browser.full_handshakes();
        let (endpoint, quic, _) = browser.quic(peers.server, (peers.from, 0).into()).await?;
        // The server's control stream: tickets came before it.
        drop(timeout(PATIENCE, quic.accept_uni()).await.context("no control stream")??);
        if resumed && n > 0 && browser.full_handshakes() != full {
            bail!("handshake {n} was a full one");
        }
        quic.close(VarInt::from_u32(0x100), b"");
        endpoint.wait_idle().await;
    }
    Ok(true)
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let good = match options.what {
        What::Origin { address, name } => origin::serve(address, &name)?,
        What::Moves { peers, to } => runtime.block_on(moves(peers, to))?,
        What::Through { peers, command, to } => runtime.block_on(through(peers, &command, to))?,
        What::Resets { peers, to } => runtime.block_on(resets(peers, to))?,
        What::Resume { peers } => runtime.block_on(resume(&peers))?,
        What::Across { peers, command } => runtime.block_on(across(&peers, &command))?,
        What::Handshakes { peers, resumed } => runtime.block_on(handshakes(&peers, resumed))?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! One worker's QUIC endpoint on one listen address.
//!
//! s2n-quic calls the providers below without saying for which connection. So the connection at hand is kept in three
//! places, each for the two callbacks that it lies between:
//! - `handshake::HandshakePacket`: its ID, from the packet interceptor (Initial and Handshake packets) to TLS;
//! - `AckFrequencyEndpoint` and `PathChallenges` of `connection`: its state, from the event of a new connection to
//!   `create_connection` of its datagram sender (`frame_slot`); and whose placeholder the packet that is being built
//!   has, from that sender to the interceptor;
//! - `close::PendingClose`: its error, from the interceptor to the CONNECTION_CLOSE that is formatted next.

mod address_token;
mod admission;
mod amplification;
mod close;
mod connection_slot;
mod events;
pub(super) mod frame_slot;
mod handshake;
mod interceptor;
mod receive_grants;
mod recovery;
mod response_limit;
mod wakes;

pub use admission::SourceLimits;
pub use events::client_address;

use crate::{
    config::{Config, Live},
    lifecycle::PhaseWatch,
    memory::Pressure,
    quic::{
        congestion::{ControllerFactory, SpuriousLosses},
        connection::{AckFrequencyEndpoint, ConnectionTable, PathChallenges},
        identity::{
            Generations, IdScheme, Secrets,
            connection_id::{ConnectionIdFormat, OwnIds, WorkerIndex},
            retry_id::RetryIds,
            stateless_reset,
        },
        io::{EndpointHooks, EndpointIo, MAX_MTU, Moderation, ReceiveBatchNumber},
        metrics::Metrics,
    },
    receive_budget::ReceiveBudget,
};
use admission::{Admission, ConnectionAttemptLimiter, ip, network};
use amplification::{AmplificationGuard, ToIssuedId};
use close::{CloseFormatter, PendingClose};
use events::EventSubscriber;
use frame_slot::FrameSlotEndpoint;
use handshake::{HandshakePacket, TlsEndpoint};
use interceptor::PacketInterceptor;
use receive_grants::ReceiveGrants;
use response_limit::ResetLimitedTls;
use s2n_quic::{
    Server,
    provider::{io, limits as connection, tls},
};
use s2n_quic_core::connection::limits::ValidationError;
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

/// Unidirectional streams that a client may open: control, QPACK encoder and decoder (RFC 9114 §6.2), and a few of
/// unknown types, which clients send to exercise extensibility (§9).
const MAX_UNI_STREAMS: u64 = 16;
/// Bytes of a unidirectional stream: SETTINGS and PRIORITY_UPDATE are small.
const UNI_STREAM_WINDOW: u64 = 64 * 1024;
/// How long an acknowledgement is delayed at most; clients get it in the transport parameter `max_ack_delay`, and probe
/// for lost packets that much later (RFC 9002 §6.2.1).
///
/// s2n-quic acknowledges every tenth packet (no setting changes that), a gap at once, and everything else after this
/// delay. Its timers have a granularity of 1 ms: a packet that comes more than 1 ms after the first one that is not
/// acknowledged yet has both acknowledged. So 2 ms is every second packet of an upload at 10 Mbit/s, as RFC 9000
/// §13.2.2 wants, every fourth at 20 Mbit/s, and every tenth from 100 Mbit/s on. With s2n-quic's 25 ms, ten packets in
/// a buffer that has room for eight are a sender's whole window. It costs an upload at more than 100 Mbit/s nothing:
/// ACK frames are sent once a batch of datagrams was received whole, and such a batch holds ten packets. A request
/// whose response takes longer than this is acknowledged by a packet of its own.
const MAX_ACK_DELAY: Duration = Duration::from_millis(2);
/// Bytes of the receive queue with s2n-quic's own I/O: 32 messages of 64 KiB, as the kernel's GRO fills them.
/// s2n-quic's default of 8 MiB is a small container's memory once there are several workers.
const RECEIVE_QUEUE: usize = 32 * 65_535;
/// Bytes of its send queue: 16 messages of the 10 segments that s2n-quic's own I/O puts into one.
const SEND_QUEUE: usize = 16 * 10 * MAX_MTU as usize;

/// The parts of an endpoint, beside its socket. Cheap to clone: one for each endpoint of a worker.
#[derive(Debug, Clone)]
pub struct EndpointParts<T> {
    /// Limits and timeouts: each connection has those in force when it begins.
    pub config: Live,
    /// The server's side of TLS: certificates and the key of session tickets, the same for all workers.
    pub tls: T,
    /// Token keys, the same for all workers.
    pub secrets: Arc<Secrets>,
    /// How connection IDs are made, the same for all workers.
    pub ids: Arc<IdScheme>,
    /// Distinguishes this process' connection IDs from another's on the same port.
    pub generation: u8,
    /// Generations of the other processes that run.
    pub others: Arc<Generations>,
    /// How many workers there are.
    pub workers: usize,
    /// This worker's counters.
    pub metrics: Arc<Metrics>,
    /// The budget of its clients' windows.
    pub receive: ReceiveBudget,
    /// The sources of its connections, and of its handshakes.
    pub sources: SourceLimits,
    /// How short memory is.
    pub pressure: Pressure,
    /// The phase of the process: one that drains refuses new connections.
    pub watch: PhaseWatch,
}

/// Why an endpoint did not start.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A configured value cannot be expressed in QUIC.
    #[error("QUIC cannot be configured: {0}")]
    Configuration(String),
    /// The socket was rejected.
    #[error("QUIC cannot use its socket: {0}")]
    Socket(#[from] std::io::Error),
    /// s2n-quic did not start.
    #[error("QUIC did not start: {0}")]
    Start(#[from] s2n_quic::provider::StartError),
}

/// A started endpoint.
#[derive(Debug)]
pub struct QuicEndpoint {
    /// The endpoint's connections, to be accepted.
    pub server: Server,
    /// State of the connections by their packets.
    pub connections: ConnectionTable,
}

/// s2n-quic's own I/O on `socket`: four tasks with queues between them. The reference for measurements of litequic's
/// own.
///
/// # Errors
///
/// [`EndpointError::Socket`].
pub fn library_io(socket: UdpSocket, gso: bool, gro: bool) -> Result<io::tokio::Provider, EndpointError> {
    let io = io::tokio::Builder::default()
        .with_rx_socket(socket)?
        .with_max_mtu(MAX_MTU)?
        .with_gso(gso)?
        .with_gro(gro)?
        .with_internal_recv_buffer_size(RECEIVE_QUEUE)?
        .with_internal_send_buffer_size(SEND_QUEUE)?
        .build()?;
    Ok(io)
}

/// Starts `worker`'s endpoint on the socket behind `io`, [`library_io`] or a [`super::SocketIo`], which is bound to
/// `address`. To be called on the worker's thread, inside its runtime, on which the endpoint's tasks are spawned. They
/// end after the [`Server`] is dropped and its last connection has closed.
///
/// # Errors
///
/// [`EndpointError`]: the operator's fault, or litequic's.
pub fn start<T: tls::Provider + Clone>(
    io: impl EndpointIo,
    address: SocketAddr,
    worker: WorkerIndex,
    parts: &EndpointParts<T>,
) -> Result<QuicEndpoint, EndpointError> {
    let (sources, pressure) = (parts.sources.clone(), parts.pressure.clone());
    let (config, metrics) = (Arc::clone(&parts.config), Arc::clone(&parts.metrics));
    let admission = Admission::new(config, metrics, sources, pressure).until_draining(parts.watch.clone());
    let retry = RetryIds::default();
    let generations = (parts.generation, Arc::clone(&parts.others));
    let scheme = Arc::clone(&parts.ids);
    let own_ids = OwnIds::new(&scheme, generations, worker, parts.workers);
    let ids = ConnectionIdFormat::new(own_ids.clone(), scheme, retry.clone(), Arc::clone(&parts.metrics));
    let config = parts.config.load();
    let spurious = SpuriousLosses::new(Arc::clone(&parts.metrics));
    let connections = ConnectionTable::new(&config.limits, spurious.clone(), Arc::clone(&parts.metrics));
    let merge_acks = config.litequic.ack_merge;
    let receive_batch = ReceiveBatchNumber::default();
    let challenges = PathChallenges::new(Arc::clone(&parts.metrics));
    let moderation = Moderation::new(config.litequic.receive_moderation, Arc::clone(&parts.metrics));
    let ack_frequency =
        AckFrequencyEndpoint::new(config.litequic.ack_frequency, Arc::clone(&parts.metrics), moderation.clone());
    let metrics = Arc::clone(&parts.metrics);
    let handshake_packet = HandshakePacket::default();
    let tls_endpoint = TlsEndpoint::new(parts.tls.clone(), ack_frequency.clone(), handshake_packet.clone());
    let pending_close = PendingClose::default();
    let packets = PacketInterceptor::new(
        connections.clone(),
        (receive_batch.clone(), moderation.clone()),
        merge_acks,
        (ack_frequency.clone(), challenges.clone()),
        handshake_packet,
        pending_close.clone(),
        metrics,
    );
    let io = io.bind(EndpointHooks {
        receive_batch,
        layout: parts.ids.layout(),
        newest_first: merge_acks,
        moderation: moderation.clone(),
    });
    let grants = ReceiveGrants::new(parts.receive.clone(), Arc::clone(&parts.metrics));
    let limits = TransportLimits::new(Arc::clone(&parts.config), connections.clone(), grants.clone());
    let limits = limits.map_err(configuration)?;
    let subscriber = EventSubscriber {
        config: Arc::clone(&parts.config),
        metrics: Arc::clone(&parts.metrics),
        sources: parts.sources.clone(),
        moderation: moderation.clone(),
        connections: connections.clone(),
        grants,
        ack_frequency: ack_frequency.clone(),
        challenges: challenges.clone(),
    };
    let to_issued_id = ToIssuedId::default();
    let amplification = AmplificationGuard::new(own_ids, to_issued_id.clone(), retry.clone());
    let at_hand = (Arc::clone(&parts.ids), retry.clone());
    let resets = stateless_reset::Generator::new(&parts.secrets, address, at_hand, Arc::clone(&parts.metrics));

    let controllers = ControllerFactory::new(Arc::clone(&parts.config), moderation, spurious);

    let server = Server::builder()
        .with_tls(ResetLimitedTls::new(tls_endpoint, Arc::clone(&parts.metrics)))
        .and_then(|builder| builder.with_io(io))
        .and_then(|builder| builder.with_limits(limits))
        .and_then(|builder| builder.with_congestion_controller(controllers))
        .and_then(|builder| builder.with_connection_id(ids))
        .and_then(|builder| {
            let secrets = Arc::clone(&parts.secrets);
            builder.with_address_token(address_token::AddressTokenFormat::new(secrets, admission.clone(), retry))
        })
        .and_then(|builder| builder.with_stateless_reset_token(resets))
        .and_then(|builder| builder.with_endpoint_limits(ConnectionAttemptLimiter::new(admission, to_issued_id)))
        .and_then(|builder| builder.with_event(subscriber))
        .and_then(|builder| builder.with_datagram(FrameSlotEndpoint::new(ack_frequency, challenges)))
        .and_then(|builder| builder.with_packet_interceptor((packets, amplification)))
        .and_then(|builder| builder.with_connection_close_formatter(CloseFormatter::new(pending_close)))
        .map_err(configuration)?;
    Ok(QuicEndpoint { server: server.start()?, connections })
}

/// Gives each connection the transport parameters of the current configuration.
struct TransportLimits {
    config: Live,
    connections: ConnectionTable,
    grants: ReceiveGrants,
    /// Transport parameters of the last connection.
    last: connection::Limits,
}

impl TransportLimits {
    fn new(config: Live, connections: ConnectionTable, grants: ReceiveGrants) -> Result<Self, ValidationError> {
        let now = config.load();
        let last = transport_limits(&now, now.limits.connection_receive_buffer.into())?;
        Ok(Self { config, connections, grants, last })
    }
}

impl connection::Limiter for TransportLimits {
    fn on_connection(&mut self, info: &connection::ConnectionInfo<'_>) -> connection::Limits {
        let now = self.config.load();
        // A checked configuration has only values that QUIC can express; otherwise the former ones stay.
        let window = self.grants.begin(&now.limits, network(&now, ip(&info.remote_address)));
        if let Ok(limits) = transport_limits(&now, window) {
            self.last = limits;
            self.connections.set_limits(&now.limits);
        }
        self.last
    }
}

/// The transport parameters (RFC 9000 §18.2) and what s2n-quic bounds beside them, of a connection whose client may
/// send `window` bytes ahead. No keep-alive: an idle connection may end.
fn transport_limits(config: &Config, window: u64) -> Result<connection::Limits, ValidationError> {
    let Config { limits, timeouts, listen, .. } = config;
    connection::Limits::new()
        .with_max_idle_timeout(timeouts.idle)?
        .with_max_ack_delay(MAX_ACK_DELAY)?
        .with_max_handshake_duration(timeouts.handshake)?
        .with_max_open_remote_bidirectional_streams(limits.max_streams.into())?
        .with_max_open_remote_unidirectional_streams(MAX_UNI_STREAMS)?
        .with_data_window(window)?
        .with_bidirectional_remote_data_window(window.min(limits.stream_receive_buffer.into()))?
        .with_unidirectional_data_window(UNI_STREAM_WINDOW)?
        .with_max_send_buffer_size(limits.stream_send_buffer)?
        .with_active_connection_migration(listen.migration)
}

fn configuration(error: impl std::fmt::Display) -> EndpointError {
    EndpointError::Configuration(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Limits,
        lifecycle::Lifecycle,
        quic::client::{ConnectError, Observer, connect},
    };
    use rustls::{
        ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
        version::TLS13,
    };

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Accepts every certificate.
    #[derive(Debug)]
    struct AnyCertificate;

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
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
            provider().signature_verification_algorithms.supported_schemes()
        }
    }

    fn provider() -> Arc<CryptoProvider> {
        Arc::new(aws_lc_rs::default_provider())
    }

    fn parts(limits: Limits) -> EndpointParts<tls::rustls::Server> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let origin = "http://origin".parse().unwrap();
        let config = Config::simple(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        EndpointParts {
            config: Config { limits, ..config }.live(),
            tls: tls::rustls::Server::from(tls),
            secrets: Arc::new(Secrets::random().unwrap()),
            ids: Arc::new(IdScheme::new(None, None, None).unwrap()),
            generation: 0,
            others: Arc::default(),
            workers: 2,
            metrics: Arc::default(),
            receive: ReceiveBudget::new(limits.worker_receive_buffer, Limits::RECEIVE_FLOOR),
            sources: SourceLimits::default(),
            pressure: Pressure::default(),
            watch: Lifecycle::default().watch(),
        }
    }

    fn client_tls() -> ClientConfig {
        let mut tls = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls
    }

    /// An endpoint that sends back what it gets. Its task ends with the test's runtime.
    fn echo(parts: &EndpointParts<tls::rustls::Server>, worker: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut server =
            start(library_io(socket, true, true).unwrap(), address, WorkerIndex(worker), parts).unwrap().server;
        tokio::spawn(async move {
            while let Some(mut connection) = server.accept().await {
                tokio::spawn(async move {
                    while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
                        while let Ok(Some(data)) = stream.receive().await {
                            stream.send(data).await.unwrap();
                        }
                        stream.finish().unwrap();
                    }
                });
            }
        });
        address
    }

    async fn hello(address: SocketAddr, tls: &ClientConfig) {
        let mut connection = connect(address, "localhost", tls.clone(), PATIENCE, &Observer::default()).await.unwrap();
        let mut stream = connection.open_bidirectional_stream().await.unwrap();
        stream.send("hello".into()).await.unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.receive().await.unwrap().unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_client_connects_and_is_counted() {
        let parts = parts(Limits::default());
        let address = echo(&parts, 0);
        hello(address, &client_tls()).await;
        assert_eq!(parts.metrics.connections_held.get(), 1);
        assert_eq!(parts.metrics.handshakes_open.get(), 0);
        assert_eq!(parts.metrics.retries.get(), 0);
    }

    #[tokio::test]
    async fn a_busy_worker_has_its_clients_prove_their_address() {
        let parts = parts(Limits { retry_handshakes: 0, ..Limits::default() });
        let address = echo(&parts, 0);
        hello(address, &client_tls()).await;
        assert_eq!(parts.metrics.retries.get(), 1);
        assert_eq!(parts.metrics.connections_held.get(), 1);
    }

    #[tokio::test]
    async fn a_full_worker_refuses() {
        let parts = parts(Limits { max_connections: 0, ..Limits::default() });
        let address = echo(&parts, 0);
        let result = connect(address, "localhost", client_tls(), PATIENCE, &Observer::default()).await;
        assert!(matches!(result, Err(ConnectError::Refused { .. })), "{result:?}");
        assert!(parts.metrics.limit_connections.get() > 0);
    }

    #[tokio::test]
    async fn a_flooded_worker_is_silent() {
        let parts = parts(Limits { max_handshakes: 0, ..Limits::default() });
        let address = echo(&parts, 0);
        let result =
            connect(address, "localhost", client_tls(), Duration::from_millis(300), &Observer::default()).await;
        assert!(result.is_err());
        assert!(parts.metrics.limit_handshakes.get() > 0);
        assert_eq!(parts.metrics.connections_held.get(), 0);
    }

    #[tokio::test]
    async fn a_packet_of_a_connection_that_is_gone_is_answered_with_a_smaller_reset() {
        let parts = parts(Limits::default());
        let address = echo(&parts, 0);
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let short = |worker, id: u8| [&[0x41, 0xef, parts.generation, worker], &[id; 60][..]].concat();
        // The other worker may have this one.
        client.send_to(&short(1, 1), address).await.unwrap();
        let gone = short(0, 2);
        client.send_to(&gone, address).await.unwrap();

        let mut buffer = [0; 1500];
        let receiving = client.recv(&mut buffer);
        let len = tokio::time::timeout(PATIENCE, receiving).await.unwrap().unwrap();
        assert!(len < gone.len());
        let tag = ::aws_lc_rs::hmac::sign(&parts.secrets.reset_key(address), &gone[1..17]);
        assert_eq!(buffer[len - 16..len], tag.as_ref()[..16]);
    }

    #[tokio::test]
    async fn packets_of_no_connection_get_so_many_resets_and_others_are_served() {
        let parts = parts(Limits::default());
        let address = echo(&parts, 0);
        let flood = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let gone = [&[0x41, 0xef, parts.generation, 0], &[7; 60][..]].concat();
        let storm = async {
            while parts.metrics.limit_stateless_resets.get() == 0 {
                for _ in 0..64 {
                    flood.send_to(&gone, address).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, storm).await.unwrap();
        hello(address, &client_tls()).await;
    }

    /// As between two litequic, each of which takes the other's resets for packets of a connection that is gone.
    #[tokio::test]
    async fn resets_that_are_answered_with_resets_come_to_an_end() {
        /// Bytes of the smallest reset, and so of the largest packet that gets none.
        const SMALLEST: usize = 42;
        let parts = parts(Limits::default());
        let address = echo(&parts, 0);
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut packet = vec![7; 1200];
        let mut answers = 0;
        let mut next = true;
        while next {
            // Every reset is random bytes: so that each counts, all begin as if this worker had issued their ID.
            packet[..4].copy_from_slice(&[0x41, 0xef, parts.generation, 0]);
            client.send_to(&packet, address).await.unwrap();
            let marker = [&[0x41, 0xef, parts.generation, 0][..], &[9; 60]].concat();
            next = packet.len() > SMALLEST;
            if !next {
                client.send_to(&marker, address).await.unwrap();
            }
            let mut buffer = [0; 1500];
            let len = tokio::time::timeout(PATIENCE, client.recv(&mut buffer)).await.unwrap().unwrap();
            if next {
                assert!((SMALLEST..packet.len()).contains(&len), "{} answered by {len}", packet.len());
                packet = buffer[..len].to_vec();
                answers += 1;
            } else {
                // What comes next is the marker's: there was no other.
                let tag = ::aws_lc_rs::hmac::sign(&parts.secrets.reset_key(address), &marker[1..17]);
                assert_eq!(buffer[len - 16..len], tag.as_ref()[..16]);
            }
        }
        assert!((1..1200 - SMALLEST).contains(&answers), "{answers}");
    }

    #[tokio::test]
    async fn nonsense_for_a_server_name_is_an_error() {
        let result =
            connect(([127, 0, 0, 1], 9).into(), "not a name", client_tls(), PATIENCE, &Observer::default()).await;
        assert!(matches!(result, Err(ConnectError::ServerName(_))));
    }
}

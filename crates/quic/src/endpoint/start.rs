//! Starts an endpoint: builds s2n-quic's server from litequic's providers and the socket's I/O.

use super::{
    address_token::AddressTokenFormat,
    close_formatter::CloseFormatter,
    controller_factory::ControllerFactory,
    endpoint_parts::EndpointParts,
    endpoint_state::EndpointState,
    events::EventSubscriber,
    frame_slot::FrameSlotEndpoint,
    interceptor::PacketInterceptor,
    limits::{ConnectionAttemptLimiter, TransportLimits},
    mtu::PathMtu,
    tls::TlsEndpoint,
};
use crate::{
    identity::{
        connection_id::{ConnectionIdFormat, WorkerIndex},
        stateless_reset::ResetTokens,
    },
    io::{EndpointHooks, EndpointIo, MAX_MTU, Moderation, ProxiedDatagrams},
};
use s2n_quic::{
    Server,
    provider::{io, tls as provider},
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

/// Receive queue of s2n-quic's own I/O, bytes: 32 messages of 64 KiB, as the kernel's GRO fills them. s2n-quic's
/// default of 8 MiB is a small container's memory once it has several workers.
const RECEIVE_QUEUE_BYTES: usize = 32 * 65_535;
/// Send queue of s2n-quic's own I/O, bytes: 16 messages of the 10 segments that it puts into one.
const SEND_QUEUE_BYTES: usize = 16 * 10 * MAX_MTU as usize;

/// Error of starting an endpoint.
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
    /// Server of s2n-quic, which accepts connections.
    pub server: Server,
    /// State of the endpoint's connections by their packets.
    pub connections: Arc<EndpointState>,
}

/// s2n-quic's own I/O on `socket`, four tasks with queues between them: the reference for measurements of litequic's
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
        .with_internal_recv_buffer_size(RECEIVE_QUEUE_BYTES)?
        .with_internal_send_buffer_size(SEND_QUEUE_BYTES)?
        .build()?;
    Ok(io)
}

/// Starts `worker`'s endpoint on the socket behind `io`, [`library_io`] or a [`SocketIo`](crate::SocketIo), which is
/// bound to `address`. To be called on the worker's thread, inside its runtime, on which the endpoint's tasks are
/// spawned. They end after the [`Server`] is dropped and its last connection has closed.
///
/// # Errors
///
/// [`EndpointError`].
pub fn start_endpoint<T: provider::Provider + Clone>(
    io: impl EndpointIo,
    address: SocketAddr,
    worker: WorkerIndex,
    parts: &EndpointParts<T>,
) -> Result<QuicEndpoint, EndpointError> {
    let config = parts.config.load();
    let metrics = || Arc::clone(&parts.metrics);
    let ids = parts.own_ids(worker);
    let moderation = Moderation::new(config.litequic.receive_moderation, metrics());
    let endpoint = parts.build_state(moderation.clone());
    let retry_ids = || Arc::clone(&endpoint.retry_ids);
    let state = || Arc::clone(&endpoint);
    let io = io.bind_endpoint(EndpointHooks {
        layout: parts.ids.layout(),
        newest_first: config.litequic.ack_merge,
        moderation,
        proxied: ProxiedDatagrams::from_config(&parts.config, &parts.metrics, &parts.flows),
    });
    let limits = TransportLimits::new(state(), parts.receive.clone()).map_err(configuration_error)?;
    let format = ConnectionIdFormat::new(ids.clone(), Arc::clone(&parts.ids), metrics(), retry_ids());
    let tokens = AddressTokenFormat::new(Arc::clone(&parts.secrets), state());
    let resets = ResetTokens::new(&parts.secrets, address, Arc::clone(&parts.ids), metrics(), retry_ids());
    let events = EventSubscriber { state: state(), ack_frequency: config.litequic.ack_frequency };
    let packets = PacketInterceptor::new(state(), ids, config.litequic.ack_merge);

    let server = Server::builder()
        .with_tls(TlsEndpoint::new(parts.tls.clone(), state()))
        .and_then(|builder| builder.with_io(io))
        .and_then(|builder| builder.with_limits(limits))
        .and_then(|builder| builder.with_congestion_controller(ControllerFactory(state())))
        .and_then(|builder| builder.with_mtu(PathMtu(state())))
        .and_then(|builder| builder.with_connection_id(format))
        .and_then(|builder| builder.with_address_token(tokens))
        .and_then(|builder| builder.with_stateless_reset_token(resets))
        .and_then(|builder| builder.with_endpoint_limits(ConnectionAttemptLimiter(state())))
        .and_then(|builder| builder.with_event(events))
        .and_then(|builder| builder.with_datagram(FrameSlotEndpoint(state())))
        .and_then(|builder| builder.with_packet_interceptor(packets))
        .and_then(|builder| builder.with_connection_close_formatter(CloseFormatter(state())))
        .map_err(configuration_error)?;
    Ok(QuicEndpoint { server: server.start()?, connections: state() })
}

fn configuration_error(error: impl std::fmt::Display) -> EndpointError {
    EndpointError::Configuration(error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::client::{ConnectError, Observer, connect_client};
    use litequic_config::{Config, Limits};
    use rustls::{
        ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
        version::TLS13,
    };
    use s2n_quic::provider::tls;
    use std::time::Duration;

    pub(in super::super) const QUIC_TEST_TIMEOUT: Duration = Duration::from_secs(5);

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

    pub(in super::super) fn parts(limits: Limits) -> EndpointParts<tls::rustls::Server> {
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
        let config = Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into());
        let config = Config { limits, ..config }.into_live();
        EndpointParts { workers: 2, ..EndpointParts::for_one_worker(config, tls::rustls::Server::from(tls)).unwrap() }
    }

    pub(in super::super) fn client_tls() -> ClientConfig {
        let mut tls = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls
    }

    /// Starts an endpoint that sends back received data.
    fn spawn_echo_server(parts: &EndpointParts<tls::rustls::Server>, worker: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let io = library_io(socket, true, true).unwrap();
        spawn_echo(start_endpoint(io, address, WorkerIndex(worker), parts).unwrap().server);
        address
    }

    /// Sends five bytes on a new stream, and asserts that they come back.
    pub(in super::super) async fn request_echo(connection: &quinn::Connection) {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(b"hello").await.unwrap();
        send.finish().unwrap();
        let received = tokio::time::timeout(QUIC_TEST_TIMEOUT, receive.read_to_end(5)).await;
        assert_eq!(received.unwrap().unwrap(), b"hello");
    }

    /// Has `server` send back received data. Its task ends with the test's runtime.
    pub(in super::super) fn spawn_echo(mut server: Server) {
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
    }

    async fn hello(address: SocketAddr, tls: &ClientConfig) {
        let mut connection =
            connect_client(address, "localhost", tls.clone(), QUIC_TEST_TIMEOUT, &Observer::default()).await.unwrap();
        let mut stream = connection.open_bidirectional_stream().await.unwrap();
        stream.send("hello".into()).await.unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.receive().await.unwrap().unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_client_connects_and_is_counted() {
        let parts = parts(Limits::default());
        let address = spawn_echo_server(&parts, 0);
        hello(address, &client_tls()).await;
        assert_eq!(parts.metrics.connections_held.get(), 1);
        assert_eq!(parts.metrics.handshakes_open.get(), 0);
        assert_eq!(parts.metrics.retries.get(), 0);
    }

    #[tokio::test]
    async fn a_busy_worker_has_its_clients_prove_their_address() {
        let parts = parts(Limits { retry_handshakes: 0, ..Limits::default() });
        let address = spawn_echo_server(&parts, 0);
        hello(address, &client_tls()).await;
        assert_eq!(parts.metrics.retries.get(), 1);
        assert_eq!(parts.metrics.connections_held.get(), 1);
    }

    #[tokio::test]
    async fn a_full_worker_refuses() {
        let parts = parts(Limits { max_connections: 0, ..Limits::default() });
        let address = spawn_echo_server(&parts, 0);
        let result = connect_client(address, "localhost", client_tls(), QUIC_TEST_TIMEOUT, &Observer::default()).await;
        assert!(matches!(result, Err(ConnectError::Refused { .. })), "{result:?}");
        assert!(parts.metrics.limit_connections.get() > 0);
    }

    #[tokio::test]
    async fn a_flooded_worker_is_silent() {
        let parts = parts(Limits { max_handshakes: 0, ..Limits::default() });
        let address = spawn_echo_server(&parts, 0);
        let result =
            connect_client(address, "localhost", client_tls(), Duration::from_millis(300), &Observer::default()).await;
        assert!(result.is_err());
        assert!(parts.metrics.limit_handshakes.get() > 0);
        assert_eq!(parts.metrics.connections_held.get(), 0);
    }

    #[tokio::test]
    async fn a_packet_of_a_lost_connection_gets_a_smaller_reset() {
        let parts = parts(Limits::default());
        let address = spawn_echo_server(&parts, 0);
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let short = |worker, id: u8| [&[0x41, 0xef, parts.generation, worker], &[id; 60][..]].concat();
        // The other worker may have this connection.
        client.send_to(&short(1, 1), address).await.unwrap();
        let gone = short(0, 2);
        client.send_to(&gone, address).await.unwrap();

        let mut buffer = [0; 1500];
        let receiving = client.recv(&mut buffer);
        let len = tokio::time::timeout(QUIC_TEST_TIMEOUT, receiving).await.unwrap().unwrap();
        assert!(len < gone.len());
        let tag = ::aws_lc_rs::hmac::sign(&parts.secrets.reset_key(address), &gone[1..17]);
        assert_eq!(buffer[len - 16..len], tag.as_ref()[..16]);
    }

    #[tokio::test]
    async fn resets_are_limited_while_clients_are_served() {
        let parts = parts(Limits::default());
        let address = spawn_echo_server(&parts, 0);
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
        tokio::time::timeout(QUIC_TEST_TIMEOUT, storm).await.unwrap();
        hello(address, &client_tls()).await;
    }

    /// Two instances of litequic may each regard the other's resets as packets of a connection that is gone.
    #[tokio::test]
    async fn resets_in_response_to_resets_end() {
        /// Bytes of the smallest reset, and of the largest packet that gets none.
        const SMALLEST: usize = 42;
        let parts = parts(Limits::default());
        let address = spawn_echo_server(&parts, 0);
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut packet = vec![7; 1200];
        let mut answers = 0;
        let mut next = true;
        while next {
            // A reset has random bytes: the first ones are set so that this worker seems to have issued the ID.
            packet[..4].copy_from_slice(&[0x41, 0xef, parts.generation, 0]);
            client.send_to(&packet, address).await.unwrap();
            let marker = [&[0x41, 0xef, parts.generation, 0][..], &[9; 60]].concat();
            next = packet.len() > SMALLEST;
            if !next {
                client.send_to(&marker, address).await.unwrap();
            }
            let mut buffer = [0; 1500];
            let len = tokio::time::timeout(QUIC_TEST_TIMEOUT, client.recv(&mut buffer)).await.unwrap().unwrap();
            if next {
                assert!((SMALLEST..packet.len()).contains(&len), "{} answered by {len}", packet.len());
                packet = buffer[..len].to_vec();
                answers += 1;
            } else {
                // The next reset responds to the marker: no other was sent.
                let tag = ::aws_lc_rs::hmac::sign(&parts.secrets.reset_key(address), &marker[1..17]);
                assert_eq!(buffer[len - 16..len], tag.as_ref()[..16]);
            }
        }
        assert!((1..1200 - SMALLEST).contains(&answers), "{answers}");
    }

    #[tokio::test]
    async fn nonsense_for_a_server_name_is_an_error() {
        let result = connect_client(
            ([127, 0, 0, 1], 9).into(),
            "not a name",
            client_tls(),
            QUIC_TEST_TIMEOUT,
            &Observer::default(),
        )
        .await;
        assert!(matches!(result, Err(ConnectError::ServerName(_))));
    }
}

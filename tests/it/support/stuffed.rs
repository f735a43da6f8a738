//! A QUIC client that sends whatever transport frames a test likes: s2n-quic, with a test's frames written into what
//! room its own leave in each packet.

use super::{
    DEADLINE,
    proxy::Litequic,
    raw::{headers, pseudo},
    within,
};
use quinn::rustls::{
    self, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use s2n_codec::{Encoder, encoder::scatter};
use s2n_quic::{
    Client, Connection,
    client::Connect,
    connection,
    provider::{io, tls},
};
use s2n_quic_core::{
    event::api::Subject,
    packet::{
        interceptor::{Interceptor, Packet},
        number::PacketNumberSpace,
    },
};
use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::task::yield_now;

/// A connection that stuffs its packets.
pub(crate) struct Stuffed {
    connection: Connection,
    stuffing: Stuffing,
    /// Kept: its end would be the connection's.
    _client: Client,
}

/// The frames of the moment, over and over.
#[derive(Debug, Clone, Default)]
struct Stuffing(Arc<Mutex<Vec<u8>>>);

impl Interceptor for Stuffing {
    fn intercept_tx_payload(&mut self, _: &Subject, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        let frames = self.0.lock().unwrap();
        if packet.number.space() != PacketNumberSpace::ApplicationData || frames.is_empty() {
            return;
        }
        while payload.remaining_capacity() >= frames.len() {
            payload.write_slice(&frames);
        }
    }
}

impl Stuffed {
    /// Connects to `litequic` and has a request answered, on stream 0, which is over then. Its packets are as they should
    /// be until [`Stuffed::flood`].
    pub(crate) async fn to(litequic: &Litequic) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(litequic.cert_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h3".to_vec()];

        let stuffing = Stuffing::default();
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        let io = io::tokio::Builder::default().with_receive_address(local).unwrap().build().unwrap();
        let client = Client::builder()
            .with_tls(tls::rustls::Client::from(config))
            .unwrap()
            .with_io(io)
            .unwrap()
            .with_packet_interceptor(stuffing.clone())
            .unwrap()
            .start()
            .unwrap();
        let attempt = client.connect(Connect::new(litequic.address).with_server_name("localhost"));
        let mut connection = within("the handshake", attempt).await.unwrap();
        let mut stream = connection.open_bidirectional_stream().await.unwrap();
        stream.send(headers(&pseudo("GET", "/status/204")).into()).await.unwrap();
        stream.finish().unwrap();
        while within("a response", stream.receive()).await.unwrap().is_some() {}
        Self { connection, stuffing, _client: client }
    }

    /// Sends packets full of `frames` until litequic closes the connection, and returns how it says so.
    pub(crate) async fn flood(&mut self, frames: &[u8]) -> connection::Error {
        *self.stuffing.0.lock().unwrap() = frames.to_vec();
        let deadline = Instant::now() + DEADLINE;
        // A PING has a packet sent.
        while self.connection.ping().is_ok() {
            assert!(Instant::now() < deadline, "litequic takes it all");
            yield_now().await;
        }
        match within("the connection's end", self.connection.accept()).await {
            Err(error) => error,
            Ok(_) => panic!("the connection ended in order"),
        }
    }
}

/// The application's code with which litequic closed the connection.
pub(crate) fn code(error: &connection::Error) -> u64 {
    match error {
        connection::Error::Application { error, .. } => u64::from(*error),
        other => panic!("closed otherwise: {other}"),
    }
}

//! A QUIC client that sends whatever transport frames a test likes: s2n-quic, with a test's frames written into what
//! room its own leave in each packet.

use super::{
    client::tls_config,
    prelude::*,
    raw::{headers, pseudo, varint},
};
use litequic_quic::frame::{FrameIter, kind};
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
        interceptor::{DecoderBufferMut, Interceptor, Packet},
        number::PacketNumberSpace,
    },
};
use std::time::Instant;
use tokio::task::yield_now;

/// A connection that stuffs its packets.
pub(crate) struct Stuffed {
    connection: Connection,
    stuffing: Stuffing,
    /// Kept: its end would be the connection's.
    _client: Client,
}

/// What is in the packets of the moment.
#[derive(Debug, Clone, Default)]
struct Stuffing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    filling: Filling,
    /// Of the packets received.
    largest: u64,
}

#[derive(Debug, Default)]
enum Filling {
    /// What s2n-quic wrote.
    #[default]
    Own,
    /// And these frames over and over.
    FrameIter(Vec<u8>),
    /// This acknowledgement in place of s2n-quic's.
    Ack(Vec<u8>),
    /// The same, of every number up to the largest received.
    OptimisticAck,
}

impl Interceptor for Stuffing {
    fn intercept_rx_payload<'a>(
        &mut self,
        _: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        if packet.number.space() == PacketNumberSpace::ApplicationData {
            let mut state = self.0.lock().unwrap();
            state.largest = state.largest.max(packet.number.as_u64());
        }
        payload
    }

    fn intercept_tx_payload(&mut self, _: &Subject, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        let state = self.0.lock().unwrap();
        if packet.number.space() != PacketNumberSpace::ApplicationData {
            return;
        }
        match &state.filling {
            Filling::Own => {}
            Filling::FrameIter(frames) => {
                while payload.remaining_capacity() >= frames.len() {
                    payload.write_slice(frames);
                }
            }
            Filling::Ack(ack) => replace_ack(payload, ack),
            Filling::OptimisticAck => {
                let largest = varint(state.largest);
                replace_ack(payload, &[&[0x02], &largest[..], &[0, 0], &largest[..]].concat());
            }
        }
    }
}

/// PADDING over the packet's ACK frame, and `ack` at its end.
fn replace_ack(payload: &mut scatter::Buffer<'_>, ack: &[u8]) {
    let buffer = payload.flatten();
    if buffer.remaining_capacity() < ack.len() {
        return;
    }
    let written = buffer.as_mut_slice();
    let copy = written.to_vec();
    for frame in FrameIter::new(&copy).filter(|frame| matches!(frame.kind, kind::ACK | kind::ACK_ECN)) {
        written[frame.range].fill(0);
    }
    buffer.write_slice(ack);
}

impl Stuffed {
    /// Connects to `litequic` and has a request answered, on stream 0, which is over then. Its packets are as they
    /// should be until [`Stuffed::flood`].
    pub(crate) async fn to(litequic: &Litequic) -> Self {
        let stuffing = Stuffing::default();
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        let io = io::tokio::Builder::default().with_receive_address(local).unwrap().build().unwrap();
        let client = Client::builder()
            .with_tls(tls::rustls::Client::from(tls_config(&litequic.cert_pem)))
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

    /// Sends packets full of `frames` until litequic closes the connection, and returns its error.
    pub(crate) async fn flood(&mut self, frames: &[u8]) -> connection::Error {
        self.fill(Filling::FrameIter(frames.to_vec())).await
    }

    /// The same with packets that have `ack` for their acknowledgement.
    pub(crate) async fn acknowledge(&mut self, ack: &[u8]) -> connection::Error {
        self.fill(Filling::Ack(ack.to_vec())).await
    }

    /// The same within a download, with packets that acknowledge all that litequic may have sent so far.
    pub(crate) async fn acknowledge_unseen(&mut self) -> connection::Error {
        let mut stream = self.connection.open_bidirectional_stream().await.unwrap();
        stream.send(headers(&pseudo("GET", "/bytes/20M")).into()).await.unwrap();
        stream.finish().unwrap();
        self.stuffing.0.lock().unwrap().filling = Filling::OptimisticAck;
        while let Ok(chunk) = within("a download's end", stream.receive()).await {
            assert!(chunk.is_some(), "litequic believes it all");
        }
        self.end().await
    }

    async fn fill(&mut self, filling: Filling) -> connection::Error {
        self.stuffing.0.lock().unwrap().filling = filling;
        let deadline = Instant::now() + DEADLINE;
        // A PING has a packet sent.
        while self.connection.ping().is_ok() {
            assert!(Instant::now() < deadline, "litequic takes it all");
            yield_now().await;
        }
        self.end().await
    }

    async fn end(&mut self) -> connection::Error {
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

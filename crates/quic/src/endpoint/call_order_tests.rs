//! Tests the order in which s2n-quic calls its providers, on which `endpoint::endpoint_state` relies: a client makes a
//! handshake, moves to another port, and is closed, before providers that record their calls.

use super::{
    endpoint_state::EndpointState,
    library_io,
    start::tests::{QUIC_TEST_TIMEOUT, client_tls, parts, request_echo},
    tls::TlsEndpoint,
};
use litequic_config::Limits;
use quinn::crypto::rustls::QuicClientConfig;
use s2n_codec::encoder::scatter;
use s2n_quic::{
    Server,
    provider::{
        congestion_controller::{self, PathInfo, cubic},
        connection_close_formatter::{ConnectionClose, Context, Formatter, Production},
        datagram::{self, PreConnectionInfo, ReceiveContext, Receiver, Sender},
        endpoint_limits::{self, ConnectionAttempt, Outcome},
        event::{
            ConnectionInfo, ConnectionMeta, Subscriber,
            events::{
                ActivePathUpdated, ConnectionClosed, ConnectionStarted, HandshakeStatus, HandshakeStatusUpdated,
                PathCreated, TransportParametersReceived,
            },
        },
        limits,
    },
};
use s2n_quic_core::{
    application,
    connection::Error,
    event::api::Subject,
    packet::{
        interceptor::{Datagram, DecoderBufferMut, Interceptor, Packet},
        number::PacketNumberSpace,
    },
    path::{LocalAddress, RemoteAddress},
    recovery::CubicCongestionController,
    transport,
};
use std::{
    net::UdpSocket,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// HANDSHAKE_DONE, for which s2n-quic closes a client's connection.
const CLOSING_FRAME: u8 = 0x1e;

/// Calls for each packet that has room, and for each that was built.
const TRANSMIT: &str = "datagram: on_transmit";
const BUILT: &str = "packet_interceptor: intercept_tx_payload, 1-RTT";

/// Records the calls of every provider but TLS, which is litequic's own.
#[derive(Debug, Clone)]
struct CallRecorder {
    state: Arc<EndpointState>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    /// Makes the next 1-RTT packet close the connection.
    closes: Arc<AtomicBool>,
}

impl CallRecorder {
    fn record_call(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
    }

    /// Takes the first call of each kind from `from` to `to`, without those of packets that leave.
    fn take_calls(&self, from: &str, to: &str) -> Vec<&'static str> {
        let mut calls = std::mem::take(&mut *self.calls.lock().unwrap());
        calls.drain(..calls.iter().position(|call| *call == from).unwrap());
        calls.truncate(1 + calls.iter().position(|call| *call == to).unwrap());
        calls.retain(|call| *call != TRANSMIT && *call != BUILT);
        let mut first = Vec::new();
        for call in calls {
            if !first.contains(&call) {
                first.push(call);
            }
        }
        first
    }

    /// Records `within` if TLS holds the client's transport parameters at this time, otherwise `outside`.
    fn note_within_tls(&self, within: &'static str, outside: &'static str) {
        let is_within = self.state.with_table(|table| table.new.support.is_some());
        self.record_call(if is_within { within } else { outside });
    }
}

impl endpoint_limits::Limiter for CallRecorder {
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt<'_>) -> Outcome {
        self.record_call("endpoint_limits: on_connection_attempt");
        Outcome::allow()
    }
}

impl limits::Limiter for CallRecorder {
    fn on_connection(&mut self, _: &limits::ConnectionInfo<'_>) -> limits::Limits {
        self.record_call("limits: on_connection");
        limits::Limits::new()
    }
}

impl congestion_controller::Endpoint for CallRecorder {
    type CongestionController = CubicCongestionController;

    fn new_congestion_controller(&mut self, path: PathInfo<'_>) -> CubicCongestionController {
        self.record_call("congestion_controller: new_congestion_controller");
        cubic::Builder::default().build().new_congestion_controller(path)
    }
}

impl Subscriber for CallRecorder {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) {
        self.record_call("event: create_connection_context");
    }

    fn on_connection_started(&mut self, (): &mut (), _: &ConnectionMeta, _: &ConnectionStarted<'_>) {
        self.record_call("event: on_connection_started");
    }

    fn on_transport_parameters_received(
        &mut self,
        (): &mut (),
        _: &ConnectionMeta,
        _: &TransportParametersReceived<'_>,
    ) {
        assert_eq!(self.state.at_hand.take_handshake_connection(), None, "TLS was polled, and took it");
        self.note_within_tls("event: on_transport_parameters_received, within TLS", "on_transport_parameters_received");
    }

    fn on_handshake_status_updated(&mut self, (): &mut (), _: &ConnectionMeta, event: &HandshakeStatusUpdated) {
        if matches!(event.status, HandshakeStatus::Complete { .. }) {
            self.note_within_tls("complete, within TLS", "event: on_handshake_status_updated, complete");
        }
    }

    fn on_path_created(&mut self, (): &mut (), _: &ConnectionMeta, _: &PathCreated<'_>) {
        self.record_call("event: on_path_created");
    }

    fn on_active_path_updated(&mut self, (): &mut (), _: &ConnectionMeta, _: &ActivePathUpdated<'_>) {
        self.record_call("event: on_active_path_updated");
    }

    fn on_connection_closed(&mut self, (): &mut (), _: &ConnectionMeta, _: &ConnectionClosed) {
        self.record_call("event: on_connection_closed");
    }
}

impl datagram::Endpoint for CallRecorder {
    type Sender = Self;
    type Receiver = Self;

    fn create_connection(&mut self, _: &datagram::ConnectionInfo) -> (Self, Self) {
        self.note_within_tls("datagram: create_connection, within TLS", "create_connection");
        (self.clone(), self.clone())
    }

    fn max_datagram_frame_size(&self, _: &PreConnectionInfo) -> u64 {
        0
    }
}

impl Sender for CallRecorder {
    fn on_transmit<P: datagram::Packet>(&mut self, _: &mut P) {
        self.record_call(TRANSMIT);
    }

    fn has_transmission_interest(&self) -> bool {
        false
    }

    fn on_connection_error(&mut self, _: Error) {}
}

impl Receiver for CallRecorder {
    fn on_datagram(&mut self, _: &ReceiveContext<'_>, _: &[u8]) {}

    fn on_connection_error(&mut self, _: Error) {}
}

impl Interceptor for CallRecorder {
    fn intercept_rx_remote_address(&mut self, _: &Subject, _: &mut RemoteAddress) {
        self.record_call("packet_interceptor: intercept_rx_remote_address");
    }

    fn intercept_rx_local_address(&mut self, _: &Subject, _: &mut LocalAddress) {
        self.record_call("packet_interceptor: intercept_rx_local_address");
    }

    fn intercept_rx_datagram<'a>(
        &mut self,
        _: &Subject,
        _: &Datagram<'_>,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        self.record_call("packet_interceptor: intercept_rx_datagram");
        payload
    }

    fn intercept_rx_payload<'a>(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let Subject::Connection { id, .. } = subject else { panic!("a packet of no connection") };
        if packet.number.space() != PacketNumberSpace::ApplicationData {
            self.state.at_hand.set_handshake_connection(*id);
            self.record_call("packet_interceptor: intercept_rx_payload, Initial or Handshake");
            return payload;
        }
        self.record_call("packet_interceptor: intercept_rx_payload, 1-RTT");
        let payload = payload.into_less_safe_slice();
        if self.closes.load(Relaxed) {
            payload[0] = CLOSING_FRAME;
        }
        DecoderBufferMut::new(payload)
    }

    fn intercept_tx_payload(&mut self, _: &Subject, packet: &Packet, _: &mut scatter::Buffer<'_>) {
        if packet.number.space() == PacketNumberSpace::ApplicationData {
            self.record_call(BUILT);
        }
    }
}

impl Formatter for CallRecorder {
    fn format_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        self.record_call("connection_close_formatter: format_transport_error");
        Production.format_transport_error(context, error)
    }

    fn format_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        Production.format_application_error(context, error)
    }

    fn format_early_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        self.record_call("connection_close_formatter: format_early_transport_error");
        Production.format_early_transport_error(context, error)
    }

    fn format_early_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        Production.format_early_application_error(context, error)
    }
}

fn start_recording_server(recorder: &CallRecorder) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let parts = parts(Limits::default());
    Server::builder()
        .with_tls(TlsEndpoint::new(parts.tls, Arc::clone(&recorder.state)))
        .and_then(|builder| builder.with_io(library_io(socket, true, true).unwrap()))
        .and_then(|builder| builder.with_limits(recorder.clone()))
        .and_then(|builder| builder.with_congestion_controller(recorder.clone()))
        .and_then(|builder| builder.with_endpoint_limits(recorder.clone()))
        .and_then(|builder| builder.with_event(recorder.clone()))
        .and_then(|builder| builder.with_datagram(recorder.clone()))
        .and_then(|builder| builder.with_packet_interceptor(recorder.clone()))
        .and_then(|builder| builder.with_connection_close_formatter(recorder.clone()))
        .unwrap()
        .start()
        .unwrap()
}

#[tokio::test]
async fn s2n_quic_calls_its_providers_in_the_expected_order() {
    let recorder = CallRecorder { state: EndpointState::for_tests(), calls: Arc::default(), closes: Arc::default() };
    let mut server = start_recording_server(&recorder);
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(mut connection) = server.accept().await {
            while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
                while let Ok(Some(data)) = stream.receive().await {
                    stream.send(data).await.unwrap();
                }
                stream.finish().unwrap();
            }
        }
    });
    // quinn sends min_ack_delay, which TLS passes for the time of one call.
    let mut client = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let tls = QuicClientConfig::try_from(client_tls()).unwrap();
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));

    let connection = client.connect(address, "localhost").unwrap().await.unwrap();
    request_echo(&connection).await;
    let calls = recorder.calls.lock().unwrap().clone();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| **call == TRANSMIT) {
        let next = calls.iter().skip(at + 1).find(|call| **call == TRANSMIT || **call == BUILT);
        assert_eq!(next, Some(&BUILT), "{call} comes once a packet");
    }
    let handshake = [
        "packet_interceptor: intercept_rx_remote_address",
        "packet_interceptor: intercept_rx_local_address",
        "packet_interceptor: intercept_rx_datagram",
        "endpoint_limits: on_connection_attempt",
        "limits: on_connection",
        "event: create_connection_context",
        "congestion_controller: new_congestion_controller",
        "event: on_connection_started",
        "packet_interceptor: intercept_rx_payload, Initial or Handshake",
        "event: on_transport_parameters_received, within TLS",
        "datagram: create_connection, within TLS",
        "event: on_handshake_status_updated, complete",
    ];
    assert_eq!(recorder.take_calls(handshake[0], handshake[11]), handshake);

    client.rebind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    request_echo(&connection).await;
    let migration = [
        "congestion_controller: new_congestion_controller",
        "event: on_path_created",
        "packet_interceptor: intercept_rx_payload, 1-RTT",
        "event: on_active_path_updated",
    ];
    assert_eq!(recorder.take_calls(migration[0], migration[3]), migration);

    recorder.closes.store(true, Relaxed);
    let _ = connection.open_uni().await.unwrap().write_all(b"hello").await;
    tokio::time::timeout(QUIC_TEST_TIMEOUT, connection.closed()).await.unwrap();
    let close = [
        "event: on_connection_closed",
        "connection_close_formatter: format_early_transport_error",
        "connection_close_formatter: format_transport_error",
    ];
    assert_eq!(recorder.take_calls(close[0], close[2]), close);
}

//! Wraps TLS for four features that s2n-quic lacks: the client's transport parameters, as they came, are read for
//! `ack_frequency` when TLS provides the 1-RTT keys; clients get another max_ack_delay than s2n-quic's own, and a
//! max_udp_payload_size; a handshake that fails within its client's first datagram is closed with a CONNECTION_CLOSE;
//! and stateless resets are limited.
//!
//! s2n-quic 0.91 stores a connection after it has processed the first datagram (`handle_initial_packet`). An earlier
//! error drops the connection without a response, and the client waits for its own timeout: that happens in every
//! rejection whose ClientHello fits one datagram. So an error of TLS is held back until s2n-quic polls again because of
//! a wakeup, which it does for stored connections only, and then closes the connection like any other. That happens in
//! the next turn of the endpoint's loop; s2n-quic sends its CONNECTION_CLOSE from there, at most once for each of the
//! client's datagrams. A rejected handshake counts as one in progress, as it would with a larger ClientHello, until the
//! closing period (RFC 9000 §10.2) ends: `Limits::retry_handshakes` and `Limits::max_handshakes` apply.
//!
//! A first Initial with frames that do not belong there is still discarded, which RFC 9000 §17.2.2 allows.

use super::{endpoint_state::EndpointState, mtu::max_udp_payload_size};
use crate::{
    connection::AckFrequencySupport,
    wire::parameters::{self, MAX_ACK_DELAY_ID, MAX_UDP_PAYLOAD_SIZE_ID},
};
use bytes::Bytes;
use litequic_base::token_bucket::SharedTokenBucket;
use s2n_codec::EncoderValue;
use s2n_quic::provider::tls::{ConnectionInfo, Provider};
use s2n_quic_core::{
    application::ServerName,
    crypto::{
        CryptoSuite,
        tls::{self, ApplicationParameters, Context, Endpoint, HandshakeType, HelloOffsets, NamedGroup, Session},
    },
    transport::Error,
};
use std::{
    any::Any,
    sync::Arc,
    task::{Poll, Waker},
    time::Instant,
};

/// Length of a tag with which no stateless reset is shorter than the packet that caused it.
const SUPPRESSING_TAG_LEN: usize = u16::MAX as usize;
/// Stateless resets an endpoint sends a second: all clients of a worker that crashed with 20,000 connections get one
/// within 20 seconds, about as long as their own timeouts. s2n-quic queues them without a limit.
const MAX_RESETS_PER_SECOND: u32 = 1_000;

/// TLS provider that wraps `tls`: reads transport parameters, holds errors back, and limits stateless resets.
pub(super) struct TlsEndpoint<T> {
    tls: T,
    resets: SharedTokenBucket,
    state: Arc<EndpointState>,
}

impl<T> TlsEndpoint<T> {
    /// Wraps `tls` for the endpoint with `state`, which gets each client's support of ACK_FREQUENCY.
    pub(super) fn new(tls: T, state: Arc<EndpointState>) -> Self {
        Self { tls, resets: SharedTokenBucket::new(MAX_RESETS_PER_SECOND), state }
    }

    fn wrap_session<S>(&self, session: S) -> TlsSession<S> {
        TlsSession { session, state: Arc::clone(&self.state), connection: None, held_error: None, own: None }
    }
}

impl<T: Provider> Provider for TlsEndpoint<T> {
    type Server = TlsEndpoint<T::Server>;
    type Client = T::Client;
    type Error = T::Error;

    fn start_server(self) -> Result<Self::Server, T::Error> {
        let Self { tls, resets, state } = self;
        Ok(TlsEndpoint { tls: tls.start_server()?, resets, state })
    }

    fn start_client(self) -> Result<T::Client, T::Error> {
        self.tls.start_client()
    }
}

impl<E: Endpoint> Endpoint for TlsEndpoint<E> {
    type Session = TlsSession<E::Session>;

    /// Announces transport parameters without max_ack_delay, so that the default of 25 ms holds
    /// (docs/adr/0068-announced-ack-delay.md), and with max_udp_payload_size if `litequic.max_mtu` is set.
    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: ConnectionInfo) -> Self::Session {
        let mut announced = parameters::without_parameter(MAX_ACK_DELAY_ID, &parameters.encode_to_vec());
        let config = self.state.config.load();
        let proxied =
            config.listen.proxy_protocol_udp.has_headers() && config.listen.is_proxy_sender(info.remote_address.ip());
        if let Some(size) = max_udp_payload_size(config.litequic.max_mtu, proxied, info.remote_address) {
            parameters::append_integer(&mut announced, MAX_UDP_PAYLOAD_SIZE_ID, size);
        }
        let session = self.tls.new_server_session(&announced.as_slice(), info);
        let own = self.state.at_hand.has_logs().then(|| announced.into_boxed_slice());
        TlsSession { own, ..self.wrap_session(session) }
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> Self::Session {
        let session = self.tls.new_client_session(parameters, name);
        self.wrap_session(session)
    }

    /// Limits stateless resets. s2n-quic requests the longest tag for each stateless reset and for nothing else, and
    /// sends none that would not be shorter than the received packet (RFC 9000 §10.3.3): so a huge tag suppresses one.
    fn max_tag_length(&self) -> usize {
        if self.resets.try_take_token(Instant::now()) {
            return self.tls.max_tag_length();
        }
        self.state.metrics.limit_stateless_resets.increment();
        SUPPRESSING_TAG_LEN
    }
}

/// TLS session of one handshake.
#[derive(Debug)]
pub(super) struct TlsSession<S> {
    session: S,
    state: Arc<EndpointState>,
    /// s2n-quic's ID of the connection; set by the first poll, which a packet causes.
    connection: Option<u64>,
    /// Error of TLS, held back until s2n-quic may get it.
    held_error: Option<Error>,
    /// litequic's encoded transport parameters, if connections are logged.
    own: Option<Box<[u8]>>,
}

impl<S: CryptoSuite> CryptoSuite for TlsSession<S> {
    type HandshakeKey = S::HandshakeKey;
    type HandshakeHeaderKey = S::HandshakeHeaderKey;
    type InitialKey = S::InitialKey;
    type InitialHeaderKey = S::InitialHeaderKey;
    type ZeroRttKey = S::ZeroRttKey;
    type ZeroRttHeaderKey = S::ZeroRttHeaderKey;
    type OneRttKey = S::OneRttKey;
    type OneRttHeaderKey = S::OneRttHeaderKey;
    type RetryKey = S::RetryKey;
}

impl<S: Session> Session for TlsSession<S> {
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), Error>> {
        let packet = self.state.at_hand.take_handshake_connection();
        let of_packet = packet.is_some_and(|packet| *self.connection.get_or_insert(packet) == packet);
        let error = match self.held_error {
            Some(error) => error,
            None => match self.session.poll(&mut ForwardingContext {
                context,
                state: &self.state,
                logged: self.connection.zip(self.own.as_deref()),
            }) {
                Poll::Ready(Err(error)) => *self.held_error.insert(error),
                outcome => return outcome,
            },
        };
        if of_packet {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Err(error))
    }

    fn process_post_handshake_message<C: Context<Self>>(&mut self, context: &mut C) -> Result<(), Error> {
        let context = &mut ForwardingContext { context, state: &self.state, logged: None };
        self.session.process_post_handshake_message(context)
    }

    fn should_discard_session(&self) -> bool {
        self.session.should_discard_session()
    }

    fn parse_hello(kind: HandshakeType, header: &[u8], received: u64, max: u64) -> Result<Option<HelloOffsets>, Error> {
        // An invalid ClientHello fails within the packet. TLS gets it and has the alert.
        let hello = S::parse_hello(kind, header, received, max);
        Ok(hello.unwrap_or(Some(HelloOffsets { payload_offset: 0, payload_len: 0 })))
    }
}

/// Context of a connection for a TLS session. Every call is forwarded; `on_one_rtt_keys` is also intercepted.
struct ForwardingContext<'a, C> {
    context: &'a mut C,
    state: &'a EndpointState,
    /// The connection, and litequic's transport parameters, if connections were logged at its begin.
    logged: Option<(u64, &'a [u8])>,
}

type Outcome = Result<(), Error>;

/// Methods of [`ForwardingContext`] that do nothing but call the inner context.
macro_rules! forward {
    ($(fn $name:ident(&mut $this:ident $(, $argument:ident: $Type:ty)*) -> $Result:ty;)*) => {$(
        fn $name(&mut $this $(, $argument: $Type)*) -> $Result {
            $this.context.$name($($argument),*)
        }
    )*};
}

impl<S: Session, C: Context<TlsSession<S>>> Context<S> for ForwardingContext<'_, C> {
    /// Sets the client's support for the time of the call, within which s2n-quic reads the parameters and creates the
    /// connection's datagram sender.
    fn on_one_rtt_keys(
        &mut self,
        key: S::OneRttKey,
        header_key: S::OneRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        if let Some((connection, own)) = self.logged
            && let Some(log) = self.state.connection_log(connection)
        {
            log.log_parameters(true, own);
            log.log_parameters(false, parameters.transport_parameters);
        }
        let support = AckFrequencySupport::from_parameters(parameters.transport_parameters);
        self.state.with_table(|table| table.new.support = support);
        let outcome = self.context.on_one_rtt_keys(key, header_key, parameters);
        self.state.with_table(|table| (table.new.support, table.new.connection) = (None, None));
        outcome
    }

    forward! {
        fn on_client_application_params(&mut self, client: ApplicationParameters<'_>, server: &mut Vec<u8>) -> Outcome;
        fn on_handshake_keys(&mut self, key: S::HandshakeKey, header_key: S::HandshakeHeaderKey) -> Outcome;
        fn on_zero_rtt_keys(
            &mut self, key: S::ZeroRttKey, header_key: S::ZeroRttHeaderKey, parameters: ApplicationParameters<'_>
        ) -> Outcome;
        fn on_server_name(&mut self, name: ServerName) -> Outcome;
        fn on_application_protocol(&mut self, protocol: Bytes) -> Outcome;
        fn on_key_exchange_group(&mut self, group: NamedGroup) -> Outcome;
        fn on_handshake_complete(&mut self) -> Outcome;
        fn on_tls_context(&mut self, context: Box<dyn Any + Send>) -> ();
        fn on_tls_exporter_ready(&mut self, session: &impl tls::TlsSession) -> Outcome;
        fn on_tls_handshake_failed(
            &mut self, session: &impl tls::TlsSession, error: Box<dyn std::error::Error + Send + Sync>
        ) -> Outcome;
        fn receive_initial(&mut self, max: Option<usize>) -> Option<Bytes>;
        fn receive_handshake(&mut self, max: Option<usize>) -> Option<Bytes>;
        fn receive_application(&mut self, max: Option<usize>) -> Option<Bytes>;
        fn send_initial(&mut self, message: Bytes) -> ();
        fn send_handshake(&mut self, message: Bytes) -> ();
        fn send_application(&mut self, message: Bytes) -> ();
    }

    fn can_send_initial(&self) -> bool {
        self.context.can_send_initial()
    }

    fn can_send_handshake(&self) -> bool {
        self.context.can_send_handshake()
    }

    fn can_send_application(&self) -> bool {
        self.context.can_send_application()
    }

    fn waker(&self) -> &Waker {
        self.context.waker()
    }
}

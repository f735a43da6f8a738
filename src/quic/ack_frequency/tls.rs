//! TLS as it is, but for one look: when it hands over the 1-RTT keys, the client's transport parameters pass by as they
//! came.

use super::{AckFrequencies, parameters::Offer};
use bytes::Bytes;
use s2n_codec::EncoderValue;
use s2n_quic::provider::tls::{ConnectionInfo, Provider};
use s2n_quic_core::{
    application::ServerName,
    crypto::{
        CryptoSuite,
        tls::{ApplicationParameters, Context, Endpoint, HandshakeType, HelloOffsets, NamedGroup, Session, TlsSession},
    },
    transport::Error,
};
use std::{
    any::Any,
    task::{Poll, Waker},
};

/// `tls` that tells `frequencies` of each client's offer.
pub(in super::super) struct Looking<T> {
    pub(super) tls: T,
    pub(super) frequencies: AckFrequencies,
}

impl<T: Provider> Provider for Looking<T> {
    type Server = Looking<T::Server>;
    type Client = T::Client;
    type Error = T::Error;

    fn start_server(self) -> Result<Self::Server, T::Error> {
        Ok(Looking { tls: self.tls.start_server()?, frequencies: self.frequencies })
    }

    fn start_client(self) -> Result<T::Client, T::Error> {
        self.tls.start_client()
    }
}

impl<E: Endpoint> Endpoint for Looking<E> {
    type Session = Handshake<E::Session>;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: ConnectionInfo) -> Self::Session {
        let session = self.tls.new_server_session(parameters, info);
        Handshake { session, frequencies: self.frequencies.clone() }
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> Self::Session {
        let session = self.tls.new_client_session(parameters, name);
        Handshake { session, frequencies: self.frequencies.clone() }
    }

    fn max_tag_length(&self) -> usize {
        self.tls.max_tag_length()
    }
}

/// One handshake.
#[derive(Debug)]
pub(in super::super) struct Handshake<S> {
    session: S,
    frequencies: AckFrequencies,
}

impl<S: CryptoSuite> CryptoSuite for Handshake<S> {
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

impl<S: Session> Session for Handshake<S> {
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), Error>> {
        self.session.poll(&mut Look { context, frequencies: &self.frequencies })
    }

    fn process_post_handshake_message<C: Context<Self>>(&mut self, context: &mut C) -> Result<(), Error> {
        self.session.process_post_handshake_message(&mut Look { context, frequencies: &self.frequencies })
    }

    fn should_discard_session(&self) -> bool {
        self.session.should_discard_session()
    }

    fn parse_hello(kind: HandshakeType, header: &[u8], received: u64, max: u64) -> Result<Option<HelloOffsets>, Error> {
        S::parse_hello(kind, header, received, max)
    }
}

/// What a session is shown of its connection. Everything passes; one call is looked at.
struct Look<'a, C> {
    context: &'a mut C,
    frequencies: &'a AckFrequencies,
}

impl<S: Session, C: Context<Handshake<S>>> Context<S> for Look<'_, C> {
    /// s2n-quic reads the parameters, and makes the connection's datagram sender, within this very call.
    fn on_one_rtt_keys(
        &mut self,
        key: S::OneRttKey,
        header_key: S::OneRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        self.frequencies.offered(Offer::read(parameters.transport_parameters));
        let outcome = self.context.on_one_rtt_keys(key, header_key, parameters);
        self.frequencies.offered(None);
        outcome
    }

    fn on_client_application_params(
        &mut self,
        client: ApplicationParameters<'_>,
        server: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.context.on_client_application_params(client, server)
    }

    fn on_handshake_keys(&mut self, key: S::HandshakeKey, header_key: S::HandshakeHeaderKey) -> Result<(), Error> {
        self.context.on_handshake_keys(key, header_key)
    }

    fn on_zero_rtt_keys(
        &mut self,
        key: S::ZeroRttKey,
        header_key: S::ZeroRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), Error> {
        self.context.on_zero_rtt_keys(key, header_key, parameters)
    }

    fn on_server_name(&mut self, name: ServerName) -> Result<(), Error> {
        self.context.on_server_name(name)
    }

    fn on_application_protocol(&mut self, protocol: Bytes) -> Result<(), Error> {
        self.context.on_application_protocol(protocol)
    }

    fn on_key_exchange_group(&mut self, group: NamedGroup) -> Result<(), Error> {
        self.context.on_key_exchange_group(group)
    }

    fn on_handshake_complete(&mut self) -> Result<(), Error> {
        self.context.on_handshake_complete()
    }

    fn on_tls_context(&mut self, context: Box<dyn Any + Send>) {
        self.context.on_tls_context(context);
    }

    fn on_tls_exporter_ready(&mut self, session: &impl TlsSession) -> Result<(), Error> {
        self.context.on_tls_exporter_ready(session)
    }

    fn on_tls_handshake_failed(
        &mut self,
        session: &impl TlsSession,
        error: Box<dyn std::error::Error + Send + Sync>,
    ) -> Result<(), Error> {
        self.context.on_tls_handshake_failed(session, error)
    }

    fn receive_initial(&mut self, max: Option<usize>) -> Option<Bytes> {
        self.context.receive_initial(max)
    }

    fn receive_handshake(&mut self, max: Option<usize>) -> Option<Bytes> {
        self.context.receive_handshake(max)
    }

    fn receive_application(&mut self, max: Option<usize>) -> Option<Bytes> {
        self.context.receive_application(max)
    }

    fn can_send_initial(&self) -> bool {
        self.context.can_send_initial()
    }

    fn send_initial(&mut self, message: Bytes) {
        self.context.send_initial(message);
    }

    fn can_send_handshake(&self) -> bool {
        self.context.can_send_handshake()
    }

    fn send_handshake(&mut self, message: Bytes) {
        self.context.send_handshake(message);
    }

    fn can_send_application(&self) -> bool {
        self.context.can_send_application()
    }

    fn send_application(&mut self, message: Bytes) {
        self.context.send_application(message);
    }

    fn waker(&self) -> &Waker {
        self.context.waker()
    }
}

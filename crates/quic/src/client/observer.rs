//! Records what s2n-quic's events say about a client's connection: cipher suite, key exchange, ALPN, transport
//! parameters. Changes nothing.

use super::transport_parameters::TransportParameters;
use parking_lot::Mutex;
use s2n_codec::EncoderValue;
use s2n_quic::provider::{
    event::{ConnectionInfo, ConnectionMeta, Subscriber, events},
    tls::Provider,
};
use s2n_quic_core::{
    application::ServerName,
    crypto::tls::{self, Endpoint},
};
use std::sync::Arc;

/// The state of a client's connection, as s2n-quic's events report it.
#[derive(Debug, Clone, Default)]
pub struct ObservedConnection {
    /// Whether a datagram has arrived.
    pub received: bool,
    /// The TLS cipher suite of 1-RTT packets.
    pub cipher_suite: Option<&'static str>,
    /// Key exchange group of TLS.
    pub group: Option<String>,
    /// The application protocol of both ends (ALPN).
    pub protocol: Option<String>,
    /// Transport parameters that this end has sent.
    pub own_parameters: TransportParameters,
    /// Transport parameters of the server; `None` before they arrive.
    pub server_parameters: Option<TransportParameters>,
}

/// Observes one connection. Clones share the recorded state.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    seen: Arc<Mutex<ObservedConnection>>,
}

impl Observer {
    /// State of the connection at present.
    pub fn observed_state(&self) -> ObservedConnection {
        self.seen.lock().clone()
    }
}

impl Subscriber for Observer {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) {}

    fn on_application_protocol_information(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::ApplicationProtocolInformation<'_>,
    ) {
        self.seen.lock().protocol = Some(String::from_utf8_lossy(event.chosen_application_protocol).into_owned());
    }

    fn on_key_exchange_group(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::KeyExchangeGroup<'_>) {
        self.seen.lock().group = Some(event.chosen_group_name.to_owned());
    }

    fn on_key_update(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::KeyUpdate) {
        if matches!(event.key_type, events::KeyType::OneRtt { .. }) {
            self.seen.lock().cipher_suite = Some(event.cipher_suite.as_str());
        }
    }

    fn on_transport_parameters_received(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::TransportParametersReceived<'_>,
    ) {
        self.seen.lock().server_parameters = Some(TransportParameters::from_event(&event.transport_parameters));
    }

    fn on_datagram_received(&mut self, _: &mut (), _: &ConnectionMeta, _: &events::DatagramReceived) {
        self.seen.lock().received = true;
    }
}

/// TLS provider that passes this end's transport parameters to an observer; s2n-quic has no event for them.
pub(super) struct ObservedTls<T> {
    pub(super) tls: T,
    pub(super) observer: Observer,
}

impl<T: Provider> Provider for ObservedTls<T> {
    type Server = T::Server;
    type Client = ObservedTls<T::Client>;
    type Error = T::Error;

    fn start_server(self) -> Result<T::Server, T::Error> {
        self.tls.start_server()
    }

    fn start_client(self) -> Result<Self::Client, T::Error> {
        Ok(ObservedTls { tls: self.tls.start_client()?, observer: self.observer })
    }
}

impl<E: Endpoint> Endpoint for ObservedTls<E> {
    type Session = E::Session;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: tls::ConnectionInfo) -> E::Session {
        self.tls.new_server_session(parameters, info)
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> E::Session {
        self.observer.seen.lock().own_parameters = TransportParameters::from_encoded(&parameters.encode_to_vec());
        self.tls.new_client_session(parameters, name)
    }

    fn max_tag_length(&self) -> usize {
        self.tls.max_tag_length()
    }
}

//! Provides TLS for s2n-quic's server by [`super::session`]. s2n-quic's own rustls provider ends a session before
//! rustls has issued its tickets (docs/adr/0008-own-tls-session.md).

use super::{server_tls::ServerTls, session::QuicTlsSession};
use s2n_codec::EncoderValue;
use s2n_quic::provider::tls::Provider;
use s2n_quic_core::{
    application::ServerName,
    crypto::tls::{self, ConnectionInfo},
};

impl tls::Endpoint for ServerTls {
    type Session = QuicTlsSession;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: ConnectionInfo) -> QuicTlsSession {
        QuicTlsSession::new(self.clone(), info.local_address.ip(), parameters.encode_to_vec())
    }

    /// Returns a session that fails: s2n-quic never requests a client's session from a server.
    fn new_client_session<P: EncoderValue>(&mut self, _: &P, _: ServerName) -> QuicTlsSession {
        QuicTlsSession::new_failed(self)
    }

    fn max_tag_length(&self) -> usize {
        s2n_quic_crypto::MAX_TAG_LEN
    }
}

impl Provider for ServerTls {
    type Server = Self;
    type Client = Self;
    type Error = ServersOnly;

    fn start_server(self) -> Result<Self, ServersOnly> {
        Ok(self)
    }

    fn start_client(self) -> Result<Self, ServersOnly> {
        Err(ServersOnly)
    }
}

/// Error of a client that was to use a server's configuration.
#[derive(Debug, thiserror::Error)]
#[error("this TLS configuration is a server's")]
pub struct ServersOnly;

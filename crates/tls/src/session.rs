//! Connects rustls and s2n-quic for the server's side of one TLS handshake over QUIC (RFC 9001 §4): passes CRYPTO data
//! both ways, and provides keys, session tickets, and the client's identity.

use super::hello::{self, HelloName};
use super::hello_rules::ClientHelloRules;
use super::metrics::TlsMetrics;
use super::server_tls::ServerTls;
use super::traffic_secrets::{self, TrafficSecrets};
use bytes::Bytes;
use litequic_exchange::{CertificateRequest, ClientCertificate, TlsIdentity};
use rustls::{
    Error, HandshakeKind, PeerIncompatible,
    quic::{KeyChange, ServerConnection},
};
use s2n_codec::DecoderBuffer;
use s2n_quic_core::{
    crypto::{
        CryptoSuite,
        tls::{self, ApplicationParameters, ChainError, CipherSuite, Context, NamedGroup, TlsExportError, TlsSession},
    },
    transport::{self, parameters::ClientTransportParameters},
};
use std::{net::IpAddr, sync::Arc, task::Poll, time::Duration};

/// Smallest max_ack_delay that is invalid (RFC 9000 §18.2).
const INVALID_MAX_ACK_DELAY: Duration = Duration::from_millis(1 << 14);

/// One handshake. s2n-quic polls the session with each datagram that has CRYPTO data, and drops it at the end of the
/// handshake.
///
/// s2n-quic 0.91 passes a server no CRYPTO data in 1-RTT packets. Such data is illegal, as litequic requests no
/// certificate after the handshake: `quic::wire::violation` closes the connection, as RFC 9001 §6 requires for a TLS
/// KeyUpdate. So an established connection holds no TLS state.
pub struct QuicTlsSession {
    /// Set while the ClientHello is incomplete, if the session depends on its server name.
    pending_hello: Option<Box<PendingHello>>,
    /// `None` before the ClientHello, and if rustls rejected its configuration. Boxed, because s2n-quic retains the
    /// session's memory for as long as the connection.
    connection: Option<Box<ServerConnection>>,
    /// Rules for the ClientHello that rustls does not check.
    rules: ClientHelloRules,
    /// Traffic secrets of `connection`.
    secrets: Arc<TrafficSecrets>,
    /// Certificate request to the client.
    request: CertificateRequest,
    level: EncryptionLevel,
    announced: bool,
    metrics: Arc<TlsMetrics>,
}

/// State of a session before the ClientHello is complete.
struct PendingHello {
    tls: ServerTls,
    /// Address that the client connected to.
    local: IpAddr,
    /// litequic's transport parameters, encoded.
    parameters: Vec<u8>,
}

/// Encryption level (RFC 9001 §2.1) at which the server writes. It reads at the same level, but never above
/// `Handshake`, where the client's last message, Finished, is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncryptionLevel {
    Initial,
    Handshake,
    Application,
}

impl QuicTlsSession {
    /// Creates a session at the address `local` that waits for its ClientHello; `parameters` are litequic's encoded
    /// transport parameters. If rustls rejects its configuration, the session fails at once by litequic's fault.
    pub(super) fn new(tls: ServerTls, local: IpAddr, parameters: Vec<u8>) -> Self {
        let mut this = Self::new_failed(&tls);
        if tls.needs_server_name() {
            this.pending_hello = Some(Box::new(PendingHello { tls, local, parameters }));
        } else {
            this.open_tls_connection(&tls, local, parameters);
        }
        this
    }

    /// Creates a session that fails at once.
    pub(super) fn new_failed(tls: &ServerTls) -> Self {
        Self {
            pending_hello: None,
            connection: None,
            rules: ClientHelloRules::default(),
            secrets: Arc::default(),
            request: CertificateRequest::None,
            level: EncryptionLevel::Initial,
            announced: false,
            metrics: tls.shared_metrics(),
        }
    }

    fn open_tls_connection(&mut self, tls: &ServerTls, local: IpAddr, parameters: Vec<u8>) {
        self.connection =
            tls.new_tls_connection(self.request, local, parameters, Arc::clone(&self.secrets)).map(Box::new);
    }

    /// Waits for the ClientHello, and creates the connection with the configuration for its server name.
    fn await_hello<C: Context<Self>>(&mut self, context: &mut C) -> Result<Poll<()>, transport::Error> {
        let Some(waiting) = &mut self.pending_hello else { return Ok(Poll::Ready(())) };
        self.request = loop {
            let Some(data) = context.receive_initial(None) else { return Ok(Poll::Pending) };
            self.rules.message.extend_from_slice(&data);
            match hello::read_hello_name(&self.rules.message) {
                HelloName::Unfinished => {}
                HelloName::Named(name) => break waiting.tls.request_for_client(name.as_deref()),
                // The session will report the error. If it finds none, a certificate is required.
                HelloName::Unreadable => break CertificateRequest::Required,
            }
        };
        let Some(waiting) = self.pending_hello.take() else { return Ok(Poll::Ready(())) };
        let PendingHello { tls, local, parameters } = *waiting;
        self.open_tls_connection(&tls, local, parameters);
        if let Some(connection) = &mut self.connection {
            connection.read_hs(&self.rules.message).map_err(|error| handshake_alert(connection, &error))?;
            self.rules.check_bytes(&[])?;
        }
        Ok(Poll::Ready(()))
    }

    fn advance_handshake<C: Context<Self>>(&mut self, context: &mut C) -> Result<Poll<()>, transport::Error> {
        if self.await_hello(context)?.is_pending() {
            return Ok(Poll::Pending);
        }
        let Self { connection: Some(connection), rules, secrets, level, announced, metrics, .. } = self else {
            return Err(tls::Error::INTERNAL_ERROR.with_reason("TLS is misconfigured").into());
        };
        loop {
            // Keys in the last message determine the level of the next, so write before reading.
            send_handshake_data(connection, secrets, level, announced, context)?;
            if *level == EncryptionLevel::Application && !connection.is_handshaking() {
                break;
            }
            let data = match level {
                EncryptionLevel::Initial => context.receive_initial(None),
                EncryptionLevel::Handshake | EncryptionLevel::Application => context.receive_handshake(None),
            };
            let Some(data) = data else { return Ok(Poll::Pending) };
            if let Err(error) = connection.read_hs(&data) {
                match error {
                    Error::NoCertificatesPresented => metrics.client_certificates_missing.increment(),
                    Error::InvalidCertificate(_) => metrics.client_certificates_invalid.increment(),
                    _ => {}
                }
                return Err(handshake_alert(connection, &error));
            }
            if *level == EncryptionLevel::Initial {
                rules.check_bytes(&data)?;
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Returns the client's identity after the handshake.
    fn client_identity(&self) -> TlsIdentity {
        let Some(connection) = &self.connection else {
            return TlsIdentity { certificate_request: self.request, ..TlsIdentity::default() };
        };
        TlsIdentity {
            certificate_request: self.request,
            certificate: connection.peer_certificates().and_then(ClientCertificate::new),
            group: connection.negotiated_key_exchange_group().map(|group| group.name().into()),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            ..TlsIdentity::default()
        }
    }
}

/// Sends all data that rustls has queued, session tickets included, and provides the keys for the next level.
fn send_handshake_data<C: Context<QuicTlsSession>>(
    connection: &mut ServerConnection,
    secrets: &TrafficSecrets,
    level: &mut EncryptionLevel,
    announced: &mut bool,
    context: &mut C,
) -> Result<(), transport::Error> {
    if *level == EncryptionLevel::Initial {
        check_parameters(connection)?;
    }
    loop {
        // s2n-quic's buffer of CRYPTO data may be full, and accepts no more once it is finished.
        let ready = match level {
            EncryptionLevel::Initial => context.can_send_initial(),
            EncryptionLevel::Handshake => context.can_send_handshake(),
            EncryptionLevel::Application => context.can_send_application(),
        };
        if !ready {
            return Ok(());
        }
        let mut message = Vec::new();
        let change = connection.write_hs(&mut message);
        if message.is_empty() && change.is_none() {
            return Ok(());
        }
        if !message.is_empty() {
            let message = Bytes::from(message);
            match level {
                EncryptionLevel::Initial => context.send_initial(message),
                EncryptionLevel::Handshake => context.send_handshake(message),
                EncryptionLevel::Application => context.send_application(message),
            }
        }
        // The change's keys of rustls are not used: `traffic_secrets` makes others.
        match change {
            None => {}
            Some(KeyChange::Handshake { .. }) => {
                let (packet, header) =
                    secrets.handshake_keys(negotiated_suite(connection)).ok_or_else(missing_secrets)?;
                context.on_handshake_keys(packet, header)?;
                *level = EncryptionLevel::Handshake;
            }
            Some(KeyChange::OneRtt { .. }) => {
                // Announce before the keys: s2n-quic's limiter runs when it gets the keys, and needs this information.
                announce_negotiated(connection, announced, context)?;
                let (packet, header) =
                    secrets.one_rtt_keys(negotiated_suite(connection)).ok_or_else(missing_secrets)?;
                context.on_one_rtt_keys(packet, header, client_transport_parameters(connection)?)?;
                *level = EncryptionLevel::Application;
            }
        }
    }
}

/// Returns the error if rustls changed its keys without passing the secrets, which is litequic's fault.
fn missing_secrets() -> tls::Error {
    tls::Error::INTERNAL_ERROR.with_reason("no traffic secrets")
}

/// Returns the alert for an invalid handshake (RFC 9001 §4.8).
fn handshake_alert(connection: &ServerConnection, error: &Error) -> transport::Error {
    tracing::debug!(%error, "TLS handshake failed");
    use PeerIncompatible::{
        KeyShareExtensionRequired, NamedGroupsExtensionRequired, SignatureAlgorithmsExtensionRequired,
    };
    // rustls raises no alert for some malformed messages, and handshake_failure where an extension is missing.
    let code = match (connection.alert(), error) {
        // A missing extension is an error of its own (RFC 8446 §9.2).
        (
            _,
            Error::PeerIncompatible(
                KeyShareExtensionRequired | NamedGroupsExtensionRequired | SignatureAlgorithmsExtensionRequired,
            ),
        ) => tls::Error::MISSING_EXTENSION.code,
        (Some(alert), _) => u8::from(alert),
        (None, Error::InvalidMessage(_)) => tls::Error::DECODE_ERROR.code,
        (None, Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. }) => {
            tls::Error::UNEXPECTED_MESSAGE.code
        }
        (None, _) => tls::Error::INTERNAL_ERROR.code,
    };
    // The client reads the reason in CONNECTION_CLOSE, beside the alert.
    let reason = match error {
        Error::InvalidMessage(_) => "malformed TLS message",
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => "unexpected TLS message",
        Error::PeerIncompatible(_) => "no TLS parameters in common",
        Error::NoApplicationProtocol => "no application protocol in common",
        Error::PeerMisbehaved(_) => "TLS protocol violation",
        Error::DecryptError => "TLS message fails authentication",
        Error::InvalidCertificate(_) => "certificate rejected",
        Error::NoCertificatesPresented => "certificate required",
        _ => "",
    };
    tls::Error { code, reason }.into()
}

/// Returns the client's transport parameters, still encoded (RFC 9001 §8.2).
fn client_transport_parameters(connection: &ServerConnection) -> Result<ApplicationParameters<'_>, tls::Error> {
    match connection.quic_transport_parameters() {
        Some(transport_parameters) => Ok(ApplicationParameters { transport_parameters }),
        None => Err(tls::Error::MISSING_EXTENSION.with_reason("no QUIC transport parameters")),
    }
}

/// Rejects invalid transport parameters of the client. s2n-quic would read them only after it has the 1-RTT keys: a
/// signature has been made by then, and the server's queued flight would be sent before the CONNECTION_CLOSE, and use
/// up the bytes that may be sent to an address that is not validated (RFC 9000 §8.1).
fn check_parameters(connection: &ServerConnection) -> Result<(), transport::Error> {
    let Some(parameters) = connection.quic_transport_parameters() else { return Ok(()) };
    let valid = |parameters: &ClientTransportParameters| {
        // s2n-quic 0.91 accepts the first invalid value.
        parameters.max_ack_delay.as_duration() < INVALID_MAX_ACK_DELAY
            // RFC 9000 §7.3 requires this parameter; s2n-quic compares it with the packet's ID.
            && parameters.initial_source_connection_id.is_some()
    };
    match DecoderBuffer::new(parameters).decode() {
        Ok((parameters, _)) if valid(&parameters) => Ok(()),
        _ => Err(transport::Error::TRANSPORT_PARAMETER_ERROR.with_reason("invalid transport parameters")),
    }
}

/// Reports the negotiated parameters to s2n-quic, once, also if the handshake fails.
fn announce_negotiated<C: Context<QuicTlsSession>>(
    connection: &ServerConnection,
    announced: &mut bool,
    context: &mut C,
) -> Result<(), transport::Error> {
    if std::mem::replace(announced, true) {
        return Ok(());
    }
    if let Some(name) = connection.server_name() {
        context.on_server_name(name.into())?;
    }
    if let Some(protocol) = connection.alpn_protocol() {
        context.on_application_protocol(Bytes::copy_from_slice(protocol))?;
    }
    let group = connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str());
    if let Some(group_name) = group {
        context.on_key_exchange_group(NamedGroup { group_name, contains_kem: group_name.contains("KEM") })?;
    }
    Ok(())
}

fn negotiated_suite(connection: &ServerConnection) -> CipherSuite {
    connection
        .negotiated_cipher_suite()
        .map_or(CipherSuite::Unknown, |suite| traffic_secrets::to_s2n_suite(suite.suite()))
}

impl tls::Session for QuicTlsSession {
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), transport::Error>> {
        let outcome = self.advance_handshake(context).and_then(|progress| {
            if progress.is_ready() {
                let kind = self.connection.as_ref().and_then(|connection| connection.handshake_kind());
                match kind {
                    Some(HandshakeKind::Resumed) => self.metrics.handshakes_quic_resumed.increment(),
                    _ => self.metrics.handshakes_quic_full.increment(),
                }
                let group = self.connection.as_ref().and_then(|connection| connection.negotiated_key_exchange_group());
                self.metrics.count_group(group.map(|group| group.name()));
                context.on_tls_context(Box::new(self.client_identity()));
                context.on_handshake_complete()?;
                context.on_tls_exporter_ready(self)?;
            }
            Ok(progress)
        });
        match outcome {
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Ok(Poll::Pending) => Poll::Pending,
            Err(error) => {
                if let Some(connection) = &self.connection {
                    announce_negotiated(connection, &mut self.announced, context)?;
                }
                context.on_tls_handshake_failed(self, Box::new(error))?;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl CryptoSuite for QuicTlsSession {
    type HandshakeKey = s2n_quic_crypto::handshake::HandshakeKey;
    type HandshakeHeaderKey = s2n_quic_crypto::handshake::HandshakeHeaderKey;
    // Initial keys are made from a connection ID, not by TLS (RFC 9001 §5.2).
    type InitialKey = s2n_quic_crypto::initial::InitialKey;
    type InitialHeaderKey = s2n_quic_crypto::initial::InitialHeaderKey;
    type OneRttKey = s2n_quic_crypto::one_rtt::OneRttKey;
    type OneRttHeaderKey = s2n_quic_crypto::one_rtt::OneRttHeaderKey;
    // These types are unused, because there is no early data.
    type ZeroRttKey = s2n_quic_crypto::zero_rtt::ZeroRttKey;
    type ZeroRttHeaderKey = s2n_quic_crypto::zero_rtt::ZeroRttHeaderKey;
    type RetryKey = s2n_quic_crypto::retry::RetryKey;
}

impl TlsSession for QuicTlsSession {
    /// Fails: litequic needs no exporter, and rustls has none for QUIC connections.
    fn tls_exporter(&self, _: &[u8], _: &[u8], _: &mut [u8]) -> Result<(), TlsExportError> {
        Err(TlsExportError::failure())
    }

    fn cipher_suite(&self) -> CipherSuite {
        self.connection.as_deref().map_or(CipherSuite::Unknown, negotiated_suite)
    }

    fn peer_cert_chain_der(&self) -> Result<Vec<Vec<u8>>, ChainError> {
        let chain = self.connection.as_ref().and_then(|connection| connection.peer_certificates());
        let chain = chain.ok_or_else(ChainError::failure)?;
        Ok(chain.iter().map(|certificate| certificate.to_vec()).collect())
    }

    /// Fails: rustls exposes no chain before its verification.
    fn client_cert_chain_der(&self) -> Result<Option<Vec<u8>>, ChainError> {
        Err(ChainError::failure())
    }

    /// Fails: rustls does not report the served certificate.
    fn selected_cert_der(&self) -> Result<Option<Vec<Vec<u8>>>, ChainError> {
        Err(ChainError::failure())
    }
}

litequic_base::partial_debug!(QuicTlsSession { level });

#[cfg(test)]
mod tests;

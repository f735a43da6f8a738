//! The server's side of one TLS handshake over QUIC (RFC 9001 §4), between rustls and s2n-quic: carries CRYPTO data
//! both ways, provides keys, after the handshake the session tickets, and the client's identity by its certificate.

use super::hello::{self, Hello};
use super::keys::{self, TrafficSecrets};
use super::metrics::Metrics;
use super::rules::TlsRules;
use super::server_tls::ServerTls;
use bytes::Bytes;
use litequic_exchange::{Certificate, CertificateRequest, Identity};
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
use std::{fmt, net::IpAddr, sync::Arc, task::Poll, time::Duration};

/// RFC 9000 §18.2: from here on max_ack_delay is invalid.
const INVALID_MAX_ACK_DELAY: Duration = Duration::from_millis(1 << 14);

/// One handshake. s2n-quic polls it with each datagram that has CRYPTO data, and drops it when it is complete.
///
/// It ends with the handshake, because s2n-quic 0.91 passes a server no CRYPTO data in 1-RTT packets. None is legal
/// there, as litequic requests no certificate after the handshake: `quic::wire::violation` has the connection closed,
/// as RFC 9001 §6 requires for a TLS KeyUpdate. So an established connection holds no TLS state.
pub struct Session {
    /// While the ClientHello is incomplete, if its name matters.
    waiting: Option<Box<Waiting>>,
    /// `None` before, and if rustls rejected its configuration. Boxed: s2n-quic keeps the room for as long as the
    /// connection.
    connection: Option<Box<ServerConnection>>,
    /// The rules for the ClientHello besides rustls'.
    rules: TlsRules,
    /// The secrets of `connection`.
    secrets: Arc<TrafficSecrets>,
    /// Whether the client is asked for a certificate.
    asked: CertificateRequest,
    level: Level,
    announced: bool,
    metrics: Arc<Metrics>,
}

/// The parts of a connection until its client's ClientHello has come.
struct Waiting {
    tls: ServerTls,
    /// The address that the client connected to.
    local: IpAddr,
    /// litequic's transport parameters, encoded.
    parameters: Vec<u8>,
    /// CRYPTO data so far: a ClientHello at most, and the bytes behind its last piece.
    data: Vec<u8>,
}

/// The encryption level (RFC 9001 §2.1) that the server writes at. It reads at the same one, but never above
/// `Handshake`: there the client's Finished comes, its last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Initial,
    Handshake,
    Application,
}

impl Session {
    /// A handshake at the address `local` that waits for its ClientHello; `parameters` are litequic's transport
    /// parameters, encoded. Should rustls reject its configuration, it fails at once, by litequic's fault.
    pub(super) fn new(tls: ServerTls, local: IpAddr, parameters: Vec<u8>) -> Self {
        let mut this = Self::failed(&tls);
        if tls.hangs_on_name() {
            this.waiting = Some(Box::new(Waiting { tls, local, parameters, data: Vec::new() }));
        } else {
            this.connect(&tls, local, parameters);
        }
        this
    }

    /// One that fails at once.
    pub(super) fn failed(tls: &ServerTls) -> Self {
        Self {
            waiting: None,
            connection: None,
            rules: TlsRules::default(),
            secrets: Arc::default(),
            asked: CertificateRequest::None,
            level: Level::Initial,
            announced: false,
            metrics: tls.metrics(),
        }
    }

    fn connect(&mut self, tls: &ServerTls, local: IpAddr, parameters: Vec<u8>) {
        self.connection = tls.connection(self.asked, local, parameters, Arc::clone(&self.secrets)).map(Box::new);
    }

    /// Waits for the ClientHello, and begins with the configuration for its name.
    fn begin<C: Context<Self>>(&mut self, context: &mut C) -> Result<Poll<()>, transport::Error> {
        let Some(waiting) = &mut self.waiting else { return Ok(Poll::Ready(())) };
        self.asked = loop {
            let Some(data) = context.receive_initial(None) else { return Ok(Poll::Pending) };
            waiting.data.extend_from_slice(&data);
            match hello::peek(&waiting.data) {
                Hello::Unfinished => {}
                Hello::Named(name) => break waiting.tls.request(name.as_deref()),
                // The session reports the error. Should it find none, the strictest rule applies.
                Hello::Unreadable => break CertificateRequest::Required,
            }
        };
        let Some(waiting) = self.waiting.take() else { return Ok(Poll::Ready(())) };
        let Waiting { tls, local, parameters, data } = *waiting;
        self.connect(&tls, local, parameters);
        if let Some(connection) = &mut self.connection {
            connection.read_hs(&data).map_err(|error| refusal(connection, &error))?;
            self.rules.read(&data)?;
        }
        Ok(Poll::Ready(()))
    }

    fn advance<C: Context<Self>>(&mut self, context: &mut C) -> Result<Poll<()>, transport::Error> {
        if self.begin(context)?.is_pending() {
            return Ok(Poll::Pending);
        }
        let Self { connection: Some(connection), rules, secrets, level, announced, metrics, .. } = self else {
            return Err(tls::Error::INTERNAL_ERROR.with_reason("TLS is misconfigured").into());
        };
        loop {
            // The order matters: keys of the last message lead to the level of the next.
            write(connection, secrets, level, announced, context)?;
            if *level == Level::Application && !connection.is_handshaking() {
                break;
            }
            let data = match level {
                Level::Initial => context.receive_initial(None),
                Level::Handshake | Level::Application => context.receive_handshake(None),
            };
            let Some(data) = data else { return Ok(Poll::Pending) };
            if let Err(error) = connection.read_hs(&data) {
                match error {
                    Error::NoCertificatesPresented => metrics.client_certificates_missing.increment(),
                    Error::InvalidCertificate(_) => metrics.client_certificates_invalid.increment(),
                    _ => {}
                }
                return Err(refusal(connection, &error));
            }
            if *level == Level::Initial {
                rules.read(&data)?;
            }
        }
        Ok(Poll::Ready(()))
    }

    /// The result of the handshake about its client, once complete.
    fn identity(&self) -> Identity {
        let Some(connection) = &self.connection else { return Identity { asked: self.asked, ..Identity::default() } };
        Identity {
            asked: self.asked,
            certificate: connection.peer_certificates().and_then(Certificate::new),
            group: connection.negotiated_key_exchange_group().map(|group| group.name().into()),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            ..Identity::default()
        }
    }
}

/// Sends what rustls queued, and provides the keys for the next level. All of it: at the end of the handshake that
/// includes the session tickets, at `Application`.
fn write<C: Context<Session>>(
    connection: &mut ServerConnection,
    secrets: &TrafficSecrets,
    level: &mut Level,
    announced: &mut bool,
    context: &mut C,
) -> Result<(), transport::Error> {
    if *level == Level::Initial {
        check_parameters(connection)?;
    }
    loop {
        // s2n-quic's buffer of CRYPTO data may be full, and accepts no more once it is finished.
        let ready = match level {
            Level::Initial => context.can_send_initial(),
            Level::Handshake => context.can_send_handshake(),
            Level::Application => context.can_send_application(),
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
                Level::Initial => context.send_initial(message),
                Level::Handshake => context.send_handshake(message),
                Level::Application => context.send_application(message),
            }
        }
        // Of what the change holds, rustls' own keys, nothing is used: see `keys`.
        match change {
            None => {}
            Some(KeyChange::Handshake { .. }) => {
                let (packet, header) = secrets.handshake(cipher_suite(connection)).ok_or_else(no_keys)?;
                context.on_handshake_keys(packet, header)?;
                *level = Level::Handshake;
            }
            Some(KeyChange::OneRtt { .. }) => {
                // Before the keys: s2n-quic's limiter runs with the latter and needs the former.
                announce(connection, announced, context)?;
                let (packet, header) = secrets.one_rtt(cipher_suite(connection)).ok_or_else(no_keys)?;
                context.on_one_rtt_keys(packet, header, parameters(connection)?)?;
                *level = Level::Application;
            }
        }
    }
}

/// rustls has changed its keys without the secrets: litequic's fault.
fn no_keys() -> tls::Error {
    tls::Error::INTERNAL_ERROR.with_reason("no traffic secrets")
}

/// The alert for what the client sent instead of a valid handshake (RFC 9001 §4.8).
fn refusal(connection: &ServerConnection, error: &Error) -> transport::Error {
    tracing::debug!(%error, "TLS handshake failed");
    use PeerIncompatible::{
        KeyShareExtensionRequired, NamedGroupsExtensionRequired, SignatureAlgorithmsExtensionRequired,
    };
    // rustls raises no alert for some of what it cannot parse, and handshake_failure where an extension is missing.
    let code = match (connection.alert(), error) {
        // RFC 8446 §9.2.
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
    // The client reads it in CONNECTION_CLOSE; the alert says the rest.
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

/// The client's transport parameters, still encoded (RFC 9001 §8.2).
fn parameters(connection: &ServerConnection) -> Result<ApplicationParameters<'_>, tls::Error> {
    match connection.quic_transport_parameters() {
        Some(transport_parameters) => Ok(ApplicationParameters { transport_parameters }),
        None => Err(tls::Error::MISSING_EXTENSION.with_reason("no QUIC transport parameters")),
    }
}

/// Rejects invalid transport parameters of the client's. s2n-quic reads them once it has the 1-RTT keys, after a
/// signature was made and the server's flight was queued, which would be sent before the CONNECTION_CLOSE and use up
/// what may be sent to an address that is not validated (RFC 9000 §8.1).
fn check_parameters(connection: &ServerConnection) -> Result<(), transport::Error> {
    let Some(parameters) = connection.quic_transport_parameters() else { return Ok(()) };
    let valid = |parameters: &ClientTransportParameters| {
        // s2n-quic 0.91 accepts the first value that is invalid.
        parameters.max_ack_delay.as_duration() < INVALID_MAX_ACK_DELAY
            // Required (RFC 9000 §7.3). s2n-quic compares it with the packet's.
            && parameters.initial_source_connection_id.is_some()
    };
    match DecoderBuffer::new(parameters).decode() {
        Ok((parameters, _)) if valid(&parameters) => Ok(()),
        _ => Err(transport::Error::TRANSPORT_PARAMETER_ERROR.with_reason("invalid transport parameters")),
    }
}

/// Reports to s2n-quic, once, what was negotiated: as far as it was, if the handshake fails.
fn announce<C: Context<Session>>(
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

fn cipher_suite(connection: &ServerConnection) -> CipherSuite {
    connection.negotiated_cipher_suite().map_or(CipherSuite::Unknown, |suite| keys::cipher_suite(suite.suite()))
}

impl tls::Session for Session {
    fn poll<C: Context<Self>>(&mut self, context: &mut C) -> Poll<Result<(), transport::Error>> {
        let outcome = self.advance(context).and_then(|progress| {
            if progress.is_ready() {
                let kind = self.connection.as_ref().and_then(|connection| connection.handshake_kind());
                match kind {
                    Some(HandshakeKind::Resumed) => self.metrics.handshakes_quic_resumed.increment(),
                    _ => self.metrics.handshakes_quic_full.increment(),
                }
                let group = self.connection.as_ref().and_then(|connection| connection.negotiated_key_exchange_group());
                self.metrics.count_group(group.map(|group| group.name()));
                context.on_tls_context(Box::new(self.identity()));
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
                    announce(connection, &mut self.announced, context)?;
                }
                context.on_tls_handshake_failed(self, Box::new(error))?;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl CryptoSuite for Session {
    type HandshakeKey = s2n_quic_crypto::handshake::HandshakeKey;
    type HandshakeHeaderKey = s2n_quic_crypto::handshake::HandshakeHeaderKey;
    // Made from a connection ID rather than by TLS (RFC 9001 §5.2).
    type InitialKey = s2n_quic_crypto::initial::InitialKey;
    type InitialHeaderKey = s2n_quic_crypto::initial::InitialHeaderKey;
    type OneRttKey = s2n_quic_crypto::one_rtt::OneRttKey;
    type OneRttHeaderKey = s2n_quic_crypto::one_rtt::OneRttHeaderKey;
    // There is no early data, so there are none of these.
    type ZeroRttKey = s2n_quic_crypto::zero_rtt::ZeroRttKey;
    type ZeroRttHeaderKey = s2n_quic_crypto::zero_rtt::ZeroRttHeaderKey;
    type RetryKey = s2n_quic_crypto::retry::RetryKey;
}

impl TlsSession for Session {
    /// litequic does not use it, and rustls has no exporter on this type of connection.
    fn tls_exporter(&self, _: &[u8], _: &[u8], _: &mut [u8]) -> Result<(), TlsExportError> {
        Err(TlsExportError::failure())
    }

    fn cipher_suite(&self) -> CipherSuite {
        self.connection.as_deref().map_or(CipherSuite::Unknown, cipher_suite)
    }

    fn peer_cert_chain_der(&self) -> Result<Vec<Vec<u8>>, ChainError> {
        let chain = self.connection.as_ref().and_then(|connection| connection.peer_certificates());
        let chain = chain.ok_or_else(ChainError::failure)?;
        Ok(chain.iter().map(|certificate| certificate.to_vec()).collect())
    }

    /// rustls exposes no chain that it has not verified.
    fn client_cert_chain_der(&self) -> Result<Option<Vec<u8>>, ChainError> {
        Err(ChainError::failure())
    }

    /// rustls does not report which certificate it served.
    fn selected_cert_der(&self) -> Result<Option<Vec<Vec<u8>>>, ChainError> {
        Err(ChainError::failure())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("level", &self.level).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

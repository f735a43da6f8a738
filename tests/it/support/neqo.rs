//! A client that reads ACK_FREQUENCY frames by draft-ietf-quic-ack-frequency-00, as strictly as neqo, which is
//! Firefox's: quinn, with that draft's transport parameter in the place of its own. Between decryption and quinn's
//! parser each frame is checked byte by byte, and translated for quinn.

use super::{
    prelude::*,
    raw::{read_varint, varint},
    unasked::with_offer,
};
use bytes::BytesMut;
use quinn::{
    ConnectError, Side,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, KeyPair, Keys, PacketKey, Session,
        rustls::QuicClientConfig,
    },
    rustls::{
        self,
        quic::{ClientConnection, KeyChange, Version},
    },
};
use quinn_proto::{
    ConnectionId, TransportError, TransportErrorCode, crypto::HeaderKey, transport_parameters::TransportParameters,
};
use std::any::Any;

/// neqo's parameter, in microseconds.
const MIN_ACK_DELAY_00: u64 = 0xff02_de1a;
const GRANULARITY: u64 = 1000;
/// The bytes of the frame's type.
const ACK_FREQUENCY: [u8; 2] = [0x40, 0xaf];

/// A frame as neqo reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckFrequency {
    pub(crate) sequence: u64,
    pub(crate) tolerance: u64,
    pub(crate) delay: u64,
}

/// The frames that came, or the first fault found.
pub(crate) type Seen = Arc<Mutex<Result<Vec<AckFrequency>, String>>>;

/// quinn's configuration for one, which trusts `cert_pem` alone.
pub(crate) fn config(cert_pem: &str, transport: quinn::TransportConfig) -> (quinn::ClientConfig, Seen) {
    let seen = Seen::new(Mutex::new(Ok(Vec::new())));
    let tls = Arc::new(client::tls_config(cert_pem));
    let quinns = Arc::new(QuicClientConfig::try_from((*tls).clone()).unwrap());
    let mut config = quinn::ClientConfig::new(Arc::new(Neqo { tls, quinns, seen: Arc::clone(&seen) }));
    config.transport_config(Arc::new(transport));
    (config, seen)
}

struct Neqo {
    tls: Arc<rustls::ClientConfig>,
    quinns: Arc<QuicClientConfig>,
    seen: Seen,
}

impl ClientConfig for Neqo {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let value = varint(GRANULARITY);
        let offer = [varint(MIN_ACK_DELAY_00), varint(value.len() as u64), value].concat();
        let bytes = with_offer(params, offer);
        let name = server_name.to_owned().try_into().unwrap();
        let tls = ClientConnection::new(Arc::clone(&self.tls), Version::V1, name, bytes).unwrap();
        let quinns = Arc::clone(&self.quinns).start_session(version, server_name, params)?;
        Ok(Box::new(Reader { tls, quinns, secrets: None, has_data: false, seen: Arc::clone(&self.seen) }))
    }
}

/// TLS with parameters that quinn would not write. What has nothing to do with them quinn's own session does.
struct Reader {
    tls: ClientConnection,
    quinns: Box<dyn Session>,
    secrets: Option<rustls::quic::Secrets>,
    has_data: bool,
    seen: Seen,
}

impl Reader {
    fn read(&self, key: Box<dyn rustls::quic::PacketKey>) -> Box<dyn PacketKey> {
        Box::new(Key { key: Box::new(key), seen: Arc::clone(&self.seen) })
    }
}

impl Session for Reader {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.quinns.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.tls.read_hs(buf).map_err(|error| TransportError {
            code: TransportErrorCode::PROTOCOL_VIOLATION,
            frame: None,
            reason: error.to_string(),
        })?;
        let first = !self.has_data && self.tls.alpn_protocol().is_some();
        self.has_data |= first;
        Ok(first)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let parameters = self.tls.quic_transport_parameters();
        parameters.map(|mut bytes| TransportParameters::read(Side::Client, &mut bytes)).transpose().map_err(Into::into)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let (keys, is_1rtt) = match self.tls.write_hs(buf)? {
            KeyChange::Handshake { keys } => (keys, false),
            KeyChange::OneRtt { keys, next } => {
                self.secrets = Some(next);
                (keys, true)
            }
        };
        let remote = if is_1rtt { self.read(keys.remote.packet) } else { Box::new(keys.remote.packet) };
        Some(Keys {
            header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
            packet: KeyPair { local: Box::new(keys.local.packet), remote },
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: self.read(keys.remote) })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.quinns.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(&self, _: &mut [u8], _: &[u8], _: &[u8]) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

struct Key {
    key: Box<dyn PacketKey>,
    seen: Seen,
}

impl PacketKey for Key {
    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        let ours: Vec<_> = litequic_quic::frame::FrameIter::new(payload)
            .filter(|frame| payload[frame.range.clone()].starts_with(&ACK_FREQUENCY))
            .map(|frame| frame.range)
            .collect();
        for range in ours {
            let mut seen = self.seen.lock().unwrap();
            match translate(&mut payload[range]) {
                Ok(frame) => {
                    if let Ok(frames) = seen.as_mut() {
                        frames.push(frame);
                    }
                }
                Err(fault) => *seen = Err(fault),
            }
        }
        Ok(())
    }

    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// Reads a frame as neqo does, and makes of it what quinn reads: one packet less, and a reordering threshold.
fn translate(frame: &mut [u8]) -> Result<AckFrequency, String> {
    let body = &frame[ACK_FREQUENCY.len()..];
    let (sequence, body) = read_varint(body).ok_or("no sequence number")?;
    let at = frame.len() - body.len();
    let (tolerance, body) = read_varint(body).ok_or("no packet tolerance")?;
    let (delay, body) = read_varint(body).ok_or("no delay")?;
    let &[order @ (0 | 1)] = body else { return Err(format!("Ignore Order {body:x?}")) };
    if delay < GRANULARITY {
        return Err(format!("a delay of {delay} µs"));
    }
    // So many that it and one less take a byte.
    if !(1..64).contains(&tolerance) {
        return Err(format!("a packet tolerance of {tolerance}"));
    }
    frame[at] -= 1;
    *frame.last_mut().unwrap() = 1 - order;
    Ok(AckFrequency { sequence, tolerance, delay })
}

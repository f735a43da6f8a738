//! Makes quinn's ACK threshold exact. quinn keeps RFC 9000's "every second packet" unless the peer requests another
//! with ACK_FREQUENCY. So the first packet after the handshake gets such a frame before its own frames, between
//! decryption and quinn's parser: from then on quinn itself counts, and keeps its max_ack_delay. For the server nothing
//! may change that: the extension is not announced to it. The same place counts packets, independently of quinn.

use super::super::arguments::AckThreshold;
use bytes::BytesMut;
use litequic_testkit::varint;
use quinn_proto::{
    ConnectError, ConnectionId, Side, TransportError,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
        rustls::QuicClientConfig,
    },
    transport_parameters::TransportParameters,
};
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// ACK_FREQUENCY and min_ack_delay, as draft-ietf-quic-ack-frequency-07 and later have them.
const ACK_FREQUENCY: u64 = 0xaf;
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// What quinn announces as max_ack_delay, and RFC 9000's default, in microseconds: an ACK is never later.
const MAX_ACK_DELAY_US: u64 = 25_000;

/// Larger than any of a server's, should one send such frames unasked: quinn passes over what is older.
const SEQUENCE_NUMBER: u64 = (1 << 30) - 1;

/// A gap in the packet numbers is reported at once (RFC 9000 §13.2.1), or when its time comes.
const GAPS_AT_ONCE: u64 = 1;
const GAPS_LATER: u64 = 0;

/// What one connection's keys have seen. Shared with quinn, which wants `Sync`; there is one thread.
#[derive(Debug, Default)]
pub(super) struct Seen {
    packets: AtomicU64,
    /// One more than the largest packet number.
    numbers: AtomicU64,
    confirmed: AtomicBool,
    told: AtomicBool,
    post_handshake: AtomicBool,
}

impl Seen {
    /// 1-RTT packets received.
    pub(super) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// 1-RTT packet numbers that have not come although a larger one has.
    pub(super) fn missing(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed).saturating_sub(self.packets())
    }

    /// ACK_FREQUENCY frames that quinn has counted and no server has sent.
    pub(super) fn own_frames(&self) -> u64 {
        u64::from(self.told.load(Ordering::Relaxed))
    }

    /// The handshake is confirmed: now quinn may get the threshold. Before, an ACK in the Handshake space would stop
    /// the timer of the 1-RTT space for good (quinn-proto 0.11), and below a high threshold nothing would ever be sent.
    pub(super) fn confirm(&self) {
        self.confirmed.store(true, Ordering::Relaxed);
    }

    /// Whether TLS has had something to say after the handshake: a ticket.
    pub(super) fn ticket(&self) -> bool {
        self.post_handshake.load(Ordering::Relaxed)
    }
}

/// One connection's cryptography: rustls', with the threshold in it.
pub(super) struct Crypto {
    inner: Arc<QuicClientConfig>,
    threshold: AckThreshold,
    gaps_at_once: bool,
    seen: Arc<Seen>,
}

impl Crypto {
    pub(super) fn new(
        inner: Arc<QuicClientConfig>,
        threshold: AckThreshold,
        gaps_at_once: bool,
        seen: Arc<Seen>,
    ) -> Self {
        Self { inner, threshold, gaps_at_once, seen }
    }
}

impl ClientConfig for Crypto {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.inner.clone();
        let (session, frame) = match self.threshold {
            AckThreshold::Auto => (inner.start_session(version, server_name, params)?, None),
            AckThreshold::Exact(packets) => {
                let params = without_min_ack_delay(params);
                (inner.start_session(version, server_name, &params)?, Some(ack_frequency(packets, self.gaps_at_once)))
            }
        };
        Ok(Box::new(Watched { session, frame: frame.map(Arc::from), key_sets: 0, seen: self.seen.clone() }))
    }
}

/// The parameters as a client without the extension sends them.
fn without_min_ack_delay(params: &TransportParameters) -> TransportParameters {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some((id, behind)) = varint::decode(rest)
        && let Some((length, behind)) = varint::decode(behind)
        && let Some(after) = usize::try_from(length).ok().and_then(|length| behind.get(length..))
    {
        if id != MIN_ACK_DELAY {
            kept.extend_from_slice(rest.get(..rest.len() - after.len()).unwrap_or_default());
        }
        rest = after;
    }
    #[expect(clippy::expect_used, reason = "quinn's own parameters, less one that is optional")]
    TransportParameters::read(Side::Server, &mut kept.as_slice()).expect("parameters that quinn wrote")
}

/// "Acknowledge every `packets` packets."
fn ack_frequency(packets: u32, gaps_at_once: bool) -> Vec<u8> {
    let reordering_threshold = if gaps_at_once { GAPS_AT_ONCE } else { GAPS_LATER };
    let mut frame = Vec::new();
    // The ack-eliciting packets that may go without an ACK are one less.
    for value in
        [ACK_FREQUENCY, SEQUENCE_NUMBER, u64::from(packets.saturating_sub(1)), MAX_ACK_DELAY_US, reordering_threshold]
    {
        varint::append(value, &mut frame);
    }
    frame
}

/// rustls' session, whose 1-RTT keys are watched.
struct Watched {
    session: Box<dyn Session>,
    frame: Option<Arc<[u8]>>,
    /// Key sets handed out: the first is for the handshake, the second for 1-RTT.
    key_sets: u32,
    seen: Arc<Seen>,
}

impl Watched {
    fn watch(&self, key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        Box::new(WatchedKey { key, frame: self.frame.clone(), seen: self.seen.clone() })
    }
}

impl Session for Watched {
    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if !self.session.is_handshaking() {
            self.seen.post_handshake.store(true, Ordering::Relaxed);
        }
        self.session.read_handshake(buf)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.session.write_handshake(buf)?;
        self.key_sets += 1;
        if self.key_sets == 2 {
            keys.packet.remote = self.watch(keys.packet.remote);
        }
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let KeyPair { local, remote } = self.session.next_1rtt_keys()?;
        Some(KeyPair { local, remote: self.watch(remote) })
    }

    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

struct WatchedKey {
    key: Box<dyn PacketKey>,
    frame: Option<Arc<[u8]>>,
    seen: Arc<Seen>,
}

impl PacketKey for WatchedKey {
    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        self.seen.packets.fetch_add(1, Ordering::Relaxed);
        self.seen.numbers.fetch_max(packet + 1, Ordering::Relaxed);
        if let Some(frame) = &self.frame
            && self.seen.confirmed.load(Ordering::Relaxed)
            && !self.seen.told.swap(true, Ordering::Relaxed)
        {
            // In front: the last frame may be a STREAM frame without a length, which takes all that follows as its own.
            let mut frames = BytesMut::with_capacity(frame.len() + payload.len());
            frames.extend_from_slice(frame);
            frames.extend_from_slice(payload);
            *payload = frames;
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

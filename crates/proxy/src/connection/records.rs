//! Reads and writes the records of TLS 1.3 after the handshake (RFC 8446 §5): decrypts them in place, and encrypts from
//! where the plaintext lies. rustls copies each record twice, both ways, and allocates memory for it.
//!
//! rustls performs the handshake, and then hands over the keys (`rustls::kernel`, which is made for TLS in kernels). It
//! still makes the keys of a key update, and keeps session tickets. The cipher is aws-lc's, and errors are rustls'.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, HandshakeType, InvalidMessage,
    PeerMisbehaved, SupportedCipherSuite, client::ClientConnectionData, kernel::KernelConnection,
};
use std::{io::IoSlice, ops::Range};

/// Bytes of a record's header: type, version and length.
const HEADER_BYTES: usize = 5;
/// Most bytes of plaintext in a record (RFC 8446 §5.1).
pub(super) const MAX_FRAGMENT: usize = 16 * 1024;
/// Most bytes that encryption may add: the inner type, padding, the tag (RFC 8446 §5.2).
const MAX_EXPANSION: usize = 256;
/// Most bytes of a record with its header.
pub(super) const MAX_RECORD: usize = HEADER_BYTES + MAX_FRAGMENT + MAX_EXPANSION;
/// Bytes of the tag of every cipher of TLS 1.3.
const TAG_BYTES: usize = 16;
/// Bytes that encryption adds here: the header, the inner type, the tag.
pub(super) const RECORD_OVERHEAD: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// Bytes of a record with a KeyUpdate.
const UPDATE_RECORD: usize = RECORD_OVERHEAD + 5;
/// Most bytes of a handshake message, as in rustls.
const MAX_HANDSHAKE: usize = 4 + 0xffff;
/// Most consecutive empty records, and most requests for a key update without data in between, as in rustls.
const MAX_FRUITLESS: u8 = 32;
/// `legacy_record_version` (RFC 8446 §5.1).
const LEGACY_VERSION: [u8; 2] = [3, 3];
/// `KeyUpdateRequest`: no update of the other direction is requested (RFC 8446 §4.6.3).
const UPDATE_NOT_REQUESTED: u8 = 0;
/// `KeyUpdateRequest`: an update of the other direction is requested, too.
const UPDATE_REQUESTED: u8 = 1;

/// Bytes of the records that carry `plain` bytes, of a server whose records have the largest size.
pub(super) const fn record_bytes(plain: usize) -> usize {
    plain.saturating_add((plain / MAX_FRAGMENT + 1) * RECORD_OVERHEAD)
}

/// Key of one direction.
struct TrafficKey {
    aead: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl TrafficKey {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::General("a cipher that is unknown".into())),
        };
        let unusable = || Error::General("a key of another length".into());
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable())?;
        let iv = iv.as_ref().try_into().map_err(|_| unusable())?;
        Ok(Self { aead: LessSafeKey::new(key), iv, sequence })
    }

    /// Returns the next nonce, which no other record has (RFC 8446 §5.3).
    fn next_nonce(&mut self) -> Result<Nonce, Error> {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce.iter_mut().skip(NONCE_LEN - 8).zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        // Sequence numbers do not wrap.
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Decrypts `record` in place; returns its type, and the length of its plaintext, which follows the header.
    fn open_record(&mut self, record: &mut [u8]) -> Result<(ContentType, usize), Error> {
        let nonce = self.next_nonce()?;
        let (header, sealed) = record.split_first_chunk_mut::<HEADER_BYTES>().ok_or(Error::DecryptError)?;
        let opened = self.aead.open_in_place(nonce, Aad::from(*header), sealed).map_err(|_| Error::DecryptError)?;
        // Padding of zeros follows the type (RFC 8446 §5.4).
        let length = opened.iter().rposition(|byte| *byte != 0);
        let length = length.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        if length > MAX_FRAGMENT {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok((opened.get(length).copied().unwrap_or_default().into(), length))
    }

    /// Encrypts `plain` into the beginning of `out`; returns the length of the record.
    fn seal_record(&mut self, kind: ContentType, plain: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let (header, sealed) = Self::write_record_header(plain.len(), out)?;
        let (sealed, end) = sealed.split_at_mut_checked(plain.len()).ok_or(Error::EncryptError)?;
        let nonce = self.next_nonce()?;
        let done = self.aead.seal_out_of_place_scatter(nonce, Aad::from(header), plain, sealed, &[kind.into()], end);
        done.map(|()| plain.len() + RECORD_OVERHEAD).map_err(|_| Error::EncryptError)
    }

    /// Encrypts in place the `length` bytes of plaintext that stand in `out` behind the space for the header; returns
    /// the length of the record.
    fn seal_in_place(&mut self, kind: ContentType, length: usize, out: &mut [u8]) -> Result<usize, Error> {
        let (header, sealed) = Self::write_record_header(length, out)?;
        let (inner, tag_place) = sealed.split_at_mut_checked(length + 1).ok_or(Error::EncryptError)?;
        if let Some(last) = inner.last_mut() {
            *last = kind.into();
        }
        let nonce = self.next_nonce()?;
        let tag = self.aead.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        tag_place.copy_from_slice(tag.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(length + RECORD_OVERHEAD)
    }

    /// Writes the header of a record with `length` bytes of plaintext; returns the header, and the space for its
    /// ciphertext.
    fn write_record_header(length: usize, out: &mut [u8]) -> Result<([u8; HEADER_BYTES], &mut [u8]), Error> {
        let sealed = length + 1 + TAG_BYTES;
        let [high, low] = u16::try_from(sealed).map_err(|_| Error::EncryptError)?.to_be_bytes();
        let header = [ContentType::ApplicationData.into(), LEGACY_VERSION[0], LEGACY_VERSION[1], high, low];
        let (place, rest) = out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(Error::EncryptError)?;
        *place = header;
        Ok((header, rest.get_mut(..sealed).ok_or(Error::EncryptError)?))
    }
}

/// Keys of a connection's two directions, and state between its records.
pub(super) struct RecordLayer {
    kernel: KernelConnection<ClientConnectionData>,
    opening: TrafficKey,
    sealing: TrafficKey,
    /// Most records that are encrypted with one key (RFC 8446 §5.5).
    limit: u64,
    /// Beginning of a handshake message, whose rest comes with the next record.
    handshake: Vec<u8>,
    /// Whether the server has requested a key update, which must precede the next record.
    owes_update: bool,
    /// Empty records, and alerts without a meaning, since the last data.
    empty: u8,
    /// Requests for a key update since the last data.
    updates: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordContent {
    /// The record is incomplete.
    Nothing,
    /// Plaintext, in this range of the bytes.
    Data(Range<usize>),
    /// A message of TLS, which was handled.
    Other,
    /// close_notify.
    Closed,
}

impl RecordLayer {
    /// Continues a connection whose handshake has ended.
    pub(crate) fn new(
        secrets: ExtractedSecrets,
        kernel: KernelConnection<ClientConnectionData>,
    ) -> Result<Self, Error> {
        let limit = match kernel.negotiated_cipher_suite() {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(_) => return Err(Error::General("TLS 1.2 has other records".into())),
        };
        Ok(Self {
            kernel,
            opening: TrafficKey::new(secrets.rx)?,
            sealing: TrafficKey::new(secrets.tx)?,
            limit,
            handshake: Vec::new(),
            owes_update: false,
            empty: 0,
            updates: 0,
        })
    }

    /// Whether no handshake message is incomplete.
    pub(super) fn is_aligned(&self) -> bool {
        self.handshake.is_empty()
    }

    /// Decrypts the first record of `bytes` in place, if it is complete; returns its length and its content.
    ///
    /// # Errors
    ///
    /// The fault of the record, after which no more can be read.
    pub(crate) fn take_record(&mut self, bytes: &mut [u8]) -> Result<(usize, RecordContent), Error> {
        let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok((0, RecordContent::Nothing));
        };
        if ContentType::from(kind) != ContentType::ApplicationData {
            // No record is in plaintext any more; a change_cipher_spec is not valid here either (RFC 8446 §5).
            return Err(inappropriate_record(kind.into()));
        }
        let sealed = usize::from(u16::from_be_bytes([high, low]));
        if sealed > MAX_FRAGMENT + MAX_EXPANSION {
            return Err(Error::PeerSentOversizedRecord);
        }
        let whole = HEADER_BYTES + sealed;
        let Some(record) = bytes.get_mut(..whole) else { return Ok((0, RecordContent::Nothing)) };
        let (kind, length) = self.opening.open_record(record)?;
        if kind != ContentType::Handshake && !self.is_aligned() {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        let plain = record.get(HEADER_BYTES..HEADER_BYTES + length).unwrap_or_default();
        let taken = match kind {
            ContentType::ApplicationData if length == 0 => {
                self.count_fruitless()?;
                RecordContent::Other
            }
            ContentType::ApplicationData => {
                (self.empty, self.updates) = (0, 0);
                RecordContent::Data(HEADER_BYTES..HEADER_BYTES + length)
            }
            ContentType::Alert => {
                let taken = read_alert(plain)?;
                self.count_fruitless()?;
                taken
            }
            ContentType::Handshake => {
                self.handle_handshake(plain)?;
                RecordContent::Other
            }
            other => return Err(inappropriate_record(other)),
        };
        Ok((whole, taken))
    }

    /// Counts a record without data or effect.
    fn count_fruitless(&mut self) -> Result<(), Error> {
        self.empty = self.empty.saturating_add(1);
        if self.empty > MAX_FRUITLESS {
            return Err(PeerMisbehaved::TooManyEmptyFragments.into());
        }
        Ok(())
    }

    /// Handles the handshake messages of a record.
    fn handle_handshake(&mut self, plain: &[u8]) -> Result<(), Error> {
        if plain.is_empty() {
            return Err(InvalidMessage::InvalidEmptyPayload.into());
        }
        let joined = if self.is_aligned() {
            None
        } else {
            self.handshake.extend_from_slice(plain);
            Some(std::mem::take(&mut self.handshake))
        };
        let mut rest = joined.as_deref().unwrap_or(plain);
        while let Some((&[kind, a, b, c], behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > MAX_HANDSHAKE - 4 {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            match HandshakeType::from(kind) {
                HandshakeType::NewSessionTicket => self.kernel.handle_new_session_ticket(payload)?,
                HandshakeType::KeyUpdate => self.update_opening_key(payload, behind.is_empty())?,
                got_type => {
                    let expect_types = vec![HandshakeType::NewSessionTicket, HandshakeType::KeyUpdate];
                    return Err(Error::InappropriateHandshakeMessage { expect_types, got_type });
                }
            }
            rest = behind;
        }
        if !rest.is_empty() {
            self.handshake = rest.to_vec();
        }
        Ok(())
    }

    /// Takes a new key of the server, which is used from the next record on.
    fn update_opening_key(&mut self, payload: &[u8], is_last: bool) -> Result<(), Error> {
        if !is_last {
            return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
        }
        match payload {
            [UPDATE_NOT_REQUESTED] => {}
            [UPDATE_REQUESTED] => self.owes_update = true,
            _ => return Err(InvalidMessage::InvalidKeyUpdate.into()),
        }
        self.updates = self.updates.saturating_add(1);
        if self.updates > MAX_FRUITLESS {
            return Err(PeerMisbehaved::TooManyKeyUpdateRequests.into());
        }
        self.opening = TrafficKey::new(self.kernel.update_rx_secret()?)?;
        Ok(())
    }

    /// Encrypts the beginning of `bufs`, `most` bytes at most, into `out`; returns the number of bytes taken, and the
    /// length of the records. `out` must have space for records of [`MAX_FRAGMENT`] bytes and [`RECORD_OVERHEAD`], and
    /// one for a key update.
    ///
    /// # Errors
    ///
    /// rustls' error, if a key cannot be made.
    pub(crate) fn seal_fragments(
        &mut self,
        bufs: &[IoSlice<'_>],
        most: usize,
        out: &mut [u8],
    ) -> Result<(usize, usize), Error> {
        let (mut taken, mut sealed) = (0, 0);
        let mut bufs = bufs.iter().map(|buf| &**buf).filter(|buf| !buf.is_empty());
        let mut rest = bufs.next().unwrap_or_default();
        while !rest.is_empty() && taken < most {
            let fragment = MAX_FRAGMENT.min(most - taken);
            sealed += self.renew_sealing_key(out.get_mut(sealed..).unwrap_or_default())?;
            let out = out.get_mut(sealed..).unwrap_or_default();
            if let Some((whole, behind)) = rest.split_at_checked(fragment) {
                sealed += self.sealing.seal_record(ContentType::ApplicationData, whole, out)?;
                taken += whole.len();
                rest = if behind.is_empty() { bufs.next().unwrap_or_default() } else { behind };
                continue;
            }
            // Small pieces, such as a head and a chunk's size, share a record.
            let mut staged = 0;
            while staged < fragment && !rest.is_empty() {
                let (now, behind) = rest.split_at_checked(fragment - staged).unwrap_or((rest, &[]));
                let place =
                    out.get_mut(HEADER_BYTES + staged..HEADER_BYTES + staged + now.len()).ok_or(Error::EncryptError)?;
                place.copy_from_slice(now);
                staged += now.len();
                rest = if behind.is_empty() { bufs.next().unwrap_or_default() } else { behind };
            }
            sealed += self.sealing.seal_in_place(ContentType::ApplicationData, staged, out)?;
            taken += staged;
        }
        Ok((taken, sealed))
    }

    /// Renews the key if the server has requested that, or the present key has encrypted as much as it may; returns the
    /// length of the KeyUpdate record in `out`.
    fn renew_sealing_key(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if !self.owes_update && self.sealing.sequence < self.limit.saturating_sub(1) {
            return Ok(0);
        }
        let message = [HandshakeType::KeyUpdate.into(), 0, 0, 1, UPDATE_NOT_REQUESTED];
        let sealed = self.sealing.seal_record(ContentType::Handshake, &message, out)?;
        self.sealing = TrafficKey::new(self.kernel.update_tx_secret()?)?;
        self.owes_update = false;
        Ok(sealed)
    }

    /// Encrypts the alert `description`, behind a key update that is owed.
    pub(crate) fn seal_alert(&mut self, description: AlertDescription) -> Vec<u8> {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        let mut out = vec![0; UPDATE_RECORD + RECORD_OVERHEAD + 2];
        let level = if description == AlertDescription::CloseNotify { WARNING } else { FATAL };
        let mut encrypt = || {
            let before = self.renew_sealing_key(&mut out)?;
            let behind = out.get_mut(before..).unwrap_or_default();
            let sealed = self.sealing.seal_record(ContentType::Alert, &[level, description.into()], behind)?;
            Ok::<_, Error>(before + sealed)
        };
        let length = encrypt().unwrap_or_default();
        out.truncate(length);
        out
    }
}

/// The alert for a server that has caused `error`; `None` if the server sent an alert itself.
pub(super) fn alert_for(error: &Error) -> Option<AlertDescription> {
    match error {
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
        Error::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => Some(AlertDescription::IllegalParameter),
        Error::InvalidMessage(_) => Some(AlertDescription::DecodeError),
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            Some(AlertDescription::UnexpectedMessage)
        }
        _ => Some(AlertDescription::InternalError),
    }
}

/// Reads the alert in a record (RFC 8446 §6).
fn read_alert(plain: &[u8]) -> Result<RecordContent, Error> {
    let &[_, description] = plain else { return Err(InvalidMessage::MessageTooShort.into()) };
    match AlertDescription::from(description) {
        AlertDescription::CloseNotify => Ok(RecordContent::Closed),
        // user_canceled is not an error (RFC 8446 §6.1); close_notify follows.
        AlertDescription::UserCanceled => Ok(RecordContent::Other),
        description => Err(Error::AlertReceived(description)),
    }
}

fn inappropriate_record(got_type: ContentType) -> Error {
    Error::InappropriateMessage { expect_types: vec![ContentType::ApplicationData], got_type }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tls_configs;
    use rustls::{
        ServerConnection,
        client::{Resumption, UnbufferedClientConnection},
        unbuffered::ConnectionState,
    };
    use std::{io::Read as _, sync::Arc};

    /// A server after its handshake, and its client's records. The server sends its tickets next.
    fn pair() -> (RecordLayer, ServerConnection) {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (server, mut client) = tls_configs(&["origin.test"], provider);
        client.enable_secret_extraction = true;
        client.resumption = Resumption::in_memory_sessions(8);
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let mut client = UnbufferedClientConnection::new(Arc::new(client), "origin.test".try_into().unwrap()).unwrap();
        let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
        loop {
            let status = client.process_tls_records(&mut incoming);
            let discard = status.discard;
            match status.state.unwrap() {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut out = [0; 4096];
                    let length = data.encode(&mut out).unwrap();
                    outgoing.extend_from_slice(&out[..length]);
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(_) => break,
                _ => {}
            }
            incoming.drain(..discard);
            feed(&mut server, &std::mem::take(&mut outgoing));
            if client.is_handshaking() {
                incoming.extend(sent(&mut server));
            }
        }
        feed(&mut server, &outgoing);
        let (secrets, kernel) = client.dangerous_into_kernel_connection().unwrap();
        (RecordLayer::new(secrets, kernel).unwrap(), server)
    }

    /// Returns the plaintext that the server reads in `bytes`.
    fn feed(server: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().unwrap();
            // Reading fails at the end of the received bytes.
            let _ = server.reader().read_to_end(&mut plain);
        }
        plain
    }

    fn sent(server: &mut ServerConnection) -> Vec<u8> {
        let mut out = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut out).unwrap();
        }
        out
    }

    /// Reads every record of `bytes`: the plaintext, and the last content that is not data.
    fn taken(records: &mut RecordLayer, mut bytes: Vec<u8>) -> Result<(Vec<u8>, RecordContent), Error> {
        let (mut plain, mut last, mut done) = (Vec::new(), RecordContent::Nothing, 0);
        loop {
            let rest = &mut bytes[done..];
            let (length, taken) = records.take_record(rest)?;
            match taken {
                RecordContent::Nothing => return Ok((plain, last)),
                RecordContent::Data(place) => plain.extend_from_slice(&rest[place]),
                other => last = other,
            }
            done += length;
        }
    }

    fn sealed(records: &mut RecordLayer, bufs: &[&[u8]], most: usize) -> (usize, Vec<u8>) {
        let mut out = vec![0; 8 * MAX_RECORD];
        let bufs: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
        let (taken, length) = records.seal_fragments(&bufs, most, &mut out).unwrap();
        out.truncate(length);
        (taken, out)
    }

    /// Encrypts with the server's own key records that no server of rustls' sends.
    fn forger(server: ServerConnection) -> impl FnMut(ContentType, &[u8]) -> Vec<u8> {
        let mut key = TrafficKey::new(server.dangerous_extract_secrets().unwrap().tx).unwrap();
        move |kind, plain| {
            let mut out = vec![0; plain.len() + RECORD_OVERHEAD];
            key.seal_record(kind, plain, &mut out).unwrap();
            out
        }
    }

    #[test]
    fn records_pass_both_ways_in_pieces_of_every_size() {
        let (mut records, mut server) = pair();
        let plain: Vec<u8> = (0..=255).cycle().take(3 * MAX_FRAGMENT + 77).collect();
        for cut in [1, 5, 1000, MAX_FRAGMENT - 1, MAX_FRAGMENT, MAX_FRAGMENT + 1, 2 * MAX_FRAGMENT] {
            let (head, body) = plain.split_at(cut);
            let (taken, out) = sealed(&mut records, &[head, &[], body], usize::MAX);
            assert_eq!(taken, plain.len());
            assert_eq!(feed(&mut server, &out), plain, "{cut}");
        }
        let (taken, out) = sealed(&mut records, &[&plain], MAX_FRAGMENT + 3);
        assert_eq!((taken, out.len()), (MAX_FRAGMENT + 3, record_bytes(taken)));
        std::io::Write::write_all(&mut server.writer(), &plain).unwrap();
        let bytes = sent(&mut server);
        let (got, last) = taken_in_halves(&mut records, &bytes);
        assert_eq!((got, last), (plain, RecordContent::Other), "after its tickets");
    }

    /// Reads `bytes` that come in two parts.
    fn taken_in_halves(records: &mut RecordLayer, bytes: &[u8]) -> (Vec<u8>, RecordContent) {
        // A half record is not changed.
        let mut first = bytes[..HEADER_BYTES + 1].to_vec();
        assert_eq!(records.take_record(&mut first).unwrap(), (0, RecordContent::Nothing));
        assert_eq!(records.take_record(&mut first[..3]).unwrap(), (0, RecordContent::Nothing));
        taken(records, bytes.to_vec()).unwrap()
    }

    #[test]
    fn keys_are_updated_by_the_servers_wish_and_at_their_limit() {
        let (mut records, mut server) = pair();
        for round in 0..3_u8 {
            server.refresh_traffic_keys().unwrap();
            std::io::Write::write_all(&mut server.writer(), &[round]).unwrap();
            let bytes = sent(&mut server);
            assert_eq!(taken(&mut records, bytes).unwrap().0, [round]);
            let (_, out) = sealed(&mut records, &[b"answer"], usize::MAX);
            assert_eq!(feed(&mut server, &out), b"answer");
        }
        records.limit = 4;
        let (before, plain) = (records.sealing.sequence, vec![7; 7 * MAX_FRAGMENT]);
        for _ in 0..5 {
            let (_, out) = sealed(&mut records, &[&plain], usize::MAX);
            assert_eq!(feed(&mut server, &out), plain);
            assert!(records.sealing.sequence < 4, "{before}");
        }
    }

    #[test]
    fn close_notify_is_the_end_and_other_alerts_are_errors() {
        let (mut records, mut server) = pair();
        server.send_close_notify();
        let bytes = sent(&mut server);
        assert_eq!(taken(&mut records, bytes).unwrap().1, RecordContent::Closed);
        feed(&mut server, &records.seal_alert(AlertDescription::CloseNotify));
        assert_eq!(server.reader().read(&mut [0]).unwrap(), 0);

        let (mut records, mut server) = pair();
        sent(&mut server);
        // Tickets were not read: the next record has another nonce.
        let error = records.take_record(&mut forger(server)(ContentType::Alert, &[2, 40])).unwrap_err();
        assert_eq!((&error, alert_for(&error)), (&Error::DecryptError, Some(AlertDescription::BadRecordMac)));
    }

    #[test]
    fn what_is_no_valid_record_ends_the_connection() {
        type Forge = fn(&mut dyn FnMut(ContentType, &[u8]) -> Vec<u8>) -> Vec<u8>;
        const PIECE: &[u8] = &[4, 0, 0, 9, 1];
        let table: [(Forge, Error); 12] = [
            (|forge| forge(ContentType::Alert, &[2, 40]), Error::AlertReceived(AlertDescription::HandshakeFailure)),
            (|forge| forge(ContentType::Alert, &[2]), InvalidMessage::MessageTooShort.into()),
            (|forge| forge(ContentType::Handshake, &[]), InvalidMessage::InvalidEmptyPayload.into()),
            (
                |forge| [forge(ContentType::Handshake, PIECE), forge(ContentType::ApplicationData, b"x")].concat(),
                PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into(),
            ),
            (
                |forge| forge(ContentType::Handshake, &[24, 0, 0, 1, 0, 24]),
                PeerMisbehaved::KeyEpochWithPendingFragment.into(),
            ),
            (|forge| forge(ContentType::Handshake, &[24, 0, 0, 1, 2]), InvalidMessage::InvalidKeyUpdate.into()),
            (|forge| forge(ContentType::Handshake, &[4, 1, 0, 0]), InvalidMessage::HandshakePayloadTooLarge.into()),
            (
                |forge| forge(ContentType::Handshake, &[0, 0, 0, 0]),
                Error::InappropriateHandshakeMessage {
                    expect_types: vec![HandshakeType::NewSessionTicket, HandshakeType::KeyUpdate],
                    got_type: HandshakeType::HelloRequest,
                },
            ),
            (|forge| forge(ContentType::Unknown(0), b""), PeerMisbehaved::IllegalTlsInnerPlaintext.into()),
            (|forge| forge(ContentType::ApplicationData, &[1; MAX_FRAGMENT + 1]), Error::PeerSentOversizedRecord),
            (|_| vec![DATA, 3, 3, 0x41, 1], Error::PeerSentOversizedRecord),
            (|_| vec![20, 3, 3, 0, 1, 1], inappropriate_record(ContentType::ChangeCipherSpec)),
        ];
        for (forge, expected) in table {
            let (mut records, mut server) = pair();
            let tickets = sent(&mut server);
            taken(&mut records, tickets).unwrap();
            let error = taken(&mut records, forge(&mut forger(server))).unwrap_err();
            assert_eq!(error, expected);
        }
    }

    const DATA: u8 = 23;

    #[test]
    fn records_that_say_nothing_are_few() {
        for fruitless in [(ContentType::ApplicationData, &[][..]), (ContentType::Alert, &[1, 90])] {
            let (mut records, mut server) = pair();
            let tickets = sent(&mut server);
            taken(&mut records, tickets).unwrap();
            let mut forge = forger(server);
            for _ in 0..2 {
                for _ in 0..MAX_FRUITLESS {
                    assert!(taken(&mut records, forge(fruitless.0, fruitless.1)).is_ok());
                }
                assert_eq!(taken(&mut records, forge(ContentType::ApplicationData, b"x")).unwrap().0, b"x");
            }
            let flood = (0..=MAX_FRUITLESS).flat_map(|_| forge(fruitless.0, fruitless.1)).collect();
            assert_eq!(taken(&mut records, flood).unwrap_err(), PeerMisbehaved::TooManyEmptyFragments.into());
        }
        let (mut records, mut server) = pair();
        let tickets = sent(&mut server);
        taken(&mut records, tickets).unwrap();
        let updates = (0..=MAX_FRUITLESS).try_for_each(|_| {
            server.refresh_traffic_keys().unwrap();
            taken(&mut records, sent(&mut server)).map(drop)
        });
        assert_eq!(updates.unwrap_err(), PeerMisbehaved::TooManyKeyUpdateRequests.into());
    }
}

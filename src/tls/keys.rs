//! rustls' packet protection (RFC 9001 §5) in the shape that s2n-quic asks for. On the way of every packet: nothing
//! here allocates, but for a key update.

use rustls::quic::{self, HeaderProtectionKey, PacketKey, Secrets};
use s2n_codec::Encoder;
use s2n_quic_core::crypto::{
    HandshakeHeaderKey, HandshakeKey, HeaderKey, HeaderProtectionMask, Key, OneRttHeaderKey, OneRttKey,
    packet_protection::Error, scatter, tls::CipherSuite,
};

/// Keys for the payloads of one packet number space, ours and the client's.
pub struct PacketKeys {
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    cipher_suite: CipherSuite,
}

/// Keys for the headers of one packet number space. A key update leaves them as they are (RFC 9001 §6).
pub struct HeaderKeys {
    local: Box<dyn HeaderProtectionKey>,
    remote: Box<dyn HeaderProtectionKey>,
}

/// Keys of the application's packet number space, and what the next ones are made from.
pub struct OneRttKeys {
    packet: PacketKeys,
    next: Secrets,
}

/// Takes rustls' keys apart: s2n-quic keeps those of headers across key updates.
pub(super) fn split(keys: quic::Keys, cipher_suite: CipherSuite) -> (PacketKeys, HeaderKeys) {
    let quic::Keys { local, remote } = keys;
    (
        PacketKeys { local: local.packet, remote: remote.packet, cipher_suite },
        HeaderKeys { local: local.header, remote: remote.header },
    )
}

/// [`split`] for 1-RTT keys; `next` holds the secrets of the generation after them.
pub(super) fn split_one_rtt(keys: quic::Keys, next: Secrets, cipher_suite: CipherSuite) -> (OneRttKeys, HeaderKeys) {
    let (packet, header) = split(keys, cipher_suite);
    (OneRttKeys { packet, next }, header)
}

/// What s2n-quic calls rustls' cipher suite, in its events.
pub(super) fn cipher_suite(suite: rustls::CipherSuite) -> CipherSuite {
    match suite {
        rustls::CipherSuite::TLS13_AES_128_GCM_SHA256 => CipherSuite::TLS_AES_128_GCM_SHA256,
        rustls::CipherSuite::TLS13_AES_256_GCM_SHA384 => CipherSuite::TLS_AES_256_GCM_SHA384,
        rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
        _ => CipherSuite::Unknown,
    }
}

impl Key for PacketKeys {
    #[inline]
    fn decrypt(&self, packet_number: u64, header: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        match self.remote.decrypt_in_place(packet_number, header, payload) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::DECRYPT_ERROR),
        }
    }

    /// rustls encrypts one contiguous slice, so the part of the payload that s2n-quic holds by reference is copied
    /// behind the rest first.
    #[inline]
    fn encrypt(&mut self, packet_number: u64, header: &[u8], payload: &mut scatter::Buffer) -> Result<(), Error> {
        let buffer = payload.flatten();
        let (plaintext, room) = buffer.split_mut();
        if room.len() < self.local.tag_len() {
            return Err(Error::INTERNAL_ERROR);
        }
        match self.local.encrypt_in_place(packet_number, header, plaintext) {
            Ok(tag) => {
                buffer.write_slice(tag.as_ref());
                Ok(())
            }
            Err(_) => Err(Error::INTERNAL_ERROR),
        }
    }

    #[inline]
    fn tag_len(&self) -> usize {
        self.local.tag_len()
    }

    /// In packets (RFC 9001 §6.6); s2n-quic updates the keys before.
    #[inline]
    fn aead_confidentiality_limit(&self) -> u64 {
        self.local.confidentiality_limit()
    }

    /// In packets (RFC 9001 §6.6); s2n-quic closes the connection then.
    #[inline]
    fn aead_integrity_limit(&self) -> u64 {
        self.remote.integrity_limit()
    }

    #[inline]
    fn cipher_suite(&self) -> CipherSuite {
        self.cipher_suite
    }
}

impl HandshakeKey for PacketKeys {}

impl Key for OneRttKeys {
    #[inline]
    fn decrypt(&self, packet_number: u64, header: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        self.packet.decrypt(packet_number, header, payload)
    }

    #[inline]
    fn encrypt(&mut self, packet_number: u64, header: &[u8], payload: &mut scatter::Buffer) -> Result<(), Error> {
        self.packet.encrypt(packet_number, header, payload)
    }

    #[inline]
    fn tag_len(&self) -> usize {
        self.packet.tag_len()
    }

    #[inline]
    fn aead_confidentiality_limit(&self) -> u64 {
        self.packet.aead_confidentiality_limit()
    }

    #[inline]
    fn aead_integrity_limit(&self) -> u64 {
        self.packet.aead_integrity_limit()
    }

    #[inline]
    fn cipher_suite(&self) -> CipherSuite {
        self.packet.cipher_suite
    }
}

impl OneRttKey for OneRttKeys {
    fn derive_next_key(&self) -> Self {
        let mut next = self.next.clone();
        let quic::PacketKeySet { local, remote } = next.next_packet_keys();
        Self { packet: PacketKeys { local, remote, cipher_suite: self.packet.cipher_suite }, next }
    }
}

impl HeaderKey for HeaderKeys {
    #[inline]
    fn opening_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        mask(&*self.remote, sample)
    }

    #[inline]
    fn opening_sample_len(&self) -> usize {
        self.remote.sample_len()
    }

    #[inline]
    fn sealing_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        mask(&*self.local, sample)
    }

    #[inline]
    fn sealing_sample_len(&self) -> usize {
        self.local.sample_len()
    }
}

impl HandshakeHeaderKey for HeaderKeys {}
impl OneRttHeaderKey for HeaderKeys {}

/// The mask of RFC 9001 §5.4.1. s2n-quic wants it bare; rustls only applies it. So it is applied to a header in which
/// every masked bit is known: a short one (its mask covers one bit more than a long one's, which s2n-quic cuts off)
/// with a packet number of four octets, all zero.
#[inline]
fn mask(key: &dyn HeaderProtectionKey, sample: &[u8]) -> HeaderProtectionMask {
    const FOUR_OCTETS: u8 = 0b11;
    let mut first = FOUR_OCTETS;
    let mut packet_number = [0; 4];
    if key.encrypt_in_place(sample, &mut first, &mut packet_number).is_err() {
        // Only for a sample of another length, and s2n-quic takes samples of the length that the key asks for. With a
        // mask of zeros such a packet fails to decrypt.
        return HeaderProtectionMask::default();
    }
    let [a, b, c, d] = packet_number;
    [first ^ FOUR_OCTETS, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{Side, crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256, quic::Version};
    use s2n_codec::EncoderBuffer;
    use s2n_quic_core::crypto::{InitialKey, tls::CipherSuite::TLS_AES_128_GCM_SHA256};

    /// RFC 9001 appendix A.
    const CONNECTION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    /// Initial keys, because they can be made from a connection ID; the code is the same for all.
    fn keys(side: Side) -> (PacketKeys, HeaderKeys) {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
        split(
            quic::Keys::initial(Version::V1, suite, suite.quic.unwrap(), &CONNECTION_ID, side),
            TLS_AES_128_GCM_SHA256,
        )
    }

    fn seal(key: &mut impl Key, text: &'static [u8], extra: &'static [u8]) -> Vec<u8> {
        let mut bytes = vec![0; text.len() + extra.len() + key.tag_len()];
        let mut buffer = EncoderBuffer::new(&mut bytes);
        buffer.write_slice(text);
        let extra = (!extra.is_empty()).then(|| bytes::Bytes::from_static(extra));
        key.encrypt(7, b"header", &mut scatter::Buffer::new_with_extra(buffer, extra)).unwrap();
        bytes
    }

    #[test]
    fn what_one_side_seals_the_other_opens() {
        let ((mut client, _), (server, _)) = (keys(Side::Client), keys(Side::Server));
        for (text, extra) in [(&b"hello"[..], &b""[..]), (b"hel", b"lo"), (b"", b"hello")] {
            let mut sealed = seal(&mut client, text, extra);
            server.decrypt(7, b"header", &mut sealed).unwrap();
            assert_eq!(sealed[..5], *b"hello");
        }
    }

    #[test]
    fn a_packet_that_was_tampered_with_is_an_error() {
        let ((mut client, _), (server, _)) = (keys(Side::Client), keys(Side::Server));
        let sealed = seal(&mut client, b"hello", b"");
        assert!(server.decrypt(8, b"header", &mut sealed.clone()).is_err(), "another number");
        assert!(server.decrypt(7, b"other", &mut sealed.clone()).is_err(), "another header");
        assert!(server.decrypt(7, b"header", &mut sealed[..3].to_vec()).is_err(), "shorter than a tag");
        assert!(server.decrypt(7, b"header", &mut []).is_err(), "empty");
        let mut flipped = sealed;
        flipped[0] ^= 1;
        assert!(server.decrypt(7, b"header", &mut flipped).is_err(), "another text");
    }

    #[test]
    fn a_buffer_without_room_for_the_tag_is_an_error() {
        let (mut client, _) = keys(Side::Client);
        let mut bytes = [0; 8];
        let mut buffer = EncoderBuffer::new(&mut bytes);
        buffer.write_slice(b"hello");
        assert!(client.encrypt(7, b"header", &mut scatter::Buffer::new(buffer)).is_err());
    }

    #[test]
    fn masks_are_those_of_s2n_quics_own_keys() {
        let (_, header) = keys(Side::Server);
        let (_, theirs) = s2n_quic_crypto::initial::InitialKey::new_server(&CONNECTION_ID);
        for sample in [[0; 16], [0xa5; 16], *b"0123456789abcdef"] {
            let short = |mask: HeaderProtectionMask| [&[mask[0] & 0x1f], &mask[1..]].concat();
            let (ours, theirs) = (&header, &theirs);
            assert_eq!(
                short(ours.sealing_header_protection_mask(&sample)),
                short(theirs.sealing_header_protection_mask(&sample))
            );
            assert_eq!(
                short(ours.opening_header_protection_mask(&sample)),
                short(theirs.opening_header_protection_mask(&sample))
            );
        }
        assert_eq!(header.sealing_sample_len(), 16);
        assert_eq!(header.opening_header_protection_mask(&[0; 3]), HeaderProtectionMask::default());
    }
}

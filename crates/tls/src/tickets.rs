//! Encrypts session tickets (RFC 8446 §4.6.1) so that every process with the same secret accepts them: a client resumes
//! its session at another replica, and after a hot upgrade.
//!
//! ```text
//! epoch (4) · nonce (12) · rustls' session value, encrypted by AES-256-GCM-SIV · tag (16)
//! ```
//!
//! An epoch is six hours, counted from 1970. Its key is HKDF-SHA256 (RFC 5869) of the secret with the label `litequic
//! tickets`, the protocol, the format of the session value and the epoch. Tickets are encrypted in the current epoch,
//! and also accepted in the previous and the next one, because clocks differ. So a ticket is valid for six to twelve
//! hours, and so is a stolen key.
//!
//! The cipher is AES-GCM-SIV (RFC 8452), not AES-GCM: any number of replicas encrypts with one key and random nonces,
//! and a repeated nonce only reveals that two values are equal.
//!
//! A ticket that cannot be decrypted leads to a full handshake. One that decrypts to a value that rustls misreads ends
//! the handshake with a fatal alert, as its binder does not match. Versions of rustls may encode the value differently,
//! and run side by side in a rolling upgrade: hence the format in the label.

use super::suites::{ALPN_H3, ALPN_TCP};
use arc_swap::ArcSwapOption;
use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    hkdf::Prk,
};
use rustls::server::ProducesTickets;
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Encoding of `ServerSessionValue` in rustls' `msgs/persist.rs`. Must change together with it; the test
/// `session_values_have_the_format_that_the_label_names` fails otherwise.
const SESSION_VALUE_FORMAT: &str = "rustls 0.23";
/// Seconds for which a key encrypts tickets.
const EPOCH_SECONDS: u64 = 6 * 3600;
/// Seconds for which a client may use a ticket: two epochs (RFC 8446 §4.6.1 permits a week).
const LIFETIME_SECONDS: u32 = 2 * 6 * 3600;
/// Bytes of a session value at most: a server name of 253, a secret of 48, and about 40 more. Longer tickets are
/// rejected unread.
const MAX_VALUE_LEN: usize = 1024;
const EPOCH_LEN: usize = 4;
const TAG_LEN: usize = 16;
const HEAD_LEN: usize = EPOCH_LEN + NONCE_LEN;

/// Protocol of the sessions: a session over QUIC cannot be resumed over TCP, and vice versa.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TicketProtocol {
    /// HTTP/3 over QUIC.
    Quic,
    /// HTTP/1.1 and HTTP/2 over TCP.
    Tcp,
}

impl TicketProtocol {
    /// Protocols that a client may agree on by ALPN (RFC 7301).
    pub(super) fn alpn_protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Quic => &[ALPN_H3],
            Self::Tcp => ALPN_TCP,
        }
    }

    fn protocol_label(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
        }
    }
}

/// Encrypts and decrypts session tickets of one protocol. All workers share one value, without a lock.
pub(super) struct SessionTickets {
    secret: Prk,
    protocol: TicketProtocol,
    format: &'static str,
    /// Keys of the epoch that was current at the last use.
    keys: ArcSwapOption<EpochKeys>,
}

/// Ticket keys of an epoch and its neighbours.
struct EpochKeys {
    epoch: u32,
    /// Keys of the previous, the current and the next epoch.
    keys: [RandomizedNonceKey; 3],
}

impl SessionTickets {
    /// Creates tickets of `protocol` for all processes with the same `secret`.
    pub(super) fn new(secret: Prk, protocol: TicketProtocol) -> Self {
        Self { secret, protocol, format: SESSION_VALUE_FORMAT, keys: ArcSwapOption::empty() }
    }

    fn derive_epoch_key(&self, epoch: u32) -> Option<RandomizedNonceKey> {
        let mut key = [0; 32];
        // Each part ends with a NUL, which none contains.
        let parts =
            ["litequic tickets", "\0", self.protocol.protocol_label(), "\0", self.format, "\0"].map(str::as_bytes);
        let [label, end, protocol, _, format, _] = parts;
        let epoch = epoch.to_be_bytes();
        let info = [label, end, protocol, end, format, end, &epoch];
        self.secret.expand(&info, &AES_256_GCM_SIV).ok()?.fill(&mut key).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).ok()
    }

    /// Returns the keys that are valid in `epoch`. They are derived once, by this machine's clock, whatever epoch a
    /// ticket has.
    fn epoch_keys(&self, epoch: u32) -> Option<Arc<EpochKeys>> {
        if let Some(keys) = self.keys.load_full().filter(|keys| keys.epoch == epoch) {
            return Some(keys);
        }
        let key = |epoch| self.derive_epoch_key(epoch);
        let keys = [key(epoch.wrapping_sub(1))?, key(epoch)?, key(epoch.wrapping_add(1))?];
        let keys = Arc::new(EpochKeys { epoch, keys });
        self.keys.store(Some(Arc::clone(&keys)));
        Some(keys)
    }

    fn encrypt_in(&self, epoch: u32, value: &[u8]) -> Option<Vec<u8>> {
        if value.len() > MAX_VALUE_LEN {
            return None;
        }
        let keys = self.epoch_keys(epoch)?;
        let [_, key, _] = &keys.keys;
        let head = epoch.to_be_bytes();
        let mut sealed = value.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(head), &mut sealed).ok()?;
        Some([&head[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt_in(&self, epoch: u32, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > HEAD_LEN + MAX_VALUE_LEN + TAG_LEN {
            return None;
        }
        let (head, rest) = ticket.split_first_chunk::<EPOCH_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.epoch_keys(epoch)?;
        let [before, now, after] = &keys.keys;
        let key = match u32::from_be_bytes(*head).wrapping_sub(epoch) {
            0 => now,
            1 => after,
            u32::MAX => before,
            _ => return None,
        };
        let mut value = sealed.to_vec();
        let len = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(*head), &mut value).ok()?.len();
        value.truncate(len);
        Some(value)
    }
}

/// Returns the current epoch by the system's clock; 0 before 1970.
fn current_epoch() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    u32::try_from(now / EPOCH_SECONDS).unwrap_or(u32::MAX)
}

impl ProducesTickets for SessionTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, value: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_in(current_epoch(), value)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_in(current_epoch(), ticket)
    }
}

litequic_base::partial_debug!(SessionTickets { protocol });

/// Returns a ticket secret for tests, equal for equal `byte`.
#[cfg(test)]
pub(super) fn secret(byte: u8) -> Prk {
    aws_lc_rs::hkdf::Salt::none(aws_lc_rs::hkdf::HKDF_SHA256).extract(&[byte; 32])
}

#[cfg(test)]
mod tests;

//! The keys that all workers of a process share, so that a token one issued is good on every other.

use aws_lc_rs::{
    error::Unspecified,
    hmac::{self, HMAC_SHA256},
    rand,
};
use std::fmt;

/// Octets of the secret that everything is derived from.
const LEN: usize = 32;

/// Keys for address validation tokens and stateless reset tokens.
pub struct Secrets {
    retry: hmac::Key,
    reset: hmac::Key,
}

impl Secrets {
    /// New keys: tokens die with this process.
    ///
    /// # Errors
    ///
    /// When the system has no randomness.
    pub fn random() -> Result<Self, Unspecified> {
        let mut secret = [0; LEN];
        rand::fill(&mut secret)?;
        Ok(Self::derive(&secret))
    }

    /// Keys that follow from `secret`: tokens are good in every process that has the same one.
    pub fn derive(secret: &[u8; LEN]) -> Self {
        let secret = hmac::Key::new(HMAC_SHA256, secret);
        // One key, one purpose.
        let key = |purpose: &str| hmac::Key::new(HMAC_SHA256, hmac::sign(&secret, purpose.as_bytes()).as_ref());
        Self { retry: key("litequic retry"), reset: key("litequic stateless reset") }
    }

    /// The key of the retry tokens of one `period`, which takes turns without anyone having to agree on it.
    pub(super) fn retry_key(&self, period: u32) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, hmac::sign(&self.retry, &period.to_be_bytes()).as_ref())
    }

    /// The key of stateless reset tokens.
    pub(super) fn reset_key(&self) -> &hmac::Key {
        &self.reset
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

//! Derives the keys that all workers of a process share, so that a token of one is valid on every other.

use super::Replica;
use aws_lc_rs::{
    error::Unspecified,
    hkdf,
    hmac::{self, HMAC_SHA256},
    rand,
};
use std::{
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Smallest secret in bytes: the strength of HMAC-SHA256 (RFC 2104 §3).
const LEN: usize = 32;
/// Largest file of a secret in bytes: a larger file is another file, or never ends.
const MAX_LEN: usize = 4096;
/// Bits of a file's mode for users other than its owner and group.
const OTHERS_MODE_BITS: u32 = 0o007;

/// Error of reading or generating keys.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The system's random number generator failed, or aws-lc has no memory.
    #[error("cannot make random keys")]
    Random(#[from] Unspecified),
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has too few bytes, or too many.
    #[error(
        "{} has {}; expected {LEN} to {MAX_LEN} bytes, such as `openssl rand -hex 32` prints",
        path.display(),
        if *len > MAX_LEN { "too many".to_owned() } else { len.to_string() }
    )]
    Length {
        /// Path of the file.
        path: PathBuf,
        /// Bytes read from the file.
        len: usize,
    },
}

/// Keys for address validation tokens, session tickets and cookies, the same in all processes with one secret, and for
/// stateless reset tokens, which depend on the [`Replica`].
pub struct Secrets {
    retry: hmac::Key,
    reset: hmac::Key,
    /// Replica on which reset tokens depend.
    pub replica: Replica,
    /// Secret from which the keys of session tickets are derived.
    pub tickets: hkdf::Prk,
    /// Key of the cookies that keep a client on one server of an origin.
    pub cookies: [u8; LEN],
    /// Random secret of all keys, the argument of [`Secrets::from_predecessor`] for a process that takes over; `None`
    /// if the secret is in a file.
    pub random: Option<[u8; LEN]>,
    /// Users other than the file's owner and group may read the secret.
    pub exposed: bool,
}

impl Secrets {
    /// Generates new keys: tokens end with this process, unless another one [takes over](Self::random).
    ///
    /// # Errors
    ///
    /// The system's random number generator failed.
    pub fn from_random() -> Result<Self, Unspecified> {
        let mut secret = [0; LEN];
        rand::fill(&mut secret)?;
        Ok(Self::from_predecessor(secret))
    }

    /// Keys of another process, whose tokens are valid here.
    pub fn from_predecessor(secret: [u8; LEN]) -> Self {
        Self { random: Some(secret), ..Self::from_secret(&secret) }
    }

    /// Derives keys from all bytes of the file at `path`. Blocks on the file system. A file that others may read is
    /// accepted (volumes of secrets often have that mode), and reported by [`Secrets::exposed`].
    ///
    /// # Errors
    ///
    /// [`SecretError`]; the operator's fault.
    pub fn from_secret_file(path: &Path) -> Result<Self, SecretError> {
        let failed = |source| SecretError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        let mut secret = Vec::new();
        file.take(MAX_LEN as u64 + 1).read_to_end(&mut secret).map_err(failed)?;
        if !(LEN..=MAX_LEN).contains(&secret.len()) {
            return Err(SecretError::Length { path: path.to_owned(), len: secret.len() });
        }
        Ok(Self { exposed: mode & OTHERS_MODE_BITS != 0, ..Self::from_secret(&secret) })
    }

    /// Derives keys from `secret`: tokens are valid in every process with the same one.
    pub fn from_secret(secret: &[u8]) -> Self {
        let tickets = hkdf::Salt::none(hkdf::HKDF_SHA256).extract(secret);
        let secret = hmac::Key::new(HMAC_SHA256, secret);
        // Each key has one purpose.
        let tag = |purpose: &str| hmac::sign(&secret, purpose.as_bytes());
        let key = |purpose: &str| hmac::Key::new(HMAC_SHA256, tag(purpose).as_ref());
        let (retry, reset) = (key("litequic retry"), key("litequic stateless reset"));
        let mut cookies = [0; LEN];
        // The tag has as many bytes as the key.
        cookies.iter_mut().zip(tag("litequic sticky cookies").as_ref()).for_each(|(byte, tag)| *byte = *tag);
        Self { retry, reset, replica: Replica::default(), tickets, cookies, random: None, exposed: false }
    }

    /// Key of the Retry tokens of one `period`, which rotates without coordination.
    pub(crate) fn retry_key(&self, period: u32) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, hmac::sign(&self.retry, &period.to_be_bytes()).as_ref())
    }

    /// Key of stateless reset tokens of this replica's endpoint that is bound to the configured `address`: the same
    /// after a crash, at any place in the list.
    pub(crate) fn reset_key(&self, address: SocketAddr) -> hmac::Key {
        // The address has no NUL, so no two pairs have the same bytes.
        let scope = [self.replica.0.as_str(), "\0", &address.to_string()].concat();
        hmac::Key::new(HMAC_SHA256, hmac::sign(&self.reset, scope.as_bytes()).as_ref())
    }
}

litequic_base::partial_debug!(Secrets);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_secret_is_32_to_4096_bytes_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        assert!(matches!(Secrets::from_secret_file(&path), Err(SecretError::Read { .. })));
        assert!(matches!(Secrets::from_secret_file(directory.path()), Err(SecretError::Read { .. })));
        assert!(matches!(Secrets::from_secret_file("/dev/zero".as_ref()), Err(SecretError::Length { len: 4097, .. })));
        for (len, good) in [(0, false), (31, false), (32, true), (65, true), (4096, true), (4097, false)] {
            fs::write(&path, vec![7; len]).unwrap();
            assert_eq!(Secrets::from_secret_file(&path).is_ok(), good, "{len}");
        }
    }

    #[test]
    fn random_keys_can_be_handed_over() {
        assert!(Secrets::from_secret(&[7; LEN]).random.is_none());
        let old = Secrets::from_random().unwrap();
        let new = Secrets::from_predecessor(old.random.unwrap());
        assert_eq!(new.random, old.random);
        assert_eq!(new.cookies, old.cookies);
        assert_ne!(new.cookies, Secrets::from_random().unwrap().cookies);
        let sign = |secrets: &Secrets| hmac::sign(&secrets.reset_key(([127, 0, 0, 1], 443).into()), b"id");
        assert_eq!(sign(&old).as_ref(), sign(&new).as_ref());
    }

    #[test]
    fn the_error_of_a_secret_names_its_length_and_the_allowed_one() {
        let message = |len| SecretError::Length { path: "s".into(), len }.to_string();
        assert!(message(31).contains("s has 31; expected 32 to 4096 bytes"), "{}", message(31));
        assert!(message(4097).contains("has too many;"), "{}", message(4097));
    }
}

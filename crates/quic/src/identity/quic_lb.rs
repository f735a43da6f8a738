//! Encrypts connection IDs, which balancers decrypt (draft-ietf-quic-load-balancers-21 §5.4): AES-128 in one pass if
//! server ID and nonce have 16 bytes together, otherwise four passes of a Feistel network. Pure.
//!
//! ```text
//! left   first half of the bytes; with an odd number of them, the middle byte's first four bits too
//! right  second half; with an odd number, the middle byte's last four bits first
//!
//! right ^= AES(left,  length, 1)        AES of half, zeroes, length and number of the pass, cut to a half
//! left  ^= AES(right, length, 2)
//! right ^= AES(left,  length, 3)
//! left  ^= AES(right, length, 4)
//! ```

use aws_lc_rs::{
    cipher::{AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey},
    error::Unspecified,
};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of a key and of a block.
pub(super) const BLOCK_LEN: usize = 16;
/// Largest file of a key in bytes: a larger file is another file, or never ends.
const MAX_KEY_FILE_LEN: u64 = 4096;
/// Hexadecimal digits of a key.
const DIGITS: usize = 2 * BLOCK_LEN;

/// Error of reading a key from a file.
#[derive(Debug, thiserror::Error)]
pub enum ServerIdKeyError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file does not hold a key.
    #[error("{} has {found}; expected {DIGITS} hexadecimal digits, such as `openssl rand -hex 16` prints", path.display())]
    Digits {
        /// Path of the file.
        path: PathBuf,
        /// Content of the file, for the operator.
        found: String,
    },
}

/// Key by which balancers decrypt server IDs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerIdKey([u8; BLOCK_LEN]);

impl ServerIdKey {
    /// Reads the key from the file at `path`: 32 hexadecimal digits. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`ServerIdKeyError`]; the operator's fault.
    pub fn from_key_file(path: &Path) -> Result<Self, ServerIdKeyError> {
        let failed = |source| ServerIdKeyError::Read { path: path.to_owned(), source };
        let mut text = Vec::new();
        File::open(path).map_err(failed)?.take(MAX_KEY_FILE_LEN).read_to_end(&mut text).map_err(failed)?;
        let wrong = |found| ServerIdKeyError::Digits { path: path.to_owned(), found };
        let text = text.trim_ascii();
        if let Some(other) = text.iter().find(|byte| !byte.is_ascii_hexdigit()) {
            return Err(wrong(format!("the byte 0x{other:02x}")));
        }
        let digits = str::from_utf8(text).unwrap_or_default();
        if digits.len() != DIGITS {
            let found = if digits.len() > DIGITS { "too many".into() } else { digits.len().to_string() };
            return Err(wrong(format!("{found} digits")));
        }
        let key = u128::from_str_radix(digits, 16).map_err(|error| wrong(error.to_string()))?;
        Ok(Self(key.to_be_bytes()))
    }
}

impl From<[u8; BLOCK_LEN]> for ServerIdKey {
    fn from(key: [u8; BLOCK_LEN]) -> Self {
        Self(key)
    }
}

// Does not show the key.
litequic_base::partial_debug!(ServerIdKey);

/// Encrypts and decrypts strings of 5 to 19 bytes.
pub(super) struct IdCipher {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl IdCipher {
    /// A cipher with `key`.
    ///
    /// # Errors
    ///
    /// aws-lc has no memory.
    pub(super) fn new(ServerIdKey(key): ServerIdKey) -> Result<Self, Unspecified> {
        let unbound = || UnboundCipherKey::new(&AES_128, &key);
        Ok(Self { encrypting: EncryptingKey::ecb(unbound()?)?, decrypting: DecryptingKey::ecb(unbound()?)? })
    }

    pub(super) fn encrypt(&self, text: &mut [u8]) {
        if text.len() == BLOCK_LEN {
            self.encrypt_block(text);
        } else {
            self.run_passes(text, [1, 2, 3, 4]);
        }
    }

    pub(super) fn decrypt(&self, text: &mut [u8]) {
        if text.len() == BLOCK_LEN {
            // Encryption and decryption of a whole block cannot fail.
            let _ = self.decrypting.decrypt(text, DecryptionContext::None);
        } else {
            self.run_passes(text, [4, 3, 2, 1]);
        }
    }

    fn run_passes(&self, text: &mut [u8], order: [u8; 4]) {
        let len = text.len();
        let half = len.div_ceil(2);
        let (Some(first), Some(second)) = (text.get(..half), text.get(len / 2..)) else { return };
        // Each half is at the beginning of its block. With an odd number of bytes the halves overlap in the middle
        // byte, where each has four bits.
        let left_mask = !(u128::MAX >> (4 * len));
        let right_mask = (u128::MAX >> (8 * half - 4 * len)) & !(u128::MAX >> (8 * half));
        let (mut left, mut right) = (padded_block(first) & left_mask, padded_block(second) & right_mask);
        for pass in order {
            let (from, to, mask) =
                if pass % 2 == 1 { (left, &mut right, right_mask) } else { (right, &mut left, left_mask) };
            // `expand_left` and `expand_right` of the draft.
            let mut block = (from | (len as u128) << 8 | u128::from(pass)).to_be_bytes();
            self.encrypt_block(&mut block);
            *to ^= u128::from_be_bytes(block) & mask;
        }
        text.fill(0);
        text.iter_mut().zip(left.to_be_bytes()).for_each(|(byte, part)| *byte |= part);
        text.iter_mut().skip(len / 2).zip(right.to_be_bytes()).for_each(|(byte, part)| *byte |= part);
    }

    fn encrypt_block(&self, block: &mut [u8]) {
        // Encryption and decryption of a whole block cannot fail.
        let _ = self.encrypting.encrypt(block);
    }
}

litequic_base::partial_debug!(IdCipher);

/// A block that begins with `bytes`, followed by zeroes.
fn padded_block(bytes: &[u8]) -> u128 {
    let mut block = [0; BLOCK_LEN];
    block.iter_mut().zip(bytes).for_each(|(byte, value)| *byte = *value);
    u128::from_be_bytes(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn hex(digits: &str) -> Vec<u8> {
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    fn cipher(key: &str) -> IdCipher {
        IdCipher::new(<[u8; BLOCK_LEN]>::try_from(hex(key)).unwrap().into()).unwrap()
    }

    /// Appendix B.2 of the draft: rotation, server ID, nonce, connection ID. The draft prints the first byte of the
    /// fourth as 0x12 beside "cr_bits 3"; the other bytes are right. All four have one key.
    const VECTORS: [(u8, &str, &str, &str); 4] = [
        (0, "ed793a", "ee080dbf", "0720b1d07b359d3c"),
        (1, "ed793a51d49b8f5fab65", "ee080dbf48", "2fcc381bc74cb4fbad2823a3d1f8fed2"),
        (2, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", "504dd2d05a7b0de9b2b9907afb5ecf8cc3"),
        (3, "ed793a51d49b8f5fab", "ee080dbf48c0d1e55d", "725779c9cc86beb3a3a4a3ca96fce4bfe0cdbc"),
    ];

    #[test]
    fn server_id_vectors_of_the_draft_hold() {
        let cipher = cipher("8f95f09245765f80256934e50c66207f");
        for (rotation, server_id, nonce, expected) in VECTORS {
            let plain = hex(&[server_id, nonce].concat());
            let mut text = plain.clone();
            cipher.encrypt(&mut text);
            let first = rotation << 5 | u8::try_from(text.len()).unwrap();
            assert_eq!([&[first], &*text].concat(), hex(expected));
            cipher.decrypt(&mut text);
            assert_eq!(text, plain);
        }
    }

    /// §5.4.2.4 of the draft, but for its typing error in step 10.
    #[test]
    fn the_server_id_example_of_the_draft_holds() {
        let mut text = hex("31441a9c69c275");
        cipher("fdf726a9893ec05c0632d3956680baf0").encrypt(&mut text);
        assert_eq!(text, hex("67947d29be054a"));
    }

    #[test]
    fn a_key_is_32_hexadecimal_digits_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(matches!(ServerIdKey::from_key_file(&path), Err(ServerIdKeyError::Read { .. })));
        let digits = "8f95F09245765f80256934e50c66207f";
        let table = [
            (digits.to_owned(), None),
            (format!(" {digits}\n"), None),
            (digits[1..].to_owned(), Some("has 31 digits; expected 32 hexadecimal digits")),
            (digits.repeat(2), Some("has too many digits; expected 32")),
            (String::new(), Some("has 0 digits")),
            (digits.replace('f', "g"), Some("has the byte 0x67")),
        ];
        for (content, problem) in table {
            fs::write(&path, &content).unwrap();
            match (ServerIdKey::from_key_file(&path), problem) {
                (Ok(ServerIdKey(key)), None) => assert_eq!(key.to_vec(), hex(digits)),
                (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{error}"),
                (result, _) => panic!("{content}: {result:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn decryption_reverses_encryption(key: [u8; BLOCK_LEN], text in proptest::collection::vec(any::<u8>(), 5..20)) {
            let cipher = IdCipher::new(key.into()).unwrap();
            let mut changed = text.clone();
            cipher.encrypt(&mut changed);
            prop_assert_ne!(&changed, &text);
            cipher.decrypt(&mut changed);
            prop_assert_eq!(changed, text);
        }
    }
}

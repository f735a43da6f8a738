//! Creates and verifies the password hashes of a file of users: bcrypt by `htpasswd -B`, and Argon2id in the PHC form.
//! Pure.

use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash};
use bcrypt::HashParts;

/// Largest cost of a bcrypt hash that is verified, as a power of two: about a second.
const MAX_BCRYPT_COST: u32 = 14;
/// Largest memory of an Argon2id hash, in KiB: two passwords are verified at a time.
const MAX_ARGON2_MEMORY: u32 = 64 * 1024;
/// Largest product of memory and passes of an Argon2id hash, in KiB: about half a second.
const MAX_ARGON2_WORK: u64 = 256 * 1024;
/// Most lanes of an Argon2id hash; litequic computes lanes one after the other.
const MAX_ARGON2_LANES: u32 = 16;

/// Memory, in KiB, of the hashes that litequic creates: OWASP's memory with twice the passes, 57 ms on an AMD EPYC
/// (docs/how-to/protect-a-path-with-a-password.md).
const NEW_HASH_MEMORY: u32 = 19 * 1024;
const NEW_HASH_PASSES: u32 = 4;
/// Bytes of salt (RFC 9106 §3.1).
const SALT_BYTES: usize = 16;

/// A hash that can be verified within the bounds of cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoredHash {
    Bcrypt(String),
    Argon2id(String),
}

impl StoredHash {
    /// Parses a hash as a file of users has it.
    ///
    /// # Errors
    ///
    /// The problem of the hash.
    pub(super) fn parse_hash(text: &str) -> Result<Self, &'static str> {
        if text.starts_with("$argon2") {
            let hash = PasswordHash::new(text).map_err(|_| "has an Argon2 hash that is not in the PHC form")?;
            if hash.algorithm.as_str() != "argon2id" || hash.salt.is_none() || hash.hash.is_none() {
                return Err("has an Argon2 hash that is truncated, or not Argon2id");
            }
            let params = Params::try_from(&hash).map_err(|_| "has an Argon2id hash with invalid parameters")?;
            let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
            let is_cheap = params.m_cost() <= MAX_ARGON2_MEMORY && params.p_cost() <= MAX_ARGON2_LANES;
            return match is_cheap && work <= MAX_ARGON2_WORK {
                true => Ok(Self::Argon2id(text.into())),
                false => {
                    Err("has an Argon2id hash that costs more than 64 MiB of memory, 256 MiB of passes, or 16 lanes")
                }
            };
        }
        if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: HashParts = text.parse().map_err(|_| "has a bcrypt hash that is malformed")?;
            return match parts.get_cost() {
                4..=MAX_BCRYPT_COST => Ok(Self::Bcrypt(text.into())),
                _ => Err("has a bcrypt hash with a cost that is not from 4 to 14"),
            };
        }
        Err("has a hash that is neither bcrypt (htpasswd -B) nor Argon2id (litequic password)")
    }

    pub(super) fn encoded_hash(&self) -> &str {
        match self {
            Self::Bcrypt(text) | Self::Argon2id(text) => text,
        }
    }

    /// Whether this is the hash of `password`. Takes as long as the hash requires: never call this on a worker's
    /// thread.
    pub(super) fn matches_password(&self, password: &[u8]) -> bool {
        match self {
            // bcrypt uses the first 72 bytes of a password, also in htpasswd.
            Self::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            Self::Argon2id(text) => {
                PasswordHash::new(text).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
            }
        }
    }

    /// Creates the hash of a new `password` as a file of users has it.
    ///
    /// # Errors
    ///
    /// The hash needs more memory than is free.
    pub(super) fn hash_new_password(password: &[u8]) -> Result<String, String> {
        let salt: [u8; SALT_BYTES] = rand::random();
        let params = Params::new(NEW_HASH_MEMORY, NEW_HASH_PASSES, 1, None).map_err(|error| error.to_string())?;
        let hash = Argon2::from(params).hash_password_with_salt(password, &salt).map_err(|error| error.to_string())?;
        Ok(hash.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_both_kinds_are_verified() {
        let own = StoredHash::hash_new_password(b"open sesame").unwrap();
        assert!(own.starts_with("$argon2id$v=19$m=19456,t=4,p=1$"), "{own}");
        let own = StoredHash::parse_hash(&own).unwrap();
        assert!(
            own.matches_password(b"open sesame")
                && !own.matches_password(b"open sesame!")
                && !own.matches_password(b"")
        );
        assert_ne!(
            StoredHash::hash_new_password(b"a").unwrap(),
            StoredHash::hash_new_password(b"a").unwrap(),
            "each has a salt of its own"
        );
        let bcrypt = bcrypt::hash("secret", 4).unwrap();
        for prefix in ["$2y$", "$2b$", "$2a$"] {
            let hash = StoredHash::parse_hash(&bcrypt.replacen("$2b$", prefix, 1)).unwrap();
            assert!(hash.matches_password(b"secret") && !hash.matches_password(b"Secret"), "{prefix}");
        }
        // A zero byte and a great length are valid in a password.
        for odd in [&b"a\0b"[..], &[b'x'; 1000]] {
            assert!(!StoredHash::parse_hash(&bcrypt).unwrap().matches_password(odd));
            assert!(
                StoredHash::parse_hash(&StoredHash::hash_new_password(odd).unwrap()).unwrap().matches_password(odd)
            );
        }
    }

    #[test]
    fn a_hash_that_is_unknown_incomplete_or_costs_too_much_is_refused() {
        let bcrypt = bcrypt::hash("secret", 4).unwrap();
        for (text, problem) in [
            ("{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=", "neither bcrypt"),
            ("$apr1$abc$def", "neither bcrypt"),
            ("secret", "neither bcrypt"),
            ("", "neither bcrypt"),
            ("$2y$05$short", "malformed"),
            (&*bcrypt.replacen("$2b$", "$2x$", 1), "neither bcrypt"),
            (&*bcrypt.replacen("$04$", "$31$", 1), "from 4 to 14"),
            (&*bcrypt.replacen("$04$", "$15$", 1), "from 4 to 14"),
            (
                "$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$ywWOxFYsKYVOIOkyCvXvLFnMYzNMTQKTvHPzlXs2+tM",
                "truncated, or not Argon2id",
            ),
            ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ", "truncated, or not Argon2id"),
            ("$argon2id$v=19$m=1048576,t=1,p=1$c29tZXNhbHQ$ywWOxFYsKYVOIOkyCvXvLFnMYzNMTQKTvHPzlXs2+tM", "costs more"),
            ("$argon2id$v=19$m=65536,t=5,p=1$c29tZXNhbHQ$ywWOxFYsKYVOIOkyCvXvLFnMYzNMTQKTvHPzlXs2+tM", "costs more"),
        ] {
            let found = StoredHash::parse_hash(text).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }
}

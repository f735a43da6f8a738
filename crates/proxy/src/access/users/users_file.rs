//! Reads a file of users: lines of `name:hash`, as `htpasswd -B` and `litequic password` write.

use super::stored_hash::StoredHash;
use litequic_exchange::field_syntax::is_field_value;
use std::{
    collections::BTreeMap,
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Largest file of users, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Longest name of a user, in bytes: each request to the origin has it in a field.
const MAX_NAME: usize = 255;

/// Error of a file of users.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read.
    #[error("the file of users {} cannot be read: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content is not a list of users.
    #[error("the file of users {} {problem}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Problem, with the number of the line.
        problem: String,
    },
}

/// The users of a file, with the hashes of their passwords.
#[derive(Default)]
pub struct Users {
    /// Names and hashes, sorted by name.
    hashes: Vec<(String, StoredHash)>,
    /// Chooses the hash that is verified for the name of an unknown user.
    hasher: RandomState,
}

impl PartialEq for Users {
    fn eq(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }
}

// Shows no hash, which is a secret.
litequic_base::partial_debug!(Users);

impl Users {
    /// Reads the file at `path`. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// [`UsersError`]
    pub fn read_users_file(path: &Path) -> Result<Self, UsersError> {
        let mut bytes = Vec::new();
        // One byte more tells a file that is too large from one that just fits.
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
        read.map_err(|source| UsersError::Read { path: path.into(), source })?;
        Self::parse_users(&bytes).map_err(|problem| UsersError::Content { path: path.into(), problem })
    }

    pub(super) fn parse_users(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MAX_FILE {
            return Err(format!("is larger than {} MiB", MAX_FILE / 1024 / 1024));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
        let mut hashes = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |problem: &str| format!("{problem} in line {number}");
            let (name, hash) = line.split_once(':').ok_or_else(|| wrong("has no NAME:HASH"))?;
            name_fault(name).map_or(Ok(()), |problem| Err(wrong(problem)))?;
            let hash = StoredHash::parse_hash(hash).map_err(wrong)?;
            if hashes.insert(name.to_owned(), hash).is_some() {
                return Err(wrong("repeats a user"));
            }
        }
        if hashes.is_empty() {
            Err("has no user".into())
        } else {
            Ok(Self { hashes: hashes.into_iter().collect(), hasher: RandomState::new() })
        }
    }

    /// The hash of the user `name`, and true; for an unknown user another user's hash, and false: verifying takes as
    /// long. `None` if the file has no users.
    pub(super) fn find_hash(&self, name: &str) -> Option<(&StoredHash, bool)> {
        let known = self.hashes.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok();
        let number = self.hasher.hash_one(name).checked_rem(self.hashes.len() as u64)?;
        let (_, hash) = self.hashes.get(known.unwrap_or(usize::try_from(number).unwrap_or_default()))?;
        Some((hash, known.is_some()))
    }
}

/// The fault of a user's name; `None` if the name is valid.
fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("has an empty name"),
        _ if name.len() > MAX_NAME => Some("has a name of more than 255 bytes"),
        _ if name.contains(':') => Some("has a name with a colon"),
        _ if name.trim() != name || !is_field_value(name.as_bytes()) => {
            Some("has a name with a control character, or with leading or trailing whitespace")
        }
        _ => None,
    }
}

/// Creates the line of a file of users for `name` with `password`. Takes as long as verifying the password.
///
/// # Errors
///
/// The name or the password is invalid.
pub fn create_user_line(name: &str, password: &[u8]) -> Result<String, String> {
    if let Some(problem) = name_fault(name) {
        return Err(problem.replacen("has", "is", 1));
    }
    if password.is_empty() {
        return Err("the password is empty".into());
    }
    if password.len() > super::MAX_PASSWORD {
        return Err(format!("the password has more than {} bytes", super::MAX_PASSWORD));
    }
    Ok(format!("{name}:{}", StoredHash::hash_new_password(password)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_and_a_hash_a_line() {
        let hash = bcrypt::hash("secret", 4).unwrap();
        let users = Users::parse_users(format!("# staff\n\nalice:{hash}\nJürgen Groß:{hash} \r\n").as_bytes()).unwrap();
        assert!(users.find_hash("alice").unwrap().1 && users.find_hash("Jürgen Groß").unwrap().1);
        for unknown in ["Alice", "", "bob", "# staff"] {
            assert_eq!(users.find_hash(unknown).map(|(_, known)| known), Some(false), "{unknown}");
        }
        assert!(Users::default().find_hash("alice").is_none());
        for (text, problem) in [
            (String::new(), "has no user"),
            ("# none\n".into(), "has no user"),
            (format!("alice:{hash}\nbob\n"), "has no NAME:HASH in line 2"),
            (format!(":{hash}"), "has an empty name in line 1"),
            (
                format!(" a:{hash}"),
                "has a name with a control character, or with leading or trailing whitespace in line 1",
            ),
            (
                format!("a\u{7}:{hash}"),
                "has a name with a control character, or with leading or trailing whitespace in line 1",
            ),
            (format!("{}:{hash}", "a".repeat(256)), "has a name of more than 255 bytes in line 1"),
            (format!("alice:{hash}\nalice:{hash}"), "repeats a user in line 2"),
            (
                "alice:secret".into(),
                "has a hash that is neither bcrypt (htpasswd -B) nor Argon2id (litequic password) in line 1",
            ),
        ] {
            assert_eq!(Users::parse_users(text.as_bytes()).unwrap_err(), problem, "{text}");
        }
        assert_eq!(Users::parse_users(b"a\xff:b").unwrap_err(), "is not UTF-8");
        assert_eq!(Users::parse_users(&vec![b'#'; 1024 * 1024 + 1]).unwrap_err(), "is larger than 1 MiB");
    }

    #[test]
    fn a_line_for_a_user_is_one_that_a_file_may_have() {
        let line = create_user_line("alice", b"open sesame").unwrap();
        let users = Users::parse_users(line.as_bytes()).unwrap();
        let (hash, known) = users.find_hash("alice").unwrap();
        assert!(known && hash.matches_password(b"open sesame"));
        for (name, password) in [("", "a"), ("a:b", "a"), ("a\n", "a"), ("alice", ""), ("alice", &"x".repeat(1025))] {
            create_user_line(name, password.as_bytes()).unwrap_err();
        }
    }
}

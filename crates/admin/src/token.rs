//! Reads and checks the token of an admin address.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{HeaderMap, header::AUTHORIZATION};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of a token at least, so that it cannot be guessed at the rate at which an admin address answers.
const MIN_TOKEN_BYTES: usize = 16;
/// Bytes of a token at most: a larger file is not a token, or never ends.
const MAX_TOKEN_BYTES: usize = 1024;

/// A secret in printable ASCII, which is never shown.
#[derive(Clone)]
pub struct Token(String);

/// Reason why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file of the token cannot be read.
    #[error("cannot read the token in {path:?}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The environment variable of the token is not set.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// The token cannot be sent in a header field, or could be guessed.
    #[error(
        "the token of {0} must be {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable characters without blanks, such as `openssl rand -hex 32` prints"
    )]
    Unfit(String),
}

impl Token {
    /// Reads the token in the file at `path`, without the line's end.
    ///
    /// # Errors
    ///
    /// [`TokenError`]
    pub fn from_token_file(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Read { path: path.into(), source };
        let mut text = Vec::new();
        File::open(path).map_err(failed)?.take(MAX_TOKEN_BYTES as u64 + 3).read_to_end(&mut text).map_err(failed)?;
        Self::new(&String::from_utf8_lossy(&text), || format!("{path:?}"))
    }

    /// Reads the token in the environment variable `name`.
    ///
    /// # Errors
    ///
    /// [`TokenError`]
    pub fn from_env(name: &str) -> Result<Self, TokenError> {
        let value = std::env::var(name).map_err(|_| TokenError::Unset(name.into()))?;
        Self::new(&value, || name.into())
    }

    #[cfg(test)]
    pub(super) fn new_for_tests(text: &str) -> Self {
        Self(text.into())
    }

    fn new(text: &str, place: impl FnOnce() -> String) -> Result<Self, TokenError> {
        let text = text.trim_end_matches(['\r', '\n']);
        let fits = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text.into())) } else { Err(TokenError::Unfit(place())) }
    }

    /// Whether a request presents the token: `Authorization: Bearer TOKEN` (RFC 6750 §2.1). The comparison takes
    /// constant time.
    pub(super) fn is_presented(&self, fields: &HeaderMap) -> bool {
        let mut lines = fields.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return false };
        let Some((scheme, shown)) = line.to_str().ok().and_then(|line| line.split_once(' ')) else { return false };
        scheme.eq_ignore_ascii_case("bearer")
            && verify_slices_are_equal(shown.trim_start().as_bytes(), self.0.as_bytes()).is_ok()
    }

    /// Returns the value of the `Authorization` field with the token.
    pub fn authorization_value(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

litequic_base::partial_debug!(Token);

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_known_by_its_exact_text_and_shown_nowhere() {
        let token = Token::new(&format!("{SECRET}\n"), String::new).unwrap();
        assert_eq!(format!("{token:?}"), "Token { .. }");
        for (value, expected) in [
            (token.authorization_value().as_str(), true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer 0123456789abcdef0", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("Bearer ", false),
            ("", false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(token.is_presented(&fields), expected, "{value}");
            fields.append(AUTHORIZATION, value.parse().unwrap());
            assert!(!token.is_presented(&fields), "{value}, twice");
        }
        assert!(!token.is_presented(&HeaderMap::new()));
    }

    #[test]
    fn a_guessable_or_unsendable_token_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(Token::from_token_file(&path), Err(TokenError::Read { .. })));
        for (content, fits) in [
            (SECRET.to_owned(), true),
            (format!("{SECRET}\r\n"), true),
            (SECRET.repeat(64), true),
            (SECRET.repeat(65), false),
            ("short".into(), false),
            (format!("{SECRET} and more"), false),
            (format!("{SECRET}\nand more"), false),
            (format!("{SECRET}\u{e9}"), false),
        ] {
            std::fs::write(&path, &content).unwrap();
            let read = Token::from_token_file(&path);
            assert_eq!(read.is_ok(), fits, "{content}");
            assert!(read.err().is_none_or(|error| !error.to_string().contains(&content)));
        }
        assert!(matches!(Token::from_env("LITEQUIC_NO_SUCH_VARIABLE"), Err(TokenError::Unset(_))));
    }
}

//! Reads the name and the password of a request: Basic (RFC 7617). Pure.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use litequic_exchange::{Fields, field_syntax::is_field_value, name};

/// Longest password, in bytes: the time of a hash grows with the length.
pub(crate) const MAX_PASSWORD: usize = 1024;
/// Longest name and password, in bytes of Base64.
const MAX_ENCODED: usize = 2048;

/// Base64 with or without padding: clients write both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Name and password that a client has sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(super) name: String,
    pub(super) password: Vec<u8>,
}

// Shows the name without the password.
litequic_base::partial_debug!(Credentials { name });

impl Credentials {
    /// The name as a field's value; `None` if a field cannot have this value, which then is no user's name.
    pub(crate) fn name_field(&self) -> Option<Vec<u8>> {
        is_field_value(self.name.as_bytes()).then(|| self.name.clone().into_bytes())
    }

    /// Reads the name and the password from `fields`; `None` unless the request has exactly one of each.
    pub(crate) fn from_fields(fields: &Fields) -> Option<Self> {
        let mut lines = fields.all_values(name::AUTHORIZATION);
        let line = lines.next().filter(|_| lines.next().is_none())?;
        let (scheme, encoded) = line.split_at_checked(line.iter().position(|byte| *byte == b' ')?)?;
        let encoded = encoded.trim_ascii();
        if !scheme.eq_ignore_ascii_case(b"basic") || encoded.len() > MAX_ENCODED {
            return None;
        }
        let decoded = BASE64.decode(encoded).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let (name, password) = decoded.split_at_checked(colon)?;
        let password = password.get(1..)?.to_vec();
        let name = String::from_utf8(name.to_vec()).ok()?;
        (password.len() <= MAX_PASSWORD).then_some(Self { name, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;

    fn read(lines: &[&str]) -> Option<(String, Vec<u8>)> {
        let lines = lines.iter().map(|line| (name::AUTHORIZATION, line.as_bytes()));
        Credentials::from_fields(&lines.collect()).map(|read| (read.name, read.password))
    }

    #[test]
    fn a_name_ends_at_the_first_colon() {
        let encode = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for (line, expected) in [
            (encode("alice:secret"), Some(("alice", "secret"))),
            (encode("alice:a:b"), Some(("alice", "a:b"))),
            (encode("alice:"), Some(("alice", ""))),
            (encode(":secret"), Some(("", "secret"))),
            (encode("Jürgen:geheim"), Some(("Jürgen", "geheim"))),
            (encode("alice:secret").replace("Basic", "bASIC "), Some(("alice", "secret"))),
            (encode("alice:secret1").replace('=', ""), Some(("alice", "secret1"))),
            (encode("alice"), None),
            (encode(&format!("alice:{}", "x".repeat(1025))), None),
            (format!("Basic {}", "A".repeat(2049)), None),
            (encode("alice:secret").replace("Basic", "Bearer"), None),
            ("Basic".into(), None),
            ("Basic !".into(), None),
            (String::new(), None),
        ] {
            let expected = expected.map(|(name, password)| (name.to_owned(), password.as_bytes().to_vec()));
            assert_eq!(read(&[&line]), expected, "{line}");
        }
        let twice = encode("alice:secret");
        assert_eq!(read(&[&twice, &twice]), None);
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn no_field_makes_it_panic(value: Vec<u8>, basic: bool) {
            let value = if basic { [b"Basic ", &value[..]].concat() } else { value };
            if is_field_value(&value) {
                let _ = Credentials::from_fields(&Fields::from_iter([(name::AUTHORIZATION, &value[..])]));
            }
        }
    }
}

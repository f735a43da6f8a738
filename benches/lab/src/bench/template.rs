//! `@PLACEHOLDERS@` in command lines and configuration templates. Pure. At signs, because braces and dollars mean
//! something in nearly every configuration language.

use std::collections::BTreeMap;

/// What stands for each placeholder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(BTreeMap<&'static str, String>);

/// A placeholder that nothing stands for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("@{name}@ in {place} means nothing; known are {known}")]
pub(crate) struct Unknown {
    name: String,
    place: String,
    known: String,
}

impl Values {
    /// Lets `value` stand for `@name@`, one of `PLACEHOLDERS`.
    pub(crate) fn set(&mut self, name: &'static str, value: impl ToString) {
        debug_assert!(super::PLACEHOLDERS.contains(&name), "{name} is not documented");
        self.0.insert(name, value.to_string());
    }

    /// `text` with every placeholder replaced; `place` is what an error calls it. An at sign that begins no
    /// `@UPPER_CASE@` is itself.
    pub(crate) fn expand(&self, text: &str, place: &str) -> Result<String, Unknown> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('@') {
            expanded.push_str(before);
            match after.split_once('@') {
                Some((name, behind)) if is_name(name) => {
                    expanded.push_str(self.0.get(name).ok_or_else(|| self.unknown(name, place))?);
                    rest = behind;
                }
                _ => {
                    expanded.push('@');
                    rest = after;
                }
            }
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn unknown(&self, name: &str, place: &str) -> Unknown {
        let known: Vec<_> = self.0.keys().map(|name| format!("@{name}@")).collect();
        Unknown { name: name.to_owned(), place: place.to_owned(), known: known.join(", ") }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.set("ADDRESS", "127.0.0.1");
        values.set("PORT", 443);
        values
    }

    #[test]
    fn placeholders_are_replaced_and_other_at_signs_stay() {
        assert_eq!(values().expand("quic4@@ADDRESS@:@PORT@;", "x").unwrap(), "quic4@127.0.0.1:443;");
        assert_eq!(values().expand("me@example.net @ \"@type\": a@b", "x").unwrap(), "me@example.net @ \"@type\": a@b");
    }

    #[test]
    fn a_placeholders_name_may_have_digits() {
        let mut values = values();
        values.set("H3", "#");
        assert_eq!(values.expand("@H3@listen", "x").unwrap(), "#listen");
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_its_place_and_the_known_ones() {
        let error = values().expand("listen @PORTS@", "nginx.conf").unwrap_err().to_string();
        assert_eq!(error, "@PORTS@ in nginx.conf means nothing; known are @ADDRESS@, @PORT@");
    }

    #[test]
    fn what_was_put_in_is_not_expanded_again() {
        let mut values = values();
        values.set("EXTRA", "@PORT@");
        assert_eq!(values.expand("@EXTRA@", "x").unwrap(), "@PORT@");
    }
}

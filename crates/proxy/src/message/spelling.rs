//! Handles spellings of a field's name that an origin may confuse. Pure.
//!
//! CGI (RFC 3875 §4.1.18) and its successors (FastCGI, WSGI, Rack, PHP) make a variable of a field's name: in capitals,
//! with `_` for `-`. `x-user` and `x_user` are both `HTTP_X_USER` then, and the last one wins. PHP folds `.` as well,
//! lighttpd and HAProxy's FastCGI fold every character that is not a letter or digit. So a name of letters, digits and
//! `-` is *plain*, every other name is ambiguous, and all names that differ in other characters than letters and digits
//! are one.

use crate::answer::Error;
use litequic_config::AmbiguousFields;
use litequic_exchange::{Fields, field_syntax};
use std::borrow::Cow;

/// Whether no origin confuses a field of that name, in lower case, with another plain name.
pub(crate) fn is_plain_name(name: &str) -> bool {
    field_syntax::is_alphanumeric_name(name.as_bytes())
}

/// Plain name as which an origin may read `name`, which is in lower case.
pub(crate) fn plain_name(name: &str) -> Cow<'_, str> {
    if is_plain_name(name) { name.into() } else { name.replace(|char: char| !char.is_ascii_alphanumeric(), "-").into() }
}

/// Handles the fields whose names are not plain, by `policy`, and returns how many there were.
///
/// # Errors
///
/// [`Error::AmbiguousField`] where they are to be rejected.
pub(crate) fn handle_ambiguous(fields: &mut Fields, policy: AmbiguousFields) -> Result<u64, Error> {
    match policy {
        AmbiguousFields::Pass => Ok(0),
        AmbiguousFields::Drop => Ok(remove_names(fields, |name| !is_plain_name(name))),
        AmbiguousFields::Reject if fields.iter().all(|line| line.is_plain) => Ok(0),
        AmbiguousFields::Reject => Err(Error::AmbiguousField),
    }
}

/// Removes the fields whose names are `doomed`, and returns the number of names.
pub(crate) fn remove_names(fields: &mut Fields, doomed: impl Fn(&str) -> bool) -> u64 {
    // Collecting no names allocates no memory.
    let mut names: Vec<&str> = fields.iter().map(|line| line.name_str()).filter(|name| doomed(name)).collect();
    names.sort_unstable();
    names.dedup();
    let count = names.len() as u64;
    if count > 0 {
        fields.retain(|line| !doomed(line.name_str()));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::{FieldNameRef, name};
    use proptest::prelude::*;

    /// Variables that origins make of a field's name, by their sources. `None`: they drop the field.
    fn variables(name: &str) -> Vec<Option<String>> {
        let folded = |folds: &dyn Fn(char) -> bool| {
            let fold = |char: char| if folds(char) { '_' } else { char.to_ascii_uppercase() };
            Some(name.chars().map(fold).collect::<String>())
        };
        let odd = |char: char| !char.is_ascii_alphanumeric();
        vec![
            // Python's wsgiref and uWSGI, Rack, Go's net/http/cgi, nginx' fastcgi_pass with underscores_in_headers
            folded(&|char| char == '-'),
            // PHP: php_register_variable_ex
            folded(&|char| matches!(char, '-' | '.' | ' ')),
            // lighttpd: http_cgi_encode_varname; HAProxy: mux_fcgi.c
            folded(&odd),
            // Apache 2.4: http2env
            if name.chars().any(|char| odd(char) && char != '-') { None } else { folded(&|char| char == '-') },
        ]
    }

    proptest! {
        #[test]
        fn names_that_an_origin_takes_for_one_have_the_same_plain_name(
            name in "[xa0!#$%&'*+.^_`|~-]{1,6}",
            other in "[xa0!#$%&'*+.^_`|~-]{1,6}",
        ) {
            let alike = variables(&name).into_iter().zip(variables(&other)).any(|(one, two)| one.is_some() && one == two);
            if alike {
                prop_assert_eq!(plain_name(&name), plain_name(&other));
                prop_assert!(name == other || !is_plain_name(&name) || !is_plain_name(&other));
            }
            prop_assert_eq!(plain_name(&name) == name, is_plain_name(&name));
            prop_assert!(is_plain_name(&plain_name(&name)));
        }
    }

    #[test]
    fn an_ambiguous_field_is_dropped_rejected_or_passed() {
        let names = ["x-user", "x_user", "x.user", "x-user_id", "accept", "x_user"];
        let fields = || names.map(|name| (FieldNameRef::from_lower_case_token(name), &b"1"[..])).into_iter().collect();
        for (policy, expected, left) in [
            (AmbiguousFields::Drop, Ok(3), 2),
            (AmbiguousFields::Pass, Ok(0), 6),
            (AmbiguousFields::Reject, Err(Error::AmbiguousField), 6),
        ] {
            let mut fields: Fields = fields();
            assert_eq!((handle_ambiguous(&mut fields, policy), fields.len()), (expected, left), "{policy:?}");
        }
        let mut plain = Fields::from_iter([(name::TE, &b"1"[..])]);
        assert_eq!((handle_ambiguous(&mut plain, AmbiguousFields::Reject), plain.len()), (Ok(0), 1));
    }
}

//! Parses the value of a `Priority` field and of a PRIORITY_UPDATE frame: a dictionary of structured fields (RFC 9651
//! §3.2) with the members `u` and `i` (RFC 9218 §4). Nothing is copied. Pure.

use super::{MAX_URGENCY, Priority};

/// Largest number of digits of an integer (RFC 9651 §4.2.4).
const MAX_INTEGER_DIGITS: usize = 15;
/// Largest number of digits of a decimal's integral part (RFC 9651 §4.2.4).
const MAX_INTEGRAL_DIGITS: usize = 12;
/// Largest number of digits of a decimal's fraction (RFC 9651 §4.2.4).
const MAX_FRACTION_DIGITS: usize = 3;

/// The priority parameters of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriorityParameters {
    /// Urgency (`u`), if present and within 0 to 7.
    pub urgency: Option<u8>,
    /// Incremental (`i`), if present and a boolean.
    pub incremental: Option<bool>,
}

impl PriorityParameters {
    /// Returns the priority with these parameters; `otherwise` supplies the missing ones.
    pub fn or_priority(self, otherwise: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(otherwise.urgency),
            incremental: self.incremental.unwrap_or(otherwise.incremental),
        }
    }
}

/// Reads the value of a `Priority` field, or of a PRIORITY_UPDATE frame. `None` if the value does not parse and is to
/// be ignored (RFC 9651 §4.2). Members that are unknown, of a wrong type or out of range are ignored (RFC 9218 §4).
pub fn parse_priority(value: &[u8]) -> Option<PriorityParameters> {
    parse_usual_form(value).or_else(|| parse_dictionary(value))
}

/// Parses the values of a message's `Priority` fields, in their order, as [`parse_priority`] does. `None` if there is
/// none.
pub fn parse_priority_values<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<PriorityParameters> {
    let mut joined = values.next()?.to_vec();
    // A sender splits a dictionary at its commas (RFC 9651 §3.2).
    for value in values {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(value);
    }
    parse_priority(&joined)
}

/// Parses a value in one of the forms that browsers send; `None` for any other form.
fn parse_usual_form(value: &[u8]) -> Option<PriorityParameters> {
    let (digit, incremental) = match value {
        [b'u', b'=', digit @ b'0'..=b'7'] => (Some(digit), None),
        [b'u', b'=', digit @ b'0'..=b'7', b',', b' ', b'i'] => (Some(digit), Some(true)),
        b"i" => (None, Some(true)),
        _ => return None,
    };
    Some(PriorityParameters { urgency: digit.map(|digit| digit - b'0'), incremental })
}

/// The value of a bare item, as far as RFC 9218 uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BareValue {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// Parses a dictionary (RFC 9651 §4.2.2).
fn parse_dictionary(value: &[u8]) -> Option<PriorityParameters> {
    let mut input = DictionaryReader(value);
    let mut parameters = PriorityParameters::default();
    input.skip_any_of(b" ");
    if input.0.is_empty() {
        return Some(parameters);
    }
    loop {
        let key = input.read_member_key()?;
        let item = if input.take_byte(b'=') { input.read_member()? } else { BareValue::Boolean(true) };
        input.skip_parameters()?;
        // The last of several members with one key applies.
        match (key, item) {
            (b"u", BareValue::Integer(urgency)) => {
                parameters.urgency = u8::try_from(urgency).ok().filter(|urgency| *urgency <= MAX_URGENCY);
            }
            (b"u", _) => parameters.urgency = None,
            (b"i", BareValue::Boolean(incremental)) => parameters.incremental = Some(incremental),
            (b"i", _) => parameters.incremental = None,
            _ => {}
        }
        input.skip_any_of(b" \t");
        if input.0.is_empty() {
            return Some(parameters);
        }
        if !input.take_byte(b',') {
            return None;
        }
        input.skip_any_of(b" \t");
    }
}

/// The rest of a value that is being parsed.
struct DictionaryReader<'a>(&'a [u8]);

impl<'a> DictionaryReader<'a> {
    fn skip_any_of(&mut self, any: &[u8]) {
        while let [first, rest @ ..] = self.0
            && any.contains(first)
        {
            self.0 = rest;
        }
    }

    fn next_byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn peek_byte(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Takes the next byte if it is `byte`.
    fn take_byte(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes the bytes before the first one that `belongs` rejects.
    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().position(|byte| !belongs(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// Reads a key (RFC 9651 §4.2.3.3).
    fn read_member_key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.peek_byte()?, b'a'..=b'z' | b'*') {
            return None;
        }
        Some(self.take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    /// Reads an item or an inner list without the parameters behind it (RFC 9651 §4.2.1.1).
    fn read_member(&mut self) -> Option<BareValue> {
        if !self.take_byte(b'(') {
            return self.read_bare_item();
        }
        loop {
            self.skip_any_of(b" ");
            if self.take_byte(b')') {
                return Some(BareValue::Other);
            }
            self.read_bare_item()?;
            self.skip_parameters()?;
            if !matches!(self.peek_byte()?, b' ' | b')') {
                return None;
            }
        }
    }

    /// Skips parameters (RFC 9651 §4.2.3.2).
    fn skip_parameters(&mut self) -> Option<()> {
        while self.take_byte(b';') {
            self.skip_any_of(b" ");
            self.read_member_key()?;
            if self.take_byte(b'=') {
                self.read_bare_item()?;
            }
        }
        Some(())
    }

    /// Reads a bare item (RFC 9651 §4.2.3.1).
    fn read_bare_item(&mut self) -> Option<BareValue> {
        match self.peek_byte()? {
            b'-' | b'0'..=b'9' => self.read_number(),
            b'"' => {
                self.next_byte();
                loop {
                    match self.next_byte()? {
                        b'"' => return Some(BareValue::Other),
                        b'\\' if !matches!(self.next_byte()?, b'"' | b'\\') => return None,
                        b'\\' | b' '..=b'~' => {}
                        _ => return None,
                    }
                }
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(BareValue::Other)
            }
            b':' => self.read_byte_sequence(),
            b'?' => {
                self.next_byte();
                match self.next_byte()? {
                    b'0' => Some(BareValue::Boolean(false)),
                    b'1' => Some(BareValue::Boolean(true)),
                    _ => None,
                }
            }
            b'@' => {
                self.next_byte();
                if matches!(self.read_number()?, BareValue::Integer(_)) { Some(BareValue::Other) } else { None }
            }
            b'%' => self.read_display_string(),
            _ => None,
        }
    }

    /// Reads an integer or a decimal (RFC 9651 §4.2.4).
    fn read_number(&mut self) -> Option<BareValue> {
        let negative = self.take_byte(b'-');
        let integral = self.take_while(|byte| byte.is_ascii_digit());
        if integral.is_empty() || integral.len() > MAX_INTEGER_DIGITS {
            return None;
        }
        if self.take_byte(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let fits = integral.len() <= MAX_INTEGRAL_DIGITS && (1..=MAX_FRACTION_DIGITS).contains(&fraction.len());
            return fits.then_some(BareValue::Other);
        }
        let number = integral.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        Some(BareValue::Integer(if negative { -number } else { number }))
    }

    /// Reads a byte sequence (RFC 9651 §4.2.7). Its padding may be missing.
    fn read_byte_sequence(&mut self) -> Option<BareValue> {
        self.next_byte();
        let digits = self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')).len();
        let padding = self.take_while(|byte| byte == b'=').len();
        // A multiple of four digits has no padding, and one digit short of that at most one character.
        let fits = padding <= (4 - digits % 4) % 4;
        (digits % 4 != 1 && fits && self.take_byte(b':')).then_some(BareValue::Other)
    }

    /// Reads a display string (RFC 9651 §4.2.10): UTF-8 with percent-encoded bytes.
    fn read_display_string(&mut self) -> Option<BareValue> {
        self.next_byte();
        if !self.take_byte(b'"') {
            return None;
        }
        let mut utf8 = Utf8Checker::default();
        loop {
            let byte = match self.next_byte()? {
                b'"' => return (utf8.length == 0).then_some(BareValue::Other),
                b'%' => hex_digit_value(self.next_byte()?)? << 4 | hex_digit_value(self.next_byte()?)?,
                byte @ b' '..=b'~' => byte,
                _ => return None,
            };
            utf8.push_byte(byte)?;
        }
    }
}

fn hex_digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Checks UTF-8 byte by byte. Holds the bytes of the character that has begun.
#[derive(Debug, Default)]
struct Utf8Checker {
    bytes: [u8; 4],
    length: usize,
}

impl Utf8Checker {
    /// Adds a byte; `None` if the byte is invalid there.
    fn push_byte(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.length)? = byte;
        self.length += 1;
        match std::str::from_utf8(self.bytes.get(..self.length)?) {
            Ok(_) => self.length = 0,
            Err(error) if error.error_len().is_some() => return None,
            Err(_) => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sfv::{BareItem, Dictionary, ListEntry, Parser};

    fn one(value: &str) -> Option<PriorityParameters> {
        parse_priority(value.as_bytes())
    }

    #[test]
    fn known_members_within_range_are_parameters() {
        type Members = (Option<u8>, Option<bool>);
        let table: [(&str, Option<Members>); 36] = [
            ("", Some((None, None))),
            ("   ", Some((None, None))),
            ("u=5, i", Some((Some(5), Some(true)))),
            ("u=0", Some((Some(0), None))),
            ("u=7,i=?0", Some((Some(7), Some(false)))),
            ("i=?1, u=1", Some((Some(1), Some(true)))),
            ("  u=2 ,\t i  ", Some((Some(2), Some(true)))),
            // ignored members
            ("u=8", Some((None, None))),
            ("u=-1, i", Some((None, Some(true)))),
            ("u=1.0", Some((None, None))),
            ("u=:aa=:", Some((None, None))),
            ("u=:aaa==:", None),
            ("u=\"1\", i=1", Some((None, None))),
            ("u, i=?0", Some((None, Some(false)))),
            ("u=(1 2), i=()", Some((None, None))),
            ("U=1", None),
            ("urgency=1, x=?1, u=4", Some((Some(4), None))),
            ("u=1;p=2;q, i;x=\"y\"", Some((Some(1), Some(true)))),
            ("a=:aGk=:, b=:aGk:, c=@1659578233, d=%\"f%c3%bc\", e=*t/o:k", Some((None, None))),
            // the last counts
            ("u=1, u=2", Some((Some(2), None))),
            ("u=1, u=9", Some((None, None))),
            ("i, i=?0", Some((None, Some(false)))),
            // values that do not parse
            ("u=1,", None),
            ("u=1, ", None),
            ("u=", None),
            ("u=1 i", None),
            (",u=1", None),
            ("u=1;;p", None),
            ("u=1\t", Some((Some(1), None))),
            ("i=?2", None),
            ("x=\"open", None),
            ("x=(1", None),
            ("u=1234567890123456", None),
            ("x=1.2345", None),
            ("x=%\"%c3\"", None),
            ("x=%\"%C3%BC\"", None),
        ];
        for (value, expected) in table {
            let expected = expected.map(|(urgency, incremental)| PriorityParameters { urgency, incremental });
            assert_eq!(one(value), expected, "{value:?}");
        }
    }

    #[test]
    fn several_fields_are_one_value() {
        let parse = |values: &[&str]| parse_priority_values(values.iter().map(|value| value.as_bytes()));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&["u=1", "i"]), Some(PriorityParameters { urgency: Some(1), incremental: Some(true) }));
        assert_eq!(parse(&["u=1", "u=2", "u=6"]), Some(PriorityParameters { urgency: Some(6), incremental: None }));
        assert_eq!(parse(&["u=1", "i="]), None);
        assert_eq!(parse(&["u=1", ""]), None);
    }

    #[test]
    fn parameters_change_what_they_name() {
        let otherwise = Priority { urgency: 5, incremental: true };
        assert_eq!(PriorityParameters::default().or_priority(otherwise), otherwise);
        let urgency = PriorityParameters { urgency: Some(1), incremental: None };
        assert_eq!(urgency.or_priority(otherwise), Priority { urgency: 1, incremental: true });
        let incremental = PriorityParameters { urgency: None, incremental: Some(false) };
        assert_eq!(incremental.or_priority(otherwise), Priority { urgency: 5, incremental: false });
    }

    /// The result of the `sfv` crate.
    fn oracle(value: &[u8]) -> Option<PriorityParameters> {
        let dictionary: Dictionary = Parser::new(value).parse().ok()?;
        let item = |key: &str| match dictionary.get(key)? {
            ListEntry::Item(item) => Some(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
        let urgency = match item("u") {
            Some(BareItem::Integer(urgency)) => u8::try_from(i64::from(*urgency)).ok().filter(|urgency| *urgency <= 7),
            _ => None,
        };
        let incremental = match item("i") {
            Some(BareItem::Boolean(incremental)) => Some(*incremental),
            _ => None,
        };
        Some(PriorityParameters { urgency, incremental })
    }

    proptest! {
        #[test]
        fn any_bytes_parse_as_a_reference_parser_does(
            value in "[ui=?0-9, ;a\"()\\.\\-:%@*\\\\=A-Ctf\t!é]{0,24}",
        ) {
            prop_assert_eq!(one(&value), oracle(value.as_bytes()), "{:?}", value);
        }

        #[test]
        fn members_parse_as_a_reference_parser_does(
            members in prop::collection::vec(
                "(u|i|u2|\\*x)(=(-?[0-9]{1,16}(\\.[0-9]{0,4})?|\\?[0-2]|\"[ -~]{0,4}\"|[a-z*][a-z/:]{0,3}|:[a-zA-Z]{0,5}={0,3}:|@-?[0-9]{0,3}|%\"(%[0-9a-f]{2}|[a-z]){0,4}\"|\\( ?(1|a b|\"\" )? ?\\)))?(; ?[a-c](=[0-9?]{1,2})?){0,2}",
                0..4,
            ),
            comma in "( ?, ?|,\t)",
        ) {
            let value = members.join(&comma);
            prop_assert_eq!(one(&value), oracle(value.as_bytes()), "{:?}", value);
        }
    }
}

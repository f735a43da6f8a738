//! Parses the value of a `Priority` field and of a PRIORITY_UPDATE frame: a dictionary of structured fields (RFC 9651
//! §3.2) with the members `u` and `i` (RFC 9218 §4). Pure.

use super::{MAX_URGENCY, Priority};
use sfv::{
    BareItemFromInput, KeyRef, Parser,
    visitor::{DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor},
};
use std::convert::Infallible;

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

/// Parses a dictionary (RFC 9651 §4.2.2).
fn parse_dictionary(value: &[u8]) -> Option<PriorityParameters> {
    Parser::new(value).parse_dictionary_with_visitor(PriorityParameters::default()).ok()
}

impl<'de> DictionaryVisitor<'de> for PriorityParameters {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Infallible> {
        // The last of several members with one key applies.
        Ok(match key.as_str() {
            "u" => {
                self.urgency = None;
                Some(PriorityMember::Urgency(&mut self.urgency))
            }
            "i" => {
                self.incremental = None;
                Some(PriorityMember::Incremental(&mut self.incremental))
            }
            _ => None,
        })
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

/// The parameter that a member of the dictionary sets.
enum PriorityMember<'a> {
    Urgency(&'a mut Option<u8>),
    Incremental(&'a mut Option<bool>),
}

impl<'de> EntryVisitor<'de> for PriorityMember<'_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(move |value: BareItemFromInput<'de>| {
            match (self, value) {
                (Self::Urgency(urgency), BareItemFromInput::Integer(number)) => {
                    *urgency = u8::try_from(number).ok().filter(|urgency| *urgency <= MAX_URGENCY);
                }
                (Self::Incremental(incremental), BareItemFromInput::Boolean(is_on)) => *incremental = Some(is_on),
                _ => {}
            }
            Ok::<_, Infallible>(Ignored)
        })
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_forms_of_browsers_parse_as_any_dictionary() {
        let urgencies =
            (b'0'..=b'9').flat_map(|digit| [vec![b'u', b'=', digit], vec![b'u', b'=', digit, b',', b' ', b'i']]);
        for value in urgencies.chain([b"i".to_vec()]) {
            assert_eq!(parse_priority(&value), parse_dictionary(&value), "{}", value.escape_ascii());
        }
    }
}

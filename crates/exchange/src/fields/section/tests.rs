//! Tests of [`Fields`] against [`HeaderMap`] as the oracle, line by line.
#![expect(clippy::disallowed_types, reason = "it holds the oracle's fields")]

use super::*;
use crate::{DecodedFields, name};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

/// A step that is applied to both.
#[derive(Debug, Clone)]
enum Step {
    Append(String, Vec<u8>),
    Set(String, Vec<u8>),
    Remove(String),
    Retain(u8),
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&["host", "cookie", "set-cookie", "te", "x-a", "x_a", "x.a", "xa", "accept", "c"][..])
            .prop_map(str::to_owned),
        "[a-z!#$%&'*+.^_`|~0-9-]{1,9}",
    ]
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(b'\t'), 0x20..0x7f_u8, 0x80..=0xff_u8], 0..12)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any_name(), any_value()).prop_map(|(name, value)| Step::Append(name, value)),
        2 => (any_name(), any_value()).prop_map(|(name, value)| Step::Set(name, value)),
        1 => any_name().prop_map(Step::Remove),
        1 => (0..4_u8).prop_map(Step::Retain),
    ]
}

/// Whether [`Step::Retain`] keeps a line with this name.
fn keeps(kind: u8, name: &str) -> bool {
    match kind {
        0 => name.len().is_multiple_of(2),
        1 => is_alphanumeric_name(name.as_bytes()),
        2 => NameId::from_lower_case(name.as_bytes()).is_known(),
        _ => true,
    }
}

fn by_name(fields: &Fields, name: &str) -> Vec<Vec<u8>> {
    fields.all_values(FieldNameRef::from_lower_case_token(name)).map(<[u8]>::to_vec).collect()
}

proptest! {
    #[test]
    fn field_lines_equal_those_of_a_header_map(steps in prop::collection::vec(any_step(), 0..40)) {
        let (mut fields, mut map, mut list) = (Fields::new(), HeaderMap::new(), Vec::<(String, Vec<u8>)>::new());
        for step in steps {
            match step {
                Step::Append(name, value) => {
                    fields.append(FieldNameRef::from_lower_case_token(&name), &value);
                    map.append(HeaderName::try_from(&name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
                    list.push((name, value));
                }
                Step::Set(name, value) => {
                    fields.set_field(FieldNameRef::from_lower_case_token(&name), &value);
                    map.insert(HeaderName::try_from(&name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
                    list.retain(|line| line.0 != name);
                    list.push((name, value));
                }
                Step::Remove(name) => {
                    prop_assert_eq!(fields.remove_field(FieldNameRef::from_lower_case_token(&name)), map.remove(&name).is_some());
                    list.retain(|line| line.0 != name);
                }
                Step::Retain(kind) => {
                    fields.retain(|line| keeps(kind, line.name_str()));
                    let doomed: Vec<_> = map.keys().filter(|name| !keeps(kind, name.as_str())).cloned().collect();
                    doomed.iter().for_each(|name| drop(map.remove(name)));
                    list.retain(|line| keeps(kind, &line.0));
                }
            }
            prop_assert_eq!(fields.len(), map.len());
            for name in map.keys().map(HeaderName::as_str).chain(["host", "cookie", "x-a", "absent"]) {
                let expected: Vec<_> = map.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect();
                prop_assert_eq!(fields.contains(FieldNameRef::from_lower_case_token(name)), !expected.is_empty());
                prop_assert_eq!(fields.get(FieldNameRef::from_lower_case_token(name)).map(<[u8]>::to_vec), expected.first().cloned());
                prop_assert_eq!(by_name(&fields, name), expected);
            }
            let lines: Vec<_> = fields.iter().map(|line| (line.name_str().to_owned(), line.value.to_vec())).collect();
            prop_assert_eq!(&lines, &list, "in the order of the lines");
            let ids = list.iter().map(|line| NameId::from_lower_case(line.0.as_bytes()));
            let is_ambiguous = list.iter().any(|line| !is_alphanumeric_name(line.0.as_bytes()));
            // The bit for other names may outlive the last of them.
            prop_assert!(ids.clone().all(|id| fields.names.contains_id(id)));
            prop_assert!(!is_ambiguous || fields.names.intersects(NameSet::AMBIGUOUS));
            for id in list.iter().map(|line| line.0.as_str()).chain(["host", "te", "cookie"]).map(NameId::from_const_name) {
                prop_assert!(!id.is_known() || fields.names.contains_id(id) == ids.clone().any(|other| other == id));
            }
        }
        prop_assert_eq!(&HeaderMap::from(fields.clone()), &map);
        let names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        let back = Fields::from(&map);
        for name in names {
            prop_assert_eq!(by_name(&back, name), by_name(&fields, name));
        }
    }

    #[test]
    fn a_name_in_any_case_is_the_same(name in "[a-zA-Z!#$%&'*+.^_`|~0-9-]{1,9}|Content-Length|HOST|x_A", value in any_value()) {
        let (mut any, mut lower) = (Fields::new(), Fields::new());
        any.append_any_case(name.as_bytes(), &value);
        lower.append(FieldNameRef::from_lower_case_token(&name.to_ascii_lowercase()), &value);
        prop_assert_eq!(&any, &lower);
        prop_assert_eq!(any.names, lower.names);
        prop_assert_eq!(any.iter().map(|line| line.is_plain).next(), Some(is_alphanumeric_name(name.as_bytes())));
    }
}

#[test]
fn value_bytes_are_accepted_as_header_value_accepts_them() {
    use crate::field_syntax::is_field_value;
    for byte in 0..=u8::MAX {
        let value = [b'a', byte, b'b'];
        assert_eq!(is_field_value(&value), HeaderValue::from_bytes(&value).is_ok(), "{byte:#x}");
    }
}

#[test]
fn several_lines_of_one_name_stay_as_they_came() {
    let mut fields = Fields::new();
    for (name, value) in [("set-cookie", "a"), ("x", "1"), ("set-cookie", "b"), ("x", "2"), ("set-cookie", "a")] {
        fields.append(FieldNameRef::from_lower_case_token(name), value.as_bytes());
    }
    assert_eq!(fields.all_values(name::SET_COOKIE).collect::<Vec<_>>(), [b"a", b"b", b"a"]);
    let lines: Vec<_> = fields.iter().map(|line| line.name_str()).collect();
    assert_eq!(lines, ["set-cookie", "x", "set-cookie", "x", "set-cookie"]);
    assert_eq!(
        format!("{fields:?}"),
        r#"[("set-cookie", "…"), ("x", "1"), ("set-cookie", "…"), ("x", "2"), ("set-cookie", "…")]"#
    );
}

#[test]
fn decoded_lines_become_fields_but_for_those_that_are_left_out() {
    let mut decoded = DecodedFields::with_capacity(4, 0);
    for (name, value) in [(":path", "/a"), ("x_b", "c"), ("te", "")] {
        let at = decoded.text.len();
        match NameId::from_lower_case(name.as_bytes()) {
            NameId::OTHER => {
                decoded.text.extend_from_slice(name.as_bytes());
                decoded.text.extend_from_slice(value.as_bytes());
                decoded.push_decoded_line(NameId::OTHER, at, name.len());
            }
            id => {
                decoded.text.extend_from_slice(value.as_bytes());
                decoded.push_decoded_line(id, at, 0);
            }
        }
    }
    let lines: Vec<_> = decoded.iter().map(|line| (line.name, line.value)).collect();
    assert_eq!(lines, [(&b":path"[..], &b"/a"[..]), (b"x_b", b"c"), (b"te", b"")]);
    let mut path = None;
    let fields = decoded.clone().into_fields(|line| {
        if line.id.is_pseudo() {
            path = Some(line.span);
        }
        Ok::<_, ()>(!line.id.is_pseudo())
    });
    let fields = fields.unwrap();
    assert_eq!(fields.span_text(path.unwrap()), b"/a");
    assert_eq!(
        fields.iter().map(|line| (line.name_str(), line.is_plain)).collect::<Vec<_>>(),
        [("x_b", false), ("te", true)]
    );
    assert!(fields.names.intersects(NameSet::AMBIGUOUS) && !fields.names.contains_id(name::PATH.id()));
    assert_eq!(decoded.into_fields(|line| Err::<bool, _>(line.id.is_pseudo())), Err(true));
}

#[test]
fn fields_appended_at_once_equal_lines_appended_in_turn() {
    let lines = [("host", "a.test"), ("x-one", "1"), ("cookie", ""), ("x_two", "2")];
    let lines = lines.map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes()));
    let (mut at_once, mut in_turn): (Fields, Fields) =
        (lines[1..].iter().copied().collect(), lines[1..].iter().copied().collect());
    at_once.append_fields(&lines.into_iter().collect());
    lines.into_iter().for_each(|(name, value)| in_turn.append(name, value));
    assert_eq!(at_once, in_turn);
    assert_eq!(at_once.names, in_turn.names);
}

#[test]
fn a_name_that_is_too_long_for_a_line_is_no_name() {
    let mut decoded = DecodedFields::default();
    decoded.text.resize(70_000, b'x');
    decoded.push_decoded_line(NameId::OTHER, 0, 66_000);
    assert_eq!(decoded.iter().next().map(|line| line.name), Some(&b""[..]));
}

#[test]
fn members_of_all_lines_are_one_list() {
    let mut fields = Fields::new();
    fields.append(name::CONNECTION, b"a, B ,");
    fields.append(name::CONNECTION, b"c");
    assert_eq!(fields.list_members(name::CONNECTION).collect::<Vec<_>>(), [&b"a"[..], b"B", b"", b"c"]);
}

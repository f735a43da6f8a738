//! Documentation comments stand alone: rustdoc, an editor and grep show one item without its neighbours.
//! CONTRIBUTING.md, "Comments", has the rules.

use crate::sources::production;
use std::collections::{BTreeMap, BTreeSet};

/// First words that refer to something outside the comment.
const REFERRING: &[&str] = &[
    "It", "Its", "Of", "Those", "These", "That", "They", "As", "Which", "Such", "Whose", "Both", "And", "Or", "One's",
];
/// The same, of several words.
const REFERRING_PHRASES: &[&str] = &["The same", "So many", "So much"];
/// Beginnings that have one of [`REFERRING`] and stand alone.
const ALLOWED: &[&str] = &["As RFC", "As in RFC"];
/// Quantities without a number.
const VAGUE: &[&str] = &["so many", "so much", "that many"];

#[test]
fn doc_comments_stand_alone() {
    let wrong: Vec<String> = production()
        .into_iter()
        .flat_map(|(name, text)| faults(&text).into_iter().map(move |(line, what)| format!("{name}:{line}: {what}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The compiler and clippy keep `unsafe` and `HeaderMap` out of modules that do not expect them; these alone may.
#[test]
fn unsafe_code_and_header_maps_are_expected_where_they_belong_alone() {
    let places = [
        ("unsafe_code", &["crates/net/src/sys/", "src/allocator.rs"][..]),
        (
            "clippy::disallowed_types",
            &[
                "crates/tcp/src/lib.rs",
                "src/cli/mod.rs",
                "crates/admin/src/lib.rs",
                "crates/exchange/src/fields/convert.rs",
                "crates/telemetry/src/traces/collector.rs",
                "crates/proxy/src/connection/oracle_tests.rs",
            ][..],
        ),
    ];
    for (file, text) in production() {
        for (lint, allowed) in places {
            let expects = text.contains(&format!("expect({lint}")) || text.contains(&format!("allow({lint}"));
            assert!(!expects || allowed.iter().any(|place| file.starts_with(place)), "{file}: {lint}");
        }
    }
}

#[test]
fn comments_end_at_column_120() {
    let long = |line: &&str| line.trim_start().starts_with("//") && line.chars().count() > 120;
    let wide: Vec<String> = production()
        .into_iter()
        .flat_map(|(name, text)| text.lines().filter(long).map(|line| format!("{name}: {line}")).collect::<Vec<_>>())
        .collect();
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn no_two_modules_have_a_type_of_one_name() {
    assert_eq!(repeated_types(), BTreeSet::new(), "the other has a name of its own");
}

/// The faults of a file's documentation comments: line, and what is wrong.
fn faults(text: &str) -> Vec<(usize, String)> {
    let comments: Vec<Option<&str>> = text.lines().map(|line| line.trim_start().strip_prefix("///")).collect();
    let mut found = Vec::new();
    for (index, comment) in comments.iter().enumerate() {
        let Some(comment) = comment.map(str::trim) else { continue };
        let begins = index == 0 || comments[index - 1].is_none();
        let ends = comments.get(index + 1).is_none_or(Option::is_none);
        let mut fault = |what: String| found.push((index + 1, what));
        if begins && let Some(word) = referring(comment) {
            fault(format!("begins with \"{word}\", which refers to something outside the comment"));
        }
        if let Some(phrase) = VAGUE.iter().find(|phrase| has_phrase(comment, phrase)) {
            fault(format!("\"{phrase}\": name the number"));
        }
        if ends && comment.ends_with(',') {
            fault("the sentence goes on at the next item".to_owned());
        }
        if begins && ends && is_bare_possessive(comment) {
            fault("a possessive alone: name the item".to_owned());
        }
    }
    found
}

fn referring(comment: &str) -> Option<&'static str> {
    if ALLOWED.iter().any(|allowed| comment.starts_with(allowed)) {
        return None;
    }
    let first = comment.split(' ').next().unwrap_or_default().trim_end_matches([',', ':', ';']);
    let word = REFERRING.iter().copied().find(|word| *word == first);
    word.or_else(|| REFERRING_PHRASES.iter().copied().find(|phrase| comment.starts_with(phrase)))
}

fn has_phrase(comment: &str, phrase: &str) -> bool {
    let text = comment.to_lowercase();
    text.match_indices(phrase).any(|(at, _)| {
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        !word(text[..at].chars().next_back()) && !word(text[at + phrase.len()..].chars().next())
    })
}

/// One or two words, of which the last is a possessive: "One endpoint's."
fn is_bare_possessive(comment: &str) -> bool {
    comment.ends_with("'s.") && (1..=2).contains(&comment.split(' ').count())
}

/// Names of types that are visible outside their file and that two files have.
fn repeated_types() -> BTreeSet<String> {
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in production() {
        for name in text.lines().filter_map(visible_type) {
            files.entry(name.to_owned()).or_default().insert(file.clone());
        }
    }
    files.into_iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name).collect()
}

/// The type that a line declares, if it is visible outside its file.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = rest.strip_prefix('(').map_or(Some(rest), |rest| rest.split_once(')').map(|(_, rest)| rest))?;
    let declared = ["struct ", "enum ", "trait "].iter().find_map(|kind| rest.trim_start().strip_prefix(kind))?;
    // A macro's `$Name` is none.
    declared.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn faults_are_found_in_comments_of_items_alone() {
    let table: [(&str, &[usize]); 10] = [
        ("/// Its length.\nfn a() {}", &[1]),
        ("/// As RFC 9000 has it.\nfn a() {}", &[]),
        ("/// As the kernel has it.\nfn a() {}", &[1]),
        ("/// Returns a length.\n/// Of bytes.\nfn a() {}", &[]),
        ("// Its length.\nlet a = 1;", &[]),
        ("/// Waits for so many seconds.\nfn a() {}", &[1]),
        ("/// Also many seconds.\nfn a() {}", &[]),
        ("/// For how long it waits,\nfn a() {}", &[1]),
        ("/// One endpoint's.\nfn a() {}", &[1]),
        ("/// One endpoint's state, which the worker owns.\nfn a() {}", &[]),
    ];
    for (text, expected) in table {
        assert_eq!(faults(text).iter().map(|(line, _)| *line).collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn a_type_that_its_file_alone_sees_may_have_any_name() {
    for (line, expected) in [
        ("pub struct State {", Some("State")),
        ("    pub(super) enum End<'a> {", Some("End")),
        ("pub(in crate::tcp) trait Walk: Sized {", Some("Walk")),
        ("struct State;", None),
        ("pub fn structure() {}", None),
    ] {
        assert_eq!(visible_type(line), expected, "{line}");
    }
}

//! Names find one thing, and comments can be read alone. Each ceiling is today's count: lower it with the count.
//! CONTRIBUTING.md, "Names", has the rules.

use crate::sources;
use std::collections::BTreeMap;

/// Percentage of functions that share their name with no other.
const MIN_OWN_NAMES: usize = 88;
/// Functions that a search by a function's name finds, on average, in tenths.
const MAX_FOUND_TENTHS: usize = 13;
/// Names that eight functions or more have.
const MAX_SHARED_NAMES: usize = 3;
/// Documentation comments that begin with an interrogative.
const MAX_CLAUSES: usize = 2;
/// Words of a test's name.
const MAX_WORDS: usize = 12;

/// Names that the standard library, hyper and tokio give.
const FOREIGN: &str = "new fmt drop from default poll next eq hash write read clone deref flush call main cmp partial_cmp is_empty len \
                       as_ref get from_str size_hint is_end_stream poll_frame poll_read poll_write poll_flush poll_shutdown \
                       poll_write_vectored is_write_vectored write_str";
const PRONOUNS: &[&str] = &["it", "its", "they", "them", "these", "those", "there", "other's", "others", "one's"];
const INTERROGATIVES: &[&str] = &["What", "How", "Where", "Who", "Whom", "Whose", "Why"];

#[test]
fn a_functions_name_finds_few_functions() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in sources::production() {
        for name in functions(&text).filter(|name| !FOREIGN.split(' ').any(|foreign| foreign == *name)) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    let total: usize = counts.values().sum();
    let own = counts.values().filter(|count| **count == 1).count() * 100 / total;
    let found = counts.values().map(|count| count * count).sum::<usize>() * 10 / total;
    let shared: Vec<_> = counts.iter().filter(|(_, count)| **count >= 8).collect();
    assert!(total > 1000, "the functions were found");
    assert!(own >= MIN_OWN_NAMES, "{own} % of functions have a name of their own, {MIN_OWN_NAMES} are needed");
    assert!(found <= MAX_FOUND_TENTHS, "a search finds {found} tenths of functions, {MAX_FOUND_TENTHS} are allowed");
    assert!(shared.len() <= MAX_SHARED_NAMES, "names of eight functions or more: {shared:?}");
}

#[test]
fn comments_name_what_they_are_about() {
    let comments: Vec<String> = sources::production().iter().flat_map(|(file, text)| blocks(file, text)).collect();
    let words = |comment: &str| comment.split_once(": ").unwrap_or_default().1.to_owned();
    let short: Vec<_> = comments.iter().filter(|comment| is_short_with_pronoun(&words(comment))).collect();
    let clauses: Vec<_> = comments.iter().filter(|comment| is_clause(&words(comment))).collect();
    assert!(comments.len() > 1000, "the comments were found");
    assert!(short.is_empty(), "short comments with a pronoun: {short:#?}");
    assert!(clauses.len() <= MAX_CLAUSES, "{} comments begin with a clause: {clauses:#?}", clauses.len());
}

#[test]
fn names_of_tests_have_at_most_twelve_words() {
    let long: Vec<String> = sources::all()
        .iter()
        .flat_map(|(file, text)| functions(text).map(move |name| format!("{file}: {name}")))
        .filter(|line| line.rsplit(": ").next().is_some_and(|name| name.split('_').count() > MAX_WORDS))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// The names of the functions that a text declares.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("fn ").filter(|(at, _)| !text[..*at].ends_with(is_name)).map(|(at, _)| {
        let rest = &text[at + 3..];
        &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
    })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The documentation comments of a file, each as one line that begins with its place.
fn blocks(file: &str, text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut within = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///");
        match comment.map(str::trim) {
            Some(comment) if within => blocks.last_mut().unwrap().extend([" ", comment]),
            Some(comment) => blocks.push(format!("{file}:{}: {comment}", index + 1)),
            None => {}
        }
        within = comment.is_some();
    }
    blocks
}

fn is_short_with_pronoun(comment: &str) -> bool {
    let is_pronoun =
        |word: &str| PRONOUNS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase().as_str());
    comment.split_whitespace().count() <= 7 && comment.split_whitespace().any(is_pronoun)
}

fn is_clause(comment: &str) -> bool {
    comment.split(|c: char| !c.is_alphanumeric()).next().is_some_and(|word| INTERROGATIVES.contains(&word))
}

#[test]
fn names_and_comments_are_counted_as_a_reader_does() {
    assert_eq!(functions("pub fn a() { fn b_c<T>() {} } xfn d").collect::<Vec<_>>(), ["a", "b_c"]);
    assert_eq!(blocks("f", "/// A.\n/// B.\nx\n  /// C."), ["f:1: A. B.", "f:4: C."]);
    for (comment, short, clause) in [
        ("The length of its body.", true, false),
        ("How long a request waits for it, in milliseconds.", false, true),
        ("Whether the iterator ended.", false, false),
        ("What's left.", false, true),
    ] {
        assert_eq!((is_short_with_pronoun(comment), is_clause(comment)), (short, clause), "{comment}");
    }
}

//! Documents use the words of RFCs and of other proxies: docs/glossary.md, "Words that these documents use". Code spans and
//! fenced blocks are exempt.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Words and phrases, and what to write instead.
const REPLACED: &[(&str, &str)] = &[
    ("whoever", "the client, operator or process that is meant"),
    ("whomever", "the client, operator or process that is meant"),
    ("nobody", "no client, no process, or another sentence"),
    ("anybody", "a client, an operator, a process"),
    ("everybody", "all clients, all modules"),
    ("somebody", "a client, an operator"),
    ("octet", "byte"),
    ("octets", "bytes"),
    ("companion", "TCP listener"),
    ("companions", "TCP listeners"),
    ("front door", "front end, interface"),
    ("front doors", "front ends, interfaces"),
    ("under way", "in flight, running"),
    ("is afraid of", "threat"),
];

/// Names of RFCs and registries that have such a word.
const NAMES: &[&str] = &["octet-stream", "octet counting"];

/// What others wrote or measured, what is history, and what is generated from sources (`src/`, `values.yaml`).
const EXEMPT: &[&str] =
    &["CHANGELOG.md", "docs/results", "docs/reference", "helm/litequic/README.md", "helm/litequic-sidecar/README.md"];

#[test]
fn documents_use_the_words_of_rfcs_and_other_proxies() {
    let mut documents = Vec::new();
    collect(Path::new(ROOT), &mut documents);
    assert!(documents.len() > 60, "the documents were found");
    let found: Vec<String> = documents
        .iter()
        .flat_map(|path| {
            let name = path.strip_prefix(ROOT).unwrap().display();
            let text = fs::read_to_string(path).unwrap();
            replaced(&text)
                .into_iter()
                .map(move |(line, word, instead)| format!("{name}:{line}: {word}: write {instead}"))
        })
        .collect();
    assert!(found.is_empty(), "{}\ndocs/glossary.md has the words", found.join("\n"));
}

/// Every Markdown file below a folder that is not exempt.
fn collect(folder: &Path, documents: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name());
        let relative = path.strip_prefix(ROOT).unwrap();
        if name.to_str().is_none_or(|name| name.starts_with('.') || matches!(name, "target" | "node_modules"))
            || EXEMPT.iter().any(|exempt| relative.starts_with(exempt))
        {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(&path, documents);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
}

/// The replaced words of a document: line, word, what to write instead. A phrase may go on in the next line.
fn replaced(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for start in 0..words.len() {
        for &(phrase, instead) in REPLACED {
            let mut left = words[start..].iter().map(|(_, word)| word.as_str());
            if phrase.split(' ').all(|word| left.next() == Some(word)) {
                found.push((words[start].0, phrase, instead));
            }
        }
    }
    found
}

/// A document's words in lower case, each with its line, without code.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let mut prose = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
            for name in NAMES {
                prose = prose.replace(name, "");
            }
            let parts = prose.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.extend(parts.map(|word| (index + 1, word.to_owned())));
        }
    }
    words
}

#[test]
fn words_are_found_whole_and_outside_of_code() {
    let found = |text| replaced(text).into_iter().map(|(line, word, _)| (line, word)).collect::<Vec<_>>();
    let cases: &[(&str, &[(usize, &str)])] = &[
        ("Whoever connects, and (nobody).", &[(1, "whoever"), (1, "nobody")]),
        ("one\ntwo octets", &[(2, "octets")]),
        ("the front\ndoor", &[(1, "front door")]),
        ("`nobody` and `locks_nobody_out`", &[]),
        ("```\nnobody\n```\nnobody", &[(4, "nobody")]),
        ("an octet-stream, companionship", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(found(text), *expected, "{text}");
    }
}

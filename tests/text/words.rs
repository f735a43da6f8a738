//! Documents and sources use the words of RFCs and of other proxies: docs/reference/glossary.md, "Words that these
//! documents use". An identifier is one word.

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
    // Papers are cited by their titles.
    (
        "conformance of quic congestion control",
        "Containing the Cambrian Explosion in QUIC Congestion Control (IMC 2023)",
    ),
    (
        "lower the cpu cost of a quic server",
        "LiteQUIC: Improving QoE of Video Streams by Reducing CPU Overhead of QUIC",
    ),
    ("thesis on a quic server", "QUIC network stack optimization using syscall batching"),
    ("imc 2024", "IMC 2023"),
];

/// Names of RFCs, registries and the standard library that have such a word.
const NAMES: &[&str] = &["octet-stream", "octet counting", ".octets()"];

/// Extensions of documents and of sources.
const KINDS: &[&str] = &[DOCUMENT, "rs", "toml", "yaml", "sh", "py"];
const DOCUMENT: &str = "md";

/// What others wrote or measured, history, what is generated from sources (`values.yaml`), and this file.
const EXEMPT: &[&str] = &[
    "CHANGELOG.md",
    "docs/results",
    "docs/reference",
    "helm/litequic/README.md",
    "helm/litequic-sidecar/README.md",
    "tests/text/words.rs",
];

#[test]
fn documents_and_sources_use_the_words_of_rfcs_and_other_proxies() {
    let mut files = Vec::new();
    collect(Path::new(ROOT), &mut files);
    assert!(files.len() > 500, "documents and sources were found");
    let found: Vec<String> = files
        .iter()
        .flat_map(|path| {
            let name = path.strip_prefix(ROOT).unwrap().display();
            let text = fs::read_to_string(path).unwrap();
            replaced(&text, path.extension().is_some_and(|extension| extension == DOCUMENT))
                .into_iter()
                .map(move |(line, word, instead)| format!("{name}:{line}: {word}: write {instead}"))
        })
        .collect();
    assert!(found.is_empty(), "{}\ndocs/reference/glossary.md has the words", found.join("\n"));
}

/// Every document and source below a folder that is not exempt.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name());
        let relative = path.strip_prefix(ROOT).unwrap();
        if name.to_str().is_none_or(|name| name.starts_with('.') || matches!(name, "target" | "node_modules"))
            || EXEMPT.iter().any(|exempt| relative.starts_with(exempt))
        {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(&path, files);
        } else if KINDS.iter().any(|kind| path.extension().is_some_and(|extension| extension == *kind)) {
            files.push(path);
        }
    }
}

/// The replaced words of a text: line, word, what to write instead. A phrase may continue in the next line.
fn replaced(text: &str, is_document: bool) -> Vec<(usize, &'static str, &'static str)> {
    let words = words(text, is_document);
    let mut found = Vec::new();
    for start in 0..words.len() {
        for &(phrase, instead) in REPLACED.iter().filter(|(phrase, _)| phrase.starts_with(&words[start].1)) {
            let mut left = words[start..].iter().map(|(_, word)| word.as_str());
            if phrase.split(' ').all(|word| left.next() == Some(word)) {
                found.push((words[start].0, phrase, instead));
            }
        }
    }
    found
}

/// The words of a text in lower case, each with its line; those of a document without code.
fn words(text: &str, is_document: bool) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if is_document && line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = if is_document { 2 } else { 1 };
            let mut line = line.split('`').step_by(spans).collect::<Vec<_>>().join(" ").to_lowercase();
            for name in NAMES {
                line = line.replace(name, "");
            }
            let parts = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            words.extend(parts.map(|word| (index + 1, word.to_owned())));
        }
    }
    words
}

#[test]
fn words_are_found_whole_and_outside_of_code() {
    let found = |text, is_document| {
        let found = replaced(text, is_document).into_iter();
        found.map(|(line, word, _)| (line, word)).collect::<Vec<_>>()
    };
    let documents: &[(&str, &[(usize, &str)])] = &[
        ("Whoever connects, and (nobody).", &[(1, "whoever"), (1, "nobody")]),
        ("one\ntwo octets", &[(2, "octets")]),
        ("the front\ndoor", &[(1, "front door")]),
        ("`nobody` and `locks_nobody_out`", &[]),
        ("```\nnobody\n```\nnobody", &[(4, "nobody")]),
        ("an octet-stream, companionship", &[]),
    ];
    for (text, expected) in documents {
        assert_eq!(found(text, true), *expected, "{text}");
    }
    let sources: &[(&str, &[(usize, &str)])] = &[
        ("/// The front\n/// door of `Nobody`.", &[(1, "front door"), (2, "nobody")]),
        ("bail!(\"nobody at {octet}\");", &[(1, "nobody"), (1, "octet")]),
        ("fn locks_nobody_out() -> [u8; 4] { ip.octets() }", &[]),
    ];
    for (text, expected) in sources {
        assert_eq!(found(text, false), *expected, "{text}");
    }
}

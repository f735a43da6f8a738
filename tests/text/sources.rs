//! The Rust sources that other tests of this binary read.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The sources of the program: path and text, without their unit tests.
pub(crate) fn production() -> Vec<(String, String)> {
    let without_tests = |(name, mut text): (String, String)| {
        text.truncate(text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len()));
        (name, text)
    };
    let is_test = |name: &str| name.contains("/tests/") || name.ends_with("tests.rs");
    read(&["src", "crates"]).into_iter().filter(|(name, _)| !is_test(name)).map(without_tests).collect()
}

/// The sources of the program and of all its tests: path and text.
pub(crate) fn all() -> Vec<(String, String)> {
    read(&["src", "crates", "tests", "benches/lab/src", "benches/lab/tests"])
}

/// The sources below `folders`: path and text.
pub(crate) fn read(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in folders {
        collect(&Path::new(ROOT).join(folder), &mut files);
    }
    assert!(files.len() > 100, "the sources were found");
    files.sort();
    let named = |path: &PathBuf| path.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned();
    files.iter().map(|path| (named(path), fs::read_to_string(path).unwrap())).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

//! Locates a configuration's values in the file or on the command line.

use super::fault::ConfigFault;
use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
};

/// Positions of a configuration's values, by key. The default is for a configuration of the command line.
#[derive(Debug, Default)]
pub(crate) struct KeyPositions {
    /// Path of the file; `None` for the command line.
    file: Option<PathBuf>,
    pub(crate) by_key: BTreeMap<String, KeyPosition>,
}

/// Position of a value in the file.
#[derive(Debug)]
pub(crate) struct KeyPosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// Value as written in the file.
    pub(crate) value: Option<String>,
}

impl KeyPositions {
    /// Creates positions in `file`.
    pub(crate) fn new(file: &Path, by_key: BTreeMap<String, KeyPosition>) -> Self {
        Self { file: Some(file.into()), by_key }
    }

    pub(crate) fn fault_at_key(&self, key: &str, problem: &dyn Display) -> ConfigFault {
        let position = self.by_key.get(key);
        let (file, key) = match (&self.file, key) {
            (Some(file), key) => (file.clone(), key.into()),
            // These keys have arguments of `run` that replace a file.
            (None, "certificates[0].cert") => ("--cert".into(), String::new()),
            (None, "certificates[0].key") => ("--key".into(), String::new()),
            (None, key) => ("command line".into(), key.into()),
        };
        let (line, column) = position.map(|at| (at.line, at.column)).unzip();
        let value = position.and_then(|at| at.value.clone());
        ConfigFault { file, line, column, key, value, problem: problem.to_string(), ..ConfigFault::default() }
    }
}

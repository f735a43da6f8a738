//! A configuration that is being checked: as far as it could be read, the position of each of its values, and the
//! faults found so far. A caller that reads the files that it names adds their faults, so that every fault is reported
//! in one round, with its position.

use super::{
    Config,
    fault::{Fault, Faults, Warning},
};
use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
};

/// A configuration before its verdict.
#[derive(Debug)]
pub struct Draft {
    /// The configuration as far as it could be read, to check the files that it names: a path that is missing or wrong
    /// is empty. `None` if the file is not TOML. Nothing may run by it before [`Findings::verdict`].
    pub config: Option<Config>,
    /// What was found so far.
    pub findings: Findings,
}

/// The faults and the warnings of a [`Draft`].
#[derive(Debug)]
pub struct Findings {
    positions: Positions,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

impl Draft {
    /// What was read of a file, with its `faults`.
    pub(super) fn new(config: Option<Config>, positions: Positions, faults: Vec<Fault>) -> Self {
        Self { config, findings: Findings { positions, faults, warnings: Vec::new() } }
    }

    /// A configuration of the command line's options.
    pub fn given(config: Config) -> Self {
        Self::new(Some(config), Positions::of_command_line(), Vec::new())
    }

    /// The configuration, without reading the files that it names.
    ///
    /// # Errors
    ///
    /// Every fault, in the order of the file.
    pub fn verdict(self) -> Result<Config, Faults> {
        let Self { config, findings } = self;
        findings.verdict(config).map(|(config, _)| config)
    }
}

impl Findings {
    /// The value of `key` is wrong.
    pub fn fault(&mut self, key: &str, problem: impl Display) {
        self.faults.push(self.positions.fault(key, &problem));
    }

    /// The value of `key` can be used, and probably should not.
    pub fn warn(&mut self, key: &str, problem: impl Display) {
        self.warnings.push(Warning(self.positions.fault(key, &problem)));
    }

    /// The string value of `key` as the file has it; `None` if it has none.
    pub fn written(&self, key: &str) -> Option<&str> {
        let value = self.positions.by_key.get(key)?.value.as_deref()?;
        value.strip_prefix(['"', '\''])?.strip_suffix(['"', '\''])
    }

    /// `value` with every warning, if nothing is wrong.
    ///
    /// # Errors
    ///
    /// Every fault, in the order of the file.
    pub fn verdict<T>(self, value: Option<T>) -> Result<(T, Vec<Warning>), Faults> {
        let Self { mut faults, mut warnings, .. } = self;
        match value {
            Some(value) if faults.is_empty() => {
                warnings.sort_by_key(|Warning(fault)| fault.position());
                Ok((value, warnings))
            }
            _ => {
                faults.sort_by_key(Fault::position);
                Err(Faults(faults))
            }
        }
    }
}

/// The positions of a configuration's values, by their keys.
#[derive(Debug)]
pub(super) struct Positions {
    /// `None` for the command line.
    file: Option<PathBuf>,
    by_key: BTreeMap<String, Position>,
}

/// The position of a value.
#[derive(Debug)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
    /// The value as the file has it.
    pub(super) value: Option<String>,
}

impl Positions {
    /// Positions of the keys of `file`.
    pub(super) fn new(file: &Path, by_key: BTreeMap<String, Position>) -> Self {
        Self { file: Some(file.into()), by_key }
    }

    fn of_command_line() -> Self {
        Self { file: None, by_key: BTreeMap::new() }
    }

    fn fault(&self, key: &str, problem: &dyn Display) -> Fault {
        let position = self.by_key.get(key);
        let (file, key) = match (&self.file, key) {
            (Some(file), key) => (file.clone(), key.into()),
            // The arguments of `run` that replace a file.
            (None, "certificates[0].cert") => ("--cert".into(), String::new()),
            (None, "certificates[0].key") => ("--key".into(), String::new()),
            (None, key) => ("command line".into(), key.into()),
        };
        let (line, column) = position.map(|at| (at.line, at.column)).unzip();
        let value = position.and_then(|at| at.value.clone());
        Fault { file, line, column, key, value, problem: problem.to_string(), expected: None, nearest: None }
    }
}

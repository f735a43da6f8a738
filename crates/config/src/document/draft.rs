//! A configuration that is being checked: as far as it could be read, the position of each of its values, and the
//! faults found so far. A caller that reads the files that it names adds their faults, so that every fault is reported
//! in one round, with its position.

use crate::config::Config;
use crate::reading::fault::{Fault, Faults, Warning};
use crate::reading::position::Positions;
use std::fmt::Display;

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
    pub(crate) fn new(config: Option<Config>, positions: Positions, faults: Vec<Fault>) -> Self {
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

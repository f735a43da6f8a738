//! A configuration that is being checked: as far as it could be read, the position of each of its values, and the
//! faults found so far. A caller that reads the files that it names adds their faults, so that every fault is reported
//! in one round, with its position.

use crate::config::Config;
use crate::reading::fault::{ConfigFault, ConfigFaults, ConfigWarning};
use crate::reading::position::KeyPositions;
use std::fmt::Display;

/// A configuration before its verdict.
#[derive(Debug)]
pub struct ParsedConfig {
    /// The configuration as far as it could be read, to check the files that it names: a path that is missing or wrong
    /// is empty. `None` if the file is not TOML. Nothing may run by it before [`Findings::verdict`].
    pub config: Option<Config>,
    /// What was found so far.
    pub faults: FaultCollector,
}

/// The faults and the warnings of a [`Draft`].
#[derive(Debug)]
pub struct FaultCollector {
    positions: KeyPositions,
    faults: Vec<ConfigFault>,
    warnings: Vec<ConfigWarning>,
}

impl ParsedConfig {
    /// What was read of a file, with its `faults`.
    pub(crate) fn new(config: Option<Config>, positions: KeyPositions, faults: Vec<ConfigFault>) -> Self {
        Self { config, faults: FaultCollector { positions, faults, warnings: Vec::new() } }
    }

    /// A configuration of the command line's options.
    pub fn from_options(config: Config) -> Self {
        Self::new(Some(config), KeyPositions::for_command_line(), Vec::new())
    }

    /// The configuration, without reading the files that it names.
    ///
    /// # Errors
    ///
    /// Every fault, in the order of the file.
    pub fn into_config(self) -> Result<Config, ConfigFaults> {
        let Self { config, faults: findings } = self;
        findings.into_result(config).map(|(config, _)| config)
    }
}

impl FaultCollector {
    /// The value of `key` is wrong.
    pub fn add_fault(&mut self, key: &str, problem: impl Display) {
        self.faults.push(self.positions.fault_at_key(key, &problem));
    }

    /// The value of `key` can be used, and probably should not.
    pub fn add_warning(&mut self, key: &str, problem: impl Display) {
        self.warnings.push(ConfigWarning(self.positions.fault_at_key(key, &problem)));
    }

    /// The string value of `key` as the file has it; `None` if it has none.
    pub fn raw_string(&self, key: &str) -> Option<&str> {
        let value = self.positions.by_key.get(key)?.value.as_deref()?;
        value.strip_prefix(['"', '\''])?.strip_suffix(['"', '\''])
    }

    /// `value` with every warning, if nothing is wrong.
    ///
    /// # Errors
    ///
    /// Every fault, in the order of the file.
    pub fn into_result<T>(self, value: Option<T>) -> Result<(T, Vec<ConfigWarning>), ConfigFaults> {
        let Self { mut faults, mut warnings, .. } = self;
        match value {
            Some(value) if faults.is_empty() => {
                warnings.sort_by_key(|ConfigWarning(fault)| fault.sort_position());
                Ok((value, warnings))
            }
            _ => {
                faults.sort_by_key(ConfigFault::sort_position);
                Err(ConfigFaults(faults))
            }
        }
    }
}

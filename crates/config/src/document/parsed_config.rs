//! Holds a parsed configuration while it is checked: the values as far as they could be read, their positions, and the
//! faults found so far. The caller adds faults of the files that the configuration names, so that all faults are
//! reported together, with positions.

use crate::config::Config;
use crate::reading::fault::{ConfigFault, ConfigFaults, ConfigWarning};
use crate::reading::position::KeyPositions;
use std::fmt::Display;

/// A parsed configuration with the faults found so far.
#[derive(Debug)]
pub struct ParsedConfig {
    /// The configuration as far as it could be read, to check the files that it names: a missing or invalid path is
    /// empty. `None` if the file is not TOML. Must not be used before [`FaultCollector::into_result`].
    pub config: Option<Config>,
    /// Faults and warnings found so far.
    pub faults: FaultCollector,
}

/// Collects the faults and warnings of a [`ParsedConfig`].
#[derive(Debug)]
pub struct FaultCollector {
    positions: KeyPositions,
    faults: Vec<ConfigFault>,
    warnings: Vec<ConfigWarning>,
}

impl ParsedConfig {
    /// Creates the result of parsing, with its `faults`.
    pub(crate) fn new(config: Option<Config>, positions: KeyPositions, faults: Vec<ConfigFault>) -> Self {
        Self { config, faults: FaultCollector { positions, faults, warnings: Vec::new() } }
    }

    /// Wraps a configuration made from command-line options.
    pub fn from_options(config: Config) -> Self {
        Self::new(Some(config), KeyPositions::default(), Vec::new())
    }

    /// Returns the configuration without checking the files that it names.
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
    /// Adds a fault of the value of `key`.
    pub fn add_fault(&mut self, key: &str, problem: impl Display) {
        self.faults.push(self.positions.fault_at_key(key, &problem));
    }

    /// Adds a warning about the value of `key`, which is valid but probably a mistake.
    pub fn add_warning(&mut self, key: &str, problem: impl Display) {
        self.warnings.push(ConfigWarning(self.positions.fault_at_key(key, &problem)));
    }

    /// Whether the file has a value for `key`.
    pub fn is_in_file(&self, key: &str) -> bool {
        self.positions.by_key.contains_key(key)
    }

    /// Returns the string in the file for `key`; `None` if there is no string.
    pub fn raw_string(&self, key: &str) -> Option<&str> {
        let value = self.positions.by_key.get(key)?.value.as_deref()?;
        value.strip_prefix(['"', '\''])?.strip_suffix(['"', '\''])
    }

    /// Returns `value` with every warning, if there are no faults.
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

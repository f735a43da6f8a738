//! Values of the command line's own options, for the command lines of the lab's other processes.

use clap::ValueEnum;

/// A value's word.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

//! Reads the file: source text with positions, sections and tables, readers of values, and faults. All sections of the
//! configuration are built on it.

pub(crate) mod changes;
pub(crate) mod examples;
pub(crate) mod fault;
pub(crate) mod foreign;
pub(crate) mod name_kinds;
pub(crate) mod position;
pub(crate) mod removed_keys;
pub(crate) mod rule_readers;
pub(crate) mod section;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod value_kinds;

pub use fault::{ConfigFault, ConfigFaults, ConfigWarning};
pub use foreign::find_foreign_variable;
pub use litequic_base::network::Network;
pub use name_kinds::parse_listen_address;

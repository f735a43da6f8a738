//! How the file is read: its source with positions, its sections and tables, the readers of their values, and the
//! faults that are found; what follows from its keys: the schema, the reference, the changes of a reload.

pub(crate) mod changes;
pub(crate) mod consistency;
pub(crate) mod diff;
pub(crate) mod draft;
pub(crate) mod examples;
pub(crate) mod fault;
pub(crate) mod file;
pub(crate) mod foreign;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod position;
pub(crate) mod reference;
pub(crate) mod removed;
pub(crate) mod rule_readers;
pub(crate) mod section;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod values;

pub use consistency::ambiguities;
pub use diff::Change;
pub use draft::{Draft, Findings};
pub use fault::{Fault, Faults, Warning};
pub use file::{load, parse, schema};
pub use foreign::foreign_variable;
pub use keys::{metric, needs_restart};
pub use names::listen_address;
pub use reference::reference;

//! The configuration's file as a whole: what it may say, rules between its tables, the schema, the reference, and the
//! changes of a reload. It is built on all sections.

pub(crate) mod consistency;
pub(crate) mod diff;
pub(crate) mod draft;
pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod reference;

pub use consistency::ambiguities;
pub use diff::Change;
pub use draft::{Draft, Findings};
pub use file::{load, parse, schema};
pub use keys::{metric, needs_restart};
pub use reference::reference;

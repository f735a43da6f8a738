//! The configuration's file as a whole: what it may say, rules between its tables, the schema, the reference, and the
//! changes of a reload. It is built on all sections.

pub(crate) mod consistency;
pub(crate) mod diff;
pub(crate) mod draft;
pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod reference;

pub use consistency::find_ambiguous_routes;
pub use diff::ConfigChange;
pub use draft::{FaultCollector, ParsedConfig};
pub use file::{json_schema, load_config, parse_config};
pub use keys::{limit_metric, restart_keys};
pub use reference::reference_page;

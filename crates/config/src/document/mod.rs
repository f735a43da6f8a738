//! Handles the configuration file as a whole: its top level, rules between tables, schema, reference, and the changes
//! of a reload. Built on all sections.

pub(crate) mod config_file;
pub(crate) mod consistency;
pub(crate) mod diff;
pub(crate) mod keys;
pub(crate) mod parsed_config;
pub(crate) mod reference;

pub use config_file::{json_schema, load_config, parse_config};
pub use consistency::{find_ambiguous_routes, find_bypassed_paths};
pub use diff::ConfigChange;
pub use keys::{limit_metric, restart_keys};
pub use parsed_config::{FaultCollector, ParsedConfig};
pub use reference::reference_page;

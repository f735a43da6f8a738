//! Reads and checks the configuration file, and describes it as a JSON schema.

use super::parsed_config::ParsedConfig;
use super::{consistency, keys};
use crate::config::Config;
use crate::laboratory::Laboratory;
use crate::reading::fault::{ConfigFault, ConfigFaults};
use crate::reading::position::KeyPositions;
use crate::reading::source::{SourceText, find_foreign_fault, list_syntax_faults};
use crate::reading::value_kinds::{format_size, set_member};
use serde_json::{Value as Json, json};
use std::{collections::BTreeMap, fs::File, io::Read, path::Path};
use toml::de::DeTable;

/// Bytes of a file at most: a thousand times a long configuration; rejects log files given by mistake.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// Reads the configuration file at `path` with this process's environment variables, without the files that it names.
///
/// # Errors
///
/// Every fault, or that the file cannot be read.
pub fn load_config(path: &Path) -> Result<Config, ConfigFaults> {
    ParsedConfig::load_file(path).into_config()
}

/// Parses `text` as the content of `file`, to whose folder paths are relative; `environment` returns variables by name.
///
/// # Errors
///
/// Every fault, in the order of the file.
pub fn parse_config(
    text: &str,
    file: &Path,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Config, ConfigFaults> {
    ParsedConfig::parse_text(text, file, environment).into_config()
}

impl ParsedConfig {
    /// Reads the configuration file at `path` with this process's environment variables.
    pub fn load_file(path: &Path) -> Self {
        let whole = |problem: String| {
            let expected = Some("a file of TOML".into());
            let fault = ConfigFault { file: path.into(), problem, expected, ..ConfigFault::default() };
            Self::new(None, KeyPositions::new(path, BTreeMap::new()), vec![fault])
        };
        let mut bytes = Vec::new();
        // One more byte than the limit tells whether a file exceeds it.
        if let Err(error) = File::open(path).and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes)) {
            return whole(format!("cannot be read: {error}"));
        }
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return whole(format!("is larger than {}", format_size(MAX_CONFIG_BYTES)));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse_text(&text, path, |name| std::env::var(name).ok()),
            Err(_) => whole("is not UTF-8".into()),
        }
    }

    fn parse_text(text: &str, file: &Path, environment: impl Fn(&str) -> Option<String>) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let unread = |faults| Self::new(None, KeyPositions::new(file, BTreeMap::new()), faults);
        if !errors.is_empty() {
            return unread(list_syntax_faults(file, text, table.get_ref(), &errors));
        }
        if let Some(fault) = find_foreign_fault(file, text, table.get_ref()) {
            return unread(vec![fault]);
        }
        let source = SourceText::new(file, text, &environment);
        let (config, _) = source.read_root(table.get_ref(), keys::read_config);
        let (positions, faults) = source.take_results();
        let mut draft = Self::new(None, positions, faults);
        if config.laboratory != Laboratory::default() {
            draft.faults.add_warning("laboratory", Laboratory::EXPERIMENT_WARNING);
        }
        if let Some(problem) = consistency::find_proxy_flow_fault(&config) {
            draft.faults.add_fault("listen.proxy_protocol_udp", problem);
        }
        for (key, problem) in consistency::find_overruled_rules(&config) {
            draft.faults.add_fault(&key, problem);
        }
        for (number, problem) in consistency::find_auth_loops(&config.routes) {
            draft.faults.add_fault(&format!("routes[{number}].auth.origin"), problem);
        }
        draft.config = Some(config);
        draft
    }
}

/// Returns the JSON schema (draft 2020-12) of the configuration file.
pub fn json_schema() -> Json {
    let environment = |_: &str| None;
    let empty = DeTable::new();
    let source = SourceText::new(Path::new(""), "", &environment);
    let (_, mut schema) = source.read_root(&empty, keys::read_config);
    set_member(&mut schema, "$schema", "https://json-schema.org/draft/2020-12/schema");
    set_member(&mut schema, "title", "litequic's configuration");
    let one_of = |tables: [&str; 2]| json!({ "anyOf": tables.map(|table| json!({ "required": [table] })) });
    set_member(&mut schema, "allOf", json!([one_of(["certificates", "acme"]), one_of(["origin", "routes"])]));
    schema
}

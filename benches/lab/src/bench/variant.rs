//! A change of a contender, as an experiment describes it. `Contender::vary` and `Contender::twin` apply it.

use crate::http::Http;
use serde::Deserialize;
use std::collections::BTreeMap;

/// litequic with something added to its configuration, or measured by other clients; or another contender once more.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// How reports call it.
    pub(crate) name: String,
    /// TOML.
    #[serde(default)]
    pub(crate) extra: String,
    /// More of its environment.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Packets an ACK of its clients, in place of the load's own.
    pub(crate) ack_threshold: Option<String>,
    /// Its viewers are dash.js's.
    #[serde(default)]
    pub(crate) is_watched_by_dash_js: bool,
    /// What the program's version must say.
    pub(crate) needs: Option<String>,
    /// The variant connects to the origin over TLS.
    #[serde(default)]
    pub(crate) https_origin: bool,
    /// The variant sends HTTP/2 to the origin.
    #[serde(default)]
    pub(crate) http2_origin: bool,
    /// The protocol of its clients, in place of the load's own.
    pub(crate) front: Option<Http>,
    /// Another contender that it is, unchanged but for the origin's protocol, `front` and `is_watched_by_dash_js`: what that
    /// differs from itself by.
    pub(crate) twin_of: Option<String>,
}

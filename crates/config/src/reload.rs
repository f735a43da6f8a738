//! `[reload]`: what a changed file does by itself.

use crate::reading::{table::keys, value_kinds::one_of};

keys! {
    /// Reloads.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReloadConfig {
        // A certificate that is renewed must be served without a person, and ConfigMaps and Secrets are replaced as
        // files.
        /// What litequic does when a file changes, without SIGHUP or `litequic ctl reload`: `all` applies a saved
        /// configuration and renewed files; `certificates` applies only renewed files that the configuration in force
        /// names (certificates, keys, CAs, revocation lists, error pages); `none` waits for a signal or a request.
        on_change: OnChange = OnChange::All, one_of(OnChange::NAMES);
    }
}

/// `on_change`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// The configuration and the files that it names.
    All,
    /// The files that the configuration in force names.
    Certificates,
    /// No file.
    None,
}

impl OnChange {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] =
        &[("all", Self::All), ("certificates", Self::Certificates), ("none", Self::None)];

    /// The word in the file.
    pub fn scope_name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}

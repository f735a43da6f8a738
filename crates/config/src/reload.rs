//! Defines `[reload]`: automatic reloads.

use crate::reading::{table::keys, value_kinds::one_of};
use litequic_base::named_enum;

keys! {
    /// Automatic reloads: `[reload]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReloadConfig {
        // Renewed certificates must be served without a person's action; ConfigMaps and Secrets are replaced as files.
        /// Reaction to a changed file, without SIGHUP or `litequic ctl reload`: `all` applies a saved configuration and
        /// renewed files; `certificates` applies only renewed files that the configuration in force names
        /// (certificates, keys, CAs, revocation lists, error pages); `none` waits for a signal or a request.
        on_change: OnChange = OnChange::All, one_of(OnChange::NAMES);
    }
}

named_enum! {
    /// Files whose changes are applied automatically: `reload.on_change`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OnChange {
        /// The configuration and the files that it names.
        All = "all",
        /// The files that the configuration in force names.
        Certificates = "certificates",
        /// No automatic reload.
        None = "none",
    }
    /// Name of the value in the configuration.
    fn scope_name;
}

//! Defines the version that the command line shows.

use std::env;

/// Version that `--version` prints; a build for measurements is marked.
pub(super) const VERSION: &str = if cfg!(feature = "laboratory") {
    concat!(env!("CARGO_PKG_VERSION"), "+laboratory")
} else {
    env!("CARGO_PKG_VERSION")
};

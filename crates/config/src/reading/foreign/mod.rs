//! Configurations of other programs: whole files, and their words in a file of TOML. An operator who comes from nginx,
//! Caddy, HAProxy or Traefik gets one line with the key that does it here, or the reason why none does.

mod formats;
mod variables;
mod words;

pub(super) use formats::{ForeignFormat, detect_by_keys, detect_by_lines};
pub use variables::find_foreign_variable;
pub(super) use words::{ForeignHint, foreign_hint, without_separators};

//! Recognizes configurations of other programs: whole files, and their words in TOML. An operator who migrates from
//! nginx, Caddy, HAProxy or Traefik gets a line with litequic's key, or with the reason why there is none.

mod formats;
mod variables;
mod words;

pub(super) use formats::{ForeignFormat, detect_by_keys, detect_by_lines};
pub use variables::find_foreign_variable;
pub(super) use words::{ForeignHint, foreign_hint, foreign_value, without_separators};

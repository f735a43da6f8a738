//! The versions of HTTP between clients and servers: their names in reports, on the command line and in ALPN.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Http {
    One,
    Two,
    Three,
}

impl Http {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// The protocol's name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "HTTP/1.1",
            Self::Two => "HTTP/2",
            Self::Three => "HTTP/3",
        }
    }

    /// The value on the command line.
    pub(crate) fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The protocol's name in ALPN.
    pub(crate) fn alpn(self) -> &'static str {
        match self {
            Self::One => "http/1.1",
            Self::Two => "h2",
            Self::Three => "h3",
        }
    }
}

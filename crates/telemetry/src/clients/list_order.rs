//! The values by which a list of connections is sorted.

use std::{fmt, str::FromStr};

/// The value by which a list is sorted, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// Bytes sent in the last second or so.
    #[default]
    SentRate,
    /// Bytes sent.
    Sent,
    /// Bytes received.
    Received,
    /// Open requests.
    Open,
    /// Age: the oldest first.
    Since,
    /// Round-trip time.
    Rtt,
    /// Part of the packets that was lost.
    Loss,
    /// Bytes of memory.
    Held,
}

impl ListOrder {
    /// Every order.
    pub const ALL: [Self; 8] =
        [Self::SentRate, Self::Sent, Self::Received, Self::Open, Self::Since, Self::Rtt, Self::Loss, Self::Held];

    /// The name, as an operator writes it.
    pub const fn order_name(self) -> &'static str {
        match self {
            Self::SentRate => "sent-rate",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Open => "open",
            Self::Since => "since",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::Held => "held",
        }
    }

    /// Whether the transport has to be asked for the value.
    pub const fn needs_transport(self) -> bool {
        matches!(self, Self::Rtt | Self::Loss)
    }
}

impl fmt::Display for ListOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.order_name())
    }
}

impl FromStr for ListOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|sort| sort.order_name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::order_name).join(", ");
            format!("not one of {names}")
        })
    }
}

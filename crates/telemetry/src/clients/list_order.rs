//! Orders of a list of connections.

use std::{fmt, str::FromStr};

/// Value by which a list of connections is sorted, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// Recent rate of sent bytes.
    #[default]
    SentRate,
    /// Number of bytes sent.
    Sent,
    /// Number of bytes received.
    Received,
    /// Number of open requests.
    Open,
    /// Age of the connection, the oldest first.
    Since,
    /// Round-trip time.
    Rtt,
    /// Share of lost packets.
    Loss,
    /// Memory of the connection in bytes.
    Held,
}

impl ListOrder {
    /// All orders.
    pub const ALL: [Self; 8] =
        [Self::SentRate, Self::Sent, Self::Received, Self::Open, Self::Since, Self::Rtt, Self::Loss, Self::Held];

    /// Name of the order, as an operator writes it.
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

    /// Whether the value comes from the transport.
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

//! Orders of a list of connections.

use litequic_base::named_enum;
use std::{fmt, str::FromStr};

named_enum! {
    /// Value by which a list of connections is sorted, the largest first.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum ListOrder {
        /// Recent rate of sent bytes.
        #[default]
        SentRate = "sent-rate",
        /// Number of bytes sent.
        Sent = "sent",
        /// Number of bytes received.
        Received = "received",
        /// Number of open requests.
        Open = "open",
        /// Age of the connection, the oldest first.
        Since = "since",
        /// Round-trip time.
        Rtt = "rtt",
        /// Share of lost packets.
        Loss = "loss",
        /// Memory of the connection in bytes.
        Held = "held",
    }
    /// Name of the order, as an operator writes it.
    fn order_name;
}

impl ListOrder {
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
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, order)| *order).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("not one of {}", names.join(", "))
        })
    }
}

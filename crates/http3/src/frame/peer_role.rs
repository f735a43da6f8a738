//! The two ends of a connection.

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// Sends requests.
    Client,
    /// Sends responses.
    Server,
}

//! Defines the two roles of a connection's peers.

/// Role of a peer on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// The peer sends requests.
    Client,
    /// The peer sends responses.
    Server,
}

//! What an endpoint hands to its I/O.

use super::moderation::Moderation;
use crate::identity::IdLayout;

/// The parts of an endpoint that the receiving half of its I/O uses.
#[derive(Debug)]
pub struct EndpointHooks {
    /// The place of a datagram's connection ID.
    pub(crate) layout: IdLayout,
    /// Whether a connection's newest acknowledgement is processed before its others.
    pub(crate) newest_first: bool,
    /// Decides when datagrams are received, and numbers their batches.
    pub(crate) moderation: Moderation,
}

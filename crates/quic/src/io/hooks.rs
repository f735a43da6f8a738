//! Defines the parts that an endpoint passes to its I/O.

use super::{moderation::Moderation, proxied_datagrams::ProxiedDatagrams};
use crate::identity::IdLayout;

/// Parts of an endpoint that the receiving half of its I/O uses.
#[derive(Debug)]
pub struct EndpointHooks {
    /// Layout of the endpoint's connection IDs.
    pub(crate) layout: IdLayout,
    /// A connection's newest acknowledgement is processed before its others.
    pub(crate) newest_first: bool,
    /// Decides about the times at which datagrams are received, and numbers their batches.
    pub(crate) moderation: Moderation,
    /// Takes PROXY protocol headers from datagrams; `None` if no datagram has one.
    pub(crate) proxied: Option<ProxiedDatagrams>,
}

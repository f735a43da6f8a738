//! Adaptive ACK frequency: a client whose acknowledgements keep a worker busy is asked for fewer
//! (draft-ietf-quic-ack-frequency-12), if it offers to listen. s2n-quic knows nothing of it
//! (docs/adr/0013-adaptive-ack-frequency.md).
//!
//! - [`tls`] reads the offer out of the client's transport parameters.
//! - [`life`] hears of a connection's beginning and end, of lost packets, and what s2n-quic knows of the path.
//! - [`packets`] counts the ACK frames that come, and finds the acknowledgement of what was asked for.
//! - [`rule`] says from that what to ask for, an [`epoch`] at a time.
//! - [`datagrams`] makes room for the frame in a packet, [`packets`] puts it there: a [`placeholder`] between.
//! - [`delivery`] has it sent again until it arrives.
//!
//! [`peer`] is one connection, in which they meet.

mod datagrams;
mod delivery;
mod epoch;
mod life;
mod packets;
mod parameters;
mod peer;
mod placeholder;
mod rule;
mod tls;

pub use parameters::Offer;

use super::batches::Batches;
use crate::{config::AckFrequency, telemetry::WorkerMetrics};
use datagrams::Datagrams;
use life::Life;
use packets::Packets;
use peer::Peer;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tls::Looking;

/// One endpoint's. Nobody is asked for anything whose client has not offered to listen, or if the configuration says
/// so.
#[derive(Clone)]
pub(super) struct AckFrequencies(Arc<Shared>);

struct Shared {
    switch: AckFrequency,
    batches: Batches,
    metrics: Arc<WorkerMetrics>,
    /// A placeholder stands in the packet that is being built. Read for each packet that leaves.
    marked: AtomicBool,
    peers: Mutex<Peers>,
}

/// A lock, because s2n-quic wants its providers `Send`; one thread alone takes it.
#[derive(Default)]
struct Peers {
    /// Connections whose client has offered, by s2n-quic's internal ID.
    by_id: HashMap<u64, Arc<Peer>>,
    /// What the client offered whose 1-RTT keys are being handed over,
    offer: Option<Offer>,
    /// and its connection, between the event and its datagram sender's making.
    newcomer: Option<Arc<Peer>>,
    /// The connection whose packet is being built, if it is marked.
    marked: Option<Arc<Peer>>,
}

impl AckFrequencies {
    /// For an endpoint that asks as `switch` says, and is handed what it receives in `batches`.
    pub(super) fn new(switch: AckFrequency, batches: Batches, metrics: Arc<WorkerMetrics>) -> Self {
        let (marked, peers) = Default::default();
        Self(Arc::new(Shared { switch, batches, metrics, marked, peers }))
    }

    /// `tls` that shows what clients offer.
    pub(super) fn looking<T>(&self, tls: T) -> Looking<T> {
        Looking { tls, frequencies: self.clone() }
    }

    /// What makes room for frames.
    pub(super) fn datagrams(&self) -> Datagrams {
        Datagrams(self.clone())
    }

    /// What sees packets.
    pub(super) fn packets(&self) -> Packets {
        Packets::new(self.clone())
    }

    /// What is told of connections.
    pub(super) fn subscriber(&self) -> Life {
        Life(self.clone())
    }

    /// What the client offered whose connection s2n-quic looks at from now on.
    fn offered(&self, offer: Option<Offer>) {
        let mut peers = self.lock();
        peers.offer = offer.filter(|_| self.0.switch != AckFrequency::Off);
        peers.newcomer = None;
    }

    /// The connection to which the offer at hand belongs.
    fn welcome(&self, connection: u64) -> Option<Arc<Peer>> {
        let mut peers = self.lock();
        let offer = peers.offer.take()?;
        let peer = Arc::new(Peer::new(offer, self.0.switch, Arc::clone(&self.0.metrics)));
        peers.by_id.insert(connection, Arc::clone(&peer));
        peers.newcomer = Some(Arc::clone(&peer));
        Some(peer)
    }

    fn forget(&self, connection: u64) {
        self.lock().by_id.remove(&connection);
    }

    /// The connection whose datagram sender is being made, if its client has offered.
    fn newcomer(&self) -> Option<Arc<Peer>> {
        self.lock().newcomer.take()
    }

    fn peer(&self, connection: u64) -> Option<Arc<Peer>> {
        self.lock().by_id.get(&connection).map(Arc::clone)
    }

    /// A placeholder of `peer`'s is about to stand in the packet that is being built.
    fn mark(&self, peer: &Arc<Peer>) {
        self.lock().marked = Some(Arc::clone(peer));
        self.0.marked.store(true, Relaxed);
    }

    /// Whose placeholder stands in the packet that was built.
    fn take_mark(&self) -> Option<Arc<Peer>> {
        if !self.0.marked.load(Relaxed) {
            return None;
        }
        self.0.marked.store(false, Relaxed);
        self.lock().marked.take()
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AckFrequencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckFrequencies").field(&self.0.switch).finish()
    }
}

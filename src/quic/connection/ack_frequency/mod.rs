//! Adaptive ACK frequency: a client whose acknowledgements keep a worker busy is requested to send fewer
//! (draft-ietf-quic-ack-frequency-12, or the older draft that Firefox has), if it supports that. s2n-quic does not
//! (docs/adr/0013-adaptive-ack-frequency.md).
//!
//! - `quic::endpoint::handshake` reads the client's support from its transport parameters.
//! - [`subscriber`] gets a connection's beginning and end, lost packets, and s2n-quic's state of the path.
//! - [`rule`] decides from the ACK frames that came what to request, an [`epoch`] at a time.
//! - `quic::endpoint::frame_slot` makes room for the frame in a packet: a `quic::wire::placeholder`, in whose place a [`request`] is put.
//! - [`delivery`] has it sent again until it arrives.
//!
//! [`state`] is one connection, which joins them. `quic::endpoint::interceptor` provides received and sent packets.

mod delivery;
mod epoch;
mod parameters;
mod request;
mod rule;
mod state;
mod subscriber;

pub use parameters::{Draft, Offer};
pub(in crate::quic) use state::Peer;
pub(in crate::quic) use subscriber::AckFrequencySubscriber;

use crate::{
    config::AckFrequency,
    quic::{io::Moderation, metrics::Metrics},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// One endpoint's. Nothing is requested from clients that do not support it, or if the configuration disables it.
#[derive(Clone)]
pub(in crate::quic) struct AckFrequencies(Arc<Shared>);

struct Shared {
    switch: AckFrequency,
    metrics: Arc<Metrics>,
    /// Reports whether the worker gets too little CPU time.
    moderation: Moderation,
    /// A placeholder stands in the packet that is being built. Read for each packet that leaves.
    marked: AtomicBool,
    newcomers: Mutex<Newcomers>,
}

/// A lock, because s2n-quic wants its providers `Send`; one thread alone takes it.
#[derive(Default)]
struct Newcomers {
    /// The offer of the client whose 1-RTT keys are being exchanged,
    offer: Option<Offer>,
    /// and its connection, between the event and its datagram sender's making.
    newcomer: Option<Arc<Peer>>,
    /// The connection whose packet is being built, if it is marked.
    marked: Option<Arc<Peer>>,
}

impl AckFrequencies {
    /// For an endpoint with the setting `switch`.
    pub(in crate::quic) fn new(switch: AckFrequency, metrics: Arc<Metrics>, moderation: Moderation) -> Self {
        let (marked, newcomers) = Default::default();
        Self(Arc::new(Shared { switch, metrics, moderation, marked, newcomers }))
    }

    /// The offer of the client whose connection s2n-quic processes from now on.
    pub(in crate::quic) fn offered(&self, offer: Option<Offer>) {
        let mut newcomers = self.lock();
        newcomers.offer = offer.filter(|_| self.0.switch != AckFrequency::Off);
        newcomers.newcomer = None;
    }

    /// The connection to which the offer at hand belongs.
    fn welcome(&self) -> Option<Arc<Peer>> {
        let mut newcomers = self.lock();
        let offer = newcomers.offer.take()?;
        let peer = Arc::new(Peer::new(offer, self.0.switch, Arc::clone(&self.0.metrics), self.0.moderation.clone()));
        newcomers.newcomer = Some(Arc::clone(&peer));
        Some(peer)
    }

    /// The connection whose datagram sender is being created, if its client supports it.
    pub(in crate::quic) fn newcomer(&self) -> Option<Arc<Peer>> {
        self.lock().newcomer.take()
    }

    /// A placeholder of `peer`'s is about to stand in the packet that is being built.
    pub(in crate::quic) fn mark(&self, peer: &Arc<Peer>) {
        self.lock().marked = Some(Arc::clone(peer));
        self.0.marked.store(true, Relaxed);
    }

    /// Packet number `packet` was built: if a placeholder stands in its unencrypted payload, the frame takes its place.
    pub(in crate::quic) fn transmit(&self, packet: u64, payload: &mut [u8]) {
        if self.0.marked.load(Relaxed) {
            self.0.marked.store(false, Relaxed);
            let peer = self.lock().marked.take();
            if let Some(peer) = peer {
                peer.fill(packet, payload);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Newcomers> {
        self.0.newcomers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AckFrequencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckFrequencies").field(&self.0.switch).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::{
        connection::Challenges,
        endpoint::frame_slot::Datagrams,
        wire::{frame::Frames, placeholder},
    };
    use proptest::{collection::vec, prelude::*, sample::select};
    use s2n_codec::EncoderValue;
    use s2n_quic::provider::datagram::{ConnectionInfo, Endpoint, Packet, Sender, WriteError};
    use s2n_quic_core::frame::Datagram;
    use std::{task::Waker, time::Duration};

    /// A packet as s2n-quic builds it, with room for so many bytes.
    struct Built {
        payload: Vec<u8>,
        capacity: usize,
    }

    impl Packet for Built {
        fn remaining_capacity(&self) -> usize {
            (self.capacity - self.payload.len()).saturating_sub(3)
        }

        fn write_datagram(&mut self, data: &[u8]) -> Result<(), WriteError> {
            let rest = self.capacity - self.payload.len();
            let frame = Datagram { is_last_frame: rest == 1 + data.len(), data };
            if frame.encoding_size() > rest {
                return Err(WriteError::ExceedsPacketCapacity);
            }
            self.payload.extend(frame.encode_to_vec());
            Ok(())
        }

        fn write_datagram_vectored(&mut self, _: &[&[u8]]) -> Result<(), WriteError> {
            Err(WriteError::ExceedsPacketCapacity)
        }

        fn has_pending_streams(&self) -> bool {
            true
        }

        fn datagrams_prioritized(&self) -> bool {
            false
        }
    }

    fn frequencies(switch: AckFrequency) -> AckFrequencies {
        AckFrequencies::new(switch, Arc::default(), Moderation::new(false, Arc::default()))
    }

    /// A connection's sender, after a handshake in which its client sent `offer`.
    fn sender(frequencies: &AckFrequencies, offer: Option<Offer>) -> impl Sender {
        frequencies.offered(offer);
        if let Some(peer) = frequencies.welcome() {
            peer.begin();
        }
        let info = ConnectionInfo::new(0, Waker::noop().clone());
        let (sender, _) = Datagrams::new(frequencies.clone(), Challenges::new(Arc::default())).create_connection(&info);
        frequencies.offered(None);
        sender
    }

    fn offer() -> Option<Offer> {
        let (min_ack_delay, max_ack_delay) = (Duration::from_millis(1), Duration::from_millis(25));
        Some(Offer { draft: Draft::AckFrequency12, min_ack_delay, max_ack_delay })
    }

    proptest! {
        #[test]
        fn no_packet_leaves_with_a_datagram_frame_and_the_question_is_asked_once(
            before in vec(select(vec![vec![0x02, 9, 0, 0, 2], vec![0x1e], vec![0x11, 4, 9]]), 0..6),
            behind in select(vec![vec![], vec![0x0a, 0, 2, 0x31, 0], vec![0x08, 0, 0x31, 0], vec![0, 0]]),
            rooms in vec(0..40usize, 1..20),
        ) {
            let frequencies = frequencies(AckFrequency::Fixed(10));
            let mut sender = sender(&frequencies, offer());
            let mut asked = 0;
            for (number, room) in rooms.iter().enumerate() {
                let payload = before.concat();
                let mut packet = Built { capacity: payload.len() + room, payload };
                let wanted = sender.has_transmission_interest();
                sender.on_transmit(&mut packet);
                packet.payload.extend(&behind);
                frequencies.transmit(number as u64, &mut packet.payload);
                let kinds: Vec<u64> = Frames::new(&packet.payload).map(|frame| frame.kind).collect();
                prop_assert!(!kinds.iter().any(|kind| matches!(kind, 0x30 | 0x31)), "{:x?}", packet.payload);
                let asks = kinds.iter().filter(|&&kind| kind == 0xaf).count();
                prop_assert!(asks == 0 || wanted);
                asked += asks;
            }
            prop_assert_eq!(asked, usize::from(rooms.iter().any(|&room| room >= placeholder::LEN + 8 + 3)));
            prop_assert_eq!(frequencies.0.metrics.ack_frequency_misplaced.get(), 0);
        }
    }

    #[test]
    fn nothing_is_requested_without_an_offer_or_if_it_is_switched_off() {
        for (switch, offer) in
            [(AckFrequency::Fixed(10), None), (AckFrequency::Off, offer()), (AckFrequency::Adaptive, offer())]
        {
            let frequencies = frequencies(switch);
            // Its offer is not the next one's.
            drop(sender(&frequencies, offer));
            let mut sender = sender(&frequencies, None);
            let mut packet = Built { payload: Vec::new(), capacity: 1200 };
            sender.on_transmit(&mut packet);
            assert!(packet.payload.is_empty() && !sender.has_transmission_interest(), "{switch}");
        }
    }
}

//! Adaptive ACK frequency: a client whose acknowledgements keep a worker busy is requested to send fewer
//! (draft-ietf-quic-ack-frequency-12, or the older draft that Firefox has), if it supports that. s2n-quic does not
//! (docs/adr/0013-adaptive-ack-frequency.md).
//!
//! - `quic::endpoint::handshake` reads the client's support from its transport parameters.
//! - `quic::endpoint::events` passes a connection's beginning and end, lost packets, and s2n-quic's state of the path.
//! - [`rule`] decides from the ACK frames that came what to request, an [`epoch`] at a time.
//! - `quic::endpoint::frame_slot` makes room for the frame in a packet: a `quic::wire::placeholder`, in whose place a
//!   [`request`] is put.
//! - [`delivery`] has it sent again until it arrives.
//!
//! [`state`] is one connection, which joins them. `quic::endpoint::interceptor` provides received and sent packets.

mod delivery;
mod epoch;
mod parameters;
mod request;
mod rule;
mod state;

pub use parameters::{AckFrequencySupport, DraftVersion};
pub(in crate::quic) use state::AckFrequencyState;

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

/// The ACK frequency of an endpoint's clients. Nothing is requested from clients that do not support it, or if the
/// configuration disables it.
#[derive(Clone)]
pub(in crate::quic) struct AckFrequencyEndpoint(Arc<Shared>);

struct Shared {
    mode: AckFrequency,
    metrics: Arc<Metrics>,
    /// Reports whether the worker gets too little CPU time.
    moderation: Moderation,
    /// A placeholder stands in the packet that is being built. Read for each packet that leaves.
    slot_reserved: AtomicBool,
    new_connection: Mutex<NewConnection>,
}

/// The connection at hand. Behind a lock, because s2n-quic wants its providers `Send`; one thread alone takes it.
#[derive(Default)]
struct NewConnection {
    /// Support of the client whose 1-RTT keys are being exchanged.
    support: Option<AckFrequencySupport>,
    /// State of that client's connection, from s2n-quic's event until its datagram sender is created.
    state: Option<Arc<AckFrequencyState>>,
    /// The connection in whose packet, which is being built, a placeholder stands.
    slot_owner: Option<Arc<AckFrequencyState>>,
}

impl AckFrequencyEndpoint {
    /// The ACK frequency of an endpoint with the setting `mode`.
    pub(in crate::quic) fn new(mode: AckFrequency, metrics: Arc<Metrics>, moderation: Moderation) -> Self {
        let (slot_reserved, new_connection) = Default::default();
        Self(Arc::new(Shared { mode, metrics, moderation, slot_reserved, new_connection }))
    }

    /// Sets the support of the client whose connection s2n-quic processes from now on.
    pub(in crate::quic) fn set_support(&self, support: Option<AckFrequencySupport>) {
        let mut new_connection = self.lock();
        new_connection.support = support.filter(|_| self.0.mode != AckFrequency::Off);
        new_connection.state = None;
    }

    /// Creates the state of the connection at hand, if its client supports ACK_FREQUENCY.
    pub(in crate::quic) fn accept_support(&self) -> Option<Arc<AckFrequencyState>> {
        let mut new_connection = self.lock();
        let support = new_connection.support.take()?;
        let state = Arc::new(AckFrequencyState::new(
            support,
            self.0.mode,
            Arc::clone(&self.0.metrics),
            self.0.moderation.clone(),
        ));
        new_connection.state = Some(Arc::clone(&state));
        Some(state)
    }

    /// Takes the state of the connection whose datagram sender is being created, if its client supports ACK_FREQUENCY.
    pub(in crate::quic) fn take_new(&self) -> Option<Arc<AckFrequencyState>> {
        self.lock().state.take()
    }

    /// Notes that a placeholder of the connection of `state` is about to stand in the packet that is being built.
    pub(in crate::quic) fn reserve_slot(&self, state: &Arc<AckFrequencyState>) {
        self.lock().slot_owner = Some(Arc::clone(state));
        self.0.slot_reserved.store(true, Relaxed);
    }

    /// Packet number `packet` was built: if a placeholder stands in its unencrypted payload, the frame takes its place.
    pub(in crate::quic) fn transmit(&self, packet: u64, payload: &mut [u8]) {
        if self.0.slot_reserved.load(Relaxed) {
            self.0.slot_reserved.store(false, Relaxed);
            let state = self.lock().slot_owner.take();
            if let Some(state) = state {
                state.write_frame(packet, payload);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, NewConnection> {
        self.0.new_connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AckFrequencyEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckFrequencyEndpoint").field(&self.0.mode).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::{
        connection::PathChallenges,
        endpoint::frame_slot::FrameSlotEndpoint,
        wire::{frame::FrameIter, placeholder},
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

    fn endpoint(mode: AckFrequency) -> AckFrequencyEndpoint {
        AckFrequencyEndpoint::new(mode, Arc::default(), Moderation::new(false, Arc::default()))
    }

    /// A connection's sender, after a handshake in which its client sent `offer`.
    fn sender(endpoint: &AckFrequencyEndpoint, support: Option<AckFrequencySupport>) -> impl Sender {
        endpoint.set_support(support);
        if let Some(state) = endpoint.accept_support() {
            state.begin();
        }
        let info = ConnectionInfo::new(0, Waker::noop().clone());
        let (sender, _) =
            FrameSlotEndpoint::new(endpoint.clone(), PathChallenges::new(Arc::default())).create_connection(&info);
        endpoint.set_support(None);
        sender
    }

    fn support() -> Option<AckFrequencySupport> {
        let (min_ack_delay, max_ack_delay) = (Duration::from_millis(1), Duration::from_millis(25));
        Some(AckFrequencySupport { draft: DraftVersion::AckFrequency12, min_ack_delay, max_ack_delay })
    }

    proptest! {
        #[test]
        fn no_packet_leaves_with_a_datagram_frame_and_the_question_is_asked_once(
            before in vec(select(vec![vec![0x02, 9, 0, 0, 2], vec![0x1e], vec![0x11, 4, 9]]), 0..6),
            behind in select(vec![vec![], vec![0x0a, 0, 2, 0x31, 0], vec![0x08, 0, 0x31, 0], vec![0, 0]]),
            rooms in vec(0..40usize, 1..20),
        ) {
            let endpoint = endpoint(AckFrequency::Fixed(10));
            let mut sender = sender(&endpoint, support());
            let mut asked = 0;
            for (number, room) in rooms.iter().enumerate() {
                let payload = before.concat();
                let mut packet = Built { capacity: payload.len() + room, payload };
                let wanted = sender.has_transmission_interest();
                sender.on_transmit(&mut packet);
                packet.payload.extend(&behind);
                endpoint.transmit(number as u64, &mut packet.payload);
                let kinds: Vec<u64> = FrameIter::new(&packet.payload).map(|frame| frame.kind).collect();
                prop_assert!(!kinds.iter().any(|kind| matches!(kind, 0x30 | 0x31)), "{:x?}", packet.payload);
                let asks = kinds.iter().filter(|&&kind| kind == 0xaf).count();
                prop_assert!(asks == 0 || wanted);
                asked += asks;
            }
            prop_assert_eq!(asked, usize::from(rooms.iter().any(|&room| room >= placeholder::LEN + 8 + 3)));
            prop_assert_eq!(endpoint.0.metrics.ack_frequency_misplaced.get(), 0);
        }
    }

    #[test]
    fn nothing_is_requested_without_an_offer_or_if_it_is_switched_off() {
        for (mode, support) in
            [(AckFrequency::Fixed(10), None), (AckFrequency::Off, support()), (AckFrequency::Adaptive, support())]
        {
            let endpoint = endpoint(mode);
            // Its offer is not the next one's.
            drop(sender(&endpoint, support));
            let mut sender = sender(&endpoint, None);
            let mut packet = Built { payload: Vec::new(), capacity: 1200 };
            sender.on_transmit(&mut packet);
            assert!(packet.payload.is_empty() && !sender.has_transmission_interest(), "{mode}");
        }
    }
}

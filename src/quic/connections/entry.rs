//! One connection's entry.

use super::{flight::Flight, window::Windows};
use crate::{
    quic::{
        ack_frequency::Peer, ack_merge::Acknowledged, batches::Tally, conduct::Conduct, frame::AckRanges, lost::Lost,
    },
    receive_budget::ReceiveAccount,
};
use s2n_quic_core::path::{Handle as _, Tuple};
use std::sync::Arc;

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) windows: Windows,
    pub(super) flight: Arc<Flight>,
    pub(super) conduct: Conduct,
    pub(super) acks: Tally,
    /// The packets that s2n-quic has seen acknowledged.
    pub(super) acknowledged: Acknowledged,
    pub(super) lost: Lost,
    /// Packets that were declared lost and have arrived, of which its path's congestion controller was not notified
    /// yet.
    pub(super) arrived: u32,
    /// What was received and not read.
    pub(super) received: Option<ReceiveAccount>,
    /// `None` if its client does not support ACK_FREQUENCY frames.
    pub(super) peer: Option<Arc<Peer>>,
    /// The path on which s2n-quic sends.
    pub(super) path: Option<Tuple>,
}

impl Entry {
    /// One with this limit of the client's control frames a second.
    pub(super) fn new(max_control_frames: u32) -> Self {
        let (windows, flight, acks, acknowledged, lost) = Default::default();
        Self {
            windows,
            flight,
            conduct: Conduct::new(max_control_frames),
            acks,
            acknowledged,
            lost,
            arrived: 0,
            received: None,
            peer: None,
            path: None,
        }
    }

    /// Whether s2n-quic would do nothing on an ACK frame that came on `path`. From now on its content is known.
    ///
    /// That is the case if it was notified of each packet before, as a reading of s2n-quic-transport 0.91 shows
    /// (`recovery::Manager::process_acks`): it looks for packets that were not acknowledged yet, and finds none. RTT,
    /// loss detection, congestion control and the probe timer are left alone without one; so are ECN counts, which RFC
    /// 9000 §13.4.2.1 has validated only with a larger number than any before. Remembered means processed: every packet
    /// passes here immediately before s2n-quic processes its frames, and a frame that it rejects, as one that
    /// acknowledges a number that was never sent, ends the connection and all that is remembered of it.
    ///
    /// But any ACK frame moves the connection to the address that it comes from (RFC 9000 §9.2), and PADDING does not.
    /// So only those from the current address may be dropped.
    pub(super) fn knows(&mut self, ack: AckRanges<'_>, path: &Tuple) -> bool {
        !self.acknowledged.is_news(ack) && self.path.is_some_and(|own| own.unmapped_eq(path))
    }
}

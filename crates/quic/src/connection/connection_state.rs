//! Keeps the state of one connection.

use super::{
    ack_frequency::AckFrequencyState, acknowledged_numbers::AcknowledgedNumbers, control_frames::ControlFrameLimit,
    lost_packets::LostPackets, path_challenge::UnansweredChallenge, send_queue::SendQueue, stream_credit::StreamCredit,
};
use crate::{congestion::PathFeedback, io::AckCounts, wire::frame::AckRanges};
use litequic_resources::receive::ReceiveAccount;
use s2n_quic_core::path::{Handle as _, Tuple};
use std::sync::Arc;

/// State of one connection, an entry of [`Connections`](super::connections::Connections).
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) credit: StreamCredit,
    pub(crate) send_queue: Arc<SendQueue>,
    pub(crate) control_frames: ControlFrameLimit,
    pub(crate) acks: AckCounts,
    /// Packet numbers that s2n-quic has seen acknowledged.
    pub(super) acknowledged: AcknowledgedNumbers,
    pub(crate) lost: LostPackets,
    /// Feedback of the active path's congestion controller.
    pub(crate) feedback: Option<Arc<PathFeedback>>,
    /// Account of received bytes that were not read.
    pub(crate) receive_account: Option<ReceiveAccount>,
    /// Unit of delays in the client's ACK frames, as a power of two of microseconds (RFC 9000 §18.2).
    pub(crate) ack_delay_exponent: u8,
    /// ACK frequency; `None` if the client does not support ACK_FREQUENCY frames.
    pub(crate) ack_frequency: Option<Box<AckFrequencyState>>,
    /// PATH_CHALLENGE without a response, on the active path or a probed one.
    pub(crate) challenge: Option<UnansweredChallenge>,
    /// Active path, on which s2n-quic sends.
    pub(crate) path: Option<Tuple>,
}

const _: () = assert!(size_of::<ConnectionState>() <= 408);

impl ConnectionState {
    /// A connection whose client may send `max_control_frames` a second, and whose streams `send_queue` serves.
    pub(super) fn new(max_control_frames: u32, send_queue: SendQueue) -> Self {
        Self {
            credit: StreamCredit::default(),
            send_queue: Arc::new(send_queue),
            control_frames: ControlFrameLimit::new(max_control_frames),
            acks: AckCounts::default(),
            acknowledged: AcknowledgedNumbers::default(),
            lost: LostPackets::default(),
            feedback: None,
            receive_account: None,
            ack_delay_exponent: 3,
            ack_frequency: None,
            challenge: None,
            path: None,
        }
    }

    /// Applies `change` to the ACK frequency, if the client supports that, and tells `send_queue` whether a frame is to
    /// be sent.
    pub(crate) fn change_ack_frequency<T>(&mut self, change: impl FnOnce(&mut AckFrequencyState) -> T) -> Option<T> {
        let ack_frequency = self.ack_frequency.as_mut()?;
        ack_frequency.slow_start = self.feedback.as_ref().is_some_and(|feedback| feedback.is_slow_start());
        let outcome = change(ack_frequency);
        self.send_queue.set_wants_ack_frequency(ack_frequency.wants_frame());
        Some(outcome)
    }

    /// Remembers a sent challenge. A challenge that probes a path does not replace that of the active path.
    pub(crate) fn record_sent_challenge(&mut self, challenge: UnansweredChallenge) {
        if !challenge.is_probe() || self.challenge.as_ref().is_none_or(UnansweredChallenge::is_probe) {
            self.set_challenge(Some(challenge));
        }
    }

    /// s2n-quic sends on `path` from now on: forgets the challenge of another path, which must never be sent on this
    /// one, as it would not validate the path.
    pub(crate) fn activate_challenge(&mut self, path: u64) {
        let challenge = self.challenge.take().and_then(|challenge| challenge.on_activated(path));
        self.set_challenge(challenge);
    }

    /// Forgets the challenge of `path`, which got its response or was given up. `path` is the active one if
    /// `is_active`.
    pub(crate) fn end_challenge(&mut self, path: u64, is_active: bool) {
        if self.challenge.as_ref().is_some_and(|challenge| challenge.is_of_path(path, is_active)) {
            self.set_challenge(None);
        }
    }

    /// Sets or clears the unanswered challenge, and tells `send_queue` whether there is one.
    pub(crate) fn set_challenge(&mut self, challenge: Option<UnansweredChallenge>) {
        self.send_queue.set_has_challenge(challenge.is_some());
        self.challenge = challenge;
    }

    /// Whether s2n-quic would do nothing on an ACK frame that arrived on `path`. Remembers the acknowledged numbers.
    ///
    /// That is the case if every packet was reported to s2n-quic before, as a reading of s2n-quic-transport 0.91 shows
    /// (`recovery::Manager::process_acks`): it looks for packets that were not acknowledged yet, and finds none. RTT,
    /// loss detection, congestion control and the probe timer are left alone without one; so are ECN counts, which RFC
    /// 9000 §13.4.2.1 has validated only with a larger number than any before. A remembered number was processed: every
    /// packet passes here immediately before s2n-quic processes its frames, and a frame that s2n-quic rejects, as one
    /// that acknowledges a number that was never sent, ends the connection and this state.
    ///
    /// But any ACK frame moves the connection to its source address (RFC 9000 §9.2), and PADDING does not. So only
    /// frames from the current address may be dropped.
    ///
    /// `Connections::process_packet` calls this for the only ACK frame of a 1-RTT packet whose frames were all parsed,
    /// with `litequic.ack_merge` and I/O that receives in batches.
    pub(super) fn is_redundant_ack(&mut self, ack: AckRanges<'_>, path: &Tuple) -> bool {
        !self.acknowledged.is_news(ack) && self.path.is_some_and(|own| own.unmapped_eq(path))
    }
}

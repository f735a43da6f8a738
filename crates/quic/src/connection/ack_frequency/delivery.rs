//! Delivers requests to a client reliably: tracks an ACK_FREQUENCY frame until its acknowledgement. A lost frame is
//! sent again, under a new sequence number, unless a newer request has replaced it. Pure.

use super::request::AckFrequencyRequest;

/// Delivery of one connection's requests.
#[derive(Debug, Default)]
pub(super) struct RequestDelivery {
    /// The request to be sent with the next packet.
    pending: Option<AckFrequencyRequest>,
    /// Packet number and request of the newest frame that is neither acknowledged nor lost.
    in_flight: Option<(u64, AckFrequencyRequest)>,
    /// Sequence number of the next frame: larger than those of all frames before.
    sequence: u64,
}

impl RequestDelivery {
    /// Replaces the pending request by `request`.
    pub(super) fn replace_request(&mut self, request: AckFrequencyRequest) {
        self.pending = Some(request);
    }

    /// Whether a frame is to be sent.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the client has acknowledged the newest request.
    pub(super) fn is_request_settled(&self) -> bool {
        self.pending.is_none() && self.in_flight.is_none()
    }

    /// Number of the packet with the newest frame; `None` if none is in flight.
    pub(super) fn awaited_packet(&self) -> Option<u64> {
        self.in_flight.map(|(packet, _)| packet)
    }

    /// Takes the request to send in packet number `packet`, with its sequence number.
    pub(super) fn take_pending_frame(&mut self, packet: u64) -> Option<(u64, AckFrequencyRequest)> {
        let request = self.pending.take()?;
        self.in_flight = Some((packet, request));
        let sequence = self.sequence;
        self.sequence += 1;
        Some((sequence, request))
    }

    /// The packet with the newest frame was acknowledged.
    pub(super) fn on_frame_acknowledged(&mut self) {
        self.in_flight = None;
    }

    /// Packet number `packet` is lost. True if the newest frame was in the packet.
    pub(super) fn on_frame_lost(&mut self, packet: u64) -> bool {
        let Some((_, request)) = self.in_flight.take_if(|(sent, _)| *sent == packet) else { return false };
        // A newer request is pending.
        self.pending.get_or_insert(request);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn request(threshold: u32) -> AckFrequencyRequest {
        AckFrequencyRequest { threshold, max_ack_delay: Duration::from_millis(25) }
    }

    #[test]
    fn a_frame_is_sent_once_if_it_arrives() {
        let mut delivery = RequestDelivery::default();
        assert_eq!(delivery.take_pending_frame(1), None);
        delivery.replace_request(request(10));
        assert_eq!(delivery.take_pending_frame(2), Some((0, request(10))));
        assert_eq!(
            (delivery.take_pending_frame(3), delivery.awaited_packet(), delivery.is_request_settled()),
            (None, Some(2), false)
        );
        delivery.on_frame_acknowledged();
        assert!(!delivery.on_frame_lost(2));
        assert_eq!(
            (delivery.take_pending_frame(4), delivery.awaited_packet(), delivery.is_request_settled()),
            (None, None, true)
        );
    }

    #[test]
    fn a_lost_frame_is_repeated_with_a_new_sequence_number() {
        let mut delivery = RequestDelivery::default();
        delivery.replace_request(request(10));
        for (sequence, packet) in [(0, 5), (1, 9), (2, 30)] {
            assert_eq!(delivery.take_pending_frame(packet), Some((sequence, request(10))));
            assert!(!delivery.on_frame_lost(packet + 1) && !delivery.is_pending(), "another packet is lost");
            assert!(delivery.on_frame_lost(packet) && delivery.is_pending());
        }
    }

    #[test]
    fn a_request_that_was_replaced_is_never_sent_again() {
        let mut delivery = RequestDelivery::default();
        delivery.replace_request(request(4));
        delivery.take_pending_frame(1);
        delivery.replace_request(request(8));
        assert!(delivery.on_frame_lost(1), "lost while a newer one waits");
        assert_eq!(delivery.take_pending_frame(2), Some((1, request(8))));
        delivery.replace_request(request(16));
        assert_eq!(delivery.take_pending_frame(3), Some((2, request(16))));
        assert!(!delivery.on_frame_lost(2) && !delivery.is_pending(), "an older frame's packet");
        assert_eq!(delivery.awaited_packet(), Some(3));
    }
}

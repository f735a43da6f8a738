//! Packets on both ways: ACK frames that come are counted, a placeholder that goes becomes an ACK_FREQUENCY frame.

use super::{AckFrequencies, peer::Peer};
use crate::quic::frame::{AckRanges, Frames, Numbers, kind};
use s2n_codec::encoder::scatter;
use s2n_quic_core::{
    event::api::Subject,
    packet::{
        interceptor::{DecoderBufferMut, Interceptor, Packet},
        number::PacketNumberSpace,
    },
    time::Timestamp,
};
use std::time::Duration;

/// To stand before whoever blanks ACK frames.
#[derive(Debug)]
pub(in super::super) struct Packets {
    frequencies: AckFrequencies,
    /// The first packet's time, from which others' is counted.
    began: Option<Timestamp>,
}

impl Packets {
    pub(super) fn new(frequencies: AckFrequencies) -> Self {
        Self { frequencies, began: None }
    }
}

/// Tells `peer` of the ACK frames in a packet that came at `now`, in batch number `batch`.
fn receive(peer: &Peer, now: Duration, batch: u64, payload: &[u8]) {
    let awaited = peer.in_flight();
    let (mut acks, mut largest, mut arrived) = (0, 0, false);
    for frame in Frames::new(payload).filter(|frame| matches!(frame.kind, kind::ACK | kind::ACK_ECN)) {
        acks += 1;
        // What is nonsense s2n-quic closes the connection for.
        let Some(mut ranges) = AckRanges::new(frame.body) else { continue };
        if let Some(awaited) = awaited {
            let holds =
                |range: Result<_, _>| range.is_ok_and(|range: Numbers| (range.low..=range.high).contains(&awaited));
            arrived |= ranges.clone().any(holds);
        }
        if let Some(Ok(first)) = ranges.next() {
            largest = first.high.max(largest);
        }
    }
    if arrived {
        peer.acknowledged();
    }
    if acks > 0 {
        peer.count(now, batch, acks, largest);
    }
}

impl Interceptor for Packets {
    fn intercept_rx_payload<'a>(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let Subject::Connection { id, .. } = subject else { return payload };
        if packet.number.space() != PacketNumberSpace::ApplicationData {
            return payload;
        }
        let Some(peer) = self.frequencies.peer(*id) else { return payload };
        let began = *self.began.get_or_insert(packet.timestamp);
        let payload = payload.into_less_safe_slice();
        let now = packet.timestamp.saturating_duration_since(began);
        receive(&peer, now, self.frequencies.0.batches.number(), payload);
        DecoderBufferMut::new(payload)
    }

    /// [`super::datagrams`] has written into this very packet, a moment ago.
    fn intercept_tx_payload(&mut self, _: &Subject, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        // What a placeholder stands in; the end of a stream's data may be elsewhere yet.
        let (payload, _) = payload.inner_mut();
        self.frequencies.transmit(packet.number.as_u64(), payload.as_mut_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::AckFrequency,
        quic::ack_frequency::{Offer, placeholder},
    };
    use std::sync::Arc;

    #[test]
    fn the_acknowledgement_of_a_frame_is_found_in_any_range_of_any_ack_frame() {
        let table: &[(&str, &[u8], bool)] = &[
            ("the largest", &[0x02, 20, 0, 0, 0], true),
            ("one of the first range", &[0x02, 30, 0, 0, 10], true),
            ("below it", &[0x02, 30, 0, 0, 9], false),
            ("in the gap", &[0x02, 30, 0, 1, 8, 1, 2], false),
            ("in the second range", &[0x02, 30, 0, 1, 5, 1, 3], true),
            ("larger", &[0x02, 19, 0, 0, 19], false),
            ("in the second frame", &[0x1e, 0x02, 5, 0, 0, 0, 0x03, 20, 0, 0, 0, 1, 1, 1], true),
            ("below zero", &[0x02, 30, 0, 0, 40], false),
            ("in a stream's data", &[0x08, 0, 0x02, 20, 0, 0, 0], false),
        ];
        for (what, payload, arrived) in table {
            let ms = Duration::from_millis;
            let offer = Offer { min_ack_delay: ms(1), max_ack_delay: ms(25) };
            let peer = Peer::new(offer, AckFrequency::Fixed(10), Arc::default());
            peer.begin();
            peer.fill(20, &mut [0x31, 0].repeat(placeholder::DATAGRAMS));
            assert_eq!(peer.in_flight(), Some(20));
            receive(&peer, ms(0), 1, payload);
            assert_eq!(peer.in_flight().is_none(), *arrived, "{what}");
        }
    }
}

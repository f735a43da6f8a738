//! Tracks packets that s2n-quic has declared lost, and finds those that the client acknowledges after all, which
//! s2n-quic ignores (spurious losses). Pure.

use crate::wire::frame::{AckRanges, NumberRange};
use std::collections::VecDeque;

/// Largest distance of packet numbers at which a lost packet is remembered: at a gigabit a second these are 300 ms.
const MAX_REORDERING: u64 = 1 << 15;
/// Ranges of lost packets remembered of a connection, 16 bytes each; beyond, the oldest is forgotten.
const MAX_LOST_RANGES: usize = 256;

/// Skipped numbers remembered of a connection: s2n-quic skips one in half to two and a half windows.
const MAX_SKIPPED: usize = 16;

/// Numbers of packets that one connection has declared lost, in ascending, separate ranges.
#[derive(Debug, Default)]
pub(crate) struct LostPackets {
    ranges: Vec<NumberRange>,
    /// Last numbers that s2n-quic skipped, for which no packet was sent.
    skipped: VecDeque<u64>,
    /// The client acknowledged a skipped number: its acknowledgements do not count any more.
    acknowledged_unsent: bool,
}

impl LostPackets {
    /// Packet `number` was declared lost. s2n-quic calls in ascending order.
    pub(crate) fn add_lost(&mut self, number: u64) {
        match self.ranges.last_mut() {
            Some(last) if number <= last.high => {}
            Some(last) if number == last.high + 1 => last.high = number,
            _ => {
                if self.ranges.len() >= MAX_LOST_RANGES {
                    self.ranges.remove(0);
                }
                self.ranges.push(NumberRange { low: number, high: number });
            }
        }
    }

    /// Packet number `number` was skipped: never sent.
    pub(crate) fn on_skipped(&mut self, number: u64) {
        if self.skipped.len() >= MAX_SKIPPED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(number);
    }

    /// Forgets the packets that were declared lost so far.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Removes the packets in `ranges`, and returns those that had been declared lost. None for a client that
    /// acknowledged a packet that was never sent.
    pub(crate) fn acknowledge(&mut self, ranges: &AckRanges<'_>) -> Vec<NumberRange> {
        let mut arrived = Vec::new();
        if self.ranges.is_empty() || self.acknowledged_unsent {
            // Most connections never lose a packet.
            return arrived;
        }
        // The order is descending. s2n-quic rejects ranges below zero.
        for (nth, acknowledged) in ranges.clone().map_while(Result::ok).enumerate() {
            if nth == 0 {
                let old =
                    self.ranges.partition_point(|lost| lost.high.saturating_add(MAX_REORDERING) < acknowledged.high);
                self.ranges.drain(..old);
            }
            if self.ranges.first().is_none_or(|oldest| acknowledged.high < oldest.low) {
                break;
            }
            self.take_range(acknowledged, &mut arrived);
        }
        // A removal from a range's middle leaves two ranges.
        self.ranges.drain(..self.ranges.len().saturating_sub(MAX_LOST_RANGES));
        if !arrived.is_empty() {
            let acknowledges = |number: &u64| ranges.clone().map_while(Result::ok).any(|range| range.contains(*number));
            self.acknowledged_unsent = self.skipped.iter().any(acknowledges);
        }
        if self.acknowledged_unsent { Vec::new() } else { arrived }
    }

    /// Moves the numbers of `acknowledged` to `arrived`.
    fn take_range(&mut self, acknowledged: NumberRange, arrived: &mut Vec<NumberRange>) {
        let NumberRange { low, high } = acknowledged;
        let from = self.ranges.partition_point(|lost| lost.high < low);
        let to = self.ranges.partition_point(|lost| lost.low <= high);
        let Some([first, .., last] | [first @ last]) = self.ranges.get(from..to) else { return };
        let below = (first.low < low).then(|| NumberRange { low: first.low, high: low - 1 });
        let above = (last.high > high).then(|| NumberRange { low: high + 1, high: last.high });
        let taken = self.ranges.splice(from..to, below.into_iter().chain(above));
        arrived.extend(taken.map(|lost| NumberRange { low: lost.low.max(low), high: lost.high.min(high) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::FrameIter;
    use proptest::{collection::btree_set, prelude::*};
    use s2n_codec::EncoderValue;
    use s2n_quic_core::{ack, frame, varint::VarInt};
    use std::{collections::BTreeSet, ops::RangeInclusive};

    /// An ACK frame as s2n-quic writes it.
    fn ack(ranges: &[RangeInclusive<u64>]) -> Vec<u8> {
        let mut acknowledged = ack::Ranges::new(1000);
        for range in ranges {
            let number = |number| {
                s2n_quic_core::packet::number::PacketNumberSpace::ApplicationData
                    .new_packet_number(VarInt::new(number).unwrap())
            };
            let range =
                s2n_quic_core::packet::number::PacketNumberRange::new(number(*range.start()), number(*range.end()));
            acknowledged.insert_packet_number_range(range).unwrap();
        }
        frame::Ack { ack_delay: VarInt::ZERO, ack_ranges: &acknowledged, ecn_counts: None }.encode_to_vec()
    }

    fn acknowledge(lost: &mut LostPackets, ranges: &[RangeInclusive<u64>]) -> u64 {
        let frame = ack(ranges);
        let arrived = lost.acknowledge(&AckRanges::new(FrameIter::new(&frame).next().unwrap().body).unwrap());
        let acknowledged = |number: u64| ranges.iter().any(|range| range.contains(&number));
        assert!(arrived.iter().flat_map(|range| range.low..=range.high).all(acknowledged), "{arrived:?}");
        arrived.iter().copied().map(NumberRange::count).sum()
    }

    fn lost(numbers: impl IntoIterator<Item = u64>) -> LostPackets {
        let mut lost = LostPackets::default();
        numbers.into_iter().for_each(|number| lost.add_lost(number));
        lost
    }

    #[test]
    fn a_spurious_loss_counts_once() {
        let mut lost = lost([3, 4, 5, 9, 12, 13]);
        assert_eq!(acknowledge(&mut lost, &[0..=2, 6..=8, 10..=11]), 0);
        assert_eq!(acknowledge(&mut lost, &[4..=4, 8..=12]), 3);
        assert_eq!(acknowledge(&mut lost, &[4..=4, 8..=12]), 0);
        assert_eq!(acknowledge(&mut lost, &[0..=20]), 3);
        assert!(lost.ranges.is_empty());
    }

    #[test]
    fn a_client_that_acknowledges_skipped_packets_has_no_spurious_losses() {
        let mut lost = lost([3, 5, 30, 40]);
        (0..20).for_each(|number| lost.on_skipped(number * 100 + 4));
        assert_eq!(acknowledge(&mut lost, &[3..=3, 6..=403]), 3, "404 is the oldest that is remembered");
        lost.add_lost(1_000);
        assert_eq!(acknowledge(&mut lost, &[404..=1_000]), 0);
        assert_eq!(lost.skipped.len(), MAX_SKIPPED);
        lost.add_lost(2_000);
        assert_eq!(acknowledge(&mut lost, &[2_000..=2_000]), 0, "it lied once");
        let mut honest = self::lost([3, 5]);
        honest.on_skipped(4);
        assert_eq!(acknowledge(&mut honest, &[0..=3, 5..=9]), 2);
        honest.add_lost(20);
        honest.clear();
        assert_eq!(acknowledge(&mut honest, &[20..=20]), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_age() {
        let mut lost = lost((0..2000).map(|number| number * 2));
        assert_eq!(lost.ranges.len(), MAX_LOST_RANGES);
        assert_eq!(acknowledge(&mut lost, &[0..=4000]), MAX_LOST_RANGES as u64);
        let mut split = self::lost(0..1000);
        let even: Vec<_> = (0..1000).step_by(2).map(|number| number..=number).collect();
        assert_eq!(acknowledge(&mut split, &even), 500);
        assert_eq!(split.ranges.len(), MAX_LOST_RANGES);
        let mut old = self::lost([10, 5000]);
        assert_eq!(acknowledge(&mut old, &[20_000 + MAX_REORDERING..=20_000 + MAX_REORDERING]), 0);
        assert!(old.ranges.is_empty());
    }

    proptest! {
        #[test]
        fn spurious_losses_match_those_of_a_set(
            numbers in btree_set(0u64..300, 0..80),
            acks in proptest::collection::vec(btree_set(0u64..300, 1..60), 1..8),
        ) {
            let mut lost = lost(numbers.iter().copied());
            let mut oracle: BTreeSet<u64> = numbers;
            for acknowledged in acks {
                let ranges: Vec<RangeInclusive<u64>> = acknowledged.iter().map(|&number| number..=number).collect();
                let expected = acknowledged.iter().filter(|number| oracle.remove(number)).count();
                prop_assert_eq!(acknowledge(&mut lost, &ranges), expected as u64);
                let left: BTreeSet<u64> = lost.ranges.iter().flat_map(|range| range.low..=range.high).collect();
                prop_assert_eq!(&left, &oracle);
                prop_assert!(lost.ranges.is_sorted_by(|one, next| one.high + 1 < next.low));
            }
        }
    }
}

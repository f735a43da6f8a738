//! What becomes of packets that were sent, for operators and the laboratory: those that s2n-quic declares lost (RFC 9002
//! §6.1), those of them that the client acknowledges all the same, of which s2n-quic takes no notice, and round-trip
//! times. Changes nothing.

use super::{
    by_id::ById,
    frame::{AckRanges, Numbers},
};
use crate::telemetry::WorkerMetrics;
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{HandshakeStatus, HandshakeStatusUpdated, PacketHeader, PacketLost, RecoveryMetrics},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Between two looks at a connection's round-trip time: s2n-quic tells it with each ACK frame, transmission and timeout.
const SAMPLE: Duration = Duration::from_millis(50);
/// Packets declared lost are remembered until a number so much larger is acknowledged: a gigabit's in 300 ms.
const REMEMBERED: u64 = 1 << 15;
/// Ranges of lost packets remembered a connection, 16 octets each; beyond it the oldest is forgotten.
const MAX_RANGES: usize = 256;

/// One endpoint's.
#[derive(Debug, Clone)]
pub(super) struct Recovery(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    metrics: Arc<WorkerMetrics>,
    /// Connections that have lost anything. A lock, because s2n-quic wants its providers `Send`; one thread alone takes it.
    losses: Mutex<ById<Lost>>,
    /// Whether there are any. Read for each acknowledgement.
    any: AtomicBool,
}

impl Recovery {
    /// Counts in `metrics`.
    pub(super) fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self(Arc::new(Shared { metrics, losses: Mutex::default(), any: AtomicBool::new(false) }))
    }

    /// Packets with the numbers of `ranges` were acknowledged on `connection`, by s2n-quic's ID, for the first time or
    /// not.
    pub(super) fn acknowledged(&self, connection: u64, ranges: AckRanges<'_>) {
        if self.0.any.load(Relaxed)
            && let Some(lost) = self.lock().get_mut(&connection)
        {
            self.0.metrics.spurious_losses.add(lost.acknowledge(ranges));
        }
    }

    fn lost(&self, connection: u64, number: u64) {
        self.0.metrics.packets_lost.increment();
        self.lock().entry(connection).or_default().add(number);
        self.0.any.store(true, Relaxed);
    }

    fn forget(&self, connection: u64) {
        let mut losses = self.lock();
        losses.remove(&connection);
        self.0.any.store(!losses.is_empty(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ById<Lost>> {
        self.0.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's. Dropped with it.
#[derive(Debug)]
pub(super) struct Course {
    recovery: Recovery,
    connection: u64,
    handshake_done: bool,
    /// Whether it has lost anything.
    loses: bool,
    /// When its round-trip time was looked at last, in s2n-quic's time.
    sampled: Duration,
}

impl Drop for Course {
    fn drop(&mut self) {
        if self.loses {
            self.recovery.forget(self.connection);
        }
    }
}

impl Subscriber for Recovery {
    type ConnectionContext = Course;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Course {
        let (handshake_done, loses, sampled) = Default::default();
        Course { recovery: self.clone(), connection: meta.id, handshake_done, loses, sampled }
    }

    fn on_handshake_status_updated(&mut self, course: &mut Course, _: &ConnectionMeta, event: &HandshakeStatusUpdated) {
        course.handshake_done |= matches!(event.status, HandshakeStatus::Complete { .. });
    }

    fn on_packet_lost(&mut self, course: &mut Course, _: &ConnectionMeta, event: &PacketLost<'_>) {
        let PacketHeader::OneRtt { number, .. } = event.packet_header else { return };
        if event.is_mtu_probe {
            self.0.metrics.mtu_probes_lost.increment();
        } else {
            course.loses = true;
            self.lost(course.connection, number);
        }
    }

    fn on_recovery_metrics(&mut self, course: &mut Course, meta: &ConnectionMeta, event: &RecoveryMetrics<'_>) {
        let now = meta.timestamp.duration_since_start();
        if now.saturating_sub(course.sampled) < SAMPLE || !course.handshake_done || !event.path.is_active {
            return;
        }
        // An estimate from nothing (RFC 9002 §6.2.2), as on a new path, or from one measurement (§5.3) is none yet.
        if event.smoothed_rtt != event.latest_rtt || event.rtt_variance != event.smoothed_rtt / 2 {
            course.sampled = now;
            self.0.metrics.smoothed_rtt.observe(event.smoothed_rtt);
        }
    }
}

/// Numbers of packets that one connection has declared lost, in ascending ranges that do not touch.
#[derive(Debug, Default)]
struct Lost(Vec<Numbers>);

impl Lost {
    /// Packet `number` was declared lost. s2n-quic does so in ascending order.
    fn add(&mut self, number: u64) {
        match self.0.last_mut() {
            Some(last) if number <= last.high => {}
            Some(last) if number == last.high + 1 => last.high = number,
            _ => {
                if self.0.len() >= MAX_RANGES {
                    self.0.remove(0);
                }
                self.0.push(Numbers { low: number, high: number });
            }
        }
    }

    /// How many of the packets in `ranges` had been declared lost. They are not any more.
    fn acknowledge(&mut self, ranges: AckRanges<'_>) -> u64 {
        let mut count = 0;
        // In descending order. What goes below zero is for s2n-quic to complain about.
        for (nth, acknowledged) in ranges.map_while(Result::ok).enumerate() {
            if nth == 0 {
                let old = self.0.partition_point(|lost| lost.high.saturating_add(REMEMBERED) < acknowledged.high);
                self.0.drain(..old);
            }
            if self.0.first().is_none_or(|oldest| acknowledged.high < oldest.low) {
                break;
            }
            count += self.take(acknowledged);
        }
        count
    }

    /// Takes out what lies in `acknowledged`.
    fn take(&mut self, acknowledged: Numbers) -> u64 {
        let Numbers { low, high } = acknowledged;
        let from = self.0.partition_point(|lost| lost.high < low);
        let to = self.0.partition_point(|lost| lost.low <= high);
        let Some([first, .., last] | [first @ last]) = self.0.get(from..to) else { return 0 };
        let below = (first.low < low).then(|| Numbers { low: first.low, high: low - 1 });
        let above = (last.high > high).then(|| Numbers { low: high + 1, high: last.high });
        let taken = self.0.splice(from..to, below.into_iter().chain(above));
        taken.map(|lost| lost.high.min(high) - lost.low.max(low) + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::frame::Frames;
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

    fn acknowledge(lost: &mut Lost, ranges: &[RangeInclusive<u64>]) -> u64 {
        let frame = ack(ranges);
        lost.acknowledge(AckRanges::new(Frames::new(&frame).next().unwrap().body).unwrap())
    }

    fn lost(numbers: impl IntoIterator<Item = u64>) -> Lost {
        let mut lost = Lost::default();
        numbers.into_iter().for_each(|number| lost.add(number));
        lost
    }

    #[test]
    fn what_was_declared_lost_and_is_acknowledged_counts_once() {
        let mut lost = lost([3, 4, 5, 9, 12, 13]);
        assert_eq!(acknowledge(&mut lost, &[0..=2, 6..=8, 10..=11]), 0);
        assert_eq!(acknowledge(&mut lost, &[4..=4, 8..=12]), 3);
        assert_eq!(acknowledge(&mut lost, &[4..=4, 8..=12]), 0);
        assert_eq!(acknowledge(&mut lost, &[0..=20]), 3);
        assert!(lost.0.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_age() {
        let mut lost = lost((0..2000).map(|number| number * 2));
        assert_eq!(lost.0.len(), MAX_RANGES);
        assert_eq!(acknowledge(&mut lost, &[0..=4000]), MAX_RANGES as u64);
        let mut old = self::lost([10, 5000]);
        assert_eq!(acknowledge(&mut old, &[20_000 + REMEMBERED..=20_000 + REMEMBERED]), 0);
        assert!(old.0.is_empty());
    }

    #[test]
    fn a_connection_is_looked_up_only_after_a_loss_and_forgotten_at_its_end() {
        let recovery = Recovery::new(Arc::default());
        let frame = ack(&[1..=9]);
        let ranges = || AckRanges::new(Frames::new(&frame).next().unwrap().body).unwrap();
        let counts = || (recovery.0.metrics.packets_lost.get(), recovery.0.metrics.spurious_losses.get());
        recovery.acknowledged(7, ranges());
        recovery.lost(7, 3);
        recovery.lost(7, 30);
        recovery.acknowledged(8, ranges());
        assert_eq!(counts(), (2, 0));
        recovery.acknowledged(7, ranges());
        assert_eq!(counts(), (2, 1));
        recovery.forget(7);
        assert!(recovery.lock().is_empty() && !recovery.0.any.load(Relaxed));
    }

    proptest! {
        #[test]
        fn as_many_are_found_as_a_set_would_find(
            numbers in btree_set(0u64..300, 0..80),
            acks in proptest::collection::vec(btree_set(0u64..300, 1..60), 1..8),
        ) {
            let mut lost = lost(numbers.iter().copied());
            let mut oracle: BTreeSet<u64> = numbers;
            for acknowledged in acks {
                let ranges: Vec<RangeInclusive<u64>> = acknowledged.iter().map(|&number| number..=number).collect();
                let expected = acknowledged.iter().filter(|number| oracle.remove(number)).count();
                prop_assert_eq!(acknowledge(&mut lost, &ranges), expected as u64);
                let left: BTreeSet<u64> = lost.0.iter().flat_map(|range| range.low..=range.high).collect();
                prop_assert_eq!(&left, &oracle);
                prop_assert!(lost.0.is_sorted_by(|one, next| one.high + 1 < next.low));
            }
        }
    }
}

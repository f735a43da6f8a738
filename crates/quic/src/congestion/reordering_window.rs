//! Decides how long a reduction of the window waits for packets that were declared lost, on a path that has reordered
//! packets: RACK's reordering window (RFC 8985 §6.2, step 4). Only the reduction waits: s2n-quic sends the data of
//! these packets again at once. Pure.

use crate::wire::frame::NumberRange;
use s2n_quic::provider::congestion_controller::Timestamp;
use std::{collections::VecDeque, num::NonZeroU64, time::Duration};

/// Missing packets of a path, 24 bytes each. More at once are no reordering: the oldest one counts as lost.
pub(super) const MAX_MISSING: usize = 1024;
/// Round trips within which a packet that was declared lost counts as late if acknowledged; then it stays lost.
const MAX_LATE_ROUND_TRIPS: u32 = 4;
/// Delay of an acknowledgement, in addition to [`MAX_LATE_ROUND_TRIPS`] (max_ack_delay, RFC 9000 §18.2).
const ASSUMED_MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Part of the longest lateness by which the wait is longer: a quarter. Packets are late by different times.
const SPARE_PART: u32 = 4;
/// Part of the shortest round trip that the wait has at least: a quarter (RACK.reo_wnd_incr, RFC 8985 §6.2, step 4).
const MIN_RTT_PART: u32 = 4;
/// Reductions in a row, without a late packet, after which reductions do not wait any more (RACK.reo_wnd_persist).
const MAX_REDUCTIONS_IN_ORDER: u8 = 16;

/// Time after which a packet that was declared lost stays lost.
pub(super) fn max_lateness(rtt: Duration) -> Duration {
    rtt * MAX_LATE_ROUND_TRIPS + ASSUMED_MAX_ACK_DELAY
}

/// Packets of one path that were declared lost, and the time for which a reduction waits for them.
#[derive(Debug, Clone, Default)]
pub(super) struct ReorderingWindow {
    /// Longest time from the declaration of a loss to the packet's arrival; `None` while the path keeps the order.
    lateness: Option<Duration>,
    /// Packets that were declared lost and have not arrived, in the order of their declaration.
    missing: VecDeque<MissingPacket>,
    /// Time at which the last missing packet was declared lost that `missing` had no place for.
    forgotten: Option<Timestamp>,
    /// Number of packets at the front of `missing` for which the window was reduced, or need not be.
    settled: usize,
    /// Reductions since the last late packet.
    reductions: u8,
}

/// A packet that was declared lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct LostPacket {
    pub(super) sent: Timestamp,
    pub(super) declared_lost: Timestamp,
}

/// A packet that was declared lost and has not arrived.
#[derive(Debug, Clone, Copy)]
struct MissingPacket {
    packet: LostPacket,
    /// Packet number; `None` until the connection has reported it.
    number: Option<NonZeroU64>,
}

const _: () = assert!(size_of::<MissingPacket>() <= 24);

impl ReorderingWindow {
    /// `packet` is declared lost. Returns the packet for which the window must be reduced at once: this one while the
    /// path keeps the order, and the oldest one if too many are missing.
    pub(super) fn on_declared_lost(&mut self, packet: LostPacket) -> Option<LostPacket> {
        let oldest = if self.missing.len() < MAX_MISSING { None } else { self.missing.pop_front() };
        self.forgotten = oldest.map(|missing| missing.packet.declared_lost).or(self.forgotten);
        let must_reduce = oldest.filter(|_| self.settled == 0).map(|missing| missing.packet);
        self.settled -= usize::from(oldest.is_some() && self.settled > 0);
        self.missing.push_back(MissingPacket { packet, number: None });
        if self.lateness.is_none() {
            self.settle_all();
            return Some(packet);
        }
        must_reduce
    }

    /// Sets the number of the packet that was declared lost last.
    pub(super) fn set_number(&mut self, number: NonZeroU64) {
        if let Some(last) = self.missing.back_mut() {
            last.number.get_or_insert(number);
        }
    }

    /// Whether packets are missing.
    pub(super) fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// The packets `arrived` are acknowledged. Returns whether one of them is a late packet.
    pub(super) fn on_arrived(&mut self, arrived: &[NumberRange], now: Timestamp, rtt: Duration) -> bool {
        let stay_lost = |missing: &&MissingPacket| missing.age(now) > max_lateness(rtt);
        let stay_lost = self.missing.iter().take(self.settled).take_while(stay_lost).count();
        self.missing.drain(..stay_lost);
        self.settled -= stay_lost;
        if arrived.is_empty() {
            return false;
        }
        let (mut late, mut place, settled) = (None, 0, self.settled);
        self.missing.retain(|missing| {
            let is_late = missing.number.is_some_and(|number| arrived.iter().any(|range| range.contains(number.get())));
            if is_late {
                late = late.max(Some(missing.age(now)));
                self.settled -= usize::from(place < settled);
            }
            place += 1;
            !is_late
        });
        if late.is_some() {
            self.lateness = self.lateness.max(late);
            self.reductions = 0;
        }
        late.is_some()
    }

    /// Time for which reductions wait, at most a round trip (RFC 8985 §6.2, step 4); 0 while the path keeps the order.
    pub(super) fn wait(&self, min_rtt: Duration, smoothed_rtt: Duration) -> Duration {
        let longest = |lateness: Duration| (lateness + lateness / SPARE_PART).max(min_rtt / MIN_RTT_PART);
        self.lateness.map_or(Duration::ZERO, longest).min(smoothed_rtt)
    }

    /// Whether a packet that was declared lost at `since` or later is missing for longer than `wait`.
    pub(super) fn is_overdue(&self, since: Timestamp, wait: Duration, now: Timestamp) -> bool {
        self.forgotten.is_some_and(|declared_lost| declared_lost >= since)
            || self.missing.get(self.first_since(since)).is_some_and(|missing| missing.age(now) >= wait)
    }

    /// Next packet that is missing for longer than `wait`: the window must be reduced, if not for an earlier one.
    pub(super) fn next_overdue(&mut self, wait: Duration, now: Timestamp) -> Option<LostPacket> {
        let overdue = self.missing.get(self.settled).filter(|missing| missing.age(now) >= wait)?;
        self.settled += 1;
        Some(overdue.packet)
    }

    /// The window is reduced now: all missing packets were sent before, and show the same congestion (RFC 9002 §7.3.2).
    pub(super) fn on_reduced(&mut self) {
        self.settle_all();
        self.reductions = self.reductions.saturating_add(1);
        if self.reductions >= MAX_REDUCTIONS_IN_ORDER {
            self.lateness = None;
        }
    }

    /// Reductions since `since` are undone: packets that were declared lost since then count again once overdue.
    pub(super) fn on_undone(&mut self, since: Timestamp) {
        self.settled = self.first_since(since);
    }

    fn first_since(&self, since: Timestamp) -> usize {
        self.missing.partition_point(|missing| missing.packet.declared_lost < since)
    }

    fn settle_all(&mut self) {
        self.settled = self.missing.len();
    }
}

impl MissingPacket {
    /// Time since the packet was declared lost.
    fn age(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.packet.declared_lost)
    }
}

#[cfg(test)]
mod tests;

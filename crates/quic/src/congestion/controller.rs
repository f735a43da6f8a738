//! Controls congestion on one path, by CUBIC or s2n-quic's BBR, with litequic's pacing.

use super::{
    bbr::{Bbr, BbrPacketInfo},
    bottleneck_buffer::BottleneckBuffer,
    cubic::Cubic,
    feedback::PathFeedback,
    near_limit::NearLimit,
    pacer::{Pacer, SentPacket},
    published::{PublishedState, PublisherTap, SLOW_START_GAIN},
    reordering_window::{LostPacket, ReorderingWindow},
    rtt::current_rtt,
    undoable_reduction::UndoableReduction,
};
use crate::{
    io::{Moderation, longest_turn},
    wire::frame::NumberRange,
};
use litequic_config::Congestion;
use num_rational::Ratio;
use s2n_quic::provider::congestion_controller::{
    CongestionController, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp,
};
use s2n_quic_core::{event::builder::SlowStartExitCause, recovery::bandwidth::Bandwidth};
use std::{sync::Arc, time::Duration};

/// Pacing rate in windows a round trip, outside slow start (RFC 9002 §7.7): 1.25 uses the whole window in spite of
/// jitter.
const PACING_GAIN: Ratio<u64> = Ratio::new_raw(5, 4);

/// Packets of the initial window after a client's migration: as many as s2n-quic's own (RFC 9002 §7.2).
const MIGRATED_INITIAL_PACKETS: u32 = 10;

/// Largest number of resumptions of slow start on a path after spurious losses. Without a bound, a client that
/// acknowledges packets that it never received could double the window for ever.
const MAX_SLOW_START_RESUMPTIONS: u8 = 8;

/// Factor between two successive round-trip times that marks the end of a pause of the path: packets paced by the
/// longer time are then due at once.
const RTT_DROP_FACTOR: u32 = 4;
/// Largest part of a round trip whose packets leave at once after a late turn of the worker: a quarter.
const CATCH_UP_PART: u32 = 4;

/// Congestion controller of one path: CUBIC or BBR, and a pacer.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    algorithm: Algorithm,
    published: PublishedState,
    pacer: Pacer,
    buffer: BottleneckBuffer,
    near: NearLimit,
    /// No packet was sent on the path yet.
    nothing_sent: bool,
    /// Bytes of the initial window.
    initial_window: u32,
    /// Time of the first packet after the connection was idle, until a packet sent since then is acknowledged.
    restarted_at: Option<Timestamp>,
    max_datagram: u16,
    /// Current round-trip time; 0 before the first measurement.
    round_trip: Duration,
    /// Resumptions of slow start that are left.
    slow_start_resumptions: u8,
    /// Last reduction of CUBIC's window, while undoing it is possible.
    reduction: Option<Box<UndoableReduction>>,
    /// Packets declared lost that may arrive, and the wait of a reduction for them.
    reordering: ReorderingWindow,
    moderation: Moderation,
    feedback: Arc<PathFeedback>,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Cubic(Cubic),
    /// s2n-quic's BBR, boxed: it is large, and rarely configured.
    Bbr(Box<Bbr>),
}

/// State of a packet in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PacketInfo {
    Cubic { sent: Timestamp },
    Bbr(BbrPacketInfo),
}

impl Controller {
    /// A controller for `path`, on which `initial_window` packets may be in flight to begin with.
    pub(crate) fn new(
        congestion: Congestion,
        initial_window: u16,
        path: PathInfo<'_>,
        moderation: Moderation,
        feedback: Arc<PathFeedback>,
    ) -> Self {
        let max_datagram = path.max_datagram_size;
        let window = u32::from(initial_window) * u32::from(max_datagram);
        let algorithm = match congestion {
            Congestion::Cubic => Algorithm::Cubic(Cubic::new(window, max_datagram)),
            Congestion::Bbr => Algorithm::Bbr(Box::new(Bbr::new(window, path))),
        };
        Self {
            algorithm,
            published: PublishedState::default(),
            pacer: Pacer::default(),
            buffer: BottleneckBuffer::default(),
            near: NearLimit::default(),
            nothing_sent: true,
            initial_window: window,
            restarted_at: None,
            max_datagram,
            round_trip: Duration::ZERO,
            slow_start_resumptions: MAX_SLOW_START_RESUMPTIONS,
            reduction: None,
            reordering: ReorderingWindow::default(),
            moderation,
            feedback,
        }
    }

    /// Limits a path to which a client has migrated to ten packets before the first acknowledgement: the client's
    /// address may be forged (RFC 9000 §9.3.1).
    fn limit_unvalidated_path(&mut self) {
        let (datagram, window) = (self.max_datagram, MIGRATED_INITIAL_PACKETS * u32::from(self.max_datagram));
        if self.congestion_window() > window {
            self.algorithm = match self.algorithm {
                Algorithm::Cubic(_) => Algorithm::Cubic(Cubic::new(window, datagram)),
                Algorithm::Bbr(_) => Algorithm::Bbr(Box::new(Bbr::for_unknown_path(window, datagram))),
            };
        }
    }

    /// `packet` is lost, and no reduction of CUBIC's window waits for it. `lost_bytes` of it count as in flight.
    fn on_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet: LostPacket,
        persistent: bool,
        now: Timestamp,
        publisher: &mut Pub,
    ) {
        let before = self.save_state(packet.declared_lost);
        let Algorithm::Cubic(cubic) = &mut self.algorithm else { return };
        let reduced = cubic.on_packet_lost(lost_bytes, packet.sent, persistent, now);
        self.published.publish_cubic(cubic, SlowStartExitCause::PacketLoss, publisher);
        if reduced {
            self.near.on_loss();
            self.reordering.on_reduced();
            let earlier = self.reduction.take();
            // Persistent congestion is never undone.
            self.reduction =
                before.filter(|_| !persistent).map(|before| Box::new(before).join_earlier(earlier, self.round_trip));
            self.buffer.on_congestion();
        }
        self.pacer.limit_burst(self.buffer.burst_limit());
    }

    /// An acknowledgement came while packets are missing that were declared lost; `arrived` are those that it reports.
    #[cold]
    #[inline(never)]
    fn review_missing<Pub: Publisher>(
        &mut self,
        arrived: &[NumberRange],
        rtt: &RttEstimator,
        now: Timestamp,
        publisher: &mut Pub,
    ) {
        self.name_missing();
        let is_late = self.reordering.on_arrived(arrived, now, self.round_trip);
        let wait = self.reordering.wait(rtt.min_rtt(), rtt.smoothed_rtt());
        let is_spurious = |reduction: &UndoableReduction| {
            let since = reduction.declared_lost;
            reduction.may_be_spurious(now, self.round_trip) && !self.reordering.is_overdue(since, wait, now)
        };
        if is_late && self.reduction.as_deref().is_some_and(is_spurious) {
            self.undo_reduction();
        }
        while let Some(packet) = self.reordering.next_overdue(wait, now) {
            self.on_lost(0, packet, false, now, publisher);
        }
    }

    /// Sets the number of the packet that was declared lost last: it is known after s2n-quic's call for that packet.
    fn name_missing(&mut self) {
        if let Some(number) = self.feedback.take_lost_number() {
            self.reordering.set_number(number);
        }
    }

    /// Undoes CUBIC's reduction, which was spurious. The window's growth since then is lost.
    fn undo_reduction(&mut self) {
        let (Some(undo), Algorithm::Cubic(cubic)) = (self.reduction.take(), &mut self.algorithm) else { return };
        let UndoableReduction { cubic: before, buffer, declared_lost: since } = *undo;
        let slow_start = before.is_slow_start();
        if before.window_bytes() <= cubic.window_bytes() || (slow_start && self.slow_start_resumptions == 0) {
            return;
        }
        self.slow_start_resumptions -= u8::from(slow_start);
        cubic.restore_state(before);
        self.reordering.on_undone(since);
        (self.published.slow_start, self.buffer) = (slow_start, buffer);
        self.feedback.metrics.reductions_undone.increment();
    }

    /// CUBIC's state at present, which undoing a reduction for a packet that was declared lost at `declared_lost`
    /// restores.
    #[cold]
    #[inline(never)]
    fn save_state(&self, declared_lost: Timestamp) -> Option<UndoableReduction> {
        let Algorithm::Cubic(cubic) = &self.algorithm else { return None };
        Some(UndoableReduction { cubic: cubic.clone(), buffer: self.buffer, declared_lost })
    }
}

impl CongestionController for Controller {
    type PacketInfo = PacketInfo;

    fn congestion_window(&self) -> u32 {
        #[cfg(feature = "laboratory")]
        if let Some(window) = super::laboratory::window() {
            return window;
        }
        match &self.algorithm {
            Algorithm::Cubic(cubic) => {
                self.near.limit.map_or(cubic.window_bytes(), |limit| limit.min(cubic.window_bytes()))
            }
            Algorithm::Bbr(bbr) => bbr.inner.congestion_window(),
        }
    }

    fn bytes_in_flight(&self) -> u32 {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.in_flight,
            Algorithm::Bbr(bbr) => bbr.inner.bytes_in_flight(),
        }
    }

    fn is_congestion_limited(&self) -> bool {
        let limited = match &self.algorithm {
            Algorithm::Cubic(cubic) => {
                self.congestion_window().saturating_sub(cubic.in_flight) < self.max_datagram.into()
            }
            Algorithm::Bbr(bbr) => bbr.inner.is_congestion_limited(),
        };
        limited || self.pacer.is_burst_over(self.bytes_in_flight(), self.max_datagram.into())
    }

    fn requires_fast_retransmission(&self) -> bool {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.may_send_one(),
            Algorithm::Bbr(bbr) => bbr.inner.requires_fast_retransmission(),
        }
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        rtt_estimator: &RttEstimator,
        publisher: &mut Pub,
    ) -> PacketInfo {
        // The first packets of a connection are Initial packets, for which it is unknown whether the application limits
        // them.
        if std::mem::take(&mut self.nothing_sent) && app_limited.is_some() {
            self.limit_unvalidated_path();
        }
        let (in_flight, window) = (self.bytes_in_flight(), self.congestion_window());
        // Packets of the handshake have grown the window, too.
        if in_flight == 0 && window > 2 * self.initial_window {
            self.restarted_at = Some(time_sent);
        }
        // Before the first measurement the round-trip time is a guess.
        let round_trip = if self.round_trip.is_zero() { rtt_estimator.smoothed_rtt() } else { self.round_trip };
        let Self { algorithm, published, pacer, restarted_at, max_datagram, moderation, buffer, feedback, .. } = self;
        let bytes = u32::try_from(sent_bytes).unwrap_or(u32::MAX);
        let info = match algorithm {
            Algorithm::Cubic(cubic) => {
                // A packet with only ACK frames has no bytes that count.
                if bytes > 0 {
                    cubic.on_packet_sent(time_sent, bytes, app_limited);
                }
                PacketInfo::Cubic { sent: time_sent }
            }
            Algorithm::Bbr(bbr) => {
                let tap = &mut PublisherTap { published, publisher };
                PacketInfo::Bbr(bbr.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, tap))
            }
        };
        if bytes > 0 {
            let sent = SentPacket {
                now: time_sent,
                bytes,
                in_flight,
                round_trip,
                max_datagram: (*max_datagram).into(),
                max_lateness: match moderation.lateness() {
                    Duration::ZERO => moderation.period(),
                    // After a late turn, missed bursts leave at once, as far as the path and its buffer allow.
                    late => late
                        .min(round_trip / CATCH_UP_PART)
                        .min(buffer.burst_limit().unwrap_or(late))
                        .max(moderation.period()),
                },
            };
            // The pacer evaluates the rate once a burst.
            let rate = || {
                feedback.record_burst(published.slow_start);
                match algorithm {
                    // BBR's rate includes the gain.
                    Algorithm::Bbr(_) if let Some(rate) = published.rate => rate,
                    _ => {
                        // After a pause the window does not double within the round trip, and the path's buffer need
                        // not hold half of the window.
                        let in_slow_start = published.slow_start && restarted_at.is_none();
                        let gain = if in_slow_start { SLOW_START_GAIN } else { PACING_GAIN };
                        // A Bandwidth times a Ratio would reduce fractions, which costs more.
                        Bandwidth::new(u64::from(window) * gain.numer() / gain.denom(), sent.round_trip)
                    }
                }
            };
            pacer.on_packet_sent(sent, rate);
        }
        info
    }

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        now: Timestamp,
        rtt_estimator: &RttEstimator,
        publisher: &mut Pub,
    ) {
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => {
                cubic.on_rtt_update(time_sent, now, rtt_estimator.latest_rtt());
                self.published.publish_cubic(cubic, SlowStartExitCause::Rtt, publisher);
            }
            Algorithm::Bbr(bbr) => {
                let tap = &mut PublisherTap { published: &mut self.published, publisher };
                bbr.inner.on_rtt_update(time_sent, now, rtt_estimator, tap);
            }
        }
        let rtt = current_rtt(rtt_estimator.smoothed_rtt(), rtt_estimator.latest_rtt());
        if self.round_trip.is_zero() || rtt * RTT_DROP_FACTOR < self.round_trip {
            self.pacer.on_rtt_changed(rtt);
        }
        self.round_trip = rtt;
        self.buffer.on_rtt_measured(rtt, rtt_estimator.min_rtt());
        let burst_limit = self.buffer.burst_limit();
        self.pacer.limit_burst(burst_limit);
        self.moderation.count_path(longest_turn(rtt, burst_limit, self.congestion_window(), self.max_datagram));
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        newest_acked_time_sent: Timestamp,
        bytes_acknowledged: usize,
        newest_acked_packet_info: PacketInfo,
        rtt_estimator: &RttEstimator,
        random_generator: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        publisher: &mut Pub,
    ) {
        let (sent, now) = (newest_acked_time_sent, ack_receive_time);
        let arrived = self.feedback.take_arrived();
        if self.reordering.has_missing() {
            self.review_missing(&arrived, rtt_estimator, now, publisher);
        }
        if self.restarted_at.is_some_and(|restarted_at| sent >= restarted_at) {
            self.restarted_at = None;
        }
        let Self { algorithm, published, pacer, near, max_datagram, .. } = self;
        let bytes = u32::try_from(bytes_acknowledged).unwrap_or(u32::MAX);
        match (algorithm, newest_acked_packet_info) {
            (Algorithm::Cubic(cubic), _) => {
                cubic.on_ack(sent, bytes, rtt_estimator.smoothed_rtt(), now);
                near.on_bytes_delivered(sent, now, bytes, rtt_estimator.min_rtt(), *max_datagram);
                published.publish_cubic(cubic, SlowStartExitCause::Other, publisher);
            }
            (Algorithm::Bbr(bbr), PacketInfo::Bbr(info)) => {
                let tap = &mut PublisherTap { published, publisher };
                if let Some((bytes, info)) = bbr.admit_ack(bytes_acknowledged, info, rtt_estimator, now) {
                    bbr.inner.on_ack(sent, bytes, info, rtt_estimator, random_generator, now, tap);
                }
            }
            // A path keeps its controller.
            (Algorithm::Bbr(_), PacketInfo::Cubic { .. }) => {}
        }
        pacer.on_ack(now, bytes, (*max_datagram).into(), !published.slow_start);
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: PacketInfo,
        persistent_congestion: bool,
        new_loss_burst: bool,
        random_generator: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        publisher: &mut Pub,
    ) {
        let (persistent, burst) = (persistent_congestion, new_loss_burst);
        self.name_missing();
        match (&mut self.algorithm, packet_info) {
            (Algorithm::Cubic(cubic), PacketInfo::Cubic { sent }) => {
                let packet = LostPacket { sent, declared_lost: timestamp };
                match self.reordering.on_declared_lost(packet) {
                    None if !persistent => {
                        cubic.on_loss_awaited(lost_bytes);
                        self.feedback.metrics.reductions_awaited.increment();
                    }
                    lost => self.on_lost(lost_bytes, lost.unwrap_or(packet), persistent, timestamp, publisher),
                }
            }
            (Algorithm::Bbr(bbr), PacketInfo::Bbr(info)) => {
                let tap = &mut PublisherTap { published: &mut self.published, publisher };
                if let Some((bytes, info)) = bbr.admit_loss(lost_bytes, info, persistent) {
                    bbr.inner.on_packet_lost(bytes, info, false, burst, random_generator, timestamp, tap);
                }
                self.buffer.on_congestion();
                self.pacer.limit_burst(self.buffer.burst_limit());
            }
            // A path keeps its controller.
            (Algorithm::Cubic(_), PacketInfo::Bbr(_)) | (Algorithm::Bbr(_), PacketInfo::Cubic { .. }) => {}
        }
    }

    fn on_explicit_congestion<Pub: Publisher>(&mut self, ce_count: u64, event_time: Timestamp, publisher: &mut Pub) {
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => {
                cubic.on_congestion(event_time);
                self.published.publish_cubic(cubic, SlowStartExitCause::Ecn, publisher);
            }
            Algorithm::Bbr(bbr) => {
                let tap = &mut PublisherTap { published: &mut self.published, publisher };
                bbr.inner.on_explicit_congestion(ce_count, event_time, tap);
            }
        }
        // A router reported congestion (ECN): packets that arrive do not make the reduction spurious.
        self.reduction = None;
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, publisher: &mut Pub) {
        self.max_datagram = max_data_size;
        self.reduction = None;
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.on_mtu_update(max_data_size),
            Algorithm::Bbr(bbr) => {
                let tap = &mut PublisherTap { published: &mut self.published, publisher };
                bbr.max_datagram = max_data_size;
                bbr.inner.on_mtu_update(max_data_size, tap);
            }
        }
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, publisher: &mut Pub) {
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.on_packet_discarded(u32::try_from(bytes_sent).unwrap_or(u32::MAX)),
            Algorithm::Bbr(bbr) => {
                let tap = &mut PublisherTap { published: &mut self.published, publisher };
                bbr.inner.on_packet_discarded(bbr.bound_in_flight(bytes_sent), tap);
            }
        }
    }

    /// `None` if the window is full: an acknowledgement decides what leaves next, and a timer would wake the worker in
    /// vain.
    fn earliest_departure_time(&self) -> Option<Timestamp> {
        if self.is_congestion_limited() { None } else { self.pacer.next_send_time() }
    }
}

#[cfg(test)]
pub(super) mod tests;

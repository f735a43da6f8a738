//! The wrapper of s2n-quic's CUBIC, as it was: the oracle of the differential test.

use super::{
    bbr::{self, Bbr},
    buffer::BottleneckBuffer,
    feedback::PathFeedback,
    pacer::{Pacer, SentPacket},
    published::{PublishedState, PublisherTap, SLOW_START_GAIN},
    rtt::round_trip,
    undo::UndoableReduction,
};
use crate::{
    config::Congestion,
    quic::io::{Moderation, longest_turn},
};
use num_rational::Ratio;
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint as _, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp, cubic,
};
use s2n_quic_core::recovery::{CubicCongestionController, bandwidth::Bandwidth};
use std::{sync::Arc, time::Duration};

/// Packets leave at 1.25 windows a round trip (RFC 9002 §7.7): the window is used in full in spite of jitter.
const PACING_GAIN: Ratio<u64> = Ratio::new_raw(5, 4);

/// Packets that may be in flight at first after a client's migration: s2n-quic's own initial window (RFC 9002 §7.2).
const MIGRATED_INITIAL_PACKETS: u32 = 10;

/// Resumptions of slow start on a path after spurious losses. Without a bound a client that acknowledges what it never
/// received could double the window for ever.
const MAX_SLOW_START_RESUMPTIONS: u8 = 8;

/// Packets that may be missing in a window that counts as used, as pacing interrupts sending: s2n-quic's own measure.
const APP_LIMITED_PACKETS: u32 = 3;

/// Factor by which a round-trip time is shorter than the one before where it follows a pause of the path: packets paced
/// by the longer one are due at once.
const RTT_DROP_FACTOR: u32 = 4;
/// Part of a round trip that leaves at once behind a worker that came late, a quarter at most.
const CATCH_UP_PART: u32 = 4;

/// The congestion controller of one path: see the [module](super).
#[derive(Debug, Clone)]
pub(in crate::quic) struct FormerController {
    algorithm: Algorithm,
    published: PublishedState,
    pacer: Pacer,
    buffer: BottleneckBuffer,
    /// Nothing was sent on the path.
    nothing_sent: bool,
    /// Bytes of the initial window.
    initial: u32,
    /// When the first packet left after the connection was idle, until a packet that was sent since then is
    /// acknowledged.
    restarted_at: Option<Timestamp>,
    /// When CUBIC reduced its window last.
    reduced: Option<Timestamp>,
    /// W_est of CUBIC's congestion avoidance (RFC 9438 §4.3).
    reno_estimate: Option<FormerRenoEstimate>,
    /// Most bytes in flight since the last reduction. CUBIC's window is half as much again at most, as in s2n-quic, so
    /// that a window which pacing or the processor limits does not grow for ever.
    max_in_flight: u32,
    /// The application had too little for the window when it sent last.
    app_limited: bool,
    max_datagram: u16,
    /// The current round-trip time; 0 before it is measured.
    round_trip: Duration,
    /// Resumptions of slow start that are left.
    slow_starts: u8,
    /// The last reduction of CUBIC's window, as long as it can be undone.
    undo: Option<Box<UndoableReduction<SavedState>>>,
    moderation: Moderation,
    feedback: Arc<PathFeedback>,
}

/// State that a reduction of CUBIC's window changes.
#[derive(Debug, Clone)]
struct SavedState {
    cubic: CubicCongestionController,
    slow_start: bool,
    buffer: BottleneckBuffer,
    reduced: Option<Timestamp>,
    reno_estimate: Option<FormerRenoEstimate>,
    max_in_flight: u32,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Cubic(CubicCongestionController),
    /// s2n-quic's BBR, boxed: it is large, and rarely configured.
    Bbr(Box<Bbr>),
}

/// State of a packet in flight.
#[derive(Debug, Clone, Copy)]
pub(in crate::quic) enum FormerPacketInfo {
    Cubic { sent: Timestamp },
    Bbr(bbr::BbrPacketInfo),
}

/// Evaluates an expression with the controller of either algorithm.
macro_rules! either {
    ($algorithm:expr, $inner:ident => $body:expr) => {
        match $algorithm {
            Algorithm::Cubic($inner) => $body,
            Algorithm::Bbr($inner) => $body,
        }
    };
}

impl FormerController {
    /// A controller for `path`, on which `initial_window` packets may be in flight to begin with.
    pub(in crate::quic) fn new(
        congestion: Congestion,
        initial_window: u16,
        path: PathInfo<'_>,
        (moderation, feedback): (Moderation, Arc<PathFeedback>),
    ) -> Self {
        let max_datagram = path.max_datagram_size;
        let window = u32::from(initial_window) * u32::from(max_datagram);
        let algorithm = match congestion {
            Congestion::Cubic => {
                let mut cubic = cubic::Builder::default().with_initial_congestion_window(window).build();
                Algorithm::Cubic(cubic.new_congestion_controller(path))
            }
            Congestion::Bbr => Algorithm::Bbr(Box::new(Bbr::new(window, path))),
        };
        let (published, pacer, buffer, reduced) = Default::default();
        let (reno_estimate, restarted_at, undo, max_in_flight, app_limited, nothing_sent) =
            (None, None, None, 0, true, true);
        Self {
            algorithm,
            published,
            pacer,
            buffer,
            nothing_sent,
            initial: window,
            restarted_at,
            reduced,
            reno_estimate,
            max_in_flight,
            app_limited,
            max_datagram,
            round_trip: Duration::ZERO,
            slow_starts: MAX_SLOW_START_RESUMPTIONS,
            undo,
            moderation,
            feedback,
        }
    }

    /// A client has migrated to the path: its address may be forged (RFC 9000 §9.3.1), and it gets ten packets at most
    /// before one is acknowledged.
    fn limit_unvalidated_path(&mut self) {
        if self.congestion_window() > MIGRATED_INITIAL_PACKETS * u32::from(self.max_datagram) {
            let datagram = self.max_datagram;
            self.algorithm = match self.algorithm {
                Algorithm::Cubic(_) => Algorithm::Cubic(CubicCongestionController::new(datagram, <_>::default())),
                Algorithm::Bbr(_) => Algorithm::Bbr(Box::new(Bbr::for_unknown_path(
                    MIGRATED_INITIAL_PACKETS * u32::from(datagram),
                    datagram,
                ))),
            };
        }
    }

    /// Bytes that the window has room for.
    fn room(&self) -> u32 {
        self.congestion_window().saturating_sub(self.bytes_in_flight())
    }

    /// CUBIC reduced its window from `window` bytes.
    fn reduced(&mut self, window: u32, now: Timestamp) {
        self.reduced = Some(now);
        self.max_in_flight = 0;
        self.reno_estimate = Some(FormerRenoEstimate::reduced(window, self.max_datagram.into()));
    }

    /// Packets that were declared lost have arrived, `packets` in number.
    #[cold]
    #[inline(never)]
    fn on_spurious_losses<Pub: Publisher>(
        &mut self,
        packets: u32,
        now: Timestamp,
        rtt: &RttEstimator,
        publisher: &mut Pub,
    ) {
        let round_trip = self.round_trip;
        if self.undo.as_mut().is_some_and(|undo| undo.on_arrived(packets, now, round_trip)) {
            self.undo(now, rtt, publisher);
        }
    }

    /// Undoes CUBIC's reduction, which was spurious. The growth since then is lost.
    fn undo<Pub: Publisher>(&mut self, now: Timestamp, rtt_estimator: &RttEstimator, publisher: &mut Pub) {
        let in_flight = self.bytes_in_flight();
        let (Some(undo), Algorithm::Cubic(inner)) = (self.undo.take(), &mut self.algorithm) else { return };
        let SavedState { mut cubic, slow_start, buffer, reduced, reno_estimate, max_in_flight } = undo.into_saved();
        if cubic.congestion_window() <= inner.congestion_window() || (slow_start && self.slow_starts == 0) {
            return;
        }
        self.slow_starts -= u8::from(slow_start);
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        match in_flight.checked_sub(cubic.bytes_in_flight()) {
            Some(0) => {}
            Some(more) => cubic.on_packet_sent(now, more as usize, Some(self.app_limited), rtt_estimator, tap),
            None => cubic.on_packet_discarded((cubic.bytes_in_flight() - in_flight) as usize, tap),
        }
        *inner = cubic;
        self.published.slow_start = slow_start;
        (self.buffer, self.reduced, self.reno_estimate) = (buffer, reduced, reno_estimate);
        self.max_in_flight = self.max_in_flight.max(max_in_flight);
        self.feedback.count_undone();
    }

    /// The state to which an undone reduction returns; `None` while CUBIC recovers, when there is none to undo.
    #[cold]
    #[inline(never)]
    fn before(&self) -> Option<SavedState> {
        let Algorithm::Cubic(cubic) = &self.algorithm else { return None };
        (!cubic.requires_fast_retransmission()).then(|| SavedState {
            cubic: cubic.clone(),
            slow_start: self.published.slow_start,
            buffer: self.buffer,
            reduced: self.reduced,
            reno_estimate: self.reno_estimate,
            max_in_flight: self.max_in_flight,
        })
    }
}

impl CongestionController for FormerController {
    type PacketInfo = FormerPacketInfo;

    fn congestion_window(&self) -> u32 {
        #[cfg(feature = "laboratory")]
        if let Some(window) = super::laboratory::window() {
            return window;
        }
        let window = either!(&self.algorithm, inner => inner.congestion_window());
        self.reno_estimate.map_or(window, |reno_estimate| window.max(reno_estimate.window()))
    }

    fn bytes_in_flight(&self) -> u32 {
        either!(&self.algorithm, inner => inner.bytes_in_flight())
    }

    fn is_congestion_limited(&self) -> bool {
        let limited = match &self.algorithm {
            Algorithm::Cubic(_) => self.room() < self.max_datagram.into(),
            Algorithm::Bbr(inner) => inner.is_congestion_limited(),
        };
        limited || self.pacer.is_burst_over(self.bytes_in_flight(), self.max_datagram.into())
    }

    fn requires_fast_retransmission(&self) -> bool {
        either!(&self.algorithm, inner => inner.requires_fast_retransmission())
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        rtt_estimator: &RttEstimator,
        publisher: &mut Pub,
    ) -> FormerPacketInfo {
        // The first packets of a connection are Initial packets, for which it is unknown whether the application limits
        // them.
        if std::mem::take(&mut self.nothing_sent) && app_limited.is_some() {
            self.limit_unvalidated_path();
        }
        let (in_flight, window) = (self.bytes_in_flight(), self.congestion_window());
        // The handshake's packets grow the window, too.
        if in_flight == 0 && window > 2 * self.initial {
            self.restarted_at = Some(time_sent);
        }
        // A guess, before it is measured.
        let round_trip = if self.round_trip.is_zero() { rtt_estimator.smoothed_rtt() } else { self.round_trip };
        let Self { algorithm, published, pacer, restarted_at, max_datagram, moderation, buffer, feedback, .. } = self;
        let tap = &mut PublisherTap { published, publisher };
        let info = match algorithm {
            Algorithm::Cubic(inner) => {
                inner.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, tap);
                FormerPacketInfo::Cubic { sent: time_sent }
            }
            Algorithm::Bbr(inner) => {
                FormerPacketInfo::Bbr(inner.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, tap))
            }
        };
        if sent_bytes > 0 {
            let room = window.saturating_sub(either!(algorithm, inner => inner.bytes_in_flight()));
            self.app_limited = app_limited != Some(false) && room > APP_LIMITED_PACKETS * u32::from(*max_datagram);
            let sent = SentPacket {
                now: time_sent,
                bytes: u32::try_from(sent_bytes).unwrap_or(u32::MAX),
                in_flight,
                round_trip,
                max_datagram: (*max_datagram).into(),
                late: match moderation.lateness() {
                    Duration::ZERO => moderation.period(),
                    // A late worker makes up for missed bursts, as far as the path and its buffer allow.
                    late => late
                        .min(round_trip / CATCH_UP_PART)
                        .min(buffer.burst_limit().unwrap_or(late))
                        .max(moderation.period()),
                },
            };
            let gain = || if published.slow_start { SLOW_START_GAIN } else { PACING_GAIN };
            // Read once a burst.
            let rate = || {
                feedback.set_slow_start(published.slow_start);
                match algorithm {
                    // Its rate includes its gain.
                    Algorithm::Bbr(_) if let Some(rate) = published.rate => rate,
                    _ => {
                        // After a pause nothing doubles within the round trip, and the path's buffer need not hold half
                        // of the window.
                        let gain = if restarted_at.is_some() { PACING_GAIN } else { gain() };
                        // Not a Bandwidth times a Ratio: that reduces fractions.
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
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        either!(&mut self.algorithm, inner => inner.on_rtt_update(time_sent, now, rtt_estimator, tap));
        let rtt = round_trip(rtt_estimator.smoothed_rtt(), rtt_estimator.latest_rtt());
        if self.round_trip.is_zero() || rtt * RTT_DROP_FACTOR < self.round_trip {
            self.pacer.on_rtt_changed(rtt);
        }
        self.round_trip = rtt;
        self.buffer.measured(rtt, rtt_estimator.min_rtt());
        let burst_limit = self.buffer.burst_limit();
        self.pacer.limit_burst(burst_limit);
        self.moderation.path(longest_turn(rtt, burst_limit, self.congestion_window(), self.max_datagram));
    }

    /// s2n-quic reports all that an ACK frame acknowledges at once. Its CUBIC takes that for one acknowledgement, and
    /// in congestion avoidance grows by one step for it: it gets a datagram's bytes at a time.
    fn on_ack<Pub: Publisher>(
        &mut self,
        newest_acked_time_sent: Timestamp,
        bytes_acknowledged: usize,
        newest_acked_packet_info: FormerPacketInfo,
        rtt_estimator: &RttEstimator,
        random_generator: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        publisher: &mut Pub,
    ) {
        let arrived = self.feedback.take();
        if arrived > 0 {
            self.on_spurious_losses(arrived, ack_receive_time, rtt_estimator, publisher);
        }
        let window = self.congestion_window();
        self.max_in_flight = self.max_in_flight.max(self.bytes_in_flight());
        let unused = self.app_limited || window >= self.max_in_flight.saturating_add(self.max_in_flight / 2);
        if self.restarted_at.is_some_and(|restarted_at| newest_acked_time_sent >= restarted_at) {
            self.restarted_at = None;
        }
        let Self { algorithm, published, pacer, reno_estimate, reduced, max_datagram, .. } = self;
        let slow_start = published.slow_start;
        let mut step = if slow_start { bytes_acknowledged } else { usize::from(*max_datagram) };
        let tap = &mut PublisherTap { published, publisher };
        let (sent, now) = (newest_acked_time_sent, ack_receive_time);
        match (algorithm, newest_acked_packet_info) {
            (Algorithm::Cubic(inner), _) => {
                let datagram = u32::from(*max_datagram);
                if !slow_start && !unused && reduced.is_none_or(|reduced| sent > reduced) {
                    let reno_estimate =
                        reno_estimate.get_or_insert_with(|| FormerRenoEstimate::after_slow_start(window, datagram));
                    reno_estimate.on_ack(bytes_acknowledged, datagram);
                }
                // s2n-quic's own W_est divides by the shortest round trip, and behind a full buffer grows faster than
                // TCP's.
                let smoothed = rtt_estimator.smoothed_rtt();
                let estimator = RttEstimator::new(match (reno_estimate, reduced) {
                    (Some(reno_estimate), Some(reduced)) => {
                        let since = now.saturating_duration_since(*reduced);
                        reno_estimate.round_trip(inner.congestion_window(), since, smoothed)
                    }
                    _ => smoothed,
                });
                let mut left = bytes_acknowledged;
                while left > 0 {
                    let (bytes, window) = (left.min(step), inner.congestion_window());
                    left -= bytes;
                    inner.on_ack(sent, bytes, (), &estimator, random_generator, now, tap);
                    // The window is used too little to grow, or recovers, or has reached its target: the rest does not
                    // change it.
                    if inner.congestion_window() == window {
                        step = usize::MAX;
                    }
                }
            }
            (Algorithm::Bbr(inner), FormerPacketInfo::Bbr(info)) => {
                inner.on_ack(sent, bytes_acknowledged, info, rtt_estimator, random_generator, now, tap);
            }
            // A path keeps its controller.
            (Algorithm::Bbr(_), FormerPacketInfo::Cubic { .. }) => {}
        }
        let bytes = u32::try_from(bytes_acknowledged).unwrap_or(u32::MAX);
        pacer.on_ack(now, bytes, (*max_datagram).into(), !published.slow_start);
    }

    /// s2n-quic's CUBIC takes each loss outside a recovery period for congestion, and the period may be over before the
    /// last packets from before it are taken for lost. A loss is congestion if the packet was sent after the last
    /// reduction (RFC 9002 §7.3.2, appendix B.6).
    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: FormerPacketInfo,
        persistent_congestion: bool,
        new_loss_burst: bool,
        random_generator: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        publisher: &mut Pub,
    ) {
        let window = self.congestion_window();
        let before = self.before();
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        let (persistent, burst) = (persistent_congestion, new_loss_burst);
        match (&mut self.algorithm, packet_info) {
            (Algorithm::Cubic(inner), FormerPacketInfo::Cubic { sent })
                if !persistent
                    && self.reduced.is_some_and(|reduced| sent <= reduced)
                    // That ends with a loss of the period itself, which changes nothing else.
                    && !inner.requires_fast_retransmission() =>
            {
                inner.on_packet_discarded(usize::try_from(lost_bytes).unwrap_or(usize::MAX), tap);
            }
            (Algorithm::Cubic(inner), _) => {
                let recovers = inner.requires_fast_retransmission();
                inner.on_packet_lost(lost_bytes, (), persistent, burst, random_generator, timestamp, tap);
                if persistent || (!recovers && inner.requires_fast_retransmission()) {
                    let (earlier, rtt) = (self.undo.take(), self.round_trip);
                    let undo = |before| {
                        Box::new(UndoableReduction::reduce(earlier.map(|earlier| *earlier), before, timestamp, rtt))
                    };
                    self.undo = before.filter(|_| !persistent).map(undo);
                    self.reduced(window, timestamp);
                    self.buffer.on_congestion();
                }
                if persistent {
                    self.reno_estimate = None;
                }
                // RFC 9002 §7.6.2; s2n-quic reports it with the tenth packet from here.
                self.published.slow_start |= persistent;
            }
            (Algorithm::Bbr(inner), FormerPacketInfo::Bbr(info)) => {
                inner.on_packet_lost(lost_bytes, info, persistent, burst, random_generator, timestamp, tap);
                self.buffer.on_congestion();
            }
            (Algorithm::Bbr(_), FormerPacketInfo::Cubic { .. }) => {}
        }
        if let Some(undo) = &mut self.undo {
            undo.on_lost();
        }
        self.pacer.limit_burst(self.buffer.burst_limit());
    }

    fn on_explicit_congestion<Pub: Publisher>(&mut self, ce_count: u64, event_time: Timestamp, publisher: &mut Pub) {
        let (recovers, window) = (self.requires_fast_retransmission(), self.congestion_window());
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        either!(&mut self.algorithm, inner => inner.on_explicit_congestion(ce_count, event_time, tap));
        // A router reports congestion (ECN), whatever has arrived.
        self.undo = None;
        if matches!(self.algorithm, Algorithm::Cubic(_)) && !recovers && self.requires_fast_retransmission() {
            self.reduced(window, event_time);
        }
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, publisher: &mut Pub) {
        self.max_datagram = max_data_size;
        self.undo = None;
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        either!(&mut self.algorithm, inner => inner.on_mtu_update(max_data_size, tap));
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, publisher: &mut Pub) {
        let tap = &mut PublisherTap { published: &mut self.published, publisher };
        either!(&mut self.algorithm, inner => inner.on_packet_discarded(bytes_sent, tap));
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        self.pacer.next_send_time()
    }
}

/// β of RFC 9438 §4.6, in tenths.
const BETA_TENTHS: u32 = 7;
/// The additive increase that is as fair to Reno with that β as one packet a round trip is with a half: 3 (1 - β) / (1
/// + β).
const ALPHA: f64 = 9.0 / 17.0;
/// Packets of the window at least (RFC 9002 §7.2).
const MIN_WINDOW_PACKETS: u32 = 2;
/// Upper bound of the round trip that is reported to s2n-quic's CUBIC, as a multiple of the smoothed one: CUBIC also
/// looks a round trip ahead.
const MAX_RTT_FACTOR: u32 = 4;

/// W_est (RFC 9438 §4.3): the estimate of one path, in one period of congestion avoidance.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormerRenoEstimate {
    /// Packets of the window when the period began.
    initial: u32,
    /// Packets of the window now.
    window: u32,
    max_datagram: u32,
    /// Bytes acknowledged since the window grew.
    acknowledged: f64,
}

impl FormerRenoEstimate {
    /// Congestion reduced `window`, in bytes.
    pub(super) fn reduced(window: u32, max_datagram: u32) -> Self {
        Self::starting_at(packets(window, max_datagram).saturating_mul(BETA_TENTHS) / 10, max_datagram)
    }

    /// Slow start ended with `window`, in bytes, without congestion.
    pub(super) fn after_slow_start(window: u32, max_datagram: u32) -> Self {
        Self::starting_at(packets(window, max_datagram), max_datagram)
    }

    fn starting_at(packets: u32, max_datagram: u32) -> Self {
        let window = packets.max(MIN_WINDOW_PACKETS);
        Self { initial: window, window, max_datagram, acknowledged: 0.0 }
    }

    /// Grows the window by `bytes` that were acknowledged while the path was used in full.
    pub(super) fn on_ack(&mut self, bytes: usize, max_datagram: u32) {
        self.max_datagram = max_datagram;
        self.acknowledged += f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        let a_packet = f64::from(self.window()) / ALPHA;
        if self.acknowledged >= a_packet {
            self.acknowledged = (self.acknowledged - a_packet).min(a_packet);
            self.window = self.window.saturating_add(1);
        }
    }

    /// Bytes of the window.
    pub(super) fn window(&self) -> u32 {
        self.window.saturating_mul(self.max_datagram)
    }

    /// The round-trip time by which s2n-quic's W_est, α × `since` / RTT, grows as this window does. If `window`,
    /// CUBIC's own, is larger by a packet, it follows its curve, and the round-trip time is the smoothed one.
    pub(super) fn round_trip(&self, window: u32, since: Duration, smoothed: Duration) -> Duration {
        if window >= self.window().saturating_add(self.max_datagram) {
            return smoothed;
        }
        let longest = smoothed.saturating_mul(MAX_RTT_FACTOR);
        match self.window - self.initial {
            0 => longest,
            grown => (since.min(longest.saturating_mul(grown)).mul_f64(ALPHA) / grown).clamp(smoothed, longest),
        }
    }
}

fn packets(window: u32, max_datagram: u32) -> u32 {
    window / max_datagram.max(1)
}

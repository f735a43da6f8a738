//! One path's congestion controller: s2n-quic's, with litequic's counting and pacing.

use super::{
    bbr::{self, Bbr},
    buffer::Buffer,
    pacer::{Pacer, Sent},
    published::{Heard, Listening, SLOW_START_GAIN},
    reno_friendly::RenoFriendly,
    rtt::round_trip,
    spurious::Spurious,
    undo::Undo,
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
use std::time::Duration;

/// RFC 9002 §7.7.
const GAIN: Ratio<u64> = Ratio::new_raw(5, 4);

/// Packets that may be in flight at first after a client's migration: RFC 9002 §7.2, s2n-quic's own initial window.
const MOVED: u32 = 10;

/// How often slow start resumes on a path after spurious losses. Otherwise a client that acknowledges what it never
/// received could double the window for ever.
const SLOW_STARTS: u8 = 8;

/// Packets that a window in use may have room for, as pacing interrupts sending: s2n-quic's own measure.
const UNUSED: u32 = 3;

/// A round-trip time that is so many times shorter than the one before follows a pause of the path: packets paced by
/// the longer one are due at once.
const FALL: u32 = 4;
/// Of a round trip, what leaves at once behind a worker that came late.
const MISSED: u32 = 4;

/// See the [module](super).
#[derive(Debug, Clone)]
pub(in crate::quic) struct Controller {
    algorithm: Algorithm,
    heard: Heard,
    pacer: Pacer,
    buffer: Buffer,
    /// The pacing gain that was published last.
    told: Option<Ratio<u64>>,
    /// Nothing was sent on the path.
    fresh: bool,
    /// What the window was then.
    initial: u32,
    /// When the first packet after a pause left, until one that left since then is acknowledged.
    resumed: Option<Timestamp>,
    /// When CUBIC reduced its window last.
    reduced: Option<Timestamp>,
    /// CUBIC's in congestion avoidance.
    friendly: Option<RenoFriendly>,
    /// Most bytes in flight since the last reduction: CUBIC's window is half as much again at most, as in s2n-quic, so
    /// that a window which pacing or the processor limits does not grow for ever.
    in_flight_most: u32,
    /// The application had too little for the window when it sent last.
    under_utilized: bool,
    max_datagram: u16,
    /// The current round-trip time; 0 before it is measured.
    round_trip: Duration,
    /// How often slow start may still resume.
    slow_starts: u8,
    /// CUBIC's last reduction.
    undo: Option<Box<Undo<Before>>>,
    moderation: Moderation,
    spurious: Spurious,
}

/// What a reduction of CUBIC's window changes.
#[derive(Debug, Clone)]
struct Before {
    cubic: CubicCongestionController,
    slow_start: bool,
    buffer: Buffer,
    reduced: Option<Timestamp>,
    friendly: Option<RenoFriendly>,
    in_flight_most: u32,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Cubic(CubicCongestionController),
    /// It is large, and rarely wanted.
    Bbr(Box<Bbr>),
}

/// What is kept of each packet in flight.
#[derive(Debug, Clone, Copy)]
pub(in crate::quic) enum PacketInfo {
    Cubic { sent: Timestamp },
    Bbr(bbr::PacketInfo),
}

/// The same of either algorithm.
macro_rules! either {
    ($algorithm:expr, $inner:ident => $body:expr) => {
        match $algorithm {
            Algorithm::Cubic($inner) => $body,
            Algorithm::Bbr($inner) => $body,
        }
    };
}

impl Controller {
    /// For `path`, on which `initial_window` packets may be in flight to begin with.
    pub(in crate::quic) fn new(
        congestion: Congestion,
        initial_window: u16,
        path: PathInfo<'_>,
        (moderation, spurious): (Moderation, Spurious),
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
        let (heard, pacer, buffer, told, reduced) = Default::default();
        let (friendly, resumed, undo, in_flight_most, under_utilized, fresh) = (None, None, None, 0, true, true);
        Self {
            algorithm,
            heard,
            pacer,
            buffer,
            told,
            fresh,
            initial: window,
            resumed,
            reduced,
            friendly,
            in_flight_most,
            under_utilized,
            max_datagram,
            round_trip: Duration::ZERO,
            slow_starts: SLOW_STARTS,
            undo,
            moderation,
            spurious,
        }
    }

    /// A client has migrated to the path: its address may be forged (RFC 9000 §9.3.1), and it gets ten packets at most
    /// before one is acknowledged.
    fn restrain(&mut self) {
        if self.congestion_window() > MOVED * u32::from(self.max_datagram) {
            let datagram = self.max_datagram;
            self.algorithm = match self.algorithm {
                Algorithm::Cubic(_) => Algorithm::Cubic(CubicCongestionController::new(datagram, <_>::default())),
                Algorithm::Bbr(_) => Algorithm::Bbr(Box::new(Bbr::again(MOVED * u32::from(datagram), datagram))),
            };
        }
    }

    /// Bytes that the window has room for.
    fn room(&self) -> u32 {
        self.congestion_window().saturating_sub(self.bytes_in_flight())
    }

    /// CUBIC reduced its window, which was so large.
    fn reduced(&mut self, window: u32, now: Timestamp) {
        self.reduced = Some(now);
        self.in_flight_most = 0;
        self.friendly = Some(RenoFriendly::reduced(window, self.max_datagram.into()));
    }

    /// So many packets that were declared lost have arrived.
    #[cold]
    #[inline(never)]
    fn arrived<Pub: Publisher>(&mut self, packets: u32, now: Timestamp, rtt: &RttEstimator, publisher: &mut Pub) {
        let round_trip = self.round_trip;
        if self.undo.as_mut().is_some_and(|undo| undo.arrived(packets, now, round_trip)) {
            self.undo(now, rtt, publisher);
        }
    }

    /// CUBIC's reduction was spurious. What grew since then is lost.
    fn undo<Pub: Publisher>(&mut self, now: Timestamp, rtt_estimator: &RttEstimator, publisher: &mut Pub) {
        let in_flight = self.bytes_in_flight();
        let (Some(undo), Algorithm::Cubic(inner)) = (self.undo.take(), &mut self.algorithm) else { return };
        let Before { mut cubic, slow_start, buffer, reduced, friendly, in_flight_most } = undo.into_before();
        if cubic.congestion_window() <= inner.congestion_window() || (slow_start && self.slow_starts == 0) {
            return;
        }
        self.slow_starts -= u8::from(slow_start);
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        match in_flight.checked_sub(cubic.bytes_in_flight()) {
            Some(0) => {}
            Some(more) => cubic.on_packet_sent(now, more as usize, Some(self.under_utilized), rtt_estimator, listening),
            None => cubic.on_packet_discarded((cubic.bytes_in_flight() - in_flight) as usize, listening),
        }
        *inner = cubic;
        self.heard.slow_start = slow_start;
        (self.buffer, self.reduced, self.friendly) = (buffer, reduced, friendly);
        self.in_flight_most = self.in_flight_most.max(in_flight_most);
        self.spurious.undone();
    }

    /// What an undone reduction comes back to; there is none to be undone while CUBIC recovers.
    #[cold]
    #[inline(never)]
    fn before(&self) -> Option<Before> {
        let Algorithm::Cubic(cubic) = &self.algorithm else { return None };
        (!cubic.requires_fast_retransmission()).then(|| Before {
            cubic: cubic.clone(),
            slow_start: self.heard.slow_start,
            buffer: self.buffer,
            reduced: self.reduced,
            friendly: self.friendly,
            in_flight_most: self.in_flight_most,
        })
    }
}

impl CongestionController for Controller {
    type PacketInfo = PacketInfo;

    fn congestion_window(&self) -> u32 {
        #[cfg(feature = "laboratory")]
        if let Some(window) = super::laboratory::window() {
            return window;
        }
        let window = either!(&self.algorithm, inner => inner.congestion_window());
        self.friendly.map_or(window, |friendly| window.max(friendly.window()))
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
    ) -> PacketInfo {
        // The first packets of a connection are Initial packets, for which it is unknown whether the application limits
        // them.
        if std::mem::take(&mut self.fresh) && app_limited.is_some() {
            self.restrain();
        }
        let (in_flight, window) = (self.bytes_in_flight(), self.congestion_window());
        // The handshake's packets grow the window, too.
        if in_flight == 0 && window > 2 * self.initial {
            self.resumed = Some(time_sent);
        }
        // A guess, before it is measured.
        let round_trip = if self.round_trip.is_zero() { rtt_estimator.smoothed_rtt() } else { self.round_trip };
        let Self { algorithm, heard, pacer, told, resumed, max_datagram, moderation, buffer, .. } = self;
        let listening = &mut Listening { heard, publisher };
        let info = match algorithm {
            Algorithm::Cubic(inner) => {
                inner.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, listening);
                PacketInfo::Cubic { sent: time_sent }
            }
            Algorithm::Bbr(inner) => {
                PacketInfo::Bbr(inner.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, listening))
            }
        };
        if sent_bytes > 0 {
            let room = window.saturating_sub(either!(algorithm, inner => inner.bytes_in_flight()));
            self.under_utilized = app_limited != Some(false) && room > UNUSED * u32::from(*max_datagram);
            let sent = Sent {
                now: time_sent,
                bytes: u32::try_from(sent_bytes).unwrap_or(u32::MAX),
                in_flight,
                round_trip,
                max_datagram: (*max_datagram).into(),
                late: match moderation.lateness() {
                    Duration::ZERO => moderation.period(),
                    // A late worker makes up for missed trains, as far as the path and its buffer allow.
                    late => late.min(round_trip / MISSED).min(buffer.share().unwrap_or(late)).max(moderation.period()),
                },
            };
            let gain = || if heard.slow_start { SLOW_START_GAIN } else { GAIN };
            // Read once a train.
            let rate = || match algorithm {
                // Its rate includes its gain.
                Algorithm::Bbr(_) if let Some(rate) = heard.rate => rate,
                _ => {
                    // After a pause nothing doubles within the round trip, and the path's buffer need not hold half of the
                    // window.
                    let gain = if resumed.is_some() { GAIN } else { gain() };
                    // Not a Bandwidth times a Ratio: that reduces fractions.
                    Bandwidth::new(u64::from(window) * gain.numer() / gain.denom(), sent.round_trip)
                }
            };
            pacer.on_packet_sent(sent, rate, |rate, train| {
                // The subscriber reads only the gain, and a train may be two packets.
                let gain = gain();
                if told.replace(gain) != Some(gain) {
                    publisher.on_pacing_rate_updated(rate, train, gain);
                }
            });
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
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        either!(&mut self.algorithm, inner => inner.on_rtt_update(time_sent, now, rtt_estimator, listening));
        let rtt = round_trip(rtt_estimator.smoothed_rtt(), rtt_estimator.latest_rtt());
        if self.round_trip.is_zero() || rtt * FALL < self.round_trip {
            self.pacer.measured(rtt);
        }
        self.round_trip = rtt;
        self.buffer.measured(rtt, rtt_estimator.min_rtt());
        let share = self.buffer.share();
        self.pacer.shorten(share);
        self.moderation.path(longest_turn(rtt, share, self.congestion_window(), self.max_datagram));
    }

    /// s2n-quic reports all that an ACK frame acknowledges at once. Its CUBIC takes that for one acknowledgement, and
    /// in congestion avoidance grows by one step for it: it gets a datagram's bytes at a time.
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
        let arrived = self.spurious.take();
        if arrived > 0 {
            self.arrived(arrived, ack_receive_time, rtt_estimator, publisher);
        }
        let window = self.congestion_window();
        self.in_flight_most = self.in_flight_most.max(self.bytes_in_flight());
        let unused = self.under_utilized || window >= self.in_flight_most.saturating_add(self.in_flight_most / 2);
        if self.resumed.is_some_and(|resumed| newest_acked_time_sent >= resumed) {
            self.resumed = None;
        }
        let Self { algorithm, heard, pacer, friendly, reduced, max_datagram, .. } = self;
        let slow_start = heard.slow_start;
        let mut step = if slow_start { bytes_acknowledged } else { usize::from(*max_datagram) };
        let listening = &mut Listening { heard, publisher };
        let (sent, now) = (newest_acked_time_sent, ack_receive_time);
        match (algorithm, newest_acked_packet_info) {
            (Algorithm::Cubic(inner), _) => {
                let datagram = u32::from(*max_datagram);
                if !slow_start && !unused && reduced.is_none_or(|reduced| sent > reduced) {
                    let friendly = friendly.get_or_insert_with(|| RenoFriendly::after_slow_start(window, datagram));
                    friendly.on_ack(bytes_acknowledged, datagram);
                }
                // s2n-quic's own W_est divides by the shortest round trip, and behind a full buffer grows faster than TCP's.
                let smoothed = rtt_estimator.smoothed_rtt();
                let told = RttEstimator::new(match (friendly, reduced) {
                    (Some(friendly), Some(reduced)) => {
                        let since = now.saturating_duration_since(*reduced);
                        friendly.round_trip(inner.congestion_window(), since, smoothed)
                    }
                    _ => smoothed,
                });
                let mut left = bytes_acknowledged;
                while left > 0 {
                    let (bytes, window) = (left.min(step), inner.congestion_window());
                    left -= bytes;
                    inner.on_ack(sent, bytes, (), &told, random_generator, now, listening);
                    // It is used too little to grow, or recovers, or has reached what it grows to: so has it with the rest.
                    if inner.congestion_window() == window {
                        step = usize::MAX;
                    }
                }
            }
            (Algorithm::Bbr(inner), PacketInfo::Bbr(info)) => {
                inner.on_ack(sent, bytes_acknowledged, info, rtt_estimator, random_generator, now, listening);
            }
            // A path keeps its controller.
            (Algorithm::Bbr(_), PacketInfo::Cubic { .. }) => {}
        }
        let bytes = u32::try_from(bytes_acknowledged).unwrap_or(u32::MAX);
        pacer.on_ack(now, bytes, (*max_datagram).into(), !heard.slow_start);
    }

    /// s2n-quic's CUBIC takes each loss outside a recovery period for congestion, and the period may be over before the last
    /// packets from before it are taken for lost. A loss is congestion if the packet was sent after the last reduction (RFC
    /// 9002 §7.3.2, appendix B.6).
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
        let window = self.congestion_window();
        let before = self.before();
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        let (persistent, burst) = (persistent_congestion, new_loss_burst);
        match (&mut self.algorithm, packet_info) {
            (Algorithm::Cubic(inner), PacketInfo::Cubic { sent })
                if !persistent
                    && self.reduced.is_some_and(|reduced| sent <= reduced)
                    // That ends with a loss of the period itself, which changes nothing else.
                    && !inner.requires_fast_retransmission() =>
            {
                inner.on_packet_discarded(usize::try_from(lost_bytes).unwrap_or(usize::MAX), listening);
            }
            (Algorithm::Cubic(inner), _) => {
                let recovers = inner.requires_fast_retransmission();
                inner.on_packet_lost(lost_bytes, (), persistent, burst, random_generator, timestamp, listening);
                if persistent || (!recovers && inner.requires_fast_retransmission()) {
                    let (earlier, rtt) = (self.undo.take(), self.round_trip);
                    let undo = |before| Box::new(Undo::reduce(earlier.map(|earlier| *earlier), before, timestamp, rtt));
                    self.undo = before.filter(|_| !persistent).map(undo);
                    self.reduced(window, timestamp);
                    self.buffer.overflowed();
                }
                if persistent {
                    self.friendly = None;
                }
                // RFC 9002 §7.6.2; s2n-quic reports it with the tenth packet from here.
                self.heard.slow_start |= persistent;
            }
            (Algorithm::Bbr(inner), PacketInfo::Bbr(info)) => {
                inner.on_packet_lost(lost_bytes, info, persistent, burst, random_generator, timestamp, listening);
                self.buffer.overflowed();
            }
            (Algorithm::Bbr(_), PacketInfo::Cubic { .. }) => {}
        }
        if let Some(undo) = &mut self.undo {
            undo.lost();
        }
        self.pacer.shorten(self.buffer.share());
    }

    fn on_explicit_congestion<Pub: Publisher>(&mut self, ce_count: u64, event_time: Timestamp, publisher: &mut Pub) {
        let (recovers, window) = (self.requires_fast_retransmission(), self.congestion_window());
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        either!(&mut self.algorithm, inner => inner.on_explicit_congestion(ce_count, event_time, listening));
        // A router reports congestion (ECN), whatever has arrived.
        self.undo = None;
        if matches!(self.algorithm, Algorithm::Cubic(_)) && !recovers && self.requires_fast_retransmission() {
            self.reduced(window, event_time);
        }
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, publisher: &mut Pub) {
        self.max_datagram = max_data_size;
        self.undo = None;
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        either!(&mut self.algorithm, inner => inner.on_mtu_update(max_data_size, listening));
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, publisher: &mut Pub) {
        let listening = &mut Listening { heard: &mut self.heard, publisher };
        either!(&mut self.algorithm, inner => inner.on_packet_discarded(bytes_sent, listening));
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        self.pacer.departure()
    }
}

#[cfg(test)]
pub(super) mod tests;

//! Computes the congestion window of a path by CUBIC (RFC 9438), in bytes. Pure: time and the round-trip time are
//! arguments, so that a test may compare windows with the RFC's equations.
//!
//! The window grows with the acknowledged bytes (§4.2), by any number of ACK frames: a step of the curve is `(target −
//! cwnd) / cwnd` packets for each acknowledged packet.

use super::{
    hystart::DelayIncrease,
    reno_friendly::{BETA, MIN_WINDOW_PACKETS, RenoEstimate},
};
use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// C of RFC 9438 §4.1, in packets a second³.
const CUBIC_C: f64 = 0.4;
/// Factor by which the target of a round trip may exceed the window (RFC 9438 §4.2).
const MAX_TARGET_FACTOR: f64 = 1.5;
/// Largest ratio of the window to the most bytes in flight since the last reduction: a window that pacing or the
/// processor limits does not grow for ever.
const MAX_UNUSED_FACTOR: f64 = 1.5;
/// [`MAX_UNUSED_FACTOR`] in slow start, where the window doubles in a round trip.
const MAX_SLOW_START_UNUSED_FACTOR: f64 = 2.0;
/// Packets by which a window may be unused and still count as used, as pacing interrupts sending.
const APP_LIMITED_PACKETS: u32 = 3;
/// Smallest slow-start threshold in packets, and smallest window whose round-trip times end slow start: with fewer
/// packets in flight they are not conclusive (`hystart_low_window` of `net/ipv4/tcp_cubic.c`).
const MIN_THRESHOLD_PACKETS: f64 = 16.0;

/// The window of one path.
#[derive(Debug, Clone)]
pub(super) struct Cubic {
    phase: CubicPhase,
    /// Bytes that may be in flight, including the fraction of a byte that acknowledgements leave.
    window: f64,
    /// The slow-start threshold in bytes; infinite before the first congestion.
    threshold: f64,
    pub(super) in_flight: u32,
    max_datagram: u16,
    /// Bytes of the window before the last reduction, for fast convergence (RFC 9438 §4.7); 0 after persistent
    /// congestion.
    last_w_max: f64,
    last_reduction: Option<WindowReduction>,
    /// Most bytes in flight since the last reduction.
    max_in_flight: u32,
    /// The application had too little data for the window at the last packet.
    app_limited: bool,
    last_sent: Option<Timestamp>,
}

/// Phases of congestion control (RFC 9002 §7.3).
#[derive(Debug, Clone)]
enum CubicPhase {
    SlowStart(DelayIncrease),
    /// Lasts until a packet sent after the reduction is acknowledged (RFC 9002 §7.3.2).
    Recovery {
        /// One packet may leave though the window is full.
        may_send_one: bool,
        /// Growth in the congestion avoidance that follows.
        next: WindowGrowth,
    },
    CongestionAvoidance(AvoidancePeriod),
}

/// The last reduction of the window.
#[derive(Debug, Clone, Copy)]
struct WindowReduction {
    at: Timestamp,
    /// Persistent congestion was the reason (RFC 9002 §7.6.2).
    persistent: bool,
}

/// A period of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct AvoidancePeriod {
    /// Begin of the period, moved by the time for which the application limited sending (RFC 9438 §5.8).
    start: Timestamp,
    /// Last time at which the window could grow.
    grown: Timestamp,
    /// End of the time since `grown` for which the application limited sending.
    limited_until: Option<Timestamp>,
    growth: WindowGrowth,
}

/// The two windows of congestion avoidance, of which the larger one is in force.
#[derive(Debug, Clone, Copy)]
struct WindowGrowth {
    curve: CubicCurve,
    /// W_est (RFC 9438 §4.3).
    reno: RenoEstimate,
}

/// W_cubic (RFC 9438 §4.2).
#[derive(Debug, Clone, Copy)]
struct CubicCurve {
    /// W_max in bytes.
    w_max: f64,
    /// K of RFC 9438 §4.2: seconds until the window is `w_max`.
    k: f64,
    /// C in bytes a second³, by the size of datagrams when the curve began: a change of that size moves no window.
    c: f64,
}

impl CubicCurve {
    /// The curve from `window` bytes to `w_max`.
    fn new(w_max: f64, window: f64, datagram: f64) -> Self {
        let c = CUBIC_C * datagram;
        Self { w_max, k: ((w_max - window).max(0.0) / c).cbrt(), c }
    }

    fn window_at(self, since: Duration) -> f64 {
        self.c * (since.as_secs_f64() - self.k).powi(3) + self.w_max
    }
}

impl AvoidancePeriod {
    fn new(now: Timestamp, growth: WindowGrowth) -> Self {
        Self { start: now, grown: now, limited_until: None, growth }
    }

    /// Time since the period began, at `now`, when the window may grow.
    fn growth_time(&mut self, now: Timestamp) -> Duration {
        if let Some(limited_until) = self.limited_until.take() {
            self.start += limited_until.saturating_duration_since(self.grown);
        }
        self.grown = now;
        now.saturating_duration_since(self.start)
    }
}

impl Cubic {
    /// State of a new path, on which `window` bytes may be in flight.
    pub(super) fn new(window: u32, max_datagram: u16) -> Self {
        Self {
            phase: CubicPhase::SlowStart(DelayIncrease::default()),
            window: f64::from(window).max(f64::from(MIN_WINDOW_PACKETS) * f64::from(max_datagram)),
            threshold: f64::INFINITY,
            in_flight: 0,
            max_datagram,
            last_w_max: 0.0,
            last_reduction: None,
            max_in_flight: 0,
            app_limited: true,
            last_sent: None,
        }
    }

    pub(super) fn window_bytes(&self) -> u32 {
        whole_bytes(self.window)
    }

    /// Whether the window doubles in a round trip.
    pub(super) fn is_slow_start(&self) -> bool {
        matches!(self.phase, CubicPhase::SlowStart(_))
    }

    /// Whether a packet may leave although the window is full: the first after a reduction (RFC 9002 §7.3.2).
    pub(super) fn may_send_one(&self) -> bool {
        matches!(self.phase, CubicPhase::Recovery { may_send_one: true, .. })
    }

    /// A packet of `sent_bytes` leaves. `app_limited` is whether the application has no more data, if known.
    pub(super) fn on_packet_sent(&mut self, now: Timestamp, sent_bytes: u32, app_limited: Option<bool>) {
        let (was_idle, was_limited) = (self.in_flight == 0, self.app_limited);
        self.in_flight = self.in_flight.saturating_add(sent_bytes);
        let window = self.window_bytes();
        let room = window.saturating_sub(self.in_flight);
        let is_half_used = self.is_slow_start() && self.in_flight >= window / 2;
        self.app_limited =
            app_limited != Some(false) && room > APP_LIMITED_PACKETS * u32::from(self.max_datagram) && !is_half_used;
        self.last_sent = Some(now);
        match &mut self.phase {
            CubicPhase::SlowStart(_) => {}
            CubicPhase::Recovery { may_send_one, .. } => *may_send_one = false,
            CubicPhase::CongestionAvoidance(epoch) => {
                // The path was idle, or its window was unused, until now (RFC 9438 §5.8).
                let was_limited = was_limited && !self.app_limited && epoch.limited_until.is_some();
                if was_idle || was_limited {
                    epoch.limited_until = Some(now);
                }
            }
        }
    }

    /// A packet sent at `sent` has measured the round-trip time `rtt`.
    pub(super) fn on_rtt_update(&mut self, sent: Timestamp, now: Timestamp, rtt: Duration) {
        let is_large = self.window >= MIN_THRESHOLD_PACKETS * self.datagram_bytes();
        let CubicPhase::SlowStart(delay) = &mut self.phase else { return };
        if delay.on_rtt(sent, self.last_sent.unwrap_or(sent), rtt) && is_large {
            self.threshold = self.threshold.min(self.window);
        }
        self.leave_slow_start(now);
    }

    /// `acked_bytes` bytes were acknowledged, whose newest packet was sent at `sent`.
    pub(super) fn on_ack(&mut self, sent: Timestamp, acked_bytes: u32, smoothed_rtt: Duration, now: Timestamp) {
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
        self.in_flight = self.in_flight.saturating_sub(acked_bytes);
        if let CubicPhase::Recovery { next, .. } = self.phase
            && self.is_since_reduction(sent)
        {
            self.phase = CubicPhase::CongestionAvoidance(AvoidancePeriod::new(now, next));
        }
        if self.app_limited {
            // RFC 9438 §5.8, RFC 9002 §7.8.
            if let CubicPhase::CongestionAvoidance(epoch) = &mut self.phase {
                epoch.limited_until = Some(now);
            }
            return;
        }
        let datagram = self.datagram_bytes();
        let factor = if self.is_slow_start() { MAX_SLOW_START_UNUSED_FACTOR } else { MAX_UNUSED_FACTOR };
        let most = (f64::from(self.max_in_flight) * factor).max(self.min_window());
        if self.window >= most {
            return;
        }
        match &mut self.phase {
            CubicPhase::SlowStart(_) => {
                self.window = (self.window + f64::from(acked_bytes)).min(most);
                self.leave_slow_start(now);
            }
            CubicPhase::Recovery { .. } => {}
            CubicPhase::CongestionAvoidance(epoch) => {
                let since = epoch.growth_time(now);
                let WindowGrowth { curve, reno } = &mut epoch.growth;
                reno.grow_by_acked(acked_bytes);
                let reno = f64::from(reno.reno_window());
                // W_est is the window where W_cubic is smaller (RFC 9438 §4.3).
                if curve.window_at(since) >= reno {
                    let target =
                        curve.window_at(since + smoothed_rtt).clamp(self.window, self.window * MAX_TARGET_FACTOR);
                    self.window = approach_target(self.window, target, acked_bytes.into(), datagram).min(most);
                }
                self.window = self.window.max(reno);
            }
        }
    }

    /// A packet of `lost_bytes` is declared lost, and the reduction waits.
    pub(super) fn on_loss_awaited(&mut self, lost_bytes: u32) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
    }

    /// A packet sent at `sent` is lost. Returns whether the window is reduced.
    pub(super) fn on_packet_lost(
        &mut self,
        lost_bytes: u32,
        sent: Timestamp,
        persistent: bool,
        now: Timestamp,
    ) -> bool {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        // The loss of a packet sent before the last reduction is part of the same congestion (RFC 9002 §7.3.2).
        let is_new = self.is_since_reduction(sent);
        if !persistent {
            return is_new && self.on_congestion(now);
        }
        // s2n-quic reports persistent congestion for every packet of the period.
        if !is_new && self.last_reduction.is_some_and(|last| last.persistent) {
            return false;
        }
        if is_new {
            self.on_congestion(now);
        }
        // RFC 9002 §7.6.2, RFC 9438 §4.8.
        self.window = self.min_window();
        self.phase = CubicPhase::SlowStart(DelayIncrease::default());
        self.last_reduction = Some(WindowReduction { at: now, persistent });
        (self.last_w_max, self.max_in_flight) = (0.0, 0);
        true
    }

    /// Reduces the window because a router reports congestion or a packet is lost: multiplicative decrease (RFC 9438
    /// §4.6) with fast convergence (§4.7), unless recovery from the last congestion continues. Returns whether the
    /// window is reduced.
    pub(super) fn on_congestion(&mut self, now: Timestamp) -> bool {
        if let CubicPhase::Recovery { .. } = self.phase {
            return false;
        }
        let (datagram, window) = (self.datagram_bytes(), self.window);
        let reduced = (window * BETA).max(self.min_window());
        let w_max = if window < self.last_w_max { window * f64::midpoint(1.0, BETA) } else { window };
        let next = WindowGrowth {
            curve: CubicCurve::new(w_max, reduced, datagram),
            reno: RenoEstimate::after_congestion(whole_bytes(window), self.max_datagram.into()),
        };
        self.last_w_max = window;
        self.window = reduced;
        self.threshold = reduced.max(MIN_THRESHOLD_PACKETS * datagram);
        self.phase = CubicPhase::Recovery { may_send_one: true, next };
        self.last_reduction = Some(WindowReduction { at: now, persistent: false });
        self.max_in_flight = 0;
        true
    }

    /// The size of datagrams on the path changes. Before the first congestion the window keeps its packets, because the
    /// initial window is computed anew (RFC 9002 §7.2); later it keeps its bytes (RFC 8899 §3).
    pub(super) fn on_mtu_update(&mut self, max_datagram: u16) {
        if self.threshold.is_infinite() {
            self.window *= f64::from(max_datagram) / self.datagram_bytes();
        }
        self.max_datagram = max_datagram;
        self.window = self.window.max(self.min_window());
    }

    /// Packets of `discarded_bytes` are discarded: neither lost nor acknowledged.
    pub(super) fn on_packet_discarded(&mut self, discarded_bytes: u32) {
        self.in_flight = self.in_flight.saturating_sub(discarded_bytes);
        // Discarded data is not sent again, so no retransmission may leave.
        if let CubicPhase::Recovery { may_send_one, .. } = &mut self.phase {
            *may_send_one = false;
        }
    }

    /// Restores the state `before` a spurious reduction (RFC 9438 §4.9.2), except for the packets sent and in flight.
    pub(super) fn restore_state(&mut self, before: Self) {
        let max_in_flight = self.max_in_flight.max(before.max_in_flight);
        let Self { in_flight, app_limited, last_sent, .. } = *self;
        *self = Self { in_flight, app_limited, last_sent, max_in_flight, ..before };
    }

    fn datagram_bytes(&self) -> f64 {
        self.max_datagram.max(1).into()
    }

    fn min_window(&self) -> f64 {
        f64::from(MIN_WINDOW_PACKETS) * self.datagram_bytes()
    }

    fn is_since_reduction(&self, sent: Timestamp) -> bool {
        self.last_reduction.is_none_or(|last| sent > last.at)
    }

    /// Enters congestion avoidance once the window has reached the threshold (RFC 9438 §4.10).
    fn leave_slow_start(&mut self, now: Timestamp) {
        if self.is_slow_start() && self.window >= self.threshold {
            let growth = WindowGrowth {
                curve: CubicCurve::new(self.window, self.window, self.datagram_bytes()),
                reno: RenoEstimate::after_slow_start(self.window_bytes(), self.max_datagram.into()),
            };
            self.phase = CubicPhase::CongestionAvoidance(AvoidancePeriod::new(now, growth));
        }
    }
}

/// Window after `acked` bytes: each packet moves the window towards `target` by a part `packet / window` of the
/// distance (RFC 9438 §4.2). The number of steps is the number of packets sent.
fn approach_target(mut window: f64, target: f64, mut acked: f64, datagram: f64) -> f64 {
    while acked > 0.0 {
        let packet = acked.min(datagram);
        window += (target - window) * packet / window;
        acked -= packet;
    }
    window
}

/// Converts a window to whole bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no window is negative, a large one saturates"
)]
fn whole_bytes(window: f64) -> u32 {
    window as u32
}

#[cfg(test)]
mod tests;

//! The window that additive increase and multiplicative decrease would have (RFC 9438 §4.3), in whole packets as Linux
//! counts it (`net/ipv4/tcp_cubic.c`). Where it is larger, it is CUBIC's. Pure.

use std::time::Duration;

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
pub(super) struct RenoEstimate {
    /// Packets of the window when the period began.
    initial: u32,
    /// Packets of the window now.
    window: u32,
    max_datagram: u32,
    /// Bytes acknowledged since the window grew.
    acknowledged: f64,
}

impl RenoEstimate {
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

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u32 = 1_000;

    #[test]
    fn it_grows_by_a_packet_for_every_window_by_alpha_that_is_acknowledged() {
        let mut estimate = RenoEstimate::reduced(30_900, DATAGRAM);
        assert_eq!(estimate.window(), 21_000, "whole packets, before and after");
        let mut grown = Vec::new();
        for _ in 0..40 {
            estimate.on_ack(estimate.window() as usize, DATAGRAM);
            grown.push(estimate.window() / DATAGRAM);
        }
        assert_eq!(grown.iter().copied().max(), Some(21 + 21), "40 round trips by 17/9: {grown:?}");
        assert_eq!(grown.iter().position(|window| *window == 22), Some(1), "{grown:?}");
    }

    #[test]
    fn it_is_two_packets_at_least_and_grows_alike_in_parts() {
        assert_eq!(RenoEstimate::reduced(2_000, DATAGRAM).window(), 2_000);
        assert_eq!(RenoEstimate::reduced(2_000, 0).window(), 0);
        let after_slow_start = || RenoEstimate::after_slow_start(20_000, DATAGRAM);
        let (mut whole, mut parts) = (after_slow_start(), after_slow_start());
        for _ in 0..8 {
            whole.on_ack(20_000, DATAGRAM);
            (0..20).for_each(|_| parts.on_ack(1_000, DATAGRAM));
        }
        assert_eq!((whole.window(), parts.window()), (23_000, 23_000));
        for _ in 0..100 {
            parts.on_ack(usize::MAX, u32::MAX);
        }
        assert_eq!(parts.window(), u32::MAX);
    }

    #[test]
    fn s2n_quics_round_trip_is_one_by_which_its_window_grows_alike() {
        let smoothed = Duration::from_millis(20);
        let mut estimate = RenoEstimate::reduced(20_000, DATAGRAM);
        assert_eq!(estimate.round_trip(14_000, smoothed, smoothed), smoothed * MAX_RTT_FACTOR, "nothing has grown");
        for rounds in 1..=20 {
            estimate.on_ack(estimate.window() as usize, DATAGRAM);
            let grown = estimate.window() - 14_000;
            let since = smoothed * rounds;
            let told = estimate.round_trip(estimate.window(), since, smoothed);
            let its = ALPHA * since.as_secs_f64() / told.as_secs_f64() * f64::from(DATAGRAM);
            assert!(
                its <= f64::from(grown.max(1_000)) + 1.0 && its + 500.0 >= f64::from(grown),
                "{rounds}: {grown}, {its}"
            );
        }
        assert_eq!(estimate.round_trip(estimate.window() + DATAGRAM, smoothed, smoothed), smoothed, "CUBIC's curve");
    }
}

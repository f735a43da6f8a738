//! The window that additive increase and multiplicative decrease would have (RFC 9438 §4.3), in whole packets as Linux
//! counts it (`net/ipv4/tcp_cubic.c`). Where it is larger, it is CUBIC's. Pure.

/// β of RFC 9438 §4.6.
pub(super) const BETA: f64 = 0.7;
/// [`BETA`] in tenths.
const BETA_TENTHS: u32 = 7;
/// The additive increase that is as fair to Reno with that β as one packet a round trip is with a half: 3 (1 - β) / (1
/// + β).
const ALPHA: f64 = 9.0 / 17.0;
/// Packets of the window at least (RFC 9002 §7.2).
pub(super) const MIN_WINDOW_PACKETS: u32 = 2;

/// W_est (RFC 9438 §4.3): the estimate of one path, in one period of congestion avoidance.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenoEstimate {
    /// Packets of the window.
    window: u32,
    /// Bytes of a packet, as large as they were when the period began.
    datagram: u32,
    /// Bytes acknowledged since the window grew.
    acknowledged: f64,
}

impl RenoEstimate {
    /// Congestion reduced `window`, in bytes.
    pub(super) fn reduced(window: u32, datagram: u32) -> Self {
        Self::starting_at(packets(window, datagram).saturating_mul(BETA_TENTHS) / 10, datagram)
    }

    /// Slow start ended with `window`, in bytes, without congestion.
    pub(super) fn after_slow_start(window: u32, datagram: u32) -> Self {
        Self::starting_at(packets(window, datagram), datagram)
    }

    fn starting_at(packets: u32, datagram: u32) -> Self {
        Self { window: packets.max(MIN_WINDOW_PACKETS), datagram, acknowledged: 0.0 }
    }

    /// Grows the window by `bytes` that were acknowledged while the path was used in full.
    pub(super) fn on_ack(&mut self, bytes: u32) {
        self.acknowledged += f64::from(bytes);
        let a_packet = f64::from(self.window()) / ALPHA;
        if self.acknowledged >= a_packet {
            self.acknowledged = (self.acknowledged - a_packet).min(a_packet);
            self.window = self.window.saturating_add(1);
        }
    }

    /// Bytes of the window.
    pub(super) fn window(&self) -> u32 {
        self.window.saturating_mul(self.datagram)
    }
}

fn packets(window: u32, datagram: u32) -> u32 {
    window / datagram.max(1)
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
            estimate.on_ack(estimate.window());
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
            whole.on_ack(20_000);
            (0..20).for_each(|_| parts.on_ack(1_000));
        }
        assert_eq!((whole.window(), parts.window()), (23_000, 23_000));
        let mut large = RenoEstimate::after_slow_start(u32::MAX, u32::MAX / 2);
        (0..4).for_each(|_| large.on_ack(u32::MAX));
        assert_eq!(large.window(), u32::MAX);
    }
}

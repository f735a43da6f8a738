//! Estimates the window that additive increase and multiplicative decrease would have (RFC 9438 §4.3), in whole packets
//! as Linux does (`net/ipv4/tcp_cubic.c`). CUBIC uses the estimate if it is larger. Pure.

/// β of RFC 9438 §4.6.
pub(super) const BETA: f64 = 0.7;
/// [`BETA`] in tenths.
const BETA_TENTHS: u32 = 7;
/// α, in packets a round trip: 3 (1 - β) / (1 + β) is as fair to Reno with this β as one packet with a β of one half.
const ALPHA: f64 = 9.0 / 17.0;
/// α of a window of at least [`RenoEstimate::prior`]: that of Reno.
const ALPHA_ABOVE: f64 = 1.0;
/// Smallest window in packets (RFC 9002 §7.2).
pub(super) const MIN_WINDOW_PACKETS: u32 = 2;

/// W_est (RFC 9438 §4.3): the estimate of one path, in one period of congestion avoidance.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenoEstimate {
    /// Packets of the window.
    window: u32,
    /// cwnd_prior: packets of the window at the last change of the slow-start threshold.
    prior: u32,
    /// Bytes of a packet when the period began.
    datagram: u32,
    /// Bytes acknowledged since the window grew last.
    acknowledged: f64,
}

impl RenoEstimate {
    /// An estimate after congestion reduced `window`, in bytes.
    pub(super) fn after_congestion(window: u32, datagram: u32) -> Self {
        let prior = whole_packets(window, datagram);
        Self::starting_at(prior.saturating_mul(BETA_TENTHS) / 10, prior, datagram)
    }

    /// An estimate after slow start ended with `window`, in bytes, without congestion (RFC 9438 §4.10).
    pub(super) fn after_slow_start(window: u32, datagram: u32) -> Self {
        let prior = whole_packets(window, datagram);
        Self::starting_at(prior, prior, datagram)
    }

    fn starting_at(packets: u32, prior: u32, datagram: u32) -> Self {
        Self { window: packets.max(MIN_WINDOW_PACKETS), prior, datagram, acknowledged: 0.0 }
    }

    /// Grows the window for `bytes` bytes acknowledged while the path was used in full.
    pub(super) fn grow_by_acked(&mut self, bytes: u32) {
        self.acknowledged += f64::from(bytes);
        let alpha = if self.window < self.prior { ALPHA } else { ALPHA_ABOVE };
        let a_packet = f64::from(self.reno_window()) / alpha;
        if self.acknowledged >= a_packet {
            self.acknowledged = (self.acknowledged - a_packet).min(a_packet);
            self.window = self.window.saturating_add(1);
        }
    }

    /// Bytes of the window.
    pub(super) fn reno_window(&self) -> u32 {
        self.window.saturating_mul(self.datagram)
    }
}

fn whole_packets(window: u32, datagram: u32) -> u32 {
    window / datagram.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u32 = 1_000;

    #[test]
    fn the_estimate_grows_by_alpha_up_to_the_prior_window() {
        let mut estimate = RenoEstimate::after_congestion(30_900, DATAGRAM);
        assert_eq!(estimate.reno_window(), 21_000, "whole packets, before and after");
        let mut grown = Vec::new();
        for _ in 0..40 {
            estimate.grow_by_acked(estimate.reno_window());
            grown.push(estimate.reno_window() / DATAGRAM);
        }
        let reached = |packets| grown.iter().position(|window| *window == packets);
        assert_eq!(reached(22), Some(1), "{grown:?}");
        assert_eq!(reached(30), Some(17), "the window before: {grown:?}");
        assert_eq!(grown.last(), Some(&(30 + 22)), "{grown:?}");
    }

    #[test]
    fn the_estimate_has_two_packets_at_least() {
        assert_eq!(RenoEstimate::after_congestion(2_000, DATAGRAM).reno_window(), 2_000);
        assert_eq!(RenoEstimate::after_congestion(2_000, 0).reno_window(), 0);
        let after_slow_start = || RenoEstimate::after_slow_start(20_000, DATAGRAM);
        let (mut whole, mut parts) = (after_slow_start(), after_slow_start());
        for _ in 0..8 {
            whole.grow_by_acked(20_000);
            (0..20).for_each(|_| parts.grow_by_acked(1_000));
        }
        assert_eq!(
            (whole.reno_window(), parts.reno_window()),
            (26_000, 26_000),
            "20 + 21 + … + 25 packets are acknowledged"
        );
        let mut large = RenoEstimate::after_slow_start(u32::MAX, u32::MAX / 2);
        (0..4).for_each(|_| large.grow_by_acked(u32::MAX));
        assert_eq!(large.reno_window(), u32::MAX);
    }
}

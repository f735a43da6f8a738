//! The window that additive increase and multiplicative decrease would have (RFC 9438 §4.3). Where it is larger, it is
//! CUBIC's. Pure.

/// β of RFC 9438 §4.6, in tenths.
const BETA_TENTHS: u32 = 7;
/// The additive increase that is as fair to Reno with that β as one segment a round trip is with a half: 3 (1 - β) / (1 + β).
const ALPHA: f64 = 9.0 / 17.0;
/// Segments that a window has at least (RFC 9002 §7.2).
const LEAST: u32 = 2;

/// Of one path, in one period of congestion avoidance. In bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenoFriendly {
    window: f64,
    /// CUBIC's before it was reduced last: from there on one segment a round trip is added, as by Reno.
    before: f64,
}

impl RenoFriendly {
    /// Congestion reduced `window`.
    pub(super) fn reduced(window: u32, max_datagram: u32) -> Self {
        let left = (u64::from(window) * u64::from(BETA_TENTHS) / 10).max(u64::from(LEAST * max_datagram));
        #[expect(clippy::cast_precision_loss, reason = "windows are far below 2^53 bytes")]
        Self { window: left as f64, before: window.into() }
    }

    /// Slow start ended with `window`, without congestion.
    pub(super) fn after_slow_start(window: u32) -> Self {
        Self { window: window.into(), before: f64::INFINITY }
    }

    /// So many bytes of `window`, CUBIC's, were acknowledged, and the path was used.
    pub(super) fn on_ack(&mut self, bytes: usize, window: u32, max_datagram: u32) {
        let alpha = if self.window < self.before { ALPHA } else { 1.0 };
        let acknowledged = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.window += alpha * acknowledged / f64::from(window.max(1)) * f64::from(max_datagram);
    }

    /// In whole bytes.
    pub(super) fn window(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and saturates")]
        let window = self.window as u32;
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u32 = 1_000;

    #[test]
    fn it_grows_from_what_congestion_left_by_alpha_a_round_trip_and_by_one_segment_beyond_what_there_was() {
        let mut friendly = RenoFriendly::reduced(30_000, DATAGRAM);
        let mut rounds = 0;
        let mut grown = Vec::new();
        while rounds < 40 {
            let window = friendly.window();
            friendly.on_ack(window as usize, window, DATAGRAM);
            grown.push(friendly.window() - window);
            rounds += 1;
        }
        assert_eq!(
            grown.iter().filter(|grown| **grown > 900).count(),
            40 - 18,
            "9,000 bytes at 529 a round: {grown:?}"
        );
        assert!(grown.iter().all(|grown| (528..=1_000).contains(grown)), "{grown:?}");
    }

    #[test]
    fn it_is_two_segments_at_least_and_grows_alike_in_parts() {
        assert_eq!(RenoFriendly::reduced(2_000, DATAGRAM).window(), 2_000);
        let (mut whole, mut parts) = (RenoFriendly::after_slow_start(20_000), RenoFriendly::after_slow_start(20_000));
        whole.on_ack(20_000, 20_000, DATAGRAM);
        (0..20).for_each(|_| parts.on_ack(1_000, 20_000, DATAGRAM));
        assert!(whole.window().abs_diff(parts.window()) <= 1);
        parts.on_ack(usize::MAX, 0, u32::MAX);
        assert_eq!(parts.window(), u32::MAX);
    }
}

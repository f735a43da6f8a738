//! Records the state that controllers publish: no other state of s2n-quic's BBR is visible.

use super::cubic::Cubic;
use num_rational::Ratio;
use s2n_quic_core::{
    event::builder::{BbrState, SlowStartExitCause},
    recovery::{
        bandwidth::{Bandwidth, RateSample},
        congestion_controller::Publisher,
    },
};

/// Pacing rate in windows a round trip in slow start, where the window doubles within a round trip: as in s2n-quic and
/// Linux. Other phases have at most 1.25. BBR's Startup has 2.77, its other states at most 1.25
/// (draft-cardwell-iccrg-bbr-congestion-control-02 §4.6.2).
pub(super) const SLOW_START_GAIN: Ratio<u64> = Ratio::new_raw(2, 1);

/// Values that a controller published last.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublishedState {
    /// Whether the controller is in slow start (RFC 9002 §7.3.1), or in BBR's Startup.
    pub(super) slow_start: bool,
    /// BBR's pacing rate; `None` before the first.
    pub(super) rate: Option<Bandwidth>,
}

impl Default for PublishedState {
    fn default() -> Self {
        Self { slow_start: true, rate: None }
    }
}

impl PublishedState {
    /// Records whether `cubic` is in slow start, and publishes the end of slow start with `cause`.
    pub(super) fn publish_cubic(&mut self, cubic: &Cubic, cause: SlowStartExitCause, publisher: &mut impl Publisher) {
        let slow_start = cubic.is_slow_start();
        if self.slow_start && !slow_start {
            publisher.on_slow_start_exited(cause, cubic.window_bytes());
        }
        self.slow_start = slow_start;
    }
}

/// Publisher that records values in `published`, and forwards them to `publisher`.
pub(super) struct PublisherTap<'a, P> {
    pub(super) published: &'a mut PublishedState,
    pub(super) publisher: &'a mut P,
}

impl<P: Publisher> Publisher for PublisherTap<'_, P> {
    fn on_slow_start_exited(&mut self, cause: SlowStartExitCause, congestion_window: u32) {
        self.published.slow_start = false;
        self.publisher.on_slow_start_exited(cause, congestion_window);
    }

    fn on_delivery_rate_sampled(&mut self, rate_sample: RateSample) {
        self.publisher.on_delivery_rate_sampled(rate_sample);
    }

    /// Records the rate without forwarding: packets are sent at [`super::pacer`]'s rate.
    fn on_pacing_rate_updated(&mut self, rate: Bandwidth, _: u32, gain: Ratio<u64>) {
        self.published.rate = Some(rate);
        self.published.slow_start = gain >= SLOW_START_GAIN;
    }

    fn on_bbr_state_changed(&mut self, state: BbrState) {
        self.publisher.on_bbr_state_changed(state);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A publisher without a subscriber.
    pub(in super::super) struct NoPublisher;

    impl Publisher for NoPublisher {
        fn on_slow_start_exited(&mut self, _: SlowStartExitCause, _: u32) {}

        fn on_delivery_rate_sampled(&mut self, _: RateSample) {}

        fn on_pacing_rate_updated(&mut self, _: Bandwidth, _: u32, _: Ratio<u64>) {}

        fn on_bbr_state_changed(&mut self, _: BbrState) {}
    }

    #[test]
    fn a_gain_of_bbrs_startup_is_slow_start() {
        let mut published = PublishedState::default();
        let rate = Bandwidth::new(1_000_000, std::time::Duration::from_secs(1));
        for (gain, slow_start) in
            [(Ratio::new(277, 100), true), (Ratio::new(35, 100), false), (Ratio::new(5, 4), false)]
        {
            PublisherTap { published: &mut published, publisher: &mut NoPublisher }
                .on_pacing_rate_updated(rate, 0, gain);
            assert_eq!((published.slow_start, published.rate), (slow_start, Some(rate)));
        }
    }
}

//! Delay: constant, with jitter that keeps the order, and with packets that are held back so that later ones overtake
//! them.

use crate::random::Random;
use std::time::Duration;

/// How long packets take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parameters {
    /// Every packet.
    pub(crate) delay: Duration,
    /// Up to so much more, evenly.
    pub(crate) jitter: Duration,
    /// Probability that a packet is held back,
    pub(crate) reorder: f64,
    /// for so much longer.
    pub(crate) hold: Duration,
}

/// Delays packets.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    parameters: Parameters,
    /// When the latest packet that was not held back arrives: no other one arrives before it.
    latest: Duration,
    random: Random,
}

impl Delay {
    pub(crate) fn new(parameters: Parameters, random: Random) -> Self {
        Self { parameters, latest: Duration::ZERO, random }
    }

    /// Draws begin anew.
    pub(crate) fn reseed(&mut self, random: Random) {
        self.random = random;
    }

    /// When a packet arrives that was sent at `sent`, and whether it was held back, which only some may be.
    pub(crate) fn pass(&mut self, sent: Duration, may_be_held: bool) -> (Duration, bool) {
        let Parameters { delay, jitter, reorder, hold } = self.parameters;
        let (held, jitter) = (self.random.chance(reorder), self.random.within(jitter));
        let at = (sent + delay + jitter).max(self.latest);
        if held && may_be_held {
            return (at + hold, true);
        }
        self.latest = at;
        (at, false)
    }
}

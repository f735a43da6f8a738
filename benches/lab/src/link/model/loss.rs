//! Loss: independent, or in bursts after Gilbert and Elliott.

use crate::random::Random;

/// How much is lost, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parameters {
    /// Probability that a packet is lost, over a long time.
    pub(crate) mean: f64,
    /// Packets that a bad state lasts, on average; 1 makes losses independent.
    pub(crate) burst: f64,
    /// Probability of loss in the bad state.
    pub(crate) in_bad: f64,
}

impl Parameters {
    /// Nothing is lost.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { mean: 0.0, burst: 1.0, in_bad: 1.0 };
}

/// Draws losses. The Gilbert–Elliott chain has a good state that loses nothing and a bad one that loses `in_bad`.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    parameters: Parameters,
    /// Probabilities of a change of state, before each packet.
    enter: f64,
    leave: f64,
    is_bad: bool,
    random: Random,
}

impl Loss {
    /// Begins in the good state.
    pub(crate) fn new(parameters: Parameters, random: Random) -> Self {
        // In the bad state for this share of the packets.
        let share = (parameters.mean / parameters.in_bad).min(1.0);
        let leave = 1.0 / parameters.burst.max(1.0);
        let enter = if share < 1.0 { (leave * share / (1.0 - share)).min(1.0) } else { 1.0 };
        Self { parameters, enter, leave, is_bad: false, random }
    }

    /// Whether the next packet is lost.
    pub(crate) fn draw(&mut self) -> bool {
        let Parameters { mean, burst, in_bad } = self.parameters;
        // One draw a packet of each kind, whatever the outcome: fates do not depend on earlier fates' draws.
        let (change, lost) =
            (self.random.chance(if self.is_bad { self.leave } else { self.enter }), self.random.next());
        if burst <= 1.0 {
            return Random::new(lost).chance(mean);
        }
        self.is_bad ^= change;
        self.is_bad && Random::new(lost).chance(in_bad)
    }
}

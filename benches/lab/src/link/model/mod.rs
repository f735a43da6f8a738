//! What a link does to packets in one direction, as a function of virtual time: loss, then a drop-tail queue in bytes,
//! then the rate, then delay with jitter, reordering and duplication; packets that find a long queue get a CE mark
//! (RFC 3168). Pure: [`Direction::arrive`] takes the time and a length, and returns what becomes of the packet.
//!
//! `tests/it/support/link.rs` of litequic stays beside it: that is a UDP relay without root, which rewrites addresses,
//! corrupts and forges datagrams, and numbers them; this one shapes IP packets, of TCP too, and keeps time.

mod bottleneck;
mod delay;
mod loss;
mod rate;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    bottleneck::Bottleneck,
    delay::Delay,
    loss::Loss,
    rate::{Rate, Step},
};
use crate::random::Random;
use std::time::Duration;

/// One direction of a link. Times count from the beginning of the emulation and never run backwards.
#[derive(Debug, Clone)]
pub(crate) struct Direction {
    loss: Loss,
    bottleneck: Option<Bottleneck>,
    delay: Delay,
    duplicate: f64,
    /// Bytes of a packet above which loss, reordering and duplication can happen to it.
    faults_above: u64,
    /// The queue, in bytes, above which packets are marked.
    mark_above: Option<u64>,
    random: Random,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Lost on purpose.
    Lost,
    /// The queue was full.
    Dropped,
    /// It arrives.
    Delivered(Delivery),
}

/// How a packet arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// When.
    pub(crate) at: Duration,
    /// A second time, at the same time.
    pub(crate) twice: bool,
    /// Held back, so that later packets overtake it.
    pub(crate) held: bool,
    /// The queue was longer than the threshold: the packet gets CE if its transport understands it.
    pub(crate) congested: bool,
}

/// A direction's parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) loss: loss::Parameters,
    /// Without a rate there is no queue.
    pub(crate) bottleneck: Option<(Rate, u64)>,
    pub(crate) delay: delay::Parameters,
    /// Probability.
    pub(crate) duplicate: f64,
    /// Packets of so many bytes or fewer meet no loss, reordering and duplication.
    pub(crate) faults_above: u64,
    /// Bytes of queue.
    pub(crate) mark_above: Option<u64>,
}

pub(crate) use self::{delay::Parameters as DelayParameters, loss::Parameters as LossParameters};

impl Direction {
    /// A direction whose draws begin at `seed`. Each fault has draws of its own, so that the rate of one does not
    /// change which packets another one hits.
    pub(crate) fn new(parameters: &Parameters, seed: u64) -> Self {
        Self {
            loss: Loss::new(parameters.loss, Random::stream(seed, 1)),
            bottleneck: parameters.bottleneck.clone().map(|(rate, limit)| Bottleneck::new(rate, limit)),
            delay: Delay::new(parameters.delay, Random::stream(seed, 2)),
            duplicate: parameters.duplicate,
            faults_above: parameters.faults_above,
            mark_above: parameters.mark_above,
            random: Random::stream(seed, 3),
        }
    }

    /// A packet of so many bytes arrives.
    pub(crate) fn arrive(&mut self, now: Duration, length: u32) -> Fate {
        let has_faults = u64::from(length) > self.faults_above;
        let (lost, twice) = (self.loss.draw() && has_faults, self.random.chance(self.duplicate) && has_faults);
        if lost {
            return Fate::Lost;
        }
        let (sent, queued) = match &mut self.bottleneck {
            None => (now, 0),
            Some(bottleneck) => {
                let queued = bottleneck.queued(now);
                match bottleneck.pass(now, length) {
                    Some(sent) => (sent, queued),
                    None => return Fate::Dropped,
                }
            }
        };
        let (at, held) = self.delay.pass(sent, has_faults);
        let congested = self.mark_above.is_some_and(|threshold| queued > threshold);
        Fate::Delivered(Delivery { at, twice, held, congested })
    }

    /// Draws begin anew at `seed`, and so does a trace of rates; the queue stays.
    pub(crate) fn begin_anew(&mut self, now: Duration, parameters: &Parameters, seed: u64) {
        if let Some(bottleneck) = &mut self.bottleneck {
            bottleneck.begin_anew(now);
        }
        let fresh = Self::new(parameters, seed);
        (self.loss, self.random) = (fresh.loss, fresh.random);
        self.delay.reseed(Random::stream(seed, 2));
    }

    /// Bytes that wait for the rate.
    pub(crate) fn queued(&mut self, now: Duration) -> u64 {
        self.bottleneck.as_mut().map_or(0, |bottleneck| bottleneck.queued(now))
    }
}

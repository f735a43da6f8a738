//! A path that loses datagrams and lets others overtake them, by a seed, and that is long: what reaches a socket is
//! lost or held back before quinn sees it. Independent of sockets; generic over the datagram's type.

use crate::random::Random;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Datagrams spared at the beginning of each socket's: handshakes are not what is measured.
const SPARED: u64 = 40;
/// A datagram that is held back goes after so many others: more than the three by which a sender detects a loss (RFC
/// 9002
/// §6.1.1).
const OVERTAKERS: u64 = 8;
/// Or after this, if no others come.
const HELD_AT_MOST: Duration = Duration::from_millis(5);

/// How much goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Of a million datagrams so many are lost,
    pub(crate) lose: u32,
    /// and so many come after the next eight.
    pub(crate) hold: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// One socket's way in.
pub(super) struct Path<T> {
    faults: Faults,
    /// Each comes so much later.
    delay: Duration,
    random: Random,
    came: u64,
    /// With the number after which it goes and when at the latest.
    held: Vec<(u64, Instant, T)>,
    /// With when each arrives, in their order.
    delayed: VecDeque<(Instant, T)>,
    pub(super) lost: u64,
    pub(super) reordered: u64,
}

impl<T> Path<T> {
    pub(super) fn new(faults: Faults, delay: Duration, seed: u64) -> Self {
        let (held, delayed) = Default::default();
        Self { faults, delay, random: Random::new(seed), came: 0, held, delayed, lost: 0, reordered: 0 }
    }

    /// Takes what has come; appends to `out` what arrives.
    pub(super) fn take(&mut self, now: Instant, datagram: T, out: &mut Vec<T>) {
        if self.faults.is_none() {
            self.pass(now, datagram, out);
            return;
        }
        self.came += 1;
        // Both are drawn for each, so that one fault's rate changes nothing of the other's choice.
        let (lost, held) = (self.random.millionth() < self.faults.lose, self.random.millionth() < self.faults.hold);
        if lost && self.came > SPARED {
            self.lost += 1;
        } else if held && self.came > SPARED {
            self.reordered += 1;
            self.held.push((self.came + OVERTAKERS, now + HELD_AT_MOST, datagram));
        } else {
            self.pass(now, datagram, out);
        }
        self.release(now, out);
    }

    /// `datagram` is at the path's beginning.
    fn pass(&mut self, now: Instant, datagram: T, out: &mut Vec<T>) {
        if self.delay.is_zero() {
            out.push(datagram);
        } else {
            self.delayed.push_back((now + self.delay, datagram));
        }
    }

    /// Appends to `out` what is held back no longer.
    pub(super) fn release(&mut self, now: Instant, out: &mut Vec<T>) {
        let came = self.came;
        let free: Vec<_> = self.held.extract_if(.., |(after, at, _)| *after <= came || *at <= now).collect();
        free.into_iter().for_each(|held| self.pass(now, held.2, out));
        while let Some((_, datagram)) = self.delayed.pop_front_if(|(at, _)| *at <= now) {
            out.push(datagram);
        }
    }

    /// When something arrives or is held back no longer, if nothing comes.
    pub(super) fn next(&self) -> Option<Instant> {
        let held = self.held.iter().map(|held| held.1);
        held.chain(self.delayed.front().map(|delayed| delayed.0)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(faults: Faults, seed: u64, count: u64) -> (Vec<u64>, Path<u64>) {
        let (mut path, mut out) = (Path::new(faults, Duration::ZERO, seed), Vec::new());
        let now = Instant::now();
        (0..count).for_each(|number| path.take(now, number, &mut out));
        (out, path)
    }

    #[test]
    fn a_path_without_faults_changes_nothing() {
        let (out, path) = pass(Faults::default(), 1, 1000);
        assert!(out.iter().copied().eq(0..1000));
        assert_eq!((path.lost, path.reordered, path.next()), (0, 0, None));
    }

    #[test]
    fn so_many_are_lost_by_a_seed_and_none_of_a_handshake() {
        let faults = Faults { lose: 10_000, hold: 0 };
        let (out, path) = pass(faults, 7, 100_000);
        assert!((900..1100).contains(&path.lost), "{}", path.lost);
        assert_eq!(out.len() as u64, 100_000 - path.lost);
        assert!(out.iter().copied().take(40).eq(0..40) && out.is_sorted());
        assert_eq!(pass(faults, 7, 100_000).0, out);
        assert_ne!(pass(faults, 8, 100_000).0, out);
    }

    #[test]
    fn a_delayed_datagram_follows_eight_others_or_a_timeout() {
        let faults = Faults { lose: 0, hold: 1_000_000 };
        let (out, mut path) = pass(faults, 1, SPARED + 9);
        assert_eq!(out.last(), Some(&SPARED));
        assert_eq!(out.len() as u64, SPARED + 1);
        let mut late = Vec::new();
        path.release(path.next().unwrap(), &mut late);
        assert_eq!((late.len(), path.next(), path.reordered), (8, None, 9));
    }

    #[test]
    fn a_long_path_keeps_the_order_and_each_takes_as_long() {
        let delay = Duration::from_millis(20);
        let (mut path, mut out) = (Path::new(Faults::default(), delay, 1), Vec::new());
        let start = Instant::now();
        for number in 0..5 {
            path.take(start + Duration::from_millis(number), number, &mut out);
        }
        assert!(out.is_empty());
        assert_eq!(path.next(), Some(start + delay));
        path.release(start + delay + Duration::from_millis(2), &mut out);
        assert_eq!((out, path.next()), (vec![0, 1, 2], Some(start + delay + Duration::from_millis(3))));
    }
}

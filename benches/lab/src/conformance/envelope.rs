//! The Performance Envelope of a congestion control and how far two have it in common (*Containing the Cambrian
//! Explosion in QUIC Congestion Control*, IMC 2023, §3): where throughput and delay are, over several trials. Pure;
//! points are delay and throughput, both by the scale of the path.

use super::{
    cluster::{centre, clusters},
    hull::{Point, Polygon},
};
use crate::random::Random;

/// Clusters, at most.
const MOST: usize = 6;
/// Steps each way in a search for a translation, how often it is made finer, and by how much.
const STEPS: i32 = 12;
const REFINEMENTS: u32 = 4;
const FINER: f64 = 6.0;

/// Of several trials.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    /// One for each cluster that is in every trial.
    pub(crate) hulls: Vec<Polygon>,
    /// All points of all trials.
    pub(crate) points: Vec<Point>,
    /// Those in the hulls.
    inside: Vec<Point>,
    /// Clusters of a trial.
    pub(crate) k: usize,
}

/// How far an envelope is that of a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Conformance {
    /// Points in the region that both have in common, of all in either: 0 to 1.
    pub(crate) conformance: f64,
    /// The same after the best translation.
    pub(crate) translated: f64,
    /// What the envelope is beyond the reference by: delay (x) and throughput (y).
    pub(crate) beyond: Point,
}

impl Envelope {
    /// Of trials, each the points of one; `None` without any.
    pub(crate) fn of(trials: &[Vec<Point>], seed: u64) -> Option<Self> {
        let points = trials.concat();
        if points.is_empty() {
            return None;
        }
        let with = |k| Self::with(trials, k, &points, &mut Random::stream(seed, k as u64));
        let mut by_k: Vec<Self> = (1..=MOST).map(with).collect();
        let retained: Vec<f64> = by_k.iter().map(Self::retained).collect();
        let k = natural(&retained);
        (k <= by_k.len()).then(|| by_k.swap_remove(k - 1))
    }

    /// With so many clusters.
    fn with(trials: &[Vec<Point>], k: usize, points: &[Point], random: &mut Random) -> Self {
        let hulls = common(trials, k, random);
        let inside = points.iter().copied().filter(|point| is_in(&hulls, *point)).collect();
        Self { hulls, points: points.to_vec(), inside, k }
    }

    /// The share of its points that is in the hulls.
    fn retained(&self) -> f64 {
        self.inside.len() as f64 / self.points.len().max(1) as f64
    }

    /// Beside a reference.
    pub(crate) fn conformance(&self, reference: &Self) -> Conformance {
        let still = Point { x: 0.0, y: 0.0 };
        let conformance = self.overlap(reference, still);
        let (translation, translated) = self.best_translation(reference);
        // What brings it to the reference is what it is beyond it by, with the other sign.
        let beyond = Point { x: 0.0 - translation.x, y: 0.0 - translation.y };
        Conformance { conformance, translated: translated.max(conformance), beyond }
    }

    /// Points in both envelopes, of those in either, once this one is moved.
    fn overlap(&self, reference: &Self, by: Point) -> f64 {
        let back = Point { x: 0.0 - by.x, y: 0.0 - by.y };
        let own = self.inside.iter().filter(|point| is_in(&reference.hulls, point.moved(by))).count();
        let others = reference.inside.iter().filter(|point| is_in(&self.hulls, point.moved(back))).count();
        let all = self.inside.len() + reference.inside.len();
        if all > 0 { (own + others) as f64 / all as f64 } else { 0.0 }
    }

    /// The translation after which most is in common, of a grid around those that bring centres together, made finer
    /// around the best.
    fn best_translation(&self, reference: &Self) -> (Point, f64) {
        let centres = (centre(&self.points), centre(&reference.points));
        let (Some(own), Some(other)) = centres else { return (Point { x: 0.0, y: 0.0 }, 0.0) };
        let mut best = (Point { x: other.x - own.x, y: other.y - own.y }, 0.0);
        best.1 = self.overlap(reference, best.0);
        let reach = |of: fn(&Point) -> f64| {
            let all = || self.points.iter().chain(&reference.points).map(of);
            all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min)
        };
        let mut step = Point { x: reach(|p| p.x) / f64::from(STEPS), y: reach(|p| p.y) / f64::from(STEPS) };
        for _ in 0..REFINEMENTS {
            let middle = best.0;
            for (across, up) in (-STEPS..=STEPS).flat_map(|across| (-STEPS..=STEPS).map(move |up| (across, up))) {
                let by = middle.moved(Point { x: f64::from(across) * step.x, y: f64::from(up) * step.y });
                let overlap = self.overlap(reference, by);
                // Of equal ones the shortest.
                let length = |point: Point| point.squared_distance(Point { x: 0.0, y: 0.0 });
                if overlap > best.1 || (overlap == best.1 && length(by) < length(best.0)) {
                    best = (by, overlap);
                }
            }
            step = Point { x: step.x / FINER, y: step.y / FINER };
        }
        best
    }
}

/// The number of clusters before the share of points that are retained drops most; shares by that number, from 1.
fn natural(retained: &[f64]) -> usize {
    let drops = retained.windows(2).map(|pair| pair.first().zip(pair.last()).map_or(0.0, |(one, next)| one - next));
    let steepest = drops
        .enumerate()
        .fold((0, f64::NEG_INFINITY), |steepest, (at, drop)| if drop > steepest.1 { (at, drop) } else { steepest });
    steepest.0 + 1
}

/// Hulls of `k` clusters of each trial, as far as matched ones have them in common.
fn common(trials: &[Vec<Point>], k: usize, random: &mut Random) -> Vec<Polygon> {
    let mut found = trials.iter().map(|trial| clusters(trial, k, random));
    let Some(first) = found.next() else { return Vec::new() };
    let mut hulls: Vec<Option<(Point, Polygon)>> =
        first.iter().map(|cluster| Some((centre(cluster)?, Polygon::hull(cluster)?))).collect();
    for trial in found {
        let mut left = trial;
        // The nearest pair first: each cluster has one partner at most.
        let mut order: Vec<(usize, usize, f64)> = Vec::new();
        for (at, hull) in hulls.iter().enumerate() {
            for (other, cluster) in left.iter().enumerate() {
                if let (Some((own, _)), Some(their)) = (hull, centre(cluster)) {
                    order.push((at, other, own.squared_distance(their)));
                }
            }
        }
        order.sort_by(|(.., one), (.., other)| one.total_cmp(other));
        let mut matched: Vec<Option<usize>> = vec![None; hulls.len()];
        let mut taken = vec![false; left.len()];
        for (at, other, _) in order {
            if let (Some(partner @ None), Some(taken @ false)) = (matched.get_mut(at), taken.get_mut(other)) {
                (*partner, *taken) = (Some(other), true);
            }
        }
        for (hull, partner) in hulls.iter_mut().zip(matched) {
            let cluster = partner.and_then(|partner| left.get_mut(partner)).map(std::mem::take);
            *hull =
                hull.take().and_then(|(own, polygon)| Some((own, polygon.intersection(&Polygon::hull(&cluster?)?)?)));
        }
    }
    hulls.into_iter().flatten().map(|(_, hull)| hull).collect()
}

fn is_in(hulls: &[Polygon], point: Point) -> bool {
    hulls.iter().any(|hull| hull.contains(point))
}

#[cfg(test)]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;

    /// A cloud of a size around a centre.
    fn cloud(x: f64, y: f64, size: f64, seed: u64) -> Vec<Point> {
        let mut random = Random::new(seed);
        let mut at = |middle: f64| middle + size * (random.unit() - 0.5);
        (0..200).map(|_| Point { x: at(x), y: at(y) }).collect()
    }

    fn two_clouds(x: f64, seed: u64) -> Vec<Point> {
        [cloud(x, 0.0, 1.0, seed), cloud(x, 6.0, 1.0, seed + 100)].concat()
    }

    fn envelope(trials: &[Vec<Point>]) -> Envelope {
        Envelope::of(trials, 42).unwrap()
    }

    #[test]
    fn an_envelope_conforms_to_itself() {
        let own = envelope(&[two_clouds(0.0, 1), two_clouds(0.0, 2), two_clouds(0.0, 3)]);
        let conformance = own.conformance(&own);
        assert_eq!((conformance.conformance, conformance.translated), (1.0, 1.0));
        assert!(conformance.beyond.squared_distance(Point { x: 0.0, y: 0.0 }) < 1e-3, "{conformance:?}");
    }

    #[test]
    fn clouds_that_are_apart_are_two_hulls() {
        let own = envelope(&[two_clouds(0.0, 1), two_clouds(0.0, 2), two_clouds(0.0, 3)]);
        assert_eq!((own.k, own.hulls.len()), (2, 2));
        assert!(own.retained() > 0.9, "{}", own.retained());
    }

    #[test]
    fn one_that_is_moved_conforms_after_a_translation_which_is_told() {
        let reference = envelope(&[two_clouds(0.0, 1), two_clouds(0.0, 2), two_clouds(0.0, 3)]);
        let moved = envelope(&[two_clouds(3.0, 4), two_clouds(3.0, 5), two_clouds(3.0, 6)]);
        let found = moved.conformance(&reference);
        assert!(found.conformance < 0.05 && found.translated > 0.8, "{found:?}");
        assert!((found.beyond.x - 3.0).abs() < 0.3 && found.beyond.y.abs() < 0.3, "{found:?}");
    }

    #[test]
    fn one_of_another_shape_does_not_conform_however_it_is_moved() {
        let reference = envelope(&[two_clouds(0.0, 1), two_clouds(0.0, 2), two_clouds(0.0, 3)]);
        let wide = |seed| cloud(0.0, 3.0, 12.0, seed);
        let other = envelope(&[wide(1), wide(2), wide(3)]);
        let found = other.conformance(&reference);
        // All of the reference's points, and hardly any of its own.
        assert!(found.translated < 0.75, "{found:?}");
    }

    #[test]
    fn a_trial_that_is_elsewhere_leaves_nothing_in_common() {
        let own = envelope(&[cloud(0.0, 0.0, 1.0, 1), cloud(9.0, 9.0, 1.0, 2)]);
        assert!(own.hulls.is_empty());
        assert_eq!(own.conformance(&own).conformance, 0.0);
        assert!(Envelope::of(&[], 1).is_none());
    }
}

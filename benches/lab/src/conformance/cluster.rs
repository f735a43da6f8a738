//! k-means: points into so many clusters (Lloyd 1982, begun by k-means++, Arthur and Vassilvitskii 2007), the same for
//! the same seed. Pure.

use super::hull::Point;
use crate::random::Random;

/// Beginnings, of which the best end counts.
const BEGINNINGS: u32 = 10;
/// Steps, at most.
const STEPS: u32 = 100;

/// Clusters of points; empty ones are left out.
pub(super) fn clusters(points: &[Point], k: usize, random: &mut Random) -> Vec<Vec<Point>> {
    let ends = (0..BEGINNINGS).map(|_| settle(points, begin(points, k, random)));
    let best = ends.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let centres = best.map(|(_, centres)| centres).unwrap_or_default();
    let mut clusters = vec![Vec::new(); centres.len()];
    for point in points {
        if let Some(cluster) = clusters.get_mut(nearest(&centres, *point).0) {
            cluster.push(*point);
        }
    }
    clusters.retain(|cluster| !cluster.is_empty());
    clusters
}

/// The mean of points; `None` of none.
pub(super) fn centre(points: &[Point]) -> Option<Point> {
    let count = points.len() as f64;
    let sum = points.iter().fold(Point { x: 0.0, y: 0.0 }, |sum, point| sum.moved(*point));
    (!points.is_empty()).then_some(Point { x: sum.x / count, y: sum.y / count })
}

/// Centres among the points, each the likelier the further it is from those before.
fn begin(points: &[Point], k: usize, random: &mut Random) -> Vec<Point> {
    let mut centres: Vec<Point> = Vec::new();
    for _ in 0..k.min(points.len()) {
        let distance = |point: &Point| if centres.is_empty() { 1.0 } else { nearest(&centres, *point).1 };
        let distances: Vec<f64> = points.iter().map(distance).collect();
        let mut at = random.unit() * distances.iter().sum::<f64>();
        let chosen = distances.iter().position(|distance| {
            at -= distance;
            at < 0.0
        });
        centres.extend(points.get(chosen.unwrap_or(points.len() - 1)));
    }
    centres
}

/// Centres that stay where they are, and the sum of squared distances to them.
fn settle(points: &[Point], mut centres: Vec<Point>) -> (f64, Vec<Point>) {
    for _ in 0..STEPS {
        let mut members = vec![Vec::new(); centres.len()];
        for point in points {
            if let Some(own) = members.get_mut(nearest(&centres, *point).0) {
                own.push(*point);
            }
        }
        let moved: Vec<Point> =
            members.iter().zip(&centres).map(|(members, old)| centre(members).unwrap_or(*old)).collect();
        if moved == centres {
            break;
        }
        centres = moved;
    }
    (points.iter().map(|point| nearest(&centres, *point).1).sum(), centres)
}

/// Which centre is nearest, and its squared distance.
fn nearest(centres: &[Point], point: Point) -> (usize, f64) {
    let distances = centres.iter().map(|centre| centre.squared_distance(point)).enumerate();
    distances.min_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap_or((0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(x: f64, y: f64, count: usize, random: &mut Random) -> Vec<Point> {
        (0..count).map(|_| Point { x: x + random.unit(), y: y + random.unit() }).collect()
    }

    #[test]
    fn clouds_that_are_apart_are_clusters() {
        let mut random = Random::new(7);
        let clouds =
            [cloud(0.0, 0.0, 30, &mut random), cloud(9.0, 0.0, 50, &mut random), cloud(0.0, 9.0, 20, &mut random)];
        let mut found: Vec<usize> = clusters(&clouds.concat(), 3, &mut random).iter().map(Vec::len).collect();
        found.sort_unstable();
        assert_eq!(found, [20, 30, 50]);
    }

    #[test]
    fn the_same_seed_has_the_same_clusters() {
        let points = cloud(0.0, 0.0, 200, &mut Random::new(1));
        assert_eq!(clusters(&points, 4, &mut Random::new(2)), clusters(&points, 4, &mut Random::new(2)));
    }

    #[test]
    fn there_are_no_more_clusters_than_points() {
        let one = [Point { x: 1.0, y: 1.0 }];
        assert_eq!(clusters(&one, 3, &mut Random::new(1)), [one.to_vec()]);
        assert!(clusters(&[], 3, &mut Random::new(1)).is_empty());
        let same = [one[0]; 5];
        assert_eq!(clusters(&same, 2, &mut Random::new(1)).concat().len(), 5);
    }
}

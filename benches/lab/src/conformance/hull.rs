//! Convex polygons: hulls of points, what two have in common, whether a point is inside. Pure.

/// For rounding: corners belong to their own hull wherever it is moved. Points are of some units at most.
const ROOM: f64 = 1e-12;

/// A point of the plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Point {
    pub(super) fn squared_distance(self, other: Self) -> f64 {
        (self.x - other.x).powi(2) + (self.y - other.y).powi(2)
    }

    pub(super) fn moved(self, by: Self) -> Self {
        Self { x: self.x + by.x, y: self.y + by.y }
    }
}

/// Twice the area of the triangle of three points; positive where they turn left.
fn turn(a: Point, b: Point, c: Point) -> f64 {
    (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x)
}

/// Corners in counterclockwise order, no three in a line. One corner is a point, two are a segment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Polygon(Vec<Point>);

impl Polygon {
    /// The convex hull of points (Andrew 1979); `None` of none.
    pub(super) fn hull(points: &[Point]) -> Option<Self> {
        let mut sorted = points.to_vec();
        sorted.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
        sorted.dedup();
        if sorted.len() < 3 {
            return (!sorted.is_empty()).then_some(Self(sorted));
        }
        let chain = |points: &mut dyn Iterator<Item = Point>| {
            let mut chain: Vec<Point> = Vec::new();
            for point in points {
                while let [.., a, b] = chain.as_slice()
                    && turn(*a, *b, point) <= 0.0
                {
                    chain.pop();
                }
                chain.push(point);
            }
            // It begins the other one.
            chain.pop();
            chain
        };
        let mut corners = chain(&mut sorted.iter().copied());
        corners.extend(chain(&mut sorted.iter().rev().copied()));
        Some(Self(corners))
    }

    /// Whether a point is inside or on the edge.
    pub(crate) fn contains(&self, point: Point) -> bool {
        match self.0.as_slice() {
            [] => false,
            [corner] => corner.squared_distance(point) <= ROOM,
            [a, b] => {
                let within = |a: f64, b: f64, at: f64| at >= a.min(b) - ROOM && at <= a.max(b) + ROOM;
                turn(*a, *b, point).abs() <= ROOM && within(a.x, b.x, point.x) && within(a.y, b.y, point.y)
            }
            _ => self.edges().all(|(a, b)| turn(a, b, point) >= -ROOM),
        }
    }

    /// What is inside both (Sutherland and Hodgman 1974); `None` where that has no area.
    pub(super) fn intersection(&self, other: &Self) -> Option<Self> {
        let mut corners = self.0.clone();
        for (a, b) in other.edges() {
            let mut cut = Vec::with_capacity(corners.len() + 1);
            let ends = corners.iter().copied().zip(corners.iter().copied().cycle().skip(1));
            for (from, to) in ends {
                let (here, there) = (turn(a, b, from), turn(a, b, to));
                if here >= 0.0 {
                    cut.push(from);
                }
                if (here < 0.0) != (there < 0.0) {
                    let share = here / (here - there);
                    cut.push(Point { x: from.x + share * (to.x - from.x), y: from.y + share * (to.y - from.y) });
                }
            }
            corners = cut;
        }
        Self::hull(&corners).filter(|polygon| polygon.area() > 0.0)
    }

    pub(super) fn area(&self) -> f64 {
        let Some(first) = self.0.first().copied() else { return 0.0 };
        self.edges().map(|(a, b)| turn(first, a, b)).sum::<f64>() / 2.0
    }

    pub(crate) fn corners(&self) -> &[Point] {
        &self.0
    }

    fn edges(&self) -> impl Iterator<Item = (Point, Point)> + '_ {
        self.0.iter().copied().zip(self.0.iter().copied().cycle().skip(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn points(all: &[(f64, f64)]) -> Vec<Point> {
        all.iter().map(|(x, y)| Point { x: *x, y: *y }).collect()
    }

    fn square(left: f64, bottom: f64, side: f64) -> Polygon {
        let (right, top) = (left + side, bottom + side);
        Polygon::hull(&points(&[(left, bottom), (right, bottom), (right, top), (left, top)])).unwrap()
    }

    #[test]
    fn a_hull_leaves_out_what_is_inside_and_on_its_edges() {
        let hull = Polygon::hull(&points(&[(0.0, 0.0), (2.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 2.0), (0.0, 2.0)]));
        let hull = hull.unwrap();
        assert_eq!(hull.corners(), points(&[(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]));
        assert_eq!(hull.area(), 4.0);
        assert!(hull.contains(Point { x: 0.0, y: 1.0 }) && !hull.contains(Point { x: 2.1, y: 1.0 }));
        assert_eq!(Polygon::hull(&[]), None);
    }

    #[test]
    fn few_points_are_a_point_or_a_segment() {
        let segment = Polygon::hull(&points(&[(0.0, 0.0), (2.0, 2.0), (1.0, 1.0), (1.0, 1.0)])).unwrap();
        assert_eq!((segment.area(), segment.contains(Point { x: 1.0, y: 1.0 })), (0.0, true));
        assert!(!segment.contains(Point { x: 1.0, y: 1.5 }) && !segment.contains(Point { x: 3.0, y: 3.0 }));
        let point = Polygon::hull(&points(&[(1.0, 1.0)])).unwrap();
        assert!(point.contains(Point { x: 1.0, y: 1.0 }) && !point.contains(Point { x: 1.0, y: 2.0 }));
    }

    #[test]
    fn squares_have_their_overlap_in_common() {
        let overlap = square(0.0, 0.0, 2.0).intersection(&square(1.0, 1.0, 2.0)).unwrap();
        assert_eq!((overlap.area(), overlap.corners().len()), (1.0, 4));
        assert_eq!(square(0.0, 0.0, 1.0).intersection(&square(1.0, 0.0, 1.0)), None, "an edge has no area");
        assert_eq!(square(0.0, 0.0, 1.0).intersection(&square(5.0, 0.0, 1.0)), None);
        let inner = square(1.0, 1.0, 1.0);
        assert_eq!(square(0.0, 0.0, 3.0).intersection(&inner).unwrap().area(), inner.area());
    }

    proptest! {
        #[test]
        fn the_intersection_has_exactly_the_common_points(
            one in vec((0.0..10.0_f64, 0.0..10.0_f64), 3..20),
            other in vec((0.0..10.0_f64, 0.0..10.0_f64), 3..20),
            probes in vec((0.0..10.0_f64, 0.0..10.0_f64), 50),
        ) {
            let (one, other) = (Polygon::hull(&points(&one)).unwrap(), Polygon::hull(&points(&other)).unwrap());
            let both = one.intersection(&other);
            let near = |polygon: &Polygon, point: Point| polygon.edges().any(|(a, b)| turn(a, b, point).abs() < 1e-6);
            for probe in points(&probes) {
                // On an edge rounding decides.
                if near(&one, probe) || near(&other, probe) {
                    continue;
                }
                let expected = one.contains(probe) && other.contains(probe);
                prop_assert_eq!(both.as_ref().is_some_and(|both| both.contains(probe)), expected);
            }
        }
    }
}

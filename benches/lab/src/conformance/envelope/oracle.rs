//! The same by numpy, scikit-learn and shapely. Tests only.

use super::{
    super::{
        cluster,
        hull::{Point, Polygon},
    },
    Envelope, natural,
};
use crate::random::Random;
use serde::Deserialize;

/// Made by fixtures/envelopes.py.
const FIXTURE: &str = include_str!("../../../fixtures/envelopes.json");

#[derive(Deserialize)]
struct Fixture {
    pairs: Vec<Pair>,
    clusters: Vec<Clusters>,
    envelopes: Vec<Compared>,
}

#[derive(Deserialize)]
struct Pair {
    one: Vec<[f64; 2]>,
    other: Vec<[f64; 2]>,
    areas: [f64; 2],
    common: f64,
    inside: usize,
}

#[derive(Deserialize)]
struct Clusters {
    points: Vec<[f64; 2]>,
    k: usize,
    inertia: f64,
}

#[derive(Deserialize)]
struct Compared {
    own: Vec<Vec<[f64; 2]>>,
    reference: Vec<Vec<[f64; 2]>>,
    k: [usize; 2],
    /// By the number of clusters.
    retained: [Vec<f64>; 2],
    conformance: f64,
    translated: f64,
}

fn fixture() -> Fixture {
    serde_json::from_str(FIXTURE).unwrap()
}

fn points(all: &[[f64; 2]]) -> Vec<Point> {
    all.iter().map(|[x, y]| Point { x: *x, y: *y }).collect()
}

fn near(own: f64, other: f64, room: f64) -> bool {
    (own - other).abs() <= room
}

#[test]
fn hulls_and_what_two_have_in_common_are_those_of_shapely() {
    for Pair { one, other, areas, common, inside } in fixture().pairs {
        let [one, others] = [points(&one), points(&other)];
        let [own, other] = [&one, &others].map(|points| Polygon::hull(points).unwrap());
        assert!(near(own.area(), areas[0], 1e-9) && near(other.area(), areas[1], 1e-9), "{areas:?}");
        let overlap = own.intersection(&other).map_or(0.0, |overlap| overlap.area());
        assert!(near(overlap, common, 1e-9), "{overlap} rather than {common}");
        assert_eq!(others.iter().filter(|point| own.contains(**point)).count(), inside);
    }
}

#[test]
fn clusters_are_as_close_as_those_of_scikit_learn() {
    for Clusters { points: all, k, inertia } in fixture().clusters {
        let found = cluster::clusters(&points(&all), k, &mut Random::new(1));
        let spread = |cluster: &Vec<Point>| {
            let centre = cluster::centre(cluster).unwrap();
            cluster.iter().map(|point| point.squared_distance(centre)).sum::<f64>()
        };
        let own = found.iter().map(spread).sum::<f64>();
        assert!(own <= inertia * 1.001, "{own} rather than {inertia}");
    }
}

/// With Python's number of clusters: where a cloud is split that has no parts, chance decides.
#[test]
fn envelopes_and_conformance_are_those_of_python() {
    for Compared { own, reference, k, retained, conformance, translated } in fixture().envelopes {
        let envelope = |trials: &[Vec<[f64; 2]>], k: usize, retained: &[f64]| {
            assert_eq!(natural(retained), k);
            let trials: Vec<Vec<Point>> = trials.iter().map(|trial| points(trial)).collect();
            let envelope = Envelope::with(&trials, k, &trials.concat(), &mut Random::new(1));
            assert!(
                near(envelope.retained(), retained[k - 1], 0.02),
                "{} rather than {retained:?}",
                envelope.retained()
            );
            envelope
        };
        let own = envelope(&own, k[0], &retained[0]);
        let found = own.conformance(&envelope(&reference, k[1], &retained[1]));
        assert!(near(found.conformance, conformance, 0.03), "{found:?} rather than {conformance}");
        assert!(found.translated >= translated - 0.03, "{found:?} rather than {translated}");
    }
}

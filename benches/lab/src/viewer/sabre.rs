//! Sabre, the simulator of BOLA's authors, as an oracle for the player: the same networks, rules and video. Tests only.

use super::{
    ladder::Ladder,
    player::{Rule, Video},
    simulate,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Made by fixtures/sabre.py.
const SABRE: &str = include_str!("../../fixtures/sabre.json");
/// Sabre begins in the lowest quality, dash.js and the player with 1 Mbit/s.
const BEGINNING: usize = 5; // segments
/// How far bitrates may differ in one network, and on average.
const EACH: f64 = 0.15;
const ALL: f64 = 0.05;
/// Seconds that a player may stand still beyond Sabre's.
const STALLED: f64 = 0.5;

#[derive(Deserialize)]
struct Fixture {
    ladder: Vec<f64>,
    segment: f64,
    latency_ms: f64,
    networks: Vec<Network>,
}

#[derive(Deserialize)]
struct Network {
    name: String,
    /// Seconds and kbit/s.
    periods: Vec<(f64, f64)>,
    sabre: BTreeMap<String, Watched>,
}

#[derive(Deserialize)]
struct Watched {
    qualities: Vec<usize>,
    stalled: f64,
}

impl Network {
    /// kbit/s at a time; after the last period the first one follows.
    fn rate(&self, now: f64) -> f64 {
        let mut within = now % self.periods.iter().map(|(time, _)| time).sum::<f64>();
        for (time, rate) in &self.periods {
            if within < *time {
                return *rate;
            }
            within -= time;
        }
        self.periods[0].1
    }
}

/// kbit/s, without the beginning.
fn bitrate(ladder: &Ladder, qualities: &[usize]) -> f64 {
    let counted = &qualities[BEGINNING..];
    counted.iter().map(|quality| ladder.bitrate(*quality)).sum::<f64>() / counted.len() as f64
}

/// dash.js 5 has rules that Sabre lacks (the switch history) and another safety margin in BOLA.
#[test]
fn a_player_watches_as_sabre_does() {
    let fixture: Fixture = serde_json::from_str(SABRE).unwrap();
    let ladder = Ladder::new(&fixture.ladder).unwrap();
    let mut ratios = Vec::new();
    for network in &fixture.networks {
        for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
            let sabre = &network.sabre[&rule.argument()];
            let segments = u32::try_from(sabre.qualities.len()).unwrap();
            let video = Video { ladder: ladder.clone(), duration: fixture.segment, segments };
            let (view, qualities) = simulate::watch(&video, rule, fixture.latency_ms / 1e3, |now| network.rate(now));
            let ratio = bitrate(&ladder, &qualities) / bitrate(&ladder, &sabre.qualities);
            assert!((ratio - 1.0).abs() < EACH, "{}, {rule:?}: {ratio} {qualities:?}", network.name);
            assert!(view.stalled <= sabre.stalled + STALLED, "{}, {rule:?}: {view:?}", network.name);
            ratios.push(ratio);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!((mean - 1.0).abs() < ALL, "{mean} {ratios:?}");
}

//! dash.js' own decisions, recorded in Chromium over emulated paths, as an oracle for the player: at the same times, with the same
//! segments before, it decides the same. Tests only.

use super::{
    ladder::Ladder,
    player::{Player, Rule, Step, Video},
    real::Segment,
};
use serde::Deserialize;

/// Made by fixtures/dash-js.py.
const DASH_JS: &str = include_str!("../../fixtures/dash-js.json");
/// Of all decisions by a rule, those that have to be the same, and of a recording.
const OF_A_RULE: f64 = 0.95;
const OF_A_RECORDING: f64 = 0.85;
/// The player may want to wait until its buffer has room: dash.js looks twice a second.
const PATIENCE: f64 = 1.0; // seconds

#[derive(Deserialize)]
struct Fixture {
    ladder: Vec<f64>,
    segment: f64,
    recordings: Vec<Recording>,
}

#[derive(Deserialize)]
struct Recording {
    path: String,
    rule: String,
    segments: Vec<Segment>,
}

/// Of a recording's decisions, those that the player takes as well. After one that it does not it goes on with what was recorded.
fn replay(fixture: &Fixture, rule: Rule, recording: &Recording) -> (usize, Vec<(usize, usize)>) {
    let video = Video { ladder: Ladder::new(&fixture.ladder).unwrap(), duration: fixture.segment, segments: u32::MAX };
    let mut player = Player::new(video, rule);
    let mut decisions = Vec::new();
    for segment in &recording.segments {
        let (mut now, last) = (segment.requested, segment.requested + PATIENCE);
        let own = loop {
            match player.step(now) {
                Step::Request { quality, .. } => break quality,
                Step::Wait(until) if until <= last => now = until,
                // Its buffer is fuller than that of dash.js was: it decides now.
                _ => break player.request_now(now),
            }
        };
        decisions.push((own, segment.quality));
        player.request_instead(segment.quality);
        player.received(segment.finished.max(now), segment.bytes, segment.first_byte);
    }
    (decisions.iter().filter(|(own, recorded)| own == recorded).count(), decisions)
}

#[test]
fn a_player_decides_as_dash_js_did() {
    let fixture: Fixture = serde_json::from_str(DASH_JS).unwrap();
    for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
        let (mut same, mut all) = (0, 0);
        for recording in fixture.recordings.iter().filter(|recording| recording.rule == rule.argument()) {
            let (agreed, decisions) = replay(&fixture, rule, recording);
            let share = agreed as f64 / decisions.len() as f64;
            assert!(share >= OF_A_RECORDING, "{}, {rule:?}: {share} {decisions:?}", recording.path);
            (same, all) = (same + agreed, all + decisions.len());
        }
        assert!(all > 0, "{rule:?}: no recording");
        assert!(same as f64 / all as f64 >= OF_A_RULE, "{rule:?}: {same} of {all}");
    }
}

//! dash.js' own decisions, recorded in Chromium over emulated paths, as an oracle for the player: at the same times,
//! with the same segments before, it decides the same. Tests only.

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

/// Of a recording's decisions, which quality and whether to give up, those that the player takes as well. After one
/// that it does not it goes on with what was recorded.
fn replay(fixture: &Fixture, rule: Rule, recording: &Recording) -> (usize, Vec<(usize, usize)>) {
    let video = Video { ladder: Ladder::new(&fixture.ladder).unwrap(), duration: fixture.segment, segments: u32::MAX };
    let mut player = Player::new(video, rule);
    let mut decisions = Vec::new();
    for segment in &recording.segments {
        let given_up = segment.given_up.as_ref();
        let (requested, quality) =
            given_up.map_or((segment.requested, segment.quality), |first| (first.requested, first.quality));
        let (mut now, last) = (requested, requested + PATIENCE);
        let own = loop {
            match player.step(now) {
                Step::Request { quality, .. } => break quality,
                Step::Wait(until) if until <= last => now = until,
                // Its buffer is fuller than that of dash.js was: it decides now.
                _ => break player.request_now(now),
            }
        };
        decisions.push((own, quality));
        player.request_instead(quality);
        if let Some(first) = given_up {
            // Not its time: dash.js looks at each report of progress, of which the recording has the last.
            let does = player.gives_up(first.at, (first.loaded, first.total), first.first_byte);
            let own = player.pending().filter(|_| does).map_or(first.quality, |(_, quality)| quality);
            decisions.push((own, segment.quality));
            player.request_instead(segment.quality);
        }
        player.received(segment.finished.max(now), segment.bytes, segment.first_byte);
    }
    (decisions.iter().filter(|(own, recorded)| own == recorded).count(), decisions)
}

#[test]
fn a_player_decides_as_dash_js_did() {
    let fixture: Fixture = serde_json::from_str(DASH_JS).unwrap();
    for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
        let (mut same, mut all, mut others) = (0, 0, Vec::new());
        for recording in fixture.recordings.iter().filter(|recording| recording.rule == rule.argument()) {
            let (agreed, decisions) = replay(&fixture, rule, recording);
            let share = agreed as f64 / decisions.len() as f64;
            assert!(share >= OF_A_RECORDING, "{}, {rule:?}: {share} {decisions:?}", recording.path);
            (same, all) = (same + agreed, all + decisions.len());
            let others_of = |(index, (own, recorded)): (usize, &(usize, usize))| {
                (own != recorded).then(|| format!("{}, decision {index}: {own} instead of {recorded}", recording.path))
            };
            others.extend(decisions.iter().enumerate().filter_map(others_of));
        }
        assert!(all > 0, "{rule:?}: no recording");
        assert!(same as f64 / all as f64 >= OF_A_RULE, "{rule:?}: {same} of {all}: {others:#?}");
    }
}

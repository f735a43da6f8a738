//! A viewer over a network on paper: the player's tests need not wait. Tests only.

use super::player::{Player, Rule, Step, Video, View};

/// Interval of progress reports, as in browsers.
const PROGRESS: f64 = 0.05; // seconds
/// Turns, at most.
const TURNS: u32 = 100_000;

/// Watches a whole video, whose segments have the sizes of their bitrates: how it was, and the qualities of the
/// segments. The network answers after `latency` seconds, and brings `rate` kbit/s at each time.
pub(super) fn watch(video: &Video, rule: Rule, latency: f64, rate: impl Fn(f64) -> f64) -> (View, Vec<usize>) {
    let mut player = Player::new(video.clone(), rule);
    let (mut now, mut qualities) = (0.0, Vec::new());
    for _ in 0..TURNS {
        match player.step(now) {
            Step::Over => return (player.view(), qualities),
            Step::Wait(until) => now = until.max(now + 1e-3),
            Step::Request { quality, .. } => {
                let (bytes, first_byte, finished) = load(&mut player, video, (now + latency, latency), quality, &rate);
                now = finished;
                qualities.push(player.pending().map_or(quality, |(_, quality)| quality));
                player.received(now, bytes, first_byte);
            }
        }
    }
    panic!("it never ends");
}

/// A segment comes, in whatever quality: its bytes, when the first came, and the last.
fn load(
    player: &mut Player,
    video: &Video,
    (mut first_byte, latency): (f64, f64),
    mut quality: usize,
    rate: &impl Fn(f64) -> f64,
) -> (u64, f64, f64) {
    let (mut now, mut loaded) = (first_byte, 0.0);
    for _ in 0..TURNS {
        let bytes = video.ladder.bitrate(quality) * video.duration * 125.0;
        let a_second = rate(now) * 125.0;
        let left = (bytes - loaded) / a_second;
        if left <= PROGRESS {
            return (whole(bytes), first_byte, now + left);
        }
        now += PROGRESS;
        loaded += a_second * PROGRESS;
        if player.gives_up(now, (whole(loaded), whole(bytes)), first_byte) {
            quality = player.pending().map_or(0, |(_, quality)| quality);
            (loaded, first_byte) = (0.0, now + latency);
            now = first_byte;
        }
    }
    panic!("a segment never comes");
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a segment's bytes")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

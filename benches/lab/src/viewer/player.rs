//! A player of adaptive video, by dash.js's rules (5.2, as its documentation and settings have them): which segment it
//! requests next, in which quality and when. Pure: the time and the received data are arguments.

use super::{
    bola::{self, Bola},
    ladder::Ladder,
    playback::Playback,
    throughput::Throughput,
};
use crate::argument;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, time::Duration};

/// Buffers are filled up to here,
const BUFFER: f64 = 18.0; // seconds
/// or here in the top quality.
const BUFFER_AT_TOP: f64 = 30.0; // seconds
/// A full buffer is looked at again after so long.
const LOOK: f64 = 0.5; // seconds
/// The dynamic rule takes BOLA from this buffer on, and half of it is where it returns to throughput.
const HYBRID: f64 = 12.0; // seconds
/// Of the throughput, what a short buffer may rely on.
const SHORT_BUFFER_SAFETY: f64 = 0.7;
/// At the beginning so many segments are loaded without that rule.
const IGNORED: u32 = 2;
/// The quality of the first segment.
const FIRST: f64 = 1_000.0; // kbit/s
/// Decisions that are remembered,
const HISTORY: usize = 8;
/// and the share of drops from which a quality is avoided.
const DROPS: f64 = 0.075;
/// A request is given up that would take so many times the segment's duration,
const ABANDON: f64 = 1.8;
/// not before so much time, and reports of progress, one in 50 ms as browsers have them.
const ABANDON_AFTER: f64 = 0.5; // seconds
const REPORTS: f64 = 6.0 * 0.05; // seconds
/// For so long no higher quality is taken after that.
const ABANDONED: f64 = 10.0; // seconds

/// How the quality is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rule {
    /// By what the network brought.
    Throughput,
    /// By what is buffered.
    Bola,
    /// By the former while little is buffered, else by the latter: dash.js's default.
    Dynamic,
}

impl Rule {
    /// The word for the command line.
    pub(crate) fn argument(self) -> String {
        argument::word(&self)
    }
}

/// What is played: segments of one duration in several qualities.
#[derive(Debug, Clone)]
pub(crate) struct Video {
    pub(super) ladder: Ladder,
    /// Seconds.
    pub(super) duration: f64,
    pub(super) segments: u32,
}

/// What a player does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Requests a segment; the first is 0.
    Request { segment: u32, quality: usize },
    /// Nothing before then, unless something comes.
    Wait(f64),
    /// All was played.
    Over,
}

/// How it was to watch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct View {
    /// kbit/s, of all segments that were loaded.
    pub(crate) bitrate: f64,
    /// Seconds until it began.
    pub(crate) start_up: f64,
    /// How often it stood still, and for how many seconds.
    pub(crate) stalls: u32,
    pub(crate) stalled: f64,
    /// Changes of quality.
    pub(crate) switches: u32,
    /// Seconds that were played.
    pub(crate) played: f64,
}

/// One viewer's.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    video: Video,
    rule: Rule,
    throughput: Throughput,
    bola: Option<Bola>,
    uses_bola: bool,
    playback: Playback,
    quality: usize,
    /// The next segment.
    next: u32,
    pending: Option<Pending>,
    not_before: f64,
    /// What BOLA wants to wait once the current segment has arrived.
    delay: f64,
    history: VecDeque<(usize, bool)>,
    abandoned_until: f64,
    kilobits: f64,
    switches: u32,
    loaded: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    segment: u32,
    quality: usize,
    requested: f64,
    was_given_up: bool,
}

impl Player {
    pub(crate) fn new(video: Video, rule: Rule) -> Self {
        let quality = video.ladder.at_most(FIRST);
        let bola = Bola::new(&video.ladder, BUFFER).filter(|_| rule != Rule::Throughput);
        let uses_bola = rule == Rule::Bola && bola.is_some();
        let (throughput, next, pending, not_before, delay, history, abandoned_until) = Default::default();
        let (kilobits, switches, loaded) = Default::default();
        Self {
            video,
            rule,
            throughput,
            bola,
            uses_bola,
            playback: Playback::new(),
            quality,
            next,
            pending,
            not_before,
            delay,
            history,
            abandoned_until,
            kilobits,
            switches,
            loaded,
        }
    }

    /// What to do at `now`.
    pub(crate) fn step(&mut self, now: f64) -> Step {
        self.advance(now);
        if self.playback.is_over() {
            return Step::Over;
        }
        if self.pending.is_some() || self.next >= self.video.segments {
            return Step::Wait(now + LOOK);
        }
        if now < self.not_before {
            return Step::Wait(self.not_before);
        }
        let target = if self.quality == self.video.ladder.top() { BUFFER_AT_TOP } else { BUFFER };
        if self.playback.buffer() + self.video.duration >= target {
            return Step::Wait(now + LOOK);
        }
        let (segment, quality) = self.request(now);
        Step::Request { segment, quality }
    }

    fn request(&mut self, now: f64) -> (u32, usize) {
        if self.next > 0 {
            self.decide(now);
        }
        let (segment, quality) = (self.next, self.quality);
        self.pending = Some(Pending { segment, quality, requested: now, was_given_up: false });
        (segment, quality)
    }

    /// Requests a segment at `now`, whatever is buffered: in which quality?
    #[cfg(test)]
    pub(super) fn request_now(&mut self, now: f64) -> usize {
        self.advance(now);
        self.request(now).1
    }

    /// Takes another quality of the current segment than was decided.
    #[cfg(test)]
    pub(super) fn request_instead(&mut self, quality: usize) {
        self.quality = quality;
        self.pending = self.pending.map(|pending| Pending { quality, ..pending });
    }

    /// The current segment came: `bytes` of it, the first at `first_byte`.
    pub(crate) fn received(&mut self, now: f64, bytes: u64, first_byte: f64) {
        let Some(Pending { segment, quality, requested, .. }) = self.pending.take() else { return };
        self.throughput.add(bytes, Duration::from_secs_f64((now - first_byte).max(0.0)));
        self.next = segment + 1;
        self.playback.append(now, self.video.duration, self.next == self.video.segments);
        let buffer = self.playback.buffer();
        if let Some(bola) = &mut self.bola {
            bola.loaded(quality, self.video.duration, requested, now, buffer);
        }
        self.not_before = now + std::mem::take(&mut self.delay);
        self.kilobits += self.video.ladder.bitrate(quality);
        self.switches += u32::from(self.loaded.replace(quality).is_some_and(|before| before != quality));
        self.choose_rule();
    }

    /// Of the current segment `loaded` of `total` bytes came, the first at `first_byte`. True: it is to be given up,
    /// and requested anew in a lower quality.
    pub(crate) fn gives_up(&mut self, now: f64, (loaded, total): (u64, u64), first_byte: f64) -> bool {
        self.advance(now);
        let elapsed = now - first_byte;
        let Some(pending) = self.pending.filter(|pending| !pending.was_given_up && pending.quality > 0) else {
            return false;
        };
        if self.playback.buffer() > BUFFER || elapsed < ABANDON_AFTER.max(REPORTS) || loaded >= total {
            return false;
        }
        let kilobits = (8e-3 * loaded as f64 / elapsed).round();
        if 8e-3 * total as f64 / kilobits < self.video.duration * ABANDON {
            return false;
        }
        let lower = self.video.ladder.at_most(kilobits);
        let instead = total as f64 * self.video.ladder.bitrate(lower) / self.video.ladder.bitrate(pending.quality);
        if (total - loaded) as f64 <= instead {
            return false;
        }
        self.quality = lower;
        self.abandoned_until = now + ABANDONED;
        if let Some(bola) = &mut self.bola {
            bola.abandoned(lower, self.playback.buffer());
        }
        self.pending = Some(Pending { quality: lower, requested: now, was_given_up: true, ..pending });
        true
    }

    /// The quality of the current segment.
    pub(crate) fn pending(&self) -> Option<(u32, usize)> {
        self.pending.map(|pending| (pending.segment, pending.quality))
    }

    /// How it was until now.
    pub(crate) fn view(&self) -> View {
        let (stalls, stalled) = self.playback.stalls();
        View {
            bitrate: if self.next > 0 { self.kilobits / f64::from(self.next) } else { 0.0 },
            start_up: self.playback.started().unwrap_or_default(),
            stalls,
            stalled,
            switches: self.switches,
            played: self.playback.played(),
        }
    }

    fn advance(&mut self, now: f64) {
        if self.playback.advance(now)
            && let Some(bola) = &mut self.bola
        {
            bola.emptied();
        }
        self.choose_rule();
    }

    fn choose_rule(&mut self) {
        if self.rule == Rule::Dynamic && self.bola.is_some() {
            let threshold = if self.uses_bola { HYBRID / 2.0 } else { HYBRID };
            self.uses_bola = self.playback.buffer() >= threshold;
        }
    }

    /// The lowest of the rules' decisions.
    fn decide(&mut self, now: f64) {
        let wishes = [self.main_rule(now), self.short_buffer(), self.avoided()];
        let quality = wishes.into_iter().flatten().min().unwrap_or(self.quality);
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((self.quality, quality < self.quality));
        if quality == self.quality || (now < self.abandoned_until && quality > self.quality) {
            return;
        }
        self.quality = quality;
        if let Some(bola) = &mut self.bola {
            bola.overruled(quality);
        }
    }

    fn main_rule(&mut self, now: f64) -> Option<usize> {
        let safe = self.throughput.safe();
        let buffer = self.playback.buffer();
        if let Some(bola) = self.bola.as_mut().filter(|_| self.uses_bola) {
            let wish = bola.decide(bola::Now { time: now, buffer, safe })?;
            self.delay = wish.delay;
            return Some(wish.quality);
        }
        let may = !self.playback.is_empty() && now >= self.abandoned_until;
        may.then_some(())?;
        safe.map(|safe| self.video.ladder.at_most(safe))
    }

    /// What can be loaded before the buffer is empty.
    fn short_buffer(&self) -> Option<usize> {
        if self.next < IGNORED {
            return None;
        }
        if self.playback.is_empty() {
            return Some(0);
        }
        let rate = self.throughput.average()? * SHORT_BUFFER_SAFETY * self.playback.buffer() / self.video.duration;
        (rate > 0.0).then(|| self.video.ladder.at_most(rate))
    }

    /// The quality below one that was left again and again.
    fn avoided(&self) -> Option<usize> {
        let (mut drops, mut kept) = (0, 0);
        for quality in 0..=self.video.ladder.top() {
            let of = |dropped: bool| self.history.iter().filter(|entry| **entry == (quality, dropped)).count();
            let (own_drops, own_kept) = (of(true), of(false));
            (drops, kept) = (drops + own_drops, kept + own_kept);
            let share = drops as f64 / kept as f64;
            if own_drops + own_kept > 0 && drops + kept >= HISTORY && share > DROPS {
                return Some(if own_drops > 0 { quality.saturating_sub(1) } else { quality });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{super::simulate, *};

    fn video(segments: u32) -> Video {
        let ladder = Ladder::new(&[400.0, 1_200.0, 3_000.0, 6_000.0]).unwrap();
        Video { ladder, duration: 2.0, segments }
    }

    /// Plays a video over a network of so many kbit/s at each time, with a latency of 20 ms: the view, and the
    /// qualities.
    fn play(rule: Rule, segments: u32, rate: impl Fn(f64) -> f64) -> (View, Vec<usize>) {
        simulate::watch(&video(segments), rule, 0.02, rate)
    }

    #[test]
    fn a_fast_network_is_watched_in_the_top_quality_by_every_rule() {
        for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
            let (view, qualities) = play(rule, 60, |_| 40_000.0);
            assert_eq!((view.stalls, view.played.round()), (0, 120.0), "{rule:?}");
            assert_eq!(
                qualities.iter().filter(|quality| **quality == 3).count() * 10 / 60,
                9,
                "{rule:?} {qualities:?}"
            );
        }
    }

    #[test]
    fn a_rate_between_qualities_plays_the_lower_without_stalls() {
        for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
            let (view, qualities) = play(rule, 60, |_| 4_000.0);
            assert_eq!(view.stalls, 0, "{rule:?}");
            let steady = &qualities[20..];
            assert!(steady.iter().all(|quality| *quality == 2), "{rule:?} {qualities:?}");
        }
    }

    #[test]
    fn a_step_down_is_followed_and_back_up_again() {
        let rate = |now: f64| if (40.0..80.0).contains(&now) { 2_000.0 } else { 12_000.0 };
        for rule in [Rule::Throughput, Rule::Bola, Rule::Dynamic] {
            let (view, qualities) = play(rule, 75, rate);
            assert!(view.stalled < 1.0, "{rule:?} {view:?}");
            assert!(qualities.contains(&1) || qualities.contains(&0), "{rule:?} {qualities:?}");
            assert_eq!(qualities.last(), Some(&3), "{rule:?} {qualities:?}");
        }
    }

    #[test]
    fn a_network_that_carries_less_than_the_lowest_quality_stalls() {
        let (view, qualities) = play(Rule::Dynamic, 30, |_| 300.0);
        assert!(view.stalls > 3 && view.stalled > 10.0, "{view:?}");
        assert!(qualities[3..].iter().all(|quality| *quality == 0), "{qualities:?}");
    }

    #[test]
    fn a_segment_that_would_take_too_long_is_given_up() {
        let mut player = Player::new(video(10), Rule::Throughput);
        player.quality = 3;
        player.next = 3;
        player.pending = Some(Pending { segment: 3, quality: 3, requested: 0.0, was_given_up: false });
        assert!(!player.gives_up(0.3, (10_000, 1_500_000), 0.0), "too early");
        assert!(player.gives_up(0.6, (60_000, 1_500_000), 0.0), "800 kbit/s");
        assert_eq!(player.pending(), Some((3, 0)));
        assert!(!player.gives_up(9.0, (60_000, 100_000), 0.6), "once");
    }
}

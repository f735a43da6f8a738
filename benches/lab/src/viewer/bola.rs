//! BOLA: the quality by what is buffered (Spiteri, Urgaonkar, Sitaraman: BOLA, Near-Optimal Bitrate Adaptation for
//! Online Videos, 2016; its variant BOLA-O, with a placeholder buffer, as dash.js 5 documents `BolaRule`). Pure;
//! seconds and kbit/s.

use super::ladder::Ladder;

/// Below this it never waits.
const MINIMUM_BUFFER: f64 = 10.0;
/// The top quality needs so much more for each quality there is.
const BUFFER_A_LEVEL: f64 = 2.0;
/// What the placeholder keeps of itself with each segment.
const DECAY: f64 = 0.99;

/// One viewer's.
#[derive(Debug, Clone)]
pub(super) struct Bola {
    ladder: Ladder,
    utilities: Vec<f64>,
    gp: f64,
    vp: f64,
    is_steady: bool,
    /// Added to the buffer where something else than the network kept it short.
    placeholder: f64,
    /// The quality that was decided or loaded last.
    current: usize,
    last_duration: Option<f64>,
    last_finish: Option<f64>,
    last_call: Option<f64>,
}

/// What a decision goes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since the viewer began.
    pub(super) time: f64,
    /// What is buffered.
    pub(super) buffer: f64,
    /// What the network brings, less a margin.
    pub(super) safe: Option<f64>,
}

/// Its decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wish {
    pub(super) quality: usize,
    /// Before the segment is requested.
    pub(super) delay: f64,
}

impl Bola {
    /// `None` where there is one quality: nothing is to be decided.
    pub(super) fn new(ladder: &Ladder, buffer_target: f64) -> Option<Self> {
        let bitrates = ladder.bitrates();
        let lowest = bitrates.first()?.ln();
        let utilities: Vec<f64> = bitrates.iter().map(|bitrate| bitrate.ln() - lowest + 1.0).collect();
        let highest = *utilities.last().filter(|highest| **highest > 1.0)?;
        let top = buffer_target.max(MINIMUM_BUFFER + BUFFER_A_LEVEL * bitrates.len() as f64);
        // The lowest quality is preferred up to MINIMUM_BUFFER, the highest from `top` on.
        let gp = (highest - 1.0) / (top / MINIMUM_BUFFER - 1.0);
        Some(Self {
            ladder: ladder.clone(),
            utilities,
            gp,
            vp: MINIMUM_BUFFER / gp,
            is_steady: false,
            placeholder: 0.0,
            current: 0,
            last_duration: None,
            last_finish: None,
            last_call: None,
        })
    }

    /// Which quality comes next. `None` as long as the network's rate is unknown.
    pub(super) fn decide(&mut self, now: Now) -> Option<Wish> {
        if self.is_steady { self.steady(now) } else { self.start(now) }
    }

    /// At first the network's rate decides; the placeholder has the buffer agree.
    fn start(&mut self, Now { buffer, safe, .. }: Now) -> Option<Wish> {
        let quality = self.ladder.at_most(safe?);
        self.placeholder = (self.least_buffer(quality) - buffer).max(0.0);
        self.current = quality;
        self.is_steady = self.last_duration.is_some_and(|duration| buffer >= duration);
        Some(Wish { quality, delay: 0.0 })
    }

    fn steady(&mut self, Now { time, buffer, safe }: Now) -> Option<Wish> {
        // Time in which nothing was loaded for other reasons than the network.
        if let Some(since) = self.last_finish.or(self.last_call) {
            self.placeholder += (time - since).max(0.0);
        }
        (self.last_call, self.last_finish) = (Some(time), None);
        let mut quality = self.preferred(buffer + self.placeholder);
        // Between two qualities' bitrates the lower one is kept (BOLA-O).
        let sustainable = self.ladder.at_most(safe?);
        if quality > self.current && quality > sustainable {
            quality = sustainable.max(self.current);
        }
        let mut delay = (buffer + self.placeholder - self.most_buffer(quality)).max(0.0);
        if delay <= self.placeholder {
            self.placeholder -= delay;
            delay = 0.0;
        } else {
            delay -= self.placeholder;
            self.placeholder = 0.0;
            if quality == self.ladder.top() {
                // How far it fills is the player's business.
                delay = 0.0;
            }
        }
        self.current = quality;
        Some(Wish { quality, delay })
    }

    /// A segment of `quality` and so many seconds was requested and finished then, and has `buffer` afterwards.
    pub(super) fn loaded(&mut self, quality: usize, duration: f64, requested: f64, finished: f64, buffer: f64) {
        (self.last_duration, self.last_finish, self.current) = (Some(duration), Some(finished), quality);
        self.placeholder *= DECAY;
        let at_request = buffer + (finished - requested);
        self.placeholder = self.placeholder.min((self.most_buffer(quality) - at_request).max(0.0));
    }

    /// Nothing is buffered.
    pub(super) fn emptied(&mut self) {
        if self.is_steady {
            self.placeholder = 0.0;
        }
    }

    /// Another rule decided otherwise, or a request was given up: what was decided is this.
    pub(super) fn overruled(&mut self, quality: usize) {
        self.current = quality;
    }

    /// A request was given up: the placeholder shrinks until the new quality is just preferred.
    pub(super) fn abandoned(&mut self, quality: usize, buffer: f64) {
        self.current = quality;
        let wanted = if quality > 0 { self.least_buffer(quality) } else { MINIMUM_BUFFER };
        self.placeholder = self.placeholder.min((wanted - buffer).max(0.0));
    }

    /// The quality of the best score; of equal ones the highest.
    fn preferred(&self, buffer: f64) -> usize {
        let scores = self.utilities.iter().zip(self.ladder.bitrates());
        let scores = scores.map(|(utility, bitrate)| (self.vp * (utility - 1.0 + self.gp) - buffer) / bitrate);
        let best =
            scores.enumerate().fold(
                (0, f64::NEG_INFINITY),
                |best, (quality, score)| {
                    if score >= best.1 { (quality, score) } else { best }
                },
            );
        best.0
    }

    /// From so much on it waits rather than buffers more in this quality.
    fn most_buffer(&self, quality: usize) -> f64 {
        self.utilities.get(quality).map_or(0.0, |utility| self.vp * (utility + self.gp))
    }

    /// From so much on it prefers this quality to all lower ones; by dash.js's measure, which is `vp` above that of the
    /// scores.
    fn least_buffer(&self, quality: usize) -> f64 {
        let level = |(utility, bitrate): (&f64, &f64), (own_utility, own): (f64, f64)| {
            self.vp * (self.gp + (own * utility - bitrate * own_utility) / (own - bitrate))
        };
        let all: Vec<(&f64, &f64)> = self.utilities.iter().zip(self.ladder.bitrates()).collect();
        let Some((utility, bitrate)) = all.get(quality).map(|(utility, bitrate)| (**utility, **bitrate)) else {
            return 0.0;
        };
        all.iter().take(quality).map(|lower| level(*lower, (utility, bitrate))).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bola() -> Bola {
        Bola::new(&Ladder::new(&[400.0, 1_200.0, 3_000.0, 6_000.0]).unwrap(), 18.0).unwrap()
    }

    #[test]
    fn quality_grows_with_the_buffer_between_the_papers_ends() {
        let bola = bola();
        let preferred: Vec<usize> = (0..=20).map(|buffer| bola.preferred(f64::from(buffer))).collect();
        assert!(preferred.is_sorted(), "{preferred:?}");
        // From 10 s on the lowest quality has no score.
        assert_eq!((preferred[0], preferred[8], preferred[10], preferred[18]), (0, 0, 1, 3), "{preferred:?}");
        assert!(Bola::new(&Ladder::new(&[400.0]).unwrap(), 18.0).is_none(), "nothing to decide");
    }

    #[test]
    fn the_network_decides_at_first_and_the_placeholder_has_the_buffer_agree() {
        let mut bola = bola();
        assert_eq!(bola.decide(Now { time: 0.0, buffer: 0.0, safe: None }), None);
        let wish = bola.decide(Now { time: 0.0, buffer: 0.0, safe: Some(3_500.0) }).unwrap();
        assert_eq!(wish, Wish { quality: 2, delay: 0.0 });
        assert!(bola.preferred(bola.placeholder) >= 2);
        bola.loaded(2, 2.0, 0.0, 1.0, 2.0);
        bola.decide(Now { time: 1.0, buffer: 2.0, safe: Some(3_500.0) }).unwrap();
        assert!(bola.is_steady);
    }

    #[test]
    fn a_quality_between_two_bitrates_is_not_tried_again_and_again() {
        let mut bola = bola();
        (bola.is_steady, bola.current) = (true, 2);
        // The buffer would allow the top; the network carries 4 Mbit/s.
        let wish = bola.decide(Now { time: 0.0, buffer: 18.0, safe: Some(4_000.0) }).unwrap();
        assert_eq!(wish.quality, 2);
        let wish = bola.decide(Now { time: 0.0, buffer: 18.0, safe: Some(8_000.0) }).unwrap();
        assert_eq!(wish.quality, 3);
    }

    #[test]
    fn bola_waits_rather_than_overfill_the_buffer() {
        let mut bola = bola();
        (bola.is_steady, bola.current) = (true, 1);
        let wish = bola.decide(Now { time: 0.0, buffer: 25.0, safe: Some(1_500.0) }).unwrap();
        assert_eq!(wish.quality, 1);
        assert!(wish.delay > 0.0, "{wish:?}");
        bola.current = 3;
        assert_eq!(bola.decide(Now { time: 0.0, buffer: 90.0, safe: Some(9_000.0) }).unwrap().delay, 0.0);
    }
}

//! What a viewer sees: playback, which drains the buffer as time goes on, and stands still where it is empty. Pure.

/// Below so much it stands still, as dash.js has it (`stallThreshold`).
const STALL: f64 = 0.3; // seconds of media

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Nothing came yet.
    Starting,
    Playing,
    Stalled {
        since: f64,
    },
    Ended,
}

/// One viewer's. Times are seconds since it began, buffers seconds of media.
#[derive(Debug, Clone)]
pub(super) struct Playback {
    state: State,
    /// Until when the state is known.
    at: f64,
    buffer: f64,
    /// Nothing more will come.
    is_complete: bool,
    started: Option<f64>,
    played: f64,
    stalls: u32,
    stalled: f64,
}

impl Playback {
    pub(super) fn new() -> Self {
        let (at, buffer, is_complete, started, played, stalls, stalled) = Default::default();
        Self { state: State::Starting, at, buffer, is_complete, started, played, stalls, stalled }
    }

    /// Time goes on. True if it began to stand still.
    pub(super) fn advance(&mut self, now: f64) -> bool {
        let time = (now - self.at).max(0.0);
        self.at = self.at.max(now);
        if self.state != State::Playing {
            return false;
        }
        let left = if self.is_complete { self.buffer } else { (self.buffer - STALL).max(0.0) };
        let plays = time.min(left);
        self.buffer -= plays;
        self.played += plays;
        if plays < time || (left - plays) <= 0.0 {
            if self.is_complete {
                self.state = State::Ended;
            } else {
                self.state = State::Stalled { since: self.at - (time - plays) };
                self.stalls += 1;
                return true;
            }
        }
        false
    }

    /// A segment of so many seconds came, the last one or not.
    pub(super) fn append(&mut self, now: f64, seconds: f64, is_last: bool) {
        self.advance(now);
        self.buffer += seconds;
        self.is_complete |= is_last;
        if self.buffer < STALL && !self.is_complete {
            return;
        }
        match self.state {
            State::Starting => self.started = Some(now),
            State::Stalled { since } => self.stalled += now - since,
            State::Playing | State::Ended => return,
        }
        self.state = State::Playing;
    }

    /// What is buffered, after [`Self::advance`].
    pub(super) fn buffer(&self) -> f64 {
        self.buffer
    }

    /// It stands still, or has not begun.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.state, State::Starting | State::Stalled { .. })
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Ended
    }

    /// When it began.
    pub(super) fn started(&self) -> Option<f64> {
        self.started
    }

    /// Seconds of media that were played.
    pub(super) fn played(&self) -> f64 {
        self.played
    }

    /// How often it stood still after it began, and for how many seconds, the time until now included.
    pub(super) fn stalls(&self) -> (u32, f64) {
        let now = if let State::Stalled { since } = self.state { self.at - since } else { 0.0 };
        (self.stalls, self.stalled + now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_segment_and_ends_with_the_last() {
        let mut playback = Playback::new();
        assert!(!playback.advance(1.0) && playback.is_empty());
        playback.append(1.0, 2.0, false);
        assert_eq!((playback.started(), playback.is_empty()), (Some(1.0), false));
        playback.append(2.0, 2.0, true);
        assert!(!playback.advance(4.9) && !playback.is_over());
        assert!(!playback.advance(5.0) && playback.is_over());
        assert_eq!((playback.played(), playback.stalls()), (4.0, (0, 0.0)));
    }

    #[test]
    fn an_empty_buffer_stands_still_until_more_comes() {
        let mut playback = Playback::new();
        playback.append(0.0, 2.0, false);
        assert!(playback.advance(3.0), "since 1.7");
        assert!(!playback.advance(4.0));
        let (count, seconds) = playback.stalls();
        assert!(count == 1 && (seconds - 2.3).abs() < 1e-9, "{seconds}");
        playback.append(5.0, 2.0, false);
        assert!((playback.stalls().1 - 3.3).abs() < 1e-9);
        assert!((playback.buffer() - 2.3).abs() < 1e-9);
        playback.advance(6.0);
        assert!((playback.played() - 2.7).abs() < 1e-9);
    }

    #[test]
    fn the_last_segment_is_played_to_its_end() {
        let mut playback = Playback::new();
        playback.append(0.0, 1.0, true);
        assert!(!playback.advance(0.9) && !playback.is_over());
        assert!(!playback.advance(9.0) && playback.is_over());
        assert_eq!(playback.stalls(), (0, 0.0));
    }
}

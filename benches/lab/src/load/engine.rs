//! Runs a load over a wire: connects, warms up, measures, and reports what voids it. Independent of the protocol.

use super::{
    arguments::{Arguments, Kind},
    check::Expected,
    pace::{Next, Pace},
    report::{LoadReport, Steady},
    summary::{self, Measured, Void, cpu_time},
    tally::Tally,
    wire::{Happening, Wire},
};
use std::{
    collections::VecDeque,
    fs::File,
    time::{Duration, Instant},
};

/// Handshakes in flight at a time while the connections of a load are opened: no server's backlog overflows.
const CONNECTING_AT_ONCE: usize = 64;

/// Failures after which nothing more is started: the run is void already.
const FAILURES_ENOUGH: u64 = 100;

/// How often a wait is interrupted to look at the deadlines.
const LOOK: Duration = Duration::from_millis(100);

/// Loads the server that `wire` leads to.
pub(super) fn run<W: Wire>(arguments: &Arguments, wire: W) -> LoadReport {
    let now = Instant::now();
    let slots = arguments.connections as usize;
    let streams = arguments.streams as usize;
    let expected = match arguments.kind {
        Kind::Upload => Expected::upload(arguments.expect_hash),
        _ => Expected::download(arguments.bytes, arguments.expect_hash),
    };
    let mut engine = Engine {
        arguments,
        wire,
        slots: vec![Slot::Empty; slots],
        connecting: 0,
        alive: 0,
        draining: Vec::new(),
        streams,
        in_flight: vec![None; slots * streams],
        running: 0,
        free: VecDeque::new(),
        again: VecDeque::new(),
        happened: Vec::new(),
        expected,
        tally: Tally::new(arguments.connections),
        reconnects: 0,
        deadline: now + arguments.deadline + arguments.seconds.unwrap_or_default(),
        cut: None,
        beginning: None,
        progress: (0, now),
    };
    let outcome = engine.phases();
    // No connection outlives its load.
    let now = Instant::now();
    for (slot, state) in engine.slots.iter().enumerate() {
        if *state != Slot::Empty {
            engine.wire.close(slot, now);
        }
    }
    // A load that came to its end may leave a replacement connecting; it is not needed any more.
    let connecting = if outcome.is_err() { engine.connecting } else { 0 };
    let unanswered = (engine.running + connecting) as u64;
    summary::report(arguments, outcome, engine.tally, &engine.expected, unanswered, engine.reconnects)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    /// Since when its handshake was meant to run.
    Connecting(Instant),
    Open,
    /// Takes no more requests.
    Draining,
}

impl Slot {
    fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting(_))
    }
}

struct Engine<'a, W> {
    arguments: &'a Arguments,
    wire: W,
    slots: Vec<Slot>,
    /// How many of them are connecting, and how many are not empty.
    connecting: usize,
    alive: usize,
    /// Those that the server winds up.
    draining: Vec<usize>,
    streams: usize,
    /// By token: the intended start of the request in flight.
    in_flight: Vec<Option<Instant>>,
    /// Requests in flight.
    running: usize,
    /// Tokens of open connections without a request in flight.
    free: VecDeque<usize>,
    /// Intended starts of refused requests.
    again: VecDeque<Instant>,
    happened: Vec<Happening>,
    expected: Expected,
    tally: Tally,
    reconnects: u64,
    deadline: Instant,
    /// When requests in flight are abandoned.
    cut: Option<Instant>,
    /// When the load's beginning is over, and what bodies had moved then.
    beginning: Option<(Instant, Option<u64>)>,
    /// The wire's progress, and when it was last seen to grow.
    progress: (u64, Instant),
}

impl<W: Wire> Engine<'_, W> {
    fn phases(&mut self) -> Result<Measured, Void> {
        let arguments = self.arguments;
        let warmup = arguments.warmup.unwrap_or(match arguments.kind {
            // Tickets come from somewhere.
            Kind::Handshakes if arguments.resume => u64::from(arguments.connections),
            Kind::Small => 1,
            Kind::Download | Kind::Upload | Kind::Handshakes | Kind::Idle => 0,
        });
        let warm = |start| Pace::new(start, Some(warmup), None, None);
        if arguments.kind == Kind::Handshakes {
            self.handshakes(&mut warm(Instant::now()))?;
        } else if arguments.kind != Kind::Idle {
            self.connect_all()?;
            self.requests(&mut warm(Instant::now()))?;
        }
        if self.tally.failed > 0 {
            return Err("the warm-up failed".to_owned().into());
        }
        self.tally = Tally::new(arguments.connections);
        self.reconnects = 0;
        let before = self.wire.counts();
        let cpu = cpu_time();
        let start = Instant::now();
        self.cut = arguments.seconds.filter(|_| arguments.cut).map(|seconds| start + seconds);
        self.beginning = arguments.beginning.map(|beginning| (start + beginning, None));
        let outcome = match arguments.kind {
            Kind::Idle => self.idle(&mut warm(start)),
            Kind::Handshakes => self.handshakes(&mut self.pace(start)),
            Kind::Download | Kind::Upload | Kind::Small => self.requests(&mut self.pace(start)),
        };
        let end = match self.tally.last {
            Some(last) if outcome.is_ok() && arguments.kind != Kind::Idle && !arguments.cut => last,
            _ => Instant::now(),
        };
        let counts = self.wire.counts();
        let steady = self.beginning.and_then(|(from, moved)| {
            Some(Steady {
                body_bytes: counts.body_bytes() - moved?,
                seconds: end.saturating_duration_since(from).as_secs_f64(),
            })
        });
        let counts = counts.since(&before);
        let measured = Measured { start, end, cpu: cpu_time().saturating_sub(cpu), counts, warmup, steady };
        match outcome {
            Ok(()) => Ok(measured),
            Err(reason) => Err(Void { reason, measured: Some(Box::new(measured)) }),
        }
    }

    fn pace(&self, start: Instant) -> Pace {
        let arguments = self.arguments;
        let requests = match (arguments.requests, arguments.seconds) {
            (None, None) => Some(u64::from(arguments.connections) * u64::from(arguments.streams)),
            (requests, _) => requests,
        };
        Pace::new(start, requests, arguments.seconds, arguments.rate)
    }

    /// Opens every connection.
    fn connect_all(&mut self) -> Result<(), String> {
        let mut next = 0;
        loop {
            if next == self.slots.len() && self.connecting == 0 {
                break;
            }
            let now = Instant::now();
            while next < self.slots.len() && self.connecting < CONNECTING_AT_ONCE {
                self.connect(next, now, now);
                next += 1;
            }
            self.turn(now + LOOK)?;
            for happening in std::mem::take(&mut self.happened) {
                if let Happening::Connected { slot, at } = &happening
                    && let Some(Slot::Connecting(intended)) = self.slots.get(*slot).copied()
                    && self.arguments.kind == Kind::Idle
                {
                    self.tally.done(intended, *at);
                }
                self.take(happening);
            }
            if self.tally.failed > 0 {
                return Err(self.first_error("not every connection opened"));
            }
        }
        Ok(())
    }

    /// Makes requests until the pace has no more and all are answered.
    fn requests(&mut self, pace: &mut Pace) -> Result<(), String> {
        let arguments = self.arguments;
        loop {
            let now = Instant::now();
            let mut until = now + LOOK;
            if let Some(cut) = self.cut {
                if now >= cut {
                    self.running = 0;
                    return Ok(());
                }
                until = until.min(cut);
            }
            if let Some((from, moved @ None)) = &mut self.beginning
                && now >= *from
            {
                (*from, *moved) = (now, Some(self.wire.counts().body_bytes()));
                if let Some(mark) = &arguments.mark {
                    File::create(mark).map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
                }
            }
            let mut done = self.tally.failed >= FAILURES_ENOUGH;
            let most = if arguments.in_turn { 1 } else { usize::MAX };
            while let Some(token) = self.free.front().copied().filter(|_| !done && self.running < most) {
                let intended = match self.again.pop_front() {
                    Some(intended) => intended,
                    None => match pace.next(now) {
                        Next::Start(intended) => intended,
                        Next::Wait(moment) => {
                            until = until.min(moment);
                            break;
                        }
                        Next::Done => {
                            done = true;
                            break;
                        }
                    },
                };
                self.free.pop_front();
                self.start(token, intended, now);
            }
            if self.running == 0 && done {
                return Ok(());
            }
            if self.alive == 0 {
                return Err(self.first_error("every connection was lost"));
            }
            self.turn(until)?;
            for happening in std::mem::take(&mut self.happened) {
                self.take(happening);
            }
            self.reconnect();
        }
    }

    /// Opens and closes connections until the pace has no more.
    fn handshakes(&mut self, pace: &mut Pace) -> Result<(), String> {
        let mut empty: VecDeque<usize> = (0..self.slots.len()).collect();
        loop {
            let now = Instant::now();
            let mut until = now + LOOK;
            let mut done = self.tally.failed >= FAILURES_ENOUGH;
            while let Some(slot) = empty.front().copied().filter(|_| !done) {
                match pace.next(now) {
                    Next::Start(intended) => {
                        empty.pop_front();
                        self.connect(slot, intended, now);
                    }
                    Next::Wait(moment) => {
                        until = until.min(moment);
                        break;
                    }
                    Next::Done => done = true,
                }
            }
            if done && empty.len() == self.slots.len() {
                return Ok(());
            }
            self.turn(until)?;
            for happening in std::mem::take(&mut self.happened) {
                match happening {
                    Happening::Connected { slot, at } => {
                        if let Some(Slot::Connecting(intended)) = self.slots.get(slot).copied() {
                            self.tally.done(intended, at);
                        }
                        self.wire.close(slot, Instant::now());
                        self.set(slot, Slot::Empty);
                        empty.push_back(slot);
                    }
                    Happening::Lost { slot, reason } => {
                        self.tally.wrong(1, reason);
                        self.set(slot, Slot::Empty);
                        empty.push_back(slot);
                    }
                    Happening::Answered { .. } | Happening::Refused { .. } | Happening::Draining { .. } => {}
                }
            }
        }
    }

    /// Opens all connections, makes the warm-up's requests on them, keeps them open, and sends each one request at the
    /// end: a connection that answers has lasted.
    fn idle(&mut self, warm: &mut Pace) -> Result<(), String> {
        self.connect_all()?;
        self.requests(warm)?;
        #[expect(clippy::print_stderr, reason = "the observer of the server's memory waits for this line")]
        {
            eprintln!("holding {} connections", self.slots.len());
        }
        let end = Instant::now() + self.arguments.seconds.unwrap_or_default();
        while Instant::now() < end {
            self.turn(end.min(Instant::now() + LOOK))?;
            for happening in std::mem::take(&mut self.happened) {
                // A connection that the server winds up did not last.
                let happening = match happening {
                    Happening::Draining { slot } => {
                        self.wire.close(slot, Instant::now());
                        Happening::Lost { slot, reason: "the server closed an idle connection".into() }
                    }
                    other => other,
                };
                self.take(happening);
            }
        }
        // From here on `ok` counts those that lasted.
        self.tally.ok = 0;
        let now = Instant::now();
        for slot in 0..self.slots.len() {
            if self.slots.get(slot) == Some(&Slot::Open) {
                self.start(slot * self.streams, now, now);
            }
        }
        self.free.clear();
        self.requests(&mut Pace::new(now, Some(0), None, None))
    }

    fn start(&mut self, token: usize, intended: Instant, now: Instant) {
        if let Some(place) = self.in_flight.get_mut(token) {
            *place = Some(intended);
            if self.running == 0 {
                self.progress.1 = now;
            }
            self.running += 1;
            self.wire.request(token, now);
        }
    }

    fn connect(&mut self, slot: usize, intended: Instant, now: Instant) {
        self.set(slot, Slot::Connecting(intended));
        if let Err(error) = self.wire.connect(slot, now) {
            self.happened.push(Happening::Lost { slot, reason: format!("connecting: {error}") });
        }
    }

    /// Reopens connections that the server has closed, once nothing is in flight there.
    fn reconnect(&mut self) {
        for slot in std::mem::take(&mut self.draining) {
            let tokens = slot * self.streams..(slot + 1) * self.streams;
            if self.slots.get(slot) != Some(&Slot::Draining) {
                continue;
            }
            if self.in_flight.get(tokens).is_some_and(|requests| requests.iter().any(Option::is_some)) {
                self.draining.push(slot);
                continue;
            }
            let now = Instant::now();
            self.wire.close(slot, now);
            self.reconnects += 1;
            self.connect(slot, now, now);
        }
    }

    /// Waits for the wire, and sees to the deadlines.
    fn turn(&mut self, until: Instant) -> Result<(), String> {
        let waits = self.running > 0 || self.connecting > 0;
        self.wire.turn(until, &mut self.happened).map_err(|error| format!("the client's socket: {error}"))?;
        let now = Instant::now();
        let progress = self.wire.progress();
        if progress != self.progress.0 || !waits {
            self.progress = (progress, now);
        }
        if now >= self.deadline {
            return Err("not done at the deadline".into());
        }
        if now >= self.progress.1 + self.arguments.stall {
            return Err(self.first_error(&format!("no sign of the server for {:?}", self.arguments.stall)));
        }
        Ok(())
    }

    /// What happened, for loads that make requests.
    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Connected { slot, .. } => {
                self.set(slot, Slot::Open);
                self.free.extend(slot * self.streams..(slot + 1) * self.streams);
            }
            Happening::Answered { token, result } => {
                let Some(intended) = self.end(token) else { return };
                match result.and_then(|answer| self.expected.check(&answer).map(|()| answer)) {
                    Ok(_) if self.arguments.kind == Kind::Idle => self.tally.ok += 1,
                    Ok(answer) => self.tally.right(intended, &answer),
                    Err(reason) => self.tally.wrong(1, reason),
                }
            }
            Happening::Refused { token } => {
                let intended = self.end(token);
                self.again.extend(intended);
            }
            Happening::Draining { slot } => {
                self.set(slot, Slot::Draining);
                self.draining.push(slot);
                self.forget_free(slot);
            }
            Happening::Lost { slot, reason } => {
                let mut lost = 0;
                for token in slot * self.streams..(slot + 1) * self.streams {
                    lost += u64::from(self.end(token).is_some());
                }
                let announced = self.slots.get(slot) == Some(&Slot::Draining);
                self.set(slot, Slot::Empty);
                self.forget_free(slot);
                if announced && lost == 0 {
                    // The server had said so and closed first.
                    let now = Instant::now();
                    self.reconnects += 1;
                    self.connect(slot, now, now);
                } else {
                    // A connection that is lost with nothing in flight is one failure.
                    self.tally.wrong(lost.max(1), reason);
                }
            }
        }
    }

    /// Ends the request that `token` stands for, and frees its place.
    fn end(&mut self, token: usize) -> Option<Instant> {
        let intended = self.in_flight.get_mut(token)?.take()?;
        self.running -= 1;
        if self.slots.get(token / self.streams) == Some(&Slot::Open) {
            self.free.push_back(token);
        }
        Some(intended)
    }

    fn forget_free(&mut self, slot: usize) {
        self.free.retain(|token| token / self.streams != slot);
    }

    fn set(&mut self, slot: usize, state: Slot) {
        if let Some(place) = self.slots.get_mut(slot) {
            let before = std::mem::replace(place, state);
            self.alive = self.alive + usize::from(state != Slot::Empty) - usize::from(before != Slot::Empty);
            self.connecting =
                self.connecting + usize::from(state.is_connecting()) - usize::from(before.is_connecting());
        }
    }

    fn first_error(&self, reason: &str) -> String {
        match self.tally.errors.first() {
            Some(error) => format!("{reason}: {error}"),
            None => reason.to_owned(),
        }
    }
}

//! The emulator: reads packets from TUN devices, computes by the model when they leave, and forwards them then. One
//! thread for any number of links; the model is pure, this keeps its time.

use super::{
    log::{Entry, Log},
    model::{self, Fate},
    packet::{self, Flow},
    path::Path,
    segment,
    summary::{Direction as Figures, LinkReport, Report, Timing},
    tun::{HEADER, LARGEST, Tun},
};
use anyhow::Result;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    mem,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// Packets read from a device before others have their turn.
const TURN: usize = 64;
/// The emulator sleeps until so long before a packet is due, and spins from then on: a timer's wake is later than that.
const SPIN: Duration = Duration::from_micros(10);
/// It wakes this often at least, to notice when it does not.
const HEARTBEAT: Duration = Duration::from_millis(5);
/// Packets in flight in one direction, at most: 65,536 of 1500 bytes are 100 MB, a second at 800 Mbit/s.
const IN_FLIGHT: usize = 65_536;

/// A packet in flight, ordered by when it is due, then by when it came.
#[derive(Debug)]
struct InFlight {
    due: Duration,
    number: u64,
    came: Duration,
    queued: u64,
    flow: Flow,
    fate: &'static str,
    frame: Vec<u8>,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// Requests to an emulator meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// Its report, and its end.
    End,
    /// To draw, and to count, from the beginning.
    BeginAnew,
    /// To count from the beginning.
    CountAnew,
    /// The emulator's report so far.
    Report,
}

/// One direction of a link.
struct Direction {
    parameters: model::Parameters,
    model: model::Direction,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    figures: Figures,
    /// What its device had dropped when it began.
    dropped_before: u64,
    seed: u64,
}

/// Any number of links, each with a device for the server and one for the client.
pub(super) struct Emulator {
    /// The server's and the client's of the first link, of the second, and so on.
    devices: Vec<Tun>,
    /// By the device that they come from: from server to client, from client to server, and so on.
    directions: Vec<Direction>,
    rtt: Duration,
    gro: Option<Duration>,
    timing: Timing,
    log: Option<Log>,
    began: Instant,
    /// When what is reported began.
    since: Duration,
    cpu_before: Duration,
    number: u64,
    buffer: Vec<u8>,
}

impl Emulator {
    /// Links alike, one for each pair of devices, with draws of their own.
    pub(super) fn new(devices: Vec<Tun>, path: &Path, seed: u64, log: Option<Log>) -> Self {
        let direction = |at: usize| {
            let parameters = if at.is_multiple_of(2) { &path.down } else { &path.up };
            let seed = seed.wrapping_add(at as u64);
            Direction {
                parameters: parameters.clone(),
                model: model::Direction::new(parameters, seed),
                in_flight: BinaryHeap::new(),
                figures: Figures::new(),
                dropped_before: 0,
                seed,
            }
        };
        Self {
            directions: (0..devices.len()).map(direction).collect(),
            devices,
            rtt: path.rtt,
            gro: path.gro,
            timing: Timing::new(),
            log,
            began: Instant::now(),
            since: Duration::ZERO,
            cpu_before: cpu_time(),
            number: 0,
            buffer: vec![0; LARGEST],
        }
    }

    /// Emulates, and serves requests, until it is to end. `write` gets the reports.
    pub(super) fn run(
        &mut self,
        asked: impl Fn() -> Option<Asked>,
        write: impl Fn(&Report) -> Result<()>,
    ) -> Result<()> {
        let mut readable = vec![true; self.devices.len()];
        let mut until = self.began.elapsed() + HEARTBEAT;
        loop {
            match asked() {
                None => {}
                Some(Asked::End) => return write(&self.report()?),
                Some(Asked::Report) => {
                    write(&self.report()?)?;
                    self.count_anew()?;
                }
                Some(Asked::BeginAnew) => {
                    let now = self.began.elapsed();
                    for Direction { model, parameters, seed, .. } in &mut self.directions {
                        model.begin_anew(now, parameters, *seed);
                    }
                    self.log.as_mut().map_or(Ok(()), |log| log.begun(now))?;
                    self.count_anew()?;
                }
                Some(Asked::CountAnew) => self.count_anew()?,
            }
            self.timing.overslept(self.began.elapsed().saturating_sub(until));
            for (device, readable) in readable.iter().enumerate() {
                if *readable {
                    self.receive(device)?;
                }
            }
            let next = self.hand_over()?;
            until = next.unwrap_or(Duration::MAX).min(self.began.elapsed() + HEARTBEAT);
            self.wait(until, &mut readable)?;
        }
    }

    /// Waits for packets until a moment.
    fn wait(&self, until: Duration, readable: &mut [bool]) -> Result<()> {
        let left = until.saturating_sub(self.began.elapsed());
        let sleep = TimeSpec::from(left.saturating_sub(SPIN));
        let mut polled: Vec<PollFd> =
            self.devices.iter().map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN)).collect();
        match ppoll(&mut polled, Some(sleep), None) {
            // A signal: the caller sees what it meant.
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        for (readable, polled) in readable.iter_mut().zip(&polled) {
            *readable = polled.any().unwrap_or_default();
        }
        if !readable.contains(&true) && left <= SPIN {
            while self.began.elapsed() < until {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Reads what a device has, up to a turn.
    fn receive(&mut self, device: usize) -> Result<()> {
        for _ in 0..TURN {
            let Some(tun) = self.devices.get(device) else { return Ok(()) };
            let Some(length) = tun.receive(&mut self.buffer)? else { return Ok(()) };
            let frame = self.buffer.get(..length).unwrap_or_default().to_vec();
            let now = self.began.elapsed();
            let mut frames = Vec::new();
            segment::split(frame, |frame| frames.push(frame));
            for frame in frames {
                self.arrive(device, now, frame)?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, at: usize, now: Duration, mut frame: Vec<u8>) -> Result<()> {
        let Some(direction) = self.directions.get_mut(at) else { return Ok(()) };
        let packet = frame.get(HEADER..).unwrap_or_default();
        let (flow, length) = (packet::flow(packet), u32::try_from(packet.len())?);
        let queued = direction.model.queued(now);
        let mut fate = direction.model.arrive(now, length);
        if direction.in_flight.len() >= IN_FLIGHT {
            // Not the model's doing: the run is void.
            direction.figures.handed_over(flow, 0, false);
            fate = Fate::Dropped;
        }
        direction.figures.arrived(now, length.into(), queued, fate, direction.parameters.delay.delay);
        let delivery = match fate {
            Fate::Delivered(delivery) => delivery,
            Fate::Lost | Fate::Dropped => {
                let fate = if fate == Fate::Lost { "lost" } else { "dropped" };
                return self.log(Entry { direction: at, came: now, went: None, length, queued, flow, fate });
            }
        };
        let mut fate = if delivery.held { "held" } else { "delivered" };
        if delivery.congested && frame.get_mut(HEADER..).is_some_and(packet::mark) {
            direction.figures.marked();
            fate = "marked";
        }
        // As interrupts are moderated: at the next multiple.
        let due = self.gro.map_or(delivery.at, |grid| {
            let grid = grid.as_nanos().max(1);
            let due = delivery.at.as_nanos().div_ceil(grid) * grid;
            Duration::from_nanos(u64::try_from(due).unwrap_or(u64::MAX))
        });
        if delivery.twice {
            self.number += 1;
            let (number, frame) = (self.number, frame.clone());
            direction.in_flight.push(Reverse(InFlight {
                due,
                number,
                came: now,
                queued,
                flow,
                fate: "duplicate",
                frame,
            }));
        }
        self.number += 1;
        let number = self.number;
        direction.in_flight.push(Reverse(InFlight { due, number, came: now, queued, flow, fate, frame }));
        Ok(())
    }

    /// Hands over what is due; when the next packet is.
    fn hand_over(&mut self) -> Result<Option<Duration>> {
        let mut next: Option<Duration> = None;
        for at in 0..self.directions.len() {
            // One that was joined with others waits for more of them.
            let mut joined: Option<(Vec<u8>, Vec<Entry>)> = None;
            while let Some(direction) = self.directions.get_mut(at) {
                let Some(Reverse(first)) = direction.in_flight.peek() else { break };
                let now = self.began.elapsed();
                if first.due > now {
                    next = Some(next.map_or(first.due, |next| next.min(first.due)));
                    break;
                }
                let Some(Reverse(packet)) = direction.in_flight.pop() else { break };
                self.timing.late(now - packet.due);
                let InFlight { came, queued, flow, fate, frame, .. } = packet;
                let length = u32::try_from(frame.len().saturating_sub(HEADER))?;
                let entry = Entry { direction: at, came, went: Some(now), length, queued, flow, fate };
                if let Some((before, entries)) = &mut joined
                    && segment::join(before, &frame)
                {
                    entries.push(entry);
                    continue;
                }
                if let Some((frame, entries)) = joined.replace((frame, vec![entry])) {
                    self.send(at, &frame, &entries)?;
                }
                if self.gro.is_none()
                    && let Some((frame, entries)) = joined.take()
                {
                    self.send(at, &frame, &entries)?;
                }
            }
            if let Some((frame, entries)) = joined {
                self.send(at, &frame, &entries)?;
            }
        }
        Ok(next)
    }

    fn send(&mut self, at: usize, frame: &[u8], entries: &[Entry]) -> Result<()> {
        // Devices come in pairs.
        let (Some(device), Some(direction)) = (self.devices.get(at ^ 1), self.directions.get_mut(at)) else {
            return Ok(());
        };
        let taken = device.send(frame);
        for entry in entries {
            direction.figures.handed_over(entry.flow, entry.length.into(), taken);
        }
        entries.iter().try_for_each(|entry| self.log(if taken { *entry } else { Entry { fate: "refused", ..*entry } }))
    }

    fn log(&mut self, entry: Entry) -> Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.write(entry))
    }

    /// From here on what is counted is reported.
    fn count_anew(&mut self) -> Result<()> {
        for (direction, device) in self.directions.iter_mut().zip(&self.devices) {
            direction.figures = Figures::new();
            direction.dropped_before = device.dropped()?;
        }
        self.timing = Timing::new();
        (self.since, self.cpu_before) = (self.began.elapsed(), cpu_time());
        Ok(())
    }

    fn report(&mut self) -> Result<Report> {
        if let Some(log) = &mut self.log {
            log.flush()?;
        }
        let (time, cpu) = (self.began.elapsed() - self.since, cpu_time().saturating_sub(self.cpu_before));
        let mut reports = Vec::new();
        for (direction, device) in self.directions.iter_mut().zip(&self.devices) {
            let figures = mem::replace(&mut direction.figures, Figures::new());
            reports.push(figures.report(device.dropped()?.saturating_sub(direction.dropped_before)));
        }
        let mut reports = reports.into_iter();
        let mut links = Vec::new();
        while let (Some(down), Some(up)) = (reports.next(), reports.next()) {
            links.push(LinkReport { down, up });
        }
        Ok(self.timing.report(time, cpu, self.rtt, links))
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

//! Saturation, imposed from outside on every contender alike: a rival for the server's core.
//!
//! With two cores the client (and the origin beside it) is often slower than the server, which then takes packets one
//! by one, as no busy server does: batches of acknowledgements exist only where the server is the bottleneck. So a
//! process of the lab takes half of the server's core, in turns of about a millisecond, at a real-time priority that
//! the scheduler lets no other process interrupt. Datagrams collect meanwhile as they would while a busy server works
//! for others. The rival's time is not the contender's: seconds a GB stay comparable, throughput does not.
//!
//! The same takes any share of the core, where a server is to have little of it (`viewers`).

use super::{
    interrupt,
    namespace::Namespace,
    process::{self, Server},
};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::{
    sys::{prctl, signal::Signal},
    unistd::getppid,
};
use std::{
    collections::BTreeMap,
    hint,
    path::Path,
    process::id,
    thread,
    time::{Duration, Instant},
};

/// Sets the priority (util-linux).
pub(crate) const PROGRAM: &str = "chrt";
/// For how long it works, and then rests: long enough for batches to collect, short beside the timers of QUIC. Not
/// round: in step with the kernel's clock tick, which samples user and system time, either would be seen always or
/// never.
const TURN: Duration = Duration::from_micros(1_030);
/// Turns of one that leaves a share, as the quota of a cgroup is given anew.
const PERIOD: Duration = Duration::from_micros(10_030);
/// Below this share of what the rival leaves, a contender was not saturated, whatever was done about it.
pub(crate) const SATURATED: f64 = 0.75;
/// For the rival to be seen at work.
const BEGIN: Duration = Duration::from_secs(5);
const SEEN: f64 = 0.02; // seconds of CPU time

/// The rival's process; on what core and at which priority, its starter decides.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// For how long it works, microseconds,
    #[arg(long, value_name = "N")]
    work: u32,
    /// and then rests.
    #[arg(long, value_name = "N")]
    rest: u32,
    /// The process ID of the lab.
    #[arg(long, value_name = "N")]
    lab: u32,
}

/// Works and rests until it is killed, or the lab is gone: then the kernel kills it.
pub(crate) fn work(arguments: &Arguments) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot be killed with the lab")?;
    // It may have gone before.
    if getppid().as_raw() != arguments.lab.cast_signed() {
        bail!("the lab is gone");
    }
    let [work, rest] = [arguments.work, arguments.rest].map(|micros| Duration::from_micros(micros.into()));
    loop {
        let began = Instant::now();
        while began.elapsed() < work {
            hint::spin_loop();
        }
        thread::sleep(rest);
    }
}

/// Its turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Turns {
    work: Duration,
    rest: Duration,
}

impl Turns {
    /// Half of the core.
    pub(crate) const HALF: Self = Self { work: TURN, rest: TURN };

    /// All of the core but this share.
    pub(crate) fn leaving(share: f64) -> Self {
        let rest = PERIOD.mul_f64(share.clamp(0.0, 1.0));
        Self { work: PERIOD.saturating_sub(rest), rest }
    }
}

/// At work on a core until it is dropped.
#[derive(Debug)]
pub(crate) struct Rival(Server);

impl Rival {
    /// Starts it, and waits until it is seen at work; `own` is this program, `folder` takes its log.
    pub(crate) fn start(turns: Turns, own: &Path, place: &Namespace, core: usize, folder: &Path) -> Result<Self> {
        let [work, rest] = [turns.work, turns.rest].map(|time| time.as_micros().to_string());
        let (own, lab) = (own.display().to_string(), id().to_string());
        let arguments = [PROGRAM, "--fifo", "1", &own, "rival", "--work", &work, "--rest", &rest, "--lab", &lab];
        let arguments = arguments.map(str::to_owned);
        let command = process::command(place, &core.to_string(), &arguments, &BTreeMap::new());
        let mut rival = Self(Server::start("the rival", command, folder.join("rival.log"))?);
        let seen = interrupt::wait_for(BEGIN, || {
            rival.check()?;
            Ok((rival.cpu() >= SEEN).then_some(()))
        })?;
        if seen.is_none() {
            bail!("the rival does not get to work; its log: {}", rival.0.quote());
        }
        Ok(rival)
    }

    /// An error once it has ended: nothing was saturated from then on.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.0.check().context("real-time priority is needed")
    }

    /// What it took so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.0.cpu().total()
    }
}

/// How busy a contender was that used so many of the seconds that the rival, if there was one, left.
pub(crate) fn busy(used: f64, wall: f64, rival: f64) -> f64 {
    let left = wall - rival;
    if left > 0.0 { used / left } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_leaves_the_share_it_is_told_to() {
        let Turns { work, rest } = Turns::leaving(0.12);
        assert_eq!((work + rest, rest), (PERIOD, PERIOD.mul_f64(0.12)));
        assert_eq!(Turns::leaving(2.0).work, Duration::ZERO);
    }

    #[test]
    fn a_contender_is_busy_by_what_the_rival_leaves() {
        assert_eq!(busy(4.5, 10.0, 5.0), 0.9);
        assert_eq!(busy(4.5, 10.0, 0.0), 0.45);
        assert_eq!(busy(0.0, 1.0, 1.0), 0.0, "nothing was left");
    }
}

//! Attackers, and the honest client that the bench runs beside them: processes of the lab's own. `source` has the
//! addresses, `wire` the bytes, `tcp` and `quic` the connections.

mod honest;
mod quic;
mod source;
mod tcp;
mod wire;

pub(crate) use honest::{Honest, HonestArguments, PATIENCE, Protocol, honest};
pub(crate) use source::{NETWORKS_V6, Sources, Spread};

use crate::{
    argument,
    client::{print, raise_limits, run, tls},
};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};
use tokio::{
    task::spawn_local,
    time::{Instant, sleep},
};
use wire::Ask;

/// Before an attacker whose connection was closed opens the next one.
const AGAIN: Duration = Duration::from_millis(100);
/// Between two of a slow upload's bytes.
const BYTE: Duration = Duration::from_secs(1);
/// Rates are kept in pieces of this time.
const TICK: Duration = Duration::from_millis(10);
/// Time after which the slow endpoint answers.
const LATE: u32 = 20_000; // milliseconds
/// Of a response that is not read: more than its connection's windows and sockets hold.
const UNREAD: u64 = 4_000_000; // bytes
/// Requested, and reset.
const SMALL: u64 = 1_000; // bytes
/// Body of a response that is read slowly: as a page's larger pictures, and more than sockets and buffers hold.
const SLOW: u64 = 4 << 20; // bytes
/// Rate at which such a response is read: a little above the minimum that litequic requires
/// (`limits.min_rate`, 240 B/s).
const SLOW_RATE: u32 = 300; // bytes a second
/// Delay between two reads of such a response.
const SLOW_READ: Duration = Duration::from_secs(4);
/// Bytes of each read.
const SLOW_PIECE: u32 = 1_200; // bytes, SLOW_RATE × SLOW_READ
/// Flow-control window of a stream whose response is read slowly.
const SLOW_WINDOW: u32 = 2_000; // bytes
/// Connections of HTTP/2 and of HTTP/3 in each attack that has streams, and streams on each, from one source
/// ([`Sources::divide`]).
const CONNECTIONS: u32 = 4;
const STREAMS: u32 = 128;
/// Connections of HTTP/1.1 in such an attack.
const CONNECTIONS_H1: u32 = 200;

/// A slow upload.
#[derive(Debug, Clone, Copy)]
struct SlowUpload {
    ask: Ask,
    /// Bytes that are sent each [`BYTE`].
    piece: &'static [u8],
}

/// An upload of a byte a second, which never ends.
const ENDLESS: SlowUpload = SlowUpload { ask: Ask::Post(1_000_000), piece: b"a" };
/// An upload that does not say its length, a little above the minimum that litequic requires.
const UNKNOWN: SlowUpload = SlowUpload { ask: Ask::PostUnknown, piece: &[b'a'; 300] };
/// An upload that ends, at its rate, within the minute for which requests wait.
const ENDING: SlowUpload = SlowUpload { ask: Ask::Post(400_000), piece: &[b'a'; 7_500] };

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Attack {
    /// TCP connections that say nothing.
    SilentTcp,
    /// QUIC handshakes that never end, and QUIC connections without a request.
    QuicHandshakes,
    /// Uploads of a byte a second.
    SlowUploads,
    /// Slow uploads that do not say their length.
    UnknownUploads,
    /// Slow uploads that seem to end soon.
    EndingUploads,
    /// Requests to something that answers late.
    SlowEndpoint,
    /// Responses that are not read.
    SlowReaders,
    /// Responses that are read at a low rate.
    SlowWindows,
    /// Responses that the origin does not end and on which nothing moves.
    EventStreams,
    /// TCP connections to the status port that say nothing.
    SilentProbes,
    /// Requests that are reset as soon as they are sent.
    Resets,
    /// All of them at once.
    All,
}

impl Attack {
    pub(crate) const EACH: [Self; 12] = [
        Self::SilentTcp,
        Self::QuicHandshakes,
        Self::SlowUploads,
        Self::UnknownUploads,
        Self::EndingUploads,
        Self::SlowEndpoint,
        Self::SlowReaders,
        Self::SlowWindows,
        Self::EventStreams,
        Self::SilentProbes,
        Self::Resets,
        Self::All,
    ];

    /// How reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SilentTcp => "silent TCP",
            Self::QuicHandshakes => "QUIC handshakes",
            Self::SlowUploads => "slow uploads",
            Self::UnknownUploads => "unknown length",
            Self::EndingUploads => "ending soon",
            Self::SlowEndpoint => "slow endpoint",
            Self::SlowReaders => "slow readers",
            Self::SlowWindows => "slow windows",
            Self::EventStreams => "event streams",
            Self::SilentProbes => "status port",
            Self::Resets => "resets",
            Self::All => "all at once",
        }
    }

    /// What it does.
    pub(crate) fn about(self) -> String {
        match self {
            Self::SilentTcp => format!("{} TCP connections a second that say nothing and stay", tcp::SILENT_RATE),
            Self::QuicHandshakes => format!(
                "{} QUIC handshakes a second that prove their address and never end, and {} QUIC connections a second, up to {}, \
                 without a request",
                quic::HANDSHAKE_RATE,
                quic::IDLE_RATE,
                quic::IDLE
            ),
            Self::SlowUploads => format!(
                "uploads of a byte a second: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, {CONNECTIONS_H1} connections \
                 of HTTP/1.1"
            ),
            Self::UnknownUploads => format!(
                "uploads of unknown length of {} bytes a second: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, \
                 {CONNECTIONS_H1} connections of HTTP/1.1",
                UNKNOWN.piece.len()
            ),
            Self::EndingUploads => format!(
                "uploads of 400,000 bytes at {} bytes a second: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, \
                 {CONNECTIONS_H1} connections of HTTP/1.1",
                ENDING.piece.len()
            ),
            Self::SlowEndpoint => format!(
                "requests that the origin answers after {} s: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, \
                 {CONNECTIONS_H1} connections of HTTP/1.1",
                LATE / 1_000
            ),
            Self::SlowReaders => format!(
                "responses of {} MB that are not read: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, {CONNECTIONS_H1} \
                 connections of HTTP/1.1",
                UNREAD / 1_000_000
            ),
            Self::SlowWindows => format!(
                "responses of {} MiB that are read at {SLOW_RATE} B/s: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, \
                 {CONNECTIONS_H1} connections of HTTP/1.1",
                SLOW >> 20
            ),
            Self::EventStreams => format!(
                "event streams of one event: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, {CONNECTIONS_H1} connections \
                 of HTTP/1.1"
            ),
            Self::SilentProbes => {
                format!("{} TCP connections a second to the status port that say nothing and stay", tcp::SILENT_RATE)
            }
            Self::Resets => format!(
                "{} requests a second over HTTP/2, as many over HTTP/3, reset as soon as they are sent",
                tcp::RESET_RATE
            ),
            Self::All => "all of them at once".to_owned(),
        }
    }

    /// The word for the command line.
    pub(crate) fn argument(self) -> String {
        argument::word(&self)
    }

    /// Those that it consists of.
    fn parts(self) -> Vec<Self> {
        match self {
            Self::All => Self::EACH.into_iter().filter(|one| *one != Self::All).collect(),
            one => vec![one],
        }
    }
}

/// The server to attack.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to do.
    #[arg(value_enum)]
    attack: Attack,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    sources: Sources,
    /// For so many seconds.
    #[arg(long)]
    seconds: f64,
}

/// Where a server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// HTTP/3, and HTTP/2 and HTTP/1.1 over TLS.
    #[arg(long)]
    address: SocketAddr,
    /// Its status port, over plain HTTP/1.1.
    #[arg(long)]
    probes: SocketAddr,
    /// Its certificate, PEM.
    #[arg(long)]
    ca: PathBuf,
}

/// What attackers got so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Connections that were opened.
    pub(crate) connections: u64,
    /// Those that were refused, closed or reset.
    pub(crate) closed: u64,
    /// Requests that were begun.
    pub(crate) requests: u64,
}

impl Tally {
    /// The last that a log has of it.
    pub(crate) fn last(log: &str) -> Option<Self> {
        log.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }
}

/// What all attackers of a process share.
struct Shared {
    target: Target,
    sources: Sources,
    end: Instant,
    tally: Cell<Tally>,
    tls: RefCell<tls::Configs>,
}

impl Shared {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }
}

/// One connection's part in an attack.
#[derive(Clone)]
struct Attacker {
    shared: Rc<Shared>,
    /// The address that it connects from.
    from: IpAddr,
    /// Streams that it has open at a time.
    streams: usize,
    /// Connections of the same kind in this attack, over which a rate is divided.
    siblings: u32,
}

impl Attacker {
    /// Attacks again and again, on a new connection whenever one ends, until the time is over.
    async fn again_and_again<F: Future<Output = Result<()>>>(self, attack: impl Fn(Self) -> F) {
        while !self.shared.is_over() {
            // Whatever ended it is what the server did about it.
            let _ = attack(self.clone()).await;
            self.shared.count(|tally| tally.closed += 1);
            sleep(AGAIN).await;
        }
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        self.shared.count(change);
    }
}

/// How many of `rate` a second are due after so long.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an attack is over before 2^53 are due")]
fn due(rate: u32, elapsed: Duration) -> u64 {
    (elapsed.as_secs_f64() * f64::from(rate)) as u64
}

/// Attacks until the time is over; prints the counts once a second on standard output.
pub(crate) fn attack(arguments: &Arguments) -> Result<()> {
    raise_limits()?;
    run(async {
        let shared = Rc::new(Shared {
            target: arguments.target.clone(),
            sources: arguments.sources,
            end: Instant::now() + Duration::from_secs_f64(arguments.seconds),
            tally: Cell::default(),
            tls: RefCell::new(tls::Configs::new(&arguments.target.ca)?),
        });
        for part in arguments.attack.parts() {
            begin(part, &shared)?;
        }
        while !shared.is_over() {
            sleep(Duration::from_secs(1).min(shared.end - Instant::now())).await;
            print(&shared.tally.get())?;
        }
        Ok(())
    })
}

/// Begins one attack. The tasks of its connections end with the process.
fn begin(attack: Attack, shared: &Rc<Shared>) -> Result<()> {
    let (sources, to) = (shared.sources, shared.target.address);
    let each = |(connections, streams): (u32, u32), task: &dyn Fn(Attacker)| {
        for nth in 0..connections {
            let (shared, from) = (Rc::clone(shared), sources.nth(nth, to));
            task(Attacker { shared, from, streams: streams as usize, siblings: connections });
        }
    };
    let (alone, with_streams) = (sources.divide(CONNECTIONS_H1, 1), sources.divide(CONNECTIONS, STREAMS));
    macro_rules! over_each {
        ($h1:expr, $h2:expr, $h3:expr) => {{
            each(alone, &|attacker| drop(spawn_local(attacker.again_and_again($h1))));
            each(with_streams, &|attacker| drop(spawn_local(attacker.again_and_again($h2))));
            each(with_streams, &|attacker| drop(spawn_local(attacker.again_and_again($h3))));
        }};
    }
    let upload = |slow: SlowUpload| {
        let h1 = move |one| tcp::upload_h1(one, slow);
        let h2 = move |one| tcp::upload_h2(one, slow);
        let h3 = move |one| quic::upload(one, slow);
        over_each!(h1, h2, h3);
    };
    let wait_for = |ask: Ask| {
        let h1 = move |one| tcp::wait_h1(one, ask);
        let h2 = move |one| tcp::wait_h2(one, ask);
        let h3 = move |one| quic::wait(one, ask);
        over_each!(h1, h2, h3);
    };
    match attack {
        Attack::SilentTcp => drop(spawn_local(tcp::silent(Rc::clone(shared), to))),
        Attack::SilentProbes => drop(spawn_local(tcp::silent(Rc::clone(shared), shared.target.probes))),
        Attack::QuicHandshakes => {
            for nth in 0..sources.count {
                spawn_local(quic::Unfinished::new(shared, nth)?.run(Rc::clone(shared)));
            }
            spawn_local(quic::idle(Rc::clone(shared)));
        }
        Attack::SlowUploads => upload(ENDLESS),
        Attack::UnknownUploads => upload(UNKNOWN),
        Attack::EndingUploads => upload(ENDING),
        Attack::SlowReaders => over_each!(tcp::unread_h1, tcp::unread_h2, quic::unread),
        Attack::SlowWindows => over_each!(tcp::slow_h1, tcp::slow_h2, quic::slow),
        Attack::EventStreams => wait_for(Ask::Events),
        Attack::SlowEndpoint => wait_for(Ask::Late(LATE)),
        Attack::Resets => {
            each(with_streams, &|attacker| drop(spawn_local(attacker.again_and_again(tcp::resets))));
            each(with_streams, &|attacker| drop(spawn_local(attacker.again_and_again(quic::resets))));
        }
        // It has parts.
        Attack::All => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_at_once_are_all_the_others() {
        assert_eq!(Attack::All.parts(), Attack::EACH[..11]);
        assert_eq!(Attack::Resets.parts(), [Attack::Resets]);
        assert_eq!(Attack::SilentTcp.argument(), "silent-tcp");
    }

    #[test]
    fn the_last_tally_of_a_log_counts() {
        let tally = Tally { connections: 3, closed: 2, requests: 1 };
        let text = serde_json::to_string(&tally).unwrap();
        assert_eq!(Tally::last(&format!("{{}}\n{text}\nnoise")), Some(tally));
        assert_eq!(Tally::last(""), None);
    }

    #[test]
    fn a_slow_reader_keeps_its_rate_within_its_window() {
        assert_eq!(u64::from(SLOW_PIECE), u64::from(SLOW_RATE) * SLOW_READ.as_secs());
        const { assert!(SLOW_PIECE <= SLOW_WINDOW) };
    }

    #[test]
    fn a_rate_is_kept_over_time() {
        assert_eq!(due(200, Duration::from_millis(10)), 2);
        assert_eq!(due(50, Duration::from_millis(10)), 0);
        assert_eq!(due(50, Duration::from_secs(2)), 100);
    }
}

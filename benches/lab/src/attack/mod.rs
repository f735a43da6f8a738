//! Attackers, and the honest client that the bench runs beside them: processes of the lab's own. `wire` has the bytes,
//! `tcp`
//! and `quic` the connections.

mod honest;
mod quic;
mod tcp;
mod wire;

pub(crate) use honest::{Honest, HonestArguments, PATIENCE, Protocol, honest};

use crate::{
    argument,
    client::{print, raise_limits, run, tls},
};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};
use tokio::{
    task::spawn_local,
    time::{Instant, sleep},
};

/// Where attackers come from; honest clients have others.
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// Before an attacker whose connection was closed opens the next one.
const AGAIN: Duration = Duration::from_millis(100);
/// Between two of a slow upload's bytes.
const BYTE: Duration = Duration::from_secs(1);
/// Rates are kept in pieces of this time.
const TICK: Duration = Duration::from_millis(10);
/// Of an upload, which never ends.
const UPLOAD: u64 = 1_000_000; // bytes
/// Of a response that is not read: more than its connection's windows and sockets hold.
const UNREAD: u64 = 4_000_000; // bytes
/// Requested, and reset.
const SMALL: u64 = 1_000; // bytes
/// Connections of HTTP/2 and of HTTP/3 in each attack that has streams, and streams on each.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 128;
/// Connections of HTTP/1.1 in such an attack.
const CONNECTIONS_H1: usize = 200;

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Attack {
    /// TCP connections that say nothing.
    SilentTcp,
    /// QUIC handshakes that never end, and QUIC connections without a request.
    QuicHandshakes,
    /// Uploads of a byte a second.
    SlowUploads,
    /// Responses that are not read.
    SlowReaders,
    /// TCP connections to the status port that say nothing.
    SilentProbes,
    /// Requests that are reset as soon as they are sent.
    Resets,
    /// All of them at once.
    All,
}

impl Attack {
    pub(crate) const EACH: [Self; 7] = [
        Self::SilentTcp,
        Self::QuicHandshakes,
        Self::SlowUploads,
        Self::SlowReaders,
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
            Self::SlowReaders => "slow readers",
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
            Self::SlowReaders => format!(
                "responses of {} MB that are not read: {CONNECTIONS} × {STREAMS} over HTTP/2, as many over HTTP/3, {CONNECTIONS_H1} \
                 connections of HTTP/1.1",
                UNREAD / 1_000_000
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

    /// Has an attacker begin anew whenever its connection ends, until the time is over.
    async fn again_and_again<F: Future<Output = Result<()>>>(self: Rc<Self>, attack: impl Fn(Rc<Self>) -> F) {
        while !self.is_over() {
            // Whatever ended it is what the server did about it.
            let _ = attack(Rc::clone(&self)).await;
            self.count(|tally| tally.closed += 1);
            sleep(AGAIN).await;
        }
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

/// Begins one attack; its tasks end with the process.
fn begin(attack: Attack, shared: &Rc<Shared>) -> Result<()> {
    let each = |count: usize, of: fn(Rc<Shared>)| (0..count).for_each(|_| of(Rc::clone(shared)));
    match attack {
        Attack::SilentTcp => drop(spawn_local(tcp::silent(Rc::clone(shared), shared.target.address))),
        Attack::SilentProbes => drop(spawn_local(tcp::silent(Rc::clone(shared), shared.target.probes))),
        Attack::QuicHandshakes => {
            let socket = quic::Unfinished::new(shared)?;
            spawn_local(socket.run(Rc::clone(shared)));
            spawn_local(quic::idle(Rc::clone(shared)));
        }
        Attack::SlowUploads => {
            each(CONNECTIONS_H1, |shared| drop(spawn_local(shared.again_and_again(tcp::upload_h1))));
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(tcp::upload_h2))));
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(quic::upload))));
        }
        Attack::SlowReaders => {
            each(CONNECTIONS_H1, |shared| drop(spawn_local(shared.again_and_again(tcp::unread_h1))));
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(tcp::unread_h2))));
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(quic::unread))));
        }
        Attack::Resets => {
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(tcp::resets))));
            each(CONNECTIONS, |shared| drop(spawn_local(shared.again_and_again(quic::resets))));
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
        assert_eq!(Attack::All.parts(), Attack::EACH[..6]);
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
    fn a_rate_is_kept_over_time() {
        assert_eq!(due(200, Duration::from_millis(10)), 2);
        assert_eq!(due(50, Duration::from_millis(10)), 0);
        assert_eq!(due(50, Duration::from_secs(2)), 100);
    }
}

//! Each request ends in exactly one of: verified, failed for an origin's restart, cancelled by the client, wrong. Pure:
//! has no socket and no clock.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::{Duration, Instant},
};

/// The first ones show what goes wrong.
const MAX_DETAILS: usize = 20;
/// Far more than fit into the life of any request.
const MAX_OUTAGES: usize = 64;
/// An origin that listens again is not yet one whose old connections litequic has found closed: that
/// takes a turn of a worker's loop, which a machine with much else to do may hold up.
const AFTERMATH: Duration = Duration::from_millis(250);
/// What litequic resets a stream with when a response breaks off (docs/proxying.md).
const H3_INTERNAL_ERROR: u64 = 0x102;

/// What a request was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    Handshake,
    Download,
    Upload,
    Small,
    Slow,
    Rebound,
    Reset,
}

/// Who is to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Never restarted: nothing may fail.
    Steady,
    /// Restarted again and again: what is in flight then may fail.
    Restarted,
}

/// How it ended for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// So many bytes of bodies, each compared.
    Whole(u64),
    /// The client cancelled the rest; so many were compared.
    Cancelled(u64),
    Failed(Failure),
    /// Something else came than was due.
    Wrong(String),
}

/// How a request can fail that was not taken for whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Status(u16),
    /// By litequic, with this code.
    StreamReset(u64),
    /// The connection's end, which no origin's restart explains, and everything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::StreamReset(code) => write!(f, "reset with {code:#x}"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// A request in flight. To be given back to [`Account::end`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    kind: Kind,
    origin: Origin,
    what: String,
    began: Instant,
}

/// How the requests of one kind ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) begun: u64,
    pub(crate) verified: u64,
    pub(crate) expected: u64,
    pub(crate) cancelled: u64,
    pub(crate) wrong: u64,
    /// Compared, of requests that were cancelled as well.
    pub(crate) bytes: u64,
}

impl Tally {
    /// Begun, and not ended in any way.
    pub(crate) fn open(&self) -> u64 {
        self.begun - self.verified - self.expected - self.cancelled - self.wrong
    }
}

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Account {
    tallies: BTreeMap<Kind, Tally>,
    /// The first failures that a restart explains, and how often each came.
    pub(crate) failures: BTreeMap<String, u64>,
    /// The first that nothing explains.
    pub(crate) details: Vec<String>,
    /// When the origin began to go, and when it was back.
    outages: VecDeque<(Instant, Option<Instant>)>,
}

impl Account {
    pub(crate) fn begin(&mut self, kind: Kind, origin: Origin, what: String, now: Instant) -> Ticket {
        self.tallies.entry(kind).or_default().begun += 1;
        Ticket { kind, origin, what, began: now }
    }

    /// Prints the fault, for the first ones.
    pub(crate) fn end(&mut self, ticket: Ticket, end: End, now: Instant) -> Option<&str> {
        let explained = ticket.origin == Origin::Restarted && self.was_out(ticket.began, now);
        let tally = self.tallies.entry(ticket.kind).or_default();
        let wrong = match end {
            End::Whole(bytes) => {
                tally.verified += 1;
                tally.bytes += bytes;
                return None;
            }
            End::Cancelled(bytes) => {
                tally.cancelled += 1;
                tally.bytes += bytes;
                return None;
            }
            End::Failed(failure @ (Failure::Status(502..=504) | Failure::StreamReset(H3_INTERNAL_ERROR)))
                if explained =>
            {
                tally.expected += 1;
                if self.failures.len() < MAX_DETAILS || self.failures.contains_key(&failure.to_string()) {
                    *self.failures.entry(failure.to_string()).or_default() += 1;
                }
                return None;
            }
            End::Failed(failure) => failure.to_string(),
            End::Wrong(wrong) => wrong,
        };
        tally.wrong += 1;
        let Ticket { kind, origin, what, began } = ticket;
        let life = now.saturating_duration_since(began);
        if self.details.len() == MAX_DETAILS {
            return None;
        }
        self.details.push(format!("{kind:?}, {origin:?} origin, {what}, after {life:?}: {wrong}"));
        self.details.last().map(String::as_str)
    }

    /// The origin is about to be ended.
    pub(crate) fn origin_goes(&mut self, now: Instant) {
        if self.outages.len() == MAX_OUTAGES {
            self.outages.pop_front();
        }
        self.outages.push_back((now, None));
    }

    /// It listens again.
    pub(crate) fn origin_is_back(&mut self, now: Instant) {
        if let Some((_, until)) = self.outages.back_mut() {
            *until = Some(now + AFTERMATH);
        }
    }

    fn was_out(&self, began: Instant, ended: Instant) -> bool {
        self.outages.iter().any(|(from, until)| *from <= ended && until.is_none_or(|until| began <= until))
    }

    pub(crate) fn tallies(&self) -> impl Iterator<Item = (Kind, Tally)> {
        self.tallies.iter().map(|(kind, tally)| (*kind, *tally))
    }

    pub(crate) fn sum(&self, read: impl Fn(Tally) -> u64) -> u64 {
        self.tallies.values().copied().map(read).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Failure::{Other, Status, StreamReset};

    const SECOND: Duration = Duration::from_secs(1);

    /// The outcome of a request from the 10th to the 20th second, while the origin is down in `outage`.
    fn judged(origin: Origin, end: End, outage: (u32, u32)) -> Tally {
        let zero = Instant::now();
        let mut account = Account::default();
        let ticket = account.begin(Kind::Small, origin, "GET /".into(), zero + 10 * SECOND);
        account.origin_goes(zero + outage.0 * SECOND);
        account.origin_is_back(zero + outage.1 * SECOND);
        account.end(ticket, end, zero + 20 * SECOND);
        let (_, tally) = account.tallies().next().unwrap();
        assert_eq!(account.details.len() as u64, tally.wrong);
        Tally { begun: tally.begun - 1, ..tally }
    }

    #[test]
    fn a_failure_is_expected_only_while_its_origin_was_out() {
        let (expected, wrong) = (Tally { expected: 1, ..Tally::default() }, Tally { wrong: 1, ..Tally::default() });
        for failure in [Status(502), Status(503), Status(504), StreamReset(H3_INTERNAL_ERROR)] {
            let end = || End::Failed(failure.clone());
            for outage in [(5, 11), (12, 13), (19, 30), (1, 30)] {
                assert_eq!(judged(Origin::Restarted, end(), outage), expected, "{outage:?}");
                assert_eq!(judged(Origin::Steady, end(), outage), wrong, "{outage:?}");
            }
            for outage in [(5, 9), (21, 30)] {
                assert_eq!(judged(Origin::Restarted, end(), outage), wrong, "{outage:?}");
            }
        }
    }

    #[test]
    fn nothing_explains_a_wrong_body_a_lost_connection_or_another_status() {
        let ends = [
            End::Wrong("short".into()),
            End::Failed(Other("the connection ended".into())),
            End::Failed(Status(500)),
            End::Failed(Status(404)),
            End::Failed(StreamReset(0x101)),
        ];
        for end in ends {
            assert_eq!(judged(Origin::Restarted, end, (1, 30)).wrong, 1);
        }
    }

    #[test]
    fn a_request_that_never_ends_stays_open() {
        let mut account = Account::default();
        let now = Instant::now();
        let _never = account.begin(Kind::Slow, Origin::Steady, "GET /".into(), now);
        let done = account.begin(Kind::Slow, Origin::Steady, "GET /".into(), now);
        account.end(done, End::Cancelled(5), now);
        assert_eq!((account.sum(|tally| tally.open()), account.sum(|tally| tally.bytes)), (1, 5));
    }
}

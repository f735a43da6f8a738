//! Where a TCP connection stands, and what each event makes of that. Pure.

use litequic_resources::connections::EvictionReason;
use tokio::time::Instant;

/// Where a TCP connection stands. Reason and time are parts of the state that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpPhase {
    /// No request has come since the handshake.
    New { since: Instant },
    /// Requests are being served.
    Serving,
    /// No request is being served.
    Idle { since: Instant },
    /// The client was told to close (GOAWAY, `Connection: close`), or is about to be.
    GoingAway { reason: TcpEnd, idle_since: Option<Instant> },
    /// The connection ends, or has ended.
    Closed { reason: TcpEnd },
}

/// Why a connection ends: the first reason, unless litequic ends it at once for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpEnd {
    /// The client closed it, or litequic after a response that ends its connection.
    Client,
    /// The connection failed, or the client violated HTTP.
    Broken,
    /// There was no request for `timeouts.idle`, or memory is short and there is none.
    Idle,
    /// The client did more than it may, or holds too much.
    Excessive,
    /// The client read nothing for `timeouts.send`.
    Stalled,
    /// Another client gets its place once its last request has ended.
    MakesRoom,
    /// Another client got its place, and its requests ended with it.
    Evicted,
    /// The operator closes it.
    Operator,
    /// The process drains or stops, or the connection has reached its number of requests.
    Done,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpEvent {
    /// A request begins.
    RequestBegan,
    /// The last one of the requests that are being served has ended.
    LastEnded,
    /// There were as many requests as `limits.max_requests` allows.
    Exhausted,
    /// The process drains, and a first request is not waited for.
    Drain,
    /// There was no request for as long as the phase allows.
    TimedOut,
    /// Memory is short, another client waits for its place, or the operator closes it.
    Evict(EvictionReason),
    /// The client does more than it may, or holds too much.
    Excessive,
    /// The client violated HTTP in what its library passes over.
    Violation,
    /// The process stops.
    Stop,
    /// The client reads nothing.
    Stalled,
    /// The library of its protocol is done with it, with an error if it `broke_off`.
    Ended { broke_off: bool },
}

/// What the connection's task has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PhaseStep {
    /// Nothing.
    Continue,
    /// Tell the client to close.
    GoAway,
    /// End the connection.
    Close,
}

impl TcpPhase {
    /// Moves on after `event`.
    pub(super) fn apply_event(&mut self, event: TcpEvent, now: Instant) -> PhaseStep {
        let going_away = |reason, idle_since| Self::GoingAway { reason, idle_since };
        let before = *self;
        *self = match (before, event) {
            // Whatever else there was: litequic could do nothing about it while the client took nothing.
            (_, TcpEvent::Stalled) => Self::Closed { reason: TcpEnd::Stalled },
            (Self::Closed { .. }, _) => return PhaseStep::Continue,
            (_, TcpEvent::Excessive | TcpEvent::Evict(EvictionReason::Heaviest)) => {
                Self::Closed { reason: TcpEnd::Excessive }
            }
            (_, TcpEvent::Violation) => Self::Closed { reason: TcpEnd::Broken },
            (_, TcpEvent::Evict(EvictionReason::Evicted)) => Self::Closed { reason: TcpEnd::Evicted },
            (_, TcpEvent::Evict(EvictionReason::OperatorNow)) => Self::Closed { reason: TcpEnd::Operator },
            (_, TcpEvent::Stop) => Self::Closed { reason: TcpEnd::Done },
            (Self::GoingAway { reason, .. }, TcpEvent::RequestBegan) => going_away(reason, None),
            (Self::GoingAway { reason, .. }, TcpEvent::LastEnded) => going_away(reason, Some(now)),
            (Self::GoingAway { reason, .. }, TcpEvent::TimedOut | TcpEvent::Ended { .. }) => Self::Closed { reason },
            // It ends soon by itself.
            (Self::GoingAway { .. }, _) => before,
            (_, TcpEvent::RequestBegan) => Self::Serving,
            (_, TcpEvent::LastEnded) => Self::Idle { since: now },
            (Self::Serving, TcpEvent::TimedOut) => before,
            (_, TcpEvent::Ended { broke_off: true }) => Self::Closed { reason: TcpEnd::Broken },
            (_, TcpEvent::Ended { broke_off: false }) => Self::Closed { reason: TcpEnd::Client },
            (_, TcpEvent::TimedOut | TcpEvent::Evict(EvictionReason::Idle)) => {
                going_away(TcpEnd::Idle, before.idle_start(now))
            }
            (_, TcpEvent::Evict(EvictionReason::Drained)) => going_away(TcpEnd::MakesRoom, before.idle_start(now)),
            (_, TcpEvent::Evict(EvictionReason::Operator)) => going_away(TcpEnd::Operator, before.idle_start(now)),
            (_, TcpEvent::Exhausted | TcpEvent::Drain) => going_away(TcpEnd::Done, before.idle_start(now)),
        };
        match (before, *self) {
            (_, Self::Closed { .. }) => PhaseStep::Close,
            (Self::New { .. } | Self::Serving | Self::Idle { .. }, Self::GoingAway { .. }) => PhaseStep::GoAway,
            _ => PhaseStep::Continue,
        }
    }

    /// From when on a client that is told `now` to close is waited for: from the end of its last request, if there are
    /// any.
    fn idle_start(self, now: Instant) -> Option<Instant> {
        (self != Self::Serving).then_some(now)
    }

    /// Since when no request is being served.
    pub(super) fn phase_idle_since(self) -> Option<Instant> {
        match self {
            Self::New { since } | Self::Idle { since } => Some(since),
            Self::GoingAway { idle_since, .. } => idle_since,
            Self::Serving | Self::Closed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_event_moves_each_phase_as_the_table_says() {
        use {EvictionReason as Evict, PhaseStep::*, TcpEnd as Reason, TcpEvent::*};
        let start = Instant::now();
        let now = start + Duration::from_secs(1);
        let (new, serving, idle) = (TcpPhase::New { since: start }, TcpPhase::Serving, TcpPhase::Idle { since: start });
        let away = |reason, idle_since| TcpPhase::GoingAway { reason, idle_since };
        let (leaving, leaving_idle) = (away(Reason::Idle, None), away(Reason::Idle, Some(start)));
        let closed = |reason| TcpPhase::Closed { reason };
        let all = [new, serving, idle, leaving, leaving_idle];
        let ends = |event, reason| all.map(|before| (before, event, closed(reason), Close));
        // Told to close while requests are being served, or not: the time of waiting begins now.
        let told = |event, reason| {
            let told = |before, since| (before, event, away(reason, since), GoAway);
            let stays = |before| (before, event, before, Continue);
            [told(new, Some(now)), told(serving, None), told(idle, Some(now)), stays(leaving), stays(leaving_idle)]
        };
        let rows = [
            [
                (new, RequestBegan, serving, Continue),
                (serving, RequestBegan, serving, Continue),
                (idle, RequestBegan, serving, Continue),
                (leaving, RequestBegan, leaving, Continue),
                (leaving_idle, RequestBegan, leaving, Continue),
            ],
            [
                (new, TimedOut, away(Reason::Idle, Some(now)), GoAway),
                (serving, LastEnded, TcpPhase::Idle { since: now }, Continue),
                (leaving, LastEnded, away(Reason::Idle, Some(now)), Continue),
                (serving, TimedOut, serving, Continue),
                (idle, TimedOut, away(Reason::Idle, Some(now)), GoAway),
            ],
            told(Exhausted, Reason::Done),
            told(Drain, Reason::Done),
            told(Evict(Evict::Idle), Reason::Idle),
            told(Evict(Evict::Drained), Reason::MakesRoom),
            ends(Evict(Evict::Heaviest), Reason::Excessive),
            told(Evict(Evict::Operator), Reason::Operator),
            ends(Evict(Evict::Evicted), Reason::Evicted),
            ends(Evict(Evict::OperatorNow), Reason::Operator),
            ends(Excessive, Reason::Excessive),
            ends(Violation, Reason::Broken),
            ends(Stop, Reason::Done),
            ends(Stalled, Reason::Stalled),
            [
                (new, Ended { broke_off: false }, closed(Reason::Client), Close),
                (serving, Ended { broke_off: true }, closed(Reason::Broken), Close),
                (idle, Ended { broke_off: true }, closed(Reason::Broken), Close),
                // The first reason.
                (away(Reason::Done, None), Ended { broke_off: true }, closed(Reason::Done), Close),
                (away(Reason::MakesRoom, Some(start)), TimedOut, closed(Reason::MakesRoom), Close),
            ],
            [
                (closed(Reason::Done), RequestBegan, closed(Reason::Done), Continue),
                (closed(Reason::Done), LastEnded, closed(Reason::Done), Continue),
                (closed(Reason::Excessive), Ended { broke_off: true }, closed(Reason::Excessive), Continue),
                (closed(Reason::Done), Excessive, closed(Reason::Done), Continue),
                (closed(Reason::Done), Stalled, closed(Reason::Stalled), Close),
            ],
        ];
        for (before, event, after, step) in rows.into_iter().flatten() {
            let mut phase = before;
            assert_eq!((phase.apply_event(event, now), phase), (step, after), "{event:?} in {before:?}");
        }
    }
}

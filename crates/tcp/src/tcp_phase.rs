//! Changes the phase of a TCP connection by events. Pure.

use litequic_resources::connections::EvictionReason;
use tokio::time::Instant;

/// Phase of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpPhase {
    /// No request has come since the handshake.
    New { since: Instant },
    /// Requests are being served.
    Serving,
    /// No request is being served.
    Idle { since: Instant },
    /// The client was requested to close (GOAWAY, `Connection: close`), or is about to be.
    GoingAway { reason: TcpEnd, idle_since: Option<Instant> },
    /// The connection ends, or has ended.
    Closed { reason: TcpEnd },
}

/// The reason why a connection ends. The first reason counts, unless litequic ends the connection at once for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpEnd {
    /// The client closed the connection, or litequic did after a response that ends it.
    Client,
    /// The connection failed, or the client violated HTTP.
    Broken,
    /// There was no request for `timeouts.idle`, or memory is short and no request is open.
    Idle,
    /// The client did more than it may, or holds too much memory.
    Excessive,
    /// The client read nothing for `timeouts.send`.
    Stalled,
    /// Another client gets the connection's place once its last request has ended.
    MakesRoom,
    /// Another client got the connection's place. Open requests ended.
    Evicted,
    /// The operator closes the connection.
    Operator,
    /// The process drains or stops, or the connection has reached its number of requests.
    Done,
}

/// An event in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpEvent {
    /// A request begins.
    RequestBegan,
    /// The last request in progress has ended.
    LastEnded,
    /// The connection has had [`litequic_config::Limits::max_requests`] requests.
    Exhausted,
    /// The process drains, and no first request is waited for.
    Drain,
    /// There was no request for the idle timeout of the phase.
    TimedOut,
    /// Memory is short, another client waits for the connection's place, or the operator closes the connection.
    Evict(EvictionReason),
    /// The client does more than it may, or holds too much memory.
    Excessive,
    /// The client violated HTTP in a way that hyper or h2 accepts.
    Violation,
    /// The process stops.
    Stop,
    /// The client reads nothing.
    Stalled,
    /// hyper or h2 has ended the connection, after an error if it `broke_off`.
    Ended { broke_off: bool },
}

/// The next step of a connection's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PhaseStep {
    /// Do nothing.
    Continue,
    /// Request the client to close.
    GoAway,
    /// End the connection.
    Close,
}

impl TcpPhase {
    /// Applies `event`, and returns the next step.
    pub(super) fn apply_event(&mut self, event: TcpEvent, now: Instant) -> PhaseStep {
        let going_away = |reason, idle_since| Self::GoingAway { reason, idle_since };
        let before = *self;
        *self = match (before, event) {
            // A stall replaces any other reason: litequic could do nothing else while the client took no bytes.
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
            // The connection ends soon by itself.
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

    /// Returns the start of the idle time of a client that is requested `now` to close; `None` while requests are open.
    fn idle_start(self, now: Instant) -> Option<Instant> {
        (self != Self::Serving).then_some(now)
    }

    /// Returns the time since which no request is in progress.
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
        // For a client that is requested to close, the idle timeout begins now, or with the end of its last request.
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
                // Only the first reason counts.
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

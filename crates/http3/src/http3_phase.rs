//! Changes the phase of an HTTP/3 connection by events. Pure.

/// Phase of an HTTP/3 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http3Phase {
    /// The client may send requests.
    Open,
    /// GOAWAY with the largest ID was sent. Requests that are on their way are still served (RFC 9114 §5.2).
    Draining,
    /// GOAWAY with the last ID was sent. Requests from this stream on were not processed, and are rejected.
    GoingAway { first_rejected: u64 },
    /// The connection ends, or has ended.
    Closed { reason: Http3End },
}

/// The reason why litequic ends a connection at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http3End {
    /// The client violated HTTP/3, or exceeded a limit.
    Fault,
    /// Another client got the connection's place. Open requests ended.
    Evicted,
    /// The operator closed the connection. Open requests ended.
    Operator,
    /// No request is left after GOAWAY, or the process stops.
    Done,
}

/// An event in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http3Event {
    /// The connection is to leave: the process drains, HTTP/3 was switched off, another client needs the place, the
    /// operator closes the connection, or it has reached its number of requests or addresses.
    Leave,
    /// The client has the first GOAWAY, or had the time for it. No request from the stream `next` on has arrived.
    GoawayReceived { next: u64 },
    /// litequic ends the connection at once.
    Close(Http3End),
}

impl Http3Phase {
    /// Applies `event`. Returns false if it had no effect.
    pub(super) fn apply_event(&mut self, event: Http3Event) -> bool {
        *self = match (*self, event) {
            (Self::Open, Http3Event::Leave) => Self::Draining,
            (Self::Draining, Http3Event::GoawayReceived { next }) => Self::GoingAway { first_rejected: next },
            // Only the first reason counts, as several streams may find a fault.
            (Self::Closed { .. }, _) | (_, Http3Event::Leave | Http3Event::GoawayReceived { .. }) => return false,
            (_, Http3Event::Close(reason)) => Self::Closed { reason },
        };
        true
    }

    pub(super) fn rejects_stream(self, id: u64) -> bool {
        matches!(self, Self::GoingAway { first_rejected } if id >= first_rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_moves_each_phase_as_the_table_says() {
        let away = Http3Phase::GoingAway { first_rejected: 8 };
        let fault = Http3End::Fault;
        let closed = |reason| Http3Phase::Closed { reason };
        let table = [
            (Http3Phase::Open, Http3Event::Leave, Some(Http3Phase::Draining)),
            (Http3Phase::Open, Http3Event::GoawayReceived { next: 8 }, None),
            (Http3Phase::Draining, Http3Event::Leave, None),
            (Http3Phase::Draining, Http3Event::GoawayReceived { next: 8 }, Some(away)),
            (away, Http3Event::Leave, None),
            (away, Http3Event::GoawayReceived { next: 12 }, None),
            (Http3Phase::Open, Http3Event::Close(fault), Some(closed(fault))),
            (Http3Phase::Draining, Http3Event::Close(Http3End::Evicted), Some(closed(Http3End::Evicted))),
            (away, Http3Event::Close(Http3End::Done), Some(closed(Http3End::Done))),
            (closed(fault), Http3Event::Leave, None),
            (closed(fault), Http3Event::GoawayReceived { next: 8 }, None),
            // Only the first reason counts.
            (closed(fault), Http3Event::Close(Http3End::Done), None),
        ];
        for (before, event, after) in table {
            let mut phase = before;
            let moved = phase.apply_event(event);
            assert_eq!((moved, phase), (after.is_some(), after.unwrap_or(before)), "{event:?} in {before:?}");
        }
    }

    #[test]
    fn requests_are_rejected_from_the_last_goaway_on() {
        let away = Http3Phase::GoingAway { first_rejected: 8 };
        let open = [Http3Phase::Open, Http3Phase::Draining, Http3Phase::Closed { reason: Http3End::Done }];
        assert!(open.iter().all(|phase| !phase.rejects_stream(8)));
        assert_eq!([4, 8, 12].map(|id| away.rejects_stream(id)), [false, true, true]);
    }
}

//! Reads the clock once a turn: a task that serves many requests at once uses the same time for all of them.

use std::{cell::Cell, marker::PhantomData};
use tokio::time::Instant;

thread_local! {
    static TURN_CLOCK: Cell<TurnClock> = const { Cell::new(TurnClock::None) };
}

#[derive(Debug, Clone, Copy)]
enum TurnClock {
    None,
    /// A turn in which the clock was not read.
    Unread,
    Read(Instant),
}

/// Turn of a task. As long as this exists, [`turn_time`] of this thread returns the time of its first call.
#[derive(Debug)]
pub struct ClockTurn {
    /// Not `Send`: a turn ends on the thread on which it began.
    _local: PhantomData<*const ()>,
}

impl ClockTurn {
    /// Begins a turn, which must not contain a wait.
    pub fn start_turn() -> Self {
        TURN_CLOCK.set(TurnClock::Unread);
        Self { _local: PhantomData }
    }
}

impl Drop for ClockTurn {
    fn drop(&mut self) {
        TURN_CLOCK.set(TurnClock::None);
    }
}

/// Time of the first call in this turn, or the present time if there is no turn.
pub fn turn_time() -> Instant {
    match TURN_CLOCK.get() {
        TurnClock::Read(time) => time,
        TurnClock::Unread => {
            let time = Instant::now();
            TURN_CLOCK.set(TurnClock::Read(time));
            time
        }
        TurnClock::None => Instant::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_within_a_turn() {
        let (second, began) = (Duration::from_secs(1), Instant::now());
        let turn = ClockTurn::start_turn();
        advance(second).await;
        assert_eq!(turn_time(), began + second, "asked for the first time");
        advance(second).await;
        assert_eq!(turn_time(), began + second);
        drop(turn);
        assert_eq!(turn_time(), began + 2 * second);
    }
}

//! The time of a turn: a task that serves many requests at once reads the clock once for all of them.

use std::{cell::Cell, marker::PhantomData};
use tokio::time::Instant;

thread_local! {
    static TURN_CLOCK: Cell<TurnClock> = const { Cell::new(TurnClock::None) };
}

#[derive(Debug, Clone, Copy)]
enum TurnClock {
    /// There is no turn.
    None,
    /// The clock was not read in this turn.
    Unread,
    Read(Instant),
}

/// A turn of a task. As long as it exists, this thread's [`now`] stays what it was when it was asked for first.
#[derive(Debug)]
pub struct ClockTurn {
    /// A turn ends on its thread.
    _local: PhantomData<*const ()>,
}

impl ClockTurn {
    /// Begins a turn, which must not contain a wait.
    pub fn new() -> Self {
        TURN_CLOCK.set(TurnClock::Unread);
        Self { _local: PhantomData }
    }
}

impl Drop for ClockTurn {
    fn drop(&mut self) {
        TURN_CLOCK.set(TurnClock::None);
    }
}

/// The time at which this turn asked first, or at present if there is no turn.
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
        let turn = ClockTurn::new();
        advance(second).await;
        assert_eq!(turn_time(), began + second, "asked for the first time");
        advance(second).await;
        assert_eq!(turn_time(), began + second);
        drop(turn);
        assert_eq!(turn_time(), began + 2 * second);
    }
}

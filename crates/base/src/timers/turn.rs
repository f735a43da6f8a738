//! The time of a turn: a task that serves many requests at once reads the clock once for all of them.

use std::{cell::Cell, marker::PhantomData};
use tokio::time::Instant;

thread_local! {
    static TURN: Cell<Reading> = const { Cell::new(Reading::None) };
}

#[derive(Debug, Clone, Copy)]
enum Reading {
    /// There is no turn.
    None,
    /// The clock was not read in this turn.
    Unread,
    Read(Instant),
}

/// A turn of a task. As long as it exists, this thread's [`now`] stays what it was when it was asked for first.
#[derive(Debug)]
pub struct Turn {
    /// A turn ends on its thread.
    _local: PhantomData<*const ()>,
}

impl Turn {
    /// Begins a turn, which must not contain a wait.
    pub fn begin() -> Self {
        TURN.set(Reading::Unread);
        Self { _local: PhantomData }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.set(Reading::None);
    }
}

/// The time at which this turn asked first, or at present if there is no turn.
pub fn now() -> Instant {
    match TURN.get() {
        Reading::Read(time) => time,
        Reading::Unread => {
            let time = Instant::now();
            TURN.set(Reading::Read(time));
            time
        }
        Reading::None => Instant::now(),
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
        let turn = Turn::begin();
        advance(second).await;
        assert_eq!(now(), began + second, "asked for the first time");
        advance(second).await;
        assert_eq!(now(), began + second);
        drop(turn);
        assert_eq!(now(), began + 2 * second);
    }
}

//! SIGINT and SIGTERM: they raise a flag, every wait of the lab looks at it, and the way out undoes what was set up.

use anyhow::{Result, bail};
use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Between two looks at what a wait waits for.
const LOOK: Duration = Duration::from_millis(10);

/// From here on both signals only raise the flag; a second one ends the process at once.
pub(crate) fn listen() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal finds the flag down and raises it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&RAISED))?;
        signal_hook::flag::register(signal, Arc::clone(&RAISED))?;
    }
    Ok(())
}

/// An error once a signal came.
pub(crate) fn check() -> Result<()> {
    if RAISED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps in pieces, and no longer than until a signal.
pub(crate) fn sleep(time: Duration) -> Result<()> {
    wait_for(time, || Ok(None::<()>)).map(drop)
}

/// Repeats until there is an answer; `None` when `patience` is over, an error when a signal came.
pub(crate) fn wait_for<T>(patience: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let end = Instant::now() + patience;
    loop {
        check()?;
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(left.min(LOOK));
    }
}

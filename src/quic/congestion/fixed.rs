//! A congestion window that nothing changes: how throughput depends on the window, as the laboratory's `window` measures it
//! (LiteQUIC, figure 3). Builds with the feature `fixed-window` alone have it, and say so in their version.

use std::{env, sync::LazyLock};

/// The variable that has it, in bytes.
const VARIABLE: &str = "LITEQUIC_FIXED_WINDOW";

static WINDOW: LazyLock<Option<u32>> = LazyLock::new(|| {
    let text = env::var(VARIABLE).ok()?;
    let window = text.parse().ok();
    if window.is_none() {
        tracing::error!(%text, "{VARIABLE} must be a number of bytes below 2^32; the window is not fixed");
    }
    window
});

/// The window in bytes, where one is set.
pub(super) fn window() -> Option<u32> {
    *WINDOW
}

//! What the suites share: litequic in this process (`proxy`) or as another (`process`), clients (`client`,
//! `raw`, `initial`), a `link` with faults between them, origins (`origin`, `nginx`), and the programs that some tests need (`needs`).

pub(crate) mod client;
pub(crate) mod initial;
pub(crate) mod link;
pub(crate) mod needs;
pub(crate) mod nginx;
pub(crate) mod origin;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod raw;

use std::time::Duration;
use tokio::time::timeout;

/// Longer than anything that a test waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Waits for `event`; fails with `what` if it does not come.
pub(crate) async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, event).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

//! What the answers are made of, and what the rest of the process gives to them.

use super::{
    cached_metrics::CachedMetrics, clients::ClientControl, maintenance::SwitchMaintenance, metrics::AdminMetrics,
    readiness::Readiness, status::Status, token::Token,
};
use litequic_base::lifecycle::Lifecycle;
use litequic_telemetry::{ControlMetrics, Heartbeat, MetricsRegistry};
use std::{fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// After how long without a tick a worker counts as hung that does not wait for events. Ten times
/// [`Heartbeat::INTERVAL`]: a loop that is that late serves no client, while one that is merely saturated ticks in
/// between.
pub const WORKER_DEADLINE: Duration = Duration::from_secs(5);

/// `Server` of every answer, by which `litequic ctl` knows that a litequic answers.
pub const SERVER_FIELD: &str = "litequic";

/// Body of the answer to a request whose token is missing or wrong; `litequic ctl` prints it.
pub const TOKEN_REFUSED: &str = "the token is missing or wrong\n";

/// Beginning of the answer to a reload that changed nothing after one that did: a time in UTC, by RFC 3339, and a comma
/// follow. `litequic ctl` shows the local time on a terminal.
pub const UNCHANGED_PREFIX: &str = "nothing has changed since ";

/// How much an admin address shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `[admin] probes`: what kubelet and Prometheus read. Changes nothing.
    Probes,
    /// `[admin] listen`: everything.
    Operator,
    /// `[admin] socket`: everything, to processes of this user and of root.
    Local,
}

/// Requests a reload; the reloader answers with what changed, or every fault.
pub type ReloadRequest = oneshot::Sender<Result<String, String>>;

/// What the answers are made of; shared by all admin addresses.
#[derive(Debug)]
pub struct AdminState {
    /// All that is counted.
    pub registry: MetricsRegistry,
    /// What the control thread counts.
    pub control: Arc<ControlMetrics>,
    /// The admin addresses' metrics.
    pub metrics: Arc<AdminMetrics>,
    /// The cached text of `/metrics`.
    pub metrics_text: CachedMetrics,
    /// Told to leave by `POST /drain`.
    pub lifecycle: Lifecycle,
    /// One a worker, by its index.
    pub heartbeats: Vec<Arc<Heartbeat>>,
    /// Whether new clients are accepted.
    pub readiness: Readiness,
    /// The receiver of `POST /reload`, if any.
    pub reload: Option<mpsc::Sender<ReloadRequest>>,
    /// The token that requests to `[admin] listen` need, if any.
    pub token: Option<Token>,
    /// The names, in lower case, by which requests may reach the operator's resources, besides IP addresses and
    /// `localhost`.
    pub names: Vec<String>,
    /// What other modules provide to the admin listener.
    pub hooks: Option<AdminHooks>,
    /// What is asked of the workers about clients; `None` if there are no workers.
    pub clients: Option<Arc<dyn ClientControl>>,
}

/// What it shows of the rest of the process.
pub struct AdminHooks {
    /// The members of `/status` that other modules know; called once a request.
    pub status: ReadStatus,
    /// Every key of the configuration in force with its value, without secrets.
    pub configuration: Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    /// Switches routes to maintenance, and back.
    pub maintain: SwitchMaintenance,
    /// Switches HTTP/3 on or off: returns how it is now, or why nothing has changed.
    pub order_http3: Box<dyn Fn(bool) -> Result<String, String> + Send + Sync>,
    /// Orders the certificate of a host of `[[acme]]` now: returns what happens, or why nothing does.
    pub renew: OrderRenewal,
}

/// Orders the certificate of a host: returns what happens, or why nothing does.
pub type OrderRenewal = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// Returns the members of `/status` that other modules know.
pub type ReadStatus = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Status> + Send>> + Send + Sync>;

impl fmt::Debug for AdminHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminHooks")
    }
}

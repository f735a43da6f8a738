//! Defines the state from which admin responses are made, and the functions that the rest of the process provides.

use super::{
    cached_metrics::CachedMetrics, clients::ClientControl, history::MetricHistory, maintenance::SwitchMaintenance,
    metrics::AdminMetrics, readiness::Readiness, status::Status, token::Token,
};
use litequic_base::lifecycle::Lifecycle;
use litequic_telemetry::{ControlMetrics, Heartbeat, MetricsRegistry};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Time without a tick after which a worker that does not wait for events counts as hung. Ten times
/// [`Heartbeat::TICK_INTERVAL`]: a loop that late serves no client, while a merely saturated one ticks in between.
pub const WORKER_DEADLINE: Duration = Duration::from_secs(5);

/// `Server` field of every response, by which `litequic ctl` recognizes litequic.
pub const SERVER_FIELD: &str = "litequic";

/// Field of every response to an operator: the process ID, a comma, and the configuration file.
pub const PROCESS_FIELD: &str = "litequic-process";

/// Beginning of the response to a reload without a change, after one with changes: a time in UTC, by RFC 3339, and a
/// comma follow. `litequic ctl` shows the local time on a terminal.
pub const UNCHANGED_PREFIX: &str = "nothing has changed since ";

/// Set of resources that an admin address serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `[admin] probes`: resources for kubelet and Prometheus, which change nothing.
    Probes,
    /// `[admin] listen`: all resources.
    Operator,
    /// `[admin] socket`: all resources, for processes of this user and of root.
    Local,
}

/// Request for a reload; the receiver answers with the changes, or with every fault.
pub type ReloadRequest = oneshot::Sender<Result<String, String>>;

/// Description of the process, by which an operator distinguishes it from others.
#[derive(Debug, Clone, Default)]
pub struct ProcessIdentity {
    /// Absolute path of the configuration file, or `the command line`.
    pub config: String,
    /// Name of the effective user, or its ID.
    pub user: String,
}

/// State of the admin interface, shared by all admin addresses.
#[derive(Debug)]
pub struct AdminState {
    /// Description of the process.
    pub identity: ProcessIdentity,
    /// All metrics of the process.
    pub registry: MetricsRegistry,
    /// Metrics of the control thread.
    pub control: Arc<ControlMetrics>,
    /// Metrics of the admin addresses.
    pub metrics: Arc<AdminMetrics>,
    /// Cached text of `/metrics`.
    pub metrics_text: CachedMetrics,
    /// Totals of the last ten minutes.
    pub history: MetricHistory,
    /// Lifecycle of the process, which `POST /drain` advances.
    pub lifecycle: Lifecycle,
    /// Heartbeats of the workers, by their index.
    pub heartbeats: Vec<Arc<Heartbeat>>,
    /// Decides whether new clients are accepted.
    pub readiness: Readiness,
    /// Receiver of reload requests, if any.
    pub reload: Option<mpsc::Sender<ReloadRequest>>,
    /// Token for requests to `[admin] listen`, if any.
    pub token: Option<Token>,
    /// Names, in lower case, by which requests may reach the operator's resources, besides IP addresses and
    /// `localhost`.
    pub names: Vec<String>,
    /// Functions that other modules provide.
    pub hooks: AdminHooks,
    /// Control of the workers' clients.
    pub clients: Arc<dyn ClientControl>,
}

/// Functions that the rest of the process provides to the admin interface.
pub struct AdminHooks {
    /// Returns members of `/status` that other modules know; called once per request.
    pub status: ReadStatus,
    /// Returns every key of the configuration in force with its value, without secrets.
    pub configuration: Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    /// Switches routes to maintenance and back.
    pub maintain: SwitchMaintenance,
    /// Switches HTTP/3 on or off. Returns its new state, or the reason why nothing changed.
    pub order_http3: Box<dyn Fn(bool) -> Result<String, String> + Send + Sync>,
    /// Orders the certificate of a host of `[[acme]]` now. Returns a description, or the reason of a refusal.
    pub renew: OrderRenewal,
}

/// Orders the certificate of a host. Returns a description, or the reason of a refusal.
pub type OrderRenewal = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// Returns the members of `/status` that other modules know; what was learned of the servers may be as old as the time.
pub type ReadStatus = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = Status> + Send>> + Send + Sync>;

litequic_base::partial_debug!(AdminHooks);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{ClientList, CloseOrder, DeniedList, DenyOrder, QlogLines, QlogOrder, WorkersReply};
    use litequic_config::Network;
    use litequic_telemetry::clients::ListQuery;
    use std::future::ready;

    /// Clients of workers that do not answer.
    #[derive(Debug)]
    struct NoWorkers;

    fn no_workers<'a, T: Send + 'a>() -> WorkersReply<'a, T> {
        Box::pin(ready(Err("there are no workers\n".into())))
    }

    impl ClientControl for NoWorkers {
        fn list_clients(&self, _: ListQuery) -> WorkersReply<'_, ClientList> {
            no_workers()
        }

        fn close_clients(&self, _: CloseOrder) -> WorkersReply<'_, u64> {
            no_workers()
        }

        fn deny_clients(&self, _: DenyOrder) -> WorkersReply<'_, Result<String, String>> {
            no_workers()
        }

        fn allow_clients(&self, network: Network) -> Result<String, String> {
            Err(format!("{network} is not denied\n"))
        }

        fn list_denied_networks(&self) -> DeniedList {
            DeniedList::default()
        }

        fn log_connections(&self, _: QlogOrder) -> WorkersReply<'_, Result<QlogLines, String>> {
            no_workers()
        }
    }

    /// State of a process without workers.
    pub(crate) fn state() -> AdminState {
        AdminState {
            identity: ProcessIdentity::default(),
            registry: MetricsRegistry::default(),
            control: Arc::default(),
            metrics: Arc::default(),
            metrics_text: CachedMetrics::default(),
            history: MetricHistory::default(),
            lifecycle: Lifecycle::default(),
            heartbeats: Vec::new(),
            readiness: Readiness::new(None),
            reload: None,
            token: None,
            names: Vec::new(),
            hooks: AdminHooks {
                status: Box::new(|_| Box::pin(ready(Status::default()))),
                configuration: Box::new(Vec::new),
                maintain: Box::new(|_| Err(String::new())),
                order_http3: Box::new(|_| Err(String::new())),
                renew: Box::new(|_| Err(String::new())),
            },
            clients: Arc::new(NoWorkers),
        }
    }
}

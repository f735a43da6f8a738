//! Keeps the states of the certificates that litequic obtains, for operators, and the renewals that operators order.

use super::plan::Validity;
use litequic_base::named_enum;
use litequic_config::AcmeHost;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Shortest time between two renewals of a host by operators' orders: CAs limit the certificates of a name.
const MIN_ORDER_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Number of hosts that an error message lists at most.
const MAX_LISTED_HOSTS: usize = 64;

named_enum! {
    /// State of a host's certificate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CertificateState {
        /// The certificate is valid, and its renewal is not due.
        Valid = "valid",
        /// The certificate is valid, and its renewal is due.
        Due = "due",
        /// There is no certificate, or it has expired.
        Missing = "missing",
    }
    /// Returns the name of the state in metrics and `/status`.
    fn state_name;
}

/// State of a host of `[[acme]]`, as `/status` shows it.
#[derive(Debug, Clone)]
pub struct AcmeHostEntry {
    /// Name of the host.
    pub host: String,
    /// State of the host's certificate.
    pub state: CertificateState,
    /// Validity of the host's certificate, if there is one.
    pub validity: Option<Validity>,
    /// Directory of the CA.
    pub directory: String,
    /// Time of the next order, in seconds since the Unix epoch.
    pub next: u64,
    /// Whether the next step continues an order.
    pub resumes: bool,
    /// Number of consecutive failed orders, and the running one.
    pub failures: u64,
    /// Time of the first of these failures, in seconds since the Unix epoch.
    pub failing_since: Option<u64>,
    /// Reason why the last order failed.
    pub problem: Option<String>,
    /// Record that the operator has to set for dns-persist-01.
    pub record: Option<String>,
}

/// The states of all hosts. [`AcmeClient`](super::AcmeClient) writes them, and the admin interface reads them.
#[derive(Debug, Default)]
pub struct AcmeHostTable {
    entries: Mutex<Vec<AcmeHostEntry>>,
    renewal_orders: Mutex<Vec<AcmeHost>>,
    /// Time of the last renewal that an operator ordered, by host.
    last_ordered: Mutex<BTreeMap<String, Instant>>,
    manager_wake: Notify,
}

impl AcmeHostTable {
    pub(super) fn replace_entries(&self, entries: Vec<AcmeHostEntry>) {
        *self.entries.lock() = entries;
    }

    /// Orders a certificate for `host` now.
    ///
    /// # Errors
    ///
    /// The reason why the order is refused, for the operator.
    pub fn order_renewal(&self, host: &str) -> Result<String, String> {
        let host = AcmeHost::from(host.to_ascii_lowercase());
        let name = host.to_string();
        let entries = self.entries.lock();
        if !entries.iter().any(|entry| entry.host == name) {
            let known: String =
                entries.iter().take(MAX_LISTED_HOSTS).map(|entry| format!("  {}\n", entry.host)).collect();
            return Err(format!("litequic obtains no certificate of {name} by ACME; the hosts are\n{known}"));
        }
        let mut ordered = self.last_ordered.lock();
        let left = ordered.get(&name).and_then(|last| MIN_ORDER_INTERVAL.checked_sub(last.elapsed()));
        if let Some(left) = left {
            let seconds = left.as_secs().max(1);
            return Err(format!(
                "a certificate of {name} was ordered less than five minutes ago; try again in {seconds} s\n"
            ));
        }
        ordered.retain(|_, last| last.elapsed() < MIN_ORDER_INTERVAL);
        ordered.insert(name.clone(), Instant::now());
        self.renewal_orders.lock().push(host);
        self.manager_wake.notify_one();
        Ok(format!("ordering a certificate for {name}: the log and `litequic ctl certificates` have the result\n"))
    }

    /// Wakes the ACME client after a change of the configuration.
    pub fn wake_renewals(&self) {
        self.manager_wake.notify_one();
    }

    /// Waits for a change of the configuration, or for an order.
    pub(super) async fn wait_for_wake(&self) {
        self.manager_wake.notified().await;
    }

    pub(super) fn take_renewal_orders(&self) -> Vec<AcmeHost> {
        std::mem::take(&mut *self.renewal_orders.lock())
    }

    /// Returns the states of all hosts.
    pub fn host_entries(&self) -> Vec<AcmeHostEntry> {
        self.entries.lock().clone()
    }
}

//! Keeps the operator's list of denied networks (`litequic ctl deny`) on the control thread: checks orders, and removes
//! expired entries.

use super::metrics::ProcessMetrics;
use futures_util::future::OptionFuture;
use litequic_admin::{DeniedList, DeniedStatus, DenyOrder};
use litequic_config::{LiveConfig, Network};
use litequic_telemetry::clients::{DenyList, MAX_DENIED};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{select, sync::Notify, time::sleep_until};

/// Loopback addresses of this machine.
const LOOPBACK: [Network; 2] = [
    Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
    Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
];

/// The deny list, with the state that orders are checked against.
#[derive(Debug)]
pub(super) struct Denial {
    /// The list that workers read.
    pub(super) list: Arc<DenyList>,
    config: LiveConfig,
    metrics: Arc<ProcessMetrics>,
    changed: Notify,
}

impl Denial {
    /// Starts with `list`, that of the previous process.
    pub(super) fn new(list: DenyList, config: LiveConfig, metrics: Arc<ProcessMetrics>) -> Self {
        let denial = Self { list: Arc::new(list), config, metrics, changed: Notify::new() };
        let networks = denial.update_denied_gauge();
        if networks > 0 {
            tracing::info!(networks, "networks are denied as in the previous process");
        }
        denial
    }

    /// Denies the network of `order`.
    ///
    /// # Errors
    ///
    /// The reason for which nothing has changed, for the operator.
    pub(super) fn deny_network(&self, order: &DenyOrder) -> Result<(), String> {
        let DenyOrder { network, time, .. } = *order;
        if !order.force
            && let Some(needed) = self.needed_addresses(network)
        {
            return Err(format!("{network} includes {needed}; confirm with --force (over HTTP: force=on)\n"));
        }
        self.list.add_denial(network, time, Instant::now()).map_err(|error| format!("{error}\n"))?;
        self.update_denied_gauge();
        let time = humantime::format_duration(time);
        tracing::info!(%network, %time, "the operator denied a network");
        Ok(())
    }

    /// Addresses in `network` that this installation needs, in words.
    fn needed_addresses(&self, network: Network) -> Option<&'static str> {
        let config = self.config.load();
        let overlaps = |networks: &[Network]| networks.iter().any(|other| other.overlaps(&network));
        if overlaps(&LOOPBACK) {
            Some("addresses of this machine (loopback)")
        } else if overlaps(&config.trusted_proxies) {
            Some("a proxy of trusted_proxies, whose clients would all be denied")
        } else if overlaps(&config.listen.proxy_protocol_from) {
            Some("a load balancer of listen.proxy_protocol_from, whose clients would all be denied")
        } else {
            None
        }
    }

    /// Allows `network` again; returns a line for the operator.
    ///
    /// # Errors
    ///
    /// The reason for which nothing has changed, for the operator.
    pub(super) fn allow_network(&self, network: Network) -> Result<String, String> {
        let count = self.list.remove_denials(network, Instant::now()).map_err(|error| format!("{error}\n"))?;
        self.update_denied_gauge();
        tracing::info!(%network, networks = count, "the operator allowed a network again");
        Ok(match count {
            1 => format!("{network} is allowed again\n"),
            _ => format!("{count} networks of {network} are allowed again\n"),
        })
    }

    /// The deny list in the format of `/denied`.
    pub(super) fn denied_list(&self) -> DeniedList {
        let one = |denied: litequic_telemetry::clients::DeniedNetwork| DeniedStatus {
            network: Some(denied.network.to_string()),
            seconds: Some(seconds_rounded_up(denied.left)),
        };
        DeniedList {
            denied: self.list.denied_networks(Instant::now()).into_iter().map(one).collect(),
            most: Some(MAX_DENIED as u64),
        }
    }

    /// Removes networks when their time is over. Does not end.
    pub(super) async fn run_expiry(&self) {
        loop {
            let end = self.list.next_denial_end();
            select! {
                () = self.changed.notified() => continue,
                Some(()) = OptionFuture::from(end.map(|end| sleep_until(end.into()))) => {}
            }
            for network in self.list.remove_expired(Instant::now()) {
                tracing::info!(%network, "a network is no longer denied: its time is over");
            }
            self.update_denied_gauge();
        }
    }

    /// Updates the gauge of denied networks, and wakes [`Self::run_expiry`]. Returns the number of networks.
    fn update_denied_gauge(&self) -> usize {
        let networks = self.list.denied_networks(Instant::now()).len();
        self.metrics.control.denied_networks.set(networks as u64);
        self.changed.notify_one();
        networks
    }
}

/// Whole seconds, rounded up, so that a remaining time is never 0.
pub(super) fn seconds_rounded_up(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_config::Config;

    fn denial() -> Denial {
        let origin = "http://127.0.0.1:1".parse().unwrap();
        let mut config = Config::with_defaults(([127, 0, 0, 1], 1).into(), origin, "".into(), "".into());
        config.trusted_proxies = vec!["192.0.2.0/28".parse().unwrap()];
        config.listen.proxy_protocol_from = vec!["2001:db8::5".parse().unwrap()];
        Denial::new(DenyList::default(), config.into_live(), Arc::new(ProcessMetrics::new(1)))
    }

    fn order(network: &str, force: bool) -> DenyOrder {
        DenyOrder { network: network.parse().unwrap(), time: Duration::from_secs(60), all: true, force }
    }

    #[test]
    fn denying_loopback_or_trusted_proxies_needs_confirmation() {
        let denial = denial();
        for (network, reason) in [
            ("127.0.0.1", Some("loopback")),
            ("126.0.0.0/7", Some("loopback")),
            ("::1", Some("loopback")),
            ("::/0", Some("loopback")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("192.0.2.5", Some("trusted_proxies")),
            ("192.0.2.0/24", Some("trusted_proxies")),
            ("2001:db8::/32", Some("proxy_protocol_from")),
            ("192.0.2.16", None),
            ("2001:db8::6", None),
        ] {
            let refused = denial.deny_network(&order(network, false)).err();
            assert_eq!(refused.is_some(), reason.is_some(), "{network}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(reason.unwrap_or_default()), "{network}");
            denial.deny_network(&order(network, true)).unwrap();
        }
        assert_eq!(denial.metrics.control.denied_networks.get(), 9, "::ffff:127.0.0.1 is 127.0.0.1");
        assert_eq!(
            denial.allow_network("0.0.0.0/0".parse().unwrap()).unwrap(),
            "5 networks of 0.0.0.0/0 are allowed again\n"
        );
        assert_eq!(denial.allow_network("10.0.0.1".parse().unwrap()).unwrap_err(), "10.0.0.1/32 is not denied\n");
        assert_eq!(denial.metrics.control.denied_networks.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_network_is_removed_when_its_time_is_over() {
        let denial = denial();
        let later = Duration::from_millis(50);
        denial.list.add_denial("10.0.0.0/8".parse().unwrap(), later, Instant::now()).unwrap();
        denial.update_denied_gauge();
        let gone = async {
            while denial.metrics.control.denied_networks.get() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        select! {
            () = denial.run_expiry() => unreachable!("it does not end"),
            () = gone => {}
        }
        assert_eq!(denial.denied_list().denied, []);
    }
}

//! The whole product in this process: workers, QUIC, HTTP/3, the proxy; certificates made on the spot.

use super::prelude::*;
use litequic::app::{self, ProcessMetrics, StartOptions, WorkerDied};
use litequic_base::lifecycle::{Lifecycle, ProcessPhase};
use litequic_config::Io;
use litequic_resources::memory::MemoryGauge;
use std::num::NonZeroU16;
use tokio::{task::JoinHandle, time::Instant};

/// The names that its certificate covers, besides the addresses of this machine.
const NAMES: [&str; 6] = ["localhost", "127.0.0.1", "::1", "a.test", "b.test", "*.wild.test"];
/// Between two looks at a counter.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A litequic that serves. [`stop`](Self::stop) it at the test's end to see that it ends in order.
pub(crate) struct Litequic {
    /// The first of `addresses`.
    pub(crate) address: SocketAddr,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tcp: Vec<SocketAddr>,
    pub(crate) redirects: Vec<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) probes: Option<SocketAddr>,
    pub(crate) metrics: Arc<ProcessMetrics>,
    pub(crate) lifecycle: Lifecycle,
    /// What a client has to trust.
    pub(crate) cert_pem: String,
    ended: JoinHandle<Result<(), WorkerDied>>,
}

/// A configuration with all defaults, for a free port of 127.0.0.1 before the origin at `origin`.
pub(crate) fn config_before(origin: SocketAddr) -> Config {
    Config::with_defaults((Ipv4Addr::LOCALHOST, 0).into(), tcp(origin), "cert".into(), "key".into())
}

/// The origin at `address`, as a configuration has it.
pub(crate) fn tcp(address: SocketAddr) -> OriginAddress {
    OriginAddress::Tcp { host: address.ip().to_string(), port: address.port() }
}

/// Changes nothing.
pub(crate) fn defaults(_: &mut Config) {}

/// Makes each connection a source of its own: the clients of a test are at one address.
pub(crate) fn exempt_all(config: &mut Config) {
    config.sources.exempt = ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into();
}

/// Has requests get a connection to their origin before anything of their body is there.
pub(crate) fn unbuffered(config: &mut Config) {
    for origin in config.origins.values_mut() {
        origin.request_buffer = 0;
    }
}

impl Litequic {
    /// Starts one worker on 127.0.0.1 before the origin at `origin`, after `edit` has changed what it likes.
    pub(crate) async fn start(origin: SocketAddr, edit: impl FnOnce(&mut Config)) -> Self {
        Self::with_config(&Self::config(origin, edit)).await
    }

    /// Starts one worker on 127.0.0.1 before the demo's origin with faults.
    pub(crate) async fn demo(edit: impl FnOnce(&mut Config)) -> Self {
        Self::start(origin::demo().await, edit).await
    }

    /// Starts one worker before the origin at `origin`, with memory as short as in `gauge`.
    pub(crate) async fn with_memory(origin: SocketAddr, gauge: &MemoryGauge, edit: impl FnOnce(&mut Config)) -> Self {
        let options = StartOptions { memory: Some(gauge.clone()), ..StartOptions::default() };
        Self::with_options(&Self::config(origin, edit), options).await
    }

    /// Starts it before the origin at `origin` with what is the default elsewhere, too, after `edit` has changed what it
    /// likes. It has `certificates`, of which the first is for clients that name no host.
    pub(crate) async fn showing(
        certificates: &[SelfSigned],
        origin: SocketAddr,
        edit: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = config_before(origin);
        edit(&mut config);
        let mut loaded = certificates.iter().map(|made| made.to_loaded_certificate().unwrap());
        let store = CertificateStore::new(loaded.next().unwrap(), loaded);
        Self::with_certificates(&config, store, certificates[0].cert_pem.clone()).await
    }

    fn config(origin: SocketAddr, edit: impl FnOnce(&mut Config)) -> Config {
        let mut config = config_before(origin);
        config.listen.workers = Some(NonZeroU16::MIN);
        exempt_all(&mut config);
        edit(&mut config);
        config
    }

    /// Starts it with exactly `config`, but for the certificate, and for `litequic.io` where that is `Auto`.
    pub(crate) async fn with_config(config: &Config) -> Self {
        Self::with_options(config, StartOptions::default()).await
    }

    async fn with_options(config: &Config, options: StartOptions) -> Self {
        let certificate = make_self_signed(NAMES).unwrap();
        let store = CertificateStore::new(certificate.to_loaded_certificate().unwrap(), []);
        Self::with_all(config, options, store, certificate.cert_pem).await
    }

    /// Starts it with `config`, in the same way, and `store`, of which clients should trust `cert_pem`.
    pub(crate) async fn with_certificates(config: &Config, store: CertificateStore, cert_pem: String) -> Self {
        Self::with_all(config, StartOptions::default(), store, cert_pem).await
    }

    async fn with_all(config: &Config, options: StartOptions, store: CertificateStore, cert_pem: String) -> Self {
        let mut config = config.clone();
        if config.litequic.io == Io::Auto {
            config.litequic.io = super::io();
        }
        let running = app::start_litequic(&config, store, options, |proxy| proxy).await.unwrap();
        Self {
            address: running.addresses[0],
            addresses: running.addresses.clone(),
            tcp: running.tcp.clone(),
            redirects: running.redirects.clone(),
            admin: running.admin,
            probes: running.probes,
            metrics: Arc::clone(&running.metrics),
            lifecycle: running.lifecycle.clone(),
            cert_pem,
            ended: tokio::spawn(running.wait_for_end()),
        }
    }

    /// What `read` finds, summed over all workers.
    pub(crate) fn sum(&self, read: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.metrics.sum_over_workers(read)
    }

    /// Waits until `condition` holds of a sum over all workers; fails with the last value.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        read: impl Fn(&WorkerMetrics) -> u64,
        condition: impl Fn(u64) -> bool,
    ) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let value = self.sum(&read);
            if condition(value) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: it is {value}");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until no request is open and nothing is held for any.
    pub(crate) async fn wait_until_idle(&self) {
        self.wait_until("requests_open = 0", |worker| worker.shared.requests_open.get(), |open| open == 0).await;
        self.wait_until("send_buffered = 0", |worker| worker.worker.send_buffered.get(), |held| held == 0).await;
    }

    /// Stops it at once, and checks that every worker ends in order.
    pub(crate) async fn stop(self) {
        self.lifecycle.advance_phase(ProcessPhase::Stopping);
        self.ended().await;
    }

    /// Stops it once no request is open and nothing is held for any.
    pub(crate) async fn stop_when_idle(self) {
        self.wait_until_idle().await;
        self.stop().await;
    }

    /// Waits until it has ended in order, on request.
    pub(crate) async fn ended(self) {
        within("litequic's end", self.ended).await.unwrap().unwrap();
    }
}

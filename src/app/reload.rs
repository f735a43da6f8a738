//! Reloads the configuration and its files, as a whole or not at all. Runs on the control thread; workers read the
//! stored result. Connections of clients stay, unless HTTP/3 is switched off; a worker closes idle connections to
//! servers that are gone at its next request.
//!
//! A reload is triggered by SIGHUP, by a file that changed, or by `POST /reload`. While a configuration is rejected,
//! certificates and error pages are renewed by the one in force.

use super::{
    acme_certificates::{IssuedCertificates, SharedAcme as Acme},
    active_state::ActiveState,
    admin_hooks::maintenance_status,
    collector_tls,
    config_files::{self, LoadedConfig, reloadable_files},
    denial::Denial,
    descriptors::SharedDescriptors,
    file_watcher::FileWatcher,
    handover::InheritedState,
    http3_switch::Http3Switch,
    last_reload::{LastChange, ReloadTrigger},
    metrics::ProcessMetrics,
    origin_tls,
    renewal::Renewal,
    running::RunningProcess,
    service,
    start_error::StartError,
    users,
};
use arc_swap::ArcSwap;
use futures_util::future::OptionFuture;
use jiff::{Timestamp, Unit};
use litequic_admin as admin;
use litequic_config::{Config, ConfigChange, ConfigFaults, ConfigWarning, LogConfig, OnChange, ParsedConfig};
use litequic_proxy::{ActiveMaintenance, CookieKey, MaintenanceTarget, Pages, Routing, RoutingFiles};
use litequic_quic::ServerIdKey;
use litequic_telemetry::{
    CertificateValidity,
    access_log::{AccessLogger, OpenedAccessLog},
    traces::{CollectorTls, Tracing},
};
use litequic_tls::{CertificateResolver, CertificateStore, LoadedCertificate};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    mem,
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    select,
    signal::unix::Signal,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
};

/// Number of requests for a reload that may wait: the next reload answers all of them.
const MAX_QUEUED_RELOADS: usize = 8;
/// Maximum number of routes that an error answer lists.
const MAX_ROUTE_NAMES: usize = 64;

/// Prefix of the keys of the connection ID table.
const SERVER_ID_PREFIX: &str = "listen.server_id.";
const KEY_FILE: &str = "listen.server_id.key_file";

/// Log target of this module. Its lines are not rate-limited: an operator causes them, and scripts wait for them.
pub const LOG_TARGET: &str = module_path!();

/// The channel from `POST /reload` to the [`Reloader`].
pub fn reload_channel() -> (mpsc::Sender<admin::ReloadRequest>, mpsc::Receiver<admin::ReloadRequest>) {
    mpsc::channel(MAX_QUEUED_RELOADS)
}

impl ActiveState {
    /// Reads the files of `config`, and starts with it, with the certificates of files and with the orders of the
    /// previous process in `beginning`.
    ///
    /// # Errors
    ///
    /// [`StartError::Files`], [`StartError::AccessLog`]
    pub(super) async fn new(
        config: &Config,
        certificates: &CertificateStore,
        shared: SharedDescriptors,
        metrics: Arc<ProcessMetrics>,
        beginning: &mut InheritedState,
    ) -> Result<Self, StartError> {
        let issued = IssuedCertificates::from_storage(config);
        let certificates = issued.compose_store(certificates, config);
        let acme = Acme::default();
        acme.answers.set_hosts(&config.acme);
        let access = AccessLogger::start_access_log(&config.access_log, Arc::clone(&metrics.access_log)).await?;
        let mut findings = ParsedConfig::from_options(config.clone()).faults;
        let files = config_files::load_content(config, &mut findings);
        let ((files, collector), _) = findings.into_result(files)?;
        let (spans, exemplars) = (Arc::clone(&metrics.traces), Arc::clone(&metrics.exemplars));
        let traces = Tracing::start_exporter(config, collector, spans, exemplars);
        let mut routing = Routing::compile_after(config, files, None);
        routing.cookie_key = CookieKey::new(&beginning.secrets.cookies);
        routing.capacity = Arc::clone(&shared.capacity);
        let maintenance = mem::take(&mut beginning.maintenance);
        let routing = if maintenance.is_empty() { routing } else { routing.with_maintenance(config, maintenance) };
        let http3 = Arc::new(Http3Switch::new(config, beginning.http3));
        let mut config = config.clone();
        config.listen.http3 = http3.is_http3_on();
        let config = config.into_live();
        let denied = mem::take(&mut beginning.denied);
        let in_force = Self {
            denial: Arc::new(Denial::new(denied, Arc::clone(&config), Arc::clone(&metrics))),
            config,
            routing: Arc::new(ArcSwap::from_pointee(routing)),
            rerouted: Arc::default(),
            resolver: CertificateResolver::with_miss_counter(certificates, Arc::clone(&metrics.unanswered)),
            access,
            traces,
            metrics,
            last_reload: Arc::default(),
            shared,
            ids: Arc::clone(&beginning.ids),
            http3,
            acme,
            replacing: Arc::new(Mutex::new(issued)),
        };
        in_force.update_gauges();
        for one in in_force.routes_in_maintenance() {
            tracing::info!(
                route = one.target_text(),
                retry_after = one.retry_after,
                routes = one.routes.len(),
                "in maintenance, as in the previous process"
            );
        }
        Ok(in_force)
    }

    /// Routes that are in maintenance.
    pub(super) fn routes_in_maintenance(&self) -> Vec<ActiveMaintenance> {
        let _stays = self.replacing.lock();
        self.routing.load().maintenance_orders(&self.config.load())
    }

    /// Switches maintenance of routes on or off; returns the routes that are in maintenance now.
    ///
    /// # Errors
    ///
    /// The reason for which nothing has changed, for the operator.
    pub(super) fn switch_maintenance(&self, order: &admin::MaintenanceOrder) -> Result<String, String> {
        let replacing = self.replacing.lock();
        let (config, routing) = (self.config.load_full(), self.routing.load_full());
        let mut maintenance = routing.maintenance.clone();
        let target = order.route.clone().map_or(MaintenanceTarget::All, MaintenanceTarget::Route);
        let names = &routing.names;
        let switched = match order.on {
            true => maintenance.switch_on(target, order.retry_after, &config.routes, names),
            false => maintenance.switch_off(target),
        };
        switched.map_err(|error| {
            let names: String = names.iter().take(MAX_ROUTE_NAMES).map(|name| format!("  {name}\n")).collect();
            let more = if config.routes.len() > MAX_ROUTE_NAMES { "  …\n" } else { "" };
            format!("{error}; routes are\n{names}{more}")
        })?;
        self.routing.store(Arc::new(routing.with_maintenance(&config, maintenance)));
        drop(replacing);
        self.observe_maintenance();

        let now = self.routes_in_maintenance();
        let (route, routes) = (order.route.as_deref().unwrap_or("all"), self.metrics.control.maintenance_routes.get());
        match order.on {
            true => tracing::info!(route, retry_after = order.retry_after, routes, "maintenance switched on"),
            false => tracing::info!(route, routes, "maintenance switched off"),
        }
        Ok(admin::format_maintenance(&now.iter().map(maintenance_status).collect::<Vec<_>>()))
    }

    /// Switches HTTP/3 on or off, until a reload changes `listen.http3`; returns the resulting state.
    ///
    /// # Errors
    ///
    /// The reason for which nothing has changed, for the operator.
    pub(super) fn order_http3(&self, on: bool) -> Result<String, String> {
        let replacing = self.replacing.lock();
        let mut config = (*self.config.load_full()).clone();
        if !on && config.listen.tcp.is_empty() {
            return Err("listen.tcp has no address: without HTTP/3 nothing would be served\n".into());
        }
        self.http3.set_order(on);
        config.listen.http3 = on;
        self.config.store(Arc::new(config));
        drop(replacing);
        self.metrics.control.version.set_version(self.config.load().config_version());
        self.apply_http3_switch();
        let until =
            if on == self.http3.configured_http3() { "as configured" } else { "until a reload changes listen.http3" };
        Ok(match on {
            true => format!("HTTP/3 is on, {until}\n"),
            false => format!("HTTP/3 is off, {until}: handshakes are refused, and open connections drain\n"),
        })
    }

    /// Applies `next`, but for keys that need a restart; returns the changes.
    fn apply_config(&self, next: LoadedConfig, lines: OpenedAccessLog) -> Vec<ConfigChange> {
        let LoadedConfig { config: mut next, certificates, routing: files, collector, server_id_key, .. } = next;
        let replacing = self.replacing.lock();
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        self.http3.apply_order_to(&mut next, !now.listen.tcp.is_empty());
        let mut renewed = self.renewed_content(&next, &certificates, &files, collector.as_ref());
        renewed.extend(self.renewed_key(&now, &next, server_id_key));
        self.set_renewed_at(&renewed);
        let mut changes = now.changes_to(&next);
        changes.extend(renewed);
        if changes.is_empty() {
            return changes;
        }
        // A key belongs to the table that names its file, which waits for a restart if its lengths change.
        let server_id_key = server_id_key.filter(|_| now.listen.keeps_server_id_shape(&next.listen));
        let next = now.apply_reload(next);
        self.follow_server_id(&now, &next, server_id_key, &mut changes);
        if next.access_log != now.access_log {
            self.access.apply_access_log(&next.access_log, lines);
        }
        let has_others = next.traces != now.traces || next.trusted_proxies != now.trusted_proxies;
        if has_others || self.traces.has_other_collector_tls(collector.as_ref()) {
            self.traces.apply_trace_config(&next, collector);
        }
        self.resolver.replace_store(replacing.compose_store(&certificates, &next));
        self.acme.answers.set_hosts(&next.acme);
        self.shared.update_division(&next);
        self.routing.store(Arc::new(Routing::compile_after(&next, files, Some(&routing))));
        self.rerouted.notify_one();
        self.config.store(Arc::new(next));
        drop(replacing);
        self.acme.board.wake_renewals();
        self.update_gauges();
        for one in self.routes_in_maintenance().iter().filter(|one| one.routes.is_empty()) {
            let route = one.target_text();
            tracing::warn!(
                route,
                "in maintenance, but the configuration no longer has such a route; end the maintenance with litequic \
                 ctl maintenance off"
            );
        }
        changes
    }

    /// Change of the key for connection IDs within the same file.
    fn renewed_key(&self, now: &Config, next: &Config, key: Option<ServerIdKey>) -> Option<ConfigChange> {
        let file = |config: &Config| config.listen.server_id.as_ref().and_then(|one| one.key_file.clone());
        let path = file(next).filter(|path| file(now).as_ref() == Some(path))?;
        let is_another = now.listen.keeps_server_id_shape(&next.listen) && self.ids.has_another_key(key?);
        is_another.then(|| ConfigChange { key: KEY_FILE.into(), what: format!("{} renewed", path.display()) })
    }

    /// Applies `next` to new connection IDs; adds to `changes` the time at which the last former ID ends.
    fn follow_server_id(&self, now: &Config, next: &Config, key: Option<ServerIdKey>, changes: &mut [ConfigChange]) {
        let mut of_ids: Vec<_> = changes.iter_mut().filter(|one| one.key.starts_with(SERVER_ID_PREFIX)).collect();
        let (Some(last), Some(was), Some(is)) = (of_ids.last_mut(), &now.listen.server_id, &next.listen.server_id)
        else {
            return;
        };
        match self.ids.apply_server_id(is, key) {
            Ok(Some(end)) => {
                let end = Timestamp::try_from(end).unwrap_or_default().round(Unit::Second).unwrap_or_default();
                last.what += &format!("; connection IDs issued before expire by {end}");
            }
            Ok(None) => {}
            Err(_) => tracing::error!(
                "cannot allocate the key of connection IDs: the previous configuration of IDs stays in force"
            ),
        }
        let is_other = was.id_bytes() != is.id_bytes() || of_ids.iter().any(|change| change.key == KEY_FILE);
        if is_other && was.id.rotation == is.id.rotation {
            tracing::warn!(
                rotation = is.id.rotation,
                "balancers cannot tell former connection IDs from new ones: change rotation in listen.server_id.id too"
            );
        }
    }

    /// Applies the renewed files under the configuration in force; returns the changes.
    fn apply_renewal(&self, renewal: Renewal) -> Vec<ConfigChange> {
        let Renewal { certificates, routing: files, collector, .. } = renewal;
        let replacing = self.replacing.lock();
        let (config, routing) = (self.config.load_full(), self.routing.load_full());
        let changes = self.renewed_content(&config, &certificates, &files, collector.as_ref());
        self.set_renewed_at(&changes);
        if !changes.is_empty() {
            self.resolver.replace_store(replacing.compose_store(&certificates, &config));
            if self.traces.has_other_collector_tls(collector.as_ref()) {
                self.traces.apply_trace_config(&config, collector);
            }
            self.routing.store(Arc::new(Routing::compile_after(&config, files, Some(&routing))));
            self.rerouted.notify_one();
            self.observe_certificates();
        }
        changes
    }

    /// Changes of content within the same files.
    fn renewed_content(
        &self,
        next: &Config,
        certificates: &CertificateStore,
        files: &RoutingFiles,
        collector: Option<&CollectorTls>,
    ) -> Vec<ConfigChange> {
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        let mut changes = renewed_certificates(&now, &self.resolver.current_store(), next, certificates);
        let key = |path: &PathBuf| if Pages::is_fixed_body(next, path) { "respond.body_file" } else { "error_pages" };
        let page = |path: &PathBuf| ConfigChange { key: key(path).into(), what: format!("{} renewed", path.display()) };
        changes.extend(files.pages.changed_files(&routing.files.pages).map(page));
        changes.extend(users::renewed_users(&routing.files.users, &files.users));
        changes.extend(origin_tls::renewed_origin_tls(&now, &routing.files.tls, next, &files.tls));
        if now.traces == next.traces && self.traces.has_other_collector_tls(collector) {
            changes
                .push(ConfigChange { key: collector_tls::TRACES_CA_KEY.into(), what: "certificates renewed".into() });
        }
        changes
    }

    fn set_renewed_at(&self, changes: &[ConfigChange]) {
        if !changes.is_empty() {
            self.metrics.control.renewed_at.set(unix_seconds(SystemTime::now()));
        }
    }

    fn update_gauges(&self) {
        let control = &self.metrics.control;
        control.version.set_version(self.config.load().config_version());
        control.configured_at.set(unix_seconds(SystemTime::now()));
        self.observe_certificates();
        self.observe_maintenance();
        self.apply_http3_switch();
    }

    /// Signals the configured state of HTTP/3 to open connections.
    fn apply_http3_switch(&self) {
        let on = self.config.load().listen.http3;
        match (self.http3.signal_connections(on), on) {
            (true, true) => tracing::info!("HTTP/3 is on again"),
            (true, false) => tracing::warn!("HTTP/3 is off: handshakes are refused, and open connections drain"),
            (false, _) => {}
        }
    }

    fn observe_maintenance(&self) {
        let reached: BTreeSet<String> = self.routes_in_maintenance().into_iter().flat_map(|one| one.routes).collect();
        self.metrics.control.maintenance_routes.set(reached.len() as u64);
    }

    pub(super) fn observe_certificates(&self) {
        let control = &self.metrics.control;
        let store = self.resolver.current_store();
        let files = store.file_certificates().len();
        let validity = |(n, one): (usize, &LoadedCertificate)| {
            // Certificates of ACME have no position in the file.
            let names = one.names.dns.first().cloned();
            let issued = || names.or_else(|| one.names.ip.first().map(ToString::to_string)).unwrap_or_default();
            let name = if n < files { format!("certificates[{n}]") } else { issued() };
            CertificateValidity { name, from: unix_seconds(one.not_before()), until: unix_seconds(one.not_after()) }
        };
        let validities: Vec<_> = store.all.iter().enumerate().map(validity).collect();
        control.certificates_expire_at.set(validities.iter().map(|one| one.until).min().unwrap_or_default());
        control.certificates.set_validities(validities);
    }
}

/// Logs the warnings of a configuration.
pub fn log_warnings(warnings: &[ConfigWarning]) {
    for ConfigWarning(warning) in warnings {
        tracing::warn!("{warning}");
    }
}

/// Whole seconds since the Unix epoch.
pub(super) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Changes of certificates and authorities within the same files.
fn renewed_certificates(
    now: &Config,
    old: &CertificateStore,
    next: &Config,
    new: &CertificateStore,
) -> Vec<ConfigChange> {
    let files = now.certificates.iter().zip(&next.certificates).enumerate();
    let stores = old.file_certificates().iter().zip(new.file_certificates());
    let served = files.zip(stores).filter(|((_, (now, next)), (old, new))| now == next && !old.is_same_chain(new)).map(
        |((n, (_, files)), (_, new))| ConfigChange {
            key: format!("certificates[{n}]"),
            what: format!("{} renewed, expires {}", files.cert.display(), httpdate::fmt_http_date(new.not_after())),
        },
    );
    let same_files = (&now.client_certificates.ca, &now.client_certificates.crl)
        == (&next.client_certificates.ca, &next.client_certificates.crl);
    let believed = old
        .authorities
        .as_ref()
        .zip(new.authorities.as_ref())
        .filter(|(old, new)| same_files && !old.has_same_files(new));
    let authorities = believed.map(|(_, new)| ConfigChange {
        key: "client_certificates.ca".into(),
        what: format!("renewed, certificates: {}", new.authority_count()),
    });
    served.chain(authorities).collect()
}

/// Source that a reload reads.
#[derive(Debug, Clone)]
pub enum ConfigOrigin {
    /// A file, with the certificates that it names.
    File(PathBuf),
    /// The command line: only certificates can change.
    Given(Box<Config>),
}

impl ConfigOrigin {
    /// Reads and checks the configuration and its files. Returns these, or the faults for which they are rejected, and
    /// the paths of all files that were or should have been read. Blocks on the file system.
    fn load_with_files(&self) -> (Result<LoadedConfig, Vec<String>>, BTreeSet<PathBuf>) {
        let (draft, mut files) = match self {
            Self::File(file) => (ParsedConfig::load_file(file), BTreeSet::from([file.clone()])),
            Self::Given(config) => (ParsedConfig::from_options((**config).clone()), BTreeSet::new()),
        };
        files.extend(draft.config.iter().flat_map(reloadable_files));
        let lines = |ConfigFaults(faults)| faults.iter().map(ToString::to_string).collect();
        (config_files::load_files(draft).map_err(lines), files)
    }
}

/// Reloads the configuration on request.
pub struct Reloader {
    source: ConfigOrigin,
    in_force: ActiveState,
    /// Whether another process can take over from this one.
    can_upgrade: bool,
    /// True once another process notifies the service manager in place of this one.
    handed_over: watch::Receiver<bool>,
    /// Applies `[log]`.
    log: Box<dyn Fn(&LogConfig)>,
    watcher: Option<FileWatcher>,
    /// Files that `watcher` watches.
    watched: BTreeSet<PathBuf>,
    /// Whether the failure to watch files was logged.
    warned: bool,
}

impl Reloader {
    /// Creates a reloader of `running` from `source`, which applies `[log]` by `log`.
    pub fn new(source: ConfigOrigin, running: &RunningProcess, log: impl Fn(&LogConfig) + 'static) -> Self {
        let (in_force, handed_over) = (running.in_force.clone(), running.handover.watch_handover());
        let (log, can_upgrade) = (Box::new(log), running.handover_socket.is_some());
        Self { source, in_force, can_upgrade, handed_over, log, watcher: None, watched: BTreeSet::new(), warned: false }
    }

    /// Reloads on `hangup`, on `requests`, and when a file that was read changes. To be called on a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch; a reload in progress is then applied or not, never in part.
    pub async fn run_reloads(
        mut self,
        mut hangup: Signal,
        mut requests: mpsc::Receiver<admin::ReloadRequest>,
    ) -> Infallible {
        let mut files = reloadable_files(&self.in_force.config.load()).collect::<BTreeSet<_>>();
        if let ConfigOrigin::File(file) = &self.source {
            files.insert(file.clone());
        }
        // Files may have changed between the start and the first watch.
        let mut trigger = ReloadTrigger::Files;
        let mut waiting: Option<oneshot::Sender<_>> = None;
        loop {
            // Files are watched before they are read, so that no change is missed.
            let followed = self.files_to_watch(files.clone());
            self.watch_files(followed);
            let answer = match (trigger, self.change_policy()) {
                (ReloadTrigger::Files, OnChange::None) => Ok(String::new()),
                (ReloadTrigger::Files, OnChange::Certificates) => Ok(self.renew_files(trigger).await),
                _ => {
                    self.notify_unless_handed_over(service::notify_reloading);
                    let answer = self.reload_config(trigger, &mut files).await;
                    self.notify_unless_handed_over(service::notify_ready);
                    answer
                }
            };
            if let Some(waiting) = waiting.take() {
                // The client may have gone.
                let _ = waiting.send(answer);
            }
            if !self.files_to_watch(files.clone()).is_subset(&self.watched) {
                trigger = ReloadTrigger::Files;
                continue;
            }
            trigger = select! {
                _ = hangup.recv() => ReloadTrigger::Signal,
                Some(request) = requests.recv() => {
                    waiting = Some(request);
                    ReloadTrigger::Admin
                }
                Some(()) = OptionFuture::from(self.watcher.as_mut().map(FileWatcher::wait_for_change)) => ReloadTrigger::Files,
            };
        }
    }

    fn change_policy(&self) -> OnChange {
        self.in_force.config.load().reload.on_change
    }

    /// Selects those of `files` whose changes cause a reload.
    fn files_to_watch(&self, files: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        match self.change_policy() {
            OnChange::All => files,
            OnChange::Certificates => reloadable_files(&self.in_force.config.load()).collect(),
            OnChange::None => BTreeSet::new(),
        }
    }

    /// Notifies the service manager by `tell`, unless another process does so by now.
    fn notify_unless_handed_over(&self, tell: fn()) {
        if !*self.handed_over.borrow() {
            tell();
        }
    }

    /// Watches `files` instead of the former ones.
    fn watch_files(&mut self, files: BTreeSet<PathBuf>) {
        let warned = &mut self.warned;
        let mut warn = |what: String, error: std::io::Error| {
            if !mem::replace(warned, true) {
                tracing::warn!(%error, "cannot watch {what}: a changed file is read on SIGHUP only");
            }
        };
        let watcher = FileWatcher::new(&files, |path, error| warn(path.display().to_string(), error));
        self.watcher = watcher.map_err(|error| warn("files".into(), error)).ok();
        self.watched = files;
    }

    /// Reloads, and returns the changes or every fault, as the answer to `POST /reload`. `files` become the files to
    /// watch from now on.
    async fn reload_config(&self, trigger: ReloadTrigger, files: &mut BTreeSet<PathBuf>) -> Result<String, String> {
        let source = self.source.clone();
        let (loaded, read) = spawn_blocking(move || source.load_with_files()).await.unwrap_or_else(|died| {
            (Err(vec![format!("reading the configuration failed: {died}")]), self.watched.clone())
        });
        *files = read;
        let control = &self.in_force.metrics.control;
        let opened = match loaded {
            Ok(next) => match self.in_force.access.open_target(&next.config.access_log).await {
                Ok(lines) => Ok((next, lines)),
                Err(error) => Err(vec![error.to_string()]),
            },
            Err(faults) => Err(faults),
        };
        let answer = match opened {
            Ok((next, lines)) => {
                let warnings = next.warnings.clone();
                let changes = self.in_force.apply_config(next, lines);
                let now = self.in_force.config.load();
                (self.log)(&now.log);
                control.refused_since.set(0);
                // A file that was written with the same content is not reported, unless it was changed back to that.
                let mut since = None;
                let is_repeated = changes.is_empty() && trigger == ReloadTrigger::Files;
                let told = !is_repeated || self.in_force.last_reload.has_unapplied_files();
                if told {
                    let now = unix_seconds(SystemTime::now());
                    let applied = changes.iter().filter(|change| !change.waits_for_restart()).count();
                    control.count_reload(false, now);
                    self.in_force.last_reload.record_outcome(now, trigger, Ok(&changes));
                    since = self.in_force.last_reload.record_change(now, applied);
                    log_warnings(&warnings);
                }
                let warnings: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
                Ok(self.report_changes(trigger, &changes, since) + &warnings)
            }
            Err(faults) => {
                let now = unix_seconds(SystemTime::now());
                control.count_reload(true, now);
                self.in_force.last_reload.record_outcome(now, trigger, Err(&faults));
                for fault in &faults {
                    tracing::error!(%fault, by = trigger.trigger_name(), "configuration rejected, not reloaded");
                }
                let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
                Err(faults + "not reloaded\n" + &self.renew_files(trigger).await)
            }
        };
        files.extend(reloadable_files(&self.in_force.config.load()));
        answer
    }

    /// Renews the files of the configuration in force after the new one was rejected; returns a line for each change.
    async fn renew_files(&self, trigger: ReloadTrigger) -> String {
        let ActiveState { config, resolver, routing, .. } = self.in_force.clone();
        let traces = Arc::clone(&self.in_force.traces);
        let read = move || {
            Renewal::from_files(&config.load(), &resolver.current_store(), &routing.load(), traces.collector_tls())
        };
        let renewal = match spawn_blocking(read).await {
            Ok(renewal) => renewal,
            Err(died) => return format!("reading the certificates failed: {died}\n"),
        };
        let by = trigger.trigger_name();
        for error in &renewal.failures {
            tracing::warn!(%error, by, "not renewed: the previous content stays in force");
        }
        let changes = self.in_force.apply_renewal(renewal);
        for ConfigChange { key, what } in &changes {
            tracing::info!(key, change = what, by, "renewed, under the configuration that was already in force");
        }
        let control = &self.in_force.metrics.control;
        if !changes.is_empty() {
            control.renewals.increment();
        }
        changes.iter().map(|change| format!("{change}\n")).collect()
    }

    /// Logs the changes, and returns a line for each; without changes, `since` has the last one.
    fn report_changes(&self, trigger: ReloadTrigger, changes: &[ConfigChange], since: Option<LastChange>) -> String {
        let by = trigger.trigger_name();
        let can_upgrade = self.can_upgrade;
        for change in changes {
            let ConfigChange { key, what } = change;
            if change.waits_for_restart() && can_upgrade && change.allows_upgrade() {
                tracing::warn!(key, change = what, by, "needs a restart or a hot upgrade: SIGUSR2");
            } else if change.waits_for_restart() {
                tracing::warn!(key, change = what, by, "needs a restart");
            } else {
                tracing::info!(key, change = what, by, "reloaded");
            }
        }
        if !changes.is_empty() {
            let line =
                |change: &ConfigChange| match change.waits_for_restart() && can_upgrade && change.allows_upgrade() {
                    true => format!("{}: {} (needs a restart or a hot upgrade: SIGUSR2)\n", change.key, change.what),
                    false => format!("{change}\n"),
                };
            return changes.iter().map(line).collect();
        }
        match (trigger, &self.source) {
            (ReloadTrigger::Files, _) => tracing::debug!(by, "reloaded: nothing has changed"),
            (_, ConfigOrigin::File(_)) => tracing::info!(by, "reloaded: nothing has changed"),
            (_, ConfigOrigin::Given(_)) => {
                tracing::info!(by, "there is no configuration file to reload; certificates have not changed");
            }
        }
        match (since, &self.source) {
            (Some(since), ConfigOrigin::File(file)) => since.unchanged_answer(file),
            _ => "nothing has changed\n".into(),
        }
    }
}

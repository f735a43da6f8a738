//! Reload: reads everything anew, and applies it as a whole or not at all. Runs on the control thread; workers follow
//! what it stores, and no connection, endpoint or pool is touched by it.
//!
//! A reload is triggered by SIGHUP, by a file that changed, or by `POST /reload`. While a configuration is rejected,
//! certificates and error pages are renewed by the one in force.

use super::active_state::ActiveState;
use super::denial::Denial;
use super::descriptors::SharedDescriptors;
use super::files::{self, Loads, named};
use super::issued::{Issued, Shared as Acme};
use super::last_reload::{Applied, Trigger};
use super::metrics::Metrics;
use super::renewal::Renewal;
use super::running::Running;
use super::switch::Http3;
use super::watch::Watcher;
use super::{collector_tls, origin_tls, service, users};
use arc_swap::ArcSwap;
use jiff::{Timestamp, Unit};
use litequic_admin as admin;
use litequic_config::{Change, Config, Draft, Faults, Log, OnChange, Warning};
use litequic_proxy::{CookieKey, InMaintenance, Maintenance, MaintenanceTarget, Pages, Routing, RoutingFiles};
use litequic_quic::{IdScheme, ServerIdKey};
use litequic_telemetry::{
    CertificateValidity,
    access_log::{AccessLogger, Opened},
    clients::DenyList,
    traces::{CollectorTls, Tracing},
};
use litequic_tls::{Certificate, CertificateResolver, CertificateStore};
use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    select,
    signal::unix::Signal,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
};

/// Requests for a reload that may wait: each is answered by the next one that begins.
const MAX_WAITING: usize = 8;
/// Names of routes that an error answer lists at most.
const MAX_NAMES: usize = 64;

/// The table of connection IDs, as the prefix of its keys.
const SERVER_ID: &str = "listen.server_id.";
const KEY_FILE: &str = "listen.server_id.key_file";

/// Log target of the lines of this module. An operator causes them, and scripts wait for them: their number is
/// not limited.
pub const LOG_TARGET: &str = module_path!();

/// The channel from `POST /reload` to the [`Reloader`].
pub fn requests() -> (mpsc::Sender<admin::ReloadRequest>, mpsc::Receiver<admin::ReloadRequest>) {
    mpsc::channel(MAX_WAITING)
}

impl ActiveState {
    /// Begins with what was read at the start, which is limited to what is `shared`, and with what was in `maintenance`
    /// and `denied` in the previous process.
    pub(super) fn new(
        (config, shared): (&Config, SharedDescriptors),
        files: RoutingFiles,
        (maintenance, http3, denied): (Maintenance, Option<bool>, DenyList),
        (cookie_key, ids): (CookieKey, Arc<IdScheme>),
        (resolver, issued, acme): (Arc<CertificateResolver>, Issued, Acme),
        (access, traces): (Arc<AccessLogger>, Arc<Tracing>),
        metrics: Arc<Metrics>,
    ) -> Self {
        let routing = Routing::after(config, files, None).with_cookie_key(cookie_key);
        let routing = routing.with_capacity(Arc::clone(&shared.capacity));
        let routing = if maintenance.is_empty() { routing } else { routing.switched(config, maintenance) };
        let http3 = Arc::new(Http3::new(config, http3));
        let mut config = config.clone();
        config.listen.http3 = http3.is_on();
        let (config, routing) = (config.live(), Arc::new(ArcSwap::from_pointee(routing)));
        let (rerouted, last_reload) = Default::default();
        let replacing = Arc::new(Mutex::new(issued));
        let denial = Arc::new(Denial::new(denied, Arc::clone(&config), Arc::clone(&metrics)));
        let in_force = Self {
            config,
            routing,
            rerouted,
            resolver,
            access,
            traces,
            metrics,
            last_reload,
            shared,
            ids,
            http3,
            denial,
            acme,
            replacing,
        };
        in_force.observe();
        for one in in_force.in_maintenance() {
            tracing::info!(
                route = one.route(),
                retry_after = one.retry_after,
                routes = one.routes.len(),
                "in maintenance, as in the previous process"
            );
        }
        in_force
    }

    /// Routes that are in maintenance.
    pub(super) fn in_maintenance(&self) -> Vec<InMaintenance> {
        let _stays = self.replacing();
        self.routing.load().in_maintenance(&self.config.load())
    }

    /// Switches maintenance of routes on or off; returns what is in maintenance now.
    ///
    /// # Errors
    ///
    /// Why nothing has changed, in words for the operator.
    pub(super) fn maintain(&self, order: &admin::MaintenanceOrder) -> Result<String, String> {
        let replacing = self.replacing();
        let (config, routing) = (self.config.load_full(), self.routing.load_full());
        let mut maintenance = routing.maintenance().clone();
        let target = order.route.clone().map_or(MaintenanceTarget::All, MaintenanceTarget::Route);
        let names = routing.route_names();
        let switched = match order.on {
            true => maintenance.switch_on(target, order.retry_after, &config.routes, names),
            false => maintenance.switch_off(target),
        };
        switched.map_err(|error| {
            let names: String = names.iter().take(MAX_NAMES).map(|name| format!("  {name}\n")).collect();
            let more = if config.routes.len() > MAX_NAMES { "  …\n" } else { "" };
            format!("{error}; routes are\n{names}{more}")
        })?;
        self.routing.store(Arc::new(routing.switched(&config, maintenance)));
        drop(replacing);
        self.observe_maintenance();

        let now = self.in_maintenance();
        let (route, routes) = (order.route.as_deref().unwrap_or("all"), self.metrics.control.maintenance_routes.get());
        match order.on {
            true => tracing::info!(route, retry_after = order.retry_after, routes, "maintenance switched on"),
            false => tracing::info!(route, routes, "maintenance switched off"),
        }
        let line = |one: &InMaintenance| {
            let routes: String = one.routes.iter().map(|name| format!("  {name}\n")).collect();
            format!("{} answers 503, Retry-After: {}\n{routes}", one.route(), one.retry_after)
        };
        if now.is_empty() { Ok("no route is in maintenance\n".into()) } else { Ok(now.iter().map(line).collect()) }
    }

    /// Switches HTTP/3 on or off, until a reload changes `listen.http3`; returns how it is now.
    ///
    /// # Errors
    ///
    /// Why nothing has changed, in words for the operator.
    pub(super) fn order_http3(&self, on: bool) -> Result<String, String> {
        let replacing = self.replacing();
        let mut config = (*self.config.load_full()).clone();
        if !on && config.listen.tcp.is_empty() {
            return Err("listen.tcp has no address: without HTTP/3 nothing would be served\n".into());
        }
        self.http3.switch(on);
        config.listen.http3 = on;
        self.config.store(Arc::new(config));
        drop(replacing);
        self.metrics.control.version.set(self.config.load().version());
        self.switch_http3();
        let until = if on == self.http3.configured() { "as configured" } else { "until a reload changes listen.http3" };
        Ok(match on {
            true => format!("HTTP/3 is on, {until}\n"),
            false => format!("HTTP/3 is off, {until}: handshakes are refused, and open connections drain\n"),
        })
    }

    /// Applies `next` as far as possible; returns the changes.
    fn replace(&self, next: Loads, lines: Opened) -> Vec<Change> {
        let Loads { config: mut next, certificates, routing: files, collector, server_id_key, .. } = next;
        let replacing = self.replacing();
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        self.http3.reload(&mut next, !now.listen.tcp.is_empty());
        let mut renewed = self.renewed(&next, &certificates, &files, collector.as_ref());
        renewed.extend(self.renewed_key(&now, &next, server_id_key));
        self.count_renewed(&renewed);
        let mut changes = now.changes(&next);
        changes.extend(renewed);
        if changes.is_empty() {
            return changes;
        }
        // A key belongs to the table that names its file, which waits for a restart if its lengths change.
        let server_id_key = server_id_key.filter(|_| now.listen.server_id_follows(&next.listen));
        let next = now.follow(next);
        self.follow_server_id((&now, &next), server_id_key, &mut changes);
        if next.access_log != now.access_log {
            self.access.follow(&next.access_log, lines);
        }
        let has_others = next.traces != now.traces || next.trusted_proxies != now.trusted_proxies;
        if has_others || self.traces.has_other_tls(collector.as_ref()) {
            self.traces.follow(&next, collector);
        }
        self.resolver.replace(replacing.compose(&certificates, &next));
        self.acme.answers.expect(&next.acme);
        self.shared.follow(&next);
        self.routing.store(Arc::new(Routing::after(&next, files, Some(&routing))));
        self.rerouted.notify_one();
        self.config.store(Arc::new(next));
        drop(replacing);
        self.acme.board.change();
        self.observe();
        for one in self.in_maintenance().iter().filter(|one| one.routes.is_empty()) {
            let route = one.route();
            tracing::warn!(
                route,
                "in maintenance, but the configuration no longer has such a route: end it with litequic ctl"
            );
        }
        changes
    }

    /// The change of a key for connection IDs within the same file.
    fn renewed_key(&self, now: &Config, next: &Config, key: Option<ServerIdKey>) -> Option<Change> {
        let file = |config: &Config| config.listen.server_id.as_ref().and_then(|one| one.key_file.clone());
        let path = file(next).filter(|path| file(now).as_ref() == Some(path))?;
        let is_another = now.listen.server_id_follows(&next.listen) && self.ids.has_another_key(key?);
        is_another.then(|| Change { key: KEY_FILE.into(), what: format!("{} renewed", path.display()) })
    }

    /// Has new connection IDs follow `next`; adds to its `changes` when the last ID of before ends.
    fn follow_server_id(&self, (now, next): (&Config, &Config), key: Option<ServerIdKey>, changes: &mut [Change]) {
        let mut of_ids: Vec<_> = changes.iter_mut().filter(|one| one.key.starts_with(SERVER_ID)).collect();
        let (Some(last), Some(was), Some(is)) = (of_ids.last_mut(), &now.listen.server_id, &next.listen.server_id)
        else {
            return;
        };
        match self.ids.follow(is, key) {
            Ok(Some(end)) => {
                let end = Timestamp::try_from(end).unwrap_or_default().round(Unit::Second).unwrap_or_default();
                last.what += &format!("; connection IDs issued before end by {end}");
            }
            Ok(None) => {}
            Err(_) => tracing::error!("no memory for the key of connection IDs: they stay as they were"),
        }
        let is_other = was.bytes() != is.bytes() || of_ids.iter().any(|change| change.key == KEY_FILE);
        if is_other && was.rotation == is.rotation {
            tracing::warn!(
                rotation = is.rotation,
                "balancers cannot tell former connection IDs from new ones: change listen.server_id.rotation too"
            );
        }
    }

    /// Applies what was read anew, with the configuration as it is; returns what changed.
    fn renew(&self, renewal: Renewal) -> Vec<Change> {
        let Renewal { certificates, routing: files, collector, .. } = renewal;
        let replacing = self.replacing();
        let (config, routing) = (self.config.load_full(), self.routing.load_full());
        let changes = self.renewed(&config, &certificates, &files, collector.as_ref());
        self.count_renewed(&changes);
        if !changes.is_empty() {
            self.resolver.replace(replacing.compose(&certificates, &config));
            if self.traces.has_other_tls(collector.as_ref()) {
                self.traces.follow(&config, collector);
            }
            self.routing.store(Arc::new(Routing::after(&config, files, Some(&routing))));
            self.rerouted.notify_one();
            self.observe_certificates();
        }
        changes
    }

    /// The changes of content within the same files.
    fn renewed(
        &self,
        next: &Config,
        certificates: &CertificateStore,
        files: &RoutingFiles,
        collector: Option<&CollectorTls>,
    ) -> Vec<Change> {
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        let mut changes = renewed(&now, &self.resolver.store(), next, certificates);
        let key = |path: &PathBuf| if Pages::is_body(next, path) { "respond.body_file" } else { "error_pages" };
        let page = |path: &PathBuf| Change { key: key(path).into(), what: format!("{} renewed", path.display()) };
        changes.extend(files.pages.renewed(routing.pages()).map(page));
        changes.extend(users::renewed(routing.users(), &files.users));
        changes.extend(origin_tls::renewed(&now, routing.origin_tls(), next, &files.tls));
        if now.traces == next.traces && self.traces.has_other_tls(collector) {
            changes.push(Change { key: collector_tls::KEY.into(), what: "certificates renewed".into() });
        }
        changes
    }

    fn count_renewed(&self, changes: &[Change]) {
        if !changes.is_empty() {
            self.metrics.control.renewed_at.set(seconds(SystemTime::now()));
        }
    }

    fn observe(&self) {
        let control = &self.metrics.control;
        control.version.set(self.config.load().version());
        control.configured_at.set(seconds(SystemTime::now()));
        self.observe_certificates();
        self.observe_maintenance();
        self.switch_http3();
    }

    /// Has open connections over HTTP/3 follow the configuration.
    fn switch_http3(&self) {
        let on = self.config.load().listen.http3;
        match (self.http3.follow(on), on) {
            (true, true) => tracing::info!("HTTP/3 is on again"),
            (true, false) => tracing::warn!("HTTP/3 is off: handshakes are refused, and open connections drain"),
            (false, _) => {}
        }
    }

    fn observe_maintenance(&self) {
        let reached: BTreeSet<String> = self.in_maintenance().into_iter().flat_map(|one| one.routes).collect();
        self.metrics.control.maintenance_routes.set(reached.len() as u64);
    }

    pub(super) fn observe_certificates(&self) {
        let control = &self.metrics.control;
        let store = self.resolver.store();
        let files = store.certificates().len();
        let validity = |(n, one): (usize, &Certificate)| {
            // Those of ACME have no place in the file.
            let names = one.names().dns.first().cloned();
            let issued = || names.or_else(|| one.names().ip.first().map(ToString::to_string)).unwrap_or_default();
            let name = if n < files { format!("certificates[{n}]") } else { issued() };
            CertificateValidity { name, from: seconds(one.not_before()), until: seconds(one.not_after()) }
        };
        let validities: Vec<_> = store.all().iter().enumerate().map(validity).collect();
        control.certificates_expire_at.set(validities.iter().map(|one| one.until).min().unwrap_or_default());
        control.certificates.set(validities);
    }
}

/// Logs each of `warnings`.
pub fn log_warnings(warnings: &[Warning]) {
    for Warning(warning) in warnings {
        tracing::warn!("{warning}");
    }
}

/// Whole seconds since the Unix epoch.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Certificates and authorities in the same files as before, whose content is another.
fn renewed(now: &Config, old: &CertificateStore, next: &Config, new: &CertificateStore) -> Vec<Change> {
    let files = now.certificates.iter().zip(&next.certificates).enumerate();
    let stores = old.certificates().iter().zip(new.certificates());
    let served = files.zip(stores).filter(|((_, (now, next)), (old, new))| now == next && !old.is_same_chain(new)).map(
        |((n, (_, files)), (_, new))| Change {
            key: format!("certificates[{n}]"),
            what: format!("{} renewed, expires {}", files.cert.display(), httpdate::fmt_http_date(new.not_after())),
        },
    );
    let same_files = (&now.client_certificates.ca, &now.client_certificates.crl)
        == (&next.client_certificates.ca, &next.client_certificates.crl);
    let believed = old.authorities().zip(new.authorities()).filter(|(old, new)| same_files && !old.is_same(new));
    let authorities = believed.map(|(_, new)| Change {
        key: "client_certificates.ca".into(),
        what: format!("renewed, certificates: {}", new.count()),
    });
    served.chain(authorities).collect()
}

/// Where a reload reads from.
#[derive(Debug, Clone)]
pub enum ConfigOrigin {
    /// A file, with the certificates that it names.
    File(PathBuf),
    /// The command line: the certificates alone can change.
    Given(Box<Config>),
}

/// A configuration with the content of its files, or why it is rejected.
struct Loaded {
    outcome: Result<Loads, Vec<String>>,
    /// Every file that was or should have been read.
    files: BTreeSet<PathBuf>,
}

impl ConfigOrigin {
    /// Reads and checks everything. Blocks on the file system.
    fn load(&self) -> Loaded {
        let (draft, mut files) = match self {
            Self::File(file) => (Draft::load(file), BTreeSet::from([file.clone()])),
            Self::Given(config) => (Draft::given((**config).clone()), BTreeSet::new()),
        };
        files.extend(draft.config.iter().flat_map(named));
        let lines = |Faults(faults)| faults.iter().map(ToString::to_string).collect();
        Loaded { outcome: files::load(draft).map_err(lines), files }
    }
}

/// Reloads when triggered.
pub struct Reloader {
    source: ConfigOrigin,
    in_force: ActiveState,
    /// True once the other process alone notifies the service manager.
    handed_over: watch::Receiver<bool>,
    /// Follows `[log]`.
    log: Box<dyn Fn(&Log)>,
    watcher: Option<Watcher>,
    /// What `watcher` watches.
    watched: BTreeSet<PathBuf>,
    /// Whether it was logged that files cannot be watched.
    warned: bool,
}

impl Reloader {
    /// Reloads what is in force in `running` from `source`, and has `log` follow `[log]`.
    pub fn new(source: ConfigOrigin, running: &Running, log: impl Fn(&Log) + 'static) -> Self {
        let (in_force, handed_over) = (running.in_force.clone(), running.handover.whether_handed_over());
        let log = Box::new(log);
        Self { source, in_force, handed_over, log, watcher: None, watched: BTreeSet::new(), warned: false }
    }

    /// Reloads on `hangup`, on `requests`, and when a file changes that was read. On a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch; a reload in progress is then applied or not, never in part.
    pub async fn run(mut self, mut hangup: Signal, mut requests: mpsc::Receiver<admin::ReloadRequest>) -> Infallible {
        let mut files = named(&self.in_force.config.load()).collect::<BTreeSet<_>>();
        if let ConfigOrigin::File(file) = &self.source {
            files.insert(file.clone());
        }
        // Files may have changed between the start and the first watch.
        let mut trigger = Trigger::Files;
        let mut waiting: Option<oneshot::Sender<_>> = None;
        loop {
            // Watched first, read then: no change falls between.
            let followed = self.followed(files.clone());
            self.watch(followed);
            let outcome = match (trigger, self.on_change()) {
                (Trigger::Files, OnChange::None) => Reloaded { answer: Ok(String::new()), files },
                (Trigger::Files, OnChange::Certificates) => Reloaded { answer: Ok(self.renew(trigger).await), files },
                _ => {
                    self.tell_manager(service::reloading);
                    let outcome = self.reload(trigger).await;
                    self.tell_manager(service::ready);
                    outcome
                }
            };
            if let Some(waiting) = waiting.take() {
                // The client may have gone.
                let _ = waiting.send(outcome.answer);
            }
            files = outcome.files;
            if !self.followed(files.clone()).is_subset(&self.watched) {
                trigger = Trigger::Files;
                continue;
            }
            trigger = select! {
                _ = hangup.recv() => Trigger::Signal,
                Some(request) = requests.recv() => {
                    waiting = Some(request);
                    Trigger::Admin
                }
                () = changed(self.watcher.as_mut()) => Trigger::Files,
            };
        }
    }

    fn on_change(&self) -> OnChange {
        self.in_force.config.load().reload.on_change
    }

    /// Selects those of `files`, which a reload reads, whose changes cause a reload.
    fn followed(&self, files: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        match self.on_change() {
            OnChange::All => files,
            OnChange::Certificates => named(&self.in_force.config.load()).collect(),
            OnChange::None => BTreeSet::new(),
        }
    }

    /// Unless another process does so by now.
    fn tell_manager(&self, tell: fn()) {
        if !*self.handed_over.borrow() {
            tell();
        }
    }

    /// Watches `files`, in place of what was watched before.
    fn watch(&mut self, files: BTreeSet<PathBuf>) {
        let mut warned = self.warned;
        let mut warn = |what: String, error: std::io::Error| {
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!(%error, "cannot watch {what}: a changed file is read on SIGHUP only");
            }
        };
        self.watcher = match Watcher::new(&files, |path, error| warn(path.display().to_string(), error)) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                warn("files".into(), error);
                None
            }
        };
        self.watched = files;
        self.warned = warned;
    }

    async fn reload(&self, trigger: Trigger) -> Reloaded {
        let source = self.source.clone();
        let loaded = match spawn_blocking(move || source.load()).await {
            Ok(loaded) => loaded,
            Err(died) => {
                let outcome = Err(vec![format!("reading the configuration failed: {died}")]);
                Loaded { outcome, files: self.watched.clone() }
            }
        };
        let mut files = loaded.files;
        let control = &self.in_force.metrics.control;
        let opened = match loaded.outcome {
            Ok(next) => match self.in_force.access.open(&next.config.access_log).await {
                Ok(lines) => Ok((next, lines)),
                Err(error) => Err(vec![error.to_string()]),
            },
            Err(faults) => Err(faults),
        };
        let answer = match opened {
            Ok((next, lines)) => {
                let warnings = next.warnings.clone();
                let changes = self.in_force.replace(next, lines);
                let now = self.in_force.config.load();
                (self.log)(&now.log);
                control.refused_since.set(0);
                // A file that was written with the same content is not reported.
                let mut since = None;
                let told = !(changes.is_empty() && trigger == Trigger::Files);
                if told {
                    let now = seconds(SystemTime::now());
                    control.count_reload(false, now);
                    self.in_force.last_reload.set(now, trigger, Ok(&changes));
                    since = self.in_force.last_reload.applied(now, changes.len());
                    log_warnings(&warnings);
                }
                let warnings: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
                Ok(self.tell(trigger, &changes, since) + &warnings)
            }
            Err(faults) => {
                let now = seconds(SystemTime::now());
                control.count_reload(true, now);
                self.in_force.last_reload.set(now, trigger, Err(&faults));
                for fault in &faults {
                    tracing::error!(%fault, by = trigger.name(), "configuration rejected, not reloaded");
                }
                let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
                Err(faults + "not reloaded\n" + &self.renew(trigger).await)
            }
        };
        files.extend(named(&self.in_force.config.load()));
        Reloaded { answer, files }
    }

    /// Renews what the configuration in force names, the new one being rejected; returns what, a line for each change.
    async fn renew(&self, trigger: Trigger) -> String {
        let ActiveState { config, resolver, routing, .. } = self.in_force.clone();
        let traces = Arc::clone(&self.in_force.traces);
        let read = move || Renewal::read(&config.load(), &resolver.store(), &routing.load(), traces.tls());
        let renewal = match spawn_blocking(read).await {
            Ok(renewal) => renewal,
            Err(died) => return format!("reading the certificates failed: {died}\n"),
        };
        let by = trigger.name();
        for error in &renewal.kept {
            tracing::warn!(%error, by, "not renewed: the previous content stays in force");
        }
        let changes = self.in_force.renew(renewal);
        for Change { key, what } in &changes {
            tracing::info!(key, change = what, by, "renewed, under the configuration that was already in force");
        }
        let control = &self.in_force.metrics.control;
        if !changes.is_empty() {
            control.renewals.increment();
        }
        changes.iter().map(|change| format!("{change}\n")).collect()
    }

    /// Logs what changed, and returns it, a line for each change; if nothing did, `since` has the last change.
    fn tell(&self, trigger: Trigger, changes: &[Change], since: Option<Applied>) -> String {
        let by = trigger.name();
        let can_upgrade = self.in_force.config.load().admin.handover.is_some();
        for change in changes {
            let Change { key, what } = change;
            if change.needs_restart() && can_upgrade && change.allows_upgrade() {
                tracing::warn!(key, change = what, by, "needs a restart or a hot upgrade: SIGUSR2");
            } else if change.needs_restart() {
                tracing::warn!(key, change = what, by, "needs a restart");
            } else {
                tracing::info!(key, change = what, by, "reloaded");
            }
        }
        if !changes.is_empty() {
            let line = |change: &Change| match change.needs_restart() && can_upgrade && change.allows_upgrade() {
                true => format!("{}: {} (needs a restart or a hot upgrade: SIGUSR2)\n", change.key, change.what),
                false => format!("{change}\n"),
            };
            return changes.iter().map(line).collect();
        }
        match (trigger, &self.source) {
            (Trigger::Files, _) => tracing::debug!(by, "reloaded: nothing has changed"),
            (_, ConfigOrigin::File(_)) => tracing::info!(by, "reloaded: nothing has changed"),
            (_, ConfigOrigin::Given(_)) => {
                tracing::info!(by, "there is no configuration file to reload; certificates have not changed");
            }
        }
        match (since, &self.source) {
            (Some(since), ConfigOrigin::File(file)) => since.answer(file),
            _ => "nothing has changed\n".into(),
        }
    }
}

/// The outcome of a reload.
struct Reloaded {
    /// The answer to `POST /reload`: what changed, or every fault.
    answer: Result<String, String>,
    /// Files to watch from now on.
    files: BTreeSet<PathBuf>,
}

async fn changed(watcher: Option<&mut Watcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

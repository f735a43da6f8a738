//! Reload: reads everything anew, and takes it on as a whole or not at all. Runs on the control thread; workers follow
//! what it stores, and no connection, endpoint or pool is touched by it.
//!
//! Three things ask for one: SIGHUP, a file that changed, `POST /reload`. While one is refused, certificates and error pages
//! are renewed by the configuration in force.

use super::{
    Loads, Metrics, Running,
    files::{self, named},
    renewal::Renewal,
    service,
    watch::Watcher,
};
use crate::{
    access_log::{AccessLog, Opened},
    admin,
    config::{self, Change, Config, Draft, Faults, Log, Warning},
    proxy::{Pages, Routing},
    telemetry::Validity,
    tls::{Certificate, CertificateResolver, CertificateStore},
};
use arc_swap::ArcSwap;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    select,
    signal::unix::Signal,
    sync::{Notify, mpsc, oneshot, watch},
    task::spawn_blocking,
};

/// Requests for a reload that may wait: each is answered by the next one that begins.
const MAX_WAITING: usize = 8;

/// The way from `POST /reload` to the [`Reloader`].
pub fn requests() -> (mpsc::Sender<admin::ReloadRequest>, mpsc::Receiver<admin::ReloadRequest>) {
    mpsc::channel(MAX_WAITING)
}

/// What is in force, as workers see it.
#[derive(Debug, Clone)]
pub struct InForce {
    pub(super) config: config::Live,
    pub(super) routing: Arc<ArcSwap<Routing>>,
    /// Told of each change of `routing`.
    pub(super) rerouted: Arc<Notify>,
    pub(super) resolver: Arc<CertificateResolver>,
    pub(super) access: Arc<AccessLog>,
    pub(super) metrics: Arc<Metrics>,
}

impl InForce {
    /// Begins with what was read at the start.
    pub(super) fn new(
        config: &Config,
        pages: Pages,
        resolver: Arc<CertificateResolver>,
        access: Arc<AccessLog>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let routing = Arc::new(ArcSwap::from_pointee(Routing::after(config, pages, None)));
        let rerouted = Arc::default();
        let in_force = Self { config: config.clone().live(), routing, rerouted, resolver, access, metrics };
        in_force.observe();
        in_force
    }

    /// Takes on `next` as far as can be; says what it changes.
    fn replace(&self, next: Loads, lines: Opened) -> Vec<Change> {
        let Loads { config: next, certificates, pages, .. } = next;
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        let renewed = self.renewed(&next, &certificates, &pages);
        self.count_renewed(&renewed);
        let mut changes = now.changes(&next);
        changes.extend(renewed);
        if changes.is_empty() {
            return changes;
        }
        let next = now.follow(next);
        if next.access_log != now.access_log {
            self.access.follow(&next.access_log, lines);
        }
        self.resolver.replace(certificates);
        self.routing.store(Arc::new(Routing::after(&next, pages, Some(&routing))));
        self.rerouted.notify_one();
        self.config.store(Arc::new(next));
        self.observe();
        changes
    }

    /// Takes on what was read anew, with the configuration as it is; says what is another now.
    fn renew(&self, renewal: Renewal) -> Vec<Change> {
        let Renewal { certificates, pages, .. } = renewal;
        let (config, routing) = (self.config.load_full(), self.routing.load_full());
        let changes = self.renewed(&config, &certificates, &pages);
        self.count_renewed(&changes);
        if !changes.is_empty() {
            self.resolver.replace(certificates);
            self.routing.store(Arc::new(Routing::after(&config, pages, Some(&routing))));
            self.rerouted.notify_one();
            self.observe_certificates();
        }
        changes
    }

    /// What has another content now in the same files.
    fn renewed(&self, next: &Config, certificates: &CertificateStore, pages: &Pages) -> Vec<Change> {
        let (now, routing) = (self.config.load_full(), self.routing.load_full());
        let mut changes = renewed(&now, &self.resolver.store(), next, certificates);
        let page = |path: &PathBuf| Change { key: "error_pages".into(), what: format!("{} renewed", path.display()) };
        changes.extend(pages.renewed(routing.pages()).map(page));
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
    }

    fn observe_certificates(&self) {
        let control = &self.metrics.control;
        let store = self.resolver.store();
        let validity =
            |one: &Certificate| Validity { from: seconds(one.not_before()), until: seconds(one.not_after()) };
        let validities: Vec<_> = store.certificates().iter().map(validity).collect();
        control.certificates_expire_at.set(validities.iter().map(|one| one.until).min().unwrap_or_default());
        control.certificates.set(validities);
    }
}

/// Says each of `warnings` in the log.
pub fn log_warnings(warnings: &[Warning]) {
    for Warning(warning) in warnings {
        tracing::warn!("{warning}");
    }
}

/// Since the Unix epoch.
fn seconds(time: SystemTime) -> u64 {
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
pub enum Source {
    /// A file, with the certificates that it names.
    File(PathBuf),
    /// The command line: the certificates alone can change.
    Given(Box<Config>),
}

/// A configuration with the content of its files, or why it cannot be taken on.
struct Loaded {
    outcome: Result<Loads, Vec<String>>,
    /// Every file that was or should have been read.
    files: BTreeSet<PathBuf>,
}

impl Source {
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

/// Who asks for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Signal,
    Files,
    Admin,
}

impl Trigger {
    const fn name(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Files => "files",
            Self::Admin => "POST /reload",
        }
    }
}

/// Reloads when it is asked to.
pub struct Reloader {
    source: Source,
    in_force: InForce,
    /// Then the service manager hears of the other process alone.
    handed_over: watch::Receiver<bool>,
    /// Follows `[log]`.
    log: Box<dyn Fn(&Log)>,
    watcher: Option<Watcher>,
    /// What `watcher` watches.
    watched: BTreeSet<PathBuf>,
    /// That files cannot be watched was said.
    warned: bool,
}

impl Reloader {
    /// Reloads what is in force in `running` from `source`, and has `log` follow `[log]`.
    pub fn new(source: Source, running: &Running, log: impl Fn(&Log) + 'static) -> Self {
        let (in_force, handed_over) = (running.in_force.clone(), running.kept.whether_handed_over());
        let log = Box::new(log);
        Self { source, in_force, handed_over, log, watcher: None, watched: BTreeSet::new(), warned: false }
    }

    /// Reloads on `hangup`, on `requests`, and when a file changes that was read. On a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch; a reload under way is then taken on or not, never in part.
    pub async fn run(mut self, mut hangup: Signal, mut requests: mpsc::Receiver<admin::ReloadRequest>) -> Infallible {
        let mut files = named(&self.in_force.config.load()).collect::<BTreeSet<_>>();
        if let Source::File(file) = &self.source {
            files.insert(file.clone());
        }
        // Files may have changed between the start and the first watch.
        let mut trigger = Trigger::Files;
        let mut waiting: Option<oneshot::Sender<_>> = None;
        loop {
            // Watched first, read then: no change falls between.
            self.watch(files);
            self.tell_manager(service::reloading);
            let outcome = self.reload(trigger).await;
            self.tell_manager(service::ready);
            if let Some(waiting) = waiting.take() {
                // Whoever asked may have gone.
                let _ = waiting.send(outcome.answer);
            }
            files = outcome.files;
            if !files.is_subset(&self.watched) {
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

    /// Unless it hears of another process by now.
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
                tracing::warn!(%error, "{what} cannot be watched: a changed file is read on SIGHUP alone");
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
                // A file that was written and says the same is no news.
                let told = !(changes.is_empty() && trigger == Trigger::Files);
                if told {
                    control.count_reload(false, seconds(SystemTime::now()));
                    log_warnings(&warnings);
                }
                let warnings: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
                Ok(self.tell(trigger, &changes) + &warnings)
            }
            Err(faults) => {
                control.count_reload(true, seconds(SystemTime::now()));
                for fault in &faults {
                    tracing::error!(%fault, by = trigger.name(), "not reloaded");
                }
                let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
                Err(faults + "not reloaded\n" + &self.renew(trigger).await)
            }
        };
        files.extend(named(&self.in_force.config.load()));
        Reloaded { answer, files }
    }

    /// Renews what the configuration in force names, the new one being refused; says what, a line a change.
    async fn renew(&self, trigger: Trigger) -> String {
        let in_force = self.in_force.clone();
        let renewal = match spawn_blocking(move || Renewal::read(&in_force)).await {
            Ok(renewal) => renewal,
            Err(died) => return format!("reading the certificates failed: {died}\n"),
        };
        let by = trigger.name();
        for error in &renewal.kept {
            tracing::warn!(%error, by, "not renewed: what was read before stays in force");
        }
        let changes = self.in_force.renew(renewal);
        for Change { key, what } in &changes {
            tracing::info!(key, change = what, by, "renewed, with the configuration that was in force before");
        }
        let control = &self.in_force.metrics.control;
        if !changes.is_empty() {
            control.renewals.increment();
        }
        changes.iter().map(|change| format!("{change}\n")).collect()
    }

    /// Says in the log what changed, and returns it, a line a change.
    fn tell(&self, trigger: Trigger, changes: &[Change]) -> String {
        let by = trigger.name();
        for change in changes {
            let Change { key, what } = change;
            if change.needs_restart() {
                tracing::warn!(key, change = what, by, "needs a restart");
            } else {
                tracing::info!(key, change = what, by, "reloaded");
            }
        }
        if !changes.is_empty() {
            return changes.iter().map(|change| format!("{change}\n")).collect();
        }
        match (trigger, &self.source) {
            (Trigger::Files, _) => tracing::debug!(by, "reloaded: nothing has changed"),
            (_, Source::File(_)) => tracing::info!(by, "reloaded: nothing has changed"),
            (_, Source::Given(_)) => {
                tracing::info!(by, "there is no configuration file to reload; certificates have not changed");
            }
        }
        "nothing has changed\n".into()
    }
}

/// How a reload went.
struct Reloaded {
    /// For whoever asked: what changed, or every fault.
    answer: Result<String, String>,
    /// Those to watch from now on.
    files: BTreeSet<PathBuf>,
}

async fn changed(watcher: Option<&mut Watcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

//! Reload: reads everything anew, and takes it on as a whole or not at all. Runs on the control thread; workers follow
//! what it stores, and no connection, endpoint or pool is touched by it.
//!
//! Three things ask for one: SIGHUP, a file that changed, `POST /reload`.

use super::{StartError, certificates, watch::Watcher};
use crate::{
    admin,
    config::{self, Change, Config, Log},
    proxy::Routing,
    telemetry::Metrics,
    tls::{CertificateResolver, CertificateStore},
};
use arc_swap::ArcSwap;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    select,
    signal::unix::Signal,
    sync::{mpsc, oneshot},
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
    pub(super) resolver: Arc<CertificateResolver>,
    pub(super) metrics: Arc<Metrics>,
}

impl InForce {
    /// Begins with what was read at the start.
    pub(super) fn new(config: &Config, resolver: Arc<CertificateResolver>, metrics: Arc<Metrics>) -> Self {
        let routing = Arc::new(ArcSwap::from_pointee(Routing::new(config)));
        let in_force = Self { config: config.clone().live(), routing, resolver, metrics };
        in_force.observe();
        in_force
    }

    /// Takes on `next` as far as can be; says what it changes.
    fn replace(&self, next: Config, certificates: CertificateStore) -> Vec<Change> {
        let now = self.config.load_full();
        let mut changes = now.changes(&next);
        changes.extend(renewed(&now, &self.resolver.store(), &next, &certificates));
        if changes.is_empty() {
            return changes;
        }
        let next = now.follow(next);
        self.resolver.replace(certificates);
        self.routing.store(Arc::new(Routing::new(&next)));
        self.config.store(Arc::new(next));
        self.observe();
        changes
    }

    fn observe(&self) {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let control = self.metrics.control();
        control.configured_at.set(seconds(SystemTime::now()));
        let store = self.resolver.store();
        let expiries: Vec<u64> = store.certificates().iter().map(|one| seconds(one.not_after())).collect();
        control.certificates_expire_at.set(expiries.iter().copied().min().unwrap_or_default());
        *control.certificates.lock().unwrap_or_else(PoisonError::into_inner) = expiries;
    }
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

/// A configuration with its certificates, or why it cannot be taken on.
struct Loaded {
    outcome: Result<(Config, CertificateStore), Vec<String>>,
    /// Every file that was or should have been read.
    files: BTreeSet<PathBuf>,
}

impl Source {
    /// Reads and checks everything. Blocks on the file system.
    fn load(&self) -> Loaded {
        let (config, mut files) = match self {
            Self::File(file) => (config::load(file), BTreeSet::from([file.clone()])),
            Self::Given(config) => (Ok((**config).clone()), BTreeSet::new()),
        };
        let config = match config {
            Ok(config) => config,
            Err(faults) => {
                let faults = faults.0.iter().map(ToString::to_string).collect();
                return Loaded { outcome: Err(faults), files };
            }
        };
        files.extend(certificate_files(&config));
        let outcome = match certificates(&config) {
            Ok(certificates) => Ok((config, certificates)),
            Err(StartError::Certificates(errors)) => Err(errors.iter().map(ToString::to_string).collect()),
            Err(other) => Err(vec![other.to_string()]),
        };
        Loaded { outcome, files }
    }
}

fn certificate_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let served = config.certificates.iter().flat_map(|files| [&files.cert, &files.key]);
    let clients = [&config.client_certificates.ca, &config.client_certificates.crl];
    served.chain(clients.into_iter().flatten()).cloned()
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
    /// Follows `[log]`.
    log: Box<dyn Fn(&Log)>,
    watcher: Option<Watcher>,
    /// What `watcher` watches.
    watched: BTreeSet<PathBuf>,
    /// That files cannot be watched was said.
    warned: bool,
}

impl Reloader {
    /// Reloads `in_force` from `source`, and has `log` follow `[log]`.
    pub fn new(source: Source, in_force: InForce, log: impl Fn(&Log) + 'static) -> Self {
        let log = Box::new(log);
        Self { source, in_force, log, watcher: None, watched: BTreeSet::new(), warned: false }
    }

    /// Reloads on `hangup`, on `requests`, and when a file changes that was read. On a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch; a reload under way is then taken on or not, never in part.
    pub async fn run(mut self, mut hangup: Signal, mut requests: mpsc::Receiver<admin::ReloadRequest>) -> Infallible {
        let mut files = certificate_files(&self.in_force.config.load()).collect::<BTreeSet<_>>();
        if let Source::File(file) = &self.source {
            files.insert(file.clone());
        }
        // Files may have changed between the start and the first watch.
        let mut trigger = Trigger::Files;
        let mut waiting: Option<oneshot::Sender<_>> = None;
        loop {
            // Watched first, read then: no change falls between.
            self.watch(files);
            let outcome = self.reload(trigger).await;
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
        let control = self.in_force.metrics.control();
        let answer = match loaded.outcome {
            Ok((config, certificates)) => {
                let changes = self.in_force.replace(config, certificates);
                let now = self.in_force.config.load();
                (self.log)(&now.log);
                if !(changes.is_empty() && trigger == Trigger::Files) {
                    control.reloads.increment();
                }
                Ok(self.tell(trigger, &changes))
            }
            Err(faults) => {
                control.reloads_refused.increment();
                for fault in &faults {
                    tracing::error!(%fault, by = trigger.name(), "not reloaded");
                }
                Err(faults.iter().map(|fault| format!("{fault}\n")).collect::<String>() + "not reloaded\n")
            }
        };
        files.extend(certificate_files(&self.in_force.config.load()));
        Reloaded { answer, files }
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

//! The process's access log, and a worker's part of it.

use super::line::{self, Style};
use super::metrics::{Metrics, WriterMetrics};
use super::writer::{Leaving, Lines, LogTarget, Sink, Writing};
use arc_swap::{ArcSwapOption, Cache};
use futures_util::future::join_all;
use litequic_config::{self as config, AccessField, AccessFormat, AccessTarget, Fraction};
use litequic_exchange::{Facts, Listener, Records};
use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

/// Lines cannot be written: the operator's fault.
#[derive(Debug, thiserror::Error)]
#[error("cannot write access_log.path = \"{path}\": {source}")]
pub struct OpenError {
    /// The path.
    path: AccessTarget,
    /// The system's reason.
    source: io::Error,
}

/// The process' access log. What is in force is read without a lock, written by the control thread.
#[derive(Debug)]
pub struct AccessLogger {
    now: InForce,
    writers: Mutex<Writers>,
    metrics: Arc<WriterMetrics>,
}

/// How lines are formatted and where they go, if there are any.
type InForce = Arc<ArcSwapOption<Setting>>;

#[derive(Debug)]
struct Setting {
    fields: Vec<AccessField>,
    sample: Fraction,
    style: Style,
    sink: Sink,
}

/// The writers.
#[derive(Debug, Default)]
struct Writers {
    now: Option<(AccessTarget, Writing)>,
    /// Writers of earlier configurations, until workers have sent them all they had.
    leaving: Vec<Leaving>,
}

/// Where lines will go. Without a writer, where they go now, or nowhere.
#[derive(Debug)]
pub struct Opened(Option<Writing>);

impl AccessLogger {
    /// Starts the access log that `config` describes.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub async fn start(config: &config::AccessLog, metrics: Arc<WriterMetrics>) -> Result<Arc<Self>, OpenError> {
        let log = Self { now: Arc::default(), writers: Mutex::default(), metrics };
        let opened = log.open(config).await?;
        log.follow(config, opened);
        Ok(Arc::new(log))
    }

    /// Opens the target of `config`, unless lines go there already. To be followed by [`AccessLogger::follow`], or
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub async fn open(&self, config: &config::AccessLog) -> Result<Opened, OpenError> {
        let Some(path) = &config.path else { return Ok(Opened(None)) };
        if self.writers().now.as_ref().is_some_and(|(now, _)| now == path) {
            return Ok(Opened(None));
        }
        let target = match path {
            AccessTarget::Stderr => LogTarget::Stderr,
            AccessTarget::Stdout => LogTarget::Stdout,
            AccessTarget::File(path) => LogTarget::File(path.clone()),
        };
        match Writing::start(target, Arc::clone(&self.metrics)).await {
            Ok(log) => Ok(Opened(Some(log))),
            Err(source) => Err(OpenError { path: path.clone(), source }),
        }
    }

    /// Has workers follow `config`, whose target was `opened`. They do from their next request on, or within half a
    /// second; what they have formatted by then goes to the former target.
    pub fn follow(&self, config: &config::AccessLog, Opened(opened): Opened) {
        let mut writers = self.writers();
        writers.leaving.retain_mut(|leaving| !leaving.has_ended());
        let next = match (opened, &config.path) {
            (Some(log), Some(path)) => Some((path.clone(), log)),
            (_, None) => None,
            (None, Some(_)) => writers.now.take(),
        };
        if let Some((_, log)) = std::mem::replace(&mut writers.now, next) {
            writers.leaving.push(log.leave());
        }
        let setting = writers.now.as_ref().map(|(_, log)| Setting {
            fields: config.fields.clone(),
            sample: config.sample,
            style: match config.format {
                AccessFormat::Json => Style::Json,
                AccessFormat::Logfmt => Style::Logfmt,
            },
            sink: log.sink().clone(),
        });
        self.now.store(setting.map(Arc::new));
    }

    /// Reopens the file by its name: after a rotation.
    pub fn reopen(&self) {
        if let Some(setting) = &*self.now.load() {
            setting.sink.reopen();
        }
    }

    /// Waits until all lines are written that ended workers sent; two seconds at most.
    pub async fn finish(&self) {
        let Writers { now, leaving } = std::mem::take(&mut *self.writers());
        let now = async {
            if let Some((_, log)) = now {
                log.finish().await;
            }
        };
        tokio::join!(now, join_all(leaving.into_iter().map(Leaving::finish)));
    }

    /// One worker's part of it, which counts in `metrics`.
    pub fn of_worker(&self, metrics: Arc<Metrics>) -> OfWorker {
        OfWorker { now: Arc::clone(&self.now), metrics }
    }

    fn writers(&self) -> std::sync::MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part before its thread began.
pub struct OfWorker {
    now: InForce,
    metrics: Arc<Metrics>,
}

impl OfWorker {
    /// On the worker's thread.
    pub fn records(self) -> (Records, Flusher) {
        let pen = Pen { now: Cache::new(self.now), metrics: self.metrics, lines: None };
        let pen = Rc::new(RefCell::new(pen));
        (Records::for_listener(Recorder(Rc::clone(&pen))), Flusher(pen))
    }
}

/// Formats one worker's lines.
struct Pen {
    now: Cache<InForce, Option<Arc<Setting>>>,
    metrics: Arc<Metrics>,
    /// By the setting beside them.
    lines: Option<(Arc<Setting>, Lines)>,
}

impl Pen {
    /// By the setting in force. Lines of the former one are sent first.
    fn follow(&mut self) -> Option<&mut (Arc<Setting>, Lines)> {
        let now = self.now.load();
        let follows = match (now, &self.lines) {
            (Some(now), Some((before, _))) => Arc::ptr_eq(now, before),
            (now, lines) => now.is_none() && lines.is_none(),
        };
        if !follows {
            let lines = |setting: &Arc<Setting>| setting.sink.lines(setting.style, Arc::clone(&self.metrics));
            self.lines = now.as_ref().map(|setting| (Arc::clone(setting), lines(setting)));
        }
        self.lines.as_mut()
    }
}

/// Notified of requests.
struct Recorder(Rc<RefCell<Pen>>);

/// Sends lines that would otherwise wait for more.
pub struct Flusher(Rc<RefCell<Pen>>);

impl Flusher {
    /// To be called periodically.
    pub fn flush(&self) {
        if let Some((_, lines)) = self.0.borrow_mut().follow() {
            lines.flush();
        }
    }
}

impl Listener for Recorder {
    fn wants(&self) -> bool {
        let mut pen = self.0.borrow_mut();
        let sample = pen.follow().map(|(setting, _)| setting.sample);
        sample.is_some_and(|sample| sample == Fraction::ALL || rand::random_range(0..Fraction::ALL.0) < sample.0)
    }

    fn ended(&self, facts: &Facts) {
        if let Some((setting, lines)) = self.0.borrow_mut().follow() {
            lines.add(|line| setting.fields.iter().for_each(|field| line::write(line, *field, facts)));
        }
    }
}

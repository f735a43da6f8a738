//! The process's access log, and a worker's part of it.

use super::{
    line::{self, LineStyle},
    metrics::{AccessLogMetrics, WriterMetrics},
    writer::{AccessLogWriter, LeavingWriter, LineBuffer, LineSink, LogTarget},
};
use arc_swap::{ArcSwapOption, Cache};
use futures_util::future::join_all;
use litequic_config::{self as config, AccessField, AccessFormat, AccessTarget, Fraction};
use litequic_exchange::{RecordListener, RecordedFacts, RequestRecorder};
use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

/// Lines cannot be written: the operator's fault.
#[derive(Debug, thiserror::Error)]
#[error("cannot write access_log.path = \"{path}\": {source}")]
pub struct AccessLogError {
    /// The path.
    path: AccessTarget,
    /// The system's reason.
    source: io::Error,
}

/// The process' access log. What is in force is read without a lock, written by the control thread.
#[derive(Debug)]
pub struct AccessLogger {
    now: CurrentLogSetting,
    writers: Mutex<AccessLogWriters>,
    metrics: Arc<WriterMetrics>,
}

/// How lines are formatted and where they go, if there are any.
type CurrentLogSetting = Arc<ArcSwapOption<AccessLogSetting>>;

#[derive(Debug)]
struct AccessLogSetting {
    fields: Vec<AccessField>,
    sample: Fraction,
    style: LineStyle,
    sink: LineSink,
}

/// The writers.
#[derive(Debug, Default)]
struct AccessLogWriters {
    now: Option<(AccessTarget, AccessLogWriter)>,
    /// Writers of earlier configurations, until workers have sent them all they had.
    leaving: Vec<LeavingWriter>,
}

/// Where lines will go. Without a writer, where they go now, or nowhere.
#[derive(Debug)]
pub struct OpenedAccessLog(Option<AccessLogWriter>);

impl AccessLogger {
    /// Starts the access log that `config` describes.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub async fn start_access_log(
        config: &config::AccessLog,
        metrics: Arc<WriterMetrics>,
    ) -> Result<Arc<Self>, AccessLogError> {
        let log = Self { now: Arc::default(), writers: Mutex::default(), metrics };
        let opened = log.open_target(config).await?;
        log.apply_access_log(config, opened);
        Ok(Arc::new(log))
    }

    /// Opens the target of `config`, unless lines go there already. To be followed by [`AccessLogger::follow`], or
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub async fn open_target(&self, config: &config::AccessLog) -> Result<OpenedAccessLog, AccessLogError> {
        let Some(path) = &config.path else { return Ok(OpenedAccessLog(None)) };
        if self.lock_writers().now.as_ref().is_some_and(|(now, _)| now == path) {
            return Ok(OpenedAccessLog(None));
        }
        let target = match path {
            AccessTarget::Stderr => LogTarget::Stderr,
            AccessTarget::Stdout => LogTarget::Stdout,
            AccessTarget::File(path) => LogTarget::File(path.clone()),
        };
        match AccessLogWriter::start_writer(target, Arc::clone(&self.metrics)).await {
            Ok(log) => Ok(OpenedAccessLog(Some(log))),
            Err(source) => Err(AccessLogError { path: path.clone(), source }),
        }
    }

    /// Has workers follow `config`, whose target was `opened`. They do from their next request on, or within half a
    /// second; what they have formatted by then goes to the former target.
    pub fn apply_access_log(&self, config: &config::AccessLog, OpenedAccessLog(opened): OpenedAccessLog) {
        let mut writers = self.lock_writers();
        writers.leaving.retain_mut(|leaving| !leaving.has_ended());
        let next = match (opened, &config.path) {
            (Some(log), Some(path)) => Some((path.clone(), log)),
            (_, None) => None,
            (None, Some(_)) => writers.now.take(),
        };
        if let Some((_, log)) = std::mem::replace(&mut writers.now, next) {
            writers.leaving.push(log.into_leaving());
        }
        let setting = writers.now.as_ref().map(|(_, log)| AccessLogSetting {
            fields: config.fields.clone(),
            sample: config.sample,
            style: match config.format {
                AccessFormat::Json => LineStyle::Json,
                AccessFormat::Logfmt => LineStyle::Logfmt,
            },
            sink: log.line_sink().clone(),
        });
        self.now.store(setting.map(Arc::new));
    }

    /// Reopens the file by its name: after a rotation.
    pub fn reopen_access_log(&self) {
        if let Some(setting) = &*self.now.load() {
            setting.sink.reopen_file();
        }
    }

    /// Waits until all lines are written that ended workers sent; two seconds at most.
    pub async fn finish_access_log(&self) {
        let AccessLogWriters { now, leaving } = std::mem::take(&mut *self.lock_writers());
        let now = async {
            if let Some((_, log)) = now {
                log.finish_writer().await;
            }
        };
        tokio::join!(now, join_all(leaving.into_iter().map(LeavingWriter::wait_for_writer_end)));
    }

    /// One worker's part of it, which counts in `metrics`.
    pub fn worker_access_log(&self, metrics: Arc<AccessLogMetrics>) -> WorkerAccessLog {
        WorkerAccessLog { now: Arc::clone(&self.now), metrics }
    }

    fn lock_writers(&self) -> std::sync::MutexGuard<'_, AccessLogWriters> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part before its thread began.
pub struct WorkerAccessLog {
    now: CurrentLogSetting,
    metrics: Arc<AccessLogMetrics>,
}

impl WorkerAccessLog {
    /// On the worker's thread.
    pub fn into_records(self) -> (RequestRecorder, AccessLogFlusher) {
        let pen = LineFormatter { now: Cache::new(self.now), metrics: self.metrics, lines: None };
        let pen = Rc::new(RefCell::new(pen));
        (RequestRecorder::with_listener(RequestLogger(Rc::clone(&pen))), AccessLogFlusher(pen))
    }
}

/// Formats one worker's lines.
struct LineFormatter {
    now: Cache<CurrentLogSetting, Option<Arc<AccessLogSetting>>>,
    metrics: Arc<AccessLogMetrics>,
    /// By the setting beside them.
    lines: Option<(Arc<AccessLogSetting>, LineBuffer)>,
}

impl LineFormatter {
    /// By the setting in force. Lines of the former one are sent first.
    fn follow_log_setting(&mut self) -> Option<&mut (Arc<AccessLogSetting>, LineBuffer)> {
        let now = self.now.load();
        let follows = match (now, &self.lines) {
            (Some(now), Some((before, _))) => Arc::ptr_eq(now, before),
            (now, lines) => now.is_none() && lines.is_none(),
        };
        if !follows {
            let lines =
                |setting: &Arc<AccessLogSetting>| setting.sink.line_buffer(setting.style, Arc::clone(&self.metrics));
            self.lines = now.as_ref().map(|setting| (Arc::clone(setting), lines(setting)));
        }
        self.lines.as_mut()
    }
}

/// Notified of requests.
struct RequestLogger(Rc<RefCell<LineFormatter>>);

/// Sends lines that would otherwise wait for more.
pub struct AccessLogFlusher(Rc<RefCell<LineFormatter>>);

impl AccessLogFlusher {
    /// To be called periodically.
    pub fn flush_lines(&self) {
        if let Some((_, lines)) = self.0.borrow_mut().follow_log_setting() {
            lines.send_lines();
        }
    }
}

impl RecordListener for RequestLogger {
    fn wants_record(&self) -> bool {
        let mut pen = self.0.borrow_mut();
        let sample = pen.follow_log_setting().map(|(setting, _)| setting.sample);
        sample.is_some_and(|sample| sample == Fraction::ALL || rand::random_range(0..Fraction::ALL.0) < sample.0)
    }

    fn on_request_ended(&self, facts: &RecordedFacts) {
        if let Some((setting, lines)) = self.0.borrow_mut().follow_log_setting() {
            lines.append_line(|line| {
                setting.fields.iter().for_each(|field| line::write_access_field(line, *field, facts))
            });
        }
    }
}

//! The access log of the process, and the parts of its workers.

use super::{
    line,
    metrics::{AccessLogMetrics, WriterMetrics},
    writer::{AccessLogWriter, LineBuffer, wait_for_writer_end},
};
use arc_swap::{ArcSwapOption, Cache};
use futures_util::future::join_all;
use litequic_base::log_writer::LineSender;
use litequic_config::{self as config, AccessField, Fraction, LogTarget};
use litequic_exchange::{RecordListener, RecordedFacts, RequestRecorder};
use parking_lot::Mutex;
use std::{cell::RefCell, io, rc::Rc, sync::Arc};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Error of opening the access log, for the operator.
#[derive(Debug, thiserror::Error)]
#[error("cannot write access_log.path = \"{path}\": {source}")]
pub struct AccessLogError {
    /// Target in the configuration.
    path: LogTarget,
    /// Error of the system.
    source: io::Error,
}

/// Access log of the process. The setting in force is read without a lock, written by the control thread.
#[derive(Debug)]
pub struct AccessLogger {
    now: CurrentLogSetting,
    writers: Mutex<AccessLogWriters>,
    metrics: Arc<WriterMetrics>,
}

/// Setting in force; `None` if there is no access log.
type CurrentLogSetting = Arc<ArcSwapOption<AccessLogSetting>>;

#[derive(Debug)]
struct AccessLogSetting {
    fields: Vec<AccessField>,
    sample: Fraction,
    sender: LineSender,
}

/// Writer in force, and earlier ones.
#[derive(Debug, Default)]
struct AccessLogWriters {
    now: Option<(LogTarget, AccessLogWriter)>,
    /// Ends of the writers of earlier configurations, until workers have sent all their lines to them.
    leaving: Vec<oneshot::Receiver<()>>,
}

/// Target that was opened for a new configuration. Without a writer, the target stays, or there is none.
#[derive(Debug)]
pub struct OpenedAccessLog(Option<AccessLogWriter>);

impl AccessLogger {
    /// Starts the access log of `config`.
    ///
    /// # Errors
    ///
    /// [`AccessLogError`]
    pub async fn start_access_log(
        config: &config::AccessLog,
        metrics: Arc<WriterMetrics>,
    ) -> Result<Arc<Self>, AccessLogError> {
        let log = Self { now: Arc::default(), writers: Mutex::default(), metrics };
        let opened = log.open_target(config).await?;
        log.apply_access_log(config, opened);
        Ok(Arc::new(log))
    }

    /// Opens the target of `config`, unless it is open already. To be followed by [`AccessLogger::apply_access_log`],
    /// or dropped.
    ///
    /// # Errors
    ///
    /// [`AccessLogError`]
    pub async fn open_target(&self, config: &config::AccessLog) -> Result<OpenedAccessLog, AccessLogError> {
        let Some(path) = &config.path else { return Ok(OpenedAccessLog(None)) };
        if self.writers.lock().now.as_ref().is_some_and(|(now, _)| now == path) {
            return Ok(OpenedAccessLog(None));
        }
        match AccessLogWriter::start_writer(path.clone(), Arc::clone(&self.metrics)).await {
            Ok(log) => Ok(OpenedAccessLog(Some(log))),
            Err(source) => Err(AccessLogError { path: path.clone(), source }),
        }
    }

    /// Has workers follow `config`, whose target was `opened`: from their next request on, or within half a second.
    /// Lines that they have formatted by then go to the former target.
    pub fn apply_access_log(&self, config: &config::AccessLog, OpenedAccessLog(opened): OpenedAccessLog) {
        let mut writers = self.writers.lock();
        writers.leaving.retain_mut(|ended| ended.try_recv() == Err(TryRecvError::Empty));
        let next = match (opened, &config.path) {
            (Some(log), Some(path)) => Some((path.clone(), log)),
            (_, None) => None,
            (None, Some(_)) => writers.now.take(),
        };
        if let Some((_, log)) = std::mem::replace(&mut writers.now, next) {
            writers.leaving.push(log.ended);
        }
        let setting = writers.now.as_ref().map(|(_, log)| AccessLogSetting {
            fields: config.fields.clone(),
            sample: config.sample,
            sender: log.sender.clone(),
        });
        self.now.store(setting.map(Arc::new));
    }

    /// Reopens the file by its name, after a rotation.
    pub fn reopen_access_log(&self) {
        if let Some(setting) = &*self.now.load() {
            setting.sender.request_reopen();
        }
    }

    /// Waits until all lines of ended workers are written; at most two seconds.
    pub async fn finish_access_log(&self) {
        let AccessLogWriters { now, mut leaving } = std::mem::take(&mut *self.writers.lock());
        if let Some((_, log)) = now {
            log.sender.end_queue();
            leaving.push(log.ended);
        }
        join_all(leaving.into_iter().map(wait_for_writer_end)).await;
    }

    /// A worker's part of the access log, which counts in `metrics`.
    pub fn worker_access_log(&self, metrics: Arc<AccessLogMetrics>) -> WorkerAccessLog {
        WorkerAccessLog { now: Arc::clone(&self.now), metrics }
    }
}

/// Part of a worker in the access log, before the worker's thread has begun.
pub struct WorkerAccessLog {
    now: CurrentLogSetting,
    metrics: Arc<AccessLogMetrics>,
}

impl WorkerAccessLog {
    /// Makes the records and their flusher, on the worker's thread.
    pub fn into_records(self) -> (RequestRecorder, AccessLogFlusher) {
        let pen = LineFormatter { now: Cache::new(self.now), metrics: self.metrics, lines: None };
        let pen = Rc::new(RefCell::new(pen));
        (RequestRecorder::with_listener(RequestLogger(Rc::clone(&pen))), AccessLogFlusher(pen))
    }
}

/// Formatter of one worker's lines.
struct LineFormatter {
    now: Cache<CurrentLogSetting, Option<Arc<AccessLogSetting>>>,
    metrics: Arc<AccessLogMetrics>,
    /// Unsent lines, and the setting that selects their fields.
    lines: Option<(Arc<AccessLogSetting>, LineBuffer)>,
}

impl LineFormatter {
    /// Follows the setting in force, and returns its lines. Lines under the former setting are sent first.
    fn follow_log_setting(&mut self) -> Option<&mut (Arc<AccessLogSetting>, LineBuffer)> {
        let now = self.now.load();
        let follows = match (now, &self.lines) {
            (Some(now), Some((before, _))) => Arc::ptr_eq(now, before),
            (now, lines) => now.is_none() && lines.is_none(),
        };
        if !follows {
            self.lines = now.as_ref().map(|setting| {
                let lines = LineBuffer::new(setting.sender.clone(), Arc::clone(&self.metrics));
                (Arc::clone(setting), lines)
            });
        }
        self.lines.as_mut()
    }
}

/// Logs the requests of a worker.
struct RequestLogger(Rc<RefCell<LineFormatter>>);

/// Sends the lines of a worker that would otherwise wait for more.
pub struct AccessLogFlusher(Rc<RefCell<LineFormatter>>);

impl AccessLogFlusher {
    /// Sends unsent lines; to be called periodically.
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
                setting.fields.iter().for_each(|field| line::write_access_field(line, *field, facts));
            });
        }
    }
}

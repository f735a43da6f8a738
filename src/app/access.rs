//! The access log: what of it is in force, for workers to follow, and what a line says of a request, from what was noted
//! on its way to the words that the operator chose.

use super::StartError;
use crate::{
    config::{self, AccessField, AccessFormat, AccessTarget, Share},
    exchange::{Facts, Listener, Records},
    telemetry::{
        ControlMetrics, WorkerMetrics,
        access::{AccessLog, Leaving, Line, Lines, Sink, Style, Target},
    },
};
use arc_swap::{ArcSwapOption, Cache};
use futures_util::future::join_all;
use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

/// The process' access log. What is in force is read without a lock, written by the control thread.
#[derive(Debug)]
pub struct Access {
    now: InForce,
    writers: Mutex<Writers>,
    metrics: Arc<ControlMetrics>,
}

/// How lines are put together and where they go, where there are any.
type InForce = Arc<ArcSwapOption<Setting>>;

#[derive(Debug)]
struct Setting {
    fields: Vec<AccessField>,
    sample: Share,
    style: Style,
    sink: Sink,
}

/// Those who write.
#[derive(Debug, Default)]
struct Writers {
    now: Option<(AccessTarget, AccessLog)>,
    /// Of earlier configurations, until workers have handed over what they had for them.
    leaving: Vec<Leaving>,
}

/// Where lines will go. Without a writer, where they go now, or nowhere.
#[derive(Debug)]
pub(super) struct Opened(Option<AccessLog>);

impl Access {
    /// As `config` has it.
    ///
    /// # Errors
    ///
    /// [`StartError::AccessLog`]
    pub(super) async fn start(
        config: &config::AccessLog,
        metrics: Arc<ControlMetrics>,
    ) -> Result<Arc<Self>, StartError> {
        let access = Self { now: Arc::default(), writers: Mutex::default(), metrics };
        let opened = access.open(config).await?;
        access.follow(config, opened);
        Ok(Arc::new(access))
    }

    /// Opens what `config` has lines go to, unless they go there already. To be followed, or dropped if it is not.
    ///
    /// # Errors
    ///
    /// [`StartError::AccessLog`]
    pub(super) async fn open(&self, config: &config::AccessLog) -> Result<Opened, StartError> {
        let Some(path) = &config.path else { return Ok(Opened(None)) };
        if self.writers().now.as_ref().is_some_and(|(now, _)| now == path) {
            return Ok(Opened(None));
        }
        let target = match path {
            AccessTarget::Stderr => Target::Stderr,
            AccessTarget::File(path) => Target::File(path.clone()),
        };
        match AccessLog::start(target, Arc::clone(&self.metrics)).await {
            Ok(log) => Ok(Opened(Some(log))),
            Err(source) => Err(StartError::AccessLog { path: path.clone(), source }),
        }
    }

    /// Has workers follow `config`, for which was `opened` what it needs. They do from their next request on, or within
    /// half a second; what they have put together by then goes where it was to go.
    pub(super) fn follow(&self, config: &config::AccessLog, Opened(opened): Opened) {
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

    /// Has the file opened anew, by the name that it had: after a rotation.
    pub fn reopen(&self) {
        if let Some(setting) = &*self.now.load() {
            setting.sink.reopen();
        }
    }

    /// Waits until all lines are written that workers which have ended handed over; two seconds at most.
    pub(super) async fn finish(&self) {
        let Writers { now, leaving } = std::mem::take(&mut *self.writers());
        let now = async {
            if let Some((_, log)) = now {
                log.finish().await;
            }
        };
        tokio::join!(now, join_all(leaving.into_iter().map(Leaving::finish)));
    }

    /// One worker's part of it, which counts in `metrics`.
    pub(super) fn of_worker(&self, metrics: Arc<WorkerMetrics>) -> OfWorker {
        OfWorker { now: Arc::clone(&self.now), metrics }
    }

    fn writers(&self) -> std::sync::MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part before its thread began.
pub(super) struct OfWorker {
    now: InForce,
    metrics: Arc<WorkerMetrics>,
}

impl OfWorker {
    /// On the worker's thread.
    pub(super) fn records(self) -> (Records, Flusher) {
        let pen = Pen { now: Cache::new(self.now), metrics: self.metrics, lines: None };
        let pen = Rc::new(RefCell::new(pen));
        (Records::for_listener(Recorder(Rc::clone(&pen))), Flusher(pen))
    }
}

/// Puts one worker's lines together.
struct Pen {
    now: Cache<InForce, Option<Arc<Setting>>>,
    metrics: Arc<WorkerMetrics>,
    /// By the setting beside them.
    lines: Option<(Arc<Setting>, Lines)>,
}

impl Pen {
    /// By what is in force. Lines by what was are handed over first.
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

/// Hears of requests.
struct Recorder(Rc<RefCell<Pen>>);

/// Hands lines over that would wait for others.
pub(super) struct Flusher(Rc<RefCell<Pen>>);

impl Flusher {
    /// To be called now and then.
    pub(super) fn flush(&self) {
        if let Some((_, lines)) = self.0.borrow_mut().follow() {
            lines.flush();
        }
    }
}

impl Listener for Recorder {
    fn wants(&self) -> bool {
        let mut pen = self.0.borrow_mut();
        let sample = pen.follow().map(|(setting, _)| setting.sample);
        sample.is_some_and(|sample| sample == Share::ALL || rand::random_range(0..Share::ALL.0) < sample.0)
    }

    fn ended(&self, facts: &Facts) {
        if let Some((setting, lines)) = self.0.borrow_mut().follow() {
            lines.add(|line| setting.fields.iter().for_each(|field| write(line, *field, facts)));
        }
    }
}

fn write(line: &mut Line<'_>, field: AccessField, facts: &Facts) {
    let key = field.name();
    // What stands behind `?` may be nobody's business (a token), so that it is a field of its own.
    let target = |n| facts.path.splitn(2, |byte| *byte == b'?').nth(n).unwrap_or_default();
    let address = |address: SocketAddr| address.to_string();
    match field {
        AccessField::Time => line.time(key, facts.began),
        AccessField::RequestId => line.text(key, &facts.request_id),
        AccessField::Client => line.plain(key, facts.client.address.ip()),
        AccessField::ClientPort => line.text(key, address(facts.client.address).as_bytes()),
        AccessField::Local => line.text(key, address(facts.client.local).as_bytes()),
        AccessField::Protocol => line.plain(key, facts.client.protocol.name()),
        AccessField::ServerName => line.text(key, facts.client.server_name.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Method => line.text(key, &facts.method),
        AccessField::Host => line.text(key, &facts.host),
        AccessField::Path => line.text(key, target(0)),
        AccessField::Query => line.text(key, target(1)),
        AccessField::UserAgent => line.text(key, &facts.user_agent),
        AccessField::Referer => line.text(key, &facts.referer),
        AccessField::TraceId => line.text(key, facts.trace_id().unwrap_or_default().as_bytes()),
        AccessField::Route => line.text(key, facts.route.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Origin => line.text(key, facts.origin.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Server => line.text(key, facts.server.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Status => {
            if let Some(status) = facts.status {
                line.number(key, status.as_u16().into());
            }
        }
        AccessField::BytesIn => line.number(key, facts.received),
        AccessField::BytesOut => line.number(key, facts.sent),
        AccessField::Duration => line.seconds(key, facts.started.elapsed()),
        AccessField::FirstByte => {
            if let Some(duration) = facts.first_byte {
                line.seconds(key, duration);
            }
        }
        AccessField::OriginTime => {
            if let Some(duration) = facts.origin_time {
                line.seconds(key, duration);
            }
        }
        AccessField::End => line.plain(key, facts.end.word()),
        AccessField::Error => line.text(key, facts.error.unwrap_or_default().as_bytes()),
    }
}

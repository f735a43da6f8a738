//! The log: one line an event on standard error, with a time in UTC in the format of RFC 3339; on a terminal, with the
//! local time of day (terminal.rs). A thread writes the lines (`log_writer`); a caller formats its line, and never
//! waits. How many lines one place may log is limited (limiter.rs).

mod capture;
mod json;
mod limiter;
mod limits;
mod terminal;

use crate::metrics;
use limiter::{Limiter, LineLimit};
use litequic_base::log_writer::{LineSender, LogPiece, LogTarget, Report, WriterWake, hold_stderr, queue, write_last};
use std::{
    cell::Cell,
    io::{self, IsTerminal, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use terminal::Terminal;
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::ParseError,
    fmt::{MakeWriter, layer},
    layer::SubscriberExt,
    reload,
    util::{SubscriberInitExt, TryInitError},
};

/// The environment variable that adds to the log, as `target=level,…`: for debugging a library, which otherwise logs
/// its warnings and errors only.
pub const VARIABLE: &str = "RUST_LOG";

/// The least severe level of the libraries' own events: rustls logs each handshake at `debug`. s2n-quic and hyper log
/// nothing: s2n-quic's packets are events of its own kind, which are not logged, and hyper's tracing is not built.
const LIBRARIES: Level = Level::WARN;

/// Bytes of lines that wait for the writer: some thousand lines, for a reader that stops for a while.
const MAX_WAITING: usize = 1 << 20;
/// How long an orderly end waits for the last lines to be written, as that of the access log.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long a panic waits for the lines before its own, for standard error, and for its own line.
const IN_PANIC: Duration = Duration::from_secs(1);
/// How long the reason for the end of the process waits for a reader.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The log of the process, once it is set up.
static LOG: OnceLock<Log> = OnceLock::new();

thread_local! {
    static WAKES: Cell<Wakes> = const { Cell::new(Wakes::AtOnce) };
}

/// How the lines of a thread wake the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Each line does, if the writer sleeps.
    AtOnce,
    /// [`wake`] does, which the thread calls before it waits; whether there is a line since the last call.
    Later { due: bool },
}

metrics! {
    /// Lines of the log, of all threads.
    pub struct Metrics {
        AtomicU64("log_lines", "Lines of the error log by their fate.") {
            queued [result: "queued"] "Lines of the [error log](../operating.md#error-log) that were queued for its writer.",
            suppressed [result: "suppressed"]
                "Lines beyond the first 100 of one kind in ten seconds; a line says how many there were.",
            dropped [result: "dropped"]
                "Lines that were dropped because the queue was full: the reader of standard error is too slow, or has \
                    stopped.",
            lost [result: "lost"] "Lines that could not be written.",
        }
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// [`Format::Human`] on a terminal, [`Format::Json`] otherwise.
    Auto,
    /// For people.
    Human,
    /// An object a line.
    Json,
}

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operator's fault.
    #[error("the environment variable {VARIABLE} is not a list of target=level")]
    Filter(#[from] ParseError),
    /// litequic's fault.
    #[error("the log was set up before")]
    Twice(#[from] TryInitError),
    /// The system's fault: it starts no thread.
    #[error("cannot start the log's thread: {0}")]
    Thread(#[source] io::Error),
}

/// Writes litequic's events of `level` and above to standard error, from now on and for the whole process. The number
/// of lines is limited, except of the targets in `unlimited`. `written` is called on the writer's thread after each
/// write.
///
/// # Errors
///
/// [`LogError`] when [`VARIABLE`] cannot be read as a filter, when there is a log already, or no thread for it.
pub fn init(
    level: Level,
    format: Format,
    unlimited: &'static [&'static str],
    written: fn(),
) -> Result<Handle, LogError> {
    let terminal = io::stderr().is_terminal();
    let json = match format {
        Format::Auto => !terminal,
        Format::Human => false,
        Format::Json => true,
    };
    let extra = std::env::var(VARIABLE).unwrap_or_default();
    let metrics = Arc::<Metrics>::default();
    let limiter = Arc::new(Limiter::new(Arc::clone(&metrics), unlimited));
    let (sender, receiver) = queue(MAX_WAITING);
    let lines = Lines { sender: sender.clone(), metrics: Arc::clone(&metrics) };
    let style = match (json, terminal) {
        (true, _) => Style::Json,
        (false, true) => Style::Terminal(Terminal::local()),
        (false, false) => Style::Text,
    };
    let (subscriber, filter) = subscriber(filter(level, &extra)?, &limiter, style, lines.clone());
    subscriber.try_init()?;
    limiter.report_to(sender);
    // The only place that sets it, behind try_init, which succeeds once.
    let _ = LOG.set(Log { lines: lines.clone(), limiter: Arc::clone(&limiter) });
    receiver.write_to(LogTarget::Stderr, "log", Reports { lines, limiter, written }).map_err(LogError::Thread)?;
    Ok(Handle { filter, extra, metrics })
}

/// Has the lines of the calling thread wake the writer at the thread's next call of [`wake`]: so that logging makes no
/// system call on a worker.
pub fn wake_later() {
    WAKES.set(Wakes::Later { due: false });
}

/// Wakes the writer if the calling thread has logged lines since the last call: to be called before the thread waits.
pub fn wake() {
    if WAKES.get() == (Wakes::Later { due: true }) {
        WAKES.set(Wakes::Later { due: false });
        if let Some(log) = LOG.get() {
            log.lines.sender.wake();
        }
    }
}

/// Waits until the lines that were logged are written, and the summaries of those that were not logged; two seconds at
/// most. For an orderly end. Returns whether there is a log.
pub fn finish() -> bool {
    let Some(Log { lines, limiter }) = LOG.get() else { return false };
    limiter.summarize(true, |line| lines.push(line));
    lines.sender.wake();
    lines.sender.wait_until_written(LAST_LINES);
    true
}

/// Writes why the process ends, as the last line: behind all that was logged, past the log's thread, and within a
/// second.
pub fn write_reason(reason: String) {
    write_last(reason.into_bytes(), LAST_LINE);
}

/// Writes `before` and the lines of the events that `events` logs, or `plain` if they are not logged or there is no
/// log, to standard error, as the last lines of a process that panicked: behind what was logged, past the log's thread,
/// which may be blocked or the one that panicked, and within three seconds.
pub fn write_in_panic(before: &str, events: impl FnOnce(), plain: &str) {
    let unwritten = LOG.get().map_or_else(Vec::new, |Log { lines, .. }| {
        let unwritten = lines.sender.end_in_panic();
        lines.sender.wait_until_written(IN_PANIC);
        unwritten
    });
    let last = capture::capture(events).unwrap_or_else(|| plain.into());
    hold_stderr(IN_PANIC);
    let unwritten = unwritten.iter().map(|piece| piece.text.as_slice());
    let lines: Vec<&[u8]> = unwritten.chain([before.as_bytes(), &last]).collect();
    write_last(lines.concat(), IN_PANIC);
}

/// What [`finish`] and a panic need.
struct Log {
    lines: Lines,
    limiter: Arc<Limiter>,
}

/// Queues lines for the writer.
#[derive(Debug, Clone)]
struct Lines {
    sender: LineSender,
    metrics: Arc<Metrics>,
}

impl Lines {
    fn push(&self, line: Vec<u8>) {
        let wake = match WAKES.get() {
            Wakes::AtOnce => WriterWake::Now,
            Wakes::Later { .. } => {
                WAKES.set(Wakes::Later { due: true });
                WriterWake::Later
            }
        };
        match self.sender.push(LogPiece { text: line, lines: 1 }, wake) {
            true => &self.metrics.queued,
            false => &self.metrics.dropped,
        }
        .fetch_add(1, Relaxed);
    }
}

impl Write for &Lines {
    /// Takes one event's line, as tracing-subscriber writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !capture::add(line) {
            self.push(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// What the writer reports.
struct Reports {
    lines: Lines,
    limiter: Arc<Limiter>,
    written: fn(),
}

impl Report for Reports {
    fn failed(&mut self, lines: u64, _: &io::Error, _: bool) {
        self.lines.metrics.lost.fetch_add(lines, Relaxed);
    }

    fn missing(&mut self, lines: u64) -> Option<Vec<u8>> {
        capture::capture(|| {
            tracing::warn!(lines, "lines are missing from the log: they were dropped, or could not be written");
        })
    }

    fn alarm(&mut self) -> Option<Instant> {
        self.limiter.summarize(false, |line| self.lines.push(line))
    }

    fn written(&mut self) {
        (self.written)();
    }
}

/// Changes the log's level at run time.
#[derive(Debug, Clone)]
pub struct Handle {
    filter: reload::Handle<EnvFilter, Registry>,
    /// The value of [`VARIABLE`] at the start.
    extra: String,
    metrics: Arc<Metrics>,
}

impl Handle {
    /// The counts of the log's lines.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Writes events of `level` and above from now on.
    pub fn set_level(&self, level: Level) {
        // A valid filter stays valid, and the log exists as long as the process.
        if let Ok(filter) = filter(level, &self.extra) {
            let _ = self.filter.reload(filter);
        }
    }
}

fn filter(level: Level, extra: &str) -> Result<EnvFilter, ParseError> {
    // At the level `error` the libraries are not to be louder than litequic.
    EnvFilter::try_new(format!("{},litequic={level},{extra}", level.min(LIBRARIES)))
}

type Reloadable = (Box<dyn Subscriber + Send + Sync>, reload::Handle<EnvFilter, Registry>);

/// How lines look.
#[derive(Debug)]
enum Style {
    Json,
    /// For people, in a file or a pipe: without colours.
    Text,
    Terminal(Terminal),
}

fn subscriber<W>(filter: EnvFilter, limiter: &Arc<Limiter>, style: Style, writer: W) -> Reloadable
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter).with(LineLimit(Arc::clone(limiter)));
    let subscriber: Box<dyn Subscriber + Send + Sync> = match style {
        Style::Json => Box::new(registry.with(layer().event_format(json::Json).with_writer(writer))),
        Style::Text => Box::new(registry.with(layer().with_ansi(false).with_writer(writer))),
        Style::Terminal(terminal) => {
            // The library respects NO_COLOR.
            let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            Box::new(registry.with(layer().event_format(terminal).with_ansi(colours).with_writer(writer)))
        }
    };
    (subscriber, handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Level, extra: &str, style: Style, events: impl FnOnce()) -> String {
        let limiter = Arc::default();
        let memory = Memory::default();
        let writer = memory.clone();
        let (subscriber, _) = subscriber(filter(level, extra).unwrap(), &limiter, style, move || writer.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell() {
        tracing::info!(workers = 2, "ready");
        tracing::debug!("a detail");
        tracing::info!(target: "rustls", "a handshake");
        tracing::warn!(target: "rustls", "a fault");
    }

    #[test]
    fn an_event_is_one_json_object_with_its_time_and_fields() {
        let text = logged(Level::INFO, "", Style::Json, || tracing::info!(workers = 2, "ready"));
        assert_eq!(text.lines().count(), 1);
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["message"], "ready");
        assert_eq!(event["workers"], 2);
        assert_eq!(event["level"], "INFO");
        assert!(humantime::parse_rfc3339(event["timestamp"].as_str().unwrap()).is_ok(), "{text}");
    }

    #[test]
    fn people_read_a_line_without_colours_in_a_file() {
        let text = logged(Level::INFO, "", Style::Text, || tracing::info!(workers = 2, "ready"));
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{text}");
        assert_eq!(rest, format!(" INFO {}: ready workers=2\n", module_path!()));
    }

    #[test]
    fn people_at_a_terminal_read_the_time_of_day_and_the_module_of_details_alone() {
        let terminal = Style::Terminal(Terminal::new(jiff::tz::TimeZone::UTC));
        let text = logged(Level::DEBUG, "", terminal, || {
            tracing::info!(workers = 2, "ready");
            tracing::error!("it failed");
            tracing::debug!(n = 1, "a detail");
        });
        let text = without_colours(&text);
        let module = module_path!();
        let expected = [" INFO ready workers=2", "ERROR it failed", &format!("DEBUG {module}: a detail n=1")];
        assert_eq!(text.lines().count(), expected.len(), "{text}");
        for (line, expected) in text.lines().zip(expected) {
            let (time, rest) = line.split_once(' ').unwrap();
            let shape = time.replace(|char: char| char.is_ascii_digit(), "0");
            assert_eq!((shape.as_str(), rest), ("00:00:00.000", expected));
        }
    }

    /// `text` without the sequences of ECMA-48 that select colours, each of which ends with `m`.
    fn without_colours(text: &str) -> String {
        let mut pieces = text.split('\x1b');
        let first = pieces.next().unwrap_or_default().to_owned();
        first + &pieces.map(|piece| piece.split_once('m').map_or("", |(_, rest)| rest)).collect::<String>()
    }

    #[test]
    fn libraries_are_heard_from_warnings_on() {
        let cases = [
            (Level::ERROR, "", vec![]),
            (Level::WARN, "", vec!["a fault"]),
            (Level::INFO, "", vec!["ready", "a fault"]),
            (Level::DEBUG, "", vec!["ready", "a detail", "a fault"]),
            (Level::INFO, "rustls=info", vec!["ready", "a handshake", "a fault"]),
            (Level::INFO, "litequic=debug", vec!["ready", "a detail", "a fault"]),
        ];
        for (level, extra, expected) in cases {
            let text = logged(level, extra, Style::Json, tell);
            let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let messages: Vec<_> = events.map(|event| event["message"].as_str().unwrap().to_owned()).collect();
            assert_eq!(messages, expected, "{level} {extra}");
        }
    }

    #[test]
    fn the_level_follows_its_handle() {
        let memory = Memory::default();
        let writer = memory.clone();
        let extra = "rustls=info";
        let (subscriber, filter) =
            subscriber(filter(Level::INFO, extra).unwrap(), &Arc::default(), Style::Json, move || writer.clone());
        let handle = Handle { filter, extra: extra.into(), metrics: Arc::default() };
        tracing::subscriber::with_default(subscriber, || {
            for level in [Level::WARN, Level::DEBUG] {
                handle.set_level(level);
                tell();
            }
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let messages: Vec<_> = text.lines().map(|line| line.split("\"message\":\"").nth(1).unwrap()).collect();
        let begins = ["a handshake", "a fault", "ready", "a detail", "a handshake", "a fault"];
        assert_eq!(messages.len(), begins.len(), "{text}");
        assert!(messages.iter().zip(begins).all(|(message, begin)| message.starts_with(begin)), "{text}");
    }

    /// Messages of the lines of `text`, each an object.
    fn messages(text: &str) -> Vec<String> {
        let line = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        text.lines().map(|text| line(text)["message"].as_str().unwrap().to_owned()).collect()
    }

    /// The summaries of all that `limiter` has suppressed, and the lines that `events` logs.
    fn summed_up(events: impl Fn()) -> (Vec<String>, String) {
        let (limiter, mut summaries) = (Arc::new(Limiter::new(Arc::default(), &["operator"])), Vec::new());
        let memory = Memory::default();
        let (lines, writer) = (memory.clone(), memory.clone());
        let (subscriber, _) =
            subscriber(filter(Level::DEBUG, "").unwrap(), &limiter, Style::Json, move || Capturing(writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            events();
            limiter.summarize(true, |line| summaries.push(String::from_utf8(line).unwrap()));
        });
        let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (messages(&lines), summaries.concat())
    }

    /// A writer that passes what is captured, as [`Lines`].
    struct Capturing(Memory);

    impl Write for Capturing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if capture::add(bytes) { Ok(bytes.len()) } else { self.0.write(bytes) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_of_one_servers_failures_is_summed_up_and_hides_no_other_line() {
        let (logged, summaries) = summed_up(|| {
            for n in 0..1304 {
                let (origin, server) = ("a", format_args!("192.0.2.{}", n / 1303));
                tracing::warn!(origin, %server, n, "no \"connection\"");
            }
            tracing::warn!("another");
        });
        assert_eq!(logged.len(), 100 + 1 + 1, "one line of the other server, and one of another place");
        let summary: serde_json::Value = serde_json::from_str(&summaries).unwrap();
        assert_eq!(summary["message"], "1,203 more in the last 1 s: no \"connection\"");
        assert_eq!((&summary["origin"], &summary["server"]), (&"a".into(), &"192.0.2.0".into()));
        assert_eq!((&summary["level"], &summary["target"]), (&"WARN".into(), &module_path!().into()));
        assert_eq!(summary.get("n"), None);
    }

    #[test]
    fn debug_events_and_those_of_some_targets_are_not_limited() {
        let (logged, summaries) = summed_up(|| {
            (0..500).for_each(|n| tracing::debug!(n, "a detail"));
            (0..500).for_each(|n| tracing::warn!(target: "operator", n, "reloaded"));
        });
        assert_eq!((logged.len(), summaries.as_str()), (1000, ""));
    }

    #[test]
    fn values_are_json_of_their_kind() {
        let text = logged(Level::INFO, "", Style::Json, || {
            tracing::info!(a = -1, b = true, c = 0.5, d = f64::NAN, e = ?Some("\n\u{1}\u{e9}"), "\"quoted\"\n");
        });
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "timestamp": event["timestamp"], "level": "INFO", "message": "\"quoted\"\n", "a": -1, "b": true, "c": 0.5,
            "d": null, "e": "Some(\"\\n\\u{1}\u{e9}\")", "target": module_path!(),
        });
        assert_eq!(event, expected);
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_filter_that_makes_no_sense_is_refused() {
        assert!(filter(Level::INFO, "rustls=loud").is_err());
    }
}

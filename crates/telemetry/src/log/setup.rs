//! Sets the log up: its level, its format, and the filter of events.

use super::{
    json,
    line_limiter::{LineLimitLayer, LineLimiter},
    log_lines::{LOG, LogLineSender, LogOutput, LogWriterEvents},
    metrics::LogLineMetrics,
    terminal::TerminalFormat,
};
use litequic_base::log_writer::{LogTarget, line_queue};
use litequic_config::LogFormat;
use std::{
    io::{self, IsTerminal},
    sync::Arc,
};
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::ParseError,
    fmt::{MakeWriter, layer},
    layer::SubscriberExt,
    reload,
    util::{SubscriberInitExt, TryInitError},
};

/// Environment variable that adds targets to the log, as `target=level,…`: for debugging a library, which otherwise
/// logs only its errors, and its warnings at `debug`.
pub const VARIABLE: &str = "RUST_LOG";

/// Bound of the queue to the writer, in bytes: some thousand lines, for a reader that stops for a while.
const MAX_LOG_QUEUE_BYTES: usize = 1 << 20;

/// Error of setting up the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Error of the operator.
    #[error("the environment variable {VARIABLE} is not a list of target=level")]
    Filter(#[from] ParseError),
    /// Error of litequic.
    #[error("the log is set up already")]
    Twice(#[from] TryInitError),
    /// The system cannot start a thread.
    #[error("cannot start the log's thread: {0}")]
    Thread(#[source] io::Error),
}

/// Writes litequic's events of `level` and above to standard error, from now on and for the whole process. The number
/// of lines is limited, except those of the targets in `unlimited`. `written` is called on the writer's thread after
/// each write.
///
/// # Errors
///
/// [`LogError`] when [`VARIABLE`] cannot be read as a filter, there is a log already, or its thread cannot be started.
pub fn init_log(
    level: Level,
    format: LogFormat,
    unlimited: &'static [&'static str],
    written: fn(),
) -> Result<LogHandle, LogError> {
    let terminal = io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let extra = std::env::var(VARIABLE).unwrap_or_default();
    let metrics = Arc::<LogLineMetrics>::default();
    let limiter = Arc::new(LineLimiter::new(Arc::clone(&metrics), unlimited));
    let (sender, receiver) = line_queue(MAX_LOG_QUEUE_BYTES);
    let lines = LogLineSender { sender: sender.clone(), metrics: Arc::clone(&metrics) };
    let style = match (json, terminal) {
        (true, _) => LogLineStyle::Json,
        (false, true) => LogLineStyle::Terminal(TerminalFormat::with_local_zone()),
        (false, false) => LogLineStyle::Text,
    };
    let (subscriber, filter) = build_subscriber(event_filter(level, &extra)?, &limiter, style, lines.clone());
    subscriber.try_init()?;
    limiter.set_summary_writer(sender);
    // Nothing else sets it, and try_init succeeds only once.
    let _ = LOG.set(LogOutput { lines: lines.clone(), limiter: Arc::clone(&limiter), is_json: json });
    receiver
        .spawn_writer(LogTarget::Stderr, "log", LogWriterEvents { lines, limiter, written })
        .map_err(LogError::Thread)?;
    Ok(LogHandle { filter, extra, metrics })
}

/// Handle that changes the log's level at run time.
#[derive(Debug, Clone)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    /// Value of [`VARIABLE`] at the start.
    extra: String,
    metrics: Arc<LogLineMetrics>,
}

impl LogHandle {
    /// The counts of the log's lines.
    pub fn log_metrics(&self) -> Arc<LogLineMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Writes events of `level` and above from now on.
    pub fn set_level(&self, level: Level) {
        // A valid filter stays valid, and the log exists as long as the process.
        if let Ok(filter) = event_filter(level, &self.extra) {
            let _ = self.filter.reload(filter);
        }
    }
}

fn event_filter(level: Level, extra: &str) -> Result<EnvFilter, ParseError> {
    // A client's fault is a warning of rustls, and each handshake has lines at `debug`. s2n-quic and hyper log nothing:
    // s2n-quic's packets are events of its own kind, which are not logged, and hyper's tracing is not built.
    let libraries = if level >= Level::DEBUG { Level::WARN } else { Level::ERROR };
    EnvFilter::try_new(format!("{libraries},litequic={level},{extra}"))
}

type ReloadableSubscriber = (Box<dyn Subscriber + Send + Sync>, reload::Handle<EnvFilter, Registry>);

/// Style of the log's lines.
#[derive(Debug)]
enum LogLineStyle {
    Json,
    /// Lines for people in a file or a pipe, without colours.
    Text,
    Terminal(TerminalFormat),
}

fn build_subscriber<W>(
    filter: EnvFilter,
    limiter: &Arc<LineLimiter>,
    style: LogLineStyle,
    writer: W,
) -> ReloadableSubscriber
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter).with(LineLimitLayer(Arc::clone(limiter)));
    let subscriber: Box<dyn Subscriber + Send + Sync> = match style {
        LogLineStyle::Json => Box::new(registry.with(layer().event_format(json::JsonFormat).with_writer(writer))),
        LogLineStyle::Text => Box::new(registry.with(layer().with_ansi(false).with_writer(writer))),
        LogLineStyle::Terminal(terminal) => {
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
    use crate::log::capture;
    use std::{io::Write, sync::Mutex};

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

    fn logged(level: Level, extra: &str, style: LogLineStyle, events: impl FnOnce()) -> String {
        let limiter = Arc::default();
        let memory = Memory::default();
        let writer = memory.clone();
        let (subscriber, _) =
            build_subscriber(event_filter(level, extra).unwrap(), &limiter, style, move || writer.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell() {
        tracing::info!(workers = 2, "ready");
        tracing::debug!("a detail");
        tracing::info!(target: "rustls", "a handshake");
        tracing::warn!(target: "rustls", "a fault");
        tracing::error!(target: "rustls", "a bug");
    }

    #[test]
    fn an_event_is_one_json_object_with_its_time_and_fields() {
        let text = logged(Level::INFO, "", LogLineStyle::Json, || tracing::info!(workers = 2, "ready"));
        assert_eq!(text.lines().count(), 1);
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["message"], "ready");
        assert_eq!(event["workers"], 2);
        assert_eq!(event["level"], "INFO");
        assert!(humantime::parse_rfc3339(event["timestamp"].as_str().unwrap()).is_ok(), "{text}");
    }

    #[test]
    fn a_file_gets_lines_without_colours() {
        let text = logged(Level::INFO, "", LogLineStyle::Text, || tracing::info!(workers = 2, "ready"));
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{text}");
        assert_eq!(rest, format!(" INFO {}: ready workers=2\n", module_path!()));
    }

    #[test]
    fn a_terminal_shows_local_time_and_modules_only_of_debug_lines() {
        let terminal = LogLineStyle::Terminal(TerminalFormat::new(jiff::tz::TimeZone::UTC));
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
    fn libraries_log_errors_and_at_debug_warnings() {
        let cases = [
            (Level::ERROR, "", vec!["a bug"]),
            (Level::WARN, "", vec!["a bug"]),
            (Level::INFO, "", vec!["ready", "a bug"]),
            (Level::DEBUG, "", vec!["ready", "a detail", "a fault", "a bug"]),
            (Level::INFO, "rustls=info", vec!["ready", "a handshake", "a fault", "a bug"]),
            (Level::INFO, "litequic=debug", vec!["ready", "a detail", "a bug"]),
        ];
        for (level, extra, expected) in cases {
            let text = logged(level, extra, LogLineStyle::Json, tell);
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
        let (subscriber, filter) = build_subscriber(
            event_filter(Level::INFO, extra).unwrap(),
            &Arc::default(),
            LogLineStyle::Json,
            move || writer.clone(),
        );
        let handle = LogHandle { filter, extra: extra.into(), metrics: Arc::default() };
        tracing::subscriber::with_default(subscriber, || {
            for level in [Level::WARN, Level::DEBUG] {
                handle.set_level(level);
                tell();
            }
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let messages: Vec<_> = text.lines().map(|line| line.split("\"message\":\"").nth(1).unwrap()).collect();
        let begins = ["a handshake", "a fault", "a bug", "ready", "a detail", "a handshake", "a fault", "a bug"];
        assert_eq!(messages.len(), begins.len(), "{text}");
        assert!(messages.iter().zip(begins).all(|(message, begin)| message.starts_with(begin)), "{text}");
    }

    /// Messages of the lines of `text`, each a JSON object.
    fn messages(text: &str) -> Vec<String> {
        let line = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        text.lines().map(|text| line(text)["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Summaries of all suppressed lines, and the lines that `events` logs.
    fn summed_up(events: impl Fn()) -> (Vec<String>, String) {
        let (limiter, mut summaries) = (Arc::new(LineLimiter::new(Arc::default(), &["operator"])), Vec::new());
        let memory = Memory::default();
        let (lines, writer) = (memory.clone(), memory.clone());
        let (subscriber, _) =
            build_subscriber(event_filter(Level::DEBUG, "").unwrap(), &limiter, LogLineStyle::Json, move || {
                Capturing(writer.clone())
            });
        tracing::subscriber::with_default(subscriber, || {
            events();
            limiter.summarize(true, |line| summaries.push(String::from_utf8(line).unwrap()));
        });
        let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (messages(&lines), summaries.concat())
    }

    /// Writer that captures lines, as [`LogLineSender`] does.
    struct Capturing(Memory);

    impl Write for Capturing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if capture::capture_line(bytes) { Ok(bytes.len()) } else { self.0.write(bytes) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_servers_flood_is_summed_up_and_hides_no_other_line() {
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
        let text = logged(Level::INFO, "", LogLineStyle::Json, || {
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
    fn an_invalid_filter_is_rejected() {
        assert!(event_filter(Level::INFO, "rustls=loud").is_err());
    }
}

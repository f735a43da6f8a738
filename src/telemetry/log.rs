//! Sets up the log: one line an event on standard error, with a time in UTC in the format of RFC 3339.

use std::io::{self, IsTerminal};
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
}

/// Writes litequic's events of `level` and above to standard error, from now on and for the whole process.
///
/// # Errors
///
/// [`LogError`] when [`VARIABLE`] cannot be read as a filter, or when there is a log already.
pub fn init(level: Level, format: Format) -> Result<Handle, LogError> {
    let terminal = io::stderr().is_terminal();
    let json = match format {
        Format::Auto => !terminal,
        Format::Human => false,
        Format::Json => true,
    };
    let extra = std::env::var(VARIABLE).unwrap_or_default();
    let (subscriber, filter) = subscriber(filter(level, &extra)?, json, terminal, io::stderr);
    subscriber.try_init()?;
    Ok(Handle { filter, extra })
}

/// Changes the log's level at run time.
#[derive(Debug, Clone)]
pub struct Handle {
    filter: reload::Handle<EnvFilter, Registry>,
    /// The value of [`VARIABLE`] at the start.
    extra: String,
}

impl Handle {
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

fn subscriber<W>(filter: EnvFilter, json: bool, colours: bool, writer: W) -> Reloadable
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let subscriber: Box<dyn Subscriber + Send + Sync> = if json {
        // The message and the fields are on one level, as log collectors expect.
        Box::new(registry.with(layer().json().flatten_event(true).with_writer(writer)))
    } else {
        // The library respects NO_COLOR; a file or pipe gets no colours either.
        let colours = colours && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Box::new(registry.with(layer().with_ansi(colours).with_writer(writer)))
    };
    (subscriber, handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

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

    fn logged(level: Level, extra: &str, json: bool, events: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let (subscriber, _) = subscriber(filter(level, extra).unwrap(), json, false, move || writer.clone());
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
        let text = logged(Level::INFO, "", true, || tracing::info!(workers = 2, "ready"));
        assert_eq!(text.lines().count(), 1);
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["message"], "ready");
        assert_eq!(event["workers"], 2);
        assert_eq!(event["level"], "INFO");
        assert!(humantime::parse_rfc3339(event["timestamp"].as_str().unwrap()).is_ok(), "{text}");
    }

    #[test]
    fn people_read_a_line_without_colours_in_a_file() {
        let text = logged(Level::INFO, "", false, || tracing::info!(workers = 2, "ready"));
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{text}");
        assert!(rest.contains("INFO") && rest.contains("ready workers=2"), "{text}");
        assert!(!text.contains('\x1b'));
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
            let text = logged(level, extra, true, tell);
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
        let (subscriber, filter) = subscriber(filter(Level::INFO, extra).unwrap(), true, false, move || writer.clone());
        let handle = Handle { filter, extra: extra.into() };
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

    #[test]
    fn a_filter_that_makes_no_sense_is_refused() {
        assert!(filter(Level::INFO, "rustls=loud").is_err());
    }
}

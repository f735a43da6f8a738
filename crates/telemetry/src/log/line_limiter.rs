//! Layer that limits the lines that one place in the sources may log (`line_limits`), and writes their summaries.

use super::{
    LogLineMetrics,
    capture::{capture_events, is_capturing},
    json::RECORD_TARGET,
    line_limits::{LineKey, LineLimits, LineVerdict, SuppressionSummary},
};
use litequic_base::{group_digits::group_digits, log_writer::LineSender};
use parking_lot::Mutex;
use std::{
    fmt::{self, Write},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tracing::{
    Event, Level, Metadata, Subscriber, Value,
    callsite::Identifier,
    dispatcher::get_default,
    field::{Field, Visit, display},
};
use tracing_subscriber::layer::{Context, Layer};

/// Fields of which each value has a limit of its own. The values come from the configuration and from name resolution,
/// never from a client.
const ORIGIN: &str = "origin";
const SERVER: &str = "server";
/// Maximum length in bytes of a message, or of a value, in a summary.
const MAX_TEXT: usize = 256;

/// Limits the lines of all threads by their place.
#[derive(Debug, Default)]
pub(super) struct LineLimiter {
    limits: Mutex<LineLimits<Identifier, Box<LineDescription>>>,
    /// Sender to the writer, whose thread writes summaries in time.
    writer: OnceLock<LineSender>,
    metrics: Arc<LogLineMetrics>,
    /// Targets without a limit.
    unlimited: &'static [&'static str],
}

/// First suppressed line of a window, shortened.
#[derive(Debug)]
struct LineDescription {
    metadata: &'static Metadata<'static>,
    message: String,
    /// Values of [`ORIGIN`], [`SERVER`] and [`RECORD_TARGET`], if the line has them.
    values: [Option<String>; 3],
}

impl LineLimiter {
    pub(super) fn new(metrics: Arc<LogLineMetrics>, unlimited: &'static [&'static str]) -> Self {
        Self { metrics, unlimited, ..Self::default() }
    }

    /// Sets the writer whose thread writes summaries.
    pub(super) fn set_summary_writer(&self, writer: LineSender) {
        let _ = self.writer.set(writer);
    }

    /// Passes the lines of each summary that is due, or of `all`, to `log`. Returns the time of the next summary.
    pub(super) fn summarize(&self, all: bool, log: impl FnMut(Vec<u8>)) -> Option<Instant> {
        let now = Instant::now();
        let (summaries, next) = {
            let mut limits = self.limits.lock();
            (limits.take_summaries(now, all), limits.next_summary_time())
        };
        // Formatting may log, so it happens outside the lock.
        summaries.into_iter().filter_map(render_summary).for_each(log);
        next
    }

    fn is_logged(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        // An operator who set `debug` wants all lines; captured lines are summaries, or the last lines of the process.
        if *metadata.level() > Level::INFO || self.unlimited.contains(&metadata.target()) || is_capturing() {
            return true;
        }
        let key = LineKey { place: metadata.callsite(), values: hash_values(event) };
        let verdict = self.limits.lock().count_line(key, Instant::now());
        if let LineVerdict::FirstSuppressed(key) = &verdict {
            let description = LineDescription::describe_event(event);
            let mut limits = self.limits.lock();
            limits.describe_suppressed(key, Box::new(description));
            if let (Some(writer), Some(next)) = (self.writer.get(), limits.next_summary_time()) {
                writer.schedule_alarm(next);
            }
        }
        let logged = verdict == LineVerdict::Log;
        if !logged {
            self.metrics.suppressed.fetch_add(1, Relaxed);
        }
        logged
    }
}

/// The limiter as a layer of tracing-subscriber.
pub(super) struct LineLimitLayer(pub(super) Arc<LineLimiter>);

impl<S: Subscriber> Layer<S> for LineLimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.is_logged(event)
    }
}

/// Hashes the values that distinguish the lines of one place: a library's records have one place for each level
/// (tracing-log), and their targets.
fn hash_values(event: &Event<'_>) -> Option<u64> {
    let counts = |name: &str| [ORIGIN, SERVER, RECORD_TARGET].contains(&name);
    event.metadata().fields().iter().any(|field| counts(field.name())).then(|| {
        let mut hash = DefaultHasher::new();
        LineDescription::describe_event(event).values.hash(&mut hash);
        hash.finish()
    })
}

impl LineDescription {
    fn describe_event(event: &Event<'_>) -> Self {
        let mut description = Self { metadata: event.metadata(), message: String::new(), values: Default::default() };
        event.record(&mut description);
        description
    }
}

impl Visit for LineDescription {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let [origin, server, target] = &mut self.values;
        let text = match field.name() {
            "message" => &mut self.message,
            ORIGIN => origin.get_or_insert_default(),
            SERVER => server.get_or_insert_default(),
            RECORD_TARGET => target.get_or_insert_default(),
            _ => return,
        };
        // An error means that the text is cut.
        let _ = write!(BoundedText(text), "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &display(value));
    }
}

/// Text that is cut at [`MAX_TEXT`] bytes.
struct BoundedText<'a>(&'a mut String);

impl Write for BoundedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT.saturating_sub(self.0.len());
        let cut = text.floor_char_boundary(room);
        self.0.push_str(text.get(..cut).unwrap_or_default());
        if cut == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Formats the line of `summary` as an event of the place of the suppressed lines, with the same level and target.
/// `None` if the level is not logged any more.
fn render_summary(summary: SuppressionSummary<Box<LineDescription>>) -> Option<Vec<u8>> {
    let SuppressionSummary { lines, time, description } = summary;
    let LineDescription { metadata, message, values } = *description;
    let fields = metadata.fields();
    let message_field = fields.field("message")?;
    let seconds = time.max(Duration::from_secs(1)).as_secs();
    let text = format!("{} more in the last {seconds} s: {message}", group_digits(&lines.to_string()));
    // Fields without a value are not recorded, so any field may stand for a missing one.
    let field = |name| fields.field(name).unwrap_or_else(|| message_field.clone());
    let [origin, server, target] = [ORIGIN, SERVER, RECORD_TARGET].map(field);
    let [origin_value, server_value, target_value] =
        values.each_ref().map(|value| value.as_ref().map(|text| text as &dyn Value));
    let values = [
        (&message_field, Some(&text as &dyn Value)),
        (&origin, origin_value),
        (&server, server_value),
        (&target, target_value),
    ];
    let values = fields.value_set(&values);
    let event = Event::new(metadata, &values);
    capture_events(|| {
        get_default(|subscriber| {
            if subscriber.enabled(metadata) {
                subscriber.event(&event);
            }
        });
    })
}

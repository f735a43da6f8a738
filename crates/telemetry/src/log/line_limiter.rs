//! The layer that limits how many lines one place may log (limits.rs), and writes their summaries.

use super::{
    LogLineMetrics,
    capture::{capture_events, is_capturing},
    json::RECORD_TARGET,
    line_limits::{LineKey, LineLimits, LineVerdict, SuppressionSummary},
};
use litequic_base::log_writer::LineSender;
use std::{
    fmt::{self, Write},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tracing::{
    Event, Level, Metadata, Subscriber, Value,
    callsite::Identifier,
    dispatcher::get_default,
    field::{Field, Visit, display},
};
use tracing_subscriber::layer::{Context, Layer};

/// Fields whose values count by themselves. The values come from the configuration and from name resolution, never from
/// a client.
const ORIGIN: &str = "origin";
const SERVER: &str = "server";
/// Bytes of a message, or of a value, that a summary repeats.
const MAX_TEXT: usize = 256;

/// Lines by place, over all threads.
#[derive(Debug, Default)]
pub(super) struct LineLimiter {
    limits: Mutex<LineLimits<Identifier, Box<LineDescription>>>,
    /// The writer, whose thread writes summaries in time.
    writer: OnceLock<LineSender>,
    metrics: Arc<LogLineMetrics>,
    /// Targets whose lines are not limited.
    unlimited: &'static [&'static str],
}

/// The first line that was suppressed, shortened.
#[derive(Debug)]
struct LineDescription {
    metadata: &'static Metadata<'static>,
    message: String,
    /// Values of [`ORIGIN`], [`SERVER`] and [`RECORD_TARGET`], as far as the line has them.
    values: [Option<String>; 3],
}

impl LineLimiter {
    pub(super) fn new(metrics: Arc<LogLineMetrics>, unlimited: &'static [&'static str]) -> Self {
        Self { metrics, unlimited, ..Self::default() }
    }

    /// Summaries are written by the thread of `writer`.
    pub(super) fn set_summary_writer(&self, writer: LineSender) {
        let _ = self.writer.set(writer);
    }

    /// Passes the lines of each summary that is due, or of all, to `log`. Returns when the next one is due.
    pub(super) fn summarize(&self, all: bool, log: impl FnMut(Vec<u8>)) -> Option<Instant> {
        let now = Instant::now();
        let (summaries, next) = {
            let mut limits = self.lock_limits();
            (limits.take_summaries(now, all), limits.next_summary_time())
        };
        // Not under the lock: formatting may log.
        summaries.into_iter().filter_map(render_summary).for_each(log);
        next
    }

    fn is_logged(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        // An operator who set `debug` wants all of it; what is captured is a summary itself, or the last line.
        if *metadata.level() > Level::INFO || self.unlimited.contains(&metadata.target()) || is_capturing() {
            return true;
        }
        let key = LineKey { place: metadata.callsite(), values: hash_values(event) };
        let verdict = self.lock_limits().count_line(key, Instant::now());
        if let LineVerdict::FirstSuppressed(key) = &verdict {
            let description = LineDescription::describe_event(event);
            let mut limits = self.lock_limits();
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

    fn lock_limits(&self) -> MutexGuard<'_, LineLimits<Identifier, Box<LineDescription>>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limiter as a layer.
pub(super) struct LineLimitLayer(pub(super) Arc<LineLimiter>);

impl<S: Subscriber> Layer<S> for LineLimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.is_logged(event)
    }
}

/// A hash of the values by which the lines of one place are told apart: a library's records have one place for each
/// level (tracing-log), and their targets.
fn hash_values(event: &Event<'_>) -> Option<u64> {
    let counts = |name: &str| [ORIGIN, SERVER, RECORD_TARGET].contains(&name);
    event.metadata().fields().iter().any(|field| counts(field.name())).then(|| {
        let mut hash = ValueHasher(DefaultHasher::new());
        event.record(&mut hash);
        hash.0.finish()
    })
}

/// Hashes values without storing them.
struct ValueHasher(DefaultHasher);

impl Visit for ValueHasher {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if [ORIGIN, SERVER, RECORD_TARGET].contains(&field.name()) {
            field.name().hash(&mut self.0);
            // Hashing does not fail.
            let _ = write!(self, "{value:?}");
        }
    }
}

impl Write for ValueHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
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
        // An error says that the text is cut.
        let _ = write!(BoundedText(text), "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &display(value));
    }
}

/// Takes [`MAX_TEXT`] bytes.
struct BoundedText<'a>(&'a mut String);

impl Write for BoundedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT.saturating_sub(self.0.len());
        let cut = text.floor_char_boundary(room);
        self.0.push_str(text.get(..cut).unwrap_or_default());
        if cut == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The line of `summary`: an event of the place whose lines it sums up, with the same level and target. None if the
/// level is not logged any more.
fn render_summary(summary: SuppressionSummary<Box<LineDescription>>) -> Option<Vec<u8>> {
    let SuppressionSummary { lines, time, description } = summary;
    let LineDescription { metadata, message, values } = *description;
    let fields = metadata.fields();
    let message_field = fields.field("message")?;
    let seconds = time.max(Duration::from_secs(1)).as_secs();
    let text = format!("{} more in the last {seconds} s: {message}", group_thousands(lines));
    // Fields without a value are not recorded, whatever their name.
    let field = |name| fields.field(name).unwrap_or_else(|| message_field.clone());
    let [origin, server, target] = [ORIGIN, SERVER, RECORD_TARGET].map(field);
    let [origin_value, server_value, target_value] = values.each_ref().map(|value| value.as_ref().map(as_value));
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

fn as_value(text: &String) -> &dyn Value {
    text
}

/// `number` with its thousands separated.
fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

//! Formats an event as one JSON object a line. tracing-subscriber's own format adds the position in a library's sources
//! to its records (`log.file`, `log.module_path`); this one does not.

use serde_json::Value;
use std::fmt;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

/// Prefix of the fields that tracing-log adds to a record of the `log` crate.
const RECORD_PREFIX: &str = "log.";
/// Field with the target of a record of the `log` crate.
pub(super) const RECORD_TARGET: &str = "log.target";

/// Formatter that writes time, level, fields and target of an event on one level, as log collectors expect.
#[derive(Debug)]
pub(super) struct JsonFormat;

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        writer.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\"", metadata.level())?;
        let mut fields = JsonFields { writer, target: false, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        if !fields.target {
            fields.write_member("target", metadata.target().into())?;
        }
        fields.writer.write_str("}\n")
    }
}

/// Writes the fields of an event as members of a JSON object.
struct JsonFields<'a> {
    writer: Writer<'a>,
    /// Whether the target was among the fields.
    target: bool,
    result: fmt::Result,
}

impl JsonFields<'_> {
    fn write_field(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            RECORD_TARGET => {
                self.target = true;
                "target"
            }
            name if name.starts_with(RECORD_PREFIX) => return,
            name => name,
        };
        if self.result.is_ok() {
            self.result = self.write_member(name, value);
        }
    }

    fn write_member(&mut self, name: &str, value: Value) -> fmt::Result {
        write!(self.writer, ",{}:{value}", Value::from(name))
    }
}

impl Visit for JsonFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write_field(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write_field(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write_field(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write_field(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write_field(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // An infinity and NaN, which JSON does not have, become null.
        self.write_field(field, value.into());
    }
}

//! Formats an event as one JSON object a line. tracing-subscriber's own format adds the position in a library's sources
//! to its records (`log.file`, `log.module_path`); this one does not.

use std::{fmt, io};
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
            fields.write_text_member("target", format_args!("{}", metadata.target()))?;
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
    fn write_member(&mut self, field: &Field, write: impl FnOnce(&mut Self, &str) -> fmt::Result) {
        let name = match field.name() {
            RECORD_TARGET => {
                self.target = true;
                "target"
            }
            name if name.starts_with(RECORD_PREFIX) => return,
            name => name,
        };
        if self.result.is_ok() {
            self.result = write(self, name);
        }
    }

    fn write_text_member(&mut self, name: &str, text: fmt::Arguments<'_>) -> fmt::Result {
        self.writer.write_char(',')?;
        self.write_json_string(format_args!("{name}"))?;
        self.writer.write_char(':')?;
        self.write_json_string(text)
    }

    fn write_literal_member(&mut self, name: &str, literal: fmt::Arguments<'_>) -> fmt::Result {
        self.writer.write_char(',')?;
        self.write_json_string(format_args!("{name}"))?;
        self.writer.write_char(':')?;
        self.writer.write_fmt(literal)
    }

    /// Writes `text` as a JSON string, and escapes it while it is formatted.
    fn write_json_string(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        serde_json::to_writer(ByteAdapter(&mut self.writer), &text).map_err(|_| fmt::Error)
    }
}

impl Visit for JsonFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write_member(field, |fields, name| fields.write_text_member(name, format_args!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write_member(field, |fields, name| fields.write_text_member(name, format_args!("{value}")));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write_member(field, |fields, name| fields.write_literal_member(name, format_args!("{value}")));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write_member(field, |fields, name| fields.write_literal_member(name, format_args!("{value}")));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write_member(field, |fields, name| fields.write_literal_member(name, format_args!("{value}")));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write_member(field, |fields, name| match value.is_finite() {
            true => fields.write_literal_member(name, format_args!("{value:?}")),
            // JSON has no infinity and no NaN.
            false => fields.write_literal_member(name, format_args!("null")),
        });
    }
}

/// Adapts tracing's writer of text to a writer of bytes.
struct ByteAdapter<'a, 'w>(&'a mut Writer<'w>);

impl io::Write for ByteAdapter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // serde_json writes whole characters.
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

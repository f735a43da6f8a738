//! Traces requests: a span for each request, and one for each attempt at its origin, exported by OTLP.
//!
//! `sampler` decides about a request's trace, `span` writes spans in `protobuf`, `span_recorder` collects them on a
//! worker, and `exporter`, a task of the control thread, sends them to the collector: by `collector`, in the messages
//! of `otlp`. Workers never wait for any of it.

mod attribute;
mod collector;
mod collector_state;
mod exporter;
mod metrics;
mod otlp;
mod protobuf;
mod sampler;
mod span;
mod span_recorder;
mod trace_setting;
mod tracing;

pub use collector_state::CollectorState;
pub use metrics::{ExportMetrics, SpanMetrics, WaitingSpanBytes};
pub use span_recorder::{SpanFlusher, WorkerSpans};
pub use trace_setting::CollectorTls;
pub use tracing::Tracing;

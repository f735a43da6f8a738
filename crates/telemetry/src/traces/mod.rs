//! Traces: a span for each request, and one for each attempt at its origin, exported by OTLP.
//!
//! `context` decides about a request's trace, `span` writes spans in `protobuf`, `recorder` collects them on a worker,
//! and `exporter`, a task of the control thread, sends them to the collector: by `collector`, in the messages of
//! `otlp`. Workers never wait for any of it.

mod attribute;
mod collector;
mod collector_state;
mod context;
mod exporter;
mod metrics;
mod otlp;
mod protobuf;
mod recorder;
mod setting;
mod span;
mod tracing;

pub use collector_state::CollectorState;
pub use metrics::{ExportMetrics, SpanMetrics, WaitingSpanBytes};
pub use recorder::{SpanFlusher, WorkerSpans};
pub use setting::CollectorTls;
pub use tracing::Tracing;

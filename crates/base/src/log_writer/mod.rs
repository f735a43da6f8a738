//! Writes lines to a file or standard error on a thread of its own, so that no caller waits for a disk or for the
//! reader of a pipe. The log (`telemetry::log`) and the access log have such a thread each, behind a bounded queue:
//! lines that do not fit are dropped, and reported once there is room.

mod line_writer;
mod output;
mod queue;

pub use line_writer::{StartedWriter, WriterEvents};
pub use output::{LogTarget, hold_stderr, write_last_lines};
pub use queue::{LineQueue, LineReceiver, LineSender, LogPiece, WriterWake, line_queue};

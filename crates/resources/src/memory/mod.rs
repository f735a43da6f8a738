//! Watches the memory of the process, and relieves it in steps: no new connections, smaller buffers, then the
//! connections that hold the most are closed (docs/adr/0029-memory.md). The control thread measures usage, each worker
//! acts.

mod memory_step;
mod pressure;
mod usage;

pub use memory_step::{MemoryStep, StepTracker};
pub use pressure::{AwakeWorker, MEASURE_INTERVAL, MemoryGauge, MemoryPressure};
pub use usage::{MemoryReading, MemoryUsage, installed_memory};

//! The link emulator: paths with a rate, a buffer, a delay and faults between two network namespaces.

mod model;
pub(crate) mod path;

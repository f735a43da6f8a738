//! The link emulator: paths with a rate, a buffer, a delay and faults between two network namespaces, for any program
//! that runs in them. `model` is pure and decides the fate of packets, `emulator` moves them between TUN devices in
//! time;
//! `command` is `litequic-lab link`, `check` holds it against known answers.

mod check;
mod command;
mod emulator;
mod handle;
mod log;
mod model;
mod packet;
mod path;
mod samples;
mod segment;
mod summary;
mod trace;
mod tun;

#[cfg(test)]
pub(crate) use self::summary::{DirectionReport, LinkReport};
pub(crate) use self::{
    command::{Arguments, EmulateArguments, addresses, emulate, run},
    handle::{Link, Links},
    path::Path,
    samples::{Sample, samples},
    summary::Report,
    trace::{Moment, Trace},
};

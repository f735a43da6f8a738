//! What is measured of a client between the first byte of its body and the last one: its costs and, in runs of their
//! own, how often it asked the kernel for data, by the calls' names (perf-stat(1)).

use super::{Arguments, Fetched};
use crate::bench::costs::{Costs, Meter};
use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
};

/// What is counted on the client's core, where no other program receives.
const EVENTS: [&str; 5] = [
    "syscalls:sys_enter_recvmsg",
    "syscalls:sys_enter_recvmmsg",
    "syscalls:sys_enter_recvfrom",
    "syscalls:sys_enter_read",
    "net:netif_receive_skb",
];
/// What the last of them counts: messages that devices hand to the kernel.
pub(crate) const SKBS: &str = "netif_receive_skb";

/// The time from the first byte to the last one.
#[derive(Default)]
pub(super) struct Window<'a> {
    meter: Option<&'a Meter>,
    counts: bool,
    before: Option<Costs>,
    after: Option<Costs>,
    counter: Option<Counter>,
    calls: Option<Count>,
}

impl<'a> Window<'a> {
    pub(super) fn new(arguments: &'a Arguments) -> Self {
        Self { meter: arguments.meter.as_ref(), counts: arguments.count, ..Self::default() }
    }

    pub(super) fn begin(&mut self) -> Result<()> {
        let Some(meter) = self.meter else { return Ok(()) };
        if self.counts {
            self.counter = Some(Counter::start(meter.client_core)?);
        }
        self.before = Some(meter.read()?);
        Ok(())
    }

    /// Ends it, once: the last byte may be there long before the client ends.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.after.is_none()
            && let Some(meter) = self.meter
        {
            self.after = Some(meter.read()?);
            self.calls = self.counter.take().map(Counter::end).transpose()?;
        }
        Ok(())
    }

    pub(super) fn report(mut self, fetched: &mut Fetched) -> Result<()> {
        self.end()?;
        if let (Some(before), Some(after), Some(meter)) = (self.before, self.after, self.meter) {
            let after = if after.lacks_wakes_of(before) { after.with_wakes_of(meter.read()?) } else { after };
            fetched.costs = Some(after - before);
        }
        let rate = fetched.bytes as f64 / fetched.seconds;
        fetched.calls = self.calls.map(|calls| calls.of(rate)).unwrap_or_default();
        Ok(())
    }
}

/// perf, which counts events of a core.
struct Counter(Child);

impl Counter {
    fn start(core: usize) -> Result<Self> {
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-C", &core.to_string(), "-e", &EVENTS.join(",")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map(Self).context("cannot start perf")
    }

    fn end(self) -> Result<Count> {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT)?;
        let output = self.0.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Count::read(&text).with_context(|| format!("perf counts no tracepoints: {}", text.trim().replace('\n', " | ")))
    }
}

/// Events a second of a core, by name.
#[derive(Debug, PartialEq)]
struct Count(BTreeMap<String, f64>);

impl Count {
    /// Reads perf's lines `COUNT,UNIT,EVENT,NANOSECONDS,…`: it begins to count later than the download. Of an event
    /// that is not counted there is no number.
    fn read(text: &str) -> Option<Self> {
        let of = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let [count, _, event, nanoseconds, ..] = *fields.as_slice() else { return None };
            let (count, nanoseconds) = (count.parse::<f64>().ok()?, nanoseconds.parse::<f64>().ok()?);
            let name = event.rsplit_once(':')?.1;
            let name = name.strip_prefix("sys_enter_").unwrap_or(name);
            (nanoseconds > 0.0).then(|| (name.to_owned(), count / (nanoseconds * 1e-9)))
        };
        let events: BTreeMap<String, f64> = text.lines().filter_map(of).collect();
        (!events.is_empty()).then_some(Self(events))
    }

    /// Events a MB of a download of so many bytes a second.
    fn of(self, rate: f64) -> BTreeMap<String, f64> {
        self.0.into_iter().map(|(name, events)| (name, events / rate * 1e6)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_the_bytes_of_their_time() {
        let text = "# started on\n\n3000,,syscalls:sys_enter_recvmsg,1500000000,100.00,,\n\
                    <not counted>,,syscalls:sys_enter_read,0,0.00,,\n1500,,net:netif_receive_skb,1500000000,100.00,,\n";
        let expected = [("netif_receive_skb", 10.0), ("recvmsg", 20.0)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(Count::read(text).unwrap().of(1e8), BTreeMap::from(expected));
        assert_eq!(Count::read("event syntax error"), None);
    }
}

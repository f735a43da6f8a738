//! A line for every packet, as CSV: what a capture of both ends would have to be put together from.

use super::packet::{Flow, TCP, UDP};
use anyhow::{Context as _, Result};
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// Written at a time.
const PIECE: usize = 1 << 20; // bytes
const TITLES: &str = "link,direction,came_us,went_us,bytes,queued,protocol,source,destination,fate";
/// Begins a line with the start of the measurement.
pub(super) const BEGUN: &str = "# begun at ";

/// A packet's way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Even: from server to client of the link with half that number; odd: back.
    pub(super) direction: usize,
    pub(super) came: Duration,
    pub(super) went: Option<Duration>,
    pub(super) length: u32,
    /// Bytes in the queue that it found.
    pub(super) queued: u64,
    pub(super) flow: Flow,
    pub(super) fate: &'static str,
}

/// The file.
#[derive(Debug)]
pub(super) struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Log {
    /// A new file, with titles.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut log = Self { file: BufWriter::with_capacity(PIECE, file), path: path.to_owned() };
        writeln!(log.file, "{TITLES}")?;
        Ok(log)
    }

    /// Appends a packet. In the order of fates: a packet that was dropped when that was decided, others as they went.
    pub(super) fn write(&mut self, entry: Entry) -> Result<()> {
        writeln!(self.file, "{}", line(entry)).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Marks the start of the measurement.
    pub(super) fn begun(&mut self, at: Duration) -> Result<()> {
        let at = micros(at);
        writeln!(self.file, "{BEGUN}{at}").with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn line(entry: Entry) -> String {
    let Entry { direction, came, went, length, queued, flow, fate } = entry;
    let protocol = match flow.protocol {
        TCP => "tcp",
        UDP => "udp",
        _ => "other",
    };
    let way = if direction.is_multiple_of(2) { "down" } else { "up" };
    let (came, went) = (micros(came), went.map(micros).unwrap_or_default());
    format!(
        "{},{way},{came},{went},{length},{queued},{protocol},{},{},{fate}",
        direction / 2,
        flow.source,
        flow.destination
    )
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

/// A packet as the log has it, times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Logged {
    pub(super) link: u8,
    /// From server to client.
    pub(super) is_down: bool,
    pub(super) came: f64,
    /// `None`: it was dropped or lost.
    pub(super) went: Option<f64>,
    pub(super) bytes: f64,
    pub(super) queued: f64,
    pub(super) source: u16,
    pub(super) destination: u16,
}

/// Reads a line; `None`: it is no packet's.
pub(super) fn logged(line: &str) -> Option<Logged> {
    let mut fields = line.split(',');
    let link = fields.next()?.parse().ok()?;
    let is_down = fields.next()? == "down";
    let (came, went) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok());
    let (bytes, queued) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mut ports = fields.skip(1).map(str::parse::<u16>);
    let (source, destination) = (ports.next()?.ok()?, ports.next()?.ok()?);
    Some(Logged { link, is_down, came, went, bytes, queued, source, destination })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_fields_as_titles() {
        let flow = Flow { protocol: UDP, source: 443, destination: 5000 };
        let came = Duration::from_nanos(1_500_250);
        let entry = Entry { direction: 3, came, went: None, length: 1228, queued: 300, flow, fate: "dropped" };
        assert_eq!(line(entry), "1,up,1500.2,,1228,300,udp,443,5000,dropped");
        assert_eq!(line(entry).split(',').count(), TITLES.split(',').count());
        assert!(line(Entry { went: Some(came), direction: 0, ..entry }).starts_with("0,down,1500.2,1500.2,"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let flow = Flow { protocol: UDP, source: 443, destination: 5000 };
        let came = Duration::from_micros(1_500);
        let entry = Entry { direction: 3, came, went: None, length: 1228, queued: 300, flow, fate: "dropped" };
        let read = Logged {
            link: 1,
            is_down: false,
            came: 1_500.0,
            went: None,
            bytes: 1_228.0,
            queued: 300.0,
            source: 443,
            destination: 5_000,
        };
        assert_eq!(logged(&line(entry)), Some(read));
        assert_eq!((logged(TITLES), logged("# begun at 1000.0")), (None, None));
    }
}

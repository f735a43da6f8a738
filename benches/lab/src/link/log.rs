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
/// Begins a line that says when what is measured began.
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

    /// Says that what is measured begins.
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
}

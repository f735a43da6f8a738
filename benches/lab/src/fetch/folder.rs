//! The folder into which a client writes its body, in memory where there is a tmpfs: neither a pipe nor a hash takes
//! CPU time of the client while it receives. The body is checked when it is there.

use super::{Arguments, Fetched, window::Window};
use anyhow::{Context as _, Result};
use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Where Linux mounts a tmpfs for all users.
const TMPFS: &str = "/dev/shm";
/// The time between two looks at the body.
const LOOK: Duration = Duration::from_millis(2);
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// A folder, until it is dropped.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let tmpfs = Path::new(TMPFS);
        let folder = if tmpfs.is_dir() { tempfile::tempdir_in(tmpfs) } else { tempfile::tempdir() };
        folder.map(Self).context("cannot make a folder for the body")
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Watches the body until `is_over`, or its cut, and checks it.
    pub(super) fn watch(&self, arguments: &Arguments, is_over: impl FnMut() -> Result<bool>) -> Result<Fetched> {
        let mut fetched = watch(
            arguments,
            Window::new(arguments),
            || self.length(),
            is_over,
            || {
                thread::sleep(LOOK);
                Instant::now()
            },
        )?;
        fetched.whole = fetched.bytes == arguments.bytes && self.crc32()? == arguments.expect_hash;
        Ok(fetched)
    }

    /// Bytes of all files.
    fn length(&self) -> Result<u64> {
        // A client may rename its file meanwhile.
        let length = |entry: std::io::Result<fs::DirEntry>| Some(entry.ok()?.metadata().ok()?.len());
        Ok(fs::read_dir(self.path())?.filter_map(length).sum())
    }

    /// CRC-32 of all files.
    fn crc32(&self) -> Result<u32> {
        let (mut hasher, mut piece) = (crc32fast::Hasher::new(), vec![0; PIECE]);
        for entry in fs::read_dir(self.path())? {
            let mut file = File::open(entry?.path())?;
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    length => hasher.update(piece.get(..length).unwrap_or_default()),
                }
            }
        }
        Ok(hasher.finalize())
    }
}

/// Watches a body of `length` until `is_over`, or its cut; `now` is the clock, and waits between two looks.
fn watch(
    arguments: &Arguments,
    mut window: Window<'_>,
    length: impl Fn() -> Result<u64>,
    mut is_over: impl FnMut() -> Result<bool>,
    mut now: impl FnMut() -> Instant,
) -> Result<Fetched> {
    let (mut fetched, mut first, mut begun) = (Fetched::default(), None, None);
    loop {
        // What a client writes before it ends counts.
        let over = is_over()?;
        let (at, bytes) = (now(), length()?);
        if bytes > 0 {
            if first.is_none() {
                window.begin()?;
            }
            let since = at.duration_since(*first.get_or_insert(at));
            // Nothing that comes after the cut counts, and time goes on until it.
            if let Some(cut) = arguments.cut().filter(|cut| since >= *cut) {
                fetched.seconds = cut.as_secs_f64();
                break;
            }
            if begun.is_none() && arguments.beginning.is_some_and(|beginning| since.as_secs_f64() >= beginning) {
                begun = Some((bytes, since));
                arguments.begun()?;
            }
            if bytes > fetched.bytes {
                (fetched.bytes, fetched.seconds) = (bytes, since.as_secs_f64());
            }
            if bytes >= arguments.bytes {
                window.end()?;
            }
        }
        if over {
            break;
        }
    }
    fetched.steady = begun.map(|(bytes, since)| (fetched.bytes - bytes, fetched.seconds - since.as_secs_f64()));
    window.report(&mut fetched)?;
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fetch::Client, http::Http};
    use std::cell::Cell;

    fn arguments(bytes: u64, crc32: u32, cut: Option<f64>) -> Arguments {
        Arguments {
            client: Client::Get,
            program: "litequic".into(),
            http: Http::Three,
            address: ([192, 0, 2, 1], 8443).into(),
            ca: "/ca".into(),
            spki: String::new(),
            path: "/".to_owned(),
            bytes,
            expect_hash: crc32,
            seconds: cut,
            beginning: cut.map(|cut| cut / 2.0),
            mark: None,
            meter: None,
            count: false,
        }
    }

    /// Watches a body that grows by 100 bytes a second up to `bytes`.
    fn watched(arguments: &Arguments, bytes: u64) -> Fetched {
        let (began, second) = (Instant::now(), Cell::new(0));
        let length = || Ok((second.get() * 100).min(bytes));
        let now = || {
            second.set(second.get() + 1);
            began + Duration::from_secs(second.get())
        };
        watch(arguments, Window::default(), length, || Ok(second.get() * 100 >= bytes), now).unwrap()
    }

    #[test]
    fn time_counts_from_the_first_byte_to_the_last() {
        let fetched = watched(&arguments(300, 0, None), 300);
        assert_eq!(fetched, Fetched { bytes: 300, seconds: 2.0, ..Fetched::default() });
    }

    #[test]
    fn a_download_is_cut_and_its_beginning_reported_apart() {
        let fetched = watched(&arguments(10_000, 0, Some(6.0)), 10_000);
        // Looks at 0 to 5 s behind the first byte; of them that at 3 s ends the beginning.
        assert_eq!(fetched, Fetched { bytes: 600, seconds: 6.0, steady: Some((200, 3.0)), ..Fetched::default() });
    }

    #[test]
    fn a_body_is_checked_by_its_length_and_checksum() {
        let folder = Folder::new().unwrap();
        fs::write(folder.path().join("body"), [7; 300]).unwrap();
        let crc32 = crc32fast::hash(&[7; 300]);
        for (bytes, crc32, whole) in [(300, crc32, true), (299, crc32, false), (300, 1, false)] {
            assert_eq!(folder.watch(&arguments(bytes, crc32, None), || Ok(true)).unwrap().whole, whole);
        }
    }
}

//! curl and `litequic get`: programs that write the body to standard output.

use super::{Arguments, Client, Fetched};
use anyhow::{Context as _, Result, bail};
use std::{
    io::{ErrorKind, Read},
    process::{Command, Stdio},
    time::Instant,
};

/// Read at a time: as much as a pipe holds.
const PIECE: usize = 64 * 1024; // bytes
/// For a whole download, seconds: longer than the lab waits.
const PATIENCE: u32 = 330;

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let mut child = command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", arguments.program.display()))?;
    let body = child.stdout.take().context("it has no standard output")?;
    let fetched = read(arguments, body, Instant::now)?;
    if fetched.whole {
        let status = child.wait()?;
        if !status.success() {
            bail!("{} failed: {status}", arguments.client.name());
        }
    } else {
        // Abandoned, or short.
        child.kill()?;
        child.wait()?;
    }
    Ok(fetched)
}

fn command(arguments: &Arguments) -> Command {
    let mut command = Command::new(&arguments.program);
    let resolve = format!("localhost:{}:{}", arguments.address.port(), arguments.address.ip());
    match arguments.client {
        Client::Get => {
            command.args(["get", "--output", "-", "--timeout", &format!("{PATIENCE}s"), "--resolve", &resolve, "--ca"]);
        }
        Client::Curl | Client::Chromium => {
            let version = if arguments.h1 { "--http1.1" } else { "--http3-only" };
            command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "-", version]);
            command.args(["--max-time", &PATIENCE.to_string(), "--resolve", &resolve, "--cacert"]);
        }
    }
    command.arg(&arguments.ca).arg(arguments.url());
    command
}

/// Reads a body to its end or its cut; `now` is the clock.
fn read(arguments: &Arguments, mut body: impl Read, now: impl Fn() -> Instant) -> Result<Fetched> {
    let mut piece = vec![0; PIECE];
    let mut hasher = crc32fast::Hasher::new();
    let (mut fetched, mut first, mut begun) = (Fetched::default(), None, None);
    loop {
        let length = match body.read(&mut piece) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let at = now();
        if length == 0 {
            break;
        }
        let since = at.duration_since(*first.get_or_insert(at));
        // Nothing that comes after the cut counts, and time goes on until it.
        if let Some(cut) = arguments.cut().filter(|cut| since >= *cut) {
            fetched.seconds = cut.as_secs_f64();
            break;
        }
        if begun.is_none() && arguments.beginning.is_some_and(|beginning| since.as_secs_f64() >= beginning) {
            begun = Some((fetched.bytes, since));
            arguments.begun()?;
        }
        hasher.update(piece.get(..length).unwrap_or_default());
        fetched.bytes += length as u64;
        fetched.seconds = since.as_secs_f64();
    }
    fetched.steady = begun.map(|(bytes, since)| (fetched.bytes - bytes, fetched.seconds - since.as_secs_f64()));
    fetched.whole = fetched.bytes == arguments.bytes && hasher.finalize() == arguments.expect_hash;
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, time::Duration};

    fn arguments(bytes: u64, crc32: u32, cut: Option<f64>) -> Arguments {
        Arguments {
            client: Client::Get,
            program: "litequic".into(),
            h1: false,
            address: ([192, 0, 2, 1], 8443).into(),
            ca: "/ca".into(),
            spki: String::new(),
            path: "/".to_owned(),
            bytes,
            expect_hash: crc32,
            seconds: cut,
            beginning: cut.map(|cut| cut / 2.0),
            mark: None,
        }
    }

    /// A body that comes in pieces of so many bytes, one a second by its own clock.
    struct Slow<'a>(&'a Cell<Instant>, usize, usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0.set(self.0.get() + Duration::from_secs(1));
            let length = self.1.min(self.2);
            self.2 -= length;
            into[..length].fill(7);
            Ok(length)
        }
    }

    #[test]
    fn a_whole_body_is_held_against_its_length_and_checksum() {
        let clock = Cell::new(Instant::now());
        let crc32 = crc32fast::hash(&[7; 300]);
        let fetched = read(&arguments(300, crc32, None), Slow(&clock, 100, 300), || clock.get()).unwrap();
        assert_eq!(fetched, Fetched { bytes: 300, seconds: 2.0, steady: None, whole: true });
        for (bytes, crc32) in [(299, crc32), (300, 1)] {
            let fetched = read(&arguments(bytes, crc32, None), Slow(&clock, 100, 300), || clock.get()).unwrap();
            assert!(!fetched.whole);
        }
    }

    #[test]
    fn a_download_is_cut_and_its_beginning_told_apart() {
        let clock = Cell::new(Instant::now());
        let fetched = read(&arguments(10_000, 0, Some(6.0)), Slow(&clock, 100, 10_000), || clock.get()).unwrap();
        // Pieces at 0 to 5 s; of them those at 0, 1 and 2 s are the beginning.
        assert_eq!(fetched, Fetched { bytes: 600, seconds: 6.0, steady: Some((300, 3.0)), whole: false });
    }
}

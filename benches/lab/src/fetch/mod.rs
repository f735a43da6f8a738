//! One download by a client that others wrote: curl, `litequic get`, Chromium, Firefox. A process of its own, as the load
//! generator is, with the same checks: status, length, CRC-32. Time counts from the body's first byte: how long a
//! program takes to start is not the path's doing.

mod chromium;
mod firefox;
mod folder;
mod program;
mod window;

pub(crate) use self::window::SKBS;

use crate::{
    bench::costs::{Costs, Meter},
    http::Http,
};
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Client {
    /// With HTTP/3, which few builds have.
    Curl,
    /// `litequic get`.
    Get,
    Chromium,
    /// Chromium that supports ACK_FREQUENCY, by its option `AFIA`.
    ChromiumAsked,
    Firefox,
}

impl Client {
    pub(crate) const ALL: [Self; 5] = [Self::Curl, Self::Get, Self::Chromium, Self::ChromiumAsked, Self::Firefox];
    /// The clients in experiments over paths.
    pub(crate) const USUAL: [Self; 3] = [Self::Curl, Self::Get, Self::Chromium];

    /// How reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Get => "litequic get",
            Self::Chromium => "Chromium",
            Self::Firefox => "Firefox",
            Self::ChromiumAsked => "Chromium with AFIA",
        }
    }

    /// Its program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Get => "litequic",
            // Debian's, and its name there.
            Self::Firefox => "firefox-esr",
            Self::Chromium | Self::ChromiumAsked => "chromium",
        }
    }

    /// Whether it is a browser.
    pub(crate) fn is_browser(self) -> bool {
        matches!(self, Self::Chromium | Self::ChromiumAsked | Self::Firefox)
    }

    /// Whether it has HTTP/1.1 and HTTP/2 over TLS, too.
    pub(crate) fn speaks_tcp(self) -> bool {
        matches!(self, Self::Curl | Self::Chromium | Self::Firefox)
    }

    fn option(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Get => "get",
            Self::Chromium => "chromium",
            Self::Firefox => "firefox",
            Self::ChromiumAsked => "chromium-asked",
        }
    }
}

/// A download, as the lab requests it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    #[arg(value_enum)]
    client: Client,
    /// The client's program.
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
    /// Over TLS, those before HTTP/3.
    #[arg(long, value_enum, default_value = "three")]
    http: Http,
    /// The server's address and port. Its name is localhost.
    #[arg(long, value_name = "IP:PORT")]
    address: std::net::SocketAddr,
    /// The certificate that is trusted, PEM, and the SHA-256 of its public key in base64.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    #[arg(long, value_name = "BASE64")]
    spki: String,
    #[arg(long)]
    path: String,
    /// Of the body.
    #[arg(long)]
    bytes: u64,
    /// The body's CRC-32.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| u32::from_str_radix(text, 16))]
    expect_hash: u32,
    /// Abandon it so many seconds after its first byte.
    #[arg(long)]
    seconds: Option<f64>,
    /// Report what comes after so many seconds as well,
    #[arg(long, requires = "seconds")]
    beginning: Option<f64>,
    /// and create this file then.
    #[arg(long, value_name = "FILE", requires = "beginning")]
    mark: Option<PathBuf>,
    #[command(flatten)]
    meter: Option<Meter>,
    /// Count the client's calls that receive; its costs are others then.
    #[arg(long, requires = "folder")]
    count: bool,
}

/// Where a download leads to, for its command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) client: Client,
    pub(crate) program: &'a Path,
    pub(crate) http: Http,
    pub(crate) address: &'a str,
    pub(crate) ca: &'a Path,
    pub(crate) spki: &'a str,
    pub(crate) path: &'a str,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
    /// Seconds, and those of its beginning.
    pub(crate) cut: Option<(f64, f64)>,
    pub(crate) mark: Option<&'a Path>,
    pub(crate) meter: Option<&'a Meter>,
    /// Whether the client's calls that receive are counted.
    pub(crate) count: bool,
}

impl Order<'_> {
    /// The command line of this program, `own`.
    pub(crate) fn command(&self, own: &Path) -> Vec<String> {
        let mut command = vec![own.display().to_string(), "fetch".to_owned(), self.client.option().to_owned()];
        let mut put = |name: &str, value: String| command.extend([name.to_owned(), value]);
        put("--program", self.program.display().to_string());
        put("--address", self.address.to_owned());
        put("--ca", self.ca.display().to_string());
        put("--spki", self.spki.to_owned());
        put("--path", self.path.to_owned());
        put("--bytes", self.bytes.to_string());
        put("--expect-hash", format!("{:08x}", self.crc32));
        put("--http", self.http.argument());
        self.meter.into_iter().flat_map(Meter::options).for_each(|(name, value)| put(name, value));
        if let Some((seconds, beginning)) = self.cut {
            put("--seconds", seconds.to_string());
            put("--beginning", beginning.to_string());
            if let Some(mark) = self.mark {
                put("--mark", mark.display().to_string());
            }
        }
        command.extend(self.count.then(|| "--count".to_owned()));
        command
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fetched {
    /// Of the body.
    pub(crate) bytes: u64,
    /// From its first byte to its last one, or to the cut.
    pub(crate) seconds: f64,
    /// The same of what came after the beginning.
    pub(crate) steady: Option<(u64, f64)>,
    /// Whether all of it came, and was what it should be.
    pub(crate) whole: bool,
    /// What it cost from its first byte to its last one, where that is asked for.
    #[serde(default)]
    pub(crate) costs: Option<Costs>,
    /// Calls that receive, by name, and messages that devices handed to the kernel, a MB.
    #[serde(default)]
    pub(crate) calls: BTreeMap<String, f64>,
}

/// Downloads, and prints what came of it as JSON.
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
pub(crate) fn fetch(arguments: &Arguments) -> Result<()> {
    let fetched = match arguments.client {
        Client::Curl | Client::Get => program::fetch(arguments)?,
        Client::Firefox => firefox::fetch(arguments)?,
        Client::Chromium | Client::ChromiumAsked => chromium::fetch(arguments)?,
    };
    if !fetched.whole && arguments.seconds.is_none() {
        bail!("{} of {} bytes came, or others than those", fetched.bytes, arguments.bytes);
    }
    println!("{}", serde_json::to_string(&fetched)?);
    Ok(())
}

impl Arguments {
    fn url(&self) -> String {
        format!("https://localhost:{}{}", self.address.port(), self.path)
    }

    fn cut(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs_f64)
    }

    /// Starts something that is the client: it is in its cgroup, and this process is not.
    fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(meter) = &self.meter else { return start() };
        meter.join()?;
        let started = start();
        meter.leave()?;
        started
    }

    /// Reports that the beginning is over.
    fn begun(&self) -> Result<()> {
        let Some(mark) = &self.mark else { return Ok(()) };
        File::create(mark).map(drop).with_context(|| format!("cannot write {}", mark.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn an_order_is_a_command_line_that_says_the_same() {
        let meter = Meter { folder: "/group".into(), server_core: 2, client_core: 3 };
        let order = Order {
            client: Client::Get,
            program: Path::new("/bin/litequic"),
            http: Http::Two,
            address: "192.0.2.1:8443",
            ca: Path::new("/ca"),
            spki: "abc=",
            path: "/b1",
            bytes: 1,
            crc32: 0xab,
            cut: Some((2.0, 1.0)),
            mark: Some(Path::new("/mark")),
            meter: Some(&meter),
            count: true,
        };
        let command = order.command(Path::new("/lab"));
        let arguments = Line::parse_from(command.iter().skip(1)).arguments;
        assert_eq!((arguments.client, arguments.bytes, arguments.expect_hash), (Client::Get, 1, 0xab));
        assert_eq!((arguments.seconds, arguments.beginning, arguments.http), (Some(2.0), Some(1.0), Http::Two));
        assert!(arguments.count);
        let read = arguments.meter.clone().unwrap();
        assert_eq!((&read.folder, read.server_core, read.client_core), (&meter.folder, 2, 3));
        assert_eq!(arguments.url(), "https://localhost:8443/b1");

        let unmeasured = Order { meter: None, count: false, ..order }.command(Path::new("/lab"));
        assert!(Line::parse_from(unmeasured.iter().skip(1)).arguments.meter.is_none());
    }
}

//! The client of a run: the lab's own load generator as a process of its own, or h2load. Command lines and the reading
//! of reports are pure.

use super::{
    contender::{self, Contender},
    costs::Meter,
    files::path_of,
    floor, h2load, sink,
};
use crate::{
    fetch::{Client, Fetched, Order, SKBS},
    http::Http,
    load::{Faults, Group, Kind, LoadReport, Steady, TOLERANCE},
    viewer::{self, RealRule, Rule},
};
use anyhow::{Context as _, Result, bail};
use std::{collections::BTreeMap, path::Path};

/// A transfer of so many times the threshold's packets is long. At its beginning, while the congestion window has fewer
/// packets than the threshold, and at its end a timer causes ACKs; here they are about 2 %.
const LONG: f64 = 200.0;
/// Of the floor's datagrams; when more are lost, its client was too slow to measure the cost.
const FLOOR_LOSS: f64 = 0.01;

/// Who loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Generator {
    /// `litequic-lab load`, with a number of packets an ACK (or `auto`), with or without UDP GRO.
    Own {
        /// `2`, `10`, `auto`, …
        ack_threshold: String,
        /// UDP receive offload.
        gro: bool,
        /// What goes wrong with the server's packets on their way.
        faults: Faults,
        /// Milliseconds that each datagram takes to the client.
        delay: u32,
        /// How it receives.
        receiver: Receiver,
        /// Another download on each connection.
        bulk: Option<Bulk>,
    },
    /// nghttp2's, with ACKs as it likes: every 60th to 105th packet.
    H2load,
    /// h2load again; requests without success are counted, where otherwise they void the run.
    Counting,
    /// h2load over these paths in turn; requests without success are counted. With a number each connection requests so
    /// many a second.
    Mix(Vec<String>, Option<u32>),
    /// Another client, for one download.
    Client(Client),
    /// Viewers of adaptive video, one a connection, for a number of seconds.
    Viewers(Viewers),
}

/// How the lab's own client receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// Bytes of receive buffer that its sockets request, as a user's program does: 0 requests none. `None`: as many as
    /// no server overflows.
    pub(crate) buffer: Option<u32>,
    /// Milliseconds for which it sleeps after each hundred datagrams.
    pub(crate) pause: u32,
    /// Whether the client takes one message a call.
    pub(crate) one: bool,
}

/// A download on each connection, beside the requests that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bulk {
    /// Bytes of its body.
    pub(crate) body: u64,
    /// The `Priority` field of the requests that are measured.
    pub(crate) priority: Option<&'static str>,
}

/// What viewers watch, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Viewers {
    /// Who decides on a quality, and how.
    pub(crate) player: Player,
    /// kbit/s of each quality.
    pub(crate) ladder: Vec<u32>,
    /// Seconds of a segment.
    pub(crate) segment: u32,
    /// They begin within so many seconds.
    pub(crate) spread: u32,
    /// Segments are those of a video, rather than bodies of the same size.
    pub(crate) video: bool,
}

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Player {
    Emulated(Rule),
    /// In Chromium.
    DashJs(RealRule),
}

impl Viewers {
    /// Bytes of a segment of each quality, of an encoder with a constant bitrate.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = u64> {
        self.ladder.iter().map(|bitrate| u64::from(*bitrate) * u64::from(self.segment) * 125)
    }

    /// In words.
    fn describe(&self) -> String {
        let Self { player, ladder, segment, .. } = self;
        let player = match player {
            Player::Emulated(rule) => format!("emulated, rule {}", rule.argument()),
            Player::DashJs(rule) => format!("dash.js, rule {}", rule.argument()),
        };
        format!("{player}, {ladder:?} kbit/s, segments of {segment} s")
    }
}

impl Receiver {
    /// Options of `litequic-lab load`.
    fn options(self) -> Vec<String> {
        let mut options = Vec::new();
        if self.pause > 0 {
            options.extend(["--pause".to_owned(), self.pause.to_string()]);
        }
        if let Some(bytes) = self.buffer {
            options.extend(["--receive-buffer".to_owned(), bytes.to_string()]);
        }
        if self.one {
            options.extend(["--messages".to_owned(), "1".to_owned()]);
        }
        options
    }
}

impl Bulk {
    /// Options of `litequic-lab load`.
    fn options(self) -> Vec<String> {
        let priority = self.priority.into_iter().flat_map(|field| ["--priority".to_owned(), field.to_owned()]);
        ["--bulk".to_owned(), path_of(self.body)].into_iter().chain(priority).collect()
    }
}

impl Generator {
    /// The own one at a threshold.
    pub(crate) fn own(ack_threshold: &str) -> Self {
        Self::over(ack_threshold, Faults::default())
    }

    /// The same, over a path with faults.
    pub(crate) fn over(ack_threshold: &str, faults: Faults) -> Self {
        Self::Own {
            ack_threshold: ack_threshold.to_owned(),
            gro: true,
            faults,
            delay: 0,
            receiver: Receiver::default(),
            bulk: None,
        }
    }

    /// The own one beside another download on each of its connections.
    pub(crate) fn beside_its_own(download: Bulk) -> Self {
        let mut own = Self::own("auto");
        if let Self::Own { bulk, .. } = &mut own {
            *bulk = Some(download);
        }
        own
    }

    /// Another download on each connection.
    pub(crate) fn bulk(&self) -> Option<Bulk> {
        if let Self::Own { bulk, .. } = self { *bulk } else { None }
    }
}

/// How much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    /// So many requests or handshakes.
    Requests(u64),
    /// For so long.
    Seconds(f64),
    /// So many requests, one at a time over all connections: the first on each, then the second, and so on.
    InTurn(u64),
    /// For so long, and requests in flight then are abandoned. Costs are those after `beginning`: without handshakes.
    Cut {
        /// Seconds.
        seconds: f64,
        /// Seconds of it.
        beginning: f64,
    },
}

/// What a server is made to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    /// Of which kind.
    pub(crate) kind: Kind,
    /// Bytes of a body, of a response or an upload.
    pub(crate) body: u64,
    /// Connections at a time.
    pub(crate) connections: u32,
    /// Requests at a time on each.
    pub(crate) streams: u32,
    /// How much.
    pub(crate) amount: Amount,
    /// Who loads.
    pub(crate) generator: Generator,
    /// Sessions are resumed.
    pub(crate) resume: bool,
}

/// Where a load goes.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// IP address and port.
    pub(crate) address: &'a str,
    /// What is spoken.
    pub(crate) kind: contender::Kind,
    /// The protocol of a contender with HTTP/3, and the group of TLS that clients offer alone.
    pub(crate) front: Http,
    pub(crate) group: Option<Group>,
    /// The certificate that is trusted.
    pub(crate) certificate: &'a Path,
    /// The requested path.
    pub(crate) path: &'a str,
    /// Packets can get lost.
    pub(crate) over_a_path: bool,
    /// What the client creates when the beginning of a load that is cut is over.
    pub(crate) mark: Option<&'a Path>,
    /// The SHA-256 of its public key in base64.
    pub(crate) spki: &'a str,
    /// Where the client reads what it costs.
    pub(crate) meter: Option<&'a Meter>,
    /// Whether the client's calls that receive are counted.
    pub(crate) count: bool,
    /// CRC-32 of the response, where it is known.
    pub(crate) crc32: Option<u32>,
    /// For h2load: the file that is uploaded.
    pub(crate) upload: &'a Path,
}

impl Target<'_> {
    /// The protocol that clients speak.
    fn http(&self) -> Http {
        if self.kind == contender::Kind::H1 { Http::One } else { self.front }
    }
}

/// The result of a load, from any client.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Requests answered rightly, handshakes completed, connections held.
    pub(crate) done: f64,
    /// Bytes of bodies, either way.
    pub(crate) bytes: f64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Further figures by name, as in `report::figures`.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Load {
    /// What a contender does that does not bear so few ACKs.
    pub(crate) fn beyond<'a>(&self, contender: &'a Contender) -> Option<&'a str> {
        let Generator::Own { ack_threshold, .. } = &self.generator else { return None };
        let (wanted, bears) = (ack_threshold.parse::<u32>().ok()?, contender.bears.as_ref()?);
        (wanted > bears.packets_per_ack).then_some(bears.otherwise.as_str())
    }

    /// Its duration, if it is fixed.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match self.amount {
            Amount::Seconds(seconds) | Amount::Cut { seconds, .. } => Some(seconds),
            Amount::Requests(_) | Amount::InTurn(_) => None,
        }
    }

    /// In words, for reports.
    pub(crate) fn describe(&self) -> String {
        let body = size(self.body);
        let connections =
            if self.connections == 1 { "1 connection" } else { &format!("{} connections", self.connections) };
        let streams = format!("{} at a time", self.streams);
        let amount = match self.amount {
            Amount::Requests(requests) => format!("{requests}"),
            Amount::InTurn(requests) => format!("{requests} in turn"),
            Amount::Seconds(seconds) | Amount::Cut { seconds, .. } => format!("for {seconds} s"),
        };
        let what = match self.kind {
            Kind::Download | Kind::Small => format!("GET {body}, {amount}, {connections} × {streams}"),
            Kind::Upload => format!("POST {body}, {amount}, {connections} × {streams}"),
            Kind::Handshakes => format!(
                "handshakes{}, {amount}, {connections} at a time",
                if self.resume { " with tickets" } else { "" }
            ),
            Kind::Idle => format!("{connections} idle, {amount}"),
        };
        match &self.generator {
            Generator::Own { ack_threshold, gro, faults, delay, receiver, bulk } => {
                let mut text = format!("{what}; {ack_threshold} packets an ACK{}", if *gro { "" } else { ", no GRO" });
                for (count, what) in [(faults.lose, "lost"), (faults.hold, "overtaken")] {
                    if count > 0 {
                        text += &format!("; {count} datagrams of a million {what}");
                    }
                }
                if *delay > 0 {
                    text += &format!("; {delay} ms to the client");
                }
                if receiver.pause > 0 {
                    text += &format!("; {} ms of sleep after each hundred datagrams", receiver.pause);
                }
                if receiver.one {
                    text += "; one message a call";
                }
                match receiver.buffer {
                    None => {}
                    Some(0) => text += "; sockets of the default size",
                    Some(bytes) => text += &format!("; sockets that request {bytes} bytes"),
                }
                if let Some(Bulk { body, priority }) = bulk {
                    text += &format!("; a download of {} on each connection", size(*body));
                    text += &priority.map(|field| format!(", the others with `Priority: {field}`")).unwrap_or_default();
                }
                text
            }
            Generator::H2load | Generator::Counting => format!("{what}; h2load"),
            Generator::Mix(paths, rate) => {
                let rate = rate.map(|rate| format!(", {} a second", rate * self.connections)).unwrap_or_default();
                format!("GET {} paths in turn, {amount}{rate}, {connections} × {streams}; h2load", paths.len())
            }
            Generator::Client(client) => format!("{what}; {}", client.name()),
            Generator::Viewers(viewers) => {
                let seconds = self.seconds().unwrap_or_default();
                format!("{} viewers for {seconds} s, {}", self.connections, viewers.describe())
            }
        }
    }

    /// The command line; `own` is this program, `other` that of another client.
    pub(crate) fn command(&self, target: &Target, own: &Path, other: Option<&Path>) -> Result<Vec<String>> {
        match &self.generator {
            _ if target.kind == contender::Kind::Floor => self.floor_command(target, own),
            Generator::Own { ack_threshold, gro, faults, delay, receiver, bulk } => {
                let mut command = self.own_command(target, own, ack_threshold, *gro, (*faults, *delay));
                if target.kind != contender::Kind::H1 {
                    command.extend(receiver.options());
                    command.extend(bulk.iter().copied().flat_map(Bulk::options));
                }
                Ok(command)
            }
            Generator::H2load | Generator::Counting | Generator::Mix(..) => {
                self.h2load_command(target, other.context("h2load is not installed")?)
            }
            Generator::Client(client) => self.client_command(target, own, *client, other),
            Generator::Viewers(viewers) => self.viewers_command(target, own, viewers, other),
        }
    }

    fn client_command(
        &self,
        target: &Target,
        own: &Path,
        client: Client,
        program: Option<&Path>,
    ) -> Result<Vec<String>> {
        let program = program.with_context(|| format!("{} is not installed", client.name()))?;
        let cut = match self.amount {
            Amount::Requests(1) if self.connections == 1 => None,
            Amount::Cut { seconds, beginning } if self.connections == 1 => Some((seconds, beginning)),
            _ => bail!("{} has one download only", client.name()),
        };
        let order = Order {
            client,
            program,
            http: target.http(),
            address: target.address,
            ca: target.certificate,
            spki: target.spki,
            path: target.path,
            bytes: self.body,
            crc32: target.crc32.context("a body without a checksum")?,
            cut,
            mark: target.mark,
            meter: target.meter,
            count: target.count,
        };
        Ok(order.command(own))
    }

    fn viewers_command(
        &self,
        target: &Target,
        own: &Path,
        viewers: &Viewers,
        browser: Option<&Path>,
    ) -> Result<Vec<String>> {
        let Viewers { player, ladder, segment, spread, video } = viewers;
        let h1 = target.kind == contender::Kind::H1;
        let seconds = self.seconds().unwrap_or_default();
        let (word, options) = match player {
            Player::Emulated(rule) => {
                let ladder: Vec<String> = ladder.iter().map(u32::to_string).collect();
                let template = if *video { "/media/segment-QUALITY-NUMBER.m4s" } else { "/bBYTES" };
                let options = vec![
                    ("--protocol", if h1 { "h1" } else { "h3" }.to_owned()),
                    ("--ca", target.certificate.display().to_string()),
                    ("--rule", rule.argument()),
                    ("--spread", spread.to_string()),
                    ("--ladder", ladder.join(",")),
                    ("--duration", segment.to_string()),
                    // More than can be watched.
                    ("--segments", format!("{:.0}", (seconds + 60.0) / f64::from(*segment))),
                    ("--template", template.to_owned()),
                ];
                ("watch", options)
            }
            Player::DashJs(rule) => {
                let browser = browser.context("Chromium is not installed")?;
                let options = vec![
                    ("--http", target.http().argument()),
                    ("--program", browser.display().to_string()),
                    ("--spki", target.spki.to_owned()),
                    ("--rule", rule.argument()),
                ];
                ("watch-real", options)
            }
        };
        let both = [
            ("--address", target.address.to_owned()),
            ("--count", self.connections.to_string()),
            ("--seconds", seconds.to_string()),
        ];
        let options = options.into_iter().chain(both).flat_map(|(name, value)| [name.to_owned(), value]);
        Ok([own.display().to_string(), word.to_owned()].into_iter().chain(options).collect())
    }

    fn floor_command(&self, target: &Target, own: &Path) -> Result<Vec<String>> {
        let (Kind::Download, Amount::Requests(requests)) = (self.kind, self.amount) else {
            bail!("the floor has downloads only");
        };
        let (own, requests) = (own.display().to_string(), requests.to_string());
        let command =
            [&own, "floor-client", "--address", target.address, "--path", target.path, "--requests", &requests];
        Ok(command.map(str::to_owned).to_vec())
    }

    fn own_command(
        &self,
        target: &Target,
        own: &Path,
        ack_threshold: &str,
        gro: bool,
        (faults, delay): (Faults, u32),
    ) -> Vec<String> {
        let h1 = target.kind == contender::Kind::H1;
        let kind = match self.kind {
            Kind::Download => "download",
            Kind::Upload => "upload",
            Kind::Small => "small",
            Kind::Handshakes => "handshakes",
            Kind::Idle => "idle",
        };
        let mut command = vec![own.display().to_string(), "load".to_owned(), kind.to_owned()];
        let mut put = |name: &str, value: String| command.extend([name.to_owned(), value]);
        put("--protocol", if h1 { "h1" } else { "h3" }.to_owned());
        put("--address", target.address.to_owned());
        put("--name", "localhost".to_owned());
        put("--ca", target.certificate.display().to_string());
        put("--connections", self.connections.to_string());
        // HTTP/1.1 has one request at a time on a connection.
        put("--streams", if h1 { 1 } else { self.streams }.to_string());
        match (self.kind, self.amount) {
            (Kind::Idle, Amount::Requests(_) | Amount::InTurn(_)) => {}
            (_, Amount::Requests(requests) | Amount::InTurn(requests)) => put("--requests", requests.to_string()),
            (_, Amount::Seconds(seconds)) => put("--seconds", seconds.to_string()),
            (_, Amount::Cut { seconds, beginning }) => {
                put("--seconds", seconds.to_string());
                put("--beginning", beginning.to_string());
                if let Some(mark) = target.mark {
                    put("--mark", mark.display().to_string());
                }
            }
        }
        // Idle connections each get one request at the end.
        if self.kind != Kind::Handshakes {
            put("--path", target.path.to_owned());
            put("--bytes", self.body.to_string());
            if let Some(crc32) = target.crc32 {
                put("--expect-hash", format!("{crc32:08x}"));
            }
        }
        if !h1 {
            put("--ack-threshold", ack_threshold.to_owned());
            put("--gro", if gro { "on" } else { "off" }.to_owned());
        }
        if let Some(group) = target.group {
            put("--group", group.argument());
        }
        if !h1 && !faults.is_none() {
            put("--lose", faults.lose.to_string());
            put("--hold", faults.hold.to_string());
        }
        if !h1 && delay > 0 {
            put("--delay", delay.to_string());
        }
        match self.amount {
            Amount::Cut { .. } => command.push("--cut".to_owned()),
            Amount::InTurn(_) => command.push("--in-turn".to_owned()),
            Amount::Requests(_) | Amount::Seconds(_) => {}
        }
        if !h1 && (!faults.is_none() || target.over_a_path) {
            // What is missing is missing: clients say so at once (RFC 9000 §13.2.1).
            command.push("--ack-gaps".to_owned());
        }
        // CPU is read around the whole process: its warm-up would be counted and not reported. Tickets need it.
        if self.resume {
            command.push("--resume".to_owned());
        } else {
            command.extend(["--warmup".to_owned(), "0".to_owned()]);
        }
        command.push("--json".to_owned());
        command
    }

    fn h2load_command(&self, target: &Target, h2load: &Path) -> Result<Vec<String>> {
        let Amount::Requests(requests) = self.amount else { bail!("h2load is used with a number of requests only") };
        let front = target.http();
        let mut command = vec![h2load.display().to_string()];
        command.extend(front.h2load_option().map(str::to_owned));
        command.extend([
            "-t1".to_owned(),
            format!("-c{}", self.connections),
            format!("-m{}", if front == Http::One { 1 } else { self.streams }),
            format!("-n{requests}"),
            "--tls13-ciphers=TLS_AES_128_GCM_SHA256".to_owned(),
        ]);
        match self.kind {
            Kind::Download | Kind::Small => {}
            Kind::Upload => command.extend(["-d".to_owned(), target.upload.display().to_string()]),
            Kind::Handshakes | Kind::Idle => bail!("h2load is used for requests only"),
        }
        if let Generator::Mix(_, rate) = &self.generator {
            command.extend(["-H", "accept-encoding: br;q=1, gzip;q=0.8"].map(str::to_owned));
            command.extend(rate.map(|rate| format!("--rps={rate}")));
        }
        let paths = match &self.generator {
            Generator::Mix(paths, _) => paths.as_slice(),
            _ => &[target.path.to_owned()],
        };
        command.extend(paths.iter().map(|path| format!("https://{}{path}", target.address)));
        Ok(command)
    }

    /// Reads what the client printed. An error: the run is void, and why. Over a path with a delay timers cause as many
    /// ACKs as thresholds do: the result is reported, and not checked.
    pub(crate) fn outcome(&self, kind: contender::Kind, over_a_path: bool, stdout: &str) -> Result<Outcome> {
        let outcome = match &self.generator {
            _ if kind == contender::Kind::Floor => floor_outcome(stdout)?,
            Generator::Own { .. } => own_outcome(stdout)?,
            Generator::H2load => h2load_outcome(self, stdout)?,
            Generator::Counting | Generator::Mix(..) => return counted_outcome(stdout),
            Generator::Client(_) => client_outcome(stdout)?,
            Generator::Viewers(_) => viewers_outcome(stdout)?,
        };
        if let Amount::Requests(requests) | Amount::InTurn(requests) = self.amount
            && self.kind != Kind::Idle
        {
            let wanted = requests as f64;
            if outcome.done != wanted {
                bail!("{} of {wanted} requests were answered", outcome.done);
            }
            let bytes = wanted * self.body as f64;
            if matches!(self.kind, Kind::Download | Kind::Small) && outcome.bytes != bytes {
                bail!("{} of {bytes} bytes came", outcome.bytes);
            }
        }
        if !over_a_path {
            self.verify_threshold(&outcome)?;
        }
        let abandons = matches!(self.amount, Amount::Cut { .. }) && outcome.bytes > 0.0;
        if outcome.done == 0.0 && !abandons || outcome.seconds <= 0.0 {
            bail!("nothing was done");
        }
        Ok(outcome)
    }
}

fn own_outcome(stdout: &str) -> Result<Outcome> {
    let report: LoadReport = serde_json::from_str(stdout.trim()).context("the load generator's report")?;
    if let Some(void) = report.void {
        bail!("{void}");
    }
    if report.requests_failed > 0 {
        bail!("{} requests failed: {}", report.requests_failed, report.errors.join(", "));
    }
    let mut figures = BTreeMap::new();
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    if report.latency.count > 0 {
        put("p50_us", report.latency.p50_us as f64);
        put("p99_us", report.latency.p99_us as f64);
    }
    if report.first_byte.count > 0 {
        put("first_byte_us", report.first_byte.p50_us as f64);
    }
    for (name, latency) in [("first_us", &report.first), ("later_us", &report.later)] {
        if let Some(latency) = latency.as_ref().filter(|latency| latency.count > 0) {
            put(name, latency.p50_us as f64);
        }
    }
    put("client_cpu", report.client_cpu_seconds);
    if report.kind == Kind::Handshakes {
        put("resumed", report.resumed as f64);
        if let Some(quic) = &report.quic {
            let each = |count: u64| count as f64 / report.handshakes.max(1) as f64;
            put("handshake_bytes_up", each(quic.bytes_sent));
            put("handshake_bytes_down", each(quic.bytes_received));
            put("handshake_datagrams_up", each(quic.datagrams_sent));
            put("handshake_datagrams_down", each(quic.datagrams_received));
        }
    }
    if let Some(quic) = &report.quic {
        put("packets", quic.packets_received as f64);
        put("packets_per_ack", quic.packets_per_ack);
        put("ack_frequency", quic.ack_frequency_frames as f64);
        put("missing", quic.packets_missing as f64);
        put("client_rtt_us", quic.rtt_us as f64);
        put("receive_calls", quic.receive_calls as f64);
        if quic.packets_received > 0 {
            let of_a_million = 1e6 / (quic.packets_received + quic.lost_on_purpose) as f64;
            put("lost_on_the_way", quic.lost_on_purpose as f64 * of_a_million);
            put("overtaken", quic.reordered_on_purpose as f64 * of_a_million);
        }
    }
    let done = if report.kind == Kind::Handshakes { report.handshakes } else { report.requests_ok } as f64;
    let bytes = (report.body_bytes_received + report.body_bytes_sent) as f64;
    let Some(Steady { body_bytes, seconds }) = report.steady else {
        return Ok(Outcome { done, bytes, seconds: report.wall_seconds, figures });
    };
    let (after, mbit) = (body_bytes as f64, |bytes: f64, seconds: f64| bytes * 8e-6 / seconds);
    figures.insert("steady".to_owned(), mbit(after, seconds));
    figures.insert("goodput".to_owned(), mbit(bytes, report.wall_seconds));
    Ok(Outcome { done, bytes: after, seconds, figures })
}

fn client_outcome(stdout: &str) -> Result<Outcome> {
    let Fetched { bytes, seconds, steady, whole, costs, calls } =
        serde_json::from_str(stdout.trim()).context("the client's report")?;
    let (done, bytes) = (if whole { 1.0 } else { 0.0 }, bytes as f64);
    let mbit = |bytes: f64, seconds: f64| bytes * 8e-6 / seconds;
    let mut figures = BTreeMap::from([("goodput".to_owned(), mbit(bytes, seconds))]);
    if let Some(costs) = costs {
        figures.extend(costs.figures(bytes));
    }
    let skbs = calls.get(SKBS).copied();
    figures.extend(skbs.map(|skbs| ("receiver_packets".to_owned(), skbs)));
    let calls: BTreeMap<String, f64> = calls.into_iter().filter(|(name, _)| name != SKBS).collect();
    if !calls.is_empty() {
        figures.insert("receiver_calls".to_owned(), calls.values().sum());
        figures.extend(calls.into_iter().map(|(name, count)| (format!("calls/{name}"), count)));
    }
    let Some((after, time)) = steady else { return Ok(Outcome { done, bytes, seconds, figures }) };
    figures.insert("steady".to_owned(), mbit(after as f64, time));
    Ok(Outcome { done, bytes: after as f64, seconds: time, figures })
}

fn viewers_outcome(stdout: &str) -> Result<Outcome> {
    let report: viewer::Report = serde_json::from_str(stdout.trim()).context("the viewers' report")?;
    let (done, bytes) = (report.viewers.len() as f64, report.bytes as f64);
    Ok(Outcome { done, bytes, seconds: report.seconds, figures: report.figures() })
}

impl Load {
    /// An ACK threshold counts only as it was. Short transfers have many ACKs that their end or a timer causes.
    fn verify_threshold(&self, outcome: &Outcome) -> Result<()> {
        let (Generator::Own { ack_threshold, .. }, Kind::Download) = (&self.generator, self.kind) else {
            return Ok(());
        };
        let figure = |name: &str| outcome.figures.get(name).copied();
        let (Ok(wanted), Some(was), Some(packets)) =
            (ack_threshold.parse::<f64>(), figure("packets_per_ack"), figure("packets"))
        else {
            return Ok(());
        };
        let is_long = packets / f64::from(self.connections) >= wanted * LONG;
        if is_long && (was - wanted).abs() > wanted * TOLERANCE {
            bail!("an ACK every {was:.1} packets rather than every {wanted}");
        }
        Ok(())
    }
}

/// Reads what the floor's client counted.
fn floor_outcome(stdout: &str) -> Result<Outcome> {
    let counted: floor::Counted = serde_json::from_str(stdout.trim()).context("the floor's client")?;
    let missing = counted.sent.saturating_sub(counted.received) as f64 / counted.sent.max(1) as f64;
    if missing > FLOOR_LOSS {
        bail!("{:.1} % of the floor's datagrams were lost", missing * 100.0);
    }
    let figures = BTreeMap::from([("lost".to_owned(), missing * 100.0)]);
    Ok(Outcome { done: counted.done as f64, bytes: counted.sent as f64, seconds: counted.seconds, figures })
}

/// Reads h2load's text, with requests that were rejected or not answered as figures: costs are those of a success.
fn counted_outcome(text: &str) -> Result<Outcome> {
    let counts = h2load::Counts::read(text)?;
    if counts.succeeded == 0.0 {
        bail!("none of {} requests had a status of success", counts.total);
    }
    let mut figures = BTreeMap::from([
        ("failures".to_owned(), counts.total - counts.succeeded),
        ("status_5xx".to_owned(), counts.status_5xx),
        ("unanswered".to_owned(), counts.unanswered),
    ]);
    if let Some((median, p99)) = h2load::latency(text) {
        figures.extend([("p50_us".to_owned(), median * 1e6), ("p99_us".to_owned(), p99 * 1e6)]);
    }
    Ok(Outcome { done: counts.succeeded, bytes: counts.bytes, seconds: counts.seconds, figures })
}

/// Reads h2load's text. For uploads it has the bytes of the response; the sink's answer has those of the request.
fn h2load_outcome(load: &Load, text: &str) -> Result<Outcome> {
    let number_before = |marker: &str| -> Option<f64> {
        let before = text.split_once(marker)?.0;
        let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next()?;
        word.parse().ok()
    };
    let said = |what: &str| format!("h2load's output lacks {what}: {}", text.trim().lines().last().unwrap_or_default());
    let done = number_before(" succeeded").with_context(|| said("requests"))?;
    let right = number_before(" 2xx").with_context(|| said("statuses"))?;
    if right != done {
        bail!("{right} of {done} answers had a status of success");
    }
    let mut bytes = number_before(") data").with_context(|| said("bytes"))?;
    if load.kind == Kind::Upload {
        let answers = done * sink::answer_to(load.body).len() as f64;
        if bytes != answers {
            bail!("{bytes} bytes of answers came rather than {answers}: not every upload arrived whole");
        }
        bytes = done * load.body as f64;
    }
    let finished = text.split_once("finished in ").and_then(|(_, rest)| rest.split_once(',')).map(|(time, _)| time);
    let seconds = finished.and_then(h2load::read_seconds).with_context(|| said("duration"))?;
    let mut figures = BTreeMap::new();
    if let (Some(sent), Some(received)) = (
        text.split_once("UDP datagram: ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok()),
        number_before(" received"),
    ) && sent > 0.0
    {
        figures.insert("packets_per_ack".to_owned(), received / sent);
    }
    Ok(Outcome { done, bytes, seconds, figures })
}

/// A number of bytes in words.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{} MB", bytes as f64 / 1e6),
        _ => format!("{} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests;

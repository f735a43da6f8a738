//! `/status` as a screen of text for people. Pure: from two answers to lines. A value that is missing, or of another
//! kind than expected, as in an older or a younger litequic, shows as `-`.

use litequic_admin::{CertificateStatus, MaintenanceStatus, Nullable, OriginStatus, Samples, Status, WorkerStatus};
use serde::{Deserialize, de::IgnoredAny};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Columns of the screen.
const WIDTH: usize = 80;
/// Rows of a table; of what is left out the last row says how many there are.
const MOST_ROWS: usize = 8;
/// Bytes of a version, which messages repeat.
const MAX_VERSION: usize = 40;
/// Seconds without a turn from which on a worker counts as hung, as in `/healthz`.
const HANGS: f64 = 5.0;
/// Limits that any large transfer reaches: the sender waits, and nothing is lost.
const FLOW_CONTROL: &[&str] =
    &["stream_receive_buffer", "connection_receive_buffer", "worker_receive_buffer", "send_buffer", "max_streams"];
/// An unknown value.
const UNKNOWN: &str = "-";
/// The last second that RFC 3339 can write.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// What every version's status has.
#[derive(Deserialize)]
struct Sign {
    version: String,
    #[serde(rename = "phase")]
    _phase: String,
    #[serde(rename = "workers")]
    _workers: Vec<IgnoredAny>,
}

/// The version of the litequic that answered `body` to a request for its status; `None` if it is not a status.
pub(super) fn version(body: &[u8]) -> Option<String> {
    let Sign { version, .. } = serde_json::from_slice(body).ok()?;
    let is_short = version.len() <= MAX_VERSION && version.bytes().all(|byte| byte.is_ascii_graphic());
    is_short.then_some(version)
}

/// The screen for the answer `now`. Rates are computed from the answer `before`, of the same process.
pub(super) fn render(now: &Status, before: Option<&Status>, colour: bool) -> String {
    let look = Look { now, before: before.filter(|before| is_same_process(before, now)) };
    let mut screen = Screen { text: String::new(), colour };
    look.head(&mut screen);
    look.traffic(&mut screen);
    look.routes(&mut screen);
    look.origins(&mut screen);
    look.certificates(&mut screen);
    look.limits(&mut screen);
    look.configuration(&mut screen);
    screen.text
}

/// Whether counters continue from one answer to the other.
fn is_same_process(before: &Status, now: &Status) -> bool {
    before.generation == now.generation
        && before.uptime.zip(now.uptime).is_none_or(|(before, now)| before <= now)
        && metric(before, "connections").zip(metric(now, "connections")).is_none_or(|(before, now)| before <= now)
}

/// Two answers.
struct Look<'a> {
    now: &'a Status,
    before: Option<&'a Status>,
}

impl<'a> Look<'a> {
    fn head(&self, screen: &mut Screen) {
        let now = self.now;
        // By its name in the answer.
        let phase = now.phase.map_or(UNKNOWN.into(), |phase| format!("{phase:?}").to_lowercase());
        let tone = if phase == "ready" { Tone::Good } else { Tone::Bad };
        let mut parts = vec![
            Part::of("litequic ").toned(Tone::Strong),
            Part::of(text(now.version.as_deref())).toned(Tone::Strong),
            Part::of("  "),
            Part::of(phase).toned(tone),
            Part::of(format!("  up {}", now.uptime.map_or(UNKNOWN.into(), duration))),
        ];
        if let Some(generation) = now.generation.filter(|generation| *generation > 0) {
            parts.push(Part::of(format!("  generation {generation}")));
        }
        if let Some(older) = now.older_processes.filter(|older| *older > 0) {
            parts.push(Part::of(format!("  older processes: {older}")).toned(Tone::Warning));
        }
        screen.line(parts);
        for problem in &now.problems {
            for (row, line) in wrapped(&text(Some(problem))).iter().take(MOST_ROWS).enumerate() {
                let mark = if row == 0 { "! " } else { "  " };
                screen.line(vec![Part::of(format!("{mark}{line}")).toned(Tone::Bad)]);
            }
        }

        let workers = &now.workers;
        let mut parts = vec![Part::of(format!("workers {}  ", workers.len()))];
        let hanging: Vec<String> = workers.iter().filter(|worker| hangs(worker)).map(hanging).collect();
        parts.push(match (workers.is_empty(), hanging.as_slice()) {
            (true, _) => Part::of(UNKNOWN),
            (false, []) => Part::of("all respond").toned(Tone::Good),
            (false, _) => Part::of(hanging.join(", ")).toned(Tone::Bad),
        });
        let cpu = self.rate_of(|status| status.process.cpu_seconds);
        let cpu = cpu.map_or(UNKNOWN.into(), |cores| format!("{:.0} % of a core", cores * 100.0));
        parts.push(Part::of(format!("  CPU {cpu}")));
        let resident = float(now.process.resident_bytes).map_or(UNKNOWN.into(), bytes);
        parts.push(Part::of(format!("  in RAM {resident}")));
        parts.push(Part::of(format!("  open files {}", count(float(now.process.open_files)))));
        screen.line(parts);

        let (used, limit) = (float(now.memory.used), float(now.memory.limit));
        let mut parts = match limit {
            Some(limit) if limit > 0.0 => {
                let step = text(now.memory.step.as_deref());
                let tone = if step == "normal" { Tone::Good } else { Tone::Bad };
                let used = used.map_or(UNKNOWN.into(), bytes);
                vec![Part::of(format!("memory {used} of {}: ", bytes(limit))), Part::of(step).toned(tone)]
            }
            Some(_) => vec![Part::of("memory without a limit")],
            None => vec![Part::of(format!("memory {UNKNOWN}"))],
        };
        parts.push(Part::of("  HTTP/3 "));
        parts.push(self.http3());
        screen.line(parts);

        if let Some(traces) = now.traces.value() {
            let to = Part::of(format!("traces to {}: ", text(traces.endpoint.as_deref())));
            let state = match (traces.problem.value(), traces.accepted_at.value()) {
                (Some(_), Some(at)) => {
                    Part::of(format!("failing, accepted last {}", time(Some(*at as f64)))).toned(Tone::Bad)
                }
                (Some(_), None) => Part::of("failing, none accepted yet").toned(Tone::Bad),
                (None, Some(at)) => Part::of(format!("accepted {}", time(Some(*at as f64)))).toned(Tone::Good),
                (None, None) => Part::of("none accepted yet"),
            };
            screen.line(vec![to, state]);
        }

        let target = |one: &MaintenanceStatus| match &one.target {
            Nullable::Null => "all routes".to_owned(),
            target => text(target.value().map(String::as_str)),
        };
        if let Some(denied) = now.denied_networks.filter(|denied| *denied > 0) {
            let networks = if denied == 1 { "network" } else { "networks" };
            screen
                .line(vec![Part::of(format!("{denied} {networks} denied: litequic ctl denied")).toned(Tone::Warning)]);
        }
        let maintenance: Vec<String> = now.maintenance.iter().map(target).collect();
        if !maintenance.is_empty() {
            screen.line(vec![Part::of(format!("in maintenance: {}", maintenance.join(", "))).toned(Tone::Warning)]);
        }
    }

    /// Whether HTTP/3 is served, and by what.
    fn http3(&self) -> Part {
        match (self.now.http3.on, self.now.http3.configured) {
            (Some(true), Some(false)) => Part::of("on by litequic ctl").toned(Tone::Warning),
            (Some(true), _) => Part::of("on").toned(Tone::Good),
            (Some(false), Some(true)) => Part::of("off by litequic ctl").toned(Tone::Bad),
            (Some(false), Some(false)) => Part::of("off by listen.http3").toned(Tone::Warning),
            (Some(false), None) => Part::of("off").toned(Tone::Bad),
            (None, _) => Part::of(UNKNOWN),
        }
    }

    fn traffic(&self, screen: &mut Screen) {
        screen.heading(&[("", -14), ("open", 10), ("connections", 15), ("requests", 15), ("a second", 12)]);
        let open_over_tcp = || count(self.metric("tcp_connections_open"));
        for (name, open, connections, protocol) in [
            ("HTTP/3", count(self.metric("connections_open")), "connections".to_owned(), "h3"),
            ("HTTP/2", String::new(), "tcp_connections{protocol=\"h2\"}".into(), "h2"),
            ("HTTP/1.1", String::new(), "tcp_connections{protocol=\"h1\"}".into(), "h1"),
        ] {
            let requests = format!("requests{{protocol=\"{protocol}\"}}");
            screen.line(vec![
                Part::of(name).wide(-14),
                Part::of(open).wide(10),
                Part::of(count(self.metric(&connections))).wide(15),
                Part::of(count(self.metric(&requests))).wide(15),
                Part::of(rate(self.rate(&requests))).wide(12),
            ]);
        }
        screen.line(vec![Part::of("both over TCP").wide(-14), Part::of(open_over_tcp()).wide(10)]);
        let speed = |name: &str| self.rate(name).map_or(UNKNOWN.into(), |rate| format!("{}/s", bytes(rate)));
        let failing = self.rate("responses{class=\"5xx\"}");
        let tone = if failing.is_some_and(|rate| rate > 0.0) { Tone::Bad } else { Tone::Plain };
        screen.line(vec![
            Part::of(format!("requests open {}", count(self.metric("requests_open")))),
            Part::of(format!("  to clients {}", speed("response_body_bytes"))),
            Part::of(format!("  from clients {}  ", speed("request_body_bytes"))),
            Part::of(format!("5xx {}/s", rate(failing))).toned(tone),
        ]);
    }

    fn routes(&self, screen: &mut Screen) {
        screen.heading(&[("route", -34), ("responses", 12), ("a second", 10), ("to clients", 12), ("a second", 12)]);
        let in_maintenance = self.now.maintenance.iter().flat_map(|one| &one.routes);
        // As metrics name it.
        let in_maintenance: BTreeSet<String> = in_maintenance.map(|name| name.replace(['"', '\\'], "_")).collect();
        let responses_before = self.before.map(responses_by_route).unwrap_or_default();
        let row = |(name, responses): (&'a str, f64)| {
            let sent = format!("route_response_body_bytes{{route=\"{name}\"}}");
            let before = responses_before.get(name);
            Route {
                name,
                is_in_maintenance: in_maintenance.contains(name),
                responses,
                responses_a_second: before.and_then(|before| self.a_second(responses, *before)),
                sent: self.metric(&sent),
                sent_a_second: self.rate(&sent),
            }
        };
        let mut routes: Vec<Route<'_>> = responses_by_route(self.now).into_iter().map(row).collect();
        if routes.len() > MOST_ROWS {
            // Those in maintenance, then those with the most bytes now, then ever.
            routes.sort_by(|one, other| {
                let now = |route: &Route<'_>| route.sent_a_second.unwrap_or(0.0);
                let ever = |route: &Route<'_>| route.sent.unwrap_or(0.0);
                let first = other.is_in_maintenance.cmp(&one.is_in_maintenance);
                first.then(now(other).total_cmp(&now(one))).then(ever(other).total_cmp(&ever(one)))
            });
        }
        screen.rows(&routes, Route::parts);
    }

    fn origins(&self, screen: &mut Screen) {
        screen.heading(&[("origin", -14), ("server", -30), ("state", -36)]);
        let workers = self.now.workers.len();
        // Problems come first, if not all are shown.
        let mut servers: Vec<_> = self.now.origins.iter().map(|server| (server, state(server, workers))).collect();
        if servers.len() > MOST_ROWS {
            servers.sort_by_key(|(_, (_, tone))| *tone == Tone::Good);
        }
        screen.rows(&servers, |(server, (state, tone))| {
            vec![
                Part::of(text(server.name.as_deref())).wide(-14),
                Part::of(text(server.address.as_deref())).wide(-30),
                Part::of(state.clone()).wide(-36).toned(*tone),
            ]
        });
    }

    fn certificates(&self, screen: &mut Screen) {
        screen.heading(&[("certificate", -44), ("days left", 10), ("", -2), ("state", -24)]);
        let now = self.now.time;
        let mut all: Vec<_> = self.now.certificates.iter().map(|one| (one, validity(one, now))).collect();
        if all.len() > MOST_ROWS {
            all.sort_by_key(|(_, (_, tone))| *tone == Tone::Good);
        }
        screen.rows(&all, |(certificate, (state, tone))| {
            let names: Vec<String> = certificate.names.iter().map(|name| text(Some(name))).collect();
            let algorithm = certificate.algorithm.as_deref().map(|algorithm| format!("{}: ", text(Some(algorithm))));
            let algorithm = algorithm.unwrap_or_default();
            let left = float(certificate.expires).zip(now).map(|(expires, now)| (expires - now) / 86_400.0);
            vec![
                Part::of(algorithm + &if names.is_empty() { UNKNOWN.into() } else { names.join(", ") }).wide(-44),
                Part::of(left.map_or(UNKNOWN.into(), |days| format!("{:.0}", days.floor()))).wide(10).toned(*tone),
                Part::of("  "),
                Part::of(state.clone()).wide(-24).toned(*tone),
            ]
        });
    }

    /// The limits and timeouts that were reached; flow control, which slows large transfers down, comes last.
    fn limits(&self, screen: &mut Screen) {
        let reached = |family: &str, name: &str| {
            let prefix = format!("{family}{{");
            let all = metrics(self.now).filter(|(key, count)| key.starts_with(&prefix) && *count > 0.0);
            let named = |key: &str| {
                let label = label(key);
                let name = if FLOW_CONTROL.contains(&&*label) { "flow control" } else { name };
                format!("{name} {label}")
            };
            all.map(|(key, count)| (key, named(key), count)).collect::<Vec<_>>()
        };
        let mut all = reached("limit_reached", "limit");
        all.extend(reached("timeouts", "timeout"));
        if all.is_empty() {
            let known = self.now.metrics.is_some();
            screen.blank();
            screen
                .line(vec![Part::of(format!("limits and timeouts reached: {}", if known { "none" } else { UNKNOWN }))]);
            return;
        }
        screen.heading(&[("limit or timeout", -44), ("reached", 15), ("a second", 12)]);
        // The one that is reached most often now, then ever.
        all.sort_by(|(one, first, once), (other, second, twice)| {
            let kinds = is_flow_control(first).cmp(&is_flow_control(second));
            let rates = self.rate(other).unwrap_or(0.0).total_cmp(&self.rate(one).unwrap_or(0.0));
            kinds.then(rates).then(twice.total_cmp(once))
        });
        screen.rows(&all, |(key, name, reached)| {
            let now = self.rate(key);
            let is_reached_now = now.is_some_and(|rate| rate > 0.0) && !is_flow_control(name);
            let tone = if is_reached_now { Tone::Warning } else { Tone::Plain };
            vec![
                Part::of(name.clone()).wide(-44),
                Part::of(count(Some(*reached))).wide(15),
                Part::of(rate(now)).wide(12).toned(tone),
            ]
        });
    }

    fn configuration(&self, screen: &mut Screen) {
        screen.blank();
        let of = &self.now.configuration;
        let read = time(float(of.read));
        screen.line(vec![Part::of(format!("configuration {}, read {read}", text(of.version.as_deref())))]);
        if let Some(since) = float(of.refused_since).filter(|since| *since > 0.0) {
            let refused = format!("the configuration file has been rejected since {}", time(Some(since)));
            screen.line(vec![Part::of(refused).toned(Tone::Bad)]);
        }
        match &self.now.last_reload {
            Nullable::Null => screen.line(vec![Part::of("last reload: none yet")]),
            Nullable::Value(last) => {
                let result = text(last.result.as_deref());
                let (at, by) = (time(float(last.at)), text(last.by.as_deref()));
                let (outcome, tone) = match (result.as_str(), last.lines.as_slice()) {
                    ("ok", []) => ("ok, nothing has changed".to_owned(), Tone::Good),
                    ("ok", _) => ("taken".into(), Tone::Good),
                    _ => (result, Tone::Bad),
                };
                let head = Part::of(format!("last reload {at} by {by}: "));
                screen.line(vec![head, Part::of(outcome).toned(tone)]);
                let pieces: Vec<String> = last.lines.iter().flat_map(|line| pieces(&text(Some(line)))).collect();
                for piece in pieces.iter().take(MOST_ROWS) {
                    screen.line(vec![Part::of("  "), Part::of(piece.clone())]);
                }
                if last.left_out.is_some_and(|left_out| left_out > 0) || pieces.len() > MOST_ROWS {
                    screen.line(vec![Part::of("  and more: see the log").toned(Tone::Dim)]);
                }
            }
            Nullable::Unknown => screen.line(vec![Part::of(format!("last reload: {UNKNOWN}"))]),
        }
    }

    fn metric(&self, name: &str) -> Option<f64> {
        metric(self.now, name)
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.rate_of(|status| metric(status, name))
    }

    /// How much more `read` finds a second.
    fn rate_of(&self, read: impl Fn(&'a Status) -> Option<f64>) -> Option<f64> {
        self.a_second(read(self.now)?, read(self.before?)?)
    }

    /// How much more a second `now` is than what was `before`.
    fn a_second(&self, now: f64, before: f64) -> Option<f64> {
        let seconds = self.now.time? - self.before?.time?;
        let more = now - before;
        (seconds > 0.0 && more >= 0.0).then(|| more / seconds)
    }
}

/// A row of the routes' table.
struct Route<'a> {
    name: &'a str,
    is_in_maintenance: bool,
    responses: f64,
    responses_a_second: Option<f64>,
    /// Bytes.
    sent: Option<f64>,
    sent_a_second: Option<f64>,
}

impl Route<'_> {
    fn parts(&self) -> Vec<Part> {
        const NAME: usize = 33;
        const MARK: &str = " (maintenance)";
        let name = clean(self.name);
        let (name, tone) = match self.is_in_maintenance {
            true => (cut(&name, NAME - MARK.len()) + MARK, Tone::Warning),
            false => (name, Tone::Plain),
        };
        let speed = self.sent_a_second.map_or(UNKNOWN.into(), |sent| format!("{}/s", bytes(sent)));
        vec![
            Part::of(name).wide(-34).toned(tone),
            Part::of(count(Some(self.responses))).wide(12),
            Part::of(rate(self.responses_a_second)).wide(10),
            Part::of(self.sent.map_or(UNKNOWN.into(), bytes)).wide(12),
            Part::of(speed).wide(12),
        ]
    }
}

/// Responses of each route, over all protocols and classes.
fn responses_by_route(status: &Status) -> BTreeMap<&str, f64> {
    let mut routes = BTreeMap::new();
    for (key, responses) in metrics(status) {
        let labels = key.strip_prefix("route_responses{route=\"");
        if let Some((name, _)) = labels.and_then(|labels| labels.rsplit_once("\",protocol=\"")) {
            *routes.entry(name).or_insert(0.0) += responses;
        }
    }
    routes
}

/// The state of an origin's server.
fn state(server: &OriginStatus, workers: usize) -> (String, Tone) {
    if let Some(problem) = server.problem.value() {
        return (clean(problem), Tone::Bad);
    }
    match server.ejected_by {
        Some(ejected) if ejected > 0 => (format!("ejected by {ejected} of {workers} workers"), Tone::Warning),
        None if server.problem == Nullable::Unknown => (UNKNOWN.into(), Tone::Plain),
        _ => match server.checked {
            Some(true) => ("healthy".into(), Tone::Good),
            _ => ("accepts connections".into(), Tone::Good),
        },
    }
}

/// The state of a certificate at `now`: a warning only once its renewal is overdue.
fn validity(certificate: &CertificateStatus, now: Option<f64>) -> (String, Tone) {
    if let [warning, ..] = certificate.warnings.as_slice() {
        return (text(Some(warning)), Tone::Bad);
    }
    match (float(certificate.expires), float(certificate.renew_by), now) {
        (Some(expires), _, Some(now)) if expires <= now => ("expired".into(), Tone::Bad),
        (_, Some(renew_by), Some(now)) if renew_by <= now => ("renewal is overdue".into(), Tone::Warning),
        (Some(_), _, Some(_)) => ("valid".into(), Tone::Good),
        _ => (UNKNOWN.into(), Tone::Plain),
    }
}

/// Whether a row of the limits is one of [`FLOW_CONTROL`].
fn is_flow_control(name: &str) -> bool {
    name.starts_with("flow control ")
}

fn hangs(worker: &WorkerStatus) -> bool {
    worker.seconds_since_turn.is_some_and(|seconds| seconds > HANGS)
}

fn hanging(worker: &WorkerStatus) -> String {
    let seconds = worker.seconds_since_turn.unwrap_or(0.0);
    format!("worker {} has hung for {seconds:.1} s", count(float(worker.worker)))
}

fn metrics(status: &Status) -> impl Iterator<Item = (&str, f64)> {
    let samples = status.metrics.iter().flat_map(|Samples(samples)| samples);
    samples.map(|(name, value)| (name.as_str(), *value as f64))
}

fn metric(status: &Status, name: &str) -> Option<f64> {
    float(status.metrics.as_ref()?.0.get(name).copied())
}

/// The value of a metric's only label.
fn label(key: &str) -> String {
    let value = key.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or(key, |(value, _)| value);
    clean(value)
}

fn float(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn text(value: Option<&str>) -> String {
    value.filter(|text| !text.is_empty()).map_or(UNKNOWN.into(), clean)
}

/// Without characters that a terminal would interpret.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A whole number, in groups of three digits.
fn count(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), |value| in_groups(&format!("{value:.0}")))
}

/// A whole number, in groups of three digits.
pub(super) fn grouped(value: u64) -> String {
    in_groups(&value.to_string())
}

fn in_groups(digits: &str) -> String {
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn rate(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.1}"))
}

pub(super) fn bytes(mut value: f64) -> String {
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    // What would be shown as 1000 is 1 of the next.
    while value >= 999.5
        && let Some(next) = units.next()
    {
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" || value >= 99.95 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Seconds, by the two largest units.
fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min {} s", whole % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Seconds since the Unix epoch.
fn time(seconds: Option<f64>) -> String {
    let seconds = seconds.filter(|seconds| (1.0..=LAST_SECOND).contains(seconds));
    let time = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?));
    time.map_or(UNKNOWN.into(), |time| {
        let text = humantime::format_rfc3339_seconds(time).to_string();
        text.replace('T', " ").replace('Z', " UTC")
    })
}

/// How a part is shown in colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Strong,
    Dim,
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// ECMA-48 §8.3.117 (SGR).
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// A piece of a line.
struct Part {
    text: String,
    tone: Tone,
}

impl Part {
    fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// Pads the text to `columns` columns: aligned right, or left if the number is negative. A left one has a blank
    /// behind it.
    fn wide(self, columns: isize) -> Self {
        let width = columns.unsigned_abs();
        let text = match columns {
            ..0 => format!("{:<width$} ", cut(&self.text, width.saturating_sub(1)), width = width.saturating_sub(1)),
            0.. => format!("{:>width$}", self.text),
        };
        Self { text, ..self }
    }
}

/// `text` in pieces that fit into a line with an indentation of two.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(WIDTH - 2).map(|piece| piece.iter().collect()).collect()
}

/// The words of `text` in lines that fit with an indentation of two.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(pieces(word)),
        }
    }
    lines
}

/// The first `width` characters; where there are more, `…` is the last.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Lines of at most [`WIDTH`] columns.
struct Screen {
    text: String,
    colour: bool,
}

impl Screen {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn line(&mut self, parts: Vec<Part>) {
        let mut left = WIDTH;
        let last = parts.len().saturating_sub(1);
        for (place, Part { text, tone }) in parts.into_iter().enumerate() {
            let text = if place == last { text.trim_end() } else { &text };
            let shown = cut(text, left);
            left -= shown.chars().count();
            // Writing to a String cannot fail.
            let _ = match tone.code() {
                code if self.colour && !code.is_empty() && !shown.is_empty() => {
                    write!(self.text, "{code}{shown}\x1b[0m")
                }
                _ => write!(self.text, "{shown}"),
            };
            if left == 0 {
                break;
            }
        }
        let end = self.text.trim_end_matches(' ').len();
        self.text.truncate(end);
        self.text.push('\n');
    }

    /// The head of a table: names, and columns as [`Part::wide`] takes them.
    fn heading(&mut self, columns: &[(&str, isize)]) {
        self.blank();
        self.line(columns.iter().map(|(name, width)| Part::of(*name).wide(*width).toned(Tone::Dim)).collect());
    }

    /// A table's rows, as far as there is room.
    fn rows<T>(&mut self, all: &[T], row: impl Fn(&T) -> Vec<Part>) {
        if all.is_empty() {
            self.line(vec![Part::of(UNKNOWN)]);
        }
        all.iter().take(MOST_ROWS).for_each(|one| self.line(row(one)));
        if all.len() > MOST_ROWS {
            let more = format!("and {} more: --json has all", all.len() - MOST_ROWS);
            self.line(vec![Part::of(more).toned(Tone::Dim)]);
        }
    }
}

#[cfg(test)]
mod tests;

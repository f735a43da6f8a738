//! Formats `/status` as a screen of text for people. Pure: from two answers to lines. A value that is missing, or of
//! another kind than expected, as in an older or a younger litequic, shows as `-`.

use litequic_admin::{CertificateStatus, MaintenanceStatus, OriginStatus, Samples, Status, WorkerStatus};
use litequic_base::{group_digits::group_digits, short_duration::format_short_duration};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Number of columns of the screen without a terminal, and at least.
pub(super) const MIN_WIDTH: usize = 80;
/// Maximum number of rows of a table; a last row counts the omitted ones.
const MAX_ROWS: usize = 8;
/// Seconds without a turn after which a worker counts as hung, as in `/healthz`.
const HANG_SECONDS: f64 = 5.0;
/// Limits that any large transfer reaches: the sender waits, and nothing is lost.
const FLOW_CONTROL: &[&str] =
    &["stream_receive_buffer", "connection_receive_buffer", "worker_receive_buffer", "send_buffer", "max_streams"];
/// Text for an unknown value.
const UNKNOWN: &str = "-";
/// The last second that RFC 3339 can express.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// Formats the answer `now` in lines of `width` columns. Rates are computed from the answer `before`, of the same
/// process.
pub(super) fn render_status(now: &Status, before: Option<&Status>, colour: bool, width: usize) -> String {
    let look = StatusView { now, before: before.filter(|before| is_same_process(before, now)) };
    let mut screen = Screen { text: String::new(), colour, width };
    look.add_summary(&mut screen);
    look.add_traffic(&mut screen);
    look.add_routes(&mut screen);
    look.add_origins(&mut screen);
    look.add_certificates(&mut screen);
    look.add_limits(&mut screen);
    look.add_configuration(&mut screen);
    screen.text
}

/// Returns whether counters continue from one answer to the other.
fn is_same_process(before: &Status, now: &Status) -> bool {
    before.generation == now.generation
        && before.uptime.zip(now.uptime).is_none_or(|(before, now)| before <= now)
        && metric_value(before, "connections")
            .zip(metric_value(now, "connections"))
            .is_none_or(|(before, now)| before <= now)
}

/// The last answer, and the previous one.
struct StatusView<'a> {
    now: &'a Status,
    before: Option<&'a Status>,
}

impl<'a> StatusView<'a> {
    fn add_summary(&self, screen: &mut Screen) {
        let now = self.now;
        // The name of the phase is the one in the answer.
        let phase = now.phase.map_or(UNKNOWN.into(), |phase| format!("{phase:?}").to_lowercase());
        let tone = if phase == "ready" { Tone::Good } else { Tone::Bad };
        let mut parts = vec![
            toned("litequic ", Tone::Strong),
            toned(text_or_dash(now.version.as_deref()), Tone::Strong),
            plain("  "),
            toned(phase, tone),
            plain(format!("  up {}", now.uptime.map_or(UNKNOWN.into(), duration_text))),
        ];
        if let Some(generation) = now.generation.filter(|generation| *generation > 0) {
            parts.push(plain(format!("  generation {generation}")));
        }
        if let Some(older) = now.older_processes.filter(|older| *older > 0) {
            parts.push(toned(format!("  older processes: {older}"), Tone::Warning));
        }
        screen.add_line(parts);
        if let (Some(process), Some(file)) = (now.process.id, &now.configuration.file) {
            let user =
                now.process.user.as_ref().map_or_else(String::new, |user| format!(" of {}", strip_controls(user)));
            for line in screen.wrap_words(&format!("process {process}{user}, {}", strip_controls(file))) {
                screen.add_line([plain(line)]);
            }
        }
        for problem in &now.problems {
            for (row, line) in screen.wrap_words(&text_or_dash(Some(problem))).iter().take(MAX_ROWS).enumerate() {
                let mark = if row == 0 { "! " } else { "  " };
                screen.add_line([toned(format!("{mark}{line}"), Tone::Bad)]);
            }
        }

        let workers = &now.workers;
        let mut parts = vec![plain(format!("workers {}  ", workers.len()))];
        let is_hanging =
            |worker: &&WorkerStatus| worker.seconds_since_turn.is_some_and(|seconds| seconds > HANG_SECONDS);
        let hanging: Vec<String> = workers.iter().filter(is_hanging).map(hang_text).collect();
        parts.push(match (workers.is_empty(), hanging.as_slice()) {
            (true, _) => plain(UNKNOWN),
            (false, []) => toned("all respond", Tone::Good),
            (false, _) => toned(hanging.join(", "), Tone::Bad),
        });
        let cpu = self.rate_of_value(|status| status.process.cpu_seconds);
        let cpu = cpu.map_or(UNKNOWN.into(), |cores| format!("{:.0} % of a core", cores * 100.0));
        parts.push(plain(format!("  CPU {cpu}")));
        let resident = to_float(now.process.resident_bytes).map_or(UNKNOWN.into(), bytes_text);
        parts.push(plain(format!("  in RAM {resident}")));
        parts.push(plain(format!("  open files {}", count_text(to_float(now.process.open_files)))));
        screen.add_line(parts);

        let (used, limit) = (to_float(now.memory.used), to_float(now.memory.limit));
        let mut parts = match limit {
            Some(limit) if limit > 0.0 => {
                let step = text_or_dash(now.memory.step.as_deref());
                let tone = if step == "normal" { Tone::Good } else { Tone::Bad };
                let used = used.map_or(UNKNOWN.into(), bytes_text);
                vec![plain(format!("memory {used} of {}: ", bytes_text(limit))), toned(step, tone)]
            }
            Some(_) => vec![plain("memory without a limit")],
            None => vec![plain(format!("memory {UNKNOWN}"))],
        };
        parts.push(plain("  HTTP/3 "));
        parts.push(self.http3_state());
        screen.add_line(parts);

        if let Some(traces) = &now.traces {
            let to = plain(format!("traces to {}: ", text_or_dash(traces.endpoint.as_deref())));
            let state = match (&traces.problem, traces.accepted_at) {
                (Some(_), Some(at)) => {
                    toned(format!("failing, accepted last {}", time_text(Some(at as f64))), Tone::Bad)
                }
                (Some(_), None) => toned("failing, none accepted yet", Tone::Bad),
                (None, Some(at)) => toned(format!("accepted {}", time_text(Some(at as f64))), Tone::Good),
                (None, None) => plain("none accepted yet"),
            };
            screen.add_line([to, state]);
        }

        let target = |one: &MaintenanceStatus| one.target.as_deref().map_or("all routes".into(), strip_controls);
        if let Some(denied) = now.denied_networks.filter(|denied| *denied > 0) {
            let networks = if denied == 1 { "network" } else { "networks" };
            screen.add_line([toned(format!("{denied} {networks} denied: litequic ctl denied"), Tone::Warning)]);
        }
        let maintenance: Vec<String> = now.maintenance.iter().map(target).collect();
        if !maintenance.is_empty() {
            screen.add_line(vec![toned(format!("in maintenance: {}", maintenance.join(", ")), Tone::Warning)]);
        }
    }

    /// State of HTTP/3, with the order or key that has set it.
    fn http3_state(&self) -> StyledText {
        match (self.now.http3.on, self.now.http3.configured) {
            (Some(true), Some(false)) => toned("on by litequic ctl", Tone::Warning),
            (Some(true), _) => toned("on", Tone::Good),
            (Some(false), Some(true)) => toned("off by litequic ctl", Tone::Bad),
            (Some(false), Some(false)) => toned("off by listen.http3", Tone::Warning),
            (Some(false), None) => toned("off", Tone::Bad),
            (None, _) => plain(UNKNOWN),
        }
    }

    fn add_traffic(&self, screen: &mut Screen) {
        let columns = [("", -14), ("open", 10), ("connections", 15), ("requests", 15), ("per s", 12)];
        let open = |name: &str| plain(count_text(self.current_metric(name)));
        let rows = [
            ("HTTP/3", open("connections_open"), "connections", "requests{protocol=\"h3\"}"),
            ("HTTP/2", plain(""), "tcp_connections{protocol=\"h2\"}", "requests{protocol=\"h2\"}"),
            ("HTTP/1.1", plain(""), "tcp_connections{protocol=\"h1\"}", "requests{protocol=\"h1\"}"),
        ];
        screen.add_table(&columns, rows.into(), |(name, open, connections, requests)| {
            vec![
                plain(name),
                open,
                plain(count_text(self.current_metric(connections))),
                plain(count_text(self.current_metric(requests))),
                plain(rate_text(self.metric_rate(requests))),
            ]
        });
        screen.add_cells(&columns, vec![plain("both over TCP"), open("tcp_connections_open")]);
        let speed =
            |name: &str| self.metric_rate(name).map_or(UNKNOWN.into(), |rate| format!("{}/s", bytes_text(rate)));
        let failing = self.metric_rate("responses{class=\"5xx\"}");
        let tone = if failing.is_some_and(|rate| rate > 0.0) { Tone::Bad } else { Tone::Plain };
        screen.add_line([
            plain(format!("requests open {}", count_text(self.current_metric("requests_open")))),
            plain(format!("  to clients {}", speed("response_body_bytes"))),
            plain(format!("  from clients {}  ", speed("request_body_bytes"))),
            toned(format!("5xx {}/s", rate_text(failing)), tone),
        ]);
    }

    fn add_routes(&self, screen: &mut Screen) {
        let in_maintenance = self.now.maintenance.iter().flat_map(|one| &one.routes);
        // Metrics replace these characters in names of routes.
        let in_maintenance: BTreeSet<String> = in_maintenance.map(|name| name.replace(['"', '\\'], "_")).collect();
        let responses_before = self.before.map(responses_by_route).unwrap_or_default();
        let sent = |name: &str| format!("route_response_body_bytes{{route=\"{name}\"}}");
        let mut routes: Vec<(&str, f64)> = responses_by_route(self.now).into_iter().collect();
        if routes.len() > MAX_ROWS {
            // Routes in maintenance come first, then those with the most bytes now, then in total.
            routes.sort_by(|(one, _), (other, _)| {
                let now = |name: &str| self.metric_rate(&sent(name)).unwrap_or(0.0);
                let ever = |name: &str| self.current_metric(&sent(name)).unwrap_or(0.0);
                let first = in_maintenance.contains(*other).cmp(&in_maintenance.contains(*one));
                first.then(now(other).total_cmp(&now(one))).then(ever(other).total_cmp(&ever(one)))
            });
        }
        let columns = [("route", -34), ("responses", 12), ("per s", 10), ("to clients", 12), ("per s", 12)];
        screen.add_table(&columns, routes, |(name, responses)| {
            const NAME: usize = 33;
            const MARK: &str = " (maintenance)";
            let (shown, tone) = match in_maintenance.contains(name) {
                true => (shorten_to(&strip_controls(name), NAME - MARK.len()) + MARK, Tone::Warning),
                false => (strip_controls(name), Tone::Plain),
            };
            let before = responses_before.get(name);
            let speed = self.metric_rate(&sent(name));
            vec![
                toned(shown, tone),
                plain(count_text(Some(responses))),
                plain(rate_text(before.and_then(|before| self.per_second(responses, *before)))),
                plain(self.current_metric(&sent(name)).map_or(UNKNOWN.into(), bytes_text)),
                plain(speed.map_or(UNKNOWN.into(), |sent| format!("{}/s", bytes_text(sent)))),
            ]
        });
    }

    fn add_origins(&self, screen: &mut Screen) {
        let workers = self.now.workers.len();
        // Servers with a problem come first, if not all are shown.
        let mut servers: Vec<_> =
            self.now.origins.iter().map(|server| (server, server_state(server, workers))).collect();
        if servers.len() > MAX_ROWS {
            servers.sort_by_key(|(_, (_, tone))| *tone == Tone::Good);
        }
        screen.add_table(&[("origin", -14), ("server", -30), ("state", 0)], servers, |(server, (state, tone))| {
            vec![
                plain(text_or_dash(server.name.as_deref())),
                plain(text_or_dash(server.address.as_deref())),
                toned(state, tone),
            ]
        });
    }

    fn add_certificates(&self, screen: &mut Screen) {
        let now = self.now.time;
        let mut all: Vec<_> = self.now.certificates.iter().map(|one| certificate_row(one, now)).collect();
        let missing = self.now.acme.iter().flatten().filter(|host| host.expires.is_none());
        all.extend(missing.map(|host| {
            let problem = host.problem.as_ref().map_or_else(String::new, |problem| format!(": {problem}"));
            let state = text_or_dash(host.state.as_deref()) + &strip_controls(&problem);
            (text_or_dash(host.host.as_deref()), None, state, Tone::Bad)
        }));
        if all.len() > MAX_ROWS {
            all.sort_by_key(|(.., tone)| *tone == Tone::Good);
        }
        let columns = [("certificate", -44), ("days left", 10), ("", -2), ("state", 0)];
        screen.add_table(&columns, all, |(names, days, state, tone)| {
            let days = days.map_or(UNKNOWN.into(), |days: f64| format!("{:.0}", days.floor()));
            vec![plain(names), toned(days, tone), plain(""), toned(state, tone)]
        });
    }

    /// Adds the limits and timeouts that were reached; flow control, which slows large transfers down, comes last.
    fn add_limits(&self, screen: &mut Screen) {
        let reached = |family: &str, name: &str| {
            let prefix = format!("{family}{{");
            let all = metric_values(self.now).filter(|(key, count)| key.starts_with(&prefix) && *count > 0.0);
            let named = |key: &str| {
                let label = only_label(key);
                let name = if FLOW_CONTROL.contains(&&*label) { "flow control" } else { name };
                format!("{name} {label}")
            };
            all.map(|(key, count)| (key, named(key), count)).collect::<Vec<_>>()
        };
        let mut all = reached("limit_reached", "limit");
        all.extend(reached("timeouts", "timeout"));
        if all.is_empty() {
            let known = self.now.metrics.is_some();
            screen.add_line([]);
            screen.add_line([plain(format!("limits and timeouts reached: {}", if known { "none" } else { UNKNOWN }))]);
            return;
        }
        // The limit that is reached most often now comes first, then the one reached most often in total.
        all.sort_by(|(one, first, once), (other, second, twice)| {
            let kinds = is_flow_control(first).cmp(&is_flow_control(second));
            let rates = self.metric_rate(other).unwrap_or(0.0).total_cmp(&self.metric_rate(one).unwrap_or(0.0));
            kinds.then(rates).then(twice.total_cmp(once))
        });
        screen.add_table(&[("limit or timeout", -44), ("reached", 15), ("per s", 12)], all, |(key, name, reached)| {
            let now = self.metric_rate(key);
            let is_reached_now = now.is_some_and(|rate| rate > 0.0) && !is_flow_control(&name);
            let tone = if is_reached_now { Tone::Warning } else { Tone::Plain };
            vec![plain(name), plain(count_text(Some(reached))), toned(rate_text(now), tone)]
        });
    }

    fn add_configuration(&self, screen: &mut Screen) {
        screen.add_line([]);
        let of = &self.now.configuration;
        let read = time_text(to_float(of.read));
        screen.add_line([plain(format!("configuration {}, read {read}", text_or_dash(of.version.as_deref())))]);
        if let Some(since) = to_float(of.refused_since).filter(|since| *since > 0.0) {
            let refused = format!("the configuration file has been rejected since {}", time_text(Some(since)));
            screen.add_line([toned(refused, Tone::Bad)]);
        }
        match &self.now.last_reload {
            None => screen.add_line([plain("last reload: none yet")]),
            Some(last) => {
                let result = text_or_dash(last.result.as_deref());
                let (at, by) = (time_text(to_float(last.at)), text_or_dash(last.by.as_deref()));
                let (outcome, tone) = match (result.as_str(), last.lines.as_slice()) {
                    ("ok", []) => ("ok, nothing has changed".to_owned(), Tone::Good),
                    ("ok", _) => ("applied".into(), Tone::Good),
                    ("refused", _) => ("rejected".into(), Tone::Bad),
                    _ => (result, Tone::Bad),
                };
                let head = plain(format!("last reload {at} by {by}: "));
                screen.add_line([head, toned(outcome, tone)]);
                let pieces: Vec<String> =
                    last.lines.iter().flat_map(|line| screen.wrap_words(&text_or_dash(Some(line)))).collect();
                for piece in pieces.iter().take(MAX_ROWS) {
                    screen.add_line([plain("  "), plain(piece.clone())]);
                }
                if last.left_out.is_some_and(|left_out| left_out > 0) || pieces.len() > MAX_ROWS {
                    screen.add_line([toned("  and more: see the log", Tone::Dim)]);
                }
            }
        }
    }

    fn current_metric(&self, name: &str) -> Option<f64> {
        metric_value(self.now, name)
    }

    fn metric_rate(&self, name: &str) -> Option<f64> {
        self.rate_of_value(|status| metric_value(status, name))
    }

    /// Increase of `read` per second.
    fn rate_of_value(&self, read: impl Fn(&'a Status) -> Option<f64>) -> Option<f64> {
        self.per_second(read(self.now)?, read(self.before?)?)
    }

    /// Increase per second from `before` to `now`.
    fn per_second(&self, now: f64, before: f64) -> Option<f64> {
        let seconds = self.now.time? - self.before?.time?;
        let more = now - before;
        (seconds > 0.0 && more >= 0.0).then(|| more / seconds)
    }
}

/// Number of responses of each route, over all protocols and classes.
fn responses_by_route(status: &Status) -> BTreeMap<&str, f64> {
    let mut routes = BTreeMap::new();
    for (key, responses) in metric_values(status) {
        let labels = key.strip_prefix("route_responses{route=\"");
        if let Some((name, _)) = labels.and_then(|labels| labels.rsplit_once("\",protocol=\"")) {
            *routes.entry(name).or_insert(0.0) += responses;
        }
    }
    routes
}

/// State of an origin's server.
fn server_state(server: &OriginStatus, workers: usize) -> (String, Tone) {
    if let Some(problem) = &server.problem {
        return (strip_controls(problem), Tone::Bad);
    }
    match server.ejected_by {
        Some(ejected) if ejected > 0 => (format!("ejected by {ejected} of {workers} workers"), Tone::Warning),
        _ => match server.checked {
            Some(true) => ("healthy".into(), Tone::Good),
            _ => ("accepts connections".into(), Tone::Good),
        },
    }
}

/// Names of a certificate, the days that are left at `now`, and its state.
fn certificate_row(certificate: &CertificateStatus, now: Option<f64>) -> (String, Option<f64>, String, Tone) {
    let names: Vec<String> = certificate.names.iter().map(|name| text_or_dash(Some(name))).collect();
    let names = if names.is_empty() { UNKNOWN.into() } else { names.join(", ") };
    let algorithm = certificate.algorithm.as_deref().map(|algorithm| format!("{}: ", text_or_dash(Some(algorithm))));
    let left = to_float(certificate.expires).zip(now).map(|(expires, now)| (expires - now) / 86_400.0);
    let (state, tone) = certificate_validity(certificate, now);
    (algorithm.unwrap_or_default() + &names, left, state, tone)
}

/// State of a certificate at `now`: a warning only once its renewal is overdue.
fn certificate_validity(certificate: &CertificateStatus, now: Option<f64>) -> (String, Tone) {
    if let [warning, ..] = certificate.warnings.as_slice() {
        return (text_or_dash(Some(warning)), Tone::Bad);
    }
    match (to_float(certificate.expires), to_float(certificate.renew_by), now) {
        (Some(expires), _, Some(now)) if expires <= now => ("expired".into(), Tone::Bad),
        (_, Some(renew_by), Some(now)) if renew_by <= now => ("renewal is overdue".into(), Tone::Warning),
        (Some(_), _, Some(_)) => ("valid".into(), Tone::Good),
        _ => (UNKNOWN.into(), Tone::Plain),
    }
}

/// Whether a row of the limits is a window of flow control, which [`FLOW_CONTROL`] names.
fn is_flow_control(name: &str) -> bool {
    name.starts_with("flow control ")
}

fn hang_text(worker: &WorkerStatus) -> String {
    let seconds = worker.seconds_since_turn.unwrap_or(0.0);
    format!("worker {} has hung for {seconds:.1} s", count_text(to_float(worker.worker)))
}

fn metric_values(status: &Status) -> impl Iterator<Item = (&str, f64)> {
    let samples = status.metrics.iter().flat_map(|Samples(samples)| samples);
    samples.map(|(name, value)| (name.as_str(), *value as f64))
}

fn metric_value(status: &Status, name: &str) -> Option<f64> {
    to_float(status.metrics.as_ref()?.0.get(name).copied())
}

/// Value of a metric's only label.
fn only_label(key: &str) -> String {
    let value = key.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or(key, |(value, _)| value);
    strip_controls(value)
}

fn to_float(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn text_or_dash(value: Option<&str>) -> String {
    value.filter(|text| !text.is_empty()).map_or(UNKNOWN.into(), strip_controls)
}

/// Replaces control characters, which a terminal would interpret.
pub(super) fn strip_controls(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Formats a whole number in groups of three digits.
fn count_text(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), |value| group_digits(&format!("{value:.0}")))
}

/// Formats a whole number in groups of three digits.
pub(super) fn grouped_number(value: u64) -> String {
    group_digits(&value.to_string())
}

fn rate_text(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.1}"))
}

pub(super) fn bytes_text(mut value: f64) -> String {
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    // A value that would be shown as 1000 is 1 of the next unit.
    while value >= 999.5
        && let Some(next) = units.next()
    {
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" || value >= 99.95 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Formats seconds in the two largest units.
fn duration_text(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    format_short_duration(Duration::from_secs(time.as_secs()))
}

/// Formats seconds since the Unix epoch.
fn time_text(seconds: Option<f64>) -> String {
    let seconds = seconds.filter(|seconds| (1.0..=LAST_SECOND).contains(seconds));
    let time = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?));
    time.map_or(UNKNOWN.into(), |time| {
        let text = humantime::format_rfc3339_seconds(time).to_string();
        text.replace('T', " ").replace('Z', " UTC")
    })
}

/// Colour or weight of a text on a terminal.
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
    /// Escape sequence of the tone: ECMA-48 §8.3.117 (SGR).
    const fn escape_code(self) -> &'static str {
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

/// Part of a line, with a colour or weight.
struct StyledText {
    text: String,
    tone: Tone,
}

/// Text without colour or weight.
fn plain(text: impl Into<String>) -> StyledText {
    toned(text, Tone::Plain)
}

fn toned(text: impl Into<String>, tone: Tone) -> StyledText {
    StyledText { text: text.into(), tone }
}

impl StyledText {
    /// Pads the text to `columns` columns: aligned right, or left if the number is negative, with a blank after it.
    fn with_width(self, columns: isize) -> Self {
        let width = columns.unsigned_abs();
        let text = match columns {
            ..0 => {
                format!("{:<width$} ", shorten_to(&self.text, width.saturating_sub(1)), width = width.saturating_sub(1))
            }
            0.. => format!("{:>width$}", self.text),
        };
        Self { text, ..self }
    }
}

/// Shortens `text` to `width` characters, with `…` as the last one if some are omitted.
fn shorten_to(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Lines of at most `width` columns.
struct Screen {
    text: String,
    colour: bool,
    width: usize,
}

impl Screen {
    /// Wraps the words of `text` into lines that fit with an indentation of two. Only a word that is longer than a line
    /// is split.
    fn wrap_words(&self, text: &str) -> Vec<String> {
        let width = self.width.saturating_sub(2).max(1);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => {
                    let chars: Vec<char> = word.chars().collect();
                    lines.extend(chars.chunks(width).map(|piece| piece.iter().collect::<String>()));
                }
            }
        }
        lines
    }

    fn add_line(&mut self, parts: impl IntoIterator<Item = StyledText>) {
        let mut left = self.width;
        let mut parts = parts.into_iter().peekable();
        while let Some(StyledText { text, tone }) = parts.next() {
            let text = if parts.peek().is_none() { text.trim_end() } else { &text };
            let shown = shorten_to(text, left);
            left -= shown.chars().count();
            // Writing to a String cannot fail.
            let _ = match tone.escape_code() {
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

    /// Adds a table of up to [`MAX_ROWS`] rows, with the names and widths of its `columns`.
    fn add_table<T>(&mut self, columns: &[(&str, isize)], all: Vec<T>, row: impl Fn(T) -> Vec<StyledText>) {
        self.add_line([]);
        self.add_cells(columns, columns.iter().map(|(name, _)| toned(*name, Tone::Dim)).collect());
        if all.is_empty() {
            self.add_line([plain(UNKNOWN)]);
        }
        let more = all.len().saturating_sub(MAX_ROWS);
        all.into_iter().take(MAX_ROWS).for_each(|one| self.add_cells(columns, row(one)));
        if more > 0 {
            let more = format!("and {more} more: --json has all");
            self.add_line([toned(more, Tone::Dim)]);
        }
    }

    /// Adds a row of a table, whose columns have widths as [`StyledText::with_width`] takes them.
    fn add_cells(&mut self, columns: &[(&str, isize)], cells: Vec<StyledText>) {
        self.add_line(cells.into_iter().zip(columns).map(|(cell, (_, width))| cell.with_width(*width)));
    }
}

#[cfg(test)]
mod tests;

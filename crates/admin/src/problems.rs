//! Lists the problems that `/status` shows, in one line each; the status page and `litequic ctl status` show them
//! first. Pure.

use super::status::Status;
use std::collections::BTreeMap;

/// Seconds without a turn of its loop after which a worker counts as hung, as in `/healthz`.
const HUNG_SECONDS: f64 = 5.0;
/// Number of lines at most: servers and certificates may be many.
const MAX_PROBLEM_LINES: usize = 8;
const DAY: f64 = 86_400.0;

/// A problem of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Label `kind` of the metric.
    pub(super) kind: &'static str,
    /// Name of the origin, certificate, host or worker; empty for a problem of the process.
    pub(super) subject: String,
    /// Description, in one line.
    text: String,
}

impl Problem {
    /// Values of the label `kind`.
    pub const KINDS: [&'static str; 9] =
        ["worker", "origin", "origin_server", "certificate", "acme", "reload", "http3", "traces", "memory"];

    fn new(kind: &'static str, subject: impl Into<String>, text: impl Into<String>) -> Self {
        debug_assert!(Self::KINDS.contains(&kind));
        Self { kind, subject: subject.into(), text: text.into() }
    }
}

/// Returns all problems in `status`, the most urgent first; empty without problems.
pub(super) fn list_problems(status: &Status) -> Vec<Problem> {
    let mut problems: Vec<Problem> = hung_workers(status).collect();
    problems.extend(origin_problems(status));
    problems.extend(certificate_problems(status));
    problems.extend(acme_problems(status));
    let mut add = |kind, text: String| problems.push(Problem::new(kind, "", text));
    if status.configuration.refused_since.is_some_and(|since| since > 0) {
        add("reload", "the last reload was rejected".into());
    }
    if let (Some(false), Some(true)) = (status.http3.on, status.http3.configured) {
        add("http3", "HTTP/3 was switched off; litequic ctl http3 on switches it on again".into());
    }
    if let Some(traces) = &status.traces
        && let Some(problem) = &traces.problem
    {
        add("traces", format!("the collector of traces does not accept spans: {problem}"));
    }
    if let Some(step) = status.memory.step.as_deref().filter(|step| *step != "normal") {
        add("memory", format!("memory is short: {step}"));
    }
    problems
}

/// Returns a line for each of the first `problems`, and one with the number of the others.
pub(super) fn problem_lines(problems: &[Problem]) -> Vec<String> {
    let lines = problems.iter().map(|problem| problem.text.clone());
    let shown = if problems.len() > MAX_PROBLEM_LINES { MAX_PROBLEM_LINES - 1 } else { MAX_PROBLEM_LINES };
    let more = problems.len().saturating_sub(shown);
    lines.take(shown).chain((more > 0).then(|| format!("and {more} more"))).collect()
}

fn hung_workers(status: &Status) -> impl Iterator<Item = Problem> {
    let hanging =
        status.workers.iter().filter(|worker| worker.seconds_since_turn.is_some_and(|since| since > HUNG_SECONDS));
    hanging.map(|worker| {
        let worker = worker.worker.unwrap_or_default().to_string();
        let text = format!("worker {worker} hangs");
        Problem::new("worker", worker, text)
    })
}

/// Returns a problem for each origin with servers that cannot serve; origins without any healthy server come first.
fn origin_problems(status: &Status) -> Vec<Problem> {
    // By name: the number of servers, of those that cannot serve, and the problem of one.
    let mut origins: BTreeMap<&str, (usize, usize, &str)> = BTreeMap::new();
    for server in &status.origins {
        let (all, failing, problem) = origins.entry(server.name.as_deref().unwrap_or_default()).or_default();
        *all += 1;
        let ejected = server.ejected_by.is_some_and(|workers| workers > 0);
        if let Some(reason) = server.problem.as_deref().or(ejected.then_some("ejected after failures")) {
            *failing += 1;
            *problem = reason;
        }
    }
    let (none, some): (Vec<_>, Vec<_>) = origins
        .into_iter()
        .filter(|(_, (_, failing, _))| *failing > 0)
        .partition(|(_, (all, failing, _))| all == failing);
    let none = none.into_iter().map(|(name, (.., problem))| {
        Problem::new("origin", name, format!("no healthy server of origin {name}: {problem}"))
    });
    let some = some.into_iter().map(|(name, (all, failing, problem))| {
        let text = format!("{failing} of {all} servers of origin {name} cannot serve: {problem}");
        Problem::new("origin_server", name, text)
    });
    none.chain(some).collect()
}

/// Returns a problem for each certificate that has expired, or whose renewal is overdue.
fn certificate_problems(status: &Status) -> impl Iterator<Item = Problem> {
    let now = status.time.unwrap_or_default();
    status.certificates.iter().filter_map(move |certificate| {
        let name = certificate.names.first().map_or("without a name", String::as_str);
        let left = certificate.expires.unwrap_or_default() as f64 - now;
        let text = if left <= 0.0 {
            format!("certificate {name} has expired")
        } else if certificate.renew_by.unwrap_or_default() as f64 <= now {
            let days = (left / DAY).floor();
            let when = match days {
                days if days < 1.0 => "within a day".into(),
                days if days < 2.0 => "in a day".into(),
                days => format!("in {days:.0} days"),
            };
            format!("certificate {name} expires {when}")
        } else {
            format!("certificate {name}: {}", certificate.warnings.first()?)
        };
        Some(Problem::new("certificate", name, text))
    })
}

/// Returns a problem for each host whose certificate could not be obtained.
fn acme_problems(status: &Status) -> impl Iterator<Item = Problem> {
    status.acme.iter().flatten().filter_map(|host| {
        let problem = host.problem.as_deref()?;
        let what = if host.state.as_deref() == Some("missing") { "no certificate for" } else { "no renewal for" };
        let host = host.host.as_deref().unwrap_or_default();
        Some(Problem::new("acme", host, format!("{what} {host}: {problem}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    const NOW: i64 = 1_800_000_000;

    fn problems(status: &Json) -> Vec<String> {
        problem_lines(&list_problems(&serde_json::from_value(status.clone()).unwrap()))
    }

    /// A status without problems.
    fn well() -> Json {
        json!({
            "time": NOW,
            "workers": [{ "worker": 0, "seconds_since_turn": 0.1 }],
            "origins": [server("app", None, 0), server("app", None, 0)],
            "certificates": [certificate("example.com", 1920)],
            "configuration": { "refused_since": 0 },
            "memory": { "step": "normal" },
            "http3": { "on": true, "configured": true },
        })
    }

    fn server(name: &str, problem: Option<&str>, ejected_by: u32) -> Json {
        json!({ "name": name, "address": "http://127.0.0.1:1", "problem": problem, "ejected_by": ejected_by })
    }

    fn certificate(name: &str, hours: i64) -> Json {
        let expires = NOW + hours * 3600;
        json!({ "names": [name], "expires": expires, "renew_by": expires - 27 * 86_400, "warnings": [] })
    }

    #[test]
    fn each_problem_has_a_line_and_a_healthy_status_none() {
        assert_eq!(problems(&well()), [""; 0]);
        let refused = Some("cannot connect: Connection refused");
        for (key, value, expected) in [
            (
                "origins",
                json!([server("app", refused, 0)]),
                "no healthy server of origin app: cannot connect: Connection refused",
            ),
            ("origins", json!([server("app", None, 2)]), "no healthy server of origin app: ejected after failures"),
            (
                "origins",
                json!([server("app", None, 0), server("app", refused, 0)]),
                "1 of 2 servers of origin app cannot serve: cannot connect: Connection refused",
            ),
            ("certificates", json!([certificate("example.com", 84)]), "certificate example.com expires in 3 days"),
            ("certificates", json!([certificate("example.com", 36)]), "certificate example.com expires in a day"),
            ("certificates", json!([certificate("example.com", 12)]), "certificate example.com expires within a day"),
            ("certificates", json!([certificate("example.com", -24)]), "certificate example.com has expired"),
            (
                "acme",
                json!([{ "host": "a.test", "state": "missing", "problem": "no such name" }, { "host": "b.test" }]),
                "no certificate for a.test: no such name",
            ),
            ("configuration", json!({ "refused_since": 1_799_999_999 }), "the last reload was rejected"),
            (
                "http3",
                json!({ "on": false, "configured": true }),
                "HTTP/3 was switched off; litequic ctl http3 on switches it on again",
            ),
            ("memory", json!({ "step": "close" }), "memory is short: close"),
            ("workers", json!([{ "worker": 1, "seconds_since_turn": 7.5 }]), "worker 1 hangs"),
        ] {
            let mut status = well();
            status[key] = value;
            assert_eq!(problems(&status), [expected]);
        }
    }

    #[test]
    fn origins_without_a_healthy_server_come_first_among_eight_lines() {
        let mut status = well();
        let mut servers = vec![server("a", None, 0), server("a", Some("slow"), 0)];
        servers.extend((0..20).map(|n| server(&format!("o{n:02}"), Some("down"), 0)));
        status["origins"] = servers.into();
        let problems = problems(&status);
        assert_eq!(problems.len(), MAX_PROBLEM_LINES);
        assert_eq!(problems[0], "no healthy server of origin o00: down");
        assert_eq!(problems[7], "and 14 more");
    }

    #[test]
    fn http3_is_a_problem_only_if_switched_off_against_the_configuration() {
        for (on, configured) in [(false, false), (true, false)] {
            let mut status = well();
            status["http3"] = json!({ "on": on, "configured": configured });
            assert_eq!(problems(&status), [""; 0]);
        }
    }

    #[test]
    fn missing_members_are_no_problem() {
        assert_eq!(problems(&json!({})), [""; 0]);
    }
}

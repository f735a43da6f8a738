//! Attacks, and many requests at once, in one table: what an honest client sees of each contender. Pure.

use super::{Case, Results, figures::number};
use std::fmt::Write as _;

/// The table that an experiment's page begins with, if it has one.
pub(super) fn of(results: &Results) -> Option<String> {
    match results.experiment.as_str() {
        "attacks" => Some(table(results)),
        "sources" => Some(by_case(results, "served within 2 s, median, p99, failed requests", from_sources)),
        "inflight" => Some(by_case(results, "failed requests, status 5xx among them, memory at most", in_flight)),
        _ => None,
    }
}

/// A row for each case, a column for each contender.
fn by_case(results: &Results, what: &str, cell: fn(&Results, &Case, &str) -> Option<String>) -> String {
    let names: Vec<&str> = results.names().collect();
    let mut text = format!("| {what} | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(names.len()));
    for case in &results.cases {
        let cells = names.iter().map(|name| cell(results, case, name).unwrap_or_else(|| "void".to_owned()));
        let _ = writeln!(text, "| {} | {} |", case.name, cells.collect::<Vec<_>>().join(" | "));
    }
    text + "\n"
}

fn from_sources(results: &Results, case: &Case, contender: &str) -> Option<String> {
    let figure = |name: &str| results.summary(&case.name, contender, name).map(|summary| summary.median);
    let (median, slowest) =
        if case.primary == "served_status" { ("p99_status_us", "p99_status_us") } else { ("p50_us", "p99_us") };
    Some(format!(
        "{} %, {} ms, {} ms, {}",
        percent(figure(&case.primary)?),
        number(figure(median)? / 1e3),
        number(figure(slowest)? / 1e3),
        number(figure("failures")?)
    ))
}

fn in_flight(results: &Results, case: &Case, contender: &str) -> Option<String> {
    let figure = |name: &str| results.summary(&case.name, contender, name).map(|summary| summary.median);
    let (failures, refused, memory) = (figure("failures")?, figure("status_5xx")?, figure("memory_peak")?);
    Some(format!("{}, {}, {} MB", number(failures), number(refused), number(memory)))
}

/// A row for each contender, a column for each attack: the share of honest requests that were served, and their 99th
/// percentile. An attack on the status port is about that.
fn table(results: &Results) -> String {
    let titles: Vec<&str> = results.cases.iter().map(|case| case.name.as_str()).collect();
    let mut text = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(titles.len()));
    for contender in &results.contenders {
        let cells: Vec<String> = results.cases.iter().map(|case| cell(results, case, &contender.name)).collect();
        let _ = writeln!(text, "| {} | {} |", contender.name, cells.join(" | "));
    }
    text + "\n"
}

fn cell(results: &Results, case: &Case, contender: &str) -> String {
    let slowest = if case.primary == "served_status" { "p99_status_us" } else { "p99_us" };
    let figure = |name: &str| results.summary(&case.name, contender, name).map(|summary| summary.median);
    match (figure(&case.primary), figure(slowest)) {
        (Some(served), Some(slowest)) => format!("{} %, {} ms", percent(served), number(slowest / 1e3)),
        _ => "void".to_owned(),
    }
}

/// 100 only where all were served.
fn percent(share: f64) -> String {
    if share < 100.0 { format!("{:.0}", share.min(99.0)) } else { "100".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn each_attack_is_a_column_with_share_and_rate() {
        let mut results = results(&[("a", &[100.0]), ("b", &[])]);
        results.cases[0].primary = "served".to_owned();
        results.runs[0].figures.extend([("served".to_owned(), 99.7), ("p99_us".to_owned(), 12_345.0)]);
        assert_eq!(table(&results), "| | large |\n|---|---:|\n| a | 99 %, 12.3 ms |\n| b | void |\n\n");
    }

    #[test]
    fn sources_and_bursts_have_a_row_for_each_case() {
        let mut results = results(&[("a", &[100.0]), ("b", &[])]);
        results.cases[0].primary = "served".to_owned();
        let figures = [("served", 50.0), ("p50_us", 2_000.0), ("p99_us", 12_345.0), ("failures", 7.0)];
        let more = [("status_5xx", 3.0), ("memory_peak", 20.0)];
        results.runs[0].figures.extend(figures.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)));
        results.experiment = "sources".to_owned();
        assert!(of(&results).unwrap().ends_with("| large | 50 %, 2.00 ms, 12.3 ms, 7.00 | void |\n\n"));
        results.experiment = "inflight".to_owned();
        assert!(of(&results).unwrap().ends_with("| large | 7.00, 3.00, 20.0 MB | void |\n\n"));
        results.experiment = "peers".to_owned();
        assert_eq!(of(&results), None);
    }
}

//! Attacks in one table: what an honest client sees of each contender in each attack. Pure.

use super::{Case, Results, figures::number};
use std::fmt::Write as _;

/// The experiment whose page begins with it.
pub(super) const EXPERIMENT: &str = "attacks";

/// A row for each contender, a column for each attack: the share of honest requests that were served, and their 99th percentile.
/// An attack on the status port is about that.
pub(super) fn table(results: &Results) -> String {
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
    fn each_attack_is_a_column_and_says_what_was_served_and_how_fast() {
        let mut results = results(&[("a", &[100.0]), ("b", &[])]);
        results.cases[0].primary = "served".to_owned();
        results.runs[0].figures.extend([("served".to_owned(), 99.7), ("p99_us".to_owned(), 12_345.0)]);
        assert_eq!(table(&results), "| | large |\n|---|---:|\n| a | 99 %, 12.3 ms |\n| b | void |\n\n");
    }
}

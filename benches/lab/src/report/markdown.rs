//! An experiment's page. Pure: results into text.

use super::{
    Case, Results, Run, attacks, carried, envelopes,
    figures::{SHOWN, interval, number, title},
    overview::{CELLS, all_tables},
};
use crate::bench::{contender::Kind, rival::SATURATED};
use std::{collections::BTreeSet, fmt::Write as _};

/// The page; `drawn` are the names of its plots with their captions, `chart` is the file of the chart of where litequic
/// stands.
pub(super) fn page(results: &Results, drawn: &[(String, String)], chart: Option<&str>) -> String {
    let mut text = format!("# {}\n\n{}\n\n", results.experiment, results.about);
    if results.quick {
        text += "**Quick: this run shows that the experiment works. Its figures mean nothing.**\n\n";
    }
    if let Some(chart) = chart {
        let _ = writeln!(text, "## Where litequic stands\n\n![{}]({chart})\n\n{CELLS}\n", results.experiment);
        text += &all_tables(results);
    }
    text += &attacks::of(results).unwrap_or_default();
    text += &carried::tables(results);
    for (file, caption) in drawn {
        let _ = writeln!(text, "![{caption}]({file})\n");
    }
    for case in &results.cases {
        text += &table(results, case);
        text += &envelopes::table(results, case);
        text += &parts(results, case, "share/", "part", "% of samples");
        text += &parts(results, case, "calls/", "system call", "a MB");
    }
    let counting = results.runs.iter().filter(|run| run.counts);
    let traces = counting.filter_map(|run| {
        Some((run.trace.as_deref()?, format!("{}, {}, round {}", run.case, run.contender, run.round)))
    });
    for (at, (file, caption)) in traces.enumerate() {
        if at == 0 {
            text += "## Traces\n\n";
        }
        let _ = writeln!(text, "![{caption}]({file})\n");
    }
    text += &asides(results);
    text
}

fn topology(results: &Results) -> &'static str {
    match results.topology {
        crate::bench::namespace::Topology::Lo => "lo",
        crate::bench::namespace::Topology::Veth => "veth",
        crate::bench::namespace::Topology::Path => "path",
    }
}

/// A case: a row for each contender.
fn table(results: &Results, case: &Case) -> String {
    let mut text = format!("## {}\n\n{}.", case.name, case.load);
    text += &case.path.as_ref().map(|path| format!(" Path: `{path}`.")).unwrap_or_default();
    text += if case.saturated {
        " Saturated: a rival takes half of the server's core; *busy* is of the other half.\n\n"
    } else {
        " Not saturated on purpose; *busy* is of all the time.\n\n"
    };
    let present: BTreeSet<&str> = results
        .runs
        .iter()
        .filter(|run| run.counts && run.case == case.name)
        .flat_map(|run| run.figures.keys().map(String::as_str))
        .collect();
    let others: Vec<&str> = SHOWN
        .into_iter()
        .map(|(figure, _)| figure)
        .filter(|figure| present.contains(figure) && *figure != case.primary)
        .collect();
    let titles: Vec<String> = others.iter().map(|figure| title(figure, case.per)).collect();
    let references = results.references(case);
    let columns: Vec<String> = references.iter().map(|reference| format!("to {reference}")).chain(titles).collect();
    let _ = writeln!(text, "| contender | {} | min–max | {} |", title(&case.primary, case.per), columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(2 + columns.len()));
    let mut doubts: Vec<String> = Vec::new();
    for contender in &results.contenders {
        let name = &contender.name;
        if !results.runs.iter().any(|run| run.case == case.name && run.contender == *name) {
            continue;
        }
        let Some(primary) = results.summary(&case.name, name, &case.primary) else {
            let _ = writeln!(text, "| {name} | void |{}", " |".repeat(1 + columns.len()));
            continue;
        };
        let _ =
            write!(text, "| {name} | {} | {}–{} |", number(primary.median), number(primary.min), number(primary.max));
        for reference in &references {
            let ratio = match results.ratio(&case.name, name, reference, &case.primary) {
                _ if name == reference => "1".to_owned(),
                Ok(ratio) => interval(&ratio),
                Err(why) => {
                    let doubt = format!("{name} beside {reference} ({why})");
                    if !doubts.contains(&doubt) {
                        doubts.push(doubt);
                    }
                    "?".to_owned()
                }
            };
            let _ = write!(text, " {ratio} |");
        }
        for figure in &others {
            let cell =
                results.summary(&case.name, name, figure).map(|summary| number(summary.median)).unwrap_or_default();
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
        if case.saturated
            && contender.kind != Kind::Floor
            && results.summary(&case.name, name, "busy").is_some_and(|busy| busy.median < SATURATED * 100.0)
        {
            doubts.push(format!("{name} (not saturated, in spite of the rival for its core: read it as unsaturated)"));
        }
    }
    text.push('\n');
    if !doubts.is_empty() {
        let _ = writeln!(text, "No conclusion: {}.\n", doubts.join("; "));
    }
    text
}

/// Figures that share a prefix: a row for each, a column for each contender.
pub(super) fn parts(results: &Results, case: &Case, prefix: &str, what: &str, unit: &str) -> String {
    let names: Vec<&str> = results.names().filter(|name| results.counting(&case.name, name).next().is_some()).collect();
    let mut rows: Vec<(f64, String)> = Vec::new();
    let all: BTreeSet<&str> = results
        .runs
        .iter()
        .filter(|run| run.counts && run.case == case.name)
        .flat_map(|run| run.figures.keys().filter(|figure| figure.starts_with(prefix)).map(String::as_str))
        .collect();
    for figure in all {
        let medians: Vec<f64> = names
            .iter()
            .map(|name| results.summary(&case.name, name, figure).map_or(0.0, |summary| summary.median))
            .collect();
        let cells: Vec<String> = medians.iter().map(|median| number(*median)).collect();
        let row = format!("| {} | {} |\n", figure.trim_start_matches(prefix), cells.join(" | "));
        rows.push((medians.into_iter().fold(0.0, f64::max), row));
    }
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rows: String = rows.into_iter().map(|(_, row)| row).collect();
    format!("| {what}, {unit} | {} |\n|---|{}\n{rows}\n", names.join(" | "), "---:|".repeat(names.len()))
}

/// Voids, noise, participants, skipped ones, how clients were called.
fn asides(results: &Results) -> String {
    let mut text = format!("## About this run\n\n{}", conditions(results));
    for (run, why) in results.voids() {
        let _ = writeln!(text, "- void: {}, {}, round {}: {why}", run.contender, run.case, run.round);
    }
    let mut clients = BTreeSet::new();
    for run in results.runs.iter().filter(|run| !run.client.is_empty()) {
        if clients.insert((&run.case, &run.client)) && clients.len() <= 40 {
            let _ = writeln!(text, "- client of {}: `{}`", run.case, run.client);
        }
    }
    text.push('\n');
    text
}

/// The machine, the command, how quiet it was, participants and skipped ones.
pub(super) fn conditions(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = format!(
        "**{}**: `{}`, {}, topology {}, on {} ({}), {} cores{}, {:.0} GB, {}{}.",
        results.experiment,
        results.command,
        results.started,
        topology(results),
        machine.cpu,
        machine.flags.join(" "),
        machine.cores,
        if machine.virtual_machine { " of a virtual machine" } else { "" },
        machine.memory as f64 / 1e9,
        machine.kernel,
        machine.governor.as_ref().map(|governor| format!(", governor {governor}")).unwrap_or_default()
    );
    let worst = results.runs.iter().filter(|run| run.counts).map(|run| run.noise);
    let worst = worst.fold((0.0_f64, 0.0_f64, 0.0_f64), |worst, noise| {
        (worst.0.max(noise.server_core), worst.1.max(noise.client_core), worst.2.max(noise.stolen))
    });
    let nice = results.runs.iter().filter(|run| run.counts).map(|run| run.noise.nice).fold(0.0, f64::max);
    let figures = |run: &Run| results.cases.iter().find(|case| case.name == run.case).map(Case::figures);
    let is_quiet = |run: &Run| figures(run).is_none_or(|mut figures| figures.all(|figure| run.is_quiet(figure)));
    let disturbed = results.runs.iter().filter(|run| run.counts && !is_quiet(run)).count();
    let counting = results.runs.iter().filter(|run| run.counts).count();
    let _ = writeln!(
        text,
        " {counting} runs count, {disturbed} of them disturbed; {} tries in all. At worst {:.0} % of the server's core and \
         {:.0} % of the client's went elsewhere, {:.0} % was stolen, {nice:.0} % went to what yields to all others.\n",
        results.runs.len(),
        worst.0,
        worst.1,
        worst.2
    );
    for contender in &results.contenders {
        let _ = write!(text, "- {}: {}, `{}`", contender.name, contender.version, contender.command);
        text += &contender.tuned.as_ref().map(|tuned| format!("; tuned: {tuned}")).unwrap_or_default();
        text.push('\n');
    }
    for skipped in &results.skipped {
        let _ = writeln!(text, "- left out: {} ({})", skipped.name, skipped.reason);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn a_row_has_median_range_and_ratio() {
        let page = page(&results(&[("a", &[2.0, 2.0, 2.2]), ("b", &[1.0, 1.0, 1.1])]), &[], None);
        assert!(page.contains("| contender | CPU s/GB | min–max | to a | MB/s |\n"), "{page}");
        assert!(page.contains("| b | 1.00 | 1.00–1.10 | 0.50 (0.50–0.50) | 100 |\n"), "{page}");
        assert!(!page.contains("No conclusion"), "{page}");
    }

    #[test]
    fn a_disturbed_contender_has_no_ratio_and_is_named_with_the_reason() {
        let mut results = results(&[("a", &[2.0, 2.0, 2.1]), ("b", &[1.0, 1.0, 2.0])]);
        results.runs[3].noise.stolen = 20.0;
        let page = page(&results, &[], None);
        assert!(page.contains("| b | 1.00 | 1.00–2.00 | ? | 100 |\n"), "{page}");
        assert!(page.contains("No conclusion: b beside a (2 of at least 3 rounds, 1 disturbed)."), "{page}");
    }

    #[test]
    fn a_void_run_is_told_with_its_reason() {
        let mut results = results(&[("a", &[2.0]), ("b", &[1.0])]);
        results.runs[1].void = Some("3 of 4 requests were answered".to_owned());
        let page = page(&results, &[], None);
        assert!(page.contains("| b | void |"), "{page}");
        assert!(page.contains("- void: b, large, round 1: 3 of 4 requests were answered\n"), "{page}");
    }

    #[test]
    fn an_unsaturated_run_of_a_saturated_case_says_so() {
        let mut results = results(&[("a", &[2.0, 2.0, 2.0])]);
        results.cases[0].saturated = true;
        for run in &mut results.runs {
            run.figures.insert("busy".to_owned(), 40.0);
        }
        assert!(page(&results, &[], None).contains("a (not saturated, in spite of"));
        for run in &mut results.runs {
            run.figures.insert("busy".to_owned(), 95.0);
        }
        assert!(!page(&results, &[], None).contains("in spite of"));
    }

    #[test]
    fn a_profile_is_a_table_with_the_greatest_part_first() {
        let mut results = results(&[("a", &[2.0])]);
        results.runs[0].figures.extend([("share/crypto".to_owned(), 30.0), ("share/sending".to_owned(), 50.0)]);
        let page = page(&results, &[], None);
        assert!(
            page.contains("| part, % of samples | a |\n|---|---:|\n| sending | 50.0 |\n| crypto | 30.0 |\n"),
            "{page}"
        );
    }

    #[test]
    fn plots_traces_and_the_chart_of_standings_are_shown() {
        let drawn = ["a-1.svg", "a-2.svg"].map(|file| (file.to_owned(), format!("caption of {file}")));
        let mut results = results(&[("litequic", &[2.0; 3]), ("a", &[3.0; 3])]);
        results.runs[0].trace = Some("trace.svg".to_owned());
        let page = page(&results, &drawn, Some("a.svg"));
        assert!(
            page.contains("![caption of a-1.svg](a-1.svg)")
                && page.contains("## Traces\n\n![large, litequic, round 1]")
        );
        assert!(page.contains("## Where litequic stands\n\n![peers](a.svg)\n"), "{page}");
        assert!(page.contains("| large | 2.00 | 3.00 | 0.67 (0.67–0.67) first, a |"), "{page}");
    }

    #[test]
    fn a_quick_run_does_not_pass_for_a_measurement() {
        let mut results = results(&[("a", &[2.0])]);
        results.quick = true;
        assert!(page(&results, &[], None).contains("figures mean nothing"));
    }
}

//! The page of all results: one screen of what is concluded, then tables, then void runs, commands and machine. Pure:
//! results into text. Every figure of every case is on the experiments' own pages (`markdown`).

use super::{
    Case, Plots, Results,
    figures::{Better, interval, number, title},
    markdown::{ARCHIVE, conditions, parts},
    verdict::{Beside, LITEQUIC, Rank, Standing, Verdict, has_rivals, standings},
};
use crate::bench::stats::Interval;
use std::{collections::BTreeSet, fmt::Write as _};

/// Experiments in the order of the page: what a server on the internet pays first. Others follow.
const ORDER: [&str; 7] = ["many", "shallow", "long", "short", "bloat", "lossy", "peers"];

/// What the page begins with.
const INTRODUCTION: &str = "\
# What litequic costs

litequic beside other proxies that add HTTP/3 to an HTTP/1.1 origin, in the same runs, one worker on one core each. Made by
`litequic-lab report`; [how it measures](../../benches/lab/README.md).

";

/// How the first screen reads; its charts.
const CELLS: &str = "\
A cell is one path or load. litequic is *first* where it is more than 3 % better than every other HTTP/3 proxy, *tied* within
3 % of the best, *last* where it is more than 3 % worse than each; a cell is *undecided* while the 95 % interval of the ratio
does not say so.";
const CHARTS: &str =
    " Charts: ● beside the best other HTTP/3 proxy, ○ beside the same bodies over TCP; right of 1 litequic is
better by that factor; blue better, grey tied, orange worse; undecided cells are not drawn.";

/// What tables have in common.
const TABLES: &str = "\
## Tables

Medians of all rounds. Ratios are paired within a round, with their 95 % interval: litequic's figure by the other's. A **?**
stands where too few rounds were undisturbed. The page of each experiment has every figure, its JSON every run.

";

/// One page; a chart's file for each experiment that has one, and whether plots are elsewhere.
pub(super) fn page(all: &[(Results, Option<String>)], shown: &Plots) -> String {
    let mut all: Vec<&(Results, Option<String>)> = all.iter().collect();
    all.sort_by_key(|(results, _)| ORDER.iter().position(|name| *name == results.experiment).unwrap_or(ORDER.len()));
    let mut text = INTRODUCTION.to_owned();
    if *shown == Plots::All {
        text += "| | |\n|---|---|\n";
        for (results, chart) in &all {
            let name = &results.experiment;
            let chart = chart.as_ref().map(|file| format!("![{name}]({file})")).unwrap_or_default();
            let _ = writeln!(text, "| {chart} | **[{name}](#{name})**: {} |", line(results));
        }
        let _ = writeln!(text, "\n{CELLS}{CHARTS}\n");
    } else {
        for (results, _) in &all {
            let name = &results.experiment;
            let _ = writeln!(text, "- **[{name}](#{name})**: {}", line(results));
        }
        let _ = writeln!(text, "\n{CELLS}\n\nEvery run as JSON, and all plots, are in {ARCHIVE} beside a release.\n");
    }
    text += TABLES;
    for (results, _) in &all {
        text += &section(results, shown);
    }
    text += "## Void runs\n\nA run is void when it means nothing: an answer was wrong or missing, a server died, the emulated link was late. \
             Void runs are in no median.\n\n";
    let before = text.len();
    for (results, _) in &all {
        for (run, why) in results.voids() {
            let _ =
                writeln!(text, "- {}: {}, {}, round {}: {why}", results.experiment, run.contender, run.case, run.round);
        }
    }
    text += if text.len() == before { "None.\n\n" } else { "\n" };
    text += "## Commands, configurations, machine\n\n";
    for (results, _) in &all {
        text += &conditions(results);
    }
    text
}

/// What an experiment concludes, in a line.
fn line(results: &Results) -> String {
    if results.quick {
        return "quick: it works, and its figures mean nothing.".to_owned();
    }
    let standings = first_screen(results);
    let Some(first) = standings.first() else { return described(results) };
    let figure = title(first.figure, first.case.per);
    let mut text =
        format!("{figure}, {}.", if first.better == Better::Less { "less is better" } else { "more is better" });
    let ranked: Vec<&Standing> = standings.iter().filter(|standing| standing.best.is_some()).collect();
    if has_rivals(results) && !ranked.is_empty() {
        let names = ["first", "tied", "behind", "last", "undecided"];
        let of = [Rank::First, Rank::Tied, Rank::Behind, Rank::Last, Rank::Undecided]
            .map(|rank| ranked.iter().filter(|standing| standing.rank == rank).count());
        let _ = write!(text, " litequic is {}.", counted(&names, &of, ranked.len()));
    } else if let Some(best) = ranked.first().and_then(|standing| standing.best.as_ref()) {
        let all: Vec<&Beside> = ranked.iter().filter_map(|standing| standing.best.as_ref()).collect();
        let _ = write!(text, " Beside *{}* litequic is {}.", best.name, verdicts(&all));
    }
    let tcp: Vec<&Beside> = standings.iter().filter_map(|standing| standing.tcp.as_ref()).collect();
    if let Some(first) = tcp.first() {
        let _ = write!(text, " Beside *{}* it is {}.", first.name, verdicts(&tcp));
    }
    text
}

/// Of an experiment's cells those that the first screen counts: by the figure that each was run for.
pub(super) fn first_screen(results: &Results) -> Vec<Standing<'_>> {
    let mut standings = standings(results);
    standings.retain(|standing| standing.figure == standing.case.primary);
    standings
}

fn verdicts(all: &[&Beside]) -> String {
    let names = ["better", "tied", "worse", "undecided"];
    let of = [Verdict::Better, Verdict::Tied, Verdict::Worse, Verdict::Undecided]
        .map(|verdict| all.iter().filter(|beside| beside.verdict == verdict).count());
    counted(&names, &of, all.len())
}

/// `first in 3 of 12 cells, tied in 9`.
fn counted(names: &[&str], counts: &[usize], all: usize) -> String {
    let cells = if all == 1 { "cell" } else { "cells" };
    let counted = names.iter().zip(counts).filter(|(_, count)| **count > 0);
    let parts = counted.enumerate().map(|(at, (name, count))| {
        if at == 0 { format!("{name} in {count} of {all} {cells}") } else { format!("{name} in {count}") }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What litequic's figure is in the first and the last case of each group, where nothing is better or worse.
fn described(results: &Results) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut groups: Vec<&str> = Vec::new();
    for case in &results.cases {
        if !groups.contains(&case.group.as_str()) {
            groups.push(&case.group);
        }
    }
    for group in groups {
        let mut cases: Vec<&Case> = results.cases.iter().filter(|case| case.group == group).collect();
        let last = cases.pop();
        cases.truncate(1);
        for case in cases.into_iter().chain(last) {
            if let Some(figure) = quiet(results, case) {
                parts.push(format!("{} in *{}*", interval(&figure), case.name));
            }
        }
    }
    let Some(first) = results.cases.first().filter(|_| !parts.is_empty()) else {
        return "nothing is concluded.".to_owned();
    };
    format!("{}: litequic has {}.", title(&first.primary, first.per), parts.join(", "))
}

/// litequic's figure over enough rounds that nothing disturbed.
fn quiet(results: &Results, case: &Case) -> Option<Interval> {
    let runs = results.counting(&case.name, LITEQUIC).filter(|run| run.is_quiet(&case.primary));
    let figures: Vec<f64> = runs.filter_map(|run| run.figures.get(&case.primary).copied()).collect();
    (figures.len() >= super::ROUNDS).then(|| Interval::of(&figures)).flatten()
}

/// An experiment's tables: the figures that its question is about.
fn section(results: &Results, shown: &Plots) -> String {
    let name = &results.experiment;
    let runs =
        if *shown == Plots::All { format!("[every run]({name}.json)") } else { format!("every run: `{name}.json`") };
    let mut text = format!("### {name}\n\n{} [Every figure]({name}.md), {runs}.\n\n", results.about);
    if results.quick {
        text += "**Quick: this run shows that the experiment works. Its figures mean nothing.**\n\n";
    }
    let mut figures: Vec<(&str, &Case)> = Vec::new();
    for case in &results.cases {
        for figure in case.figures() {
            if !figures.iter().any(|(known, first)| *known == figure && first.per == case.per) && !figure.contains('/')
            {
                figures.push((figure, case));
            }
        }
    }
    let standings = standings(results);
    for (figure, first) in figures {
        text += &table(results, figure, first, &standings);
    }
    for case in &results.cases {
        let parts = parts(results, case, "share/", "part", "% of samples")
            + &parts(results, case, "calls/", "system call", "a MB");
        if !parts.is_empty() {
            let _ = write!(text, "{}:\n\n{parts}", case.name);
        }
    }
    text
}

/// A figure's table: a row for each case, a column for each contender, and where litequic stands.
fn table(results: &Results, figure: &str, first: &Case, standings: &[Standing]) -> String {
    let cases: Vec<&Case> = results
        .cases
        .iter()
        .filter(|case| case.per == first.per && case.figures().any(|known| known == figure))
        .collect();
    let median = |case: &Case, name: &str| Some(results.summary(&case.name, name, figure)?.median);
    let names: Vec<&str> =
        results.names().filter(|name| cases.iter().any(|case| median(case, name).is_some())).collect();
    let standing = |case: &Case| standings.iter().find(|one| one.case.name == case.name && one.figure == figure);
    let has = |of: fn(&Standing) -> bool| cases.iter().any(|case| standing(case).is_some_and(of));
    let (best, tcp) = (has(|standing| standing.best.is_some()), has(|standing| standing.tcp.is_some()));
    let mut heads: Vec<String> = vec![title(figure, first.per)];
    heads.extend(names.iter().map(|name| (*name).to_owned()));
    let rivals = has_rivals(results);
    heads.extend(best.then(|| if rivals { "beside the best other" } else { "beside" }.to_owned()));
    heads.extend(tcp.then(|| "beside TCP".to_owned()));
    let mut text = format!("| {} |\n|---|{}", heads.join(" | "), "---:|".repeat(names.len()));
    text += &"---|".repeat(usize::from(best) + usize::from(tcp));
    text.push('\n');
    for case in cases {
        let ran = results.runs.iter().map(|run| run.contender.as_str());
        let ran: BTreeSet<&str> =
            ran.zip(&results.runs).filter(|(_, run)| run.case == case.name).map(|(name, _)| name).collect();
        let cell = |name: &&str| match median(case, name) {
            Some(median) => number(median),
            None if ran.contains(name) => "void".to_owned(),
            None => String::new(),
        };
        let mut row: Vec<String> = vec![case.name.clone()];
        row.extend(names.iter().map(cell));
        let standing = standing(case);
        let beside = |beside: &Beside, word: &str| match &beside.ratio {
            Ok(ratio) => format!("{word}: {} of {}", interval(ratio), beside.name),
            Err(why) => format!("? {}: {why}", beside.name),
        };
        if best {
            let of = |standing: &Standing| {
                let best = standing.best.as_ref()?;
                Some(beside(best, if rivals { rank(standing.rank) } else { verdict(best.verdict) }))
            };
            row.push(standing.and_then(of).unwrap_or_default());
        }
        if tcp {
            let of = |standing: &Standing| standing.tcp.as_ref().map(|tcp| beside(tcp, verdict(tcp.verdict)));
            row.push(standing.and_then(of).unwrap_or_default());
        }
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
    text
}

fn rank(rank: Rank) -> &'static str {
    match rank {
        Rank::First => "**first**",
        Rank::Tied => "tied",
        Rank::Behind => "behind",
        Rank::Last => "**last**",
        Rank::Undecided => "undecided",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Tied => "tied",
        Verdict::Worse => "worse",
        Verdict::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};

    const EQUAL: [f64; 3] = [1.0, 1.0, 1.0];

    #[test]
    fn the_page_begins_with_what_is_concluded() {
        let mut results = results(&[(LITEQUIC, &EQUAL), ("a", &[2.0; 3]), ("b", &[1.5; 3])]);
        let mut other = results.cases[0].clone();
        other.name = "small".to_owned();
        let noisy = [1.0, 2.0, 0.5].iter().zip(results.runs.clone()).map(|(cpu, mut run)| {
            run.case = "small".to_owned();
            run.figures.insert("cpu".to_owned(), *cpu);
            run
        });
        let noisy: Vec<_> = noisy.collect();
        results.runs.extend(noisy.iter().cloned());
        results.runs.extend(noisy.into_iter().map(|mut run| {
            run.contender = "a".to_owned();
            run.figures.insert("cpu".to_owned(), 1.0);
            run
        }));
        results.cases.push(other);
        let page = page(&[(results, Some("peers.svg".to_owned()))], &Plots::All);
        let line = "| ![peers](peers.svg) | **[peers](#peers)**: CPU s/GB, less is better. litequic is first in 1 of 2 \
                    cells, undecided in 1. |";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("| large | 1.00 | 2.00 | 1.50 | **first**: 0.67 (0.67–0.67) of b |"), "{page}");
        assert!(page.contains("| small | 1.00 | 1.00 |  | undecided: 1.00 (0.18–5.60) of a |"), "{page}");
        let order = ["# What litequic costs", "**[peers]", "## Tables", "## Void runs\n", "None.", "## Commands"];
        let at: Vec<usize> =
            order.iter().map(|part| page.find(part).unwrap_or_else(|| panic!("{part} in {page}"))).collect();
        assert!(at.is_sorted(), "{at:?}");
    }

    #[test]
    fn a_figure_that_only_describes_is_told_where_nothing_disturbed_it() {
        let mut results = results(&[(LITEQUIC, &[4.0, 4.0, 4.0])]);
        results.cases[0].primary = "datagrams_per_batch".to_owned();
        for run in &mut results.runs {
            run.figures.insert("datagrams_per_batch".to_owned(), 8.0);
        }
        assert_eq!(line(&results), "datagrams a batch: litequic has 8.00 (8.00–8.00) in *large*.");
        results.runs[0].noise.stolen = 50.0;
        assert_eq!(line(&results), "nothing is concluded.");
    }

    #[test]
    fn cells_over_tcp_are_counted_by_themselves() {
        let mut results = results(&[(LITEQUIC, &EQUAL), ("a", &[1.0; 3]), ("h1-cubic", &[0.5; 3])]);
        results.contenders[2].kind = crate::bench::contender::Kind::H1;
        assert_eq!(
            line(&results),
            "CPU s/GB, less is better. litequic is tied in 1 of 1 cell. Beside *h1-cubic* it is worse in 1 of 1 cell."
        );
        results.quick = true;
        assert!(line(&results).starts_with("quick"));
    }
}

//! The page of all results: for each subject what is concluded, one table of chosen cells, and under which conditions
//! they were measured. Pure: results into text. Every figure of every cell is on the experiments' own pages
//! (`markdown`).

use super::{
    Case, Results,
    bars::Chart,
    figures::{Better, interval, number, title},
    verdict::{Beside, LITEQUIC, Rank, Standing, Verdict, has_rivals, standings},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// A table of the page, of some cells of an experiment.
struct Subject {
    /// Heading of the subject, and name of the chart's file.
    name: &'static str,
    experiment: &'static str,
    /// The cases that are rows.
    cases: &'static [&'static str],
    /// Rows that the chart draws; without any there is no chart.
    drawn: &'static [&'static str],
    /// What the chart shows, in front of the figure's name.
    shows: &'static str,
}

/// Subjects in the order of the page: what a server on the internet pays first. Of an experiment without a subject the
/// page has the conclusion alone.
const SUBJECTS: [Subject; 14] = [
    Subject {
        name: "many",
        experiment: "many",
        cases: &[
            "100 Mbit/s, 40 ms, ACK 2, 1 flows",
            "100 Mbit/s, 40 ms, ACK 2, 10 flows",
            "100 Mbit/s, 40 ms, ACK 2, 100 flows",
            "100 Mbit/s, 40 ms, ACK 2, 1000 flows",
            "100 Mbit/s, 40 ms, ACK auto, 100 flows",
            "100 Mbit/s, 40 ms, ACK 10, 100 flows",
            "200 Mbit/s, 40 ms, ACK 2, 100 flows",
            "100 Mbit/s, 20 ms, ACK 2, 100 flows",
            "100 Mbit/s, 100 ms, ACK 2, 100 flows",
        ],
        drawn: &[
            "100 Mbit/s, 40 ms, ACK 2, 1 flows",
            "100 Mbit/s, 40 ms, ACK 2, 10 flows",
            "100 Mbit/s, 40 ms, ACK 2, 100 flows",
            "200 Mbit/s, 40 ms, ACK 2, 100 flows",
        ],
        shows: "Downloads over HTTP/3 that share a link",
    },
    Subject {
        name: "large-bodies",
        experiment: "peers",
        cases: &[
            "large bodies, ACK 2, unsaturated",
            "large bodies, ACK 2, saturated",
            "large bodies, ACK 10, saturated",
            "large bodies, ACK 100, saturated",
            "large bodies, h2load, saturated",
            "uploads, saturated",
        ],
        drawn: &[
            "large bodies, ACK 2, saturated",
            "large bodies, ACK 10, saturated",
            "large bodies, ACK 100, saturated",
            "uploads, saturated",
        ],
        shows: "Large bodies",
    },
    Subject {
        name: "small-objects",
        experiment: "peers",
        cases: &[
            "small objects, ACK 2, unsaturated",
            "small objects, ACK 2, saturated",
            "small objects, h2load, unsaturated",
            "small objects, h2load, saturated",
        ],
        drawn: &["small objects, ACK 2, unsaturated", "small objects, h2load, unsaturated"],
        shows: "Responses of 1 KB",
    },
    Subject {
        name: "sizes-and-protocols",
        experiment: "peers",
        cases: &[
            "defaults, 1 KB over HTTP/3, ACK 2",
            "defaults, 1 KB over HTTP/3",
            "defaults, 1 KB over HTTP/2",
            "defaults, 1 KB over HTTP/1.1",
            "defaults, 10 KB over HTTP/3",
            "defaults, 10 KB over HTTP/2",
            "defaults, 10 KB over HTTP/1.1",
            "defaults, 100 KB over HTTP/3",
            "defaults, 100 KB over HTTP/2",
            "defaults, 100 KB over HTTP/1.1",
        ],
        drawn: &[
            "defaults, 1 KB over HTTP/3",
            "defaults, 1 KB over HTTP/2",
            "defaults, 10 KB over HTTP/3",
            "defaults, 100 KB over HTTP/3",
        ],
        shows: "Every proxy with its defaults",
    },
    Subject {
        name: "long",
        experiment: "long",
        cases: &[
            "100 Mbit/s, 50 ms",
            "100 Mbit/s, 50 ms, tuned",
            "100 Mbit/s, 200 ms",
            "500 Mbit/s, 100 ms",
            "500 Mbit/s, 200 ms",
            "upload, 100 Mbit/s, 100 ms",
        ],
        drawn: &["100 Mbit/s, 50 ms", "100 Mbit/s, 200 ms", "upload, 100 Mbit/s, 100 ms"],
        shows: "One download over a long path",
    },
    Subject {
        name: "short",
        experiment: "short",
        cases: &[
            "5 Mbit/s, 100 ms, 100 KB",
            "50 Mbit/s, 20 ms, 100 KB",
            "50 Mbit/s, 20 ms, 1 MB",
            "50 Mbit/s, 100 ms, 100 KB",
            "100 Mbit/s, 100 ms, 1 MB",
        ],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "shallow",
        experiment: "shallow",
        cases: &[
            "20 Mbit/s, 10 ms, 0.25 BDP",
            "20 Mbit/s, 10 ms, 0.5 BDP, Chromium",
            "20 Mbit/s, 50 ms, 0.25 BDP",
            "100 Mbit/s, 50 ms, 0.25 BDP",
            "100 Mbit/s, 50 ms, 0.5 BDP, tuned",
        ],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "lossy",
        experiment: "lossy",
        cases: &[
            "random loss, 0.1 %",
            "random loss, 0.5 %",
            "random loss, 2 %",
            "bursty loss, 0.5 %",
            "blackout, 5 s",
            "changes, 50 to 2 Mbit/s",
            "changes, 5 % of ACKs lost",
            "changes, 1 % overtaken by 5 ms",
            "changes, 100 down, 1 up",
        ],
        drawn: &["random loss, 0.1 %", "random loss, 0.5 %", "random loss, 2 %", "bursty loss, 0.5 %"],
        shows: "One download over 50 Mbit/s and 50 ms",
    },
    Subject {
        name: "fairness",
        experiment: "fairness",
        cases: &[
            "1 BDP, beside litequic",
            "1 BDP, beside h1-cubic",
            "1 BDP, beside h1-bbr",
            "5 BDP, beside litequic",
            "5 BDP, beside h1-cubic",
            "5 BDP, beside h1-bbr",
        ],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "viewers",
        experiment: "viewers",
        cases: &[
            "20 ms, dynamic, 20 viewers",
            "20 ms, dynamic, 40 viewers",
            "20 ms, dynamic, 80 viewers",
            "20 ms, dynamic, 120 viewers",
            "20 ms, dynamic, 160 viewers",
            "20 ms, 0.5 % loss, dynamic, 120 viewers",
        ],
        drawn: &[
            "20 ms, dynamic, 80 viewers",
            "20 ms, dynamic, 120 viewers",
            "20 ms, 0.5 % loss, dynamic, 120 viewers",
        ],
        shows: "Viewers of a server with 12 % of a core",
    },
    Subject {
        name: "attacks",
        experiment: "attacks",
        cases: &["no attack", "QUIC handshakes", "slow uploads", "slow readers", "all at once"],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "attacks-memory",
        experiment: "attacks-memory",
        cases: &["no attack", "all at once"],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "bloat",
        experiment: "bloat",
        cases: &["10 KB, alone", "10 KB, beside a bulk download"],
        drawn: &[],
        shows: "",
    },
    Subject {
        name: "gateway",
        experiment: "gateway",
        cases: &["gateway, limits raised", "gateway, defaults"],
        drawn: &[],
        shows: "",
    },
];

/// Contenders that are on an experiment's own page alone where there are rivals: builds and steps of litequic, what is no
/// proxy.
const HIDDEN: [&str; 6] = ["before", "all-off", "gso", "merge", "floor", "h1-bbr"];

const INTRODUCTION: &str = "\
# Results

litequic beside other proxies that add HTTP/3 to an HTTP/1.1 origin, in the same runs, one worker on one core each. Made by
`litequic-lab report`; [how it measures](../../benches/lab/README.md).

Figures are medians of all rounds that are not void. *To the best other* is litequic's figure by that of the best other HTTP/3 proxy, paired
within a round, with its 95 % interval: *first* is more than 3 % better, *tied* within 3 %, *behind* more than 3 % worse, *last* so beside each. *?* has
too few rounds without a disturbance. A cell is one path or load. *ACK 2* is a client that sends an acknowledgement for two packets, *auto* one
that sends as many as the server requests (ACK_FREQUENCY); *saturated* is a server that is the bottleneck.
";

/// Where the rest is, on the page that stands alone.
const ARCHIVED: &str = "
Every run as JSON, every figure of every cell, and all plots are in the archive of results (`results-VERSION.tar.zst`) beside a release.
";

/// How charts and tables of an experiment's own page read.
pub(super) const CELLS: &str = "\
A cell is one path or load. litequic is *first* where it is more than 3 % better than every other HTTP/3 proxy, *tied* within
3 % of the best, *last* where it is more than 3 % worse than each; a cell is *undecided* while the 95 % interval of the ratio
does not say so. Chart: ● beside the best other HTTP/3 proxy, ○ beside the same bodies over TCP; right of 1 litequic is
better by that factor; blue better, grey tied, orange worse; undecided cells are not drawn.";

/// A subject with its experiment's results.
struct Part<'a> {
    name: &'a str,
    results: &'a Results,
    rows: Vec<&'a Case>,
    drawn: &'a [&'a str],
    shows: &'a str,
}

/// The parts of the page, in its order.
fn parts_of(all: &[Results]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for subject in &SUBJECTS {
        for results in all.iter().filter(|results| results.experiment == subject.experiment) {
            let chosen = |case: &&Case| subject.cases.contains(&case.name.as_str());
            let rows: Vec<&Case> = results.cases.iter().filter(chosen).collect();
            if !rows.is_empty() {
                parts.push(Part { name: subject.name, results, rows, drawn: subject.drawn, shows: subject.shows });
            }
        }
    }
    parts
}

impl Part<'_> {
    /// The file of the part's chart.
    fn chart(&self) -> String {
        format!("{}-bars.svg", self.name)
    }

    /// Contenders that have a figure in one of the rows.
    fn columns(&self) -> Vec<&str> {
        let has = |name: &&str| self.rows.iter().any(|case| median(self.results, case, &case.primary, name).is_some());
        let is_shown = |name: &&str| !has_rivals(self.results) || !HIDDEN.contains(name);
        self.results.names().filter(is_shown).filter(has).collect()
    }

    /// The figures that the part's table compares by: one each, in the order of the rows.
    fn figures(&self) -> Vec<&Case> {
        let mut firsts: Vec<&Case> = Vec::new();
        for case in &self.rows {
            if !firsts.iter().any(|first| first.primary == case.primary && first.per == case.per) {
                firsts.push(case);
            }
        }
        firsts
    }
}

/// The question that an experiment answers.
fn question(results: &Results) -> &str {
    let about = results.about.as_str();
    about.find('?').and_then(|at| about.get(..=at)).unwrap_or(about)
}

fn median(results: &Results, case: &Case, figure: &str, name: &str) -> Option<f64> {
    Some(results.summary(&case.name, name, figure)?.median)
}

/// The charts of all subjects that have one, with their files.
pub(super) fn charts(all: &[Results]) -> Vec<(String, Chart)> {
    let chart = |part: &Part| {
        let rows = part.rows.iter().filter(|case| part.drawn.contains(&case.name.as_str()));
        let groups = rows.map(|case| {
            let bars = part.columns().into_iter();
            let bars = bars.filter_map(|name| Some((label(name), median(part.results, case, &case.primary, name)?)));
            let mut bars: Vec<(String, f64)> = bars.collect();
            bars.sort_by_key(|(name, _)| !name.starts_with(LITEQUIC));
            (case.name.clone(), bars)
        });
        let groups: Vec<(String, Vec<(String, f64)>)> = groups.collect();
        let first = part.rows.first()?;
        let better = if Better::of(&first.primary) == Some(Better::More) { "more" } else { "less" };
        let title = format!("{}: {} ({better} is better)", part.shows, title(&first.primary, first.per));
        (!groups.is_empty()).then(|| (part.chart(), Chart { title, groups }))
    };
    parts_of(all).iter().filter_map(chart).collect()
}

/// A contender's name in a chart, which readers see without the descriptions of contenders.
fn label(name: &str) -> String {
    match name {
        "litequic-pgo" => "litequic, shipped build",
        "bbr" | "litequic-bbr" => "litequic with BBR",
        "haproxy" => "HAProxy",
        "caddy" => "Caddy",
        "envoy" => "Envoy",
        "h2o" => "H2O",
        "nginx-h1" => "nginx, HTTP/1.1 + TLS",
        "h1-cubic" => "nginx, TLS over TCP",
        other => other,
    }
    .to_owned()
}

/// One page of all results. `shown` are the charts beside a page that stands alone; without it the experiments' own
/// pages, their results and all charts are beside it.
pub(super) fn page(all: &[Results], shown: Option<&BTreeSet<String>>) -> String {
    let mut text = INTRODUCTION.to_owned();
    if shown.is_some() {
        text += ARCHIVED;
    }
    let links = |results: &Results| match shown {
        Some(_) => String::new(),
        None => format!(" [Every figure]({0}.md), [every run]({0}.json).", results.experiment),
    };
    let parts = parts_of(all);
    for part in &parts {
        let Part { name, results, .. } = part;
        let _ = write!(text, "\n## {name}\n\n{}{}", question(results), links(results));
        text += &conclusion(results, &part.rows);
        text += "\n\n";
        let is_drawn = part.rows.iter().any(|case| part.drawn.contains(&case.name.as_str()));
        if is_drawn && shown.is_none_or(|shown| shown.contains(&part.chart())) {
            let _ = writeln!(text, "![{name}]({})\n", part.chart());
        }
        let standings = standings(results);
        for first in part.figures() {
            let alike = |case: &&Case| case.primary == first.primary && case.per == first.per;
            let rows: Vec<&Case> = part.rows.iter().copied().filter(alike).collect();
            text += &table(results, &first.primary, first, &rows, &standings, &part.columns(), false);
        }
        let _ = writeln!(text, "{}.", conditions(results));
    }
    let others = all.iter().filter(|results| !parts.iter().any(|part| part.results.experiment == results.experiment));
    for (at, results) in others.enumerate() {
        if at == 0 {
            text += "\n## Other experiments\n\n";
        }
        let all: Vec<&Case> = results.cases.iter().collect();
        let (name, question, links) = (&results.experiment, question(results), links(results));
        let _ = writeln!(text, "- **{name}**: {question}{links}{} {}.", conclusion(results, &all), conditions(results));
    }
    text += &versions(all);
    text
}

/// What is concluded of the groups of some cases, in a sentence or two.
fn conclusion(results: &Results, cases: &[&Case]) -> String {
    if results.quick {
        return " **Quick: it works, and its figures mean nothing.**".to_owned();
    }
    let groups: BTreeSet<&str> = cases.iter().map(|case| case.group.as_str()).collect();
    let mut standings = first_screen(results);
    standings.retain(|standing| groups.contains(standing.case.group.as_str()));
    let best: Vec<(Rank, &Beside)> =
        standings.iter().filter_map(|standing| Some((standing.rank, standing.best.as_ref()?))).collect();
    let mut text = String::new();
    if has_rivals(results) && best.iter().any(|(_, beside)| beside.ratio.is_ok()) {
        let names = ["first", "tied", "behind", "last", "undecided"];
        let of = [Rank::First, Rank::Tied, Rank::Behind, Rank::Last, Rank::Undecided]
            .map(|rank| best.iter().filter(|(other, _)| *other == rank).count());
        let _ = write!(text, " litequic is {}.", counted(&names, &of, best.len()));
    } else if let Some((_, first)) = best.first().filter(|_| !has_rivals(results)) {
        let all: Vec<&Beside> = best.iter().map(|(_, beside)| *beside).collect();
        let _ = write!(text, " Beside *{}* litequic is {}.", first.name, verdicts(&all));
    }
    let tcp: Vec<&Beside> = standings.iter().filter_map(|standing| standing.tcp.as_ref()).collect();
    if let Some(first) = tcp.first().filter(|_| tcp.iter().any(|beside| beside.ratio.is_ok())) {
        let _ = write!(text, " Beside *{}* it is {}.", first.name, verdicts(&tcp));
    }
    text
}

/// Cells of an experiment that are counted: by the figure that each was run for.
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

/// The tables of an experiment's own page: every figure that it is about, every case, and where litequic stands.
pub(super) fn all_tables(results: &Results) -> String {
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
    let names: Vec<&str> = results.names().collect();
    let mut text = String::new();
    for (figure, first) in figures {
        let has = |case: &&Case| case.per == first.per && case.figures().any(|known| known == figure);
        let rows: Vec<&Case> = results.cases.iter().filter(has).collect();
        text += &table(results, figure, first, &rows, &standings, &names, true);
    }
    text
}

/// A figure's table: a row for each case, a column for each contender, and where litequic stands: beside the best other
/// one, and if it is `complete`, with that one's name, and beside TCP.
fn table(
    results: &Results,
    figure: &str,
    first: &Case,
    rows: &[&Case],
    standings: &[Standing],
    names: &[&str],
    complete: bool,
) -> String {
    let has_figure = |name: &&&str| rows.iter().any(|case| median(results, case, figure, name).is_some());
    let names: Vec<&str> = names.iter().filter(has_figure).copied().collect();
    let standing = |case: &Case| standings.iter().find(|one| one.case.name == case.name && one.figure == figure);
    let of_rows = || rows.iter().filter_map(|case| standing(case));
    let concluded = |beside: &&Beside| complete || beside.ratio.is_ok();
    let best = of_rows().filter_map(|standing| standing.best.as_ref()).find(concluded);
    let tcp = of_rows().filter_map(|standing| standing.tcp.as_ref()).find(|_| complete);
    let rivals = has_rivals(results);
    let mut heads: Vec<String> = vec![title(figure, first.per)];
    heads.extend(names.iter().map(|name| (*name).to_owned()));
    heads.extend(best.map(|best| if rivals { "to the best other".to_owned() } else { format!("to {}", best.name) }));
    heads.extend(tcp.map(|tcp| format!("to {}", tcp.name)));
    let mut text = format!("| {} |\n|---|{}", heads.join(" | "), "---:|".repeat(names.len()));
    text += &"---|".repeat(usize::from(best.is_some()) + usize::from(tcp.is_some()));
    text.push('\n');
    for case in rows {
        let cell = |name: &&str| match median(results, case, figure, name) {
            Some(median) => number(median),
            None if results.runs.iter().any(|run| run.case == case.name && run.contender == *name) => "void".to_owned(),
            None => String::new(),
        };
        let mut row: Vec<String> = vec![case.name.clone()];
        row.extend(names.iter().map(cell));
        if best.is_some() {
            let of = |standing: &Standing| {
                let best = standing.best.as_ref()?;
                let word = if rivals { rank(standing.rank) } else { verdict(best.verdict) };
                Some(beside(best, word, complete && rivals))
            };
            row.push(standing(case).and_then(of).unwrap_or_default());
        }
        if tcp.is_some() {
            let of = |standing: &Standing| standing.tcp.as_ref().map(|tcp| beside(tcp, verdict(tcp.verdict), false));
            row.push(standing(case).and_then(of).unwrap_or_default());
        }
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
    text
}

/// A ratio with its verdict, and whose it is unless the column says so.
fn beside(beside: &Beside, word: &str, named: bool) -> String {
    let name = if named { format!(", {}", beside.name) } else { String::new() };
    beside.ratio.as_ref().map_or_else(|_| format!("?{name}"), |ratio| format!("{} {word}{name}", interval(ratio)))
}

fn rank(rank: Rank) -> &'static str {
    match rank {
        Rank::First => "first",
        Rank::Tied => "tied",
        Rank::Behind => "behind",
        Rank::Last => "last",
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

/// Command, day, machine, and how many runs are void, in a line.
fn conditions(results: &Results) -> String {
    let command = results.command.replace(" --out docs/results", "");
    let day = results.started.get(..10).unwrap_or(&results.started);
    let voids = results.voids().count();
    let runs = results.runs.iter().filter(|run| run.counts).count();
    format!("`{command}`, {day}, {}; {runs} runs, {voids} void", results.machine.cpu)
}

/// Versions of the contenders, and the machines.
fn versions(all: &[Results]) -> String {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for contender in all.iter().flat_map(|results| &results.contenders) {
        let version = contender.version.split(", TCP").next().unwrap_or_default();
        if !version.starts_with(LITEQUIC) {
            versions.entry(version).or_default().insert(&contender.name);
        }
    }
    let own = all.iter().flat_map(|results| &results.contenders).find(|contender| contender.name == LITEQUIC);
    let mut text = "\n## Versions\n\n".to_owned();
    text += &own.map(|own| format!("- {}\n", own.version)).unwrap_or_default();
    for (version, names) in versions {
        let _ = writeln!(text, "- {}: {version}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    let machine = |results: &Results| {
        let machine = &results.machine;
        let kernel = machine.kernel.split(['-', ' ']).next().unwrap_or_default();
        let kind = if machine.virtual_machine { " of a virtual machine" } else { "" };
        format!("- {}, {} cores{kind}, Linux {kernel}\n", machine.cpu, machine.cores)
    };
    text.extend(all.iter().map(machine).collect::<BTreeSet<String>>());
    text
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};
    use crate::bench::contender::Kind;

    const EQUAL: [f64; 3] = [1.0, 1.0, 1.0];

    /// Results of two contenders beside litequic, in a case that litequic wins and in one that decides nothing.
    fn two_cases() -> Results {
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
        results
    }

    #[test]
    fn a_subject_has_its_conclusion_then_medians_ratios_and_conditions() {
        let mut results = two_cases();
        for (case, name) in results.cases.iter_mut().zip(["uploads, saturated", "large bodies, ACK 2, saturated"]) {
            for run in results.runs.iter_mut().filter(|run| run.case == case.name) {
                run.case = name.to_owned();
            }
            case.name = name.to_owned();
        }
        let all = [results];
        assert_eq!(charts(&all).iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(), ["large-bodies-bars.svg"]);
        let whole = page(&all, None);
        let head = "\n## large-bodies\n\nWhat does it cost? [Every figure](peers.md), [every run](peers.json). litequic is first in 1 \
                    of 2 cells, undecided in 1.\n\n![large-bodies](large-bodies-bars.svg)\n";
        assert!(whole.contains(head), "{whole}");
        assert!(whole.contains("| CPU s/GB | litequic | a | b | to the best other |\n"), "{whole}");
        assert!(whole.contains("| uploads, saturated | 1.00 | 2.00 | 1.50 | 0.67 (0.67–0.67) first |"), "{whole}");
        assert!(
            whole.contains("| large bodies, ACK 2, saturated | 1.00 | 1.00 |  | 1.00 (0.18–5.60) undecided |"),
            "{whole}"
        );
        assert!(whole.contains("`litequic-lab peers`, 2026-01-01, ; 15 runs, 0 void.\n"), "{whole}");
        assert!(
            whole.contains("## Versions\n\n- litequic 1.0\n- a: a 1.0\n- b: b 1.0\n- , 0 cores, Linux \n"),
            "{whole}"
        );

        let alone = page(&all, Some(&BTreeSet::new()));
        assert!(alone.contains("archive of results") && !alone.contains("](peers") && !alone.contains("!["), "{alone}");
        let shown = page(&all, Some(&BTreeSet::from(["large-bodies-bars.svg".to_owned()])));
        assert!(shown.contains("![large-bodies](large-bodies-bars.svg)"), "{shown}");
    }

    #[test]
    fn an_experiment_without_a_subject_has_its_conclusion_alone() {
        let page = page(&[two_cases()], None);
        let line = "## Other experiments\n\n- **peers**: What does it cost? [Every figure](peers.md), [every run](peers.json). litequic is \
                    first in 1 of 2 cells, undecided in 1. `litequic-lab peers`, ";
        assert!(page.contains(line) && !page.contains("| litequic |"), "{page}");
    }

    #[test]
    fn an_experiments_own_page_has_the_names_of_the_best_and_tcp() {
        let mut results = results(&[(LITEQUIC, &EQUAL), ("a", &[1.0; 3]), ("h1-cubic", &[0.5; 3])]);
        results.contenders[2].kind = Kind::H1;
        let tables = all_tables(&results);
        assert!(
            tables.contains("| CPU s/GB | litequic | a | h1-cubic | to the best other | to h1-cubic |\n"),
            "{tables}"
        );
        assert!(tables.contains("| 1.00 (1.00–1.00) tied, a | 2.00 (2.00–2.00) worse |"), "{tables}");
        let text = page(std::slice::from_ref(&results), None);
        assert!(
            text.contains("litequic is tied in 1 of 1 cell. Beside *h1-cubic* it is worse in 1 of 1 cell."),
            "{text}"
        );
        results.quick = true;
        assert!(page(&[results], None).contains("**Quick: it works"));
    }

    #[test]
    fn a_chart_draws_rows_of_its_subject() {
        for subject in &SUBJECTS {
            assert!(subject.drawn.iter().all(|case| subject.cases.contains(case)), "{}", subject.name);
            assert_eq!(subject.drawn.is_empty(), subject.shows.is_empty(), "{}", subject.name);
        }
    }
}

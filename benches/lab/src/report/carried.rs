//! How far a contender keeps within bounds as a group's load grows: how many viewers it carries. Pure.

use super::{
    Case, Results,
    figures::{number, title},
};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// What a figure must keep to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) figure: String,
    /// Less than this,
    pub(crate) below: Option<f64>,
    /// or this at least.
    pub(crate) least: Option<f64>,
}

impl Bound {
    /// Whether the median of a contender's rounds keeps to it; `None` without rounds.
    fn holds(&self, results: &Results, case: &Case, contender: &str) -> Option<bool> {
        let figure = results.summary(&case.name, contender, &self.figure)?.median;
        Some(self.below.is_none_or(|below| figure < below) && self.least.is_none_or(|least| figure >= least))
    }

    fn describe(&self, case: &Case) -> String {
        let below = self.below.map(|below| format!("below {}", number(below)));
        let least = self.least.map(|least| format!("{} at least", number(least)));
        let limits: Vec<String> = below.into_iter().chain(least).collect();
        format!("{} {}", title(&self.figure, case.per), limits.join(", "))
    }
}

/// A table for each group with bounds; nothing without any.
pub(super) fn tables(results: &Results) -> String {
    let mut groups: Vec<(&str, Vec<&Case>)> = Vec::new();
    for case in results.cases.iter().filter(|case| !case.bounds.is_empty() && case.x.is_some()) {
        match groups.iter_mut().find(|(group, _)| *group == case.group) {
            Some((_, cases)) => cases.push(case),
            None => groups.push((&case.group, vec![case])),
        }
    }
    let mut text = String::new();
    for (group, mut cases) in groups {
        cases.sort_by(|a, b| a.x.partial_cmp(&b.x).unwrap_or(std::cmp::Ordering::Equal));
        let Some(first) = cases.first() else { continue };
        let titles: Vec<String> = (1..=first.bounds.len())
            .map(|count| {
                first.bounds.iter().take(count).map(|bound| bound.describe(first)).collect::<Vec<_>>().join(", ")
            })
            .collect();
        let places: Vec<String> = cases.iter().filter_map(|case| case.x).map(|x| x.to_string()).collect();
        let _ = writeln!(
            text,
            "## Carried: {group}\n\nThe most of {} of which that and fewer keep to it.\n",
            places.join(", ")
        );
        let _ = writeln!(text, "| contender | {} |\n|---|{}", titles.join(" | "), "---:|".repeat(titles.len()));
        for name in results.names() {
            let carried = (1..=first.bounds.len()).map(|count| carried(results, &cases, name, count));
            let Some(carried) = carried.collect::<Option<Vec<String>>>() else { continue };
            let _ = writeln!(text, "| {name} | {} |", carried.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// The highest `x` up to which a contender keeps to the first `count` bounds; `None` if it took no part.
fn carried(results: &Results, cases: &[&Case], contender: &str, count: usize) -> Option<String> {
    let took_part: Vec<&&Case> =
        cases.iter().filter(|case| results.counting(&case.name, contender).next().is_some()).collect();
    let holds = |case: &&&&Case| {
        case.bounds.iter().take(count).all(|bound| bound.holds(results, case, contender) == Some(true))
    };
    let last = took_part.iter().take_while(holds).last();
    (!took_part.is_empty()).then(|| last.and_then(|case| case.x).map_or("none".to_owned(), |x| x.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};

    /// Cases at 20, 60 and 100, in which `cpu` is what is given.
    fn grown(contenders: &[(&str, [f64; 3])]) -> Results {
        let single: Vec<(&str, [f64; 1])> = contenders.iter().map(|(name, of)| (*name, [of[0]])).collect();
        let mut all = results(&single.iter().map(|(name, of)| (*name, of.as_slice())).collect::<Vec<_>>());
        let (case, runs) = (all.cases.remove(0), std::mem::take(&mut all.runs));
        for (at, x) in [20.0, 60.0, 100.0].into_iter().enumerate() {
            let name = format!("{x} viewers");
            let bound = Bound { figure: "cpu".to_owned(), below: Some(1.0), least: None };
            let bounds = vec![bound, Bound { figure: "rate".to_owned(), below: None, least: Some(90.0) }];
            all.cases.push(Case { name: name.clone(), x: Some(x), bounds, ..case.clone() });
            for (run, (_, of)) in runs.iter().zip(contenders) {
                let mut run = run.clone();
                run.case.clone_from(&name);
                run.figures.insert("cpu".to_owned(), of[at]);
                all.runs.push(run);
            }
        }
        all
    }

    #[test]
    fn capacity_is_the_largest_load_within_all_bounds() {
        let mut results = grown(&[("a", [0.1, 0.2, 3.0]), ("b", [2.0, 0.1, 0.1]), ("c", [0.0, 0.0, 0.0])]);
        let text = tables(&results);
        for row in ["| a | 60 | 60 |", "| b | none | none |", "| c | 100 | 100 |"] {
            assert!(text.contains(row), "{row} in {text}");
        }
        results.runs.iter_mut().filter(|run| run.case == "100 viewers").for_each(|run| {
            run.figures.insert("rate".to_owned(), 80.0);
        });
        assert!(tables(&results).contains("| c | 100 | 60 |"));
        results.cases.iter_mut().for_each(|case| case.bounds.clear());
        assert_eq!(tables(&results), "");
    }
}

//! Two sets of results beside each other: does what was measured once come out again? Pure: results into text.

use super::{
    Results,
    figures::{number, title},
};
use std::fmt::Write as _;

/// What the same contender in the same case cost then and now.
struct Pair {
    row: String,
    /// Who, where.
    name: String,
    /// By how much the ratios to the reference differ, as a part; `None` where one of them was not concluded.
    deviation: Option<f64>,
    /// The same of the figures themselves.
    drift: f64,
}

/// A page on the cases that both have; `None` without any.
pub(super) fn page(now: &[Results], then: &[Results]) -> Option<String> {
    let mut text = String::from("# Now beside then\n\n");
    let mut pairs = Vec::new();
    for now in now {
        let Some(then) = then.iter().find(|then| then.experiment == now.experiment) else { continue };
        let own = pair(now, then);
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(text, "## {}\n\nNow {}, then {}.", now.experiment, now.started, then.started);
        if now.quick || then.quick {
            text += "**One of them is quick: its figures mean nothing.**\n";
        }
        if now.machine != then.machine {
            text += "**Measured on different machines or kernels: only ratios can be compared.**\n";
        }
        let _ = writeln!(
            text,
            "\n| case | contender | figure | now | then | now / then | to {0} now | then | now / then |",
            now.reference
        );
        text += "|---|---|---|---:|---:|---:|---:|---:|---:|\n";
        text.extend(own.iter().map(|pair| pair.row.as_str()));
        text.push('\n');
        pairs.extend(own);
    }
    text += &worst(&pairs)?;
    Some(text)
}

/// The contenders of an experiment's cases that have valid runs in both.
fn pair(now: &Results, then: &Results) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for case in &now.cases {
        if !then.cases.iter().any(|then| then.name == case.name && then.primary == case.primary) {
            continue;
        }
        for name in now.names() {
            let median = |results: &Results| Some(results.summary(&case.name, name, &case.primary)?.median);
            let (Some(figure), Some(figure_then)) = (median(now), median(then)) else { continue };
            // To the same reference, whatever that run compared with.
            let ratio = |results: &Results| {
                results.ratio(&case.name, name, &now.reference, &case.primary).ok().map(|ratio| ratio.median)
            };
            let (ratio, ratio_then) = (ratio(now), ratio(then));
            let both = ratio.zip(ratio_then).filter(|(_, then)| *then != 0.0);
            let show = |figure: Option<f64>| figure.map_or("?".to_owned(), number);
            let row = format!(
                "| {} | {name} | {} | {} | {} | {} | {} | {} | {} |\n",
                case.name,
                title(&case.primary, case.per),
                number(figure),
                number(figure_then),
                show((figure_then != 0.0).then(|| figure / figure_then)),
                show(ratio),
                show(ratio_then),
                show(both.map(|(now, then)| now / then)),
            );
            pairs.push(Pair {
                row,
                name: format!("{name} in {}: {}", now.experiment, case.name),
                deviation: both.filter(|_| name != now.reference).map(|(now, then)| apart(now, then)),
                drift: apart(figure, figure_then),
            });
        }
    }
    pairs
}

/// How far two figures are apart, whichever is the larger, as a part of the smaller.
fn apart(one: f64, other: f64) -> f64 {
    if one == other {
        return 0.0;
    }
    let (small, large) = (one.min(other), one.max(other));
    if small > 0.0 { large / small - 1.0 } else { f64::INFINITY }
}

/// What it comes to.
fn worst(pairs: &[Pair]) -> Option<String> {
    let drift = pairs.iter().max_by(|a, b| a.drift.total_cmp(&b.drift))?;
    let mut text = format!("Figures repeat within {:.0} % ({}).\n", drift.drift * 100.0, drift.name);
    let ratios: Vec<(f64, &str)> =
        pairs.iter().filter_map(|pair| Some((pair.deviation?, pair.name.as_str()))).collect();
    match ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
        None => text += "No ratio was concluded both times.\n",
        Some((deviation, name)) => {
            let _ = writeln!(
                text,
                "The {} ratios that were concluded both times repeat within {:.0} % ({name}).",
                ratios.len(),
                deviation * 100.0
            );
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn what_both_have_is_compared_and_the_worst_is_named() {
        let then = results(&[("a", &[2.0, 2.0, 2.0]), ("b", &[1.0, 1.0, 1.0]), ("gone", &[1.0])]);
        let now = results(&[("a", &[4.0, 4.0, 4.0]), ("b", &[2.2, 2.2, 2.2]), ("new", &[9.0])]);
        let page = page(&[now], &[then]).unwrap();
        assert!(page.contains("| large | b | CPU s/GB | 2.20 | 1.00 | 2.20 | 0.55 | 0.50 | 1.10 |\n"), "{page}");
        assert!(page.contains("Figures repeat within 120 % (b in peers: large)."), "{page}");
        assert!(page.contains("The 1 ratios that were concluded both times repeat within 10 % (b in peers: large)."));
        assert!(!page.contains("gone") && !page.contains("new |"), "{page}");
    }

    #[test]
    fn a_ratio_that_was_not_concluded_once_is_not_compared() {
        let then = results(&[("a", &[2.0]), ("b", &[1.0])]);
        let now = results(&[("a", &[2.0, 2.0, 2.0]), ("b", &[1.0, 1.0, 1.0])]);
        let page = page(&[now], &[then]).unwrap();
        assert!(page.contains("| 1.00 | 0.50 | ? | ? |\n"), "{page}");
        assert!(page.contains("No ratio was concluded both times."), "{page}");
    }

    #[test]
    fn experiments_without_anything_in_common_make_no_page() {
        let (one, mut other) = (results(&[("a", &[2.0])]), results(&[("a", &[2.0])]));
        other.experiment = "floor".to_owned();
        assert!(page(&[one], &[other]).is_none());
    }
}

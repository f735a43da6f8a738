//! Where litequic stands, cell by cell: beside the best of its rivals, and beside the same over TCP. Pure.

use super::{Case, Results, figures::Better};
use crate::bench::{contender::Kind, stats::Interval};

/// Who is judged.
pub(super) const LITEQUIC: &str = "litequic";
/// Figures that differ by less are as good as each other.
pub(super) const BAND: f64 = 0.03;
/// Over TCP, over a path: the congestion control that is everywhere.
const CUBIC: &str = "h1-cubic";

/// The meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Its whole interval is more than 3 % on the good side,
    Better,
    /// within 3 % either way,
    Tied,
    /// more than 3 % on the bad side.
    Worse,
    /// None of these.
    Undecided,
}

impl Verdict {
    pub(super) fn of(ratio: &Interval, better: Better) -> Self {
        let (least, most) = (1.0 - BAND, 1.0 + BAND);
        let (below, above) = (ratio.high < least, ratio.low > most);
        match better {
            Better::Less if below => Self::Better,
            Better::More if above => Self::Better,
            _ if below || above => Self::Worse,
            _ if ratio.low >= least && ratio.high <= most => Self::Tied,
            _ => Self::Undecided,
        }
    }
}

/// litequic beside another contender.
#[derive(Debug, Clone)]
pub(super) struct Beside<'a> {
    pub(super) name: &'a str,
    /// litequic's figure as a multiple of the other's, or why there is none.
    pub(super) ratio: Result<Interval, String>,
    pub(super) verdict: Verdict,
}

/// Where litequic stands among the other HTTP/3 proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Better than the best of them,
    First,
    /// as good as the best,
    Tied,
    /// worse than the best,
    Behind,
    /// worse than every one.
    Last,
    Undecided,
}

/// A figure of a case.
#[derive(Debug, Clone)]
pub(super) struct Standing<'a> {
    pub(super) case: &'a Case,
    pub(super) figure: &'a str,
    pub(super) better: Better,
    /// The best of the other HTTP/3 proxies; where there are variants of litequic alone, the one that others are
    /// compared with.
    pub(super) best: Option<Beside<'a>>,
    /// The same bodies over HTTP/1.1 and TLS.
    pub(super) tcp: Option<Beside<'a>>,
    pub(super) rank: Rank,
}

/// Where litequic stands, by case and figure; only where another one stands beside it, and where figures are good or
/// bad.
pub(super) fn standings(results: &Results) -> Vec<Standing<'_>> {
    let figures = |case| Case::figures(case).filter_map(move |figure| Some((case, figure, Better::of(figure)?)));
    let standings = results.cases.iter().flat_map(figures);
    standings.filter_map(|(case, figure, better)| standing(results, case, figure, better)).collect()
}

/// Whether what is compared are other proxies, rather than variants of litequic.
pub(super) fn has_rivals(results: &Results) -> bool {
    rivals(results).next().is_some()
}

fn rivals(results: &Results) -> impl Iterator<Item = &str> {
    let others = results.contenders.iter().filter(|one| one.kind == Kind::H3 && !one.version.starts_with(LITEQUIC));
    others.map(|one| one.name.as_str())
}

fn standing<'a>(results: &'a Results, case: &'a Case, figure: &'a str, better: Better) -> Option<Standing<'a>> {
    let median = |name: &str| Some(results.summary(&case.name, name, figure)?.median);
    median(LITEQUIC)?;
    let beside = |name: &'a str| {
        let ratio = results.ratio(&case.name, LITEQUIC, name, figure);
        let verdict = ratio.as_ref().map_or(Verdict::Undecided, |ratio| Verdict::of(ratio, better));
        Beside { name, ratio, verdict }
    };
    let mut rivals: Vec<(f64, &str)> = rivals(results).filter_map(|name| Some((median(name)?, name))).collect();
    rivals.sort_by(|a, b| if better == Better::Less { a.0.total_cmp(&b.0) } else { b.0.total_cmp(&a.0) });
    let others: Vec<Beside> = if has_rivals(results) {
        rivals.into_iter().map(|(_, name)| beside(name)).collect()
    } else {
        let reference = results.reference.as_str();
        (reference != LITEQUIC && median(reference).is_some()).then(|| beside(reference)).into_iter().collect()
    };
    let ceilings = results.contenders.iter().filter(|one| one.kind == Kind::H1 && median(&one.name).is_some());
    let ceilings: Vec<&str> = ceilings.map(|one| one.name.as_str()).collect();
    let tcp = ceilings.iter().find(|name| **name == CUBIC).or(ceilings.first()).map(|name| beside(name));
    let rank = match others.first().map_or(Verdict::Undecided, |best| best.verdict) {
        Verdict::Better => Rank::First,
        Verdict::Tied => Rank::Tied,
        Verdict::Worse if others.iter().all(|other| other.verdict == Verdict::Worse) => Rank::Last,
        Verdict::Worse => Rank::Behind,
        Verdict::Undecided => Rank::Undecided,
    };
    let best = others.into_iter().next();
    (best.is_some() || tcp.is_some()).then_some(Standing { case, figure, better, best, tcp, rank })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};

    fn verdict(low: f64, high: f64, better: Better) -> Verdict {
        Verdict::of(&Interval { low, median: f64::midpoint(low, high), high }, better)
    }

    #[test]
    fn only_an_interval_beyond_the_band_decides() {
        for (low, high, less, more) in [
            (0.80, 0.96, Verdict::Better, Verdict::Worse),
            (1.04, 1.10, Verdict::Worse, Verdict::Better),
            (0.98, 1.02, Verdict::Tied, Verdict::Tied),
            (0.96, 0.98, Verdict::Undecided, Verdict::Undecided),
            (0.90, 1.20, Verdict::Undecided, Verdict::Undecided),
        ] {
            assert_eq!(
                (verdict(low, high, Better::Less), verdict(low, high, Better::More)),
                (less, more),
                "{low} {high}"
            );
        }
    }

    /// Where litequic stands by CPU among others.
    fn rank(others: &[(&str, f64)]) -> Rank {
        let figures = |value: f64| [value, value * 1.001, value * 0.999];
        let own = figures(1.0);
        let mut all = vec![(LITEQUIC, own.as_slice())];
        let others: Vec<(&str, [f64; 3])> = others.iter().map(|(name, value)| (*name, figures(*value))).collect();
        all.extend(others.iter().map(|(name, figures)| (*name, figures.as_slice())));
        standings(&results(&all))[0].rank
    }

    #[test]
    fn litequic_is_ranked_beside_the_best_of_the_others() {
        assert_eq!(rank(&[("a", 2.0), ("b", 1.5)]), Rank::First);
        assert_eq!(rank(&[("a", 2.0), ("b", 1.0)]), Rank::Tied);
        assert_eq!(rank(&[("a", 2.0), ("b", 0.5)]), Rank::Behind);
        assert_eq!(rank(&[("a", 0.6), ("b", 0.5)]), Rank::Last);
    }

    #[test]
    fn variants_of_litequic_are_no_rivals() {
        let mut results = results(&[(LITEQUIC, &[1.0; 3]), ("plain", &[2.0; 3]), ("nginx-h1", &[0.5; 3])]);
        results.contenders[1].version = "litequic 1.0".to_owned();
        results.contenders[2].kind = Kind::H1;
        results.reference = "plain".to_owned();
        assert!(!has_rivals(&results));
        let standings = standings(&results);
        let [standing] = standings.as_slice() else { panic!("one case, one figure") };
        assert_eq!((standing.rank, standing.best.as_ref().map(|best| best.name)), (Rank::First, Some("plain")));
        let tcp = standing.tcp.as_ref().unwrap();
        assert_eq!((tcp.name, tcp.verdict), ("nginx-h1", Verdict::Worse));
    }

    #[test]
    fn a_figure_that_is_neither_good_nor_bad_is_not_judged() {
        let mut results = results(&[(LITEQUIC, &[1.0; 3]), ("a", &[2.0; 3])]);
        results.cases[0].judged = vec!["busy".to_owned(), "rate".to_owned()];
        let judged: Vec<&str> = standings(&results).iter().map(|standing| standing.figure).collect();
        assert_eq!(judged, ["cpu", "rate"]);
    }
}

//! The chart of the first screen: how many times better litequic is, a row for each group of cases and a dot for each
//! case. Written as SVG by hand: it is small, and lies beside a line of text. Pure.

use super::{
    figures::{Better, number},
    verdict::{Beside, Standing, Verdict},
};
use crate::bench::stats::Interval;
use std::fmt::Write as _;

const WIDTH: f64 = 480.0; // pixels, as all that follow
const LABELS: f64 = 190.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 8.0;
const ROW: f64 = 20.0;
const BOTTOM: f64 = 22.0;
/// Dots beside rivals are above the row's middle, those beside TCP below.
const APART: f64 = 4.0;
/// The axis reaches so far at least, both ways, and has ticks at powers of two.
const REACH: f64 = 1.6;

/// Colours that people with red-green colour blindness can distinguish (Okabe and Ito 2008).
fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "#0072b2",
        Verdict::Worse => "#d55e00",
        Verdict::Tied | Verdict::Undecided => "#777",
    }
}

/// A decided cell: its row, the ratio with more than 1 as better, and how it is drawn.
struct Dot {
    row: usize,
    ratio: Interval,
    verdict: Verdict,
    tcp: bool,
}

/// The chart; `None` where nothing is decided.
pub(super) fn strip(standings: &[Standing]) -> Option<String> {
    let mut rows: Vec<&str> = Vec::new();
    let mut dots = Vec::new();
    for standing in standings {
        let group = standing.case.group.as_str();
        let row = rows.iter().position(|known| *known == group).unwrap_or_else(|| {
            rows.push(group);
            rows.len() - 1
        });
        for (beside, tcp) in [(&standing.best, false), (&standing.tcp, true)] {
            if let Some(Beside { ratio: Ok(ratio), verdict, .. }) = beside
                && *verdict != Verdict::Undecided
                && ratio.low > 0.0
            {
                let ratio = if standing.better == Better::More { *ratio } else { inverse(*ratio) };
                dots.push(Dot { row, ratio, verdict: *verdict, tcp });
            }
        }
    }
    if dots.is_empty() {
        return None;
    }
    let reach = dots.iter().flat_map(|dot| [dot.ratio.high, 1.0 / dot.ratio.low]).fold(REACH, f64::max) * 1.05;
    let x = |ratio: f64| {
        let middle = f64::midpoint(LABELS, WIDTH - RIGHT);
        middle + ratio.ln() / reach.ln() * (WIDTH - RIGHT - LABELS) / 2.0
    };
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let bottom = height - BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let (from, to) = (x(1.0 - super::verdict::BAND), x(1.0 + super::verdict::BAND));
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eee\"/>",
        to - from,
        bottom - TOP
    );
    let ticks = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
    for tick in ticks.into_iter().filter(|tick: &f64| tick.ln().abs() <= reach.ln()) {
        let (at, stroke) = (x(tick), if tick == 1.0 { "#000" } else { "#ccc" });
        let _ = writeln!(svg, "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>");
        let label = number(tick).trim_end_matches('0').trim_end_matches('.').to_owned();
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", height - 8.0);
    }
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5) + 4.0;
        let label = row.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>", LABELS - 8.0);
    }
    for Dot { row, ratio, verdict, tcp } in dots {
        let y = TOP + ROW * (row as f64 + 0.5) + if tcp { APART } else { -APART };
        let colour = colour(verdict);
        let (low, middle, high) = (x(ratio.low), x(ratio.median), x(ratio.high));
        let _ = writeln!(
            svg,
            "<line x1=\"{low:.1}\" y1=\"{y:.1}\" x2=\"{high:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-opacity=\".5\"/>"
        );
        let fill = if tcp { "#fff" } else { colour };
        let _ =
            writeln!(svg, "<circle cx=\"{middle:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\" stroke=\"{colour}\"/>");
    }
    svg += "</svg>";
    Some(svg)
}

fn inverse(ratio: Interval) -> Interval {
    Interval { low: 1.0 / ratio.high, median: 1.0 / ratio.median, high: 1.0 / ratio.low }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{overview::first_screen, tests::results},
        *,
    };

    #[test]
    fn won_cells_have_a_dot_and_undecided_ones_none() {
        let results = results(&[("litequic", &[1.0, 1.0, 1.0]), ("a", &[2.0, 2.0, 2.0])]);
        let svg = strip(&first_screen(&results)).unwrap();
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        let middle = f64::midpoint(LABELS, WIDTH - RIGHT);
        let cx: f64 = svg.split_once("cx=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap();
        assert!(cx > middle && svg.contains("#0072b2") && svg.contains(">large bodies<"), "{svg}");
        let noisy = super::super::tests::results(&[("litequic", &[1.0, 1.0, 1.0]), ("a", &[0.5, 1.0, 3.0])]);
        assert_eq!(strip(&first_screen(&noisy)), None);
    }
}

//! Heat maps: how far a contender is behind the reference, over round trips and rates. Written as SVG by hand, as cells are text on
//! a colour. Pure.

use super::{Case, Results, figures::number, verdict::BAND};
use crate::bench::stats::Interval;
use std::{collections::BTreeSet, fmt::Write as _};

const LABELS: f64 = 90.0; // pixels, as all that follow
const COLUMN: f64 = 92.0;
const ROW: f64 = 40.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 44.0;
/// From this much the colour is as strong as it gets.
const MOST: f64 = 0.3;

/// Whether cases are drawn so.
pub(super) fn is_grid(cases: &[&Case]) -> bool {
    !cases.is_empty() && cases.iter().all(|case| case.x.is_some() && case.y.is_some())
}

/// A map of one contender: the reference's figure less the contender's own, by the latter. Columns are `x`, a round trip in ms,
/// rows `y`, a rate in Mbit/s. A cell without enough undisturbed rounds has a question mark.
pub(super) fn map(results: &Results, cases: &[&Case], contender: &str, caption: &str) -> String {
    let axis = |of: fn(&Case) -> Option<f64>| {
        let places: BTreeSet<u64> = cases.iter().filter_map(|case| of(case)).map(f64::to_bits).collect();
        places.into_iter().map(f64::from_bits).collect::<Vec<f64>>()
    };
    let (columns, rows) = (axis(|case| case.x), axis(|case| case.y));
    let (width, height) = (LABELS + COLUMN * columns.len() as f64 + 12.0, TOP + ROW * rows.len() as f64 + BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{:.0}\" y=\"18\" font-size=\"13\">{}</text>\n<text x=\"{:.0}\" y=\"36\">Mbit/s</text>\n",
        width / 2.0,
        caption.replace('&', "&amp;").replace('<', "&lt;"),
        LABELS / 2.0
    );
    for case in cases {
        let place = |axis: &[f64], at: Option<f64>| axis.iter().position(|place| Some(*place) == at);
        let (Some(column), Some(row)) = (place(&columns, case.x), place(&rows, case.y)) else { continue };
        // The highest rate is at the top.
        let (x, y) = (LABELS + COLUMN * column as f64, TOP + ROW * (rows.len() - 1 - row) as f64);
        let ratio = results.ratio(&case.name, contender, &results.reference, &case.primary);
        let (colour, text) = ratio.as_ref().map_or(("#eee".to_owned(), "?".to_owned()), cell);
        let (w, h, middle, base) = (COLUMN - 2.0, ROW - 2.0, x + COLUMN / 2.0, y + ROW / 2.0 + 4.0);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{base}\">{text}</text>");
    }
    for (at, rate) in rows.iter().rev().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5) + 4.0;
        let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"{y}\">{rate}</text>", LABELS / 2.0);
    }
    for (at, rtt) in columns.iter().enumerate() {
        let (x, y) = (LABELS + COLUMN * (at as f64 + 0.5), height - BOTTOM + 18.0);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{rtt} ms</text>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" font-size=\"11\" fill=\"#555\">{}'s goodput is higher by so many percent (95 % interval); blue: lower</text>",
        width / 2.0,
        height - 8.0,
        results.reference
    );
    svg += "</svg>";
    svg
}

/// Colour and text of a ratio to the reference. Within 3 % it is grey.
fn cell(ratio: &Interval) -> (String, String) {
    // A contender that is behind has a ratio below 1.
    let gain = |ratio: f64| 1.0 / ratio - 1.0;
    let (low, median, high) = (gain(ratio.high), gain(ratio.median), gain(ratio.low));
    let strength = ((median.abs() - BAND) / (MOST - BAND)).clamp(0.0, 1.0);
    // White to Okabe and Ito's vermilion or blue.
    let (red, green, blue) = if median > 0.0 { (213.0, 94.0, 0.0) } else { (0.0, 114.0, 178.0) };
    let mix = |colour: f64| (255.0 - (255.0 - colour) * (0.15 + 0.65 * strength)).round();
    let colour = if median.abs() <= BAND {
        "#eee".to_owned()
    } else {
        format!("rgb({},{},{})", mix(red), mix(green), mix(blue))
    };
    let percent = |share: f64| number(share * 100.0);
    let signed = |share: f64| format!("{}{}", if share > 0.0 { "+" } else { "" }, percent(share));
    (colour, format!("{} ({} to {})", signed(median), percent(low), percent(high)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};

    #[test]
    fn a_contender_that_is_behind_is_orange_and_one_within_the_band_is_grey() {
        let mut results = results(&[("ack-2", &[150.0; 3]), ("ack-100", &[100.0; 3]), ("litequic", &[149.0; 3])]);
        (results.cases[0].x, results.cases[0].y) = (Some(100.0), Some(800.0));
        let cases: Vec<&Case> = results.cases.iter().collect();
        assert!(is_grid(&cases));
        let behind = map(&results, &cases, "ack-100", "200 KB");
        assert!(behind.contains("+50.0 (50.0 to 50.0)") && behind.contains("rgb(221,126,51)"), "{behind}");
        let equal = map(&results, &cases, "litequic", "200 KB");
        assert!(equal.contains("+0.67") && equal.contains("#eee"), "{equal}");
        assert!(behind.contains(">800<") && behind.contains(">100 ms<"), "{behind}");
    }

    #[test]
    fn a_cell_with_too_few_rounds_has_a_question_mark() {
        let mut results = results(&[("ack-2", &[150.0]), ("ack-100", &[100.0])]);
        (results.cases[0].x, results.cases[0].y) = (Some(100.0), Some(800.0));
        let cases: Vec<&Case> = results.cases.iter().collect();
        assert!(map(&results, &cases, "ack-100", "200 KB").contains(">?<"));
    }
}

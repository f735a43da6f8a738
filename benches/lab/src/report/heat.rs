//! Heat maps: how far a contender is behind the reference, over round trips and rates. Written as SVG by hand, as cells
//! are text on a colour. Pure.

use super::{Case, Results, figures::number, verdict::BAND};
use crate::bench::stats::Interval;
use std::{collections::BTreeSet, fmt::Write as _};

const LABELS: f64 = 90.0; // pixels, as all that follow
const COLUMN: f64 = 92.0;
const ROW: f64 = 40.0;
/// A letter of a label.
const LETTER: f64 = 6.6;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 44.0;
/// What is fair, percent, and so far beyond it on either side.
const HALF: f64 = 50.0;
const FAIR: f64 = 0.2;
/// From this much the colour is as strong as it gets.
const MOST: f64 = 0.3;

/// Whether cases are drawn so.
pub(super) fn is_grid(cases: &[&Case]) -> bool {
    !cases.is_empty() && cases.iter().all(|case| case.x.is_some() && case.y.is_some())
}

/// Whether cases are drawn as a map of pairs.
pub(super) fn is_pairs(cases: &[&Case]) -> bool {
    cases.len() > 1 && cases.iter().all(|case| case.beside.is_some() && case.primary == "share")
}

/// What each contender gets beside each other one: rows are those whose share it is, columns those beside. Of a pair
/// one is measured, and the other one has the rest.
pub(super) fn pairs(results: &Results, cases: &[&Case], caption: &str) -> String {
    let names: Vec<&str> = cases.iter().filter_map(|case| case.beside.as_deref()).collect();
    let place = |name: &str| names.iter().position(|one| *one == name);
    let mut cells = Vec::new();
    for case in cases {
        let Some(column) = case.beside.as_deref().and_then(place) else { continue };
        for (row, name) in names.iter().enumerate() {
            let Some(share) = results.summary(&case.name, name, &case.primary) else { continue };
            let colour = |share: f64| match (share - HALF) / HALF {
                beyond if beyond.abs() <= FAIR => "#eee".to_owned(),
                beyond if beyond > 0.0 => tint(VERMILION, 0.8 * beyond),
                beyond => tint(BLUE, 0.0 - 0.8 * beyond),
            };
            let cell = |share: f64| (colour(share), format!("{share:.0} %"));
            let (own, others) = (cell(share.median), cell(2.0 * HALF - share.median));
            cells.push((row, column, own.0, own.1));
            if row != column {
                cells.push((column, row, others.0, others.1));
            }
        }
    }
    let labels: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let note = "share of the row's beside the column's, median; grey: 40 to 60 %".to_owned();
    Grid { caption, corner: "", columns: labels.clone(), rows: labels, cells, note }.draw()
}

/// A table of colours.
pub(super) struct Grid<'a> {
    pub(super) caption: &'a str,
    /// What rows are.
    pub(super) corner: &'a str,
    pub(super) columns: Vec<String>,
    /// From top to bottom.
    pub(super) rows: Vec<String>,
    /// Row, column, colour and text.
    pub(super) cells: Vec<(usize, usize, String, String)>,
    pub(super) note: String,
}

impl Grid<'_> {
    /// As SVG.
    pub(super) fn draw(&self) -> String {
        let Self { caption, corner, columns, rows, cells, note } = self;
        // Room for the longest.
        let widest =
            |texts: &[String]| texts.iter().map(|text| text.chars().count() as f64 * LETTER).fold(0.0, f64::max);
        let (labels, step) = (LABELS.max(widest(rows) + 16.0), COLUMN.max(widest(columns) + 8.0));
        let (width, height) = (labels + step * columns.len() as f64 + 12.0, TOP + ROW * rows.len() as f64 + BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{:.0}\" y=\"18\" font-size=\"13\">{}</text>\n<text x=\"{:.0}\" y=\"36\">{corner}</text>\n",
            width / 2.0,
            caption.replace('&', "&amp;").replace('<', "&lt;"),
            labels / 2.0
        );
        for (row, column, colour, text) in cells {
            let (x, y) = (labels + step * *column as f64, TOP + ROW * *row as f64);
            let (w, h, middle, base) = (step - 2.0, ROW - 2.0, x + step / 2.0, y + ROW / 2.0 + 4.0);
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{colour}\"/>");
            let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{base}\">{text}</text>");
        }
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + ROW * (at as f64 + 0.5) + 4.0;
            let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"{y}\">{row}</text>", labels / 2.0);
        }
        for (at, column) in columns.iter().enumerate() {
            let (x, y) = (labels + step * (at as f64 + 0.5), height - BOTTOM + 18.0);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{column}</text>");
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" font-size=\"11\" fill=\"#555\">{note}</text>",
            width / 2.0,
            height - 8.0
        );
        svg += "</svg>";
        svg
    }
}

/// A map of one contender: the reference's figure less the contender's own, by the latter. Columns are `x`, a round
/// trip in ms, rows `y`, a rate in Mbit/s. A cell without enough undisturbed rounds has a question mark.
pub(super) fn map(results: &Results, cases: &[&Case], contender: &str, caption: &str) -> String {
    let axis = |of: fn(&Case) -> Option<f64>| {
        let places: BTreeSet<u64> = cases.iter().filter_map(|case| of(case)).map(f64::to_bits).collect();
        places.into_iter().map(f64::from_bits).collect::<Vec<f64>>()
    };
    let (columns, mut rows) = (axis(|case| case.x), axis(|case| case.y));
    // The highest rate is at the top.
    rows.reverse();
    let place = |axis: &[f64], at: Option<f64>| axis.iter().position(|place| Some(*place) == at);
    let placed = |case: &&Case| {
        let ratio = results.ratio(&case.name, contender, &results.reference, &case.primary);
        let (colour, text) = ratio.as_ref().map_or(("#eee".to_owned(), "?".to_owned()), cell);
        Some((place(&rows, case.y)?, place(&columns, case.x)?, colour, text))
    };
    Grid {
        caption,
        corner: "Mbit/s",
        cells: cases.iter().filter_map(placed).collect(),
        columns: columns.iter().map(|rtt| format!("{rtt} ms")).collect(),
        rows: rows.iter().map(ToString::to_string).collect(),
        note: format!("{}'s goodput is higher by so many percent (95 % interval); blue: lower", results.reference),
    }
    .draw()
}

/// Okabe and Ito's.
pub(super) const VERMILION: [f64; 3] = [213.0, 94.0, 0.0];
const BLUE: [f64; 3] = [0.0, 114.0, 178.0];

/// White (0) to a colour (1).
pub(super) fn tint(colour: [f64; 3], strength: f64) -> String {
    let [red, green, blue] = colour.map(|part| (255.0 - (255.0 - part) * strength).round());
    format!("rgb({red},{green},{blue})")
}

/// Colour and text of a ratio to the reference. Within 3 % it is grey.
fn cell(ratio: &Interval) -> (String, String) {
    // A contender that is behind has a ratio below 1.
    let gain = |ratio: f64| 1.0 / ratio - 1.0;
    let (low, median, high) = (gain(ratio.high), gain(ratio.median), gain(ratio.low));
    let strength = ((median.abs() - BAND) / (MOST - BAND)).clamp(0.0, 1.0);
    let colour = match 0.15 + 0.65 * strength {
        _ if median.abs() <= BAND => "#eee".to_owned(),
        strength if median > 0.0 => tint(VERMILION, strength),
        strength => tint(BLUE, strength),
    };
    let percent = |share: f64| number(share * 100.0);
    let signed = |share: f64| format!("{}{}", if share > 0.0 { "+" } else { "" }, percent(share));
    (colour, format!("{} ({} to {})", signed(median), percent(low), percent(high)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};

    #[test]
    fn slower_contenders_are_orange_and_equal_ones_grey() {
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
    fn of_a_pair_the_other_one_has_the_rest() {
        let mut results = results(&[("a", &[30.0; 3]), ("b", &[50.0; 3])]);
        let case = results.cases.remove(0);
        for beside in ["a", "b"] {
            results.cases.push(Case {
                name: beside.to_owned(),
                beside: Some(beside.to_owned()),
                primary: "share".to_owned(),
                ..case.clone()
            });
        }
        for run in &mut results.runs {
            run.case = "b".to_owned();
            let share = run.figures["cpu"];
            run.figures.insert("share".to_owned(), share);
        }
        let cases: Vec<&Case> = results.cases.iter().collect();
        assert!(is_pairs(&cases));
        let map = pairs(&results, &cases, "1 BDP");
        assert_eq!(
            (map.matches(">30 %<").count(), map.matches(">70 %<").count(), map.matches(">50 %<").count()),
            (1, 1, 1),
            "{map}"
        );
        assert!(map.contains("rgb(") && map.contains("#eee"), "{map}");
    }

    #[test]
    fn a_cell_with_too_few_rounds_has_a_question_mark() {
        let mut results = results(&[("ack-2", &[150.0]), ("ack-100", &[100.0])]);
        (results.cases[0].x, results.cases[0].y) = (Some(100.0), Some(800.0));
        let cases: Vec<&Case> = results.cases.iter().collect();
        assert!(map(&results, &cases, "ack-100", "200 KB").contains(">?<"));
    }
}

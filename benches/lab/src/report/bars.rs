//! A chart of a subject: for each of a few cases a bar for each contender, litequic's in a colour of its own. Written as
//! SVG by hand: a reader of the README sees it first, at any width. Pure.

use super::{figures::number, verdict::LITEQUIC};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0; // pixels, as all that follow
const LEFT: f64 = 180.0;
const TITLE: f64 = 44.0;
const HEADING: f64 = 26.0;
const ROW: f64 = 23.0;
const BAR: f64 = 18.0;
const GAP: f64 = 10.0;
/// The longest bar, which leaves place for its number.
const LONGEST: f64 = 510.0;
/// A bar that is longer than so many times the median of all is cut, so that the others can be compared.
const CUT: f64 = 5.0;

/// What a chart shows.
pub(super) struct Chart {
    pub(super) title: String,
    /// For each case contenders with their medians.
    pub(super) groups: Vec<(String, Vec<(String, f64)>)>,
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let mut values: Vec<f64> =
            self.groups.iter().flat_map(|(_, bars)| bars.iter().map(|(_, value)| *value)).collect();
        values.sort_by(f64::total_cmp);
        let most = values.last().copied().unwrap_or_default();
        let middle = values.get(values.len() / 2).copied().unwrap_or_default();
        let full = most.min(middle * CUT).max(f64::MIN_POSITIVE);
        let heights = self.groups.iter().map(|(_, bars)| HEADING + ROW * bars.len() as f64 + GAP);
        let height = TITLE + heights.sum::<f64>();
        let described = self.groups.iter().map(|(case, bars)| {
            let bars: Vec<String> = bars.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
            format!("{case}: {}", bars.join(", "))
        });
        let described = described.collect::<Vec<_>>().join("; ");
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">{}</title>\n<desc id=\"d\">{}</desc>\n\
             <style>text {{ font: 13px system-ui, sans-serif; fill: #24292f }} .h {{ font-weight: 600; font-size: 15px }} \
             .g {{ font-weight: 600 }} .n {{ text-anchor: end }} .l {{ fill: #1a6fb5 }} .o {{ fill: #b4bcc4 }}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"16\" y=\"26\" class=\"h\">{}</text>\n",
            escaped(&self.title),
            escaped(&described),
            escaped(&self.title)
        );
        let mut y = TITLE;
        for (case, bars) in &self.groups {
            let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.0}\" class=\"g\">{}</text>", y + 14.0, escaped(case));
            y += HEADING;
            for (name, value) in bars {
                let (length, cut) = ((value / full).min(1.0) * LONGEST, if *value > full { "… " } else { "" });
                let class = if name.starts_with(LITEQUIC) { "l" } else { "o" };
                let base = y + 14.0;
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.0}\" y=\"{base:.0}\" class=\"n\">{}</text><rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{length:.1}\" \
                     height=\"{BAR}\" class=\"{class}\"/><text x=\"{:.1}\" y=\"{base:.0}\">{cut}{}</text>",
                    LEFT - 10.0,
                    escaped(name),
                    LEFT + length + 6.0,
                    number(*value)
                );
                y += ROW;
            }
            y += GAP;
        }
        svg += "</svg>";
        svg
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_outliers_are_cut() {
        let bars =
            [(LITEQUIC, 1.0), ("a", 2.0), ("b & c", 2.0), ("d", 400.0)].map(|(name, value)| (name.to_owned(), value));
        let svg = Chart { title: "CPU <s/GB>".to_owned(), groups: vec![("one".to_owned(), bars.to_vec())] }.svg();
        let widths: Vec<&str> = svg
            .split("<rect x=")
            .skip(1)
            .map(|rest| rest.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .collect();
        assert_eq!(widths, ["51.0", "102.0", "102.0", "510.0"], "{svg}");
        assert!(svg.contains(">… 400</text>") && svg.contains("b &amp; c") && svg.contains("CPU &lt;s/GB>"), "{svg}");
        assert_eq!(svg.matches("class=\"l\"").count(), 1, "{svg}");
        assert!(svg.contains("one: litequic 1.00, a 2.00"), "{svg}");
    }
}

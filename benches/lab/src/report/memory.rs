//! Memory under attack, over time: as CSV, and as a plot. Pure.

use super::plot::{drawn, failed};
use anyhow::Result;
use plotters::prelude::{ChartBuilder, LineSeries, PathElement, RGBColor, SeriesLabelPosition, WHITE};
use std::{collections::BTreeMap, fmt::Write as _};

const SIZE: (u32, u32) = (960, 560); // pixels
const MIB: f64 = 1024.0 * 1024.0;
const CHARGED: RGBColor = RGBColor(0, 114, 178);
const KEPT: RGBColor = RGBColor(230, 159, 0);
const LIMIT: RGBColor = RGBColor(213, 94, 0);
/// litequic's steps, from none.
const STEPS: f64 = 3.0;

/// What a memory cgroup held: seconds, and bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MemoryTrace {
    pub(crate) limit: f64,
    /// All that was charged.
    pub(crate) charged: Vec<(f64, f64)>,
    /// The same without pages of files that the kernel can drop.
    pub(crate) kept: Vec<(f64, f64)>,
    /// litequic's step, where it is litequic.
    pub(crate) step: Vec<(f64, f64)>,
}

impl MemoryTrace {
    /// What pages show of it.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let most = |series: &[(f64, f64)]| series.iter().map(|(_, value)| *value).reduce(f64::max);
        let figures = [("memory_peak", most(&self.charged).map(|bytes| bytes / 1e6)), ("step_most", most(&self.step))];
        figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Seconds, bytes charged, bytes without pages of files; the step as it was last seen.
    pub(super) fn csv(&self) -> String {
        let mut text = "seconds,charged,kept,step\n".to_owned();
        for ((at, charged), (_, kept)) in self.charged.iter().zip(&self.kept) {
            let step = self.step.iter().take_while(|(when, _)| when <= at).last();
            let step = step.map(|(_, step)| step.to_string()).unwrap_or_default();
            let _ = writeln!(text, "{at:.2},{charged:.0},{kept:.0},{step}");
        }
        text
    }

    /// Memory with its limit, and the step below it.
    pub(super) fn plot(&self, caption: &str) -> Result<String> {
        drawn(SIZE, |area| {
            let area = area.titled(caption, ("sans-serif", 18)).map_err(failed)?;
            let end = self.charged.last().map_or(1.0, |(at, _)| *at).max(0.1);
            let steps = if self.step.is_empty() { 0 } else { 150 };
            let (upper, lower) = area.split_vertically(SIZE.1 - 40 - steps);
            let mut chart = ChartBuilder::on(&upper)
                .margin_right(12)
                .x_label_area_size(36)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..end, 0.0..self.limit / MIB * 1.2)
                .map_err(failed)?;
            chart.configure_mesh().x_desc("seconds").y_desc("MiB").draw().map_err(failed)?;
            let limit = [(0.0, self.limit), (end, self.limit)];
            let lines = [
                ("charged", &self.charged[..], CHARGED),
                ("without droppable pages of files", &self.kept, KEPT),
                ("limit", &limit, LIMIT),
            ];
            for (name, series, colour) in lines {
                let points = series.iter().map(|(at, bytes)| (*at, bytes / MIB));
                let line = chart.draw_series(LineSeries::new(points, &colour)).map_err(failed)?;
                line.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour));
            }
            let mut labels = chart.configure_series_labels();
            labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE).draw().map_err(failed)?;
            if steps > 0 {
                let mut chart = ChartBuilder::on(&lower)
                    .caption("step: 1 refuse connections, 2 shrink buffers, 3 close connections", ("sans-serif", 13))
                    .margin_right(12)
                    .x_label_area_size(20)
                    .y_label_area_size(56)
                    .build_cartesian_2d(0.0..end, 0.0..STEPS + 0.2)
                    .map_err(failed)?;
                chart.configure_mesh().y_labels(4).draw().map_err(failed)?;
                chart.draw_series(LineSeries::new(stairs(&self.step), &CHARGED)).map_err(failed)?;
            }
            Ok(())
        })
    }
}

/// A line that keeps each value until the next one.
fn stairs(series: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(series.len() * 2);
    for (at, value) in series {
        points.extend(points.last().map(|(_, last): &(f64, f64)| (*at, *last)));
        points.push((*at, *value));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> MemoryTrace {
        MemoryTrace {
            limit: 128.0 * MIB,
            charged: vec![(0.0, 10e6), (0.1, 120e6), (0.2, 60e6)],
            kept: vec![(0.0, 9e6), (0.1, 110e6), (0.2, 50e6)],
            step: vec![(0.05, 0.0), (0.15, 2.0)],
        }
    }

    #[test]
    fn a_trace_has_its_peak_and_highest_step() {
        let figures = trace().figures();
        assert_eq!((figures["memory_peak"], figures["step_most"]), (120.0, 2.0));
        assert!(MemoryTrace::default().figures().is_empty());
    }

    #[test]
    fn its_series_are_one_table() {
        assert_eq!(
            trace().csv(),
            "seconds,charged,kept,step\n0.00,10000000,9000000,\n0.10,120000000,110000000,0\n0.20,60000000,50000000,2\n"
        );
    }

    #[test]
    fn the_plot_has_the_limit_and_steps_where_there_are_any() {
        let svg = trace().plot("a run").unwrap();
        assert!(svg.contains("limit") && svg.contains("close connections"), "{svg}");
        assert!(!MemoryTrace { step: vec![], ..trace() }.plot("a run").unwrap().contains("close connections"));
    }

    #[test]
    fn a_value_holds_until_the_next() {
        assert_eq!(stairs(&[(0.0, 1.0), (2.0, 3.0)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
    }
}

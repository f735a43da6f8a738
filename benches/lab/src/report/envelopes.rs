//! Envelopes of delay and throughput, and how far they are those of the kernel's TCP that they were measured beside.
//! Pure.

use super::{
    Case, Results,
    figures::number,
    heat,
    plot::{drawn, failed},
};
use crate::{
    conformance::{Conformance, Envelope, Point, Polygon},
    link,
};
use anyhow::Result;
use plotters::prelude::{ChartBuilder, Circle, Color as _, PathElement, RGBColor, WHITE};
use std::fmt::Write as _;

/// A panel, in pixels, and how many stand in a row.
const PANEL: (u32, u32) = (320, 240);
const ACROSS: usize = 4;
/// Of a cloud so many points are drawn, evenly.
const DRAWN: usize = 120;
/// Clusters begin with it.
const SEED: u64 = 1;
const GREY: RGBColor = RGBColor(150, 150, 150);
const BLUE: RGBColor = RGBColor(0, 114, 178);

/// One contender in a case.
struct Shown<'a> {
    name: &'a str,
    envelope: Envelope,
    /// Beside the kernel's.
    conformance: Conformance,
}

/// All in a case of which there are samples.
struct Analysis<'a> {
    reference: Envelope,
    shown: Vec<Shown<'a>>,
    /// What the unit of points is, delay in ms and throughput in Mbit/s.
    unit: Point,
}

/// The path's: its delay with a full queue, and its rate.
fn unit(case: &Case) -> Option<Point> {
    let path: link::Path = case.path.as_ref()?.parse().ok()?;
    let (rate, limit) = path.down.bottleneck.as_ref()?;
    let (rate, limit) = (rate.first() as f64, *limit as f64);
    Some(Point { x: (path.rtt.as_secs_f64() / 2.0 + limit * 8.0 / rate) * 1e3, y: rate / 1e6 })
}

fn envelope(results: &Results, case: &Case, name: &str, unit: Point) -> Option<Envelope> {
    let trial = |run: &super::Run| -> Vec<Point> {
        run.samples.iter().map(|sample| Point { x: sample.delay / unit.x, y: sample.throughput / unit.y }).collect()
    };
    let trials: Vec<Vec<Point>> =
        results.counting(&case.name, name).map(trial).filter(|trial| !trial.is_empty()).collect();
    Envelope::of(&trials, SEED)
}

fn analyse<'a>(results: &'a Results, case: &Case) -> Option<Analysis<'a>> {
    let (kernel, unit) = (case.conforms_to.as_ref()?, unit(case)?);
    let reference = envelope(results, case, kernel, unit)?;
    let shown = results.names().filter(|name| name != kernel).filter_map(|name| {
        let envelope = envelope(results, case, name, unit)?;
        let conformance = envelope.conformance(&reference);
        Some(Shown { name, envelope, conformance })
    });
    Some(Analysis { shown: shown.collect(), reference, unit })
}

/// A row for each contender; nothing where nothing was sampled.
pub(super) fn table(results: &Results, case: &Case) -> String {
    let Some(Analysis { shown, reference, unit }) = analyse(results, case) else { return String::new() };
    let kernel = case.conforms_to.as_deref().unwrap_or_default();
    let mut text = format!(
        "| beside {kernel} ({} clusters, {} points) | clusters | points | Conformance | Conformance-T | Δ-throughput, Mbit/s | Δ-delay, ms |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
        reference.k,
        reference.points.len()
    );
    for Shown { name, envelope, conformance: Conformance { conformance, translated, beyond } } in shown {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {conformance:.2} | {translated:.2} | {} | {} |",
            envelope.k,
            envelope.points.len(),
            number(beyond.y * unit.y),
            number(beyond.x * unit.x)
        );
    }
    text + "\n"
}

/// Conformance of all contenders in all cases, then the envelopes of each case: captions and SVG.
pub(super) fn plots(results: &Results) -> Result<Vec<(String, String)>> {
    let analyses: Vec<(&Case, Analysis)> =
        results.cases.iter().filter_map(|case| Some((case, analyse(results, case)?))).collect();
    if analyses.is_empty() {
        return Ok(Vec::new());
    }
    let caption = format!("{}: Conformance to the kernel", results.experiment);
    let mut plots = vec![(caption.clone(), map(results, &analyses, &caption))];
    for (case, analysis) in &analyses {
        let caption = format!("{}: {}, throughput over delay", results.experiment, case.name);
        plots.push((caption, panels(analysis)?));
    }
    Ok(plots)
}

/// Rows are contenders, columns cases.
fn map(results: &Results, analyses: &[(&Case, Analysis)], caption: &str) -> String {
    let is_shown = |name: &&str| analyses.iter().any(|(_, one)| one.shown.iter().any(|shown| shown.name == *name));
    let rows: Vec<&str> = results.names().filter(is_shown).collect();
    let mut cells = Vec::new();
    for (column, (_, analysis)) in analyses.iter().enumerate() {
        for Shown { name, conformance: Conformance { conformance, .. }, .. } in &analysis.shown {
            let colour = heat::tint(heat::VERMILION, 0.8 * (1.0 - conformance));
            cells.extend(
                rows.iter().position(|row| row == name).map(|row| (row, column, colour, format!("{conformance:.2}"))),
            );
        }
    }
    heat::Grid {
        caption,
        corner: "",
        columns: analyses.iter().map(|(case, _)| case.name.clone()).collect(),
        rows: rows.into_iter().map(str::to_owned).collect(),
        cells,
        note: "1: as the kernel's TCP beside itself; *-again: the kernel once more, which is as much as can be reached"
            .to_owned(),
    }
    .draw()
}

/// A panel for each contender: its points and hulls in blue, those of the kernel's TCP in grey.
fn panels(analysis: &Analysis) -> Result<String> {
    let Analysis { reference, shown, unit } = analysis;
    let across = shown.len().clamp(1, ACROSS);
    let down = shown.len().div_ceil(across);
    let size = |count: usize, one: u32| u32::try_from(count).unwrap_or(1) * one;
    let all = || shown.iter().flat_map(|shown| &shown.envelope.points).chain(&reference.points);
    let most = |of: fn(&Point) -> f64| all().map(of).fold(0.0, f64::max);
    let (right, top) = (most(|point| point.x) * unit.x * 1.05, most(|point| point.y) * unit.y * 1.05);
    let left = all().map(|point| point.x).fold(f64::INFINITY, f64::min) * unit.x * 0.95;
    drawn((size(across, PANEL.0), size(down, PANEL.1)), |area| {
        for (Shown { name, envelope, conformance }, area) in shown.iter().zip(area.split_evenly((down, across))) {
            let Conformance { conformance, translated, .. } = conformance;
            let mut chart = ChartBuilder::on(&area)
                .caption(format!("{name}: {conformance:.2}, T {translated:.2}"), ("sans-serif", 14))
                .margin(6)
                .x_label_area_size(32)
                .y_label_area_size(40)
                .build_cartesian_2d(left..right, 0.0..top)
                .map_err(failed)?;
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .x_labels(5)
                .y_labels(5)
                .x_desc("delay, ms")
                .y_desc("Mbit/s")
                .draw()
                .map_err(failed)?;
            for (envelope, colour) in [(reference, GREY), (envelope, BLUE)] {
                let place = |point: &Point| (point.x * unit.x, point.y * unit.y);
                let every = envelope.points.len().div_ceil(DRAWN).max(1);
                let points = envelope.points.iter().step_by(every);
                chart
                    .draw_series(points.map(|point| Circle::new(place(point), 1, colour.mix(0.6).filled())))
                    .map_err(failed)?;
                let outline = |hull: &Polygon| {
                    let corners = hull.corners();
                    PathElement::new(
                        corners.iter().chain(corners.first()).map(place).collect::<Vec<_>>(),
                        colour.stroke_width(2),
                    )
                };
                chart.draw_series(envelope.hulls.iter().map(outline)).map_err(failed)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::results, *};
    use crate::link::Sample;

    /// The kernel, itself again, and one that has half of its throughput, three trials of each.
    fn sampled() -> Results {
        let three = &[1.0, 1.0, 1.0];
        let mut results = results(&[("h1-cubic", three), ("h1-cubic-again", three), ("shy", three)]);
        let case = results.cases.first_mut().unwrap();
        (case.path, case.conforms_to) = (Some("rate=20M,rtt=10ms,buffer=1bdp".to_owned()), Some("h1-cubic".to_owned()));
        for (seed, run) in results.runs.iter_mut().enumerate() {
            let mut random = crate::random::Random::new(seed as u64);
            let most = if run.contender == "shy" { 5.0 } else { 10.0 };
            let sample = |_| Sample { delay: 10.0 + random.unit(), throughput: most + random.unit() };
            run.samples = (0..200).map(sample).collect();
        }
        results
    }

    #[test]
    fn the_kernel_conforms_and_a_shifted_envelope_after_translation() {
        let results = sampled();
        let Analysis { shown, unit, .. } = analyse(&results, &results.cases[0]).unwrap();
        assert_eq!((unit.x, unit.y), (15.0, 20.0), "5 ms and a queue of 10 ms");
        let [again, shy] = shown.as_slice() else { panic!("two beside the reference") };
        assert!(again.conformance.conformance > 0.75, "{:?}", again.conformance);
        assert!(shy.conformance.conformance < 0.01 && shy.conformance.translated > 0.75, "{:?}", shy.conformance);
        assert!((shy.conformance.beyond.y * unit.y + 5.0).abs() < 0.5, "{:?}", shy.conformance);
        let table = table(&results, &results.cases[0]);
        assert!(table.contains("| shy | ") && table.contains("| 0.00 | "), "{table}");
    }

    #[test]
    fn a_map_and_a_panel_for_each_contender_are_drawn() {
        let plots = plots(&sampled()).unwrap();
        let [(_, map), (_, panels)] = plots.as_slice() else { panic!("{}", plots.len()) };
        assert!(map.contains(">shy<") && map.contains(">0.00<"), "{map}");
        assert!(panels.contains("shy: 0.00, T "), "{panels}");
        assert!(super::plots(&results(&[("a", &[1.0])])).unwrap().is_empty(), "nothing was sampled");
    }
}

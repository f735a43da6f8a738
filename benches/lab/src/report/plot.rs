//! Plots of an experiment: for each group of cases one SVG, with bars, or with lines where cases have a place on an
//! axis.

use super::{Case, Results, envelopes, figures::title, heat};
use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::{
        BLACK, ChartBuilder, Color as _, DrawingArea, IntoDrawingArea as _, IntoLogRange as _, LineSeries, PathElement,
        RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, WHITE,
    },
};

const SIZE: (u32, u32) = (960, 420); // pixels
/// Colours that people with red-green colour blindness can distinguish (Okabe and Ito 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(200, 190, 40),
];

/// The plots: caption and SVG.
pub(super) fn plots(results: &Results) -> Result<Vec<(String, String)>> {
    let mut groups: Vec<&str> = Vec::new();
    for case in &results.cases {
        if !groups.contains(&case.group.as_str()) {
            groups.push(&case.group);
        }
    }
    let mut plots = envelopes::plots(results)?;
    for group in groups {
        let cases: Vec<&Case> = results.cases.iter().filter(|case| case.group == group).collect();
        let Some(first) = cases.first() else { continue };
        if heat::is_grid(&cases) {
            for name in results.names().filter(|name| *name != results.reference) {
                let caption = format!("{}: {group}, {name} beside {}", results.experiment, results.reference);
                plots.push((caption.clone(), heat::map(results, &cases, name, &caption)));
            }
            continue;
        }
        if heat::is_pairs(&cases) {
            let caption = format!("{}: {group}, shares", results.experiment);
            plots.push((caption.clone(), heat::pairs(results, &cases, &caption)));
            continue;
        }
        for figure in std::iter::once(&first.primary).chain(&first.drawn) {
            let what = title(figure, first.per);
            let caption = format!("{}: {group}, {what}", results.experiment);
            let series = series(results, &cases, figure);
            if series.is_empty() {
                continue;
            }
            let svg = if cases.len() > 1 && cases.iter().all(|case| case.x.is_some_and(|x| x > 0.0)) {
                lines(&caption, &what, &series)
            } else {
                bars(&caption, &what, &cases, &series)
            };
            plots.push((caption, svg?));
        }
    }
    Ok(plots)
}

/// A contender's points: where, median, least, most.
struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64, f64, f64)>,
}

fn series<'a>(results: &'a Results, cases: &[&Case], figure: &str) -> Vec<Series<'a>> {
    let of = |name: &'a str| {
        let point = |(at, case): (usize, &&Case)| {
            let summary = results.summary(&case.name, name, figure)?;
            Some((case.x.unwrap_or(at as f64), summary.median, summary.min, summary.max))
        };
        Series { name, points: cases.iter().enumerate().filter_map(point).collect() }
    };
    results.names().map(of).filter(|series| !series.points.is_empty()).collect()
}

fn highest(series: &[Series]) -> f64 {
    let highest = series.iter().flat_map(|series| &series.points).map(|point| point.3).fold(0.0, f64::max);
    if highest > 0.0 { highest * 1.1 } else { 1.0 }
}

fn colour(at: usize) -> RGBColor {
    COLOURS.get(at % COLOURS.len()).copied().unwrap_or(BLACK)
}

/// A group of bars for each case, whiskers from the least to the most.
fn bars(caption: &str, what: &str, cases: &[&Case], series: &[Series]) -> Result<String> {
    drawn(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(caption, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(-0.5..cases.len() as f64 - 0.5, 0.0..highest(series))
            .map_err(failed)?;
        let label = |x: &f64| -> String {
            let near = x.round();
            let case =
                cases.iter().enumerate().find(|(at, _)| (*at as f64 - near).abs() < 1e-9 && (x - near).abs() < 1e-6);
            case.map(|(_, case)| case.name.trim_start_matches(&case.group).trim_start_matches(", ").to_owned())
                .unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(cases.len() * 2 + 1)
            .x_label_formatter(&label)
            .y_desc(what)
            .draw()
            .map_err(failed)?;
        let width = 0.8 / series.len() as f64;
        for (nth, one) in series.iter().enumerate() {
            let colour = colour(nth);
            let bar = |(x, median, ..): &(f64, f64, f64, f64)| {
                let left = x - 0.4 + width * nth as f64;
                Rectangle::new([(left, 0.0), (left + width * 0.9, *median)], colour.filled())
            };
            chart
                .draw_series(one.points.iter().map(bar))
                .map_err(failed)?
                .label(one.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            let whisker = |(x, _, least, most): &(f64, f64, f64, f64)| {
                let middle = x - 0.4 + width * (nth as f64 + 0.45);
                PathElement::new([(middle, *least), (middle, *most)], BLACK)
            };
            chart.draw_series(one.points.iter().map(whisker)).map_err(failed)?;
        }
        legend(&mut chart)?;
        Ok(())
    })
}

/// A line for each contender over a logarithmic axis.
fn lines(caption: &str, what: &str, series: &[Series]) -> Result<String> {
    drawn(SIZE, |area| {
        let all = series.iter().flat_map(|series| &series.points).map(|point| point.0);
        let (least, most) = all.fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
        let mut chart = ChartBuilder::on(area)
            .caption(caption, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d((least * 0.8..most * 1.25).log_scale(), 0.0..highest(series))
            .map_err(failed)?;
        chart.configure_mesh().y_desc(what).draw().map_err(failed)?;
        for (nth, one) in series.iter().enumerate() {
            let colour = colour(nth);
            chart
                .draw_series(
                    LineSeries::new(one.points.iter().map(|point| (point.0, point.1)), colour.stroke_width(2))
                        .point_size(3),
                )
                .map_err(failed)?
                .label(one.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
            let whisker =
                |(x, _, least, most): &(f64, f64, f64, f64)| PathElement::new([(*x, *least), (*x, *most)], colour);
            chart.draw_series(one.points.iter().map(whisker)).map_err(failed)?;
        }
        legend(&mut chart)?;
        Ok(())
    })
}

/// The distributions of each contender's figures: which share of them is at most so much.
pub(crate) fn distribution(caption: &str, what: &str, series: &[(&str, Vec<f64>)]) -> Result<String> {
    let most = series.iter().flat_map(|(_, figures)| figures).copied().fold(0.0, f64::max);
    drawn(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(caption, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(64)
            // The legend's place is at the right.
            .build_cartesian_2d(0.0..most.max(1.0) * 1.5, 0.0..1.0)
            .map_err(failed)?;
        chart.configure_mesh().x_desc(what).y_desc("share of loads").draw().map_err(failed)?;
        for (nth, (name, figures)) in series.iter().enumerate() {
            let colour = colour(nth);
            // Contenders beyond the colours have thin lines.
            let width = if nth < COLOURS.len() { 2 } else { 1 };
            chart
                .draw_series(LineSeries::new(steps(figures), colour.stroke_width(width)))
                .map_err(failed)?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(width)));
        }
        legend(&mut chart)?;
        Ok(())
    })
}

/// The points of a cumulative distribution.
fn steps(figures: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |nth: usize| nth as f64 / sorted.len() as f64;
    sorted.iter().enumerate().flat_map(|(nth, figure)| [(*figure, share(nth)), (*figure, share(nth + 1))]).collect()
}

fn legend<'a, 'b: 'a, C>(chart: &mut plotters::chart::ChartContext<'a, SVGBackend<'b>, C>) -> Result<()>
where
    C: plotters::coord::CoordTranslate + 'a,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)
}

/// Draws on a white area of so many pixels; the SVG.
pub(super) fn drawn(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

pub(super) fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn cases_without_an_axis_become_bars_with_a_legend() {
        let plots = plots(&results(&[("alpha", &[2.0, 2.5]), ("beta", &[1.0])])).unwrap();
        let [(caption, svg)] = plots.as_slice() else { panic!("one group, one plot") };
        assert_eq!(caption, "peers: large bodies, CPU s/GB");
        assert!(
            svg.starts_with("<svg") && svg.contains("alpha") && svg.contains("beta") && svg.contains("large"),
            "{svg}"
        );
    }

    #[test]
    fn cases_on_an_axis_become_lines() {
        let mut results = results(&[("alpha", &[2.0])]);
        let (mut case, mut run) = (results.cases[0].clone(), results.runs[0].clone());
        results.cases[0].x = Some(1.0);
        (case.name, case.x, run.case) = ("larger".to_owned(), Some(100.0), "larger".to_owned());
        results.cases.push(case);
        results.runs.push(run);
        let plots = plots(&results).unwrap();
        assert!(plots[0].1.contains("<polyline"), "{}", plots[0].1);
    }

    #[test]
    fn each_reported_figure_has_its_plot() {
        let mut results = results(&[("alpha", &[2.0])]);
        results.cases[0].drawn = vec!["rate".to_owned(), "acks_per_batch".to_owned()];
        let captions: Vec<String> = plots(&results).unwrap().into_iter().map(|(caption, _)| caption).collect();
        assert_eq!(captions, ["peers: large bodies, CPU s/GB", "peers: large bodies, MB/s"]);
    }

    #[test]
    fn a_distribution_rises_at_each_figure() {
        assert_eq!(steps(&[4.0, 2.0]), [(2.0, 0.0), (2.0, 0.5), (4.0, 0.5), (4.0, 1.0)]);
        let svg = distribution("late", "ms", &[("alpha", vec![4.0, 2.0]), ("beta", Vec::new())]).unwrap();
        assert!(svg.contains("alpha") && svg.contains("beta") && svg.contains("share of loads"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let mut results = results(&[("alpha", &[2.0])]);
        results.runs.clear();
        assert!(plots(&results).unwrap().is_empty());
    }
}

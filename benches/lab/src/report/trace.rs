//! A trace's plot: series below each other over the same time. Pure: figures into SVG.

use super::plot::{drawn, failed};
use crate::link::{Moment, Trace};
use anyhow::Result;
use plotters::prelude::{ChartBuilder, LineSeries, RGBColor};

const SIZE: (u32, u32) = (960, 900); // pixels

/// A panel: its title, and what it draws, the second figure paler.
type Panel = (&'static str, fn(&Moment) -> f64, Option<fn(&Moment) -> f64>);

const PANELS: [Panel; 6] = [
    ("delivered, Mbit/s", Moment::mbit, None),
    ("in flight, kB, at most", |moment| moment.in_flight / 1e3, None),
    ("queued at the bottleneck, kB, at most", |moment| moment.queued / 1e3, None),
    ("packets dropped", |moment| moment.dropped, None),
    ("packets an ACK", Moment::packets_per_ack, None),
    ("ACK delay at the client, ms, median and most", |moment| moment.ack_delay, Some(|moment| moment.ack_delay_most)),
];

pub(super) fn plot(trace: &Trace, caption: &str) -> Result<String> {
    drawn(SIZE, |area| {
        let area = area.titled(caption, ("sans-serif", 18)).map_err(failed)?;
        let end = trace.times().last().map_or(1.0, |(time, _)| time).max(0.1);
        for (panel, (title, figure, other)) in area.split_evenly((PANELS.len(), 1)).iter().zip(PANELS) {
            let all = trace.times().flat_map(|(_, moment)| [Some(figure(moment)), other.map(|other| other(moment))]);
            let most = all.flatten().fold(0.0, f64::max);
            let most = if most > 0.0 { most * 1.1 } else { 1.0 };
            let mut chart = ChartBuilder::on(panel)
                .caption(title, ("sans-serif", 13))
                .margin_right(12)
                .x_label_area_size(20)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..end, 0.0..most)
                .map_err(failed)?;
            chart.configure_mesh().y_labels(4).draw().map_err(failed)?;
            if let Some(other) = other {
                let points = trace.times().map(|(time, moment)| (time, other(moment)));
                chart.draw_series(LineSeries::new(points, &RGBColor(160, 200, 225))).map_err(failed)?;
            }
            let points = trace.times().map(|(time, moment)| (time, figure(moment)));
            chart.draw_series(LineSeries::new(points, &RGBColor(0, 114, 178))).map_err(failed)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_a_panel() {
        let moments = vec![Moment { acks: 1.0, packets: 4.0, ..Moment::default() }; 20];
        let svg = plot(&Trace { moments, ..Trace::default() }, "a run").unwrap();
        for (title, ..) in PANELS {
            assert!(svg.contains(title), "{title}");
        }
        assert!(svg.matches("<polyline").count() >= PANELS.len());
    }
}

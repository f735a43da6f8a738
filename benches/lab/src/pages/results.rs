//! What loads came to: tables with paired ratios, and the distributions as plots. Pure.

use super::{
    browser::Program,
    load::{FIGURES, LARGEST_PAINT, LOADED, Load},
};
use crate::{
    bench::{
        machine::Machine,
        stats::{Interval, Summary},
    },
    report::distribution,
};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The results of one or several runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// When they began, RFC 3339.
    pub(super) runs: Vec<String>,
    /// The command lines.
    pub(super) commands: Vec<String>,
    pub(super) machine: Machine,
    pub(super) quick: bool,
    #[serde(default)]
    pub(super) browser: Program,
    pub(super) cells: Vec<Cell>,
}

/// The loads of one page over one link.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) page: String,
    pub(super) path: String,
    /// Loads that do not count: over another protocol, incomplete, or over a link that was late.
    pub(super) void: usize,
    pub(super) loads: Vec<Taken>,
}

/// One load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) contender: String,
    /// In a round each contender loads the page once.
    pub(super) round: usize,
    pub(super) load: Load,
}

impl Results {
    /// The place of a page's loads over a path.
    pub(super) fn cell(&mut self, page: &str, path: &str) -> &mut Cell {
        let found = self.cells.iter().position(|cell| cell.page == page && cell.path == path);
        let at = found.unwrap_or_else(|| {
            self.cells.push(Cell { page: page.to_owned(), path: path.to_owned(), ..Cell::default() });
            self.cells.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "it was found or pushed")]
        &mut self.cells[at]
    }

    /// The page, and the plots that it names.
    pub(super) fn page(&self, reference: &str) -> Result<(String, Vec<(String, String)>)> {
        let mut text = format!("# Pages in {}\n\n", self.browser.name());
        if self.quick {
            text += "**Quick: its figures mean nothing.**\n\n";
        }
        let Machine { cpu, cores, kernel, .. } = &self.machine;
        let _ = writeln!(text, "{cpu}, {cores} cores, {kernel}. Begun {}.\n", self.runs.join(", "));
        for command in &self.commands {
            let _ = writeln!(text, "    {command}");
        }
        let mut plots = Vec::new();
        for cell in &self.cells {
            text += &cell.table(reference);
            for (figure, of) in [LARGEST_PAINT, LOADED] {
                let file =
                    format!("pages-{}-{}-{}.svg", cell.page, cell.path, figure).replace([' ', ',', '=', '%'], "-");
                let _ = writeln!(text, "![{figure}]({file})\n");
                plots.push((file, cell.plot(figure, of)?));
            }
        }
        Ok((text, plots))
    }
}

impl Cell {
    /// Contenders, in the order of their first loads.
    fn contenders(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for Taken { contender, .. } in &self.loads {
            if !names.contains(&contender.as_str()) {
                names.push(contender);
            }
        }
        names
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Taken> {
        self.loads.iter().filter(move |taken| taken.contender == name)
    }

    /// Loads of a contender.
    pub(super) fn count(&self, name: &str) -> usize {
        self.of(name).count()
    }

    /// The number of a round that has not been.
    pub(super) fn next_round(&self) -> usize {
        self.loads.iter().map(|taken| taken.round + 1).max().unwrap_or(0)
    }

    /// A contender's figures to the reference's in the same rounds.
    fn ratios(&self, name: &str, reference: &str, of: fn(&Load) -> f64) -> Vec<f64> {
        let ratio = |taken: &Taken| {
            let reference = self.of(reference).find(|reference| reference.round == taken.round)?;
            Some(of(&taken.load) / of(&reference.load))
        };
        self.of(name).filter_map(ratio).collect()
    }

    /// Medians in milliseconds with their ranges, and the ratios to the reference by rounds with their intervals.
    fn table(&self, reference: &str) -> String {
        let mut text =
            format!("\n## {}, {}\n\n{} loads did not count.\n\n| | loads |", self.page, self.path, self.void);
        for (figure, _) in FIGURES {
            let _ = write!(text, " {figure}, ms |");
        }
        let _ = writeln!(
            text,
            " load event to {reference} | largest paint to {reference} |\n|---|{}",
            "---:|".repeat(FIGURES.len() + 3)
        );
        for name in self.contenders() {
            let _ = write!(text, "| {name} | {} |", self.count(name));
            for (_, of) in FIGURES {
                let figures: Vec<f64> = self.of(name).map(|taken| of(&taken.load)).collect();
                text += &Summary::of(&figures).map_or_else(
                    || " |".to_owned(),
                    |summary| format!(" {:.0} ({:.0} to {:.0}) |", summary.median, summary.min, summary.max),
                );
            }
            for (_, of) in [LOADED, LARGEST_PAINT] {
                text += &Interval::of(&self.ratios(name, reference, of)).map_or_else(
                    || " |".to_owned(),
                    |ratio| format!(" {:.2} ({:.2} to {:.2}) |", ratio.median, ratio.low, ratio.high),
                );
            }
            text += "\n";
        }
        text + "\n"
    }

    fn plot(&self, figure: &str, of: fn(&Load) -> f64) -> Result<String> {
        let series: Vec<(&str, Vec<f64>)> = self
            .contenders()
            .into_iter()
            .map(|name| (name, self.of(name).map(|taken| of(&taken.load)).collect()))
            .collect();
        let caption = format!("{}, {}: {figure}", self.page, self.path);
        distribution(&caption, &format!("{figure}, ms"), &series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        let load = |time: f64| Load {
            first_byte: 10.0,
            first_paint: 20.0,
            largest_paint: time,
            last_byte: time,
            loaded: 2.0 * time,
            browser_cpu: 30.0,
            objects: 1,
            names: Vec::new(),
            protocols: vec!["h2".to_owned()],
        };
        let mut cell = Cell { page: "late".to_owned(), path: "rate=5M,rtt=100ms".to_owned(), ..Cell::default() };
        for (round, time) in [100.0, 200.0, 400.0].into_iter().enumerate() {
            for (contender, factor) in [("nginx h2", 1.0), ("litequic h3", 0.5)] {
                let load = load(time * factor);
                cell.loads.push(Taken { contender: contender.to_owned(), round, load });
            }
        }
        cell
    }

    #[test]
    fn a_table_has_medians_and_ratios_of_the_same_rounds() {
        let mut cell = cell();
        let text = cell.table("nginx h2");
        assert!(text.contains("| litequic h3 | 3 | 10 (10 to 10) | 20 (20 to 20) | 100 (50 to 200) |"), "{text}");
        assert!(text.contains("| 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) |"), "{text}");
        assert!(cell.table("caddy h2").contains("| 30 (30 to 30) | | |"));
        // A load without one of the reference beside it has no ratio.
        assert_eq!(cell.next_round(), 3);
        let mut further = cell.loads[1].clone();
        further.round = 3;
        cell.loads.push(further);
        assert_eq!((cell.count("litequic h3"), cell.ratios("litequic h3", "nginx h2", LOADED.1).len()), (4, 3));
    }

    #[test]
    fn a_page_names_its_plots() {
        let results = Results { cells: vec![cell()], ..Results::default() };
        let (text, plots) = results.page("nginx h2").unwrap();
        assert_eq!(plots.len(), 2);
        for (file, svg) in plots {
            assert!(text.contains(&format!("({file})")), "{file}");
            assert!(svg.starts_with("<svg") && svg.contains("litequic h3"), "{svg}");
        }
    }
}

//! Writes the reference of all metrics as Markdown: the metrics of a scrape, and the texts of the modules' tables.

use super::{metrics_registry::MetricsRegistry, process::ProcessFigures};
use std::{collections::HashMap, fmt::Write as _};

/// Placeholder for values from the configuration, and for the program's version.
const ANY: &str = "…";

/// Family of a scrape, as parsed.
#[derive(Default)]
struct ScrapedFamily {
    name: String,
    kind: String,
    help: String,
    /// Names of samples with labels.
    samples: Vec<String>,
}

impl MetricsRegistry {
    /// Renders the reference: every metric, in the order of a scrape. The registry must have each label from the
    /// configuration once, with the value `…`.
    pub fn render_reference(&self) -> String {
        let mut page = String::from(
            "# Metrics\n\n\
             Made by `litequic reference metrics`: the metrics of `/metrics`, in its order. Rows without a name are the labels of the\n\
             metric above them. How to scrape it, and what is worth an alert, is in [operating.md](../operating.md#metrics).\n\n\
             | metric | kind | meaning |\n|---|---|---|\n",
        );
        let samples = self.gather_families().into_iter().flatten();
        let notes: SampleNotes = samples.map(|sample| (sample.scraped_name(), sample.note)).collect();
        for family in parse_scrape(&self.example_scrape()) {
            // Writing to a String cannot fail.
            let _ = family.write_reference_rows(&mut page, &notes);
        }
        page
    }

    /// Whether the registry has `metric`: a name as scraped, with its labels.
    pub fn contains_metric(&self, metric: &str) -> bool {
        self.gather_families().iter().flatten().any(|sample| sample.scraped_name() == metric)
    }

    /// Renders a scrape with every possible metric and label.
    fn example_scrape(&self) -> String {
        let process = ProcessFigures {
            cpu_seconds: Some(0.0),
            resident_bytes: Some(0),
            start_time: Some(0.0),
            open_fds: Some(0),
            max_fds: Some(0),
        };
        let version = |version: &str| format!("version=\"{version}\"");
        self.render_with_process(process).replace(&version(env!("CARGO_PKG_VERSION")), &version(ANY))
    }
}

/// Texts of samples beside their families' help, from the modules' tables.
type SampleNotes = HashMap<String, &'static str>;

/// Parses the families of a scrape. Each begins with HELP, then TYPE.
fn parse_scrape(scrape: &str) -> Vec<ScrapedFamily> {
    let mut families: Vec<ScrapedFamily> = Vec::new();
    for line in scrape.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(ScrapedFamily { name: name.into(), help: help.into(), ..ScrapedFamily::default() });
        } else if let Some(family) = families.last_mut() {
            match line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                Some((_, kind)) => family.kind = kind.into(),
                None if line.starts_with('#') => {}
                None => family.samples.extend(line.rsplit_once(' ').map(|(sample, _)| sample.to_owned())),
            }
        }
    }
    families
}

impl ScrapedFamily {
    fn write_reference_rows(&self, page: &mut String, notes: &SampleNotes) -> std::fmt::Result {
        let Self { name, kind, help, samples } = self;
        let Some(first) = samples.first() else { return Ok(()) };
        let note = |sample: &str| notes.get(sample).copied().unwrap_or_default();
        let (bare, labels) = first.split_once('{').unwrap_or((first, ""));
        if kind == "histogram" {
            return writeln!(
                page,
                "| `{name}_bucket{{le=\"{ANY}\"}}`, `{name}_sum`, `{name}_count` | {kind} | {help} |"
            );
        }
        if labels.contains(ANY) {
            let values = labels.split('"').enumerate().map(|(n, piece)| if n.is_multiple_of(2) { piece } else { ANY });
            let labels = values.collect::<Vec<_>>().join("\"");
            return writeln!(page, "| `{bare}{{{labels}` | {kind} | {help} |");
        }
        if samples.len() == 1 {
            return writeln!(page, "| `{first}` | {kind} | {} |", format!("{help} {}", note(first)).trim_end());
        }
        writeln!(page, "| `{bare}` | {kind} | {help} |")?;
        for sample in samples {
            writeln!(page, "| `{}` | | {} |", sample.trim_start_matches(bare), note(sample.as_str()))?;
        }
        Ok(())
    }
}

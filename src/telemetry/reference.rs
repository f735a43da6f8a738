//! The reference of all metrics, as Markdown: what a scrape has, and what the table of metrics says of it beside.

use super::{
    control::Validity,
    metrics::{DESCRIPTIONS, Metrics},
    process::Process,
};
use std::{fmt::Write as _, sync::PoisonError};

/// Stands for what comes with the configuration, or the program's version.
const ANY: &str = "…";

/// A family of a scrape.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    help: String,
    /// Names with labels.
    samples: Vec<String>,
}

/// Every metric, in the order of a scrape.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Made by `litequic reference metrics`: what `/metrics` tells, in its order. Rows without a name are the labels of the\n\
         metric above them. How to ask for it, and what is worth an alert, is in [operating.md](../operating.md#metrics).\n\n\
         | metric | kind | what it tells |\n|---|---|---|\n",
    );
    for family in families(&example()) {
        // Writing to a String cannot fail.
        let _ = family.write(&mut page);
    }
    page
}

/// Whether there is `metric` (its name as it is scraped, and its labels) in the table of metrics.
pub fn is_counted(metric: &str) -> bool {
    DESCRIPTIONS.iter().any(|line| line.sample() == metric)
}

/// A scrape with everything in it that there can be.
fn example() -> String {
    let metrics = Metrics::new(1);
    for worker in metrics.workers() {
        worker.routes.of(ANY);
        worker.servers.of(ANY, ANY);
    }
    let control = metrics.control();
    control.servers.of(ANY, ANY);
    *control.version.lock().unwrap_or_else(PoisonError::into_inner) = ANY.into();
    control.certificates.lock().unwrap_or_else(PoisonError::into_inner).push(Validity { from: 0, until: 0 });
    let process = Process { cpu_seconds: Some(0.0), resident_bytes: Some(0), start_time: Some(0.0), open_fds: Some(0) };
    let version = |version: &str| format!("version=\"{version}\"");
    metrics.render_with(process).replace(&version(env!("CARGO_PKG_VERSION")), &version(ANY))
}

/// What stands in a scrape. Its HELP comes first of each family, then its TYPE.
fn families(scrape: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in scrape.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(Family { name: name.into(), help: help.into(), ..Family::default() });
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

impl Family {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        let Self { name, kind, help, samples } = self;
        let Some(first) = samples.first() else { return Ok(()) };
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
            writeln!(page, "| `{}` | | {} |", sample.trim_start_matches(bare), note(sample))?;
        }
        Ok(())
    }
}

/// What the table of metrics says of a sample beside its family's help.
fn note(sample: &str) -> &'static str {
    DESCRIPTIONS.iter().find(|line| line.sample() == sample).map_or("", |line| line.note)
}

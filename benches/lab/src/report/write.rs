//! Results into a folder, and a folder's results into one page.

use super::{MemoryTrace, Results, Run, compare, markdown, overview, plot, strip, trace};
use crate::link::Trace;
use anyhow::{Context as _, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Writes `NAME.json`, `NAME.md` and its plots; the page's path.
pub(crate) fn save(results: &Results, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write(folder, &format!("{}.json", results.experiment), &(serde_json::to_string_pretty(results)? + "\n"))?;
    let unfinished = unfinished(&results.experiment, folder);
    if unfinished.exists() {
        fs::remove_file(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    page_of(results, folder)
}

/// Writes an experiment's page and its plots; the page's path.
fn page_of(results: &Results, folder: &Path) -> Result<PathBuf> {
    let mut drawn = Vec::new();
    for (name, caption, svg) in plots_of(results)? {
        write(folder, &name, &svg)?;
        drawn.push((name, caption));
    }
    let chart = strip_of(results);
    if let Some((name, svg)) = &chart {
        write(folder, name, svg)?;
    }
    let chart = chart.map(|(name, _)| name);
    write(folder, &format!("{}.md", results.experiment), &markdown::page(results, &drawn, chart.as_deref()))
}

/// The chart of where litequic stands, unless nothing is better or worse.
fn strip_of(results: &Results) -> Option<(String, String)> {
    let svg = strip::strip(&overview::first_screen(results)).filter(|_| !results.quick)?;
    Some((format!("{}.svg", results.experiment), svg))
}

/// An experiment's plots: file, caption, SVG.
fn plots_of(results: &Results) -> Result<Vec<(String, String, String)>> {
    let named = |(at, (caption, svg)): (usize, (String, String))| {
        (format!("{}-{}.svg", results.experiment, at + 1), caption, svg)
    };
    Ok(plot::plots(results)?.into_iter().enumerate().map(named).collect())
}

/// Makes the page and the plots of each of these files anew, in `folder`; the pages' paths.
pub(crate) fn regenerate(files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    files.iter().map(|file| page_of(&of_file(file)?, folder)).collect()
}

/// Writes down what is finished of an experiment that is not; [`save`] removes it.
pub(crate) fn keep(results: &Results, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = unfinished(&results.experiment, folder);
    // Whatever ends the lab, one of the two is whole.
    let new = path.with_extension("new");
    let text = serde_json::to_string(results)?;
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a run's trace and its plot; the plot's name.
pub(crate) fn save_trace(trace: &Trace, experiment: &str, run: &Run, folder: &Path) -> Result<String> {
    let Run { contender, case, round, .. } = run;
    let caption = format!("{experiment}: {case}, {contender}");
    let name = slug(&format!("{caption} {round}"));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write(folder, &format!("trace-{name}.csv"), &trace.csv())?;
    let plot = format!("trace-{name}.svg");
    write(folder, &plot, &trace::plot(trace, &caption)?)?;
    Ok(plot)
}

/// Writes the viewers' reports of a run, in a folder of its own: they are not an experiment's results.
pub(crate) fn save_views(views: &str, experiment: &str, run: &Run, folder: &Path) -> Result<()> {
    let Run { contender, case, round, .. } = run;
    let folder = folder.join("views");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write(&folder, &format!("{}.json", slug(&format!("{experiment}: {case}, {contender} {round}"))), views).map(drop)
}

/// Writes a run's memory over time and its plot; the plot's name.
pub(crate) fn save_memory(trace: &MemoryTrace, experiment: &str, run: &Run, folder: &Path) -> Result<String> {
    let Run { contender, case, round, .. } = run;
    let caption = format!("{experiment}: {case}, {contender}");
    let name = slug(&format!("{caption} {round}"));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write(folder, &format!("{name}.csv"), &trace.csv())?;
    let plot = format!("{name}.svg");
    write(folder, &plot, &trace.plot(&caption)?)?;
    Ok(plot)
}

/// Letters and digits, and hyphens between them.
fn slug(text: &str) -> String {
    let kept = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    kept.collect::<Vec<_>>().join("-").to_lowercase()
}

/// What an earlier run of an experiment left in a folder: what it had finished, or all of it.
pub(crate) fn earlier(experiment: &str, folder: &Path) -> Result<Option<Results>> {
    for path in [unfinished(experiment, folder), folder.join(format!("{experiment}.json"))] {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let results = serde_json::from_str(&text);
                return results.map(Some).with_context(|| format!("{}: no results of the lab", path.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    Ok(None)
}

fn unfinished(experiment: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{experiment}.unfinished"))
}

/// Makes one page, `README.md`, of all results in the folder `from`, and their own pages anew, in `folder`; its path.
pub(crate) fn join(from: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let all = read(from)?;
    for results in &all {
        page_of(results, folder)?;
    }
    for (name, chart) in overview::charts(&all) {
        write(folder, &name, &chart.svg())?;
    }
    write(folder, "README.md", &overview::page(&all, None))
}

/// Makes that page alone in `folder`, and beside it these of its charts, of the experiments' plots and of the plots of
/// runs, which lie in `from`; its path.
pub(crate) fn summarize(from: &Path, folder: &Path, plots: &BTreeSet<String>) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let all = read(from)?;
    let mut known: BTreeMap<String, String> =
        overview::charts(&all).into_iter().map(|(name, chart)| (name, chart.svg())).collect();
    for results in &all {
        known.extend(strip_of(results));
        known.extend(plots_of(results)?.into_iter().map(|(name, _, svg)| (name, svg)));
    }
    for name in plots {
        let svg = match known.remove(name) {
            Some(svg) => svg,
            None => {
                fs::read_to_string(from.join(name)).with_context(|| format!("{name} is no plot of these results"))?
            }
        };
        write(folder, name, &svg)?;
    }
    write(folder, "README.md", &overview::page(&all, Some(plots)))
}

/// A page on what two folders' results have in common.
pub(crate) fn against(now: &Path, then: &Path) -> Result<String> {
    let page = compare::page(&read(now)?, &read(then)?);
    page.with_context(|| format!("{} and {} have no case in common", now.display(), then.display()))
}

/// All results in a folder, by the names of their files.
fn read(folder: &Path) -> Result<Vec<Results>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    if files.is_empty() {
        bail!("{} has no results (*.json)", folder.display());
    }
    files.iter().map(|file| of_file(file)).collect()
}

fn of_file(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}: no results of the lab", file.display()))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, format!("{}\n", text.trim_end())).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn what_was_saved_is_joined_into_one_page() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = results(&[("a", &[2.0])]);
        save(&one, folder.path()).unwrap();
        one.experiment = "floor".to_owned();
        save(&one, folder.path()).unwrap();
        let page = fs::read_to_string(join(folder.path(), folder.path()).unwrap()).unwrap();
        for wanted in ["- **floor**", "- **peers**", "](peers.md)"] {
            assert!(page.contains(wanted), "{wanted} in {page}");
        }
        assert!(folder.path().join("peers-1.svg").exists());
    }

    #[test]
    fn a_summary_is_one_page_and_the_plots_that_are_named() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        save(&results(&[("a", &[2.0])]), from.path()).unwrap();
        fs::write(from.path().join("memory.svg"), "<svg/>").unwrap();
        let plots = ["peers-1.svg", "memory.svg"].map(str::to_owned).into();
        summarize(from.path(), to.path(), &plots).unwrap();
        let mut names: Vec<_> = fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["README.md", "memory.svg", "peers-1.svg"]);
        let same = |name| fs::read(from.path().join(name)).unwrap() == fs::read(to.path().join(name)).unwrap();
        assert!(same("peers-1.svg"));
        let error = summarize(from.path(), to.path(), &BTreeSet::from(["other.svg".to_owned()])).unwrap_err();
        assert_eq!(error.to_string(), "other.svg is no plot of these results");
    }

    #[test]
    fn what_is_finished_is_kept_until_all_of_it_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(earlier("peers", folder.path()).unwrap().is_none());
        save(&results(&[("a", &[2.0])]), folder.path()).unwrap();
        keep(&results(&[("a", &[2.0, 3.0])]), folder.path()).unwrap();
        let runs = || earlier("peers", folder.path()).unwrap().unwrap().runs.len();
        assert_eq!(runs(), 2, "the unfinished one is the newer one");
        save(&results(&[("a", &[2.0, 3.0, 4.0])]), folder.path()).unwrap();
        assert_eq!(runs(), 3);
        assert!(!folder.path().join("peers.unfinished").exists());
    }

    #[test]
    fn figures_that_are_no_numbers_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut unfinished = results(&[("a", &[2.0])]);
        let figures = &mut unfinished.runs[0].figures;
        figures.extend([("cpu".to_owned(), f64::INFINITY), ("sends".to_owned(), f64::NAN)]);
        keep(&unfinished, folder.path()).unwrap();
        let run = earlier("peers", folder.path()).unwrap().unwrap().runs.remove(0);
        assert_eq!(run.figures.into_keys().collect::<Vec<_>>(), ["rate"]);
    }

    #[test]
    fn a_trace_lies_beside_the_results_under_a_name_for_every_system() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = results(&[("a", &[2.0])]).runs.remove(0);
        run.case = "20 Mbit/s, 0.5 BDP".to_owned();
        let plot = save_trace(&Trace::default(), "shallow", &run, folder.path()).unwrap();
        assert_eq!(plot, "trace-shallow-20-mbit-s-0.5-bdp-a-1.svg");
        assert!(folder.path().join(plot.replace(".svg", ".csv")).exists());
    }

    /// The fixture is a run as it was measured, with the page and the plots that were made of it then.
    #[test]
    fn a_page_and_its_plots_are_made_anew_byte_by_byte() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/results");
        let folder = tempfile::tempdir().unwrap();
        regenerate(&[fixtures.join("ladder.json")], folder.path()).unwrap();
        for name in ["ladder.md", "ladder.svg", "ladder-1.svg"] {
            let [then, now] = [fixtures.as_path(), folder.path()].map(|place| fs::read(place.join(name)).unwrap());
            assert!(then == now, "{name} is another");
        }
    }

    #[test]
    fn a_folder_without_results_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(join(folder.path(), folder.path()).unwrap_err().to_string().contains("has no results"));
    }
}

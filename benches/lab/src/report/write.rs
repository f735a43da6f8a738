//! Results into a folder, and a folder's results into one page.

use super::{Results, compare, markdown, plot};
use anyhow::{Context as _, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes `NAME.json`, `NAME.md` and its plots; the page's path.
pub(crate) fn save(results: &Results, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write(folder, &format!("{}.json", results.experiment), &(serde_json::to_string_pretty(results)? + "\n"))?;
    let plots = draw(results, folder)?;
    write(folder, &format!("{}.md", results.experiment), markdown::page(results, &plots, 1).trim_end())
}

/// What a page of all results begins with, for whoever has seen nothing else.
const INTRODUCTION: &str = "\
# What litequic costs

litequic is a proxy that speaks HTTP/3 to clients and plain HTTP/1.1 to the server behind it, the origin. Here is what it
costs beside others that do the same, in the same run: one worker on one core; the client, the origin and the tool that
measures on another. Made by `litequic-lab report`; each section names the command that measured it, and lists programs,
configuration and machine at its end.

- **CPU s/GB**: seconds of CPU time, user and system, that all of a server's processes used for 10⁹ bytes of bodies (or, of
  small objects, microseconds for a request). Less is better. Median of all rounds, then least and greatest.
- **to nginx**: that figure by nginx's, so that 0.80 is a fifth less. **to nginx-h1**: by the same nginx over HTTP/1.1 and
  TLS on TCP, what serving the same bodies costs without HTTP/3. **to floor**: by a program that only reads from the
  origin, seals pieces with AES-128-GCM and sends them by UDP, with no protocol at all: no HTTP/3 server gets below it. A
  **?** means that nothing is concluded; the line below the table says why.
- **ACK 2**, **10**, **100**: the client acknowledges every so many packets, exactly; browsers do it at 2 to 10. **auto**: at
  2 until the server asks for another number. **h2load**: as that client likes, at 60 to 105, where acknowledgements cost
  nothing.
- **unsaturated**: client and origin, on one core, are slower than the server on the other, which waits in between.
  **saturated**: a rival takes half of the server's core, so that the server is the bottleneck and work piles up for it,
  as on a busy machine: costs are comparable, rates are not. **busy** is the server's share of the time left to it.
- **void**: the run means nothing: an answer was wrong or missing, the number of packets an ACK was not held, a server
  died. Void runs are listed and never averaged in.

";

/// Makes one page, `README.md`, of all results in a folder; its path.
pub(crate) fn join(folder: &Path) -> Result<PathBuf> {
    let all = read(folder)?;
    let mut page = INTRODUCTION.to_owned();
    page += "| experiment | measured | machine | runs that count | void |\n|---|---|---|---:|---:|\n";
    for results in &all {
        let counting = results.runs.iter().filter(|run| run.counts).count();
        let quick = if results.quick { ", quick" } else { "" };
        page += &format!(
            "| [{0}](#{0}) | {1}{quick} | {2} | {counting} | {3} |\n",
            results.experiment,
            results.started,
            results.machine.cpu,
            results.voids().count()
        );
    }
    page.push('\n');
    for results in &all {
        let plots = draw(results, folder)?;
        page += &markdown::page(results, &plots, 2);
    }
    write(folder, "README.md", page.trim_end())
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
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        all.push(serde_json::from_str(&text).with_context(|| format!("{}: no results of the lab", file.display()))?);
    }
    Ok(all)
}

/// Writes an experiment's plots; their files and captions.
fn draw(results: &Results, folder: &Path) -> Result<Vec<(String, String)>> {
    let mut drawn = Vec::new();
    for (at, (caption, svg)) in plot::plots(results)?.into_iter().enumerate() {
        let name = format!("{}-{}.svg", results.experiment, at + 1);
        write(folder, &name, svg.trim_end())?;
        drawn.push((name, caption));
    }
    Ok(drawn)
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
        let page = fs::read_to_string(join(folder.path()).unwrap()).unwrap();
        for wanted in ["| [floor](#floor) |", "\n## peers\n", "](peers-1.svg)"] {
            assert!(page.contains(wanted), "{wanted} in {page}");
        }
        assert!(folder.path().join("peers-1.svg").exists());
    }

    #[test]
    fn a_folder_without_results_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(join(folder.path()).unwrap_err().to_string().contains("has no results"));
    }
}

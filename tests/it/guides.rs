//! How-to guides: their configurations and commands as they stand in the documents, with the programs that they are
//! about.

mod acme;
mod beside;
mod blocking;
mod certificates;
mod files;
mod forward_auth;
mod gateway;
mod https_record;
mod laptop;
mod machine;
mod old_clients;
mod origin_tls;
mod passwords;
mod php;
mod recording;
mod rpc;
mod security_headers;
mod signing_in;
mod tunnels;

use crate::support::prelude::*;

/// A document of docs/how-to.
struct Guide {
    name: String,
    text: String,
}

impl Guide {
    fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/how-to/{name}.md"));
        Self { name: name.to_owned(), text: fs::read_to_string(path).unwrap() }
    }

    /// The one block of `language` in which `part` occurs.
    fn block(&self, language: &str, part: &str) -> String {
        let fence = format!("```{language}\n");
        let mut found = Vec::new();
        for (start, _) in self.text.match_indices(&fence) {
            let block = self.text[start + fence.len()..].split("\n```").next().unwrap();
            if block.contains(part) {
                found.push(format!("{block}\n"));
            }
        }
        assert_eq!(found.len(), 1, "{}: blocks of {language} with {part}: {found:?}", self.name);
        found.remove(0)
    }

    /// The one command of a `bash` or `sh` block in which `part` occurs, in one line and without its comment. A line
    /// that ends with a backslash or a pipe continues in the next one.
    fn command(&self, part: &str) -> String {
        let mut fenced = false;
        let mut command = String::new();
        let mut found = Vec::new();
        for line in self.text.lines() {
            if let Some(language) = line.trim().strip_prefix("```") {
                fenced = ["bash", "sh"].contains(&language);
            } else if fenced && !line.trim_start().starts_with('#') {
                command += line.trim_start();
                if let Some(begun) = command.strip_suffix('\\') {
                    command = format!("{} ", begun.trim_end());
                } else if command.ends_with('|') {
                    command.push(' ');
                } else {
                    let whole = std::mem::take(&mut command);
                    if whole.contains(part) {
                        found.push(whole.split("  #").next().unwrap().trim().to_owned());
                    }
                }
            }
        }
        assert_eq!(found.len(), 1, "{}: commands with {part}: {found:?}", self.name);
        found.remove(0)
    }
}

/// `text` with each first text in place of the second; each must occur, or the guide has changed.
fn adapted(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "no {from} in {text}");
        text.replace(from, to)
    })
}

/// Columns of a line of a command or a configuration: GitHub shows them without scrolling, the site with one wrap.
const MAX_COLUMNS: usize = 100;

#[test]
fn lines_of_code_fit_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/how-to");
    let mut checked = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut language = None;
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if let Some(fence) = line.trim().strip_prefix("```") {
                language = language.is_none().then(|| fence.to_owned());
            } else if language.as_deref().is_some_and(|language| !["mermaid", "text", "json", ""].contains(&language)) {
                let columns = line.chars().count();
                assert!(columns <= MAX_COLUMNS, "{}:{}: {columns} columns", path.display(), index + 1);
                checked += 1;
            }
        }
    }
    assert!(checked > 1000, "code was found");
}

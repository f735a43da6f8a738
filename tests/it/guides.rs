//! How-to guides: their configurations and commands as they stand in the documents, with the programs that they are
//! about.

mod acme;
mod beside;
mod blocking;
mod certificates;
mod files;
mod machine;
mod origin_tls;
mod passwords;
mod recording;
mod security_headers;
mod signing_in;
mod tunnels;

use std::{fs, path::Path};

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

    /// The one line of a `bash` or `sh` block in which `part` occurs, without its comment.
    fn command(&self, part: &str) -> String {
        let mut fenced = false;
        let mut found = Vec::new();
        for line in self.text.lines() {
            if let Some(language) = line.trim().strip_prefix("```") {
                fenced = ["bash", "sh"].contains(&language);
            } else if fenced && line.contains(part) {
                found.push(line.split("   #").next().unwrap().trim().to_owned());
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

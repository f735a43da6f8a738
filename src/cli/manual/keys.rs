//! Writes litequic.toml(5): the reference of the configuration, which is Markdown, as a manual page. Pure.

use super::roff::{escape_roff, examples_section, markdown_paragraph, see_also_section, title_line};
use litequic_config as config;
use std::fmt::Write as _;

/// Description of the file's format, which the reference does not have.
const DESCRIPTION: &[&str] = &[
    "`litequic run --config FILE` reads a file of TOML. `litequic check --config FILE` prints every fault in it, with \
     line and column. Only a certificate and an origin are required; all other keys have defaults.",
    "A relative path is relative to the file. `${NAME}` in a string is the environment variable `NAME`; an unset one is a fault. \
     A duration has units: `500ms`, `30s`, `1m 30s`, `1h`. A size is a number of bytes, or has a unit: `64 KiB` (1024), `64 kB` \
     (1000). An array with one value can be written as that value alone. An unknown key is a fault.",
    "litequic reloads the file when it changes, on SIGHUP, and by `litequic ctl reload`: all changes or none. Keys \
     that need a restart are marked; a hot upgrade (SIGUSR2) applies them too, without closing a connection.",
];

/// Configurations to begin with. A test checks each.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "One origin, at port 443 over UDP and TCP, with a redirect from plain HTTP:",
        "[listen]\nudp = \"[::]:443\"\nredirect = \"[::]:80\"\n\n[[certificates]]\ncert = \"/etc/litequic/tls.crt\"\n\
         key = \"/etc/litequic/tls.key\"\n\n[origin]\nurl = \"http://127.0.0.1:8080\"\n\n[access_log]\npath = \"stderr\"",
    ),
    (
        "Two origins, by host and path, with a rate limit:",
        "[[certificates]]\ncert = \"/etc/litequic/tls.crt\"\nkey = \"/etc/litequic/tls.key\"\n\n[origins.site]\n\
         url = \"unix:/run/site.sock\"\n\n[origins.api]\nurl = [\"http://10.0.0.5:8080\", \"http://10.0.0.6:8080\"]\n\n\
         [[routes]]\nhost = \"example.com\"\norigin = \"site\"\n\n[[routes]]\nhost = \"example.com\"\npath_prefix = \"/api\"\n\
         origin = \"api\"\nrate_limit = { requests = 50, burst = 100 }",
    ),
];

/// Text of litequic.toml(5).
pub(super) fn keys_page(date: &str) -> String {
    let mut text = title_line("litequic.toml", 5, date);
    text.push_str(".SH NAME\nlitequic.toml \\- configuration of litequic\n.SH DESCRIPTION\n");
    for paragraph in DESCRIPTION {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}{}",
            if text.ends_with("DESCRIPTION\n") { "" } else { ".PP\n" },
            markdown_paragraph(paragraph)
        );
    }
    text.push_str(&key_sections(&config::reference_page()));
    text.push_str(&examples_section(EXAMPLES));
    text + &see_also_section(&[("litequic", 1), ("litequic-check", 1), ("litequic-ctl", 1), ("litequic-run", 1)])
}

/// Sections of the reference after the introduction.
fn key_sections(reference: &str) -> String {
    let mut text = String::new();
    let mut is_first = true;
    for line in reference.lines().skip_while(|line| !line.starts_with("## ")) {
        if let Some(heading) = line.strip_prefix("## ") {
            let _ = writeln!(text, ".SH {}", escape_roff(&heading.replace('`', "")));
            is_first = true;
        } else if let Some(cells) = key_row(line) {
            let [key, value, default, about] = cells;
            // A list may break after its commas.
            let default = default.replace("\",\"", "\", \"");
            let default =
                if default == "–" || default == "required" { default } else { format!("default {default}") };
            let default = if default == "–" { String::new() } else { format!("; {default}") };
            let _ = write!(
                text,
                ".TP\n{}{}.br\n{}",
                markdown_paragraph(&key),
                markdown_paragraph(&format!("{value}{default}.")),
                markdown_paragraph(&about)
            );
            is_first = false;
        } else if !line.is_empty() && !line.starts_with('|') {
            let _ = write!(text, "{}{}", if is_first { "" } else { ".PP\n" }, markdown_paragraph(line));
            is_first = false;
        }
    }
    text
}

/// Four cells of a table's row, if `line` is one of a key.
fn key_row(line: &str) -> Option<[String; 4]> {
    let inner = line.strip_prefix("| `")?.strip_suffix(" |")?;
    let cells: Vec<String> =
        inner.replace("\\|", "\u{0}").split(" | ").map(|cell| cell.replace('\u{0}', "|").replace("\\*", "*")).collect();
    let [key, value, default, about]: [String; 4] = cells.try_into().ok()?;
    Some([format!("`{key}"), value, default, about])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_key_of_the_reference_is_on_the_page() {
        let (reference, page) = (config::reference_page(), keys_page("2026-05-04"));
        let keys: Vec<&str> =
            reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert!(keys.len() > 100, "keys were found");
        for key in keys {
            assert!(page.contains(&format!("\n.TP\n\\fB{}\\fR\n", escape_roff(key))), "{key}");
        }
        assert!(page.starts_with(".TH LITEQUIC.TOML 5 2026-05-04 \"litequic "), "{page}");
    }

    #[test]
    fn the_examples_are_valid() {
        for (about, text) in EXAMPLES {
            if let Err(faults) = config::parse_config(text, Path::new(about), |_| None) {
                panic!("{faults}");
            }
        }
    }
}

//! Converts Markdown to roff, as far as the manual's texts have it: headings, paragraphs, code, lists whose entries
//! have a name, and the tables of the reference. Pure.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// Texts that the command line's definition does not have: for each section of a page, the pages that have it.
pub(super) const SECTIONS: &str = include_str!("sections.md");

/// Appends the sections of [`SECTIONS`] that the page `name` has.
pub(super) fn append_sections(page: &mut Roff, name: &str) {
    for section in SECTIONS.trim_start_matches("# ").split("\n# ") {
        let mut texts = section.split("\n## ");
        let heading = texts.next().unwrap_or_default();
        for (_, text) in texts
            .filter_map(|text| text.split_once('\n'))
            .filter(|(names, _)| names.split(' ').any(|pages| is_page(name, pages)))
        {
            append_markdown(page, &format!("# {heading}\n{text}"));
        }
    }
}

/// Whether `pages` is `name`, or the beginning of it and `*`.
fn is_page(name: &str, pages: &str) -> bool {
    pages.strip_suffix('*').map_or(pages == name, |beginning| name.starts_with(beginning))
}

/// Appends `markdown`: code spans are bold, links are their text.
pub(super) fn append_markdown(page: &mut Roff, markdown: &str) {
    let mut lines = markdown.lines().skip_while(|line| line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix('#') {
            page.control("SH", [heading.replace(['#', '`'], "").trim()]);
            // The first paragraph needs no break.
            while lines.next_if_eq(&"").is_some() {}
        } else if line.starts_with("```") {
            page.control("RS", ["4"]).control("nf", []);
            for code in lines.by_ref().take_while(|code| !code.starts_with("```")) {
                page.text([roman(code)]);
            }
            page.control("fi", []).control("RE", []);
        } else if let Some((name, about)) = line.strip_prefix("- ").and_then(|entry| entry.split_once(": ")) {
            page.control("TP", []).text(inlines(name)).text(inlines(about));
        } else if let Some([key, value, about]) = key_row(line) {
            page.control("TP", []).text(inlines(&key)).text(inlines(&value)).control("br", []).text(inlines(&about));
        } else if line.is_empty() {
            if lines.peek().is_some_and(|next| !next.starts_with(['#', '-', '|'])) {
                page.control("PP", []);
            }
        } else if !line.starts_with('|') {
            page.text(inlines(line.trim_start()));
        }
    }
}

/// Key, values with the default, and description, if `line` is a key's row in the reference.
fn key_row(line: &str) -> Option<[String; 3]> {
    let inner = line.strip_prefix("| `")?.strip_suffix(" |")?;
    let cells: Vec<String> =
        inner.replace("\\|", "\u{0}").split(" | ").map(|cell| cell.replace('\u{0}', "|").replace("\\*", "*")).collect();
    let [key, value, default, about]: [String; 4] = cells.try_into().ok()?;
    // A list may break after its commas.
    let default = match default.replace("\",\"", "\", \"").as_str() {
        "–" => String::new(),
        "required" => "; required".to_owned(),
        default => format!("; default {default}"),
    };
    Some([format!("`{key}"), format!("{value}{default}."), about])
}

/// Text of a line: code spans are bold, `[text](target)` is its text.
fn inlines(line: &str) -> Vec<Inline> {
    let mut parts = line.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(open) = plain.rfind('[') {
            plain.remove(open);
        }
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain.split('`').enumerate().map(|(number, span)| if number % 2 == 1 { bold(span) } else { roman(span) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_headings_paragraphs_entries_and_code() {
        let table = [
            ("# `[a]`\n\ntext\n.dot\n\n`x` [b](c.md#d) and [1]", ".SH [a]\ntext\n\\&.dot\n.PP\n\\fBx\\fR b and [1]\n"),
            ("- `A, B`: one\n  two\n- `C`: 3", ".TP\n\\fBA, B\\fR\none\ntwo\n.TP\n\\fBC\\fR\n3\n"),
            ("a:\n\n```sh\n.b\n\n  c\n```", "a:\n.PP\n.RS 4\n.nf\n\\&.b\n\n  c\n.fi\n.RE\n"),
            (
                "| key | value |\n|---|---|\n| `a` | b\\|c | `1` | d |",
                ".TP\n\\fBa\\fR\nb|c; default \\fB1\\fR.\n.br\nd\n",
            ),
            (
                "| `a` | b | – | d |\n| `e` | f | required | g |",
                ".TP\n\\fBa\\fR\nb.\n.br\nd\n.TP\n\\fBe\\fR\nf; required.\n.br\ng\n",
            ),
        ];
        for (markdown, expected) in table {
            let mut page = Roff::new();
            append_markdown(&mut page, markdown);
            assert_eq!(page.to_roff(), expected, "{markdown}");
        }
    }

    #[test]
    fn a_page_has_its_sections_in_order() {
        let mut page = Roff::new();
        append_sections(&mut page, "litequic-run");
        let page = page.to_roff();
        let places: Vec<usize> = ["SIGNALS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "EXAMPLES", "\"SEE ALSO\""]
            .map(|heading| page.find(&format!(".SH {heading}\n")).unwrap())
            .into();
        assert!(places.is_sorted(), "{page}");
        assert_eq!(page.matches(".SH ").count(), places.len(), "{page}");
    }
}

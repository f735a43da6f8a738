//! Writes pieces of man(7) pages, as mandoc and groff accept them without a warning. Pure.

use std::fmt::Write as _;

/// Longest line of input that mandoc accepts without a warning.
const MAX_LINE_BYTES: usize = 79;

/// Head of the page `name` of `section`.
pub(super) fn title_line(name: &str, section: u8, date: &str) -> String {
    let (upper, version) = (name.to_uppercase(), crate::cli::version::VERSION);
    format!(".TH {} {section} {date} \"litequic {version}\" \"litequic manual\"\n", escape_roff(&upper))
}

/// Escapes the characters of `text` that roff interprets.
pub(super) fn escape_roff(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '"' => escaped.push_str("\\(dq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '–' => escaped.push_str("\\(en"),
            '→' => escaped.push_str("\\(->"),
            '§' => escaped.push_str("\\(sc"),
            '“' => escaped.push_str("\\(lq"),
            '”' => escaped.push_str("\\(rq"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Converts a paragraph of Markdown: code spans are bold, links are their text. Lines are folded.
pub(super) fn markdown_paragraph(markdown: &str) -> String {
    let mut line = String::new();
    for (number, span) in markdown.split('`').enumerate() {
        if number % 2 == 1 {
            // Writing to a String cannot fail.
            let _ = write!(line, "\\fB{}\\fR", escape_roff(span));
        } else {
            line.push_str(&escape_roff(&without_links(span)));
        }
    }
    fold_line(&line)
}

/// Replaces `[text](target)` by `text`.
fn without_links(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        match after.split_once("](").and_then(|(name, target)| Some((name, target.split_once(')')?.1))) {
            Some((name, behind)) => {
                plain.push_str(name);
                rest = behind;
            }
            None => {
                plain.push('[');
                rest = after;
            }
        }
    }
    plain + rest
}

/// Folds `line` into short lines of input, none of which is read as a roff request.
fn fold_line(line: &str) -> String {
    let mut folded = String::new();
    let mut length = 0;
    for word in line.split_whitespace() {
        let starts = length == 0 || length + 1 + word.len() > MAX_LINE_BYTES;
        if starts && length > 0 {
            folded.push('\n');
        }
        if starts {
            let guard = if word.starts_with(['.', '\'']) { "\\&" } else { "" };
            folded.push_str(guard);
            length = guard.len() + word.len();
        } else {
            folded.push(' ');
            length += 1 + word.len();
        }
        folded.push_str(word);
    }
    folded.push('\n');
    folded
}

/// Section of examples: a description, and literal lines.
pub(super) fn examples_section(all: &[(&str, &str)]) -> String {
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (number, (about, lines)) in all.iter().enumerate() {
        let begin = if number > 0 { ".PP\n" } else { "" };
        let _ = write!(text, "{begin}{}.PP\n.RS 4\n.nf\n", markdown_paragraph(about));
        for line in lines.lines() {
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            let _ = writeln!(text, "{guard}{}", escape_roff(line));
        }
        text.push_str(".fi\n.RE\n");
    }
    text
}

/// Section whose entries have a name and a description.
pub(super) fn entries_section(heading: &str, all: &[(&str, &str)]) -> String {
    let mut text = format!(".SH {heading}\n");
    for (name, about) in all {
        let _ = write!(text, ".TP\n\\fB{}\\fR\n{}", escape_roff(name), markdown_paragraph(about));
    }
    text
}

/// Section of other pages, as `NAME(SECTION)`.
pub(super) fn see_also_section(pages: &[(&str, u8)]) -> String {
    let mut text = ".SH SEE ALSO\n".to_owned();
    for (number, (name, section)) in pages.iter().enumerate() {
        let comma = if number + 1 < pages.len() { " ," } else { "" };
        let _ = writeln!(text, ".BR {} ({section}){comma}", escape_roff(name));
    }
    text
}

/// Removes the spacing from clap_mangen's output that mandoc warns of, and folds long lines.
pub(super) fn tidy_mangen(made: &str) -> String {
    let mut text = String::new();
    let mut lines = made.lines().map(str::trim_end).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        // The apostrophe is a string that clap_mangen's own head defines.
        let line = line.replace("\\*(Aq", "\\(aq");
        let begins = text.lines().next_back().is_none_or(|last| last.starts_with(".SH"));
        match line.as_str() {
            ".PP" if begins => {}
            ".ie \\n(.g .ds Aq \\(aq" | ".el .ds Aq '" => {}
            // Before another break or the start of a paragraph, a break is superfluous.
            ".br" if lines.peek().is_none_or(|next| [".br", ".sp", ".TP", ".SH", ".PP"].contains(next)) => {}
            ".sp" => {
                text.truncate(text.strip_suffix(".br\n").map_or(text.len(), str::len));
                text.push_str(".sp\n");
            }
            _ if line.starts_with('.') => text.extend([&line, "\n"]),
            _ => text.push_str(&fold_line(&line)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_read_as_a_roff_request() {
        assert_eq!(markdown_paragraph(".conf is 'a' file"), "\\&.conf is \\(aqa\\(aq file\n");
        assert_eq!(
            markdown_paragraph("a\\b `x-y`, [the text](file.md#a) and [1]"),
            "a\\eb \\fBx\\-y\\fR, the text and [1]\n"
        );
        let long = markdown_paragraph(&"word .dot ".repeat(40));
        assert!(long.lines().all(|line| line.len() <= MAX_LINE_BYTES && !line.starts_with('.')), "{long}");
    }

    #[test]
    fn clap_mangens_superfluous_breaks_are_left_out() {
        let made = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TP\nx\\*(Aqs \n.br\n\n.br\n\\fIvalues\\fR\n.br\n.sp\n.br\n.TP\ny\n";
        assert_eq!(tidy_mangen(made), ".TP\nx\\(aqs\n.br\n\\fIvalues\\fR\n.sp\n.TP\ny\n");
    }

    #[test]
    fn examples_and_entries_are_sections() {
        assert_eq!(
            examples_section(&[("Do `it`.", "litequic run\n.x")]),
            ".SH EXAMPLES\nDo \\fBit\\fR.\n.PP\n.RS 4\n.nf\nlitequic run\n\\&.x\n.fi\n.RE\n"
        );
        assert_eq!(entries_section("FILES", &[("/a-b", "A file.")]), ".SH FILES\n.TP\n\\fB/a\\-b\\fR\nA file.\n");
        assert_eq!(see_also_section(&[("a", 1), ("b", 5)]), ".SH SEE ALSO\n.BR a (1) ,\n.BR b (5)\n");
    }
}

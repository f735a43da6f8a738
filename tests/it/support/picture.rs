//! A picture of the order in which responses came: a row for each, along the bytes of the connection.

use super::{prelude::*, sequence::Sequence};
use std::fmt::Write as _;

/// With this in the environment, pictures of documents are drawn anew.
const WRITE: &str = "LITEQUIC_WRITE_CHARTS";
/// Pixels.
const LEFT: f64 = 130.0;
const WIDTH: f64 = 610.0;
const ROW: f64 = 22.0;

/// A part of a picture: its title, the rows with their labels, and the bytes as they came.
pub(crate) struct Part<'a> {
    pub(crate) title: &'a str,
    pub(crate) rows: &'a [(u64, String)],
    pub(crate) bytes: Sequence,
}

/// Whether pictures are to be drawn.
pub(crate) fn is_wanted() -> bool {
    env::var_os(WRITE).is_some()
}

/// Draws `parts` below each other to `file` of the documents.
pub(crate) fn draw(file: &str, title: &str, parts: &[Part]) {
    let mut drawn = String::new();
    let mut y = 20.0;
    for part in parts {
        let _ = writeln!(drawn, "  <text x=\"0\" y=\"{:.0}\" class=\"h\">{}</text>", y, part.title);
        y += 14.0;
        let all: u64 = part.bytes.0.iter().map(|(_, bytes)| bytes).sum();
        let scale = WIDTH / all as f64;
        for (stream, label) in part.rows {
            let _ = writeln!(drawn, "  <text x=\"0\" y=\"{:.0}\">{label}</text>", y + 14.0);
            let mut path = String::new();
            for (from, to) in runs(&part.bytes, *stream) {
                let (x, width) = (LEFT + from as f64 * scale, (to - from) as f64 * scale);
                let _ = write!(path, "M{x:.1} {y:.0}h{width:.1}v{:.0}h-{width:.1}z", ROW - 6.0);
            }
            let _ = writeln!(drawn, "  <path d=\"{path}\"/>");
            y += ROW;
        }
        let _ = writeln!(
            drawn,
            "  <text x=\"{LEFT:.0}\" y=\"{0:.0}\" class=\"s\">0</text>\
             <text x=\"{1:.0}\" y=\"{0:.0}\" class=\"s e\">{2} KB of the connection, in the order of packets</text>",
            y + 10.0,
            LEFT + WIDTH,
            all / 1000
        );
        y += 40.0;
    }
    let (width, height) = (LEFT + WIDTH, y - 20.0);
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-labelledby=\"t\">\n  <title id=\"t\">{title}</title>\n  <style>\n    \
         text {{ font: 13px system-ui, sans-serif; fill: #24292f }}\n    .h {{ font-weight: 600 }}\n    \
         .s {{ font-size: 11px }}\n    .e {{ text-anchor: end }}\n    path {{ fill: #1a6fb5 }}\n    \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #d0d7de }} path {{ fill: #58a6ff }} }}\n  </style>\n\
         {drawn}</svg>\n"
    );
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file), svg).unwrap();
}

/// Where bytes of a stream came without others between them: from byte to byte of all.
fn runs(bytes: &Sequence, stream: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    for (id, bytes) in &bytes.0 {
        if *id == stream {
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end += bytes,
                _ => runs.push((at, at + bytes)),
            }
        }
        at += bytes;
    }
    runs
}

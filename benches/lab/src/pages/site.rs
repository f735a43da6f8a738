//! The pages that a browser loads: made by a seed, the same in every run. Each has objects of stated sizes; an image's
//! file is a PNG of noise, made as long as wanted by a chunk that no browser reads.

use crate::random::Random;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::{f64::consts::TAU, fs, path::Path};

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// 100 objects of 2 MB, sizes lognormal: styles and scripts in the head, images.
    Mixed,
    /// 300 images of 2 to 20 KB.
    Images,
    /// Nothing blocks in the head. 30 images of 60 KB below the fold are found at once; then a stylesheet by @import of
    /// 20 KB, an image of 30 KB that it names, and a script of 40 KB at the end of the body, which inserts the image of
    /// 150 KB that is the largest contentful paint.
    Late,
    /// 12 scripts of 80 KB at the end of the body, each of which has to run, and 20 images of 30 KB.
    Scripts,
}

/// Bytes and number of the objects of [`Page::Late`].
const BELOW: (usize, usize) = (60_000, 30);
const STYLE: usize = 20_000;
const BACK: usize = 30_000;
const SCRIPT: usize = 40_000;
const HERO: usize = 150_000;

impl Page {
    /// The name of its folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Images => "images",
            Self::Late => "late",
            Self::Scripts => "scripts",
        }
    }

    /// Writes its files to a folder of its name in `www`, by draws from `seed`. Returns the number of objects, without
    /// the page itself.
    pub(crate) fn write(self, www: &Path, seed: u64) -> Result<usize> {
        let folder = www.join(self.name());
        fs::create_dir_all(&folder)?;
        let mut site = Site { folder: &folder, random: Random::stream(seed, self as u64), objects: 0 };
        let (head, body) = match self {
            Self::Mixed => site.mixed()?,
            Self::Images => (String::new(), site.images(300, |random| 2_000 + whole(18_000.0 * random.unit()))?),
            Self::Late => site.late()?,
            Self::Scripts => site.scripts()?,
        };
        let page = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><title>{}</title>\n\
             <style>body {{ margin: 0; font-size: 32px }} #top {{ height: 1600px }}</style>\n{head}\n<body>\n{body}\n",
            self.name()
        );
        fs::write(folder.join("index.html"), page)?;
        Ok(site.objects)
    }
}

/// A page that is being written.
struct Site<'a> {
    folder: &'a Path,
    random: Random,
    objects: usize,
}

impl Site<'_> {
    fn mixed(&mut self) -> Result<(String, String)> {
        // Normal by Box and Muller; scaled to 2 MB.
        let mut draws: Vec<f64> = (0..100)
            .map(|_| {
                let (one, other) = (self.random.unit().max(1e-9), self.random.unit());
                (1.2 * (-2.0 * one.ln()).sqrt() * (TAU * other).cos()).exp()
            })
            .collect();
        let sum: f64 = draws.iter().sum();
        draws.iter_mut().for_each(|draw| *draw *= 2_000_000.0 / sum);
        let (mut head, mut body) = (String::new(), "<div id=top><h1>Mixed</h1></div>".to_owned());
        for (number, size) in draws.into_iter().enumerate() {
            let size = whole(size);
            match number {
                0..6 => {
                    head += &format!(
                        "<link rel=stylesheet href={}>",
                        self.padded(&format!("style-{number}.css"), "", size)?
                    );
                }
                6..14 => {
                    head += &format!(
                        "<script defer src={}></script>",
                        self.padded(&format!("script-{number}.js"), "", size)?
                    );
                }
                _ => body += &self.image(&format!("image-{number}.png"), (64, 64), size)?,
            }
        }
        Ok((head, body))
    }

    fn images(&mut self, count: usize, size: impl Fn(&mut Random) -> usize) -> Result<String> {
        let mut body = String::new();
        for number in 0..count {
            let size = size(&mut self.random);
            body += &self.image(&format!("image-{number}.png"), (64, 64), size)?;
        }
        Ok(body)
    }

    fn late(&mut self) -> Result<(String, String)> {
        let mut body = "<div id=top><h1>Late</h1><div id=hero></div></div>\n".to_owned();
        let (size, count) = BELOW;
        for number in 0..count {
            body += &self.image(&format!("below-{number}.png"), (300, 200), size)?;
        }
        self.image("back.png", (64, 64), BACK)?;
        self.padded("style.css", "h1 { padding-left: 80px; background: url(back.png) no-repeat }\n", STYLE)?;
        self.image("hero.png", (800, 600), HERO)?;
        let insert = "document.getElementById('hero').innerHTML = '<img src=hero.png width=800 height=600>';\n";
        let script = self.padded("script.js", insert, SCRIPT)?;
        body += &format!("<style>@import url(style.css);</style>\n<script src={script}></script>\n");
        Ok((String::new(), body))
    }

    fn scripts(&mut self) -> Result<(String, String)> {
        let mut body = "<div id=top><h1>Scripts</h1><div id=app></div></div>\n".to_owned();
        body += &self.images(20, |_| 30_000)?;
        for number in 0..12 {
            let run = if number == 11 {
                "document.getElementById('app').textContent = 'All scripts have run.';\n"
            } else {
                ""
            };
            body += &format!("<script src={}></script>\n", self.padded(&format!("script-{number}.js"), run, 80_000)?);
        }
        Ok((String::new(), body))
    }

    /// A text file of `size` bytes: `text`, and a comment.
    fn padded(&mut self, name: &str, text: &str, size: usize) -> Result<String> {
        let mut bytes = format!("{text}/*").into_bytes();
        let end = size.max(bytes.len() + 2) - 2;
        while bytes.len() < end {
            // Letters, so that no comment ends early.
            bytes.push(b'a' + u8::try_from(self.random.next() % 26).unwrap_or_default());
        }
        bytes.extend_from_slice(b"*/");
        self.object(name, &bytes)
    }

    /// An image element of a file of `size` bytes, or as long as its pixels are.
    fn image(&mut self, name: &str, dimensions: (u32, u32), size: usize) -> Result<String> {
        let bytes = png(&mut self.random, dimensions, size);
        let name = self.object(name, &bytes)?;
        let (width, height) = dimensions;
        Ok(format!("<img src={name} width={width} height={height} alt=''>\n"))
    }

    fn object(&mut self, name: &str, bytes: &[u8]) -> Result<String> {
        let path = self.folder.join(name);
        if path.exists() {
            bail!("{} is there already", path.display());
        }
        fs::write(path, bytes)?;
        self.objects += 1;
        Ok(name.to_owned())
    }
}

/// A random byte.
fn noise(random: &mut Random) -> u8 {
    let [byte, ..] = random.next().to_le_bytes();
    byte
}

/// The whole part of a size.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are positive, and at most megabytes"
)]
fn whole(size: f64) -> usize {
    size as usize
}

/// A PNG of black and white noise (RFC 2083), whose pixels are stored rather than compressed.
fn png(random: &mut Random, (width, height): (u32, u32), size: usize) -> Vec<u8> {
    let row = width.div_ceil(8) as usize;
    let mut pixels = Vec::new();
    for _ in 0..height {
        // No filter.
        pixels.push(0);
        pixels.extend((0..row).map(|_| noise(random)));
    }
    // zlib's header, stored blocks (RFC 1951 §3.2.4), Adler-32.
    let mut data = vec![0x78, 0x01];
    let mut blocks = pixels.chunks(65_535).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        data.push(u8::from(blocks.peek().is_none()));
        data.extend(length.to_le_bytes());
        data.extend((!length).to_le_bytes());
        data.extend_from_slice(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in &pixels {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    data.extend((b << 16 | a).to_be_bytes());
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[1, 0, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &data);
    // What follows is a private chunk, and IEND: twelve bytes each beside their contents.
    let padding = size.saturating_sub(file.len() + 24);
    if padding > 0 {
        let noise: Vec<u8> = (0..padding).map(|_| noise(random)).collect();
        chunk(&mut file, b"nOIs", &noise);
    }
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], contents: &[u8]) {
    file.extend(u32::try_from(contents.len()).unwrap_or(u32::MAX).to_be_bytes());
    let begin = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(contents);
    let sum = crc32fast::hash(file.get(begin..).unwrap_or_default());
    file.extend(sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_a_pages_bytes() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (page, objects, bytes) in [
            (Page::Mixed, 100, 2_000_000),
            (Page::Images, 300, 3_300_000),
            (Page::Late, 34, 2_040_000),
            (Page::Scripts, 32, 1_560_000),
        ] {
            for folder in [&one, &other] {
                assert_eq!(page.write(folder.path(), 7).unwrap(), objects, "{page:?}");
            }
            let files = |folder: &tempfile::TempDir| {
                let all = fs::read_dir(folder.path().join(page.name())).unwrap();
                let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).collect();
                all.sort();
                all.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(files(&one), files(&other));
            let sum: usize = files(&one).iter().map(Vec::len).sum();
            assert!(sum.abs_diff(bytes) < bytes / 5, "{page:?}: {sum}");
        }
    }

    #[test]
    fn an_image_is_as_long_as_wanted() {
        for size in [2_000, 60_000, 150_000] {
            assert_eq!(png(&mut Random::new(1), (64, 64), size).len(), size);
        }
    }
}

//! What the origin serves and the servers prove themselves with: bodies of pseudo-random bytes, made on demand and the
//! same in every run, and a certificate for `localhost`.

use super::chains::{self, Issued};
use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::PublicKeyData as _;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// Whom the servers' certificate is for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "192.0.2.1"];
/// Written at a time.
const PIECE: usize = 64 * 1024; // bytes

/// The kind of certificates that servers show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chain {
    /// One of P-256, which is its own issuer.
    SelfSigned,
    /// A chain as Let's Encrypt's: P-256 below P-384.
    Ecdsa,
    /// A chain as Let's Encrypt's: RSA of 2,048 bits below RSA of 2,048 bits.
    Rsa,
}

impl Chain {
    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SelfSigned => "P-256, self-signed",
            Self::Ecdsa => "ECDSA chain",
            Self::Rsa => "RSA chain",
        }
    }
}

/// Issues a certificate for names.
type Issue = fn(&[String]) -> Result<Issued>;

/// The files of a certificate, PEM.
pub(crate) struct Identity {
    /// What clients trust.
    pub(crate) trusted: PathBuf,
    /// What a server shows.
    pub(crate) certificate: PathBuf,
    /// The key of the certificate.
    pub(crate) key: PathBuf,
    /// Both in one file.
    pub(crate) both: PathBuf,
}

/// A folder of bodies, and the certificate's files.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// What the origin serves.
    pub(crate) www: PathBuf,
    /// The certificate, PEM.
    pub(crate) certificate: PathBuf,
    /// Its key, PEM.
    pub(crate) key: PathBuf,
    /// The SHA-256 of its public key in base64, by which Chromium accepts it.
    pub(crate) spki: String,
    /// Both in one file, as HAProxy requires.
    pub(crate) both: PathBuf,
    /// CRC-32 by size.
    bodies: BTreeMap<u64, u32>,
}

impl Files {
    /// In a folder that exists.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let www = folder.join("www");
        fs::create_dir(&www)?;
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).context("cannot make a certificate")?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &made.signing_key.subject_public_key_info());
        let write = |name: &str, text: &str| write_text(folder, name, text);
        Ok(Self {
            folder: folder.to_owned(),
            www,
            certificate: write("cert.pem", &certificate)?,
            spki: BASE64_STANDARD.encode(digest),
            key: write("key.pem", &key)?,
            both: write("both.pem", &format!("{certificate}{key}"))?,
            bodies: BTreeMap::new(),
        })
    }

    /// The files of a chain, which are made when they are wanted first: RSA keys take their time.
    pub(crate) fn identity(&self, chain: Chain) -> Result<Identity> {
        let (name, issue): (_, Issue) = match chain {
            Chain::SelfSigned => {
                let Self { certificate, key, both, .. } = self;
                let [trusted, certificate, key, both] = [certificate, certificate, key, both].map(Clone::clone);
                return Ok(Identity { trusted, certificate, key, both });
            }
            Chain::Ecdsa => ("ecdsa", chains::ecdsa),
            Chain::Rsa => ("rsa", chains::rsa),
        };
        let [trusted, certificate, key, both] =
            ["root", "chain", "key", "both"].map(|part| format!("{name}-{part}.pem"));
        if !self.folder.join(&both).exists() {
            let issued = issue(&NAMES.map(str::to_owned))?;
            let text = format!("{}{}", issued.chain, issued.key);
            for (file, text) in
                [(&trusted, &issued.root), (&certificate, &issued.chain), (&key, &issued.key), (&both, &text)]
            {
                write_text(&self.folder, file, text)?;
            }
        }
        let [trusted, certificate, key, both] = [trusted, certificate, key, both].map(|file| self.folder.join(file));
        Ok(Identity { trusted, certificate, key, both })
    }

    /// The path of a body of so many bytes, and its CRC-32.
    pub(crate) fn body(&mut self, bytes: u64) -> Result<(String, u32)> {
        let path = path_of(bytes);
        if let Some(crc32) = self.bodies.get(&bytes) {
            return Ok((path, *crc32));
        }
        let crc32 = write_body(&self.file(bytes), bytes).context("cannot write a body for the origin")?;
        self.bodies.insert(bytes, crc32);
        Ok((path, crc32))
    }

    /// Has the origin serve a video, and dash.js.
    pub(crate) fn video(&self, folder: &Path) -> Result<()> {
        let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
        for (name, from) in [("media", folder.clone()), ("dash.js", folder.join("dash.js"))] {
            let link = self.www.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(&from, &link)
                    .with_context(|| format!("cannot link to {}", from.display()))?;
            }
        }
        Ok(())
    }

    /// Where that body lies.
    pub(crate) fn file(&self, bytes: u64) -> PathBuf {
        self.www.join(format!("b{bytes}"))
    }
}

fn write_text(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The path of a body of so many bytes.
pub(crate) fn path_of(bytes: u64) -> String {
    format!("/b{bytes}")
}

fn write_body(path: &Path, bytes: u64) -> Result<u32> {
    let mut file = BufWriter::with_capacity(PIECE, File::create(path)?);
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; PIECE];
    // Not compressible, and different for each length, so that one body cut to another's length is noticed.
    let mut state = bytes | 1 << 63;
    let mut left = bytes;
    while left > 0 {
        for word in piece.chunks_exact_mut(8) {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        let part = piece.get(..part).unwrap_or_default();
        file.write_all(part)?;
        hasher.update(part);
        left -= part.len() as u64;
    }
    file.flush()?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_length_and_crc() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path()).unwrap();
        for bytes in [0, 1, 1000, 200_000] {
            let (path, crc32) = files.body(bytes).unwrap();
            let body = fs::read(files.www.join(&path[1..])).unwrap();
            assert_eq!((body.len() as u64, crc32fast::hash(&body)), (bytes, crc32));
        }
        let (short, long) = (fs::read(files.file(1000)).unwrap(), fs::read(files.file(200_000)).unwrap());
        assert_ne!(short, long[..1000], "a body cut short is not another body");
    }
}

//! What a response must be: status, length, hash. Pure.

use std::time::Instant;

/// A body as it came: how long, and its CRC-32.
#[derive(Clone, Debug, Default)]
pub(super) struct Digest {
    crc: crc32fast::Hasher,
    length: u64,
}

impl Digest {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.length += bytes.len() as u64;
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// A complete response.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// What the head announced.
    pub(super) content_length: Option<u64>,
    pub(super) body: Digest,
    /// When the first byte of the body came, or the end.
    pub(super) first_byte: Instant,
    /// When the last one did.
    pub(super) finished: Instant,
}

/// What every response of a load must be.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Any 2xx rather than 200 alone.
    any_success: bool,
    length: Option<u64>,
    hash: Option<u32>,
    /// Whether the first right response sets what was not given.
    learns: bool,
}

impl Expected {
    /// For bodies that are downloaded: 200, this length, this hash; what is not given the first response gives.
    pub(super) fn download(length: Option<u64>, hash: Option<u32>) -> Self {
        Self { any_success: false, length, hash, learns: true }
    }

    /// For answers to uploads: success, and this hash when given.
    pub(super) fn upload(hash: Option<u32>) -> Self {
        Self { any_success: true, length: None, hash, learns: false }
    }

    /// The hash that right responses had.
    pub(super) fn hash(&self) -> Option<u32> {
        self.hash
    }

    /// Whether `answer` is right; otherwise what is wrong with it.
    pub(super) fn check(&mut self, answer: &Answer) -> Result<(), String> {
        let success = if self.any_success { (200..300).contains(&answer.status) } else { answer.status == 200 };
        if !success {
            return Err(format!("status {}", answer.status));
        }
        let length = answer.body.length();
        if let Some(announced) = answer.content_length.filter(|announced| *announced != length) {
            return Err(format!("{length} bytes came where content-length announced {announced}"));
        }
        if let Some(wanted) = self.length.filter(|wanted| *wanted != length) {
            return Err(format!("{length} bytes came instead of {wanted}"));
        }
        let hash = answer.body.crc.clone().finalize();
        if let Some(wanted) = self.hash.filter(|wanted| *wanted != hash) {
            return Err(format!("the body's CRC-32 is {hash:08x} instead of {wanted:08x}"));
        }
        if self.learns {
            (self.length, self.hash) = (Some(length), Some(hash));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, content_length: Option<u64>, body: &[u8]) -> Answer {
        let mut digest = Digest::default();
        digest.update(body);
        let now = Instant::now();
        Answer { status, content_length, body: digest, first_byte: now, finished: now }
    }

    #[test]
    fn the_first_response_sets_what_the_others_must_be() {
        let mut expected = Expected::download(None, None);
        assert_eq!(expected.check(&answer(200, Some(5), b"right")), Ok(()));
        assert_eq!(expected.check(&answer(200, Some(5), b"right")), Ok(()));
        assert!(expected.check(&answer(200, Some(5), b"wrong")).unwrap_err().contains("CRC-32"));
        assert!(expected.check(&answer(200, None, b"righ")).unwrap_err().contains("4 bytes came instead of 5"));
    }

    #[test]
    fn a_wrong_first_response_sets_nothing() {
        let mut expected = Expected::download(None, None);
        assert_eq!(expected.check(&answer(404, None, b"no")), Err("status 404".into()));
        assert!(expected.check(&answer(200, Some(9), b"short")).unwrap_err().contains("announced 9"));
        assert_eq!(expected.check(&answer(200, None, b"right")), Ok(()));
    }

    #[test]
    fn the_hash_is_that_of_gzip() {
        let mut expected = Expected::download(Some(9), Some(0xcbf4_3926));
        assert_eq!(expected.check(&answer(200, None, b"123456789")), Ok(()));
        assert!(expected.check(&answer(200, None, b"123456780")).is_err());
    }

    #[test]
    fn an_upload_takes_any_success() {
        let mut expected = Expected::upload(None);
        assert_eq!(expected.check(&answer(204, None, b"")), Ok(()));
        assert_eq!(expected.check(&answer(201, None, b"made")), Ok(()));
        assert!(expected.check(&answer(302, None, b"")).is_err());
    }
}

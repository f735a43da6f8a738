//! Remembers passwords that were right a short time ago, so that not each request of a page waits for a hash: a keyed
//! hash of each in a bounded table. Pure.

use super::{credentials::Credentials, stored_hash::StoredHash};
use aws_lc_rs::hmac;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Time for which a right password is not verified again.
const RETENTION: Duration = Duration::from_secs(5 * 60);
/// Most passwords in the table, which takes 400 KiB with as many.
const MAX_CACHED: usize = 4096;

/// Keyed hash of a name, a password, and the stored hash that both were compared with. No request has this tag any more
/// once the file has another hash for the name, or none.
pub(super) type PasswordTag = [u8; 32];

/// Right passwords by their tags, each with the time until which it is remembered.
#[derive(Default)]
pub(super) struct PasswordCache(HashMap<PasswordTag, Instant>);

/// Key of tags, of this process alone: memory that leaks without the key reveals no password.
pub(super) struct TagKey(hmac::Key);

impl TagKey {
    pub(super) fn new_random() -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>()))
    }

    pub(super) fn compute_tag(&self, credentials: &Credentials, hash: &StoredHash) -> PasswordTag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [credentials.name.as_bytes(), &credentials.password, hash.encoded_hash().as_bytes()] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }
}

impl PasswordCache {
    /// Whether the password with `tag` was right a short time ago.
    pub(super) fn contains_tag(&self, tag: &PasswordTag, now: Instant) -> bool {
        self.0.get(tag).is_some_and(|until| now < *until)
    }

    /// Inserts the `tag` of a right password, in place of the oldest one if the table is full.
    pub(super) fn insert_tag(&mut self, tag: PasswordTag, now: Instant) {
        let Self(tags) = self;
        if tags.len() >= MAX_CACHED
            && !tags.contains_key(&tag)
            && let Some(oldest) = tags.iter().min_by_key(|(_, until)| **until).map(|(oldest, _)| *oldest)
        {
            tags.remove(&oldest);
        }
        tags.insert(tag, now + RETENTION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(name: &str, password: &str) -> Credentials {
        Credentials { name: name.into(), password: password.into() }
    }

    #[test]
    fn a_cached_password_is_valid_for_five_minutes_its_user_and_hash() {
        let (key, mut remembered, now) = (TagKey::new_random(), PasswordCache::default(), Instant::now());
        let [hash, other] = ["a", "b"].map(|text| StoredHash::Bcrypt(text.into()));
        let tag = key.compute_tag(&credentials("alice", "secret"), &hash);
        assert!(!remembered.contains_tag(&tag, now));
        remembered.insert_tag(tag, now);
        assert!(remembered.contains_tag(&tag, now + Duration::from_secs(299)));
        assert!(!remembered.contains_tag(&tag, now + Duration::from_secs(300)));
        for (name, password, hash) in [
            ("alice", "Secret", &hash),
            ("bob", "secret", &hash),
            ("alices", "ecret", &hash),
            ("alice", "secret", &other),
        ] {
            assert!(
                !remembered.contains_tag(&key.compute_tag(&credentials(name, password), hash), now),
                "{name} {password}"
            );
        }
        assert_ne!(TagKey::new_random().compute_tag(&credentials("alice", "secret"), &hash), tag);
    }

    #[test]
    fn a_full_table_forgets_what_is_oldest() {
        let (key, mut remembered, now) = (TagKey::new_random(), PasswordCache::default(), Instant::now());
        let hash = StoredHash::Bcrypt(String::new());
        let tag = |n: u64| key.compute_tag(&credentials(&n.to_string(), ""), &hash);
        let many = MAX_CACHED as u64 + 1000;
        for n in 0..many {
            remembered.insert_tag(tag(n), now + Duration::from_micros(n));
            assert!(remembered.contains_tag(&tag(n), now));
        }
        let left = (0..many).filter(|n| remembered.contains_tag(&tag(*n), now)).count();
        assert_eq!(left, MAX_CACHED, "and no more");
    }
}

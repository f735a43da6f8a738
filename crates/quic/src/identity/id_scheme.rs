//! Defines how a process makes connection IDs, the same for all its workers. A reload changes a part, and IDs issued
//! before stay valid for a while.

use super::{
    id_layout::{ISSUER_LEN, IdLayout, ROTATION_SHIFT},
    quic_lb::{IdCipher, ServerIdKey},
};
use arc_swap::ArcSwapOption;
use aws_lc_rs::error::Unspecified;
use litequic_base::half_sip_hash::SipHashKey;
use litequic_config::ServerId;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Former configurations that are remembered, to recognize their IDs in packets: as many as rotations.
const MAX_FORMER_CONFIGURATIONS: usize = 7;

/// Layout, keys and server ID of a process' connection IDs.
#[derive(Debug)]
pub struct IdScheme {
    layout: IdLayout,
    /// Key of the mask over generation and worker.
    pub mask: SipHashKey,
    /// Encrypts counters if no key encrypts the ID.
    counters: IdCipher,
    /// Configuration with a server ID; `None` without one.
    current: ArcSwapOption<RoutableIds>,
}

/// Configuration of IDs by which balancers route, with former ones.
#[derive(Debug)]
struct RoutableIds {
    current: IdConfiguration,
    key: Option<ServerIdKey>,
    lifetime: Duration,
    /// Former configurations, each with the time at which its last ID ends.
    former: Vec<(IdConfiguration, SystemTime)>,
}

/// Values by which IDs of one configuration are recognized.
#[derive(Debug, Clone)]
struct IdConfiguration {
    server_id: Vec<u8>,
    rotation: u8,
    cipher: Option<Arc<IdCipher>>,
}

/// Owner of the ID of a packet without a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerIdOwner {
    /// This server.
    Own,
    /// Another server: a balancer routes by a wrong table.
    Other,
    /// No server: an ID without a server ID, or under an unknown configuration.
    None,
}

impl IdScheme {
    /// A scheme of IDs with the configured server ID, or without one; `key` is that of its `key_file`. `mask` is the
    /// mask key of another process on the same port, if one runs.
    ///
    /// # Errors
    ///
    /// When aws-lc has no memory.
    pub fn new(
        server_id: Option<&ServerId>,
        key: Option<ServerIdKey>,
        mask: Option<SipHashKey>,
    ) -> Result<Self, Unspecified> {
        let routed = match server_id {
            Some(server_id) => Some(Arc::new(RoutableIds::new(server_id, key, Vec::new())?)),
            None => None,
        };
        Ok(Self {
            layout: IdLayout::from_server_id(server_id),
            mask: mask.unwrap_or_else(rand::random),
            counters: IdCipher::new(ServerIdKey::from(rand::random::<[u8; 16]>()))?,
            current: ArcSwapOption::new(routed),
        })
    }

    /// Layout of every ID.
    pub fn layout(&self) -> IdLayout {
        self.layout
    }

    /// Whether `key` differs from the one that encrypts IDs.
    pub fn has_another_key(&self, key: ServerIdKey) -> bool {
        let routed = self.current.load();
        routed.as_ref().and_then(|routed| routed.key.as_ref()).is_some_and(|current| *current != key)
    }

    /// Applies the server ID `next`, which has the same lengths, and a new `key`, if any, to new IDs. Returns the time
    /// at which the last older ID ends.
    ///
    /// # Errors
    ///
    /// aws-lc has no memory. Nothing has changed then.
    pub fn apply_server_id(
        &self,
        next: &ServerId,
        key: Option<ServerIdKey>,
    ) -> Result<Option<SystemTime>, Unspecified> {
        let Some(current) = self.current.load_full() else { return Ok(None) };
        let key = key.or(current.key);
        let now = SystemTime::now();
        let mut former: Vec<_> = current.former.iter().filter(|(_, end)| *end > now).cloned().collect();
        former.push((current.current.clone(), now + current.lifetime));
        let excess = former.len().saturating_sub(MAX_FORMER_CONFIGURATIONS);
        former.drain(..excess);
        let last = former.iter().map(|(_, end)| *end).max();
        self.current.store(Some(Arc::new(RoutableIds::new(next, key, former)?)));
        Ok(last)
    }

    /// Time at which the last ID of a former configuration ends; `None` if none is left.
    pub fn former_ids_until(&self) -> Option<SystemTime> {
        let routed = self.current.load_full()?;
        let last = routed.former.iter().map(|(_, end)| *end).max()?;
        (last > SystemTime::now()).then_some(last)
    }

    /// Lifetime of an ID that is issued now; `None` without a server ID.
    pub(super) fn id_lifetime(&self) -> Option<Duration> {
        self.current.load().as_ref().map(|routed| routed.lifetime)
    }

    /// Makes an ID up to the mask, with room for that. `counter` is unique among the IDs of `issuer`.
    pub(super) fn begin_id(&self, issuer: [u8; ISSUER_LEN], counter: &[u8]) -> Vec<u8> {
        let routed = self.current.load();
        let Some(routed) = routed.as_ref() else { return Vec::new() };
        let (_, length) = self.layout.first_byte();
        let IdConfiguration { server_id, rotation, cipher } = &routed.current;
        let mut id = Vec::with_capacity(self.layout.id_len());
        id.push(rotation << ROTATION_SHIFT | length);
        id.extend(server_id);
        let (encrypted, cipher) = match cipher {
            Some(cipher) => {
                id.extend(issuer);
                (1, &**cipher)
            }
            None => (id.len(), &self.counters),
        };
        id.extend(counter);
        cipher.encrypt(id.get_mut(encrypted..).unwrap_or_default());
        id
    }

    /// Owner of `id`, the destination of a packet without a connection.
    pub(crate) fn server_id_owner(&self, id: &[u8]) -> ServerIdOwner {
        let Some(routed) = self.current.load_full() else { return ServerIdOwner::None };
        let Some((first, rest)) = id.split_first() else { return ServerIdOwner::None };
        let (bits, length) = self.layout.first_byte();
        if id.len() != self.layout.id_len() || first & bits != length {
            return ServerIdOwner::None;
        }
        let all = routed.former.iter().map(|(former, _)| former).chain([&routed.current]);
        let mut owner = ServerIdOwner::None;
        for one in all.filter(|one| one.rotation == first >> ROTATION_SHIFT) {
            if one.has_server_id(rest, self.layout) {
                return ServerIdOwner::Own;
            }
            owner = ServerIdOwner::Other;
        }
        owner
    }
}

impl RoutableIds {
    fn new(
        server_id: &ServerId,
        key: Option<ServerIdKey>,
        former: Vec<(IdConfiguration, SystemTime)>,
    ) -> Result<Self, Unspecified> {
        let key = key.filter(|_| server_id.id_shape().encrypted);
        let cipher = match key {
            Some(key) => Some(Arc::new(IdCipher::new(key)?)),
            None => None,
        };
        let (server_id, rotation, lifetime) =
            (server_id.id_bytes().to_vec(), server_id.id.rotation, server_id.lifetime);
        Ok(Self { current: IdConfiguration { server_id, rotation, cipher }, key, lifetime, former })
    }
}

impl IdConfiguration {
    /// Whether `rest`, an ID without its first byte, has this server ID.
    fn has_server_id(&self, rest: &[u8], layout: IdLayout) -> bool {
        match (&self.cipher, layout.hashed_range()) {
            (Some(cipher), Some(encrypted)) => {
                let mut text = rest.get(..encrypted.len()).unwrap_or_default().to_vec();
                cipher.decrypt(&mut text);
                text.starts_with(&self.server_id)
            }
            _ => rest.starts_with(&self.server_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [7; 16];

    fn id(scheme: &IdScheme, counter: u8) -> Vec<u8> {
        let shape = scheme.layout().0.unwrap();
        let mut id = scheme.begin_id([1, 2], &vec![counter; usize::from(shape.nonce) - ISSUER_LEN]);
        id.extend([0, 0]);
        id
    }

    #[test]
    fn ids_of_unknown_packets_belong_to_this_another_or_no_server() {
        for key_file in [None, Some("key")] {
            let configured = |digits: &str, rotation: u8| {
                ServerId::from_digits(digits, 13, key_file.map(Into::into)).with_rotation(rotation)
            };
            let key = key_file.map(|_| ServerIdKey::from(KEY));
            let scheme = |server_id: &ServerId| IdScheme::new(Some(server_id), key, None).unwrap();
            let (one, two) = (scheme(&configured("0001", 0)), scheme(&configured("0002", 0)));
            assert_eq!(one.server_id_owner(&id(&one, 1)), ServerIdOwner::Own);
            assert_eq!(one.server_id_owner(&id(&two, 1)), ServerIdOwner::Other);
            let unknown = scheme(&configured("0001", 1));
            assert_eq!(one.server_id_owner(&id(&unknown, 1)), ServerIdOwner::None, "a rotation that is not configured");
            for other in [&[][..], &[0x0f; 3], &[0xef; 16], &id(&one, 1)[1..]] {
                assert_eq!(one.server_id_owner(other), ServerIdOwner::None, "{other:?}");
            }

            // After a reload the server owns IDs of both configurations.
            let before = id(&one, 2);
            let until = one.apply_server_id(&configured("0003", 1), None).unwrap().unwrap();
            assert_eq!(one.former_ids_until(), Some(until));
            let after = id(&one, 2);
            assert_eq!([&before, &after].map(|id| one.server_id_owner(id)), [ServerIdOwner::Own; 2]);
            assert_eq!(one.server_id_owner(&id(&two, 3)), ServerIdOwner::Other);
            assert_eq!(two.server_id_owner(&after), ServerIdOwner::None);
        }
        let without = IdScheme::new(None, None, None).unwrap();
        assert_eq!(without.server_id_owner(&[0xef; 16]), ServerIdOwner::None);
        assert!(without.former_ids_until().is_none());
    }

    /// Appendix B.1 of the draft, the first vector: rotation 0, server ID c4605e, nonce 4504cc4f. (The second one has
    /// nine hexadecimal digits for a nonce.)
    #[test]
    fn the_plaintext_server_id_vector_of_the_draft_holds() {
        let vector = [0x07, 0xc4, 0x60, 0x5e, 0x45, 0x04, 0xcc, 0x4f];
        let scheme = |digits| IdScheme::new(Some(&ServerId::from_digits(digits, 4, None)), None, None).unwrap();
        let own = scheme("c4605e");
        assert_eq!(own.server_id_owner(&vector), ServerIdOwner::Own);
        assert_eq!(scheme("c4605f").server_id_owner(&vector), ServerIdOwner::Other);
        assert_eq!(scheme("605e4504").server_id_owner(&vector), ServerIdOwner::None, "an ID of 9 bytes");
        let issued = id(&own, 1);
        assert_eq!((issued.len(), &issued[..4]), (vector.len(), &vector[..4]), "all but the nonce");
    }

    #[test]
    fn former_configurations_are_as_many_as_rotations_at_most() {
        let scheme = IdScheme::new(Some(&ServerId::from_digits("01", 14, None)), None, None).unwrap();
        for rotation in (0..7).cycle().take(20) {
            scheme.apply_server_id(&ServerId::from_digits("01", 14, None).with_rotation(rotation), None).unwrap();
        }
        assert_eq!(scheme.current.load().as_ref().unwrap().former.len(), MAX_FORMER_CONFIGURATIONS);
    }

    #[test]
    fn a_changed_key_in_the_same_file_is_applied() {
        let configured = ServerId::from_digits("01", 15, Some("key".into()));
        let scheme = IdScheme::new(Some(&configured), Some(KEY.into()), None).unwrap();
        assert!(!scheme.has_another_key(KEY.into()));
        assert!(scheme.has_another_key([8; 16].into()));
        let before = id(&scheme, 1);
        scheme.apply_server_id(&configured, Some([8; 16].into())).unwrap();
        assert!(!scheme.has_another_key([8; 16].into()));
        assert_ne!(id(&scheme, 1), before);
        assert_eq!(scheme.server_id_owner(&before), ServerIdOwner::Own);
    }
}

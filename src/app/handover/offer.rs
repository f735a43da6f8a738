//! What a process sends to the one that takes over, besides the descriptors. Pure: JSON, and everything in it checked.

use crate::net::Generation;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// Changes when an older litequic would misunderstand the offer.
const FORMAT: u64 = 1;
/// Bytes of a secret.
const SECRET_LEN: usize = 32;

/// Everything, in the order of the descriptors: each group's sockets, each address' listeners, the pipe of the process
/// itself and those of the older ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandoverOffer {
    /// Generation of the process that offers.
    pub(super) generation: u8,
    /// Version of the litequic that offers. Older ones do not send it.
    pub(super) version: Option<String>,
    /// Whether it wants the version of the one that takes over. Older ones would take that for a wrong message.
    pub(super) hears_version: bool,
    /// The secret of its tokens, unless that is in a file.
    pub(super) secret: Option<[u8; SECRET_LEN]>,
    /// The replica that stateless reset tokens belong to. Older ones do not send it.
    pub(super) replica: Option<String>,
    pub(super) groups: Vec<OfferedGroup>,
    pub(super) listeners: Vec<OfferedListeners>,
    /// Generations of processes that drain.
    pub(super) older: Vec<u8>,
    /// What is in maintenance: a route or a host, or all, and `Retry-After` in seconds. Older ones do not send it.
    pub(super) maintenance: Vec<(Option<String>, u32)>,
    /// What was ordered of HTTP/3, against the configuration. Older ones do not send it.
    pub(super) http3: Option<bool>,
}

/// A UDP address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OfferedGroup {
    pub(super) sockets: usize,
    pub(super) generations: Vec<Generation>,
}

/// A TCP address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OfferedListeners {
    pub(super) address: SocketAddr,
    pub(super) count: usize,
}

/// Not the offer of a litequic, or of one that is too new.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OfferError {
    #[error("not an offer")]
    NotOne,
    #[error("its format is {0}, only {FORMAT} is supported")]
    Format(u64),
    #[error("`{0}` is missing or wrong")]
    Wrong(&'static str),
}

impl HandoverOffer {
    /// How many descriptors belong to it.
    pub(super) fn descriptors(&self) -> usize {
        let sockets: usize = self.groups.iter().map(|group| group.sockets).sum();
        let listeners: usize = self.listeners.iter().map(|listeners| listeners.count).sum();
        sockets.saturating_add(listeners).saturating_add(1 + self.older.len())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let generation = |one: &Generation| json!([one.number, one.first, one.workers]);
        let group = |group: &OfferedGroup| {
            let generations: Vec<_> = group.generations.iter().map(generation).collect();
            json!({ "sockets": group.sockets, "generations": generations })
        };
        let listeners = |one: &OfferedListeners| json!({ "address": one.address.to_string(), "listeners": one.count });
        let offer = json!({
            "format": FORMAT,
            "generation": self.generation,
            "version": self.version,
            "hears_version": self.hears_version,
            "secret": self.secret,
            "replica": self.replica,
            "udp": self.groups.iter().map(group).collect::<Vec<_>>(),
            "tcp": self.listeners.iter().map(listeners).collect::<Vec<_>>(),
            "older": self.older,
            "maintenance": self.maintenance,
            "http3": self.http3,
        });
        offer.to_string().into_bytes()
    }

    pub(super) fn decode(text: &[u8]) -> Result<Self, OfferError> {
        let offer: Json = serde_json::from_slice(text).map_err(|_| OfferError::NotOne)?;
        match offer.get("format").and_then(Json::as_u64) {
            Some(FORMAT) => {}
            Some(other) => return Err(OfferError::Format(other)),
            None => return Err(OfferError::NotOne),
        }
        let wrong = |key: &'static str| move || OfferError::Wrong(key);
        let secret = match offer.get("secret") {
            None | Some(Json::Null) => None,
            Some(secret) => Some(secret_of(secret).ok_or_else(wrong("secret"))?),
        };
        Ok(Self {
            generation: offer.get("generation").and_then(byte).ok_or_else(wrong("generation"))?,
            version: offer.get("version").and_then(Json::as_str).map(str::to_owned),
            hears_version: offer.get("hears_version").and_then(Json::as_bool).unwrap_or(false),
            secret,
            replica: match offer.get("replica") {
                None | Some(Json::Null) => None,
                Some(name) => Some(name.as_str().ok_or_else(wrong("replica"))?.to_owned()),
            },
            groups: list(&offer, "udp", group).ok_or_else(wrong("udp"))?,
            listeners: list(&offer, "tcp", listeners).ok_or_else(wrong("tcp"))?,
            older: list(&offer, "older", byte).ok_or_else(wrong("older"))?,
            maintenance: match offer.get("maintenance") {
                None => Vec::new(),
                Some(_) => list(&offer, "maintenance", maintenance).ok_or_else(wrong("maintenance"))?,
            },
            http3: match offer.get("http3") {
                None | Some(Json::Null) => None,
                Some(on) => Some(on.as_bool().ok_or_else(wrong("http3"))?),
            },
        })
    }
}

fn list<T>(object: &Json, key: &str, one: impl Fn(&Json) -> Option<T>) -> Option<Vec<T>> {
    object.get(key)?.as_array()?.iter().map(one).collect()
}

fn byte(value: &Json) -> Option<u8> {
    u8::try_from(value.as_u64()?).ok()
}

/// A number of sockets, bounded by how many descriptors a message can have.
fn count(value: &Json) -> Option<usize> {
    u16::try_from(value.as_u64()?).ok().map(usize::from)
}

fn secret_of(value: &Json) -> Option<[u8; SECRET_LEN]> {
    let bytes: Vec<u8> = value.as_array()?.iter().map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

fn group(value: &Json) -> Option<OfferedGroup> {
    let sockets = count(value.get("sockets")?)?;
    let generations = list(value, "generations", |one| match one.as_array()?.as_slice() {
        [number, first, workers] => {
            let (number, first, workers) = (byte(number)?, count(first)?, count(workers)?);
            (first + workers <= sockets).then_some(Generation { number, first, workers })
        }
        _ => None,
    })?;
    (sockets > 0).then_some(OfferedGroup { sockets, generations })
}

fn maintenance(value: &Json) -> Option<(Option<String>, u32)> {
    let [target, seconds] = value.as_array()?.as_slice() else { return None };
    let target = match target {
        Json::Null => None,
        other => Some(other.as_str()?.to_owned()),
    };
    Some((target, u32::try_from(seconds.as_u64()?).ok()?))
}

fn listeners(value: &Json) -> Option<OfferedListeners> {
    let address = value.get("address")?.as_str()?.parse().ok()?;
    Some(OfferedListeners { address, count: count(value.get("listeners")?)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer() -> HandoverOffer {
        let generation = |number, first, workers| Generation { number, first, workers };
        HandoverOffer {
            generation: 255,
            version: Some("1.2.3".into()),
            hears_version: true,
            secret: Some([7; SECRET_LEN]),
            replica: Some("web-1".into()),
            groups: vec![
                OfferedGroup { sockets: 6, generations: vec![generation(254, 0, 2), generation(255, 2, 4)] },
                OfferedGroup { sockets: 1, generations: vec![] },
            ],
            listeners: vec![OfferedListeners { address: "[::]:8443".parse().unwrap(), count: 4 }],
            older: vec![254],
            maintenance: vec![(None, 300), (Some("a.test".into()), 60)],
            http3: Some(false),
        }
    }

    #[test]
    fn an_offer_comes_back_as_it_was() {
        let offer = offer();
        assert_eq!(HandoverOffer::decode(&offer.encode()).unwrap(), offer);
        assert_eq!(offer.descriptors(), 6 + 1 + 4 + 1 + 1);
        let older = String::from_utf8(offer.encode()).unwrap().replace("hears_version", "unheard_of");
        assert_eq!(
            HandoverOffer::decode(older.as_bytes()).unwrap(),
            HandoverOffer { hears_version: false, ..self::offer() }
        );
        let without = HandoverOffer {
            secret: None,
            replica: None,
            groups: vec![],
            listeners: vec![],
            older: vec![],
            maintenance: vec![],
            http3: None,
            ..offer
        };
        assert_eq!(HandoverOffer::decode(&without.encode()).unwrap(), without);
        let older = String::from_utf8(without.encode()).unwrap().replace("\"maintenance\":[],", "");
        let older = older.replace("\"http3\":null,", "").replace("\"replica\":null,", "");
        assert!(["maintenance", "http3", "replica"].iter().all(|key| !older.contains(key)), "{older}");
        assert_eq!(HandoverOffer::decode(older.as_bytes()).unwrap(), without);
    }

    #[test]
    fn what_is_no_offer_is_refused() {
        let text = String::from_utf8(offer().encode()).unwrap();
        let table = [
            ("{}".to_owned(), OfferError::NotOne),
            ("sockets".to_owned(), OfferError::NotOne),
            (text.replace("\"format\":1", "\"format\":2"), OfferError::Format(2)),
            (text.replace("\"generation\":255", "\"generation\":256"), OfferError::Wrong("generation")),
            (text.replace("[255,2,4]", "[255,3,4]"), OfferError::Wrong("udp")),
            (text.replace("\"sockets\":1", "\"sockets\":0"), OfferError::Wrong("udp")),
            (text.replace("[::]", "[::"), OfferError::Wrong("tcp")),
            (text.replace("7,7]", "7]"), OfferError::Wrong("secret")),
            (text.replace("[null,300]", "[null,-1]"), OfferError::Wrong("maintenance")),
            (text.replace("[null,300]", "[1,300]"), OfferError::Wrong("maintenance")),
            (text.replace("\"http3\":false", "\"http3\":0"), OfferError::Wrong("http3")),
            (text.replace("\"web-1\"", "1"), OfferError::Wrong("replica")),
            (text.replace("\"older\":[254]", "\"older\":254"), OfferError::Wrong("older")),
        ];
        for (text, expected) in table {
            assert_eq!(HandoverOffer::decode(text.as_bytes()), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in any::<Vec<u8>>(), at in 0_usize..200, byte in any::<u8>()) {
            let _ = HandoverOffer::decode(&text);
            let mut nearly = offer().encode();
            let len = nearly.len();
            nearly[at % len] = byte;
            if let Ok(offer) = HandoverOffer::decode(&nearly) {
                prop_assert!(offer.groups.iter().all(|group| group.sockets > 0));
            }
        }
    }
}

//! Encodes and decodes the offer of a process to the one that takes over, but for the descriptors. Pure: JSON, of which
//! every value is checked.

use litequic_net::Generation;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use std::net::SocketAddr;

/// Format of the offer. Changes when an older litequic would misunderstand the offer.
pub(super) const FORMAT: u64 = 1;
/// Bytes of a secret.
const SECRET_LEN: usize = 32;

/// All that a process offers, in the order of the descriptors: each group's sockets, each address' listeners, the pipe
/// of the process itself and those of the older ones.
///
/// A contract between versions: unknown fields are ignored, and a field that an older version does not send has a
/// default.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandoverOffer {
    /// [`FORMAT`].
    pub(super) format: u64,
    /// Connection IDs with a server ID.
    pub(super) connection_ids: Option<OfferedIds>,
    /// Denied networks, with the remaining seconds.
    pub(super) denied: Vec<(String, u64)>,
    /// Generation of the process that offers.
    pub(super) generation: u8,
    /// The operator's order for HTTP/3, against the configuration.
    pub(super) http3: Option<bool>,
    /// Routes or hosts in maintenance, `None` for all, each with `Retry-After` in seconds.
    pub(super) maintenance: Vec<(Option<String>, u32)>,
    /// Generations of processes that drain.
    pub(super) older: Vec<u8>,
    /// Replica of the stateless reset tokens.
    pub(super) replica: String,
    /// Secret of the process's tokens, unless that is in a file.
    pub(super) secret: Option<OfferedSecret>,
    #[serde(rename = "tcp")]
    pub(super) listeners: Vec<OfferedListeners>,
    #[serde(rename = "udp")]
    pub(super) groups: Vec<OfferedGroup>,
    /// Version of the litequic that offers.
    pub(super) version: String,
}

/// Secret of tokens, hidden from `Debug` and from errors.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Json")]
pub(super) struct OfferedSecret(pub(super) [u8; SECRET_LEN]);

/// Layout of connection IDs with a server ID, and the key of their mask.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfferedIds {
    pub(super) encrypted: bool,
    pub(super) mask: [u32; 2],
    pub(super) nonce: u8,
    pub(super) server_id: u8,
}

litequic_base::partial_debug!(OfferedIds);

/// Offered sockets of one UDP address.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfferedGroup {
    pub(super) generations: Vec<OfferedGeneration>,
    #[serde(deserialize_with = "count")]
    pub(super) sockets: usize,
}

/// A [`Generation`] of a group, as `[number, first, workers]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfferedGeneration(
    u8,
    #[serde(deserialize_with = "count")] usize,
    #[serde(deserialize_with = "count")] usize,
);

/// Offered listeners of one TCP address.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfferedListeners {
    pub(super) address: SocketAddr,
    #[serde(rename = "listeners", deserialize_with = "count")]
    pub(super) count: usize,
}

/// The message is no offer of a litequic, or that of a newer one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OfferError {
    #[error("not an offer")]
    NotOne,
    #[error("its format is {0}, only {FORMAT} is supported")]
    Format(u64),
    #[error("{0}")]
    Malformed(String),
    #[error("`{0}` is missing or wrong")]
    Wrong(&'static str),
}

/// The field that every format has.
#[derive(Deserialize)]
struct OfferFormat {
    format: u64,
}

impl HandoverOffer {
    /// Number of descriptors that are sent with the offer.
    pub(super) fn descriptor_count(&self) -> usize {
        let sockets: usize = self.groups.iter().map(|group| group.sockets).sum();
        let listeners: usize = self.listeners.iter().map(|listeners| listeners.count).sum();
        sockets.saturating_add(listeners).saturating_add(1 + self.older.len())
    }

    pub(super) fn encode_offer(&self) -> Vec<u8> {
        // Every type of the offer has a form in JSON: serde_json has no reason to fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode_offer(text: &[u8]) -> Result<Self, OfferError> {
        match serde_json::from_slice(text).map_err(|_| OfferError::NotOne)? {
            OfferFormat { format: FORMAT } => {}
            OfferFormat { format } => return Err(OfferError::Format(format)),
        }
        let offer: Self = serde_json::from_slice(text).map_err(|error| OfferError::Malformed(error.to_string()))?;
        if offer.groups.iter().all(OfferedGroup::is_consistent) { Ok(offer) } else { Err(OfferError::Wrong("udp")) }
    }
}

impl OfferedGroup {
    /// Returns whether there are sockets, and all generations lie within their number.
    fn is_consistent(&self) -> bool {
        let are_within = |OfferedGeneration(_, first, workers): &OfferedGeneration| first + workers <= self.sockets;
        self.sockets > 0 && self.generations.iter().all(are_within)
    }
}

/// Reads a number of sockets, bounded by the descriptors that a message can have.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    u16::deserialize(deserializer).map(usize::from)
}

impl TryFrom<Json> for OfferedSecret {
    type Error = &'static str;

    fn try_from(value: Json) -> Result<Self, Self::Error> {
        serde_json::from_value(value).map(Self).map_err(|_| "`secret` is not 32 bytes")
    }
}

litequic_base::partial_debug!(OfferedSecret);

impl From<Generation> for OfferedGeneration {
    fn from(Generation { number, first, workers }: Generation) -> Self {
        Self(number, first, workers)
    }
}

impl From<OfferedGeneration> for Generation {
    fn from(OfferedGeneration(number, first, workers): OfferedGeneration) -> Self {
        Self { number, first, workers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Message of version 0.1.0, which younger versions send and read.
    const MESSAGE: &str = concat!(
        r#"{"format":1,"connection_ids":{"encrypted":false,"mask":[1,4294967295],"nonce":7,"server_id":8},"#,
        r#""denied":[["192.0.2.0/24",3600]],"generation":255,"http3":false,"#,
        r#""maintenance":[[null,300],["a.test",60]],"older":[254],"replica":"web-1","#,
        r#""secret":[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7],"#,
        r#""tcp":[{"address":"[::]:8443","listeners":4}],"#,
        r#""udp":[{"generations":[[254,0,2],[255,2,4]],"sockets":6},{"generations":[],"sockets":1}],"#,
        r#""version":"1.2.3"}"#
    );
    /// Message without all optional values.
    const EMPTY_MESSAGE: &str = concat!(
        r#"{"format":1,"connection_ids":null,"denied":[],"generation":0,"http3":null,"maintenance":[],"older":[],"#,
        r#""replica":"","secret":null,"tcp":[],"udp":[],"version":""}"#
    );

    fn offer() -> HandoverOffer {
        let generation = |number, first, workers| OfferedGeneration(number, first, workers);
        HandoverOffer {
            format: FORMAT,
            connection_ids: Some(OfferedIds { encrypted: false, mask: [1, 4_294_967_295], nonce: 7, server_id: 8 }),
            denied: vec![("192.0.2.0/24".into(), 3_600)],
            generation: 255,
            version: "1.2.3".into(),
            secret: Some(OfferedSecret([7; SECRET_LEN])),
            replica: "web-1".into(),
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

    fn empty() -> HandoverOffer {
        HandoverOffer {
            format: FORMAT,
            connection_ids: None,
            denied: vec![],
            generation: 0,
            version: String::new(),
            secret: None,
            replica: String::new(),
            groups: vec![],
            listeners: vec![],
            older: vec![],
            maintenance: vec![],
            http3: None,
        }
    }

    #[test]
    fn an_offer_has_the_wire_format_of_other_versions() {
        for (offer, message) in [(offer(), MESSAGE), (empty(), EMPTY_MESSAGE)] {
            assert_eq!(String::from_utf8(offer.encode_offer()).unwrap(), message);
            assert_eq!(HandoverOffer::decode_offer(message.as_bytes()).unwrap(), offer);
        }
        let younger = EMPTY_MESSAGE.replace("{\"format\"", "{\"younger\":{\"a\":[1]},\"format\"");
        assert_eq!(HandoverOffer::decode_offer(younger.as_bytes()).unwrap(), empty());
        assert_eq!(offer().descriptor_count(), 6 + 1 + 4 + 1 + 1);
    }

    #[test]
    fn debug_and_errors_hide_the_offered_secret() {
        let shown = format!("{:?}", offer());
        assert!(shown.contains("OfferedSecret { .. }") && !shown.contains("7, 7"), "{shown}");
        assert!(!shown.contains("4294967295"), "{shown}");
        let text = MESSAGE.replace("\"secret\":", "\"secret\":\"private\",\"unknown\":");
        let error = HandoverOffer::decode_offer(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("`secret` is not 32 bytes") && !error.contains("private"), "{error}");
    }

    #[test]
    fn invalid_offers_are_rejected() {
        let malformed = |part: &str| OfferError::Malformed(part.into());
        let table = [
            ("{}".to_owned(), OfferError::NotOne),
            ("sockets".to_owned(), OfferError::NotOne),
            (MESSAGE.replace("\"format\":1", "\"format\":3"), OfferError::Format(3)),
            (MESSAGE.replace("\"generation\":255", "\"generation\":256"), malformed("integer `256`, expected u8")),
            (MESSAGE.replace("[255,2,4]", "[255,3,4]"), OfferError::Wrong("udp")),
            (MESSAGE.replace("\"sockets\":1", "\"sockets\":0"), OfferError::Wrong("udp")),
            (MESSAGE.replace("\"sockets\":1", "\"sockets\":65536"), malformed("integer `65536`, expected u16")),
            (MESSAGE.replace("[255,2,4]", "[255,2,65536]"), malformed("integer `65536`, expected u16")),
            (MESSAGE.replace("[255,2,4]", "[255,2,4,4]"), malformed("")),
            (MESSAGE.replace("\"udp\"", "\"udp4\""), malformed("missing field `udp`")),
            (MESSAGE.replace("[::]", "[::"), malformed("socket address")),
            (MESSAGE.replace("[1,4294967295]", "[1]"), malformed("invalid length 1")),
            (MESSAGE.replace("7,7]", "7]"), malformed("`secret` is not 32 bytes")),
            (MESSAGE.replace("[null,300]", "[null,-1]"), malformed("integer `-1`, expected u32")),
            (MESSAGE.replace("[null,300]", "[1,300]"), malformed("integer `1`, expected a string")),
            (MESSAGE.replace("\"http3\":false", "\"http3\":0"), malformed("integer `0`, expected a boolean")),
            (MESSAGE.replace("\"web-1\"", "1"), malformed("integer `1`, expected a string")),
            (MESSAGE.replace("\"older\":[254]", "\"older\":254"), malformed("integer `254`, expected a sequence")),
        ];
        for (text, expected) in table {
            match (HandoverOffer::decode_offer(text.as_bytes()).unwrap_err(), &expected) {
                (OfferError::Malformed(error), OfferError::Malformed(part)) => {
                    assert!(error.contains(part), "{error}: {text}");
                }
                (error, _) => assert_eq!(error, expected, "{text}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_offer_decoding_panic(text in any::<Vec<u8>>(), at in 0_usize..200, byte in any::<u8>()) {
            let _ = HandoverOffer::decode_offer(&text);
            let mut nearly = offer().encode_offer();
            let len = nearly.len();
            nearly[at % len] = byte;
            if let Ok(offer) = HandoverOffer::decode_offer(&nearly) {
                prop_assert!(offer.groups.iter().all(|group| group.sockets > 0));
            }
        }
    }
}

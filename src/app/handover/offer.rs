//! Encodes and decodes the offer of a process to the one that takes over, but for the descriptors. Pure: JSON, of which
//! every value is checked.

use litequic_config::ServerIdShape;
use litequic_net::Generation;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use std::{fmt, net::SocketAddr};

/// Format of the offer. Changes when an older litequic would misunderstand the offer.
const FORMAT: u64 = 2;
/// Format of an offer without `connection_ids`. An older litequic ignores that field, and would steer by its own
/// layout: connections of the process that drains would end.
const FORMAT_WITHOUT_SERVER_ID: u64 = 1;
/// Bytes of a secret.
const SECRET_LEN: usize = 32;

/// All that a process offers, in the order of the descriptors: each group's sockets, each address' listeners, the pipe
/// of the process itself and those of the older ones.
///
/// A contract between versions: unknown fields are ignored, and a field that older versions do not send has a default.
/// Fields stand in the alphabetical order of their names in the message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandoverOffer {
    /// Connection IDs with a server ID. Older versions do not send the field, and have no server IDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connection_ids: Option<OfferedIds>,
    /// Denied networks, with the remaining seconds. Older versions do not send the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) denied: Vec<(String, u64)>,
    /// Generation of the process that offers.
    pub(super) generation: u8,
    /// Whether the process accepts the version of its successor. Older versions would reject that message.
    #[serde(default)]
    pub(super) hears_version: bool,
    /// The operator's order for HTTP/3, against the configuration. Older versions do not send the field.
    pub(super) http3: Option<bool>,
    /// Routes or hosts in maintenance, `None` for all, each with `Retry-After` in seconds. Older versions do not send
    /// the field.
    #[serde(default)]
    pub(super) maintenance: Vec<(Option<String>, u32)>,
    /// Generations of processes that drain.
    pub(super) older: Vec<u8>,
    /// Replica of the stateless reset tokens. Older versions do not send the field.
    pub(super) replica: Option<String>,
    /// Secret of the process's tokens, unless that is in a file.
    pub(super) secret: Option<OfferedSecret>,
    #[serde(rename = "tcp")]
    pub(super) listeners: Vec<OfferedListeners>,
    #[serde(rename = "udp")]
    pub(super) groups: Vec<OfferedGroup>,
    /// Version of the litequic that offers. Older versions do not send the field.
    pub(super) version: Option<String>,
}

/// Secret of tokens, hidden from `Debug` and from errors.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Json")]
pub(super) struct OfferedSecret(pub(super) [u8; SECRET_LEN]);

/// Layout of connection IDs with a server ID, and the key of their mask.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfferedIds {
    encrypted: bool,
    mask: [u32; 2],
    nonce: u8,
    server_id: u8,
}

impl OfferedIds {
    pub(super) fn new(shape: ServerIdShape, mask: [u32; 2]) -> Self {
        let ServerIdShape { server_id, nonce, encrypted } = shape;
        Self { encrypted, mask, nonce, server_id }
    }

    pub(super) fn server_id_shape(&self) -> ServerIdShape {
        let Self { encrypted, nonce, server_id, .. } = *self;
        ServerIdShape { server_id, nonce, encrypted }
    }

    pub(super) fn mask_key(&self) -> [u32; 2] {
        self.mask
    }
}

/// Hides the key of the mask.
impl fmt::Debug for OfferedIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OfferedIds({:?}, ..)", self.server_id_shape())
    }
}

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
    #[error("its format is {0}, only {FORMAT_WITHOUT_SERVER_ID} and {FORMAT} are supported")]
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

/// Serialized offer, with the number of the format.
#[derive(Serialize)]
struct OfferMessage<'a> {
    format: u64,
    #[serde(flatten)]
    offer: &'a HandoverOffer,
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
        let format = if self.connection_ids.is_some() { FORMAT } else { FORMAT_WITHOUT_SERVER_ID };
        serde_json::to_vec(&OfferMessage { format, offer: self }).unwrap_or_default()
    }

    pub(super) fn decode_offer(text: &[u8]) -> Result<Self, OfferError> {
        match serde_json::from_slice(text).map_err(|_| OfferError::NotOne)? {
            OfferFormat { format: FORMAT | FORMAT_WITHOUT_SERVER_ID } => {}
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

    /// Message of version 0.1.0, which older and younger versions send and read.
    const MESSAGE: &str = concat!(
        r#"{"format":1,"denied":[["192.0.2.0/24",3600]],"generation":255,"hears_version":true,"http3":false,"#,
        r#""maintenance":[[null,300],["a.test",60]],"older":[254],"replica":"web-1","#,
        r#""secret":[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7],"#,
        r#""tcp":[{"address":"[::]:8443","listeners":4}],"#,
        r#""udp":[{"generations":[[254,0,2],[255,2,4]],"sockets":6},{"generations":[],"sockets":1}],"#,
        r#""version":"1.2.3"}"#
    );
    /// Message without all optional values.
    const EMPTY_MESSAGE: &str = concat!(
        r#"{"format":1,"generation":0,"hears_version":false,"http3":null,"maintenance":[],"older":[],"replica":null,"#,
        r#""secret":null,"tcp":[],"udp":[],"version":null}"#
    );
    /// Message without the fields that older versions do not send, and with fields of a younger version.
    const OLD_AND_YOUNG_MESSAGE: &str =
        r#"{"younger":{"a":[1]},"format":1,"generation":0,"older":[],"tcp":[],"udp":[],"secret":null}"#;

    fn offer() -> HandoverOffer {
        let generation = |number, first, workers| OfferedGeneration(number, first, workers);
        HandoverOffer {
            connection_ids: None,
            denied: vec![("192.0.2.0/24".into(), 3_600)],
            generation: 255,
            version: Some("1.2.3".into()),
            hears_version: true,
            secret: Some(OfferedSecret([7; SECRET_LEN])),
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

    fn empty() -> HandoverOffer {
        HandoverOffer {
            connection_ids: None,
            denied: vec![],
            generation: 0,
            version: None,
            hears_version: false,
            secret: None,
            replica: None,
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
        assert_eq!(HandoverOffer::decode_offer(OLD_AND_YOUNG_MESSAGE.as_bytes()).unwrap(), empty());
        assert_eq!(offer().descriptor_count(), 6 + 1 + 4 + 1 + 1);
    }

    /// Older versions would ignore `connection_ids`, and steer by their own layout.
    #[test]
    fn older_versions_reject_an_offer_with_a_server_id() {
        let shape = ServerIdShape { server_id: 8, nonce: 7, encrypted: false };
        let offer = HandoverOffer { connection_ids: Some(OfferedIds::new(shape, [1, 4_294_967_295])), ..empty() };
        let message = EMPTY_MESSAGE.replace(
            r#"{"format":1,"#,
            r#"{"format":2,"connection_ids":{"encrypted":false,"mask":[1,4294967295],"nonce":7,"server_id":8},"#,
        );
        assert_eq!(String::from_utf8(offer.encode_offer()).unwrap(), message);
        assert_eq!(HandoverOffer::decode_offer(message.as_bytes()).unwrap(), offer);
        let ids = offer.connection_ids.as_ref().unwrap();
        assert_eq!((ids.server_id_shape(), ids.mask_key()), (shape, [1, 4_294_967_295]));
        assert!(!format!("{offer:?}").contains("4294967295"));
        let wrong = message.replace("[1,4294967295]", "[1]");
        assert!(matches!(HandoverOffer::decode_offer(wrong.as_bytes()), Err(OfferError::Malformed(_))));
    }

    #[test]
    fn debug_and_errors_hide_the_offered_secret() {
        let shown = format!("{:?}", offer());
        assert!(shown.contains("OfferedSecret { .. }") && !shown.contains("7, 7"), "{shown}");
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

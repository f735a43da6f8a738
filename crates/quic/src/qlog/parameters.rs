//! Describes transport parameters in qlog's form (draft-ietf-quic-qlog-quic-events, §6.5), from their encoding
//! (RFC 9000 §18). Neither stateless reset tokens nor values of unknown parameters are included. Pure.

use super::frames;
use crate::wire::parameters;
use serde_json::{Map, Value as Json, json};

/// IDs and names of parameters whose value is a connection ID.
const ID_PARAMETERS: [(u64, &str); 3] = [
    (0x00, "original_destination_connection_id"),
    (0x0f, "initial_source_connection_id"),
    (0x10, "retry_source_connection_id"),
];
/// IDs and names of parameters without a value.
const FLAG_PARAMETERS: [(u64, &str); 2] =
    [(parameters::MIGRATION_DISABLED_ID, "disable_active_migration"), (0x2ab2, "grease_quic_bit")];
/// IDs of parameters with a stateless reset token: the token, and a preferred address.
const SECRET_PARAMETERS: [u64; 2] = [0x02, 0x0d];

/// The parameters in `encoded`, up to the first malformed one.
pub(super) fn parameters_json(mut encoded: &[u8]) -> Map<String, Json> {
    let (mut members, mut unknown) = (Map::new(), Vec::new());
    while let Some((id, value)) = parameters::next_parameter(&mut encoded) {
        let named = |table: &[(u64, &'static str)]| table.iter().find(|(known, _)| *known == id).map(|(_, name)| *name);
        if let Some(name) = named(&ID_PARAMETERS) {
            members.insert(name.into(), frames::hex_text(value).into());
        } else if let Some(name) = named(&FLAG_PARAMETERS) {
            members.insert(name.into(), true.into());
        } else if let Some((_, name, ..)) = parameters::INTEGER_PARAMETERS.iter().find(|(known, ..)| *known == id) {
            members.extend(parameters::parse_integer(value).map(|number| ((*name).to_owned(), number.into())));
        } else if !SECRET_PARAMETERS.contains(&id) {
            unknown.push(json!({ "id": id }));
        }
    }
    if !unknown.is_empty() {
        members.insert("unknown_parameters".into(), unknown.into());
    }
    members
}

/// Unit of delays in ACK frames of the endpoint that sent `parameters`, as a power of two of microseconds; 3 by default
/// (RFC 9000 §18.2).
pub(super) fn ack_delay_exponent(parameters: &Map<String, Json>) -> u8 {
    let exponent = parameters.get("ack_delay_exponent").and_then(Json::as_u64);
    exponent.and_then(|exponent| u8::try_from(exponent).ok()).unwrap_or(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(encoded: &[u8]) -> Json {
        parameters_json(encoded).into()
    }

    #[test]
    fn parameters_have_their_names_and_no_reset_token_is_written() {
        let encoded = [
            &[0x01, 4, 0x80, 0, 0x75, 0x30][..],
            &[0x04, 8, 0xc0, 0, 0, 1, 0, 0, 0, 0],
            &[0x02, 16],
            b"never to be seen",
            &[0x0d, 20],
            b"never to be seen....",
            &[0x0f, 2, 0xab, 0xcd],
            &[0x0c, 0],
            &[0x0a, 1, 9],
            &[0x40, 0x7f, 3, 1, 2, 3],
            // This one is cut short.
            &[0x0b, 9, 1],
        ]
        .concat();
        assert_eq!(
            written(&encoded),
            json!({
                "max_idle_timeout": 30_000, "initial_max_data": 1_u64 << 32, "initial_source_connection_id": "abcd",
                "disable_active_migration": true, "ack_delay_exponent": 9, "unknown_parameters": [{ "id": 0x7f }],
            })
        );
        assert_eq!((ack_delay_exponent(&parameters_json(&encoded)), ack_delay_exponent(&Map::new())), (9, 3));
    }

    proptest! {
        #[test]
        fn any_transport_parameters_are_written_without_panic(encoded in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (written(&encoded), ack_delay_exponent(&parameters_json(&encoded)));
        }
    }
}

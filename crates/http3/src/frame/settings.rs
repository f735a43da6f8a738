//! Encodes and decodes the SETTINGS frame (RFC 9114 §7.2.4).

use super::frame_header::{FrameHeader, FrameType};
use crate::{error_code::ErrorCode, varint};
use bytes::BytesMut;

/// Settings of a peer, as far as litequic supports them. The default of each applies if the peer does not send it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Largest dynamic table of the sender's QPACK decoder, in bytes (RFC 9204 §5).
    pub qpack_max_table_capacity: u64,
    /// Largest number of streams that may be blocked at the sender's QPACK decoder (RFC 9204 §5).
    pub qpack_blocked_streams: u64,
    /// Largest field section that the sender accepts, in bytes as RFC 9114 §4.2.2 counts; `None` for no limit.
    pub max_field_section_size: Option<u64>,
    /// The sender is a server that accepts extended CONNECT (RFC 9220).
    pub enable_connect_protocol: bool,
    /// The sender accepts HTTP datagrams (RFC 9297). Valid only with QUIC datagrams, which the caller checks.
    pub h3_datagram: bool,
}

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
const QPACK_BLOCKED_STREAMS: u64 = 0x07;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
const H3_DATAGRAM: u64 = 0x33;

impl Settings {
    /// Decodes the payload of a SETTINGS frame. Unknown settings are ignored.
    ///
    /// # Errors
    ///
    /// H3_FRAME_ERROR if the payload is cut, H3_SETTINGS_ERROR if a setting is listed twice, is one of HTTP/2's, or has
    /// an invalid value.
    pub fn decode_settings(payload: &[u8]) -> Result<Self, ErrorCode> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        let mut rest = payload;
        while !rest.is_empty() {
            let id = next_setting_integer(&mut rest)?;
            let value = next_setting_integer(&mut rest)?;
            // The frame is at most a few hundred bytes long, so that this search is bounded.
            if seen.contains(&id) {
                return Err(ErrorCode::SettingsError);
            }
            seen.push(id);
            match id {
                0x00 | 0x02..=0x05 => return Err(ErrorCode::SettingsError),
                QPACK_MAX_TABLE_CAPACITY => settings.qpack_max_table_capacity = value,
                MAX_FIELD_SECTION_SIZE => settings.max_field_section_size = Some(value),
                QPACK_BLOCKED_STREAMS => settings.qpack_blocked_streams = value,
                ENABLE_CONNECT_PROTOCOL => settings.enable_connect_protocol = decode_boolean(value)?,
                H3_DATAGRAM => settings.h3_datagram = decode_boolean(value)?,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Appends a SETTINGS frame with the settings that differ from the defaults.
    #[expect(clippy::arithmetic_side_effects, reason = "identifiers and lengths of litequic's own settings")]
    pub fn encode_settings(&self, out: &mut BytesMut) {
        let known = [
            (QPACK_MAX_TABLE_CAPACITY, Some(self.qpack_max_table_capacity).filter(|&bytes| bytes != 0)),
            (MAX_FIELD_SECTION_SIZE, self.max_field_section_size),
            (QPACK_BLOCKED_STREAMS, Some(self.qpack_blocked_streams).filter(|&streams| streams != 0)),
            (ENABLE_CONNECT_PROTOCOL, self.enable_connect_protocol.then_some(1)),
            (H3_DATAGRAM, self.h3_datagram.then_some(1)),
        ];
        let all = || known.into_iter().filter_map(|(id, value)| Some((id, value?)));
        let length = all().map(|(id, value)| (varint::varint_len(id) + varint::varint_len(value)) as u64).sum();
        FrameHeader { kind: FrameType::Settings, length }.encode_frame_header(out);
        for (id, value) in all() {
            varint::encode_varint(id, out);
            varint::encode_varint(value, out);
        }
    }
}

fn next_setting_integer(rest: &mut &[u8]) -> Result<u64, ErrorCode> {
    let (value, length) = varint::decode_varint(rest).ok_or(ErrorCode::FrameError)?;
    *rest = rest.get(length..).unwrap_or_default();
    Ok(value)
}

fn decode_boolean(value: u64) -> Result<bool, ErrorCode> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ErrorCode::SettingsError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_read_by_the_rules_of_the_rfc() {
        let default = Settings::default();
        let table: [(&[u8], Result<Settings, ErrorCode>); 18] = [
            (&[], Ok(default)),
            (&[0x01, 0x00], Ok(default)),
            (&[0x01, 0x40, 0x64], Ok(Settings { qpack_max_table_capacity: 100, ..default })),
            (&[0x06, 0x05], Ok(Settings { max_field_section_size: Some(5), ..default })),
            (&[0x07, 0x10], Ok(Settings { qpack_blocked_streams: 16, ..default })),
            (&[0x08, 0x01], Ok(Settings { enable_connect_protocol: true, ..default })),
            (&[0x33, 0x01], Ok(Settings { h3_datagram: true, ..default })),
            (&[0x21, 0x3f, 0x40, 0x40, 0x00], Ok(default)), // unknown ones
            // HTTP/2's
            (&[0x00, 0x00], Err(ErrorCode::SettingsError)),
            (&[0x02, 0x00], Err(ErrorCode::SettingsError)),
            (&[0x03, 0x00], Err(ErrorCode::SettingsError)),
            (&[0x04, 0x00], Err(ErrorCode::SettingsError)),
            (&[0x05, 0x00], Err(ErrorCode::SettingsError)),
            // twice, known or not, however encoded
            (&[0x06, 0x05, 0x40, 0x06, 0x05], Err(ErrorCode::SettingsError)),
            (&[0x21, 0x00, 0x21, 0x01], Err(ErrorCode::SettingsError)),
            // neither 0 nor 1
            (&[0x08, 0x02], Err(ErrorCode::SettingsError)),
            (&[0x33, 0x02], Err(ErrorCode::SettingsError)),
            // cut
            (&[0x06, 0x40], Err(ErrorCode::FrameError)),
        ];
        for (payload, expected) in table {
            assert_eq!(Settings::decode_settings(payload), expected, "{payload:02x?}");
        }
    }

    proptest! {
        #[test]
        fn settings_decode_as_encoded(
            qpack_max_table_capacity in 0..=varint::MAX_VARINT,
            qpack_blocked_streams in 0..=varint::MAX_VARINT,
            max_field_section_size in proptest::option::of(0..=varint::MAX_VARINT),
            enable_connect_protocol: bool,
            h3_datagram: bool,
        ) {
            let settings = Settings {
                qpack_max_table_capacity,
                qpack_blocked_streams,
                max_field_section_size,
                enable_connect_protocol,
                h3_datagram,
            };
            let mut out = BytesMut::new();
            settings.encode_settings(&mut out);
            let (header, used) = FrameHeader::decode_frame_header(&out).unwrap();
            prop_assert_eq!(header, FrameHeader { kind: FrameType::Settings, length: (out.len() - used) as u64 });
            prop_assert_eq!(Settings::decode_settings(&out[used..]), Ok(settings));
        }

        #[test]
        fn no_settings_payload_panics(payload: Vec<u8>) {
            let _ = Settings::decode_settings(&payload);
        }
    }
}

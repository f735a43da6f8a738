//! Defines `[listen.server_id]`: connection IDs by which load balancers route (draft-ietf-quic-load-balancers).

use crate::reading::{
    name_kinds::path_kind,
    section::ConfigSection,
    table::{FixedValue, KeyTable as _, OptionalTableReader, file_key, keys, required_key},
    value_kinds::{DAY, ValueError, ValueKind, text_kind},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

/// Bytes before the server ID: one with rotation and length.
const FIRST_BYTE_LEN: usize = 1;
/// Bytes after an encrypted nonce: generation and worker.
const APPENDED_LEN: usize = 2;
/// Bytes of the longest server ID. A longer one leaves too few bytes for the nonce.
const MAX_SERVER_ID: usize = 12;
const MAX_ENCRYPTED_SERVER_ID: usize = 9;
/// Bytes of the shortest nonce: five unique ones, generation and worker.
const MIN_NONCE: u8 = 7;
/// Bytes of the shortest nonce with a key: the draft's four passes need more than half of a block to be distinct.
const MIN_ENCRYPTED_NONCE: u8 = 8;
/// Sum of server ID and nonce, in bytes: an ID of 16 bytes, as AWS requires; with a key, a block of AES.
const ID_AND_NONCE_LEN: usize = 15;
const ENCRYPTED_ID_AND_NONCE_LEN: usize = 16;
/// Time before an ID's expiry at which its client is asked to retire it.
const RETIREMENT_TIME: Duration = Duration::from_secs(30);
keys! {
    /// Connection IDs by which load balancers route (draft-ietf-quic-load-balancers).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ServerId {
        /// The server ID for load balancers, of 1 to 12 bytes, or 1 to 9 with `key_file`; each server behind a balancer
        /// needs another one: an IPv4 address, whose 4 bytes are used (`"${POD_IP}"`), `0x` and hexadecimal digits, or
        /// base64, as the AWS Load Balancer Controller injects it (`"${AWS_LBC_QUIC_SERVER_ID}"`). Behind a blank,
        /// `rotation=1` sets the configuration rotation (0 to 6, by default 0), the first three bits of each connection
        /// ID, by which balancers tell this configuration from the one before. To change the ID or the key, give
        /// balancers the new configuration under another rotation, then reload, and remove the former one after a day.
        /// The load balancer of AWS supports only rotation 0.
        id: ServerIdValue = ServerIdValue::default(), required_key(server_id_kind());

        /// Length of the nonce, the unique bytes of a connection ID after the server ID: 15 minus the server ID's
        /// length, at least 7; with `key_file` 16 minus that length, at least 8.
        nonce_bytes: u8 = MIN_NONCE, FixedValue, no_key;

        /// File with the key by which balancers decrypt connection IDs: 32 hexadecimal digits (`openssl rand -hex 16`).
        /// Without the key, server IDs are not encrypted.
        key_file: Option<PathBuf> = None, file_key(path_kind("the path of a file with 32 hexadecimal digits"));

        // s2n-quic permits a day at most.
        /// Lifetime of a connection ID. Afterwards the client gets new ones. Balancers must keep a former configuration
        /// for this time.
        lifetime: Duration = DAY, FixedValue, no_key;
    }
}

/// A server ID and its configuration rotation: `id`, such as `"0x2a01 rotation=1"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIdValue {
    bytes: Vec<u8>,
    /// The configuration rotation, 0 to 6.
    pub rotation: u8,
}

/// Lengths of a connection ID's parts, which no reload changes: processes that share a port must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerIdShape {
    /// Bytes of the server ID.
    pub server_id: u8,
    /// Bytes of the nonce, which are unique.
    pub nonce: u8,
    /// Whether server ID and nonce are encrypted.
    pub encrypted: bool,
}

impl ServerIdShape {
    /// Returns the number of bytes of a connection ID.
    pub fn id_len(&self) -> usize {
        FIRST_BYTE_LEN
            + usize::from(self.server_id)
            + usize::from(self.nonce)
            + if self.encrypted { APPENDED_LEN } else { 0 }
    }
}

/// Formats the shape as `16 bytes: server ID 8, nonce 7, no key`.
impl fmt::Display for ServerIdShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server_id, nonce, encrypted } = self;
        let key = if *encrypted { "key" } else { "no key" };
        write!(f, "{} bytes: server ID {server_id}, nonce {nonce}, {key}", self.id_len())
    }
}

/// Formats the ID in hexadecimal, as in configurations of balancers, with a rotation other than 0.
impl fmt::Display for ServerIdValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if self.rotation == 0 { Ok(()) } else { write!(f, " rotation={}", self.rotation) }
    }
}

impl ServerId {
    /// Creates a server ID from hexadecimal `digits`, with a nonce of `nonce` bytes, encrypted if there is a key file.
    /// Lengths are not checked.
    pub fn from_digits(digits: &str, nonce: u8, key_file: Option<PathBuf>) -> Self {
        let id = ServerIdValue { bytes: parse_digits(digits).unwrap_or_default(), rotation: 0 };
        Self { id, nonce_bytes: nonce, key_file, ..Self::default() }
    }

    /// Returns the server ID under another configuration rotation.
    #[must_use]
    pub fn with_rotation(self, rotation: u8) -> Self {
        Self { id: ServerIdValue { rotation, ..self.id }, ..self }
    }

    /// Returns the bytes of the ID.
    pub fn id_bytes(&self) -> &[u8] {
        &self.id.bytes
    }

    /// Formats the ID in hexadecimal, without its rotation.
    pub fn hex_digits(&self) -> String {
        ServerIdValue { rotation: 0, ..self.id.clone() }.to_string()
    }

    /// Returns the lengths of the parts of connection IDs.
    pub fn id_shape(&self) -> ServerIdShape {
        let server_id = u8::try_from(self.id.bytes.len()).unwrap_or(u8::MAX);
        ServerIdShape { server_id, nonce: self.nonce_bytes, encrypted: self.key_file.is_some() }
    }

    /// Formats the layout in the terms of the draft: `16 bytes: rotation 0, server ID 8, nonce 7, no key`.
    pub fn describe_layout(&self) -> String {
        self.id_shape().to_string().replacen(": ", &format!(": rotation {}, ", self.id.rotation), 1)
    }

    /// Returns `next` if the lengths of the parts are equal, and otherwise `now`: other lengths need a restart.
    pub(super) fn apply_same_shape(now: Option<Self>, next: Option<Self>) -> Option<Self> {
        if now.as_ref().map(Self::id_shape) == next.as_ref().map(Self::id_shape) { next } else { now }
    }

    /// Returns a fault if connections with the idle timeout `idle` would never end: each renewal of an ID is a packet
    /// that the client acknowledges.
    pub(super) fn idle_timeout_fault(&self, idle: Duration) -> Option<String> {
        let lifetime = humantime::format_duration(self.lifetime);
        let too_long = idle.saturating_add(RETIREMENT_TIME) >= self.lifetime;
        too_long.then(|| format!("is not 30s shorter than the lifetime of connection IDs ({lifetime}): new connection IDs would keep idle connections open"))
    }
}

/// Reads `[listen.server_id]`. Changes are listed by key; a change of the lengths is listed as a whole.
pub(super) const SERVER_ID_READER: OptionalTableReader<ServerId> = OptionalTableReader {
    read: read_server_id,
    show: |one| format!("{} in {}", one.hex_digits(), one.describe_layout()),
    by_key: |old, new| old.id_shape() == new.id_shape(),
};

fn read_server_id(section: &mut ConfigSection<'_>) -> ServerId {
    let mut server_id = ServerId::read_table(section);
    let id_len = server_id.id.bytes.len();
    let (sum, least) = if server_id.key_file.is_some() {
        (ENCRYPTED_ID_AND_NONCE_LEN, MIN_ENCRYPTED_NONCE)
    } else {
        (ID_AND_NONCE_LEN, MIN_NONCE)
    };
    server_id.nonce_bytes = u8::try_from(sum.saturating_sub(id_len)).unwrap_or(least).max(least);
    if server_id.key_file.is_some() && id_len > MAX_ENCRYPTED_SERVER_ID {
        let expected = format!("1 to {MAX_ENCRYPTED_SERVER_ID} with key_file");
        section.note_fault_expecting("id", format!("has {id_len} bytes"), &expected);
    }
    server_id
}

/// Reads pairs of hexadecimal digits.
fn parse_digits(digits: &str) -> Result<Vec<u8>, ValueError> {
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("not hexadecimal digits".into());
    }
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err("has an odd number of digits".into());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high) << 4 | digit(*low)).unwrap_or(0);
    Ok(pairs.iter().map(byte).collect())
}

/// A server ID: an IPv4 address, `0x` and digits, or base64; behind it `rotation`. The 8 bytes that AWS gives end with
/// `=` in base64, so `0x` at their beginning is no prefix.
pub(crate) fn server_id_kind() -> ValueKind<ServerIdValue> {
    let parse = |written: String| {
        let (written, parameter) = written.split_once(' ').unwrap_or((&written, "rotation=0"));
        let rotation = match parameter.trim().strip_prefix("rotation=").map(str::as_bytes) {
            Some([digit @ b'0'..=b'6']) => digit - b'0',
            Some(_) => return Err("the rotation is not one number from 0 to 6".into()),
            None => return Err("has an unknown parameter".into()),
        };
        let digits = written.strip_prefix("0x").or_else(|| written.strip_prefix("0X"));
        let bytes = if let Ok(address) = written.parse::<Ipv4Addr>() {
            address.octets().to_vec()
        } else if written.parse::<Ipv6Addr>().is_ok() {
            return Err(ValueError::from("is an IPv6 address, whose 16 bytes exceed the limit")
                .expecting("an IPv4 address; or 0x and some of its bytes that no other server has"));
        } else if let Some(digits) = digits.filter(|digits| !digits.contains('=')) {
            parse_digits(digits)?
        } else {
            STANDARD.decode(written).map_err(|_| "neither an IPv4 address nor base64")?
        };
        match bytes.len() {
            1..=MAX_SERVER_ID => Ok(ServerIdValue { bytes, rotation }),
            len => Err(format!("has {len} bytes").into()),
        }
    };
    let expected = "1 to 12 bytes, such as \"192.0.2.1\", \"${POD_IP}\", \"0x2a01\" or \"KgE=\", alone or as in \"0x2a01 rotation=1\"";
    text_kind(expected, parse, ToString::to_string).with_pattern(
        "([0-9.]+|0[xX]([0-9A-Fa-f]{2}){1,12}|([0-9A-Za-z+/]{4}){0,4}([0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?)( +rotation=[0-6] *)?",
    )
}

#[cfg(test)]
mod tests {
    use crate::{Config, parse_config};
    use std::{path::Path, time::Duration};

    fn config(table: &str) -> Result<Config, String> {
        let text = format!(
            "[listen.server_id]\n{table}\n[origin]\nurl = \"http://127.0.0.1:80\"\n[[certificates]]\ncert = \"c\"\nkey = \"k\"\n"
        );
        let variable = |name: &str| (name == "POD_IP").then(|| "10.1.2.3".to_owned());
        parse_config(&text, Path::new("a.toml"), variable)
            .map_err(|faults| faults.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn the_layout_of_a_server_id_is_that_of_the_draft() {
        let table = [
            ("id = \"${POD_IP}\"", "0x0a010203", "16 bytes: rotation 0, server ID 4, nonce 11, no key"),
            ("id = \"AQIDBAUGBwg=\"", "0x0102030405060708", "16 bytes: rotation 0, server ID 8, nonce 7, no key"),
            ("id = \"0x2a01 rotation=6\"", "0x2a01", "16 bytes: rotation 6, server ID 2, nonce 13, no key"),
            (
                "id = \"0x0102030405060708090A0b0c\"",
                "0x0102030405060708090a0b0c",
                "20 bytes: rotation 0, server ID 12, nonce 7, no key",
            ),
            ("id = \"0xIDBAUGBwg=\"", "0xd312030405060708", "16 bytes: rotation 0, server ID 8, nonce 7, no key"),
            ("id = \"0x0102\"\nkey_file = \"k\"", "0x0102", "19 bytes: rotation 0, server ID 2, nonce 14, key"),
            (
                "id = \"0x010203040506070809\"\nkey_file = \"k\"",
                "0x010203040506070809",
                "20 bytes: rotation 0, server ID 9, nonce 8, key",
            ),
        ];
        for (text, digits, layout) in table {
            let server_id = config(text).unwrap().listen.server_id.unwrap();
            assert_eq!((server_id.hex_digits(), server_id.describe_layout()), (digits.into(), layout.into()), "{text}");
            assert!(server_id.id_shape().id_len() <= 20);
        }
    }

    #[test]
    fn an_invalid_server_id_is_rejected_with_the_expected_form() {
        let long = "00".repeat(13);
        let table = [
            ("key_file = \"k\"", "id: missing; expected 1 to 12 bytes"),
            ("id = \"AQ\"", "id = \"AQ\": neither an IPv4 address nor base64; expected 1 to 12 bytes"),
            ("id = \"\"", "has 0 bytes; expected 1 to 12 bytes"),
            ("id = \"0x\"", "has 0 bytes; expected 1 to 12 bytes"),
            (&format!("id = \"0x{long}\""), "has 13 bytes; expected 1 to 12 bytes"),
            ("id = \"0x123\"", "an odd number of digits"),
            ("id = \"0xgg\"", "not hexadecimal digits"),
            ("id = \"0x01020304050607080910\"\nkey_file = \"k\"", "has 10 bytes; expected 1 to 9 with key_file"),
            (
                "id = \"fd00::1\"",
                "is an IPv6 address, whose 16 bytes exceed the limit; expected an IPv4 address; or 0x",
            ),
            ("hex = \"01\"\nid = \"0x01\"", "hex = \"01\": is no longer a key; its value is now listen.server_id.id"),
            (
                "id = \"0x01\"\nrotation = 1",
                "rotation = 1: is no longer a key; its value is now in listen.server_id.id, as \"0x2a01 rotation=1\"",
            ),
            (
                "id = \"0x01 rotation=7\"",
                "id = \"0x01 rotation=7\": the rotation is not one number from 0 to 6; expected 1 to 12 bytes",
            ),
            ("id = \"0x01 rotation=\"", "the rotation is not one number from 0 to 6; expected 1 to 12 bytes"),
            ("id = \"0x01 rotation=+1\"", "the rotation is not one number from 0 to 6"),
            ("id = \"0x01 rotation=1 rotation=1\"", "the rotation is not one number from 0 to 6"),
            ("id = \"0x01 turn=1\"", "has an unknown parameter; expected 1 to 12 bytes, such as"),
            ("id = \"0x01 1\"", "\"KgE=\", alone or as in \"0x2a01 rotation=1\""),
            (
                "id = \"${AWS_LBC_QUIC_SERVER_ID}\"",
                "environment variable AWS_LBC_QUIC_SERVER_ID is not set; the AWS Load Balancer Controller injects it into pods with the annotation service.beta.kubernetes.io/aws-load-balancer-quic-enabled-containers",
            ),
        ];
        for (text, expected) in table {
            let message = config(text).expect_err(text);
            assert!(message.contains(expected), "{text}\n{message}\n{expected}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn an_id_outlives_an_idle_connection() {
        let with = |idle: &str| config(&format!("id = \"0x01\"\n[timeouts]\nidle = \"{idle}\""));
        assert_eq!(with("23h 59m 29s").unwrap().timeouts.idle, Duration::from_secs(86_369));
        let message = with("23h 59m 30s").unwrap_err();
        assert!(
            message.contains("idle = \"23h 59m 30s\": is not 30s shorter than the lifetime of connection IDs (1day)"),
            "{message}"
        );
    }

    #[test]
    fn a_reload_follows_all_but_the_lengths() {
        let now = config("id = \"0x0102\"").unwrap();
        let changes = |next: &str| {
            let next = config(next).unwrap();
            let changes: Vec<_> = now.changes_to(&next).iter().map(ToString::to_string).collect();
            (changes.join("; "), now.apply_reload(next.clone()).listen.server_id == next.listen.server_id)
        };
        let table = [
            ("id = \"0x0103\"", "listen.server_id.id: 0x0102 → 0x0103", true),
            ("id = \"0x0102 rotation=1\"", "listen.server_id.id: 0x0102 → 0x0102 rotation=1", true),
            ("id = \"AQM=\"", "listen.server_id.id: 0x0102 → 0x0103", true),
            (
                "id = \"0x01\"",
                "listen.server_id: 0x0102 in 16 bytes: rotation 0, server ID 2, nonce 13, no key → 0x01 in 16 bytes: rotation 0, server ID 1, nonce 14, no key (needs a restart)",
                false,
            ),
            (
                "id = \"0x0102\"\nkey_file = \"k\"",
                "listen.server_id: 0x0102 in 16 bytes: rotation 0, server ID 2, nonce 13, no key → 0x0102 in 19 bytes: rotation 0, server ID 2, nonce 14, key (needs a restart)",
                false,
            ),
        ];
        for (next, expected, followed) in table {
            assert_eq!(changes(next), (expected.to_owned(), followed), "{next}");
        }
    }
}

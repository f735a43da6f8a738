//! Defines `[listen.server_id]`: connection IDs by which load balancers route (draft-ietf-quic-load-balancers).

use crate::reading::{
    changes::Changes,
    name_kinds::path_kind,
    section::ConfigSection,
    table::{KeyReader, KeyTable, derived_default, file_key, fixed_value, keys, optional_key},
    value_kinds::{DAY, RawValue, ValueError, ValueKind, number_kind, text_kind},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

/// Bytes of a connection ID at most (RFC 9000 §17.2).
const MAX_ID_BYTES: usize = 20;
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
/// Bytes of the longest nonce: the rest of an ID after a server ID of one byte.
const MAX_NONCE: u8 = 18;
/// Default sum of server ID and nonce, in bytes: an ID of 16 bytes, as AWS requires; with a key, a block of AES.
const ID_AND_NONCE_LEN: usize = 15;
const ENCRYPTED_ID_AND_NONCE_LEN: usize = 16;
/// Time before an ID's expiry at which its client is asked to retire it.
const RETIREMENT_TIME: Duration = Duration::from_secs(30);
/// Keys that set the ID, of which one is set.
const ID_KEYS: [&str; 3] = ["address", "hex", "base64"];

keys! {
    /// Connection IDs by which load balancers route (draft-ietf-quic-load-balancers).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ServerId {
        /// The server ID for load balancers, given as an IPv4 address, whose 4 bytes are used: `"${POD_IP}"`. Each
        /// server behind a balancer needs another one. Exactly one of `address`, `hex` and `base64` is set.
        address: Option<Ipv4Addr> = None, optional_key(address_id_kind(), "none");

        /// The ID in hexadecimal digits, such as `"0x2a01"`: 1 to 12 bytes, or 1 to 9 with `key_file`.
        hex: Option<ServerIdBytes> = None, optional_key(hex_id_kind(), "none");

        /// The ID in base64, as the AWS Load Balancer Controller injects it: `"${AWS_LBC_QUIC_SERVER_ID}"`.
        base64: Option<ServerIdBytes> = None, optional_key(base64_id_kind(), "none");

        /// The configuration rotation, the first three bits of each ID, by which balancers tell this configuration from
        /// the one before. To change the ID or the key, give balancers the new configuration under another number, then
        /// reload, and remove the former one after a day. The load balancer of AWS supports only `0`.
        rotation: u8 = 0, number_kind(0..=6);

        /// Length of the nonce, the unique bytes of a connection ID after the server ID. The default is 15 minus the
        /// server ID's length, at least 7; with `key_file` 16 minus that length, at least 8. A connection ID has at
        /// most 20 bytes: the first byte, the server ID, the nonce, and with `key_file` two more.
        nonce_bytes: u8 = MIN_NONCE, derived_default(number_kind(MIN_NONCE.into()..=MAX_NONCE.into()));

        /// File with the key by which balancers decrypt connection IDs: 32 hexadecimal digits (`openssl rand -hex 16`).
        /// Without the key, server IDs are not encrypted.
        key_file: Option<PathBuf> = None, file_key(path_kind("the path of a file with 32 hexadecimal digits"));

        // s2n-quic permits a day at most.
        /// Lifetime of a connection ID. Afterwards the client gets new ones. Balancers must keep a former configuration
        /// for this time.
        lifetime: Duration = DAY, fixed_value(), no_key;
    }
}

/// Bytes of a server ID in hexadecimal or base64 form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdBytes(Vec<u8>);

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

/// Formats the ID in hexadecimal, as in configurations of balancers.
impl fmt::Display for ServerIdBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl ServerId {
    /// Creates a server ID from hexadecimal `digits`, with a nonce of `nonce` bytes, encrypted if there is a key file.
    /// Lengths are not checked.
    pub fn from_digits(digits: &str, nonce: u8, key_file: Option<PathBuf>) -> Self {
        let hex = (hex_id_kind().read)(RawValue::Text(digits.into())).ok();
        Self { hex, nonce_bytes: nonce, key_file, ..Self::default() }
    }

    /// Returns the server ID under another configuration rotation.
    #[must_use]
    pub fn with_rotation(self, rotation: u8) -> Self {
        Self { rotation, ..self }
    }

    /// Returns the bytes of the ID, from whichever key is set.
    pub fn id_bytes(&self) -> Vec<u8> {
        let given = self.hex.as_ref().or(self.base64.as_ref()).map(|id| id.0.clone());
        given.unwrap_or_else(|| self.address.map_or_else(Vec::new, |address| address.octets().to_vec()))
    }

    /// Formats the ID in hexadecimal.
    pub fn hex_digits(&self) -> String {
        ServerIdBytes(self.id_bytes()).to_string()
    }

    /// Returns the lengths of the parts of connection IDs.
    pub fn id_shape(&self) -> ServerIdShape {
        let server_id = u8::try_from(self.id_bytes().len()).unwrap_or(u8::MAX);
        ServerIdShape { server_id, nonce: self.nonce_bytes, encrypted: self.key_file.is_some() }
    }

    /// Formats the layout in the terms of the draft: `16 bytes: rotation 0, server ID 8, nonce 7, no key`.
    pub fn describe_layout(&self) -> String {
        self.id_shape().to_string().replacen(": ", &format!(": rotation {}, ", self.rotation), 1)
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
pub(super) struct ServerIdReader;

impl KeyReader<Option<ServerId>> for ServerIdReader {
    fn read_key_value(
        self,
        section: &mut ConfigSection<'_>,
        key: &str,
        _: Option<ServerId>,
        about: &str,
    ) -> Option<ServerId> {
        let has_it = section.has_key(key);
        Some(section.read_subtable(key, about, read_server_id)).filter(|_| has_it)
    }

    fn format_value(&self, server_id: &Option<ServerId>) -> String {
        let shown = |one: &ServerId| format!("{} in {}", one.hex_digits(), one.describe_layout());
        server_id.as_ref().map_or_else(|| "none".into(), shown)
    }

    fn compare_value(&self, changes: &mut Changes, key: &str, old: &Option<ServerId>, new: &Option<ServerId>) {
        match (old, new) {
            (Some(old), Some(new)) if old.id_shape() == new.id_shape() => old.compare_keys(new, key, changes),
            (old, new) => changes.compare_shown(key, old, new, |one| self.format_value(one)),
        }
    }
}

fn read_server_id(section: &mut ConfigSection<'_>) -> ServerId {
    let mut server_id = ServerId::read_table(section);
    let given: Vec<&str> = ID_KEYS.into_iter().filter(|key| section.has_key(key)).collect();
    let [first, others @ ..] = given.as_slice() else {
        section.note_missing("address", "one of address, hex and base64: the server ID for load balancers");
        return server_id;
    };
    for key in others {
        let problem = format!("the server ID is in {first} already");
        section.note_fault(key, &problem, Some("one of address, hex and base64"), None);
    }
    let (with_key, id_len) = (server_id.key_file.is_some(), server_id.id_bytes().len());
    let (sum, least, appended) = if with_key {
        (ENCRYPTED_ID_AND_NONCE_LEN, MIN_ENCRYPTED_NONCE, APPENDED_LEN)
    } else {
        (ID_AND_NONCE_LEN, MIN_NONCE, 0)
    };
    let implied = u8::try_from(sum.saturating_sub(id_len)).unwrap_or(least).max(least);
    let nonce = if section.has_key("nonce_bytes") { server_id.nonce_bytes } else { implied };
    let is_right = section.has_valid_keys(&["address", "hex", "base64", "key_file", "nonce_bytes"]);
    if is_right && with_key && id_len > MAX_ENCRYPTED_SERVER_ID {
        let expected = format!("1 to {MAX_ENCRYPTED_SERVER_ID} with key_file");
        section.note_fault(first, &format!("has {id_len} bytes"), Some(&expected), None);
    } else if is_right && nonce < least {
        section.note_fault("nonce_bytes", "too small", Some(&format!("at least {least} with key_file")), None);
    } else if is_right && FIRST_BYTE_LEN + id_len + usize::from(nonce) + appended > MAX_ID_BYTES {
        let most = MAX_ID_BYTES.saturating_sub(FIRST_BYTE_LEN + id_len + appended);
        let len = FIRST_BYTE_LEN + id_len + usize::from(nonce) + appended;
        let problem = format!("a connection ID would have {len} bytes, and {MAX_ID_BYTES} is the most");
        section.note_fault("nonce_bytes", &problem, Some(&format!("at most {most} with this server ID")), None);
    }
    server_id.nonce_bytes = nonce;
    server_id
}

const EXPECTED_LENGTH: &str = "1 to 12 bytes";

fn check_id_length(bytes: Vec<u8>) -> Result<ServerIdBytes, ValueError> {
    match bytes.len() {
        1..=MAX_SERVER_ID => Ok(ServerIdBytes(bytes)),
        len => Err(format!("has {len} bytes").into()),
    }
}

fn hex_id_kind() -> ValueKind<ServerIdBytes> {
    let parse = |written: String| {
        let digits = written.strip_prefix("0x").or_else(|| written.strip_prefix("0X")).unwrap_or(&written);
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("not hexadecimal digits".into());
        }
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err("has an odd number of digits".into());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high) << 4 | digit(*low)).unwrap_or(0);
        check_id_length(pairs.iter().map(byte).collect())
    };
    text_kind(&format!("{EXPECTED_LENGTH} in hexadecimal digits, such as \"0x2a01\""), parse, ToString::to_string)
        .with_pattern("(0[xX])?([0-9A-Fa-f]{2}){1,12}")
}

fn base64_id_kind() -> ValueKind<ServerIdBytes> {
    let parse = |written: String| check_id_length(STANDARD.decode(&written).map_err(|_| "not base64")?);
    let show = |id: &ServerIdBytes| STANDARD.encode(&id.0);
    text_kind(&format!("{EXPECTED_LENGTH} in base64, such as \"KgE=\""), parse, show)
        .with_pattern("([0-9A-Za-z+/]{4}){0,4}([0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?")
}

fn address_id_kind() -> ValueKind<Ipv4Addr> {
    let parse = |written: String| {
        written.parse().map_err(|_| match written.parse::<Ipv6Addr>() {
            Ok(_) => ValueError {
                problem: "is an IPv6 address, whose 16 bytes exceed the limit".into(),
                expected: Some("an IPv4 address; or hex, with some of its bytes that no other server has".into()),
                nearest: None,
            },
            Err(_) => "not an IPv4 address".into(),
        })
    };
    text_kind("an IPv4 address, such as \"192.0.2.1\" or \"${POD_IP}\"", parse, ToString::to_string)
        .with_pattern(r"[0-9.]+")
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
            ("address = \"${POD_IP}\"", "0x0a010203", "16 bytes: rotation 0, server ID 4, nonce 11, no key"),
            ("base64 = \"AQIDBAUGBwg=\"", "0x0102030405060708", "16 bytes: rotation 0, server ID 8, nonce 7, no key"),
            ("hex = \"0x2a01\"\nrotation = 6", "0x2a01", "16 bytes: rotation 6, server ID 2, nonce 13, no key"),
            (
                "hex = \"0102030405060708090A0b0c\"",
                "0x0102030405060708090a0b0c",
                "20 bytes: rotation 0, server ID 12, nonce 7, no key",
            ),
            ("hex = \"01\"\nnonce_bytes = 18", "0x01", "20 bytes: rotation 0, server ID 1, nonce 18, no key"),
            ("hex = \"0102\"\nkey_file = \"k\"", "0x0102", "19 bytes: rotation 0, server ID 2, nonce 14, key"),
            (
                "hex = \"010203040506070809\"\nkey_file = \"k\"",
                "0x010203040506070809",
                "20 bytes: rotation 0, server ID 9, nonce 8, key",
            ),
            (
                "hex = \"010203\"\nnonce_bytes = 13\nkey_file = \"k\"",
                "0x010203",
                "19 bytes: rotation 0, server ID 3, nonce 13, key",
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
            ("rotation = 1", "address: missing; expected one of address, hex and base64"),
            (
                "address = \"192.0.2.1\"\nhex = \"01\"",
                "hex = \"01\": the server ID is in address already; expected one of",
            ),
            ("hex = \"01\"\nbase64 = \"AQ==\"", "base64 = \"AQ==\": the server ID is in hex already"),
            ("base64 = \"AQ\"", "base64 = \"AQ\": not base64; expected 1 to 12 bytes in base64"),
            ("base64 = \"\"", "has 0 bytes; expected 1 to 12 bytes"),
            ("hex = \"0x\"", "has 0 bytes; expected 1 to 12 bytes"),
            (&format!("hex = \"{long}\""), "has 13 bytes; expected 1 to 12 bytes"),
            ("hex = \"0x123\"", "an odd number of digits"),
            ("hex = \"0xgg\"", "not hexadecimal digits"),
            ("hex = \"01020304050607080910\"\nkey_file = \"k\"", "has 10 bytes; expected 1 to 9 with key_file"),
            (
                "address = \"fd00::1\"",
                "is an IPv6 address, whose 16 bytes exceed the limit; expected an IPv4 address; or hex",
            ),
            ("address = \"pod\"", "not an IPv4 address; expected an IPv4 address"),
            ("hex = \"01\"\nnonce_bytes = 6", "nonce_bytes = 6: too small; expected a number from 7 to 18"),
            (
                "hex = \"01\"\nnonce_bytes = 7\nkey_file = \"k\"",
                "nonce_bytes = 7: too small; expected at least 8 with key_file",
            ),
            (
                "hex = \"0102030405060708\"\nnonce_bytes = 12",
                "a connection ID would have 21 bytes, and 20 is the most; expected at most 11",
            ),
            (
                "hex = \"010203040506070809\"\nnonce_bytes = 9\nkey_file = \"k\"",
                "21 bytes, and 20 is the most; expected at most 8",
            ),
            ("hex = \"01\"\nrotation = 7", "rotation = 7: too large; expected a number from 0 to 6"),
            (
                "base64 = \"${AWS_LBC_QUIC_SERVER_ID}\"",
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
        let with = |idle: &str| config(&format!("hex = \"01\"\n[timeouts]\nidle = \"{idle}\""));
        assert_eq!(with("23h 59m 29s").unwrap().timeouts.idle, Duration::from_secs(86_369));
        let message = with("23h 59m 30s").unwrap_err();
        assert!(
            message.contains("idle = \"23h 59m 30s\": is not 30s shorter than the lifetime of connection IDs (1day)"),
            "{message}"
        );
    }

    #[test]
    fn a_reload_follows_all_but_the_lengths() {
        let now = config("hex = \"0102\"").unwrap();
        let changes = |next: &str| {
            let next = config(next).unwrap();
            let changes: Vec<_> = now.changes_to(&next).iter().map(ToString::to_string).collect();
            (changes.join("; "), now.apply_reload(next.clone()).listen.server_id == next.listen.server_id)
        };
        let table = [
            ("hex = \"0103\"", "listen.server_id.hex: 0x0102 → 0x0103", true),
            ("hex = \"0102\"\nrotation = 1", "listen.server_id.rotation: 0 → 1", true),
            ("base64 = \"AQI=\"", "listen.server_id.hex: 0x0102 → none; listen.server_id.base64: none → AQI=", true),
            (
                "hex = \"01\"",
                "listen.server_id: 0x0102 in 16 bytes: rotation 0, server ID 2, nonce 13, no key → 0x01 in 16 bytes: rotation 0, server ID 1, nonce 14, no key (needs a restart)",
                false,
            ),
            (
                "hex = \"0102\"\nkey_file = \"k\"",
                "listen.server_id: 0x0102 in 16 bytes: rotation 0, server ID 2, nonce 13, no key → 0x0102 in 19 bytes: rotation 0, server ID 2, nonce 14, key (needs a restart)",
                false,
            ),
        ];
        for (next, expected, followed) in table {
            assert_eq!(changes(next), (expected.to_owned(), followed), "{next}");
        }
    }
}

//! Limits of libraries: docs/reference/limits.md names each one, and a new version of a library that changes one fails here, as
//! does one that brings another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A library, and its limits as its sources have them.
struct Library {
    name: &'static str,
    /// Constants with their values. Each has a row in the document, which says what follows from it.
    documented: &'static [(&'static str, &'static str)],
    /// Constants of the same kind that limit nothing of a client or an origin: ends of ranges, defaults that litequic
    /// sets or does not use, sizes of tables.
    other: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "http",
        documented: &[
            ("MAX_LEN", "(u16::MAX - 1) as usize"),
            ("MAX_SIZE", "1 << 15"),
            ("MAX_HEADER_NAME_LEN", "(1 << 16) - 1"),
            ("MAX_SCHEME_LEN", "64"),
        ],
        // Colons of an IPv6 address; bytes of a method that need no allocation.
        other: &["MAX_COLONS", "MAX"],
    },
    Library { name: "httparse", documented: &[], other: &[] },
    Library {
        name: "hyper",
        documented: &[
            ("DEFAULT_MAX_HEADERS", "100"),
            ("MAX_URI_LEN", "(u16::MAX - 1) as usize"),
            ("TRAILER_LIMIT", "1024 * 16"),
            ("CHUNKED_EXTENSIONS_LIMIT", "1024 * 16"),
            ("DEFAULT_MAX_BUFFER_SIZE", "8192 + 4096 * 100"),
            ("MAX_LEN", "u64::MAX - 2"),
        ],
        // Of its HTTP/2, which is not compiled, of windows that litequic sets, of buffers that are written at once.
        other: &[
            "BDP_LIMIT",
            "CHUNK_SIZE_MAX_BYTES",
            "DEFAULT_INITIAL_MAX_SEND_STREAMS",
            "DEFAULT_MAX_FRAME_SIZE",
            "DEFAULT_MAX_HEADER_LIST_SIZE",
            "DEFAULT_MAX_LOCAL_ERROR_RESET_STREAMS",
            "DEFAULT_MAX_SEND_BUF_SIZE",
            "DEFAULT_SETTINGS_MAX_HEADER_LIST_SIZE",
            "MAX_BUF_LIST_BUFFERS",
            "MAX_WRITEV_BUFS",
            "MINIMUM_MAX_BUFFER_SIZE",
        ],
    },
    Library {
        name: "h2",
        documented: &[
            ("DEFAULT_REMOTE_RESET_STREAM_MAX", "20"),
            ("DEFAULT_LOCAL_RESET_COUNT_MAX", "1024"),
            ("DEFAULT_RESET_STREAM_MAX", "50"),
            ("DEFAULT_SETTINGS_MAX_HEADER_LIST_SIZE", "16 << 20"),
            ("MAX_HEADER_LIST_ABUSE_MULTIPLIER", "4"),
            ("DEFAULT_DATA_FRAME_BUDGET", "DEFAULT_DATA_FRAME_OVERHEAD_THRESHOLD * 100"),
            ("MAX_RECV_EMPTY_DATA_FRAMES", "100"),
            ("DEFAULT_SETTINGS_HEADER_TABLE_SIZE", "4_096"),
            ("DEFAULT_MAX_FRAME_SIZE", "16_384"),
        ],
        // Ends of ranges of RFC 9113 and RFC 7541; a send buffer that litequic sets.
        other: &[
            "DEFAULT_MAX_ALLOWED_SIZE",
            "DEFAULT_MAX_SEND_BUFFER_SIZE",
            "MAX_BYTES",
            "MAX_INITIAL_WINDOW_SIZE",
            "MAX_MAX_FRAME_SIZE",
            "MAX_SIZE",
            "MAX_WINDOW_SIZE",
        ],
    },
    Library {
        name: "rustls",
        documented: &[
            ("DEFAULT_BUFFER_LIMIT", "64 * 1024"),
            ("CERTIFICATE_MAX_SIZE_LIMIT", "0x1_0000"),
            ("MAX_HANDSHAKE_SIZE", "0xffff"),
            ("MAX_FRAGMENT_LEN", "16384"),
            ("ALLOWED_CONSECUTIVE_EMPTY_FRAGMENTS_MAX", "32"),
            ("DEFAULT_RECEIVED_PLAINTEXT_LIMIT", "16 * 1024"),
        ],
        // Sizes of records, keys and signed messages; of clients.
        other: &[
            "MAX_FRAGMENT_SIZE",
            "MAX_LEN",
            "MAX_PAYLOAD",
            "MAX_TLS13_TICKETS_PER_SERVER",
            "MAX_VERIFY_MSG",
            "MAX_WIRE_SIZE",
            "SEQ_HARD_LIMIT",
            "SEQ_SOFT_LIMIT",
        ],
    },
    Library {
        name: "s2n-quic-core",
        documented: &[
            ("MAX_HANDSHAKE_DURATION_DEFAULT", "Duration::from_secs(10)"),
            ("RECOMMENDED_RANGES_LIMIT", "10"),
            ("DEFAULT_STREAM_MAX_SEND_BUFFER_SIZE", "4096 * 1024"),
        ],
        // Of congestion control, connection IDs and other parts that litequic replaces or does not use; ends of ranges.
        other: &[
            "DESTINATION_CONNECTION_ID_MAX_LEN",
            "DC_SUPPORTED_VERSIONS_MAX_LEN",
            "INITIAL_WINDOW_LIMIT",
            "MAX_BLOCKED_PORT",
            "MAX_BURST_MULTIPLIER",
            "MAX_BURST_PACKETS",
            "MAX_BW_PROBE_ROUNDS",
            "MAX_BW_PROBE_UP_ROUNDS",
            "MAX_DELAY_THRESHOLD",
            "MAX_KEEP_ALIVE_PERIOD_DEFAULT",
            "MAX_LEN",
            "MAX_LIFETIME",
            "MAX_PROBES",
            "MAX_PTO_JITTER_PERCENTAGE",
            "MAX_STATELESS_RESET_TOKEN_COUNT",
            "MAX_THROTTLED_PORT",
            "MAX_VARINT_VALUE",
            "MEASURES_RECOVERY_METRICS__MAX_ACK_DELAY",
            "MINIMUM_MAX_DATAGRAM_SIZE",
            "RECOVERY_METRICS__MAX_ACK_DELAY",
            "SOURCE_CONNECTION_ID_MAX_LEN",
            "U16_MAX",
            "U24_MAX",
            "U32_MAX",
            "U8_MAX",
        ],
    },
    Library {
        name: "s2n-quic-transport",
        documented: &[
            ("MAX_ALLOWED_PATHS", "5"),
            ("ACTIVE_CONNECTION_ID_LIMIT", "3"),
            ("RETIRED_CONNECTION_ID_LIMIT", "ACTIVE_CONNECTION_ID_LIMIT * 2"),
            ("MAX_ACTIVE_CONNECTION_ID_LIMIT", "3"),
            ("MAX_CRYPTO_BUFFER_SIZE", "128 * 1024"),
            ("MAX_HELLO_SIZE", "2 << 16"),
        ],
        // Capacities at the start, and how often a flow-control frame is sent.
        other: &[
            "DEFAULT_MAX_PEERS",
            "MAX_RETRANSMISSIONS",
            "MAX_STREAMS_MAX_VALUE",
            "MAX_STREAMS_SYNC_FRACTION",
            "TX_MAX_BUFFER_CAPACITY",
        ],
    },
    Library {
        name: "s2n-quic",
        documented: &[("THROTTLED_PORT_LIMIT", "10")],
        // Retry tokens that are remembered: litequic has its own.
        other: &["MAX_ENTRIES"],
    },
];

/// Where the sources of the libraries are, at the versions of Cargo.lock.
fn sources() -> BTreeMap<String, PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--offline", "--format-version", "1"]);
    // Libraries of other systems are not fetched.
    command.args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if LIBRARIES.iter().any(|library| library.name == name) {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let before = found.insert(name.to_owned(), manifest.parent().unwrap().join("src"));
            assert!(before.is_none(), "two versions of {name}");
        }
    }
    found
}

/// The numbers and durations among the constants of the sources in `folder` whose names say that they limit something,
/// each with its values; without tests.
fn limits(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.contains("test") || name.contains("fuzz") || name.contains("simulation") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                for (name, value) in without_tests(&text).split(';').filter_map(constant) {
                    found.entry(name).or_default().insert(value);
                }
            }
        }
    }
    found
}

/// `text` before its module of tests.
fn without_tests(text: &str) -> &str {
    let mut begins = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
    let is_here = |at: &usize| text[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{'));
    begins.find(is_here).map_or(text, |at| &text[..at])
}

/// Name and value of the constant at the end of `text`, a piece of source before a semicolon.
fn constant(text: &str) -> Option<(String, String)> {
    let (_, declaration) = text.rsplit_once("const ")?;
    let (name, rest) = declaration.split_once(':')?;
    let (kind, value) = rest.split_once('=')?;
    let limits = ["MAX", "LIMIT"].iter().any(|part| name.split('_').any(|of| of == *part));
    let documented = LIBRARIES.iter().flat_map(|library| library.documented).any(|(documented, _)| *documented == name);
    let numbers = ["usize", "u8", "u16", "u32", "u64", "Duration", "VarInt", "WindowSize", "FrameSize"];
    let is_limit = (limits || documented) && numbers.contains(&kind.trim());
    is_limit.then(|| (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
}

#[test]
fn the_document_lists_the_limits_of_libraries() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/limits.md")).unwrap();
    let rows: BTreeSet<(String, String)> = document
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.to_owned(), cells.next()?.trim_matches('`').to_owned()))
        })
        .collect();
    let sources = sources();
    let mut wrong = Vec::new();
    for Library { name, documented, other } in LIBRARIES {
        let found = limits(&sources[*name]);
        for (limit, value) in *documented {
            match found.get(*limit) {
                Some(values) if values.iter().any(|found| found == value) => {}
                Some(values) => wrong.push(format!("{name}: {limit} is {values:?} instead of {value}")),
                None => wrong.push(format!("{name}: {limit} is no more")),
            }
            if !rows.contains(&((*name).to_owned(), (*limit).to_owned())) {
                wrong.push(format!("docs/reference/limits.md has no row `| {name} | `{limit}` | …`"));
            }
        }
        for (limit, values) in found {
            let known = documented.iter().any(|(known, _)| *known == limit) || other.contains(&&*limit);
            if !known {
                wrong.push(format!("{name}: {limit} = {values:?} is new: document it, or list it among the others"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

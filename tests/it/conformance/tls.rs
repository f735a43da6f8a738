//! The handshake and transport parameters: RFC 9001 and RFC 9000 §18. Each ClientHello takes two datagrams.

use super::{
    attempt,
    row::{
        Answer::{self, Served, Transport},
        Row,
    },
};
use crate::support::{
    raw::varint,
    wire::{Hello, Level, Sent, crypto},
};
use quinn::rustls::quic::Version;

// RFC 9000 §20.1; CRYPTO_ERROR and the alert of RFC 8446 §6 (RFC 9001 §4.8)
const TRANSPORT_PARAMETER_ERROR: Answer = Transport(0x08);
const PROTOCOL_VIOLATION: Answer = Transport(0x0a);
const UNEXPECTED_MESSAGE: Answer = Transport(0x10a);
const ILLEGAL_PARAMETER: Answer = Transport(0x12f);
const DECODE_ERROR: Answer = Transport(0x132);
const DECRYPT_ERROR: Answer = Transport(0x133);
const PROTOCOL_VERSION: Answer = Transport(0x146);
const MISSING_EXTENSION: Answer = Transport(0x16d);
const NO_APPLICATION_PROTOCOL: Answer = Transport(0x178);

/// Why another code stands for one of its own.
/// TLS' numbers of extensions.
const SUPPORTED_VERSIONS: u16 = 0x2b;
const TRANSPORT_PARAMETERS: u16 = 0x39;
/// One that means nothing (RFC 8701).
const RESERVED: u16 = 0x1a1a;

/// Where the session ID's length stands in a ClientHello.
const SESSION_ID: usize = 4 + 2 + 32;

/// Names the extension `from` something that means nothing.
fn hide(hello: &mut [u8], from: u16) {
    let word = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    let mut at = SESSION_ID + 1 + usize::from(hello[SESSION_ID]);
    at += 2 + word(at);
    at += 1 + usize::from(hello[at]);
    at += 2;
    while word(at) != usize::from(from) {
        at += 4 + word(at + 2);
    }
    hello[at..at + 2].copy_from_slice(&RESERVED.to_be_bytes());
}

/// Changes the ClientHello's length, and puts in a session ID of TLS 1.2's kind.
fn insert_session_id(hello: &mut Vec<u8>) {
    let length = u32::from_be_bytes([0, hello[1], hello[2], hello[3]]) + 32;
    hello[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
    assert_eq!(std::mem::replace(&mut hello[SESSION_ID], 32), 0);
    hello.splice(SESSION_ID + 1..SESSION_ID + 1, [7; 32]);
}

pub(super) fn hellos() -> Vec<Row> {
    let edited = |rule, what, edit: fn(&mut Vec<u8>), expected| {
        Row::hello(rule, what, move |hello: &mut Hello| hello.edit = edit, expected)
    };
    vec![
        Row::hello("9001 §8.1", "no ALPN", |hello| hello.tls.alpn_protocols.clear(), NO_APPLICATION_PROTOCOL),
        Row::hello(
            "9001 §8.1",
            "ALPN without h3",
            |hello| hello.tls.alpn_protocols = vec![b"hq-interop".to_vec()],
            NO_APPLICATION_PROTOCOL,
        ),
        edited("9001 §8.2", "no transport parameters", |hello| hide(hello, TRANSPORT_PARAMETERS), MISSING_EXTENSION),
        Row::hello(
            "9001 §8.2",
            "transport parameters by the drafts' codepoint 0xffa5",
            |hello| hello.codepoint = Version::V1Draft,
            MISSING_EXTENSION,
        ),
        edited("9001 §4.2", "a TLS version below 1.3", |hello| hide(hello, SUPPORTED_VERSIONS), PROTOCOL_VERSION),
        edited("8446 §4", "a first message that is no ClientHello", |hello| hello[0] = 11, UNEXPECTED_MESSAGE)
            .instead(DECODE_ERROR, "rustls finds first that it does not parse as what its type says"),
        edited(
            "8446 §4.1.2",
            "compression",
            |hello| {
                let suites = SESSION_ID + 1;
                let compression = suites + 2 + usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
                hello[compression + 1] = 1;
            },
            ILLEGAL_PARAMETER,
        ),
        edited("8446 §6.2", "a ClientHello cut within", |hello| hello[SESSION_ID] = 200, DECODE_ERROR),
        edited("9001 §8.4", "a session ID, which only should be an error", insert_session_id, PROTOCOL_VIOLATION),
    ]
}

pub(super) fn messages() -> Vec<Row> {
    let halfway = |rule, what, message: &[u8], expected| {
        Row::halfway(rule, what, Sent::new(Level::Handshake, crypto(0, message)), expected)
    };
    let confirmed = |rule, what, message: &[u8], expected| Row::frames(rule, what, crypto(0, message), expected);
    let finished = [&[20, 0, 0, 32][..], &[7; 32]].concat();
    vec![
        halfway("9001 §6", "KeyUpdate within the handshake", &[24, 0, 0, 1, 0], UNEXPECTED_MESSAGE),
        halfway("9001 §8.3", "EndOfEarlyData", &[5, 0, 0, 0], UNEXPECTED_MESSAGE),
        halfway("8446 §4.4.4", "a Finished that is wrong", &finished, DECRYPT_ERROR),
        halfway("8446 §4.4.2", "a Certificate that was not asked for", &[11, 0, 0, 4, 0, 0, 0, 0], UNEXPECTED_MESSAGE),
        Row::halfway(
            "9001 §4.1.3",
            "CRYPTO behind the end of an earlier level",
            Sent::new(Level::Initial, crypto(20_000, b"x")),
            PROTOCOL_VIOLATION,
        ),
        confirmed("9001 §6", "KeyUpdate", &[24, 0, 0, 1, 0], UNEXPECTED_MESSAGE),
        confirmed("9001 §6", "KeyUpdate that asks for another", &[24, 0, 0, 1, 1], UNEXPECTED_MESSAGE),
        confirmed("9001 §6", "the beginning of a KeyUpdate", &[24], UNEXPECTED_MESSAGE),
        confirmed("8446 §4", "Finished after the handshake", &finished, UNEXPECTED_MESSAGE),
        confirmed("9001 §4.4", "a Certificate after the handshake", &[11, 0, 0, 4, 0, 0, 0, 0], UNEXPECTED_MESSAGE),
        confirmed("8446 §4.6.1", "NewSessionTicket from a client", &[4, 0, 0, 1, 0], UNEXPECTED_MESSAGE),
        Row::frames(
            "9001 §4.1.3",
            "CRYPTO after the handshake that begins far ahead",
            crypto(1 << 20, b"x"),
            UNEXPECTED_MESSAGE,
        ),
        confirmed("9000 §19.6", "CRYPTO without data, which is no error", &[], Served),
    ]
}

pub(super) fn parameters() -> Vec<Row> {
    let with = |rule, what: &str, id: u64, value: Vec<u8>, expected| {
        Row::hello(rule, what, move |hello: &mut Hello| hello.set(id, value.clone()), expected)
    };
    let number = |what: &str, id, value, expected| with("9000 §18.2", what, id, varint(value), expected);
    let twice = |what: &str, id: u64, value: Vec<u8>| {
        Row::hello(
            "9000 §7.4",
            format!("{what} twice"),
            move |hello: &mut Hello| {
                hello.set(id, value.clone());
                let again = hello.parameters.last().unwrap().clone();
                hello.parameters.push(again);
            },
            TRANSPORT_PARAMETER_ERROR,
        )
    };
    let mut rows = vec![
        Row::hello(
            "9000 §7.3",
            "no initial_source_connection_id",
            |hello| hello.parameters.retain(|(id, _)| *id != 0x0f),
            TRANSPORT_PARAMETER_ERROR,
        ),
        with("9000 §7.3", "another initial_source_connection_id", 0x0f, vec![1; 8], TRANSPORT_PARAMETER_ERROR),
        with(
            "9000 §18.2",
            "original_destination_connection_id from a client",
            0x00,
            vec![1; 8],
            TRANSPORT_PARAMETER_ERROR,
        ),
        with("9000 §18.2", "stateless_reset_token from a client", 0x02, vec![1; 16], TRANSPORT_PARAMETER_ERROR),
        with(
            "9000 §18.2",
            "preferred_address from a client",
            0x0d,
            [vec![1; 24], vec![8], vec![1; 24]].concat(),
            TRANSPORT_PARAMETER_ERROR,
        ),
        with("9000 §18.2", "retry_source_connection_id from a client", 0x10, vec![1; 8], TRANSPORT_PARAMETER_ERROR),
        number("max_udp_payload_size of 1199", 0x03, 1199, TRANSPORT_PARAMETER_ERROR),
        number("max_udp_payload_size of 1200", 0x03, 1200, Served),
        number("max_udp_payload_size of 65527", 0x03, 65_527, Served),
        number("max_udp_payload_size of 65528, which is no error", 0x03, 65_528, Served)
            .instead(TRANSPORT_PARAMETER_ERROR, "s2n-quic refuses what no UDP datagram can carry"),
        number("ack_delay_exponent of 21", 0x0a, 21, TRANSPORT_PARAMETER_ERROR),
        number("ack_delay_exponent of 20", 0x0a, 20, Served),
        number("max_ack_delay of 2^14 + 1", 0x0b, (1 << 14) + 1, TRANSPORT_PARAMETER_ERROR),
        number("max_ack_delay of 2^14", 0x0b, 1 << 14, TRANSPORT_PARAMETER_ERROR),
        number("active_connection_id_limit of 1", 0x0e, 1, TRANSPORT_PARAMETER_ERROR),
        number("active_connection_id_limit of 0", 0x0e, 0, TRANSPORT_PARAMETER_ERROR),
        number("initial_max_streams_bidi above 2^60", 0x08, (1 << 60) + 1, TRANSPORT_PARAMETER_ERROR),
        number("initial_max_streams_uni above 2^60", 0x09, (1 << 60) + 1, TRANSPORT_PARAMETER_ERROR),
        with("9000 §18.2", "disable_active_migration with a value", 0x0c, vec![1], TRANSPORT_PARAMETER_ERROR),
        with("9000 §18", "an integer and more behind it", 0x04, vec![1, 1], TRANSPORT_PARAMETER_ERROR),
        with("9000 §18", "an integer that is cut short", 0x04, vec![0x40], TRANSPORT_PARAMETER_ERROR),
        with("9000 §18", "an integer that is not there", 0x01, vec![], TRANSPORT_PARAMETER_ERROR),
        with("9000 §18.2", "initial_source_connection_id of 21 bytes", 0x0f, vec![1; 21], TRANSPORT_PARAMETER_ERROR),
        with("9000 §18.1", "a reserved parameter, to be ignored", 27 + 31 * 9, vec![1, 2, 3], Served),
        with("9000 §7.4.2", "an unknown parameter, to be ignored", 0x7777, vec![1, 2, 3], Served),
    ];
    for (what, id) in [
        ("max_idle_timeout", 0x01),
        ("max_udp_payload_size", 0x03),
        ("initial_max_data", 0x04),
        ("initial_max_stream_data_bidi_local", 0x05),
        ("initial_max_stream_data_bidi_remote", 0x06),
        ("initial_max_stream_data_uni", 0x07),
        ("initial_max_streams_bidi", 0x08),
        ("initial_max_streams_uni", 0x09),
        ("ack_delay_exponent", 0x0a),
        ("max_ack_delay", 0x0b),
        ("active_connection_id_limit", 0x0e),
    ] {
        rows.push(twice(what, id, varint(if id == 0x03 { 1400 } else { 5 })));
    }
    rows.push(twice("disable_active_migration", 0x0c, Vec::new()));
    rows.push(
        twice("a reserved parameter", 27 + 31 * 9, vec![1])
            .instead(Served, "s2n-quic skips unknown parameters, however often; they are not read"),
    );
    rows.push(Row::hello(
        "9000 §7.4",
        "initial_source_connection_id twice",
        |hello| {
            let first = hello.parameters[0].clone();
            hello.parameters.push(first);
        },
        TRANSPORT_PARAMETER_ERROR,
    ));
    rows
}

#[tokio::test]
async fn client_hellos_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(hellos()).await;
}

#[tokio::test]
async fn tls_messages_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(messages()).await;
}

#[tokio::test]
async fn transport_parameters_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(parameters()).await;
}

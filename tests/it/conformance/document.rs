//! The tables as a document: docs/reference/conformance.md.

use super::{
    http3, qpack,
    row::{Answer, Row},
    tls, transport,
};
use crate::{support::prelude::*, tcp::priorities};

const HEAD: &str = "\
# Protocol errors

Made from `tests/it/conformance/` and `tests/it/tcp/priorities.rs`, which try each row: a rule to which RFC 9000, 9001, 9114, 9204 or 9218 attach an error code (and
of other RFCs what concerns them), how a client breaks it, what litequic answers, and, where the RFC wants another answer,
which and why. `LITEQUIC_RENEW=1 cargo test --test it conformance::document` renews it.
";

/// The name of an error code of QUIC (RFC 9000 §20.1, RFC 9001 §4.8).
fn transport_error(code: u64) -> String {
    let name = match code {
        0x03 => "FLOW_CONTROL_ERROR",
        0x04 => "STREAM_LIMIT_ERROR",
        0x05 => "STREAM_STATE_ERROR",
        0x06 => "FINAL_SIZE_ERROR",
        0x07 => "FRAME_ENCODING_ERROR",
        0x08 => "TRANSPORT_PARAMETER_ERROR",
        0x09 => "CONNECTION_ID_LIMIT_ERROR",
        0x0a => "PROTOCOL_VIOLATION",
        0x0d => "CRYPTO_BUFFER_EXCEEDED",
        0x10a => "CRYPTO_ERROR unexpected_message",
        0x12f => "CRYPTO_ERROR illegal_parameter",
        0x132 => "CRYPTO_ERROR decode_error",
        0x133 => "CRYPTO_ERROR decrypt_error",
        0x146 => "CRYPTO_ERROR protocol_version",
        0x16d => "CRYPTO_ERROR missing_extension",
        0x178 => "CRYPTO_ERROR no_application_protocol",
        other => panic!("{other:#x} has no name here"),
    };
    name.to_owned()
}

/// The name of an error code of HTTP/3 (RFC 9114 §8.1, RFC 9204 §6).
fn http3_error(code: u64) -> &'static str {
    match code {
        0x103 => "H3_STREAM_CREATION_ERROR",
        0x104 => "H3_CLOSED_CRITICAL_STREAM",
        0x105 => "H3_FRAME_UNEXPECTED",
        0x106 => "H3_FRAME_ERROR",
        0x108 => "H3_ID_ERROR",
        0x109 => "H3_SETTINGS_ERROR",
        0x10a => "H3_MISSING_SETTINGS",
        0x10c => "H3_REQUEST_CANCELLED",
        0x10d => "H3_REQUEST_INCOMPLETE",
        0x10e => "H3_MESSAGE_ERROR",
        0x200 => "QPACK_DECOMPRESSION_FAILED",
        0x201 => "QPACK_ENCODER_STREAM_ERROR",
        0x202 => "QPACK_DECODER_STREAM_ERROR",
        other => panic!("{other:#x} has no name here"),
    }
}

fn name(answer: Answer) -> String {
    match answer {
        Answer::Transport(code) => transport_error(code),
        Answer::Http3(code) => http3_error(code).to_owned(),
        Answer::Stream(code) => format!("{}, of the stream", http3_error(code)),
        Answer::Served => "none, the connection goes on".to_owned(),
        Answer::Silence => "silence".to_owned(),
    }
}

fn table(title: &str, mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| row.instead.is_none());
    let rows = rows.iter().map(|row| {
        let note = row.instead.map(|(_, reason)| format!("rather than {}: {reason}", name(row.expected)));
        format!("| {} | {} | {} | {} |\n", row.rule, row.what, name(row.awaited()), note.unwrap_or_default())
    });
    format!("\n## {title}\n\n| RFC | client | litequic | note |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

/// The table of PRIORITY_UPDATE frames over HTTP/2.
fn http2_updates() -> String {
    let rows = priorities::updates().into_iter().map(|(rule, what, _, expected)| {
        let answer = match expected {
            None => "none, the connection goes on",
            Some(1) => "PROTOCOL_ERROR",
            Some(6) => "FRAME_SIZE_ERROR",
            Some(other) => panic!("{other:#x} has no name here"),
        };
        format!("| {rule} | {what} | {answer} |\n")
    });
    let head = "| RFC | client | litequic |\n|---|---|---|\n";
    format!("\n## PRIORITY_UPDATE frames over HTTP/2\n\n{head}{}", rows.collect::<String>())
}

#[test]
fn the_document_has_the_rows_that_are_tried() {
    let tables = [
        ("Packets", transport::packets()),
        ("Encoding of frames", transport::encoding()),
        ("Frames", transport::frames()),
        ("Frames of streams", transport::streams()),
        ("ClientHello", tls::hellos()),
        ("TLS messages", tls::messages()),
        ("Transport parameters", tls::parameters()),
        ("Control stream", http3::control_stream()),
        ("Streams", [http3::streams(), http3::resets()].into_iter().flatten().collect()),
        ("Request streams", http3::request_streams()),
        ("Malformed requests", http3::messages()),
        ("Field sections", qpack::field_sections()),
        ("QPACK instructions", qpack::instructions()),
    ];
    let tables = tables.into_iter().map(|(title, rows)| table(title, rows));
    let text = format!("{HEAD}{}{}", tables.collect::<String>(), http2_updates());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/conformance.md");
    if env::var_os("LITEQUIC_RENEW").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let shown = fs::read_to_string(path).unwrap_or_default();
    assert!(
        shown == text,
        "LITEQUIC_RENEW=1 cargo test --test it conformance::document renews docs/reference/conformance.md"
    );
}

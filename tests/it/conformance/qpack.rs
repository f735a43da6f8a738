//! Field compression: RFC 9204.

use super::{
    attempt,
    row::{
        Answer::{self, Http3, Served},
        Row,
    },
};
use crate::support::{
    raw::{HEADERS, frame},
    wire::stream,
};

// RFC 9204 §6
const DECOMPRESSION_FAILED: Answer = Http3(0x200);
const ENCODER_STREAM_ERROR: Answer = Http3(0x201);
const DECODER_STREAM_ERROR: Answer = Http3(0x202);

/// The client's first stream of its own, one way, and its types (§4.2).
const UNI: u64 = 2;
const ENCODER: u8 = 0x02;
const DECODER: u8 = 0x03;

/// A request whose field section is `bytes`.
fn section(rule: &'static str, what: &str, bytes: &[u8], expected: Answer) -> Row {
    Row::frames(rule, what, stream(0, 0, &frame(HEADERS, bytes), true), expected)
}

pub(super) fn field_sections() -> Vec<Row> {
    // `:method: GET`, `:scheme: https`, `:path: /`, all by the static table; `:authority` behind.
    let sound = [&[0, 0, 0xd1, 0xd7, 0xc1, 0x50, 9][..], b"localhost"].concat();
    let with = |what: &str, more: &[u8]| section("9204 §2.2", what, &[&sound[..], more].concat(), DECOMPRESSION_FAILED);
    vec![
        section("9204 §4.5", "a field section as it should be", &sound, Served),
        section("9204 §4.5.1.1", "a Required Insert Count that is too large", &[1, 0, 0xd1], DECOMPRESSION_FAILED),
        section("9204 §4.5.1.1", "a Required Insert Count that does not end", &[0xff; 12], DECOMPRESSION_FAILED),
        section("9204 §4.5.1.2", "a Base below 0", &[0, 0x80, 0xd1], DECOMPRESSION_FAILED),
        section("9204 §4.5.1", "a prefix that is cut", &[0], DECOMPRESSION_FAILED),
        section("9204 §4.5.1", "an empty section", &[], DECOMPRESSION_FAILED),
        with("an index of the static table that it does not have", &[0xff, 99 - 63]),
        with("a name's index of the static table that it does not have", &[0x5f, 99 - 15, 1, b'x']),
        with("an index of the dynamic table", &[0x80]),
        with("a name's index of the dynamic table", &[0x40, 1, b'x']),
        with("an index of the dynamic table behind the Base", &[0x10]),
        with("a name's index of the dynamic table behind the Base", &[0x00, 1, b'x']),
        with("a name that is cut", &[0x27, 9, b'x']),
        with("a value that is cut", &[0x21, b'x', 9, b'x']),
        with("an integer that does not fit", &[&[0x27][..], &[0xff; 12]].concat()),
        with("Huffman with EOS", &[0x21, b'x', 0x84, 0xff, 0xff, 0xff, 0xff]),
        with("Huffman with padding of more than 7 bits", &[0x21, b'x', 0x82, 0x1f, 0xff]),
        with("Huffman with padding of zeros", &[0x21, b'x', 0x81, 0x18]),
    ]
}

pub(super) fn instructions() -> Vec<Row> {
    let of = |rule, what: &str, kind: u8, bytes: &[u8], expected| {
        Row::frames(rule, what, stream(UNI, 0, &[&[kind], bytes].concat(), false), expected)
    };
    let encoder = |rule, what: &str, bytes: &[u8]| of(rule, what, ENCODER, bytes, ENCODER_STREAM_ERROR);
    let decoder = |rule, what: &str, bytes: &[u8]| of(rule, what, DECODER, bytes, DECODER_STREAM_ERROR);
    vec![
        of("9204 §4.3.1", "a capacity of 0, which is no error", ENCODER, &[0x20], Served),
        encoder("9204 §4.3.1", "a capacity above litequic's", &[0x21]),
        encoder("9204 §3.2.2", "an insertion with a static name", &[0xc0, 1, b'x']),
        encoder("9204 §4.3.2", "an insertion with a dynamic name that is not there", &[0x80, 1, b'x']),
        encoder("9204 §3.2.2", "an insertion with a literal name", &[0x41, b'x', 1, b'x']),
        encoder("9204 §4.3.4", "a duplicate of what is not there", &[0x00]),
        decoder("9204 §4.4.3", "an Insert Count Increment of 0", &[0x00]),
        decoder("9204 §4.4.3", "an Insert Count Increment beyond what was sent", &[0x01]),
        decoder("9204 §4.4.1", "an acknowledgement of a section that needs none", &[0x80]),
        decoder("9204 §4.4", "an integer that does not fit", &[0xff; 12]),
        of("9204 §4.4.2", "a stream's cancellation, which is no error", DECODER, &[0x40], Served),
    ]
}

#[tokio::test]
async fn field_sections_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(field_sections()).await;
}

#[tokio::test]
async fn qpack_instructions_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(instructions()).await;
}

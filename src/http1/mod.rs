//! HTTP/1.1 messages (RFC 9112) as bytes: the heads of responses, how bodies are delimited, chunks, and the text of
//! requests. The connections to origins and the health checks are built on it, and the guard of HTTP/1.1 clients uses
//! its chunks. Pure: it knows no socket, clock or task, and no type for heads; callers make their own from slices.

mod body;
mod chunks;
mod request;
mod response;

pub use body::{BodyDecoder, BodyPiece, Trailers};
pub use chunks::{ChunkLimits, Chunks, SMALL};
pub use request::{CHUNK_END, LAST_CHUNK, add_field, chunk_line, write_fields, write_head};
pub use response::{HeadError, HeadLines, MAX_FIELDS, MAX_HEAD, ParsedHead, ResponseFraming, is_unfinished, parse};

/// The bytes of a token (RFC 9110 §5.6.2).
#[expect(clippy::indexing_slicing, reason = "while compiling, and within the table")]
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// Whether `byte` is allowed in a token: in a field's name, a method, a protocol's name.
pub fn is_token_byte(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)) == Some(&true)
}

//! Parses and writes HTTP/1.1 messages (RFC 9112): heads of responses, body framing, chunks, and requests. Connections
//! to origins and health checks use the whole module, the guard of HTTP/1.1 clients its chunks. Pure: no socket, clock
//! or task, and no type for heads; callers make their own from slices.

mod body_decoder;
mod chunk_decoder;
mod request_writer;
mod response_parser;
mod token;

pub use body_decoder::{BodyDecoder, BodyPiece, ChunkedTrailers};
pub use chunk_decoder::{ChunkDecoder, ChunkLimits, SMALL_CHUNK};
pub use request_writer::{
    CHUNK_END, LAST_CHUNK, append_head_field, format_chunk_line, write_fields, write_request_head,
};
pub use response_parser::{
    HeadError, HeadLines, MAX_FIELDS, MAX_HEAD, ParsedHead, ResponseFraming, is_head_incomplete, parse_response_head,
};
pub use token::{is_name_ignoring_case, is_token_byte};

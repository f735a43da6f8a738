//! HTTP/1.1 messages (RFC 9112) as bytes: the heads of responses, how bodies are delimited, chunks, and the text of
//! requests. The connections to origins and the health checks are built on it, and the guard of HTTP/1.1 clients uses
//! its chunks. Pure: it knows no socket, clock or task, and no type for heads; callers make their own from slices.

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

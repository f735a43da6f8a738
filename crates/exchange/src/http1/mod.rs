//! Parses and writes HTTP/1.1 messages (RFC 9112): heads, body framing and chunks, of requests and responses.
//! Connections to origins, health checks and the guard of HTTP/1.1 clients use the module. Pure: no socket, clock or
//! task, and no type for fields; callers make their own from slices.

mod body_decoder;
mod chunk_decoder;
mod message_framing;
mod request_parser;
mod request_writer;
mod response_parser;
mod token;

pub use body_decoder::{BodyDecoder, BodyPiece, ChunkedTrailers};
pub use chunk_decoder::SMALL_CHUNK;
pub use message_framing::MessageFraming;
pub use request_parser::{RequestHead, parse_request_head};
pub use request_writer::{
    CHUNK_END, LAST_CHUNK, append_head_field, format_chunk_line, write_fields, write_request_head,
};
pub use response_parser::{
    HeadError, HeadLines, MAX_FIELDS, MAX_HEAD, ParsedHead, RESPONSE_LIMITS, has_head_end, is_head_incomplete,
    parse_response_head,
};
pub use token::{is_name_ignoring_case, is_token_byte};

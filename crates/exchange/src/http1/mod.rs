//! HTTP/1.1 messages (RFC 9112) as bytes: the heads of responses, how bodies are delimited, chunks, and the text of
//! requests. The connections to origins and the health checks are built on it, and the guard of HTTP/1.1 clients uses
//! its chunks. Pure: it knows no socket, clock or task, and no type for heads; callers make their own from slices.

mod body;
mod chunks;
mod request;
mod response;
mod token;

pub use body::{BodyDecoder, BodyPiece, Trailers};
pub use chunks::{ChunkLimits, Chunks, SMALL};
pub use request::{CHUNK_END, LAST_CHUNK, add_field, chunk_line, write_fields, write_head};
pub use response::{HeadError, HeadLines, MAX_FIELDS, MAX_HEAD, ParsedHead, ResponseFraming, is_unfinished, parse};
pub use token::{is_in_any_case, is_token_byte};

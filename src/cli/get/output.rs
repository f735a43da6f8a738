//! Writes a response without blocking the runtime, so that a reader that pauses does not keep QUIC from answering the
//! server. Each piece is written as soon as no further data has arrived.

use super::get_error::GetError;
use http::{HeaderMap, Response};
use std::{io, path::PathBuf};
use tokio::{
    fs::File,
    io::{AsyncWrite, AsyncWriteExt, BufWriter},
};

/// Number of bytes that are gathered before they are written.
const FLUSH_SIZE: usize = 64 * 1024;

/// Output of header and body to standard output, or of the body alone to a file.
pub(super) struct ResponseOutput {
    to: BufWriter<Box<dyn AsyncWrite + Unpin>>,
    name: String,
    headers: bool,
}

const STDOUT: &str = "standard output";

impl ResponseOutput {
    /// Opens `file`, or standard output. `headers` writes headers to a file, too; standard output without a named file
    /// always has them.
    pub(super) async fn open_output(file: Option<&PathBuf>, headers: bool) -> Result<Self, GetError> {
        let named = file.filter(|file| file.as_os_str() != "-");
        let name = named.map_or_else(|| STDOUT.into(), |file| file.display().to_string());
        let to: Box<dyn AsyncWrite + Unpin> = match named {
            Some(file) => {
                let failed = |source| GetError::Output { to: name.clone(), source };
                Box::new(File::create(file).await.map_err(failed)?)
            }
            None => Box::new(tokio::io::stdout()),
        };
        Ok(Self { to: BufWriter::with_capacity(FLUSH_SIZE, to), headers: headers || file.is_none(), name })
    }

    pub(super) async fn write_response_head(&mut self, response: &Response<()>) -> Result<(), GetError> {
        self.write_fields(&format!("HTTP/3 {}\n", response.status()), response.headers(), "\n").await
    }

    pub(super) async fn write_trailers(&mut self, trailers: &HeaderMap) -> Result<(), GetError> {
        self.write_fields("\n", trailers, "").await
    }

    async fn write_fields(&mut self, before: &str, fields: &HeaderMap, after: &str) -> Result<(), GetError> {
        if !self.headers {
            return Ok(());
        }
        let mut lines = before.as_bytes().to_vec();
        for (name, value) in fields {
            lines.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
        lines.extend(after.as_bytes());
        self.write_bytes(&lines).await
    }

    pub(super) async fn write_bytes(&mut self, data: &[u8]) -> Result<(), GetError> {
        self.to.write_all(data).await.map_err(|source| GetError::Output { to: self.name.clone(), source })
    }

    /// Writes the gathered bytes, and waits until the reader has them.
    pub(super) async fn flush_output(&mut self) -> Result<(), GetError> {
        self.to.flush().await.map_err(|source| GetError::Output { to: self.name.clone(), source })
    }
}

/// Whether the reader of standard output closed its end: `| head`.
pub(super) fn reader_is_gone(error: &GetError) -> bool {
    matches!(error, GetError::Output { to, source } if to == STDOUT && source.kind() == io::ErrorKind::BrokenPipe)
}

//! Writes a response on a thread, so that a reader that pauses does not keep QUIC from answering the server. Each piece
//! is written as soon as no further data has arrived.

use super::get_error::GetError;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    thread::{self, JoinHandle},
};
use tokio::sync::mpsc;

/// Number of bytes that are gathered before the thread gets them.
const FLUSH_SIZE: usize = 64 * 1024;
/// Number of pieces in the thread's queue: a full queue stops the reading of the stream, and so the server.
const MAX_QUEUED_PIECES: usize = 4;

/// Output of header and body to standard output, or of the body alone to a file.
pub(super) struct ResponseOutput {
    pieces: Option<mpsc::Sender<Bytes>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    gathered: BytesMut,
    name: String,
    headers: bool,
}

const STDOUT: &str = "standard output";

impl ResponseOutput {
    /// Opens `file`, or standard output. `headers` writes headers to a file, too; standard output without a named file
    /// always has them.
    pub(super) fn open_output(file: Option<&PathBuf>, headers: bool) -> Result<Self, GetError> {
        let named = file.filter(|file| file.as_os_str() != "-");
        let name = named.map_or_else(|| STDOUT.into(), |file| file.display().to_string());
        let failed = |source| GetError::Output { to: name.clone(), source };
        let to: Box<dyn Write + Send> = match named {
            Some(file) => Box::new(File::create(file).map_err(failed)?),
            None => Box::new(io::stdout()),
        };
        let (pieces, received) = mpsc::channel(MAX_QUEUED_PIECES);
        let writer =
            thread::Builder::new().name("output".into()).spawn(move || write_pieces(to, received)).map_err(failed)?;
        Ok(Self {
            pieces: Some(pieces),
            writer: Some(writer),
            gathered: BytesMut::new(),
            headers: headers || file.is_none(),
            name,
        })
    }

    pub(super) async fn write_response_head(&mut self, response: &Response<()>) -> Result<(), GetError> {
        if !self.headers {
            return Ok(());
        }
        self.gathered.extend_from_slice(format!("HTTP/3 {}\n", response.status()).as_bytes());
        self.gather_fields(response.headers());
        self.write_bytes(b"\n").await
    }

    pub(super) async fn write_trailers(&mut self, trailers: &HeaderMap) -> Result<(), GetError> {
        if !self.headers {
            return Ok(());
        }
        self.gathered.extend_from_slice(b"\n");
        self.gather_fields(trailers);
        self.write_bytes(b"").await
    }

    fn gather_fields(&mut self, fields: &HeaderMap) {
        for (name, value) in fields {
            self.gathered.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
    }

    /// Writes `data`. Waits while the reader is behind.
    pub(super) async fn write_bytes(&mut self, data: &[u8]) -> Result<(), GetError> {
        if self.gathered.is_empty() {
            self.gathered.reserve(FLUSH_SIZE);
        }
        self.gathered.extend_from_slice(data);
        if self.gathered.len() >= FLUSH_SIZE { self.flush_gathered().await } else { Ok(()) }
    }

    /// Passes all gathered bytes to the thread.
    pub(super) async fn flush_gathered(&mut self) -> Result<(), GetError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let piece = self.gathered.split().freeze();
        match &self.pieces {
            Some(pieces) if pieces.send(piece).await.is_ok() => Ok(()),
            // The thread has ended, and returns the reason.
            _ => self.join_writer(),
        }
    }

    /// Waits until all flushed bytes are written. To be called outside a runtime: it blocks while the reader pauses.
    pub(super) fn finish_output(mut self) -> Result<(), GetError> {
        self.join_writer()
    }

    fn join_writer(&mut self) -> Result<(), GetError> {
        self.pieces = None;
        let outcome = match self.writer.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(io::Error::other("the writing thread ended")),
            None => Ok(()),
        };
        outcome.map_err(|source| GetError::Output { to: self.name.clone(), source })
    }
}

fn write_pieces(mut to: Box<dyn Write + Send>, mut pieces: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(piece) = pieces.blocking_recv() {
        to.write_all(&piece)?;
        to.flush()?;
    }
    Ok(())
}

/// Returns whether the reader of standard output has closed it, which is no error: `| head`.
pub(super) fn reader_is_gone(error: &GetError) -> bool {
    matches!(error, GetError::Output { to, source } if to == STDOUT && source.kind() == io::ErrorKind::BrokenPipe)
}

//! Reads a request's body: from the command line, or from a file or standard input as it is sent, on a thread, so that
//! a writer that pauses does not keep QUIC from answering the server.

use super::get_error::GetError;
use bytes::{Bytes, BytesMut};
use litequic_http3::client::ClientRequestBody;
use std::{
    cell::Cell,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    thread,
};
use tokio::sync::mpsc;

/// Number of bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Number of pieces that wait to be sent. s2n-quic bounds the bytes in flight.
const MAX_QUEUED_PIECES: usize = 2;

/// Source of a request's body.
#[derive(Debug, Clone)]
pub(super) enum UploadSource {
    Nothing,
    Text(Bytes),
    File(PathBuf),
    StandardInput,
}

/// Body that is ready to be sent.
pub(super) struct UploadBody {
    /// Length of the body; `None` if unknown.
    pub(super) length: Option<u64>,
    pieces: BodyPieces,
    name: String,
}

enum BodyPieces {
    InMemory(Bytes),
    Read(mpsc::Receiver<io::Result<Bytes>>),
}

impl UploadSource {
    /// File at `path`, or standard input for `-`.
    pub(super) fn from_path(path: &Path) -> Self {
        if path.as_os_str() == "-" { Self::StandardInput } else { Self::File(path.into()) }
    }

    /// Opens the source, and begins to read.
    pub(super) fn open_body(&self) -> Result<UploadBody, GetError> {
        let name = match self {
            Self::File(path) => path.display().to_string(),
            Self::StandardInput | Self::Nothing | Self::Text(_) => "standard input".into(),
        };
        let opened = match self {
            Self::Nothing => Ok((None, BodyPieces::InMemory(Bytes::new()))),
            Self::Text(text) => Ok((Some(text.len() as u64), BodyPieces::InMemory(text.clone()))),
            Self::StandardInput => spawn_reader(io::stdin(), None).map(|pieces| (None, BodyPieces::Read(pieces))),
            Self::File(path) => open_file(path),
        };
        match opened {
            Ok((length, pieces)) => Ok(UploadBody { length, pieces, name }),
            Err(source) => Err(GetError::Input { from: name, source }),
        }
    }
}

fn open_file(path: &Path) -> io::Result<(Option<u64>, BodyPieces)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // A pipe or a device has no length.
    let length = metadata.is_file().then_some(metadata.len());
    Ok((length, BodyPieces::Read(spawn_reader(file, length)?)))
}

/// Reads `from` to its end, or exactly `length` bytes, on a thread.
fn spawn_reader(
    from: impl Read + Send + 'static,
    length: Option<u64>,
) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (pieces, received) = mpsc::channel(MAX_QUEUED_PIECES);
    thread::Builder::new().name("input".into()).spawn(move || {
        let mut from = from.take(length.unwrap_or(u64::MAX));
        loop {
            let mut piece = BytesMut::zeroed(PIECE_BYTES);
            let piece = match from.read(&mut piece) {
                Ok(0) if length.is_some() && from.limit() > 0 => {
                    Err(io::Error::other("it was truncated while it was read"))
                }
                Ok(0) => return,
                Ok(read) => {
                    piece.truncate(read);
                    Ok(piece.freeze())
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let last = piece.is_err();
            // The channel is closed when the request has ended.
            if pieces.blocking_send(piece).is_err() || last {
                return;
            }
        }
    })?;
    Ok(received)
}

impl UploadBody {
    /// Sends the whole body, unless the server stops reading. `sent` counts the bytes.
    pub(super) async fn send_body(self, mut out: ClientRequestBody, sent: &Cell<u64>) -> Result<(), GetError> {
        let mut pieces = self.pieces;
        loop {
            let piece = match &mut pieces {
                BodyPieces::InMemory(piece) => std::mem::take(piece),
                BodyPieces::Read(pieces) => match pieces.recv().await {
                    Some(Ok(piece)) => piece,
                    Some(Err(source)) => return Err(GetError::Input { from: self.name, source }),
                    None => Bytes::new(),
                },
            };
            let length = piece.len() as u64;
            if length == 0 {
                out.finish_request();
                return Ok(());
            }
            if !out.send_body_data(piece).await? {
                return Ok(());
            }
            sent.set(sent.get() + length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(mut pieces: mpsc::Receiver<io::Result<Bytes>>) -> (usize, Option<String>) {
        let mut bytes = 0;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Ok(piece) => bytes += piece.len(),
                Err(error) => return (bytes, Some(error.to_string())),
            }
        }
        (bytes, None)
    }

    #[test]
    fn a_truncated_upload_file_is_an_error() {
        let bytes = vec![7; 3 * PIECE_BYTES + 1];
        for (length, expected) in
            [(None, 3 * PIECE_BYTES + 1), (Some(100), 100), (Some(3 * PIECE_BYTES as u64 + 1), 3 * PIECE_BYTES + 1)]
        {
            assert_eq!(
                received(spawn_reader(io::Cursor::new(bytes.clone()), length).unwrap()),
                (expected, None),
                "{length:?}"
            );
        }
        let (sent, error) = received(spawn_reader(io::Cursor::new(bytes), Some(10 * PIECE_BYTES as u64)).unwrap());
        assert_eq!((sent, error.as_deref()), (3 * PIECE_BYTES + 1, Some("it was truncated while it was read")));
    }

    #[test]
    fn an_unreadable_upload_file_is_named_in_the_error() {
        for path in ["/nonexistent/body", "/"] {
            let error = UploadSource::from_path(Path::new(path)).open_body().err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot read {path}: ")), "{error}");
        }
    }
}

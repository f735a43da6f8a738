//! Why a response cannot be sent.

/// Why nothing more is sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamSendError {
    /// STOP_SENDING, or the connection is gone.
    #[error("the client cancelled the response")]
    Stopped,
    /// The client read no bytes for `timeouts.send`.
    #[error("the client read no bytes in time")]
    TimedOut,
    /// Too few a second, for `limits.min_download_rate`.
    #[error("the client read too slowly")]
    TooSlow,
}

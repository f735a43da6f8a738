//! Defines the errors for which io_uring is unavailable.

use std::io;

/// Error for which io_uring is unavailable, by the step that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UringError {
    /// Failure of the named step: EPERM where io_uring is forbidden, ENOSYS or EINVAL before Linux 6.1.
    #[error("{0}: {1}")]
    Step(&'static str, io::Error),
    /// A feature is missing that every kernel with the other features has.
    #[error("the kernel has no {0}")]
    Missing(&'static str),
    /// A test datagram over loopback did not arrive as it was sent.
    #[error("a datagram over loopback {0}")]
    Loopback(&'static str),
}

impl UringError {
    /// Converts the system's error of `step`.
    pub(crate) fn in_step(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Step(step, error)
    }
}

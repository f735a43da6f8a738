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

/// Kinds of [`UringError`], by which metrics count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UringErrorKind {
    /// io_uring is forbidden: by seccomp, a security module or `kernel.io_uring_disabled`.
    Forbidden,
    /// The kernel is too old.
    Missing,
    /// Memory or file descriptors are short.
    Memory,
    /// io_uring does not work as documented.
    Broken,
}

impl UringError {
    /// Converts the system's error of `step`.
    pub(crate) fn in_step(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Step(step, error)
    }

    pub(crate) fn kind(&self) -> UringErrorKind {
        match self {
            Self::Missing(_) => UringErrorKind::Missing,
            Self::Loopback(_) => UringErrorKind::Broken,
            Self::Step(_, error) => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => UringErrorKind::Forbidden,
                Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => UringErrorKind::Missing,
                Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => UringErrorKind::Memory,
                _ => UringErrorKind::Broken,
            },
        }
    }
}

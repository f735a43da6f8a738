//! Defines the errors for which io_uring is unavailable.

use std::io;

/// Error for which io_uring is unavailable, by the step that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UringError {
    /// The ring cannot be created: ENOSYS; EPERM where io_uring is forbidden; EINVAL before Linux 6.1.
    #[error("io_uring_setup: {0}")]
    Setup(io::Error),
    #[error("io_uring_register, probe: {0}")]
    Probe(io::Error),
    /// A feature is missing that every kernel with the other features has.
    #[error("the kernel has no {0}")]
    Missing(&'static str),
    #[error("io_uring_register, files: {0}")]
    Socket(io::Error),
    #[error("io_uring_register, buffer ring: {0}")]
    Buffers(io::Error),
    #[error("io_uring_enter: {0}")]
    Enter(io::Error),
    #[error("multishot recvmsg: {0}")]
    Receive(io::Error),
    /// The ring's eventfd cannot be registered with the runtime.
    #[error("epoll_ctl: {0}")]
    Register(io::Error),
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
    pub(crate) fn kind(&self) -> UringErrorKind {
        match self {
            Self::Missing(_) => UringErrorKind::Missing,
            Self::Loopback(_) => UringErrorKind::Broken,
            Self::Setup(error)
            | Self::Probe(error)
            | Self::Socket(error)
            | Self::Buffers(error)
            | Self::Enter(error)
            | Self::Receive(error)
            | Self::Register(error) => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => UringErrorKind::Forbidden,
                Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => UringErrorKind::Missing,
                Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => UringErrorKind::Memory,
                _ => UringErrorKind::Broken,
            },
        }
    }
}

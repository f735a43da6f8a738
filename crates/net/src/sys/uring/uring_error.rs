//! Why io_uring is unavailable.

use std::io;

/// The error of the kernel, or of what forbids it, at each step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UringError {
    /// The system call itself: ENOSYS, or EPERM where it is forbidden; EINVAL before Linux 6.1.
    #[error("io_uring_setup: {0}")]
    Setup(io::Error),
    /// The features of io_uring could not be probed.
    #[error("io_uring_register, probe: {0}")]
    Probe(io::Error),
    /// Something that every kernel with the rest has.
    #[error("the kernel has no {0}")]
    Missing(&'static str),
    /// The socket cannot be registered.
    #[error("io_uring_register, files: {0}")]
    Socket(io::Error),
    /// Buffers cannot be.
    #[error("io_uring_register, buffer ring: {0}")]
    Buffers(io::Error),
    /// The ring cannot be used.
    #[error("io_uring_enter: {0}")]
    Enter(io::Error),
    /// A multishot receive failed.
    #[error("multishot recvmsg: {0}")]
    Receive(io::Error),
    /// The runtime does not take it.
    #[error("epoll_ctl: {0}")]
    Register(io::Error),
    /// What it received is not what was sent.
    #[error("a datagram over loopback {0}")]
    Loopback(&'static str),
}

/// Kinds of [`UringError`], as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UringErrorKind {
    /// io_uring is forbidden: by seccomp, a security module or `kernel.io_uring_disabled`.
    Forbidden,
    /// The kernel is too old.
    Missing,
    /// There is no memory, or no descriptor.
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

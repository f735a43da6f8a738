//! Waits for sockets, to the microsecond: epoll_wait alone supports milliseconds.

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        time::TimeSpec,
    },
};
use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Sockets reported at a time.
const EVENTS: usize = 256;

/// What is ready, and on which socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// As it was added.
    pub(super) socket: usize,
    /// Also when it was closed or failed.
    pub(super) readable: bool,
}

/// An epoll instance, level-triggered.
pub(super) struct Poller {
    epoll: Epoll,
    events: [EpollEvent; EVENTS],
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: [EpollEvent::empty(); EVENTS] })
    }

    /// Watches `socket` until it is closed.
    pub(super) fn add(&self, fd: impl AsFd, socket: usize, writable: bool) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(flags(writable), socket as u64))?)
    }

    /// Whether `socket` is also watched for room to write.
    pub(super) fn set(&self, fd: impl AsFd, socket: usize, writable: bool) -> io::Result<()> {
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(flags(writable), socket as u64))?)
    }

    /// Waits until `until` at most.
    pub(super) fn wait(&mut self, until: Instant) -> io::Result<impl Iterator<Item = Ready>> {
        let mut count = self.look()?;
        if count == 0 {
            let wait = until.saturating_duration_since(Instant::now());
            if wait > Duration::ZERO {
                let mut epoll = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
                match ppoll(&mut epoll, Some(TimeSpec::from(wait)), None) {
                    Ok(0) | Err(Errno::EINTR) => {}
                    Ok(_) => count = self.look()?,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(self.events.iter().take(count).map(|event| Ready {
            socket: usize::try_from(event.data()).unwrap_or(usize::MAX),
            readable: event.events().intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP),
        }))
    }

    fn look(&mut self) -> io::Result<usize> {
        match self.epoll.wait(&mut self.events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => Ok(0),
            other => Ok(other?),
        }
    }
}

fn flags(writable: bool) -> EpollFlags {
    if writable { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
}

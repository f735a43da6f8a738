//! Accepts the connections of one listener, also when the process (EMFILE) or the system (ENFILE) has no file
//! descriptor left. Then a spare descriptor is closed, the waiting connections are accepted and closed, and a spare
//! descriptor is opened again. Otherwise their clients would wait for a server that cannot accept them.

use futures_util::FutureExt;
use std::{cell::Cell, fs::File, io, net::SocketAddr};
use tokio::net::{TcpListener, TcpStream};

/// Largest number of connections closed at once, so that the worker's other tasks run in between.
const MAX_SHED: u64 = 64;
/// File of the spare descriptor, which takes no memory and is never written.
const SPARE_PATH: &str = "/dev/null";

/// A listener, which a test can replace.
pub(super) trait AcceptConnections {
    /// A connection, which has a descriptor until it is dropped.
    type Stream;
    /// A spare descriptor, open until dropped.
    type Spare;

    /// Accepts the next connection, and returns its client's address. Cancel safe.
    async fn accept_connection(&self) -> io::Result<(Self::Stream, SocketAddr)>;

    /// Opens a spare descriptor; `None` if none is left.
    fn open_spare(&self) -> Option<Self::Spare>;
}

impl AcceptConnections for TcpListener {
    type Stream = TcpStream;
    type Spare = File;

    async fn accept_connection(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }

    fn open_spare(&self) -> Option<File> {
        File::open(SPARE_PATH).ok()
    }
}

/// A listener with a spare descriptor.
pub(super) struct SpareAcceptor<L: AcceptConnections> {
    listener: L,
    /// `None` if another thread took the descriptor while it was closed.
    spare: Cell<Option<L::Spare>>,
}

/// The result of closing connections for which there was no descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShedConnections {
    /// Number of connections that were accepted and closed.
    pub(super) closed: u64,
    /// The next attempt must wait: more connections may be waiting, or none could be accepted.
    pub(super) pause: bool,
}

impl<L: AcceptConnections> SpareAcceptor<L> {
    pub(super) fn new(listener: L) -> Self {
        let spare = Cell::new(listener.open_spare());
        Self { listener, spare }
    }

    /// Accepts the next connection, and returns its client's address. A missing spare descriptor is opened before: the
    /// connection may take the last free one, and the clients behind it would wait until another is free.
    ///
    /// # Errors
    ///
    /// The kernel's error. For one of [`is_out_of_descriptors`], [`Self::shed_waiting`] is to be called.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub(super) async fn accept_client(&self) -> io::Result<(L::Stream, SocketAddr)> {
        self.take_spare();
        self.listener.accept_connection().await
    }

    /// Opens the spare descriptor if it is missing, and one is free.
    fn take_spare(&self) {
        self.spare.set(self.spare.take().or_else(|| self.listener.open_spare()));
    }

    /// Closes the spare descriptor, accepts and closes the waiting connections, and opens a spare descriptor again.
    pub(super) fn shed_waiting(&self) -> ShedConnections {
        drop(self.spare.take());
        let mut closed = 0;
        while closed < MAX_SHED && matches!(self.listener.accept_connection().now_or_never(), Some(Ok(_))) {
            closed += 1;
        }
        self.take_spare();
        ShedConnections { closed, pause: closed == 0 || closed == MAX_SHED }
    }
}

/// Whether an accept failed because the process or the system has no descriptor left.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [libc::EMFILE, libc::ENFILE].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// A system with a table of files, and a listener with waiting connections.
    struct Table {
        /// Free entries.
        free: Rc<Cell<u64>>,
        waiting: Cell<u64>,
        /// The kernel's error when no entry is free.
        error: i32,
    }

    /// An entry of the table, until it is dropped.
    struct Entry(Rc<Cell<u64>>);

    impl Table {
        fn entry(&self) -> Option<Entry> {
            self.free.set(self.free.get().checked_sub(1)?);
            Some(Entry(Rc::clone(&self.free)))
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    impl AcceptConnections for Table {
        type Stream = Entry;
        type Spare = Entry;

        async fn accept_connection(&self) -> io::Result<(Entry, SocketAddr)> {
            if self.waiting.get() == 0 {
                std::future::pending::<()>().await;
            }
            let entry = self.entry().ok_or_else(|| io::Error::from_raw_os_error(self.error))?;
            self.waiting.set(self.waiting.get() - 1);
            Ok((entry, ([127, 0, 0, 1], 1).into()))
        }

        fn open_spare(&self) -> Option<Entry> {
            self.entry()
        }
    }

    #[test]
    fn with_no_descriptor_left_connections_that_wait_are_accepted_and_closed() {
        for error in [libc::ENFILE, libc::EMFILE] {
            for (waiting, closed, pause) in [(1, 1, false), (63, 63, false), (100, 64, true)] {
                let free = Rc::new(Cell::new(2));
                let table = Table { free: Rc::clone(&free), waiting: Cell::new(1 + waiting), error };
                let acceptor = SpareAcceptor::new(table);
                let served = acceptor.accept_client().now_or_never().unwrap().unwrap();
                let failed = acceptor.accept_client().now_or_never().unwrap().map(drop).unwrap_err();
                assert!(is_out_of_descriptors(&failed), "{failed}");
                assert_eq!(acceptor.shed_waiting(), ShedConnections { closed, pause });
                assert_eq!(free.get(), 0, "the spare descriptor is taken again");
                assert_eq!(acceptor.listener.waiting.get(), waiting - closed);
                // Once there is a descriptor, the next connection is served.
                drop(served);
                acceptor.listener.waiting.set(1);
                assert!(acceptor.accept_client().now_or_never().unwrap().is_ok());
            }
        }
    }

    #[test]
    fn a_lost_spare_descriptor_is_reopened_when_one_is_free() {
        let free = Rc::new(Cell::new(0));
        let table = Table { free: Rc::clone(&free), waiting: Cell::new(3), error: libc::ENFILE };
        let acceptor = SpareAcceptor::new(table);
        assert_eq!(acceptor.shed_waiting(), ShedConnections { closed: 0, pause: true }, "there was no spare one");
        free.set(1);
        assert_eq!(acceptor.shed_waiting(), ShedConnections { closed: 3, pause: false });
        assert_eq!(free.get(), 0);
    }

    /// Another thread may take the descriptor while it is closed.
    #[test]
    fn a_lost_spare_descriptor_is_reopened_before_the_next_connection() {
        let free = Rc::new(Cell::new(0));
        let table = Table { free: Rc::clone(&free), waiting: Cell::new(3), error: libc::EMFILE };
        let acceptor = SpareAcceptor::new(table);
        free.set(1);
        let failed = acceptor.accept_client().now_or_never().unwrap().map(drop).unwrap_err();
        assert!(is_out_of_descriptors(&failed), "{failed}");
        assert_eq!(acceptor.shed_waiting(), ShedConnections { closed: 3, pause: false });
        assert_eq!(free.get(), 0, "the spare descriptor is there again");
        // With two free descriptors the connection is served.
        let acceptor = SpareAcceptor::new(Table { free: Rc::clone(&free), waiting: Cell::new(1), error: libc::EMFILE });
        free.set(2);
        assert!(acceptor.accept_client().now_or_never().unwrap().is_ok());
        assert_eq!(acceptor.shed_waiting(), ShedConnections { closed: 0, pause: true });
    }

    #[test]
    fn other_accept_errors_concern_one_connection() {
        for code in [libc::ECONNABORTED, libc::EPROTO, libc::ENOBUFS] {
            assert!(!is_out_of_descriptors(&io::Error::from_raw_os_error(code)));
        }
    }
}

//! Looks up names for the whole process: one lookup at a time for a name, each on a thread of its own. getaddrinfo(3)
//! can neither be cancelled nor limited in time, so the next caller joins a lookup that another caller no longer waits
//! for.

use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, LazyLock},
    thread,
};
use tokio::{
    sync::watch::{self, Receiver},
    time::Instant,
};

/// Most lookups at the same time: as many as tokio's pool for blocking calls has threads. Configurations rarely have as
/// many names, and more are in use only if reloads replace names whose lookups hang.
const MAX_LOOKUPS: usize = 512;

/// Running lookups of the process.
pub(crate) static PROCESS_LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups::new(resolve_by_system));

/// A function that blocks until the addresses of a name are known.
type ResolveFn = fn(&str) -> io::Result<Vec<IpAddr>>;

/// Name lookups, at most one at a time for each name.
#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    running: Arc<Mutex<HashMap<String, Receiver<Option<LookupAnswer>>>>>,
    resolve: ResolveFn,
}

/// Result of a lookup. All callers share a failure, which `io::Error` does not allow.
#[derive(Debug, Clone)]
pub(super) struct LookupAnswer {
    pub(crate) addresses: Result<Vec<IpAddr>, Arc<io::Error>>,
    /// End of the lookup; a caller may read the result much later.
    pub(crate) ended_at: Instant,
}

/// A lookup that this caller or another one has started.
#[derive(Debug, Clone)]
pub(super) struct Lookup(Receiver<Option<LookupAnswer>>);

impl Lookup {
    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// The lookup's thread ended without a result.
    ///
    /// # Cancel safety
    ///
    /// The lookup goes on, and each clone gets the result.
    pub(crate) async fn await_answer(&mut self) -> io::Result<LookupAnswer> {
        let gone = || io::Error::other("the lookup ended without a result");
        let answer = self.0.wait_for(Option::is_some).await.map_err(|_| gone())?;
        answer.clone().ok_or_else(gone)
    }
}

impl Lookups {
    /// A table without lookups. `resolve` may block for any time.
    fn new(resolve: ResolveFn) -> Self {
        Self { running: Arc::default(), resolve }
    }

    /// Joins the running lookup of `name`, or starts one.
    ///
    /// # Errors
    ///
    /// [`MAX_LOOKUPS`] others run, or the system has no thread left.
    pub(super) fn join_or_start(&self, name: &str) -> io::Result<Lookup> {
        let mut running = self.running.lock();
        let others = running.len();
        let vacant = match running.entry(name.to_owned()) {
            Entry::Occupied(found) => return Ok(Lookup(found.get().clone())),
            Entry::Vacant(_) if others >= MAX_LOOKUPS => {
                return Err(io::Error::other(format!("{MAX_LOOKUPS} lookups of other names have not ended")));
            }
            Entry::Vacant(vacant) => vacant,
        };
        let (result, receiver) = watch::channel(None);
        let (entry, resolve) =
            (RunningLookup { lookups: Arc::clone(&self.running), name: name.to_owned() }, self.resolve);
        // If the thread does not start, its entry is dropped, which locks the table.
        vacant.insert(receiver.clone());
        drop(running);
        thread::Builder::new().name("lookup".into()).spawn(move || {
            let addresses = resolve(&entry.name).map_err(Arc::new);
            // The entry is dropped before the result is published: a caller that has the result may start the next
            // lookup.
            drop(entry);
            result.send_replace(Some(LookupAnswer { addresses, ended_at: Instant::now() }));
        })?;
        Ok(Lookup(receiver))
    }

    /// Resolves `host`, a name or an address without brackets, and adds `port`.
    ///
    /// # Errors
    ///
    /// The error of the lookup.
    ///
    /// # Cancel safety
    ///
    /// The lookup goes on.
    pub(crate) async fn resolve_host(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(literal) => vec![literal],
            Err(_) => self.join_or_start(host)?.await_answer().await?.addresses.map_err(clone_shared_error)?,
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// Table entry of a running lookup. Dropping this, also by a panic, ends the lookup.
struct RunningLookup {
    lookups: Arc<Mutex<HashMap<String, Receiver<Option<LookupAnswer>>>>>,
    name: String,
}

impl Drop for RunningLookup {
    fn drop(&mut self) {
        self.lookups.lock().remove(&self.name);
    }
}

/// Copies an error that several callers share, for one of them.
pub(crate) fn clone_shared_error(error: Arc<io::Error>) -> io::Error {
    io::Error::new(error.kind(), error)
}

fn resolve_by_system(name: &str) -> io::Result<Vec<IpAddr>> {
    #[cfg(test)]
    if let Some(addresses) = tests::known_addresses(name) {
        return Ok(addresses);
    }
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parking_lot::Condvar;
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };
    use tokio::time::timeout;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(20);

    /// Names that the process resolves without the system.
    static KNOWN: Mutex<Vec<(String, Vec<IpAddr>)>> = Mutex::new(Vec::new());

    /// From now on the process resolves `name` to `addresses`, in this order.
    pub(crate) fn set_known_name(name: &str, addresses: &[IpAddr]) {
        let mut known = KNOWN.lock();
        known.retain(|(other, _)| other != name);
        known.push((name.to_owned(), addresses.to_vec()));
    }

    pub(crate) fn known_addresses(name: &str) -> Option<Vec<IpAddr>> {
        let known = KNOWN.lock();
        known.iter().find(|(other, _)| other == name).map(|(_, addresses)| addresses.clone())
    }

    /// A name server for one test: names that begin with `hang` are answered after `release_names`.
    pub(crate) struct LookupNames {
        released: Mutex<bool>,
        wake: Condvar,
        pub(crate) asked: AtomicUsize,
    }

    impl LookupNames {
        pub(crate) const fn new() -> Self {
            Self { released: Mutex::new(false), wake: Condvar::new(), asked: AtomicUsize::new(0) }
        }

        pub(crate) fn resolve_name(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            if name.starts_with("hang") {
                self.asked.fetch_add(1, Relaxed);
                self.wake.wait_while(&mut self.released.lock(), |released: &mut bool| !*released);
            }
            if name == "absent" { Err(io::ErrorKind::NotFound.into()) } else { Ok(vec![[192, 0, 2, 1].into()]) }
        }

        pub(crate) fn release_names(&self) {
            *self.released.lock() = true;
            self.wake.notify_all();
        }
    }

    impl Lookups {
        pub(crate) fn with_resolve(resolve: ResolveFn) -> Self {
            Self::new(resolve)
        }

        pub(crate) fn running_count(&self) -> usize {
            self.running.lock().len()
        }
    }

    #[tokio::test]
    async fn a_hanging_lookup_is_shared_and_does_not_block_other_names() {
        static NAMES: LookupNames = LookupNames::new();
        let lookups = Lookups::with_resolve(|name| NAMES.resolve_name(name));
        for _ in 0..20 {
            let mut lookup = lookups.join_or_start("hang").unwrap();
            assert!(timeout(SHORT, lookup.await_answer()).await.is_err());
            let answer =
                timeout(TEST_TIMEOUT, lookups.join_or_start("other").unwrap().await_answer()).await.unwrap().unwrap();
            assert_eq!(answer.addresses.unwrap(), [IpAddr::from([192, 0, 2, 1])]);
        }
        assert_eq!((lookups.running_count(), NAMES.asked.load(Relaxed)), (1, 1));
        let mut last = lookups.join_or_start("hang").unwrap();
        NAMES.release_names();
        assert!(timeout(TEST_TIMEOUT, last.await_answer()).await.unwrap().unwrap().addresses.is_ok());
        assert_eq!(lookups.running_count(), 0, "the entry goes before the result comes");
        timeout(TEST_TIMEOUT, lookups.join_or_start("hang").unwrap().await_answer()).await.unwrap().unwrap();
        assert_eq!(NAMES.asked.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn lookups_that_hang_are_bounded_in_number() {
        static NAMES: LookupNames = LookupNames::new();
        let lookups = Lookups::with_resolve(|name| NAMES.resolve_name(name));
        for n in 0..MAX_LOOKUPS {
            lookups.join_or_start(&format!("hang{n}")).unwrap();
        }
        assert!(lookups.join_or_start("other").is_err());
        assert!(lookups.join_or_start("hang0").is_ok(), "joined");
        NAMES.release_names();
        let deadline = Instant::now() + TEST_TIMEOUT;
        while lookups.running_count() > 0 {
            assert!(Instant::now() < deadline);
            tokio::task::yield_now().await;
        }
        assert!(lookups.join_or_start("other").is_ok());
    }

    #[tokio::test]
    async fn failed_and_panicking_lookups_are_errors_and_leave_no_entry() {
        let lookups = Lookups::with_resolve(|name| {
            if name == "absent" { LookupNames::new().resolve_name(name) } else { panic!("asked to") }
        });
        for name in ["absent", "panic"] {
            let answer = timeout(TEST_TIMEOUT, lookups.join_or_start(name).unwrap().await_answer()).await.unwrap();
            let failed = answer.and_then(|answer| answer.addresses.map_err(clone_shared_error));
            failed.unwrap_err();
            assert_eq!(lookups.running_count(), 0, "{name}");
            assert!(timeout(TEST_TIMEOUT, lookups.resolve_host(name, 80)).await.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup_and_localhost_has_one() {
        let lookups = PROCESS_LOOKUPS.clone();
        for host in ["127.0.0.1", "localhost"] {
            let addresses = timeout(TEST_TIMEOUT, lookups.resolve_host(host, 80)).await.unwrap().unwrap();
            assert!(addresses.contains(&([127, 0, 0, 1], 80).into()), "{addresses:?}");
        }
    }
}

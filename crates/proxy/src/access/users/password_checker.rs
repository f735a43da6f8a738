//! Verifies passwords on threads of its own, for all workers: a hash takes some 60 ms on purpose. At most
//! [`MAX_THREADS`] run at a time; their queues are fair by source and bounded. Requests with the same password take
//! turns before the queue: after a right one the others find it remembered.

use super::credentials::Credentials;
use super::password_cache::{PasswordCache, PasswordTag, TagKey};
use super::users_file::Users;
use crate::access::rate_limiter::{RateLimiter, client_key};
use litequic_base::timers::timeout;
use litequic_config::{RateLimit, RateLimitBy};
use litequic_resources::fairness::{ClientSource, FairPool, PoolSlot, QueueOutcome, QueuePlace};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, OnceLock, Weak},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Passwords that are verified at a time, and so cores in use.
const MAX_THREADS: u32 = 2;
/// Longest queue of newcomers, in requests: eight seconds' worth. As many new networks may guess at once beside a first
/// sign-in.
const MAX_NEWCOMERS: u32 = 256;
/// Longest queue of other requests: two seconds' worth.
const MAX_OTHERS: u32 = 64;
/// Longest wait of a request: its turn, and both queues.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Wrong passwords of a source (an IPv4 address or a /64): ten at once, and then one every 6 seconds.
const SOURCE_LIMIT: RateLimit =
    RateLimit { requests: 1, per: Duration::from_secs(6), burst: 10, by: RateLimitBy::Address };
/// Wrong passwords for a name from all sources: a client that tries names from many sources must not lock a user out
/// for long.
const NAME_LIMIT: RateLimit =
    RateLimit { requests: 1, per: Duration::from_secs(2), burst: 50, by: RateLimitBy::Address };

/// Result of checking a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PasswordCheck {
    /// The password was right a short time ago.
    Remembered,
    Right,
    /// The password is wrong, or there is no such user.
    Wrong,
    /// Too many passwords were wrong: another one may be tried after this time.
    Limited(Duration),
    /// Too many requests wait for a thread.
    Busy,
}

/// Password checker of a process, without a thread or a table until there is a password to check.
#[derive(Default)]
pub(crate) struct PasswordChecker(OnceLock<Arc<CheckerState>>);

litequic_base::partial_debug!(PasswordChecker);

struct CheckerState {
    queue: Mutex<VerificationQueue>,
    key: TagKey,
    remembered: Mutex<PasswordCache>,
    turns: Mutex<HashMap<PasswordTag, Weak<PasswordTurn>>>,
    by_source: RateLimiter,
    by_name: RateLimiter,
}

/// Held by one of the requests with the same tag until its result. Wrong passwords are verified one by one, so that
/// each counts.
type PasswordTurn = tokio::sync::Mutex<()>;

struct VerificationQueue {
    /// Queue of newcomers, whose widest networks (/24, /48) had no wrong password lately: they are first. So guesses
    /// from any number of addresses and networks delay a first sign-in by one guess a network.
    newcomers: FairPool<VerificationJob>,
    /// Queue of the other requests.
    others: FairPool<VerificationJob>,
}

struct VerificationJob {
    users: Arc<Users>,
    credentials: Credentials,
    source: ClientSource,
    client: IpAddr,
    is_newcomer: bool,
    answer: oneshot::Sender<PasswordCheck>,
}

/// A queued request; dropping this leaves the queue.
struct QueuedVerification<'a> {
    shared: &'a CheckerState,
    is_newcomer: bool,
    place: QueuePlace,
}

impl Drop for QueuedVerification<'_> {
    fn drop(&mut self) {
        self.shared.queue.lock().pool_mut(self.is_newcomer).leave_queue(self.place);
    }
}

impl PasswordChecker {
    /// Checks `credentials` against `users`, for a request of `client`, which belongs to `source`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a password that is being verified is verified to the end.
    pub(crate) async fn check_password(
        &self,
        users: &Arc<Users>,
        credentials: Credentials,
        source: ClientSource,
        client: IpAddr,
    ) -> PasswordCheck {
        let Self(shared) = self;
        let shared = shared.get_or_init(|| Arc::new(CheckerState::new(Instant::now())));
        // Without users no name needs protection.
        let Some((hash, is_known)) = users.find_hash(&credentials.name) else { return PasswordCheck::Wrong };
        let tag = shared.key.compute_tag(&credentials, hash);
        let is_remembered = |now| is_known && shared.remembered.lock().contains_tag(&tag, now);
        if is_remembered(Instant::now()) {
            return PasswordCheck::Remembered;
        }
        let checked = timeout(QUEUE_TIMEOUT, async {
            let turn = shared.shared_turn(tag);
            let _turn = turn.lock().await;
            let now = Instant::now();
            if is_remembered(now) {
                return PasswordCheck::Remembered;
            }
            if let Some(wait) = shared.failure_wait(client, &credentials.name, now) {
                return PasswordCheck::Limited(wait);
            }
            let (answer, answered) = oneshot::channel();
            let is_newcomer = !shared.network_has_failed(&source, client, now);
            let job = VerificationJob { users: Arc::clone(users), credentials, source, client, is_newcomer, answer };
            let Ok(_queued) = shared.submit_job(job, now) else { return PasswordCheck::Busy };
            // A full queue drops the sender of a job that lost its place.
            answered.await.unwrap_or(PasswordCheck::Busy)
        });
        checked.await.unwrap_or(PasswordCheck::Busy)
    }
}

impl CheckerState {
    fn new(now: Instant) -> Self {
        Self {
            queue: Mutex::new(VerificationQueue {
                newcomers: FairPool::new(MAX_THREADS),
                others: FairPool::new(MAX_THREADS),
            }),
            key: TagKey::new_random(),
            remembered: Mutex::default(),
            turns: Mutex::default(),
            by_source: RateLimiter::new(SOURCE_LIMIT, now),
            by_name: RateLimiter::new(NAME_LIMIT, now),
        }
    }

    /// The turn of the requests with `tag`.
    fn shared_turn(&self, tag: PasswordTag) -> Arc<PasswordTurn> {
        let mut turns = self.turns.lock();
        // As many are left as passwords wait in the queues.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = turns.get(&tag).and_then(Weak::upgrade).unwrap_or_default();
        turns.insert(tag, Arc::downgrade(&turn));
        turn
    }

    /// Time that `client` has to wait before another password for `name` is verified.
    fn failure_wait(&self, client: IpAddr, name: &str, now: Instant) -> Option<Duration> {
        self.by_source.remaining_wait(&client_key(client), now).max(self.by_name.remaining_wait(&name, now))
    }

    /// Whether a password of the client's widest network was wrong lately.
    fn network_has_failed(&self, source: &ClientSource, client: IpAddr, now: Instant) -> bool {
        match source.widest_network() {
            Some(network) => self.by_source.has_counted_event(&network, now),
            None => self.by_source.has_counted_event(&client_key(client), now),
        }
    }

    /// Verifies `job`, at once or in turn.
    fn submit_job(self: &Arc<Self>, job: VerificationJob, now: Instant) -> Result<QueuedVerification<'_>, ()> {
        let is_newcomer = job.is_newcomer;
        let mut queue = self.queue.lock();
        let Some(place) = queue.enqueue_job(job, now) else { return Err(()) };
        while let Some((job, slot)) = queue.next_job() {
            let (shared, is_newcomer) = (Arc::clone(self), job.is_newcomer);
            let verify = move || shared.verify_jobs(job, slot);
            // Without a thread the job is dropped, of which its request learns by the closed channel.
            if let Err(error) = thread::Builder::new().name("litequic-password".into()).spawn(verify) {
                tracing::warn!(%error, "no thread for passwords");
                queue.pool_mut(is_newcomer).release_slot(slot);
                break;
            }
        }
        drop(queue);
        Ok(QueuedVerification { shared: self, is_newcomer, place })
    }

    /// Verifies `job`, which has `slot`, and then others until none waits.
    fn verify_jobs(&self, mut job: VerificationJob, mut slot: PoolSlot) {
        loop {
            let now = Instant::now();
            // Other requests of its network may have failed while this one waited.
            let is_postponed = job.is_newcomer && self.network_has_failed(&job.source, job.client, now);
            // A client that has gone needs no verification.
            let checked = (!is_postponed && !job.answer.is_closed()).then(|| self.verify_job(&job));
            let mut queue = self.queue.lock();
            queue.pool_mut(job.is_newcomer).release_slot(slot);
            if is_postponed {
                job.is_newcomer = false;
                let _ = queue.enqueue_job(job, now);
            } else if let Some(checked) = checked {
                // The client may have gone meanwhile.
                let _ = job.answer.send(checked);
            }
            let Some(next) = queue.next_job() else { return };
            (job, slot) = next;
        }
    }

    fn verify_job(
        &self,
        VerificationJob { users, credentials, source, client, .. }: &VerificationJob,
    ) -> PasswordCheck {
        // Other requests of this client, or for this name, may have failed while this one waited.
        if let Some(wait) = self.failure_wait(*client, &credentials.name, Instant::now()) {
            return PasswordCheck::Limited(wait);
        }
        let Some((hash, is_known)) = users.find_hash(&credentials.name) else { return PasswordCheck::Wrong };
        let is_right = hash.matches_password(&credentials.password);
        let now = Instant::now();
        if is_right && is_known {
            let tag: PasswordTag = self.key.compute_tag(credentials, hash);
            self.remembered.lock().insert_tag(tag, now);
            return PasswordCheck::Right;
        }
        // Failures beyond a limit are not counted, so that a wait ends.
        self.by_source.take_permit(&client_key(*client), now);
        if let Some(network) = source.widest_network() {
            self.by_source.take_permit(&network, now);
        }
        self.by_name.take_permit(&credentials.name.as_str(), now);
        PasswordCheck::Wrong
    }
}

impl VerificationQueue {
    fn pool_mut(&mut self, is_newcomer: bool) -> &mut FairPool<VerificationJob> {
        if is_newcomer { &mut self.newcomers } else { &mut self.others }
    }

    /// Adds `job` to its queue; `None` if that is full. The request that loses its place for this one learns of it by
    /// its closed channel.
    fn enqueue_job(&mut self, job: VerificationJob, now: Instant) -> Option<QueuePlace> {
        let most = if job.is_newcomer { MAX_NEWCOMERS } else { MAX_OTHERS };
        match self.pool_mut(job.is_newcomer).enqueue_request(job.source, now, most, job) {
            QueueOutcome::Queued(place, _lost) => Some(place),
            QueueOutcome::Refused(_) => None,
        }
    }

    /// Number of jobs that have a thread.
    fn running_job_count(&self) -> u32 {
        self.newcomers.used_slot_count() + self.others.used_slot_count()
    }

    /// Gives a free slot to a newcomer, or else to another request.
    fn next_job(&mut self) -> Option<(VerificationJob, PoolSlot)> {
        if self.running_job_count() >= MAX_THREADS {
            return None;
        }
        self.newcomers.grant_slot().or_else(|| self.others.grant_slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join_all};
    use std::pin::pin;
    use tokio::task::unconstrained;

    fn users(cost: u32) -> Arc<Users> {
        let line = |name: &str| format!("{name}:{}\n", bcrypt::hash(format!("{name}'s"), cost).unwrap());
        Arc::new(Users::parse_users((line("alice") + &line("bob")).as_bytes()).unwrap())
    }

    fn credentials(name: &str, password: &str) -> Credentials {
        Credentials { name: name.into(), password: password.into() }
    }

    fn client(n: u8) -> (ClientSource, IpAddr) {
        let address = IpAddr::from([192, 0, n, 1]);
        (ClientSource::new(Some((address, 32)), n.into()), address)
    }

    async fn check(
        passwords: &PasswordChecker,
        users: &Arc<Users>,
        name: &str,
        password: &str,
        n: u8,
    ) -> PasswordCheck {
        let (source, address) = client(n);
        passwords.check_password(users, credentials(name, password), source, address).await
    }

    #[tokio::test]
    async fn a_password_is_verified_on_another_thread_and_then_remembered() {
        // This hash takes some 60 ms: with a cheap one the other thread could be done before the first poll.
        let (passwords, users) = (PasswordChecker::default(), users(10));
        let (source, address) = client(1);
        let mut first = pin!(passwords.check_password(&users, credentials("alice", "alice's"), source, address));
        // The caller's thread has not verified the password.
        assert_eq!(first.as_mut().now_or_never(), None);
        assert_eq!(first.await, PasswordCheck::Right);
        assert_eq!(check(&passwords, &users, "alice", "alice's", 2).await, PasswordCheck::Remembered);
        for (name, password) in
            [("alice", "bob's"), ("bob", "alice's"), ("mallory", "alice's"), ("mallory", "bob's"), ("", "")]
        {
            assert_eq!(check(&passwords, &users, name, password, 3).await, PasswordCheck::Wrong, "{name} {password}");
        }
        // Another file has the same user with another password.
        let other =
            Arc::new(Users::parse_users(format!("alice:{}", bcrypt::hash("new", 4).unwrap()).as_bytes()).unwrap());
        assert_eq!(check(&passwords, &other, "alice", "alice's", 1).await, PasswordCheck::Wrong);
        assert_eq!(check(&passwords, &other, "alice", "new", 1).await, PasswordCheck::Right);
        assert_eq!(check(&passwords, &Arc::default(), "alice", "new", 1).await, PasswordCheck::Wrong);
        assert_eq!(passwords.0.get().unwrap().queue.lock().running_job_count(), 0);
    }

    #[tokio::test]
    async fn wrong_passwords_are_limited_by_source_and_name_unlike_cached_ones() {
        let (passwords, users) = (PasswordChecker::default(), users(4));
        assert_eq!(check(&passwords, &users, "alice", "alice's", 9).await, PasswordCheck::Right);
        for n in 0..SOURCE_LIMIT.burst {
            assert_eq!(check(&passwords, &users, &n.to_string(), "x", 1).await, PasswordCheck::Wrong, "{n}");
        }
        assert!(matches!(check(&passwords, &users, "bob", "bob's", 1).await, PasswordCheck::Limited(_)));
        assert_eq!(check(&passwords, &users, "alice", "alice's", 1).await, PasswordCheck::Remembered);
        assert_eq!(check(&passwords, &users, "bob", "bob's", 2).await, PasswordCheck::Right, "another source");
        // One name is tried by sources that are each within their own limit.
        let mut wrong = 0;
        for n in 10..20 {
            for _ in 0..SOURCE_LIMIT.burst - 1 {
                wrong += u32::from(check(&passwords, &users, "alice", "guess", n).await == PasswordCheck::Wrong);
            }
        }
        assert!((NAME_LIMIT.burst..NAME_LIMIT.burst + 20).contains(&wrong), "{wrong}");
        assert!(matches!(check(&passwords, &users, "alice", "guess", 30).await, PasswordCheck::Limited(_)));
        assert_eq!(check(&passwords, &users, "alice", "alice's", 30).await, PasswordCheck::Remembered);
        assert_eq!(check(&passwords, &users, "carol", "guess", 30).await, PasswordCheck::Wrong, "another name");
    }

    /// One source fills the queue; another one is still served.
    #[tokio::test]
    async fn the_queue_is_bounded_and_fair() {
        let (passwords, users) = (PasswordChecker::default(), users(7));
        let flood = (0..2 * MAX_NEWCOMERS).map(|n| {
            let (source, _) = client(1);
            // Many addresses are used, so that the limit of failures is not reached.
            let address = IpAddr::from(u32::to_be_bytes(n + (10 << 24)));
            let (passwords, users) = (&passwords, &users);
            async move { passwords.check_password(users, credentials(&format!("n{n}"), "x"), source, address).await }
        });
        let mut flood = pin!(unconstrained(join_all(flood)));
        assert!(flood.as_mut().now_or_never().is_none());
        let waiting = || {
            let queue = passwords.0.get().unwrap().queue.lock();
            queue.newcomers.waiting_requests() + queue.others.waiting_requests()
        };
        // A guess that has failed meanwhile makes those behind it others, whose queue is shorter.
        assert!(waiting() > MAX_OTHERS / 2);
        let other = async {
            let checked = check(&passwords, &users, "alice", "alice's", 2).await;
            (checked, waiting())
        };
        let ((checked, left), flood) = tokio::join!(other, flood);
        assert_eq!(checked, PasswordCheck::Right);
        assert!(left > 0, "served in its turn, and not behind the whole queue: {left}");
        let busy = flood.iter().filter(|checked| **checked == PasswordCheck::Busy).count();
        assert!(busy > MAX_NEWCOMERS as usize / 2 && flood.contains(&PasswordCheck::Wrong), "{busy}");
    }

    /// More requests than the queue of a network with a wrong password has places.
    #[tokio::test]
    async fn requests_with_the_same_right_password_share_one_verification() {
        let (passwords, users) = (PasswordChecker::default(), users(8));
        assert_eq!(check(&passwords, &users, "bob", "typo", 1).await, PasswordCheck::Wrong);
        let mut all = join_all((0..100).map(|_| check(&passwords, &users, "alice", "alice's", 1))).await;
        assert_eq!(all.remove(0), PasswordCheck::Right);
        assert_eq!(all, [PasswordCheck::Remembered; 99]);
        assert_eq!(passwords.0.get().unwrap().turns.lock().values().filter_map(Weak::upgrade).count(), 0);
    }

    #[tokio::test]
    async fn each_request_with_the_same_wrong_password_counts() {
        for name in ["alice", "mallory"] {
            let (passwords, users) = (PasswordChecker::default(), users(4));
            let all = join_all((0..100).map(|_| check(&passwords, &users, name, "guess", 1))).await;
            let wrong = all.iter().filter(|checked| **checked == PasswordCheck::Wrong).count();
            assert_eq!(wrong, SOURCE_LIMIT.burst as usize, "{name}");
            let limited = all.iter().filter(|checked| matches!(checked, PasswordCheck::Limited(_))).count();
            assert_eq!(limited, 100 - wrong, "{name}");
            assert_eq!(check(&passwords, &users, "alice", "alice's", 2).await, PasswordCheck::Right);
        }
    }

    /// Client of the request `n` of a flood from `networks` networks.
    fn guesser(n: u32, networks: u32) -> (ClientSource, IpAddr) {
        let address = IpAddr::from(u32::to_be_bytes((10 << 24) + ((n % networks) << 8)));
        (ClientSource::new(Some((address, 32)), n.into()), address)
    }

    /// Sends the request `n` of a flood from `networks` networks.
    async fn guess(passwords: &PasswordChecker, users: &Arc<Users>, n: u32, networks: u32) -> PasswordCheck {
        let (source, address) = guesser(n, networks);
        passwords.check_password(users, credentials(&format!("n{n}"), "x"), source, address).await
    }

    #[tokio::test]
    async fn newcomers_are_first_whatever_guesses_wait() {
        let (passwords, users) = (PasswordChecker::default(), users(7));
        let known = passwords.0.get_or_init(|| Arc::new(CheckerState::new(Instant::now())));
        for n in 0..2 * MAX_OTHERS {
            known.by_source.take_permit(&guesser(n, 2 * MAX_OTHERS).0.widest_network().unwrap(), Instant::now());
        }
        let mut flood = pin!(join_all((0..2 * MAX_OTHERS).map(|n| guess(&passwords, &users, n, 2 * MAX_OTHERS))));
        assert!(flood.as_mut().now_or_never().is_none());
        let other = async {
            let checked = check(&passwords, &users, "alice", "alice's", 2).await;
            (checked, known.queue.lock().others.waiting_requests())
        };
        let (checked, left) =
            tokio::select! { biased; other = other => other, _ = flood => panic!("the flood is first") };
        assert_eq!(checked, PasswordCheck::Right);
        assert!(left > MAX_OTHERS / 2, "{left}");
    }

    #[tokio::test]
    async fn a_first_sign_in_waits_beside_two_hundred_new_networks() {
        let (passwords, users) = (PasswordChecker::default(), users(4));
        let mut flood = pin!(join_all((0..800).map(|n| guess(&passwords, &users, n, 200))));
        assert!(flood.as_mut().now_or_never().is_none());
        let other = check(&passwords, &users, "alice", "alice's", 2);
        assert_eq!(tokio::join!(other, flood).0, PasswordCheck::Right);
    }

    #[tokio::test]
    async fn who_goes_leaves_the_queue() {
        let (passwords, users) = (PasswordChecker::default(), users(8));
        let (source, address) = client(1);
        let mut waiting: Vec<_> = (0..10)
            .map(|n| Box::pin(passwords.check_password(&users, credentials(&n.to_string(), "x"), source, address)))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        let queued = |passwords: &PasswordChecker| passwords.0.get().unwrap().queue.lock().newcomers.waiting_requests();
        assert!(queued(&passwords) > 0);
        drop(waiting);
        assert_eq!(queued(&passwords), 0);
        assert_eq!(check(&passwords, &users, "alice", "alice's", 2).await, PasswordCheck::Right);
    }
}

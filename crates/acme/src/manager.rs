//! Obtains and renews the certificates of all `[[acme]]` tables: one order at a time, each under a lock that other
//! processes respect, and each decision anew from what is stored.

use super::account;
use super::answers::Answers;
use super::board::{Board, CertificateState, Entry};
use super::failure::{OrderFailure, blocking, words};
use super::folder::{Folder, LockError, Locked, Stored, certificate_name, file_stem};
use super::http::Http;
use super::metrics::Metrics;
use super::order::Job;
use super::plan::{Plan, PlanStep, shortened};
use instant_acme::{Account, CertificateIdentifier};
use litequic_base::lifecycle::panic_if_asked;
use litequic_config::{Acme, AcmeHost};
use rand::random;
use rustls::ClientConfig;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    select,
    time::{Instant, sleep},
};

/// Time between two looks at the clock and the folder: a clock may jump, and other processes write into the folder.
const LOOK: Duration = Duration::from_secs(60);
/// Renewals begin a random time up to this after the start, in seconds: not all replicas at once.
const SPREAD: u64 = 60;
/// Seconds until a folder that cannot be written is tried again.
const AGAIN: u64 = 60;
/// Seconds until the folder is looked at again while another process orders a certificate, or one is to be written.
const SOON: u64 = 5;

/// Characters of a problem in its line of the log: the DNS command's output has 4 KiB.
const MAX_LOGGED: usize = 5000;

/// TLS to the directory of a table, or why there is none.
pub type Trust = dyn Fn(&Acme) -> Result<ClientConfig, String> + Send + Sync;
/// Checks and serves chain and key of a host, in PEM; returns what is wrong with them.
pub type Serve = dyn Fn(&AcmeHost, &str) -> Result<(), String> + Send + Sync;

/// What the manager needs of the rest of the process.
pub struct Wiring {
    /// The tables in force, without hosts that have a certificate in a file.
    pub tables: Box<dyn Fn() -> Vec<Acme> + Send + Sync>,
    /// TLS to the directory of a table.
    pub trust: Arc<Trust>,
    /// Checks and serves chain and key of a host, in PEM.
    pub serve: Box<Serve>,
}

/// Obtains certificates.
pub struct Manager {
    wiring: Wiring,
    answers: Arc<Answers>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    hosts: BTreeMap<AcmeHost, Host>,
    /// No renewal before this.
    spread: u64,
    /// A clock that differs from a CA's was reported.
    skewed: Arc<AtomicBool>,
}

/// What is known of a host.
#[derive(Debug, Default)]
struct Host {
    /// The certificate that is served.
    stored: Option<Stored>,
    plan: Plan,
    /// The file that `stored` was read from: when it was written, and its number.
    written: Option<(SystemTime, u64)>,
    /// The certificate is not in its file yet, nor is its plan: they could not be written.
    unwritten: bool,
    /// The next order is not before this, for a reason of this process's.
    hold: u64,
    /// The file of `written` is none that litequic can use. It is left alone.
    is_foreign: bool,
    /// Why files cannot be used or written.
    troubles: BTreeMap<Subject, String>,
    /// An operator wants a renewal.
    forced: bool,
}

/// What cannot be used or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Folder,
    Certificate,
    Plan,
}

impl Manager {
    /// A manager of the tables of `wiring`.
    pub fn new(wiring: Wiring, answers: Arc<Answers>, board: Arc<Board>, metrics: Arc<Metrics>) -> Self {
        let spread = now() + random::<u64>() % SPREAD;
        Self { wiring, answers, board, metrics, hosts: BTreeMap::new(), spread, skewed: Arc::default() }
    }

    /// Obtains and renews, until this is dropped.
    ///
    /// # Cancel safety
    ///
    /// An order that was begun is continued from the folder by the next process.
    pub async fn run(mut self) -> Infallible {
        loop {
            let tables = (self.wiring.tables)();
            self.answers.look(&tables).await;
            self.look(&tables).await;
            let due = self.due(&tables);
            self.show(&tables);
            match due {
                Some((at, step, table, host)) if at <= now() => self.perform(step, &table, &host).await,
                due => {
                    let is_soon = self.hosts.values().any(Host::is_soon);
                    let pause = if is_soon { Duration::from_secs(SOON) } else { LOOK };
                    let left = due.map_or(pause, |(at, ..)| Duration::from_secs(at.saturating_sub(now())));
                    select! {
                        () = sleep(left.min(pause)) => {}
                        () = self.board.changed() => {}
                    }
                }
            }
            for host in self.board.take_orders() {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.forced = true;
                }
            }
        }
    }

    /// The earliest step of all hosts.
    fn due(&self, tables: &[Acme]) -> Option<(u64, PlanStep, Acme, AcmeHost)> {
        let steps = tables.iter().flat_map(|table| table.hosts.iter().map(move |host| (table, host)));
        let steps = steps.filter_map(|(table, host)| {
            let (step, at) = self.hosts.get(host)?.next(table, self.spread);
            Some((at, step, table, host))
        });
        let (at, step, table, host) = steps.min_by_key(|(at, ..)| *at)?;
        Some((at, step, table.clone(), host.clone()))
    }

    /// Reads what other processes have stored, and writes what could not be written before.
    async fn look(&mut self, tables: &[Acme]) {
        let wanted: BTreeSet<&AcmeHost> = tables.iter().flat_map(|table| &table.hosts).collect();
        self.hosts.retain(|host, _| wanted.contains(host));
        for table in tables {
            for name in &table.hosts {
                let host = self.hosts.entry(name.clone()).or_default();
                host.look(&Folder::new(&table.folder), name, &self.wiring).await;
            }
        }
    }

    /// Shows the state of every host.
    fn show(&self, tables: &[Acme]) {
        let now = now();
        let mut counts = [0_u64; 5];
        let mut entries = Vec::new();
        let mut next = None;
        for table in tables {
            for name in &table.hosts {
                let Some(host) = self.hosts.get(name) else { continue };
                let mut entry = host.entry(name, table, self.spread, now);
                entry.record = self.answers.record(name);
                let [valid, due, missing, failing, overdue] = &mut counts;
                *match entry.state {
                    CertificateState::Valid => valid,
                    CertificateState::Due => due,
                    CertificateState::Missing => missing,
                } += 1;
                *failing += u64::from(entry.failures > 0 && entry.problem.is_some());
                *overdue += u64::from(host.plan.is_overdue(now, entry.validity));
                let (_, at) = host.order(table, self.spread);
                next = Some(next.map_or(at, |next: u64| next.min(at)));
                entries.push(entry);
            }
        }
        let [valid, due, missing, failing, overdue] = counts;
        for (gauge, count) in [
            (&self.metrics.valid, valid),
            (&self.metrics.due, due),
            (&self.metrics.missing, missing),
            (&self.metrics.failing, failing),
            (&self.metrics.overdue, overdue),
            (&self.metrics.next_attempt, next.map_or(0, |next| next.max(now))),
        ] {
            gauge.set(count);
        }
        self.board.set(entries);
    }

    async fn perform(&mut self, step: PlanStep, table: &Acme, name: &AcmeHost) {
        match step {
            PlanStep::Ask => self.ask(table, name).await,
            PlanStep::Order | PlanStep::Resume => self.order(table, name).await,
        }
    }

    /// Asks the CA when to renew.
    async fn ask(&mut self, table: &Acme, name: &AcmeHost) {
        let Some(id) = self.hosts.get(name).and_then(|host| host.stored.as_ref()?.id.clone()) else { return };
        let folder = Folder::new(&table.folder);
        let asked = self.renewal_info(table, &folder, &id).await;
        let Some(host) = self.hosts.get_mut(name) else { return };
        match asked {
            Ok((window, wait)) => host.plan.inform(now(), &id, Some(window), wait, random()),
            Err(failure) => {
                tracing::debug!(host = %name, problem = failure.problem, "the CA says nothing about renewal");
                host.plan.inform(now(), &id, None, failure.wait, random());
            }
        }
        if !host.store_plan(&folder, name).await {
            host.hold = now() + AGAIN;
        }
    }

    async fn renewal_info(
        &mut self,
        table: &Acme,
        folder: &Folder,
        id: &str,
    ) -> Result<((u64, u64), Option<u64>), OrderFailure> {
        let (account, http) = self.account(table, folder, false).await?;
        let (authority, serial) = id.split_once('.').ok_or_else(|| OrderFailure::new("it has no identifier".into()))?;
        let id =
            CertificateIdentifier { authority_key_identifier: Cow::Borrowed(authority), serial: Cow::Borrowed(serial) };
        let (info, wait) = account
            .renewal_info(&id)
            .await
            .map_err(|error| OrderFailure { wait: http.take_retry_after(), ..OrderFailure::new(words(&error)) })?;
        let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
        let window = &info.suggested_window;
        let window = (seconds(window.start.unix_timestamp()), seconds(window.end.unix_timestamp()));
        Ok((window, Some(wait.as_secs())))
    }

    /// The account of `table`, and its client.
    async fn account(
        &mut self,
        table: &Acme,
        folder: &Folder,
        forgotten: bool,
    ) -> Result<(Account, Http), OrderFailure> {
        let (trust, of) = (Arc::clone(&self.wiring.trust), table.clone());
        let tls = blocking(move || trust(&of)).await?.map_err(OrderFailure::new)?;
        let http = Http::new(&table.directory, Arc::new(tls), Arc::clone(&self.skewed));
        let account = account::open(folder, table, &http, forgotten).await?;
        Ok((account, http))
    }

    /// Orders a certificate, or continues an order, unless another process does.
    async fn order(&mut self, table: &Acme, name: &AcmeHost) {
        let folder = Folder::new(&table.folder);
        let Some(_locked) = self.lock(&folder, name).await else { return };
        // What another process has stored since the last look.
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.look(&folder, name, &self.wiring).await;
        let (step, at) = host.next(table, self.spread);
        if at > now() || step == PlanStep::Ask {
            return;
        }
        let validity = host.stored.as_ref().map(|stored| stored.validity);
        if step == PlanStep::Order {
            host.plan.begin(now(), validity, random());
            if !host.store_plan(&folder, name).await {
                host.hold = now() + AGAIN;
                return;
            }
        }
        host.forced = false;
        panic_if_asked("acme-begun");
        let began = Instant::now();
        let mut plan = host.plan.clone();
        let replaces = host.stored.as_ref().filter(|_| plan.directory == table.directory);
        let replaces = replaces.and_then(|stored| stored.id.clone());
        let outcome = self.obtain(table, name, &folder, &mut plan, replaces.as_deref()).await;
        let outcome = outcome.and_then(|pem| {
            // A chain that does not fit is the CA's fault, and is not stored.
            let stored = Stored::read(pem).map_err(OrderFailure::new);
            let checked = stored.and_then(|stored| {
                (self.wiring.serve)(name, &stored.pem).map_err(OrderFailure::new)?;
                Ok(stored)
            });
            checked.map_err(|failure| OrderFailure {
                problem: format!("the CA's certificate: {}", failure.problem),
                ..failure
            })
        });
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.plan = plan;
        match outcome {
            Ok(stored) => {
                let until = UNIX_EPOCH + Duration::from_secs(stored.validity.until);
                tracing::info!(
                    host = %name,
                    expires = httpdate::fmt_http_date(until),
                    directory = table.directory,
                    took = ?began.elapsed(),
                    renewal = host.stored.is_some(),
                    "obtained a certificate"
                );
                self.metrics.orders_issued.increment();
                host.issued(stored, table);
                host.write(&folder, name).await;
                panic_if_asked("acme-stored");
            }
            Err(failure) => {
                host.plan.fail(step, now(), &failure.problem, failure.wait, validity, random());
                if !host.store_plan(&folder, name).await {
                    host.hold = now() + AGAIN;
                }
                let attempts = host.plan.attempts.as_ref();
                let next = attempts.map_or(0, |attempts| attempts.next.saturating_sub(now()));
                tracing::error!(
                    host = %name,
                    problem = shortened(&failure.problem, MAX_LOGGED),
                    directory = table.directory,
                    attempts = attempts.map_or(0, |attempts| attempts.count),
                    next = ?Duration::from_secs(next),
                    "no certificate was obtained"
                );
                self.metrics.orders_failed.increment();
            }
        }
    }

    async fn obtain(
        &mut self,
        table: &Acme,
        host: &AcmeHost,
        folder: &Folder,
        plan: &mut Plan,
        replaces: Option<&str>,
    ) -> Result<String, OrderFailure> {
        let mut forgotten = false;
        loop {
            let (account, http) = self.account(table, folder, forgotten).await?;
            // The answers to HTTP-01 need the account's key.
            self.answers.look(std::slice::from_ref(table)).await;
            self.answers.look(&(self.wiring.tables)()).await;
            let (answers, metrics) = (&*self.answers, &*self.metrics);
            let job = Job { host, table, replaces, folder, answers, metrics, account: &account, http: &http };
            match job.obtain(plan).await {
                // The CA has lost it, or is another one by now: it is registered again, with its key, or with a new
                // one where an External Account Binding is configured.
                Err(failure) if failure.forgotten && !forgotten => {
                    tracing::warn!(
                        directory = table.directory,
                        "the CA does not know the account: registering it again"
                    );
                    forgotten = true;
                }
                other => return other,
            }
        }
    }

    /// Locks the certificate of a host. `None` if another process has it, or the folder cannot be written: both are
    /// tried again.
    async fn lock(&mut self, folder: &Folder, name: &AcmeHost) -> Option<Locked> {
        let (of, stem) = (folder.clone(), file_stem(name));
        let locked = blocking(move || of.lock(&stem)).await.ok()?;
        let host = self.hosts.get_mut(name)?;
        match locked {
            Ok(locked) => {
                host.troubles.remove(&Subject::Folder);
                return Some(locked);
            }
            Err(LockError::Taken) => {
                tracing::debug!(host = %name, "another process orders the certificate");
                host.hold = now() + SOON;
            }
            Err(LockError::Io(error)) => {
                host.complain(Subject::Folder, name, OrderFailure::of_folder(folder, &error).problem);
                host.hold = now() + AGAIN;
            }
        }
        None
    }
}

impl Host {
    /// The next step and its time.
    fn next(&self, table: &Acme, spread: u64) -> (PlanStep, u64) {
        let now = now();
        if self.forced {
            return (if self.plan.order.is_some() { PlanStep::Resume } else { PlanStep::Order }, now.max(self.hold));
        }
        let held = self.stored.as_ref().map(Stored::held);
        let (step, at) = self.plan.next(now, held, &table.directory, spread);
        (step, at.max(self.hold))
    }

    /// Whether something is to be expected in the folder, or to be written there: an order runs in another process, or
    /// has ended with it, or a certificate could not be written.
    fn is_soon(&self) -> bool {
        self.unwritten || self.plan.attempts.as_ref().is_some_and(|attempts| attempts.problem.is_none())
    }

    /// The next order and its time.
    fn order(&self, table: &Acme, spread: u64) -> (PlanStep, u64) {
        match self.next(table, spread) {
            (PlanStep::Ask, _) => {
                let due = self.stored.as_ref().map_or(0, |stored| self.plan.due(now(), stored.held()));
                (PlanStep::Order, due.max(spread))
            }
            other => other,
        }
    }

    /// Reads what another process has stored, unless this one has something newer that could not be written.
    async fn look(&mut self, folder: &Folder, name: &AcmeHost, wiring: &Wiring) {
        if self.unwritten {
            self.write(folder, name).await;
            return;
        }
        let (of, host, written) = (folder.clone(), name.clone(), self.written);
        let read = blocking(move || {
            let now = of.written(&host);
            let certificate = if now == written { Ok(None) } else { of.certificate(&host) };
            (now, certificate, of.plan(&host))
        });
        let Ok((written, certificate, plan)) = read.await else { return };
        match plan {
            Ok(plan) => {
                self.plan = plan;
                self.troubles.remove(&Subject::Plan);
            }
            // Nothing is known of earlier attempts, and nothing can be noted.
            Err(problem) => {
                self.complain(Subject::Plan, name, problem);
                self.hold = now() + AGAIN;
            }
        }
        let is_new = self.written != written;
        self.written = written;
        let read = certificate.and_then(|certificate| {
            let Some(stored) = certificate else { return Ok(None) };
            (wiring.serve)(name, &stored.pem).map(|()| Some(stored))
        });
        match read {
            Ok(Some(stored)) => self.stored = Some(stored),
            Ok(None) if written.is_none() => self.stored = None,
            Ok(None) => {}
            Err(problem) => {
                self.is_foreign = true;
                self.complain(Subject::Certificate, name, problem);
                return;
            }
        }
        if is_new {
            self.is_foreign = false;
            self.troubles.remove(&Subject::Certificate);
        }
    }

    /// Takes note of a certificate that was obtained.
    fn issued(&mut self, stored: Stored, table: &Acme) {
        self.plan = self.plan.issued(now(), &table.directory, self.stored.is_some());
        self.stored = Some(stored);
        self.unwritten = true;
    }

    /// Writes the certificate that was obtained: served it is already. Files that are not litequic's are left alone.
    async fn write(&mut self, folder: &Folder, name: &AcmeHost) {
        let Some(pem) = self.stored.as_ref().map(|stored| stored.pem.clone()) else { return };
        let (of, host, plan) = (folder.clone(), name.clone(), self.plan.clone());
        let foreign = self.written.filter(|_| self.is_foreign);
        let outcome = blocking(move || {
            if foreign.is_some() && of.written(&host) == foreign {
                return Ok(None);
            }
            of.certificate(&host).map_err(|problem| (Subject::Certificate, problem))?;
            of.plan(&host).map_err(|problem| (Subject::Plan, problem))?;
            let failed = |error: &io::Error| OrderFailure::of_folder(&of, error).problem;
            let written = of.write(&certificate_name(&host), &pem);
            written.map_err(|error| (Subject::Certificate, failed(&error)))?;
            of.store_plan(&host, &plan).map_err(|error| (Subject::Plan, failed(&error)))?;
            Ok(Some(of.written(&host)))
        });
        match outcome.await {
            Ok(Ok(Some(written))) => {
                if !self.troubles.is_empty() {
                    tracing::info!(host = %name, "the certificate is stored now");
                    self.troubles.clear();
                }
                self.written = written;
                self.is_foreign = false;
                self.unwritten = false;
            }
            Ok(Ok(None)) => {}
            Ok(Err((subject, problem))) => {
                // What comes before it is possible.
                self.troubles.retain(|known, _| *known == subject);
                self.complain(subject, name, problem);
            }
            Err(failure) => self.complain(Subject::Certificate, name, failure.problem),
        }
    }

    /// Stores the plan; returns whether it is stored.
    async fn store_plan(&mut self, folder: &Folder, name: &AcmeHost) -> bool {
        let (of, host, plan) = (folder.clone(), name.clone(), self.plan.clone());
        match blocking(move || of.store_plan(&host, &plan)).await {
            Ok(Ok(())) => {
                self.troubles.remove(&Subject::Plan);
                true
            }
            Ok(Err(error)) => {
                self.complain(Subject::Plan, name, OrderFailure::of_folder(folder, &error).problem);
                false
            }
            Err(failure) => {
                self.complain(Subject::Plan, name, failure.problem);
                false
            }
        }
    }

    /// Logs a problem with `subject`, once.
    fn complain(&mut self, subject: Subject, name: &AcmeHost, problem: String) {
        if self.troubles.get(&subject) != Some(&problem) {
            tracing::error!(host = %name, problem, "a certificate's files cannot be used");
            self.troubles.insert(subject, problem);
        }
    }

    fn entry(&self, name: &AcmeHost, table: &Acme, spread: u64, now: u64) -> Entry {
        let held = self.stored.as_ref();
        let (step, next) = self.order(table, spread);
        let state = match held {
            Some(stored) if stored.validity.until <= now => CertificateState::Missing,
            Some(stored) if self.plan.due(now, stored.held()) <= now => CertificateState::Due,
            Some(_) => CertificateState::Valid,
            None => CertificateState::Missing,
        };
        let attempts = self.plan.attempts.as_ref();
        Entry {
            host: name.to_string(),
            state,
            validity: held.map(|stored| stored.validity),
            directory: table.directory.clone(),
            next: next.max(now),
            resumes: step == PlanStep::Resume,
            failures: attempts.map_or(0, |attempts| attempts.count),
            failing_since: attempts.map(|attempts| attempts.since),
            problem: self.troubles.values().next().cloned().or_else(|| attempts?.problem.clone()),
            record: None,
        }
    }
}

/// Seconds since the Unix epoch.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Validity;
    use std::fs;

    #[tokio::test]
    async fn a_plan_that_cannot_be_stored_does_not_make_the_ca_be_asked_at_once_again() {
        let folder = tempfile::tempdir().unwrap();
        let name = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![name.clone()], folder: folder.path().into(), ..Acme::default() };
        let plan = folder.path().join("a.test.json");
        // A folder takes the place of the plan's file while the CA is asked.
        let trust = move |_: &Acme| {
            let _ = fs::remove_file(&plan);
            let _ = fs::create_dir(&plan);
            Err("there is no CA".to_owned())
        };
        let tables = vec![table.clone()];
        let wiring =
            Wiring { tables: Box::new(move || tables.clone()), trust: Arc::new(trust), serve: Box::new(|_, _| Ok(())) };
        let mut manager = Manager::new(wiring, Arc::default(), Arc::default(), Arc::default());
        manager.look(std::slice::from_ref(&table)).await;
        let began = now();
        manager.order(&table, &name).await;
        let host = manager.hosts.get_mut(&name).unwrap();
        assert_eq!(host.plan.attempts.as_ref().unwrap().problem.as_deref(), Some("there is no CA"));
        assert!(host.hold >= began + AGAIN, "an order");
        host.hold = 0;
        let validity = Validity { from: began, until: 2 * began };
        host.stored = Some(Stored { pem: String::new(), validity, id: Some("a.b".into()) });
        manager.ask(&table, &name).await;
        assert!(manager.hosts[&name].hold >= began + AGAIN, "renewal information");
    }

    #[tokio::test]
    async fn files_that_are_not_litequics_are_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let name = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![name.clone()], folder: folder.path().into(), ..Acme::default() };
        let wiring = || Wiring {
            tables: Box::new(Vec::new),
            trust: Arc::new(|_| panic!("the CA is asked")),
            serve: Box::new(|_, _| Ok(())),
        };
        let of = Folder::new(folder.path());
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
        let mut manager = Manager::new(wiring(), Arc::default(), Arc::default(), Arc::default());

        // Without its plan nothing is known of earlier attempts: none is made.
        fs::write(folder.path().join("a.test.json"), "something else").unwrap();
        manager.look(std::slice::from_ref(&table)).await;
        manager.hosts.get_mut(&name).unwrap().forced = true;
        manager.order(&table, &name).await;
        let host = manager.hosts.get_mut(&name).unwrap();
        assert!(host.entry(&name, &table, 0, now()).problem.unwrap().contains("it is not a plan of litequic"));
        assert_eq!(read("a.test.json"), "something else");

        // A certificate is served, and stored once the files in its place have been moved away.
        fs::write(folder.path().join("a.test.pem"), "something else").unwrap();
        host.look(&of, &name, &manager.wiring).await;
        let pem = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap().cert.pem();
        host.issued(Stored::read(pem.clone()).unwrap(), &table);
        for file in ["a.test.pem", "a.test.json"] {
            host.look(&of, &name, &manager.wiring).await;
            assert!(host.unwritten && read(file) == "something else", "{file}");
            assert!(host.entry(&name, &table, 0, now()).problem.unwrap().contains(file), "{file}");
            fs::remove_file(folder.path().join(file)).unwrap();
        }
        host.look(&of, &name, &manager.wiring).await;
        assert!(!host.unwritten && host.troubles.is_empty());
        assert_eq!((read("a.test.pem"), of.plan(&name).unwrap().directory), (pem, table.directory.clone()));
    }
}

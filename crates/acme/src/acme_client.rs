//! Obtains and renews the certificates of all `[[acme]]` tables: one order at a time, each under a lock between
//! processes, and each decision anew from the stored files.

use super::account;
use super::ca_client::CaClient;
use super::challenge_responses::ChallengeResponses;
use super::failure::{OrderFailure, describe_ca_error, run_blocking};
use super::folder::{
    AcmeFolder, FolderLock, LockError, StoredCertificate, certificate_file_name, host_file_stem, parse_certificate_id,
};
use super::host_table::{AcmeHostEntry, AcmeHostTable, CertificateState};
use super::metrics::AcmeMetrics;
use super::order::{CertificateOrder, store_plan};
use super::plan::{HostPlan, PlanStep, shortened_line};
use instant_acme::Account;
use litequic_base::{lifecycle::panic_if_requested, short_duration::format_short_duration};
use litequic_config::{Acme, AcmeHost};
use rand::random;
use rustls::ClientConfig;
use std::{
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

/// Time between two reads of clock and folder: a clock may jump, and other processes write to the folder.
const FOLDER_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Renewals begin at a random time up to this many seconds after the start, so that replicas do not renew together.
const RENEWAL_SPREAD_SECONDS: u64 = 60;
/// Seconds until a folder that cannot be written is tried again.
const STORAGE_RETRY_SECONDS: u64 = 60;
/// Seconds until the folder is read again while another process orders a certificate, or a file is still to be written.
const SHORT_POLL_SECONDS: u64 = 5;

/// Characters of a problem in the log: the DNS command's output has up to 4 KiB.
const MAX_LOGGED_CHARACTERS: usize = 5000;

/// Returns the TLS configuration for the directory of a table, or the reason why there is none.
pub type DirectoryTls = dyn Fn(&Acme) -> Result<ClientConfig, String> + Send + Sync;
/// Checks and serves chain and key of a host, in PEM; returns the fault if the certificate cannot be served.
pub type ServeCertificate = dyn Fn(&AcmeHost, &str) -> Result<(), String> + Send + Sync;

/// Functions that the rest of the process provides to the ACME client.
pub struct AcmeHooks {
    /// Returns the tables in force, without hosts that have a certificate in a file.
    pub tables: Box<dyn Fn() -> Vec<Acme> + Send + Sync>,
    /// TLS to the directory of a table.
    pub trust: Arc<DirectoryTls>,
    /// Checks and serves chain and key of a host, in PEM.
    pub serve: Arc<ServeCertificate>,
}

/// Orders and renews the certificates of `[[acme]]`.
pub struct AcmeClient {
    hooks: AcmeHooks,
    answers: Arc<ChallengeResponses>,
    board: Arc<AcmeHostTable>,
    metrics: Arc<AcmeMetrics>,
    hosts: BTreeMap<AcmeHost, ManagedHost>,
    /// Time before which this process renews nothing, in seconds since the Unix epoch.
    spread: u64,
    /// Whether a difference from a CA's clock was reported.
    is_skew_reported: Arc<AtomicBool>,
}

/// State of one host.
#[derive(Debug, Default)]
struct ManagedHost {
    /// The certificate in use.
    stored: Option<StoredCertificate>,
    plan: HostPlan,
    /// Version of the file from which `stored` was read: modification time and inode number.
    stored_version: Option<(SystemTime, u64)>,
    /// Whether certificate and plan are still to be written, because writing failed.
    unwritten: bool,
    /// Time before which this process orders nothing, after a local failure.
    not_before: u64,
    /// Reasons why files cannot be used or written.
    storage_problems: BTreeMap<StorageItem, String>,
    /// Whether an operator ordered a renewal.
    forced: bool,
}

/// Part of the storage that a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StorageItem {
    Folder,
    Certificate,
    Plan,
}

impl AcmeClient {
    /// Creates a client for the tables of `wiring`.
    pub fn new(
        wiring: AcmeHooks,
        answers: Arc<ChallengeResponses>,
        board: Arc<AcmeHostTable>,
        metrics: Arc<AcmeMetrics>,
    ) -> Self {
        let spread = unix_now() + random::<u64>() % RENEWAL_SPREAD_SECONDS;
        Self {
            hooks: wiring,
            answers,
            board,
            metrics,
            hosts: BTreeMap::new(),
            spread,
            is_skew_reported: Arc::default(),
        }
    }

    /// Obtains and renews certificates until the future is dropped.
    ///
    /// # Cancel safety
    ///
    /// The next process continues an interrupted order from the folder.
    pub async fn run_renewals(mut self) -> Infallible {
        loop {
            let tables = (self.hooks.tables)();
            self.answers.refresh_from_folders(&tables).await;
            self.read_hosts(&tables).await;
            let due = self.earliest_step(&tables);
            self.publish_states(&tables);
            match due {
                Some((at, step, table, host)) if at <= unix_now() => match step {
                    PlanStep::Ask => self.request_renewal_info(&table, &host).await,
                    PlanStep::Order | PlanStep::Resume => self.order_certificate(&table, &host).await,
                },
                due => {
                    let is_soon = self.hosts.values().any(ManagedHost::expects_folder_change);
                    let pause = if is_soon { Duration::from_secs(SHORT_POLL_SECONDS) } else { FOLDER_POLL_INTERVAL };
                    let left = due.map_or(pause, |(at, ..)| Duration::from_secs(at.saturating_sub(unix_now())));
                    select! {
                        () = sleep(left.min(pause)) => {}
                        () = self.board.wait_for_wake() => {}
                    }
                }
            }
            for host in self.board.take_renewal_orders() {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.forced = true;
                }
            }
        }
    }

    /// Returns the earliest step of all hosts.
    fn earliest_step(&self, tables: &[Acme]) -> Option<(u64, PlanStep, Acme, AcmeHost)> {
        let steps = tables.iter().flat_map(|table| table.hosts.iter().map(move |host| (table, host)));
        let steps = steps.filter_map(|(table, host)| {
            let (step, at) = self.hosts.get(host)?.next_host_step(table, self.spread);
            Some((at, step, table, host))
        });
        let (at, step, table, host) = steps.min_by_key(|(at, ..)| *at)?;
        Some((at, step, table.clone(), host.clone()))
    }

    /// Reads files that other processes have stored, and writes files that could not be written before.
    async fn read_hosts(&mut self, tables: &[Acme]) {
        let wanted: BTreeSet<&AcmeHost> = tables.iter().flat_map(|table| &table.hosts).collect();
        self.hosts.retain(|host, _| wanted.contains(host));
        for table in tables {
            for name in &table.hosts {
                let host = self.hosts.entry(name.clone()).or_default();
                host.read_host_files(&AcmeFolder::new(&table.folder), name, &self.hooks).await;
            }
        }
    }

    /// Publishes the state of every host to the host table and the metrics.
    fn publish_states(&self, tables: &[Acme]) {
        let now = unix_now();
        let AcmeMetrics { valid, due, missing, failing, overdue, next_attempt, .. } = &*self.metrics;
        for gauge in [valid, due, missing, failing, overdue] {
            gauge.set(0);
        }
        let mut entries = Vec::new();
        let mut next = None;
        for table in tables {
            for name in &table.hosts {
                let Some(host) = self.hosts.get(name) else { continue };
                let mut entry = host.to_host_entry(name, table, self.spread, now);
                entry.record = self.answers.persistent_record(name);
                match entry.state {
                    CertificateState::Valid => valid,
                    CertificateState::Due => due,
                    CertificateState::Missing => missing,
                }
                .increment();
                failing.raise_by((entry.failures > 0 && entry.problem.is_some()).into());
                overdue.raise_by(host.plan.is_overdue(now, entry.validity).into());
                let (_, at) = host.next_order(table, self.spread);
                next = Some(next.map_or(at, |next: u64| next.min(at)));
                entries.push(entry);
            }
        }
        next_attempt.set(next.map_or(0, |next| next.max(now)));
        self.board.replace_entries(entries);
    }

    /// Requests renewal information from the CA.
    async fn request_renewal_info(&mut self, table: &Acme, name: &AcmeHost) {
        let Some(id) = self.hosts.get(name).and_then(|host| host.stored.as_ref()?.id.clone()) else { return };
        let folder = AcmeFolder::new(&table.folder);
        let asked = self.fetch_renewal_info(table, &folder, &id).await;
        let Some(host) = self.hosts.get_mut(name) else { return };
        match asked {
            Ok((window, wait)) => host.plan.store_renewal_info(unix_now(), &id, Some(window), wait, random()),
            Err(failure) => {
                tracing::debug!(host = %name, problem = failure.problem, "the CA offers no renewal information");
                host.plan.store_renewal_info(unix_now(), &id, None, failure.retry_after, random());
            }
        }
        host.persist_plan(&folder, name).await;
    }

    async fn fetch_renewal_info(
        &mut self,
        table: &Acme,
        folder: &AcmeFolder,
        id: &str,
    ) -> Result<((u64, u64), Option<u64>), OrderFailure> {
        let (account, http) = self.open_ca_account(table, folder, false).await?;
        let id = parse_certificate_id(id)
            .ok_or_else(|| OrderFailure::new("the certificate has no identifier for renewal information".into()))?;
        let (info, wait) = account.renewal_info(&id).await.map_err(|error| OrderFailure {
            retry_after: http.take_retry_after(),
            ..OrderFailure::new(describe_ca_error(&error))
        })?;
        let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
        let window = &info.suggested_window;
        let window = (seconds(window.start.unix_timestamp()), seconds(window.end.unix_timestamp()));
        Ok((window, Some(wait.as_secs())))
    }

    /// Opens the account of `table`, with an HTTP client for the CA.
    async fn open_ca_account(
        &mut self,
        table: &Acme,
        folder: &AcmeFolder,
        forgotten: bool,
    ) -> Result<(Account, CaClient), OrderFailure> {
        let (trust, of) = (Arc::clone(&self.hooks.trust), table.clone());
        let tls = run_blocking(move || trust(&of)).await?.map_err(OrderFailure::new)?;
        let http = CaClient::new(&table.directory, Arc::new(tls), Arc::clone(&self.is_skew_reported));
        let account = account::open_account(folder, table, &http, forgotten).await?;
        Ok((account, http))
    }

    /// Orders a certificate, or continues an order, unless another process does.
    async fn order_certificate(&mut self, table: &Acme, name: &AcmeHost) {
        let folder = AcmeFolder::new(&table.folder);
        let Some(_locked) = self.lock_host(&folder, name).await else { return };
        // Another process may have stored a certificate since the last read.
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.read_host_files(&folder, name, &self.hooks).await;
        let (step, at) = host.next_host_step(table, self.spread);
        if at > unix_now() || step == PlanStep::Ask {
            return;
        }
        let validity = host.stored.as_ref().map(|stored| stored.validity);
        if step == PlanStep::Order {
            host.plan.record_attempt_start(unix_now(), validity, random());
            if !host.persist_plan(&folder, name).await {
                return;
            }
        }
        host.forced = false;
        panic_if_requested("acme-begun");
        let began = Instant::now();
        let mut plan = host.plan.clone();
        let replaces = host.stored.as_ref().filter(|_| plan.directory == table.directory);
        let replaces = replaces.and_then(|stored| stored.id.clone());
        let outcome = self.run_order(table, name, &folder, &mut plan, replaces.as_deref()).await;
        let outcome = outcome.and_then(|pem| {
            // A chain that does not fit is the CA's fault, and is not stored.
            let stored = StoredCertificate::from_chain_pem(pem).map_err(OrderFailure::new);
            let checked = stored.and_then(|stored| {
                (self.hooks.serve)(name, &stored.pem).map_err(OrderFailure::new)?;
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
                    took = format_short_duration(began.elapsed()),
                    renewal = host.stored.is_some(),
                    "obtained a certificate"
                );
                self.metrics.orders_issued.increment();
                host.on_certificate_issued(stored, table);
                host.write_host_files(&folder, name).await;
                panic_if_requested("acme-stored");
            }
            Err(failure) => {
                host.plan.record_failed_attempt(
                    step,
                    unix_now(),
                    &failure.problem,
                    failure.retry_after,
                    validity,
                    random(),
                );
                host.persist_plan(&folder, name).await;
                let attempts = host.plan.attempts.as_ref();
                let next = attempts.map_or(0, |attempts| attempts.next.saturating_sub(unix_now()));
                tracing::error!(
                    host = %name,
                    problem = shortened_line(&failure.problem, MAX_LOGGED_CHARACTERS),
                    directory = table.directory,
                    attempts = attempts.map_or(0, |attempts| attempts.count),
                    next = format_short_duration(Duration::from_secs(next)),
                    "cannot obtain a certificate"
                );
                self.metrics.orders_failed.increment();
            }
        }
    }

    async fn run_order(
        &mut self,
        table: &Acme,
        host: &AcmeHost,
        folder: &AcmeFolder,
        plan: &mut HostPlan,
        replaces: Option<&str>,
    ) -> Result<String, OrderFailure> {
        let mut forgotten = false;
        loop {
            let (account, http) = self.open_ca_account(table, folder, forgotten).await?;
            // Responses to HTTP-01 need the account's key.
            self.answers.refresh_from_folders(std::slice::from_ref(table)).await;
            self.answers.refresh_from_folders(&(self.hooks.tables)()).await;
            let (answers, metrics) = (&*self.answers, &*self.metrics);
            let job =
                CertificateOrder { host, table, replaces, folder, answers, metrics, account: &account, http: &http };
            match job.obtain_certificate(plan).await {
                // The CA has lost the account, or is another CA now: register again, with the same key, or with a new
                // one if an External Account Binding is configured.
                Err(failure) if failure.is_account_unknown && !forgotten => {
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

    /// Locks the certificate of a host; `None` if another process holds the lock, or the folder cannot be written.
    async fn lock_host(&mut self, folder: &AcmeFolder, name: &AcmeHost) -> Option<FolderLock> {
        let (of, stem) = (folder.clone(), host_file_stem(name));
        let locked = run_blocking(move || of.try_lock_file(&stem)).await.ok()?;
        let host = self.hosts.get_mut(name)?;
        match locked {
            Ok(locked) => {
                host.storage_problems.remove(&StorageItem::Folder);
                return Some(locked);
            }
            Err(LockError::Taken) => {
                tracing::debug!(host = %name, "another process orders the certificate");
                host.not_before = unix_now() + SHORT_POLL_SECONDS;
            }
            Err(LockError::Io(error)) => {
                let problem = OrderFailure::from_folder_error(folder, &error).problem;
                host.defer_for_storage(StorageItem::Folder, name, problem);
            }
        }
        None
    }
}

impl ManagedHost {
    /// Returns the host's next step and its time.
    fn next_host_step(&self, table: &Acme, spread: u64) -> (PlanStep, u64) {
        let now = unix_now();
        if self.forced {
            return (
                if self.plan.order.is_some() { PlanStep::Resume } else { PlanStep::Order },
                now.max(self.not_before),
            );
        }
        let held = self.stored.as_ref().map(StoredCertificate::current_certificate);
        let (step, at) = self.plan.next_plan_step(now, held, &table.directory, spread);
        (step, at.max(self.not_before))
    }

    /// Whether the folder is about to change, or needs a write: another process's order runs or was interrupted, or a
    /// certificate could not be written.
    fn expects_folder_change(&self) -> bool {
        self.unwritten || self.plan.attempts.as_ref().is_some_and(|attempts| attempts.problem.is_none())
    }

    /// Returns the host's next order and its time.
    fn next_order(&self, table: &Acme, spread: u64) -> (PlanStep, u64) {
        match self.next_host_step(table, spread) {
            (PlanStep::Ask, _) => {
                let due = self
                    .stored
                    .as_ref()
                    .map_or(0, |stored| self.plan.renewal_time(unix_now(), stored.current_certificate()));
                (PlanStep::Order, due.max(spread))
            }
            other => other,
        }
    }

    /// Reads files of other processes, unless this process has a newer certificate that could not be written.
    async fn read_host_files(&mut self, folder: &AcmeFolder, name: &AcmeHost, wiring: &AcmeHooks) {
        if self.unwritten {
            self.write_host_files(folder, name).await;
            return;
        }
        let (of, host, known) = (folder.clone(), name.clone(), self.stored_version);
        let serve = Arc::clone(&wiring.serve);
        let read = run_blocking(move || {
            let now = of.certificate_file_version(&host);
            let parse = |pem| {
                let stored = StoredCertificate::from_chain_pem(pem)?;
                serve(&host, &stored.pem).map(|()| stored)
            };
            let load = || of.load_stored_file(&certificate_file_name(&host), parse);
            let certificate = if now == known { Ok(None) } else { load() };
            (now, certificate, of.load_plan(&host))
        });
        let Ok((written, certificate, plan)) = read.await else { return };
        match plan {
            Ok(plan) => {
                self.plan = plan;
                self.storage_problems.remove(&StorageItem::Plan);
            }
            // Without a plan, earlier attempts are unknown and new ones cannot be stored.
            Err(problem) => self.defer_for_storage(StorageItem::Plan, name, problem),
        }
        self.stored_version = written;
        match certificate {
            Ok(Some(stored)) => self.stored = Some(stored),
            Ok(None) if written.is_none() => self.stored = None,
            // A damaged file was renamed.
            Ok(None) if written != known => self.unwritten = self.stored.is_some(),
            Ok(None) => {}
            // A certificate that cannot be stored is not ordered: each start would order one.
            Err(problem) => {
                self.defer_for_storage(StorageItem::Certificate, name, problem);
                self.stored_version = None;
                return;
            }
        }
        self.storage_problems.remove(&StorageItem::Certificate);
    }

    /// Records a newly obtained certificate.
    fn on_certificate_issued(&mut self, stored: StoredCertificate, table: &Acme) {
        self.plan = self.plan.after_issuance(unix_now(), &table.directory, self.stored.is_some());
        self.stored = Some(stored);
        self.unwritten = true;
    }

    /// Writes the obtained certificate, which is in use already. Damaged files are renamed, and files that cannot be
    /// read stay unchanged.
    async fn write_host_files(&mut self, folder: &AcmeFolder, name: &AcmeHost) {
        let Some(pem) = self.stored.as_ref().map(|stored| stored.pem.clone()) else { return };
        let (of, host, plan) = (folder.clone(), name.clone(), self.plan.clone());
        let outcome = run_blocking(move || {
            of.load_stored_file(&certificate_file_name(&host), StoredCertificate::from_chain_pem)
                .map_err(|problem| (StorageItem::Certificate, problem))?;
            of.load_plan(&host).map_err(|problem| (StorageItem::Plan, problem))?;
            let failed = |error: &io::Error| OrderFailure::from_folder_error(&of, error).problem;
            let written = of.write_stored_file(&certificate_file_name(&host), &pem);
            written.map_err(|error| (StorageItem::Certificate, failed(&error)))?;
            of.write_plan(&host, &plan).map_err(|error| (StorageItem::Plan, failed(&error)))?;
            Ok(of.certificate_file_version(&host))
        });
        match outcome.await {
            Ok(Ok(written)) => {
                if !self.storage_problems.is_empty() {
                    tracing::info!(host = %name, "the certificate is stored now");
                    self.storage_problems.clear();
                }
                self.stored_version = written;
                self.unwritten = false;
            }
            Ok(Err((subject, problem))) => {
                // A later step failed, so problems of earlier steps are solved.
                self.storage_problems.retain(|known, _| *known == subject);
                self.report_storage_problem(subject, name, problem);
            }
            Err(failure) => self.report_storage_problem(StorageItem::Certificate, name, failure.problem),
        }
    }

    /// Stores the plan, or defers orders; returns whether this succeeded.
    async fn persist_plan(&mut self, folder: &AcmeFolder, name: &AcmeHost) -> bool {
        let stored = store_plan(folder, name, &self.plan).await;
        match &stored {
            Ok(()) => _ = self.storage_problems.remove(&StorageItem::Plan),
            Err(failure) => self.defer_for_storage(StorageItem::Plan, name, failure.problem.clone()),
        }
        stored.is_ok()
    }

    /// Logs a problem with `subject`, once, and orders nothing for a while.
    fn defer_for_storage(&mut self, subject: StorageItem, name: &AcmeHost, problem: String) {
        self.report_storage_problem(subject, name, problem);
        self.not_before = unix_now() + STORAGE_RETRY_SECONDS;
    }

    /// Logs a problem with `subject`, once.
    fn report_storage_problem(&mut self, subject: StorageItem, name: &AcmeHost, problem: String) {
        if self.storage_problems.get(&subject) != Some(&problem) {
            tracing::error!(host = %name, problem, "a certificate's files cannot be used");
            self.storage_problems.insert(subject, problem);
        }
    }

    fn to_host_entry(&self, name: &AcmeHost, table: &Acme, spread: u64, now: u64) -> AcmeHostEntry {
        let held = self.stored.as_ref();
        let (step, next) = self.next_order(table, spread);
        let state = match held {
            Some(stored) if stored.validity.until <= now => CertificateState::Missing,
            Some(stored) if self.plan.renewal_time(now, stored.current_certificate()) <= now => CertificateState::Due,
            Some(_) => CertificateState::Valid,
            None => CertificateState::Missing,
        };
        let attempts = self.plan.attempts.as_ref();
        AcmeHostEntry {
            host: name.to_string(),
            state,
            validity: held.map(|stored| stored.validity),
            directory: table.directory.clone(),
            next: next.max(now),
            resumes: step == PlanStep::Resume,
            failures: attempts.map_or(0, |attempts| attempts.count),
            failing_since: attempts.map(|attempts| attempts.since),
            problem: self.storage_problems.values().next().cloned().or_else(|| attempts?.problem.clone()),
            record: None,
        }
    }
}

/// Returns the current time, in seconds since the Unix epoch.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Validity;
    use std::fs;

    #[tokio::test]
    async fn a_plan_that_cannot_be_stored_delays_further_requests_to_the_ca() {
        let folder = tempfile::tempdir().unwrap();
        let name = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![name.clone()], folder: folder.path().into(), ..Acme::default() };
        let plan = folder.path().join("a.test.json");
        // A folder replaces the plan's file while the CA answers.
        let trust = move |_: &Acme| {
            let _ = fs::remove_file(&plan);
            let _ = fs::create_dir(&plan);
            Err("there is no CA".to_owned())
        };
        let tables = vec![table.clone()];
        let wiring = AcmeHooks {
            tables: Box::new(move || tables.clone()),
            trust: Arc::new(trust),
            serve: Arc::new(|_, _| Ok(())),
        };
        let mut manager = AcmeClient::new(wiring, Arc::default(), Arc::default(), Arc::default());
        manager.read_hosts(std::slice::from_ref(&table)).await;
        let began = unix_now();
        manager.order_certificate(&table, &name).await;
        let host = manager.hosts.get_mut(&name).unwrap();
        assert_eq!(host.plan.attempts.as_ref().unwrap().problem.as_deref(), Some("there is no CA"));
        assert!(host.not_before >= began + STORAGE_RETRY_SECONDS, "an order");
        host.not_before = 0;
        let validity = Validity { from: began, until: 2 * began };
        host.stored = Some(StoredCertificate { pem: String::new(), validity, id: Some("a.b".into()) });
        manager.request_renewal_info(&table, &name).await;
        assert!(manager.hosts[&name].not_before >= began + STORAGE_RETRY_SECONDS, "renewal information");
    }

    #[tokio::test]
    async fn no_certificate_is_ordered_that_cannot_be_stored() {
        let (folder, mut client, table, name) = client_without_ca();
        // A folder cannot be read as a file, nor replaced by one.
        fs::create_dir(folder.path().join("a.test.pem")).unwrap();
        for _ in 0..2 {
            client.read_hosts(std::slice::from_ref(&table)).await;
            client.hosts.get_mut(&name).unwrap().forced = true;
            client.order_certificate(&table, &name).await;
        }
        let problem = client.hosts[&name].to_host_entry(&name, &table, 0, unix_now()).problem.unwrap();
        assert!(problem.contains("a.test.pem: "), "{problem}");
    }

    #[tokio::test]
    async fn a_certificate_in_use_replaces_its_damaged_file() {
        let (folder, mut client, table, name) = client_without_ca();
        client.read_hosts(std::slice::from_ref(&table)).await;
        let of = AcmeFolder::new(folder.path());
        let pem = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap().cert.pem();
        let host = client.hosts.get_mut(&name).unwrap();
        host.on_certificate_issued(StoredCertificate::from_chain_pem(pem.clone()).unwrap(), &table);
        host.write_host_files(&of, &name).await;
        for (file, content) in [("a.test.pem", ""), ("a.test.pem", "something else")] {
            fs::write(folder.path().join(file), content).unwrap();
            // The first read renames the file, the second one writes.
            for _ in 0..2 {
                host.read_host_files(&of, &name, &client.hooks).await;
            }
            assert!(!host.unwritten && host.stored.is_some());
            let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!((read("a.test.pem"), read("a.test.pem.damaged")), (pem.clone(), content.to_owned()));
        }

        // Files that appear before the certificate is written do not prevent the write.
        host.unwritten = true;
        for file in ["a.test.pem", "a.test.json"] {
            fs::write(folder.path().join(file), "something else").unwrap();
        }
        host.read_host_files(&of, &name, &client.hooks).await;
        assert!(!host.unwritten && host.storage_problems.is_empty());
        assert_eq!(of.read_plan(&name).unwrap().directory, table.directory);
    }

    /// Returns a client for the host a.test of an empty folder, which panics if the CA is asked.
    fn client_without_ca() -> (tempfile::TempDir, AcmeClient, Acme, AcmeHost) {
        let folder = tempfile::tempdir().unwrap();
        let name = AcmeHost::Name("a.test".into());
        let table = Acme { hosts: vec![name.clone()], folder: folder.path().into(), ..Acme::default() };
        let hooks = AcmeHooks {
            tables: Box::new(Vec::new),
            trust: Arc::new(|_| panic!("the CA is asked")),
            serve: Arc::new(|_, _| Ok(())),
        };
        (folder, AcmeClient::new(hooks, Arc::default(), Arc::default(), Arc::default()), table, name)
    }
}

//! What a reload changes: two configurations compared, key by key, and which of the changes need a restart. Pure. The
//! structures are destructured in full, so that a new key that is not compared does not compile.

use super::keys::needs_restart;
use crate::acme::Acme;
use crate::certificates::CertificateFiles;
use crate::config::Config;
use crate::laboratory::Laboratory;
use crate::listen::Listen;
use crate::reading::changes::{Changes, cut};
use crate::reading::rule_readers::{show_headers, show_pages};
use crate::reading::table::KeyTable;
use crate::route::Route;
use crate::server_id::ServerId;
use aws_lc_rs::digest;
use litequic_base::network::Network;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

/// Bytes of a version: enough to distinguish whatever one fleet has run, and short enough for a person to compare.
const VERSION: usize = 6;

/// One change. Its `Display` is one line: `KEY: OLD → NEW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path of the key, such as `routes[1].origin`.
    pub key: String,
    /// From what to what, in words.
    pub what: String,
}

impl Change {
    /// Whether a hot upgrade can make it, if it waits for a restart: processes that share a port have one layout of
    /// connection IDs.
    pub fn allows_upgrade(&self) -> bool {
        self.key != "listen.server_id"
    }

    /// Whether it waits for a restart.
    pub fn needs_restart(&self) -> bool {
        needs_restart().contains(&self.key)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)?;
        if self.needs_restart() { f.write_str(" (needs a restart)") } else { Ok(()) }
    }
}

impl Config {
    /// What `next` changes, in the order of the reference; also what waits for a restart.
    pub fn changes(&self, next: &Self) -> Vec<Change> {
        self.compare(next, Changes::default())
    }

    /// Every key with its value, in the order of the reference. There are no secrets among them: those have files.
    pub fn list(&self) -> Vec<(String, String)> {
        let summed = self.summed();
        let all = summed.compare(&summed, Changes { all: true, ..Changes::default() });
        all.into_iter().map(|Change { key, what }| (key, what)).collect()
    }

    /// Each route with the general rules that it does not replace.
    fn summed(&self) -> Self {
        let mut summed = self.clone();
        for route in &mut summed.routes {
            route.request_headers = route.request_headers.over(&self.request_headers);
            route.response_headers = route.response_headers.over(&self.response_headers);
        }
        summed
    }

    /// Identifies this configuration: the first half of a hash of [`Config::list`], in hexadecimal digits. The same
    /// keys and values have the same one, in whichever file and process.
    pub fn version(&self) -> String {
        let mut hash = digest::Context::new(&digest::SHA256);
        for (key, value) in self.list() {
            // No key has the one, and no value the other.
            hash.update(format!("{key} {value}\0").as_bytes());
        }
        let hash = hash.finish();
        hash.as_ref().iter().take(VERSION).map(|byte| format!("{byte:02x}")).collect()
    }

    fn compare(&self, next: &Self, mut changes: Changes) -> Vec<Change> {
        let Self {
            listen,
            certificates,
            acme,
            client_certificates,
            routes,
            request_headers,
            response_headers,
            error_pages,
            origins,
            limits,
            sources,
            timeouts,
            litequic,
            admin,
            reload,
            log,
            access_log,
            traces,
            trusted_proxies,
            laboratory,
        } = self;
        listen.compare(&next.listen, "listen", &mut changes);
        changes.value("trusted_proxies", trusted_proxies, &next.trusted_proxies, |all| list(all, Network::to_string));
        let name = |files: &CertificateFiles| files.cert.display().to_string();
        let names = [&self.certificates, &next.certificates].map(|all| all.iter().map(name).collect());
        tables(&mut changes, "certificates", certificates, &next.certificates, names);
        let name = |table: &Acme| list(&table.hosts, ToString::to_string);
        let names = [acme, &next.acme].map(|all| all.iter().map(name).collect());
        tables(&mut changes, "acme", acme, &next.acme, names);
        client_certificates.compare(&next.client_certificates, "client_certificates", &mut changes);
        let names = origins.keys().chain(next.origins.keys().filter(|name| !origins.contains_key(*name)));
        for name in names {
            let key = if name == Self::ORIGIN { name.clone() } else { format!("origins.{name}") };
            match (origins.get(name), next.origins.get(name)) {
                (Some(old), Some(new)) => old.compare(new, &key, &mut changes),
                (None, Some(new)) => changes.push(&key, format!("added, {}", list(&new.servers, ToString::to_string))),
                (Some(_), None) => changes.push(&key, "removed".into()),
                (None, None) => {}
            }
        }
        let names = [Route::names(routes), Route::names(&next.routes)];
        tables(&mut changes, "routes", routes, &next.routes, names);
        changes.value("request_headers", request_headers, &next.request_headers, show_headers);
        changes.value("response_headers", response_headers, &next.response_headers, show_headers);
        changes.value("error_pages", error_pages, &next.error_pages, show_pages);
        limits.compare(&next.limits, "limits", &mut changes);
        sources.compare(&next.sources, "limits", &mut changes);
        timeouts.compare(&next.timeouts, "timeouts", &mut changes);
        litequic.compare(&next.litequic, "litequic", &mut changes);
        admin.compare(&next.admin, "admin", &mut changes);
        reload.compare(&next.reload, "reload", &mut changes);
        log.compare(&next.log, "log", &mut changes);
        access_log.compare(&next.access_log, "access_log", &mut changes);
        traces.compare(&next.traces, "traces", &mut changes);
        // Not among all keys: those are what operators set.
        if !changes.all || *laboratory != Laboratory::default() {
            laboratory.compare(&next.laboratory, "laboratory", &mut changes);
        }
        changes.found.into_iter().map(|(key, what)| Change { key, what }).collect()
    }

    /// `next` as far as it can be applied without a restart.
    pub fn follow(&self, next: Self) -> Self {
        let Self { listen, litequic, admin, log, .. } = self.clone();
        let server_id = ServerId::follow(listen.server_id.clone(), next.listen.server_id.clone());
        Self {
            listen: Listen { server_id, ..listen.follow(next.listen) },
            litequic: litequic.follow(next.litequic),
            admin: admin.follow(next.admin),
            log: log.follow(next.log),
            ..next
        }
    }
}

/// Entries with a number and a name: those that were added (`+`) or removed (`-`) by name, others key by key. An entry
/// that only has another name is compared key by key with the one that had its place.
fn tables<T: KeyTable>(changes: &mut Changes, key: &str, old: &[T], new: &[T], [was, is]: [Vec<String>; 2]) {
    let is_same = |(was_name, is_name): (&String, &String)| {
        was_name == is_name || !(is.contains(was_name) || was.contains(is_name))
    };
    if old.len() == new.len() && was.iter().zip(&is).all(is_same) {
        for (n, (old, new)) in old.iter().zip(new).enumerate() {
            old.compare(new, &format!("{key}[{n}]"), changes);
        }
        return;
    }
    let places = |names: &[String]| {
        let mut places: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        names.iter().enumerate().for_each(|(n, name)| places.entry(name.clone()).or_default().push_back(n));
        places
    };
    let mut left = places(&was);
    let mut marks = Vec::new();
    let mut stayed = Vec::new();
    for (n, name) in is.iter().enumerate() {
        match left.get_mut(name).and_then(VecDeque::pop_front) {
            Some(place) => stayed.push((place, n)),
            None => marks.push(format!("+ {name}")),
        }
    }
    let mut removed: Vec<_> =
        left.into_iter().flat_map(|(name, places)| places.into_iter().map(move |n| (n, name.clone()))).collect();
    removed.sort_unstable();
    marks.extend(removed.into_iter().map(|(_, name)| format!("- {name}")));
    if marks.is_empty() || !stayed.is_sorted() {
        marks.push("another order".into());
    }
    changes.push(key, cut(&marks.join(", ")));
    for (place, n) in stayed {
        if let (Some(old), Some(new)) = (old.get(place), new.get(n)) {
            old.compare(new, &format!("{key}[{n}]"), changes);
        }
    }
}

fn list<T>(values: &[T], show: impl Fn(&T) -> String) -> String {
    if values.is_empty() { "none".into() } else { values.iter().map(show).collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests;

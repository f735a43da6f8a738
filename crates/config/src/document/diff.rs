//! Compares two configurations key by key, for a reload, and tells which changes need a restart. Pure. Structures are
//! destructured in full, so that a new key cannot be forgotten.

use super::keys::restart_keys;
use crate::acme::Acme;
use crate::certificates::CertificateFiles;
use crate::config::Config;
use crate::laboratory::Laboratory;
use crate::limits::Limits;
use crate::listen::Listen;
use crate::reading::changes::{Changes, shorten_list};
use crate::reading::rule_readers::{format_error_pages, format_header_rules, join_or};
use crate::reading::table::KeyTable;
use crate::route::RouteConfig;
use crate::server_id::ServerId;
use aws_lc_rs::digest;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

/// Bytes of a version: enough to distinguish all configurations of a fleet, and short enough to compare by eye.
const VERSION_BYTES: usize = 6;

/// One change of a reload. Its `Display` is one line: `KEY: OLD → NEW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The path of the key, such as `routes[1].origin`.
    pub key: String,
    /// Description of the old and new values.
    pub what: String,
}

impl ConfigChange {
    /// Whether a hot upgrade can apply a change that needs a restart: processes that share a port must have one layout
    /// of connection IDs.
    pub fn allows_upgrade(&self) -> bool {
        self.key != "listen.server_id"
    }

    /// Whether the change needs a restart.
    pub fn waits_for_restart(&self) -> bool {
        restart_keys().contains(&self.key)
    }
}

impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)?;
        if self.waits_for_restart() { f.write_str(" (needs a restart)") } else { Ok(()) }
    }
}

impl Config {
    /// Lists the differences to `next` in the order of the reference, including those that need a restart.
    pub fn changes_to(&self, next: &Self) -> Vec<ConfigChange> {
        self.compare_all(next, Changes::default())
    }

    /// Lists every key with its value, in the order of the reference, without secrets: those are in files.
    pub fn keys_and_values(&self) -> Vec<(String, String)> {
        // The general header rules apply to each route.
        let mut summed = self.clone();
        for route in &mut summed.routes {
            route.request_headers = route.request_headers.with_general_rules(&self.request_headers);
            route.response_headers = route.response_headers.with_general_rules(&self.response_headers);
        }
        let all = summed.compare_all(&summed, Changes { lists_all: true, ..Changes::default() });
        all.into_iter().map(|ConfigChange { key, what }| (key, what)).collect()
    }

    /// Lists the keys of `[limits]` that do not have their defaults, each with its value.
    pub fn changed_limits(&self) -> Vec<(String, String)> {
        let with_limits =
            |limits| Self { limits, routes: Vec::new(), origins: BTreeMap::new(), ..self.clone() }.keys_and_values();
        let all = with_limits(self.limits).into_iter().zip(with_limits(Limits::default()));
        all.filter(|(own, default)| own != default).map(|(own, _)| own).collect()
    }

    /// Identifies the configuration by the first half of a hash of [`Config::keys_and_values`], in hexadecimal. Equal
    /// keys and values have equal versions, in any file and process.
    pub fn config_version(&self) -> String {
        let mut hash = digest::Context::new(&digest::SHA256);
        for (key, value) in self.keys_and_values() {
            // Keys contain no space, and values no NUL.
            hash.update(format!("{key} {value}\0").as_bytes());
        }
        let hash = hash.finish();
        hash.as_ref().iter().take(VERSION_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    fn compare_all(&self, next: &Self, mut changes: Changes) -> Vec<ConfigChange> {
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
        listen.compare_keys(&next.listen, "listen", &mut changes);
        changes.compare_shown("trusted_proxies", trusted_proxies, &next.trusted_proxies, |all| {
            join_or(all.iter(), "none")
        });
        let name = |files: &CertificateFiles| files.cert.display().to_string();
        let names = [&self.certificates, &next.certificates].map(|all| all.iter().map(name).collect());
        compare_table_lists(&mut changes, "certificates", certificates, &next.certificates, names);
        let name = |table: &Acme| join_or(table.hosts.iter(), "none");
        let names = [acme, &next.acme].map(|all| all.iter().map(name).collect());
        compare_table_lists(&mut changes, "acme", acme, &next.acme, names);
        client_certificates.compare_keys(&next.client_certificates, "client_certificates", &mut changes);
        let names = origins.keys().chain(next.origins.keys().filter(|name| !origins.contains_key(*name)));
        for name in names {
            let key = if name == Self::ORIGIN_NAME { name.clone() } else { format!("origins.{name}") };
            match (origins.get(name), next.origins.get(name)) {
                (Some(old), Some(new)) => old.compare_keys(new, &key, &mut changes),
                (None, Some(new)) => {
                    changes.push_change(&key, format!("added, {}", join_or(new.servers.iter(), "none")));
                }
                (Some(_), None) => changes.push_change(&key, "removed".into()),
                (None, None) => {}
            }
        }
        let names = [RouteConfig::unique_route_names(routes), RouteConfig::unique_route_names(&next.routes)];
        compare_table_lists(&mut changes, "routes", routes, &next.routes, names);
        changes.compare_shown("request_headers", request_headers, &next.request_headers, format_header_rules);
        changes.compare_shown("response_headers", response_headers, &next.response_headers, format_header_rules);
        changes.compare_shown("error_pages", error_pages, &next.error_pages, format_error_pages);
        limits.compare_keys(&next.limits, "limits", &mut changes);
        sources.compare_keys(&next.sources, "limits", &mut changes);
        timeouts.compare_keys(&next.timeouts, "timeouts", &mut changes);
        litequic.compare_keys(&next.litequic, "litequic", &mut changes);
        admin.compare_keys(&next.admin, "admin", &mut changes);
        reload.compare_keys(&next.reload, "reload", &mut changes);
        log.compare_keys(&next.log, "log", &mut changes);
        access_log.compare_keys(&next.access_log, "access_log", &mut changes);
        traces.compare_keys(&next.traces, "traces", &mut changes);
        // The list of all keys is for operators, who do not set these.
        if !changes.lists_all || *laboratory != Laboratory::default() {
            laboratory.compare_keys(&next.laboratory, "laboratory", &mut changes);
        }
        changes.found.into_iter().map(|(key, what)| ConfigChange { key, what }).collect()
    }

    /// Returns `next` with the current value of each key that needs a restart.
    pub fn apply_reload(&self, next: Self) -> Self {
        let Self { listen, litequic, admin, log, .. } = self.clone();
        let server_id = ServerId::apply_same_shape(listen.server_id.clone(), next.listen.server_id.clone());
        Self {
            listen: Listen { server_id, ..listen.apply_without_restart(next.listen) },
            litequic: litequic.apply_without_restart(next.litequic),
            admin: admin.apply_without_restart(next.admin),
            log: log.apply_without_restart(next.log),
            ..next
        }
    }
}

/// Compares entries with numbers and names: lists added (`+`) and removed (`-`) names, and compares other entries key
/// by key. A renamed entry is compared with the former entry of its number.
fn compare_table_lists<T: KeyTable>(
    changes: &mut Changes,
    key: &str,
    old: &[T],
    new: &[T],
    [was, is]: [Vec<String>; 2],
) {
    let is_same = |(was_name, is_name): (&String, &String)| {
        was_name == is_name || !(is.contains(was_name) || was.contains(is_name))
    };
    if old.len() == new.len() && was.iter().zip(&is).all(is_same) {
        for (n, (old, new)) in old.iter().zip(new).enumerate() {
            old.compare_keys(new, &format!("{key}[{n}]"), changes);
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
    changes.push_change(key, shorten_list(&marks.join(", ")));
    for (place, n) in stayed {
        if let (Some(old), Some(new)) = (old.get(place), new.get(n)) {
            old.compare_keys(new, &format!("{key}[{n}]"), changes);
        }
    }
}

#[cfg(test)]
mod tests;

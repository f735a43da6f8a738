//! What a reload changes: two configurations compared, key by key, and which of the changes need a restart. Pure. The
//! structures are destructured in full, so that a new key that is not compared does not compile.

use super::{
    Config, Network,
    changes::Changes,
    keys::rules::{show_headers, show_pages},
    needs_restart,
    table::Table,
};
use aws_lc_rs::digest;
use std::fmt;

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
            log,
            access_log,
            trusted_proxies,
        } = self;
        listen.compare(&next.listen, "listen", &mut changes);
        changes.value("trusted_proxies", trusted_proxies, &next.trusted_proxies, |all| list(all, Network::to_string));
        tables(&mut changes, "certificates", certificates, &next.certificates);
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
        tables(&mut changes, "routes", routes, &next.routes);
        changes.value("request_headers", request_headers, &next.request_headers, show_headers);
        changes.value("response_headers", response_headers, &next.response_headers, show_headers);
        changes.value("error_pages", error_pages, &next.error_pages, show_pages);
        limits.compare(&next.limits, "limits", &mut changes);
        sources.compare(&next.sources, "limits", &mut changes);
        timeouts.compare(&next.timeouts, "timeouts", &mut changes);
        litequic.compare(&next.litequic, "litequic", &mut changes);
        admin.compare(&next.admin, "admin", &mut changes);
        log.compare(&next.log, "log", &mut changes);
        access_log.compare(&next.access_log, "access_log", &mut changes);
        changes.found.into_iter().map(|(key, what)| Change { key, what }).collect()
    }

    /// `next` as far as it can be applied without a restart.
    pub fn follow(&self, next: Self) -> Self {
        let Self { listen, litequic, admin, log, .. } = self.clone();
        Self {
            listen: listen.follow(next.listen),
            litequic: litequic.follow(next.litequic),
            admin: admin.follow(next.admin),
            log: log.follow(next.log),
            ..next
        }
    }
}

/// Entries with a number: compared one by one unless some were added or removed.
fn tables<T: Table>(changes: &mut Changes, key: &str, old: &[T], new: &[T]) {
    if old.len() != new.len() {
        changes.push(key, format!("{} → {}", old.len(), new.len()));
        return;
    }
    for (n, (old, new)) in old.iter().zip(new).enumerate() {
        old.compare(new, &format!("{key}[{n}]"), changes);
    }
}

fn list<T>(values: &[T], show: impl Fn(&T) -> String) -> String {
    if values.is_empty() { "none".into() } else { values.iter().map(show).collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests;

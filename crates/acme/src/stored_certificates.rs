//! Reads the folders of `[[acme]]` tables at the start and for `litequic check`.

use super::{account, acme_client, folder::AcmeFolder};
use litequic_config::{Acme, AcmeHost};
use std::{
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

/// Reads the stored certificates of the hosts of `tables`, with their keys, in PEM. Files that cannot be used are left
/// to [`AcmeClient`](super::AcmeClient) to report. Blocks on the file system.
pub fn read_stored_certificates(tables: &[Acme]) -> Vec<(AcmeHost, String)> {
    let hosts = tables.iter().flat_map(|table| table.hosts.iter().map(move |host| (table, host)));
    let stored = hosts.filter_map(|(table, host)| {
        let stored = AcmeFolder::new(&table.folder).read_stored_certificate(host).ok()??;
        Some((host.clone(), stored.pem))
    });
    stored.collect()
}

/// Whether others than its owner may read the folder at `path`.
pub fn is_folder_exposed(path: &Path) -> bool {
    AcmeFolder::new(path).is_open_to_others()
}

/// Checks the file with the key of an External Account Binding.
///
/// # Errors
///
/// A message with the fault of the file.
pub fn check_eab_file(file: &Path) -> Result<(), String> {
    account::read_eab_key(file).map(drop)
}

/// Describes, in a line for each host of `tables`, the stored certificate and the next order. Blocks on files.
pub fn report_stored_state(tables: &[Acme]) -> Vec<String> {
    let hosts = tables.iter().flat_map(|table| table.hosts.iter().map(move |host| (table, host)));
    let line = |(table, host): (&Acme, &AcmeHost)| {
        let folder = AcmeFolder::new(&table.folder);
        let now = acme_client::unix_now();
        let (plan, stored) = match (folder.read_plan(host), folder.read_stored_certificate(host)) {
            (Ok(plan), Ok(stored)) => (plan, stored),
            (Err(file), _) | (_, Err(file)) => {
                let next = if file.is_damaged { "; the start renames it, and an order begins" } else { "" };
                return format!("{host}: {}{next}", file.problem);
            }
        };
        let date = |seconds| {
            UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).map_or_else(String::new, httpdate::fmt_http_date)
        };
        let due = match &stored {
            Some(stored) if plan.directory == table.directory => plan.renewal_time(now, stored.current_certificate()),
            Some(_) => plan.ca_change_time(now),
            None => now,
        };
        let held = stored.map_or("no certificate is stored".into(), |stored| {
            format!("a certificate is stored, which expires {}", date(stored.validity.until))
        });
        let order =
            if due > now { format!("the next order is {}", date(due)) } else { "an order begins at the start".into() };
        format!("{host}: {held}; {order}, from {}", table.directory)
    };
    hosts.map(line).collect()
}

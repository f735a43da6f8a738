//! Reads the files of users that routes name: with the configuration, and again when one changes.

use litequic_config::{Config, ConfigChange, FaultCollector};
use litequic_proxy::{Users, UsersError};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

/// Users by the path of their file.
pub(super) type UsersByFile = BTreeMap<PathBuf, Arc<Users>>;

/// All files of users that `config` names, each once.
pub(super) fn user_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    config.routes.iter().filter_map(|route| route.users.clone()).collect::<BTreeSet<_>>().into_iter()
}

/// Reads all files of users. Blocks on the file system.
///
/// # Errors
///
/// Every file that cannot be used.
pub(super) fn read_users(config: &Config) -> Result<UsersByFile, Vec<UsersError>> {
    let (mut good, mut bad) = (UsersByFile::new(), Vec::new());
    for path in user_files(config) {
        match Users::read_users_file(&path) {
            Ok(users) => drop(good.insert(path, Arc::new(users))),
            Err(error) => bad.push(error),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

/// Reads all files of users, and adds each fault to `findings`; `None` if there is a fault. Blocks on the file system.
pub(super) fn load_users(config: &Config, findings: &mut FaultCollector) -> Option<UsersByFile> {
    let errors = match read_users(config) {
        Ok(users) => return Some(users),
        Err(errors) => errors,
    };
    for error in errors {
        for (number, _) in
            config.routes.iter().enumerate().filter(|(_, route)| route.users.as_deref() == Some(error.users_path()))
        {
            findings.add_fault(&format!("routes[{number}].users"), &error);
        }
    }
    None
}

/// Reads all files of users anew; a file that cannot be used keeps its content of `before`, and the fault is added to
/// `kept`. Blocks on the file system.
pub(super) fn renew_users(config: &Config, before: &UsersByFile, kept: &mut Vec<String>) -> UsersByFile {
    let one = |path: PathBuf| match Users::read_users_file(&path) {
        Ok(users) => Some((path, Arc::new(users))),
        Err(error) => {
            kept.push(error.to_string());
            before.get(&path).cloned().map(|users| (path, users))
        }
    };
    user_files(config).filter_map(one).collect()
}

/// Changes of content within the same files.
pub(super) fn renewed_users(before: &UsersByFile, after: &UsersByFile) -> Vec<ConfigChange> {
    let changed = after.iter().filter(|(path, users)| before.get(*path).is_some_and(|old| old != *users));
    let change = |path: &PathBuf| ConfigChange { key: "users".into(), what: format!("{} renewed", path.display()) };
    changed.map(|(path, _)| change(path)).collect()
}

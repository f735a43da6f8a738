//! Reads the files of users that routes name: with the configuration, and again when one changes.

use litequic_config::{Config, ConfigChange, FaultCollector};
use litequic_proxy::Users;
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

/// Reads all files of users, and adds each fault to `findings`; `None` if there is a fault. Blocks on the file system.
pub(super) fn load_users(config: &Config, findings: &mut FaultCollector) -> Option<UsersByFile> {
    let mut good = Some(UsersByFile::new());
    for path in user_files(config) {
        match (Users::read_users_file(&path), &mut good) {
            (Ok(users), Some(good)) => drop(good.insert(path, Arc::new(users))),
            (Ok(_), None) => {}
            (Err(error), _) => {
                good = None;
                let routes = config.routes.iter().enumerate();
                for (n, _) in routes.filter(|(_, route)| route.users.as_ref() == Some(&path)) {
                    findings.add_fault(&format!("routes[{n}].users"), &error);
                }
            }
        }
    }
    good
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

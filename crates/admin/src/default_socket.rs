//! Determines the default path of the admin socket, for the process that binds it and for `litequic ctl`. Pure: callers
//! pass the environment.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Environment variable with the directories that systemd creates for a service (RuntimeDirectory=).
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";
/// Environment variable with a user's directory for sockets (XDG Base Directory Specification).
const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Directory for services, and for processes that root starts.
const SYSTEM_DIRECTORY: &str = "/run";
/// Directory of litequic below the user's or the system's directory.
const SOCKET_DIRECTORY: &str = "litequic";
/// File name of the socket.
const SOCKET_NAME: &str = "admin.sock";
/// User ID of root.
const ROOT_UID: u32 = 0;

/// Default of `admin.socket` for this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DefaultSocket {
    /// No default socket was requested.
    #[default]
    Off,
    /// The environment names no directory for the socket.
    Nowhere,
    /// The socket is in this directory, which exists.
    In(PathBuf),
    /// The socket is in this directory, which may have to be created below an existing one.
    Below(PathBuf),
}

impl DefaultSocket {
    /// Finds the default for a process of `user`. The environment is read by `variable`, and the owner of a directory
    /// by `owner`. A user's directory counts only if the user owns it: su(1) keeps the variable of another user.
    pub fn find_default_socket(
        variable: impl Fn(&str) -> Option<OsString>,
        user: u32,
        owner: impl Fn(&Path) -> Option<u32>,
    ) -> Self {
        if let Some(directory) = service_directory(&variable) {
            return Self::In(directory);
        }
        match user_directory(&variable) {
            Some(directory) if owner(&directory) == Some(user) => Self::Below(directory.join(SOCKET_DIRECTORY)),
            _ if user == ROOT_UID => Self::Below(Path::new(SYSTEM_DIRECTORY).join(SOCKET_DIRECTORY)),
            _ => Self::Nowhere,
        }
    }

    /// Returns the path of the socket, if there is one.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match self {
            Self::Off | Self::Nowhere => None,
            Self::In(directory) | Self::Below(directory) => Some(directory.join(SOCKET_NAME)),
        }
    }
}

/// Returns the paths at which a litequic may have its default socket, in the order in which `litequic ctl` tries them.
pub fn default_socket_paths(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let user = user_directory(&variable).map(|directory| directory.join(SOCKET_DIRECTORY));
    let system = Path::new(SYSTEM_DIRECTORY).join(SOCKET_DIRECTORY);
    let mut paths: Vec<PathBuf> = Vec::new();
    for directory in service_directory(&variable).into_iter().chain(user).chain([system]) {
        let path = directory.join(SOCKET_NAME);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Returns the first directory of the service.
fn service_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let all = variable(RUNTIME_DIRECTORY)?;
    std::env::split_paths(&all).next().filter(|directory| directory.is_absolute())
}

fn user_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    variable(XDG_RUNTIME_DIR).map(PathBuf::from).filter(|directory| directory.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: u32 = 1000;

    /// An environment with these variables; `None` leaves one unset.
    fn environment(service: Option<&str>, user: Option<&str>) -> impl Fn(&str) -> Option<OsString> {
        let (service, user) = (service.map(OsString::from), user.map(OsString::from));
        move |name| match name {
            RUNTIME_DIRECTORY => service.clone(),
            XDG_RUNTIME_DIR => user.clone(),
            _ => None,
        }
    }

    #[test]
    fn the_service_comes_before_the_user_and_the_user_before_the_system() {
        let (alices, roots) = ("/run/user/1000", "/run/user/0");
        let owner = |path: &Path| match path.to_str() {
            Some("/run/user/1000") => Some(ALICE),
            Some("/run/user/0") => Some(ROOT_UID),
            _ => None,
        };
        for (service, directory, user, expected) in [
            (Some("/run/litequic"), Some(alices), ALICE, Some("/run/litequic/admin.sock")),
            (Some("/run/one:/run/two"), None, ALICE, Some("/run/one/admin.sock")),
            (None, Some(alices), ALICE, Some("/run/user/1000/litequic/admin.sock")),
            (None, Some(roots), ROOT_UID, Some("/run/user/0/litequic/admin.sock")),
            // After su(1), the variable still names another user's directory.
            (None, Some(alices), ROOT_UID, Some("/run/litequic/admin.sock")),
            (None, Some(roots), ALICE, None),
            (None, Some("/absent"), ALICE, None),
            (None, None, ROOT_UID, Some("/run/litequic/admin.sock")),
            (None, None, ALICE, None),
            // The values are empty or relative paths.
            (Some(""), Some(""), ROOT_UID, Some("/run/litequic/admin.sock")),
            (Some("litequic"), Some("user"), ALICE, None),
        ] {
            let found = DefaultSocket::find_default_socket(environment(service, directory), user, owner);
            assert_eq!(found.socket_path().as_deref(), expected.map(Path::new), "{service:?} {directory:?} {user}");
        }
    }

    #[test]
    fn ctl_looks_at_each_place_once() {
        let paths = |service, user| default_socket_paths(environment(service, user));
        let expected = ["/run/user/1000/litequic/admin.sock", "/run/litequic/admin.sock"];
        assert_eq!(paths(None, Some("/run/user/1000")), expected.map(PathBuf::from));
        assert_eq!(paths(Some("/run/litequic"), Some("/run/user/1000"))[0], Path::new(expected[1]));
        assert_eq!(paths(Some("/run/litequic"), Some("/run/user/1000")).len(), 2);
        assert_eq!(paths(None, None), [PathBuf::from(expected[1])]);
    }
}

//! Determines the default path of the admin socket, for the process that binds it and for `litequic ctl`. Callers pass
//! the environment.

use std::{
    ffi::OsString,
    fs::{self, DirEntry},
    io,
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
pub const SOCKET_NAME: &str = "admin.sock";
/// Beginning of the socket's name for a further process, before its number.
const FURTHER_PREFIX: &str = "admin-";
/// End of the socket's name for a further process.
const FURTHER_SUFFIX: &str = ".sock";
/// Most sockets of further processes that are listed.
const MAX_FURTHER_SOCKETS: usize = 64;
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

    /// Returns the directory of the socket, if there is one.
    pub fn socket_directory(&self) -> Option<&Path> {
        match self {
            Self::Off | Self::Nowhere => None,
            Self::In(directory) | Self::Below(directory) => Some(directory),
        }
    }

    /// Returns the path of the socket, if there is one.
    pub fn socket_path(&self) -> Option<PathBuf> {
        self.socket_directory().map(|directory| directory.join(SOCKET_NAME))
    }

    /// Returns the path of the socket for the process with the number `process`, if another one has the default path.
    pub fn further_socket_path(&self, process: u32) -> Option<PathBuf> {
        self.socket_directory().map(|directory| directory.join(format!("{FURTHER_PREFIX}{process}{FURTHER_SUFFIX}")))
    }
}

/// Returns the directories in which a litequic may have its default socket, in the order in which `litequic ctl` looks
/// at them. In the environment of a service, that is the service's alone.
pub fn default_socket_directories(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    if let Some(directory) = service_directory(&variable) {
        return vec![directory];
    }
    let user = user_directory(&variable).map(|directory| directory.join(SOCKET_DIRECTORY));
    let system = Path::new(SYSTEM_DIRECTORY).join(SOCKET_DIRECTORY);
    user.into_iter().chain([system]).collect()
}

/// Returns the path of the default socket in `directory`, and those of further processes that have sockets there.
pub fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let name = |entry: io::Result<DirEntry>| entry.ok()?.file_name().into_string().ok();
    let is_further = |name: &String| {
        let process = name.strip_prefix(FURTHER_PREFIX).and_then(|rest| rest.strip_suffix(FURTHER_SUFFIX));
        process.is_some_and(|process| process.parse::<u32>().is_ok())
    };
    // A directory that is missing or forbidden has the first path, whose connection fails with the reason.
    let further = fs::read_dir(directory).into_iter().flatten().filter_map(name).filter(is_further);
    let mut paths: Vec<_> = further.take(MAX_FURTHER_SOCKETS).map(|name| directory.join(name)).collect();
    paths.sort_unstable();
    paths.insert(0, directory.join(SOCKET_NAME));
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
    fn ctl_looks_at_a_services_directory_alone() {
        let directories = |service, user| default_socket_directories(environment(service, user));
        let expected = ["/run/user/1000/litequic", "/run/litequic"];
        assert_eq!(directories(None, Some("/run/user/1000")), expected.map(PathBuf::from));
        assert_eq!(directories(Some("/run/one"), Some("/run/user/1000")), [PathBuf::from("/run/one")]);
        assert_eq!(directories(None, None), [PathBuf::from(expected[1])]);
    }

    #[test]
    fn further_sockets_have_the_number_of_their_process() {
        let folder = tempfile::tempdir().unwrap();
        let default = DefaultSocket::In(folder.path().into());
        let further = default.further_socket_path(4711).unwrap();
        for name in ["admin-x.sock", "admin.sock.12", "other-4.sock", "admin-12.sock.4"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(&further, "").unwrap();
        assert_eq!(sockets_in(folder.path()), [default.socket_path().unwrap(), further]);
        let absent = folder.path().join("absent");
        assert_eq!(sockets_in(&absent), [absent.join("admin.sock")]);
    }
}

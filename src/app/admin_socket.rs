//! Binds the admin socket before the process serves, and publishes it at its path, or, if another process has the
//! default one, at a path with the process ID. An unavailable default socket is a warning, an unavailable configured
//! one a fault.

use super::{named_socket::SocketName, start_error::StartError};
use litequic_admin::DefaultSocket;
use litequic_config::AdminSocket;
use std::{
    fs::{DirBuilder, File, TryLockError},
    io::{self, ErrorKind},
    os::unix::{fs::DirBuilderExt, net::UnixListener},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{net::UnixStream, time::sleep};

/// Mode of the directory that is created for the default socket.
const FOLDER_MODE: u32 = 0o700;
/// Attempts to lock the folder of the socket. A starting litequic holds the lock for a connect(2) and a rename(2);
/// another program may hold a lock of its own for good.
const LOCK_ATTEMPTS: usize = 100;
/// Delay between two attempts to lock the folder.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct BoundAdminSocket {
    pub(super) listener: UnixListener,
    /// Name of the socket, whose drop removes the file.
    pub(super) name: SocketName,
    /// Path that the socket has, or gets when it is published.
    pub(super) path: PathBuf,
    /// Path that is used if another process has published its socket at `path` by then.
    further: Option<PathBuf>,
    /// Whether the configuration names the path.
    is_named: bool,
    /// Process that this one replaces, if there is one; its number is `None` in another PID namespace.
    predecessor: Option<Option<i32>>,
}

impl BoundAdminSocket {
    /// Binds the socket that `configured` names, or else the `default`. If another process than `predecessor`, which
    /// this one replaces, accepts connections at the path, that is an error. `None` if no socket is wanted, or the
    /// default is unavailable.
    ///
    /// # Errors
    ///
    /// [`StartError::AdminSocket`], of a path that the configuration names.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no file behind.
    pub(super) async fn bind_configured(
        configured: &AdminSocket,
        default: &DefaultSocket,
        predecessor: Option<Option<i32>>,
    ) -> Result<Option<Self>, StartError> {
        match (configured, default, default.socket_path()) {
            (AdminSocket::None, ..) | (AdminSocket::Auto, DefaultSocket::Off, _) => Ok(None),
            (AdminSocket::At(path), ..) => {
                let failed = |source| StartError::AdminSocket { path: path.clone(), source };
                Self::bind_path(path, true, predecessor).await.map(Some).map_err(failed)
            }
            (AdminSocket::Auto, default, Some(path)) => {
                let further = default.further_socket_path(std::process::id());
                let bound = async {
                    if let DefaultSocket::Below(folder) = default {
                        create_socket_folder(folder)?;
                    }
                    Self::bind_default(&path, further, predecessor).await
                };
                Ok(bound.await.map_err(|error| warn_no_socket(&path, &error)).ok())
            }
            (AdminSocket::Auto, _, None) => {
                tracing::info!(
                    "no admin socket: neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR names a directory of this user; \
                     to use litequic ctl, set admin.socket or admin.listen"
                );
                Ok(None)
            }
        }
    }

    async fn bind_path(path: &Path, is_named: bool, predecessor: Option<Option<i32>>) -> io::Result<Self> {
        check_path_free(path, predecessor).await?;
        let (listener, name) = SocketName::bind_beside(path)?;
        Ok(Self { listener, name, path: path.to_owned(), further: None, is_named, predecessor })
    }

    /// Binds the default socket at `path`, or at `further` if another process has that one.
    async fn bind_default(path: &Path, further: Option<PathBuf>, predecessor: Option<Option<i32>>) -> io::Result<Self> {
        match (Self::bind_path(path, false, predecessor).await, further) {
            (Err(error), Some(further)) if error.kind() == ErrorKind::AddrInUse => {
                let (path, further) = (path.display(), &further);
                tracing::info!(%path, own = %further.display(), "{error}: this process has an admin socket of its own");
                Self::bind_path(further, false, predecessor).await
            }
            (bound, further) => Ok(Self { further, ..bound? }),
        }
    }

    /// Renames the socket to its path. An unavailable default is logged, and `None` is returned.
    ///
    /// # Errors
    ///
    /// [`StartError::AdminSocket`], of a path that the configuration names.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no file behind.
    pub(super) async fn publish_path(mut self) -> Result<Option<Self>, StartError> {
        match self.publish_if_free().await {
            Ok(()) => Ok(Some(self)),
            Err(source) if self.is_named => Err(StartError::AdminSocket { path: self.path.clone(), source }),
            Err(error) => {
                warn_no_socket(&self.path, &error);
                Ok(None)
            }
        }
    }

    /// Gives the socket its name, unless another process accepts connections there by now. If several processes start
    /// at the same moment, the lock lets one at a time check and rename: the first gets the name, and the others find
    /// it in use.
    async fn publish_if_free(&mut self) -> io::Result<()> {
        let _lock =
            lock_folder(self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
                .await;
        match (check_path_free(&self.path, self.predecessor).await, self.further.take()) {
            (Err(_), Some(further)) => self.path = further,
            (free, _) => free?,
        }
        self.name.rename_to(&self.path)
    }
}

fn warn_no_socket(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!(%path, %error, "no admin socket; to use litequic ctl, set admin.socket or admin.listen");
}

/// Locks `folder` until the file is dropped (flock(2)). `None` if locking fails: this user may not read the folder, its
/// file system has no locks, or another program holds one.
async fn lock_folder(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => sleep(LOCK_RETRY_DELAY).await,
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Returns an error if a process other than `predecessor` accepts connections at `path`.
async fn check_path_free(path: &Path, predecessor: Option<Option<i32>>) -> io::Result<()> {
    match listening_process(path).await {
        Some(process) if predecessor != Some(process) => {
            let whose = process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
            Err(io::Error::new(ErrorKind::AddrInUse, format!("{whose} answers there")))
        }
        _ => Ok(()),
    }
}

/// Process that accepts connections at `path`, by its number: the inner `None` in another PID namespace. The outer
/// `None` if nothing listens there.
async fn listening_process(path: &Path) -> Option<Option<i32>> {
    match UnixStream::connect(path).await {
        Ok(stream) => Some(stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|process| *process > 0)),
        // EAGAIN: a process listens, whose backlog is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(None),
        Err(_) => None,
    }
}

/// Creates the directory of the default socket, if it is missing.
fn create_socket_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    async fn bind(configured: AdminSocket, default: &DefaultSocket) -> Result<Option<BoundAdminSocket>, String> {
        BoundAdminSocket::bind_configured(&configured, default, None).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_unavailable_default_socket_is_skipped_and_a_configured_one_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent/admin.sock");
        let long = folder.path().join("a".repeat(100));
        for (default, named, reason) in [
            (absent.parent().unwrap(), &absent, "No such file or directory (os error 2)"),
            (&long, &long.join("admin.sock"), "path must be shorter than SUN_LEN"),
        ] {
            let default = DefaultSocket::In(default.into());
            assert!(bind(AdminSocket::Auto, &default).await.unwrap().is_none(), "{reason}");
            let expected = format!("cannot listen on admin.socket = {named:?}: {reason}");
            assert_eq!(bind(AdminSocket::At(named.clone()), &default).await.unwrap_err(), expected);
        }
        assert!(bind(AdminSocket::None, &DefaultSocket::In(folder.path().into())).await.unwrap().is_none());
        for default in [DefaultSocket::Off, DefaultSocket::Nowhere] {
            assert!(bind(AdminSocket::Auto, &default).await.unwrap().is_none());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");

        let taken = folder.path().join("admin.sock");
        let _other = tokio::net::UnixListener::bind(&taken).unwrap();
        let expected =
            format!("cannot listen on admin.socket = {taken:?}: process {} answers there", std::process::id());
        assert_eq!(bind(AdminSocket::At(taken), &DefaultSocket::Off).await.unwrap_err(), expected);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[tokio::test]
    async fn the_predecessors_socket_and_a_stale_one_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("litequic/admin.sock");
        let default = DefaultSocket::Below(folder.path().join("litequic"));
        let before = bind(AdminSocket::Auto, &default).await.unwrap().unwrap().publish_path().await.unwrap().unwrap();
        let process = i32::try_from(std::process::id()).unwrap();
        let bound = |predecessor| BoundAdminSocket::bind_configured(&AdminSocket::Auto, &default, predecessor);
        let further = bound(Some(Some(process + 1))).await.unwrap().unwrap().path;
        assert_eq!(further, path.with_file_name(format!("admin-{process}.sock")));
        let after = bound(Some(Some(process))).await.unwrap().unwrap().publish_path().await.unwrap().unwrap();
        drop(before);
        assert!(path.exists());
        // This process ends without removing its file.
        let BoundAdminSocket { listener, mut name, .. } = after;
        name.disown_file();
        drop((listener, name));
        assert!(path.exists() && bound(None).await.unwrap().is_some());
    }

    /// Two processes that start at the same moment have both found the path free.
    #[tokio::test]
    async fn a_process_that_published_its_socket_first_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let default = DefaultSocket::In(folder.path().into());
        let own = path.with_file_name(format!("admin-{}.sock", std::process::id()));
        let expected =
            format!("cannot listen on admin.socket = {path:?}: process {} answers there", std::process::id());
        for configured in [AdminSocket::Auto, AdminSocket::At(path.clone())] {
            let bound = bind(configured.clone(), &default).await.unwrap().unwrap();
            let other = tokio::net::UnixListener::bind(&path).unwrap();
            match bound.publish_path().await {
                Ok(published) => {
                    assert_eq!(configured, AdminSocket::Auto);
                    assert_eq!(published.unwrap().path, own);
                }
                Err(error) => {
                    assert_eq!((configured, error.to_string()), (AdminSocket::At(path.clone()), expected.clone()));
                }
            }
            let published = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(published.collect::<Vec<_>>(), ["admin.sock"]);
            assert!(UnixStream::connect(&path).await.is_ok(), "the other process's");
            drop(other);
            fs::remove_file(&path).unwrap();
        }
    }

    /// A program that has locked the folder for itself delays the start, and does not prevent it.
    #[tokio::test(start_paused = true)]
    async fn a_locked_folder_delays_the_socket_only() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = lock_folder(folder.path()).await.unwrap();
        let default = DefaultSocket::In(folder.path().into());
        let bound = bind(AdminSocket::Auto, &default).await.unwrap().unwrap();
        assert!(bound.publish_path().await.unwrap().is_some());
    }
}

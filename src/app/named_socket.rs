//! A Unix socket with a name in the file system: bound beside its name and renamed, so that clients find the previous
//! process's socket or this one, and removed at the end if the name still leads to it.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// The name of a bound Unix socket. The file is removed when this is dropped, unless another socket has the name by
/// then.
#[derive(Debug)]
pub(super) struct SocketName {
    /// Where the socket is at present.
    path: PathBuf,
    /// Device and inode of the socket; `None` once the file is not to be removed.
    identity: Option<(u64, u64)>,
}

impl SocketName {
    /// Binds a socket under another name in the folder of `path`: all that a full disk or a missing permission can
    /// prevent has happened before [`publish`](Self::publish). The socket does not block.
    ///
    /// # Errors
    ///
    /// The kernel's; or `path` exists and is not a socket.
    pub(super) fn bind_beside(path: &Path) -> io::Result<(UnixListener, Self)> {
        let other = fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
        if other {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is not a socket"));
        }
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}", std::process::id()));
        Self::bind_temporary(&path.with_file_name(name))
    }

    fn bind_temporary(new: &Path) -> io::Result<(UnixListener, Self)> {
        let listener = match UnixListener::bind(new) {
            // A process with this number, as the first one of a container, was killed before it had published its
            // socket.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale_socket(new) => {
                fs::remove_file(new)?;
                UnixListener::bind(new)?
            }
            bound => bound?,
        };
        // From here on, an error removes the file with the name.
        let name = Self { path: new.to_owned(), identity: Some(file_identity(new)?) };
        listener.set_nonblocking(true)?;
        fs::set_permissions(new, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok((listener, name))
    }

    /// Atomically replaces the socket that has the name `path`, if there is one.
    ///
    /// # Errors
    ///
    /// The kernel's. The socket keeps the name that it was bound by.
    pub(super) fn rename_to(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Leaves the name to a process that takes over: this one does not remove the file.
    pub(super) fn disown_file(&mut self) {
        self.identity = None;
    }
}

/// Whether `path` is a socket at which no process listens.
fn is_stale_socket(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for SocketName {
    fn drop(&mut self) {
        // Another process may have put its own there.
        if self.identity.is_some() && file_identity(&self.path).ok() == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_and_removed_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        // Stale: the process that bound it is gone.
        drop(UnixListener::bind(&path).unwrap());
        let (_first_listener, mut first) = SocketName::bind_beside(&path).unwrap();
        first.rename_to(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE);
        let (_second_listener, mut second) = SocketName::bind_beside(&path).unwrap();
        second.rename_to(&path).unwrap();
        drop(first);
        assert!(path.exists(), "the name is the second's");
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::create_dir(at("folder")).unwrap();
        drop(UnixListener::bind(at("socket")).unwrap());
        std::os::unix::fs::symlink(at("socket"), at("link")).unwrap();
        for name in ["file", "folder", "link"] {
            let error = SocketName::bind_beside(&at(name)).unwrap_err();
            assert_eq!(error.to_string(), "the file exists and is not a socket", "{name}");
        }
        let long = at(&"a".repeat(108));
        assert_eq!(SocketName::bind_beside(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(SocketName::bind_beside(&at("absent/socket")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}

//! Gives a Unix socket a name in the file system: binds beside the name and renames, so that clients find the previous
//! process's socket or this one, and removes the file at the end if the name still leads to it.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Mode of the socket file: only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// Name of a bound Unix socket. Dropping it removes the file, unless another socket has the name by then.
#[derive(Debug)]
pub(super) struct SocketName {
    /// Present path of the socket.
    path: PathBuf,
    /// Device and inode of the socket; `None` once the file must not be removed.
    identity: Option<(u64, u64)>,
}

impl SocketName {
    /// Binds a socket under another name in the folder of `path`: a full disk or a missing permission fails here, not
    /// in [`rename_to`](Self::rename_to). The socket does not block.
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
            // A process with this number, such as the first one of a container, was killed before it had renamed its
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

    /// Renames the socket to `path`, and atomically replaces a socket there.
    ///
    /// # Errors
    ///
    /// The kernel's. The socket keeps its former name.
    pub(super) fn rename_to(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Leaves the file to a successor: dropping the name no longer removes it.
    pub(super) fn disown_file(&mut self) {
        self.identity = None;
    }
}

/// Returns whether `path` is a socket at which no process listens.
fn is_stale_socket(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for SocketName {
    fn drop(&mut self) {
        // Another process may have renamed its own socket to this path.
        if self.identity.is_some() && file_identity(&self.path).ok() == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_is_removed_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        // The process that bound this socket is gone.
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
    fn a_file_that_is_no_socket_is_not_replaced() {
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

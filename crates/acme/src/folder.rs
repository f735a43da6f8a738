//! Stores the files of an `[[acme]]` table: accounts, certificates with their keys, plans, challenges, locks. A file is
//! written under a temporary name, flushed to the disk and renamed, so that readers find the old or the new content,
//! also after a crash. Blocks on the file system.

use super::plan::{CurrentCertificate, HostPlan, Validity};
use instant_acme::CertificateIdentifier;
use litequic_config::AcmeHost;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value as Json;
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// Bytes of a file at most. A chain with its key has about 6 KB.
const MAX_STORED_FILE_BYTES: u64 = 1024 * 1024;
/// Number of challenge files that are read at most.
const MAX_CHALLENGE_FILES: usize = 1000;
/// Subfolder of the challenges.
const CHALLENGE_FOLDER: &str = "challenges";
/// Permission bits of all users but the owner.
const OTHERS_PERMISSIONS: u32 = 0o077;

/// The folder of an `[[acme]]` table, by its path.
#[derive(Debug, Clone)]
pub(super) struct AcmeFolder(pub(super) PathBuf);

/// A certificate with its key, as stored in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredCertificate {
    /// The chain, leaf first, then the key, in PEM.
    pub(super) pem: String,
    pub(super) validity: Validity,
    /// Identifier for renewal information (RFC 9773 §4.1); `None` without an authority key identifier.
    pub(super) id: Option<String>,
}

impl StoredCertificate {
    /// Reads the leaf of a chain in PEM.
    ///
    /// # Errors
    ///
    /// A message with the fault of the chain.
    pub(super) fn from_chain_pem(pem: String) -> Result<Self, String> {
        let der = CertificateDer::pem_slice_iter(pem.as_bytes()).next().ok_or("the file contains no certificate")?;
        let der = der.map_err(|error| format!("the file is not valid PEM: {error}"))?;
        let (_, leaf) =
            X509Certificate::from_der(&der).map_err(|error| format!("the certificate is not X.509: {error}"))?;
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
        let (from, until) = (seconds(leaf.validity().not_before), seconds(leaf.validity().not_after));
        let id = CertificateIdentifier::try_from(&der).ok().map(|id| id.to_string());
        Ok(Self { pem, validity: Validity { from, until }, id })
    }

    pub(super) fn current_certificate(&self) -> CurrentCertificate<'_> {
        CurrentCertificate { validity: self.validity, id: self.id.as_deref() }
    }
}

/// A stored file that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnusableFile {
    /// Path and fault, for the operator.
    pub(super) problem: String,
    /// Whether the file was read: its content is empty or wrong.
    pub(super) is_damaged: bool,
}

/// A lock that the kernel releases when this value is dropped, or the process ends.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: Option<File>,
}

/// Reason why a lock was not taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process holds the lock.
    Taken,
    /// The lock's file cannot be opened.
    Io(io::Error),
}

impl AcmeFolder {
    /// Refers to the folder at `path`, which need not exist.
    pub(super) fn new(path: &Path) -> Self {
        Self(path.into())
    }

    /// Creates the folder, if it does not exist, for the owner alone.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub(super) fn create_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.0.join(CHALLENGE_FOLDER))
    }

    /// Whether others than the owner may read the folder.
    pub(super) fn is_open_to_others(&self) -> bool {
        fs::metadata(&self.0).is_ok_and(|folder| folder.mode() & OTHERS_PERMISSIONS != 0)
    }

    /// Returns the content of `name`; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// An error of the file system, or the file is too large or not UTF-8.
    pub(super) fn read_stored_file(&self, name: &str) -> io::Result<Option<String>> {
        let mut text = String::new();
        match File::open(self.0.join(name)) {
            Ok(file) => file.take(MAX_STORED_FILE_BYTES + 1).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if text.len() as u64 > MAX_STORED_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(text))
    }

    /// Stores `content` as `name`.
    ///
    /// # Errors
    ///
    /// An error of the file system; the old file is then unchanged.
    pub(super) fn write_stored_file(&self, name: &str, content: &str) -> io::Result<()> {
        self.create_folder()?;
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        // Processes in containers may have the same ID, so the name has a random part.
        let beside = parent.join(format!(".{file_name}.{}-{:08x}", std::process::id(), rand::random::<u32>()));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(parent)?.sync_all()
        };
        write().inspect_err(|_| {
            // After the rename there is no temporary file, and this has no effect.
            let _ = fs::remove_file(&beside);
        })
    }

    /// Removes `name`, if there is such a file.
    pub(super) fn remove_stored_file(&self, name: &str) {
        // The next file of this name overwrites one that cannot be removed.
        let _ = fs::remove_file(self.0.join(name));
    }

    /// Locks `name` until the result is dropped.
    ///
    /// # Errors
    ///
    /// [`LockError`]. On a file system without locks this succeeds with a warning, and the folder is read before each
    /// order.
    pub(super) fn try_lock_file(&self, name: &str) -> Result<FolderLock, LockError> {
        self.create_folder().map_err(LockError::Io)?;
        let path = self.0.join(format!("{name}.lock"));
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(LockError::Taken),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = %path.display(), %error, "this file system does not support locks: replicas may \
                                                                order a certificate twice");
                Ok(FolderLock { _file: None })
            }
        }
    }

    /// Returns the content of `name`, read by `parse`; `None` if there is no such file. The file stays unchanged.
    fn parse_stored_file<T>(
        &self,
        name: &str,
        parse: impl FnOnce(String) -> Result<T, String>,
    ) -> Result<Option<T>, UnusableFile> {
        let unusable = |problem: String, is_damaged| {
            let problem = format!("{}: {problem}", self.0.join(name).display());
            UnusableFile { problem, is_damaged }
        };
        match self.read_stored_file(name) {
            Ok(Some(text)) => parse(text).map(Some).map_err(|problem| unusable(problem, true)),
            Ok(None) => Ok(None),
            Err(error) => {
                let is_damaged = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge);
                Err(unusable(error.to_string(), is_damaged))
            }
        }
    }

    /// Returns the content of `name`, read by `parse`; `None` if there is no such file. A damaged file is renamed, so
    /// that a new one can be stored.
    ///
    /// # Errors
    ///
    /// The reason why the file can neither be read nor renamed.
    pub(super) fn load_stored_file<T>(
        &self,
        name: &str,
        parse: impl FnOnce(String) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        match self.parse_stored_file(name, parse) {
            Err(UnusableFile { problem, is_damaged: true }) => {
                let aside = self.0.join(format!("{name}.damaged"));
                fs::rename(self.0.join(name), &aside)
                    .map_err(|error| format!("{problem}; the file cannot be renamed: {error}"))?;
                tracing::error!(problem, renamed_to = %aside.display(), "a damaged file was renamed");
                Ok(None)
            }
            other => other.map_err(|unusable| unusable.problem),
        }
    }

    /// Reads the certificate of `host`.
    ///
    /// # Errors
    ///
    /// The reason why the file cannot be used. The file stays unchanged.
    pub(super) fn read_stored_certificate(&self, host: &AcmeHost) -> Result<Option<StoredCertificate>, UnusableFile> {
        self.parse_stored_file(&certificate_file_name(host), StoredCertificate::from_chain_pem)
    }

    /// Returns modification time and inode number of the certificate's file of `host`; `None` without a file.
    pub(super) fn certificate_file_version(&self, host: &AcmeHost) -> Option<(SystemTime, u64)> {
        let file = fs::metadata(self.0.join(certificate_file_name(host))).ok()?;
        Some((file.modified().ok()?, file.ino()))
    }

    /// Reads the plan of `host`; an empty plan without a file.
    ///
    /// # Errors
    ///
    /// The reason why the file cannot be used. The file stays unchanged.
    pub(super) fn read_plan(&self, host: &AcmeHost) -> Result<HostPlan, UnusableFile> {
        Ok(self.parse_stored_file(&plan_file_name(host), parse_plan)?.unwrap_or_default())
    }

    /// Reads the plan of `host`; an empty plan without a file. A damaged file is renamed.
    ///
    /// # Errors
    ///
    /// The reason why the file can neither be read nor renamed.
    pub(super) fn load_plan(&self, host: &AcmeHost) -> Result<HostPlan, String> {
        Ok(self.load_stored_file(&plan_file_name(host), parse_plan)?.unwrap_or_default())
    }

    /// Stores the plan of `host`.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub(super) fn write_plan(&self, host: &AcmeHost, plan: &HostPlan) -> io::Result<()> {
        self.write_stored_file(&plan_file_name(host), &format!("{:#}\n", plan.to_json()))
    }

    /// Returns names and contents of the challenge files.
    pub(super) fn read_challenge_files(&self) -> Vec<(String, String)> {
        let Ok(files) = fs::read_dir(self.0.join(CHALLENGE_FOLDER)) else { return Vec::new() };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let names = names.filter(|name| !name.starts_with('.')).take(MAX_CHALLENGE_FILES);
        names
            .filter_map(|name| {
                let content = self.read_stored_file(&challenge_file_name(&name)).ok()??;
                Some((name, content))
            })
            .collect()
    }
}

/// Returns the identifier for renewal information whose text is `id` (RFC 9773 §4.1).
pub(super) fn parse_certificate_id(id: &str) -> Option<CertificateIdentifier<'_>> {
    let (authority, serial) = id.split_once('.')?;
    Some(CertificateIdentifier { authority_key_identifier: authority.into(), serial: serial.into() })
}

/// Returns the name of a host's files without extension. No DNS name has `@`, and some file systems reject `:` and `*`.
pub(super) fn host_file_stem(host: &AcmeHost) -> String {
    match host {
        AcmeHost::Name(name) => name.clone(),
        AcmeHost::Wildcard(parent) => format!("wildcard@{parent}"),
        AcmeHost::Address(address) => format!("ip@{}", address.to_string().replace(':', "-")),
    }
}

/// Returns the name of the file with the certificate and key of `host`.
pub(super) fn certificate_file_name(host: &AcmeHost) -> String {
    format!("{}.pem", host_file_stem(host))
}

fn parse_plan(text: String) -> Result<HostPlan, String> {
    let json = serde_json::from_str::<Json>(&text).ok().filter(Json::is_object);
    Ok(HostPlan::from_json(&json.ok_or("the file contains no renewal plan")?))
}

fn plan_file_name(host: &AcmeHost) -> String {
    format!("{}.json", host_file_stem(host))
}

/// Returns the path of the challenge file `name`, relative to the folder.
pub(super) fn challenge_file_name(name: &str) -> String {
    format!("{CHALLENGE_FOLDER}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder() -> (tempfile::TempDir, AcmeFolder) {
        let parent = tempfile::tempdir().unwrap();
        let folder = AcmeFolder::new(&parent.path().join("state/acme"));
        (parent, folder)
    }

    #[test]
    fn files_are_for_their_owner_alone_and_replaced_as_a_whole() {
        let (_parent, folder) = folder();
        assert_eq!(folder.read_stored_file("a").unwrap(), None);
        folder.write_stored_file("a", "one").unwrap();
        folder.write_stored_file("a", "two").unwrap();
        assert_eq!(folder.read_stored_file("a").unwrap().as_deref(), Some("two"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.0), mode(&folder.0.join("a"))), (0o700, 0o600));
        assert!(!folder.is_open_to_others());
        let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(folder.is_open_to_others());
    }

    #[test]
    fn a_file_that_is_too_large_or_no_text_is_an_error() {
        let (_parent, folder) = folder();
        folder.create_folder().unwrap();
        fs::write(folder.0.join("a"), vec![b'x'; 1 + usize::try_from(MAX_STORED_FILE_BYTES).unwrap()]).unwrap();
        fs::write(folder.0.join("b"), [0xff, 0xfe]).unwrap();
        assert_eq!(folder.read_stored_file("a").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(folder.read_stored_file("b").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_damaged_file_is_renamed_and_an_unreadable_one_stays() {
        let (_parent, folder) = folder();
        folder.create_folder().unwrap();
        let host = AcmeHost::Name("a.test".into());
        let path = |name: &str| folder.0.join(name);
        let name = certificate_file_name(&host);
        let load = || folder.load_stored_file(&name, StoredCertificate::from_chain_pem);
        assert_eq!((load(), folder.load_plan(&host)), (Ok(None), Ok(HostPlan::default())));
        for damaged in [
            &b""[..],
            b"no certificate",
            &[0xff, 0xfe],
            &vec![b'x'; usize::try_from(MAX_STORED_FILE_BYTES).unwrap() + 1],
        ] {
            fs::write(path("a.test.pem"), damaged).unwrap();
            let file = folder.read_stored_certificate(&host).unwrap_err();
            assert!(file.is_damaged && file.problem.contains("a.test.pem: "), "{file:?}");
            assert!(path("a.test.pem").exists(), "only a start renames");
            assert_eq!(load(), Ok(None));
            assert!(!path("a.test.pem").exists());
            assert_eq!(fs::read(path("a.test.pem.damaged")).unwrap(), damaged);
        }
        for damaged in ["{", "", "[1]"] {
            fs::write(path("a.test.json"), damaged).unwrap();
            let problem = folder.read_plan(&host).unwrap_err().problem;
            assert!(problem.ends_with("a.test.json: the file contains no renewal plan"), "{problem}");
            assert_eq!(folder.load_plan(&host), Ok(HostPlan::default()));
            assert_eq!(fs::read_to_string(path("a.test.json.damaged")).unwrap(), damaged);
        }
        fs::create_dir(path("a.test.pem")).unwrap();
        assert!(load().unwrap_err().contains("a.test.pem: ") && path("a.test.pem").is_dir());
    }

    #[test]
    fn a_lock_is_one_process_and_ends_with_it() {
        let (_parent, folder) = folder();
        let locked = folder.try_lock_file("a").unwrap();
        assert!(matches!(folder.try_lock_file("a"), Err(LockError::Taken)));
        assert!(folder.try_lock_file("b").is_ok());
        drop(locked);
        assert!(folder.try_lock_file("a").is_ok());
    }

    #[test]
    fn no_two_hosts_have_one_file() {
        let hosts = ["a.test", "*.a.test", "192.0.2.1", "[2001:db8::1]", "wildcard.a.test"];
        let stems: Vec<_> = hosts.iter().map(|host| host_file_stem(&AcmeHost::from((*host).to_owned()))).collect();
        assert_eq!(stems, ["a.test", "wildcard@a.test", "ip@192.0.2.1", "ip@2001-db8--1", "wildcard.a.test"]);
    }
}

//! Reports that watched files may have changed: configuration and certificates, as editors, `mv`, certificate clients
//! and Kubernetes change them. The caller reads the files anew.
//!
//! inotify(7) watches directories, for a file that is replaced is another inode. On the path to a file, every directory
//! with a link is watched: Kubernetes swaps the link `..data` beside the watched one. A directory that is moved or
//! deleted reports so itself, and if it is missing, its parent is watched for it.

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

/// Quiet time after which changed files are read: files that belong together are written one after the other.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// Longest delay of a report, even if writing goes on.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Links that a path may lead through: what path_resolution(7) allows.
const MAX_LINKS: usize = 40;
/// Bytes for events: some dozens of events, and at least one.
const EVENT_BUFFER_BYTES: usize = 4096;

/// Watches files for changes.
pub(super) struct FileWatcher {
    events: EventStream<[u8; EVENT_BUFFER_BYTES]>,
    /// Directory entries that are watched, by directory.
    names: HashMap<WatchDescriptor, BTreeSet<OsString>>,
}

impl FileWatcher {
    /// Watches `files`, which need not exist. Blocks on the file system for a moment. To be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel's: often `fs.inotify.max_user_instances` or `max_user_watches`. A directory that cannot be watched
    /// alone is handed to `failed`, and the others are watched.
    pub(super) fn new<'a>(
        files: impl IntoIterator<Item = &'a PathBuf>,
        mut failed: impl FnMut(&Path, io::Error),
    ) -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream([0; EVENT_BUFFER_BYTES])?;
        let mut names: HashMap<WatchDescriptor, BTreeSet<OsString>> = HashMap::new();
        let entries: BTreeSet<_> = files.into_iter().flat_map(|file| watched_entries(file)).collect();
        for (directory, name) in entries {
            let mask = WatchMask::CREATE
                | WatchMask::CLOSE_WRITE
                | WatchMask::ATTRIB
                | WatchMask::MOVE
                | WatchMask::DELETE
                | WatchMask::DELETE_SELF
                | WatchMask::MOVE_SELF
                | WatchMask::ONLYDIR;
            match events.watches().add(&directory, mask) {
                Ok(watch) => _ = names.entry(watch).or_default().insert(name),
                Err(error) => failed(&directory, error),
            }
        }
        Ok(Self { events, names })
    }

    /// Waits until a file has changed and no further change follows.
    ///
    /// # Cancel safety
    ///
    /// Events from before are discarded; a caller that drops the future to read the files misses nothing.
    pub(super) async fn wait_for_change(&mut self) {
        wait_until_quiet(async || self.next_event().await).await;
    }

    async fn next_event(&mut self) {
        loop {
            match self.events.next().await {
                // An event without a name is about the directory itself, or events were lost.
                Some(Ok(event)) => {
                    let counts = event
                        .name
                        .is_none_or(|name| self.names.get(&event.wd).is_some_and(|names| names.contains(&name)));
                    if counts && event.mask != EventMask::IGNORED {
                        return;
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "watching files failed: only SIGHUP reloads from now on");
                    return std::future::pending().await;
                }
                None => return std::future::pending().await,
            }
        }
    }
}

/// Waits for the first event and then for quiet.
async fn wait_until_quiet(mut next: impl AsyncFnMut()) {
    next().await;
    let latest = Instant::now() + MAX_DELAY;
    while Instant::now() < latest {
        if timeout_at(latest.min(Instant::now() + QUIET_PERIOD), next()).await.is_err() {
            return;
        }
    }
}

/// Directory entries that determine the file `file`: each link on the way, and the file, or the first missing
/// component. The directories are free of links.
fn watched_entries(file: &Path) -> Vec<(PathBuf, OsString)> {
    let mut found = Vec::new();
    // A relative path has no meaning without a working directory.
    let Ok(file) = std::path::absolute(file) else { return found };
    let mut directory = PathBuf::new();
    let mut links = 0;
    let mut left: Vec<PathBuf> = reversed_components(&file);
    while let Some(step) = left.pop() {
        let name = match step.components().next() {
            Some(Component::Normal(name)) => name.to_owned(),
            Some(Component::ParentDir) => {
                directory.pop();
                continue;
            }
            Some(Component::RootDir) => {
                directory = PathBuf::from("/");
                continue;
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => continue,
        };
        let entry = directory.join(&name);
        let kind = fs::symlink_metadata(&entry).ok().map(|metadata| metadata.file_type());
        if kind.is_some_and(|kind| kind.is_dir()) && !left.is_empty() {
            directory = entry;
            continue;
        }
        found.push((directory.clone(), name));
        links += 1;
        match fs::read_link(&entry) {
            Ok(target) if links <= MAX_LINKS => left.extend(reversed_components(&target)),
            _ => break, // the file itself, or a missing entry
        }
    }
    found
}

/// Components of `path`, the first one last.
fn reversed_components(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|component| PathBuf::from(component.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

    /// Watched entries of `file`, relative to `root`.
    fn found(root: &Path, file: &str) -> Vec<String> {
        let entry = |(directory, name): (PathBuf, OsString)| {
            directory.join(name).strip_prefix(root).unwrap().display().to_string()
        };
        watched_entries(&root.join(file)).into_iter().map(entry).collect()
    }

    #[test]
    fn every_link_on_the_path_is_watched() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("secret/..v1")).unwrap();
        fs::write(root.join("secret/..v1/tls.crt"), "").unwrap();
        symlink("..v1", root.join("secret/..data")).unwrap();
        symlink("..data/tls.crt", root.join("secret/tls.crt")).unwrap();
        symlink("secret", root.join("tls")).unwrap();
        symlink(root.join("secret/tls.crt"), root.join("absolute")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let behind_link = ["secret/tls.crt", "secret/..data", "secret/..v1/tls.crt"];
        let table: &[(&str, &[&str])] = &[
            ("secret/..v1/tls.crt", &["secret/..v1/tls.crt"]),
            ("secret/tls.crt", &behind_link),
            ("tls/tls.crt", &[&["tls"], &behind_link[..]].concat()),
            ("tls/../secret/./tls.crt", &[&["tls"], &behind_link[..]].concat()),
            ("absolute", &[&["absolute"], &behind_link[..]].concat()),
            ("secret/none", &["secret/none"]),
            ("missing/below/tls.crt", &["missing"]),
        ];
        for (file, expected) in table {
            assert_eq!(found(&root, file), *expected, "{file}");
        }
        assert!(found(&root, "loop").len() <= MAX_LINKS + 1);
    }

    /// Watches `file` in a task that reports each change.
    fn watch(file: &Path) -> (mpsc::UnboundedReceiver<()>, JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut watcher =
            FileWatcher::new([&file.to_owned()], |path, error| panic!("{}: {error}", path.display())).unwrap();
        let task = tokio::spawn(async move {
            loop {
                watcher.next_event().await;
                let _ = sender.send(());
            }
        });
        (receiver, task)
    }

    #[tokio::test]
    async fn every_change_of_a_watched_file_is_reported() {
        type Edit = fn(&Path);
        let table: &[(&str, bool, Edit)] = &[
            ("written", true, |root| fs::write(root.join("dir/file"), "new").unwrap()),
            ("replaced", true, |root| {
                fs::write(root.join("dir/.file.swp"), "new").unwrap();
                fs::rename(root.join("dir/.file.swp"), root.join("dir/file")).unwrap();
            }),
            ("moved away", true, |root| fs::rename(root.join("dir/file"), root.join("dir/old")).unwrap()),
            ("deleted", true, |root| fs::remove_file(root.join("dir/file")).unwrap()),
            ("made readable", true, |root| {
                fs::set_permissions(root.join("dir/file"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
                    .unwrap();
            }),
            ("its directory was moved", true, |root| fs::rename(root.join("dir"), root.join("old")).unwrap()),
            ("its directory was deleted", true, |root| fs::remove_dir_all(root.join("dir")).unwrap()),
            ("read", false, |root| drop(fs::read(root.join("dir/file")).unwrap())),
            ("a neighbour", false, |root| fs::write(root.join("dir/other"), "new").unwrap()),
        ];
        for (what, noticed, edit) in table {
            let temporary = tempfile::tempdir().unwrap();
            fs::create_dir(temporary.path().join("dir")).unwrap();
            fs::write(temporary.path().join("dir/file"), "old").unwrap();
            let (mut changes, task) = watch(&temporary.path().join("dir/file"));
            edit(temporary.path());
            let timeout = if *noticed { Duration::from_secs(10) } else { Duration::from_millis(50) };
            let seen = tokio::time::timeout(timeout, changes.recv()).await.is_ok();
            assert_eq!(seen, *noticed, "{what}");
            task.abort();
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_reported_when_it_is_created() {
        let temporary = tempfile::tempdir().unwrap();
        let (mut changes, _task) = watch(&temporary.path().join("dir/file"));
        fs::create_dir(temporary.path().join("dir")).unwrap();
        tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_one_change_and_its_delay_is_bounded() {
        // Milliseconds between two events, number of events, and milliseconds until the burst counts as settled.
        for (pause, events, expected) in [(0, 1, 500), (100, 10, 900 + 500), (499, 4, 3 * 499 + 500), (400, 100, 5000)]
        {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                for _ in 0..events {
                    let _ = sender.send(());
                    sleep(Duration::from_millis(pause)).await;
                }
                std::future::pending::<()>().await;
            });
            let began = Instant::now();
            wait_until_quiet(async || receiver.recv().await.unwrap()).await;
            assert_eq!(began.elapsed().as_millis(), expected, "{pause} {events}");
        }
    }
}

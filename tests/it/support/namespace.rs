//! A network namespace of a test's own, with interfaces and addresses that the machine does not have. Threads join it:
//! the test runs in this process.

use super::prelude::*;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    os::fd::AsFd,
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};
use tokio::runtime::Builder;

/// A namespace that is there until it is dropped.
struct Namespace(String);

impl Namespace {
    /// A new one, in which the shell has run `setup`. `None`, reported, if the machine allows none.
    fn create(setup: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        needs::program("ip")?;
        let name = format!("litequic-test-{}-{}", process::id(), NUMBER.fetch_add(1, Relaxed));
        let ip = |arguments: &[&str]| Command::new("ip").args(arguments).output().unwrap();
        if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &name]).status.success() {
            needs::skip("no network namespace can be made here (root)");
            return None;
        }
        let namespace = Self(name);
        let done = ip(&["netns", "exec", &namespace.0, "sh", "-ec", setup]);
        if !done.status.success() {
            needs::skip(&format!("the namespace's setup fails: {}", String::from_utf8_lossy(&done.stderr)));
            return None;
        }
        Some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// Runs `work` in a namespace that the shell's `setup` has prepared; skips it, visibly, where there can be none.
pub(crate) fn run_inside<F: Future<Output = ()>>(setup: &str, work: impl FnOnce() -> F + Send) {
    let Some(namespace) = Namespace::create(setup) else { return };
    thread::scope(|scope| {
        // Threads that it starts, a worker's among them, are in its namespace.
        let inside = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{}", namespace.0)).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            Builder::new_current_thread().enable_all().build().unwrap().block_on(work());
        });
        inside.join().unwrap();
    });
}

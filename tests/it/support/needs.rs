//! Programs that a test needs and a machine may lack. Without one the test is skipped, with a message; with
//! `LITEQUIC_REQUIRE` in the environment, as in CI, it fails instead, so that nothing goes untested unnoticed.

use super::prelude::*;
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
};

/// Reports that a test is skipped and why, or fails it.
pub(crate) fn skip(why: &str) {
    assert!(env::var_os("LITEQUIC_REQUIRE").is_none(), "LITEQUIC_REQUIRE is set, but {why}");
    skip_everywhere(why);
}

/// Reports that a test is skipped and why, in CI too: no distribution has what it needs.
pub(crate) fn skip_everywhere(why: &str) {
    // Past the harness, which would show it of tests that fail alone.
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Where the program `name` is: in `PATH`, or where Debian keeps servers.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = in_path(name, &path);
    if found.is_none() {
        skip(&format!("there is no {name}"));
    }
    found
}

/// Looks for all of `names` as [`program`] does, and reports each that is missing.
pub(crate) fn programs(names: &[&str]) -> Option<()> {
    let missing = names.iter().filter(|name| program(name).is_none()).count();
    (missing == 0).then_some(())
}

/// The wall clock of a process, which differs from the system's by libfaketime.
pub(crate) struct Clock {
    library: PathBuf,
    /// Has the seconds by which it is ahead.
    file: PathBuf,
}

impl Clock {
    /// A clock that is set by `file`, and shows the system's time for now.
    pub(crate) fn of(file: impl Into<PathBuf>) -> Option<Self> {
        let folders = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
        // Where Debian has it.
        let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file());
        let Some(library) = found else {
            skip("there is no libfaketime");
            return None;
        };
        let clock = Self { library, file: file.into() };
        clock.set(0);
        Some(clock)
    }

    /// The environment of a process that has this clock. Its other clocks are the system's.
    pub(crate) fn variables(&self) -> [(&'static str, &OsStr); 5] {
        let one = OsStr::new("1");
        [
            ("LD_PRELOAD", self.library.as_os_str()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.as_os_str()),
            ("FAKETIME_NO_CACHE", one),
            ("FAKETIME_DONT_FAKE_MONOTONIC", one),
            ("DONT_FAKE_MONOTONIC", one),
        ]
    }

    /// Sets it `ahead` seconds ahead of the system's.
    pub(crate) fn set(&self, ahead: i64) {
        fs::write(&self.file, format!("{ahead:+}")).unwrap();
    }
}

/// A Python that can import `module`: the one that `LITEQUIC_PYTHON` names, or `python3`.
pub(crate) fn python_module(module: &str) -> Option<PathBuf> {
    let python = match env::var_os("LITEQUIC_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => program("python3")?,
    };
    let import = Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if import.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skip(&format!("{} cannot import {module} (tests/it/requirements.txt)", python.display()));
    None
}

fn in_path(name: &str, path: &OsString) -> Option<PathBuf> {
    let folders = env::split_paths(path).chain([Path::new("/usr/sbin").into()]);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

//! Programs run to their end, or killed at a deadline.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Runs `command` and returns what it wrote to standard output.
///
/// # Panics
///
/// When it ends otherwise than well, or not before the deadline; then it is killed. The panic shows its standard error.
pub(crate) fn output(command: &mut Command, deadline: Duration) -> String {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.reopen().unwrap()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        // An error means that the deadline has passed.
        let _ = sender.send(text);
    });
    let written = written.recv_timeout(deadline);
    if written.is_err() {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let said = || fs::read_to_string(errors.path()).unwrap_or_default();
    let Ok(written) = written else { panic!("{command:?} was not done within {deadline:?}\n{}", said()) };
    let written = String::from_utf8_lossy(&written).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{written}{}", said());
    written
}

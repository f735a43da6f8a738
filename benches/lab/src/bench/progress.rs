//! The progress of a command, in lines for a user who waits.

/// Writes a line of progress to standard error.
#[expect(clippy::print_stderr, reason = "a command: its progress goes to standard error")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

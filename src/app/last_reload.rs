//! Keeps the outcome of the last reload, for `/status` and for the answer to the next one.

use jiff::Timestamp;
use litequic_admin::{ReloadStatus, UNCHANGED_PREFIX};
use litequic_config::ConfigChange;
use parking_lot::Mutex;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadTrigger {
    Signal,
    Files,
    Admin,
}

impl ReloadTrigger {
    pub(super) const fn trigger_name(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Files => "files",
            Self::Admin => "POST /reload",
        }
    }
}

/// Time of the last applied change, in seconds since the Unix epoch, and its number of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastChange {
    at: u64,
    keys: usize,
}

impl LastChange {
    /// Answer to a reload of `file` that changed nothing.
    pub(super) fn unchanged_answer(self, file: &Path) -> String {
        let Self { at, keys } = self;
        // No clock shows a time that jiff cannot write.
        let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok()).unwrap_or_default();
        let file = file.file_name().unwrap_or(file.as_os_str()).display();
        let plural = if keys == 1 { "" } else { "s" };
        format!("{UNCHANGED_PREFIX}{at}, when the change of {file} was applied: {keys} key{plural}\n")
    }
}

/// Outcome of the last reload for `/status`, with its changes or faults, and whether the files then differed from the
/// configuration in force; and the last applied change.
#[derive(Debug, Default)]
pub(super) struct LastReload(Mutex<Option<(ReloadStatus, bool)>>, Mutex<Option<LastChange>>);

impl LastReload {
    /// Maximum number of changes or faults: `/status` is polled every two seconds, and the log has all of them.
    const MAX_LINES: usize = 8;
    /// Maximum number of characters of a change or fault.
    const MAX_LINE_CHARS: usize = 300;

    pub(super) fn record_outcome(&self, at: u64, trigger: ReloadTrigger, outcome: Result<&[ConfigChange], &[String]>) {
        let (result, lines, differs): (_, Vec<String>, _) = match outcome {
            Ok(changes) => {
                let waits = changes.iter().any(ConfigChange::waits_for_restart);
                ("ok", changes.iter().map(ToString::to_string).collect(), waits)
            }
            Err(faults) => ("refused", faults.to_vec(), true),
        };
        let kept: Vec<String> =
            lines.iter().take(Self::MAX_LINES).map(|line| line.chars().take(Self::MAX_LINE_CHARS).collect()).collect();
        let left_out = lines.len().saturating_sub(kept.len());
        let status = ReloadStatus {
            at: Some(at),
            by: Some(trigger.trigger_name().into()),
            result: Some(result.into()),
            lines: kept,
            left_out: Some(left_out as u64),
        };
        *self.0.lock() = Some((status, differs));
    }

    /// Records that `keys` keys were applied at `at`. If `keys` is 0, returns the last change.
    pub(super) fn record_change(&self, at: u64, keys: usize) -> Option<LastChange> {
        let Self(_, last) = self;
        let mut last = last.lock();
        if keys > 0 {
            *last = Some(LastChange { at, keys });
            return None;
        }
        *last
    }

    /// Outcome of the last reload; `None` before the first.
    pub(super) fn reload_status(&self) -> Option<ReloadStatus> {
        self.0.lock().as_ref().map(|(status, _)| status.clone())
    }

    /// Whether the files differed from the configuration in force at the last reload: a key waits for a restart, or the
    /// files were rejected.
    pub(super) fn has_unapplied_files(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|(_, differs)| *differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_without_changes_names_the_time_of_the_last_one() {
        let last = LastReload::default();
        assert_eq!(last.record_change(5, 0), None);
        let at = 20_000 * 86_400 + 9 * 3600 + 41 * 60 + 3;
        assert_eq!(last.record_change(at, 3), None);
        let answer = last.record_change(at + 60, 0).unwrap().unchanged_answer(Path::new("/etc/litequic/litequic.toml"));
        let expected =
            "nothing has changed since 2024-10-04T09:41:03Z, when the change of litequic.toml was applied: 3 keys\n";
        assert_eq!(answer, expected);
        assert!(
            LastChange { at, keys: 1 }.unchanged_answer(Path::new("a.toml")).ends_with("a.toml was applied: 1 key\n")
        );
    }

    #[test]
    fn the_status_has_the_first_lines_of_the_last_reload() {
        let last = LastReload::default();
        assert_eq!(last.reload_status(), None);
        let change = |key: &str| ConfigChange { key: key.into(), what: "1 → 2".into() };
        last.record_outcome(7, ReloadTrigger::Admin, Ok(&[change("limits.max_headers")]));
        let expected = ReloadStatus {
            at: Some(7),
            by: Some("POST /reload".into()),
            result: Some("ok".into()),
            lines: vec!["limits.max_headers: 1 → 2".into()],
            left_out: Some(0),
        };
        assert_eq!((last.reload_status(), last.has_unapplied_files()), (Some(expected), false));
        last.record_outcome(8, ReloadTrigger::Files, Ok(&[change("listen.udp")]));
        assert!(last.has_unapplied_files(), "a restart is needed");
        last.record_outcome(9, ReloadTrigger::Signal, Err(&vec!["ö".repeat(1000); 20]));
        let ReloadStatus { at, result, lines, left_out, .. } = last.reload_status().unwrap();
        assert!(last.has_unapplied_files(), "the files were rejected");
        assert_eq!((at, result.as_deref(), left_out), (Some(9), Some("refused"), Some(12)));
        assert!(lines.len() == 8 && lines.iter().all(|line| line.chars().count() == 300));
    }
}

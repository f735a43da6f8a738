//! The outcome of the last reload, for `/status` and for the answer to the next one.

use jiff::Timestamp;
use litequic_admin::{ReloadStatus, UNCHANGED_SINCE};
use litequic_config::Change;
use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

/// What triggers a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    Signal,
    Files,
    Admin,
}

impl Trigger {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Files => "files",
            Self::Admin => "POST /reload",
        }
    }
}

/// When changes were applied last, since the Unix epoch, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    at: u64,
    keys: usize,
}

impl Applied {
    /// The answer to a reload of `file` that changed nothing.
    pub(super) fn answer(self, file: &Path) -> String {
        let Self { at, keys } = self;
        // The clock of no machine is beyond what jiff can write.
        let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok()).unwrap_or_default();
        let file = file.file_name().unwrap_or(file.as_os_str()).display();
        let plural = if keys == 1 { "" } else { "s" };
        format!("{UNCHANGED_SINCE}{at}, when the change of {file} was applied: {keys} key{plural}\n")
    }
}

/// The outcome of the last reload, for `/status`: what it changed, or why it was rejected; and when something changed
/// last.
#[derive(Debug, Default)]
pub(super) struct LastReload(Mutex<Option<ReloadStatus>>, Mutex<Option<Applied>>);

impl LastReload {
    /// Changes or faults that are kept: `/status` is polled every two seconds, and the log has them all.
    const LINES: usize = 8;
    /// Characters of one.
    const LENGTH: usize = 300;

    pub(super) fn set(&self, at: u64, trigger: Trigger, outcome: Result<&[Change], &[String]>) {
        let (result, lines): (_, Vec<String>) = match outcome {
            Ok(changes) => ("ok", changes.iter().map(ToString::to_string).collect()),
            Err(faults) => ("refused", faults.to_vec()),
        };
        let kept: Vec<String> =
            lines.iter().take(Self::LINES).map(|line| line.chars().take(Self::LENGTH).collect()).collect();
        let left_out = lines.len().saturating_sub(kept.len());
        let status = ReloadStatus {
            at: Some(at),
            by: Some(trigger.name().into()),
            result: Some(result.into()),
            lines: kept,
            left_out: Some(left_out as u64),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// Notes that `keys` keys were applied at `at`. If there are none, returns the last change that had some.
    pub(super) fn applied(&self, at: u64, keys: usize) -> Option<Applied> {
        let Self(_, last) = self;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if keys > 0 {
            *last = Some(Applied { at, keys });
            return None;
        }
        *last
    }

    /// `None` before the first.
    pub(super) fn status(&self) -> Option<ReloadStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_without_a_change_says_when_the_last_one_was() {
        let last = LastReload::default();
        assert_eq!(last.applied(5, 0), None);
        let at = 20_000 * 86_400 + 9 * 3600 + 41 * 60 + 3;
        assert_eq!(last.applied(at, 3), None);
        let answer = last.applied(at + 60, 0).unwrap().answer(Path::new("/etc/litequic/litequic.toml"));
        let expected =
            "nothing has changed since 2024-10-04T09:41:03Z, when the change of litequic.toml was applied: 3 keys\n";
        assert_eq!(answer, expected);
        assert!(Applied { at, keys: 1 }.answer(Path::new("a.toml")).ends_with("a.toml was applied: 1 key\n"));
    }

    #[test]
    fn the_last_reload_is_told_of_with_its_first_lines() {
        let last = LastReload::default();
        assert_eq!(last.status(), None);
        let change = |key: &str| Change { key: key.into(), what: "1 → 2".into() };
        last.set(7, Trigger::Admin, Ok(&[change("limits.max_headers")]));
        let expected = ReloadStatus {
            at: Some(7),
            by: Some("POST /reload".into()),
            result: Some("ok".into()),
            lines: vec!["limits.max_headers: 1 → 2".into()],
            left_out: Some(0),
        };
        assert_eq!(last.status(), Some(expected));
        last.set(9, Trigger::Signal, Err(&vec!["ö".repeat(1000); 20]));
        let ReloadStatus { at, result, lines, left_out, .. } = last.status().unwrap();
        assert_eq!((at, result.as_deref(), left_out), (Some(9), Some("refused"), Some(12)));
        assert!(lines.len() == 8 && lines.iter().all(|line| line.chars().count() == 300));
    }
}

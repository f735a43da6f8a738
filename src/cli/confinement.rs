//! Reports the process's environment in the log's first lines and in `litequic probe`; and disables core dumps, so that
//! private keys stay in memory.

use super::user::user_name;
use litequic_telemetry::Confinement;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::env;

/// Environment variable that keeps core dumps possible if it is 1: for bug reports.
const CORE_VARIABLE: &str = "LITEQUIC_CORE";
/// Advice to a process that runs as the machine's administrator.
const ADVICE: &str = "an attacker who controls litequic controls the machine; run it as another user, with \
                      CAP_NET_BIND_SERVICE only";

/// Keeps the keys of this process out of core dumps, and away from debuggers of the same user (PR_SET_DUMPABLE). An
/// execve(2) undoes it.
pub(super) fn forbid_core_dumps() {
    if env::var_os(CORE_VARIABLE).is_none_or(|value| value != "1") {
        // prctl(2) fails only for unknown values.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Logs the process's confinement, and a warning if it is the machine's administrator.
pub(super) fn log_confinement() {
    let found = Confinement::read_confinement();
    let (user, capabilities) = (user_name(found.user), found.capability_names());
    let Confinement { no_new_privileges, seccomp, read_only_root, core_dumps, .. } = found;
    tracing::info!(user, capabilities, no_new_privileges, seccomp, read_only_root, core_dumps, "confinement");
    if found.is_administrator() {
        tracing::warn!("running as root with CAP_SYS_ADMIN: {ADVICE}");
    }
}

/// Lines of `litequic probe` about the process's confinement.
pub(super) fn confinement_lines(found: &Confinement) -> String {
    let yes_or_no = |answer: Option<bool>| answer.map(|yes| if yes { "yes" } else { "no" }.to_owned());
    let rows = [
        ("user", Some(user_name(found.user))),
        ("effective capabilities", found.capability_names()),
        ("no new privileges", yes_or_no(found.no_new_privileges)),
        ("seccomp", found.seccomp.map(Into::into)),
        ("read-only root", yes_or_no(found.read_only_root)),
    ];
    let line = |(name, value): (&str, Option<String>)| format!("{name:32} {}\n", value.as_deref().unwrap_or("unknown"));
    let mut text: String = rows.into_iter().map(line).collect();
    if found.is_administrator() {
        text += &format!("\nwarning: root with CAP_SYS_ADMIN: {ADVICE}\n");
    }
    text
}

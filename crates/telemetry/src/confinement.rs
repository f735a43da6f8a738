//! Reads the confinement of this process: user, capabilities, seccomp filter and root file system, from
//! `/proc/self/status` (proc(5)) and the mount of `/`. litequic reports it, and itself only forbids core dumps. Pure
//! apart from the reading.

use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    process::{DumpableBehavior, dumpable_behavior, geteuid},
    thread::CapabilitySet,
};
use std::fs;

/// Confinement of the process. An unreadable value is `None`: `/proc` may be hidden or missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Effective user ID.
    pub user: u32,
    /// Effective capabilities.
    capabilities: Option<CapabilitySet>,
    /// Whether execve(2) grants no privileges (PR_SET_NO_NEW_PRIVS).
    pub no_new_privileges: Option<bool>,
    /// Mode of seccomp(2): `off`, `strict` or `filter`.
    pub seccomp: Option<&'static str>,
    /// Whether the file system at `/` is mounted read-only.
    pub read_only_root: Option<bool>,
    /// Whether a signal may write the memory to a core dump (PR_GET_DUMPABLE); RLIMIT_CORE may forbid it nevertheless.
    pub core_dumps: Option<bool>,
}

impl Confinement {
    /// Reads the confinement of this process.
    pub fn read_confinement() -> Self {
        let read_only = |root: rustix::fs::StatVfs| root.f_flag.contains(StatVfsMountFlags::RDONLY);
        Self {
            user: geteuid().as_raw(),
            read_only_root: statvfs("/").ok().map(read_only),
            core_dumps: dumpable_behavior().ok().map(|behavior| behavior != DumpableBehavior::NotDumpable),
            ..Self::parse_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
        }
    }

    fn parse_status(status: &str) -> Self {
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        Self {
            capabilities: value("CapEff:")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .map(CapabilitySet::from_bits_retain),
            no_new_privileges: value("NoNewPrivs:").map(|set| set == "1"),
            seccomp: value("Seccomp:").and_then(|mode| match mode {
                "0" => Some("off"),
                "1" => Some("strict"),
                "2" => Some("filter"),
                _ => None,
            }),
            ..Self::default()
        }
    }

    /// Names of the effective capabilities: `none`, `all`, a list, or `all but` and the missing ones.
    pub fn capability_names(&self) -> Option<String> {
        let set = self.capabilities?;
        let names = |set: CapabilitySet| set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect::<Vec<_>>();
        let (held, missing) = (names(set), names(!set));
        Some(match (held.as_slice(), missing.as_slice()) {
            ([], _) => "none".into(),
            (_, []) => "all".into(),
            (held, missing) if missing.len() < held.len() => format!("all but {}", missing.join(", ")),
            (held, _) => held.join(", "),
        })
    }

    /// Whether the process is the machine's administrator: root with CAP_SYS_ADMIN, which mounts file systems and
    /// enters namespaces, and which a container's root has not. An attacker who controls the process then controls the
    /// machine.
    pub fn is_administrator(&self) -> bool {
        self.user == 0 && self.capabilities.is_some_and(|set| set.contains(CapabilitySet::SYS_ADMIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_named_by_the_shorter_list() {
        for (set, expected) in [
            ("0000000000000000", "none"),
            ("0000000000000400", "CAP_NET_BIND_SERVICE"),
            (
                "00000000a80425fb",
                "CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID, \
                                  CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_MKNOD, \
                                  CAP_AUDIT_WRITE, CAP_SETFCAP",
            ),
            ("000001ffffffffff", "all"),
            ("000001fffeffffff", "all but CAP_SYS_RESOURCE"),
        ] {
            let found = Confinement::parse_status(&format!("Name:\tx\nCapEff:\t{set}\n"));
            assert_eq!(found.capability_names().as_deref(), Some(expected));
        }
    }

    #[test]
    fn the_administrator_is_root_with_its_capability() {
        for (user, set, expected) in
            [(0, "000001ffffffffff", true), (0, "00000000a80425fb", false), (1000, "000001ffffffffff", false)]
        {
            let found = Confinement { user, ..Confinement::parse_status(&format!("CapEff:\t{set}\n")) };
            assert_eq!(found.is_administrator(), expected, "{user} {set}");
        }
        assert!(!Confinement::default().is_administrator());
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        assert_eq!(Confinement::parse_status("CapEff:\tsome\nSeccomp:\t9\n"), Confinement::default());
        let found = Confinement::parse_status("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n");
        assert_eq!((found.no_new_privileges, found.seccomp), (Some(true), Some("filter")));
        assert_eq!(Confinement::read_confinement().user, geteuid().as_raw());
    }
}

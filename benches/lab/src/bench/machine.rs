//! What a run ran on.

use super::procfs;
use nix::sys::utsname::uname;
use serde::{Deserialize, Serialize};
use std::{fs, thread};

/// The machine, as reports describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The CPU's name.
    pub(crate) cpu: String,
    /// Of its flags those that matter to cryptography.
    pub(crate) flags: Vec<String>,
    /// Cores that the lab may use.
    pub(crate) cores: usize,
    /// The kernel's release and build.
    pub(crate) kernel: String,
    /// Bytes.
    pub(crate) memory: u64,
    /// Whether a hypervisor is beneath.
    pub(crate) virtual_machine: bool,
    /// How the clock frequency is chosen, where that can be read.
    pub(crate) governor: Option<String>,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok();
        let kernel = uname().map(|name| {
            format!(
                "{} {} {}",
                name.release().to_string_lossy(),
                name.version().to_string_lossy(),
                name.machine().to_string_lossy()
            )
        });
        Self {
            cpu: procfs::cpu_model(&cpuinfo).unwrap_or("unknown").to_owned(),
            flags: procfs::cpu_flags(&cpuinfo).into_iter().map(str::to_owned).collect(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.unwrap_or_default(),
            memory: procfs::kilobytes(&meminfo, "MemTotal").unwrap_or_default(),
            virtual_machine: cpuinfo.contains(" hypervisor"),
            governor: governor.map(|governor| governor.trim().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_a_kernel_and_memory() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory > 0 && !machine.kernel.is_empty() && !machine.cpu.is_empty());
    }
}

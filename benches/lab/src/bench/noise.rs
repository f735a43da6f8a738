//! How much else went on while something was measured, and whether the figures may be compared all the same. Pure.

use super::procfs::CoreTimes;
use serde::{Deserialize, Serialize};

/// A run in which more of the server's core than this went elsewhere is repeated: caches and the clock frequency are
/// shared even when CPU time is not.
const SERVER_CORE_ELSEWHERE: f64 = 8.0; // percent
/// The same of the client's core. It costs the server nothing directly, but throughput, and so the size of batches.
const CLIENT_CORE_ELSEWHERE: f64 = 25.0; // percent
/// Time that the hypervisor gave to others.
const STOLEN: f64 = 3.0; // percent
/// What has a positive nice value, such as a compiler under `nice -n 19 chrt -i 0`, gives way, but not within a system call of
/// its own: packets that are paced leave later (seen: a download with BBR at 0.5 % loss has 29 Mbit/s instead of 44), and its
/// traces in the caches cost CPU time.
const NICE: f64 = 8.0; // percent

/// What else the two cores did during a run, in percent of the time it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noise {
    /// The server's core, busy with anything but the server.
    pub(crate) server_core: f64,
    /// The client's core, busy with anything but client, origin and the lab itself.
    pub(crate) client_core: f64,
    /// Either core, stolen by the hypervisor; the worse of the two.
    pub(crate) stolen: f64,
    /// Either core, busy with what yields to all others; the worse of the two.
    #[serde(default)]
    pub(crate) nice: f64,
}

impl Noise {
    /// From what a core did in all, and the CPU seconds that are accounted for on each.
    pub(crate) fn of(server: CoreTimes, server_own: f64, client: CoreTimes, client_own: f64) -> Self {
        let elsewhere = |core: CoreTimes, own: f64| percent((core.busy - own).max(0.0), core.total());
        Self {
            server_core: elsewhere(server, server_own),
            client_core: elsewhere(client, client_own),
            stolen: percent(server.stolen, server.total()).max(percent(client.stolen, client.total())),
            nice: percent(server.nice, server.total()).max(percent(client.nice, client.total())),
        }
    }

    /// Where the server runs on both cores nobody can tell whose core was disturbed: both are one.
    pub(crate) fn together(server: CoreTimes, client: CoreTimes, own: f64) -> Self {
        let elsewhere = percent((server.busy + client.busy - own).max(0.0), server.total() + client.total());
        let Self { stolen, nice, .. } = Self::of(server, server.busy, client, client.busy);
        Self { server_core: elsewhere, client_core: 0.0, stolen, nice }
    }

    /// Why the run should be repeated, if it should, for the sake of `figures`.
    pub(crate) fn disturbance<'a>(&self, mut figures: impl Iterator<Item = &'a str>) -> Option<String> {
        let nice = if figures.any(takes_time) { self.nice } else { 0.0 };
        let found = [
            (self.server_core, SERVER_CORE_ELSEWHERE, "of the server's core went elsewhere"),
            (self.client_core, CLIENT_CORE_ELSEWHERE, "of the client's core went elsewhere"),
            (self.stolen, STOLEN, "of a core was stolen by the hypervisor"),
            (nice, NICE, "of a core went to what yields to all others"),
        ];
        let reasons: Vec<String> = found
            .iter()
            .filter(|(share, limit, _)| share > limit)
            .map(|(share, _, what)| format!("{share:.0} % {what}"))
            .collect();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }

    /// One figure to choose the least disturbed run by.
    pub(crate) fn weight(&self) -> f64 {
        self.server_core / SERVER_CORE_ELSEWHERE
            + self.client_core / CLIENT_CORE_ELSEWHERE
            + self.stolen / STOLEN
            + self.nice / NICE
    }
}

/// Whether a figure is of time, the CPU's or another: not of memory.
fn takes_time(figure: &str) -> bool {
    !matches!(figure, "memory_each" | "memory_most")
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(busy: f64, idle: f64, stolen: f64) -> CoreTimes {
        CoreTimes { busy, idle, stolen, ..CoreTimes::default() }
    }

    #[test]
    fn what_the_server_used_itself_is_not_noise() {
        let noise = Noise::of(core(9.0, 1.0, 0.0), 9.0, core(5.0, 5.0, 0.0), 5.0);
        assert_eq!(noise, Noise::default());
        assert_eq!(noise.disturbance(["cpu"].into_iter()), None);
    }

    #[test]
    fn another_process_on_the_servers_core_disturbs() {
        let noise = Noise::of(core(9.0, 1.0, 0.0), 8.0, core(5.0, 5.0, 0.0), 5.0);
        assert_eq!(noise.server_core, 10.0);
        assert_eq!(noise.disturbance(["cpu"].into_iter()).unwrap(), "10 % of the server's core went elsewhere");
    }

    #[test]
    fn a_server_on_both_cores_is_not_noise_on_either() {
        let noise = Noise::together(core(9.0, 1.0, 0.0), core(6.0, 4.0, 0.0), 14.0);
        assert_eq!((noise.server_core, noise.client_core), (5.0, 0.0));
    }

    #[test]
    fn stolen_time_disturbs_on_either_core() {
        let noise = Noise::of(core(9.0, 1.0, 0.0), 9.0, core(5.0, 4.0, 1.0), 5.0);
        assert_eq!(noise.stolen, 10.0);
        assert!(noise.disturbance(["cpu"].into_iter()).unwrap().contains("stolen"));
    }

    #[test]
    fn accounting_that_runs_ahead_of_the_core_is_no_negative_noise() {
        assert_eq!(Noise::of(core(1.0, 1.0, 0.0), 1.5, core(0.0, 0.0, 0.0), 0.0).server_core, 0.0);
    }

    #[test]
    fn what_yields_to_all_others_disturbs_all_but_memory() {
        let beside = CoreTimes { nice: 5.0, ..core(1.0, 4.0, 0.0) };
        let noise = Noise::of(beside, 1.0, core(1.0, 9.0, 0.0), 1.0);
        assert_eq!((noise.server_core, noise.nice), (0.0, 50.0));
        assert_eq!(noise.disturbance(["memory_most"].into_iter()), None);
        for figure in ["goodput", "cpu"] {
            let why = noise.disturbance(["memory_most", figure].into_iter()).unwrap();
            assert_eq!(why, "50 % of a core went to what yields to all others");
        }
    }
}

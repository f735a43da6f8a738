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
/// What has a positive nice value, such as a compiler under `nice -n 19 chrt -i 0`, yields, but not within a system
/// call of its own: packets that are paced leave later (seen: a download with BBR at 0.5 % loss has 29 Mbit/s instead
/// of 44), and its traces in the caches cost CPU time.
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

/// What a core did, and what of it is accounted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Core {
    pub(crate) times: CoreTimes,
    /// CPU seconds of processes.
    pub(crate) own: f64,
    /// Seconds of interrupts.
    pub(crate) delivering: f64,
}

impl Core {
    /// Seconds of anything else.
    fn elsewhere(&self) -> f64 {
        let Self { times, own, delivering } = *self;
        let elsewhere = match times.processes {
            Some(processes) => processes - times.nice - own,
            None => times.busy - own - delivering,
        };
        elsewhere.max(0.0)
    }
}

impl Noise {
    /// Of the server's core and the client's.
    pub(crate) fn of(server: Core, client: Core) -> Self {
        let elsewhere = |core: &Core| percent(core.elsewhere(), core.times.total());
        let (of_server, of_client) = (server.times, client.times);
        Self {
            server_core: elsewhere(&server),
            client_core: elsewhere(&client),
            stolen: percent(of_server.stolen, of_server.total()).max(percent(of_client.stolen, of_client.total())),
            nice: percent(of_server.nice, of_server.total()).max(percent(of_client.nice, of_client.total())),
        }
    }

    /// If the server runs on both cores it is unknown whose core was disturbed: both count as one.
    pub(crate) fn together(server: Core, client: Core) -> Self {
        let both = |of: fn(&CoreTimes) -> f64| of(&server.times) + of(&client.times);
        let times = CoreTimes {
            busy: both(|times| times.busy),
            interrupts: both(|times| times.interrupts),
            nice: both(|times| times.nice),
            idle: both(|times| times.idle),
            stolen: both(|times| times.stolen),
            processes: server.times.processes.zip(client.times.processes).map(|(one, other)| one + other),
        };
        let all = Core { times, own: server.own + client.own, delivering: server.delivering + client.delivering };
        let Self { stolen, nice, .. } = Self::of(server, client);
        Self { server_core: percent(all.elsewhere(), times.total()), client_core: 0.0, stolen, nice }
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

    fn times(busy: f64, idle: f64, stolen: f64) -> CoreTimes {
        CoreTimes { busy, idle, stolen, ..CoreTimes::default() }
    }

    /// Busy, idle and stolen seconds, and of the busy ones those that are accounted for.
    fn core(busy: f64, idle: f64, stolen: f64, own: f64) -> Core {
        Core { times: times(busy, idle, stolen), own, delivering: 0.0 }
    }

    #[test]
    fn what_the_server_used_itself_is_not_noise() {
        let noise = Noise::of(core(9.0, 1.0, 0.0, 9.0), core(5.0, 5.0, 0.0, 5.0));
        assert_eq!(noise, Noise::default());
        assert_eq!(noise.disturbance(["cpu"].into_iter()), None);
    }

    #[test]
    fn another_process_on_the_servers_core_disturbs() {
        let noise = Noise::of(core(9.0, 1.0, 0.0, 8.0), core(5.0, 5.0, 0.0, 5.0));
        assert_eq!(noise.server_core, 10.0);
        assert_eq!(noise.disturbance(["cpu"].into_iter()).unwrap(), "10 % of the server's core went elsewhere");
    }

    #[test]
    fn a_server_on_both_cores_is_not_noise_on_either() {
        let noise = Noise::together(core(9.0, 1.0, 0.0, 9.0), core(6.0, 4.0, 0.0, 5.0));
        assert_eq!((noise.server_core, noise.client_core), (5.0, 0.0));
    }

    #[test]
    fn stolen_time_disturbs_on_either_core() {
        let noise = Noise::of(core(9.0, 1.0, 0.0, 9.0), core(5.0, 4.0, 1.0, 5.0));
        assert_eq!(noise.stolen, 10.0);
        assert!(noise.disturbance(["cpu"].into_iter()).unwrap().contains("stolen"));
    }

    #[test]
    fn accounting_that_runs_ahead_of_the_core_is_no_negative_noise() {
        assert_eq!(Noise::of(core(1.0, 1.0, 0.0, 1.5), core(0.0, 0.0, 0.0, 0.0)).server_core, 0.0);
    }

    #[test]
    fn exact_times_in_step_with_the_tick_are_no_noise() {
        let mut server = core(4.0, 6.0, 0.0, 2.0);
        assert_eq!(Noise::of(server, core(0.0, 10.0, 0.0, 0.0)).server_core, 20.0);
        server.times.processes = Some(2.1);
        assert!((Noise::of(server, core(0.0, 10.0, 0.0, 0.0)).server_core - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_yields_to_all_others_disturbs_all_but_memory() {
        let times = CoreTimes { nice: 5.0, ..times(1.0, 4.0, 0.0) };
        let noise = Noise::of(Core { times, own: 1.0, delivering: 0.0 }, core(1.0, 9.0, 0.0, 1.0));
        assert_eq!((noise.server_core, noise.nice), (0.0, 50.0));
        assert_eq!(noise.disturbance(["memory_most"].into_iter()), None);
        for figure in ["goodput", "cpu"] {
            let why = noise.disturbance(["memory_most", figure].into_iter()).unwrap();
            assert_eq!(why, "50 % of a core went to what yields to all others");
        }
    }
}

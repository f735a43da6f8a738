//! Contenders under attack: attackers and an honest client at once, and what the honest client sees. The same
//! contenders under many requests at once from one address.

use super::{
    Lab, Present,
    attempt::{READY, READY_LOOK},
    ports::{ADMIN_PORT, PORT, SINK_PORT, STATUS_PORT},
    programs, say,
};
use crate::{
    attack::{Attack, Honest, NETWORKS_V6, PATIENCE, Protocol, Sources, Spread, Tally},
    bench::{
        cgroup::{Cgroup, Limit, Usage},
        h2load::{Burst, Counts},
        interrupt, metrics,
        namespace::{self, SocketBuffers, Topology},
        noise::{Core, Noise},
        process::{self, Server},
        procfs::{CoreTimes, Cpu},
        sampler::{Sampler, Series},
        template::Values,
    },
    http::Http,
    report::{self, Case, MemoryTrace, Results, Run, Skipped},
};
use anyhow::{Context as _, Result, anyhow, bail};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// For attackers to have begun before the honest client does.
const BEGIN: Duration = Duration::from_secs(1);
const BEGIN_QUICK: Duration = Duration::from_millis(200);
/// For the honest client to end, beside the time of its requests.
const HONEST: Duration = Duration::from_secs(20);
/// Attackers are the machine's last concern: honest client and origin run on the same core.
const NICE: &str = "19";
/// Between two looks at memory: at all processes' pages, at a cgroup, at litequic's step.
const MEMORY_LOOK: Duration = Duration::from_millis(200);
const CGROUP_LOOK: Duration = Duration::from_millis(100);
const STEP_LOOK: Duration = Duration::from_millis(500);
/// litequic's metric of it.
const STEP: &str = "litequic_memory_step";
/// Where contenders listen when they are attacked over IPv6.
const ADDRESS_V6: &str = "[::1]";
/// For h2load to end. Nothing moves on a connection for 30 s, and it gives up.
const BURST: Duration = Duration::from_secs(180);
/// How a hardened contender is called.
const HARDENED: &str = "-hardened";

/// A contender's configuration when it is attacked: the file's name in its description, the template, where its status
/// is.
struct Attacked {
    name: &'static str,
    file: &'static str,
    template: &'static str,
    status: &'static str,
    /// Whether there is more that its manual offers.
    hardens: bool,
}

const ATTACKED: [Attacked; 4] = [
    Attacked {
        name: "litequic",
        file: "run.toml",
        template: include_str!("../../../contenders/attacks/run.toml"),
        status: "/healthz",
        hardens: false,
    },
    Attacked {
        name: "nginx",
        file: "proxy.conf",
        template: include_str!("../../../contenders/attacks/proxy.conf"),
        status: "/status",
        hardens: true,
    },
    Attacked {
        name: "haproxy",
        file: "haproxy.cfg",
        template: include_str!("../../../contenders/attacks/haproxy.cfg"),
        status: "/status",
        hardens: true,
    },
    Attacked {
        name: "caddy",
        file: "Caddyfile",
        template: include_str!("../../../contenders/attacks/Caddyfile"),
        status: "/config/",
        hardens: true,
    },
];

/// What contenders are to stand.
pub(crate) struct Assault {
    pub(crate) experiment: &'static str,
    pub(crate) about: String,
    /// One after the other.
    pub(crate) trials: Vec<Trial>,
    /// The contenders; all of them if it is empty.
    pub(crate) names: &'static [&'static str],
    /// Whether contenders take part with a hardened configuration, too.
    pub(crate) hardened: bool,
    /// The memory cgroup's limit in bytes, if there is one.
    pub(crate) limit: Option<u64>,
}

/// What contenders are to stand once.
pub(crate) struct Trial {
    pub(crate) case: Case,
    pub(crate) act: Act,
    /// File descriptors that each contender may have (RLIMIT_NOFILE, soft and hard).
    pub(crate) descriptors: u32,
}

/// What is done to contenders.
pub(crate) enum Act {
    /// An attack, or none, beside the honest client.
    Attack { attack: Option<Attack>, sources: Sources, seconds: f64 },
    /// Many requests at once from one address.
    Burst(Burst),
}

impl Act {
    /// Whether contenders are reached over IPv6.
    fn is_v6(&self) -> bool {
        matches!(self, Self::Attack { sources: Sources { spread: Spread::Nested, .. }, .. })
    }
}

/// A contender as it is attacked.
struct Opponent {
    present: Present,
    status: &'static str,
    hardened: bool,
}

/// How a contender is run in a trial.
#[derive(Clone, Copy)]
struct Terms<'a> {
    /// Where it listens, as in a URL.
    address: &'a str,
    descriptors: u32,
    group: Option<&'a Cgroup>,
}

/// What came of an attack.
struct Stood {
    noise: Noise,
    figures: BTreeMap<String, f64>,
    client: String,
    trace: Option<MemoryTrace>,
}

impl Lab {
    /// Runs each attack on each contender; `None`: it was stopped.
    pub(crate) fn assault(&mut self, assault: &Assault) -> Result<Option<Results>> {
        self.settle(Topology::Lo, SocketBuffers::Ample)?;
        let opponents = self.opponents(assault);
        self.present = opponents.iter().map(|opponent| opponent.present.clone()).collect();
        let mut results = self.results(assault.experiment, &assault.about, "litequic");
        let mut trials: Vec<&Trial> =
            assault.trials.iter().filter(|trial| self.options.takes(&trial.case.name)).collect();
        let v6 =
            if trials.iter().any(|trial| trial.act.is_v6()) { self.network.own_networks(&NETWORKS_V6) } else { Ok(()) };
        trials.retain(|trial| match self.lacks_for(&trial.act, &v6) {
            None => true,
            Some(reason) => {
                say(&format!("{}: SKIPPED {}: {reason}", assault.experiment, trial.case.name));
                results.skipped.push(Skipped { name: trial.case.name.clone(), reason });
                false
            }
        });
        results.cases = trials.iter().map(|trial| trial.case.clone()).collect();
        if self.options.resume
            && let Some(earlier) = report::earlier(assault.experiment, &self.options.out)?
        {
            results
                .go_on(earlier)
                .map_err(|why| anyhow!("cannot go on with what is in {}: {why}", self.options.out.display()))?;
        }
        for round in 1..=self.options.rounds(1) {
            for opponent in &opponents {
                for trial in &trials {
                    let name = &opponent.present.contender.name;
                    if results.has(&trial.case.name, name, round) {
                        continue;
                    }
                    if self.is_over() {
                        return Ok(None);
                    }
                    let run = self.stand(assault, opponent, trial, round)?;
                    say(&format!("{}: {}", assault.experiment, line(&run)));
                    results.runs.push(run);
                    report::keep(&results, &self.options.out)?;
                }
            }
        }
        results.contenders.retain(|one| results.runs.iter().any(|run| run.contender == one.name));
        Ok(Some(results))
    }

    /// What this machine lacks for a trial.
    fn lacks_for(&self, act: &Act, v6: &Result<()>) -> Option<String> {
        match (act, v6, &self.h2load) {
            (act, Err(error), _) if act.is_v6() => Some(format!("{error:#}")),
            (Act::Burst(Burst { protocol: Http::Three, .. }), _, Err(reason)) => Some(reason.clone()),
            (Act::Burst(_), ..) if self.any_h2load().is_none() => Some("h2load is not installed".to_owned()),
            _ => None,
        }
    }

    /// An h2load, with or without HTTP/3.
    fn any_h2load(&self) -> Option<PathBuf> {
        programs::program("h2load", &self.options)
    }

    /// Who can be attacked, in each of its configurations.
    fn opponents(&self, assault: &Assault) -> Vec<Opponent> {
        let (mut all, hardened) = (Vec::new(), assault.hardened);
        let is_wanted =
            |name: &str| self.options.wants(name) && (assault.names.is_empty() || assault.names.contains(&name));
        for attacked in ATTACKED.iter().filter(|one| is_wanted(one.name)) {
            let Some(found) = self.present.iter().find(|present| present.contender.name == attacked.name) else {
                continue;
            };
            for hardened in [false, true].into_iter().take(if hardened && attacked.hardens { 2 } else { 1 }) {
                let mut present = found.clone();
                let contender = &mut present.contender;
                contender.templates = BTreeMap::from([(attacked.file.to_owned(), attacked.template.to_owned())]);
                contender.tuned = None;
                if hardened {
                    contender.name += HARDENED;
                }
                all.push(Opponent { present, status: attacked.status, hardened });
            }
        }
        all
    }

    /// A contender's turn at an attack, as a run; an error is for the lab as a whole.
    fn stand(&mut self, assault: &Assault, opponent: &Opponent, trial: &Trial, round: usize) -> Result<Run> {
        let mut run = Run {
            contender: opponent.present.contender.name.clone(),
            case: trial.case.name.clone(),
            round,
            attempt: 1,
            counts: false,
            void: None,
            noise: Noise::default(),
            figures: BTreeMap::new(),
            client: String::new(),
            samples: Vec::new(),
            trace: None,
        };
        let stood = match &trial.act {
            Act::Attack { attack, sources, seconds } => {
                self.attacked(assault, opponent, trial, (*attack, *sources, *seconds))
            }
            Act::Burst(burst) => self.burst(opponent, trial, burst),
        };
        match stood {
            Ok(stood) => {
                (run.counts, run.noise, run.figures, run.client) = (true, stood.noise, stood.figures, stood.client);
                let saved =
                    stood.trace.map(|trace| report::save_memory(&trace, assault.experiment, &run, &self.options.out));
                run.trace = saved.transpose()?;
            }
            Err(error) => {
                interrupt::check()?;
                run.void = Some(format!("{error:#}"));
            }
        }
        Ok(run)
    }

    /// Starts a contender, verifies it, attacks it, and sends it honest requests meanwhile.
    fn attacked(
        &mut self,
        assault: &Assault,
        opponent: &Opponent,
        trial: &Trial,
        (attack, sources, seconds): (Option<Attack>, Sources, f64),
    ) -> Result<Stood> {
        self.start_origin(true, false)?;
        let name = &opponent.present.contender.name;
        let folder = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path())?;
        let group = assault.limit.map(|bytes| Cgroup::new(Limit::Memory(bytes))).transpose()?;
        let address = if trial.act.is_v6() { ADDRESS_V6 } else { self.network.address };
        let terms = Terms { address, descriptors: trial.descriptors, group: group.as_ref() };
        let mut server = self.start_attacked(opponent, folder.path(), terms)?;
        self.wait_for_quiet()?;
        self.prove_honestly(opponent, address, &mut server)?;

        let watched = group.as_ref().map(|group| self.watch(group, name));
        let begin = if self.options.quick { BEGIN_QUICK } else { BEGIN };
        let attackers = attack.map(|attack| {
            // They are ended with the honest client, whose last request may take all its patience.
            let all = seconds + begin.as_secs_f64() + PATIENCE.as_secs_f64() + HONEST.as_secs_f64();
            let mut arguments = vec![attack.argument(), "--seconds".to_owned(), all.to_string()];
            arguments.extend(sources.arguments());
            self.start_attackers(&arguments, address, folder.path())
        });
        let mut attackers = attackers.transpose()?;
        interrupt::sleep(begin)?;
        let (before, began) = ((server.cpu(), self.cores()?), Instant::now());
        let (command, line) = self.honest(opponent, address, seconds);
        let (mut memory, mut looked) = (server.memory(), Instant::now());
        let patience = HONEST + Duration::from_secs_f64(seconds);
        let finished = process::finish(command, patience, || {
            if looked.elapsed() >= MEMORY_LOOK {
                (memory, looked) = (memory.max(server.memory()), Instant::now());
            }
            attackers.as_mut().map_or(Ok(()), Server::check)
        })?;
        let (after, wall) = ((server.cpu(), self.cores()?), began.elapsed().as_secs_f64());
        let honest: Honest = serde_json::from_str(&finished.stdout)
            .with_context(|| format!("the honest client printed nothing: {}", finished.stderr))?;
        let (cpu, noise) = disturbed(before, after);
        let mut figures = seen(&honest);
        figures.extend(
            [
                ("busy", cpu / wall * 100.0),
                ("memory_peak", memory as f64 / 1e6),
                ("ended", f64::from(u8::from(server.check().is_err()))),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        figures.extend(attackers.map(|attackers| attackers.log()).iter().flat_map(|log| tallied(log)));
        for (why, count) in &honest.failures {
            say(&format!("  {name}: {count} × {why}"));
        }
        let trace = match (watched, group.as_ref().zip(assault.limit)) {
            (Some((usage, step)), Some((group, limit))) => {
                let trace = memory_trace(limit, usage.finish(), step.map(Sampler::finish).unwrap_or_default());
                figures.extend(trace.figures());
                figures.extend(group.oom_kills().map(|kills| ("oom_kills".to_owned(), kills as f64)));
                Some(trace)
            }
            _ => None,
        };
        // Before its cgroup.
        drop(server);
        Ok(Stood { noise, figures, client: line, trace })
    }

    /// Starts a contender, verifies it, and sends it many requests at once.
    fn burst(&mut self, opponent: &Opponent, trial: &Trial, burst: &Burst) -> Result<Stood> {
        self.start_origin(true, false)?;
        let name = &opponent.present.contender.name;
        let h2load = match (&self.h2load, burst.protocol) {
            (Ok(h2load), _) => h2load.clone(),
            (Err(reason), Http::Three) => bail!("{reason}"),
            (Err(_), _) => self.any_h2load().context("h2load is not installed")?,
        };
        let folder = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path())?;
        let terms = Terms { address: self.network.address, descriptors: trial.descriptors, group: None };
        let mut server = self.start_attacked(opponent, folder.path(), terms)?;
        self.wait_for_quiet()?;
        self.prove_honestly(opponent, terms.address, &mut server)?;

        let (before, began) = ((server.cpu(), self.cores()?), Instant::now());
        let arguments = burst.command(&h2load, &format!("{}:{PORT}", terms.address));
        let line = self.without_places(&arguments.join(" "));
        let core = self.options.client_core.to_string();
        let (place, limited) = (&self.network.client, [limits(trial.descriptors), arguments].concat());
        let command = process::command(place, &core, &limited, &BTreeMap::new());
        let (mut memory, mut looked) = (server.memory(), Instant::now());
        let finished = process::finish(command, BURST, || {
            if looked.elapsed() >= MEMORY_LOOK {
                (memory, looked) = (memory.max(server.memory()), Instant::now());
            }
            Ok(())
        })?;
        let (after, wall) = ((server.cpu(), self.cores()?), began.elapsed().as_secs_f64());
        let (cpu, noise) = disturbed(before, after);
        let counts = Counts::read(&finished.stdout).context(finished.stderr)?;
        let figures = [
            ("answered", counts.succeeded / counts.total * 100.0),
            ("status_5xx", counts.status_5xx),
            ("unanswered", counts.unanswered),
            ("failures", counts.total - counts.succeeded),
            ("rate", counts.succeeded / counts.seconds),
            ("busy", cpu / wall * 100.0),
            ("memory_peak", memory as f64 / 1e6),
            ("ended", f64::from(u8::from(server.check().is_err()))),
        ];
        let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Stood { noise, figures, client: line, trace: None })
    }

    /// Times of the server's core and of the client's.
    fn cores(&self) -> Result<(CoreTimes, CoreTimes)> {
        Ok((process::core_times(self.options.server_core)?, process::core_times(self.options.client_core)?))
    }

    /// Starts a contender, in a cgroup where there is one.
    fn start_attacked(&self, opponent: &Opponent, folder: &Path, terms: Terms) -> Result<Server> {
        let Terms { address, descriptors, group } = terms;
        let Opponent { present: Present { contender, program, .. }, hardened, .. } = opponent;
        let mut values = Values::default();
        values.set("BIN", program.display());
        values.set("RUN", folder.display());
        values.set("ADDRESS", address);
        values.set("FAMILY", if address == ADDRESS_V6 { "6" } else { "4" });
        values.set("PORT", PORT);
        values.set("ADMIN_PORT", ADMIN_PORT);
        values.set("STATUS_PORT", STATUS_PORT);
        values.set("CERT", self.files.certificate.display());
        values.set("KEY", self.files.key.display());
        values.set("BOTH", self.files.both.display());
        values.set("ORIGIN_PORT", SINK_PORT);
        values.set("PLAIN", "");
        values.set("HTTPS", "#");
        values.set("WORKERS", 1);
        values.set("DEFAULT", if *hardened { "#" } else { "" });
        values.set("HARDENED", if *hardened { "" } else { "#" });
        for (name, template) in &contender.templates {
            fs::write(folder.join(name), values.expand(template, name)?)?;
        }
        let mut environment = BTreeMap::new();
        for (name, value) in &contender.environment {
            environment.insert(name.clone(), values.expand(value, name)?);
        }
        let arguments = [limits(descriptors), contender.expand(&contender.command, &values)?].concat();
        let core = self.options.server_core.to_string();
        let place = &self.network.server;
        let command = match group {
            None => process::command(place, &core, &arguments, &environment),
            Some(group) => process::command_in(group, place, &core, &arguments, &environment),
        };
        Server::start(&contender.name, command, folder.join("log"))
    }

    /// Waits until an honest request of each kind is answered.
    fn prove_honestly(&self, opponent: &Opponent, address: &str, server: &mut Server) -> Result<()> {
        let end = Instant::now() + READY;
        loop {
            let (command, _) = self.honest(opponent, address, 0.0);
            let answer = process::finish(command, READY, || server.check());
            interrupt::check()?;
            server.check()?;
            let honest = answer.and_then(|finished| Ok(serde_json::from_str::<Honest>(&finished.stdout)?));
            let (all, served) = honest.as_ref().map_or((0, 0), |honest| honest.served(&Protocol::ALL));
            if all > 0 && all == served {
                return Ok(());
            }
            let why = honest.map_or_else(|error| format!("{error:#}"), |honest| format!("{:?}", honest.failures));
            if Instant::now() > end {
                return Err(anyhow!("no right answer: {why}; its log: {}", server.quote()));
            }
            interrupt::sleep(READY_LOOK)?;
        }
    }

    /// The honest client's command, and how reports call it.
    fn honest(&self, opponent: &Opponent, address: &str, seconds: f64) -> (Command, String) {
        let mut arguments = vec![self.own.display().to_string(), "honest".to_owned()];
        arguments.extend(self.whom(address));
        arguments.extend(["--status-path", opponent.status, "--seconds", &seconds.to_string()].map(str::to_owned));
        let core = self.options.client_core.to_string();
        let command = process::command(&self.network.client, &core, &arguments, &BTreeMap::new());
        (command, self.without_places(&arguments.join(" ")))
    }

    /// Starts attackers: `attack` is which one, from where and for how long.
    fn start_attackers(&self, attack: &[String], address: &str, folder: &Path) -> Result<Server> {
        let mut arguments = ["nice", "-n", NICE].map(str::to_owned).to_vec();
        arguments.extend([self.own.display().to_string(), "attack".to_owned()]);
        arguments.extend_from_slice(attack);
        arguments.extend(self.whom(address));
        let core = self.options.client_core.to_string();
        let command = process::command(&self.network.client, &core, &arguments, &BTreeMap::new());
        Server::start("attackers", command, folder.join("attackers.log"))
    }

    fn whom(&self, address: &str) -> Vec<String> {
        // Contenders have their status on 127.0.0.1 alone.
        let (address, status) = (format!("{address}:{PORT}"), format!("127.0.0.1:{STATUS_PORT}"));
        let ca = self.files.certificate.display().to_string();
        ["--address", &address, "--probes", &status, "--ca", &ca].map(str::to_owned).to_vec()
    }

    /// Looks at a cgroup's memory, and at litequic's step.
    fn watch(&self, group: &Cgroup, name: &str) -> (Sampler<Usage>, Option<Sampler<f64>>) {
        let namespace = self.network.server.namespace.clone();
        let step = move || {
            let url = format!("http://127.0.0.1:{ADMIN_PORT}/metrics");
            let text = namespace::inside(&namespace, || metrics::fetch(&url)).ok()?;
            metrics::counters(&text).get(STEP).copied()
        };
        let step = (name == "litequic").then(|| Sampler::start(STEP_LOOK, step));
        (Sampler::start(CGROUP_LOOK, group.usage()), step)
    }
}

/// A command line's beginning that limits the file descriptors of what follows (`prlimit`, util-linux).
fn limits(descriptors: u32) -> Vec<String> {
    vec!["prlimit".to_owned(), format!("--nofile={descriptors}:{descriptors}")]
}

/// CPU seconds of a server between two readings of it and of both cores, and what else took time there. All that is on
/// the client's core is the lab's.
fn disturbed(before: (Cpu, (CoreTimes, CoreTimes)), after: (Cpu, (CoreTimes, CoreTimes))) -> (f64, Noise) {
    let (cpu, own) = ((after.0 - before.0).total(), (after.1.0 - before.1.0, after.1.1 - before.1.1));
    let core = |times, own| Core { times, own, delivering: 0.0 };
    (cpu, Noise::of(core(own.0, cpu), core(own.1, own.1.processes.unwrap_or(own.1.busy))))
}

/// What the honest client saw: over HTTP, and of the status port.
fn seen(honest: &Honest) -> BTreeMap<String, f64> {
    const HTTP: [Protocol; 3] = [Protocol::H3, Protocol::H2, Protocol::H1];
    let share = |protocols: &[Protocol]| {
        let (all, served) = honest.served(protocols);
        (all > 0).then(|| served as f64 / all as f64 * 100.0)
    };
    let mut figures = BTreeMap::new();
    let mut set = |name: String, value: Option<f64>| figures.extend(value.map(|value| (name, value)));
    set("served".to_owned(), share(&HTTP));
    let (all, served) = honest.served(&HTTP);
    set("failures".to_owned(), Some((all - served) as f64));
    set("p50_us".to_owned(), honest.quantile(&HTTP, 0.5));
    set("p99_us".to_owned(), honest.quantile(&HTTP, 0.99));
    for protocol in Protocol::ALL {
        set(format!("served_{}", protocol.name()), share(&[protocol]));
        set(format!("p99_{}_us", protocol.name()), honest.quantile(&[protocol], 0.99));
    }
    figures
}

/// What attackers got, by their log.
fn tallied(log: &str) -> BTreeMap<String, f64> {
    let Some(Tally { connections, closed, requests }) = Tally::last(log) else { return BTreeMap::new() };
    let all = [("attack_connections", connections), ("attack_closed", closed), ("attack_requests", requests)];
    all.map(|(name, count)| (name.to_owned(), count as f64)).into()
}

fn memory_trace(limit: u64, usage: Series<Usage>, step: Series<f64>) -> MemoryTrace {
    let of = |bytes: fn(Usage) -> u64| usage.iter().map(|(at, usage)| (*at, bytes(*usage) as f64)).collect();
    MemoryTrace {
        limit: limit as f64,
        charged: of(|usage| usage.charged),
        kept: of(|usage| usage.charged.saturating_sub(usage.droppable)),
        step,
    }
}

/// A run in a line.
fn line(run: &Run) -> String {
    let Run { contender, case, figures, void, .. } = run;
    let figure = |name: &str| figures.get(name).copied().unwrap_or(f64::NAN);
    match void {
        Some(why) => format!("{contender}, {case}: VOID, {why}"),
        None if figures.contains_key("answered") => format!(
            "{contender}, {case}: {:.0} failed, {:.0} of them 5xx and {:.0} without an answer; {:.0}/s, {:.0} MB, CPU {:.0} %",
            figure("failures"),
            figure("status_5xx"),
            figure("unanswered"),
            figure("rate"),
            figure("memory_peak"),
            figure("busy"),
        ),
        None => format!(
            "{contender}, {case}: {:.1} % served (h3 {:.0}, h2 {:.0}, h1 {:.0}, status {:.0}), p50 {:.1} ms, p99 {:.1} ms, \
             {:.0} MB, CPU {:.0} %; attackers: {:.0} connections, {:.0} closed, {:.0} requests",
            figure("served"),
            figure("served_h3"),
            figure("served_h2"),
            figure("served_h1"),
            figure("served_status"),
            figure("p50_us") / 1e3,
            figure("p99_us") / 1e3,
            figure("memory_peak"),
            figure("busy"),
            figure("attack_connections"),
            figure("attack_closed"),
            figure("attack_requests"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{PLACEHOLDERS, contender::Contender};

    #[test]
    fn every_attacked_contender_has_its_template() {
        let all = Contender::built_in().unwrap();
        for attacked in &ATTACKED {
            let contender = all.iter().find(|one| one.name == attacked.name).unwrap();
            assert_eq!(contender.files, [attacked.file], "{}", attacked.name);
            let expanded = |hardened: bool| {
                let mut values = Values::default();
                for name in PLACEHOLDERS {
                    values.set(name, "x");
                }
                values.set("DEFAULT", if hardened { "#" } else { "" });
                values.set("HARDENED", if hardened { "" } else { "#" });
                let text = values.expand(attacked.template, attacked.file).unwrap();
                let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(expanded(false) != expanded(true), attacked.hardens, "{}", attacked.name);
        }
    }

    #[test]
    fn what_an_honest_client_saw_becomes_figures() {
        let honest =
            r#"{"requests":{"h3":[1000,null],"h1":[3000,4000],"status":[500]},"failures":{"h3: not within 2 s":1}}"#;
        let figures = seen(&serde_json::from_str(honest).unwrap());
        assert_eq!((figures["served"], figures["served_h3"], figures["served_status"]), (75.0, 50.0, 100.0));
        assert_eq!((figures["p50_us"], figures["p99_us"], figures["p99_h1_us"]), (3000.0, 2e6, 4000.0));
        assert!(!figures.contains_key("served_h2"));
    }
}

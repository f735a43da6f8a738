//! A laboratory that is set up: namespaces, files, origins, contenders. Runs tasks in rounds, contenders in turn, and
//! repeats what was disturbed (`attempt`: one try). All of it is gone when it is dropped.

mod attacks;
mod attempt;
mod path;
mod ports;
mod programs;

pub(crate) use self::attacks::{Act, Assault, Trial};
use self::attempt::Measured;
use super::{
    contender::{Contender, Kind},
    files::Files,
    guard::Guard,
    interrupt,
    load::{Amount, Generator, Load},
    machine::Machine,
    namespace::{Network, SocketBuffers, Topology},
    observe::Observe,
    options::Options,
    process::Server,
    progress::say,
    rival,
    task::{Share, Task},
    variant::Variant,
};
use crate::{
    fetch::Client,
    http::Http,
    load::{self, Group},
    report::{self, Participant, Results, Run, Skipped},
};
use anyhow::{Context as _, Result, anyhow, bail};
use nix::unistd::geteuid;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// How the lab's folders are called; the process ID follows.
const FOLDER: &str = "litequic-lab-";
/// What a rival serves before anything is measured.
const REHEARSED: u64 = 1_000; // bytes

/// A contender whose program was found and can do what it must.
#[derive(Debug, Clone)]
struct Present {
    contender: Contender,
    program: PathBuf,
    version: String,
    crc32: String,
}

/// What a task needs of a contender beside a program: its name, whether it has its defaults, protocol and group, whether
/// over a path.
type Need = (String, bool, Http, Option<Group>, bool);

/// A laboratory.
pub(crate) struct Lab {
    options: Options,
    began: Instant,
    machine: Machine,
    own: PathBuf,
    /// The path of an h2load with HTTP/3, or why there is none.
    h2load: Result<PathBuf, String>,
    /// The same of other clients.
    clients: BTreeMap<Client, Result<PathBuf, String>>,
    /// All contenders that can take part; the same with an experiment's variants; those of them that were selected.
    found: Vec<Present>,
    known: Vec<Present>,
    present: Vec<Present>,
    origin: Present,
    skipped: Vec<Skipped>,
    /// Why rivals cannot do what tasks need of them, as far as they were asked.
    rehearsed: BTreeMap<Need, Option<String>>,
    files: Files,
    // Dropped in this order: servers before their network, that before its guard, all before the folder.
    origin_core: usize,
    file_origin: Option<Server>,
    sink: Option<Server>,
    network: Network,
    _guard: Guard,
    folder: tempfile::TempDir,
}

impl Lab {
    /// Sets it up. What is missing is skipped by name; without root, or an origin, there is no lab.
    pub(crate) fn new(options: Options) -> Result<Self> {
        if !geteuid().is_root() {
            bail!("needs root: it makes network namespaces");
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if options.server_core.max(options.client_core) >= cores || options.server_core == options.client_core {
            bail!("needs two cores: --server-core and --client-core, of the {cores} there are");
        }
        interrupt::listen()?;
        remove_left_folders();
        let own = env::current_exe()?;
        let machine = Machine::this();
        pin(options.client_core)?;
        let guard = Guard::start()?;
        let network = Network::new(
            options.topology,
            SocketBuffers::Ample,
            (options.server_core, options.client_core),
            &options.veth,
        )?;
        let folder = tempfile::Builder::new().prefix(&format!("{FOLDER}{}-", std::process::id())).tempdir()?;
        let files = Files::new(folder.path())?;
        let mut all = Contender::built_in()?;
        for file in &options.contender {
            all.push(Contender::read(file)?);
        }
        let (mut present, mut skipped, mut origin) = (Vec::new(), Vec::new(), None);
        for contender in all {
            let is_origin = contender.kind == Kind::Origin;
            let found = programs::find(&contender, &options)
                .and_then(|(program, version)| Ok((programs::crc32(&program)?, program, version)));
            match found {
                Ok((crc32, program, version)) => {
                    let found = Present { contender, program, version, crc32 };
                    if is_origin { origin = Some(found) } else { present.push(found) }
                }
                Err(error) if is_origin => return Err(error.context("the origin")),
                Err(error) if options.wants(&contender.name) => {
                    skipped.push(Skipped { name: contender.name, reason: format!("{error:#}") });
                }
                Err(_) => {}
            }
        }
        let h2load = programs::h2load(&options);
        let clients = Client::ALL.into_iter().map(|client| (client, programs::find_client(client, &options))).collect();
        let origin = origin.context("there is no origin")?;
        Ok(Self {
            options,
            began: Instant::now(),
            machine,
            own,
            h2load,
            clients,
            found: present.clone(),
            known: present.clone(),
            present,
            origin,
            skipped,
            rehearsed: BTreeMap::new(),
            files,
            origin_core: 0,
            file_origin: None,
            sink: None,
            network,
            _guard: guard,
            folder,
        })
    }

    /// From now on these variants of litequic take part as well, and no others; one that is called like a contender is
    /// it. An error reports what litequic's program lacks for them.
    pub(crate) fn vary(&mut self, variants: &[Variant]) -> Result<(), String> {
        self.known.clone_from(&self.found);
        self.choose();
        let Some(litequic) = self.found.iter().find(|present| present.contender.name == "litequic") else {
            return Ok(());
        };
        let mut needs = variants.iter().filter_map(|variant| variant.needs.as_deref());
        if let Some(needs) = needs.find(|needs| !litequic.version.contains(needs)) {
            return Err(format!("it needs a litequic whose version says {needs}; this one says {}", litequic.version));
        }
        // In their order: each has its turn, and its row, after the one before.
        self.known.retain(|known| variants.iter().all(|variant| variant.name != known.contender.name));
        for variant in variants {
            let varied = match &variant.twin_of {
                None => Some(Present { contender: litequic.contender.vary(variant), ..litequic.clone() }),
                Some(of) => self
                    .found
                    .iter()
                    .find(|present| present.contender.name == *of)
                    .map(|twin| Present { contender: twin.contender.twin(variant), ..twin.clone() }),
            };
            self.known.extend(varied);
        }
        self.choose();
        Ok(())
    }

    /// The known ones that were selected.
    fn choose(&mut self) {
        self.present = self.known.iter().filter(|known| self.options.wants(&known.contender.name)).cloned().collect();
    }

    /// Its options.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Runs tasks in rounds. Voids are in the results; an error means that there are none, and `None` that it was
    /// stopped: what is finished is kept for another run.
    pub(crate) fn run(
        &mut self,
        experiment: &str,
        about: &str,
        reference: &str,
        mut tasks: Vec<Task>,
    ) -> Result<Option<Results>> {
        for task in &mut tasks {
            if task.topology.is_none() {
                task.path = task.path.take().or_else(|| self.options.path.clone());
            }
            task.case.path = task.path.as_ref().map(ToString::to_string);
            task.links = self.options.links(task.links);
            task.case.beside = task.beside_from.map(str::to_owned);
        }
        let any_path = tasks.iter().any(|task| task.path.is_some());
        let common = if any_path { Topology::Path } else { self.options.topology };
        tasks.iter_mut().for_each(|task| _ = task.topology.get_or_insert(common));
        if let Some(first) = tasks.first() {
            self.settle(first.topology.unwrap_or(common), first.buffers)?;
        }
        let mut results = self.results(experiment, about, reference);
        tasks.retain(|task| self.options.takes(&task.case.name));
        tasks.retain(|task| match self.lacks(task) {
            None => true,
            Some(reason) => {
                results.skipped.push(Skipped { name: task.case.name.clone(), reason });
                false
            }
        });
        let (fit, unfit): (Vec<_>, Vec<_>) = (0..tasks.len())
            .flat_map(|task| (0..self.present.len()).map(move |contender| (task, contender)))
            .filter_map(|(at, which)| Some(((at, which), tasks.get(at)?, &self.present.get(which)?.contender)))
            .filter(|(_, task, contender)| task.takes(contender))
            .map(|(turn, task, contender)| (turn, task, contender, task.load.beyond(contender)))
            .partition(|(.., beyond)| beyond.is_none());
        let mut turns: Vec<(usize, usize)> = fit.into_iter().map(|(turn, ..)| turn).collect();
        for (_, task, contender, beyond) in unfit {
            let name = format!("{} in {}", contender.name, task.case.name);
            results.skipped.push(Skipped { name, reason: beyond.unwrap_or_default().to_owned() });
        }
        for (task, contender, reason) in self.rehearse_all(&tasks, &mut turns)? {
            results.skipped.push(Skipped { name: format!("{contender} in {task}"), reason });
        }
        for skipped in &results.skipped {
            say(&format!("{experiment}: SKIPPED {}: {}", skipped.name, skipped.reason));
        }
        results.cases = tasks.iter().map(|task| task.case.clone()).collect();
        if self.options.resume
            && let Some(earlier) = report::earlier(experiment, &self.options.out)?
        {
            results
                .go_on(earlier)
                .map_err(|why| anyhow!("cannot go on with what is in {}: {why}", self.options.out.display()))?;
        }
        let of_each: Vec<usize> = tasks.iter().map(|task| self.options.rounds(task.rounds)).collect();
        let rounds = |task: usize| of_each.get(task).copied().unwrap_or_default();
        let last = turns.iter().map(|(task, _)| rounds(*task)).max().unwrap_or_default();
        let all: usize = turns.iter().map(|(task, _)| rounds(*task)).sum();
        let names: Vec<String> = self.present.iter().map(|present| present.contender.name.clone()).collect();
        let has = |results: &Results, task: usize, contender: usize, round: usize| {
            let (task, name) = (tasks.get(task), names.get(contender));
            task.zip(name).is_some_and(|(task, name)| results.has(&task.case.name, name, round))
        };
        // A turn over several links is several rounds.
        let finished = |results: &Results| {
            let of = |(task, contender): &(usize, usize)| {
                (1..=rounds(*task)).filter(|round| has(results, *task, *contender, *round)).count()
            };
            turns.iter().map(of).sum::<usize>()
        };
        let (began, before) = (Instant::now(), finished(&results));
        for round in 1..=last {
            for (task, contender) in &turns {
                if round > rounds(*task) || has(&results, *task, *contender, round) {
                    continue;
                }
                let Some(task) = tasks.get(*task) else { continue };
                if self.is_over() {
                    return Ok(None);
                }
                self.turn(task, *contender, round, &mut results)?;
                report::keep(&results, &self.options.out)?;
                let done = finished(&results);
                let left = began.elapsed().mul_f64((all - done) as f64 / (done - before).max(1) as f64);
                let last = results.runs.iter().rfind(|run| run.counts || run.void.is_some());
                say(&format!(
                    "{experiment} {done}/{all}, {} left: {}",
                    clock(left),
                    last.map(progress).unwrap_or_default()
                ));
            }
        }
        // Those who never ran took no part.
        let ran = |name: &str| results.runs.iter().any(|run| run.contender == name);
        results.contenders.retain(|participant| ran(&participant.name));
        if !results.contenders.iter().any(|participant| participant.name == results.reference)
            && let Some(first) = results.contenders.first()
        {
            results.reference.clone_from(&first.name);
        }
        Ok(Some(results))
    }

    /// Whether nothing more is begun.
    fn is_over(&self) -> bool {
        self.options.stop_after.is_some_and(|time| self.began.elapsed() >= time)
    }

    /// Creates the namespaces that an experiment needs; origins are restarted in new ones.
    fn settle(&mut self, topology: Topology, buffers: SocketBuffers) -> Result<()> {
        if !self.network.is(topology, buffers) {
            (self.file_origin, self.sink) = (None, None);
            self.network.change(topology, buffers, &self.options.veth)?;
        }
        Ok(())
    }

    fn results(&self, experiment: &str, about: &str, reference: &str) -> Results {
        let participant = |present: &Present| Participant {
            name: present.contender.name.clone(),
            kind: present.contender.compared_as(),
            version: present.version.clone(),
            crc32: Some(present.crc32.clone()),
            tuned: present.contender.tuned.clone(),
            command: present.contender.command.join(" ").replace("@BIN@", &file_name(&present.program)),
        };
        let command: Vec<String> = env::args().skip(1).collect();
        Results {
            experiment: experiment.to_owned(),
            about: about.to_owned(),
            quick: self.options.quick,
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: format!("litequic-lab {}", command.join(" ")),
            machine: self.machine.clone(),
            topology: self.network.topology,
            reference: reference.to_owned(),
            contenders: self.present.iter().map(participant).collect(),
            skipped: self.skipped.clone(),
            cases: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// What a task needs and is not there.
    fn lacks(&self, task: &Task) -> Option<String> {
        if let Some(Err(reason)) = self.client(&task.load.generator) {
            return Some(reason.clone());
        }
        if matches!(&task.load.generator, Generator::Viewers(viewers) if viewers.video) && self.options.video.is_none()
        {
            return Some("needs --video, a folder that video.sh made".to_owned());
        }
        let tools = task.observe.program().into_iter().chain(task.rival().map(|_| rival::PROGRAM));
        if let Some(missing) = tools.into_iter().find(|tool| programs::program(tool, &self.options).is_none()) {
            return Some(format!("{missing} is not installed"));
        }
        let is_for_a_path = task.path.is_some();
        (is_for_a_path != (task.topology == Some(Topology::Path))).then(|| "needs another topology".to_owned())
    }

    /// The program of a client that is not the lab's own, or why it is of no use.
    fn client(&self, generator: &Generator) -> Option<&Result<PathBuf, String>> {
        match generator {
            Generator::Viewers(viewers) if viewers.video => self.clients.get(&Client::Chromium),
            Generator::Own { .. } | Generator::Viewers(_) => None,
            Generator::H2load | Generator::Counting | Generator::Mix(..) => Some(&self.h2load),
            Generator::Client(client) => self.clients.get(client),
        }
    }

    /// Has each rival do a little of what its turns need, and removes the turns for which it cannot: tasks, contenders
    /// and reasons.
    fn rehearse_all(
        &mut self,
        tasks: &[Task],
        turns: &mut Vec<(usize, usize)>,
    ) -> Result<Vec<(String, String, String)>> {
        let (mut unable, mut left) = (Vec::new(), Vec::new());
        for (at, which) in std::mem::take(turns) {
            let (Some(task), Some(present)) = (tasks.get(at), self.present.get(which)) else { continue };
            let contender = present.contender.clone();
            let task = &task.by_clients_of(&contender);
            // litequic itself is what is measured: a fault of its own is no reason to skip it.
            if contender.kind != Kind::H3 || contender.binary.starts_with("litequic") {
                left.push((at, which));
                continue;
            }
            let need = (contender.name.clone(), task.defaults, task.front, task.group, task.path.is_some());
            let reason = match self.rehearsed.get(&need) {
                Some(reason) => reason.clone(),
                None => {
                    let reason = self.rehearse(task, which)?;
                    self.rehearsed.insert(need, reason.clone());
                    reason
                }
            };
            match reason {
                Some(reason) => unable.push((task.case.name.clone(), contender.name, reason)),
                None => left.push((at, which)),
            }
        }
        *turns = left;
        Ok(unable)
    }

    /// Starts a contender as a task would, and sends it one request, or one handshake where a group of TLS is asked
    /// for: why it fails.
    fn rehearse(&mut self, task: &Task, contender: usize) -> Result<Option<String>> {
        // A client that is no load generator finds HTTP/3 beside its own protocol.
        let has_h3 = task.front == Http::Three || matches!(task.load.generator, Generator::Client(_));
        let generator = if has_h3 { Generator::own("auto") } else { Generator::Counting };
        let kind = if task.group.is_some() { load::Kind::Handshakes } else { load::Kind::Small };
        let amount = Amount::Requests(1);
        let load = Load { kind, body: REHEARSED, connections: 1, streams: 1, amount, generator, resume: false };
        let mut little = Task {
            load,
            crowd: 0,
            warm_up: None,
            observe: Observe::Cpu,
            links: 1,
            sampled: None,
            beside: None,
            beside_from: None,
            is_client_alone: false,
            share: Share::All,
            ..task.clone()
        };
        little.case.saturated = false;
        // As in a quick run: nothing is waited for.
        let quick = std::mem::replace(&mut self.options.quick, true);
        let outcome = self.attempt(&little, contender, 1, &mut String::new());
        self.options.quick = quick;
        interrupt::check()?;
        Ok(outcome.err().map(|error| format!("{error:#}")))
    }

    /// A contender's turn at a task: tries until one was quiet. Over several links it is the turn of as many rounds.
    fn turn(&mut self, task: &Task, contender: usize, round: usize, results: &mut Results) -> Result<()> {
        let Some(name) = self.present.get(contender).map(|present| present.contender.name.clone()) else {
            return Ok(());
        };
        let (first, mut kept) = (results.runs.len(), Vec::new());
        for attempt in 1..=self.options.tries() {
            let mut client = String::new();
            let (measured, void) = match self.attempt(task, contender, round, &mut client) {
                Ok(measured) => (measured, None),
                Err(error) => {
                    interrupt::check()?;
                    ((0..task.links).map(|_| Measured::default()).collect(), Some(format!("{error:#}")))
                }
            };
            let is_quiet = |measured: &Measured| measured.noise.disturbance(task.case.figures()).is_none();
            let quiet = void.is_none() && measured.iter().all(is_quiet);
            for (Measured { noise, figures, samples, trace, views }, round) in measured.into_iter().zip(round..) {
                results.runs.push(Run {
                    contender: name.clone(),
                    case: task.case.name.clone(),
                    round,
                    attempt,
                    counts: false,
                    void: void.clone(),
                    noise,
                    figures,
                    client: client.clone(),
                    samples,
                    trace: None,
                });
                kept.push((trace, views));
            }
            if quiet {
                break;
            }
        }
        let tries = results.runs.get_mut(first..).unwrap_or_default();
        let valid = tries.iter().filter(|run| run.void.is_none());
        let best = valid.min_by(|a, b| a.noise.weight().total_cmp(&b.noise.weight())).map(|run| run.attempt);
        for (run, (trace, views)) in tries.iter_mut().zip(kept).filter(|(run, _)| Some(run.attempt) == best) {
            run.counts = true;
            let (experiment, out) = (&results.experiment, &self.options.out);
            run.trace = trace.map(|trace| report::save_trace(&trace, experiment, run, out)).transpose()?;
            views.map_or(Ok(()), |views| report::save_views(&views, experiment, run, out))?;
        }
        Ok(())
    }
}

/// This process, and what it starts without saying where, on the client's core.
fn pin(core: usize) -> Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(core)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).context("cannot choose a core")
}

/// Removes the folders of labs that crashed.
fn remove_left_folders() {
    let entries =
        fs::read_dir(env::temp_dir()).map(|entries| entries.filter_map(Result::ok).collect()).unwrap_or_default();
    let entries: Vec<fs::DirEntry> = entries;
    for entry in entries {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A run in a line.
fn progress(run: &Run) -> String {
    let Run { contender, case, round, attempt, .. } = run;
    let outcome = match &run.void {
        Some(void) => format!("VOID, {void}"),
        None => {
            let cpu = run
                .figures
                .get("cpu")
                .filter(|cpu| cpu.is_finite())
                .map(|cpu| format!("CPU {cpu:.2}"))
                .unwrap_or_default();
            let noise =
                run.noise.disturbance(std::iter::once("cpu")).map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{cpu}{noise}")
        }
    };
    let tries = if *attempt > 1 { format!(" after {attempt} tries") } else { String::new() };
    format!("round {round}, {case}, {contender}: {outcome}{tries}")
}

fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::noise::Noise;

    #[test]
    fn a_void_run_says_why_in_its_line() {
        let run = Run {
            contender: "a".to_owned(),
            case: "large".to_owned(),
            round: 2,
            attempt: 3,
            counts: false,
            void: Some("it died".to_owned()),
            noise: Noise::default(),
            figures: BTreeMap::new(),
            client: String::new(),
            samples: Vec::new(),
            trace: None,
        };
        assert_eq!(progress(&run), "round 2, large, a: VOID, it died after 3 tries");
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}

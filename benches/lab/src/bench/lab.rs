//! A laboratory that is set up: namespaces, files, origins, contenders. Runs tasks in rounds, contenders in turn, and
//! repeats what was disturbed (`attempt`: one try). All of it is gone when it is dropped.

mod attempt;
mod path;

use super::{
    contender::{Contender, Kind},
    files::Files,
    interrupt,
    load::{Generator, Load},
    machine::Machine,
    namespace::{Network, Topology},
    noise::Noise,
    observe::Observe,
    options::Options,
    process::{self, Server},
    rival,
    template::Values,
};
use crate::{
    fetch::Client,
    link,
    report::{Case, Participant, Results, Run, Skipped},
};
use anyhow::{Context as _, Result, anyhow, bail};
use nix::unistd::geteuid;
use std::{
    collections::BTreeMap,
    env, fs,
    net::{Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant, SystemTime},
};

/// For a program to say its version.
const VERSION: Duration = Duration::from_secs(10);
/// How the lab's folders are called; the process ID follows.
const FOLDER: &str = "litequic-lab-";

/// Something that contenders are made to do, and who takes part.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// How reports call it.
    pub(crate) case: Case,
    /// The load.
    pub(crate) load: Load,
    /// Worker threads or processes of each contender.
    pub(crate) workers: u16,
    /// Connections that others hold open, and that are idle, while the load is measured.
    pub(crate) crowd: u32,
    /// Who takes part: kinds, and, unless empty, names.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) names: Vec<String>,
    /// What is watched.
    pub(crate) observe: Observe,
    /// The emulated path between client and server.
    pub(crate) path: Option<link::Path>,
    /// What others do to the server meanwhile; it is not measured.
    pub(crate) beside: Option<Load>,
    /// Contenders are tuned for such paths, those that can be.
    pub(crate) tuned: bool,
    /// Rounds, where the command line does not say.
    pub(crate) rounds: usize,
}

impl Task {
    fn takes(&self, contender: &Contender) -> bool {
        // Over a path TCP's congestion control decides, so whoever is measured over TCP names it; elsewhere it does not.
        // The floor has no congestion control at all.
        let is_meant = match contender.kind {
            Kind::H1 => contender.congestion_control.is_some() == self.path.is_some(),
            Kind::Floor => self.path.is_none(),
            Kind::H3 | Kind::Origin => true,
        };
        let speaks = match self.load.generator {
            Generator::Client(client) => contender.kind == Kind::H3 || client.speaks_h1(),
            Generator::Own { .. } | Generator::H2load => true,
        };
        let is_named = self.names.is_empty() || self.names.contains(&contender.name);
        let is_meant = is_meant && (!self.tuned || contender.tuned.is_some());
        is_meant && speaks && is_named && self.kinds.contains(&contender.kind)
    }
}

/// litequic with something added to its configuration.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// How reports call it.
    pub(crate) name: String,
    /// TOML.
    pub(crate) extra: String,
}

/// A contender whose program was found and can do what it must.
#[derive(Debug, Clone)]
struct Present {
    contender: Contender,
    program: PathBuf,
    version: String,
}

/// A laboratory.
pub(crate) struct Lab {
    options: Options,
    machine: Machine,
    own: PathBuf,
    /// Its path, or why it is of no use.
    h2load: Result<PathBuf, String>,
    /// The same of other clients.
    clients: BTreeMap<Client, Result<PathBuf, String>>,
    /// All that can take part, and those that do, variants included.
    found: Vec<Present>,
    present: Vec<Present>,
    origin: Present,
    skipped: Vec<Skipped>,
    files: Files,
    // Dropped in this order: servers before their network, all before the folder.
    file_origin: Option<Server>,
    sink: Option<Server>,
    network: Network,
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
        let network = Network::new(options.topology, options.server_core, options.client_core, &options.veth)?;
        let folder = tempfile::Builder::new().prefix(&format!("{FOLDER}{}-", std::process::id())).tempdir()?;
        let files = Files::new(folder.path())?;
        let mut all = Contender::built_in()?;
        for file in &options.contender {
            all.push(Contender::read(file)?);
        }
        let unknown: Vec<&String> =
            options.only.iter().filter(|name| !all.iter().any(|one| one.name == **name)).collect();
        if !unknown.is_empty() {
            bail!("--only: there is no contender {unknown:?}");
        }
        let (mut present, mut skipped, mut origin) = (Vec::new(), Vec::new(), None);
        for contender in all {
            match find(&contender, &options) {
                Ok((program, version)) if contender.kind == Kind::Origin => {
                    origin = Some(Present { contender, program, version });
                }
                Err(error) if contender.kind == Kind::Origin => return Err(error.context("the origin")),
                _ if !options.wants(&contender.name) => {}
                Ok((program, version)) => present.push(Present { contender, program, version }),
                Err(error) => skipped.push(Skipped { name: contender.name, reason: format!("{error:#}") }),
            }
        }
        let h2load = h2load(&options);
        let clients = Client::ALL.into_iter().map(|client| (client, find_client(client, &options))).collect();
        let origin = origin.context("there is no origin")?;
        Ok(Self {
            options,
            machine,
            own,
            h2load,
            clients,
            found: present.clone(),
            present,
            origin,
            skipped,
            files,
            file_origin: None,
            sink: None,
            network,
            folder,
        })
    }

    /// From now on these variants of litequic take part as well, and no others; one that is called like a contender is it.
    pub(crate) fn vary(&mut self, variants: &[Variant]) {
        self.present.clone_from(&self.found);
        let Some(litequic) = self.found.iter().find(|present| present.contender.name == "litequic") else { return };
        // In their order: each has its turn, and its row, after the one before.
        self.present.retain(|present| variants.iter().all(|variant| variant.name != present.contender.name));
        for variant in variants {
            let mut varied = litequic.clone();
            varied.contender.name.clone_from(&variant.name);
            varied.contender.extra.clone_from(&variant.extra);
            self.present.push(varied);
        }
    }

    /// What it was told.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Runs tasks in rounds. Voids are in the results; an error means that there are none.
    pub(crate) fn run(
        &mut self,
        experiment: &str,
        about: &str,
        reference: &str,
        mut tasks: Vec<Task>,
    ) -> Result<Results> {
        for task in &mut tasks {
            task.path = task.path.take().or_else(|| self.options.path.clone());
            task.case.path = task.path.as_ref().map(ToString::to_string);
        }
        self.settle(if tasks.iter().any(|task| task.path.is_some()) { Topology::Path } else { self.options.topology })?;
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
        let turns: Vec<(usize, usize)> = fit.into_iter().map(|(turn, ..)| turn).collect();
        for (_, task, contender, beyond) in unfit {
            let name = format!("{} in {}", contender.name, task.case.name);
            results.skipped.push(Skipped { name, reason: beyond.unwrap_or_default().to_owned() });
        }
        for skipped in &results.skipped {
            say(&format!("{experiment}: SKIPPED {}: {}", skipped.name, skipped.reason));
        }
        results.cases = tasks.iter().map(|task| task.case.clone()).collect();
        let rounds = |task: usize| tasks.get(task).map_or(0, |task| self.options.rounds(task.rounds));
        let last = turns.iter().map(|(task, _)| rounds(*task)).max().unwrap_or_default();
        let all: usize = turns.iter().map(|(task, _)| rounds(*task)).sum();
        let (began, mut done) = (Instant::now(), 0);
        for round in 1..=last {
            for (task, contender) in &turns {
                let Some(task) = tasks.get(*task).filter(|task| round <= self.options.rounds(task.rounds)) else {
                    continue;
                };
                self.turn(task, *contender, round, &mut results)?;
                done += 1;
                let left = began.elapsed().mul_f64((all - done) as f64 / done as f64);
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
        Ok(results)
    }

    /// Has the namespaces as an experiment wants them; origins begin anew in new ones.
    fn settle(&mut self, topology: Topology) -> Result<()> {
        if topology != self.network.topology {
            (self.file_origin, self.sink) = (None, None);
            self.network.change(topology, &self.options.veth)?;
        }
        Ok(())
    }

    fn results(&self, experiment: &str, about: &str, reference: &str) -> Results {
        let participant = |present: &Present| Participant {
            name: present.contender.name.clone(),
            kind: present.contender.kind,
            version: present.version.clone(),
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
        let tools = task.observe.program().into_iter().chain(task.case.saturated.then_some(rival::PROGRAM));
        if let Some(missing) = tools.into_iter().find(|tool| program(tool, &self.options).is_none()) {
            return Some(format!("{missing} is not installed"));
        }
        let is_for_a_path = task.path.is_some();
        (is_for_a_path != (self.network.topology == Topology::Path)).then(|| "needs another topology".to_owned())
    }

    /// The program of a client that is not the lab's own, or why it is of no use.
    fn client(&self, generator: &Generator) -> Option<&Result<PathBuf, String>> {
        match generator {
            Generator::Own { .. } => None,
            Generator::H2load => Some(&self.h2load),
            Generator::Client(client) => self.clients.get(client),
        }
    }

    /// A contender's turn at a task: tries until one was quiet.
    fn turn(&mut self, task: &Task, contender: usize, round: usize, results: &mut Results) -> Result<()> {
        let Some(name) = self.present.get(contender).map(|present| present.contender.name.clone()) else {
            return Ok(());
        };
        let first = results.runs.len();
        for attempt in 1..=self.options.tries() {
            let mut client = String::new();
            let (noise, figures, void) = match self.attempt(task, contender, &mut client) {
                Ok((noise, figures)) => (noise, figures, None),
                Err(error) => {
                    interrupt::check()?;
                    (Noise::default(), BTreeMap::new(), Some(format!("{error:#}")))
                }
            };
            let quiet = void.is_none() && noise.disturbance().is_none();
            results.runs.push(Run {
                contender: name.clone(),
                case: task.case.name.clone(),
                round,
                attempt,
                counts: false,
                void,
                noise,
                figures,
                client,
            });
            if quiet {
                break;
            }
        }
        let tries = results.runs.get_mut(first..).unwrap_or_default().iter_mut().filter(|run| run.void.is_none());
        if let Some(best) = tries.min_by(|a, b| a.noise.weight().total_cmp(&b.noise.weight())) {
            best.counts = true;
        }
        Ok(())
    }
}

/// A contender's program and version, or why it is left out.
fn find(contender: &Contender, options: &Options) -> Result<(PathBuf, String)> {
    let given = options.given(&contender.name).or_else(|| options.given(&contender.binary));
    let Some(program) = contender.find(given.map(PathBuf::as_path)) else {
        bail!("{} is not installed", given.map_or(contender.binary.clone(), |given| given.display().to_string()));
    };
    if let Some(name) = &contender.congestion_control
        && !Network::has_congestion_control(name)
    {
        bail!("this kernel has no {name} for TCP");
    }
    let mut values = Values::default();
    values.set("BIN", program.display());
    let ask = |command: &[String]| -> Result<String> {
        let arguments = contender.expand(command, &values)?;
        let (name, rest) = arguments.split_first().context("an empty command")?;
        let mut command = Command::new(name);
        command.args(rest);
        let finished = process::finish(process::group(command), VERSION, || Ok(()))?;
        Ok(format!("{}\n{}", finished.stdout.trim(), finished.whole_stderr))
    };
    if let Some(probe) = &contender.probe
        && !ask(&probe.command)?.contains(&probe.says)
    {
        bail!("{} {}", program.display(), probe.otherwise);
    }
    // Some begin with the place from which they were started, which is this machine's business.
    let version = ask(&contender.version)?.replace(&program.display().to_string(), &contender.binary);
    let version = version.trim().lines().next().unwrap_or("unknown").trim().to_owned();
    let control = contender.congestion_control.iter().map(|name| format!(", TCP with {name}"));
    Ok((program, control.fold(version, |version, control| version + &control)))
}

/// h2load with HTTP/3; Debian's has none.
fn h2load(options: &Options) -> Result<PathBuf, String> {
    let program = program("h2load", options).ok_or("h2load is not installed")?;
    match sends_quic(&program) {
        Ok(true) => Ok(program),
        Ok(false) => Err(format!("{} was built without HTTP/3", program.display())),
        Err(error) => Err(format!("{}: {error:#}", program.display())),
    }
}

/// A client's program. curl says whether it has HTTP/3; litequic lies beside the lab, as the contender does.
fn find_client(client: Client, options: &Options) -> Result<PathBuf, String> {
    let beside = || Some(env::current_exe().ok()?.with_file_name(client.program())).filter(|path| path.is_file());
    let found = program(client.program(), options);
    let found =
        if client == Client::Get && options.given(client.program()).is_none() { beside().or(found) } else { found };
    let found = found.ok_or_else(|| format!("{} is not installed", client.program()))?;
    if client == Client::Curl {
        let mut command = Command::new(&found);
        command.arg("--version");
        let said =
            process::finish(process::group(command), VERSION, || Ok(())).map_err(|error| format!("{error:#}"))?;
        if !said.stdout.contains("HTTP3") {
            return Err(format!("{} was built without HTTP/3", found.display()));
        }
    }
    Ok(found)
}

/// Whether an h2load that is told to speak HTTP/3 sends a datagram. Its help says the same with and without.
fn sends_quic(h2load: &Path) -> Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let mut command = Command::new(h2load);
    command.args(["--alpn-list=h3", "-n1", &format!("https://{}/", socket.local_addr()?)]);
    let mut sent = false;
    let finished = process::finish(process::group(command), VERSION, || {
        sent = sent || socket.recv(&mut [0; 1]).is_ok();
        if sent { Err(anyhow!("it does")) } else { Ok(()) }
    });
    sent = sent || socket.recv(&mut [0; 1]).is_ok();
    // Ended because it did what was asked.
    if sent { Ok(true) } else { finished.map(|_| false) }
}

/// A program that is no contender.
fn program(name: &str, options: &Options) -> Option<PathBuf> {
    if let Some(given) = options.given(name) {
        return given.is_file().then(|| given.clone());
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
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
            let cpu = run.figures.get("cpu").map(|cpu| format!("CPU {cpu:.2}")).unwrap_or_default();
            let noise = run.noise.disturbance().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{cpu}{noise}")
        }
    };
    let tries = if *attempt > 1 { format!(" after {attempt} tries") } else { String::new() };
    format!("round {round}, {case}, {contender}: {outcome}{tries}")
}

fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// Progress, for whoever waits.
#[expect(clippy::print_stderr, reason = "a command: its progress goes to standard error")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h2load_without_http_3_is_told_from_one_with_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let with = program("with", "port=${3##*:}; echo QUIC >/dev/udp/127.0.0.1/${port%/}; sleep 1000");
        assert!(sends_quic(&with).unwrap());
        let without = program("without", "echo \"unrecognized option '$1'\" >&2; exit 1");
        assert!(!sends_quic(&without).unwrap());
        assert!(sends_quic(&folder.path().join("none")).is_err());
    }

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
        };
        assert_eq!(progress(&run), "round 2, large, a: VOID, it died after 3 tries");
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}

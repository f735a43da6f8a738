//! The experiments: the question, the contenders, the load. Each file answers with tasks; the lab runs them, `report`
//! writes down what came of it.

mod attacks;
mod batch;
mod bloat;
mod conformance;
mod downloads;
mod fairness;
mod floor;
mod gateway;
mod gigabit;
mod handshakes;
mod idle;
mod inflight;
mod ladder;
mod long;
mod lossy;
mod many;
mod mechanisms;
mod near;
mod origins;
mod peers;
mod plan;
mod players;
mod profile;
mod readers;
mod receives;
mod recovery;
mod scale;
mod shallow;
mod short;
mod slow;
mod sources;
mod syscalls;
mod thesis;
mod thresholds;
mod ttlb;
mod viewers;
mod window;
mod wire;

use crate::{
    bench::{
        Chain, Lab, Observe, Share, Task, Variant,
        contender::{Contender, Kind},
        interrupt,
        load::{Amount, Generator, Load},
        namespace::{SocketBuffers, VethShape},
        options::Options,
        say,
    },
    fetch::Client,
    http::Http,
    load,
    report::{self, Case, Per, Results},
};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Declares the experiments that answer with tasks, each with its command, in the order of `all`.
macro_rules! experiments {
    ($($(#[$help:meta])* $name:ident => $experiment:path,)*) => {
        /// The command of one experiment.
        #[derive(Subcommand)]
        pub(crate) enum One {
            $($(#[$help])* $name(Options),)*
        }

        impl One {
            fn experiment(self) -> (Options, &'static Experiment) {
                match self {
                    $(Self::$name(options) => (options, &$experiment),)*
                }
            }
        }

        const EXPERIMENTS: &[&Experiment] = &[$(&$experiment),*];
    };
}

experiments! {
    /// CPU a GB and a request, of litequic and its peers: large bodies, small objects, uploads.
    Peers => peers::EXPERIMENT,
    /// What each of litequic's switches brings, from plain to everything, at 2, 10 and 100 packets an ACK and `auto`.
    Ladder => ladder::EXPERIMENT,
    /// Datagrams and ACK frames that litequic receives at once, as load grows.
    Batch => batch::EXPERIMENT,
    /// Where CPU time goes, by part (perf).
    Profile => profile::EXPERIMENT,
    /// Packets wrongly declared lost, and round-trip times, with litequic's mechanisms on and off.
    Recovery => recovery::EXPERIMENT,
    /// One and two workers; from 1 connection to 10,000.
    Scale => scale::EXPERIMENT,
    /// System calls a MB, by name (strace).
    Syscalls => syscalls::EXPERIMENT,
    /// Time to last byte, from 80 KB to 80 MB.
    Ttlb => ttlb::EXPERIMENT,
    /// CPU a handshake, and handshakes a second.
    Handshakes => handshakes::EXPERIMENT,
    /// What TLS to the origin costs.
    Origins => origins::EXPERIMENT,
    /// Memory an idle connection.
    Idle => idle::EXPERIMENT,
    /// What sealing and sending cost with no protocol at all.
    Floor => floor::EXPERIMENT,
    /// Goodput, drops and bursts in front of shallow buffers.
    Shallow => shallow::EXPERIMENT,
    /// One long download over long and fast paths.
    Long => long::EXPERIMENT,
    /// Time to last byte of small bodies over paths.
    Short => short::EXPERIMENT,
    /// Latency of a small request beside a bulk download.
    Bloat => bloat::EXPERIMENT,
    /// Loss, blackouts, changes of rate, reordering, asymmetry.
    Lossy => lossy::EXPERIMENT,
    /// Many downloads that share a link: fairness, CPU, wakes.
    Many => many::EXPERIMENT,
    /// A few downloads over slow links: CPU, wakes.
    Slow => slow::EXPERIMENT,
    /// One download beside one of kernel TCP with CUBIC: who gets how much of a bottleneck.
    Fairness => fairness::EXPERIMENT,
    /// Whether congestion control behaves as the kernel's: envelopes of delay and throughput.
    Conformance => conformance::EXPERIMENT,
    /// Whether that measure sees what it should.
    Validation => conformance::VALIDATION,
    /// Memory a download, fast and slow.
    Readers => readers::EXPERIMENT,
    /// Goodput at 2 and 100 packets an ACK, and with ACK_FREQUENCY, over a grid of paths.
    Thresholds => thresholds::EXPERIMENT,
    /// Goodput over a fixed congestion window, at 2 and 100 packets an ACK.
    Window => window::EXPERIMENT,
    /// ACKs a receive call over the link's rate.
    Receives => receives::EXPERIMENT,
    /// What each mechanism saves over a path that many downloads share.
    Mechanisms => mechanisms::EXPERIMENT,
    /// Time to last byte by s2n-quic's I/O, epoll and io_uring.
    Thesis => thesis::EXPERIMENT,
    /// Viewers of adaptive video that a server with little CPU time satisfies.
    Viewers => viewers::EXPERIMENT,
    /// Emulated viewers beside dash.js in Chromium, over the same paths.
    Players => players::EXPERIMENT,
    /// A mix of small and large responses behind 64 connections of 32 streams, as on a public board of gateways.
    Gateway => gateway::EXPERIMENT,
    /// Bursts in which datagrams leave.
    Wire => wire::EXPERIMENT,
    /// A download of a client on the same machine or network, whose socket has the kernel's default size.
    Near => near::EXPERIMENT,
    /// What a download costs the client, and how fast it is, by HTTP/2 and HTTP/3 over a fast link.
    Downloads => downloads::EXPERIMENT,
    /// What one download at 1 Gbit/s costs the server, with and without a card that segments.
    Gigabit => gigabit::EXPERIMENT,
}

/// The experiments' commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    One(One),
    /// What an honest client sees while others attack.
    Attacks(attacks::AttackOptions),
    /// What an honest client sees while others attack from 1 to 1,000 addresses.
    Sources(sources::SourcesOptions),
    /// Failures of requests of which one address has up to 10,000 in flight.
    Inflight(Options),
    /// Those over paths, one after the other.
    Paths(Options),
    /// Those that repeat the papers' measurements, one after the other.
    Papers(Options),
    /// All of them, one after the other.
    All(Options),
    /// Join the results in a folder into one page, and make their own pages and plots anew.
    Report {
        /// With the experiments' JSON files.
        #[arg(default_value = "target/lab")]
        folder: PathBuf,
        /// Make the page and the plots of this file alone; several times for several.
        #[arg(long, value_name = "FILE")]
        from: Vec<PathBuf>,
        /// Where pages and plots go; default: beside the JSON.
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// Make the one page alone, without the experiments' own: docs/results has it so.
        #[arg(long)]
        summary: bool,
        /// Plots that the summary has beside it.
        #[arg(long, value_name = "FILE,…", value_delimiter = ',', requires = "summary")]
        plots: Vec<String>,
        /// Compare with the results in another folder instead, and print what repeats.
        #[arg(long, value_name = "FOLDER")]
        against: Option<PathBuf>,
    },
}

/// An experiment.
struct Experiment {
    name: &'static str,
    /// Its question, as its page begins.
    about: &'static str,
    /// The reference of the comparison; `None`: as on the command line.
    reference: Option<&'static str>,
    tasks: fn(&Options) -> Vec<Task>,
    /// Variants of litequic that take part.
    variants: fn() -> Result<Vec<Variant>>,
}

impl Experiment {
    /// One in which the contenders take part as they come, compared as the command line says.
    const fn new(name: &'static str, about: &'static str, tasks: fn(&Options) -> Vec<Task>) -> Self {
        Self { name, about, reference: None, tasks, variants: || Ok(Vec::new()) }
    }
}

/// Those over emulated paths that a night is for.
const OVER_PATHS: [&Experiment; 7] = [
    &shallow::EXPERIMENT,
    &long::EXPERIMENT,
    &short::EXPERIMENT,
    &bloat::EXPERIMENT,
    &lossy::EXPERIMENT,
    &many::EXPERIMENT,
    &slow::EXPERIMENT,
];

/// Those that repeat the measurements of the papers (docs/papers.md).
const OF_THE_PAPERS: [&Experiment; 5] =
    [&mechanisms::EXPERIMENT, &receives::EXPERIMENT, &window::EXPERIMENT, &thesis::EXPERIMENT, &thresholds::EXPERIMENT];

/// An experiment that runs by itself in a laboratory that is set up.
type Conduct = fn(&mut Lab) -> Result<()>;

/// Experiments in which contenders are attacked, and run with all others by `all`.
const ATTACKS: [(&str, Conduct); 3] = [
    ("attacks", |lab| attacks::conduct(lab, None, None)),
    ("sources", sources::conduct),
    ("inflight", inflight::conduct),
];

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<()> {
    let is_all = matches!(command, Command::All(_));
    let one;
    let (options, experiments): (Options, &[&Experiment]) = match command {
        Command::One(command) => {
            let (options, experiment) = command.experiment();
            one = [experiment];
            (options, &one)
        }
        Command::Attacks(arguments) => return attacks::run(arguments),
        Command::Sources(arguments) => return sources::run(arguments),
        Command::Inflight(options) => return inflight::run(options),
        Command::Paths(options) => (options, &OVER_PATHS),
        Command::Papers(options) => (options, &OF_THE_PAPERS),
        Command::All(options) => (options, EXPERIMENTS),
        Command::Report { folder, against: Some(then), .. } => return print(&report::against(&folder, &then)?),
        Command::Report { folder, from, out, summary, plots, against: None } => {
            let beside = from.first().and_then(|file| file.parent()).map(Path::to_owned);
            let out = out.or(beside).unwrap_or_else(|| folder.clone());
            let pages = match from.as_slice() {
                [] if summary => vec![report::summarize(&folder, &out, &plots.into_iter().collect())?],
                [] => vec![report::join(&folder, &out)?],
                files => report::regenerate(files, &out)?,
            };
            pages.iter().for_each(|page| say(&page.display().to_string()));
            return Ok(());
        }
    };
    if options.plan {
        return print(&plans(experiments, &options)?);
    }
    check_names(experiments, &options)?;
    let mut lab = Lab::new(options)?;
    let mut failed = Vec::new();
    for experiment in experiments {
        match conduct(&mut lab, experiment) {
            Ok(true) => {}
            Ok(false) => {
                say(&format!("{}: stopped on request; --resume continues", experiment.name));
                return Ok(());
            }
            Err(error) => {
                interrupt::check()?;
                say(&format!("{}: FAILED: {error:#}", experiment.name));
                failed.push(experiment.name);
            }
        }
    }
    for (name, conduct) in ATTACKS.into_iter().filter(|_| is_all) {
        if let Err(error) = conduct(&mut lab) {
            interrupt::check()?;
            say(&format!("{name}: FAILED: {error:#}"));
            failed.push(name);
        }
    }
    if experiments.len() > 1 {
        say(&report::join(&lab.options().out, &lab.options().out)?.display().to_string());
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// An error: `--only` names a contender, or a variant of these experiments, that there is not.
fn check_names(experiments: &[&Experiment], options: &Options) -> Result<()> {
    let mut names = Contender::built_in()?.into_iter().map(|one| one.name).collect::<BTreeSet<_>>();
    for file in &options.contender {
        names.insert(Contender::read(file)?.name);
    }
    for experiment in experiments {
        names.extend((experiment.variants)()?.into_iter().map(|variant| variant.name));
    }
    match options.only.iter().find(|name| !names.contains(*name)) {
        Some(unknown) => {
            bail!("--only: there is no contender {unknown}; there are {}", Vec::from_iter(names).join(", "))
        }
        None => Ok(()),
    }
}

/// How long experiments take with everything there is.
fn plans(experiments: &[&Experiment], options: &Options) -> Result<String> {
    let plan = |experiment: &&Experiment| {
        let contenders = Contender::built_in_varied(&(experiment.variants)()?)?;
        anyhow::Ok((experiment.name, plan::plan(&(experiment.tasks)(options), &contenders, options)))
    };
    Ok(plan::table(&experiments.iter().map(plan).collect::<Result<Vec<_>>>()?))
}

#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
fn print(page: &str) -> Result<()> {
    println!("{}", page.trim_end());
    Ok(())
}

/// Runs an experiment; `false`: it was stopped.
fn conduct(lab: &mut Lab, experiment: &Experiment) -> Result<bool> {
    let (options, variants) = (lab.options().clone(), (experiment.variants)()?);
    if let Err(why) = lab.vary(&variants) {
        say(&format!("{}: SKIPPED: {why}", experiment.name));
        return Ok(true);
    }
    let reference = experiment.reference.unwrap_or(&options.reference);
    let results = lab.run(experiment.name, experiment.about, reference, (experiment.tasks)(&options))?;
    let Some(results) = results else { return Ok(false) };
    let page = report::save(&results, &options.out)?;
    say(&format!("{}: {}", experiment.name, page.display()));
    if options.quick {
        worked(&results)?;
    }
    Ok(true)
}

/// What a quick run asserts: a contender took part, and nothing is void or lacks the figure it was run for. Bytes and
/// thresholds are checked in every run, and void it. How fast it was is no matter.
fn worked(results: &Results) -> Result<()> {
    if let Some((run, why)) = results.voids().next() {
        bail!("{}, {}: {why}", run.contender, run.case);
    }
    if results.contenders.is_empty() && !results.cases.is_empty() {
        bail!("no contender took part");
    }
    for case in &results.cases {
        for run in results.runs.iter().filter(|run| run.case == case.name) {
            let figure = run.figures.get(&case.primary).copied();
            let figure =
                figure.with_context(|| format!("{}, {}: no figure {}", run.contender, case.name, case.primary))?;
            if !figure.is_finite() || figure < 0.0 {
                bail!("{}, {}: {} is {figure}", run.contender, case.name, case.primary);
            }
        }
    }
    Ok(())
}

/// A file of variants.
fn steps(text: &str) -> Result<Vec<Variant>> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Steps {
        step: Vec<Variant>,
    }
    let steps: Steps = toml::from_str(text).context("a file of steps")?;
    Ok(steps.step)
}

/// How an experiment's variants are called.
fn names(variants: Result<Vec<Variant>>) -> Vec<String> {
    variants.unwrap_or_default().into_iter().map(|variant| variant.name).collect()
}

/// litequic over io_uring, beside litequic as it comes.
const IO_URING: &str = "litequic-io-uring";

fn io_uring() -> Result<Vec<Variant>> {
    let extra = "[litequic]\nio = \"io-uring\"\n".to_owned();
    Ok(vec![Variant { name: IO_URING.to_owned(), extra, ..Variant::default() }])
}

/// Rounds where the command line does not say: as few as anything is concluded from,
const ROUNDS: usize = report::ROUNDS;
/// more over paths,
const ROUNDS_OVER_A_PATH: usize = 5;
/// but not of what takes longer than this.
const LONG: f64 = 20.0; // seconds

/// A quick load that is cut: seconds, and those of its beginning.
const QUICK_CUT: (f64, f64) = (1.2, 0.6);

/// A case of a group with a load in words, in which contenders are compared by the figure `primary`.
fn case(group: &str, name: String, load: String, per: Per, primary: &str) -> Case {
    Case {
        name,
        load,
        per,
        primary: primary.to_owned(),
        judged: Vec::new(),
        saturated: false,
        group: group.to_owned(),
        drawn: Vec::new(),
        x: None,
        y: None,
        path: None,
        beside: None,
        bounds: Vec::new(),
        conforms_to: None,
        also_to: None,
    }
}

/// A task that measures CPU of H3 proxies and the H1 ceiling, one worker each; experiments change what they want else.
fn task(group: &str, name: &str, per: Per, saturated: bool, load: Load) -> Task {
    let case = Case { saturated, ..case(group, format!("{group}, {name}"), load.describe(), per, "cpu") };
    Task {
        case,
        load,
        workers: 1,
        crowd: 0,
        warm_up: None,
        kinds: vec![Kind::H3, Kind::H1],
        names: Vec::new(),
        observe: Observe::Cpu,
        path: None,
        topology: None,
        buffers: SocketBuffers::Ample,
        shape: VethShape::default(),
        is_client_alone: false,
        links: 1,
        sampled: None,
        beside: None,
        beside_from: None,
        tuned: false,
        defaults: false,
        front: Http::Three,
        group: None,
        chain: Chain::SelfSigned,
        share: Share::All,
        environment: Vec::new(),
        rounds: ROUNDS,
    }
}

/// A task over a path, of proxies and of nginx over TCP with a named congestion control.
fn over(path: &str, group: &str, name: &str, primary: &str, load: Load) -> Task {
    let per = if matches!(load.kind, load::Kind::Small) { Per::Request } else { Per::Gigabyte };
    let mut task = task(group, name, per, false, load);
    task.case.primary = primary.to_owned();
    #[expect(clippy::expect_used, reason = "written in this folder; a test reads all of them")]
    let path = path.parse().expect("a path of an experiment");
    task.rounds = if task.load.seconds().is_some_and(|seconds| seconds >= LONG) { ROUNDS } else { ROUNDS_OVER_A_PATH };
    task.path = Some(path);
    task
}

/// A bottleneck that two downloads share. Their acknowledgements come up to the time of a packet late, at random, as on
/// paths with other traffic: with nothing random about it two windows of few packets stay in step, and which of them
/// loses is chance ("Traffic phase effects in packet-switched gateways", Floyd and Jacobson, 1991, §3.4).
fn shared(mbit: u64, rtt: u32, buffer: f64) -> String {
    let packet = 1_500 * 8 / mbit; // microseconds
    format!("rate={mbit}M,rtt={rtt}ms,buffer={buffer}bdp,up.jitter={packet}us")
}

/// One download of so many bytes, with a client that acknowledges as it comes.
fn download(body: u64, amount: Amount) -> Load {
    let generator = Generator::own("auto");
    Load { kind: load::Kind::Download, body, connections: 1, streams: 1, amount, generator, resume: false }
}

/// Bytes that a rate cannot send in so many seconds.
fn more_than(mbit: u64, seconds: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^53")]
    let seconds = seconds.ceil() as u64;
    mbit * 125_000 * (seconds + 2)
}

/// The contenders of the long experiments over paths: those that a decision could be between, with defaults.
fn few() -> Vec<String> {
    ["litequic", "nginx", "haproxy", "caddy", "h1-cubic"].map(str::to_owned).to_vec()
}

/// The same, and H2O.
fn few_and_h2o() -> Vec<String> {
    let mut names = few();
    names.insert(names.len() - 1, "h2o".to_owned());
    names
}

/// The contenders of a cell where all are compared: the only ones with a configuration of their own over paths.
fn every() -> Vec<String> {
    ["litequic", "nginx", "haproxy", "caddy", "envoy", "h1-cubic", "h1-bbr"].map(str::to_owned).to_vec()
}

/// A cell with everyone in it: as it is, with contenders tuned, and some of them with other clients. The latter and the
/// cell itself have contenders as they come.
fn with_everyone(mut cell: Task, with_clients: &[&str], options: &Options) -> Vec<Task> {
    cell.names = every();
    let variant = |name: &str| {
        let mut task = cell.clone();
        task.case.name = format!("{}, {name}", cell.case.name);
        task.case.group = format!("{}, all clients", cell.case.group);
        task.case.x = None;
        if options.quick {
            // That it works shows on one of each kind.
            task.names = ["litequic", "h1-cubic"].map(str::to_owned).to_vec();
        }
        task
    };
    let mut tuned = Task { tuned: true, ..variant("tuned") };
    // One of the two is there to compare with.
    tuned.names.retain(|name| name != "h1-bbr");
    let mut tasks = vec![tuned];
    for client in Client::USUAL {
        let mut task = variant(client.name());
        if !options.quick {
            task.names = with_clients.iter().map(|name| (*name).to_owned()).collect();
        }
        task.load.generator = Generator::Client(client);
        task.case.load = task.load.describe();
        tasks.push(task);
    }
    tasks.insert(0, cell);
    tasks
}

/// Large bodies: four connections, with a download each at least.
fn large(options: &Options, requests: u64, generator: Generator) -> Load {
    let (body, requests) = if options.quick { (8_000_000, 4) } else { (256_000_000, options.many(requests, 1).max(4)) };
    Load {
        kind: load::Kind::Download,
        body,
        connections: 4,
        streams: 1,
        amount: Amount::Requests(requests),
        generator,
        resume: false,
    }
}

/// How often ACKs come, in words.
fn acks(generator: &Generator) -> String {
    match generator {
        Generator::Own { ack_threshold, .. } => format!("ACK {ack_threshold}"),
        Generator::H2load | Generator::Counting | Generator::Mix(..) => "h2load".to_owned(),
        Generator::Client(client) => client.name().to_owned(),
        Generator::Viewers(viewers) => format!("{:?}", viewers.player),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn every_experiment_has_cases_with_unique_names_quick_or_not() {
        for line in [vec!["lab"], vec!["lab", "--quick"]] {
            let options = Line::parse_from(line).options;
            for experiment in EXPERIMENTS {
                let tasks = (experiment.tasks)(&options);
                let names: BTreeSet<String> = tasks.iter().map(|task| task.case.name.clone()).collect();
                assert_eq!(names.len(), tasks.len(), "{}", experiment.name);
                assert!(!tasks.is_empty() && !experiment.about.is_empty());
                let variants = (experiment.variants)().unwrap();
                let names: BTreeSet<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
                assert_eq!(names.len(), variants.len(), "{}", experiment.name);
                for variant in &variants {
                    variant.extra.parse::<toml::Table>().unwrap();
                }
            }
        }
    }

    #[test]
    fn those_over_paths_take_a_night_and_no_more() {
        let options = Line::parse_from(["lab"]).options;
        let contenders = Contender::built_in().unwrap();
        let plans = OVER_PATHS.map(|experiment| plan::plan(&(experiment.tasks)(&options), &contenders, &options));
        let hours = plans.iter().map(|plan| plan.seconds).sum::<f64>() / 3600.0;
        assert!(hours <= 4.0, "{hours:.2} hours");
    }

    #[test]
    fn near_and_downloads_take_an_hour_each_and_no_more() {
        let options = Line::parse_from(["lab"]).options;
        for experiment in [near::EXPERIMENT, downloads::EXPERIMENT] {
            let contenders = Contender::built_in_varied(&(experiment.variants)().unwrap()).unwrap();
            let seconds = plan::plan(&(experiment.tasks)(&options), &contenders, &options).seconds;
            assert!(seconds <= 3600.0, "{}: {:.0} minutes", experiment.name, seconds / 60.0);
        }
    }

    #[test]
    fn http2_downloads_use_the_same_servers() {
        let options = Line::parse_from(["lab"]).options;
        let contenders = Contender::built_in_varied(&(downloads::EXPERIMENT.variants)().unwrap()).unwrap();
        let named = |name: &str| contenders.iter().find(|one| one.name == name).unwrap();
        let (twin, of) = (named("nginx-h2"), named("nginx"));
        assert_eq!((&twin.binary, twin.compared_as(), of.compared_as()), (&of.binary, Kind::H1, Kind::H3));
        for task in (downloads::EXPERIMENT.tasks)(&options) {
            let speaks = matches!(task.load.generator, Generator::Client(client) if client.speaks_tcp());
            assert_eq!(task.takes(twin), speaks && task.names.contains(&twin.name), "{}", task.case.name);
            assert_eq!(task.takes(of), task.names.contains(&of.name), "{}", task.case.name);
            assert_eq!(task.by_clients_of(twin).front, Http::Two);
        }
    }

    #[test]
    fn those_of_the_papers_take_two_hours_and_no_more() {
        let options = Line::parse_from(["lab"]).options;
        let seconds = |experiment: &&Experiment| {
            let contenders = Contender::built_in_varied(&(experiment.variants)().unwrap()).unwrap();
            plan::plan(&(experiment.tasks)(&options), &contenders, &options).seconds
        };
        let hours = OF_THE_PAPERS.iter().map(seconds).sum::<f64>() / 3600.0;
        assert!(hours <= 2.0, "{hours:.2} hours");
    }

    #[test]
    fn a_quick_run_without_a_valid_figure_fails() {
        use crate::report::tests::results;
        assert!(worked(&results(&[("a", &[1.0])])).is_ok());
        let mut void = results(&[("a", &[1.0])]);
        void.runs[0].void = Some("it died".to_owned());
        assert_eq!(worked(&void).unwrap_err().to_string(), "a, large: it died");
        let mut bare = results(&[("a", &[1.0])]);
        bare.runs[0].figures.clear();
        assert_eq!(worked(&bare).unwrap_err().to_string(), "a, large: no figure cpu");
        assert!(worked(&results(&[("a", &[f64::NAN])])).is_err());
    }
}

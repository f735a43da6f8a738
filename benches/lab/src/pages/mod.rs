//! Pages in a browser, Chromium or Firefox, through litequic and its peers over emulated links: when the first byte came, when the first and
//! the largest contentful paint were, when the last byte came and when the page had loaded. Contenders take turns, a
//! fresh browser each load. A load counts only if each of its resources came over the protocol that is measured.

mod browser;
mod load;
mod results;
mod servers;
mod site;

use crate::{
    bench::{
        files::Files,
        guard::Guard,
        interrupt,
        machine::Machine,
        namespace::{Network, SocketBuffers, Topology, Veth},
        say,
    },
    link::{self, Link},
};
use anyhow::{Context as _, Result, anyhow, bail};
use browser::Program;
use clap::Args;
use load::Load;
use nix::unistd::geteuid;
use results::{Results, Taken};
use servers::{Entrant, Running, Setting};
use site::Page;
use std::{
    env, fs,
    path::PathBuf,
    time::{Instant, SystemTime},
};

/// The options of `pages`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// One load of two pages over one link, which shows that everything works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Loads of each page by each contender over each link, with those of earlier runs.
    #[arg(long, value_name = "N", default_value_t = 9)]
    loads: usize,
    /// The browser.
    #[arg(long, value_enum, default_value_t)]
    browser: Program,
    /// Only these pages.
    #[arg(long, value_enum, value_name = "PAGE", value_delimiter = ',')]
    page: Vec<Page>,
    /// Links to emulate in place of the built-in ones; several times for several.
    #[arg(long, value_name = "KEY=VALUE,…")]
    path: Vec<link::Path>,
    /// Only these contenders.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Where a contender's program is: NAME=PATH.
    #[arg(long, value_name = "NAME=PATH")]
    bin: Vec<String>,
    /// The contender that others are compared with.
    #[arg(long, value_name = "NAME", default_value = "nginx h2")]
    reference: String,
    /// Begin no further round after so many minutes.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<u64>,
    /// Go on with the results that are in the folder.
    #[arg(long)]
    resume: bool,
    /// Keep the browser's log and the link's packets of each load in this folder.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where results go.
    #[arg(long, value_name = "FOLDER", default_value = "target/lab")]
    out: PathBuf,
}

/// The links: megabits a second and milliseconds of round trip.
const PATHS: [&str; 6] = [
    "rate=100M,rtt=20ms,buffer=1bdp",
    "rate=20M,rtt=40ms,buffer=1bdp",
    "rate=5M,rtt=100ms,buffer=1bdp",
    "rate=1600k,rtt=150ms,buffer=1bdp",
    "rate=20M,rtt=40ms,buffer=1bdp,loss=1%",
    "rate=100M,rtt=5ms,buffer=1bdp",
];
/// The pages, and those of a quick run.
const PAGES: ([Page; 4], [Page; 2]) =
    ([Page::Mixed, Page::Images, Page::Late, Page::Scripts], [Page::Late, Page::Images]);
/// Pages in Firefox, and those of its quick run: it keeps times of 250 resources unless a page asks for more before it begins.
const PAGES_IN_FIREFOX: ([Page; 3], [Page; 2]) = ([Page::Mixed, Page::Late, Page::Scripts], [Page::Late, Page::Mixed]);
/// The link of a quick run.
const QUICK: &str = "rate=50M,rtt=10ms,buffer=1bdp";

/// Tries of a load that fails, comes over another protocol or over a link that was late.
const TRIES: usize = 5;

/// Runs them, and writes `pages.json`, `pages.md` and plots.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !geteuid().is_root() {
        bail!("needs root: it makes network namespaces");
    }
    interrupt::listen()?;
    let _guard = Guard::start()?;
    let folder = tempfile::tempdir()?;
    let files = Files::new(folder.path())?;
    let (pages, paths) = plan(arguments)?;
    let objects = pages
        .iter()
        .map(|page| Ok((*page, page.write(&files.www, arguments.seed)?)))
        .collect::<Result<Vec<(Page, usize)>>>()?;
    fs::write(files.www.join("index.html"), "<!doctype html><title>A page that is not measured</title>")?;
    let network = Network::new(Topology::Path, SocketBuffers::Ample, (0, 1), &Veth::default())?;
    let setting = Setting { arguments, network: &network, files: &files, folder: folder.path() };
    if setting.program().is_none() {
        let (name, (_, program)) = (arguments.browser.name(), arguments.browser.names());
        // A quick run shows that what is there works.
        if arguments.quick {
            say(&format!("skipped: pages in {name}: there is no {program}"));
            return Ok(());
        }
        bail!("there is no {program}");
    }
    let mut run = Run { setting: &setting, results: earlier(arguments)?, began: Instant::now() };
    run.results.runs.push(humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
    run.results.commands.push(env::args().collect::<Vec<_>>().join(" "));
    run.results.machine = Machine::this();
    run.results.quick = arguments.quick;
    run.results.browser = arguments.browser;
    let mut failed = 0;
    for path in &paths {
        if run.is_over() {
            break;
        }
        let log = arguments.logs.as_ref().map(|folder| folder.join("link.csv"));
        let mut link = Link::start(&network, path, log.as_deref(), folder.path())?;
        let servers = setting.start()?;
        for (page, objects) in &objects {
            // The other cells are measured all the same.
            if let Err(error) = run.measure(*page, *objects, path, &servers, &mut link) {
                interrupt::check()?;
                say(&format!("{error:#}"));
                failed += 1;
            }
        }
        drop(servers);
        link.finish()?;
    }
    if failed > 0 {
        bail!("{failed} cells are not whole");
    }
    Ok(())
}

/// The results to go on with.
fn earlier(arguments: &Arguments) -> Result<Results> {
    fs::create_dir_all(&arguments.out)?;
    arguments.logs.as_ref().map_or(Ok(()), fs::create_dir_all)?;
    let file = arguments.out.join("pages.json");
    if !arguments.resume || !file.exists() {
        return Ok(Results::default());
    }
    let results: Results =
        serde_json::from_str(&fs::read_to_string(&file)?).with_context(|| file.display().to_string())?;
    if results.browser != arguments.browser {
        bail!("{} has loads of {}", file.display(), results.browser.name());
    }
    Ok(results)
}

fn plan(arguments: &Arguments) -> Result<(Vec<Page>, Vec<link::Path>)> {
    let (all, few) = match arguments.browser {
        Program::Chromium => (&PAGES.0[..], &PAGES.1[..]),
        Program::Firefox => (&PAGES_IN_FIREFOX.0[..], &PAGES_IN_FIREFOX.1[..]),
    };
    let (pages, paths) = if arguments.quick { (few, vec![QUICK]) } else { (all, PATHS.to_vec()) };
    if let Some(page) = arguments.page.iter().find(|page| !all.contains(page)) {
        bail!("{} keeps too few times for {}", arguments.browser.name(), page.name());
    }
    let pages = if arguments.page.is_empty() { pages.to_vec() } else { arguments.page.clone() };
    let paths = if arguments.path.is_empty() {
        paths.iter().map(|path| path.parse()).collect::<Result<_>>()?
    } else {
        arguments.path.clone()
    };
    Ok((pages, paths))
}

/// A run: its results so far.
struct Run<'a> {
    setting: &'a Setting<'a>,
    results: Results,
    began: Instant,
}

impl Run<'_> {
    fn is_over(&self) -> bool {
        let Arguments { stop_after, .. } = self.setting.arguments;
        stop_after.is_some_and(|minutes| self.began.elapsed().as_secs() >= 60 * minutes)
    }

    /// Loads a page by each contender, in turn, until each has as many loads as wanted.
    fn measure(
        &mut self,
        page: Page,
        objects: usize,
        path: &link::Path,
        servers: &Running,
        link: &mut Link,
    ) -> Result<()> {
        let arguments = self.setting.arguments;
        let wanted = if arguments.quick { 1 } else { arguments.loads };
        let (name, way) = (page.name(), path.to_string());
        while !self.is_over() {
            let cell = self.results.cell(name, &way);
            let round = cell.next_round();
            let mut entrants: Vec<&Entrant> =
                servers.entrants.iter().filter(|one| cell.count(one.name) < wanted).collect();
            if entrants.is_empty() {
                break;
            }
            // Not always in the same place beside the same other one.
            let turn = round % entrants.len();
            entrants.rotate_left(turn);
            // A round counts as a whole, or its ratios would not be of the same time.
            let mut taken = Vec::new();
            for entrant in entrants {
                let load = self
                    .load(page, objects, &way, entrant, link)
                    .with_context(|| format!("{}, {name}, {way}", entrant.name))?;
                taken.push(Taken { contender: entrant.name.to_owned(), round, load });
            }
            self.results.cell(name, &way).loads.extend(taken);
            self.write()?;
            say(&format!("{name}, {way}: round {round} done"));
        }
        Ok(())
    }

    fn load(&mut self, page: Page, objects: usize, path: &str, entrant: &Entrant, link: &mut Link) -> Result<Load> {
        let mut last = anyhow!("it was not tried");
        for _ in 0..TRIES {
            interrupt::check()?;
            match self.load_once(page, objects, entrant, link) {
                Ok(load) => return Ok(load),
                Err(error) => {
                    say(&format!("void: {}, {}: {error:#}", entrant.name, page.name()));
                    last = error;
                }
            }
            self.results.cell(page.name(), path).void += 1;
        }
        Err(last)
    }

    /// Loads a page in a browser of its own: another page of the same address in the same browser does not request what
    /// its stylesheets name.
    fn load_once(&self, page: Page, objects: usize, entrant: &Entrant, link: &mut Link) -> Result<Load> {
        let arguments = self.setting.arguments;
        let log = arguments.logs.as_ref().map(|folder| {
            let name = format!("{}-{}", page.name(), entrant.name.replace(' ', "-"));
            let many = fs::read_dir(folder).map(Iterator::count).unwrap_or_default();
            folder.join(format!("{name}-{many}.json"))
        });
        let mut browser = self.setting.browser(entrant, log.as_deref())?;
        link.begin_anew()?;
        let (load, cpu) = browser.load(&format!("/{}/index.html", page.name()), objects)?;
        let report = link.report()?;
        if log.is_some() {
            // Only then is its log whole.
            browser.end()?;
        }
        let load: Load = serde_json::from_value(load).context("what the page reports")?;
        let load = Load { browser_cpu: 1000.0 * cpu, ..load };
        if load.objects != objects || load.protocols != [entrant.protocol.alpn()] {
            let (came, over) = (load.names.join(", "), load.protocols.join(", "));
            bail!("{} of {objects} objects came, over {over}: {came}", load.objects);
        }
        if let Some(void) = report.void.filter(|_| !arguments.quick) {
            bail!("{void}");
        }
        Ok(load)
    }

    fn write(&self) -> Result<()> {
        let Arguments { out, reference, .. } = self.setting.arguments;
        fs::write(out.join("pages.json"), serde_json::to_string_pretty(&self.results)?)?;
        let (text, plots) = self.results.page(reference)?;
        fs::write(out.join("pages.md"), text)?;
        for (file, svg) in plots {
            fs::write(out.join(file), svg)?;
        }
        Ok(())
    }
}

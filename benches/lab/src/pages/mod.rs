//! Pages in Chromium, through litequic and its peers over emulated links: when the first byte came, when the first and
//! the largest contentful paint were, when the last byte came and when the page had loaded. Contenders take turns, a
//! fresh browser each load. A load counts only if each of its resources came over the protocol that is measured.

mod site;

use crate::{
    bench::{
        contender::{Configuration, Contender},
        files::Files,
        guard::Guard,
        interrupt,
        namespace::{Namespace, Network, SocketBuffers, Topology, Veth, inside},
        process::{self, Server},
        say,
        stats::{Interval, Summary},
        template::Values,
    },
    browser::{Browser, Transport},
    link::{self, Link},
};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use site::Page;
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// The options of `pages`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// One load of two pages over one link, which shows that everything works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Loads of each page by each contender over each link.
    #[arg(long, value_name = "N", default_value_t = 9)]
    loads: usize,
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
    /// Begin no further page after so many minutes.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<u64>,
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
/// The pages and the link of a quick run.
const QUICK: ([Page; 2], &str) = ([Page::Late, Page::Images], "rate=50M,rtt=10ms,buffer=1bdp");

/// The protocol of a contender's loads, as `nextHopProtocol` calls it (ALPN).
const H1: &str = "http/1.1";
const H2: &str = "h2";
const H3: &str = "h3";

/// Who serves, by the description of that name, at which port, and what is added to litequic's configuration.
const SERVERS: [(&str, &str, u16, &str); 5] = [
    ("litequic", "litequic", 8441, ""),
    ("litequic without priorities", "litequic", 8442, "[litequic]\npriorities = false"),
    ("nginx", "nginx", 8443, ""),
    ("caddy", "caddy", 8444, ""),
    ("h2o", "h2o", 8445, ""),
];
/// What is measured: a server by its name, and a protocol.
const CONTENDERS: [(&str, &str, &str); 9] = [
    ("litequic h3", "litequic", H3),
    ("litequic h3 without priorities", "litequic without priorities", H3),
    ("litequic h2", "litequic", H2),
    ("litequic h2 without priorities", "litequic without priorities", H2),
    ("litequic h1", "litequic", H1),
    ("nginx h3", "nginx", H3),
    ("nginx h2", "nginx", H2),
    ("caddy h3", "caddy", H3),
    ("h2o h3", "h2o", H3),
];
const ORIGIN_PORT: u16 = 8480;
const ORIGIN_TLS_PORT: u16 = 8481;
/// The distance of a server's admin port from its own.
const ADMIN: u16 = 100;

/// For a server to listen.
const READY: Duration = Duration::from_secs(10);
/// Tries of a load that fails or comes over another protocol.
const TRIES: usize = 3;

/// Notes the largest contentful paint, and keeps more than 250 resources.
const OBSERVE: &str = "globalThis.largest = 0;
    performance.setResourceTimingBufferSize(2000);
    new PerformanceObserver(list => { for (const entry of list.getEntries()) globalThis.largest = entry.startTime; })
        .observe({ type: 'largest-contentful-paint', buffered: true });";
/// Waits until the page has loaded and so many objects have come (one may be requested behind the load event), or too
/// long for them, and a bit longer for what is painted last.
const MEASURE: &str = "(wanted => new Promise(done => {
    const look = () => {
        const page = performance.getEntriesByType('navigation')[0];
        if (location.protocol !== 'https:' || !page || page.loadEventEnd === 0) return setTimeout(look, 20);
        const came = performance.getEntriesByType('resource').length;
        if (came < wanted && performance.now() < page.loadEventEnd + 5000) return setTimeout(look, 20);
        setTimeout(() => {
            // A browser requests its icon by itself, when it likes.
            const resources = performance.getEntriesByType('resource').filter(one => !one.name.endsWith('/favicon.ico'));
            const all = [page, ...resources];
            done({
                first_byte: page.responseStart,
                first_paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
                largest_paint: globalThis.largest,
                last_byte: Math.max(...all.map(entry => entry.responseEnd)),
                loaded: page.loadEventEnd,
                objects: resources.length,
                names: resources.map(entry => [entry.name.split('/').pop(),
                    ...[entry.requestStart, entry.responseStart, entry.responseEnd].map(Math.round)].join(' ')),
                protocols: [...new Set(all.map(entry => entry.nextHopProtocol))],
            });
        }, 300);
    };
    look();
}))";

/// One load, in milliseconds since the navigation began.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Load {
    first_byte: f64,
    first_paint: f64,
    largest_paint: f64,
    last_byte: f64,
    loaded: f64,
    objects: usize,
    /// Their files, and when each was requested, when its first byte came, and its last one.
    names: Vec<String>,
    protocols: Vec<String>,
}

/// The figures of a load, by their names.
type Figure = (&'static str, fn(&Load) -> f64);
const FIGURES: [Figure; 5] = [
    ("first byte", |load| load.first_byte),
    ("first contentful paint", |load| load.first_paint),
    ("largest contentful paint", |load| load.largest_paint),
    ("last byte", |load| load.last_byte),
    ("load event", |load| load.loaded),
];

/// The loads of one page over one link; of each contender as many, in the order of the rounds.
#[derive(Debug, Serialize)]
struct Cell {
    page: &'static str,
    path: String,
    loads: Vec<(&'static str, Vec<Load>)>,
}

/// Runs them, and writes `pages.json` and `pages.md`.
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
    let network = Network::new(Topology::Path, SocketBuffers::Ample, (0, 1), &Veth::default())?;
    let setting = Setting { arguments, network: &network, files: &files, folder: folder.path() };
    let began = std::time::Instant::now();
    let mut cells = Vec::new();
    for path in &paths {
        let link = Link::start(&network, path, None, folder.path())?;
        let mut lab = setting.start()?;
        for (page, objects) in &objects {
            if arguments.stop_after.is_some_and(|minutes| began.elapsed().as_secs() >= 60 * minutes) {
                break;
            }
            let cell = lab.measure(*page, *objects, path, if arguments.quick { 1 } else { arguments.loads }, &link)?;
            cells.push(cell);
            write(&cells, arguments)?;
        }
        drop(lab);
        let report = link.finish()?;
        if let Some(void) = report.void {
            say(&format!("{path}: {void}"));
        }
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> Result<(Vec<Page>, Vec<link::Path>)> {
    let all = [Page::Mixed, Page::Images, Page::Late, Page::Scripts];
    let (pages, paths) = if arguments.quick { (&QUICK.0[..], vec![QUICK.1]) } else { (&all[..], PATHS.to_vec()) };
    let pages = if arguments.page.is_empty() { pages.to_vec() } else { arguments.page.clone() };
    let paths = if arguments.path.is_empty() {
        paths.iter().map(|path| path.parse()).collect::<Result<_>>()?
    } else {
        arguments.path.clone()
    };
    Ok((pages, paths))
}

/// Where servers run.
struct Setting<'a> {
    arguments: &'a Arguments,
    network: &'a Network,
    files: &'a Files,
    folder: &'a Path,
}

/// The servers that run.
struct Running<'a> {
    setting: &'a Setting<'a>,
    _servers: Vec<Server>,
    contenders: Vec<(&'static str, u16, &'static str)>,
}

impl Setting<'_> {
    /// Starts the origin, and the servers that are there.
    fn start(&self) -> Result<Running<'_>> {
        let descriptions = Contender::built_in()?;
        let find = |name: &str| descriptions.iter().find(|one| one.name == name).with_context(|| format!("no {name}"));
        let mut servers = vec![self.server(find("origin")?, "origin", ORIGIN_PORT, "")?.context("there is no nginx")?];
        self.wait_for(&mut servers, ORIGIN_PORT)?;
        let only = &self.arguments.only;
        let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
        let mut contenders = Vec::new();
        for (name, description, port, extra) in SERVERS {
            let of: Vec<_> = CONTENDERS.iter().filter(|(one, server, _)| *server == name && is_wanted(one)).collect();
            if of.is_empty() {
                continue;
            }
            let Some(server) = self.server(find(description)?, name, port, extra)? else {
                say(&format!("{name} is not there"));
                continue;
            };
            servers.push(server);
            self.wait_for(&mut servers, port)?;
            contenders.extend(of.into_iter().map(|(one, _, protocol)| (*one, port, *protocol)));
        }
        // In the order of the table.
        contenders.sort_by_key(|(name, ..)| CONTENDERS.iter().position(|(one, ..)| one == name));
        Ok(Running { setting: self, _servers: servers, contenders })
    }

    /// A browser in the client's namespace, for a protocol.
    fn browser(&self, protocol: &str) -> Result<Browser> {
        let program = self.given("chromium").unwrap_or_else(|| PathBuf::from("chromium"));
        let address: IpAddr = self.network.address.parse()?;
        let Namespace { namespace } = &self.network.client;
        let ports = SERVERS.map(|(_, _, port, _)| port);
        let transport = match protocol {
            H3 => Transport::Quic(&ports),
            H2 => Transport::NoQuic,
            _ => Transport::Http1,
        };
        // A child has the namespace of the thread that starts it.
        inside(namespace, || Browser::launch(&program, address, &self.files.spki, transport))
    }

    fn given(&self, name: &str) -> Option<PathBuf> {
        self.arguments.bin.iter().find_map(|bin| Some(PathBuf::from(bin.strip_prefix(name)?.strip_prefix('=')?)))
    }

    /// Starts a server; `None` if its program is not there.
    fn server(&self, contender: &Contender, name: &str, port: u16, extra: &str) -> Result<Option<Server>> {
        let given = self.given(&contender.name);
        let Some(program) = contender.find(given.as_deref()) else { return Ok(None) };
        let folder = self.folder.join(name.replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        let mut values = Values::default();
        values.set("BIN", program.display());
        values.set("RUN", folder.display());
        values.set("ADDRESS", self.network.address);
        values.set("PORT", port);
        values.set("ADMIN_PORT", port + ADMIN);
        values.set("CERT", self.files.certificate.display());
        values.set("KEY", self.files.key.display());
        values.set("BOTH", self.files.both.display());
        values.set("ORIGIN_PORT", ORIGIN_PORT);
        values.set("ORIGIN_TLS_PORT", ORIGIN_TLS_PORT);
        values.set("WWW", self.files.www.display());
        values.set("WORKERS", 1);
        values.set("EXTRA", extra);
        for name in ["H3", "TCP", "PLAIN"] {
            values.set(name, "");
        }
        values.set("HTTPS", "#");
        for (name, holds) in Configuration::Defaults.holds() {
            values.set(name, if holds { "" } else { "#" });
        }
        for (file, template) in &contender.templates {
            fs::write(folder.join(file), values.expand(template, file)?)?;
        }
        let environment = contender
            .environment
            .iter()
            .map(|(name, value)| Ok((name.clone(), values.expand(value, "environment")?)))
            .collect::<Result<_>>()?;
        let command = contender.expand(&contender.command, &values)?;
        let command = process::command(&self.network.server, "0", &command, &environment);
        Ok(Some(Server::start(name, command, folder.join("log"))?))
    }

    fn wait_for(&self, servers: &mut [Server], port: u16) -> Result<()> {
        interrupt::wait_for(READY, || {
            servers.iter_mut().try_for_each(Server::check)?;
            Ok((self.network.listening_at(port, true)? > 0).then_some(()))
        })?
        .with_context(|| format!("no server listens at {port}"))
    }
}

impl Running<'_> {
    /// Loads a page as often as wanted by each contender, in turn.
    fn measure(&mut self, page: Page, objects: usize, path: &link::Path, loads: usize, link: &Link) -> Result<Cell> {
        let contenders = self.contenders.clone();
        let mut all: Vec<(&'static str, Vec<Load>)> = contenders.iter().map(|(name, ..)| (*name, Vec::new())).collect();
        for round in 0..loads {
            // Not always in the same place beside the same other one.
            for turn in 0..contenders.len() {
                let index = (turn + round) % contenders.len();
                let Some((name, port, protocol)) = contenders.get(index).copied() else { continue };
                interrupt::check()?;
                link.begin_anew()?;
                let load =
                    self.load(page, objects, port, protocol).with_context(|| format!("{name}, {}", page.name()))?;
                if let Some((_, loads)) = all.get_mut(index) {
                    loads.push(load);
                }
            }
        }
        let cell = Cell { page: page.name(), path: path.to_string(), loads: all };
        say(&format!("{}, {}: done", cell.page, cell.path));
        Ok(cell)
    }

    fn load(&mut self, page: Page, objects: usize, port: u16, protocol: &str) -> Result<Load> {
        let url = format!("https://localhost:{port}/{}/index.html", page.name());
        let mut last = anyhow::anyhow!("it was not tried");
        for _ in 0..TRIES {
            // Another page of the same address in the same browser does not request what its stylesheets name.
            let mut browser = self.setting.browser(protocol)?;
            let load = browser
                .load(&url, OBSERVE, &format!("{MEASURE}({objects})"))
                .and_then(|load| serde_json::from_value::<Load>(load).context("what the page reports"));
            match load {
                Ok(load) if load.objects == objects && load.protocols == [protocol] => return Ok(load),
                Ok(load) => {
                    let (came, over) = (load.names.join(", "), load.protocols.join(", "));
                    last = anyhow::anyhow!("{} of {objects} objects came, over {over}: {came}", load.objects);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn write(cells: &[Cell], arguments: &Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.out)?;
    fs::write(arguments.out.join("pages.json"), serde_json::to_string_pretty(cells)?)?;
    let text: String = cells.iter().map(|cell| table(cell, &arguments.reference)).collect();
    fs::write(arguments.out.join("pages.md"), text)?;
    Ok(())
}

/// Medians in milliseconds with their ranges, and the ratios to the reference by rounds with their intervals.
fn table(cell: &Cell, reference: &str) -> String {
    let mut text = format!("## {}, {}\n\n| |", cell.page, cell.path);
    for (figure, _) in FIGURES {
        text += &format!(" {figure}, ms |");
    }
    text += &format!(
        " load event to {reference} | largest paint to {reference} |\n|---|{}\n",
        "---:|".repeat(FIGURES.len() + 2)
    );
    let of = |name: &str| cell.loads.iter().find(|(one, _)| *one == name).map(|(_, loads)| loads.as_slice());
    for (name, loads) in &cell.loads {
        text += &format!("| {name} |");
        for (_, figure) in FIGURES {
            let figures: Vec<f64> = loads.iter().map(figure).collect();
            text += &Summary::of(&figures).map_or_else(
                || " |".to_owned(),
                |summary| format!(" {:.0} ({:.0} to {:.0}) |", summary.median, summary.min, summary.max),
            );
        }
        for figure in [FIGURES[4].1, FIGURES[2].1] {
            let ratios: Vec<f64> = of(reference)
                .unwrap_or_default()
                .iter()
                .zip(loads)
                .map(|(reference, load)| figure(load) / figure(reference))
                .collect();
            text += &Interval::of(&ratios).map_or_else(
                || " |".to_owned(),
                |ratio| format!(" {:.2} ({:.2} to {:.2}) |", ratio.median, ratio.low, ratio.high),
            );
        }
        text += "\n";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_medians_and_paired_ratios() {
        let load = |time: f64| Load {
            first_byte: 10.0,
            first_paint: 20.0,
            largest_paint: time,
            last_byte: time,
            loaded: 2.0 * time,
            objects: 1,
            names: Vec::new(),
            protocols: vec![H2.to_owned()],
        };
        let loads = |factor: f64| [1.0, 2.0, 4.0].map(|time| load(100.0 * time * factor)).to_vec();
        let cell = Cell {
            page: "late",
            path: "rate=5M,rtt=100ms".to_owned(),
            loads: vec![("nginx h2", loads(1.0)), ("litequic h3", loads(0.5))],
        };
        let text = table(&cell, "nginx h2");
        assert!(text.contains("| litequic h3 | 10 (10 to 10) | 20 (20 to 20) | 100 (50 to 200) |"), "{text}");
        assert!(text.contains("| 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) |"), "{text}");
        assert!(table(&cell, "caddy").contains("| 400 (200 to 800) | | |"));
    }
}

//! One try of one contender at a task: it is started beside its origin, proves itself, is loaded and measured.

use super::{
    Lab, Present, path,
    ports::{
        ADMIN_PORT, NEXT_LINK, ORIGIN_HTTP2_PORT, ORIGIN_PORT, ORIGIN_TLS_PORT, OTHER_ADMIN_PORT, OTHER_PORT, PORT,
        SINK_PORT, SINK_TLS_PORT,
    },
};
use crate::{
    bench::{
        Sampled, Task,
        cgroup::{self, Cgroup, Limit},
        contender::Kind,
        costs::{self, Meter},
        interrupt,
        load::{Amount, Generator, Load, Outcome, Target},
        metrics::{self, Counters, Metrics},
        namespace::Topology,
        noise::{Core, Noise},
        observe::{Observe, Observer},
        options::Options,
        process::{self, Server},
        procfs::CoreTimes,
        rival::{self, Rival},
        sink,
        template::Values,
    },
    http::Http,
    link::{Link, Links, Sample, Trace, addresses, samples},
    load,
    report::Per,
};
use anyhow::{Context as _, Result, bail};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    slice,
    time::{Duration, Instant},
};

/// For a server to answer its first request.
pub(super) const READY: Duration = Duration::from_secs(10);
/// Between two questions whether it does.
pub(super) const READY_LOOK: Duration = Duration::from_millis(50);
/// For a load to end. Its own deadline is 300 s.
const LOAD: Duration = Duration::from_secs(320);
/// For idle connections to be open.
const GATHERED: Duration = Duration::from_secs(60);
/// For a load beside the measured one to fill the path's queue: many round trips. In a quick run it need not be full.
const BESIDE: Duration = Duration::from_secs(4);
const BESIDE_QUICK: Duration = Duration::from_millis(500);
/// For a contender's metrics.
const METRICS: Duration = Duration::from_secs(10);
/// What a server must answer rightly before it is measured.
const CHECKED: u64 = 1_000_000; // bytes
/// The same over a path, which may be slow.
const CHECKED_OVER_A_PATH: u64 = 100_000; // bytes
/// Below this share of a core it is quiet, for so long: some ticks of the kernel's clock.
const QUIET: f64 = 0.08;
const QUIET_LOOK: Duration = Duration::from_millis(300);

/// What a try came to.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) noise: Noise,
    pub(super) figures: BTreeMap<String, f64>,
    pub(super) samples: Vec<Sample>,
    pub(super) trace: Option<Trace>,
    /// The viewers' report, as JSON.
    pub(super) views: Option<String>,
}

/// What a client is run with.
#[derive(Clone, Copy)]
struct Setup<'a> {
    task: &'a Task,
    kind: Kind,
    link: Option<&'a Link>,
    folder: &'a Path,
    /// Servers beside the measured one: what they do is no noise.
    beside: &'a [&'a Server],
    /// The cgroups of server and client, where both are counted.
    groups: Option<(&'a Cgroup, &'a Cgroup)>,
}

impl Lab {
    /// Starts a contender, has it prove itself, loads it over each link. An error: the run is void.
    pub(super) fn attempt(
        &mut self,
        task: &Task,
        contender: usize,
        round: usize,
        client: &mut String,
    ) -> Result<Vec<Measured>> {
        self.settle(task.topology.unwrap_or(self.network.topology), task.buffers)?;
        let upload = task.load.kind == load::Kind::Upload;
        let by_sink = task.is_served_by_sink();
        if self.network.topology == Topology::Veth {
            self.network.shape(task.shape)?;
        }
        self.start_origin(by_sink, task.is_client_alone)?;
        let (path, crc32) = self.files.body(task.load.body)?;
        let checked = if task.path.is_some() { CHECKED_OVER_A_PATH } else { CHECKED };
        let (checked_path, checked_crc32) = self.files.body(checked)?;
        let checked_crc32 = if by_sink { sink::crc32_of(checked) } else { checked_crc32 };
        if let Generator::Viewers(viewers) = &task.load.generator {
            viewers.bodies().try_for_each(|bytes| self.files.body(bytes).map(drop))?;
            if let Some(video) = self.options.video.as_deref().filter(|_| viewers.video) {
                self.files.video(video)?;
            }
        }
        if let Some(bulk) = task.load.generator.bulk() {
            self.files.body(bulk.body)?;
        }
        let crc32 = if upload { crc32fast::hash(sink::answer_to(task.load.body).as_bytes()) } else { crc32 };
        let beside = task.beside.as_ref().map(|load| anyhow::Ok((load, self.files.body(load.body)?)));
        let beside = beside.transpose()?;
        let upload_file = self.files.file(task.load.body);
        let trusted = self.files.identity(task.chain)?.trusted;
        let present = self.present.get(contender).context("no such contender")?;
        let task = &task.by_clients_of(&present.contender);
        let folder = tempfile::Builder::new().prefix(&present.contender.name).tempdir_in(self.folder.path())?;
        let values = self.values(present, task, folder.path(), by_sink)?;
        let log = (self.options.trace || task.sampled.is_some()).then(|| folder.path().join("packets.csv"));
        let link = task.path.as_ref().map(|path| {
            // A round alone has the same seed as its link among several: each has one a direction.
            let links = Links { path, count: task.links, seed: 2 * round as u64 - 1, log: log.as_deref() };
            Link::start_all(&self.network, &links, folder.path())
        });
        let link = link.transpose()?;
        self.network.control_congestion(present.contender.congestion_control.as_deref())?;
        let quota = task.share.quota().map(Cgroup::new).transpose()?;
        let counted = |name| task.is_client_alone.then(|| Cgroup::new(Limit::Nothing(name))).transpose();
        let [server_group, client_group] = [counted("server")?, counted("client")?];
        let meter = client_group.as_ref().map(|group| self.meter(group));
        let group = quota.as_ref().or(server_group.as_ref());
        let mut servers = self.start_all(present, task, folder.path(), &values, ADMIN_PORT, group)?;
        if task.links > 1 && !self.wait_for_sockets(&mut servers, PORT, present.contender.kind, READY)? {
            bail!("not all servers listen");
        }
        let (server, siblings) = servers.split_first_mut().context("no server")?;

        let [address, other_address] = [PORT, OTHER_PORT].map(|port| format!("{}:{port}", self.network.address));
        let target = Target {
            address: &address,
            kind: present.contender.kind,
            front: task.front,
            group: task.group,
            certificate: &trusted,
            spki: &self.files.spki,
            path: &path,
            over_a_path: link.is_some(),
            mark: None,
            meter: None,
            count: false,
            crc32: Some(crc32),
            upload: &upload_file,
        };
        let one = Load {
            kind: load::Kind::Download,
            body: checked,
            connections: 1,
            streams: 1,
            amount: Amount::Requests(1),
            generator: Generator::own("auto"),
            resume: false,
        };
        let proof = if upload {
            (
                Load { kind: load::Kind::Upload, ..one },
                Target { crc32: Some(crc32fast::hash(sink::answer_to(checked).as_bytes())), ..target.clone() },
            )
        } else {
            // Whatever group of TLS the load has.
            (one, Target { path: &checked_path, crc32: Some(checked_crc32), group: None, ..target.clone() })
        };
        self.prove(server, &proof.0, &proof.1)?;

        let mark = folder.path().join("mark");
        let count = task.observe == Observe::ReceiveCalls;
        let measured = Target { mark: Some(&mark), meter: meter.as_ref(), count, ..target.clone() };
        let arguments = task.load.command(
            &measured,
            &self.own,
            self.client(&task.load.generator).and_then(|found| found.as_deref().ok()),
        )?;
        *client = self.without_places(&arguments.join(" "));
        // A traced contender is another.
        let metrics = present.contender.metrics.as_ref().filter(|_| task.observe.program().is_none());
        let metrics = metrics.map(|metrics| metrics.expand(&values)).transpose()?;
        let mut other = task.beside_from.map(|name| self.start_other(name, task, folder.path())).transpose()?;
        let mut crowd = self.gather(task.crowd, &proof, folder.path())?;
        self.wait_for_quiet()?;
        let beside = beside.map(|(load, (path, crc32))| {
            let mut target = Target { path: &path, crc32: Some(crc32), ..target.clone() };
            if let Some((_, kind)) = other {
                (target.address, target.kind) = (&other_address, kind);
            }
            self.start_beside(load, &target, task.links, folder.path())
        });
        let mut beside = beside.transpose()?.unwrap_or_default();
        // Those beside have theirs by now.
        self.network.control_congestion(present.contender.congestion_control.as_deref())?;
        self.warm_up(task, &target, server)?;
        let first = self.told(metrics.as_ref())?;
        let mut before = first.clone();
        let throttled = quota.as_ref().and_then(Cgroup::throttled);
        link.as_ref().map_or(Ok(()), Link::begin_anew)?;
        let others = other.iter().flat_map(|(servers, _)| servers).chain(siblings.iter());
        let others: Vec<&Server> = others.collect();
        let setup = Setup {
            task,
            kind: present.contender.kind,
            link: link.as_ref(),
            folder: folder.path(),
            beside: &others,
            groups: server_group.as_ref().zip(client_group.as_ref()),
        };
        let begun = || {
            // Not a load that is cut, or not yet; and once.
            if fs::remove_file(&mark).is_err() {
                return Ok(false);
            }
            before = self.told(metrics.as_ref())?;
            link.as_ref().map_or(Ok(()), Link::count_anew)?;
            Ok(true)
        };
        let _twins = self.start_twins(task, &Target { mark: None, ..measured.clone() }, folder.path())?;
        let measured = self.measure(&setup, server, &arguments, begun)?;
        let after = self.told(metrics.as_ref())?;
        siblings.iter_mut().try_for_each(Server::check)?;
        crowd.as_mut().map_or(Ok(()), Server::check)?;
        beside.iter_mut().try_for_each(Server::check)?;
        drop(beside);
        other.as_mut().map_or(Ok(()), |(servers, _)| servers.iter_mut().try_for_each(Server::check))?;
        drop(other);
        let Measured { noise, mut figures, views, .. } = measured;
        if let (Some(before), Some(after)) = (throttled, quota.as_ref().and_then(Cgroup::throttled)) {
            figures.insert("throttled".to_owned(), after - before);
        }
        let bytes = figures.get("bytes").copied().unwrap_or_default();
        if let Some(metrics) = metrics {
            figures.extend(metrics.figures(&before, &after, bytes));
            for (name, until) in [("lost_at_first", &before), ("lost_in_all", &after)] {
                let lost = metrics.figures(&first, until, bytes).remove("declared_lost");
                figures.extend(lost.map(|lost| (name.to_owned(), lost)));
            }
        }
        let mut first = Measured { noise, figures, views, ..Measured::default() };
        let Some(link) = link else { return Ok(vec![first]) };
        let report = link.finish()?;
        // How a quick run went is no matter, and the machine is busy with other things.
        if let Some(void) = report.void.as_ref().filter(|_| !self.options.quick) {
            bail!("{void}");
        }
        if let Some(log) = log.as_ref().filter(|_| self.options.trace) {
            let trace = Trace::read(log)?;
            first.figures.extend(trace.figures());
            first.trace = Some(trace);
        }
        // Of the others what passed their links is known.
        let mut all = vec![first];
        all.resize_with(usize::from(task.links), || Measured { noise, ..Measured::default() });
        for (nth, measured) in all.iter_mut().enumerate() {
            measured.figures.extend(path::figures(&report, nth, &measured.figures));
        }
        if let (Some(Sampled { step, time }), Some(log)) = (task.sampled, &log) {
            for (measured, samples) in all.iter_mut().zip(samples(log, task.links, PORT, step, time)?) {
                measured.figures.extend(path::sampled(&samples));
                measured.samples = samples;
            }
        }
        Ok(all)
    }

    /// A link's address of the server.
    fn host(&self, link: u8) -> String {
        let [server, _] = addresses(link);
        if link == 0 { self.network.address.to_owned() } else { server }
    }

    /// Starts the measured load over each link but the first.
    fn start_twins(&self, task: &Task, target: &Target<'_>, folder: &Path) -> Result<Vec<Server>> {
        let start = |link| {
            let address = format!("{}:{PORT}", self.host(link));
            let arguments = task.load.command(&Target { address: &address, ..target.clone() }, &self.own, None)?;
            self.start_client("the same over another link", &arguments, &folder.join(format!("twin-{link}.log")))
        };
        (1..task.links).map(start).collect()
    }

    fn start_client(&self, name: &str, arguments: &[String], log: &Path) -> Result<Server> {
        let core = self.options.client_core.to_string();
        Server::start(name, process::command(&self.network.client, &core, arguments, &BTreeMap::new()), log.to_owned())
    }

    /// Sends the task's requests that do not count.
    fn warm_up(&self, task: &Task, target: &Target<'_>, server: &mut Server) -> Result<()> {
        let Some(requests) = task.warm_up else { return Ok(()) };
        let load = Load { amount: Amount::Requests(requests), ..task.load.clone() };
        let client = self.client(&load.generator).and_then(|found| found.as_deref().ok());
        let arguments = load.command(target, &self.own, client)?;
        let core = self.options.client_core.to_string();
        let command = process::command(&self.network.client, &core, &arguments, &BTreeMap::new());
        process::finish(command, LOAD, || server.check())?;
        Ok(())
    }

    /// Opens connections, each of which waits until it is closed; `proof` is a path that it can request.
    fn gather(&self, connections: u32, proof: &(Load, Target<'_>), folder: &Path) -> Result<Option<Server>> {
        if connections == 0 {
            return Ok(None);
        }
        let amount = Amount::Seconds(LOAD.as_secs_f64());
        let load = Load { kind: load::Kind::Idle, connections, amount, ..proof.0.clone() };
        let arguments = load.command(&proof.1, &self.own, None)?;
        let mut crowd = self.start_client("the crowd", &arguments, &folder.join("crowd.log"))?;
        interrupt::wait_for(GATHERED, || {
            crowd.check()?;
            Ok(crowd.quote().contains("holding").then_some(()))
        })?
        .context("the idle connections do not gather")?;
        Ok(Some(crowd))
    }

    /// Starts a server for each link: one that had connections over several links would handle their datagrams
    /// together, in larger bursts than those of one.
    fn start_all(
        &self,
        present: &Present,
        task: &Task,
        folder: &Path,
        values: &Values,
        mut admin_port: u16,
        group: Option<&Cgroup>,
    ) -> Result<Vec<Server>> {
        let mut servers = vec![self.start(present, task, folder, values, group)?];
        let mut values = values.clone();
        for link in 1..task.links {
            let folder = folder.join(format!("link-{link}"));
            fs::create_dir_all(&folder)?;
            admin_port += NEXT_LINK;
            values.set("RUN", folder.display());
            values.set("ADDRESS", self.host(link));
            values.set("ADMIN_PORT", admin_port);
            servers.push(self.start(present, task, &folder, &values, group)?);
        }
        Ok(servers)
    }

    /// Waits until each server has a socket at `port`; whether it has one in time.
    fn wait_for_sockets(&self, servers: &mut [Server], port: u16, kind: Kind, time: Duration) -> Result<bool> {
        let waited = interrupt::wait_for(time, || {
            servers.iter_mut().try_for_each(Server::check)?;
            Ok((self.network.listening_at(port, kind == Kind::H1)? >= servers.len()).then_some(()))
        })?;
        Ok(waited.is_some())
    }

    /// Starts the servers that others load meanwhile. TCP connections get the congestion control of when they are
    /// accepted: the contender's own, if it has TCP, must be the same.
    fn start_other(&self, name: &str, task: &Task, folder: &Path) -> Result<(Vec<Server>, Kind)> {
        let present = self.known.iter().find(|known| known.contender.name == name);
        let present = present.with_context(|| format!("{name} is to be there as well"))?;
        let folder = folder.join("other");
        fs::create_dir_all(&folder)?;
        let mut values = self.values(present, task, &folder, false)?;
        values.set("PORT", OTHER_PORT);
        values.set("ADMIN_PORT", OTHER_ADMIN_PORT);
        self.network.control_congestion(present.contender.congestion_control.as_deref())?;
        let kind = present.contender.kind;
        let mut servers = self.start_all(present, task, &folder, &values, OTHER_ADMIN_PORT, None)?;
        if !self.wait_for_sockets(&mut servers, OTHER_PORT, kind, READY)? {
            bail!("{name} does not listen");
        }
        Ok((servers, kind))
    }

    /// Starts what others do meanwhile over each link, and gives it time to fill the path.
    fn start_beside(&self, load: &Load, target: &Target<'_>, links: u8, folder: &Path) -> Result<Vec<Server>> {
        let (_, port) = target.address.rsplit_once(':').context("an address without a port")?;
        let start = |link| {
            let address = format!("{}:{port}", self.host(link));
            let arguments = load.command(&Target { address: &address, ..target.clone() }, &self.own, None)?;
            self.start_client("the load beside it", &arguments, &folder.join(format!("beside-{link}.log")))
        };
        let mut beside = (0..links).map(start).collect::<Result<Vec<Server>>>()?;
        interrupt::wait_for(if self.options.quick { BESIDE_QUICK } else { BESIDE }, || {
            beside.iter_mut().try_for_each(Server::check).map(|()| None::<()>)
        })?;
        Ok(beside)
    }

    /// A contender's own metrics; none if it has none.
    fn told(&self, metrics: Option<&Metrics>) -> Result<Counters> {
        let Some(Metrics { url, .. }) = metrics else { return Ok(Counters::new()) };
        let arguments = [self.own.display().to_string(), "metrics".to_owned(), url.clone()];
        let core = self.options.client_core.to_string();
        let command = process::command(&self.network.server, &core, &arguments, &BTreeMap::new());
        let finished = process::finish(command, METRICS, || Ok(()))?;
        let counters = metrics::counters(&finished.stdout);
        if counters.is_empty() {
            bail!("it has no metrics: {}", finished.stderr);
        }
        Ok(counters)
    }

    /// A command line without the places of this machine and this run, for the report.
    pub(super) fn without_places(&self, line: &str) -> String {
        let places = [(self.own.as_path(), "litequic-lab"), (self.folder.path(), "@LAB@")];
        let clients =
            self.clients.iter().filter_map(|(client, found)| Some((found.as_deref().ok()?, client.program())));
        let places = places.into_iter().chain(self.h2load.as_deref().ok().map(|path| (path, "h2load"))).chain(clients);
        places.fold(line.to_owned(), |line, (place, name)| line.replace(&place.display().to_string(), name))
    }

    /// What stands for placeholders in a contender's description and templates.
    fn values(&self, present: &Present, task: &Task, folder: &Path, by_sink: bool) -> Result<Values> {
        let Present { contender, program, .. } = present;
        let mut values = Values::default();
        values.set("BIN", program.display());
        values.set("RUN", folder.display());
        values.set("ADDRESS", self.network.address);
        values.set("PORT", PORT);
        values.set("ADMIN_PORT", ADMIN_PORT);
        let identity = self.files.identity(task.chain)?;
        values.set("CERT", identity.certificate.display());
        values.set("KEY", identity.key.display());
        values.set("BOTH", identity.both.display());
        let origin_port = match (by_sink, contender.https_origin) {
            (false, false) if contender.http2_origin => ORIGIN_HTTP2_PORT,
            (false, false) => ORIGIN_PORT,
            (false, true) => ORIGIN_TLS_PORT,
            (true, false) => SINK_PORT,
            (true, true) => SINK_TLS_PORT,
        };
        values.set("ORIGIN_PORT", origin_port);
        values.set("PLAIN", if contender.https_origin { "#" } else { "" });
        values.set("HTTP2", if contender.http2_origin { "" } else { "#" });
        values.set("HTTPS", if contender.https_origin { "" } else { "#" });
        values.set("FOUND", "#");
        values.set("WWW", self.files.www.display());
        values.set("WORKERS", task.workers);
        values.set("H3", if contender.kind == Kind::H3 { "" } else { "#" });
        values.set("TCP", if task.front == Http::Three { "#" } else { "" });
        for (name, holds) in task.configuration().holds() {
            values.set(name, if holds { "" } else { "#" });
        }
        values.set("EXTRA", &contender.extra);
        Ok(values)
    }

    fn start(
        &self,
        present: &Present,
        task: &Task,
        folder: &Path,
        values: &Values,
        group: Option<&Cgroup>,
    ) -> Result<Server> {
        let contender = &present.contender;
        for (name, template) in &contender.templates {
            fs::write(folder.join(name), values.expand(template, name)?)?;
        }
        let mut environment = BTreeMap::new();
        for (name, value) in &contender.environment {
            environment.insert(name.clone(), values.expand(value, name)?);
        }
        environment.extend(task.environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let arguments = contender.expand(&contender.command, values)?;
        let (place, cores) = (&self.network.server, self.server_cores(task));
        let command = match group {
            Some(group) => process::command_in(group, place, &cores, &arguments, &environment),
            None => process::command(place, &cores, &arguments, &environment),
        };
        Server::start(&contender.name, command, folder.join("log"))
    }

    /// One worker has the server's core to itself; more share both.
    fn server_cores(&self, task: &Task) -> String {
        let Options { server_core, client_core, .. } = self.options;
        if task.workers == 1 || task.kinds == [Kind::Origin] {
            server_core.to_string()
        } else {
            format!("{server_core},{client_core}")
        }
    }

    /// Where the costs of a client in a cgroup are read.
    fn meter(&self, group: &Cgroup) -> Meter {
        let Options { server_core, client_core, .. } = self.options;
        Meter { folder: group.folder().to_owned(), server_core, client_core }
    }

    /// Starts the origin, on the client's core or, where the client is alone on that, the server's.
    pub(super) fn start_origin(&mut self, upload: bool, is_client_alone: bool) -> Result<()> {
        let Options { server_core, client_core, .. } = self.options;
        let core = if is_client_alone { server_core } else { client_core };
        if core != self.origin_core {
            (self.file_origin, self.sink, self.origin_core) = (None, None, core);
        }
        let core = core.to_string();
        let there = if upload { &mut self.sink } else { &mut self.file_origin };
        if there.as_mut().is_some_and(|server| server.check().is_ok()) {
            return Ok(());
        }
        let folder = self.folder.path().join(if upload { "sink" } else { "origin" });
        fs::create_dir_all(&folder)?;
        let server = if upload {
            let [listen, tls] = [SINK_PORT, SINK_TLS_PORT].map(|port| format!("127.0.0.1:{port}"));
            let [own, cert, key] =
                [&self.own, &self.files.certificate, &self.files.key].map(|path| path.display().to_string());
            let arguments = [&own, "sink", "--listen", &listen, "--tls", &tls, "--cert", &cert, "--key", &key];
            let arguments = arguments.map(str::to_owned);
            let command = process::command(&self.network.server, &core, &arguments, &BTreeMap::new());
            Server::start("sink", command, folder.join("log"))?
        } else {
            let Present { contender, program, .. } = &self.origin;
            let mut values = Values::default();
            values.set("BIN", program.display());
            values.set("RUN", folder.display());
            values.set("ORIGIN_PORT", ORIGIN_PORT);
            values.set("ORIGIN_TLS_PORT", ORIGIN_TLS_PORT);
            values.set("ORIGIN_HTTP2_PORT", ORIGIN_HTTP2_PORT);
            values.set("CERT", self.files.certificate.display());
            values.set("KEY", self.files.key.display());
            values.set("WWW", self.files.www.display());
            for (name, template) in &contender.templates {
                fs::write(folder.join(name), values.expand(template, name)?)?;
            }
            let arguments = contender.expand(&contender.command, &values)?;
            let command = process::command(&self.network.server, &core, &arguments, &contender.environment);
            Server::start("origin", command, folder.join("log"))?
        };
        *(if upload { &mut self.sink } else { &mut self.file_origin }) = Some(server);
        Ok(())
    }

    /// Waits until a server answers, and rightly.
    fn prove(&self, server: &mut Server, load: &Load, target: &Target) -> Result<()> {
        let arguments = load.command(target, &self.own, None)?;
        let core = self.options.client_core.to_string();
        let end = Instant::now() + READY;
        // A client that is too early gets no answer, and tries again after a second. A server that listens elsewhere
        // than it should shows below.
        self.wait_for_sockets(slice::from_mut(server), PORT, target.kind, READY / 2)?;
        loop {
            let command = process::command(&self.network.client, &core, &arguments, &BTreeMap::new());
            let answer = process::finish(command, READY, || server.check()).and_then(|finished| {
                load.outcome(target.kind, target.over_a_path, &finished.stdout)
                    .map_err(|error| said(error, &finished.stderr))
            });
            interrupt::check()?;
            // Gone: its own word is the better reason.
            server.check()?;
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => bail!("no right answer: {error:#}; its log: {}", server.quote()),
                Err(_) => interrupt::sleep(READY_LOOK)?,
            }
        }
    }

    /// Waits until both cores are idle, or patience is over.
    pub(super) fn wait_for_quiet(&self) -> Result<()> {
        let cores = [self.options.server_core, self.options.client_core];
        let busy = || cores.map(|core| process::core_times(core).map_or(0.0, |times| times.busy));
        let end = Instant::now() + Duration::from_secs(self.options.patience());
        while Instant::now() < end {
            let before = busy();
            interrupt::sleep(QUIET_LOOK)?;
            if busy().iter().zip(before).all(|(after, before)| after - before < QUIET * QUIET_LOOK.as_secs_f64()) {
                break;
            }
        }
        Ok(())
    }

    /// Runs the client; `begun` reports once that the load's beginning is over, and the counts until then are
    /// discarded.
    fn measure(
        &self,
        setup: &Setup,
        server: &mut Server,
        client: &[String],
        mut begun: impl FnMut() -> Result<bool>,
    ) -> Result<Measured> {
        let Setup { task, kind, link, folder, beside, groups } = *setup;
        let client_core = self.options.client_core.to_string();
        let origin = if task.is_served_by_sink() { &self.sink } else { &self.file_origin };
        let origin_cpu = || origin.as_ref().map(Server::cpu).unwrap_or_default();
        let mut observer = Observer::start(task.observe, server, &self.network.server, &client_core, folder)?;
        let snapshot = |server: &Server| -> Result<_> {
            let cores =
                (process::core_times(self.options.server_core)?, process::core_times(self.options.client_core)?);
            let own = process::own_cpu().total() + link.map_or(0.0, Link::cpu);
            let drops = (self.network.drops()?, self.network.drops_at(PORT)?);
            let kernel = (drops, server.wakes(), self.network.datagrams_sent()?);
            let beside: f64 = beside.iter().map(|server| server.cpu().total()).sum();
            let counted = groups.and_then(|(group, _)| cgroup::cpu(group.folder()));
            Ok((server.cpu(), origin_cpu(), own, cores, kernel, Instant::now(), beside, counted))
        };
        let (place, core) = (&self.network.server, self.options.server_core);
        let rival = task.rival().map(|turns| Rival::start(turns, &self.own, place, core, folder));
        let mut rival = rival.transpose()?;
        let rival_cpu = |rival: &Option<Rival>| rival.as_ref().map_or(0.0, Rival::cpu);
        let (mut before, mut rival_before) = (snapshot(server)?, rival_cpu(&rival));
        let place = &self.network.client;
        let is_own = matches!(task.load.generator, Generator::Own { .. });
        let command = match groups {
            None => process::command(place, &client_core, client, &BTreeMap::new()),
            Some((_, group)) if is_own => process::command_in(group, place, &client_core, client, &BTreeMap::new()),
            Some(_) => process::command_with_cgroups(place, &client_core, client),
        };
        let meter = groups.filter(|_| is_own).map(|(_, group)| self.meter(group));
        let costs_before = meter.as_ref().map(|meter| meter.read_in(&self.network.client)).transpose()?;
        let finished = process::finish(command, LOAD, || {
            observer.look(server);
            rival.as_mut().map_or(Ok(()), Rival::check)?;
            if begun()? {
                (before, rival_before) = (snapshot(server)?, rival_cpu(&rival));
            }
            server.check()
        })?;
        let (after, rival_after) = (snapshot(server)?, rival_cpu(&rival));
        let costs = meter.as_ref().map(|meter| meter.read_in(&self.network.client)).transpose()?;
        let costs = costs.zip(costs_before).map(|(after, before)| after - before);
        drop(rival);
        server.check()?;
        let outcome =
            task.load.outcome(kind, link.is_some(), &finished.stdout).map_err(|error| said(error, &finished.stderr))?;
        let observed = observer.finish(outcome.bytes, task.load.connections)?;

        let (cpu, origin, own) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        let cores = (after.3.0 - before.3.0, after.3.1 - before.3.1);
        let is_browser = matches!(task.load.generator, Generator::Client(client) if client.is_browser());
        let cores = if is_browser { (cores.0, cores.1.with_nice()) } else { cores };
        let rival = rival_after - rival_before;
        // Each side of a link has its interrupts on its own core, where no other process sends or receives.
        let core = |times: CoreTimes, own: f64| {
            let delivering = if link.is_some() { times.interrupts } else { 0.0 };
            Core { times, own, delivering }
        };
        let (origin_at_server, origin_at_client) =
            if task.is_client_alone { (origin.total(), 0.0) } else { (0.0, origin.total()) };
        let cores = (
            core(cores.0, cpu.total() + rival + origin_at_server + (after.6 - before.6)),
            core(cores.1, origin_at_client + own),
        );
        let noise = if task.workers == 1 { Noise::of(cores.0, cores.1) } else { Noise::together(cores.0, cores.1) };
        if task.observe.program().is_some() {
            // The tracer is on the client's core, and was not waited for yet.
            let noise = Noise { client_core: 0.0, ..noise };
            // The client's own counts; what it costs then is the tracer's doing.
            let is_count =
                |name: &str| name.starts_with("calls/") || matches!(name, "receiver_calls" | "receiver_packets");
            let counts = outcome.figures.into_iter().filter(|(name, _)| is_count(name));
            let figures = counts.chain(observed).collect();
            return Ok(Measured { noise, figures, ..Measured::default() });
        }
        let wall = after.5.duration_since(before.5).as_secs_f64();
        let busy = rival::busy(cpu.total(), wall, rival);
        let Outcome { done, bytes, seconds, mut figures } = outcome;
        let one = task.case.per.scale(done, bytes);
        let (drops, at_server) = (after.4.0.0.saturating_sub(before.4.0.0), after.4.0.1.saturating_sub(before.4.0.1));
        let rate = if task.case.per == Per::Gigabyte { bytes / 1e6 } else { done } / seconds;
        figures.extend(
            [
                ("cpu", cpu.total() * one),
                ("user", cpu.user * one),
                ("system", cpu.system * one),
                ("origin_cpu", origin.total() * one),
                ("rate", rate),
                ("busy", busy * 100.0),
                ("drops", drops as f64),
                ("client_drops", drops.saturating_sub(at_server) as f64),
                ("seconds", seconds),
                ("bytes", bytes),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if task.case.per == Per::Gigabyte {
            let megabytes = bytes / 1e6;
            figures.insert("wakes".to_owned(), after.4.1.saturating_sub(before.4.1) as f64 / megabytes);
            // The client's count too where both are in one namespace.
            if self.network.topology != Topology::Lo && kind != Kind::H1 {
                let sends = after.4.2.saturating_sub(before.4.2) as f64;
                figures.insert("sends".to_owned(), sends / megabytes);
            }
        }
        if let Some((after, before)) = after.7.zip(before.7) {
            figures.insert("cpu".to_owned(), (after - before) * one);
            figures.entry("goodput".to_owned()).or_insert(bytes * 8e-6 / seconds);
        }
        if let Some(costs) = costs {
            figures.extend(costs.figures(bytes));
            let calls = figures.get("receive_calls").map(|calls| calls / bytes * 1e6);
            figures.extend(calls.map(|calls| ("receiver_calls".to_owned(), calls)));
        }
        if !self.options.quick {
            costs::verify(&figures)?;
        }
        if task.case.saturated {
            figures.insert("rival".to_owned(), rival / wall * 100.0);
        }
        figures.extend(observed);
        let is_kept = self.options.trace && matches!(task.load.generator, Generator::Viewers(_));
        Ok(Measured { noise, figures, views: is_kept.then_some(finished.stdout), ..Measured::default() })
    }
}

/// An error of the client's, and what it wrote to standard error.
fn said(error: anyhow::Error, stderr: &str) -> anyhow::Error {
    if stderr.is_empty() { error } else { error.context(stderr.replace('\n', " | ")) }
}

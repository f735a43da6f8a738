//! The soak: litequic, a process as its operator starts it, under a mixed load for as long as one likes, with every
//! body compared. Downloads, uploads, small requests, slow readers, resets, clients that move, clients that vanish; an
//! origin (nginx, where there is one) that is ended and killed every 20 seconds; a reload every 5. Clients are h3 on
//! quinn.
//!
//! ```text
//! cargo build --release --locked --bins --examples
//! target/release/examples/soak --minutes 60 --report soak.json
//! ```
//!
//! Nothing may go wrong but what was in flight to the restarted origin, and that must look failed (`account`). Memory
//! and descriptors must stay flat (`trend`); every gauge must return to 0; litequic must end with 0. Otherwise the exit
//! code is 1, and the first faults are printed. A seed makes the same players; what they meet is the machine's.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that reports")]

mod account;
#[path = "../../tests/it/support/cable.rs"]
mod cable;
mod client;
mod content;
mod load;
mod origin;
#[path = "../../tests/it/support/ports.rs"]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "the tests' own")]
mod ports;
mod report;
mod scene;
mod trend;

use account::Kind;
use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use client::Connector;
use content::Dice;
use load::World;
use report::Report;
use scene::{Restarted, Scene, ask};
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use trend::{GAUGES, Sample};

/// Time between two restarts of the origin, in seconds.
const RESTART_EVERY: (u64, u64) = (15, 25);
/// How long it stays away, in milliseconds; every other time not at all.
const RESTART_PAUSE_MS: u64 = 1_500;
/// Time between two samples; less for a short run, so that its trend has some.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
const SAMPLES_AT_LEAST: u32 = 24;
/// For requests in flight when the load ends.
const LAST_REQUESTS: Duration = Duration::from_secs(100);
/// For the gauges to return to 0: idle connections to origins stay for 5 seconds, clients that vanished for 15.
const QUIET: Duration = Duration::from_secs(45);
/// Descriptors that may differ between before and after: the admin connection of the check.
const DESCRIPTORS_LEFT: u64 = 2;

#[derive(Debug, Parser)]
#[command(
    about = "Loads litequic with everything at once, and compares every body",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// How long the load lasts.
    #[arg(long, value_name = "N", default_value_t = 2)]
    minutes: u32,
    /// How many times the usual number of players.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    load: u64,
    /// Players of these kinds alone; may be given several times.
    #[arg(long, value_name = "KIND")]
    only: Vec<Kind>,
    /// Seconds between two reloads.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    reload_every: u64,
    /// What the players' dice begin with; random unless given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The litequic to load; the one that was built with this program unless given.
    #[arg(long, value_name = "PATH")]
    litequic: Option<PathBuf>,
    /// Write the figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be an origin, until standard input ends.
    #[command(hide = true)]
    Origin { addresses: Vec<SocketAddr> },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = match &arguments.role {
        Some(Role::Origin { addresses }) => runtime.block_on(origin::serve(addresses.clone())).map(|()| true),
        None => LocalSet::new().block_on(&runtime, run(&arguments)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if nothing was wrong.
async fn run(arguments: &Arguments) -> Result<bool> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let program = match &arguments.litequic {
        Some(program) => program.clone(),
        None => beside_this_one()?,
    };
    ensure!(program.is_file(), "there is no {}: build it, or name one with --litequic", program.display());
    let (mut scene, restarted) = Scene::set(&program).await?;
    let required = std::env::var_os("LITEQUIC_REQUIRE").is_some();
    ensure!(restarted.is_nginx() || !required, "LITEQUIC_REQUIRE is set, but there is no nginx");
    println!("{}, process {}, seed {seed}", program.display(), scene.litequic.id());
    println!(
        "the restarted origin is {}",
        if restarted.is_nginx() { "nginx" } else { "this program, FOR THERE IS NO NGINX" }
    );
    let world = Rc::new(World::new(Connector::new(scene.places.udp)?, seed));
    let began = Instant::now();
    let mut report = Report::new(seed, look(&scene, began).await?);

    let players = load::start(&world, arguments.load, &arguments.only);
    let restarting = tokio::task::spawn_local(restart(Rc::clone(&world), restarted, Dice::new(seed, 0)));
    let finished = hold(&mut scene, &mut report, began, arguments).await;
    world.ending.set(true);
    if let Err(error) = finished {
        report.fault(format!("{error:#}\n{}", scene.litequic.tail()));
    }
    if timeout(LAST_REQUESTS, join(players)).await.is_err() {
        report.fault(format!("requests are still open {LAST_REQUESTS:?} after the load"));
    }
    match restarting.await.context("the restarts panicked")? {
        Ok((restarts, _origin)) => report.restarts = restarts,
        Err(error) => report.fault(format!("the restarted origin: {error:#}")),
    }
    if let Err(error) = silence(&mut scene, &mut report, began).await {
        report.fault(format!("{error:#}\n{}", scene.litequic.tail()));
    }
    report.close(&world.account.borrow());
    print!("{}", report.text());
    if let Some(file) = &arguments.report {
        std::fs::write(file, report.json()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(report.faults.is_empty())
}

/// `target/release/litequic` for `target/release/examples/soak`.
fn beside_this_one() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().and_then(|folder| folder.parent()).context("no folder above")?.join("litequic"))
}

/// Reloads and samples, for the given time or until Ctrl-C.
async fn hold(scene: &mut Scene, report: &mut Report, began: Instant, arguments: &Arguments) -> Result<()> {
    let length = Duration::from_secs(60) * arguments.minutes;
    let mut reloads = interval(Duration::from_secs(arguments.reload_every));
    let mut samples = interval(SAMPLE_EVERY.min(length / SAMPLES_AT_LEAST).max(Duration::from_secs(1)));
    for timer in [&mut reloads, &mut samples] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer.tick().await;
    }
    let mut end = std::pin::pin!(sleep(length.saturating_sub(began.elapsed())));
    println!("{}", Report::HEADING);
    loop {
        tokio::select! {
            () = &mut end => return Ok(()),
            _ = tokio::signal::ctrl_c() => {
                report.fault("ended early by Ctrl-C".into());
                return Ok(());
            }
            _ = reloads.tick() => {
                report.reloads += 1;
                scene.reload(report.reloads)?;
            }
            _ = samples.tick() => {
                ask(scene.places.admin, "/healthz").await.context("litequic is not healthy")?;
                let sample = look(scene, began).await?;
                println!("{}", report.line(&sample));
                report.samples.push(sample);
            }
        }
    }
}

async fn look(scene: &Scene, began: Instant) -> Result<Sample> {
    let metrics = trend::parse(&ask(scene.places.admin, "/metrics").await?);
    Sample::take(scene.litequic.id(), &metrics, began.elapsed())
}

/// Ends the origin in good order and kills it, in turn, until the load ends. Gives how often, and the origin, which the
/// last requests need.
async fn restart(world: Rc<World>, mut origin: Restarted, mut dice: Dice) -> Result<(u64, Restarted)> {
    let mut restarts = 0;
    loop {
        let next = Instant::now() + Duration::from_secs(dice.between(RESTART_EVERY.0, RESTART_EVERY.1));
        while Instant::now() < next {
            if world.ending.get() {
                return Ok((restarts, origin));
            }
            sleep(Duration::from_millis(100)).await;
        }
        let signal = if restarts % 2 == 0 { "TERM" } else { "KILL" };
        let pause = if dice.percent(50) { 0 } else { dice.between(1, RESTART_PAUSE_MS) };
        world.account.borrow_mut().origin_goes(Instant::now());
        origin.again(signal, Duration::from_millis(pause)).await?;
        world.account.borrow_mut().origin_is_back(Instant::now());
        restarts += 1;
    }
}

async fn join(mut players: JoinSet<()>) {
    while players.join_next().await.is_some() {}
}

/// After the load: every gauge at 0, no descriptor left, every reload applied; then the end.
async fn silence(scene: &mut Scene, report: &mut Report, began: Instant) -> Result<()> {
    let deadline = Instant::now() + QUIET;
    let last = loop {
        let last = look(scene, began).await?;
        let descriptors_left = report.before.descriptors + DESCRIPTORS_LEFT;
        if last.gauges.iter().all(|gauge| *gauge == 0) && last.descriptors <= descriptors_left {
            break last;
        }
        if Instant::now() > deadline {
            let stuck = GAUGES.iter().zip(last.gauges).filter(|(_, value)| *value > 0);
            stuck.for_each(|(name, value)| report.faults.push(format!("{name} is still {value} after {QUIET:?}")));
            if last.descriptors > descriptors_left {
                report
                    .fault(format!("{} descriptors, {} before the load", last.descriptors, report.before.descriptors));
            }
            break last;
        }
        sleep(Duration::from_millis(200)).await;
    };
    report.after = last;
    report.metrics = trend::parse(&ask(scene.places.admin, "/metrics").await?);
    let reloads = |result| report.metrics.get(&format!("litequic_reloads_total{{result=\"{result}\"}}")).copied();
    let (ok, refused) = (reloads("ok").unwrap_or_default(), reloads("refused").unwrap_or_default());
    if ok < report.reloads || refused > 0 {
        report.fault(format!("{} reloads: {ok} applied, {refused} rejected", report.reloads));
    }
    scene.litequic.signal("TERM")?;
    let code = scene.litequic.ended().await.context("after SIGTERM")?;
    if code != Some(0) {
        report.fault(format!("exit code {code:?}\n{}", scene.litequic.tail()));
    }
    for line in scene.litequic.faults().into_iter().chain(scene.steady.faults()) {
        report.fault(line);
    }
    Ok(())
}

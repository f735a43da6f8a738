//! The players: each makes requests of one kind, one after the other, until the load ends.

use crate::{
    account::{Account, End, Failure, Kind, Origin, Ticket},
    client::{Client, Connector, Next},
    content::{Content, Dice},
    origin::STEADY,
    scene::FILES,
};
use futures_util::future;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};

/// How many players of each kind at `--load 1`: enough to keep two cores about half busy.
const PLAYERS: [(Kind, u64); 7] = [
    (Kind::Download, 3),
    (Kind::Upload, 2),
    (Kind::Small, 4),
    (Kind::Slow, 8),
    (Kind::Rebound, 2),
    (Kind::Reset, 4),
    (Kind::Handshake, 2),
];
/// Of large bodies, in bytes.
const LARGE: (u64, u64) = (1_000_000, 50_000_000);
/// Of those that are broken off, or whose client moves.
const MIDDLE: (u64, u64) = (100_000, 10_000_000);
/// Of small ones: mostly one packet, sometimes many.
const SMALL: (u64, u64) = (1, 40_000);
/// Streams of small requests on one connection.
const STREAMS: u64 = 4;
/// Of those that are read slowly: some are read to the end.
const SLOW: (u64, u64) = (20_000, 1_000_000);
/// What a slow reader takes: at least that many bytes a second.
const SLOW_BYTES_PER_SECOND: (u64, u64) = (2_000, 16_000);
/// How long it runs at most, in seconds.
const SLOW_LIFE: (u64, u64) = (10, 90);
/// What it lets the server send ahead.
const SLOW_WINDOW: (u64, u64) = (4 << 10, 64 << 10);

/// What the players share.
pub(crate) struct World {
    connector: Connector,
    pub(crate) account: RefCell<Account>,
    pub(crate) ending: Cell<bool>,
    seed: u64,
}

impl World {
    pub(crate) fn new(connector: Connector, seed: u64) -> Self {
        Self { connector, account: RefCell::default(), ending: Cell::new(false), seed }
    }

    fn begin(&self, kind: Kind, origin: Origin, what: &str) -> Ticket {
        self.account.borrow_mut().begin(kind, origin, what.to_owned(), Instant::now())
    }

    #[expect(clippy::print_stdout, reason = "faults are printed at once")]
    fn end(&self, ticket: Ticket, end: End) {
        if let Some(wrong) = self.account.borrow_mut().end(ticket, end, Instant::now()) {
            println!("WRONG: {wrong}");
        }
    }

    /// Handshakes are counted too, and must all succeed.
    async fn connect(&self, dice: &mut Dice, window: Option<u32>) -> Option<Client> {
        let resume = dice.percent(50);
        let ticket = self.begin(Kind::Handshake, Origin::Steady, if resume { "resumed" } else { "full" });
        match self.connector.connect(resume, window).await {
            Ok(client) => {
                self.end(ticket, End::Whole(0));
                Some(client)
            }
            Err(error) => {
                self.end(ticket, End::Wrong(format!("{error:#}")));
                None
            }
        }
    }
}

/// Starts the players of `kinds`, of all if there are none, `load` times as many as usual.
pub(crate) fn start(world: &Rc<World>, load: u64, kinds: &[Kind]) -> JoinSet<()> {
    let mut players = JoinSet::new();
    let mut number = 0;
    for (kind, count) in PLAYERS.into_iter().filter(|(kind, _)| kinds.is_empty() || kinds.contains(kind)) {
        for _ in 0..count * load {
            number += 1;
            let (world, mut dice) = (Rc::clone(world), Dice::new(world.seed, number));
            players.spawn_local(async move {
                while !world.ending.get() {
                    match kind {
                        Kind::Download | Kind::Upload => large(&world, &mut dice, kind).await,
                        Kind::Small => small(&world, &mut dice).await,
                        Kind::Slow => slow(&world, &mut dice).await,
                        Kind::Rebound => rebound(&world, &mut dice).await,
                        Kind::Reset => reset(&world, &mut dice).await,
                        Kind::Handshake => handshake(&world, &mut dice).await,
                    }
                    think(&mut dice, 1_000).await;
                }
            });
        }
    }
    players
}

async fn think(dice: &mut Dice, most_ms: u64) {
    sleep(Duration::from_millis(dice.between(0, most_ms))).await;
}

/// A request to be made.
struct Plan {
    origin: Origin,
    path: String,
    content: Content,
    part: Option<(u64, u64)>,
}

impl Plan {
    fn download(dice: &mut Dice, (least, most): (u64, u64)) -> Self {
        let origin = if dice.percent(50) { Origin::Steady } else { Origin::Restarted };
        let prefix = if origin == Origin::Steady { STEADY } else { "" };
        let files: Vec<_> = FILES.into_iter().filter(|file| (least..=most).contains(&file.length)).collect();
        let file = files.get(usize::try_from(dice.next()).unwrap_or_default() % files.len().max(1));
        if let (Origin::Restarted, Some(content), true) = (origin, file, dice.percent(50)) {
            let Content { seed, length } = *content;
            let first = dice.between(0, length.saturating_sub(1));
            let part = (length > 0 && dice.percent(30)).then(|| (first, dice.between(first + 1, length)));
            return Self { origin, path: format!("/files/{seed}/{length}"), content: *content, part };
        }
        let content = Content { seed: dice.next(), length: dice.magnitude(least, most) };
        let how = if dice.percent(50) { "bytes" } else { "chunks" };
        let path = format!("{prefix}/{how}/{}/{}", content.seed, content.length);
        Self { origin, path, content, part: None }
    }

    fn upload(dice: &mut Dice, (least, most): (u64, u64)) -> Self {
        let origin = if dice.percent(50) { Origin::Steady } else { Origin::Restarted };
        let prefix = if origin == Origin::Steady { STEADY } else { "" };
        let content = Content { seed: dice.next(), length: dice.magnitude(least, most) };
        Self { origin, path: format!("{prefix}/digest"), content, part: None }
    }

    /// As it stands in a complaint.
    fn what(&self, verb: &str) -> String {
        let Self { path, content: Content { seed, length }, part, .. } = self;
        format!("{verb} {path} ({length} bytes of seed {seed}, part {part:?})")
    }
}

/// Makes a whole request: a download if `down`.
async fn exchange(
    world: &World,
    client: &Client,
    dice: &mut Dice,
    kind: Kind,
    (down, size): (bool, (u64, u64)),
    next: impl FnMut(u64) -> Next,
) {
    let end = if down {
        let plan = Plan::download(dice, size);
        let ticket = world.begin(kind, plan.origin, &plan.what("GET"));
        (ticket, client.download(&plan.path, plan.content, plan.part, next).await.map(|broken| broken.stop()))
    } else {
        let plan = Plan::upload(dice, size);
        let (chunked, piece) = (dice.percent(50), usize::try_from(dice.between(1_000, 100_000)).unwrap_or(1_000));
        let ticket = world.begin(kind, plan.origin, &plan.what(if chunked { "POST chunked" } else { "POST" }));
        (ticket, client.upload(&plan.path, plan.content, chunked, piece, next).await.map(|broken| broken.reset()))
    };
    let (ticket, end) = end;
    let end = match end.map_or_else(|end| end, End::Cancelled) {
        End::Failed(Failure::Other(what)) => End::Failed(Failure::Other(format!("{what}; {}", client.state()))),
        End::Wrong(what) => End::Wrong(format!("{what}; {}", client.state())),
        end => end,
    };
    world.end(ticket, end);
}

/// Up to three large bodies at once on one connection.
async fn large(world: &World, dice: &mut Dice, kind: Kind) {
    let Some(client) = world.connect(dice, None).await else { return };
    let at_once = (0..dice.between(1, 3)).map(|_| {
        let (client, mut dice) = (&client, Dice::new(dice.next(), 0));
        async move { exchange(world, client, &mut dice, kind, (kind == Kind::Download, LARGE), |_| Next::More).await }
    });
    future::join_all(at_once.collect::<Vec<_>>()).await;
}

/// A few hundred small requests by several streams of one connection.
async fn small(world: &World, dice: &mut Dice) {
    let Some(client) = world.connect(dice, None).await else { return };
    let count = dice.between(10, 200);
    let streams = (0..STREAMS).map(|_| {
        let (client, mut dice) = (&client, Dice::new(dice.next(), 0));
        async move {
            for _ in 0..count {
                let down = dice.percent(70);
                exchange(world, client, &mut dice, Kind::Small, (down, SMALL), |_| Next::More).await;
                think(&mut dice, 60).await;
                if world.ending.get() {
                    break;
                }
            }
        }
    });
    future::join_all(streams.collect::<Vec<_>>()).await;
}

/// A download by a client that reads little at a time, with a window to match, as long as it runs.
async fn slow(world: &World, dice: &mut Dice) {
    let window = u32::try_from(dice.between(SLOW_WINDOW.0, SLOW_WINDOW.1)).ok();
    let Some(client) = world.connect(dice, window).await else { return };
    let rate = dice.between(SLOW_BYTES_PER_SECOND.0, SLOW_BYTES_PER_SECOND.1);
    let life = Duration::from_secs(dice.between(SLOW_LIFE.0, SLOW_LIFE.1));
    let (began, mut before) = (Instant::now(), 0);
    let next = |bytes| {
        if world.ending.get() || began.elapsed() > life {
            return Next::Enough;
        }
        let pause = Duration::from_millis((bytes - before) * 1_000 / rate);
        before = bytes;
        // Below every idle timeout.
        Next::Pause(pause.min(Duration::from_secs(5)))
    };
    exchange(world, &client, dice, Kind::Slow, (true, SLOW), next).await;
}

/// A transfer whose client changes its address three times on the way, then one from the last address.
async fn rebound(world: &World, dice: &mut Dice) {
    let Some(client) = world.connect(dice, None).await else { return };
    let mut places: Vec<_> = (0..3).map(|_| dice.between(0, MIDDLE.0)).collect();
    // The first place is passed by every body, the others by most.
    places.iter_mut().zip([1, 5, 20]).for_each(|(place, times)| *place *= times);
    places.sort_unstable_by(|one, other| other.cmp(one));
    let next = |bytes| {
        if places.pop_if(|place| *place <= bytes).is_some() {
            client.rebind();
        }
        Next::More
    };
    let down = dice.percent(60);
    exchange(world, &client, dice, Kind::Rebound, (down, MIDDLE), next).await;
    exchange(world, &client, dice, Kind::Rebound, (true, SMALL), |_| Next::More).await;
}

/// A transfer that is broken off at any point, in each way that there is. Where the connection stays, it serves on.
async fn reset(world: &World, dice: &mut Dice) {
    let Some(client) = world.connect(dice, None).await else { return };
    let (down, way) = (dice.percent(50), dice.between(0, 3));
    let point = if dice.percent(20) { 0 } else { dice.magnitude(1, MIDDLE.1) };
    let next = |bytes| {
        if bytes < point {
            return Next::More;
        }
        match way {
            0 => client.close(),
            1 => client.vanish(),
            _ => {}
        }
        Next::Enough
    };
    exchange(world, &client, dice, Kind::Reset, (down, MIDDLE), next).await;
    if way > 1 {
        exchange(world, &client, dice, Kind::Reset, (true, SMALL), |_| Next::More).await;
    }
}

/// Connections that come for one request.
async fn handshake(world: &World, dice: &mut Dice) {
    for _ in 0..20 {
        let Some(client) = world.connect(dice, None).await else { return };
        exchange(world, &client, dice, Kind::Small, (true, SMALL), |_| Next::More).await;
        drop(client);
        think(dice, 100).await;
        if world.ending.get() {
            return;
        }
    }
}

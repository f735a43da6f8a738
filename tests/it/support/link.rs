//! A link with faults: a UDP relay between clients and a server, on a thread of its own, that loses, doubles, reorders,
//! corrupts, delays and slows datagrams by a seed or by their numbers, and changes the clients' address. To clients it
//! is the server. Every fault is counted, so that a test can say that it happened.

use super::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};
use tokio::{
    net::UdpSocket,
    runtime::Builder,
    select,
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};

/// Datagrams that wait in one direction of one client's path, by default; a real router's queue is as short.
const QUEUE: usize = 1024;
/// Bytes of a short header up to the end of litequic's connection IDs.
const HEADER: usize = 17;
/// Bytes of the sockets' buffers, so that the kernel loses nothing uncounted.
const SOCKET_BUFFER: usize = 2 * 1024 * 1024;
/// A datagram that is held back goes at the latest after this, whether or not others have passed it.
const HOLD_AT_MOST: Duration = Duration::from_millis(20);

/// Which datagrams a fault befalls. They are numbered from 0 on, by client and direction.
#[derive(Debug, Clone, Default)]
pub(crate) enum Which {
    #[default]
    None,
    /// Each with this probability.
    Chance(f64),
    /// Those with these numbers.
    These(Vec<u64>),
}

/// What befalls datagrams in one direction.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// So many at the beginning pass unharmed by [`Which::Chance`].
    pub(crate) spare: u64,
    pub(crate) lose: Which,
    /// Longer datagrams are lost.
    pub(crate) max_length: usize,
    pub(crate) duplicate: Which,
    /// One bit is changed.
    pub(crate) corrupt: Which,
    /// Another like it goes after it, with the same header and connection ID, that cannot be decrypted.
    pub(crate) forge: Which,
    /// It goes after the next `hold_for`, or after some milliseconds.
    pub(crate) hold: Which,
    pub(crate) hold_for: u64,
    pub(crate) delay: Duration,
    /// Bytes a second.
    pub(crate) rate: Option<u32>,
    /// Nothing goes but at multiples of this time, and then all that waits: as over a radio link.
    pub(crate) bunch: Option<Duration>,
    /// Datagrams that it holds.
    pub(crate) queue: usize,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            spare: 0,
            lose: Which::None,
            max_length: usize::MAX,
            duplicate: Which::None,
            corrupt: Which::None,
            forge: Which::None,
            hold: Which::None,
            hold_for: 1,
            delay: Duration::ZERO,
            rate: None,
            bunch: None,
            queue: QUEUE,
        }
    }
}

/// What befalls a client's datagrams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// From clients to the server.
    pub(crate) up: Way,
    /// From the server to clients.
    pub(crate) down: Way,
    pub(crate) seed: u64,
}

impl Faults {
    /// The same both ways.
    pub(crate) fn both(way: Way) -> Self {
        Self { up: way.clone(), down: way, seed: 1 }
    }
}

/// What happened in one direction.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Datagrams that came.
    pub(crate) came: AtomicU64,
    /// Datagrams that went, doubles too.
    pub(crate) went: AtomicU64,
    /// Bytes of the longest datagram that came.
    pub(crate) longest: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) duplicated: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) forged: AtomicU64,
    pub(crate) held: AtomicU64,
    /// Lost to a full queue.
    pub(crate) overflowed: AtomicU64,
    /// Lost while the link was cut.
    pub(crate) cut: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// A link that is there until it is dropped.
pub(crate) struct Link {
    /// Where clients find the server.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    /// How many changes of address there were, and where clients are to come from.
    from: watch::Sender<(u64, IpAddr)>,
    /// Ends the thread when dropped.
    _end: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    faults: Faults,
    up: Counts,
    down: Counts,
    up_cut: AtomicBool,
    down_cut: AtomicBool,
    moves: AtomicU64,
}

impl Link {
    /// A link to `server` on 127.0.0.1 with `faults`.
    pub(crate) fn between(server: SocketAddr, faults: Faults) -> Self {
        let front = bind(Ipv4Addr::LOCALHOST.into());
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            faults,
            up: Counts::default(),
            down: Counts::default(),
            up_cut: AtomicBool::new(false),
            down_cut: AtomicBool::new(false),
            moves: AtomicU64::new(0),
        });
        let (from, changes) = watch::channel((0, Ipv4Addr::LOCALHOST.into()));
        let (end, ended) = oneshot::channel();
        let relayed = Arc::clone(&shared);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let front = Arc::new(UdpSocket::from_std(front).unwrap());
                select! {
                    _ = ended => {}
                    () = relay(front, relayed, changes) => {}
                }
            });
        });
        Self { address, shared, from, _end: end }
    }

    /// From clients to the server.
    pub(crate) fn up(&self) -> &Counts {
        &self.shared.up
    }

    /// From the server to clients.
    pub(crate) fn down(&self) -> &Counts {
        &self.shared.down
    }

    /// The server sees clients come from other ports from now on, and no longer reaches them at the old ones: a NAT
    /// that forgot.
    pub(crate) fn rebind(&self) {
        let ip = self.from.borrow().1;
        self.rebind_to(ip);
    }

    /// The same, from another address of this machine.
    pub(crate) fn rebind_to(&self, ip: impl Into<IpAddr>) {
        let ip = ip.into();
        self.from.send_modify(|from| *from = (from.0 + 1, ip));
    }

    /// How often a client has gone on from another address.
    pub(crate) fn moves(&self) -> u64 {
        self.shared.moves.load(Relaxed)
    }

    /// Nothing passes in either direction while `cut`.
    pub(crate) fn cut(&self, cut: bool) {
        self.shared.up_cut.store(cut, Relaxed);
        self.deafen(cut);
    }

    /// Nothing passes from the server to clients while `deaf`.
    pub(crate) fn deafen(&self, deaf: bool) {
        self.shared.down_cut.store(deaf, Relaxed);
    }
}

fn bind(ip: IpAddr) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
    let options = socket2::SockRef::from(&socket);
    // The kernel gives what net.core allows.
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Has a task for each client.
async fn relay(front: Arc<UdpSocket>, shared: Arc<Shared>, from: watch::Receiver<(u64, IpAddr)>) {
    let mut clients: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut buffer = vec![0; 65_536];
    loop {
        // An error means that a client is gone (ICMP).
        let Ok((length, client)) = front.recv_from(&mut buffer).await else { continue };
        let index = clients.len() as u64;
        let to = clients.entry(client).or_insert_with(|| {
            let (to, datagrams) = mpsc::channel(QUEUE);
            tokio::spawn(flow(client, index, datagrams, Arc::clone(&front), Arc::clone(&shared), from.clone()));
            to
        });
        if to.try_send(buffer[..length].to_vec()).is_err() {
            Counts::add(&shared.up.overflowed);
        }
    }
}

/// One client's datagrams, both ways.
async fn flow(
    client: SocketAddr,
    index: u64,
    mut datagrams: mpsc::Receiver<Vec<u8>>,
    front: Arc<UdpSocket>,
    shared: Arc<Shared>,
    mut from: watch::Receiver<(u64, IpAddr)>,
) {
    let upstream = |ip| UdpSocket::from_std(bind(ip)).unwrap();
    let ip = from.borrow_and_update().1;
    let mut back = upstream(ip);
    let seed = shared.faults.seed.wrapping_mul(1000).wrapping_add(index * 2);
    let mut up = Lane::new(shared.faults.up.clone(), seed);
    let mut down = Lane::new(shared.faults.down.clone(), seed + 1);
    let mut buffer = vec![0; 65_536];
    loop {
        let now = Instant::now();
        // Errors of sending say that a buffer is full, or that a peer is gone: datagrams are lost.
        while let Some(datagram) = up.due(now) {
            Counts::add(&shared.up.went);
            let _ = back.send_to(&datagram, shared.server).await;
        }
        while let Some(datagram) = down.due(now) {
            Counts::add(&shared.down.went);
            let _ = front.send_to(&datagram, client).await;
        }
        let next = [up.next(), down.next()].into_iter().flatten().min();
        let timer = async {
            match next {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        select! {
            datagram = datagrams.recv() => match datagram {
                Some(_) if shared.up_cut.load(Relaxed) => Counts::add(&shared.up.cut),
                Some(datagram) => up.take(Instant::now(), datagram, &shared.up),
                None => return,
            },
            received = back.recv_from(&mut buffer) => match received {
                Ok(_) if shared.down_cut.load(Relaxed) => Counts::add(&shared.down.cut),
                Ok((length, _)) => down.take(Instant::now(), buffer[..length].to_vec(), &shared.down),
                Err(_) => {} // ICMP
            },
            changed = from.changed() => match changed {
                Ok(()) => {
                    let ip = from.borrow_and_update().1;
                    back = upstream(ip);
                    Counts::add(&shared.moves);
                }
                Err(_) => return,
            },
            () = timer => {}
        }
    }
}

/// One direction. Decides by numbers and the seed; uses no socket and no clock.
struct Lane {
    way: Way,
    random: StdRng,
    /// The next datagram's.
    number: u64,
    /// When the first datagram was taken.
    began: Option<Instant>,
    /// Until when what was taken so far occupies the line.
    busy: Option<Instant>,
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// The number after which it goes, the time, the datagram.
    held: Vec<(u64, Instant, Vec<u8>)>,
}

impl Lane {
    fn new(way: Way, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { way, random, number: 0, began: None, busy: None, queue: VecDeque::new(), held: Vec::new() }
    }

    fn take(&mut self, now: Instant, mut datagram: Vec<u8>, counts: &Counts) {
        let number = self.number;
        self.number += 1;
        Counts::add(&counts.came);
        counts.longest.fetch_max(datagram.len() as u64, Relaxed);
        // All are drawn for each datagram, so that one fault's rate changes nothing of another's choice.
        let Way { spare, lose, duplicate, corrupt, forge, hold, hold_for, .. } = self.way.clone();
        let [lost, double, corrupt, forge, hold] = [lose, duplicate, corrupt, forge, hold].map(|which| {
            let drawn: f64 = self.random.random();
            match which {
                Which::None => false,
                Which::Chance(probability) => number >= spare && drawn < probability,
                Which::These(numbers) => numbers.contains(&number),
            }
        });
        let bit: usize = self.random.random_range(0..8 * datagram.len().max(1));
        if lost || datagram.len() > self.way.max_length {
            Counts::add(&counts.lost);
        } else {
            if let (true, Some(byte)) = (corrupt, datagram.get_mut(bit / 8)) {
                *byte ^= 1 << (bit % 8);
                Counts::add(&counts.corrupted);
            }
            if double {
                Counts::add(&counts.duplicated);
                self.enqueue(now, datagram.clone(), counts);
            }
            let forged = forge.then(|| {
                let mut forged = datagram.clone();
                forged.iter_mut().skip(HEADER).for_each(|byte| *byte ^= 0xff);
                forged
            });
            if hold {
                Counts::add(&counts.held);
                self.held.push((number + hold_for, now + HOLD_AT_MOST, datagram));
            } else {
                self.enqueue(now, datagram, counts);
            }
            if let Some(forged) = forged {
                Counts::add(&counts.forged);
                self.enqueue(now, forged, counts);
            }
        }
        self.let_go(now, number, counts);
    }

    /// Those held back that `number`, or the time, releases.
    fn let_go(&mut self, now: Instant, number: u64, counts: &Counts) {
        let (go, stay) = std::mem::take(&mut self.held).into_iter().partition(|held| held.0 <= number || held.1 <= now);
        self.held = stay;
        for (_, _, datagram) in go {
            self.enqueue(now, datagram, counts);
        }
    }

    fn enqueue(&mut self, now: Instant, datagram: Vec<u8>, counts: &Counts) {
        if self.queue.len() >= self.way.queue {
            Counts::add(&counts.overflowed);
            return;
        }
        let transmission = match self.way.rate {
            Some(rate) => Duration::from_secs_f64(datagram.len() as f64 / f64::from(rate)),
            None => Duration::ZERO,
        };
        let sent = self.busy.unwrap_or(now).max(now) + transmission;
        self.busy = Some(sent);
        let goes = self.bunched(sent + self.way.delay);
        self.queue.push_back((goes, datagram));
    }

    /// When what is to go at `at` goes.
    fn bunched(&mut self, at: Instant) -> Instant {
        let began = *self.began.get_or_insert(at);
        let Some(bunch) = self.way.bunch else { return at };
        let bunches = at.duration_since(began).as_nanos().div_ceil(bunch.as_nanos());
        began + bunch * u32::try_from(bunches).unwrap()
    }

    /// When something may have to go.
    fn next(&self) -> Option<Instant> {
        let held = self.held.iter().map(|held| held.1);
        self.queue.front().map(|queued| queued.0).into_iter().chain(held).min()
    }

    /// A datagram that is to go now.
    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (go, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held).into_iter().partition(|held| held.1 <= now);
        self.held = stay;
        self.queue.extend(go.into_iter().map(|held| (now, held.2)));
        self.queue.pop_front_if(|queued| queued.0 <= now).map(|queued| queued.1)
    }
}

mod tests {
    use super::*;

    /// What comes out of a lane into which datagrams of one byte, 0, 1, 2 and so on, go at once; and at the end of
    /// time.
    fn pass(way: Way, count: u8) -> (Vec<Vec<u8>>, Counts) {
        let (mut lane, counts) = (Lane::new(way, 7), Counts::default());
        let now = Instant::now();
        (0..count).for_each(|byte| lane.take(now, vec![byte], &counts));
        let mut out: Vec<Vec<u8>> = std::iter::from_fn(|| lane.due(now)).collect();
        out.extend(std::iter::from_fn(|| lane.due(now + Duration::from_secs(60))));
        (out, counts)
    }

    fn numbers(out: &[Vec<u8>]) -> Vec<u8> {
        out.iter().map(|datagram| datagram[0]).collect()
    }

    #[test]
    fn the_faults_of_a_link_befall_the_datagrams_named() {
        let these = |numbers: &[u64]| Which::These(numbers.to_vec());
        let table = [
            (Way::default(), vec![0, 1, 2, 3]),
            (Way { lose: these(&[0, 2]), ..Way::default() }, vec![1, 3]),
            (Way { duplicate: these(&[1]), ..Way::default() }, vec![0, 1, 1, 2, 3]),
            (Way { hold: these(&[0]), ..Way::default() }, vec![1, 0, 2, 3]),
            (Way { hold: these(&[0]), hold_for: 2, ..Way::default() }, vec![1, 2, 0, 3]),
            (Way { hold: these(&[3]), ..Way::default() }, vec![0, 1, 2, 3]),
            (Way { forge: these(&[1]), ..Way::default() }, vec![0, 1, 1, 2, 3]),
        ];
        for (way, expected) in table {
            assert_eq!(numbers(&pass(way.clone(), 4).0), expected, "{way:?}");
        }
        let (out, counts) = pass(Way { corrupt: these(&[2]), ..Way::default() }, 4);
        assert_eq!((out[2][0] ^ 2).count_ones(), 1);
        assert_eq!(counts.corrupted.into_inner(), 1);
    }

    #[test]
    fn the_faults_of_a_link_are_the_same_for_the_same_seed() {
        let way = Way {
            lose: Which::Chance(0.2),
            duplicate: Which::Chance(0.2),
            hold: Which::Chance(0.2),
            corrupt: Which::Chance(0.2),
            ..Way::default()
        };
        let (out, counts) = pass(way.clone(), 200);
        assert_eq!(out, pass(way.clone(), 200).0);
        assert!((20..60).contains(&counts.lost.into_inner()));
        // Another fault's rate changes nothing of which are lost.
        let lost = |way| {
            let out = numbers(&pass(way, 200).0);
            (0..200).filter(|number| !out.contains(number)).collect::<Vec<u8>>()
        };
        let alone = Way { lose: way.lose.clone(), ..Way::default() };
        assert_eq!(lost(alone.clone()), lost(Way { duplicate: way.duplicate, hold: way.hold, ..alone }));
    }

    #[test]
    fn a_link_has_a_rate_a_delay_and_a_bounded_queue() {
        let way = Way { rate: Some(1000), delay: Duration::from_millis(500), ..Way::default() };
        let (mut lane, counts) = (Lane::new(way, 7), Counts::default());
        let now = Instant::now();
        (0..QUEUE + 1).for_each(|_| lane.take(now, vec![0; 100], &counts));
        assert_eq!(counts.overflowed.load(Relaxed), 1);
        let due = |lane: &mut Lane, after| {
            let at = now + Duration::from_millis(after);
            std::iter::from_fn(|| lane.due(at)).count()
        };
        assert_eq!(due(&mut lane, 599), 0);
        assert_eq!(due(&mut lane, 600), 1);
        assert_eq!(due(&mut lane, 1500), 9);
    }
}

//! A load balancer of UDP in user space: routes datagrams by the server ID in their connection ID, as
//! draft-ietf-quic-load-balancers has balancers do, or by the hash of their source. Written after the draft alone, and
//! with no code of litequic's, which issues the IDs.

use super::prelude::*;
use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use tokio::{net::UdpSocket, task::JoinSet};

/// A configuration of the draft.
#[derive(Clone)]
pub(crate) struct Routing {
    /// The first three bits of IDs.
    pub(crate) rotation: u8,
    pub(crate) server_id: usize,
    pub(crate) nonce: usize,
    pub(crate) key: Option<[u8; 16]>,
    /// By their server ID.
    pub(crate) servers: Vec<(Vec<u8>, SocketAddr)>,
}

impl Routing {
    /// The server that the bytes of an ID name; those behind server ID and nonce, if there are any, do not matter.
    fn server(&self, id: &[u8]) -> Option<SocketAddr> {
        let (first, rest) = id.split_first()?;
        if first >> 5 != self.rotation {
            return None;
        }
        let mut text = rest.get(..self.server_id + self.nonce)?.to_vec();
        if let Some(key) = &self.key {
            decrypt(key, &mut text);
        }
        self.servers.iter().find(|(server_id, _)| text.starts_with(server_id)).map(|(_, address)| *address)
    }
}

/// §5.5 of the draft, where the text is right (its pseudo-code clears `left_1` for `right_1`).
fn decrypt(key: &[u8; 16], text: &mut [u8]) {
    let unbound = || UnboundCipherKey::new(&AES_128, key).unwrap();
    if text.len() == 16 {
        DecryptingKey::ecb(unbound()).unwrap().decrypt(text, DecryptionContext::None).unwrap();
        return;
    }
    let cipher = EncryptingKey::ecb(unbound()).unwrap();
    let (len, half) = (text.len(), text.len().div_ceil(2));
    let is_odd = len % 2 == 1;
    let (mut left, mut right) = (text[..half].to_vec(), text[len / 2..].to_vec());
    // An odd length splits the byte in the middle.
    let clear = |left: &mut [u8], right: &mut [u8]| {
        if is_odd {
            left[half - 1] &= 0xf0;
            right[0] &= 0x0f;
        }
    };
    clear(&mut left, &mut right);
    for pass in (1..=4).rev() {
        let (from, to) = if pass % 2 == 0 { (&right, &mut left) } else { (&left, &mut right) };
        let mut block = [0; 16];
        block[..half].copy_from_slice(from);
        block[14] = u8::try_from(len).unwrap();
        block[15] = pass;
        cipher.encrypt(&mut block).unwrap();
        to.iter_mut().zip(block).for_each(|(byte, other)| *byte ^= other);
        clear(&mut left, &mut right);
    }
    text[..half].copy_from_slice(&left);
    text[half..].copy_from_slice(&right[half * 2 - len..]);
    if is_odd {
        text[half - 1] |= right[0];
    }
}

/// A header of the PROXY protocol, version 2, for a datagram of `client`, with a CRC32C as nginx adds one.
pub(crate) fn proxy_header(client: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(client) = client else { panic!("clients are at IPv4 addresses") };
    let addresses = [&client.ip().octets()[..], &[198, 51, 100, 1], &client.port().to_be_bytes(), &[1, 187]].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x13", &addresses[..], &[3, 0, 4, 1, 2, 3, 4]].concat()
}

/// A balancer that runs until it is dropped.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    /// Written before each datagram of a client, or before the first one of each of its flows.
    header: fn(SocketAddr) -> Vec<u8>,
    marks_first: AtomicBool,
    forgets: AtomicBool,
    /// None: by the source alone.
    by_id: Mutex<Vec<Routing>>,
    servers: Vec<SocketAddr>,
    routed: AtomicUsize,
}

impl Balancer {
    /// Before `servers`, among which the hash of the source chooses where no ID of `by_id` does.
    pub(crate) async fn before(servers: Vec<SocketAddr>, by_id: Vec<Routing>) -> Self {
        Self::with_headers(servers, by_id, |_| Vec::new()).await
    }

    /// The same, which writes a header before each datagram of a client.
    pub(crate) async fn with_headers(
        servers: Vec<SocketAddr>,
        by_id: Vec<Routing>,
        header: fn(SocketAddr) -> Vec<u8>,
    ) -> Self {
        let front = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let address = front.local_addr().unwrap();
        let (by_id, forgets, routed) = (Mutex::new(by_id), AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Arc::new(Shared { header, marks_first: AtomicBool::new(false), forgets, by_id, servers, routed });
        let mut tasks = JoinSet::new();
        tasks.spawn(run(front, Arc::clone(&shared)));
        Self { address, shared, _tasks: tasks }
    }

    /// From now on the first datagram of a flow alone has a header.
    pub(crate) fn mark_first(self) -> Self {
        self.shared.marks_first.store(true, Relaxed);
        self
    }

    /// Replaces the configurations.
    pub(crate) fn configure(&self, by_id: Vec<Routing>) {
        *self.shared.by_id.lock().unwrap() = by_id;
    }

    /// Forgets all flows: each client gets another port at the servers.
    pub(crate) fn forget_flows(&self) {
        self.shared.forgets.store(true, Relaxed);
    }

    /// Datagrams that went where their ID says.
    pub(crate) fn routed_by_id(&self) -> usize {
        self.shared.routed.load(Relaxed)
    }

    /// The index of the server that the hash of a source chooses.
    pub(crate) fn hashed(&self, source: SocketAddr) -> usize {
        self.shared.hashed(source)
    }
}

impl Shared {
    fn hashed(&self, source: SocketAddr) -> usize {
        (usize::from(source.port()).wrapping_mul(0x9e37_79b1) >> 16) % self.servers.len()
    }

    fn server(&self, datagram: &[u8], source: SocketAddr) -> SocketAddr {
        // RFC 8999 §5: a long header has its ID's length.
        let id = match datagram {
            [first, ..] if first & 0x80 == 0 => &datagram[1..],
            [_, _, _, _, _, len, rest @ ..] => rest.get(..usize::from(*len)).unwrap_or_default(),
            _ => &[],
        };
        match self.by_id.lock().unwrap().iter().find_map(|routing| routing.server(id)) {
            Some(server) => {
                self.routed.fetch_add(1, Relaxed);
                server
            }
            None => self.servers[self.hashed(source)],
        }
    }
}

/// Each client has a socket for each server, as its address is a balancer's port there.
async fn run(front: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut backs: HashMap<(SocketAddr, SocketAddr), Arc<UdpSocket>> = HashMap::new();
    let mut answers = JoinSet::new();
    let mut datagram = [0; 65_536];
    loop {
        let (len, client) = front.recv_from(&mut datagram).await.unwrap();
        if shared.forgets.swap(false, Relaxed) {
            backs.clear();
        }
        let server = shared.server(&datagram[..len], client);
        let mut has_header = !shared.marks_first.load(Relaxed);
        let back = match backs.get(&(client, server)) {
            Some(back) => Arc::clone(back),
            None => {
                has_header = true;
                let back = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
                let (from, to) = (Arc::clone(&back), Arc::clone(&front));
                answers.spawn(async move {
                    let mut datagram = [0; 65_536];
                    while let Ok((len, _)) = from.recv_from(&mut datagram).await {
                        let _ = to.send_to(&datagram[..len], client).await;
                    }
                });
                backs.insert((client, server), Arc::clone(&back));
                back
            }
        };
        // One that is gone refuses.
        let header = if has_header { (shared.header)(client) } else { Vec::new() };
        let _ = back.send_to(&[&header, &datagram[..len]].concat(), server).await;
    }
}

//! The floor under every server's cost: bytes read from the origin's TCP connection, sealed with AES-128-GCM in pieces
//! of 1456 bytes, sent by UDP with GSO, and nothing else: no streams, no acknowledgements, no congestion control, one
//! flow at a time. Its client only counts. Losses are reported, and void the run when they are large.

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use serde::{Deserialize, Serialize};
use std::{
    io::{ErrorKind, IoSliceMut, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// What is sealed at a time: with the tag and 28 bytes of headers it fills an MTU of 1500, as litequic's packets do.
const PIECE: usize = 1456; // bytes
const TAG: usize = 16; // bytes
/// The largest UDP payload of IPv4, which a GSO message must not exceed.
const LARGEST: usize = 65_507; // bytes
/// Receive and send buffers, as large as the lab's `rmem_max` lets them be.
const BUFFER: usize = 16 << 20; // bytes
/// What a request and the end of an answer begin with. Shorter than any tag, so no piece looks like it.
const GET: &str = "GET ";
const END: &str = "END ";
/// Without a datagram for so long the client gives up.
const SILENCE: Duration = Duration::from_secs(5);

/// Where the floor listens and what it reads.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Where it listens.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// The origin, plain HTTP/1.1.
    #[arg(long, value_name = "IP:PORT")]
    origin: SocketAddr,
}

/// The request of the floor's client.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// Where the floor listens.
    #[arg(long, value_name = "IP:PORT")]
    address: SocketAddr,
    /// The requested size.
    #[arg(long, value_name = "PATH")]
    path: String,
    /// How often, one after the other.
    #[arg(long, value_name = "R", default_value_t = 1)]
    requests: u64,
}

/// What the floor's client counted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Bytes of bodies that the server reports as sent.
    pub(crate) sent: u64,
    /// Bytes of bodies that arrived.
    pub(crate) received: u64,
    /// Answers whose end arrived.
    pub(crate) done: u64,
    /// All of it, seconds.
    pub(crate) seconds: f64,
}

/// Serves until it is killed.
pub(crate) fn serve(arguments: &ServerArguments) -> Result<()> {
    let socket = UdpSocket::bind(arguments.listen).with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let state = UdpSocketState::new((&socket).into())?;
    state.set_send_buffer_size((&socket).into(), BUFFER)?;
    let mut request = [0; PIECE];
    loop {
        wait(&socket, PollFlags::POLLIN, PollTimeout::NONE)?;
        let (length, client) = match socket.recv_from(&mut request) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("cannot receive"),
        };
        let text = String::from_utf8_lossy(request.get(..length).unwrap_or_default()).into_owned();
        if let Some(path) = text.strip_prefix(GET) {
            let sent = answer(&socket, &state, client, arguments.origin, path)?;
            socket.send_to(format!("{END}{sent}").as_bytes(), client).context("cannot send the end")?;
        }
    }
}

/// Fetches a body, seals and sends it; its length.
fn answer(
    socket: &UdpSocket,
    state: &UdpSocketState,
    client: SocketAddr,
    origin: SocketAddr,
    path: &str,
) -> Result<u64> {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).map(LessSafeKey::new).ok().context("no AES-128-GCM")?;
    let mut stream = TcpStream::connect(origin).with_context(|| format!("cannot reach the origin {origin}"))?;
    // At once: `write!` to a socket is a packet for each piece of the text.
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())?;
    let segments = (LARGEST / (PIECE + TAG)).min(state.max_gso_segments());
    let mut plain = Vec::with_capacity(segments * PIECE);
    let mut sealed = Vec::with_capacity(segments * (PIECE + TAG));
    let mut head = Some(Vec::new());
    let (mut number, mut sent) = (0_u64, 0);
    loop {
        let read = (&mut stream).take((segments * PIECE - plain.len()) as u64).read_to_end(&mut plain)?;
        // The origin's head is not the body's.
        if let Some(start) = &mut head {
            start.append(&mut plain);
            let Some(end) = start.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                bail!("the origin's head is too long")
            };
            if !start.starts_with(b"HTTP/1.1 200 ") {
                bail!("the origin does not say 200");
            }
            plain.extend(start.drain(..).skip(end + 4));
            head = None;
            continue;
        }
        if plain.is_empty() {
            return Ok(sent);
        }
        sent += plain.len() as u64;
        sealed.clear();
        for piece in plain.chunks(PIECE) {
            let mut nonce = [0; 12];
            if let Some(low) = nonce.last_chunk_mut() {
                *low = number.to_be_bytes();
            }
            number += 1;
            let begin = sealed.len();
            sealed.extend_from_slice(piece);
            let (_, body) = sealed.split_at_mut(begin);
            let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), body);
            sealed.extend_from_slice(tag.ok().context("cannot seal")?.as_ref());
        }
        plain.clear();
        let transmit = Transmit {
            destination: client,
            ecn: None,
            contents: &sealed,
            segment_size: Some(PIECE + TAG),
            src_ip: None,
        };
        while let Err(error) = state.try_send(socket.into(), &transmit) {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error).context("cannot send");
            }
            wait(socket, PollFlags::POLLOUT, PollTimeout::NONE)?;
        }
        if read == 0 {
            return Ok(sent);
        }
    }
}

/// Sends the requests, and prints the counts.
#[expect(clippy::print_stdout, reason = "a command: its report goes to standard output")]
pub(crate) fn print(arguments: &ClientArguments) -> Result<()> {
    println!("{}", serde_json::to_string(&ask(arguments)?)?);
    Ok(())
}

/// Sends the requests and counts.
fn ask(arguments: &ClientArguments) -> Result<Counted> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(arguments.address)?;
    let state = UdpSocketState::new((&socket).into())?;
    state.set_recv_buffer_size((&socket).into(), BUFFER)?;
    let began = Instant::now();
    let mut counted = Counted { sent: 0, received: 0, done: 0, seconds: 0.0 };
    let mut buffers = vec![vec![0; u16::MAX as usize]; BATCH_SIZE];
    for _ in 0..arguments.requests {
        socket.send(format!("{GET}{}", arguments.path).as_bytes())?;
        let mut asked = true;
        while asked {
            let mut slices: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let count = match state.recv((&socket).into(), &mut slices, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !wait(&socket, PollFlags::POLLIN, PollTimeout::try_from(SILENCE)?)? {
                        bail!("silence for {} s", SILENCE.as_secs());
                    }
                    continue;
                }
                Err(error) => return Err(error).context("cannot receive"),
            };
            for (meta, buffer) in metas.iter().zip(&slices).take(count) {
                let datagrams = meta.len.div_ceil(meta.stride.max(1));
                let bytes = buffer.get(..meta.len).unwrap_or_default();
                if let Some(end) = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(END)) {
                    counted.sent += end.parse::<u64>().context("a broken end")?;
                    counted.done += 1;
                    asked = false;
                } else {
                    counted.received += (meta.len - (datagrams * TAG).min(meta.len)) as u64;
                }
            }
        }
    }
    counted.seconds = began.elapsed().as_secs_f64();
    Ok(counted)
}

/// Waits until the socket is ready; not when time is over.
fn wait(socket: &UdpSocket, what: PollFlags, time: PollTimeout) -> Result<bool> {
    Ok(poll(&mut [PollFd::new(socket.as_fd(), what)], time)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    #[test]
    fn every_byte_of_a_body_is_sent_sealed_and_counted() {
        const BODY: usize = 3 * PIECE + 7;
        let origin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let origin_address = origin.local_addr().unwrap();
        thread::spawn(move || {
            for stream in origin.incoming() {
                let mut stream = stream.unwrap();
                // All of it: a socket that is closed with bytes unread resets its connection.
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.extend(byte);
                }
                write!(stream, "HTTP/1.1 200 OK\r\n\r\n").unwrap();
                stream.write_all(&[1; BODY]).unwrap();
            }
        });
        let listen = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        thread::spawn(move || serve(&ServerArguments { listen, origin: origin_address }).unwrap());
        let ask = || ask(&ClientArguments { address: listen, path: "/b".to_owned(), requests: 2 });
        // The server's thread may still be on its way to the socket.
        let end = Instant::now() + Duration::from_secs(10);
        let counted = loop {
            match ask() {
                Ok(counted) => break counted,
                Err(error) if Instant::now() > end => panic!("{error}"),
                Err(_) => {}
            }
        };
        assert_eq!((counted.sent, counted.received, counted.done), (2 * BODY as u64, 2 * BODY as u64, 2));
    }
}

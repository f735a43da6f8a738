//! Whole connections over TCP, HTTP/1.1 and HTTP/2 over TLS and plain HTTP/1.1, whose clients send whatever they want
//! in whatever pieces: nothing panics, each connection ends within its timeouts, what the server sends is frames or
//! nothing but responses, and no memory stays accounted to a connection that has ended.
//!
//! The first byte is the settings, the second the number of pieces whose lengths follow; the rest is what the client
//! sends.
#![no_main]

mod support;

use libfuzzer_sys::fuzz_target;
use litequic_base::lifecycle::{Lifecycle, ProcessPhase};
use litequic_config::{Config, OriginAddress};
use litequic_exchange::{AdvertisedPort, CertificateRequest, Client, RequestRecorder, terms::CurrentTerms};
use litequic_quic::Secrets;
use litequic_resources::{
    connections::ConnectionPool,
    descriptors::{DescriptorDivision, Descriptors},
    memory::MemoryPressure,
    receive::ReceiveBudget,
    send::SendBudget,
};
use litequic_tcp::{self as tcp, TcpWorker};
use litequic_telemetry::clients::TransportReport;
use litequic_tls::{ServerTrust, TcpTls, client_config};
use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    rc::Rc,
    sync::{Arc, OnceLock},
};
use support::{answers::Answers, certificates, on_a_worker, settle};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::spawn_local,
};
use tokio_rustls::TlsConnector;

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS without any, which a client's first frame has to be.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// SETTINGS_MAX_FRAME_SIZE, by default.
const LARGEST_FRAME: usize = 16 * 1024;
/// A budget of 1 MiB.
const BUDGET: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((script, bytes)) = Script::of(input) else { return };
    on_a_worker(|| connection(script, bytes));
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Http1,
    Http2,
}

#[derive(Debug)]
struct Script<'a> {
    kind: Kind,
    /// The bytes are HTTP/2's frames without their headers: type, flags, stream, length, payload.
    has_frames: bool,
    /// The client keeps the connection open when it has sent all.
    stays: bool,
    /// The client reads nothing before it has sent all.
    is_deaf: bool,
    /// The client sends the preface of its own accord.
    is_bare: bool,
    /// The process drains in the middle.
    drains: bool,
    /// Lengths of pieces; what is left of the bytes is the last one.
    lengths: &'a [u8],
}

impl<'a> Script<'a> {
    fn of(input: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[settings, pieces], rest) = input.split_first_chunk::<2>()?;
        let (lengths, bytes) = rest.split_at_checked(usize::from(pieces & 31))?;
        let kind = match settings & 3 {
            0 => Kind::Plain,
            1 => Kind::Http1,
            _ => Kind::Http2,
        };
        let is = |bit: u8| settings & bit > 0;
        let script = Self {
            kind,
            has_frames: settings & 1 == 0,
            stays: is(4),
            is_deaf: is(8),
            is_bare: is(16),
            drains: is(32),
            lengths,
        };
        Some((script, bytes))
    }
}

async fn connection(script: Script<'_>, bytes: &[u8]) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.set_nonblocking(true).expect("a mode of sockets");
    let address = listener.local_addr().expect("an address");
    let origin = OriginAddress::Tcp { host: "192.0.2.1".into(), port: 80 };
    let config = Config::with_defaults(address, origin, PathBuf::new(), PathBuf::new()).into_live();
    let (lifecycle, budget) = (Lifecycle::default(), SendBudget::for_worker(BUDGET));
    let receive = ReceiveBudget::new(BUDGET, 0);
    let holders = Rc::default();
    let front = Rc::new(TcpWorker {
        terms: CurrentTerms::new(config),
        metrics: Arc::default(),
        handler: Rc::new(Answers),
        covers: Rc::new(|_: &Client, host: &str| host != "elsewhere.test"),
        transport: |_| TransportReport::default(),
        send: Rc::clone(&budget),
        receive: receive.clone(),
        pressure: MemoryPressure::default(),
        registry: Rc::clone(&holders),
        pool: if script.kind == Kind::Plain { ConnectionPool::Plain } else { ConnectionPool::Tls },
        descriptors: Arc::new(Descriptors::new(DescriptorDivision { limit: 1000, fixed: 100 })),
        workers: 1,
        watch: lifecycle.watch_phase(),
        records: RequestRecorder::default(),
        denied: Arc::default(),
    });
    let server = if script.kind == Kind::Plain {
        spawn_local(tcp::serve_plain(listener, front))
    } else {
        let choose =
            Box::new(|name: Option<&str>, local, is_old| server_tls().choose_server_config(name, local, is_old));
        let tls = Rc::new(tcp::HandshakeConfig { choose, validation: Box::new(|_| Box::pin(async { None })) });
        spawn_local(tcp::serve_tls(listener, front, tls, AdvertisedPort::Fixed(443)))
    };
    let received = client(&script, bytes, address, &lifecycle).await;
    match script.kind {
        Kind::Http2 => check_frames(&received),
        Kind::Plain | Kind::Http1 => {
            let begins = &received[..received.len().min(5)];
            assert_eq!(begins, &b"HTTP/1.1"[..begins.len()], "{:?}", received.escape_ascii().to_string());
        }
    }
    lifecycle.advance_phase(ProcessPhase::Draining);
    server.await.expect("no panic").expect("a listener");
    assert_eq!(
        (budget.leased_bytes(), receive.buffered_bytes(), receive.granted_bytes()),
        (0, 0, 0),
        "of a connection that has ended"
    );
}

/// Sends everything, and reads until the end of the connection.
async fn client(script: &Script<'_>, bytes: &[u8], address: SocketAddr, lifecycle: &Lifecycle) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("an option of sockets");
    if script.kind == Kind::Plain {
        return talk(script, bytes.to_vec(), stream, lifecycle).await;
    }
    let mut config = client_config(&ServerTrust::Insecure).expect("a configuration");
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![if script.kind == Kind::Http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = "a.test".try_into().expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    let bytes = match script.kind {
        Kind::Http2 if script.has_frames => [PREFACE, SETTINGS, &frames(bytes)].concat(),
        Kind::Http2 if !script.is_bare => [PREFACE, SETTINGS, bytes].concat(),
        _ => bytes.to_vec(),
    };
    talk(script, bytes, stream, lifecycle).await
}

async fn talk(
    script: &Script<'_>,
    bytes: Vec<u8>,
    stream: impl AsyncRead + AsyncWrite + 'static,
    lifecycle: &Lifecycle,
) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let read = async move {
        let mut received = Vec::new();
        // Also of a connection that is reset.
        while reader.read_buf(&mut received).await.is_ok_and(|read| read > 0) {}
        received
    };
    let reading = (!script.is_deaf).then(|| spawn_local(read));
    let mut rest = &bytes[..];
    for length in script.lengths {
        let (piece, later) = rest.split_at(rest.len().min(usize::from(*length)));
        if writer.write_all(piece).await.is_err() || writer.flush().await.is_err() {
            break;
        }
        settle().await;
        rest = later;
    }
    if script.drains {
        lifecycle.advance_phase(ProcessPhase::Draining);
        settle().await;
    }
    let _ = writer.write_all(rest).await;
    let _ = writer.flush().await;
    settle().await;
    if !script.stays {
        let _ = writer.shutdown().await;
    }
    match reading {
        Some(reading) => reading.await.expect("no panic"),
        None => Vec::new(),
    }
}

/// HTTP/2's frames from shorter ones, so that a mutation does not shift all that follow.
fn frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Some((&[kind, flags, stream, length], rest)) = bytes.split_first_chunk::<4>() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(length)));
        frames.extend([0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream]);
        frames.extend_from_slice(payload);
        bytes = rest;
    }
    frames
}

/// What a server sends is whole frames, but for the last one, and none is too large.
fn check_frames(mut bytes: &[u8]) {
    while let Some((&[a, b, c, kind, _, d, e, f, g], rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([d, e, f, g]);
        assert!(length <= LARGEST_FRAME, "{length}");
        // Of RFC 9113 §6 without PUSH_PROMISE.
        assert!(kind < 10 && kind != 5, "{kind}");
        assert_eq!(matches!(kind, 4 | 6 | 7), stream == 0 && kind != 8, "{kind} on {stream}");
        let Some(rest) = rest.get(length..) else { return };
        bytes = rest;
    }
}

/// The server's side of TLS, made once: its randomness is aws-lc's.
fn server_tls() -> &'static TcpTls {
    static TLS: OnceLock<TcpTls> = OnceLock::new();
    TLS.get_or_init(|| {
        let secrets = Secrets::from_random().expect("random bytes");
        let tls = TcpTls::new(certificates(), false, &secrets.tickets, |_| CertificateRequest::None);
        tls.expect("a configuration")
    })
}

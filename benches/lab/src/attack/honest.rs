//! The honest client: a new connection and a small request every 200 ms over each protocol, and to the status port,
//! each with a patience of 2 s. Each comes from another address than the one before and attackers, as of different
//! clients.

use super::{
    Target, quic, source, tcp,
    wire::{self, Ask, is_h3_response},
};
use crate::client::{print, raise_limits, run, tls};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use litequic_testkit::h3;
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::{JoinSet, spawn_local},
    time::{sleep_until, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Addresses that the honest client connects from, in turn.
const ADDRESSES: u32 = 250;
/// Between two requests over a protocol.
const EVERY: Duration = Duration::from_millis(200);
/// For a request, its connection and handshake included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The requested path.
const BODY: u64 = 1_000; // bytes
/// Of a status answer that is read.
const LONGEST: u64 = 1 << 20; // bytes

/// How it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    H3,
    H2,
    H1,
    /// The status port.
    Status,
}

impl Protocol {
    pub(crate) const ALL: [Self; 4] = [Self::H3, Self::H2, Self::H1, Self::Status];

    /// As figures' names have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::H3 => "h3",
            Self::H2 => "h2",
            Self::H1 => "h1",
            Self::Status => "status",
        }
    }
}

/// The server.
#[derive(Debug, Args)]
pub(crate) struct HonestArguments {
    #[command(flatten)]
    target: Target,
    /// The path of its status.
    #[arg(long)]
    status_path: String,
    /// For so many seconds; once where they are 0.
    #[arg(long)]
    seconds: f64,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Honest {
    /// For each request, by protocol: microseconds, or none where it failed.
    pub(crate) requests: BTreeMap<Protocol, Vec<Option<u64>>>,
    /// Why they failed, and how often.
    pub(crate) failures: BTreeMap<String, u64>,
}

impl Honest {
    /// Requests of these protocols, and those of them that succeeded.
    pub(crate) fn served(&self, protocols: &[Protocol]) -> (usize, usize) {
        let of = self.of(protocols);
        (of.len(), of.iter().filter(|time| time.is_some()).count())
    }

    /// What a share `at` of 1 of their times does not exceed, microseconds; a request that failed took all patience.
    pub(crate) fn quantile(&self, protocols: &[Protocol], at: f64) -> Option<f64> {
        let patience = u64::try_from(PATIENCE.as_micros()).unwrap_or(u64::MAX);
        let mut times: Vec<u64> = self.of(protocols).into_iter().map(|time| time.unwrap_or(patience)).collect();
        times.sort_unstable();
        times.get(rank(times.len(), at)).map(|time| *time as f64)
    }

    fn of(&self, protocols: &[Protocol]) -> Vec<Option<u64>> {
        protocols.iter().filter_map(|protocol| self.requests.get(protocol)).flatten().copied().collect()
    }

    fn add(&mut self, protocol: Protocol, outcome: Result<Duration>) {
        let time = match outcome {
            Ok(time) => u64::try_from(time.as_micros()).ok(),
            Err(why) => {
                *self.failures.entry(format!("{}: {why:#}", protocol.name())).or_default() += 1;
                None
            }
        };
        self.requests.entry(protocol).or_default().push(time);
    }
}

/// Where in so many sorted values the quantile is, by the nearest rank.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn rank(length: usize, at: f64) -> usize {
    ((length as f64 * at).ceil() as usize).clamp(1, length.max(1)) - 1
}

/// Sends requests for so long, and prints the result on standard output.
pub(crate) fn honest(arguments: &HonestArguments) -> Result<()> {
    raise_limits()?;
    let report = run(async {
        let client = Rc::new(Client {
            target: arguments.target.clone(),
            status_path: arguments.status_path.clone(),
            tls: RefCell::new(tls::Configs::new(&arguments.target.ca)?),
        });
        // The first of each in a process also loads code and tables, which is not the server's doing.
        for protocol in Protocol::ALL.into_iter().filter(|_| arguments.seconds > 0.0) {
            let _ = client.timed(protocol, 0).await;
        }
        let (began, mut at) = (Instant::now(), Duration::ZERO);
        let (mut tasks, mut report) = (JoinSet::new(), Honest::default());
        let mut sources = (0..ADDRESSES).cycle();
        loop {
            for (protocol, from) in Protocol::ALL.into_iter().zip(&mut sources) {
                let client = Rc::clone(&client);
                tasks.spawn_local(async move { (protocol, client.timed(protocol, from).await) });
            }
            at += EVERY;
            if at.as_secs_f64() >= arguments.seconds {
                break;
            }
            sleep_until((began + at).into()).await;
        }
        while let Some(done) = tasks.join_next().await {
            let (protocol, outcome) = done?;
            report.add(protocol, outcome);
        }
        Ok(report)
    })?;
    print(&report)
}

struct Client {
    target: Target,
    status_path: String,
    tls: RefCell<tls::Configs>,
}

impl Client {
    /// Makes a request from the `nth` address, and returns how long it took.
    async fn timed(&self, protocol: Protocol, nth: u32) -> Result<Duration> {
        let began = Instant::now();
        let from = |to: SocketAddr| source::honest(nth, to);
        let (from, from_for_status) = (from(self.target.address), from(self.target.probes));
        let asked: Pin<Box<dyn Future<Output = Result<()>>>> = match protocol {
            Protocol::H3 => Box::pin(self.h3(from)),
            Protocol::H2 => Box::pin(self.h2(from)),
            Protocol::H1 => Box::pin(self.h1(from)),
            Protocol::Status => Box::pin(self.status(from_for_status)),
        };
        let Ok(outcome) = timeout(PATIENCE, asked).await else { bail!("not within 2 s") };
        outcome.map(|()| began.elapsed())
    }

    async fn h3(&self, from: IpAddr) -> Result<()> {
        let config = quic::config(&mut self.tls.borrow_mut(), None)?;
        let endpoint = quic::endpoint(from)?;
        let connection = endpoint.connect_with(config, self.target.address, tls::NAME)?.await?;
        let mut control = connection.open_uni().await?;
        control.write_all(&h3::CONTROL_STREAM).await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&wire::h3_headers(Ask::Get(BODY))).await?;
        send.finish()?;
        let stream = receive.read_to_end(usize::try_from(LONGEST)?).await?;
        ensure!(is_h3_response(&stream, usize::try_from(BODY)?), "another answer than 200");
        connection.close(0x100u32.into(), b"");
        // The close leaves with the endpoint's task.
        Ok(())
    }

    async fn secure(&self, from: IpAddr, protocol: &'static str) -> Result<TokioIo<TlsStream<TcpStream>>> {
        let config = self.tls.borrow_mut().of(protocol)?;
        let stream = tcp::connect(from, self.target.address, None).await?;
        Ok(TokioIo::new(TlsConnector::from(config).connect(tls::name()?, stream).await?))
    }

    async fn h2(&self, from: IpAddr) -> Result<()> {
        let stream = self.secure(from, "h2").await?;
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
        // Ends with its sender.
        spawn_local(connection);
        let path = format!("https://{}{}", tls::NAME, Ask::Get(BODY).path());
        check(sender.send_request(Request::get(path).body(Empty::<bytes::Bytes>::new())?).await?).await
    }

    async fn h1(&self, from: IpAddr) -> Result<()> {
        let stream = self.secure(from, "http/1.1").await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        spawn_local(connection);
        let request = Request::get(Ask::Get(BODY).path()).header("host", tls::NAME);
        check(sender.send_request(request.body(Empty::<bytes::Bytes>::new())?).await?).await
    }

    async fn status(&self, from: IpAddr) -> Result<()> {
        let mut stream = tcp::connect(from, self.target.probes, None).await?;
        stream.write_all(&wire::status(&self.status_path, self.target.probes)).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        let line = answer.split(|byte| *byte == b'\r').next().context("no answer")?;
        ensure!(line.starts_with(b"HTTP/1.1 200") || line.starts_with(b"HTTP/1.0 200"), "another answer than 200");
        Ok(())
    }
}

/// The whole of an answer.
async fn check(response: Response<Incoming>) -> Result<()> {
    ensure!(response.status() == 200, "status {}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(body.len() as u64 == BODY, "{} bytes", body.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_failed_took_all_patience() {
        let mut honest = Honest::default();
        for time in 1..=98 {
            honest.add(Protocol::H3, Ok(Duration::from_micros(time)));
        }
        honest.add(Protocol::H2, Err(anyhow::anyhow!("reset")));
        honest.add(Protocol::H2, Err(anyhow::anyhow!("reset")));
        let both = [Protocol::H3, Protocol::H2];
        assert_eq!((honest.served(&both), honest.served(&[Protocol::H2])), ((100, 98), (2, 0)));
        assert_eq!(honest.quantile(&both, 0.5), Some(50.0));
        assert_eq!(honest.quantile(&both, 0.98), Some(98.0));
        assert_eq!(honest.quantile(&both, 0.99), Some(2_000_000.0));
        assert_eq!(honest.quantile(&[Protocol::H1], 0.5), None);
        assert_eq!(honest.failures, BTreeMap::from([("h2: reset".to_owned(), 2)]));
    }
}

//! Known answers: what a path must do to traffic of which the outcome is known without it.

use super::{handle::Link, path::Path, summary::Report};
use crate::bench::{
    interrupt,
    namespace::{Network, inside},
    say,
};
use anyhow::{Context as _, Result, bail};
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use quinn_udp::{Transmit, UdpSocketState};
use std::{
    ffi::OsString,
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    ops::RangeInclusive,
    path::Path as FilePath,
    thread,
    time::{Duration, Instant},
};

const SERVER: &str = "192.0.2.1:5000";
const CLIENT: &str = "192.0.2.2:5000";
/// A burst, and what a queue of 50 kB holds of it: 40 × 1228 is 49,120.
const BURST: usize = 52;
const PAYLOAD: usize = 1_200;
const HOLDS: usize = 40;
/// Round trips of the ping.
const PINGS: usize = 200;
/// For anything that must come.
const PATIENCE: Duration = Duration::from_secs(5);
/// For how long a TCP connection sends, and what of it counts: all but its beginning.
const SENDS: Duration = Duration::from_secs(7);
const BEGINNING: Duration = Duration::from_secs(2);
/// Of 100 Mbit/s 96.5 are payload, in packets of 1500 bytes with timestamps. Seen over many runs, beside other work
/// too: 91 to 96.5 with either congestion control.
const RATES: RangeInclusive<f64> = 85.0..=97.0; // Mbit/s
/// A run that the machine disturbed is repeated.
const TRIES: usize = 5;

/// Goes through all of them; an error when one is wrong.
pub(super) fn check(network: &Network, folder: &FilePath) -> Result<()> {
    type Answer = fn(&Network) -> Result<(String, bool)>;
    let questions: [(&str, &str, Answer); 4] = [
        ("52 packets of 1228 bytes at once into 50 kB leave 40", "rate=1M,rtt=20ms,buffer=50kB", burst),
        ("a ping over 2 × 10 ms takes 19.95 to 20.8 ms in the median", "rtt=20ms,super=off", ping),
        ("CUBIC over 100 Mbit/s, 20 ms, 1 BDP gets 85 to 97 Mbit/s", "rate=100M,rtt=20ms,buffer=1bdp", |network| {
            tcp(network, "cubic")
        }),
        ("BBR over 100 Mbit/s, 20 ms, 1 BDP gets 85 to 97 Mbit/s", "rate=100M,rtt=20ms,buffer=1bdp", |network| {
            tcp(network, "bbr")
        }),
    ];
    let (mut wrong, mut void) = (0, 0);
    for (question, path, answer) in questions {
        let path: Path = path.parse()?;
        let (mut last, mut said) = (String::new(), "WRONG");
        for _ in 0..TRIES {
            interrupt::check()?;
            let link = Link::start(network, &path, None, folder)?;
            let answered = answer(network);
            let report = link.finish()?;
            let (answer, is_right) = answered?;
            said = match (&report.void, is_right) {
                (Some(_), _) => "VOID",
                (None, true) => "right",
                (None, false) => "WRONG",
            };
            last = format!("{answer}; {}", kept_time(&report));
            if said == "right" {
                break;
            }
        }
        say(&format!("{said}: {question}: {last}"));
        wrong += usize::from(said == "WRONG");
        void += usize::from(said == "VOID");
    }
    if wrong + void > 0 {
        bail!("of the known answers {wrong} are wrong, and {void} could not be had");
    }
    Ok(())
}

fn kept_time(report: &Report) -> String {
    let late = report.lateness_us;
    let void = report.void.as_ref().map(|void| format!("; {void}")).unwrap_or_default();
    let share = report.cpu_seconds / report.seconds.max(1e-9) * 100.0;
    let (p50, p99, worst) = (late.p50, late.p99, late.p99_9);
    format!("late by {p50} µs in the median, p99 {p99}, p99.9 {worst}; {share:.0} % of a core{void}")
}

/// One message that the kernel segments, so that all packets come at once.
fn burst(network: &Network) -> Result<(String, bool)> {
    let receiver = inside(&network.client.namespace, || bound(CLIENT))?;
    let sender = inside(&network.server.namespace, || bound(SERVER))?;
    let state = UdpSocketState::new((&sender).into())?;
    let contents: Vec<u8> = (0..BURST * PAYLOAD).map(|at| u8::try_from(at / PAYLOAD).unwrap_or_default()).collect();
    let destination = CLIENT.parse()?;
    state.send(
        (&sender).into(),
        &Transmit { destination, ecn: None, contents: &contents, segment_size: Some(PAYLOAD), src_ip: None },
    )?;
    let mut buffer = [0; 2 * PAYLOAD];
    let mut numbers = Vec::new();
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    loop {
        match receiver.recv(&mut buffer) {
            Ok(PAYLOAD) => {
                let (first, rest) = buffer.get(..PAYLOAD).and_then(<[u8]>::split_first).context("an empty datagram")?;
                if rest.iter().any(|byte| byte != first) {
                    bail!("a datagram arrived changed");
                }
                numbers.push(usize::from(*first));
            }
            Ok(length) => bail!("a datagram of {length} bytes arrived"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let right = numbers.iter().copied().eq(0..HOLDS);
    Ok((format!("{} came", numbers.len()), right))
}

fn ping(network: &Network) -> Result<(String, bool)> {
    let echo = inside(&network.client.namespace, || bound(CLIENT))?;
    let socket = inside(&network.server.namespace, || bound(SERVER))?;
    socket.connect(CLIENT)?;
    thread::scope(|scope| {
        scope.spawn(move || -> Result<()> {
            let mut buffer = [0; 64];
            for _ in 0..PINGS {
                let (length, from) = echo.recv_from(&mut buffer)?;
                echo.send_to(buffer.get(..length).unwrap_or_default(), from)?;
            }
            Ok(())
        });
        let mut times = Vec::new();
        for number in 0..PINGS {
            let (sent, number) = (Instant::now(), number.to_be_bytes());
            socket.send(&number)?;
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).context("a ping got lost")?;
            if buffer.get(..length) != Some(number.as_slice()) {
                bail!("another ping came back");
            }
            times.push(sent.elapsed());
        }
        times.sort();
        let median = times.get(PINGS / 2).copied().unwrap_or_default();
        let right = (Duration::from_micros(19_950)..=Duration::from_micros(20_800)).contains(&median);
        Ok((format!("{:.2} ms", median.as_secs_f64() * 1e3), right))
    })
}

fn tcp(network: &Network, congestion_control: &str) -> Result<(String, bool)> {
    let listener = inside(&network.client.namespace, || Ok(TcpListener::bind(CLIENT)?))?;
    let mut stream = inside(&network.server.namespace, || Ok(TcpStream::connect_timeout(&CLIENT.parse()?, PATIENCE)?))?;
    setsockopt(&stream, TcpCongestion, &OsString::from(congestion_control))
        .with_context(|| format!("this kernel has no {congestion_control}"))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut received, _) = listener.accept()?;
    received.set_read_timeout(Some(PATIENCE))?;
    thread::scope(|scope| {
        scope.spawn(move || -> Result<()> {
            let (begin, piece) = (Instant::now(), vec![7; 256 * 1024]);
            while begin.elapsed() < SENDS {
                stream.write_all(&piece)?;
            }
            Ok(())
        });
        let (mut buffer, begin) = (vec![0; 256 * 1024], Instant::now());
        let (mut bytes, mut counted_from) = (0_u64, None);
        loop {
            let length = received.read(&mut buffer)?;
            let now = Instant::now();
            if length == 0 || now >= begin + SENDS {
                break;
            }
            match counted_from {
                None if now >= begin + BEGINNING => counted_from = Some(now),
                None => {}
                Some(_) => bytes += length as u64,
            }
        }
        let seconds = counted_from.context("nothing came")?.elapsed().as_secs_f64();
        // The rest, so that the sender sees no reset.
        while received.read(&mut buffer)? > 0 {}
        let rate = bytes as f64 * 8e-6 / seconds;
        Ok((format!("{rate:.1} Mbit/s"), RATES.contains(&rate)))
    })
}

fn bound(address: &str) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

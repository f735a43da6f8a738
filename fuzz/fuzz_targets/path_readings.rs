//! A path, the steps of an origin that reads it, and a route's prefix: what the origin reads as below the prefix is
//! either sent by its route, or refused; what is sent goes on byte for byte.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use litequic_config::{Config, PathReading, RouteConfig};
use litequic_exchange::{
    self as exchange, Authority, Client, Fields, Head, LastForwarded, MAX_READINGS, Protocol, TlsIdentity, name,
};
use litequic_proxy::{Routing, convert_request_head};
use std::sync::LazyLock;

const PROTECTED: [&str; 5] = ["/a", "/b/a", "/b/a/b", "/b/c/b", "/Ab"];
const DECODINGS: u32 = 2;

static ROUTING: LazyLock<[Routing; 2]> = LazyLock::new(|| [PathReading::Any, PathReading::CaseSensitive].map(routing));

fn routing(path_reading: PathReading) -> Routing {
    let origin = "http://127.0.0.1:80".parse().expect("an origin");
    let mut config = Config::with_defaults(([127, 0, 0, 1], 443).into(), origin, "cert".into(), "key".into());
    let route = |(number, prefix): (usize, &str)| RouteConfig {
        path_prefix: prefix.into(),
        // Shows the route of a request.
        rewrite_host: Some(format!("r{number}")),
        ..RouteConfig::catch_all(Config::ORIGIN_NAME)
    };
    config.routes = PROTECTED.into_iter().chain(["/"]).enumerate().map(route).collect();
    config.origins.values_mut().for_each(|origin| origin.path_reading = path_reading);
    Routing::new(&config)
}

fuzz_target!(|input: (bool, [u8; 6], &[u8])| {
    let (ignore_case, steps, bytes) = input;
    let Ok(path) = std::str::from_utf8(bytes) else { return };
    if exchange::check_path(&Method::GET, bytes).is_err() {
        return;
    }
    let head = Head::new(Method::GET, Authority::new("a.test"), path, Fields::new());
    let readings: Vec<_> = exchange::path_readings(head.path_without_query()).collect();
    assert!((1..=MAX_READINGS.into()).contains(&readings.len()));
    for reading in &readings {
        assert!(reading.len() <= head.path_without_query().len() && !reading.windows(2).any(|two| two == b"//"));
    }
    assert!(
        exchange::may_have_readings(head.path_without_query(), false)
            || readings == [head.path_without_query().as_bytes()]
    );

    let mut decodings = 0;
    let mut served = head.path_without_query().as_bytes().to_vec();
    for step in steps {
        match step % 7 {
            0 if decodings < DECODINGS => {
                decodings += 1;
                served = decoded(&served);
            }
            1 => served = cut(&served),
            2 => served.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/'),
            3 => served.dedup_by(|second, first| (*first, *second) == (b'/', b'/')),
            4 => {
                served.truncate(served.iter().position(|byte| matches!(byte, 0 | b'?' | b'#')).unwrap_or(served.len()))
            }
            5 if ignore_case => served.make_ascii_lowercase(),
            _ => {}
        }
    }
    let Some(route) = taken(&ROUTING[usize::from(!ignore_case)], head.clone()) else { return };
    let below = |prefix: &&str| {
        let prefix = if ignore_case { prefix.to_ascii_lowercase() } else { (*prefix).to_owned() };
        let read = if ignore_case { served.to_ascii_lowercase() } else { served.clone() };
        read.strip_prefix(prefix.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    if let Some(protected) = PROTECTED.iter().filter(|prefix| below(prefix)).max_by_key(|prefix| prefix.len()) {
        let by = PROTECTED.get(route).copied().unwrap_or("/");
        assert!(by.len() >= protected.len(), "served as {protected}, by the route for {by}");
    }
});

/// The number of the route that a request goes by.
fn taken(routing: &Routing, mut head: Head) -> Option<usize> {
    let client = Client {
        address: ([192, 0, 2, 7], 1).into(),
        local: ([192, 0, 2, 1], 443).into(),
        protocol: Protocol::Http3,
        server_name: None,
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    };
    convert_request_head(routing, &mut head, &client).ok()?;
    assert_eq!(head.target(), head.path_and_query());
    let host = head.fields.get(name::HOST).expect("a host");
    std::str::from_utf8(&host[1..]).expect("digits").parse().ok()
}

fn decoded(path: &[u8]) -> Vec<u8> {
    let digit = |at: usize| path.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = path.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high << 4 | low).expect("a byte"));
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

fn cut(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/').map(|segment| segment.split(|byte| *byte == b';').next());
    segments.map(Option::unwrap_or_default).collect::<Vec<_>>().join(&b'/')
}

//! The keys of an origin: its servers, how requests are spread over them, and the connections to each.

use super::{COUNT, DAY, TIMEOUT};
use crate::config::{
    AmbiguousFields, Balance, Health, Origin, OriginAddress, Statuses, StatusesError,
    names::{authority, origin_address},
    section::Section,
    values::{Given, Kind, boolean, duration, number, one_of, or_none, share, size, text},
};
use serde_json::json;
use std::{ops::RangeInclusive, path::Path, time::Duration};

/// More is better left to the client, which waits.
const REQUEST_BUFFER: RangeInclusive<u64> = 0..=1024 * 1024;
/// Less would ask a name server without pause.
const DNS_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
/// Less would be a load of its own.
const HEALTH_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
/// Of answers in a row: more is longer than anybody waits.
const STREAK: RangeInclusive<u64> = 1..=1000;
/// What fits into `sun_path` with its final zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

pub(super) fn origin(section: &mut Section<'_>, directory: &Path) -> Option<Origin> {
    let servers = servers(section, directory);
    // Every key is asked for before the first `?`: what is not asked for is unknown.
    let balance = section.value(
        "balance",
        one_of(Balance::NAMES),
        Balance::RoundRobin,
        "Which server gets the next request: \
            one after the other, or the one on which the fewest requests of this worker are open, in turn where \
            several are.",
    );
    let eject_after = section.value(
        "eject_after",
        or_none(number(STREAK)),
        Origin::EJECT_AFTER,
        "After how many failures in a row a worker leaves a server out.",
    );
    let about = "Answers that count as failures, such as `[\"502-504\"]`. Without them, a server fails by what it does not \
        answer: a client that asks for a URL whose answer is a 503 must not have it left out.";
    let eject_statuses = section.list("eject_statuses", statuses(), 0..=Health::MAX_STATUSES, &[], about);
    let eject_time = section.value(
        "eject_time",
        duration(TIMEOUT),
        Origin::EJECT_TIME,
        "For how long, the first time; twice, four and eight times as long while it does not get better.",
    );
    let max_ejected = section.value(
        "max_ejected",
        share(),
        Origin::MAX_EJECTED,
        "The share of the servers that a worker leaves out at a time; one in any case, and never the last that is \
        well.",
    );
    let retry_share = section.value(
        "retry_share",
        or_none(share()),
        Origin::RETRY_SHARE,
        "Requests that may be sent again, as a share of those that come. With `\"none\"` only `retry_minimum` permits any.",
    );
    let retry_minimum = section.value(
        "retry_minimum",
        number(0..=*COUNT.end()),
        Origin::RETRY_MINIMUM,
        "Requests a second that may be sent again beyond that share, ten seconds' worth at once.",
    );
    let proxy_protocol = section.value(
        "proxy_protocol",
        boolean(),
        false,
        "Whether a connection to the origin begins with the client's address: the PROXY protocol, version 2.",
    );
    let has_health = section.has("health");
    let health = section.table(
        "health",
        "A request that each server is asked now and then, by GET. Without this \
        table there is none.",
        health,
    );
    let max_connections =
        section.value("max_connections", number(COUNT), Origin::MAX_CONNECTIONS, "Connections to a server at most.");
    let max_queue = section.value(
        "max_queue",
        number(0..=*COUNT.end()),
        Origin::MAX_QUEUE,
        "Requests that wait for a connection; further ones are answered 503.",
    );
    let request_buffer = section.value(
        "request_buffer",
        size(REQUEST_BUFFER),
        Origin::REQUEST_BUFFER,
        "Bytes of a request's body that are read before the request gets a connection: the whole of a body that is no \
        longer, by its Content-Length, the first bytes of any other. A slow client so holds no connection until it has \
        sent something. 0 reads nothing ahead.",
    );
    let idle_timeout = section.value(
        "idle_timeout",
        duration(TIMEOUT),
        Origin::IDLE_TIMEOUT,
        "An idle connection is closed after that long. Keep it below the origin's own keep-alive timeout, so that \
        litequic closes first.",
    );
    let max_age = section.value(
        "max_age",
        or_none(duration(TIMEOUT)),
        Origin::MAX_AGE,
        "A connection is not used again beyond this age, so that a name's new addresses get traffic.",
    );
    let dns_interval = section.value(
        "dns_interval",
        duration(DNS_INTERVAL),
        Origin::DNS_INTERVAL,
        "A name is looked up again after that long.",
    );
    let ambiguous_fields = section.value(
        "ambiguous_fields",
        one_of(AmbiguousFields::NAMES),
        AmbiguousFields::default(),
        "What becomes of request fields with `_` in their names, or anything else but letters, digits and `-`. CGI, \
        FastCGI, WSGI, Rack and PHP take `x_user` for `X-User`. `drop` leaves them out, `reject` answers 400, `pass` is \
        for an origin that knows names as they are, or needs such fields.",
    );
    Some(Origin {
        servers: servers?,
        balance,
        eject_after,
        eject_time,
        eject_statuses: eject_statuses.unwrap_or_default().into_iter().map(|(_, statuses)| statuses).collect(),
        max_ejected,
        retry_share,
        retry_minimum,
        proxy_protocol,
        health: if has_health { Some(health?) } else { None },
        max_connections,
        max_queue,
        request_buffer,
        idle_timeout,
        max_age,
        dns_interval,
        ambiguous_fields,
    })
}

/// `None` where there is none that is right.
fn servers(section: &mut Section<'_>, directory: &Path) -> Option<Vec<OriginAddress>> {
    let about = "Where the origin's servers listen, no two alike; port 80 unless given. litequic speaks plaintext \
        HTTP/1.1. The path of a socket has at most 107 bytes.";
    let given = section.required_list("url", origin_address(), 1..=Origin::MAX_SERVERS, about)?;
    let mut servers: Vec<OriginAddress> = Vec::with_capacity(given.len());
    for (n, address) in given {
        let address = match address {
            OriginAddress::Unix(path) => OriginAddress::Unix(directory.join(path)),
            tcp @ OriginAddress::Tcp { .. } => tcp,
        };
        if matches!(&address, OriginAddress::Unix(path) if path.as_os_str().len() > MAX_SOCKET_PATH) {
            section.fault_in_list("url", n, &format!("a socket's path has at most {MAX_SOCKET_PATH} bytes"));
        }
        if servers.contains(&address) {
            section.fault_in_list("url", n, "stands there twice");
        }
        servers.push(address);
    }
    Some(servers).filter(|servers| !servers.is_empty())
}

fn health(section: &mut Section<'_>) -> Option<Health> {
    let path = section.required("path", target(), "What is asked for, with a query if need be.");
    let host = section.optional(
        "host",
        authority(),
        "Its `Host`. Without it, the server's own address; `localhost` \
        for a Unix socket.",
    );
    let interval = section.value(
        "interval",
        duration(HEALTH_INTERVAL),
        Health::INTERVAL,
        "From the end of a check to the next, a tenth more or less by chance.",
    );
    let timeout = section.value(
        "timeout",
        duration(TIMEOUT),
        Health::TIMEOUT,
        "A check that has not been answered by then has failed.",
    );
    let healthy = section.value(
        "healthy",
        number(STREAK),
        Health::HEALTHY,
        "Checks in a row that go well before a server that is not well counts as well again.",
    );
    let unhealthy = section.value(
        "unhealthy",
        number(STREAK),
        Health::UNHEALTHY,
        "Checks in a row that fail before a server that is well counts as not well.",
    );
    let about = "Which answers are well.";
    let statuses = section.list("statuses", statuses(), 1..=Health::MAX_STATUSES, &[Health::STATUSES], about);
    let statuses = statuses
        .map_or_else(|| vec![Health::STATUSES], |given| given.into_iter().map(|(_, statuses)| statuses).collect());
    Some(Health { path: path?, host, interval, timeout, healthy, unhealthy, statuses })
}

/// A path that a request line can have, with its query.
pub(super) fn target() -> Kind<String> {
    let parse = |text: String| {
        let problem = if !text.starts_with('/') {
            "does not start with `/`"
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            "other characters than printable ASCII, and `#`, are percent-encoded"
        } else if text.parse::<http::Uri>().is_err() {
            "is no path of a URL"
        } else {
            return Ok(text);
        };
        Err(problem.into())
    };
    text("a path such as \"/health\"", parse, Clone::clone).matching("/[!-\"$-~]*")
}

/// A number, or a text with one or two.
pub(super) fn statuses() -> Kind<Statuses> {
    let kind = Kind {
        expected: "a status such as 200, or two as in \"200-299\"".into(),
        schema: json!({ "type": ["integer", "string"], "minimum": Statuses::ALL.start(), "maximum": Statuses::ALL.end() }),
        read: Box::new(|given| {
            match given {
                Given::Integer(number) => number.to_string().parse(),
                Given::Text(text) => text.parse(),
                other => return Err(other.wrong_type()),
            }
            .map_err(|wrong: StatusesError| wrong.to_string().into())
        }),
        show: Box::new(|statuses| match statuses {
            Statuses { first, last } if first == last => json!(first),
            range => json!(range.to_string()),
        }),
    };
    kind.matching("[2-5][0-9]{2}(-[2-5][0-9]{2})?")
}

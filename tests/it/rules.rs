//! What a route does beside choosing an origin: fields, paths, redirects, timeouts, pages, rates; and the PROXY
//! protocol, by which rules identify a client.

mod addresses;
mod answers;
mod auth;
mod dates;
mod fixed;
mod general;
mod heads;
mod maintenance;
mod matching;
mod proxy_protocol;
mod proxy_protocol_udp;
mod rates;
mod refused;
mod reloads;
mod users;

use crate::support::prelude::*;
use litequic_config::{self as config, Listen};
use std::num::NonZeroU16;

/// A configuration with `text`, in a file in `directory`, whose `[origin]` is at `origin`; one worker on 127.0.0.1.
fn configured_in(directory: &Path, origin: SocketAddr, text: &str) -> Config {
    let whole = format!(
        "{text}\n[[certificates]]\ncert = \"unused.crt\"\nkey = \"unused.key\"\n[origin]\nurl = \"http://{origin}\"\n"
    );
    let parsed = config::parse_config(&whole, &directory.join("litequic.toml"), |_| None);
    let mut config = parsed.unwrap_or_else(|faults| panic!("{faults}"));
    let proxy_protocol_from = std::mem::take(&mut config.listen.proxy_protocol_from);
    let proxy_protocol_udp = config.listen.proxy_protocol_udp;
    config.listen =
        Listen { proxy_protocol_from, proxy_protocol_udp, ..Listen::at_address((Ipv4Addr::LOCALHOST, 0).into()) };
    config.listen.workers = Some(NonZeroU16::MIN);
    config
}

pub(crate) fn configured(origin: SocketAddr, text: &str) -> Config {
    configured_in(Path::new(""), origin, text)
}

async fn started(origin: SocketAddr, text: &str) -> Litequic {
    Litequic::with_config(&configured(origin, text)).await
}

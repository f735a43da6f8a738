//! HTTPS records (RFC 9460) for `litequic check`: a browser that finds one begins with HTTP/3 at its first visit. Pure.

use litequic_config::Listen;
use std::{collections::BTreeSet, num::NonZeroU16};

/// Port of URLs that have none.
const HTTPS_PORT: u16 = 443;

/// Returns the records for the hosts `names`, as lines of a zone file, sorted. Names of one label get none: they are
/// in no zone.
pub(super) fn https_records<'a>(listen: &Listen, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let Some(udp) = listen.udp.first().filter(|_| listen.http3) else { return Vec::new() };
    let port = listen.advertised_port.map_or(udp.port(), NonZeroU16::get);
    let protocols = if listen.tcp.is_empty() { "h3" } else { "h3,h2" };
    let names: BTreeSet<&str> = names.into_iter().filter(|name| name.contains('.')).collect();
    let record = |name: &str| match port {
        HTTPS_PORT => format!("{name}. IN HTTPS 1 . alpn=\"{protocols}\""),
        // RFC 9460 §9.1. A wildcard covers no name below `_port._https`.
        _ => format!("_{port}._https.{name}. IN HTTPS 1 {name}. alpn=\"{protocols}\""),
    };
    let is_nameable = |name: &&str| port == HTTPS_PORT || !name.starts_with('*');
    names.into_iter().filter(is_nameable).map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_port_and_protocols() {
        let names = ["example.com", "*.example.com", "localhost", "example.com"];
        let listen = |port: u16| Listen { udp: vec![([0, 0, 0, 0], port).into()], ..Listen::default() };
        let alone = Listen { tcp: Vec::new(), ..listen(443) };
        let advertised = Listen { advertised_port: NonZeroU16::new(443), ..listen(8443) };
        let both = ["*.example.com. IN HTTPS 1 . alpn=\"h3,h2\"", "example.com. IN HTTPS 1 . alpn=\"h3,h2\""];
        assert_eq!(https_records(&listen(443), names), both);
        assert_eq!(https_records(&advertised, names), both);
        assert_eq!(https_records(&alone, ["example.com"]), ["example.com. IN HTTPS 1 . alpn=\"h3\""]);
        let other = "_8443._https.example.com. IN HTTPS 1 example.com. alpn=\"h3,h2\"";
        assert_eq!(https_records(&listen(8443), names), [other]);
        assert!(https_records(&Listen { http3: false, ..listen(443) }, names).is_empty());
    }
}

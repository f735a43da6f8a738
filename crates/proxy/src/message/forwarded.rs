//! Sets the fields that identify the client to the origin: `Forwarded` (RFC 7239), `X-Forwarded-*` and the request's
//! ID. Pure.
//!
//! Such fields of a client are removed, in every spelling that origins confuse ([`spelling`]). Fields of a peer in
//! `trusted_proxies` are appended to instead.

use super::spelling;
use crate::access::AddressSet;
use litequic_exchange::{
    Client, ClientCertificate, FieldNameRef, Fields, ForwardedValues, Head, NameSet, TraceId, name, write_address,
    write_hex,
};
use std::net::{IpAddr, SocketAddr};

/// Prefix of fields that identify the client. All are removed, whether litequic sets them or not: an origin that trusts
/// one trusts litequic's.
const X_FORWARDED: &str = "x-forwarded-";
/// Other fields that litequic sets, or that an origin behind a proxy trusts.
const IDENTITY_FIELDS: [&str; 5] = ["forwarded", "x-real-ip", "client-cert", "client-cert-chain", "x-request-id"];

/// Longest ID of a trusted peer that is not replaced: logs and a response field have it.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The client behind `peer`: the last address of `X-Forwarded-For` that is not a trusted proxy's own, as far as trusted
/// proxies name it. `peer` itself if it is not one.
pub(crate) fn client_behind(peer: IpAddr, fields: &Fields, trusted: &AddressSet) -> IpAddr {
    if !trusted.covers_address(peer) {
        return peer;
    }
    let mut client = peer;
    let lines = fields.all_values(name::X_FORWARDED_FOR).rev();
    for item in lines.flat_map(|line| line.rsplit(|&byte| byte == b',')) {
        // Some proxies write a port behind the address.
        let item = std::str::from_utf8(item).unwrap_or_default().trim();
        let bare = item.strip_prefix('[').and_then(|item| item.strip_suffix(']')).unwrap_or(item);
        let address = bare.parse::<IpAddr>().or_else(|_| item.parse::<SocketAddr>().map(|address| address.ip()));
        let Ok(address) = address else { break };
        client = address.to_canonical();
        if !trusted.covers_address(client) {
            break;
        }
    }
    client
}

/// Whether a field identifies the client, so that a client may not set it in any spelling.
pub(crate) fn is_identity_field(name: &str) -> bool {
    if !name.starts_with(['x', 'f', 'c']) {
        return false; // all reserved names begin so
    }
    let plain = spelling::plain_name(name);
    plain.starts_with(X_FORWARDED) || IDENTITY_FIELDS.contains(&&*plain)
}

/// Names of the table for which [`is_identity_field`] is true.
const KNOWN_IDENTITY_FIELDS: NameSet = NameSet::from_names(&[
    name::FORWARDED,
    name::X_REAL_IP,
    name::CLIENT_CERT,
    name::CLIENT_CERT_CHAIN,
    name::X_REQUEST_ID,
    name::X_FORWARDED_FOR,
    name::X_FORWARDED_HOST,
    name::X_FORWARDED_METHOD,
    name::X_FORWARDED_PORT,
    name::X_FORWARDED_PROTO,
    name::X_FORWARDED_URI,
]);

/// ID of a request.
#[derive(Debug)]
pub(crate) enum RequestId {
    /// ID that a trusted peer sent.
    Given(String),
    /// 128 random bits, in hexadecimal digits.
    Random([u8; 32]),
}

impl RequestId {
    /// Uses the ID of the request's own trace, if there is one.
    fn from_trace_or_random(trace_id: Option<TraceId>) -> Self {
        Self::from_bits(trace_id.map_or_else(|| rand::random::<u128>().to_be_bytes(), |id| *id.bytes()))
    }

    fn from_bits(bits: [u8; 16]) -> Self {
        let mut digits = [0; 32];
        write_hex(&bits, &mut digits);
        Self::Random(digits)
    }

    pub(crate) fn id_text(&self) -> &str {
        match self {
            Self::Given(id) => id,
            // Digits are ASCII.
            Self::Random(digits) => str::from_utf8(digits).unwrap_or_default(),
        }
    }
}

/// Chooses the ID of a request: a trusted peer's, if there is one, else that of its own trace, else a random one.
pub(crate) fn choose_request_id(fields: &Fields, trusted: bool, trace_id: Option<TraceId>) -> RequestId {
    let sane = |id: &&[u8]| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/=:".contains(byte))
    };
    let given = fields.get(name::X_REQUEST_ID).filter(|_| trusted).filter(sane);
    let given = given.and_then(|id| str::from_utf8(id).ok());
    given.map_or_else(|| RequestId::from_trace_or_random(trace_id), |id| RequestId::Given(id.to_owned()))
}

/// Removes the fields that the peer may not set, and adds the client's address.
pub(crate) fn set_forwarded(head: &mut Head, client: &Client, id: &str, trusted: bool) {
    remove_forged(&mut head.fields, trusted);
    let proto = client.protocol.scheme();
    client.forwarded.update_values(client.address.ip(), head.authority(), || {
        forwarded_element(client.address, head.authority(), proto)
    });
    let fields = &mut head.fields;
    // An untrusted peer's fields are removed, so that no list is left to append to.
    let say = if trusted { append_to_list } else { Fields::append };
    client.forwarded.read_values(|ForwardedValues { element, address, .. }| {
        say(fields, name::X_FORWARDED_FOR, address.as_bytes());
        say(fields, name::FORWARDED, element.as_bytes());
    });
    // A trusted peer knows the client's protocol and host.
    if !trusted || !fields.contains(name::X_FORWARDED_PROTO) {
        fields.set_field(name::X_FORWARDED_PROTO, proto.as_bytes());
    }
    if !trusted || !fields.contains(name::X_FORWARDED_HOST) {
        head.set_to_authority(name::X_FORWARDED_HOST);
    }
    head.fields.set_field(name::X_REQUEST_ID, id.as_bytes());
}

/// Removes the fields that a peer may not set: those of a `trusted` one only in another spelling.
fn remove_forged(fields: &mut Fields, trusted: bool) {
    let suspects = if trusted { NameSet::AMBIGUOUS } else { KNOWN_IDENTITY_FIELDS.union(NameSet::OTHER) };
    if fields.names.intersects(suspects) {
        fields.retain(|line| !(is_identity_field(line.name_str()) && (!trusted || !line.is_plain)));
    }
}

/// Adds the certificate that this connection's handshake verified (RFC 9440), in place of a trusted peer's.
pub(super) fn set_certificate(fields: &mut Fields, certificate: &ClientCertificate) {
    fields.set_field(name::CLIENT_CERT, certificate.leaf.as_bytes());
    fields.remove_field(name::CLIENT_CERT_CHAIN);
}

/// Builds a `forwarded-element` (RFC 7239 §4), and the values in it. An IPv6 address is bracketed and therefore quoted;
/// a host with a port too.
fn forwarded_element(client: SocketAddr, authority: &str, proto: &str) -> ForwardedValues {
    let mut text = String::with_capacity(96 + authority.len());
    let (before, behind) = if client.is_ipv4() { ("for=", "") } else { ("for=\"[", "]\"") };
    text.push_str(before);
    write_address(&mut text, client.ip());
    let address = text.get(before.len()..).unwrap_or_default().to_owned();
    text.push_str(behind);
    let is_token = authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if is_token && !authority.is_empty() {
        text.push_str(";host=");
        text.push_str(authority);
    } else {
        text.push_str(";host=\"");
        if authority.bytes().any(|byte| matches!(byte, b'\\' | b'"')) {
            text.push_str(&authority.replace('\\', "\\\\").replace('"', "\\\""));
        } else {
            text.push_str(authority);
        }
        text.push('"');
    }
    text.push_str(";proto=");
    text.push_str(proto);
    ForwardedValues { address, host: authority.to_owned(), element: text }
}

/// Adds `item` to the end of the list that `name` holds, as one field line.
fn append_to_list(fields: &mut Fields, name: FieldNameRef<'_>, item: &[u8]) {
    let mut list = Vec::new();
    for line in fields.all_values(name).filter(|line| !line.is_empty()) {
        list.extend_from_slice(line);
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(item);
    fields.set_field(name, &list);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use litequic_config::Network;
    use litequic_exchange::{
        Authority, ClientCertificate, LastForwarded, NameId, Protocol, TlsIdentity, field_syntax::is_field_value,
    };
    use proptest::prelude::*;

    fn client(address: &str) -> Client {
        Client {
            address: address.parse().unwrap(),
            local: "192.0.2.1:443".parse().unwrap(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: TlsIdentity::default(),
            connection: 0,
        }
    }

    fn fields(lines: &[(&str, &str)]) -> Fields {
        lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect()
    }

    fn all(fields: &Fields, name: &str) -> Vec<String> {
        fields
            .all_values(FieldNameRef::from_lower_case_token(name))
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
            .collect()
    }

    /// Sets the fields that the origin of `client` gets.
    fn set(fields: &mut Fields, client: &Client, authority: &str, id: &str, trusted: bool) {
        let mut head = Head::new(Method::GET, Authority::new(authority), "/", fields.clone());
        set_forwarded(&mut head, client, id, trusted);
        *fields = head.fields;
    }

    #[test]
    fn the_names_of_the_table_that_are_ours_are_in_the_set() {
        assert_eq!(NameSet::from_predicate(is_identity_field), KNOWN_IDENTITY_FIELDS);
        assert!(!is_identity_field(NameId::OTHER.as_str()));
    }

    proptest! {
        #[test]
        fn litequics_element_ends_forwarded_after_any_trusted_peers(
            lines in proptest::collection::vec(("forwarded|x-forwarded-for|x_forwarded_for|x-request-id", any::<Vec<u8>>()), 0..6),
            authority in "[!-~]{0,40}",
            trusted: bool,
        ) {
            let mut fields = Fields::new();
            for (name, value) in lines {
                if is_field_value(&value) {
                    fields.append(FieldNameRef::from_lower_case_token(&name), &value);
                }
            }
            let id = choose_request_id(&fields, trusted, None).id_text().to_owned();
            set(&mut fields, &client("192.0.2.7:1"), &authority, &id, trusted);
            for (name, end) in [("x-forwarded-for", "192.0.2.7"), ("forwarded", ";proto=https")] {
                let lines: Vec<_> = fields.all_values(FieldNameRef::from_lower_case_token(name)).collect();
                prop_assert!(lines.len() == 1 && lines[0].ends_with(end.as_bytes()));
            }
            prop_assert!(!fields.contains(FieldNameRef::from_lower_case_token("x_forwarded_for")));
            prop_assert_eq!(fields.get(name::X_REQUEST_ID), Some(id.as_bytes()));
        }
    }

    #[test]
    fn what_was_written_last_holds_for_the_same_request_alone() {
        let mut client = client("192.0.2.7:1");
        for (address, authority, given, trusted, expected) in [
            ("192.0.2.7:1", "a.test", "", false, ["192.0.2.7", "for=192.0.2.7;host=a.test;proto=https", "a.test"]),
            ("192.0.2.7:2", "a.test", "", false, ["192.0.2.7", "for=192.0.2.7;host=a.test;proto=https", "a.test"]),
            ("192.0.2.7:1", "A.test", "", false, ["192.0.2.7", "for=192.0.2.7;host=A.test;proto=https", "A.test"]),
            ("192.0.2.8:1", "A.test", "", false, ["192.0.2.8", "for=192.0.2.8;host=A.test;proto=https", "A.test"]),
            // A reload makes the same peer trusted, and then untrusted again.
            (
                "192.0.2.8:1",
                "A.test",
                "1.1.1.1",
                true,
                ["1.1.1.1, 192.0.2.8", "for=192.0.2.8;host=A.test;proto=https", "A.test"],
            ),
            (
                "192.0.2.8:1",
                "A.test",
                "1.1.1.1",
                false,
                ["192.0.2.8", "for=192.0.2.8;host=A.test;proto=https", "A.test"],
            ),
            (
                "192.0.2.8:1",
                "a.test:1",
                "",
                false,
                ["192.0.2.8", "for=192.0.2.8;host=\"a.test:1\";proto=https", "a.test:1"],
            ),
        ] {
            client.address = address.parse().unwrap();
            let mut map = Fields::new();
            if !given.is_empty() {
                map.append(name::X_FORWARDED_FOR, given.as_bytes());
            }
            set(&mut map, &client, authority, "id", trusted);
            let set = ["x-forwarded-for", "forwarded", "x-forwarded-host"].map(|name| all(&map, name).join("|"));
            assert_eq!(set, expected, "{address} {authority} {trusted}");
        }
    }

    #[test]
    fn every_spelling_of_our_fields_is_recognized() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded_for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-prefix",
            "x_forwarded_anything",
            "x-real-ip",
            "x_real_ip",
            "client-cert",
            "client_cert",
            "client-cert-chain",
            "client_cert_chain",
            "x-request-id",
            "x_request_id",
            "x-request_id",
            "x.forwarded.for",
            "x_forwarded-for",
            "x~real~ip",
            "client'cert",
        ] {
            assert!(is_identity_field(name), "{name}");
        }
        for name in [
            "x-forwarded",
            "forwarded-x",
            "xforwardedfor",
            "x-real-ip-x",
            "client-certificate",
            "accept",
            "x-request-ids",
        ] {
            assert!(!is_identity_field(name), "{name}");
        }
    }

    #[test]
    fn what_an_untrusted_client_says_about_itself_is_replaced() {
        let mut map = fields(&[
            ("x-forwarded-for", "10.0.0.1"),
            ("x_forwarded_for", "10.0.0.2"),
            ("forwarded", "for=10.0.0.3"),
            ("x-forwarded-proto", "http"),
            ("x-real-ip", "10.0.0.4"),
            ("client-cert", ":AA==:"),
            ("x-request-id", "mine"),
            ("accept", "*/*"),
        ]);
        let id = choose_request_id(&map, false, None).id_text().to_owned();
        set(&mut map, &client("[2001:db8::1]:4711"), "example.com:8443", &id, false);
        assert_eq!(all(&map, "x-forwarded-for"), ["2001:db8::1"]);
        assert_eq!(all(&map, "forwarded"), [r#"for="[2001:db8::1]";host="example.com:8443";proto=https"#]);
        assert_eq!(all(&map, "x-forwarded-proto"), ["https"]);
        assert_eq!(all(&map, "x-forwarded-host"), ["example.com:8443"]);
        assert_eq!(all(&map, "x-request-id")[0].len(), 32);
        assert_eq!(map.len(), 6, "{map:?}");
    }

    #[test]
    fn a_trusted_peer_is_appended_to() {
        let mut map = fields(&[
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x_forwarded_for", "10.0.0.9"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-request-id", "edge-7f.3"),
        ]);
        let id = choose_request_id(&map, true, None).id_text().to_owned();
        set(&mut map, &client("192.0.2.7:4711"), "example.com", &id, true);
        assert_eq!(all(&map, "x-forwarded-for"), ["10.0.0.1, 10.0.0.2, 192.0.2.7"]);
        assert_eq!(all(&map, "forwarded"), ["for=10.0.0.1, for=192.0.2.7;host=example.com;proto=https"]);
        assert_eq!(all(&map, "x-forwarded-proto"), ["http"]);
        assert_eq!(all(&map, "x-request-id"), ["edge-7f.3"]);
        assert!(!map.contains(FieldNameRef::from_lower_case_token("x_forwarded_for")));
    }

    #[test]
    fn a_verified_certificate_replaces_what_a_trusted_peer_said() {
        let said = || fields(&[("client-cert", ":b2xk:"), ("client-cert-chain", ":b2xk:"), ("x-forwarded-for", "::1")]);
        let mut kept = said();
        set(&mut kept, &client("192.0.2.7:1"), "a.test", "id", true);
        assert_eq!(all(&kept, "client-cert"), [":b2xk:"]);
        assert_eq!(all(&kept, "client-cert-chain"), [":b2xk:"]);
        let mut map = said();
        set_certificate(&mut map, &ClientCertificate::new(&["leaf", "one"]).unwrap());
        assert_eq!(all(&map, "client-cert"), [":bGVhZg==:"]);
        assert!(all(&map, "client-cert-chain").is_empty());
    }

    #[test]
    fn an_id_is_that_of_the_requests_own_trace() {
        let id = TraceId::new(0x00ff_0102_9fa0_u128.to_be_bytes());
        assert_eq!(choose_request_id(&Fields::new(), true, id).id_text(), "0000000000000000000000ff01029fa0");
    }

    #[test]
    fn a_client_behind_trusted_proxies_is_whom_the_first_of_them_saw() {
        let trusted: [Network; 2] = ["10.0.0.0/8", "192.0.2.9"].map(|network| network.parse().unwrap());
        let trusted = AddressSet::new(&trusted);
        for (peer, lines, expected) in [
            ("203.0.113.1", &["198.51.100.1"][..], "203.0.113.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6", "198.51.100.1 , 192.0.2.9"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.2,10.0.0.3"], "10.0.0.2"),
            ("10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["198.51.100.1:80"], "198.51.100.1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["6.6.6.6, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["6.6.6.6, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            let map = lines.iter().map(|line| (name::X_FORWARDED_FOR, line.as_bytes())).collect();
            let client = client_behind(peer.parse().unwrap(), &map, &trusted);
            assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }

    #[test]
    fn a_request_id_that_could_forge_a_log_line_is_replaced() {
        for bad in ["", "a b", "a\tb", "\"", "<script>"] {
            let map = fields(&[("x-request-id", bad)]);
            assert_eq!(choose_request_id(&map, true, None).id_text().len(), 32, "{bad}");
        }
    }
}

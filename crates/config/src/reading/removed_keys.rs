//! Lists keys of earlier versions, with hints for files that still have them.

/// Beginning of each hint.
pub(crate) const REMOVED_PREFIX: &str = "is no longer a key; its value is now ";

/// Removed keys in the order of the reference, each with its table and a description of the replacement. `origin`
/// stands for `origins.NAME` as well.
const REMOVED_KEYS: &[(&str, &str, &str)] = &[
    ("access_log", "format", "JSON"),
    ("acme[]", "dns_environment", "litequic's own environment"),
    ("acme[]", "dns_wait", "30 s; a dns_command that needs longer waits itself"),
    ("admin", "token_env", "admin.token_file; ${NAME} is possible in its path"),
    ("client_certificates", "chain", "false; origins get Client-Cert alone"),
    ("listen", "congestion", "litequic.congestion for every address"),
    ("listen.server_id", "address", "listen.server_id.id, in the same form"),
    ("listen.server_id", "base64", "listen.server_id.id, in the same form"),
    ("listen.server_id", "hex", "listen.server_id.id, with 0x in front"),
    ("listen.server_id", "lifetime", "always one day"),
    ("listen.server_id", "nonce_bytes", "what is left of 16 bytes, at least 7, or 8 with key_file"),
    ("listen.server_id", "rotation", "in listen.server_id.id, as \"0x2a01 rotation=1\""),
    ("origin", "check_idle", "always \"unrepeatable\""),
    ("origin", "dns_interval", "30 s, or laboratory.dns_interval in experiments"),
    ("origin", "max_age", "always one hour; origin.max_requests closes connections sooner"),
    ("origin", "max_ejected", "always half of the servers"),
    ("origin", "retry_minimum", "always 10 retries per second beside origin.retry_share, and none with \"none\""),
    ("origin", "request_buffer", "16 KiB, or laboratory.request_buffer in experiments"),
    ("routes[]", "path_reading", "path_reading of the route's origin"),
    ("routes[]", "users_keep_authorization", "always false: an application that reads passwords itself needs no users"),
    ("routes[]", "users_realm", "the route's name, or \"restricted\""),
    ("routes[].respond", "headers", "response_headers.set of the route"),
    ("routes[].auth", "to_client", "Set-Cookie alone"),
    ("limits", "max_requests", "1,000,000"),
    ("limits", "by_source", "true; limits.source_exempt = [\"0.0.0.0/0\", \"::/0\"] is what false was"),
    ("limits", "max_handshakes", "a tenth of limits.max_connections, at least 64"),
    ("limits", "max_tunnels", "half of limits.max_connections; upgrade = [] of a route permits no tunnel"),
    ("limits", "min_download_rate", "limits.min_rate, for uploads and downloads"),
    ("limits", "min_upload_rate", "limits.min_rate, for uploads and downloads"),
    ("limits", "source_ipv6_prefix", "64, and /56 and /48 networks count as well"),
    ("limits", "retry_handshakes", "an eightieth of limits.max_connections, at least 8"),
    ("limits", "max_resets", "100, or laboratory.max_resets in experiments"),
    ("limits", "max_control_frames", "50,000, or laboratory.max_control_frames in experiments"),
    ("limits", "max_small_frames", "50,000, or laboratory.max_small_frames in experiments"),
    ("limits", "rate_grace", "20 s, or laboratory.rate_grace in experiments"),
    ("limits", "max_lingering_bytes", "64 MiB within 30 s"),
    ("limits", "stream_receive_buffer", "3/256 of limits.worker_receive_buffer"),
    ("limits", "connection_receive_buffer", "24/256 of limits.worker_receive_buffer"),
    ("limits", "stream_send_buffer", "a quarter of limits.worker_send_buffer"),
    ("limits", "connection_send_buffer", "a quarter of limits.worker_send_buffer"),
    ("timeouts", "handshake", "timeouts.request_header, for both"),
    ("timeouts", "lingering", "30 s, and 64 MiB at most"),
    ("timeouts", "proxy_flow", "in listen.proxy_protocol_udp, as \"first:30s\""),
    ("timeouts", "tunnel_half_closed", "30 s"),
    ("traces", "max_per_second", "1,000 of each worker"),
    ("traces", "protocol", "the scheme of traces.endpoint: http, https, grpc or grpcs"),
    ("traces", "query", "false; the access log has the query"),
    ("traces", "service_name", "\"service.name\" in traces.attributes"),
    ("traces", "timeout", "10 s"),
    ("limits", "source_ipv4_prefix", "32, or laboratory.source_ipv4_prefix in experiments"),
];

/// Returns the hint for the key `name` of the table at the path `section`; `None` if there was no such key.
pub(crate) fn removed_hint(section: &str, name: &str) -> Option<String> {
    let table = match section.split(['.', '[']).next().unwrap_or_default() {
        "origins" if section.split('.').count() == 2 => "origin",
        "acme" if section.ends_with(']') => "acme[]",
        "routes" if section.ends_with(']') => "routes[]",
        "routes" if section.ends_with("].auth") => "routes[].auth",
        "routes" if section.ends_with("].respond") => "routes[].respond",
        _ => section,
    };
    let (.., replacement) = REMOVED_KEYS.iter().find(|(of, key, _)| (*of, *key) == (table, name))?;
    Some(format!("{REMOVED_PREFIX}{replacement}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_is_found_in_each_table_that_had_it() {
        for (section, name, expected) in [
            (
                "limits",
                "retry_handshakes",
                Some("is no longer a key; its value is now an eightieth of limits.max_connections, at least 8"),
            ),
            ("origin", "max_ejected", Some("is no longer a key; its value is now always half of the servers")),
            ("origins.app", "max_ejected", Some("is no longer a key; its value is now always half of the servers")),
            (
                "routes[3]",
                "path_reading",
                Some("is no longer a key; its value is now path_reading of the route's origin"),
            ),
            ("acme[0]", "dns_environment", Some("is no longer a key; its value is now litequic's own environment")),
            ("origins.app.health", "max_ejected", None),
            ("routes[3].match", "path_reading", None),
            ("limits", "max_ejected", None),
            ("", "congestion", None),
        ] {
            assert_eq!(removed_hint(section, name).as_deref(), expected, "{section} {name}");
        }
    }
}

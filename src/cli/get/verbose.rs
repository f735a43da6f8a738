//! Prints the trace of `--verbose` on standard error, in curl's format: `*` before facts about the connection, `>`
//! before sent lines, `<` before received ones.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use litequic_http3::settings::Settings;
use litequic_quic::ObservedConnection;
use litequic_tls::{self as tls, PresentedCertificate};
use std::{
    io::{self, Write},
    net::SocketAddr,
    time::Duration,
};

/// Trace of a connection, if enabled.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerboseTrace(pub(super) bool);

impl VerboseTrace {
    pub(super) fn print_fact(self, text: impl FnOnce() -> String) {
        self.print_marked('*', || vec![text()]);
    }

    /// Prints facts, with the mark `*`, or lines that were sent, with `>`, or received, with `<`.
    pub(super) fn print_marked(self, mark: char, texts: impl FnOnce() -> Vec<String>) {
        if self.0 {
            let lines: String =
                texts().iter().map(|text| format!("{mark} {text}").trim_end().to_owned() + "\n").collect();
            // Standard error may be closed; the exit code is still right.
            let _ = io::stderr().write_all(lines.as_bytes());
        }
    }
}

pub(super) fn request_lines(request: &Request<Bytes>) -> Vec<String> {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let begin = [format!("{} {path} HTTP/3", request.method()), format!("{}: {authority}", header::HOST)];
    begin.into_iter().chain(field_lines(request.headers())).chain([String::new()]).collect()
}

pub(super) fn response_lines(response: &Response<()>) -> Vec<String> {
    let begin = format!("HTTP/3 {}", response.status());
    [begin].into_iter().chain(field_lines(response.headers())).chain([String::new()]).collect()
}

/// Formats fields, with escapes for characters that a terminal interprets.
pub(super) fn field_lines(fields: &HeaderMap) -> impl Iterator<Item = String> {
    fields
        .iter()
        .map(|(name, value)| format!("{name}: {}", escape_controls(&String::from_utf8_lossy(value.as_bytes()))))
}

/// Escapes the control characters of a text from the server.
fn escape_controls(text: &str) -> String {
    text.chars()
        .flat_map(|c| c.escape_debug().filter(move |_| c.is_control()).chain((!c.is_control()).then_some(c)))
        .collect()
}

/// Lines about a completed handshake.
pub(super) fn connection_facts(
    seen: &ObservedConnection,
    connection: &s2n_quic::Connection,
    took: Duration,
    certificate: Vec<String>,
) -> Vec<String> {
    let text = |address: Result<SocketAddr, _>| address.map_or_else(|_| "?".into(), |address| address.to_string());
    let (local, remote) = (text(connection.local_addr()), text(connection.remote_addr()));
    let mut lines = vec![
        format!("Connected to {remote} from {local} in {:.1} ms", took.as_secs_f64() * 1000.0),
        format!(
            "TLS 1.3, {}, {}, ALPN {}",
            seen.cipher_suite.unwrap_or("?"),
            escape_controls(seen.group.as_deref().unwrap_or("?")),
            escape_controls(seen.protocol.as_deref().unwrap_or("?"))
        ),
    ];
    lines.extend(certificate);
    lines.push("Transport parameters (client, server):".into());
    let server = seen.server_parameters.unwrap_or_default();
    let compared = seen.own_parameters.compare_with(&server);
    lines.extend(compared.map(|(name, client, server)| format!("  {name}: {client}, {server}")));
    lines
}

/// Lines about the server's certificate, and whether it was verified.
pub(super) fn certificate_facts(presented: &PresentedCertificate, insecure: bool) -> Vec<String> {
    let Some(certificate) = presented.server_certificate() else { return Vec::new() };
    let verdict = match (presented.certificate_rejection(), insecure) {
        (Some(distrust), _) => format!("NOT trusted: {}", escape_controls(&distrust.to_string())),
        (None, true) => "not verified: --insecure".into(),
        (None, false) => "trusted".into(),
    };
    vec![
        format!("Server certificate ({verdict}):"),
        format!("  subject: {}", escape_controls(&certificate.subject)),
        format!("  names: {}", escape_controls(&certificate.names.join(", "))),
        format!("  issuer: {}", escape_controls(&certificate.issuer)),
        format!("  valid from: {}", tls::format_http_date(certificate.not_before)),
        format!("  valid until: {}", tls::format_http_date(certificate.not_after)),
        format!("  additional certificates sent: {}", certificate.intermediates),
    ]
}

/// Line about the server's settings of HTTP/3.
pub(super) fn settings_line(settings: &Settings) -> String {
    let size = settings.max_field_section_size.map_or_else(|| "unlimited".into(), |bytes| format!("{bytes} bytes"));
    format!(
        "SETTINGS of the server: max_field_section_size {size}, qpack_max_table_capacity {}, qpack_blocked_streams {}, \
         enable_connect_protocol {}, h3_datagram {}",
        settings.qpack_max_table_capacity,
        settings.qpack_blocked_streams,
        u8::from(settings.enable_connect_protocol),
        u8::from(settings.h3_datagram)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Uri};

    #[test]
    fn requests_and_responses_are_printed_as_curl_does() {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = Uri::from_static("https://example.com:8443/a?b");
        request.headers_mut().insert("x-a", HeaderValue::from_bytes(b"b\tc\xff").unwrap());
        let expected = ["GET /a?b HTTP/3", "host: example.com:8443", "x-a: b\\tc\u{fffd}", ""];
        assert_eq!(request_lines(&request), expected);
        let response = Response::builder().status(404).header("server", "x").body(()).unwrap();
        assert_eq!(response_lines(&response), ["HTTP/3 404 Not Found", "server: x", ""]);
    }

    #[test]
    fn control_characters_are_escaped_in_the_trace() {
        assert_eq!(escape_controls("a\u{1b}[31mä\"\\"), "a\\u{1b}[31mä\"\\");
    }
}

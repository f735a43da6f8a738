//! Formats the output of `--write-out`: figures of a request once it has ended, by curl's names if curl has one. Pure
//! but for a template's file.

use super::get_error::GetError;
use crate::cli::exit::Exit;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, Uri, header};
use litequic_quic::{Observer, PacketCounts, RttEstimate};
use serde_json::{Map, Value as Json, json};
use std::{
    fmt, fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Figures of one request.
#[derive(Debug, Clone)]
pub(super) struct RequestFacts {
    pub(super) url: Uri,
    pub(super) method: Method,
    /// Start of the request: the first one begins with the lookup of the name.
    pub(super) began: Instant,
    pub(super) looked_up: Option<Instant>,
    pub(super) first_packet: Option<Instant>,
    pub(super) connected: Option<Instant>,
    pub(super) sending: Option<Instant>,
    pub(super) first_byte: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) status: Option<StatusCode>,
    pub(super) headers: HeaderMap,
    pub(super) size_upload: u64,
    pub(super) size_download: u64,
    pub(super) connections: u64,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) counts: PacketCounts,
    pub(super) round_trip: Option<RttEstimate>,
    pub(super) congestion_window: u32,
    pub(super) exit: u8,
    pub(super) error: String,
}

impl RequestFacts {
    pub(super) fn new(url: &Uri, method: &Method) -> Self {
        Self {
            url: url.clone(),
            method: method.clone(),
            began: Instant::now(),
            looked_up: None,
            first_packet: None,
            connected: None,
            sending: None,
            first_byte: None,
            ended: None,
            status: None,
            headers: HeaderMap::new(),
            size_upload: 0,
            size_download: 0,
            connections: 0,
            local: None,
            remote: None,
            counts: PacketCounts::default(),
            round_trip: None,
            congestion_window: 0,
            exit: 0,
            error: String::new(),
        }
    }

    /// Figures of the next request on the same connection, which begins now.
    pub(super) fn next_request(&self) -> Self {
        let (local, remote) = (self.local, self.remote);
        Self { local, remote, ..Self::new(&self.url, &self.method) }
    }

    /// Records the header of a response, interim or final.
    pub(super) fn record_response(&mut self, head: &Response<()>) {
        self.first_byte.get_or_insert_with(Instant::now);
        if !head.status().is_informational() {
            self.status = Some(head.status());
            self.headers = head.headers().clone();
        }
    }

    /// Records the end of the request with `outcome`.
    pub(super) fn record_end(&mut self, outcome: &Result<Exit, &GetError>, observer: &Observer) {
        let seen = observer.observed_state();
        (self.round_trip, self.congestion_window) = (seen.round_trip, seen.congestion_window);
        self.ended = Some(Instant::now());
        let exit = outcome.unwrap_or_else(|error| error.into());
        (self.exit, self.error) = (exit as u8, outcome.err().map(ToString::to_string).unwrap_or_default());
    }

    fn seconds_until(&self, event: Option<Instant>) -> VariableValue {
        VariableValue::Seconds(event.map_or(Duration::ZERO, |event| event.saturating_duration_since(self.began)))
    }

    fn total_time(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |ended| ended.saturating_duration_since(self.began))
    }

    /// Average bytes per second over the whole time, as in curl.
    fn bytes_per_second(&self, bytes: u64) -> VariableValue {
        let microseconds = self.total_time().as_micros().max(1);
        VariableValue::Number(u64::try_from(u128::from(bytes) * 1_000_000 / microseconds).unwrap_or(u64::MAX))
    }

    fn header_value(&self, name: &HeaderName) -> String {
        let value = self.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        value.unwrap_or_default()
    }
}

#[derive(Debug)]
enum VariableValue {
    Number(u64),
    /// Status with three digits, 000 without a response, as in curl.
    Status(u16),
    /// Seconds with six decimals.
    Seconds(Duration),
    Text(String),
}

impl fmt::Display for VariableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Status(status) => write!(f, "{status:03}"),
            Self::Seconds(time) => write!(f, "{:.6}", time.as_secs_f64()),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<VariableValue> for Json {
    fn from(value: VariableValue) -> Self {
        match value {
            VariableValue::Number(number) => json!(number),
            VariableValue::Status(status) => json!(status),
            VariableValue::Seconds(time) => json!(time.as_secs_f64()),
            VariableValue::Text(text) => json!(text),
        }
    }
}

fn address_value(address: Option<SocketAddr>) -> VariableValue {
    VariableValue::Text(address.map(|address| address.ip().to_string()).unwrap_or_default())
}

fn port_value(address: Option<SocketAddr>) -> VariableValue {
    VariableValue::Number(address.map_or(0, |address| address.port().into()))
}

fn round_trip_value(facts: &RequestFacts, read: fn(&RttEstimate) -> Duration) -> VariableValue {
    VariableValue::Seconds(facts.round_trip.as_ref().map(read).unwrap_or_default())
}

fn status_value(facts: &RequestFacts) -> VariableValue {
    VariableValue::Status(facts.status.map_or(0, |status| status.as_u16()))
}

fn url_value(facts: &RequestFacts) -> VariableValue {
    VariableValue::Text(facts.url.to_string())
}

type ReadVariable = fn(&RequestFacts) -> VariableValue;

/// All variables: name, description, and function that reads the value.
const VARIABLES: [(&str, &str, ReadVariable); 38] = [
    ("acks_received", "ACK frames that the server sent", |facts| VariableValue::Number(facts.counts.acks_received)),
    ("acks_sent", "ACK frames that this client sent", |facts| VariableValue::Number(facts.counts.acks_sent)),
    ("bytes_received", "bytes of QUIC packets received", |facts| VariableValue::Number(facts.counts.bytes_received)),
    ("bytes_sent", "bytes of QUIC packets sent", |facts| VariableValue::Number(facts.counts.bytes_sent)),
    ("content_type", "the response's Content-Type", |facts| {
        VariableValue::Text(facts.header_value(&header::CONTENT_TYPE))
    }),
    ("cwnd", "the client's congestion window, in bytes", |facts| VariableValue::Number(facts.congestion_window.into())),
    ("errormsg", "why the request failed; empty if it did not", |facts| VariableValue::Text(facts.error.clone())),
    ("exitcode", "the exit code that this request causes", |facts| VariableValue::Number(facts.exit.into())),
    ("http_code", "the response's status; 000 without one", status_value),
    ("http_version", "3", |_| VariableValue::Text("3".into())),
    ("local_ip", "the client's address", |facts| address_value(facts.local)),
    ("local_port", "the client's UDP port", |facts| port_value(facts.local)),
    ("method", "the request's method", |facts| VariableValue::Text(facts.method.to_string())),
    ("num_connects", "connections made for this request: 1, or 0 of a repeated one", |facts| {
        VariableValue::Number(facts.connections)
    }),
    ("num_headers", "number of fields in the response's header", |facts| {
        VariableValue::Number(facts.headers.len() as u64)
    }),
    ("packets_lost", "packets declared lost", |facts| VariableValue::Number(facts.counts.packets_lost)),
    ("packets_received", "QUIC packets received", |facts| VariableValue::Number(facts.counts.packets_received)),
    ("packets_sent", "QUIC packets sent", |facts| VariableValue::Number(facts.counts.packets_sent)),
    ("protocol", "h3", |_| VariableValue::Text("h3".into())),
    ("remote_ip", "the server's address", |facts| address_value(facts.remote)),
    ("remote_port", "the server's UDP port", |facts| port_value(facts.remote)),
    ("response_code", "the same as http_code", status_value),
    ("rtt", "the smoothed round-trip time at the end", |facts| round_trip_value(facts, |times| times.smoothed)),
    ("rtt_min", "the smallest round-trip time", |facts| round_trip_value(facts, |times| times.min)),
    ("rtt_var", "the variation of round-trip times", |facts| round_trip_value(facts, |times| times.variance)),
    ("scheme", "https", |facts| VariableValue::Text(facts.url.scheme_str().unwrap_or_default().to_owned())),
    ("size_download", "bytes of the response's body", |facts| VariableValue::Number(facts.size_download)),
    ("size_upload", "bytes of the request's body", |facts| VariableValue::Number(facts.size_upload)),
    ("speed_download", "bytes of the response's body per second", |facts| facts.bytes_per_second(facts.size_download)),
    ("speed_upload", "bytes of the request's body per second", |facts| facts.bytes_per_second(facts.size_upload)),
    ("time_appconnect", "until the handshake was complete", |facts| facts.seconds_until(facts.connected)),
    ("time_connect", "until the server's first packet", |facts| facts.seconds_until(facts.first_packet)),
    ("time_namelookup", "until the name was looked up", |facts| facts.seconds_until(facts.looked_up)),
    ("time_pretransfer", "until the request was sent", |facts| facts.seconds_until(facts.sending)),
    ("time_starttransfer", "until the response began", |facts| facts.seconds_until(facts.first_byte)),
    ("time_total", "until the request ended", |facts| VariableValue::Seconds(facts.total_time())),
    ("url", "the URL", url_value),
    ("url_effective", "the same as url", url_value),
];

/// Part of `--help` about variables.
pub(super) fn variables_help() -> String {
    let mut text = String::from("Variables of --write-out, as %{NAME}; times are seconds since the request began:\n");
    for (name, what, _) in VARIABLES {
        text += &format!("  {name:<18}  {what}\n");
    }
    text += "  json                all of them as a JSON object\n\n\
             %header{NAME} is a field of the response's header; \\n, \\r, \\t and %% mean the same as in curl.";
    text
}

/// Template of `--write-out`.
#[derive(Debug, Clone)]
pub(super) struct WriteOutTemplate(Vec<WriteOutPart>);

#[derive(Debug, Clone)]
enum WriteOutPart {
    Text(String),
    Variable(ReadVariable),
    Field(HeaderName),
    Json,
}

impl WriteOutTemplate {
    /// Parses the template `text`, or that of the file after an `@`.
    pub(super) fn read_template(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(file) => {
                Self::parse_template(&fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?)
            }
            None => Self::parse_template(text),
        }
    }

    fn parse_template(text: &str) -> Result<Self, String> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['%', '\\']) {
            let (before, special) = rest.split_at(at);
            literal += before;
            let (part, after) = if let Some((name, after)) = split_braced(special, "%{") {
                (Some(find_variable(name)?), after)
            } else if let Some((name, after)) = split_braced(special, "%header{") {
                let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a field's name"))?;
                (Some(WriteOutPart::Field(name)), after)
            } else {
                let (character, used) = parse_escape(special);
                literal.push(character);
                (None, special.get(used..).unwrap_or_default())
            };
            if let Some(part) = part {
                parts.push(WriteOutPart::Text(std::mem::take(&mut literal)));
                parts.push(part);
            }
            rest = after;
        }
        literal += rest;
        parts.push(WriteOutPart::Text(literal));
        Ok(Self(parts))
    }

    pub(super) fn render_template(&self, facts: &RequestFacts) -> String {
        let text = |part: &WriteOutPart| match part {
            WriteOutPart::Text(text) => text.clone(),
            WriteOutPart::Variable(read) => read(facts).to_string(),
            WriteOutPart::Field(name) => facts.header_value(name),
            WriteOutPart::Json => variables_object(facts).to_string(),
        };
        self.0.iter().map(text).collect()
    }
}

/// Splits `text`, which begins with `open`, into the part up to the next `}` and the part after it.
fn split_braced<'a>(text: &'a str, open: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(open)?.split_once('}')
}

/// Character that `text` stands for, which begins with `%` or `\`, and its length in bytes.
fn parse_escape(text: &str) -> (char, usize) {
    match text.as_bytes() {
        [b'\\', b'n', ..] => ('\n', 2),
        [b'\\', b'r', ..] => ('\r', 2),
        [b'\\', b't', ..] => ('\t', 2),
        [b'\\', b'\\', ..] => ('\\', 2),
        [b'%', b'%', ..] => ('%', 2),
        [b'%', ..] => ('%', 1),
        _ => ('\\', 1),
    }
}

fn find_variable(name: &str) -> Result<WriteOutPart, String> {
    if name == "json" {
        return Ok(WriteOutPart::Json);
    }
    let known = VARIABLES.iter().find(|(known, ..)| *known == name);
    known.map(|(_, _, read)| WriteOutPart::Variable(*read)).ok_or_else(|| {
        let near = VARIABLES.iter().map(|(known, ..)| (strsim::damerau_levenshtein(known, name), *known)).min();
        let near = near.filter(|(distance, _)| *distance <= 3).map(|(_, near)| format!("; did you mean {near:?}?"));
        format!("unknown variable {name:?}{}", near.unwrap_or_default())
    })
}

fn variables_object(facts: &RequestFacts) -> Json {
    let all = VARIABLES.iter().map(|(name, _, read)| ((*name).to_owned(), read(facts).into()));
    Json::Object(all.collect::<Map<String, Json>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> RequestFacts {
        let mut facts = RequestFacts::new(&Uri::from_static("https://example.com/a?b"), &Method::GET);
        facts.connected = Some(facts.began + Duration::from_millis(12));
        facts.ended = Some(facts.began + Duration::from_millis(2500));
        facts.size_download = 5000;
        facts.counts.acks_sent = 3;
        let response = Response::builder().status(404).header("content-type", "text/plain").header("x-a", "b");
        facts.record_response(&response.body(()).unwrap());
        facts.first_byte = Some(facts.began + Duration::from_secs(1));
        facts
    }

    #[test]
    fn templates_are_read_as_curl_reads_them() {
        for (template, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("%{http_code}\\n", "404\n"),
            ("%{http_version} %{protocol} %{method} %{scheme}", "3 h3 GET https"),
            ("%{time_appconnect}/%{time_total}/%{time_starttransfer}", "0.012000/2.500000/1.000000"),
            ("%{size_download} at %{speed_download}", "5000 at 2000"),
            ("acks=%{acks_sent}\\t%{acks_received}", "acks=3\t0"),
            ("%{content_type}|%header{X-A}|%header{absent}|", "text/plain|b||"),
            ("%{url}%{url_effective}", "https://example.com/a?bhttps://example.com/a?b"),
            ("100%% \\\\ \\x %x {}", "100% \\ \\x %x {}"),
            ("%{http_code", "%{http_code"),
            ("%", "%"),
            ("\\", "\\"),
            ("ä%{exitcode}ö", "ä0ö"),
        ] {
            let rendered = WriteOutTemplate::parse_template(template).unwrap().render_template(&facts());
            assert_eq!(rendered, expected, "{template:?}");
        }
    }

    #[test]
    fn an_unknown_variable_is_reported_with_the_nearest_one() {
        let error = WriteOutTemplate::parse_template("%{htp_code}").unwrap_err();
        assert_eq!(error, "unknown variable \"htp_code\"; did you mean \"http_code\"?");
        assert_eq!(
            WriteOutTemplate::parse_template("%{nonsense_at_all}").unwrap_err(),
            "unknown variable \"nonsense_at_all\""
        );
        assert!(WriteOutTemplate::parse_template("%header{a b}").is_err());
        assert!(
            WriteOutTemplate::read_template("@/nonexistent/template").unwrap_err().contains("/nonexistent/template")
        );
    }

    #[test]
    fn every_variable_is_in_the_json_object_and_the_help() {
        let object: Json =
            serde_json::from_str(&WriteOutTemplate::parse_template("%{json}").unwrap().render_template(&facts()))
                .unwrap();
        let help = variables_help();
        for (name, ..) in VARIABLES {
            assert!(!object[name].is_null() && help.contains(&format!("  {name} ")), "{name}");
        }
        assert_eq!((&object["time_total"], &object["http_code"]), (&json!(2.5), &json!(404)));
        assert!(VARIABLES.is_sorted_by_key(|(name, ..)| *name));
    }

    #[test]
    fn a_request_without_a_response_has_the_status_000() {
        let facts = RequestFacts::new(&Uri::from_static("https://example.com/"), &Method::GET);
        let rendered =
            WriteOutTemplate::parse_template("%{http_code} %{time_total} %{rtt}").unwrap().render_template(&facts);
        assert_eq!(rendered, "000 0.000000 0.000000");
    }
}

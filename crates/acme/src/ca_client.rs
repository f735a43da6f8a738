//! Exchanges requests and responses with the CA over TLS 1.3 and HTTP/1.1, one per connection, limited in time and
//! size. Rejects responses on which instant-acme would panic, and keeps header fields that it drops.

use super::plan::{MAX_REFUSAL_RETRY, RENEWAL_INFO_INTERVAL};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header, response::Parts, uri::Scheme};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use litequic_base::connect_host::{ConnectHostError, connect_host};
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::{Value as Json, json};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest time of an exchange, including the lookup of the CA's name.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a response's body at most. A chain has about 5 KB.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Difference of the clocks from which on litequic warns: its clock may reject valid certificates, and renew too late.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// Port of https (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;
/// Members of a directory that are URLs (RFC 8555 §7.1.1, RFC 9773 §4).
const DIRECTORY_RESOURCES: [&str; 7] =
    ["newNonce", "newAccount", "newOrder", "newAuthz", "revokeCert", "keyChange", "renewalInfo"];

/// Reason why an exchange failed.
#[derive(Debug, thiserror::Error)]
enum CaError {
    /// The CA named a URL that is not https.
    #[error("the CA sent a URL that is not https: {0}")]
    Url(String),
    #[error("{0} is not an ACME directory: {1}")]
    Directory(String, String),
    #[error("cannot resolve {0}: {1}")]
    Lookup(String, io::Error),
    #[error("cannot connect to {0}: {1}")]
    Connect(String, io::Error),
    #[error("the TLS handshake with {0} failed: {1}{hint}", hint = private_ca_hint(.1))]
    Tls(String, io::Error),
    #[error("{0} did not answer within {EXCHANGE_TIMEOUT:?}")]
    Timeout(String),
    #[error("{0} did not answer: {1}")]
    Http(String, hyper::Error),
    #[error("the answer of {0} ended early or is longer than 1 MiB: {1}")]
    Answer(String, Box<dyn std::error::Error + Send + Sync>),
}

/// Names the key for the roots of a private CA if `error` is that no root is known.
fn private_ca_hint(error: &io::Error) -> &'static str {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match error {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "; for a private CA, name its roots: acme.ca, or run --acme-ca"
        }
        _ => "",
    }
}

impl From<CaError> for Error {
    fn from(failed: CaError) -> Self {
        Self::Other(Box::new(failed))
    }
}

/// HTTP client for one ACME directory. Clones share the hints of the last response.
#[derive(Clone)]
pub(super) struct CaClient(Arc<CaClientState>);

struct CaClientState {
    directory: String,
    tls: TlsConnector,
    hints: Mutex<CaHints>,
    /// Whether a difference of the clocks was reported, by this client or an earlier one.
    is_skew_reported: Arc<AtomicBool>,
}

/// Values of the CA's responses that instant-acme does not pass on.
#[derive(Debug, Default)]
struct CaHints {
    /// Seconds to wait, from the last refusal.
    retry_after: Option<u64>,
    /// Seconds to wait before the next poll, from the last response.
    poll_delay: Option<u64>,
    /// First of the CA's issuer domain names for dns-persist-01.
    issuer: Option<String>,
}

impl CaClient {
    /// Creates a client for the directory at `directory`, an https URL, that verifies the CA by `tls`. A difference of
    /// the clocks is reported unless `skewed` is set, and sets it.
    pub(super) fn new(directory: &str, tls: Arc<ClientConfig>, skewed: Arc<AtomicBool>) -> Self {
        let tls = TlsConnector::from(tls);
        Self(Arc::new(CaClientState {
            directory: directory.into(),
            tls,
            hints: Mutex::default(),
            is_skew_reported: skewed,
        }))
    }

    /// Takes the seconds to wait from the last refusal.
    pub(super) fn take_retry_after(&self) -> Option<u64> {
        self.0.hints.lock().retry_after.take()
    }

    /// Returns the CA's issuer domain name for dns-persist-01, from an authorization.
    pub(super) fn issuer_domain(&self) -> Option<String> {
        self.0.hints.lock().issuer.clone()
    }

    /// Takes the seconds to wait before the next poll, from the last response.
    pub(super) fn take_poll_delay(&self) -> Option<u64> {
        self.0.hints.lock().poll_delay.take()
    }
}

litequic_base::partial_debug!(CaClient);

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.exchange_with_ca(request).await })
    }
}

impl CaClientState {
    async fn exchange_with_ca(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let url = request.uri().clone();
        let host = https_host(&url)?;
        let is_directory = url == *self.directory;
        // Only the directory and renewal information are read by GET (RFC 8555 §6.3, RFC 9773 §4.1).
        let is_renewal_info = request.method() == Method::GET && !is_directory;
        let exchange = async {
            let request = to_origin_form(request, &url)?;
            let stream = connect_host(&host, url.port_u16().unwrap_or(HTTPS_PORT)).await;
            let stream = stream.map_err(|error| match error {
                ConnectHostError::Lookup(error) => CaError::Lookup(host.clone(), error),
                ConnectHostError::Connect(error) => CaError::Connect(host.clone(), error),
            })?;
            let name = ServerName::try_from(host.clone()).map_err(|_| CaError::Url(url.to_string()))?;
            let stream = self.tls.connect(name, stream).await.map_err(|error| CaError::Tls(host.clone(), error))?;
            let failed = |error| CaError::Http(host.clone(), error);
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
            // The connection ends with this future, so no request outlives its caller.
            let mut connection = std::pin::pin!(connection);
            let answer = async {
                let response = sender.send_request(request).await.map_err(failed)?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
                Ok::<_, CaError>((parts, body.map_err(|error| CaError::Answer(host.clone(), error))?.to_bytes()))
            };
            tokio::select! {
                answer = answer => answer,
                Err(error) = &mut connection => Err(failed(error)),
            }
        };
        let (mut parts, body) =
            timeout(EXCHANGE_TIMEOUT, exchange).await.map_err(|_| CaError::Timeout(host.clone()))??;
        self.report_clock_skew(&parts);
        let asked = normalize_retry_after(&mut parts, is_renewal_info);
        let mut noted = self.hints.lock();
        noted.poll_delay = asked;
        if !parts.status.is_success() && asked.is_some() {
            noted.retry_after = asked;
        }
        drop(noted);
        if let Some(issuer) = parse_issuer_domain(&body) {
            self.hints.lock().issuer = Some(issuer);
        }
        if is_directory && parts.status.is_success() {
            check_directory_urls(&body).map_err(|problem| CaError::Directory(self.directory.clone(), problem))?;
        }
        if is_directory && !parts.status.is_success() {
            return Err(CaError::Directory(self.directory.clone(), format!("HTTP status {}", parts.status)).into());
        }
        let body = if parts.status.is_client_error() || parts.status.is_server_error() {
            to_problem_document(parts.status, body)
        } else {
            body
        };
        Ok(BytesResponse { parts, body: Box::new(body) })
    }

    /// Warns, once, if this machine's clock differs from the CA's.
    fn report_clock_skew(&self, parts: &Parts) {
        let now = SystemTime::now();
        let skew = response_date(parts).map(|date| now.duration_since(date).unwrap_or_else(|before| before.duration()));
        if let Some(skew) = skew.filter(|skew| *skew > MAX_CLOCK_SKEW)
            && !self.is_skew_reported.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                directory = self.directory,
                seconds = skew.as_secs(),
                "the clock of this machine differs from the CA's: certificates may be renewed too late"
            );
        }
    }
}

/// Returns the host of an https URL, without brackets.
fn https_host(url: &Uri) -> Result<String, CaError> {
    let host = url.host().filter(|host| !host.is_empty() && url.scheme() == Some(&Scheme::HTTPS));
    let host = host.ok_or_else(|| CaError::Url(super::plan::bounded_line(&url.to_string())))?;
    Ok(host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// Converts the request to origin-form (RFC 9112 §3.2.1), with a `Host` field.
fn to_origin_form(request: Request<BodyWrapper<Bytes>>, url: &Uri) -> Result<Request<BodyWrapper<Bytes>>, CaError> {
    let wrong = || CaError::Url(super::plan::bounded_line(&url.to_string()));
    let (mut parts, body) = request.into_parts();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|_| wrong())?;
    let authority = url.authority().map_or("", |authority| authority.as_str());
    parts.headers.insert(header::HOST, HeaderValue::from_str(authority).map_err(|_| wrong())?);
    let agent = concat!("litequic/", env!("CARGO_PKG_VERSION"));
    parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    Ok(Request::from_parts(parts, body))
}

/// Returns the time of a response by the CA's clock (RFC 9110 §6.6.1).
fn response_date(parts: &Parts) -> Option<SystemTime> {
    httpdate::parse_http_date(parts.headers.get(header::DATE)?.to_str().ok()?).ok()
}

/// Returns the seconds of Retry-After, if any, and leaves a value that instant-acme can use: it adds the value to the
/// time and panics on overflow, and requires one with renewal information, where the CA may have none. A date is
/// compared with the CA's own clock.
fn normalize_retry_after(parts: &mut Parts, is_renewal_info: bool) -> Option<u64> {
    let now = response_date(parts).unwrap_or_else(SystemTime::now);
    let asked = parts.headers.get(header::RETRY_AFTER).and_then(|value| parse_retry_after(value, now));
    let asked = asked.map(|seconds| seconds.min(MAX_REFUSAL_RETRY));
    parts.headers.remove(header::RETRY_AFTER);
    if let Some(seconds) = asked.or(is_renewal_info.then_some(RENEWAL_INFO_INTERVAL)) {
        parts.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    asked
}

/// Returns the seconds from `now` on of a Retry-After field (RFC 9110 §10.2.3).
fn parse_retry_after(value: &HeaderValue, now: SystemTime) -> Option<u64> {
    let value = value.to_str().ok()?.trim();
    let until = || Some(httpdate::parse_http_date(value).ok()?.duration_since(now).map_or(0, |wait| wait.as_secs()));
    value.parse().ok().or_else(until)
}

/// Checks that every URL of a directory can be requested: instant-acme panics if `newNonce` is not a URL.
fn check_directory_urls(body: &[u8]) -> Result<(), String> {
    let json: Json = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
    for resource in DIRECTORY_RESOURCES {
        let Some(url) = json.get(resource) else { continue };
        let parsed = url.as_str().and_then(|url| url.parse::<Uri>().ok());
        if parsed.is_none_or(|url| https_host(&url).is_err()) {
            return Err(format!("{resource} is not an https URL: {}", super::plan::bounded_line(&url.to_string())));
        }
    }
    Ok(())
}

/// Returns the CA's issuer domain name in an authorization that offers dns-persist-01; instant-acme ignores it.
fn parse_issuer_domain(body: &[u8]) -> Option<String> {
    let json: Json = serde_json::from_slice(body).ok()?;
    let offered = json.get("challenges")?.as_array()?.iter();
    let mut names = offered.filter_map(|challenge| challenge.get("issuer-domain-names")?.as_array()?.first()?.as_str());
    names.next().map(super::plan::bounded_line)
}

/// Returns the body of a refusal as a problem document (RFC 9457). Any other body, such as a balancer's HTML, is
/// replaced by the status.
fn to_problem_document(status: StatusCode, body: Bytes) -> Bytes {
    let is_problem = |json: Json| json.is_object() && (json.get("type").is_some() || json.get("detail").is_some());
    if serde_json::from_slice(&body).is_ok_and(is_problem) {
        return body;
    }
    let detail = format!("HTTP status {status}, without a reason");
    json!({ "type": "about:blank", "detail": detail, "status": status.as_u16() }).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_whose_urls_are_none_is_refused() {
        let directory =
            |nonce: &str| format!("{{\"newNonce\": {nonce}, \"newAccount\": \"https://ca.test/a\", \"meta\": {{}}}}");
        assert_eq!(check_directory_urls(directory("\"https://ca.test/n\"").as_bytes()), Ok(()));
        for wrong in ["\"local host\"", "\"\"", "7", "null", "\"http://ca.test/n\"", "\"https://\"", "\"/n\""] {
            let error = check_directory_urls(directory(wrong).as_bytes()).unwrap_err();
            assert!(error.starts_with("newNonce is not an https URL: "), "{wrong}: {error}");
        }
        assert!(check_directory_urls(b"<html>").is_err());
    }

    #[test]
    fn a_refusal_without_a_problem_document_becomes_its_status() {
        let refusal = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many"}"#;
        assert_eq!(to_problem_document(StatusCode::TOO_MANY_REQUESTS, refusal.into()), refusal.as_bytes());
        for body in ["<html>Service Unavailable</html>", "", "[]", "7", "{}", "{\"error\": \"no\"}"] {
            let problem: Json =
                serde_json::from_slice(&to_problem_document(StatusCode::BAD_GATEWAY, body.into())).unwrap();
            assert_eq!(problem["detail"], "HTTP status 502 Bad Gateway, without a reason", "{body}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, expected) in [
            ("120", Some(120)),
            (" 5 ", Some(5)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after(&HeaderValue::from_str(value).unwrap(), now), expected, "{value:?}");
        }
    }

    #[test]
    fn retry_after_is_bounded_before_instant_acme_reads_it() {
        let forever = u64::MAX.to_string();
        for (given, is_renewal_info, expected) in [
            (Some("60"), false, Some(60)),
            (Some(forever.as_str()), false, Some(MAX_REFUSAL_RETRY)),
            (Some("99999999999999999999999"), false, None),
            (Some("99999999999999999999999"), true, Some(RENEWAL_INFO_INTERVAL)),
            (None, false, None),
            (None, true, Some(RENEWAL_INFO_INTERVAL)),
            // The date counts by the CA's clock, not this machine's.
            (Some("Sun, 06 Nov 1994 08:50:37 GMT"), false, Some(60)),
        ] {
            let mut response = http::Response::new(());
            response.headers_mut().insert(header::DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
            if let Some(given) = given {
                response.headers_mut().insert(header::RETRY_AFTER, given.parse().unwrap());
            }
            let (mut parts, ()) = response.into_parts();
            let asked = normalize_retry_after(&mut parts, is_renewal_info);
            assert!(asked.is_none() || asked == expected, "{given:?}");
            let kept = parts.headers.get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().parse().unwrap());
            assert_eq!(kept, expected, "{given:?}");
        }
    }

    #[test]
    fn only_https_is_requested() {
        for (url, expected) in [
            ("https://ca.test/a", Some("ca.test")),
            ("https://[::1]:14000/a", Some("::1")),
            ("http://ca.test/a", None),
            ("/a", None),
        ] {
            assert_eq!(https_host(&url.parse().unwrap()).ok().as_deref(), expected, "{url}");
        }
    }
}

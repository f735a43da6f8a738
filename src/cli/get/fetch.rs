//! Makes the requests, one after the other on one connection, and writes their responses.

use super::arguments::GetArguments;
use super::get_error::GetError;
use super::output::{self, ResponseOutput};
use super::request;
use super::upload::{UploadBody, UploadSource};
use super::values::AddressOverride;
use super::verbose::{self, VerboseTrace};
use super::write_out::RequestFacts;
use crate::cli::{
    exit::{Exit, exit_with_error},
    run::control_runtime,
};
use futures_util::future::poll_immediate;
use http::{HeaderMap, HeaderValue, Request, header};
use litequic_config::CertificateFiles;
use litequic_http3::client::{Http3Client, ResponsePiece, ResponseStream};
use litequic_quic::{self as quic, Observer};
use litequic_tls::{self as tls, PresentedCertificate, ServerTrust};
use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout, timeout_at};

/// Delay before the process ends, so that CONNECTION_CLOSE is sent: without it, a server keeps the connection until its
/// idle timeout.
const EXIT_DELAY: Duration = Duration::from_millis(20);

/// Timeout that stands for none: a year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes the requests and writes the responses.
pub fn run_get(arguments: GetArguments) -> ExitCode {
    let runtime = match control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_error(Exit::Software, error),
    };
    let mut output = None;
    let outcome = runtime.block_on(async {
        let outcome = make_requests(&arguments, &mut output).await;
        sleep(EXIT_DELAY).await;
        outcome
    });
    // A reader that pauses may delay this; the connection to the server is closed by now.
    let written = output.map_or(Ok(()), ResponseOutput::finish_output);
    match outcome.and_then(|exit| written.map(|()| exit)) {
        Ok(exit) => exit.into(),
        // The reader closed the pipe: only the exit code remains.
        Err(error) if output::reader_is_gone(&error) => Exit::from(&error).into(),
        Err(error) => exit_with_error(Exit::from(&error), error),
    }
}

/// Connects and makes each request. `output` is opened after the connection.
async fn make_requests(arguments: &GetArguments, output: &mut Option<ResponseOutput>) -> Result<Exit, GetError> {
    let request = request::request_from_arguments(arguments)?;
    let source = request::upload_source(arguments);
    if arguments.repeat > 1 && matches!(source, UploadSource::StandardInput) {
        return Err(GetError::Repeat);
    }
    let verbose = VerboseTrace(arguments.verbose);
    // aws-lc gathers entropy at its first use, for some 40 ms, which belongs to no connection. A failure here recurs in
    // the handshake.
    let _ = aws_lc_rs::rand::fill(&mut [0; 1]);
    let mut facts = RequestFacts::new(request.uri(), request.method());
    let opened = async {
        // The upload is opened first: no connection is made for a file that does not exist.
        let first = source.open_body()?;
        let (connection, observer) = connect_to_server(arguments, verbose, &mut facts).await?;
        // The file is truncated only once connected, and before the first request.
        let output = output.insert(ResponseOutput::open_output(arguments.output.as_ref(), arguments.include)?);
        Ok::<_, GetError>((Http3Client::from_connection(connection).await?, observer, output, first))
    };
    let (client, observer, output, first) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            facts.record_end(&Err(&error), &Observer::default());
            if let Some(template) = &arguments.write_out {
                // An error of this output would hide that of the request.
                let _ = output::print_to_stdout(&template.render_template(&facts));
            }
            return Err(error);
        }
    };

    let limit = if arguments.timeout.is_zero() { NO_LIMIT } else { arguments.timeout };
    let (mut exit, mut body, mut before) = (Exit::Success, Some(first), quic::PacketCounts::default());
    let mut watch = pin!(client.watch_server_streams());
    for nth in 1..=arguments.repeat {
        let body = match body.take() {
            Some(body) => body,
            None => source.open_body()?,
        };
        let deadline = (facts.began + limit).into();
        let outcome = tokio::select! {
            biased;
            outcome = timeout_at(deadline, exchange_response(&client, &request, body, output, verbose, &mut facts)) => outcome,
            error = &mut watch => Ok(Err(error.into())),
        };
        let outcome = outcome.unwrap_or_else(|_| Err(timeout_error(limit, &facts)));
        facts.counts = observer.packet_counts().counts_since(&before);
        facts.record_end(&outcome.as_ref().copied(), &observer);
        // The part of a response that was cut off is written, too.
        let written = match (output.flush_gathered().await, &arguments.write_out) {
            (Ok(()), Some(template)) => print_write_out(&template.render_template(&facts), output).await,
            (written, _) => written,
        };
        if outcome? == Exit::Status {
            exit = Exit::Status;
        }
        written?;
        if nth < arguments.repeat {
            (facts, before) = (facts.next_request(), observer.packet_counts());
        }
    }
    client.close_connection();
    Ok(exit)
}

fn timeout_error(limit: Duration, facts: &RequestFacts) -> GetError {
    match facts.status {
        Some(_) => GetError::NotWhole { limit, received: facts.size_download },
        None => GetError::NoResponse(limit),
    }
}

/// Prints `text` after the response, which may go to standard output, too.
pub(super) async fn print_write_out(text: &str, output: &mut ResponseOutput) -> Result<(), GetError> {
    if output.is_file() {
        return output::print_to_stdout(text);
    }
    output.write_bytes(text.as_bytes()).await?;
    output.flush_gathered().await
}

/// Connects to the first address of the URL's host that answers.
async fn connect_to_server(
    arguments: &GetArguments,
    verbose: VerboseTrace,
    facts: &mut RequestFacts,
) -> Result<(s2n_quic::Connection, Observer), GetError> {
    let (host, port) = request::server_of_url(&arguments.url)?;
    let trust = match (arguments.insecure, &arguments.ca) {
        (true, _) => ServerTrust::Insecure,
        (false, Some(file)) => ServerTrust::File(file.clone()),
        (false, None) => ServerTrust::System,
    };
    let own = match (&arguments.client_cert, &arguments.client_key) {
        (Some(cert), Some(key)) => Some(CertificateFiles { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let presented = PresentedCertificate::default();
    let tls = tls::client_config_recording(own.as_ref(), &trust, arguments.key_log, &presented)?;

    let limit = [arguments.connect_timeout, arguments.timeout].into_iter().filter(|limit| !limit.is_zero()).min();
    let limit = limit.unwrap_or(NO_LIMIT);
    let addresses = match timeout(limit, server_addresses(host, port, &arguments.resolve)).await {
        Ok(addresses) => addresses?,
        Err(_) => return Err(GetError::Lookup { host: host.into(), source: io::ErrorKind::TimedOut.into() }),
    };
    facts.looked_up = Some(Instant::now());
    let mut last = GetError::NoAddress(host.into());
    // Each address gets a share of the time, so that one that never answers leaves some for the others.
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        verbose.print_fact(|| format!("Trying {address}"));
        let (observer, began) = (Observer::new(arguments.verbose), Instant::now());
        presented.clear_recorded();
        let outcome = quic::connect_client(address, host, tls.clone(), share, &observer).await;
        let seen = observer.observed_state();
        facts.first_packet = seen.first_received;
        match outcome {
            Ok(connection) => {
                facts.connected = Some(Instant::now());
                facts.connections = 1;
                (facts.local, facts.remote) = (connection.local_addr().ok(), connection.remote_addr().ok());
                let certificate = || verbose::certificate_facts(&presented, arguments.insecure);
                let (local, remote) = (facts.local, facts.remote);
                verbose.print_facts(|| verbose::connection_facts(&seen, local, remote, began.elapsed(), certificate()));
                return Ok((connection, observer));
            }
            Err(error) => {
                last = match presented.certificate_rejection() {
                    Some(reason) => GetError::Certificate { host: host.into(), address, reason },
                    None => error.into(),
                };
                verbose.print_facts(|| verbose::certificate_facts(&presented, arguments.insecure));
                verbose.print_facts(|| verbose::packet_lines(&seen));
                verbose.print_fact(|| {
                    format!("Connection failed: {}", last.to_string().lines().next().unwrap_or_default())
                });
            }
        }
    }
    Err(last)
}

async fn server_addresses(host: &str, port: u16, resolve: &[AddressOverride]) -> Result<Vec<SocketAddr>, GetError> {
    let given: Vec<_> = resolve
        .iter()
        .filter(|given| given.port == port && given.host.eq_ignore_ascii_case(host))
        .map(|given| SocketAddr::new(given.address, port))
        .collect();
    if !given.is_empty() {
        return Ok(given);
    }
    let found = tokio::net::lookup_host((host, port)).await;
    Ok(found.map_err(|source| GetError::Lookup { host: host.into(), source })?.collect())
}

/// Sends one request, and receives its response. The body is sent meanwhile: a server may respond before it has read
/// all.
async fn exchange_response(
    client: &Http3Client,
    request: &Request<()>,
    body: UploadBody,
    output: &mut ResponseOutput,
    verbose: VerboseTrace,
    facts: &mut RequestFacts,
) -> Result<Exit, GetError> {
    let mut request = request.clone();
    if let Some(length) = body.length {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    verbose.print_request(&request);
    let (out, mut response) = client.send_request(&request).await?;
    facts.sending = Some(Instant::now());
    let sent = Cell::new(0);
    let outcome = {
        let mut upload = pin!(body.send_body(out, &sent));
        let mut respond = pin!(write_response(&mut response, client, output, verbose, facts));
        let mut uploading = true;
        loop {
            tokio::select! {
                outcome = &mut respond => break outcome,
                outcome = &mut upload, if uploading => match outcome {
                    Ok(()) => uploading = false,
                    Err(error) => break Err(error),
                },
            }
        }
    };
    facts.size_upload = sent.get();
    outcome
}

/// Writes the response piece by piece.
async fn write_response(
    response: &mut ResponseStream,
    client: &Http3Client,
    output: &mut ResponseOutput,
    verbose: VerboseTrace,
    facts: &mut RequestFacts,
) -> Result<Exit, GetError> {
    let status = loop {
        let head = response.next_head().await?;
        facts.record_response(&head);
        if let (Some(settings), true) = (client.server_settings(), verbose.0) {
            verbose.print_fact(|| verbose::settings_line(&settings));
        }
        verbose.print_response(&head);
        output.write_response_head(&head).await?;
        if !head.status().is_informational() {
            break head.status();
        }
        output.flush_gathered().await?;
    };
    loop {
        let piece = {
            let mut next = pin!(response.next_body_piece());
            match poll_immediate(&mut next).await {
                Some(piece) => piece?,
                // All data that has arrived is written before the wait for more.
                None => {
                    output.flush_gathered().await?;
                    next.await?
                }
            }
        };
        match piece {
            Some(ResponsePiece::Data(data)) => {
                facts.size_download += data.len() as u64;
                output.write_bytes(&data).await?;
            }
            Some(ResponsePiece::Trailers(trailers)) => {
                let trailers = HeaderMap::from(trailers);
                verbose.print_trailers(&trailers);
                output.write_trailers(&trailers).await?;
            }
            None => break,
        }
    }
    Ok(if status.is_client_error() || status.is_server_error() { Exit::Status } else { Exit::Success })
}

//! Makes the request, and writes its response.

use super::arguments::GetArguments;
use super::get_error::GetError;
use super::output::{self, ResponseOutput};
use super::request;
use super::values::{self, AddressOverride};
use super::verbose::{self, VerboseTrace};
use crate::cli::{
    exit::{CommandResult, Exit, exit_with_error, print_stdout},
    run::control_runtime,
};
use bytes::Bytes;
use futures_util::future::poll_immediate;
use http::{HeaderMap, Request, StatusCode};
use litequic_config::CertificateFiles;
use litequic_http3::client::{Http3Client, ResponsePiece, ResponseStream};
use litequic_quic::{self as quic, Observer};
use litequic_tls::{self as tls, PresentedCertificate, ServerTrust};
use std::{io, net::SocketAddr, pin::pin, time::Duration};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Delay before the process ends, so that CONNECTION_CLOSE is sent: without it, a server keeps the connection until its
/// idle timeout.
const EXIT_DELAY: Duration = Duration::from_millis(20);

/// Timeout that stands for none: a year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes the request and writes the response.
pub fn run_get(arguments: GetArguments) -> CommandResult {
    let outcome = control_runtime()?.block_on(async {
        let mut output = None;
        let outcome = make_request(&arguments, &mut output).await;
        sleep(EXIT_DELAY).await;
        // A reader that pauses may delay this; the connection to the server is closed by now.
        let written = match &mut output {
            Some(output) => output.flush_output().await,
            None => Ok(()),
        };
        outcome.and_then(|status| written.map(|()| status))
    });
    match outcome {
        Ok(status) => {
            let text = arguments.write_out.unwrap_or_default().replace(values::STATUS_VARIABLE, status.as_str());
            let is_failure = status.is_client_error() || status.is_server_error();
            let printed = print_stdout(text.as_bytes());
            Ok(if is_failure { Exit::Status.into() } else { printed })
        }
        // The reader closed the pipe: only the exit code remains.
        Err(error) if output::reader_is_gone(&error) => Err(Exit::from(&error).into()),
        Err(error) => Err(exit_with_error(Exit::from(&error), error)),
    }
}

/// Connects, and makes the request. `output` is opened after the connection.
async fn make_request(arguments: &GetArguments, output: &mut Option<ResponseOutput>) -> Result<StatusCode, GetError> {
    let request = request::request_from_arguments(arguments)?;
    let verbose = VerboseTrace(arguments.verbose);
    let limit = limit_or_none(arguments.timeout);
    let deadline = Instant::now() + limit;
    let connection = connect_to_server(arguments, verbose).await?;
    // The file is truncated only once connected, and before the request.
    let output = output.insert(ResponseOutput::open_output(arguments.output.as_ref(), arguments.include).await?);
    let client = Http3Client::from_connection(connection).await?;
    let mut received = None;
    let outcome = tokio::select! {
        biased;
        outcome = timeout_at(deadline, exchange_response(&client, &request, output, verbose, &mut received)) => outcome,
        error = client.watch_server_streams() => Ok(Err(error.into())),
    };
    let outcome = outcome.unwrap_or_else(|_| {
        Err(received.map_or(GetError::NoResponse(limit), |received| GetError::NotWhole { limit, received }))
    });
    // The part of a response that was cut off is written, too.
    let status = outcome?;
    client.close_connection();
    Ok(status)
}

/// The limit that an argument sets; 0 is none.
const fn limit_or_none(limit: Duration) -> Duration {
    if limit.is_zero() { NO_LIMIT } else { limit }
}

/// Connects to the first address of the URL's host that answers.
async fn connect_to_server(arguments: &GetArguments, verbose: VerboseTrace) -> Result<s2n_quic::Connection, GetError> {
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
    let tls = tls::client_config_recording(own.as_ref(), &trust, &presented)?;

    let limit = limit_or_none(arguments.connect_timeout).min(limit_or_none(arguments.timeout));
    let addresses = match timeout(limit, server_addresses(host, port, &arguments.resolve)).await {
        Ok(addresses) => addresses?,
        Err(_) => return Err(GetError::Lookup { host: host.into(), source: io::ErrorKind::TimedOut.into() }),
    };
    let mut last = GetError::NoAddress(host.into());
    // Each address gets a share of the time, so that one that never answers leaves some for the others.
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        verbose.print_fact(|| format!("Trying {address}"));
        let (observer, began) = (Observer::default(), Instant::now());
        presented.clear_recorded();
        let outcome = quic::connect_client(address, host, tls.clone(), share, &observer).await;
        match outcome {
            Ok(connection) => {
                verbose.print_marked('*', || {
                    let certificate = verbose::certificate_facts(&presented, arguments.insecure);
                    verbose::connection_facts(&observer.observed_state(), &connection, began.elapsed(), certificate)
                });
                return Ok(connection);
            }
            Err(error) => {
                last = match presented.certificate_rejection() {
                    Some(reason) => GetError::Certificate { host: host.into(), address, reason },
                    None => error.into(),
                };
                verbose.print_marked('*', || verbose::certificate_facts(&presented, arguments.insecure));
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

/// Sends the request, and receives its response, maybe before the server has read the body. `received` counts the bytes
/// of the response's body, once its header is there.
async fn exchange_response(
    client: &Http3Client,
    request: &Request<Bytes>,
    output: &mut ResponseOutput,
    verbose: VerboseTrace,
    received: &mut Option<u64>,
) -> Result<StatusCode, GetError> {
    verbose.print_marked('>', || verbose::request_lines(request));
    let (mut out, mut response) = client.send_request(request).await?;
    let mut respond = pin!(write_response(&mut response, client, output, verbose, received));
    let send = async {
        // `false`: the server reads no more of the body, and responds.
        if request.body().is_empty() || out.send_body_data(request.body().clone()).await? {
            out.finish_request();
        }
        Ok(())
    };
    tokio::select! {
        outcome = &mut respond => outcome,
        sent = send => match sent {
            Ok(()) => respond.await,
            Err(error) => Err(error),
        },
    }
}

/// Writes the response piece by piece.
async fn write_response(
    response: &mut ResponseStream,
    client: &Http3Client,
    output: &mut ResponseOutput,
    verbose: VerboseTrace,
    received: &mut Option<u64>,
) -> Result<StatusCode, GetError> {
    let status = loop {
        let head = response.next_head().await?;
        if let (Some(settings), true) = (client.server_settings(), verbose.0) {
            verbose.print_fact(|| verbose::settings_line(&settings));
        }
        verbose.print_marked('<', || verbose::response_lines(&head));
        output.write_response_head(&head).await?;
        if !head.status().is_informational() {
            break head.status();
        }
        output.flush_output().await?;
    };
    let received = received.insert(0);
    loop {
        let piece = {
            let mut next = pin!(response.next_body_piece());
            match poll_immediate(&mut next).await {
                Some(piece) => piece?,
                // All data that has arrived is written before the wait for more.
                None => {
                    output.flush_output().await?;
                    next.await?
                }
            }
        };
        match piece {
            Some(ResponsePiece::Data(data)) => {
                *received += data.len() as u64;
                output.write_bytes(&data).await?;
            }
            Some(ResponsePiece::Trailers(trailers)) => {
                let trailers = HeaderMap::from(trailers);
                verbose.print_marked('<', || verbose::field_lines(&trailers).collect());
                output.write_trailers(&trailers).await?;
            }
            None => break,
        }
    }
    Ok(status)
}

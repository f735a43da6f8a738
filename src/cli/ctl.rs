//! `litequic ctl`: sends a request to the `admin.listen` of a running litequic; those that `admin.probes` answers may
//! go there as well.

mod status;

use super::{
    exit::{Exit, fail, print},
    run::control_runtime,
};
use crate::admin::{MaintenanceOrder, Token};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal},
    net::SocketAddr,
    ops::RangeInclusive,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

/// A reload reads files and checks certificates; no request takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any answer has.
const MAX_ANSWER: usize = 16 << 20;
/// Between the two answers from which `status` computes rates.
const BETWEEN: Duration = Duration::from_secs(1);
/// Clears a terminal and goes to its first column and row (ECMA-48 §8.3.39, §8.3.21).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Arguments of `litequic ctl`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The request.
    #[arg(value_enum)]
    what: What,
    /// Of maintenance and http3: on or off.
    #[arg(value_enum, required_if_eq_any([("what", "maintenance"), ("what", "http3")]))]
    state: Option<OnOff>,
    /// Of maintenance: the name of a route, or a host for all its routes that have an origin. Without it, all routes
    /// that have an origin.
    #[arg(long, value_name = "NAME_OR_HOST", requires = "state")]
    route: Option<String>,
    /// Of maintenance: Retry-After for clients.
    #[arg(long, value_name = "SECONDS", requires = "state", value_parser = clap::value_parser!(u32).range(retry_after()))]
    retry_after: Option<u32>,
    /// The admin.listen of the running litequic.
    #[arg(long, value_name = "ADDR", env = "LITEQUIC_ADMIN", default_value = "127.0.0.1:9443")]
    admin: SocketAddr,
    /// The file of its admin.token_file; without one the environment variable LITEQUIC_ADMIN_TOKEN is used, if set.
    #[arg(long, value_name = "FILE", env = "LITEQUIC_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// `status`: print the answer as JSON.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// `status`: repeat, every so many seconds; 2 if there is no number.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// The environment variable with the token.
const TOKEN: &str = "LITEQUIC_ADMIN_TOKEN";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Its status: a screen of text, or JSON.
    Status,
    /// Its configuration, without secrets, as JSON.
    Config,
    /// Drain and end the process.
    Drain,
    /// Reload its configuration and certificates; prints every change, or every fault.
    Reload,
    /// Answer routes with 503 and Retry-After, or serve them again; prints those that are in maintenance then.
    Maintenance,
    /// Serve HTTP/3 or refuse it, until a reload changes listen.http3: off in an incident, on afterwards.
    Http3,
    /// Its metrics, as OpenMetrics text.
    Metrics,
    /// Whether every worker's loop turns: for a container's health check.
    Health,
    /// Whether new clients are accepted.
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    /// Maintenance: 503 from now on. HTTP/3: served.
    On,
    /// Maintenance: served again. HTTP/3: refused.
    Off,
}

fn retry_after() -> RangeInclusive<i64> {
    let seconds = MaintenanceOrder::RETRY_AFTER_RANGE;
    i64::from(*seconds.start())..=i64::from(*seconds.end())
}

impl What {
    const fn request(self) -> (Method, &'static str) {
        match self {
            Self::Status => (Method::GET, "/status"),
            Self::Config => (Method::GET, "/config"),
            Self::Drain => (Method::POST, "/drain"),
            Self::Reload => (Method::POST, "/reload"),
            Self::Maintenance => (Method::POST, "/maintenance"),
            Self::Http3 => (Method::POST, "/http3"),
            Self::Metrics => (Method::GET, "/metrics"),
            Self::Health => (Method::GET, "/healthz"),
            Self::Ready => (Method::GET, "/readyz"),
        }
    }
}

/// Sends the request, and prints the answer: to stdout, or to stderr if it is an error.
pub fn run(arguments: Arguments) -> ExitCode {
    if arguments.what != What::Status && (arguments.json || arguments.watch.is_some()) {
        return fail(Exit::Usage, "--json and --watch need `ctl status`");
    }
    let order = match (arguments.what, arguments.state) {
        (What::Maintenance, Some(state)) => {
            let order = MaintenanceOrder {
                on: state == OnOff::On,
                route: arguments.route,
                retry_after: arguments.retry_after.unwrap_or(MaintenanceOrder::RETRY_AFTER),
            };
            Some(order.to_string())
        }
        (What::Http3, Some(state)) => {
            if arguments.route.is_some() || arguments.retry_after.is_some() {
                return fail(Exit::Usage, "--route and --retry-after need `ctl maintenance`");
            }
            Some(format!("state={}", if state == OnOff::On { "on" } else { "off" }))
        }
        (_, Some(_)) => return fail(Exit::Usage, "on and off need `ctl maintenance` or `ctl http3`"),
        (_, None) => None,
    };
    let token = match (&arguments.token_file, env::var_os(TOKEN)) {
        (Some(path), _) => Token::read(path).map(Some),
        (None, Some(_)) => Token::from_env(TOKEN).map(Some),
        (None, None) => Ok(None),
    };
    let token = match token {
        Ok(token) => token,
        Err(error) => return fail(Exit::Usage, error),
    };
    let runtime = match control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(Exit::Software, error),
    };
    let Arguments { what, admin, json, watch, .. } = arguments;
    runtime.block_on(async {
        if what == What::Status && !json {
            return show(admin, token.as_ref(), watch.map(Duration::from_secs)).await;
        }
        match answer(admin, what, order.as_deref(), token.as_ref()).await {
            Ok(body) => print(&body),
            Err(failure) => failure.exit(),
        }
    })
}

/// Why there is nothing to print.
struct Failure {
    exit: Exit,
    why: String,
}

impl Failure {
    fn unavailable(admin: SocketAddr, why: impl Display) -> Self {
        Self { exit: Exit::Unavailable, why: format!("{admin}: {why}") }
    }

    fn exit(&self) -> ExitCode {
        fail(self.exit, &self.why)
    }
}

/// Prints the status for people: once, or again after each `every` until the process is ended.
async fn show(admin: SocketAddr, token: Option<&Token>, every: Option<Duration>) -> ExitCode {
    let is_terminal = io::stdout().is_terminal();
    let colour = is_terminal && has_colour(|name| env::var(name).ok());
    let mut before = match status(admin, token).await {
        Ok(status) => status,
        Err(failure) => return failure.exit(),
    };
    let mut pause = BETWEEN;
    loop {
        sleep(pause).await;
        let screen = match (status(admin, token).await, every) {
            (Ok(now), _) => {
                let screen = status::render(&now, Some(&before), colour);
                before = now;
                screen
            }
            // It may answer again.
            (Err(failure), Some(_)) => format!("litequic: {}\n", failure.why),
            (Err(failure), None) => return failure.exit(),
        };
        let Some(every) = every else { return print(screen.as_bytes()) };
        let beginning = if is_terminal { CLEAR } else { "" };
        let end = if is_terminal { "" } else { "\n" };
        if print(format!("{beginning}{screen}{end}").as_bytes()) != ExitCode::SUCCESS {
            return Exit::Output.into();
        }
        pause = every;
    }
}

/// Whether a terminal is to get colours, by the environment (<https://no-color.org>).
fn has_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_unset = variable("NO_COLOR").is_none_or(|value| value.is_empty());
    is_unset && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

async fn status(admin: SocketAddr, token: Option<&Token>) -> Result<Json, Failure> {
    let body = answer(admin, What::Status, None, token).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Failure::unavailable(admin, format_args!("the answer is not JSON: {error}")))
}

/// The body of a successful answer.
async fn answer(admin: SocketAddr, what: What, order: Option<&str>, token: Option<&Token>) -> Result<Bytes, Failure> {
    match timeout(PATIENCE, ask(admin, what, order, token)).await {
        Ok(Ok((status, body))) if status.is_success() => Ok(body),
        Ok(Ok((_, body))) => Err(Failure { exit: Exit::Status, why: String::from_utf8_lossy(&body).trim_end().into() }),
        Ok(Err(error)) => Err(Failure::unavailable(admin, format_args!("{error:#}"))),
        Err(_) => Err(Failure::unavailable(admin, format_args!("no answer within {PATIENCE:?}"))),
    }
}

async fn ask(
    admin: SocketAddr,
    what: What,
    order: Option<&str>,
    token: Option<&Token>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let (method, path) = what.request();
    let path = order.map_or_else(|| path.to_owned(), |order| format!("{path}?{order}"));
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, admin.to_string());
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token.authorization());
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|error| anyhow::anyhow!(error))?.to_bytes()))
    };
    // The answer is whole before the connection's task may end.
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended?;
            answer.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_a_dumb_terminal_get_none() {
        for (no_color, term, expected) in [
            (None, Some("xterm-256color"), true),
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let variable = |name: &str| match name {
                "NO_COLOR" => no_color.map(str::to_owned),
                _ => term.map(str::to_owned),
            };
            assert_eq!(has_colour(variable), expected, "{no_color:?} {term:?}");
        }
    }
}

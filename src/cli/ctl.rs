//! Runs `litequic ctl`: sends a request to the admin socket or `admin.listen` of a running litequic. Requests that
//! `admin.probes` answers may go there as well.

mod admin_address;
mod certificates;
mod clients;
mod denied;
mod exchange;
mod failure;
mod local_time;
mod qlog;
mod status;

use super::exit::{CommandResult, Exit, exit_with_error, print_stdout};
use super::run::{control_runtime, one_of_names};
use admin_address::{AdminAddress, FoundAdmin};
use clap::{ArgAction, Args, Subcommand};
use exchange::{AdminAnswer, AdminClient};
use failure::CtlFailure;
use http::Method;
use litequic_admin::{self as admin, CloseOrder, DenyOrder, MaintenanceOrder, QlogOrder, Status, Token};
use litequic_config::Network;
use litequic_telemetry::clients::{DEFAULT_LIMIT, ListOrder, ListQuery, MAX_LIMIT, Selection, Selector};
use rustix::termios::tcgetwinsize;
use serde::Deserialize;
use serde_json::Value as Json;
use std::{
    env,
    io::{self, IsTerminal},
    ops::RangeInclusive,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};
use tokio::time::sleep;

/// Time between the two answers from which `status` computes rates.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Clears a terminal and moves to its first column and row (ECMA-48 §8.3.39, §8.3.21).
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";

/// Arguments of `litequic ctl`.
#[derive(Debug, Args)]
pub struct CtlArguments {
    #[command(flatten)]
    target: CtlTarget,
    #[command(subcommand)]
    command: CtlCommand,
}

/// Selects the running litequic, and proves the right to control it.
#[derive(Debug, Args)]
struct CtlTarget {
    /// The admin.socket or admin.listen of the running litequic: a path, ADDRESS:PORT, :PORT, localhost:PORT or
    /// http://ADDRESS:PORT. Without it, the default sockets, then 127.0.0.1:9443.
    #[arg(long, value_name = "WHERE", env = "LITEQUIC_ADMIN", global = true)]
    admin: Option<AdminAddress>,
    /// The configuration file of the running litequic, where several have a default socket.
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// File with the token, as in its admin.token_file. Without it, the token is the environment variable
    /// LITEQUIC_ADMIN_TOKEN, if set.
    #[arg(long, value_name = "FILE", env = "LITEQUIC_ADMIN_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
}

/// Environment variable with the token.
const TOKEN_VARIABLE: &str = "LITEQUIC_ADMIN_TOKEN";

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Print the status: a screen of text, or JSON.
    Status(ScreenOptions),
    /// Print the connections of clients, sorted by the rate of sent bytes.
    Clients {
        /// Only the connections of an address, ADDRESS:PORT, a network, or with an ID, which --json lists.
        #[arg(long, value_name = "CLIENT")]
        client: Option<Selector>,
        #[command(flatten)]
        protocol: ProtocolOption,
        /// The column to sort by: sent-rate, sent, received, open, since, rtt, loss or held.
        #[arg(long, value_name = "COLUMN", default_value = "sent-rate")]
        sort: ListOrder,
        /// Maximum number of lines.
        #[arg(long, value_name = "LINES", default_value_t = DEFAULT_LIMIT as u16,
            value_parser = clap::value_parser!(u16).range(1..=MAX_LIMIT as i64))]
        limit: u16,
        #[command(flatten)]
        screen: ScreenOptions,
    },
    /// Close connections of clients: send GOAWAY, and close each one when its requests have ended.
    Close {
        /// An address, ADDRESS:PORT, a network, or the ID of a connection.
        client: Selector,
        #[command(flatten)]
        protocol: ProtocolOption,
        /// Abort open requests instead of waiting for them.
        #[arg(long)]
        now: bool,
        /// Confirm a network that is larger than an IPv4 /16 or an IPv6 /32.
        #[arg(long)]
        all: bool,
    },
    /// Refuse the clients of a network for a time, and close their connections. A restart ends it.
    Deny {
        /// An address or a network.
        #[arg(value_parser = admin::parse_client_network)]
        network: Network,
        /// Duration of the denial, such as 10m, 1h or 7d; at most 30d.
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: Duration,
        /// Confirm a network that is larger than an IPv4 /16 or an IPv6 /32.
        #[arg(long)]
        all: bool,
        /// Deny the network even if it includes loopback addresses or trusted proxies.
        #[arg(long)]
        force: bool,
    },
    /// Allow a denied network again.
    Allow {
        /// An address or a network, as it was denied.
        #[arg(value_parser = admin::parse_client_network)]
        network: Network,
    },
    /// Print the networks that are denied.
    Denied {
        #[command(flatten)]
        json: JsonOption,
    },
    /// Log QUIC connections of a client, packet by packet, as qlog.
    Qlog {
        /// The connections of an address or ADDRESS:PORT, or with an ID.
        #[arg(long, value_name = "CLIENT")]
        client: Selector,
        /// Duration of the log.
        #[arg(long, value_name = "SECONDS", default_value_t = QlogOrder::DEFAULT_SECONDS,
            value_parser = clap::value_parser!(u64).range(QlogOrder::QLOG_SECONDS))]
        seconds: u64,
        /// File for the first connection, which must not exist yet; the others go to FILE-2 and so on. Without it, one
        /// connection is logged, to standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Log the client's next connection instead of its open ones.
        #[arg(long)]
        next: bool,
        /// Omit the client's address.
        #[arg(long)]
        anonymous: bool,
    },
    /// Print the configuration in force, without secrets, as JSON.
    Config,
    /// Drain and end the process.
    Drain,
    /// Reload the configuration and certificates, and print every change, or every fault.
    Reload,
    /// Switch maintenance of routes (503 with Retry-After) on or off; without on and off, print the routes in
    /// maintenance.
    Maintenance {
        /// on: answer 503. off: serve the routes again.
        #[arg(value_parser = one_of_names(ON_OFF))]
        state: Option<bool>,
        /// The name of a route, or a host for all its routes that have an origin. Without it, all routes that have an
        /// origin.
        #[arg(long, value_name = "NAME_OR_HOST", requires = "state")]
        route: Option<String>,
        /// The Retry-After of the responses.
        #[arg(long, value_name = "SECONDS", requires = "state", default_value_t = MaintenanceOrder::DEFAULT_RETRY_AFTER,
            value_parser = clap::value_parser!(u32).range(retry_after_range()))]
        retry_after: u32,
    },
    /// Switch HTTP/3 off, for example in an incident, or on again, until a reload changes listen.http3.
    Http3 {
        /// on: serve HTTP/3. off: refuse HTTP/3.
        #[arg(value_parser = one_of_names(ON_OFF), action = ArgAction::Set)]
        state: bool,
    },
    /// Print the certificates that litequic obtains by ACME, each with its expiry, next order and last problem.
    #[command(args_conflicts_with_subcommands = true)]
    Certificates {
        #[command(flatten)]
        json: JsonOption,
        #[command(subcommand)]
        action: Option<CertificateAction>,
    },
    /// Print the metrics, as OpenMetrics text.
    Metrics,
    /// Check that every worker responds: for the health check of a container.
    Health,
    /// Check that litequic accepts new clients.
    Ready,
}

#[derive(Debug, Subcommand)]
enum CertificateAction {
    /// Order the certificate of a host now, at most once in five minutes.
    Renew {
        /// A host of acme.hosts.
        #[arg(value_parser = parse_renewed_host)]
        host: String,
    },
}

#[derive(Debug, Args)]
struct JsonOption {
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ScreenOptions {
    /// Print the answer as JSON.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Repeat at this interval; 2 seconds if there is no number.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

#[derive(Debug, Args)]
struct ProtocolOption {
    /// Only connections of h1, h2 or h3.
    #[arg(long, value_name = "PROTOCOL", value_parser = parse_protocol)]
    protocol: Option<&'static str>,
}

/// States of a switch.
const ON_OFF: &[(&str, bool)] = &[("on", true), ("off", false)];

fn parse_protocol(text: &str) -> Result<&'static str, &'static str> {
    Selection::parse_http_version(text).ok_or("not one of h1, h2 and h3")
}

fn parse_renewed_host(text: &str) -> Result<String, &'static str> {
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:*[]".contains(&byte);
    text.bytes().all(is_host).then(|| text.to_owned()).ok_or("not a host")
}

fn retry_after_range() -> RangeInclusive<i64> {
    let seconds = MaintenanceOrder::RETRY_AFTER_RANGE;
    i64::from(*seconds.start())..=i64::from(*seconds.end())
}

/// A request to the running litequic.
#[derive(Debug, Clone)]
struct CtlRequest {
    method: Method,
    path: &'static str,
    query: Option<String>,
}

impl CtlRequest {
    const STATUS: Self = Self::read("/status");

    const fn read(path: &'static str) -> Self {
        Self { method: Method::GET, path, query: None }
    }

    const fn change(path: &'static str, query: Option<String>) -> Self {
        Self { method: Method::POST, path, query }
    }
}

impl CtlCommand {
    /// Returns the request of the command.
    ///
    /// # Errors
    ///
    /// Arguments that do not fit together.
    fn to_request(&self) -> Result<CtlRequest, String> {
        let change = |path, order: String| CtlRequest::change(path, Some(order));
        Ok(match self {
            Self::Status(_) | Self::Maintenance { state: None, .. } | Self::Certificates { action: None, .. } => {
                CtlRequest::STATUS
            }
            Self::Clients { client, protocol, sort, limit, .. } => {
                let selection = Selection { client: *client, protocol: protocol.protocol };
                let query = admin::format_list_query(&ListQuery { selection, sort: *sort, limit: usize::from(*limit) });
                CtlRequest { query: Some(query), ..CtlRequest::read("/clients") }
            }
            Self::Close { client, protocol, now, all } => {
                if client.is_wide() && !all {
                    return Err(format!("{client} includes very many addresses; confirm with --all"));
                }
                let selection = Selection { client: Some(*client), protocol: protocol.protocol };
                change("/close", CloseOrder { selection, now: *now, all: *all }.to_string())
            }
            Self::Deny { network, time, all, force } => {
                change("/deny", DenyOrder::new(*network, *time, *all, *force)?.to_string())
            }
            Self::Allow { network } => change("/allow", format!("network={network}")),
            Self::Denied { .. } => CtlRequest::read("/denied"),
            Self::Qlog { client, seconds, out, next, anonymous } => {
                let order = QlogOrder {
                    time: Duration::from_secs(*seconds),
                    connections: if out.is_some() { QlogOrder::MAX_LOGGED_CONNECTIONS } else { 1 },
                    next: *next,
                    anonymous: *anonymous,
                    ..QlogOrder::for_client(*client)
                };
                // litequic rejects a network too: the same function checks it here.
                change("/qlog", QlogOrder::from_qlog_query(&order.to_string())?.to_string())
            }
            Self::Config => CtlRequest::read("/config"),
            Self::Drain => CtlRequest::change("/drain", None),
            Self::Reload => CtlRequest::change("/reload", None),
            Self::Maintenance { state: Some(on), route, retry_after } => change(
                "/maintenance",
                MaintenanceOrder { on: *on, route: route.clone(), retry_after: *retry_after }.to_string(),
            ),
            Self::Http3 { state } => change("/http3", format!("state={}", if *state { "on" } else { "off" })),
            Self::Certificates { action: Some(CertificateAction::Renew { host }), .. } => {
                change("/renew", format!("host={}", host.replace('*', "%2A")))
            }
            Self::Metrics => CtlRequest::read("/metrics"),
            Self::Health => CtlRequest::read("/healthz"),
            Self::Ready => CtlRequest::read("/readyz"),
        })
    }
}

/// The member `acme` of a status, unchanged.
#[derive(Deserialize)]
struct AcmeJson {
    #[serde(default)]
    acme: Json,
}

/// Sends the request, and prints the answer to stdout, or an error to stderr.
pub fn run_ctl(arguments: CtlArguments) -> CommandResult {
    let CtlArguments { target, command } = arguments;
    let request = command.to_request().map_err(|problem| exit_with_error(Exit::Usage, problem))?;
    let token = match (&target.token_file, env::var_os(TOKEN_VARIABLE)) {
        (Some(path), _) => Token::from_token_file(path).map(Some),
        (None, Some(_)) => Token::from_env(TOKEN_VARIABLE).map(Some),
        (None, None) => Ok(None),
    };
    let token = token.map_err(|error| exit_with_error(Exit::Usage, error))?;
    let printed = control_runtime()?.block_on(async {
        let found = match target.admin {
            Some(place) => FoundAdmin { place, missed: Vec::new() },
            None => admin_address::find_admin(|name| env::var_os(name), target.config.as_deref()).await?,
        };
        run_command(&AdminClient { found, token }, command, &request).await
    });
    printed.map_err(|CtlFailure { exit, why }| exit_with_error(exit, why))
}

/// Sends `request`, which is that of `command`, and prints the answer.
async fn run_command(client: &AdminClient, command: CtlCommand, request: &CtlRequest) -> Result<ExitCode, CtlFailure> {
    let text = match command {
        CtlCommand::Status(ScreenOptions { json: false, watch }) => {
            return show_status(client, watch.map(Duration::from_secs)).await;
        }
        CtlCommand::Clients { screen: ScreenOptions { json: false, watch }, .. } => {
            let render = async || Ok(clients::render_clients(&client.fetch_json(request).await?));
            return show_screens(watch.map(Duration::from_secs), render).await;
        }
        CtlCommand::Qlog { out, .. } => {
            // `to_request` has checked the order.
            let order = request.query.as_deref().unwrap_or_default();
            let order = QlogOrder::from_qlog_query(order).map_err(|why| CtlFailure { exit: Exit::Usage, why })?;
            return qlog::record_logs(client, &order, out).await;
        }
        CtlCommand::Maintenance { state: None, .. } => {
            admin::format_maintenance(&client.fetch_json::<Status>(request).await?.maintenance)
        }
        // The JSON is printed unchanged: a younger litequic may have more members.
        CtlCommand::Certificates { json: JsonOption { json: true }, action: None } => {
            format!("{:#}\n", client.fetch_json::<AcmeJson>(request).await?.acme)
        }
        CtlCommand::Certificates { action: None, .. } => {
            certificates::render_acme(&client.fetch_json(request).await?, SystemTime::now())
        }
        CtlCommand::Denied { json: JsonOption { json: false } } => {
            denied::render_denied(&client.fetch_json(request).await?)
        }
        _ => {
            let AdminAnswer { body, process, .. } = client.fetch_success(request).await?;
            let body = match command {
                CtlCommand::Reload if io::stdout().is_terminal() => local_time::with_local_time(&body).into(),
                _ => body,
            };
            let named = process.filter(|_| request.method == Method::POST);
            let named = named.map_or_else(String::new, |process| format!("process {process}\n"));
            return Ok(print_stdout(&[named.as_bytes(), &body].concat()));
        }
    };
    Ok(print_stdout(text.as_bytes()))
}

/// Prints the status for people.
async fn show_status(client: &AdminClient, every: Option<Duration>) -> Result<ExitCode, CtlFailure> {
    let colour = io::stdout().is_terminal() && has_colour(|name| env::var(name).ok());
    let mut before: Status = client.fetch_json(&CtlRequest::STATUS).await?;
    sleep(STATUS_INTERVAL).await;
    let render = async || {
        let now = client.fetch_json(&CtlRequest::STATUS).await?;
        let screen = status::render_status(&now, Some(&before), colour, terminal_width());
        before = now;
        Ok(screen)
    };
    show_screens(every, render).await
}

/// Prints the screen that `render` returns: once, or again after each `every` until the process is ended.
async fn show_screens(
    every: Option<Duration>,
    mut render: impl AsyncFnMut() -> Result<String, CtlFailure>,
) -> Result<ExitCode, CtlFailure> {
    let is_terminal = io::stdout().is_terminal();
    loop {
        let screen = match (render().await, every) {
            (Ok(screen), _) => screen,
            // litequic may answer the next request.
            (Err(failure), Some(_)) => format!("litequic: {}\n", failure.why),
            (Err(failure), None) => return Err(failure),
        };
        let Some(every) = every else { return Ok(print_stdout(screen.as_bytes())) };
        let (beginning, end) = if is_terminal { (CLEAR_SCREEN, "") } else { ("", "\n") };
        if print_stdout(format!("{beginning}{screen}{end}").as_bytes()) != ExitCode::SUCCESS {
            return Ok(Exit::Output.into());
        }
        sleep(every).await;
    }
}

/// Number of columns of the terminal at standard output, with a lower bound that also holds without a terminal.
fn terminal_width() -> usize {
    tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col.into()).max(status::MIN_WIDTH)
}

/// Returns whether a terminal is to get colours, by the environment (<https://no-color.org>).
fn has_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_unset = variable("NO_COLOR").is_none_or(|value| value.is_empty());
    is_unset && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_disable_colours() {
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

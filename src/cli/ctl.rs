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

use super::exit::{Exit, exit_with_error, print_stdout};
use super::run::control_runtime;
use admin_address::{AdminAddress, AdminConnection, FoundAdmin};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use exchange::{AdminAnswer, NoAnswer, build_request, exchange_answer};
use failure::CtlFailure;
use http::Method;
use litequic_admin::{
    self as admin, ClientList, CloseOrder, DeniedList, DenyOrder, MaintenanceOrder, MaintenanceStatus, QlogOrder,
    Status, Token,
};
use litequic_telemetry::clients::{ListOrder, ListQuery, MAX_LIMIT, Selection, Selector};
use rustix::termios::tcgetwinsize;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value as Json;
use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal},
    ops::RangeInclusive,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};
use tokio::time::{sleep, timeout};

/// Timeout of a request: a reload, which reads files and checks certificates, takes longest.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between the two answers from which `status` computes rates.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Clears a terminal and moves to its first column and row (ECMA-48 §8.3.39, §8.3.21).
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";

/// Arguments of `litequic ctl`.
#[derive(Debug, Args)]
pub struct CtlArguments {
    /// The request to the running litequic.
    #[arg(value_enum)]
    what: CtlCommand,
    /// `maintenance` and `http3`: on or off; `maintenance` without an operand prints the routes in maintenance.
    /// `certificates`: renew. `close`: the clients, written as for --client. `deny` and `allow`: an address or a
    /// network.
    #[arg(value_name = "OPERAND", required_if_eq_any([("what", "http3"), ("what", "close"), ("what", "deny"), ("what", "allow")]))]
    operand: Option<String>,
    /// `certificates renew`: the host whose certificate is ordered now.
    #[arg(value_name = "HOST", required_if_eq("operand", "renew"))]
    host: Option<String>,
    /// `clients`: only the connections of an address, ADDRESS:PORT, a network, or with an ID, which --json lists.
    /// `qlog`: the connections of an address or ADDRESS:PORT, or with an ID.
    #[arg(long, value_name = "CLIENT", required_if_eq("what", "qlog"))]
    client: Option<Selector>,
    /// `clients` and `close`: only connections of h1, h2 or h3.
    #[arg(long, value_name = "PROTOCOL", value_parser = parse_protocol)]
    protocol: Option<&'static str>,
    /// `clients`: the column to sort by: sent-rate (the default), sent, received, open, since, rtt, loss or held.
    #[arg(long, value_name = "VALUE")]
    sort: Option<ListOrder>,
    /// `clients`: maximum number of lines, 50 by default.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u16).range(1..=MAX_LIMIT as i64))]
    limit: Option<u16>,
    /// `close`: abort open requests instead of waiting for them.
    #[arg(long)]
    now: bool,
    /// `close` and `deny`: confirm a network that is larger than an IPv4 /16 or an IPv6 /32.
    #[arg(long)]
    all: bool,
    /// `deny`: duration of the denial, such as 10m, 1h or 7d; at most 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, required_if_eq("what", "deny"))]
    time: Option<Duration>,
    /// `qlog`: duration of the log.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(qlog_seconds()))]
    seconds: Option<u64>,
    /// `qlog`: file for the first connection, which must not exist yet; the others go to FILE-2 and so on. Without it,
    /// one connection is logged, to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// `qlog`: log the client's next connection instead of its open ones.
    #[arg(long)]
    next: bool,
    /// `qlog`: omit the client's address.
    #[arg(long)]
    anonymous: bool,
    /// `deny`: deny the network even if it includes loopback addresses or trusted proxies.
    #[arg(long)]
    force: bool,
    /// `maintenance`: the name of a route, or a host for all its routes that have an origin. Without it, all routes
    /// that have an origin.
    #[arg(long, value_name = "NAME_OR_HOST", requires = "operand")]
    route: Option<String>,
    /// `maintenance`: the Retry-After of the responses.
    #[arg(long, value_name = "SECONDS", requires = "operand", value_parser = clap::value_parser!(u32).range(retry_after_range()))]
    retry_after: Option<u32>,
    /// The admin.socket or admin.listen of the running litequic: a path, ADDRESS:PORT, :PORT, localhost:PORT or
    /// http://ADDRESS:PORT. Without it, the default sockets, then 127.0.0.1:9443.
    #[arg(long, value_name = "WHERE", env = "LITEQUIC_ADMIN")]
    admin: Option<AdminAddress>,
    /// File with the token, as in its admin.token_file. Without it, the token is the environment variable
    /// LITEQUIC_ADMIN_TOKEN, if set.
    #[arg(long, value_name = "FILE", env = "LITEQUIC_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// `status`, `clients`, `denied` and `certificates`: print the answer as JSON.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// `status` and `clients`: repeat at this interval; 2 seconds if there is no number.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// Environment variable with the token.
const TOKEN_VARIABLE: &str = "LITEQUIC_ADMIN_TOKEN";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CtlCommand {
    /// Print the status: a screen of text, or JSON.
    Status,
    /// Print the connections of clients, sorted by the rate of sent bytes.
    Clients,
    /// Close connections of clients: send GOAWAY, and close each one when its requests have ended.
    Close,
    /// Refuse the clients of a network for a time, and close their connections. A restart ends it.
    Deny,
    /// Allow a denied network again.
    Allow,
    /// Print the networks that are denied.
    Denied,
    /// Log QUIC connections of a client, packet by packet, as qlog.
    Qlog,
    /// Print the configuration in force, without secrets, as JSON.
    Config,
    /// Drain and end the process.
    Drain,
    /// Reload the configuration and certificates, and print every change, or every fault.
    Reload,
    /// Switch maintenance of routes (503 with Retry-After) on or off, and print the routes in maintenance.
    Maintenance,
    /// Switch HTTP/3 off, for example in an incident, or on again, until a reload changes listen.http3.
    Http3,
    /// Print the certificates that litequic obtains by ACME, each with its expiry, next order and last problem; or
    /// renew one now.
    Certificates,
    /// Print the metrics, as OpenMetrics text.
    Metrics,
    /// Check that every worker responds: for the health check of a container.
    Health,
    /// Check that litequic accepts new clients.
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    /// `maintenance`: answer 503. `http3`: serve HTTP/3.
    On,
    /// `maintenance`: serve the routes again. `http3`: refuse HTTP/3.
    Off,
    /// `certificates`: order the certificate of HOST now, at most once in five minutes.
    Renew,
}

fn parse_protocol(text: &str) -> Result<&'static str, &'static str> {
    Selection::parse_http_version(text).ok_or("not one of h1, h2 and h3")
}

fn qlog_seconds() -> RangeInclusive<u64> {
    QlogOrder::QLOG_SECONDS
}

fn retry_after_range() -> RangeInclusive<i64> {
    let seconds = MaintenanceOrder::RETRY_AFTER_RANGE;
    i64::from(*seconds.start())..=i64::from(*seconds.end())
}

impl CtlCommand {
    const fn method_and_path(self) -> (Method, &'static str) {
        match self {
            Self::Status => (Method::GET, "/status"),
            Self::Clients => (Method::GET, "/clients"),
            Self::Close => (Method::POST, "/close"),
            Self::Deny => (Method::POST, "/deny"),
            Self::Allow => (Method::POST, "/allow"),
            Self::Denied => (Method::GET, "/denied"),
            Self::Qlog => (Method::POST, "/qlog"),
            Self::Config => (Method::GET, "/config"),
            Self::Drain => (Method::POST, "/drain"),
            Self::Reload => (Method::POST, "/reload"),
            Self::Maintenance => (Method::POST, "/maintenance"),
            Self::Http3 => (Method::POST, "/http3"),
            Self::Certificates => (Method::POST, "/renew"),
            Self::Metrics => (Method::GET, "/metrics"),
            Self::Health => (Method::GET, "/healthz"),
            Self::Ready => (Method::GET, "/readyz"),
        }
    }
}

/// The member `acme` of a status, unchanged.
#[derive(Deserialize)]
struct AcmeJson {
    #[serde(default)]
    acme: Json,
}

/// Builds the query of the request; `None` for a request without one.
///
/// # Errors
///
/// Arguments that do not fit together.
fn request_query(arguments: &CtlArguments) -> Result<Option<String>, String> {
    let CtlArguments { what, operand, host, client, protocol, sort, limit, .. } = arguments;
    let is_list = *what == CtlCommand::Clients;
    if !is_list && (sort.is_some() || limit.is_some()) {
        return Err("--sort and --limit need `ctl clients`".into());
    }
    if !is_list && *what != CtlCommand::Qlog && client.is_some() {
        return Err("--client needs `ctl clients` or `ctl qlog`".into());
    }
    let has_log = arguments.seconds.is_some() || arguments.out.is_some() || arguments.next || arguments.anonymous;
    if *what != CtlCommand::Qlog && has_log {
        return Err("--seconds, --out, --next and --anonymous need `ctl qlog`".into());
    }
    if *what != CtlCommand::Close && arguments.now {
        return Err("--now needs `ctl close`".into());
    }
    if !matches!(what, CtlCommand::Close | CtlCommand::Deny) && arguments.all {
        return Err("--all needs `ctl close` or `ctl deny`".into());
    }
    if *what != CtlCommand::Deny && (arguments.time.is_some() || arguments.force) {
        return Err("--for and --force need `ctl deny`".into());
    }
    if !is_list && *what != CtlCommand::Close && protocol.is_some() {
        return Err("--protocol needs `ctl clients` or `ctl close`".into());
    }
    let selection = Selection { client: *client, protocol: *protocol };
    match (what, operand) {
        (CtlCommand::Clients, None) => {
            let limit = limit.map_or(ListQuery::default().limit, usize::from);
            return Ok(Some(admin::format_list_query(&ListQuery { selection, sort: sort.unwrap_or_default(), limit })));
        }
        (CtlCommand::Deny, Some(network)) => {
            let time = arguments.time.unwrap_or_default();
            let order = DenyOrder::new(admin::parse_client_network(network)?, time, arguments.all, arguments.force)?;
            return Ok(Some(order.to_string()));
        }
        (CtlCommand::Allow, Some(network)) => {
            return Ok(Some(format!("network={}", admin::parse_client_network(network)?)));
        }
        (CtlCommand::Qlog, None) => {
            let client = client.ok_or("`ctl qlog` needs --client")?;
            let order = QlogOrder {
                time: Duration::from_secs(arguments.seconds.unwrap_or(QlogOrder::DEFAULT_SECONDS)),
                connections: if arguments.out.is_some() { QlogOrder::MAX_LOGGED_CONNECTIONS } else { 1 },
                next: arguments.next,
                anonymous: arguments.anonymous,
                ..QlogOrder::for_client(client)
            };
            // litequic rejects a network too: the same function checks it here.
            return QlogOrder::from_qlog_query(&order.to_string()).map(|order| Some(order.to_string()));
        }
        (CtlCommand::Close, Some(client)) => {
            let client: Selector = client.parse().map_err(|error| format!("{client:?} is {error}"))?;
            let selection = Selection { client: Some(client), ..selection };
            if client.is_wide() && !arguments.all {
                return Err(format!("{client} includes very many addresses; confirm with --all"));
            }
            return Ok(Some(CloseOrder { selection, now: arguments.now, all: arguments.all }.to_string()));
        }
        _ => {}
    }
    let word = |text: &String| OnOff::from_str(text, false).map_err(|_| format!("{text:?} is not on, off or renew"));
    match (what, operand.as_ref().map(word).transpose()?) {
        (CtlCommand::Certificates, Some(OnOff::Renew)) => {
            let host = host.clone().unwrap_or_default();
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:*[]".contains(&byte);
            if !host.bytes().all(is_host) {
                return Err(format!("{host:?} is not a host"));
            }
            Ok(Some(format!("host={}", host.replace('*', "%2A"))))
        }
        (_, Some(OnOff::Renew)) => Err("renew needs `ctl certificates`".into()),
        _ if host.is_some() => Err("HOST needs `ctl certificates renew`".into()),
        (CtlCommand::Maintenance, Some(state)) => {
            let order = MaintenanceOrder {
                on: state == OnOff::On,
                route: arguments.route.clone(),
                retry_after: arguments.retry_after.unwrap_or(MaintenanceOrder::DEFAULT_RETRY_AFTER),
            };
            Ok(Some(order.to_string()))
        }
        (CtlCommand::Http3, Some(state)) => {
            if arguments.route.is_some() || arguments.retry_after.is_some() {
                return Err("--route and --retry-after need `ctl maintenance`".into());
            }
            Ok(Some(format!("state={}", if state == OnOff::On { "on" } else { "off" })))
        }
        (_, Some(_)) => Err("on and off need `ctl maintenance` or `ctl http3`".into()),
        (_, None) => Ok(None),
    }
}

/// Sends the request, and prints the answer to stdout, or an error to stderr.
pub fn run_ctl(arguments: CtlArguments) -> ExitCode {
    let CtlArguments { what, json, watch, .. } = arguments;
    let is_watched = matches!(what, CtlCommand::Status | CtlCommand::Clients);
    let has_text = matches!(what, CtlCommand::Certificates | CtlCommand::Denied);
    if (watch.is_some() && !is_watched) || (json && !is_watched && !has_text) {
        return exit_with_error(Exit::Usage, "--json and --watch need `ctl status` or `ctl clients`");
    }
    let order = match request_query(&arguments) {
        Ok(order) => order,
        Err(problem) => return exit_with_error(Exit::Usage, problem),
    };
    let token = match (&arguments.token_file, env::var_os(TOKEN_VARIABLE)) {
        (Some(path), _) => Token::from_token_file(path).map(Some),
        (None, Some(_)) => Token::from_env(TOKEN_VARIABLE).map(Some),
        (None, None) => Ok(None),
    };
    let token = match token {
        Ok(token) => token,
        Err(error) => return exit_with_error(Exit::Usage, error),
    };
    let runtime = match control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_error(Exit::Software, error),
    };
    runtime.block_on(async {
        let found = match arguments.admin {
            Some(place) => FoundAdmin { place, missed: Vec::new() },
            None => match admin_address::find_admin(admin::default_socket_paths(|name| env::var_os(name))).await {
                Ok(found) => found,
                Err(failure) => return failure.print_and_exit(),
            },
        };
        if what == CtlCommand::Maintenance && order.is_none() {
            return match fetch_status::<Status>(&found, token.as_ref()).await {
                Ok(status) => print_stdout(render_maintenance(&status).as_bytes()),
                Err(failure) => failure.print_and_exit(),
            };
        }
        if what == CtlCommand::Certificates && order.is_none() {
            let printed = match json {
                // The JSON is printed unchanged: a younger litequic may have more members.
                true => {
                    fetch_status(&found, token.as_ref()).await.map(|status: AcmeJson| format!("{:#}\n", status.acme))
                }
                false => fetch_status(&found, token.as_ref())
                    .await
                    .map(|status| certificates::render_acme(&status, SystemTime::now())),
            };
            return match printed {
                Ok(text) => print_stdout(text.as_bytes()),
                Err(failure) => failure.print_and_exit(),
            };
        }
        if what == CtlCommand::Qlog {
            // `request_query` has checked the order.
            let Some(Ok(order)) = order.as_deref().map(QlogOrder::from_qlog_query) else { return Exit::Usage.into() };
            return qlog::record_logs(&found, &order, token.as_ref(), arguments.out).await;
        }
        if what == CtlCommand::Status && !json {
            return show_status(&found, token.as_ref(), watch.map(Duration::from_secs)).await;
        }
        if what == CtlCommand::Clients && !json {
            return show_clients(&found, order.as_deref(), token.as_ref(), watch.map(Duration::from_secs)).await;
        }
        if what == CtlCommand::Denied && !json {
            return match fetch_json::<DeniedList>(&found, what, None, token.as_ref()).await {
                Ok(list) => print_stdout(denied::render_denied(&list).as_bytes()),
                Err(failure) => failure.print_and_exit(),
            };
        }
        match fetch_body(&found, what, order.as_deref(), token.as_ref()).await {
            Ok(body) if what == CtlCommand::Reload && io::stdout().is_terminal() => {
                print_stdout(local_time::with_local_time(&body).as_bytes())
            }
            Ok(body) => print_stdout(&body),
            Err(failure) => failure.print_and_exit(),
        }
    })
}

/// Routes in maintenance of a status, formatted like the answer to `ctl maintenance on`.
fn render_maintenance(status: &Status) -> String {
    let line = |one: &MaintenanceStatus| {
        let target = one.target.known_value().map_or("all", String::as_str);
        let routes: String = one.routes.iter().map(|name| format!("  {name}\n")).collect();
        format!("{target} answers 503, Retry-After: {}\n{routes}", one.retry_after.unwrap_or_default())
    };
    let all = &status.maintenance;
    if all.is_empty() { "no route is in maintenance\n".into() } else { all.iter().map(line).collect() }
}

/// Prints the status for people: once, or again after each `every` until the process is ended.
async fn show_status(found: &FoundAdmin, token: Option<&Token>, every: Option<Duration>) -> ExitCode {
    let is_terminal = io::stdout().is_terminal();
    let colour = is_terminal && has_colour(|name| env::var(name).ok());
    let mut before = match fetch_status(found, token).await {
        Ok(status) => status,
        Err(failure) => return failure.print_and_exit(),
    };
    let mut pause = STATUS_INTERVAL;
    loop {
        sleep(pause).await;
        let screen = match (fetch_status(found, token).await, every) {
            (Ok(now), _) => {
                let screen = status::render_status(&now, Some(&before), colour, terminal_width());
                before = now;
                screen
            }
            // litequic may answer the next request.
            (Err(failure), Some(_)) => format!("litequic: {}\n", failure.why),
            (Err(failure), None) => return failure.print_and_exit(),
        };
        let Some(every) = every else { return print_stdout(screen.as_bytes()) };
        let beginning = if is_terminal { CLEAR_SCREEN } else { "" };
        let end = if is_terminal { "" } else { "\n" };
        if print_stdout(format!("{beginning}{screen}{end}").as_bytes()) != ExitCode::SUCCESS {
            return Exit::Output.into();
        }
        pause = every;
    }
}

/// Number of columns of the terminal at standard output, with a lower bound that also holds without a terminal.
fn terminal_width() -> usize {
    tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col.into()).max(status::MIN_WIDTH)
}

/// Prints the list of clients for people: once, or again after each `every` until the process is ended.
async fn show_clients(
    found: &FoundAdmin,
    order: Option<&str>,
    token: Option<&Token>,
    every: Option<Duration>,
) -> ExitCode {
    let is_terminal = io::stdout().is_terminal();
    loop {
        let screen = match (fetch_json::<ClientList>(found, CtlCommand::Clients, order, token).await, every) {
            (Ok(list), _) => clients::render_clients(&list),
            // litequic may answer the next request.
            (Err(failure), Some(_)) => format!("litequic: {}\n", failure.why),
            (Err(failure), None) => return failure.print_and_exit(),
        };
        let Some(every) = every else { return print_stdout(screen.as_bytes()) };
        let (beginning, end) = if is_terminal { (CLEAR_SCREEN, "") } else { ("", "\n") };
        if print_stdout(format!("{beginning}{screen}{end}").as_bytes()) != ExitCode::SUCCESS {
            return Exit::Output.into();
        }
        sleep(every).await;
    }
}

/// Returns whether a terminal is to get colours, by the environment (<https://no-color.org>).
fn has_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_unset = variable("NO_COLOR").is_none_or(|value| value.is_empty());
    is_unset && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

async fn fetch_status<T: DeserializeOwned>(found: &FoundAdmin, token: Option<&Token>) -> Result<T, CtlFailure> {
    fetch_json(found, CtlCommand::Status, None, token).await
}

/// Fetches an answer, and parses it as JSON.
async fn fetch_json<T: DeserializeOwned>(
    found: &FoundAdmin,
    what: CtlCommand,
    order: Option<&str>,
    token: Option<&Token>,
) -> Result<T, CtlFailure> {
    let body = fetch_body(found, what, order, token).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let (_, path) = what.method_and_path();
        CtlFailure::unavailable(&found.place, format_args!("the answer is not a valid response to {path}: {error}"))
    })
}

/// Fetches the body of a successful answer.
async fn fetch_body(
    found: &FoundAdmin,
    what: CtlCommand,
    order: Option<&str>,
    token: Option<&Token>,
) -> Result<Bytes, CtlFailure> {
    let answer = fetch_answer(found, what, order, token).await?;
    let older = match answer.is_signed || answer.is_token_refused() {
        true => None,
        false => Some(older_version(found, what, &answer, token).await?),
    };
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let mut why = String::from_utf8_lossy(&answer.body).trim_end().to_owned();
    if let Some(version) = older {
        let place = &found.place;
        // Writing to a String cannot fail.
        let _ =
            write!(why, "\n  {place} is litequic {version}, older than this program ({})", env!("CARGO_PKG_VERSION"));
    }
    Err(CtlFailure { exit: Exit::Status, why })
}

/// Version of a litequic whose `answer` has no `Server`, as of those before 0.1.0: from its status.
///
/// # Errors
///
/// The answer is another program's.
async fn older_version(
    found: &FoundAdmin,
    what: CtlCommand,
    answer: &AdminAnswer,
    token: Option<&Token>,
) -> Result<String, CtlFailure> {
    let status = match what {
        CtlCommand::Status => None,
        _ => Some(fetch_answer(found, CtlCommand::Status, None, token).await?),
    };
    let status = status.as_ref().unwrap_or(answer);
    status::status_version(&status.body).ok_or_else(|| admin_address::not_litequic_failure(&found.place, &found.missed))
}

/// Fetches the answer of a litequic, or of a program that does not name itself.
async fn fetch_answer(
    found: &FoundAdmin,
    what: CtlCommand,
    order: Option<&str>,
    token: Option<&Token>,
) -> Result<AdminAnswer, CtlFailure> {
    let place = &found.place;
    match timeout(REQUEST_TIMEOUT, connect_and_exchange(place, what, order, token)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(unanswered)) => Err(unanswered.into_ctl_failure(found)),
        Err(_) => Err(CtlFailure::unavailable(place, format_args!("no answer within {REQUEST_TIMEOUT:?}"))),
    }
}

async fn connect_and_exchange(
    place: &AdminAddress,
    what: CtlCommand,
    order: Option<&str>,
    token: Option<&Token>,
) -> Result<AdminAnswer, NoAnswer> {
    let (method, path) = what.method_and_path();
    let request = build_request(place, method, path, order, token)?;
    match place.connect_admin().await {
        Ok(AdminConnection::Unix(stream)) => exchange_answer(stream, request).await,
        Ok(AdminConnection::Tcp(stream)) => exchange_answer(stream, request).await,
        Err(error) => Err(NoAnswer::NotReached(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = AdminAddress::Tcp(listener.local_addr().unwrap().to_string());
        let found = FoundAdmin { place, missed: Vec::new() };
        let failure = fetch_body(&found, CtlCommand::Health, None, None).await.unwrap_err();
        assert_eq!(failure.why, format!("{}: no answer within 30s", found.place));
        assert_eq!(failure.exit, Exit::Unavailable);
    }

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

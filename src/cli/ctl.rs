//! `litequic ctl`: asks a running litequic, at its `admin.listen`; what `admin.probes` answers too, there as well.

use super::{
    exit::{Exit, fail},
    run::control_runtime,
};
use crate::admin::Token;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// A reload reads files and looks at certificates; nothing that is asked for takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any answer has.
const MAX_ANSWER: usize = 16 << 20;

/// What `litequic ctl` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to ask for.
    #[arg(value_enum)]
    what: What,
    /// Where the running litequic has its admin.listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9443")]
    admin: SocketAddr,
    /// The file of its admin.token_file; without one the environment variable LITEQUIC_ADMIN_TOKEN, if it is set.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The environment variable with the token.
const TOKEN: &str = "LITEQUIC_ADMIN_TOKEN";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// What it does now, as JSON.
    Status,
    /// Its configuration, without secrets, as JSON.
    Config,
    /// Have it drain and end.
    Drain,
    /// Have it read its configuration and certificates anew; says every change, or every fault.
    Reload,
    /// What it counts, as OpenMetrics text.
    Metrics,
    /// Whether every worker's loop turns: for a container's health check.
    Health,
    /// Whether new clients are welcome.
    Ready,
}

impl What {
    const fn request(self) -> (Method, &'static str) {
        match self {
            Self::Status => (Method::GET, "/status"),
            Self::Config => (Method::GET, "/config"),
            Self::Drain => (Method::POST, "/drain"),
            Self::Reload => (Method::POST, "/reload"),
            Self::Metrics => (Method::GET, "/metrics"),
            Self::Health => (Method::GET, "/healthz"),
            Self::Ready => (Method::GET, "/readyz"),
        }
    }
}

/// Asks, and prints the answer: to stdout, or to stderr where it is a refusal.
pub fn run(arguments: Arguments) -> ExitCode {
    let token = match (&arguments.token_file, std::env::var_os(TOKEN)) {
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
    let answer = runtime.block_on(async {
        match timeout(PATIENCE, ask(arguments.admin, arguments.what, token)).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("no answer within {PATIENCE:?}")),
        }
    });
    match answer {
        Ok((status, body)) if status.is_success() => match io::stdout().write_all(&body) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => Exit::Output.into(),
        },
        Ok((_, body)) => fail(Exit::Status, String::from_utf8_lossy(&body).trim_end()),
        Err(error) => fail(Exit::Unavailable, format_args!("{}: {error:#}", arguments.admin)),
    }
}

async fn ask(admin: SocketAddr, what: What, token: Option<Token>) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let (method, path) = what.request();
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

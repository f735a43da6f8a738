//! The origin of uploads: reads each request's body to its end and answers with its length, so that the client knows
//! that every byte came through. Plain HTTP/1.1.

use anyhow::{Context as _, Result};
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Where it listens.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where it listens.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
}

/// What answers an upload of so many bytes.
pub(crate) fn answer_to(bytes: u64) -> String {
    format!("{bytes} bytes\n")
}

/// Serves until it is killed.
pub(crate) fn serve(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .with_context(|| format!("cannot listen on {}", arguments.listen))?;
        accept(listener).await
    })
}

async fn accept(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        // Ends with its connection, or with the process: nothing is lost.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(swallow)));
    }
}

async fn swallow(request: Request<Incoming>) -> Result<Response<Full<bytes::Bytes>>, hyper::Error> {
    let mut body = request.into_body();
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame?.data_ref().map_or(0, bytes::Bytes::len) as u64;
    }
    Ok(Response::new(Full::new(answer_to(count).into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    #[tokio::test]
    async fn the_answer_is_the_length_of_what_came() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\n8 bytes\n"), "{answer}");
    }
}

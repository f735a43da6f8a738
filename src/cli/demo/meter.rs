//! Prints the CPU cost of each request: the time that its worker's thread ran while it was served, QUIC included.

use super::printer::Printer;
use crate::{
    exchange::{Abort, Body, BodyError, Exchange, Handler, Response},
    net::thread_cpu_time,
    proxy::Proxy,
};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    cell::Cell,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// After a response's last byte was handed to QUIC, so that sending it is counted as well.
const SETTLE: Duration = Duration::from_millis(50);

/// A proxy whose requests are metered.
pub(super) struct Meter {
    proxy: Proxy,
    printer: Printer,
    /// Requests being served: with more than one, each one's figure holds the others' work too.
    open: Rc<Cell<usize>>,
}

impl Meter {
    pub(super) fn new(proxy: Proxy, printer: Printer) -> Self {
        Self { proxy, printer, open: Rc::default() }
    }
}

impl Handler for Meter {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let mut reading = Reading::new(&exchange, &self.open, self.printer.clone());
        let response = self.proxy.handle(exchange).await?;
        reading.status = Some(response.status());
        let (head, body) = response.into_parts();
        // A tunnel's bytes do not pass here: the figure ends with its beginning.
        let body = match body.into_tunnel() {
            Ok(tunnel) => Body::tunnel(tunnel),
            Err(body) => Body::stream(Metered { body, reading }),
        };
        Ok(Response::from_parts(head, body))
    }
}

/// The figures of a request; printed when it is dropped.
struct Reading {
    request: String,
    status: Option<StatusCode>,
    bytes: u64,
    began: Option<Duration>,
    /// Others were served meanwhile.
    shared: bool,
    open: Rc<Cell<usize>>,
    printer: Printer,
}

impl Reading {
    fn new(exchange: &Exchange, open: &Rc<Cell<usize>>, printer: Printer) -> Self {
        open.set(open.get() + 1);
        let uri = exchange.request.uri();
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        Self {
            request: format!("{} {path}", exchange.request.method()),
            status: None,
            bytes: 0,
            began: thread_cpu_time().ok(),
            shared: open.get() > 1,
            open: Rc::clone(open),
            printer,
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.open.set(self.open.get().saturating_sub(1));
        let shared = self.shared || self.open.get() > 0;
        let request = std::mem::take(&mut self.request);
        let printer = self.printer.clone();
        let (status, bytes, began) = (self.status, self.bytes, self.began);
        // Detached on purpose: it ends by itself, or with the worker.
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SETTLE).await;
            let (Some(began), Ok(now)) = (began, thread_cpu_time()) else { return };
            let status = status.map_or_else(|| "-".to_owned(), |status| status.as_u16().to_string());
            let note = if shared { ", together with others" } else { "" };
            let milliseconds = (now - began).as_secs_f64() * 1e3;
            printer.print(format!("{request} {status}: {bytes} bytes, {milliseconds:.2} ms of CPU{note}\n"));
        });
    }
}

/// A response's body, counted.
struct Metered {
    body: Body,
    reading: Reading,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(pin!(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            self.reading.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

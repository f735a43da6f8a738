//! Prints the CPU cost of requests: the time that their worker's thread ran while they were served, QUIC included. A
//! single request has a line; requests that overlap or follow each other at once share one, as their costs cannot be
//! separated.

use super::printer::Printer;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as HttpBody, Frame, SizeHint};
use litequic_exchange::{Abort, Body, BodyError, Client, Exchange, Handler, Response};
use litequic_proxy::Proxy;
use rustix::time::{ClockId, clock_gettime};
use std::{
    cell::RefCell,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

/// Quiet time after which a burst is over. A browser parses a page before it requests the images, and bytes that QUIC
/// has are sent within this time.
const BURST_GAP: Duration = Duration::from_millis(150);
/// Duration after which a burst is printed though requests are open, such as those of a page that never stops.
const MAX_BURST: Duration = Duration::from_secs(5);

/// Proxy whose requests are metered.
pub(super) struct Meter {
    proxy: Proxy,
    printer: Printer,
    burst: Rc<RefCell<RequestBurst>>,
}

impl Meter {
    pub(super) fn new(proxy: Proxy, printer: Printer) -> Self {
        Self { proxy, printer, burst: Rc::default() }
    }
}

impl Handler for Meter {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let mut reading = MeteredRequest::new(&exchange, &self.burst, self.printer.clone());
        let response = self.proxy.handle(exchange).await?;
        let Response { status, fields, body } = response;
        reading.status = Some(status);
        // The bytes of a tunnel do not pass here: its cost ends with its beginning.
        let body = match body.into_tunnel() {
            Ok(tunnel) => Body::from_tunnel(tunnel),
            Err(body) => Body::from_stream(MeteredBody { body, reading }),
        };
        Ok(Response { status, fields, body })
    }

    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        self.proxy.complete_rejection(client, response);
    }
}

/// Requests of a worker since the last line.
#[derive(Debug, Default)]
struct RequestBurst {
    /// Number of requests being served.
    open: usize,
    /// Number of requests that have ended.
    ended: u32,
    /// Body bytes of the ended requests.
    bytes: u64,
    /// Method, target and status of the last request that ended.
    last: String,
    /// Start of the first request, and the CPU time of the thread then.
    began: Option<(Instant, Duration)>,
    /// End of the last request.
    until: Option<Instant>,
}

impl RequestBurst {
    /// Records a request that begins at `now`, at which the thread has used `cpu`.
    fn begin_request(&mut self, now: Instant, cpu: Duration) {
        self.open += 1;
        self.began.get_or_insert((now, cpu));
    }

    /// Records a request that ends at `now`: `request` is its method, target and status.
    fn end_request(&mut self, now: Instant, request: String, bytes: u64) {
        self.open = self.open.saturating_sub(1);
        self.ended += 1;
        self.bytes += bytes;
        self.last = request;
        self.until = Some(now);
    }

    /// Returns the line of the ended requests, if the burst is over at `now`, or lasts too long; then the next burst
    /// begins.
    fn take_summary(&mut self, now: Instant, cpu: Duration) -> Option<String> {
        let ((began, before), until) = (self.began?, self.until?);
        let is_over = self.open == 0 && now.duration_since(until) >= BURST_GAP;
        if !is_over && now.duration_since(began) < MAX_BURST {
            return None;
        }
        let cpu_spent = cpu.saturating_sub(before).as_secs_f64() * 1e3;
        let line = if self.ended == 1 && self.open == 0 {
            format!("{}: {} bytes, {cpu_spent:.2} ms of CPU\n", self.last, self.bytes)
        } else {
            format!(
                "{} request{} in {:.2} s, {}: {cpu_spent:.0} ms of CPU, {:.1} ms each\n",
                self.ended,
                if self.ended == 1 { "" } else { "s" },
                until.duration_since(began).as_secs_f64(),
                size_text(self.bytes),
                cpu_spent / f64::from(self.ended),
            )
        };
        let open = self.open;
        *self = Self { open, began: (open > 0).then_some((now, cpu)), ..Self::default() };
        Some(line)
    }
}

/// Formats `bytes` in the largest decimal unit that leaves a whole number above 0.
fn size_text(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB"), (1, "bytes")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "bytes"));
    format!("{} {name}", bytes / unit)
}

/// A request, which ends when this is dropped.
struct MeteredRequest {
    request: String,
    status: Option<StatusCode>,
    bytes: u64,
    burst: Rc<RefCell<RequestBurst>>,
    printer: Printer,
}

impl MeteredRequest {
    fn new(exchange: &Exchange, burst: &Rc<RefCell<RequestBurst>>, printer: Printer) -> Self {
        burst.borrow_mut().begin_request(Instant::now(), thread_cpu_time());
        let head = &exchange.request.head;
        Self {
            request: format!("{} {}", head.method, head.path_and_query()),
            status: None,
            bytes: 0,
            burst: Rc::clone(burst),
            printer,
        }
    }
}

impl Drop for MeteredRequest {
    fn drop(&mut self) {
        let status = self.status.map_or_else(|| "-".to_owned(), |status| status.as_u16().to_string());
        let request = format!("{} {status}", self.request);
        self.burst.borrow_mut().end_request(Instant::now(), request, self.bytes);
        let (burst, printer) = (Rc::clone(&self.burst), self.printer.clone());
        // The task is detached: it ends by itself, or with the worker.
        tokio::task::spawn_local(async move {
            tokio::time::sleep(BURST_GAP).await;
            let line = burst.borrow_mut().take_summary(Instant::now(), thread_cpu_time());
            if let Some(line) = line {
                printer.print_text(line);
            }
        });
    }
}

/// Body of a response, whose bytes are counted.
struct MeteredBody {
    body: Body,
    reading: MeteredRequest,
}

impl HttpBody for MeteredBody {
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

/// CPU time that the calling thread has used in user and kernel mode. The difference of two readings is the cost of a
/// request, if the worker served nothing else meanwhile.
fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_cpu_time() {
        let before = thread_cpu_time();
        let mut n = 0_u64;
        for _ in 0..10_000_000 {
            if thread_cpu_time() >= before + ms(10) {
                return;
            }
            n = std::hint::black_box(n.wrapping_add(1));
        }
        panic!("no CPU time passed");
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_request_by_itself_has_a_line_with_its_name() {
        let (mut burst, start) = (RequestBurst::default(), Instant::now());
        burst.begin_request(start, ms(100));
        burst.end_request(start + ms(10), "GET / 200".into(), 4321);
        assert_eq!(burst.take_summary(start + ms(11), ms(101)), None, "another may follow");
        let line = burst.take_summary(start + ms(10) + BURST_GAP, ms(103));
        assert_eq!(line.as_deref(), Some("GET / 200: 4321 bytes, 3.00 ms of CPU\n"));
        assert_eq!(burst.take_summary(start + ms(1000), ms(200)), None, "it is printed once");
    }

    #[test]
    fn requests_that_overlap_or_follow_at_once_share_a_line() {
        let (mut burst, start) = (RequestBurst::default(), Instant::now());
        burst.begin_request(start, ms(0));
        burst.end_request(start + ms(20), "GET / 200".into(), 2000);
        for n in 0..25 {
            burst.begin_request(start + ms(100 + n), ms(9));
        }
        assert_eq!(burst.take_summary(start + ms(200), ms(20)), None, "25 are open");
        for n in 0..25 {
            burst.end_request(start + ms(256 + n), "GET /image 200".into(), 6000);
        }
        let line = burst.take_summary(start + ms(280) + BURST_GAP, ms(31));
        assert_eq!(line.as_deref(), Some("26 requests in 0.28 s, 152 kB: 31 ms of CPU, 1.2 ms each\n"));
    }

    #[test]
    fn an_endless_burst_is_printed_in_parts() {
        let (mut burst, start) = (RequestBurst::default(), Instant::now());
        burst.begin_request(start, ms(0));
        burst.begin_request(start, ms(0));
        burst.end_request(start + MAX_BURST, "GET / 200".into(), 10);
        let line = burst.take_summary(start + MAX_BURST, ms(50)).unwrap();
        assert_eq!(line, "1 request in 5.00 s, 10 bytes: 50 ms of CPU, 50.0 ms each\n");
        burst.end_request(start + MAX_BURST + ms(5), "GET /b 200".into(), 7);
        let line = burst.take_summary(start + MAX_BURST + ms(5) + BURST_GAP, ms(52));
        assert_eq!(line.as_deref(), Some("GET /b 200: 7 bytes, 2.00 ms of CPU\n"));
    }

    #[test]
    fn sizes_are_whole_numbers_of_a_decimal_unit() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1000, "1 kB"),
            (152_900, "152 kB"),
            (1_000_000, "1 MB"),
            (u64::MAX, "18446744073 GB"),
        ] {
            assert_eq!(size_text(bytes), expected);
        }
    }
}

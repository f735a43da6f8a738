//! Pools one worker's HTTP/2 connections to one server. A request is a stream of an open connection with room; another
//! connection is opened when there is none, and requests that need it wait for the same attempt.

use super::deadline::Deadline;
use super::pool_resources::PoolResources;
use super::server_pool::{ConnectionNeeds, PooledConnection, ServerPool, SlotGuard};
use crate::answer::Error;
use crate::connection::{Http2Connection, OriginStream, ProxiedClient};
use litequic_base::timers::{DeadlineTimer, timeout_at, turn_time};
use litequic_config::{OriginConfig, Timeouts};
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    rc::{Rc, Weak},
    task::Poll,
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::spawn_local,
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of request bodies that a connection's window must allow before another body is sent on it: a handler that does
/// not read its body may hold the rest of the window.
const MIN_SEND_WINDOW: i64 = 32 * 1024;

/// HTTP/2 connections of one worker to one server.
#[derive(Debug)]
pub(super) struct Http2Pool {
    /// Open connections. One that is retired stays until its requests have ended.
    entries: RefCell<Vec<Http2Entry>>,
    /// Connections that are being opened, for one client each if the server gets clients' addresses.
    dials: RefCell<Vec<Dial>>,
    /// Fewest streams that an open connection allows, as the last request has seen it.
    allowed: Cell<u32>,
    /// Notified when a request has ended.
    room: Notify,
}

/// A connection, and the task that reads and writes for it. Dropping it closes the connection.
#[derive(Debug)]
struct Http2Entry {
    _task: AbortOnDropHandle<()>,
    connection: Rc<Http2Connection>,
}

#[derive(Debug)]
struct Dial {
    proxied: Option<ProxiedClient>,
    outcome: watch::Receiver<Option<Result<(), Error>>>,
}

impl Http2Pool {
    pub(super) fn new() -> Self {
        let allowed = Cell::new(u32::MAX);
        Self { entries: RefCell::default(), dials: RefCell::default(), allowed, room: Notify::new() }
    }

    /// Most requests of the worker to the server at a time, with `max_connections` connections.
    pub(super) fn stream_slots(&self, max_connections: u32, origin: &OriginConfig, resources: &PoolResources) -> u32 {
        let slots = max_connections.saturating_mul(origin.max_streams.min(self.allowed.get()).max(1));
        // A request in flight holds as much memory as one that waits, and a window of 64 KiB at most.
        slots.min(resources.current_limits().max_queue)
    }

    /// A connection for another request. With one address the fullest that has room, so that others can idle out; with
    /// several the one with the fewest requests, and none while fewer connections than `addresses` are open, so that
    /// each address gets its share.
    fn choose_connection(
        &self,
        needs: &ConnectionNeeds,
        addresses: usize,
        origin: &OriginConfig,
        now: Instant,
    ) -> Option<Rc<Http2Connection>> {
        let entries = self.entries.borrow();
        let is_old = |connection: &Http2Connection| {
            origin.max_age.is_some_and(|age| now >= connection.born + age)
                || origin.max_requests.is_some_and(|most| connection.requests.get() >= most)
        };
        let (mut open, mut allowed) = (0_usize, u32::MAX);
        let mut chosen: Option<(u32, &Rc<Http2Connection>)> = None;
        for Http2Entry { connection, .. } in &*entries {
            allowed = allowed.min(connection.state.borrow().peer_stream_limit());
            if is_old(connection) {
                connection.retire();
            }
            if connection.is_retired() || connection.proxied != needs.proxied {
                continue;
            }
            open = open.saturating_add(1);
            let streams = connection.state.borrow().open_streams;
            let send_window = connection.state.borrow().send_window;
            let takes_body = !needs.has_body || streams == 0 || send_window >= MIN_SEND_WINDOW;
            let is_better = |(best, _)| if addresses > 1 { streams < best } else { streams > best };
            if streams < origin.max_streams
                && takes_body
                && connection.accepts_requests()
                && chosen.is_none_or(is_better)
            {
                chosen = Some((streams, connection));
            }
        }
        self.allowed.set(allowed);
        let spreads = |streams: u32| streams == 0 || open >= addresses || !self.dials.borrow().is_empty();
        chosen.filter(|(streams, _)| spreads(*streams)).map(|(_, connection)| Rc::clone(connection))
    }

    /// Sends no further request on connections of which `ends` is true.
    pub(super) fn retire_where(&self, ends: impl Fn(&Http2Connection) -> bool) {
        self.entries
            .borrow()
            .iter()
            .filter(|entry| ends(&entry.connection))
            .for_each(|entry| entry.connection.retire());
    }

    /// Notes that a request has ended.
    pub(super) fn on_stream_ended(&self) {
        self.room.notify_one();
    }

    pub(super) fn longest_idle_since(&self) -> Option<Instant> {
        self.entries.borrow().iter().filter_map(|entry| entry.connection.idle_since()).min()
    }

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_oldest_idle(&self) -> bool {
        let oldest = {
            let entries = &mut *self.entries.borrow_mut();
            let idle = entries.iter().enumerate();
            let idle = idle.filter_map(|(index, entry)| Some((entry.connection.idle_since()?, index)));
            idle.min().map(|(_, index)| entries.remove(index))
        };
        oldest.is_some()
    }

    fn remove_http2_connection(&self, connection: &Weak<Http2Connection>) {
        let ended: Vec<_> = {
            let is_ended = |entry: &mut Http2Entry| std::ptr::eq(Rc::as_ptr(&entry.connection), connection.as_ptr());
            self.entries.borrow_mut().extract_if(.., is_ended).collect()
        };
        drop(ended);
        self.room.notify_waiters();
    }
}

impl ServerPool {
    /// Finds a connection for a request without a wait, to a server with this number of `addresses`; `None` if another
    /// one must be opened.
    pub(super) fn find_http2_stream(&self, needs: &ConnectionNeeds, addresses: usize) -> Option<OriginStream> {
        let connection = self.http2.as_ref()?.choose_connection(needs, addresses, &self.origin, turn_time())?;
        Some(OriginStream::new(&connection))
    }

    /// Opens a stream on a connection with room, or waits for one: for a connection that is being opened, within
    /// `timeouts.connect`, or for the end of another request, within `timeouts.queue`.
    pub(super) async fn wait_for_http2_stream(
        self: &Rc<Self>,
        in_use: SlotGuard,
        needs: &ConnectionNeeds,
        timeouts: &Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<PooledConnection, Error> {
        let http2 = self.http2.as_ref().ok_or(Error::Connect)?;
        let began = Instant::now();
        let limit = |time: Duration| began + deadline.map_or(time, |deadline| deadline.cap_to_deadline(time, began));
        let stream = loop {
            if let Some(stream) = self.find_http2_stream(needs, self.connector.address_count()) {
                break stream;
            }
            let Some(mut outcome) = self.join_dial(http2, needs.proxied, timeouts) else {
                let room = timeout_at(limit(timeouts.queue), http2.room.notified()).await;
                room.map_err(|_| self.queue_timeout_error(deadline))?;
                continue;
            };
            let dialed = timeout_at(limit(timeouts.connect.max(timeouts.queue)), outcome.wait_for(Option::is_some));
            let dialed = match dialed.await {
                // The attempt may have ended with its pool.
                Ok(dialed) => dialed.map_or(Err(Error::Connect), |outcome| outcome.unwrap_or(Ok(()))),
                Err(_) => return Err(self.queue_timeout_error(deadline)),
            };
            if let Err(error) = dialed {
                // One address of several may be down.
                break self.find_http2_stream(needs, 1).ok_or(error)?;
            }
        };
        Ok(PooledConnection::from_stream(stream, in_use))
    }

    /// The attempt to open a connection for `proxied`, which begins unless there is one; `None` if all connections are
    /// open that may be.
    fn join_dial(
        self: &Rc<Self>,
        http2: &Http2Pool,
        proxied: Option<ProxiedClient>,
        timeouts: &Timeouts,
    ) -> Option<watch::Receiver<Option<Result<(), Error>>>> {
        let mut dials = http2.dials.borrow_mut();
        if let Some(dial) = dials.iter().find(|dial| dial.proxied == proxied) {
            return Some(dial.outcome.clone());
        }
        let entries = http2.entries.borrow();
        let open = entries.iter().filter(|entry| !entry.connection.is_retired()).count();
        if open.saturating_add(dials.len()) >= self.max_connections() as usize {
            self.metrics.limit_origin_connections.increment();
            return None;
        }
        let (sender, outcome) = watch::channel(None);
        dials.push(Dial { proxied, outcome: outcome.clone() });
        let (pool, timeouts) = (Rc::clone(self), *timeouts);
        // Not joined: it ends within `timeouts.connect`, and more requests than the one that began it may wait.
        spawn_local(async move {
            let dialed = pool.dial_http2(proxied, &timeouts).await;
            if let Some(http2) = &pool.http2 {
                http2.dials.borrow_mut().retain(|dial| dial.proxied != proxied);
            }
            // No request may wait any more.
            let _ = sender.send(Some(dialed));
        });
        Some(outcome)
    }

    /// Opens a connection.
    async fn dial_http2(self: &Rc<Self>, proxied: Option<ProxiedClient>, timeouts: &Timeouts) -> Result<(), Error> {
        let descriptor = self.wait_for_descriptor(timeouts, None).await?;
        let began = Instant::now();
        let opened = Box::pin(self.open_http2(proxied, descriptor, began + timeouts.connect)).await;
        let connection = opened.map_err(|failure| self.report_connect_failure(failure, began, None))?;
        let Some(http2) = &self.http2 else { return Ok(()) };
        if self.is_closed() {
            connection.retire();
        }
        let driven = drive_connection(Rc::downgrade(&connection), Rc::downgrade(self), self.origin.idle_timeout);
        let task = AbortOnDropHandle::new(spawn_local(driven));
        http2.entries.borrow_mut().push(Http2Entry { _task: task, connection });
        Ok(())
    }
}

/// Reads and writes for `connection` until it ends, or is idle for `idle_timeout`.
fn drive_connection(
    connection: Weak<Http2Connection>,
    pool: Weak<ServerPool>,
    idle_timeout: Duration,
) -> impl Future<Output = ()> {
    let mut timer = DeadlineTimer::default();
    poll_fn(move |cx| {
        let ended = match connection.upgrade() {
            None => true,
            Some(connection) => {
                connection.poll_drive(cx).is_ready()
                    || connection.idle_since().is_some_and(|since| {
                        let is_over = timer.poll_deadline(since + idle_timeout, cx).is_ready();
                        if is_over {
                            connection.retire();
                        }
                        is_over && connection.poll_drive(cx).is_ready()
                    })
            }
        };
        if !ended {
            return Poll::Pending;
        }
        if let Some(pool) = pool.upgrade()
            && let Some(http2) = &pool.http2
        {
            http2.remove_http2_connection(&connection);
        }
        Poll::Ready(())
    })
}

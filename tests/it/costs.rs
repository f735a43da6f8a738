//! What a request costs, in numbers that do not depend on the machine: allocations of the worker's thread, and system
//! calls.

use crate::support::prelude::*;
use litequic::app::{self, StartOptions};
use litequic_base::lifecycle::ProcessPhase;
use litequic_exchange::{Abort, Exchange, Handler, Response};
use litequic_proxy::Proxy;
use std::num::NonZeroU16;

/// Requests before those that count: the pools, maps and buffers that grow are as large as they get.
const WARMING: usize = 100;
/// Requests that count.
const COUNTED: usize = 100;

/// Allocations of a request of a few bytes over HTTP/3 that waits for no other. Fewer is better: lower it then.
const ALLOCATIONS: u64 = 46;

/// System calls of such a request: each of its two waits, one to read the client's datagrams after each, one to answer,
/// and one each to write to the origin and to read from it.
const CALLS: u64 = 8;

mod counting {
    //! The system's allocator, which counts the calls of each thread.
    #![expect(unsafe_code, reason = "an allocator is")]

    use std::{
        alloc::{GlobalAlloc, Layout, System},
        cell::Cell,
    };

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    }

    struct Counting;

    // SAFETY: every call is passed on to the system's allocator as it is.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count();
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            count();
            // SAFETY: the caller's promise.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            count();
            // SAFETY: the caller's promise.
            unsafe { System.realloc(block, layout, size) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn count() {
        // A thread that ends may have no such variable any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }

    /// Allocations of the calling thread so far.
    pub(super) fn allocations() -> u64 {
        ALLOCATIONS.get()
    }
}

/// A proxy that notes how many allocations its thread had made when each request came.
struct Noting(Proxy, Arc<Mutex<Vec<u64>>>);

impl Handler for Noting {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        self.1.lock().unwrap().push(counting::allocations());
        self.0.handle(exchange).await
    }
}

#[tokio::test]
async fn a_small_request_makes_few_allocations() {
    let mut config = config_before(origin::demo().await);
    config.listen.workers = Some(NonZeroU16::MIN);
    let made = make_self_signed(["localhost"]).unwrap();
    let store = CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
    let noted = Arc::<Mutex<Vec<u64>>>::default();
    let wrap = {
        let noted = Arc::clone(&noted);
        move |proxy| Noting(proxy, Arc::clone(&noted))
    };
    let running = app::start_litequic(&config, store, StartOptions::default(), wrap).await.unwrap();
    let transport = quinn::TransportConfig::default();
    let quic = Quic::connect(running.addresses[0], "localhost", &made.cert_pem, transport).await;
    let client = Client::over(quic, "localhost").await;
    for _ in 0..=WARMING + COUNTED {
        assert_eq!(client.get("/bytes/10").await.body.len(), 10);
    }
    let counts = noted.lock().unwrap().clone();
    let last = counts.len() - 1;
    let each = (counts[last] - counts[last - COUNTED]) / COUNTED as u64;
    println!("{each} allocations a request");
    assert!(each <= ALLOCATIONS, "{each} allocations a request");
    let lifecycle = running.lifecycle.clone();
    let ended = tokio::spawn(running.wait_for_end());
    lifecycle.advance_phase(ProcessPhase::Stopping);
    within("the end", ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_small_request_makes_few_system_calls() {
    let litequic = Litequic::demo(|_| {}).await;
    let client = Client::to(&litequic).await;
    let calls = |worker: &WorkerMetrics| {
        let (net, proxy) = (&worker.net, &worker.proxy);
        let datagrams = [&net.syscalls_recvmmsg, &net.syscalls_sendmmsg, &net.syscalls_io_uring_enter];
        let origin = [&proxy.syscalls_origin_read, &proxy.syscalls_origin_write, &proxy.syscalls_origin_look];
        let waits = worker.wake.metrics.syscalls_epoll_wait.get();
        datagrams.into_iter().chain(origin).map(|counter| counter.get()).sum::<u64>() + waits
    };
    let looks = |worker: &WorkerMetrics| worker.proxy.syscalls_origin_look.get();
    for _ in 0..WARMING {
        client.get("/bytes/10").await;
    }
    let (before, looked) = (litequic.sum(calls), litequic.sum(looks));
    for _ in 0..COUNTED {
        client.get("/bytes/10").await;
    }
    let each = (litequic.sum(calls) - before) / COUNTED as u64;
    println!("{each} system calls a request");
    assert!(each <= CALLS, "{each} system calls a request");
    assert_eq!(litequic.sum(looks), looked, "looks at connections before requests that may be repeated");
    client.post("/echo", "a").await;
    assert_eq!(litequic.sum(looks), looked + 1, "a request that may not be repeated");
    litequic.stop().await;
}

//! Runs an execution as a worker runs: one thread, local tasks. Its clock stands still and moves only once nothing else
//! can happen, and its randomness is the same each time, so that an input takes the same path again. Only aws-lc has
//! its own: for keys and nonces, of which no length depends.

#[allow(dead_code, reason = "hostile_origin has a proxy")]
pub mod answers;
#[allow(dead_code, reason = "hostile_origin alone has an origin")]
pub mod origin_table;

use litequic_config::CertificateFiles;
use litequic_tls::{CertificateResolver, CertificateStore, LoadedCertificate};
use std::{
    cell::Cell,
    ffi::c_void,
    future::{Future, poll_fn},
    path::PathBuf,
    pin::pin,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread,
    time::Duration,
};
use tokio::{
    task::{LocalSet, yield_now},
    time::advance,
};

/// Turns of the scheduler, each with a look at all sockets, after which nothing moves any more without the clock.
const TURNS: u32 = 60;
/// The first step of the clock; each further one doubles until something moves.
const FIRST_STEP: Duration = Duration::from_millis(10);
/// The largest step.
const LARGEST_STEP: Duration = Duration::from_secs(20);
/// More than the sum of all timeouts that follow each other; that of tunnels is an hour. What is not done then waits
/// without a bound.
const DEADLINE: Duration = Duration::from_secs(3 * 3600);

thread_local! {
    /// How many tasks are in [`settle`].
    static SETTLING: Cell<u32> = const { Cell::new(0) };
}

/// State of the generator behind [`getrandom`].
static RANDOM: AtomicU64 = AtomicU64::new(0);

/// Runs `work` to its end, on a thread of its own: std seeds the hashers of each thread anew.
///
/// # Panics
///
/// When `work` waits without a bound.
pub fn on_a_worker<F: Future<Output = T>, T: Send>(work: impl FnOnce() -> F + Send) -> T {
    RANDOM.store(0, Ordering::Relaxed);
    // std does, where it has the main function, which is libFuzzer's here.
    // SAFETY: signal(2): the disposition has no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, until_done(work()))
    };
    thread::scope(|scope| scope.spawn(run).join()).expect("a panic would have ended the process")
}

/// Lets all tasks run until none can; then moves the clock.
async fn until_done<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let (mut waited, mut step, mut turns) = (Duration::ZERO, FIRST_STEP, 0);
    loop {
        let done = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = done.await {
            return done;
        }
        // The scheduler looks at sockets with each of these, and never waits, which would move the clock.
        yield_now().await;
        turns += 1;
        if SETTLING.get() > 0 {
            (turns, step) = (0, FIRST_STEP);
        } else if turns == TURNS {
            assert!(waited < DEADLINE, "it waits without a bound");
            advance(step).await;
            waited += step;
            step = (step * 2).min(LARGEST_STEP);
            turns = 0;
        }
    }
}

/// The certificate of a.test, in files: its key signs without randomness, and what it signs has one length.
#[allow(dead_code, reason = "hostile_origin has no TLS")]
pub fn certificates() -> Arc<CertificateResolver> {
    let (chain, key) = (include_bytes!("certificate.pem"), include_bytes!("key.pem"));
    let files = CertificateFiles { cert: PathBuf::new(), key: PathBuf::new() };
    let certificate = LoadedCertificate::from_pem(chain, key, &files).expect("a certificate");
    CertificateResolver::new(CertificateStore::new(certificate, []))
}

/// Lets all other tasks run until none can. The clock does not move meanwhile.
pub async fn settle() {
    struct Settling;
    impl Drop for Settling {
        fn drop(&mut self) {
            SETTLING.set(SETTLING.get() - 1);
        }
    }
    SETTLING.set(SETTLING.get() + 1);
    let _settling = Settling;
    for _ in 0..TURNS / 3 {
        yield_now().await;
    }
}

/// Replaces the C library's, which seeds std's hashers, tokio's scheduler and the crates `getrandom` and `fastrand`.
///
/// # Safety
///
/// getrandom(2): `buffer` has `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller's.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for byte in buffer {
        // SplitMix64.
        let mut value = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *byte = value.to_le_bytes()[7];
    }
    length as isize
}

//! Reads the CPU time of a thread.

use super::result::check_result;
use libc::{rusage, timeval};
use std::{io, mem::MaybeUninit, time::Duration};

/// CPU time that the calling thread has used in user and kernel mode. The difference of two readings is the cost of a
/// request, if the worker served nothing else meanwhile.
///
/// # Errors
///
/// The error of getrusage(2), which lists none for these arguments.
pub fn thread_cpu_time() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<rusage>::zeroed();
    // SAFETY: getrusage(2): RUSAGE_THREAD is the calling thread; the kernel fills the whole struct when it returns 0,
    // and all-zero is a valid rusage.
    let usage = unsafe {
        check_result(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()))?;
        usage.assume_init()
    };
    Ok(timeval_duration(usage.ru_utime) + timeval_duration(usage.ru_stime))
}

fn timeval_duration(time: timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_cpu_time() {
        let before = thread_cpu_time().unwrap();
        let mut n = 0_u64;
        for _ in 0..10_000_000 {
            if thread_cpu_time().unwrap() >= before + Duration::from_millis(10) {
                return;
            }
            n = std::hint::black_box(n.wrapping_add(1));
        }
        panic!("no CPU time passed");
    }
}

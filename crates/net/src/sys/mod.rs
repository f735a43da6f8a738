//! The system calls that neither std nor socket2 have: all unsafe code of the crate. Each function is safe to call.
#![expect(unsafe_code, reason = "system calls; this is the one place for them")]

mod address;
mod control;
mod mmsg;
mod option;
mod readiness;
mod tcp;
mod uring;

pub(super) use mmsg::{Arrived, GRO_MESSAGE, PLAIN_MESSAGE, ReceiveBatch, SendBatch};
pub(super) use option::IntOption;
pub(super) use readiness::register;
pub(super) use tcp::tcp_info;
pub(super) use uring::{MultishotReceive, Ring, UringError, UringErrorKind, completions};

use libc::{c_int, c_void, rusage, sock_filter, sock_fprog, socklen_t, timeval};
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

/// One instruction of classic BPF (linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) jump_true: u8,
    pub(super) jump_false: u8,
    pub(super) operand: u32,
}

/// Lets `program` choose the socket for each datagram of the reuseport group that `socket` is in: it returns the
/// socket's index, in the order of their bind(2).
///
/// # Errors
///
/// ENOPROTOOPT before Linux 4.5 and in sandboxes without it, EINVAL for a program that the kernel does not accept.
pub(super) fn attach_reuseport_cbpf(socket: &impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<sock_filter> =
        program.iter().map(|i| sock_filter { code: i.code, jt: i.jump_true, jf: i.jump_false, k: i.operand }).collect();
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let value_len = socklen_t::try_from(size_of::<sock_fprog>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: socket(7), SO_ATTACH_REUSEPORT_CBPF: the option's value is a sock_fprog, whose size is given and whose
    // filter points to `len` instructions. The kernel copies them before it returns, and `filter` is alive until then.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            value_len,
        )
    };
    check(result)
}

/// The CPU time that the calling thread has used, in user and kernel mode. The cost of a request is the difference of
/// two, on a worker that served nothing else meanwhile.
///
/// # Errors
///
/// None that getrusage(2) knows of for these arguments.
pub fn thread_cpu_time() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<rusage>::zeroed();
    // SAFETY: getrusage(2): RUSAGE_THREAD is the calling thread; the kernel fills the whole struct when it returns 0,
    // and all-zero is a valid rusage.
    let usage = unsafe {
        check(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()))?;
        usage.assume_init()
    };
    Ok(duration(usage.ru_utime) + duration(usage.ru_stime))
}

fn duration(time: timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

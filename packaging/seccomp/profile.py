#!/usr/bin/env python3
"""profile.py [--check]: writes the seccomp profiles beside it: what litequic calls (observed.txt, by observe.sh) and the margin below.
With --check it writes nothing, and fails if a file is not what it would write."""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
EPERM, ENOSYS = 1, 38

# What other C libraries, kernels, architectures and container runtimes call in place of what was observed, or beside it.
MARGIN = {
    "another C library or version of it makes the same call in another form": [
        "access",
        "dup",
        "dup2",
        "dup3",
        "epoll_create",
        "epoll_create1",
        "epoll_pwait",
        "epoll_pwait2",
        "epoll_wait",
        "faccessat",
        "faccessat2",
        "fstat",
        "fstatfs",
        "getrlimit",
        "lstat",
        "mkdir",
        "mkdirat",
        "newfstatat",
        "open",
        "openat",
        "openat2",
        "pipe",
        "pipe2",
        "poll",
        "ppoll",
        "prlimit64",
        "readlink",
        "readlinkat",
        "rename",
        "renameat",
        "renameat2",
        "rmdir",
        "select",
        "pselect6",
        "setrlimit",
        "stat",
        "statfs",
        "statx",
        "symlink",
        "symlinkat",
        "unlink",
        "unlinkat",
        "vfork",
        "fork",
        "waitid",
        "wait4",
        "accept",
        "accept4",
        "chmod",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "link",
        "linkat",
        "getdents64",
        "preadv",
        "preadv2",
        "pwritev",
        "pwritev2",
        "pread64",
        "pwrite64",
        "readv",
        "writev",
        "sendfile",
        "inotify_init",
        "inotify_init1",
        "eventfd",
        "eventfd2",
        "signalfd4",
        "timerfd_create",
        "timerfd_settime",
        "timerfd_gettime",
        "utimensat",
    ],
    "time, where the vDSO has no clock, as in some virtual machines": [
        "clock_getres",
        "clock_gettime",
        "clock_nanosleep",
        "gettimeofday",
        "nanosleep",
        "time",
        "getcpu",
    ],
    "threads, signals and memory of other C libraries and allocators": [
        "arch_prctl",
        "brk",
        "exit",
        "exit_group",
        "futex",
        "futex_waitv",
        "futex_wait",
        "futex_wake",
        "futex_requeue",
        "get_robust_list",
        "set_robust_list",
        "set_tid_address",
        "rseq",
        "restart_syscall",
        "rt_sigaction",
        "rt_sigpending",
        "rt_sigprocmask",
        "rt_sigreturn",
        "rt_sigsuspend",
        "rt_sigtimedwait",
        "sigaltstack",
        "sigreturn",
        "kill",
        "tgkill",
        "tkill",
        "gettid",
        "membarrier",
        "mlock",
        "munlock",
        "mremap",
        "mincore",
        "madvise",
        "pause",
        "sched_getaffinity",
        "sched_setaffinity",
        "sched_yield",
        "getrusage",
        "sysinfo",
        "times",
        "uname",
        "umask",
        "getrandom",
        "pidfd_open",
        "pidfd_send_signal",
    ],
    "what the C library asks of the process itself": [
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "getresuid",
        "getresgid",
        "getgroups",
        "getpid",
        "getppid",
        "getpgrp",
        "getpgid",
        "getsid",
        "setsid",
        "getcwd",
        "chdir",
        "fchdir",
        "capget",
        "getxattr",
        "lgetxattr",
        "getitimer",
        "setitimer",
        "alarm",
    ],
    "sockets and files, by the libraries' less frequent ways": [
        "bind",
        "connect",
        "fallocate",
        "fcntl",
        "fdatasync",
        "flock",
        "fsync",
        "ftruncate",
        "getpeername",
        "getsockname",
        "getsockopt",
        "inotify_add_watch",
        "inotify_rm_watch",
        "ioctl",
        "listen",
        "lseek",
        "recv",
        "recvfrom",
        "recvmmsg",
        "recvmsg",
        "send",
        "sendmmsg",
        "sendmsg",
        "sendto",
        "setsockopt",
        "shutdown",
        "socketpair",
        "splice",
        "tee",
        "close_range",
        "copy_file_range",
    ],
    "container runtimes, which load the profile before they drop what they have; without capabilities these change nothing": [
        "capset",
        "setgid",
        "setgroups",
        "setresgid",
        "setresuid",
        "setuid",
        "prctl",
        "execve",
        "fchown",
        "set_thread_area",
    ],
}
IO_URING = ["io_uring_setup", "io_uring_enter", "io_uring_register"]
# Written with conditions below.
CONDITIONAL = {"clone", "clone3", "socket", "personality"}
# The flags of clone(2) that make namespaces.
CLONE_NEW = 0x7E020000
# AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, by which getaddrinfo(3) asks for the machine's addresses.
FAMILIES = [1, 2, 10, 16]
# What must never be listed, whatever the suite calls.
NEVER = {
    *("ptrace", "process_vm_readv", "process_vm_writev", "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "bpf"),
    *("kexec_load", "kexec_file_load", "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module"),
    *("perf_event_open", "userfaultfd", "open_by_handle_at", "reboot", "swapon", "swapoff", "acct", "settimeofday"),
    *("clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "syslog", "quotactl", "mknod", "mknodat", "kcmp"),
    *("move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "mount_setattr", "landlock_restrict_self", "seccomp"),
    *("memfd_secret", "memfd_create", "process_madvise", "pidfd_getfd", "nfsservctl", "vm86", "uselib", "sethostname"),
}


def equal(index, value):
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def profile(names, default):
    plain = sorted(set(names) - CONDITIONAL)
    return {
        "defaultAction": default,
        **({"defaultErrnoRet": EPERM} if default == "SCMP_ACT_ERRNO" else {}),
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": plain, "action": "SCMP_ACT_ALLOW"},
            *({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [equal(0, family)]} for family in FAMILIES),
            # The C library turns to clone(2), whose flags can be seen: those of clone3(2) are in memory.
            {
                "names": ["clone"],
                "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": CLONE_NEW, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
            },
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
        ],
    }


def main():
    observed = (FOLDER / "observed.txt").read_text(encoding="ascii").split()
    names = {name for name in observed if not name.startswith("io_uring_")}
    names.update(name for group in MARGIN.values() for name in group)
    if names & NEVER:
        sys.exit(f"not to be allowed: {', '.join(sorted(names & NEVER))}")
    files = {
        "litequic.json": profile(names, "SCMP_ACT_ERRNO"),
        "litequic-io-uring.json": profile(names | set(IO_URING), "SCMP_ACT_ERRNO"),
        # Allows all, and logs what the first one would refuse.
        "litequic-log.json": profile(names, "SCMP_ACT_LOG"),
    }
    stale = []
    for name, content in files.items():
        text = json.dumps(content, indent=1) + "\n"
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="ascii") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="ascii")
    if "--check" in sys.argv and stale:
        sys.exit(f"to be written by packaging/seccomp/profile.py: {', '.join(stale)}")


main()

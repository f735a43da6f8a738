/* What code that has taken over litequic would try, each by one system call, for confinement.sh and systemd.sh: run in place of litequic,
 * under the same confinement. A line each: "refused NAME: reason", or "ALLOWED NAME". Ends with the number of those that were allowed.
 * Refuses to run with CAP_SYS_ADMIN: it would do what it tries. Arguments are names to leave out. cc -static -o intruder intruder.c */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int allowed, count;
static char **left_out;

static int wanted(const char *name) {
    for (int each = 1; each < count; each++)
        if (strcmp(left_out[each], name) == 0)
            return 0;
    return 1;
}

static void report(const char *name, long result, int error) {
    if (result >= 0) {
        allowed++;
        printf("ALLOWED %s\n", name);
    } else {
        printf("refused %s: %s\n", name, strerror(error));
    }
}

#define TRY(name, call)                                                                                                            \
    do {                                                                                                                           \
        if (wanted(name)) {                                                                                                        \
            errno = 0;                                                                                                             \
            long result = (call);                                                                                                  \
            report(name, result, errno);                                                                                           \
        }                                                                                                                          \
    } while (0)

/* execve(2) of another program, by a child that ends with the reason. */
static long executes_with(const char *program, char *const arguments[]) {
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0)
            dup2(nowhere, STDERR_FILENO);
        execv(program, arguments);
        _exit(errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
    return -1;
}

static long executes(const char *program) {
    char *const arguments[] = {(char *)program, "-c", "exit 0", NULL};
    return executes_with(program, arguments);
}

/* /bin/sh, mapped by the dynamic loader rather than by the kernel. The loader ends with 127 where it cannot. */
static long executes_by_loader(void) {
#if defined(__aarch64__)
    const char *loader = "/lib/ld-linux-aarch64.so.1";
#else
    const char *loader = "/lib64/ld-linux-x86-64.so.2";
#endif
    char *const arguments[] = {(char *)loader, "/bin/sh", "-c", "exit 0", NULL};
    long result = executes_with(loader, arguments);
    if (errno == 127)
        errno = EACCES;
    return result;
}

/* Copies this program. */
static long copies_to(int to) {
    char bytes[65536];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (from < 0 || to < 0)
        return -1;
    for (ssize_t length; (length = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, length) != length)
            return -1;
    close(from);
    return 0;
}

/* execve(2) of a copy of this program in memory. */
static long executes_memory(void) {
    int to = syscall(SYS_memfd_create, "intruder", 0);
    if (copies_to(to) < 0)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", to);
    return executes(path);
}

/* execve(2) of a copy of this program in `folder`. */
static long executes_copy(const char *folder) {
    char path[256];
    snprintf(path, sizeof path, "%s/intruder", folder);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    if (copies_to(to) < 0)
        return -1;
    close(to);
    long result = executes(path);
    int error = errno;
    unlink(path);
    errno = error;
    return result;
}

/* By a child, which asks to be traced and nothing else. */
static long traces(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 0 : errno);
    int status = 0;
    waitpid(child, &status, 0);
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
    return errno == 0 ? 0 : -1;
}

static int is_administrator(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & 1u << CAP_SYS_ADMIN);
}

static long opens(const char *path, int flags) { return open(path, flags | O_CLOEXEC, 0600); }

int main(int number, char **arguments) {
    count = number, left_out = arguments;
    if (number == 3 && strcmp(arguments[1], "-c") == 0)
        return 0; /* the copy */
    if (is_administrator()) {
        fputs("intruder: not with CAP_SYS_ADMIN\n", stderr);
        return 125;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    TRY("execve of /bin/sh", executes("/bin/sh"));
    TRY("execve of /bin/sh by the dynamic loader", executes_by_loader());
    TRY("execve of a file in memory", executes_memory());
    const char *folders[] = {"/tmp", "/var/tmp", "/dev/shm", "/run/litequic", "/var/lib/litequic", "/var/log/litequic", "/etc/litequic"};
    for (size_t each = 0; each < sizeof folders / sizeof *folders; each++) {
        char name[64];
        snprintf(name, sizeof name, "execve of a file written to %s", folders[each]);
        TRY(name, executes_copy(folders[each]));
    }
    TRY("write to /usr", opens("/usr/intruder", O_WRONLY | O_CREAT));
    TRY("write to /etc", opens("/etc/intruder", O_WRONLY | O_CREAT));
    TRY("read of /etc/shadow", opens("/etc/shadow", O_RDONLY));
    TRY("read of /home", opens("/home/user/secret", O_RDONLY));
    /* In a container this is process 1, and there is no other. */
    TRY("read of another process' memory", opens(getpid() == 1 ? "/proc/2/mem" : "/proc/1/mem", O_RDONLY));
    TRY("ptrace", traces());
    struct iovec local = {&allowed, sizeof allowed};
    TRY("process_vm_readv", syscall(SYS_process_vm_readv, 1, &local, 1, &local, 1, 0));
    TRY("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    TRY("unshare of a user namespace", unshare(CLONE_NEWUSER));
    TRY("unshare of a mount namespace", unshare(CLONE_NEWNS));
    union bpf_attr attribute = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    TRY("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &attribute, sizeof attribute));
    TRY("raw socket", socket(AF_INET, SOCK_RAW, 1));
    TRY("packet socket", socket(AF_PACKET, SOCK_RAW, 0));
    TRY("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
    TRY("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1));
    TRY("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    TRY("init_module", syscall(SYS_init_module, NULL, 0, ""));
    char parameters[120] = {0};
    TRY("io_uring_setup", syscall(SYS_io_uring_setup, 4, parameters));
    return allowed;
}

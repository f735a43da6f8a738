#!/usr/bin/env bash
# observe.sh [FILTER...]: notes which system calls litequic makes while the integration suite runs (cargo test --test it FILTER...), over
# epoll and over io_uring, and adds them to observed.txt, a line each. Then profile.py writes the profiles. Needs strace, and root or a ptrace_scope that lets processes be traced by one another.
#   OBSERVE='epoll io-uring'     the backends
#   TRACES=DIR                   where strace's summaries are kept; a folder that is removed otherwise
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v strace >/dev/null || {
    echo "needs strace" >&2
    exit 69
}
traces=${TRACES:-$(mktemp -d)}
[[ -n ${TRACES:-} ]] || trap 'rm -rf "$traces"' EXIT
program=$(realpath "${LITEQUIC:-target/debug/litequic}")

for backend in ${OBSERVE:-epoll io-uring}; do
    mkdir -p "$traces/$backend"
    # The tracer is a process of its own (-D): the traced one keeps the ID that signals are sent to.
    cat >"$traces/litequic" <<WRAPPER
#!/bin/sh
exec strace -D -f -qqq -c -U name -o "$traces/$backend/\$\$.\$(date +%N)" "$program" "\$@"
WRAPPER
    chmod +x "$traces/litequic"
    if [[ -n ${TESTS:-} ]]; then
        LITEQUIC_TEST_IO=$backend LITEQUIC_TEST_PROGRAM="$traces/litequic" "$TESTS" "$@" || true
    else
        LITEQUIC_TEST_IO=$backend LITEQUIC_TEST_PROGRAM="$traces/litequic" cargo test --locked --test it -- "$@" || true
    fi
    # Some test may have failed: a traced process is slow. What it called counts.
    find "$traces/$backend" -type f -exec cat {} + | grep -Ex '[a-z_0-9]+' | grep -vxE 'syscall|total' | sort -u >"$traces/$backend.calls"
    wc -l "$traces/$backend.calls"
done

cat "$traces"/*.calls packaging/seccomp/observed.txt 2>/dev/null | sort -u >"$traces/observed"
mv "$traces/observed" packaging/seccomp/observed.txt
packaging/seccomp/profile.py

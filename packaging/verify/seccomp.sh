#!/usr/bin/env bash
# seccomp.sh [PROGRAM]: under the profiles of packaging/seccomp, which libseccomp loads as runc does: the integration suite's own tests of
# what litequic does by a process of its own (reload, access log, hot upgrade, names by getaddrinfo, Unix sockets, drain, io_uring), and an
# intruder, without capabilities. With an engine also Docker: DOCKER_IMAGE is litequic's image. PROGRAM is target/debug/litequic unless said
# otherwise. Needs root, python3, libseccomp2, gcc and setpriv.
#   TESTS=FILE    the integration suite as it is built (target/debug/deps/it-…); otherwise cargo builds it
program=$(realpath "${1:-$(dirname "$0")/../../target/debug/litequic}")
cd "$(dirname "$0")/../.." || exit
# shellcheck source=packaging/verify/checks.sh
. packaging/verify/checks.sh
trap 'rm -rf "$work"' EXIT
chmod 0755 "$work"
skip() {
    echo "SKIPPED: $1"
    exit 0
}
((EUID == 0)) || skip "needs root"
for needed in python3 gcc setpriv; do
    command -v "$needed" >/dev/null || skip "needs $needed"
done
python3 -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' 2>/dev/null || skip "needs libseccomp2"
profiles=$PWD/packaging/seccomp

check "the profiles are what profile.py writes" "$profiles/profile.py" --check

# under PROFILE PROGRAM [ARGUMENT...]
under() { python3 "$profiles/load.py" "$profiles/$1.json" "${@:2}"; }
# suite BACKEND PROFILE FILTER...: tests whose names have one of the filters.
suite() {
    printf '#!/bin/sh\nexec python3 %s %s %s "$@"\n' "$profiles/load.py" "$profiles/$2.json" "$program" >"$work/litequic"
    chmod 0755 "$work/litequic"
    local run=(cargo test --locked --test it --)
    [[ -z ${TESTS:-} ]] || run=("$TESTS")
    LITEQUIC_TEST_IO=$1 LITEQUIC_TEST_PROGRAM="$work/litequic" "${run[@]}" "${@:3}"
}
# upgrade::program copies the program, which is this wrapper here; the unit's commands are the same under any filter.
skipped=(--skip upgrade::program:: --skip service_manager::a_fault)
subjects=(access_log:: addresses:: admin_socket:: cli:: confinement:: crash:: drain:: get:: origins:: panics:: reload:: upgrade::)
check "the suite's tests of a process, over epoll" suite epoll litequic "${subjects[@]}" "${skipped[@]}"
grep -E '^test result' "$work/out" | sed 's/^/      /'
check "... over io_uring, with its profile" suite io-uring litequic-io-uring reload:: upgrade:: drain:: "${skipped[@]}"
grep -E '^test result' "$work/out" | sed 's/^/      /'
check "probe, where io_uring is forbidden" says '^io_uring +no: io_uring_setup: Operation not permitted' under litequic "$program" probe
check "... and where it is allowed" says '^io_uring +yes' under litequic-io-uring "$program" probe
check "the profile that logs allows all" says '^io_uring +yes' under litequic-log "$program" probe

gcc -static -o "$work/intruder" packaging/verify/intruder.c
# As in a container: no capabilities. Files are for the mounts to refuse, and execve of other programs too.
files=("execve of /bin/sh" "execve of /bin/sh by the dynamic loader" "execve of a file written to "{/tmp,/var/tmp,/dev/shm} "read of /home")
intrude() { under "$1" "$(command -v setpriv)" --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all "$work/intruder" "${files[@]}"; }
check "an intruder is refused everything" intrude litequic
grep -E '^(refused|ALLOWED)' "$work/out" | sed 's/^/      /'
check "... but for rings, with io_uring's profile" not says 'ALLOWED [^i]' intrude litequic-io-uring

if docker info >/dev/null 2>&1 && [[ -n ${DOCKER_IMAGE:-} ]]; then
    name=litequic-seccomp-$$
    contained() { docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges --security-opt seccomp="$profiles/$1.json" "${@:2}"; }
    check "Docker: probe under the profile" says '^seccomp +filter' contained litequic "$DOCKER_IMAGE" probe
    sed -n '/^user/,/^read-only/s/^/      /p' "$work/out"
    check "... io_uring under its own" says '^io_uring +yes' contained litequic-io-uring "$DOCKER_IMAGE" probe
    certificate tls example.com
    docker run --detach --name "$name" --read-only --cap-drop ALL --security-opt no-new-privileges --security-opt seccomp="$profiles/litequic.json" \
        -v "$work/tls.crt:/tls/tls.crt:ro" -v "$work/tls.key:/tls/tls.key:ro" -e LITEQUIC_ORIGIN=127.0.0.1:1 "$DOCKER_IMAGE" >/dev/null
    check "... it serves, and its health check by docker exec passes" wait_for 30 says '^healthy$' docker inspect --format '{{.State.Health.Status}}' "$name"
    check "... and stops in order" docker stop --time 30 "$name"
    docker rm --force "$name" >/dev/null
    check "... an intruder is refused everything" contained litequic --user 65532:65532 -v "$work/intruder:/usr/bin/intruder:ro" \
        --entrypoint /usr/bin/intruder "$DOCKER_IMAGE"
    grep -E '^(refused|ALLOWED)' "$work/out" | sed 's/^/      /'
else
    echo "SKIPPED: Docker: needs an engine, and DOCKER_IMAGE"
fi
finish

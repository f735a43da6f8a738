#!/usr/bin/env bash
# arm64.sh DIST: runs the programs for arm64 of a release's tarballs, emulated by qemu-user (Debian's qemu-user-static; libc6-arm64-cross
# has the C library): what they find in the kernel, the examples' configurations, downloads over HTTP/3 with a native program at
# the other end. Emulated are instructions and system calls' forms; the kernel is this machine's. DIST is the folder of a release.
dist=$(realpath "$1")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

server=
end() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

# unpack TARGET: its tarball, in a folder of this name.
unpack() {
    mkdir "$work/$1"
    tar --extract --file "$dist"/litequic-*-"$1".tar.gz --directory "$work/$1" --strip-components 1
}
# No function: as a background process that would be a shell, whose end leaves the program running.
readonly emulated=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)
stop() {
    kill "$server"
    wait "$server" || true
    server=
}
# download CLIENT...: ten megabytes from the server that runs, as a native client got them from a native one.
download() {
    "$@" get --insecure --timeout 60s --output "$work/body" "https://127.0.0.1:$port/bytes/10000000"
    cmp "$work/body" "$work/expected"
}
# serve SERVER...: sets port and server, with litequic's own origin behind it.
serve() {
    "$@" demo --listen 127.0.0.1:0 >"$work/demo" 2>&1 &
    server=$!
    wait_for 60 grep -q 'https://' "$work/demo"
    port=$(grep -o 'https://[^ /]*' "$work/demo" | head -n 1 | sed 's/.*://')
}

native=x86_64-unknown-linux-musl
unpack $native
serve "$work/$native/bin/litequic"
"$work/$native/bin/litequic" get --insecure --output "$work/expected" "https://127.0.0.1:$port/bytes/10000000"
for target in aarch64-unknown-linux-gnu aarch64-unknown-linux-musl; do
    unpack $target
    program=$work/$target/bin/litequic
    check "$target: has its version" says '^litequic [0-9]' "${emulated[@]}" "$program" --version
    check "$target: probe" says '^litequic would use: epoll' "${emulated[@]}" "$program" probe
    sed -n 's/^litequic would use: /      /p' "$work/out"
    check "$target: downloads from a native server" download "${emulated[@]}" "$program"
done
stop
for target in aarch64-unknown-linux-gnu aarch64-unknown-linux-musl; do
    program=$work/$target/bin/litequic
    certificate tls localhost
    printf 'origin.url = "http://127.0.0.1:1"\n[[certificates]]\ncert = "tls.crt"\nkey = "tls.key"\n' >"$work/litequic.toml"
    check "$target: check" "${emulated[@]}" "$program" check --config "$work/litequic.toml"
    echo 'limits.max_headers = "no"' | cat - "$work/litequic.toml" >"$work/wrong.toml"
    check "$target: check finds a fault" ends_with 78 'limits.max_headers' "${emulated[@]}" "$program" check --config "$work/wrong.toml"
    serve "${emulated[@]}" "$program"
    check "$target: serves a native client" download "$work/$native/bin/litequic"
    check "$target: serves an emulated one" download "${emulated[@]}" "$program"
    stop
done
finish

#!/bin/sh
# Runs the loads of a profile on a litequic: those that the laboratory measures. Small objects, with few fields and with a
# browser's; large bodies at several ACK thresholds, with loss, and at a distance, where sending is paced; uploads;
# handshakes, new and resumed; HTTP/2, HTTP/1.1, tunnels; more requests than connections to the origin; HTTP/2 and TLS to it; an access log,
# traces, networks and a password. The origin is nginx, so that functions of a proxy alone are hot; clients are the laboratory's, curl and
# h2load; 127.0.0.1 alone.
# usage: packaging/train.sh PROGRAM LAB
# Needs nginx, curl, h2load and python3.
set -eu
program=$1 lab=$2
here=$(dirname "$0")

work=$(mktemp -d)
pids=
# shellcheck disable=SC2086 # several numbers
trap 'kill -KILL $pids 2>/dev/null || true; rm -rf "$work"' EXIT

# Sets `port` to what the file $1 says by the sed expression $2, once it does.
await_port() {
    port='' tries=100
    while [ -z "$port" ] && [ "$tries" -gt 0 ]; do
        sleep 0.1
        tries=$((tries - 1))
        port=$(sed -n "$2" "$1")
    done
    [ -n "$port" ] || {
        cat "$1" >&2
        exit 1
    }
}

# A port that is free.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

chmod 755 "$work" # nginx gives up being root
mkdir -p "$work/root/bytes"
for size in 1000 10000 8000000 16000000 64000000; do
    head -c "$size" /dev/zero >"$work/root/bytes/$size"
done
"$program" certificate --out "$work/tls" localhost 127.0.0.1 >"$work/certificate.log" 2>&1
nginx=$(free_port) secure=$(free_port)
"$here/../benches/origin.sh" "$work" "$nginx" "$secure" "$work/tls/tls.crt" "$work/tls/tls.key" >"$work/nginx.log" 2>&1 &
origin=$!
pids="$pids $origin"

# Starts the program in front of the origin at the port $2, with $3 file descriptors, as $1, and sets `port`.
demo() {
    name=$1
    (
        ulimit -n "$3"
        exec "$program" demo --listen 127.0.0.1:0 --origin "http://127.0.0.1:$2"
    ) >"$work/$name.log" 2>&1 &
    pids="$pids $!"
    await_port "$work/$name.log" 's|^litequic serves .* at https://127\.0\.0\.1:\([0-9]*\)/.*|\1|p'
}

load() {
    "$lab" load "$@" --address "127.0.0.1:$port" --insecure --warmup 0 --deadline 120 >"$work/load.log" 2>&1 || {
        tail -n 20 "$work/load.log" >&2
        exit 1
    }
}

demo large "$nginx" 4096
kilobyte="--path /bytes/1000 --bytes 1000"
large="--path /bytes/64000000 --bytes 64000000 --connections 4 --requests 8"
# shellcheck disable=SC2086 # several words each
{
    load small $kilobyte --connections 100 --streams 10 --requests 60000
    load small --path /bytes/10000 --bytes 10000 --connections 100 --streams 10 --requests 20000
    load small $kilobyte --connections 10 --streams 10 --requests 20000 --ack-threshold 2
    load small $kilobyte --connections 20 --streams 4 --requests 40000 --browser
    load small $kilobyte --connections 50 --streams 2 --requests 5000 --browser --delay 20
    load download $large --ack-threshold 2
    load download $large --ack-threshold 10
    load download $large --ack-threshold 100
    load download $large --ack-threshold auto
    load download $large --ack-threshold 2 --lose 500 --hold 500
    load download --path /bytes/8000000 --bytes 8000000 --connections 20 --requests 20 --ack-threshold 2 --delay 40
    load download --path /bytes/8000000 --bytes 8000000 --connections 20 --requests 20 --ack-threshold 10 --delay 20
    load upload --path /sink --bytes 16000000 --connections 4 --requests 8
    load handshakes --connections 8 --requests 500
    load handshakes --connections 8 --requests 500 --resume
    load small $kilobyte --protocol h1 --connections 20 --requests 20000
    load download --path /bytes/16000000 --bytes 16000000 --protocol h1 --connections 4 --requests 8
    load upload --path /sink --bytes 16000000 --protocol h1 --connections 4 --requests 4
}
# Requests of 1 KB over HTTP/2 to `port`.
kilobytes() {
    h2load --clients 100 --max-concurrent-streams 10 "$@" "https://127.0.0.1:$port/bytes/1000" >"$work/load.log" 2>&1
    grep --quiet ' 0 failed, 0 errored' "$work/load.log" || {
        cat "$work/load.log" >&2
        exit 1
    }
}
get() {
    curl --no-progress-meter --noproxy '*' --insecure --silent --show-error --fail --http2 --output /dev/null "$@"
}
kilobytes --requests 40000
get --parallel --parallel-max 20 "https://127.0.0.1:$port/bytes/1000?[1-5000]"
get --parallel --parallel-max 4 "https://127.0.0.1:$port/bytes/16000000?[1-8]"

# A connection to the origin for some sixty of a thousand requests at once: the rest waits in the queue.
demo queue "$nginx" 256
# shellcheck disable=SC2086 # several words
load small $kilobyte --connections 100 --streams 10 --requests 40000

# Starts the program with the lines $2 of its configuration about the origin and what follows them, as $1, and sets `port`.
run() {
    port=$(free_port)
    cat >"$work/$1.toml" <<TOML
[listen]
udp = "127.0.0.1:$port"
tcp = "127.0.0.1:$port"
workers = 1
[[certificates]]
cert = "$work/tls/tls.crt"
key = "$work/tls/tls.key"
[admin]
socket = "$work/$1.sock"
[origin]
$2
TOML
    "$program" run --config "$work/$1.toml" >"$work/$1.log" 2>&1 &
    pids="$pids $!"
    await_port "$work/$1.log" "s|.*\"ready\".*|$port|p"
}

# HTTP/2 and TLS to the origin.
run http2 "url = \"https://127.0.0.1:$secure\"
protocol = \"h2\"
tls.ca = \"$work/tls/ca.crt\""
# shellcheck disable=SC2086 # several words
{
    load small $kilobyte --connections 100 --streams 10 --requests 40000
    load small $kilobyte --connections 10 --streams 1 --requests 5000
    load download --path /bytes/16000000 --bytes 16000000 --connections 4 --requests 8 --ack-threshold 10
    load upload --path /sink --bytes 16000000 --connections 4 --requests 4
}

# An access log, and traces: of each hundredth request, then of each one.
for ratio in 0.01 1; do
    run "ratio-$ratio" "url = \"http://127.0.0.1:$nginx\"
[access_log]
path = \"$work/access.log\"
[traces]
endpoint = \"http://127.0.0.1:$nginx\"
ratio = $ratio"
    # shellcheck disable=SC2086 # several words
    load small $kilobyte --connections 100 --streams 10 --requests 20000
    kilobytes --requests 10000
done

# Networks and a password.
echo secret | "$program" password user >"$work/users"
run password "url = \"http://127.0.0.1:$nginx\"
[[routes]]
origin = \"origin\"
allow = [\"10.0.0.0/8\", \"192.168.0.0/16\", \"127.0.0.0/8\"]
users = \"$work/users\""
# A right password is remembered after the first request.
get --user user:secret "https://127.0.0.1:$port/bytes/1000"
kilobytes --requests 10000 --header "authorization: Basic $(printf user:secret | base64)"

"$here/tunnels.py" origin >"$work/tunnels" &
tunnels=$!
pids="$pids $tunnels"
await_port "$work/tunnels" p
demo tunnels "$port" 4096
"$here/tunnels.py" client "$port" 100

# What a litequic counted it writes at its end, which is in good order.
for pid in $pids; do
    kill -TERM "$pid"
    [ "$pid" = "$tunnels" ] || wait "$pid" || [ "$pid" = "$origin" ]
done

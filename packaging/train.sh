#!/bin/sh
# Runs the loads of a profile on a litequic: those that the laboratory measures. Small objects, with few fields and with a
# browser's; large bodies at several ACK thresholds, with loss, and at a distance, where sending is paced; uploads;
# handshakes, new and resumed; HTTP/2, HTTP/1.1, tunnels. The origin is the small one of `litequic demo`, clients are the
# laboratory's and curl; 127.0.0.1 alone.
# usage: packaging/train.sh PROGRAM LAB
# Needs curl and python3.
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

# Starts a demo with the arguments that follow its name, and sets `port`.
demo() {
    name=$1
    shift
    "$program" demo --listen 127.0.0.1:0 "$@" >"$work/$name.log" 2>&1 &
    pids="$pids $!"
    await_port "$work/$name.log" 's|^litequic serves .* at https://127\.0\.0\.1:\([0-9]*\)/.*|\1|p'
}

load() {
    "$lab" load "$@" --address "127.0.0.1:$port" --insecure --warmup 0 --deadline 120 >"$work/load.log" 2>&1 || {
        tail -n 20 "$work/load.log" >&2
        exit 1
    }
}

demo large
kilobyte="--path /bytes/1000 --bytes 1000"
large="--path /bytes/64M --bytes 64000000 --connections 4 --requests 8"
# shellcheck disable=SC2086 # several words each
{
    load small $kilobyte --connections 100 --streams 10 --requests 60000
    load small $kilobyte --connections 10 --streams 10 --requests 20000 --ack-threshold 2
    load small $kilobyte --connections 20 --streams 4 --requests 40000 --browser
    load small $kilobyte --connections 50 --streams 2 --requests 5000 --browser --delay 20
    load download $large --ack-threshold 2
    load download $large --ack-threshold 10
    load download $large --ack-threshold 100
    load download $large --ack-threshold auto
    load download $large --ack-threshold 2 --lose 500 --hold 500
    load download --path /bytes/8M --bytes 8000000 --connections 20 --requests 20 --ack-threshold 2 --delay 40
    load download --path /bytes/8M --bytes 8000000 --connections 20 --requests 20 --ack-threshold 10 --delay 20
    load upload --path /sink --bytes 16000000 --connections 4 --requests 8
    load handshakes --connections 8 --requests 500
    load handshakes --connections 8 --requests 500 --resume
    load small $kilobyte --protocol h1 --connections 20 --requests 5000
    load download --path /bytes/16M --bytes 16000000 --protocol h1 --connections 4 --requests 8
    load upload --path /sink --bytes 16000000 --protocol h1 --connections 4 --requests 4
}
get() {
    curl --no-progress-meter --noproxy '*' --insecure --silent --show-error --fail --http2 --output /dev/null "$@"
}
get --parallel --parallel-max 20 "https://127.0.0.1:$port/bytes/1000?[1-5000]"
get --parallel --parallel-max 4 "https://127.0.0.1:$port/bytes/16M?[1-8]"

"$here/tunnels.py" origin >"$work/tunnels" &
tunnels=$!
pids="$pids $tunnels"
await_port "$work/tunnels" p
demo tunnels --origin "http://127.0.0.1:$port"
"$here/tunnels.py" client "$port" 100

# What a litequic counted it writes at its end, which is in good order.
for pid in $pids; do
    kill -TERM "$pid"
    [ "$pid" = "$tunnels" ] || wait "$pid"
done

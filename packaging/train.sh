#!/bin/sh
# Has a litequic do what a profile of it should know: small and large responses at several ACK thresholds, uploads,
# handshakes, HTTP/1.1. The origin is the small one of `litequic demo`, the client the laboratory's; 127.0.0.1 alone.
# usage: packaging/train.sh PROGRAM LAB
set -eu
program=$1 lab=$2

work=$(mktemp -d)
"$program" demo --listen 127.0.0.1:0 >"$work/demo.log" 2>&1 &
demo=$!
trap 'kill -KILL "$demo" 2>/dev/null || true; rm -rf "$work"' EXIT
port= tries=100
while [ -z "$port" ] && [ "$tries" -gt 0 ]; do
    sleep 0.1
    tries=$((tries - 1))
    port=$(sed -n 's|^litequic serves .* at https://127\.0\.0\.1:\([0-9]*\)/.*|\1|p' "$work/demo.log")
done
[ -n "$port" ] || {
    cat "$work/demo.log" >&2
    exit 1
}

load() {
    "$lab" load "$@" --address "127.0.0.1:$port" --insecure --warmup 0 --deadline 120 >"$work/load.log" 2>&1 || {
        tail -n 20 "$work/load.log" >&2
        exit 1
    }
}

kilobyte="--path /bytes/1000 --bytes 1000"
large="--path /bytes/64M --bytes 64000000 --connections 4 --requests 8"
# shellcheck disable=SC2086 # several words each
{
    load small $kilobyte --connections 100 --streams 10 --requests 60000
    load small $kilobyte --connections 10 --streams 10 --requests 20000 --ack-threshold 2
    load download $large --ack-threshold 2
    load download $large --ack-threshold 10
    load download $large --ack-threshold auto
    load upload --path /sink --bytes 16000000 --connections 4 --requests 8
    load handshakes --connections 8 --requests 500
    load small $kilobyte --protocol h1 --connections 20 --requests 5000
}

# What it counted it writes at its end, which is in good order.
kill -TERM "$demo"
wait "$demo"

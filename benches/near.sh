#!/usr/bin/env bash
# What litequic loses into the sockets of clients on the same machine: packets declared lost, CPU time and goodput of one download, in a
# network namespace of its own whose loopback device has a network's MTU of 1500. The client's sockets have the kernel's default size, or
# that which a program gets that requests 1 MiB, of a machine with the kernel's default of net.core.rmem_max; it reads at once, or sleeps
# after each hundred datagrams. Server and origin are on one core, the client is on the other.
# usage: benches/near.sh [LAB] [PROGRAM...]; without, those in target/release. Programs are measured in turn.
# ROUNDS (3), SECONDS_EACH (2), PAUSES ("0 1 5" ms), ACKS ("2 10" packets an ACK), BUFFERS ("0 1048576" bytes, 0 requests none).
# Needs nginx, iproute2, util-linux and root, and sets net.core.rmem_max of the machine while it runs.
set -euo pipefail

if [[ -z ${LITEQUIC_NEAR-} ]]; then
    readonly limit=/proc/sys/net/core/rmem_max
    before=$(<$limit)
    trap 'echo "$before" >$limit' EXIT
    echo 212992 >$limit
    LITEQUIC_NEAR=1 unshare --net "$0" "$@"
    exit
fi

lab=${1:-target/release/litequic-lab}
shift || true
(($#)) || set -- target/release/litequic
work=$(mktemp -d)
pids=()
finish() {
    ((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
chmod 755 "$work" # nginx gives up being root
ip link set lo mtu 1500 up
mkdir "$work/root"
head -c 50000000 /dev/zero >"$work/root/large"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
taskset --cpu-list 0 "$(dirname "$0")/origin.sh" "$work" 8080 8081 "$work/cert.pem" "$work/key.pem" >"$work/nginx.log" 2>&1 &
pids+=($!)
programs=("$@") ids=()
for number in "${!programs[@]}"; do
    cat >"$work/$number.toml" <<TOML
[listen]
udp = ["127.0.0.1:$((9000 + number))"]
workers = 1

[[certificates]]
cert = "$work/cert.pem"
key = "$work/key.pem"

[origin]
url = "http://127.0.0.1:8080"

[admin]
listen = "127.0.0.1:$((9100 + number))"
TOML
    taskset --cpu-list 0 "${programs[number]}" run --config "$work/$number.toml" >"$work/$number.log" 2>&1 &
    ids+=($!)
    pids+=($!)
done
sleep 2

# Packets that program $1 has declared lost, packets that it has sent, and its CPU time in hundredths of a second.
counts() {
    curl --silent --max-time 5 "http://127.0.0.1:$((9100 + $1))/metrics" |
        awk '/^litequic_packets_lost_total/ { lost += $2 } /^litequic_packets_sent_total/ { sent += $2 } END { printf "%d %d ", lost, sent }'
    awk '{ print $14 + $15 }' "/proc/${ids[$1]}/stat"
}

printf '%-24s %6s %6s %9s %8s %8s %8s\n' program pause acks buffer Mbit/s 'lost %' s/GB
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    for pause in ${PAUSES:-0 1 5}; do
        for acks in ${ACKS:-2 10}; do
            for buffer in ${BUFFERS:-0 1048576}; do
                for number in "${!programs[@]}"; do
                    read -r lost sent cpu < <(counts "$number")
                    taskset --cpu-list 1 "$lab" load download --path /large --bytes 50000000 --seconds "${SECONDS_EACH:-2}" --cut \
                        --address "127.0.0.1:$((9000 + number))" --insecure --warmup 0 --ack-threshold "$acks" \
                        --receive-buffer "$buffer" --pause "$pause" --json >"$work/load.json" 2>"$work/load.log" || cat "$work/load.log" >&2
                    sleep 0.2
                    read -r lost_then sent_then cpu_then < <(counts "$number")
                    bytes=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["quic"]["bytes_received"])' <"$work/load.json")
                    awk -v program="$(basename "$(dirname "${programs[number]}")")/$(basename "${programs[number]}")" -v pause="$pause" -v acks="$acks" -v buffer="$buffer" \
                        -v lost=$((lost_then - lost)) -v sent=$((sent_then - sent)) -v cpu=$((cpu_then - cpu)) -v bytes="$bytes" -v seconds="${SECONDS_EACH:-2}" \
                        'BEGIN { printf "%-24s %6s %6s %9s %8.0f %8.3f %8.2f\n", program, pause, acks, buffer, bytes * 8 / 1e6 / seconds, 100 * lost / (sent + 0.001), cpu * 1e7 / (bytes + 1) }'
                done
            done
        done
    done
done

#!/usr/bin/env bash
# How many instructions litequic takes for a request, a handshake, or a MB: those of its process by callgrind, which differ by
# 0.1 % from run to run where CPU time differs by 20 %. nginx is the origin, the laboratory the client; the difference of two
# loads, so that start, and handshakes where they are not counted, do not.
# usage: benches/instructions.sh [--check] [PROGRAM LAB [CASE...]]; without, those in target/release and all cases
# --check compares with benches/instructions.txt, and fails beyond 5 %.
# Needs valgrind and nginx. 127.0.0.1 alone.
set -euo pipefail

check=
[[ ${1-} != --check ]] || {
    check=1
    shift
}
readonly program=${1:-target/release/litequic} lab=${2:-target/release/litequic-lab}
readonly committed=$(dirname "$0")/instructions.txt
# Of the committed number, in hundredths.
readonly TOLERANCE=5
cases=("${@:3}")
((${#cases[@]})) || cases=(small browser h1 ack2 ack10 ack100 upload handshake)
work=$(mktemp -d)
pids=()
finish() {
    ((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

chmod 755 "$work" # nginx gives up being root
mkdir "$work/root"
head -c 1000 /dev/zero >"$work/root/small"
head -c 16000000 /dev/zero >"$work/root/large"
origin=$(free_port)
"$(dirname "$0")/origin.sh" "$work" "$origin" >"$work/nginx.log" 2>&1 &
pids+=($!)
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null

# Sets `first` and `second` to the instructions of one process that serves $1 and then $2 requests of the load $3, after $1
# that do not count: what it does once, as gathering entropy does, is over then.
instructions() {
    local less=$1 more=$2 load=$3 port pid requests counts=()
    port=$(free_port)
    cat >"$work/litequic.toml" <<TOML
[listen]
udp = ["127.0.0.1:$port"]
tcp = ["127.0.0.1:$port"]
workers = 1

[[certificates]]
cert = "$work/cert.pem"
key = "$work/key.pem"

[origin]
url = "http://127.0.0.1:$origin"
TOML
    rm -f "$work"/out*
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" run --config "$work/litequic.toml" \
        >"$work/litequic.log" 2>&1 &
    pid=$!
    pids+=("$pid")
    for _ in {1..300}; do
        ! curl --max-time 5 --noproxy '*' --insecure --silent --output /dev/null --http1.1 "https://127.0.0.1:$port/small" || break
        sleep 0.1
    done
    for requests in "$less" "$less" "$more"; do
        # shellcheck disable=SC2086 # several words
        "$lab" load $load --requests "$requests" --address "127.0.0.1:$port" --insecure --warmup 0 --deadline 300 \
            >"$work/load.log" 2>&1 || {
            cat "$work/load.log" "$work/litequic.log" >&2
            return 1
        }
        # Writes what was counted since the last time, and begins again.
        callgrind_control --dump "$pid" >"$work/control.log" 2>&1
        counts+=("$(awk '/^summary:|^totals:/ { print $2; exit }' "$work/out.$((${#counts[@]} + 1))")")
    done
    kill -TERM "$pid"
    wait "$pid" || true
    first=${counts[1]} second=${counts[2]}
}

failed=0
for case in "${cases[@]}"; do
    load="download --path /large --bytes 16000000 --connections 1" less=1 more=5 per=16 unit="a MB over HTTP/3"
    case $case in
    small) load="small --path /small --bytes 1000 --connections 10 --streams 10" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/3" ;;
    browser) load="small --path /small --bytes 1000 --connections 10 --streams 10 --browser" less=2000 more=6000 per=1 unit="the same, with a browser's fields" ;;
    h1) load="small --path /small --bytes 1000 --protocol h1 --connections 10" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/1.1" ;;
    ack2 | ack10 | ack100) load+=" --ack-threshold ${case#ack}" unit+=", ${case#ack} packets an ACK" ;;
    upload) load="upload --path /sink --bytes 16000000 --connections 1" unit="a MB uploaded over HTTP/3" ;;
    handshake) load="handshakes --connections 4" less=100 more=300 per=1 unit="a handshake over QUIC" ;;
    *) echo "no case $case" >&2 && exit 2 ;;
    esac
    instructions "$less" "$more" "$load"
    count=$(((second - first) / ((more - less) * per)))
    printf '%s: %d instructions' "$unit" "$count"
    expected=$(awk -v case="$case" '$1 == case { print $2 }' "$committed")
    if [[ -n $check && -n $expected ]]; then
        difference=$((1000 * (count - expected) / expected))
        printf ', %d expected: %+d ‰' "$expected" "$difference"
        if ((difference > 10 * TOLERANCE || -difference > 10 * TOLERANCE)); then
            printf '  MORE THAN %d %%' "$TOLERANCE"
            failed=1
        fi
    fi
    printf '\n'
done
exit "$failed"

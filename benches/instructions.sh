#!/usr/bin/env bash
# How many instructions litequic takes for a request, a handshake, or a MB, and how many cache misses: those of its process by
# callgrind, which differ by 0.1 % from run to run where CPU time differs by 20 %. The caches are the same on every machine: 64 KB for
# instructions, 48 KB for data, and 2 MB beneath both, of which the misses of data count. nginx is the origin, the laboratory the client
# (h2load over HTTP/2); the difference of two loads, so that start, and handshakes where they are not counted, do not.
# usage: benches/instructions.sh [--check | --functions] [PROGRAM LAB [CASE...]]; without, those in target/release and all cases
# --check compares with benches/instructions.txt, and fails beyond 5 %, or 15 % of the misses.
# CASE-unordered is a case without priorities (litequic.priorities), and is not among all.
# CASE-relayed and CASE-proxied go through benches/relay.py, without and with a header in each datagram; they are not among all.
# --functions prints the parts of the program and the functions that took most, too.
# Needs valgrind and nginx, h2load for HTTP/2. 127.0.0.1 alone.
set -euo pipefail

check='' functions=''
case ${1-} in
--check) check=1 && shift ;;
--functions) functions=1 && shift ;;
esac
readonly program=${1:-target/release/litequic} lab=${2:-target/release/litequic-lab}
readonly committed=$(dirname "$0")/instructions.txt
# Of the committed numbers of instructions and of misses, in hundredths.
readonly TOLERANCE=5 MISSES=15
# Fewer misses differ by chance: a buffer that lies elsewhere.
readonly FEW=20
readonly CACHES=(--cache-sim=yes --I1=65536,16,64 --D1=49152,12,64 --LL=2097152,16,64)
cases=("${@:3}")
((${#cases[@]})) || cases=(small serial small1000 ten browser h1 h2 ack2 ack10 ack100 upload handshake small-tls small1000-tls ack10-tls upload-tls
    small-unsampled small-hundredth small-sampled small-logged small-allowed h2-password one one-qlog small-routes small-exact small-set small-added small-proxies small-origins small-servers small-conditions)
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
head -c 10000 /dev/zero >"$work/root/ten"
head -c 16000000 /dev/zero >"$work/root/large"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
origin=$(free_port) secure_origin=$(free_port)
"$(dirname "$0")/origin.sh" "$work" "$origin" "$secure_origin" "$work/cert.pem" "$work/key.pem" >"$work/nginx.log" 2>&1 &
pids+=($!)

# $1 requests of the load $2 to the port $3.
load() {
    # shellcheck disable=SC2086 # several words
    case $2 in
    h2load*) $2 "${fields[@]}" --requests "$1" "https://127.0.0.1:$3/small" && grep --quiet ' 0 failed, 0 errored' "$work/load.log" ;;
    *) "$lab" load $2 --requests "$1" --address "127.0.0.1:$3" --insecure --warmup 0 --deadline 300 ;;
    esac >"$work/load.log" 2>&1
}

# Sets `first` and `second` to the instructions, misses of instructions and misses of data in the largest cache of one process that
# serves $1 and then $2 requests of the load $3, after $1 that do not count: what it does once, as gathering entropy does, is over then.
# $4 are the lines of its configuration about the origin, and what follows them; $5 are its first lines.
instructions() {
    local less=$1 more=$2 load=$3 origin=$4 top=$5 port front pid requests ticks counts=()
    port=$(free_port)
    front=$port
    cat >"$work/litequic.toml" <<TOML
$top
[listen]
udp = ["127.0.0.1:$port"]
tcp = ["127.0.0.1:$port"]
workers = 1
$listen

[[certificates]]
cert = "$work/cert.pem"
key = "$work/key.pem"

[origin]
$origin
TOML
    rm -f "$work"/out*
    valgrind --tool=callgrind "${CACHES[@]}" --callgrind-out-file="$work/out" "$program" run --config "$work/litequic.toml" \
        >"$work/litequic.log" 2>&1 &
    pid=$!
    pids+=("$pid")
    for _ in {1..300}; do
        # A right password is remembered after the first request.
        ! curl --max-time 20 --noproxy '*' --insecure --silent --output /dev/null --http1.1 "${fields[@]}" "https://127.0.0.1:$port/small" || break
        sleep 0.1
    done
    # A large configuration is read once more behind the start, for the status.
    for _ in {1..120}; do
        ticks=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
        sleep 1
        (($(awk '{ print $14 + $15 }' "/proc/$pid/stat") - ticks > 20)) || break
    done
    if [[ $case == *-relayed || $case == *-proxied ]]; then
        front=$(free_port)
        # shellcheck disable=SC2086 # no word without a header
        "$(dirname "$0")/relay.py" "$front" "$port" $header &
        pids+=($!)
    fi
    for requests in "$less" "$less" "$more"; do
        if [[ $case == *-qlog ]]; then
            "$program" ctl qlog --admin "$work/admin.sock" --client 127.0.0.1 --next --seconds 60 >"$work/sqlog" 2>>"$work/litequic.log" &
            sleep 1
        fi
        load "$requests" "$load" "$front" || {
            cat "$work/load.log" "$work/litequic.log" >&2
            return 1
        }
        [[ $case != *-qlog || -s $work/sqlog ]] || {
            echo "nothing was logged" >&2
            return 1
        }
        # Writes what was counted since the last time, and begins again.
        callgrind_control --dump "$pid" >"$work/control.log" 2>&1
        # Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw, which end with the last that is not 0.
        counts+=("$(awk '/^summary:|^totals:/ { print $2, $5 + 0, $9 + $10; exit }' "$work/out.$((${#counts[@]} + 1))")")
    done
    kill -TERM "$pid"
    wait "$pid" || true
    read -ra first <<<"${counts[1]}"
    read -ra second <<<"${counts[2]}"
}

# Compares the number $1 with the expected one, $2, which may be missing, for the tolerance $3 in hundredths.
compare() {
    local count=$1 expected=$2 tolerance=$3 difference
    [[ -n $check && -n $expected ]] || return 0
    difference=$((1000 * (count - expected) / (expected > 0 ? expected : 1)))
    printf ' (%d expected: %+d ‰)' "$expected" "$difference"
    if ((difference > 10 * tolerance || -difference > 10 * tolerance)); then
        printf '  MORE THAN %d %%' "$tolerance"
        failed=1
    fi
}

failed=0
for case in "${cases[@]}"; do
    load="download --path /large --bytes 16000000 --connections 1" less=1 more=5 per=16 unit="a MB over HTTP/3"
    url="url = \"http://127.0.0.1:$origin\"" suffix=''
    if [[ $case == *-tls ]]; then
        url="url = \"https://127.0.0.1:$secure_origin\""$'\n'"tls.ca = \"$work/cert.pem\"" suffix=", TLS to the origin"
    fi
    case $case in
    *-unsampled) ratio=0 ;;
    *-hundredth) ratio=0.01 ;;
    *-sampled) ratio=1 ;;
    *) ratio='' ;;
    esac
    if [[ -n $ratio ]]; then
        url+=$'\n\n[traces]\n'"endpoint = \"http://127.0.0.1:$origin\""$'\n'"ratio = $ratio"
        suffix=", with traces, ratio $ratio"
    fi
    if [[ $case == *-unordered ]]; then
        url+=$'\n\n[litequic]\npriorities = false' suffix=", without priorities"
    fi
    # As much as a large configuration has of one thing: a request costs hardly more by it.
    route() { printf '[[routes]]\n%s = "/a%d"\norigin = "%s"\n' "$@"; }
    top='' listen='' header='' fields=() every=$'\n[[routes]]\norigin = "origin"\n'
    case $case in
    *-routes) suffix=", 3,000 prefixes" url+=$'\n'$(for n in {1..3000}; do route path_prefix "$n" origin; done)$every ;;
    *-exact) suffix=", 1,000 exact paths" url+=$'\n'$(for n in {1..1000}; do route path "$n" origin; done)$every ;;
    *-conditions)
        suffix=", 256 conditions of one path"
        url+=$'\n'$(for n in {1..256}; do
            route path_prefix 0 origin
            printf '[routes.match.headers]\nx-tenant = "t%d"\n' "$n"
        done | sed 's,"/a0","/",')$every
        ;;
    *-set) suffix=", 64 fields set for the origin" url+=$'\n[request_headers.set]\n'$(printf 'x-a%d = "v"\n' {1..64}) ;;
    *-added) suffix=", 64 fields set for the client" url+=$'\n[response_headers.set]\n'$(printf 'x-a%d = "v"\n' {1..64}) ;;
    *-proxies) suffix=", 256 trusted networks" top="trusted_proxies = [$(printf '"10.%d.0.0/16",' {0..255})]" ;;
    *-servers)
        suffix=", 64 servers of the origin"
        url="url = [$(for n in {1..64}; do printf '"http://127.0.0.%d:%d", ' "$n" "$origin"; done)]"
        ;;
    *-logged) suffix=", access log to a file" url+=$'\n\n[access_log]\npath = "'"$work/access.log\"" ;;
    *-allowed)
        suffix=", allowed by the last of 64 networks"
        url+=$'\n[[routes]]\norigin = "origin"\n'"allow = [$(printf '"10.%d.0.0/16", ' {1..63})\"127.0.0.0/8\"]"
        ;;
    *-password)
        suffix=", with a password"
        echo secret | "$program" password user >"$work/users"
        fields=(--header "authorization: Basic $(printf user:secret | base64)")
        url+=$'\n[[routes]]\norigin = "origin"\nusers = "'"$work/users\""
        ;;
    *-relayed) suffix=", through a relay" ;;
    *-proxied)
        suffix=", through a relay with headers of the PROXY protocol" header=--header
        fields=(--haproxy-protocol) # the curl that waits for the start
        listen=$'proxy_protocol_from = ["127.0.0.1"]\nproxy_protocol_udp = "every"'
        ;;
    *-qlog) suffix=", with a qlog" top="[admin]"$'\n'"socket = \"$work/admin.sock\"" ;;
    *-origins)
        suffix=", 1,000 origins"
        url+=$'\n'$(for n in {1..1000}; do
            printf '[origins.o%d]\nurl = "http://127.0.0.1:%d"\n' "$n" "$origin"
            route path_prefix "$n" "o$n"
        done)$every
        ;;
    esac
    case ${case%-*} in
    small) load="small --path /small --bytes 1000 --connections 10 --streams 10" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/3" ;;
    serial) load="small --path /small --bytes 1000 --connections 2 --streams 1" less=1000 more=3000 per=1 unit="the same, one at a time on two connections" ;;
    small1000) load="small --path /small --bytes 1000 --connections 100 --streams 10" less=3000 more=9000 per=1 unit="the same, 1,000 in flight" ;;
    ten) load="small --path /ten --bytes 10000 --connections 10 --streams 10" less=1000 more=3000 per=1 unit="a request of 10 KB over HTTP/3" ;;
    one) load="small --path /small --bytes 1000 --connections 1 --streams 10" less=2000 more=6000 per=1 unit="the same over one connection" ;;
    h2) load="h2load --clients 10 --max-concurrent-streams 10" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/2" ;;
    browser) load="small --path /small --bytes 1000 --connections 10 --streams 10 --browser" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/3, with a browser's fields" ;;
    h1) load="small --path /small --bytes 1000 --protocol h1 --connections 10" less=2000 more=6000 per=1 unit="a request of 1 KB over HTTP/1.1" ;;
    ack2 | ack10 | ack100)
        acks=${case#ack}
        acks=${acks%%-*}
        load+=" --ack-threshold $acks" unit+=", $acks packets an ACK"
        ;;
    upload) load="upload --path /sink --bytes 16000000 --connections 1" unit="a MB uploaded over HTTP/3" ;;
    handshake) load="handshakes --connections 4" less=100 more=300 per=1 unit="a handshake over QUIC" ;;
    *) echo "no case $case" >&2 && exit 2 ;;
    esac
    instructions "$less" "$more" "$load" "$url" "$top"
    counts=()
    for which in 0 1 2; do
        counts+=($(((second[which] - first[which]) / ((more - less) * per))))
    done
    read -r _ expected code data < <(grep "^$case " "$committed" || echo "$case")
    printf '%s: %d instructions' "$unit$suffix" "${counts[0]}"
    compare "${counts[0]}" "$expected" "$TOLERANCE"
    printf ', %d misses of instructions' "${counts[1]}"
    compare "${counts[1]}" "$code" "$MISSES"
    printf ', %d misses of 2 MB' "${counts[2]}"
    ((counts[2] <= FEW)) || compare "${counts[2]}" "$data" "$MISSES"
    printf '\n'
    [[ -z $functions ]] || "$(dirname "$0")/functions.py" "$work/out.2" "$work/out.3" $(((more - less) * per))
done
exit "$failed"

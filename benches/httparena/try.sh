#!/usr/bin/env bash
# Tries the entry without the board: its two configurations at other ports and places, behind them app.py instead of
# the board's server. Makes the board's checks of a gateway, over HTTP/2 as the board does and over HTTP/3; then the
# loads of its 20 paths, if h2load has HTTP/3.
# usage: benches/httparena/try.sh [--image] [PROGRAM]
# With --image it then builds the proxy's image from PROGRAM, and makes the same checks of a container, at the board's
# ports 8443 and 8080. BUILD_OPTIONS has options for `docker build`.
# Needs nginx, curl, openssl and python3. Brotli's variants are served only where nginx has the module. 127.0.0.1 alone.
set -euo pipefail
image=
[[ ${1:-} != --image ]] || {
    image=litequic-httparena
    shift
}
program=$(realpath "${1:-target/release/litequic}")
cd "$(dirname "$0")"
entry=frameworks/litequic
work=$(mktemp -d)
pids=() container=
stop() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    wait
    pids=()
    [[ -z $container ]] || docker stop "$container" >/dev/null
    container=
}
trap 'stop; rm -rf "$work"' EXIT
chmod 755 "$work" # nginx gives up being root

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

mkdir -p "$work/data/static" "$work/certs"
# As long as the board's files, and compressible.
while read -r name bytes; do
    yes "/* $name */" | head -c "$bytes" >"$work/data/static/$name" || true
    gzip --keep --best "$work/data/static/$name"
    ! command -v brotli >/dev/null || brotli --keep "$work/data/static/$name"
done <<FILES
reset.css 8192
components.css 102400
app.js 102400
vendor.js 307200
header.html 122880
hero.webp 46080
FILES
rm -f "$work"/data/static/hero.webp.*
# Of the kind that the board has.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/certs/server.key" -out "$work/certs/server.crt" 2>/dev/null

module=$(compgen -G '/usr/lib/nginx/modules/ngx_http_brotli_static_module.so' || true)
# start_programs PORT APP
start_programs() {
    local nginx brotli='#'
    nginx=$(command -v nginx || echo /usr/sbin/nginx)
    [[ -z $module ]] || brotli=
    sed -e "s|^load_module|${brotli}&|; s|^  brotli_static|${brotli}&|" \
        -e "s|/run/|$work/|; s|root /data|root $work/data|" "$entry/proxy/nginx.conf" >"$work/nginx.conf"
    sed -e "s|/certs/|$work/certs/|; s|/run/files.sock|$work/files.sock|" \
        -e "s|\[::\]:8443|127.0.0.1:$1|; s|:8080|:$2|" "$entry/proxy/litequic.toml" >"$work/litequic.toml"
    "$program" check --config "$work/litequic.toml"
    "$nginx" -e stderr -p "$work" -c "$work/nginx.conf" -g 'worker_processes 1; daemon off;' 2>"$work/nginx.log" &
    pids+=($!)
    "$program" run --config "$work/litequic.toml" >"$work/litequic.log" 2>&1 &
    pids+=($!)
}

get() {
    curl --silent --show-error --insecure --noproxy '*' --max-time 10 "$@"
}
passed=0 failed=0
# is WHAT EXPECTED ACTUAL
is() {
    if [[ $3 == "$2" ]]; then
        passed=$((passed + 1))
    else
        printf '%s: %s, and %s was expected\n' "$1" "$3" "$2"
        failed=$((failed + 1))
    fi
}
# items EXPECTED [total]: prints whether a response has so many items, or some (`-`), each with all fields. With `total`
# one is the price times the quantity.
items() {
    python3 -c '
import json, sys
try:
    answer = json.load(sys.stdin)
except ValueError:
    sys.exit(print("no JSON"))
items, count = answer["items"], answer["count"]
number = (int, float)
kinds = {"id": int, "name": str, "category": str, "price": number, "quantity": int}
kinds |= {"active": bool, "tags": list, "rating": dict}
whole = all(isinstance(item.get(name), kind) for item in items for name, kind in kinds.items())
whole = whole and all({"score", "count"} <= set(item["rating"]) for item in items)
if sys.argv[2:] == ["total"]:
    whole = whole and all(abs(item.get("total", -1) - item["price"] * item["quantity"]) <= 0.02 for item in items)
right = count == len(items) and (1 <= count <= 50 if sys.argv[1] == "-" else count == int(sys.argv[1]))
print("as expected" if whole and right else f"{count} items, complete: {whole}")' "$@"
}
# check URL ENCODING: the board's checks, and that files come with their compressed twins and follow the disk.
check() {
    local url=$1 protocol protocols=(--http2) a b deadline replaced
    if curl --version | grep -q HTTP3; then
        protocols+=(--http3-only)
    else
        echo "SKIPPED: curl has no HTTP/3; no checks over it"
    fi
    for protocol in "${protocols[@]}"; do
        of() { get "$protocol" --output /dev/null --write-out "$1" "${@:2}"; }
        is "$protocol" "${protocol//[^23]/}" "$(of '%{http_version}' "$url/static/reset.css")"
        is "$protocol reset.css" text/css "$(of '%{content_type}' "$url/static/reset.css")"
        is "$protocol app.js" application/javascript "$(of '%{content_type}' "$url/static/app.js")"
        is "$protocol app.js" 102400 "$(get "$protocol" "$url/static/app.js" | wc -c)"
        is "$protocol app.js, compressed" 102400 "$(get "$protocol" --compressed "$url/static/app.js" | wc -c)"
        is "$protocol app.js, encoding" "$2" \
            "$(of '%header{content-encoding}' --header "$ENCODINGS" "$url/static/app.js")"
        is "$protocol a file that is not there" 404 "$(of '%{http_code}' "$url/static/nonexistent.txt")"
        is "$protocol json" "as expected" "$(get "$protocol" "$url/json/50" | items 50 total)"
        is "$protocol json" application/json "$(of '%{content_type}' "$url/json/50")"
        is "$protocol rows" "as expected" "$(get "$protocol" "$url/async-db?min=10&max=50&limit=50" | items -)"
        is "$protocol rows" application/json "$(of '%{content_type}' "$url/async-db?min=10&max=50&limit=50")"
        is "$protocol no rows" "as expected" "$(get "$protocol" "$url/async-db?min=9999&max=9999&limit=50" | items 0)"
        is "$protocol sum" 55 "$(get "$protocol" "$url/baseline2?a=13&b=42")"
        a=$((RANDOM % 900 + 100)) b=$((RANDOM % 900 + 100))
        is "$protocol another sum" $((a + b)) "$(get "$protocol" "$url/baseline2?a=$a&b=$b")"
    done
    # By another file in its place, of the same length. The board waits 30 s for it, in its profiles of files.
    tr '/*' '*/' <"$work/data/static/reset.css" >"$work/replaced"
    mv "$work/replaced" "$work/data/static/reset.css"
    deadline=$((SECONDS + 30)) replaced=no
    until [[ $replaced == yes ]] || ((SECONDS > deadline)); do
        sleep 0.1
        get --output "$work/served" "$url/static/reset.css"
        ! cmp --silent "$work/served" "$work/data/static/reset.css" || replaced=yes
    done
    is "a file that was replaced is served" yes "$replaced"
}
readonly ENCODINGS='accept-encoding: br;q=1, gzip;q=0.8' # as the board's load has it
# load URL: the board's two loads, by number of requests instead of for 5 s.
load() {
    local paths connections report
    if ! h2load --help 2>/dev/null | grep -q -- --h3; then
        echo "SKIPPED: h2load has no HTTP/3; no load"
        return
    fi
    paths=(static/{reset.css,components.css,app.js,vendor.js,header.html,hero.webp}
        'baseline2?a='{'1&b=1','13&b=42','100&b=7','250&b=500'}
        json/{1,5,10,15,25,40,50} 'async-db?min=10&max=50&limit='{10,25,50})
    for connections in 64 256; do
        report=$(h2load --h3 -t1 -c"$connections" -m32 -n10240 -H "$ENCODINGS" "${paths[@]/#/$1/}")
        grep -E '^(finished|requests|status|traffic)' <<<"$report"
        is "load of $connections connections" "10240 2xx" "$(grep -o '10240 2xx' <<<"$report")"
    done
}
# try PORT ENCODING
try() {
    local url=https://localhost:$1
    for _ in {1..100}; do
        ! get --fail --output /dev/null --output /dev/null "$url/static/reset.css" "$url/json/1" 2>/dev/null || break
        sleep 0.1
    done
    check "$url" "$2"
    load "$url"
    stop
}

# What nginx prefers of the compressed twins that were made: in the image, and here.
encoding=gzip
! command -v brotli >/dev/null || encoding=br
encoding_here=gzip
[[ -z $module ]] || encoding_here=$encoding
port=$(free_port) app=$(free_port)
./app.py "$app" &
pids+=($!)
start_programs "$port" "$app"
try "$port" "$encoding_here"

if [[ -z $image ]]; then
    echo "SKIPPED: the image; --image builds and tries it"
elif ! docker info >/dev/null 2>&1; then
    echo "SKIPPED: the image; no container engine answers"
else
    CERTS_DIR=$work/certs DATA_DIR=$work/data DATABASE_URL=unused \
        docker compose --file "$entry/compose.gateway-h3.yml" config --quiet
    mkdir "$work/release"
    cp "$program" "$work/release/litequic"
    # shellcheck disable=SC2086 # several options
    docker build --quiet ${BUILD_OPTIONS:-} --build-context release="$work/release" --tag "$image" "$entry/proxy"
    ./app.py 8080 &
    pids+=($!)
    container=$(docker run --detach --rm --network host --volume "$work/certs:/certs:ro" \
        --volume "$work/data/static:/data/static:ro" "$image")
    try 8443 "$encoding"
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))

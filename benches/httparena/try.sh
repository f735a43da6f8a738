#!/usr/bin/env bash
# Tries the entry without containers: its two configurations at other ports and places, behind them app.py instead of the board's server.
# Makes the board's checks of a gateway, over HTTP/2 as the board does and over HTTP/3; then a load of its 20 paths, if h2load has HTTP/3.
# usage: benches/httparena/try.sh [PROGRAM | --image IMAGE]
# With --image: the entry's container as the board runs it, at the board's ports 8443 and 8080.
# Needs nginx, curl and python3. Brotli's variants are served only where nginx has the module. 127.0.0.1 alone.
set -euo pipefail
image=
if [[ ${1:-} == --image ]]; then
    image=$2
else
    program=$(realpath "${1:-target/release/litequic}")
fi
cd "$(dirname "$0")"
work=$(mktemp -d)
pids=()
finish() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    [[ -z ${container:-} ]] || docker stop "$container" >/dev/null
    rm -rf "$work"
}
trap finish EXIT
chmod 755 "$work" # nginx gives up being root

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port=$(free_port) app=$(free_port)
[[ -z $image ]] || port=8443 app=8080

mkdir -p "$work/data/static" "$work/certs"
# As long as the board's files, and compressible.
while read -r name bytes; do
    yes "/* $name */" | head -c "$bytes" >"$work/data/static/$name" || true
    gzip --keep --best "$work/data/static/$name"
done <<FILES
reset.css 8192
components.css 204800
app.js 204800
vendor.js 307200
header.html 122880
hero.webp 46080
FILES
rm "$work/data/static/hero.webp.gz"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/certs/server.key" -out "$work/certs/server.crt" 2>/dev/null

./app.py "$app" &
pids+=($!)
if [[ -n $image ]]; then
    container=$(docker run --detach --rm --network host --volume "$work/certs:/certs:ro" --volume "$work/data/static:/data/static:ro" "$image")
else
    nginx=$(command -v nginx || echo /usr/sbin/nginx)
    brotli='#'
    ! compgen -G '/usr/lib/nginx/modules/ngx_http_brotli_static_module.so' >/dev/null || brotli=
    sed -e "s|^load_module|${brotli}load_module|; s|^  brotli_static|  ${brotli}brotli_static|" -e "s|/run/|$work/|; s|root /data|root $work/data|" \
        -e 's|worker_processes auto;|worker_processes 1; daemon off;|' proxy/nginx.conf >"$work/nginx.conf"
    sed -e "s|/certs/|$work/certs/|; s|/run/files.sock|$work/files.sock|; s|\[::\]:8443|127.0.0.1:$port|; s|:8080|:$app|" proxy/litequic.toml >"$work/litequic.toml"
    "$program" check --config "$work/litequic.toml"
    "$nginx" -e stderr -p "$work" -c "$work/nginx.conf" 2>"$work/nginx.log" &
    pids+=($!)
    "$program" run --config "$work/litequic.toml" >"$work/litequic.log" 2>&1 &
    pids+=($!)
fi

get() {
    curl --silent --show-error --insecure --noproxy '*' --max-time 10 "$@"
}
url=https://localhost:$port
for _ in {1..100}; do
    ! get --fail --output /dev/null "$url/static/reset.css" 2>/dev/null || ! get --fail --output /dev/null "$url/json/1" 2>/dev/null || break
    sleep 0.1
done

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
protocols=(--http2)
! curl --version | grep -q HTTP3 || protocols+=(--http3-only)
for protocol in "${protocols[@]}"; do
    is "$protocol" "${protocol//[^23]/}" "$(get "$protocol" --output /dev/null --write-out '%{http_version}' "$url/static/reset.css")"
    is "$protocol reset.css" text/css "$(get "$protocol" --output /dev/null --write-out '%{content_type}' "$url/static/reset.css")"
    is "$protocol app.js" application/javascript "$(get "$protocol" --output /dev/null --write-out '%{content_type}' "$url/static/app.js")"
    is "$protocol app.js" 204800 "$(get "$protocol" "$url/static/app.js" | wc -c)"
    is "$protocol app.js, compressed" 204800 "$(get "$protocol" --compressed "$url/static/app.js" | wc -c)"
    is "$protocol a file that is not there" 404 "$(get "$protocol" --output /dev/null --write-out '%{http_code}' "$url/static/nonexistent.txt")"
    is "$protocol json" 50 "$(get "$protocol" "$url/json/50" | python3 -c 'import json, sys; print(sum("total" in each for each in json.load(sys.stdin)["items"]))')"
    is "$protocol json" application/json "$(get "$protocol" --output /dev/null --write-out '%{content_type}' "$url/json/50")"
    is "$protocol rows" 41 "$(get "$protocol" "$url/async-db?min=10&max=50&limit=50" | python3 -c 'import json, sys; print(json.load(sys.stdin)["count"])')"
    is "$protocol no rows" 0 "$(get "$protocol" "$url/async-db?min=9999&max=9999" | python3 -c 'import json, sys; print(json.load(sys.stdin)["count"])')"
    is "$protocol sum" 55 "$(get "$protocol" "$url/baseline2?a=13&b=42")"
    is "$protocol another sum" 921 "$(get "$protocol" "$url/baseline2?a=904&b=17")"
done
paths=(static/{reset.css,components.css,app.js,vendor.js,header.html,hero.webp} baseline2?a={1,13,100,250}\&b=1 json/{1,5,10,15,25,40,50}
    async-db?min=10\&max=50\&limit={10,25,50})
if h2load --help 2>/dev/null | grep -q -- --h3; then
    h2load --h3 -t1 -c64 -m32 -n20000 -H 'accept-encoding: br;q=1, gzip;q=0.8' "${paths[@]/#/$url/}" | grep -E '^(finished|requests|status|traffic)'
else
    echo "SKIPPED: h2load has no HTTP/3; no load"
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))

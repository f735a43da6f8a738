#!/usr/bin/env bash
# image.sh [IMAGE]: runs the container image as in docs/reference/container.md, hardened, and checks that it works.
# Needs docker and openssl, and an nginx that runs without root as ORIGIN_IMAGE. Leaves nothing behind.
cd "$(dirname "$0")"
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

image=${1:-litequic}
net=litequic-verify-$$
end() {
    docker rm -f "$net-origin" "$net-proxy" "$net-ring" "$net-client" >/dev/null 2>&1 || true
    docker network rm "$net" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

hardened=(--read-only --cap-drop ALL --security-opt no-new-privileges --network "$net")
certificate tls example.com
write_origin
chmod 0755 "$work"
docker network create "$net" >/dev/null
docker run -d --name "$net-origin" --network "$net" --network-alias origin \
    -v "$work/origin.conf:/etc/nginx/conf.d/default.conf:ro" -v "$work/blob:/srv/blob:ro" "$origin_image" >/dev/null

inspect() { docker inspect --format "$1" "${2:-$image}"; }
# get ADDRESS URL [OPTION...]: from a container of its own.
get() {
    local address=$1 url=$2
    shift 2
    docker run --rm "${hardened[@]}" -v "$work/tls.crt:/ca.crt:ro" "$image" get --ca /ca.crt --timeout 60s \
        --resolve "example.com:8443:$address" "$@" "$url"
}
address() { inspect "{{(index .NetworkSettings.Networks \"$net\").IPAddress}}" "$1"; }

check "runs as 65532" says '^65532:65532$' inspect '{{.Config.User}}'
check "says what it is" says '^litequic Apache-2.0$' \
    inspect '{{index .Config.Labels "org.opencontainers.image.title"}} {{index .Config.Labels "org.opencontainers.image.licenses"}}'
check "says where its source is, and its revision" says '^[^ ]+ [^ ]+$' \
    inspect '{{index .Config.Labels "org.opencontainers.image.source"}} {{index .Config.Labels "org.opencontainers.image.revision"}}'
small() { (($(inspect '{{.Size}}') < most_image_bytes)); }
check "is smaller than 40 MB" small
check "exposes UDP and TCP" says '8443/tcp.*8443/udp' inspect '{{.Config.ExposedPorts}}'
check "has no shell" not docker run --rm --entrypoint /bin/sh "$image" -c true
check "says what the kernel has" says '^litequic would use: epoll' docker run --rm "${hardened[@]}" "$image" probe
check "without an origin it says what is missing, and ends with 78" ends_with 78 'LITEQUIC_ORIGIN' docker run --rm "${hardened[@]}" "$image"

docker run -d --name "$net-proxy" "${hardened[@]}" -v "$work/tls.crt:/tls/tls.crt:ro" -v "$work/tls.key:/tls/tls.key:ro" \
    -e LITEQUIC_ORIGIN=origin:8080 -p 127.0.0.1::8443/udp -p 127.0.0.1::8443/tcp "$image" >/dev/null
check "is healthy" wait_for 30 says '^healthy$' inspect '{{.State.Health.Status}}' "$net-proxy"
proxy=$(address "$net-proxy")
check "HTTP/3 to the origin" says '^origin$' get "$proxy" https://example.com:8443/
if command -v curl >/dev/null; then
    port=$(docker port "$net-proxy" 8443/tcp | head -n 1 | sed 's/.*://')
    check "HTTP/2 through the published port, at which it announces HTTP/3" says "^alt-svc: h3=\":$port\"" \
        curl --noproxy '*' -sSi --http2 --cacert "$work/tls.crt" --resolve "example.com:$port:127.0.0.1" "https://example.com:$port/"
fi
check "ctl in the container" says '"phase": "ready"' docker exec "$net-proxy" litequic ctl status --json

# A download of some nine seconds is in flight when the container is stopped.
docker run -d --name "$net-client" "${hardened[@]}" -v "$work/tls.crt:/ca.crt:ro" "$image" \
    get --ca /ca.crt --resolve "example.com:8443:$proxy" --output - https://example.com:8443/slow >/dev/null
check "a download began" wait_for 10 says '"requests_open": 1' docker exec "$net-proxy" litequic ctl status --json
began=$SECONDS
docker stop --time 30 "$net-proxy" >/dev/null
echo "      docker stop took $((SECONDS - began)) s"
whole() {
    [[ $(docker wait "$net-client") == 0 ]] && docker logs "$net-client" 2>/dev/null | cmp - "$work/blob"
}
check "docker stop drains: the download is whole" whole
check "and ends with 0" says '^0$' inspect '{{.State.ExitCode}}' "$net-proxy"

cat >"$work/ring.toml" <<'CONF'
[[certificates]]
cert = "/tls/tls.crt"
key = "/tls/tls.key"
[origin]
url = "http://origin:8080"
[litequic]
io = "io-uring"
[admin]
listen = "127.0.0.1:9443"
CONF
# `ctl` there uses the address in its environment.
sed -i 's/9443/9555/' "$work/ring.toml"
docker run -d --name "$net-ring" "${hardened[@]}" -e LITEQUIC_ADMIN=127.0.0.1:9555 -v "$work/tls.crt:/tls/tls.crt:ro" -v "$work/tls.key:/tls/tls.key:ro" \
    -v "$work/ring.toml:/etc/litequic/litequic.toml:ro" "$image" >/dev/null
check "with io_uring asked for and forbidden, it is healthy" wait_for 30 says '^healthy$' inspect '{{.State.Health.Status}}' "$net-ring"
check "and serves" says '^origin$' get "$(address "$net-ring")" https://example.com:8443/
check "and says so once" says '^1$' bash -c "docker logs '$net-ring' 2>&1 | grep -c '\"WARN\".*io_uring'"
check "and counts it" says 'io_degraded_total\{feature="io_uring",reason="forbidden"\} [1-9]' docker exec "$net-ring" litequic ctl metrics
finish

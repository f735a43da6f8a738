#!/usr/bin/env bash
# fleet.sh [hash|nftables|nginx] [LITEQUIC [CLIENT]]: replicas behind a load balancer. Needs root and nftables; without them it says so, and
# ends with 0. CLIENT is examples/fleet:
#
#   cargo build --release --bins --example fleet
#
# hash      replicas that share listen.secret_file, behind a hash of addresses and ports
# nftables  what connections live through when packaging/balancer/quic-lb.nft routes by server ID, and when it hashes
# nginx     the same with packaging/balancer/nginx.conf, whose hash is a consistent one; needs libnginx-mod-stream-js
#
# Namespaces: a client with two addresses, a balancer, and replicas that have the virtual address on `lo`, each with a host name of its own. The
# balancer is the kernel: nftables marks packets, and rules route marks. It rewrites nothing, and replies return past it; or it is nginx.
# Debug builds will do; CPU times are of a release build.
# shellcheck source=packaging/verify/checks.sh
. "$(dirname "$0")/checks.sh"

if ((EUID != 0)) || ! command -v nft >/dev/null || ! command -v ip >/dev/null || ! unshare --net --uts true 2>/dev/null; then
    echo "SKIPPED: needs root, nftables, iproute2 and network namespaces"
    exit 0
fi

mode=hash
case ${1:-} in hash | nftables | nginx) mode=$1 && shift ;; esac
readonly mode
readonly modules=${NGINX_MODULES:-/usr/lib/nginx/modules}
if [[ $mode == nginx ]] && ! [[ -e $modules/ngx_stream_js_module.so ]]; then
    echo "SKIPPED: needs nginx, libnginx-mod-stream and libnginx-mod-stream-js"
    exit 0
fi

litequic=$(realpath "${1:-target/release/litequic}")
client=$(realpath "${2:-$(dirname "$litequic")/examples/fleet}")
readonly litequic client
if ! [[ -x $client ]]; then
    echo "needs the client of examples/fleet: cargo build --release --example fleet" >&2
    exit 2
fi
export RUST_BACKTRACE=0
replicas=${REPLICAS:-3}
# One joins later.
[[ $mode == hash ]] || replicas=4
readonly replicas
balancer=$(realpath "$(dirname "$0")/../balancer")
readonly balancer
readonly vip=10.99.0.1
readonly prefix=litequic-fleet-$$
readonly c=$prefix-client b=$prefix-balancer

namespace() { echo "$prefix-replica-$1"; }
all() { seq "$replicas"; }

cleanup() {
    local name
    for name in "$c" "$b" $(all | while read -r n; do namespace "$n"; done); do
        ip netns pids "$name" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns del "$name" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT

# link NAMESPACE INTERFACE ADDRESS PEER ADDRESS: a cable to the balancer.
link() {
    ip link add "$2" netns "$1" type veth peer name "$4" netns "$b"
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$b" addr add "$5/24" dev "$4"
    ip -n "$1" link set "$2" up
    ip -n "$b" link set "$4" up
}

network() {
    local n name
    for name in "$c" "$b" $(all | while read -r n; do namespace "$n"; done); do
        ip netns add "$name"
        ip -n "$name" link set lo up
    done
    ip netns exec "$b" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
    for n in 1 2; do link "$c" "c$n" "10.99.$n.2" "bc$n" "10.99.$n.1"; done
    ip -n "$c" route add "$vip" via 10.99.1.1 dev c1
    ip -n "$c" rule add from 10.99.2.2 table 2
    ip -n "$c" route add default via 10.99.2.1 dev c2 table 2
    for n in $(all); do
        name=$(namespace "$n")
        link "$name" r0 "10.99.$((100 + n)).2" "br$n" "10.99.$((100 + n)).1"
        ip -n "$name" addr add "$vip/32" dev lo
        ip -n "$name" route add default via "10.99.$((100 + n)).1"
        ip -n "$b" rule add fwmark "$n" table "$((100 + n))"
        ip -n "$b" route add default via "10.99.$((100 + n)).2" dev "br$n" table "$((100 + n))"
    done
    [[ $mode == hash ]] || return 0
    ip netns exec "$b" nft -f - <<NFT
table ip balancer {
    chain prerouting {
        type filter hook prerouting priority mangle;
        ip daddr != $vip return
        udp dport 443 meta mark set jhash ip saddr . udp sport mod $replicas offset 1
        tcp dport 443 meta mark set jhash ip saddr . tcp sport mod $replicas offset 1
    }
}
NFT
}

# configure LINE...: the configuration of all replicas, with further lines in [listen].
configure() {
    {
        printf '[listen]\nudp = "0.0.0.0:443"\nworkers = 2\n'
        printf '%s\n' "$@"
        [[ $mode == hash ]] || printf '[admin]\nsocket = "@/admin.sock"\n[timeouts]\ndrain = "60s"\ndrain_grace = "0s"\n'
        printf '[origin]\nurl = "http://127.0.0.1:8080"\n'
        printf '[limits]\nsource_exempt = ["10.99.0.0/16"]\n[[certificates]]\ncert = "%s"\nkey = "%s"\n' "$work/fleet.crt" "$work/fleet.key"
    } >"$work/common.toml"
}

origins() {
    local n
    for n in $(all); do
        ip netns exec "$(namespace "$n")" "$client" origin 127.0.0.1:8080 "replica-$n" >>"$work/origin-$n.log" 2>&1 &
        disown
    done
}

# start [NUMBER...]: these replicas, or all.
start() {
    local n some=("$@")
    (($# > 0)) || mapfile -t some < <(all)
    for n in "${some[@]}"; do
        mkdir -p "$work/$n"
        sed -e "s|@|$work/$n|" -e "s|#|$n|" "$work/common.toml" >"$work/$n/litequic.toml"
        : >"$work/$n/log"
        # The host's name is not part of a network namespace.
        XDG_RUNTIME_DIR=$work/$n ip netns exec "$(namespace "$n")" unshare --uts sh -c \
            "echo replica-$n >/proc/sys/kernel/hostname; exec \"\$@\"" sh \
            "$litequic" run --config "$work/$n/litequic.toml" >>"$work/$n/log" 2>&1 &
        disown
    done
    for n in "${some[@]}"; do wait_for 20 grep -q '"ready"' "$work/$n/log"; done
}

# pids NUMBER: of a replica's litequic.
pids() { ip netns pids "$(namespace "$1")" | while read -r pid; do [[ $(readlink "/proc/$pid/exe") != "$litequic" ]] || echo "$pid"; done; }

has_none() { [[ -z $(pids "$1") ]]; }

stop() {
    local n pid
    for n in $(all); do
        for pid in $(pids "$n"); do kill -KILL "$pid"; done
        wait_for 10 has_none "$n"
    done
}

# What "$work/upgrade" does: a new process of each replica takes over, and the old one has ended.
write_upgrade() {
    local n
    {
        echo "set -e"
        for n in $(all); do
            echo "kill -USR2 $(pids "$n")"
            echo "for _ in \$(seq 200); do ! kill -0 $(pids "$n") 2>/dev/null || sleep 0.1; done"
            echo "! kill -0 $(pids "$n") 2>/dev/null"
        done
    } >"$work/upgrade"
}

at_client() { ip netns exec "$c" "$@"; }

# run NAME COMMAND...: a check whose output is shown if it succeeds, too.
run() {
    local before=$failed
    check "$@"
    ((failed > before)) || sed 's/^/      /' "$work/out"
}

# Nanoseconds of CPU that all replicas took.
cpu() {
    local n pid
    for n in $(all); do for pid in $(pids "$n"); do cat "/proc/$pid/task/"*/schedstat; done; done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# cpu_of COUNT ARGUMENTS...: microseconds a handshake.
cpu_of() {
    local count=$1 before
    shift
    before=$(cpu)
    at_client "$client" handshakes "$vip:443" --from 10.99.1.2 --count "$count" "$@" || return 1
    echo $((($(cpu) - before) / count / 1000))
}

# The least of several rounds in turn: other programs only add. On a busy machine that is more than the difference.
cpu_of_handshakes() {
    local full=() resumed=() count=${HANDSHAKES:-200} least=(0 0)
    for _ in {1..6}; do
        full+=("$(cpu_of "$count")") || return 1
        resumed+=("$(cpu_of "$count" --resumed)") || return 1
    done
    least[0]=$(printf '%s\n' "${full[@]}" | sort -n | head -n 1)
    least[1]=$(printf '%s\n' "${resumed[@]}" | sort -n | head -n 1)
    echo "CPU of a full handshake: ${least[0]} µs; of a resumed one: ${least[1]} µs (the least of 6 rounds of $count)"
}

# tcp_resumes WANTED: OpenSSL's client resumes sessions at another replica. "none": it gets full handshakes there.
tcp_resumes() {
    local other=0 resumed=0 last="" replica out
    for _ in $(seq 300); do
        out=$(printf 'GET / HTTP/1.1\r\nHost: fleet.test\r\nConnection: close\r\n\r\n' |
            at_client timeout 10 openssl s_client -connect "$vip:443" -servername fleet.test -alpn http/1.1 -ign_eof \
                -sess_out "$work/session.new" ${last:+-sess_in "$work/session"} 2>/dev/null | tr -d '\r') || true
        replica=$(sed -n 's/^[Xx]-[Rr]eplica: //p' <<<"$out")
        [[ -n $replica ]] || { echo "$out"; return 1; }
        if [[ -n $last && $replica != "$last" ]]; then
            other=$((other + 1))
            ! grep -q '^Reused, TLSv1.3' <<<"$out" || resumed=$((resumed + 1))
        fi
        last=$replica
        mv "$work/session.new" "$work/session"
        ((other < 20)) || break
    done
    echo "sessions over TCP resumed at another replica: $resumed of $other"
    if [[ $1 == none ]]; then ((other == 20 && resumed == 0)); else ((resumed == 20)); fi
}

migration_is() { says "disable_active_migration: 0, $1" at_client "$litequic" get --verbose --insecure --output /dev/null "https://$vip/"; }

moves() { at_client "$client" moves "$vip:443" --from 10.99.1.2 --to 10.99.2.2 --count 30; }
resets() { at_client "$client" resets "$vip:443" --from 10.99.1.2 --to 10.99.2.2 --count 60; }
resume() { at_client "$client" resume "$vip:443" --from 10.99.1.2 --count 20; }

# --- What connections live through: modes nftables and nginx

readonly clients=${CLIENTS:-40}
route=hash

# balance REPLICA...: the balancer gives new connections to these. By `route` it hashes all packets, or has the IDs of all replicas too, under
# rotations 0 and 1.
balance() {
    local n id ids="" number=0 hash="" pairs="" servers=""
    for n in $(all); do
        [[ $route == id ]] || break
        for id in "0f01020304050607$(printf %02x "$n")" "2fa1a2a3a4a5a6a7$(printf %02x "$n")"; do
            ids+="0x$id : $n, "
            pairs+="    '$id': '10.99.$((100 + n)).2:443',\n"
        done
    done
    for n in "$@"; do
        hash+="$number : $n, "
        servers+="        server 10.99.$((100 + n)).2:443;\n"
        number=$((number + 1))
    done
    if [[ $mode == nftables ]]; then
        # An ID that no connection has where none is routed: the set must not be empty.
        sed -e "s|^define virtual_address = .*|define virtual_address = $vip|" \
            -e "/^define server_ids/,/^}/c define server_ids = { ${ids:-0x0f0000000000000000 : 1} }" \
            -e "s/mod 3 map {.*}/mod $number map { $hash }/" "$balancer/quic-lb.nft" >"$work/quic-lb.nft"
        ip netns exec "$b" nft -f "$work/quic-lb.nft"
        return
    fi
    mkdir -p "$work/nginx"
    sed -e "/^    '0f/d" -e "s|^const servers = {|&\n$pairs|" "$balancer/quic-lb.js" >"$work/nginx/quic-lb.js"
    {
        printf 'user root; worker_processes 1; pid %s/nginx/pid; error_log %s/nginx/log;\n' "$work" "$work"
        sed -e "s|/usr/lib/nginx/modules|$modules|" -e "s|/etc/nginx|$work/nginx|" -e "/^        server 192/d" -e "s|listen 443|listen $vip:443|" \
            -e "s|consistent;|&\n$servers|" "$balancer/nginx.conf"
    } >"$work/nginx/nginx.conf"
    if [[ -e $work/nginx/pid ]]; then
        kill -HUP "$(cat "$work/nginx/pid")"
        # Its workers of before read no more.
        wait_for 10 reloaded $((generation += 1))
    else
        ip -n "$b" addr add "$vip/32" dev lo
        ip netns exec "$b" nginx -c "$work/nginx/nginx.conf" -e "$work/nginx/log"
        generation=1
    fi
}

generation=0
# reloaded TIMES: whether nginx has a worker that it started by its last configuration, and those before are leaving.
reloaded() {
    local main
    main=$(cat "$work/nginx/pid")
    (($(pgrep -P "$main" | wc -l) >= 1)) && ! pgrep -P "$main" -af . | grep -v "shutting down" | awk 'END { exit NR == 1 }'
}

# server_id ROTATION: the table of replica #, in a line of [listen].
server_id() {
    local begin=01020304050607
    [[ $1 == 0 ]] || begin=a1a2a3a4a5a6a7
    echo "server_id = { id = \"0x${begin}0# rotation=$1\" }"
}

# The name that replicas have in the client's commands.
drains() { for pid in $(pids "$1"); do kill -TERM "$pid"; done; }

through() { at_client "$client" through "$vip:443" --from 10.99.1.2 --count "$clients" "$@"; }

# rotate: all replicas go on to rotation 1, and to other IDs.
rotate() {
    local n
    configure "$secret" "$(server_id 1)"
    for n in $(all); do
        [[ -e $work/$n/litequic.toml ]] || continue
        sed -e "s|@|$work/$n|" -e "s|#|$n|" "$work/common.toml" >"$work/$n/litequic.toml"
        "$litequic" ctl --admin "$work/$n/admin.sock" reload >"$work/$n/reload" || return 1
    done
}

# The scripts that clients run while their responses are in flight: this one, with the function's name.
event() { printf 'bash %q %q' "$work/event.sh" "$*"; }
write_events() {
    {
        echo "set -euo pipefail"
        declare -p mode modules replicas balancer vip prefix c b work litequic client route secret clients
        declare -f namespace all balance reloaded server_id configure start pids drains rotate wait_for
        echo "generation=$generation"
        printf 'eval "$*"\n'
    } >"$work/event.sh"
}

# kept NAME ARGUMENTS...: adds a line to the table; by server ID all are to be kept.
kept() {
    local name=$1 line
    shift
    write_events
    if ! line=$(through "$@" 2>&1 | tail -n 1); then line="failed"; fi
    printf '%-44s %s\n' "$name" "$line" >>"$work/table-$route"
    echo "      $name: $line"
    [[ $route == hash ]] || [[ $name == *dies* ]] || [[ $line == "$clients of $clients "* ]]
}

connections_through() {
    local n
    : >"$work/table-$route"
    if [[ $route == id ]]; then configure "$secret" "$(server_id 0)"; else configure "$secret"; fi
    start 1 2 3
    balance 1 2 3
    run "$route: every other client's port changes, the others migrate" kept "clients' addresses change" --to 10.99.2.2 --command true
    if [[ $route == id ]]; then
        run "$route: the rotation and all server IDs change, and clients move" kept "the rotation changes, and clients move" --to 10.99.2.2 --command "$(event rotate)"
    fi
    # By server ID clients move as well.
    local moves=()
    [[ $route == hash ]] || moves=(--to 10.99.2.2)
    run "$route: a fourth replica joins" kept "3 replicas and one more" "${moves[@]}" --command "$(event start 4 '&&' balance 1 2 3 4)"
    run "$route: a replica drains" kept "one of 4 replicas drains" --command "$(event balance 1 2 4 '&&' drains 3)"
    if [[ $route == id ]]; then
        wait_for 90 has_none 3
        start 3
        balance 1 2 3 4
        run "$route: a replica drains, and clients move" kept "one drains, and clients move" --to 10.99.2.2 --command "$(event balance 1 2 4 '&&' drains 3)"
        run "$route: no packet went to a replica that another ID names" no_others 1 2 4
    fi
    for n in 3; do wait_for 90 has_none "$n"; done
    run "$route: a replica dies" kept "one of 3 replicas dies" --command "$(event 'for pid in $(pids 2); do kill -KILL $pid; done;' balance 1 4)"
    stop
}

# no_others REPLICA...: these have got no packet with the server ID of another.
no_others() {
    local n counted
    for n in "$@"; do
        counted=$("$litequic" ctl --admin "$work/$n/admin.sock" metrics | grep 'packets_without_connection_total{server_id="other"}')
        echo "replica $n: $counted"
        [[ $counted == *" 0" ]] || return 1
    done
}

if [[ $mode != hash ]]; then
    certificate fleet fleet.test
    openssl rand -hex 32 >"$work/secret"
    chmod 0600 "$work/secret"
    secret="secret_file = \"$work/secret\""
    network
    origins
    for route in id hash; do
        echo "--- $mode, by $([[ $route == id ]] && echo "server ID" || echo "the hash of addresses and ports")"
        connections_through
    done
    echo
    echo "connections and responses kept, of $clients each; $mode"
    for route in id hash; do
        echo "by $route:"
        sed 's/^/  /; s/ connections and responses kept//' "$work/table-$route"
    done
    finish
    exit
fi

certificate fleet fleet.test
openssl rand -hex 32 >"$work/secret"
chmod 0600 "$work/secret"
network
origins

echo "--- $replicas replicas that share a secret"
configure "secret_file = \"$work/secret\""
start
run "clients move" moves
run "no replica resets a connection of another" resets
run "sessions resume at another replica" resume
run "sessions resume at another replica over TCP" tcp_resumes 20
run "handshakes in a row, full and resumed" cpu_of_handshakes
check "clients may migrate" migration_is 0
stop

echo "--- the same with migration = false"
configure "secret_file = \"$work/secret\"" "migration = false"
start
check "clients are asked not to migrate" migration_is 1
run "clients move" moves
stop

echo "--- without secret_file"
configure
printf '[admin]\nhandover = "@/handover.sock"\n[timeouts]\ndrain_grace = "0s"\n' >>"$work/common.toml"
start
run "no replica resets a connection of another" resets
run "no session resumes at another replica" not resume
run "no session resumes at another replica over TCP" tcp_resumes none
write_upgrade
run "sessions resume after a hot upgrade" at_client "$client" across "$vip:443" --from 10.99.1.2 --count 20 --command "sh $work/upgrade"
stop

finish

# What .ci/run and .ci/nightly share: steps with their times, lanes that run side by side, and what is installed. Sourced.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly HELM=v3.22.0
readonly ACTIONLINT=v1.7.12
readonly VALE=v3.21.0
readonly MDBOOK=0.5.2
readonly CARGO_DENY=0.20.2
readonly PEBBLE=v2.10.1
readonly OAUTH2_PROXY=v7.15.6
readonly WORK=target/ci
# A workspace of its own, built into the same folder: its dependencies are the same versions, and it looks for litequic beside itself.
readonly LABORATORY=benches/lab/Cargo.toml
readonly VENV=$WORK/venv

unset CARGO_TARGET_DIR
export CARGO_TERM_COLOR=never DEBIAN_FRONTEND=noninteractive
export PATH="$PWD/$WORK/tools/bin:$PWD/$VENV/bin:$PATH"
mkdir -p "$WORK"
rm -rf "$WORK/reports" "$WORK/steps"
mkdir "$WORK/reports" "$WORK/steps"

# Runs a step, prints how it ended and how long it took. A step that fails does not end the run, so that one run reports
# all.
step() {
    local name=$1 began=$SECONDS status
    shift
    printf '\n=== %s (at %d:%02d)\n' "$name" $((SECONDS / 60)) $((SECONDS % 60))
    # Not as a condition: -e would not hold inside.
    set +e
    (
        set -e
        "$@"
    )
    status=$?
    set -e
    ((status == 0)) || : >"$WORK/steps/$name.failed"
    printf -- '--- %s: %s in %d s\n' "$name" "$( ((status == 0)) && echo ok || echo "FAILED ($status)")" $((SECONDS - began)) |
        tee -a "$WORK/steps/times"
}

# Runs functions of steps side by side. What each prints comes when all have ended.
lanes() {
    local lane pids=()
    for lane in "$@"; do
        "$lane" >"$WORK/$lane.log" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}"
    for lane in "$@"; do
        printf '\n##### %s\n' "$lane"
        cat "$WORK/$lane.log"
    done
}

# The times of all steps, the slowest tests, and the closing line: tests, and steps that failed.
close() {
    local passed failed name
    printf '\n=== times\n'
    cat "$WORK/steps/times"
    read -r passed failed < <(python3 .ci/report.py "$WORK/reports" "$WORK/reports/summary" && cat "$WORK/reports/summary")
    cat "$WORK/reports/summary.txt"
    for name in "$WORK"/steps/*.failed; do
        [[ -e $name ]] || continue
        name=$(basename "$name" .failed)
        printf 'failed: %s\n' "$name"
        # Tests that failed are counted already; tests that were not built, or broke off, are not.
        [[ $name == tests* && $failed -gt 0 ]] || failed=$((failed + 1))
    done
    printf '\n%d:%02d minutes\n' $((SECONDS / 60)) $((SECONDS % 60))
    printf '%d passed, %d failed\n' "$passed" "$failed"
    ((failed == 0))
}

cargo_deny() {
    if [[ $(cargo deny --version 2>/dev/null) != "cargo-deny $CARGO_DENY" ]]; then
        # --debug: half the time to build, and it has little to do.
        cargo install --quiet --debug --locked --root "$WORK/tools" --version "$CARGO_DENY" cargo-deny
    fi
}

packages() {
    local missing=()
    command -v cc >/dev/null || missing+=(build-essential)
    command -v c++ >/dev/null || missing+=(g++) # libFuzzer, of the fuzz targets
    [[ -x /usr/sbin/nginx ]] || command -v nginx >/dev/null || missing+=(nginx-light)
    command -v ip >/dev/null || missing+=(iproute2)
    command -v curl >/dev/null || missing+=(curl)
    command -v h2load >/dev/null || missing+=(nghttp2-client)
    command -v chromium >/dev/null || missing+=(chromium)
    command -v firefox-esr >/dev/null || missing+=(firefox-esr)
    command -v certutil >/dev/null || missing+=(libnss3-tools)
    command -v ffmpeg >/dev/null || missing+=(ffmpeg)
    command -v npm >/dev/null || missing+=(npm)
    command -v valgrind >/dev/null || missing+=(valgrind)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v javac >/dev/null || missing+=(default-jdk-headless)
    command -v promtool >/dev/null || missing+=(prometheus)
    command -v certbot >/dev/null || missing+=(certbot)
    command -v lego >/dev/null || missing+=(lego)
    command -v stunnel4 >/dev/null || missing+=(stunnel4)
    command -v wg-quick >/dev/null || missing+=(wireguard-tools)
    command -v wireguard-go >/dev/null || missing+=(wireguard-go)
    command -v fail2ban-client >/dev/null || missing+=(fail2ban)
    [[ -x /usr/sbin/rsyslogd ]] || missing+=(rsyslog)
    command -v nft >/dev/null || missing+=(nftables)
    command -v caddy >/dev/null || missing+=(caddy)
    [[ -x /usr/sbin/apache2 ]] || missing+=(apache2-bin)
    command -v htpasswd >/dev/null || missing+=(apache2-utils)
    [[ -x /usr/sbin/sshd ]] || missing+=(openssh-server)
    command -v jq >/dev/null || missing+=(jq)
    command -v mandoc >/dev/null || missing+=(mandoc)
    command -v groff >/dev/null || missing+=(groff)
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(libfaketime)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    if ((${#missing[@]} == 0)); then
        echo "nothing is missing"
        return
    fi
    local root=()
    ((EUID == 0)) || root=(sudo)
    "${root[@]}" apt-get update -qq
    "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$WORK/apt.log" || {
        tail -n 30 "$WORK/apt.log"
        return 1
    }
    echo "installed: ${missing[*]}"
}

# environment FOLDER FILE…: a virtual environment with what FILEs of requirements name, made anew when one has changed.
environment() {
    local folder=$1 files=() file
    shift
    if ! cat "$@" | cmp -s - "$folder/installed.txt"; then
        for file in "$@"; do
            files+=(--requirement "$file")
        done
        python3 -m venv --clear "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check "${files[@]}"
        cat "$@" >"$folder/installed.txt"
    fi
}

# The HTTP/3 client of tests/it/aioquic.rs, and cargo-nextest, prebuilt; the scanner of tests/it/old_clients.rs.
python_programs() {
    environment "$VENV" tests/it/requirements.txt .ci/requirements.txt
    environment "$WORK/sslyze" tests/it/sslyze.txt
    mkdir -p "$WORK/tools/bin"
    ln -sf "$PWD/$WORK/sslyze/bin/sslyze" "$WORK/tools/bin/sslyze"
    "$VENV/bin/python" -c 'import aioquic; print("aioquic", aioquic.__version__)'
    "$WORK/sslyze/bin/python" -c 'from sslyze.__version__ import __version__; print("sslyze", __version__)'
    cargo nextest --version
}

# For the charts' tests (tests/text/charts), which say so without it. A helm that is there will do.
helm_for_charts() {
    if command -v helm >/dev/null; then
        helm version --short
    elif [[ -n $(go env GOTOOLCHAIN 2>/dev/null) ]]; then # 1.21 and later fetch the Go that helm wants
        CGO_ENABLED=0 GOBIN="$PWD/$WORK/tools/bin" go install -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$HELM"
        helm version --short
    else
        echo "SKIPPED: needs helm, or go 1.21 to build it; the charts are not rendered"
    fi
}

# For the guides' tests (tests/it/guides): a CA that speaks ACME, and a proxy for sign-in; and servers of gRPC-Web and Connect
# (tests/it/secure_origins/rpc). For those of traces an OpenTelemetry Collector and Jaeger (tests/it/traces). Without Go those tests
# fail, as of any program that is missing.
programs_of_guides() {
    if [[ -z $(go env GOTOOLCHAIN 2>/dev/null) ]]; then
        echo "SKIPPED: needs go 1.21 to build pebble, oauth2-proxy, jaeger, litequic-test-rpc and litequic-test-collector"
        return
    fi
    command -v pebble >/dev/null ||
        GOBIN="$PWD/$WORK/tools/bin" go install "github.com/letsencrypt/pebble/v2/cmd/pebble@$PEBBLE"
    command -v pebble-challtestsrv >/dev/null ||
        GOBIN="$PWD/$WORK/tools/bin" go install "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@$PEBBLE"
    command -v oauth2-proxy >/dev/null ||
        GOBIN="$PWD/$WORK/tools/bin" go install "github.com/oauth2-proxy/oauth2-proxy/v7@$OAUTH2_PROXY"
    go build -C tests/it/secure_origins/rpc -o "$PWD/$WORK/tools/bin/litequic-test-rpc" .
    go build -C tests/it/traces/collector -ldflags "-s -w" -o "$PWD/$WORK/tools/bin/litequic-test-collector" .
    go build -C tests/it/traces/jaeger -ldflags "-s -w" -o "$PWD/$WORK/tools/bin/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger
    echo "pebble $PEBBLE, oauth2-proxy $OAUTH2_PROXY, jaeger, litequic-test-rpc, litequic-test-collector"
}

# That .github/workflows/ is what GitHub takes, pins what it uses, and has no rights that it does not need.
workflows() {
    if command -v actionlint >/dev/null; then
        actionlint --version
    elif [[ -n $(go env GOTOOLCHAIN 2>/dev/null) ]]; then
        CGO_ENABLED=0 GOBIN="$PWD/$WORK/tools/bin" go install -ldflags "-s -w" "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT"
    else
        echo "SKIPPED: needs actionlint, or go 1.21 to build it"
        return
    fi
    actionlint
    zizmor --offline --no-progress .github
}

# Style of the documents: words, fillers, exclamation marks, sentences that do not end (.vale.ini). What others measured, what is
# history and what is generated is exempt, as in tests/text/words.rs.
prose() {
    local vale=$WORK/tools/bin/vale
    if [[ -z $(go env GOTOOLCHAIN 2>/dev/null) ]]; then
        echo "SKIPPED: needs go 1.21 to build vale; the documents' style is not checked"
        return
    fi
    # It does not say its own version when it is built like this.
    if ! go version -m "$vale" 2>/dev/null | grep -q "mod.*/vale/.*$VALE"; then
        GOBIN="$PWD/$WORK/tools/bin" go install -ldflags "-s -w" "github.com/vale-cli/vale/v3/cmd/vale@$VALE"
    fi
    find . \( -name target -o -name '.?*' -o -path ./docs/results -o -path ./docs/reference \
        -o -path ./helm/litequic -o -path ./helm/litequic-sidecar \) -prune -o \
        -name '*.md' ! -path ./CHANGELOG.md -print0 |
        xargs -0 "$vale" --config=.vale.ini --minAlertLevel=error --output=line
    echo "no errors"
}

# The documents as a site: mdBook makes it of docs/, and every link and anchor in it leads somewhere.
site() {
    if [[ $(mdbook --version 2>/dev/null) != "mdbook v$MDBOOK" ]]; then
        # --debug: half the time to build.
        cargo install --quiet --debug --locked --root "$WORK/tools" --version "$MDBOOK" \
            --no-default-features --features search mdbook
    fi
    packaging/site.sh
}

# cargo-nextest over the binaries that `built` listed: no build, so no wait for one that another lane does. Its report goes
# to $WORK/reports. LITEQUIC_REQUIRE: a test that lacks a program fails instead of being skipped.
run_tests() {
    local report=$1 status=0
    shift
    LITEQUIC_REQUIRE=all LITEQUIC_PYTHON="$PWD/$VENV/bin/python" cargo nextest run --profile ci \
        --binaries-metadata "$WORK/binaries.json" --cargo-metadata "$WORK/metadata.json" "$@" || status=$?
    cp target/nextest/ci/junit.xml "$WORK/reports/$report.xml"
    return "$status"
}

# Builds all tests, and lists what was built.
built() {
    cargo metadata --locked --format-version 1 >"$WORK/metadata.json"
    cargo nextest list --workspace --locked --list-type binaries-only --message-format json >"$WORK/binaries.json"
}

# laboratory_built PROFILE: target/PROFILE/litequic-lab; PROFILE is debug or release.
laboratory_built() {
    local profile=()
    [[ $1 == debug ]] || profile=(--profile "$1")
    cargo build --locked "${profile[@]}" --manifest-path "$LABORATORY" --target-dir target
}

# Whether the laboratory can run here, with "tun" over paths, too; prints what is missing otherwise.
has_laboratory() {
    if ((EUID != 0 || $(nproc) < 2)) || ! unshare --net true 2>/dev/null || [[ ${1-} == tun && ! -e /dev/net/tun ]]; then
        echo "SKIPPED: needs root, two cores${1:+, /dev/net/tun} and network namespaces"
        return 1
    fi
}

# Prints whether the tests may use io_uring: a container may not.
has_io_uring() {
    local probed
    probed=$(target/debug/litequic probe | grep '^io_uring')
    [[ $probed =~ ^io_uring\ +yes ]] || {
        echo "SKIPPED: $probed"
        return 1
    }
}

# serves PROGRAM: whether it serves a download over UDP and over TCP, and ends in good order.
serves() {
    local litequic=$1 log=$WORK/demo.log port="" demo
    : >"$log" # The demo may come to open it after it is read.
    "$litequic" demo --listen 127.0.0.1:0 >>"$log" 2>&1 &
    demo=$!
    # shellcheck disable=SC2064 # this process, whatever the variable says later
    trap "kill -KILL $demo 2>/dev/null || true" EXIT
    for _ in {1..100}; do
        port=$(sed -n 's|^litequic serves .* at https://127\.0\.0\.1:\([0-9]*\)/.*|\1|p' "$log")
        [[ -z $port ]] || break
        sleep 0.1
    done
    [[ -n $port ]] || {
        cat "$log"
        return 1
    }
    "$litequic" get --insecure --output "$WORK/download" "https://127.0.0.1:$port/bytes/10M"
    [[ $(stat -c %s "$WORK/download") == 10000000 ]]
    curl --noproxy '*' --silent --show-error --insecure --output "$WORK/download" "https://127.0.0.1:$port/bytes/10M"
    [[ $(stat -c %s "$WORK/download") == 10000000 ]]
    kill -TERM "$demo"
    wait "$demo"
    trap - EXIT
    rm "$WORK/download"
    echo "10 MB downloaded over UDP and over TCP; drained"
}

#!/bin/sh
# Installs what release.sh needs and the machine lacks, at the versions below: Debian packages (as root), the compiler's libraries
# for other targets, and programs in target/tools.
# usage: packaging/tools.sh [PART...], of release.sh; without one, for all of them
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- packages finish

CARGO_DEB=3.7.0
CARGO_GENERATE_RPM=0.21.0
CARGO_CYCLONEDX=0.5.9 # the Dockerfile's
CARGO_ZIGBUILD=0.24.0
ZIGLANG=0.13.0
COSIGN=v2.6.1

. packaging/reproducible.sh
tools=$PWD/target/tools
mkdir -p "$tools"

# debian NAME...: as root.
debian() {
    root=
    [ "$(id -u)" = 0 ] || root=sudo
    $root apt-get update -qq
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# cargo_program NAME VERSION COMMAND...: unless COMMAND prints the version.
cargo_program() {
    name=$1 wanted=$2
    shift 2
    case " $("$@" 2>/dev/null || true) " in
    *" $wanted "*) ;;
    *) cargo install --quiet --locked --root "$tools" --version "$wanted" "$name" ;;
    esac
}

packages() {
    set --
    command -v aarch64-linux-gnu-gcc >/dev/null || set -- "$@" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    command -v musl-gcc >/dev/null || set -- "$@" musl-tools
    command -v zstd >/dev/null || set -- "$@" zstd
    python3 -c 'import ensurepip, venv' 2>/dev/null || set -- "$@" python3-venv
    [ $# = 0 ] || debian "$@"
    for target in aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
        [ -d "$(rustc --print target-libdir --target "$target")" ] || rustup target add "$target"
    done
    cargo_program cargo-deb "$CARGO_DEB" cargo-deb --version
    cargo_program cargo-generate-rpm "$CARGO_GENERATE_RPM" cargo-generate-rpm --version
    cargo_program cargo-cyclonedx "$CARGO_CYCLONEDX" cargo-cyclonedx cyclonedx --version
    if ! cargo-zigbuild --version 2>/dev/null | grep -q " $CARGO_ZIGBUILD\$"; then
        python3 -m venv "$tools/venv"
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "cargo-zigbuild==$CARGO_ZIGBUILD" "ziglang==$ZIGLANG"
    fi
}

# Only with keys there is something to sign with.
finish() {
    [ -z "${MINISIGN_SECRET_KEY:-}" ] || command -v minisign >/dev/null || debian minisign
    # This version: the next one writes bundles instead of plain signatures.
    [ -z "${COSIGN_PRIVATE_KEY:-}" ] || cosign version 2>&1 | grep -q " $COSIGN\$" ||
        CGO_ENABLED=0 GOBIN="$tools/bin" go install "github.com/sigstore/cosign/v2/cmd/cosign@$COSIGN"
}

for part; do
    case $part in
    packages | finish) "$part" ;;
    *)
        echo "$part: nothing is installed for it" >&2
        exit 64
        ;;
    esac
done

#!/bin/sh
# Builds litequic for TARGET as a release has it, on x86-64, and prints where it is. All crates are one unit of code; only the
# program for x86_64-unknown-linux-gnu has a profile (pgo.sh).
# usage: packaging/program.sh TARGET
#   x86_64-unknown-linux-gnu     by pgo.sh
#   aarch64-unknown-linux-gnu    by Debian's cross compiler: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross
#   x86_64-unknown-linux-musl    static; its C code by musl-tools
#   aarch64-unknown-linux-musl   static; its C code, and the link, by cargo-zigbuild and ziglang (PyPI)
# Ends with 69 where one of these, or the compiler's library for TARGET, is missing: packaging/tools.sh installs them.
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
target=${1:?usage: packaging/program.sh TARGET}

# The glibc that programs may need: RHEL 9's and Ubuntu 22.04's. The packages say so (Cargo.toml).
readonly GLIBC=2.34

[ -d "$(rustc --print target-libdir --target "$target")" ] || {
    echo "$target needs its standard library: rustup target add $target" >&2
    exit 69
}

build=build
case $target in
x86_64-unknown-linux-gnu) ;;
aarch64-unknown-linux-gnu)
    needs aarch64-linux-gnu-gcc "$target"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
    ;;
x86_64-unknown-linux-musl)
    # For C code alone: a program that musl-gcc links crashes, as rustc brings its own musl, and links by itself.
    needs musl-gcc "$target"
    export CC_x86_64_unknown_linux_musl=musl-gcc
    ;;
aarch64-unknown-linux-musl)
    needs cargo-zigbuild "$target"
    build=zigbuild
    ;;
*)
    echo "$target: no target of a release" >&2
    exit 64
    ;;
esac

if [ "$target" = x86_64-unknown-linux-gnu ]; then
    program=$(packaging/pgo.sh)
else
    SOURCE_DATE_EPOCH=$COMPILED RUSTFLAGS=$rust_paths CFLAGS=$c_paths \
        cargo "$build" --profile dist --locked --package litequic --bin litequic --target "$target" --target-dir target/cross
    program=target/cross/$target/dist/litequic
fi

case $target in
*-gnu)
    newest=$(readelf --wide --version-info "$program" | grep -o 'GLIBC_[0-9.]*' | sort --unique --version-sort | tail -n 1)
    newer=$(printf 'GLIBC_%s\n%s\n' "$GLIBC" "$newest" | sort --version-sort | tail -n 1)
    [ "$newer" = "GLIBC_$GLIBC" ] || {
        echo "$program needs $newest, and the packages say $GLIBC" >&2
        exit 1
    }
    ;;
esac
echo "$program"

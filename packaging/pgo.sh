#!/bin/sh
# Makes target/release/litequic-pgo: litequic and all libraries in it, compiled with a profile of what they do under load
# (profile-guided optimization): what tarball and image ship. docs/performance.md says what that saves. Takes three release
# builds; needs llvm-profdata, curl and python3.
# usage: packaging/pgo.sh; then packaging/tarball.sh target/release/litequic-pgo
set -eu
cd "$(dirname "$0")/.."

profdata=$(rustc --print target-libdir)/../bin/llvm-profdata
[ -x "$profdata" ] || {
    echo "llvm-profdata is missing: rustup component add llvm-tools" >&2
    exit 1
}
host=$(rustc -vV | sed -n 's/^host: //p')
work=$PWD/target/pgo
rm -rf "$work/raw"
mkdir -p "$work"

# --target: build scripts and macros are left alone.
build() {
    RUSTFLAGS=$2 cargo build --release --locked --package litequic --bin litequic --target "$host" --target-dir "$work/$1"
}

cargo build --release --locked --package litequic-lab --target-dir target
build instrumented "-Cprofile-generate=$work/raw"
packaging/train.sh "$work/instrumented/$host/release/litequic" target/release/litequic-lab
"$profdata" merge --output "$work/litequic.profdata" "$work/raw"
build optimized "-Cprofile-use=$work/litequic.profdata"
cp "$work/optimized/$host/release/litequic" target/release/litequic-pgo
echo "target/release/litequic-pgo"

#!/bin/sh
# Makes target/release/litequic-pgo: litequic and all libraries in it, compiled with a profile of what they do under load
# (profile-guided optimization): what tarball and image ship. docs/performance.md has the gain. The profile is
# packaging/litequic.profdata.gz, made of the sources whose checksum stands in packaging/litequic.profdata.of: tag.sh refuses a
# release of others. The compiler finds a function in it by its symbol and by a checksum of its body: it knows nothing of one that has
# changed since, and says nothing. names.sh keeps the symbols what they are when dependencies change; profile.py counts those
# that differ all the same, each time.
# usage: packaging/pgo.sh [--train]
# --train makes the profile anew before, and leaves it there, or beside $LITEQUIC_PROFILE: it takes three release builds more, llvm-profdata (rustup component
# add llvm-tools), and nginx, curl, h2load and python3 for the loads.
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh

profile=${LITEQUIC_PROFILE:-packaging/litequic.profdata}
host=$(rustc -vV | sed -n 's/^host: //p')
work=$PWD/target/pgo
mkdir -p "$work"

# --target: build scripts and macros are left alone.
build() {
    SOURCE_DATE_EPOCH=$COMPILED RUSTFLAGS="$rust_paths $2" CFLAGS="$c_paths" RUSTC_WRAPPER="$PWD/packaging/names.sh" \
        cargo build --profile dist --locked --package litequic --bin litequic --target "$host" --target-dir "$work/$1"
}

profdata=$(rustc --print target-libdir)/../bin/llvm-profdata
if [ "${1-}" = --train ]; then
    [ -x "$profdata" ] || {
        echo "llvm-profdata is missing: rustup component add llvm-tools" >&2
        exit 1
    }
    rm -rf "$work/raw"
    cargo build --release --locked --manifest-path benches/lab/Cargo.toml --target-dir target
    build instrumented "-Cprofile-generate=$work/raw"
    packaging/train.sh "$work/instrumented/$host/dist/litequic" target/release/litequic-lab
    # --sparse: functions that never ran are omitted, which makes a quarter of it.
    "$profdata" merge --sparse --output "$work/litequic.profdata" "$work/raw"
    gzip --best --no-name --stdout "$work/litequic.profdata" >"$profile.gz"
    packaging/sources.sh >"$profile.of"
fi

# Named by its contents, so that cargo builds anew when they change; and written once, as it also does when the file is newer.
used=$work/$(sha256sum "$profile.gz" | cut -c 1-16).profdata
if [ ! -e "$used" ]; then
    gzip --decompress --stdout "$profile.gz" >"$used.new"
    mv "$used.new" "$used"
fi
build optimized "-Cprofile-use=$used -Cllvm-args=-no-pgo-warn-mismatch"
mkdir -p target/release
cp "$work/optimized/$host/dist/litequic" target/release/litequic-pgo
# Standard output is the program's path.
if [ -x "$profdata" ]; then
    packaging/profile.py target/release/litequic-pgo "$used" >&2
else
    echo "SKIPPED: whether the profile fits the program needs llvm-profdata (rustup component add llvm-tools)" >&2
fi
echo "target/release/litequic-pgo"

#!/bin/sh
# Prints the checksum of what a profile is made of: litequic's sources, the versions of its libraries and of the compiler, and how
# the profile is trained.
# usage: packaging/sources.sh
set -eu
cd "$(dirname "$0")/.."
for path in src crates Cargo.lock Cargo.toml rust-toolchain.toml packaging/pgo.sh packaging/names.sh packaging/train.sh packaging/tunnels.py benches/origin.sh; do
    git ls-files -s "$path"
done | sha256sum | cut -c 1-64

#!/bin/sh
# Makes target/dist/litequic-VERSION.cdx.json and .spdx.json: the crates that the program is made of, as Cargo.lock has them, by CycloneDX
# 1.5 and by SPDX 2.3. The same sources make the same files, to the byte.
# usage: packaging/sbom.sh; needs python3 and cargo-cyclonedx (packaging/tools.sh), and ends with 69 without
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
needs cargo-cyclonedx "a bill of materials"
name=litequic-$(version_of_sources)

# It writes beside each manifest of a workspace.
copy=$PWD/target/sbom
rm -rf "$copy"
mkdir -p "$copy" target/dist
cp -R Cargo.toml Cargo.lock benches examples src "$copy/"
cargo cyclonedx --quiet --manifest-path "$copy/Cargo.toml" --format json --spec-version 1.5 --target x86_64-unknown-linux-gnu
# References have the path of the sources in them.
sed "s|$copy|/litequic|g" "$copy/litequic.cdx.json" >"target/dist/$name.cdx.json"
packaging/spdx.py "target/dist/$name.cdx.json" >"target/dist/$name.spdx.json"
echo "target/dist/$name.cdx.json"
echo "target/dist/$name.spdx.json"

#!/bin/sh
# Makes target/dist/litequic_VERSION-1_ARCHITECTURE.deb. What is in it is said in Cargo.toml, [package.metadata.deb], what happens when
# it is installed and removed in packaging/deb. The same program makes the same file, to the byte.
# usage: packaging/deb.sh PROGRAM TARGET [SPEAKER], as tarball.sh; needs cargo-deb (packaging/tools.sh), and ends with 69 without
set -eu
program=$(realpath "$1") target=$2 speaker=$(realpath "${3:-$1}")
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
needs cargo-deb "a deb"

stage_package deb "$program" "$target" "$speaker"
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions"
install -D -m 644 packaging/deb/lintian-overrides "$share/lintian/overrides/litequic"
# dpkg wants a changelog of its own form.
gzip --no-name --best >"$share/doc/litequic/changelog.Debian.gz" <<TEXT
litequic ($(version_of_sources | sed 's/-/~/')-1) unstable; urgency=medium

  * What is new in this version: /usr/share/doc/litequic/CHANGELOG.md

 -- $(sed -n '/^\[package.metadata.deb\]/,/^\[/s/^maintainer = "\(.*\)"$/\1/p' Cargo.toml)  $(date --utc --date="@$SOURCE_DATE_EPOCH" -R)
TEXT
for script in postinst prerm postrm; do
    sed -e '/^#FUNCTIONS#$/{' -e 'r packaging/maintainer.sh' -e 'd' -e '}' "packaging/deb/$script" >"$stage/deb/$script"
done

cargo deb --quiet --package litequic --no-build --no-strip --target "$target" --output "$stage/out" >/dev/null
file=$(asset_name "$stage"/out/*.deb)
mv "$stage"/out/*.deb "target/dist/$file"
echo "target/dist/$file"

#!/bin/sh
# Makes target/dist/litequic-VERSION-1.ARCHITECTURE.rpm. What is in it is said in Cargo.toml, [package.metadata.generate-rpm], what
# happens when it is installed and removed in packaging/rpm. The same program makes the same file, to the byte.
# usage: packaging/rpm.sh PROGRAM TARGET [SPEAKER], as tarball.sh; needs cargo-generate-rpm (packaging/tools.sh), and ends with 69 without
set -eu
program=$(realpath "$1") target=$2 speaker=$(realpath "${3:-$1}")
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
needs cargo-generate-rpm "an rpm"

stage_package rpm "$program" "$target" "$speaker"
install -D -m 644 packaging/rpm/sysusers.conf "$stage/root/usr/lib/sysusers.d/litequic.conf"
# cargo-generate-rpm packs no links: a script in its place.
rm "$stage/root/usr/bin/litequic"
printf '#!/bin/sh\nexec /usr/libexec/litequic/litequic "$@"\n' >"$stage/root/usr/bin/litequic"
mkdir -p "$share/licenses/litequic"
mv "$share/doc/litequic/LICENSE" "$share/licenses/litequic/"
for script in post preun postun; do
    sed -e '/^#FUNCTIONS#$/{' -e 'r packaging/maintainer.sh' -e 'd' -e '}' "packaging/rpm/$script" >"$stage/rpm/$script"
done

# What it requires is said, too: what it links to could be asked on the target alone. A version has no hyphen: 1.0.0~rc.1.
cargo generate-rpm --arch "${target%%-*}" --auto-req disabled --set-metadata "version = \"$(version_of_sources | sed 's/-/~/')\"" \
    --output "$stage/out"
file=$(asset_name "$stage"/out/*.rpm)
mv "$stage"/out/*.rpm "target/dist/$file"
echo "target/dist/$file"

#!/bin/sh
# Fails unless the tag is that of the version in Cargo.toml and in the charts, the profile was trained on these sources, and
# CHANGELOG.md has a section of the version, which it prints: the notes of the release.
# usage: packaging/tag.sh vVERSION [SECTION]; SECTION of CHANGELOG.md instead of [VERSION], such as Unreleased
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
tag=${1:?usage: packaging/tag.sh vVERSION [SECTION]}
section=${2:-${tag#v}}

# is WHAT VERSION
is() {
    if [ "v$2" != "$tag" ]; then
        echo "$1 has the version $2, and the tag is $tag" >&2
        exit 1
    fi
}
is Cargo.toml "$(version_of_sources)"
for chart in litequic litequic-sidecar; do
    is "helm/$chart/Chart.yaml" "$(sed -n 's/^version: //p' "helm/$chart/Chart.yaml")"
    is "helm/$chart/Chart.yaml (appVersion)" "$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "helm/$chart/Chart.yaml")"
done
[ "$(packaging/sources.sh)" = "$(cat packaging/litequic.profdata.of 2>/dev/null)" ] || {
    echo "packaging/litequic.profdata.gz was trained on other sources: packaging/pgo.sh --train, then commit it" >&2
    exit 1
}
notes=$(awk -v heading="## [$section]" 'index($0, "## [") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
if [ -z "$notes" ]; then
    echo "CHANGELOG.md has no section [$section]: its changes are still in [Unreleased]" >&2
    exit 1
fi
printf '%s\n' "$notes"

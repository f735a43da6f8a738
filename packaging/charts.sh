#!/bin/sh
# Makes target/dist/CHART-VERSION.tgz of both charts: what `helm push` and `helm install` take. The same charts make the same files,
# to the byte.
# usage: packaging/charts.sh [URL], that of the repository, where the version's tag is: Chart.yaml then has it as home and
# sources, and links out of a chart lead there. Without one there is none of these, and such links are plain text.
set -eu
url=${1:-}
url=${url%/}
cd "$(dirname "$0")/.."
. packaging/reproducible.sh

mkdir -p target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for chart in litequic litequic-sidecar; do
    # What the edge chart shares with the sidecar chart is a link in the tree.
    cp -RL "helm/$chart" "$work/$chart"
    cp LICENSE "$work/$chart/"
    yaml=$work/$chart/Chart.yaml
    readme=$work/$chart/README.md
    version=$(sed -n 's/^version: //p' "$yaml")
    if [ -n "$url" ]; then
        printf 'home: %s\nsources:\n  - %s\n' "$url" "$url" >>"$yaml"
        sed -i -E "s|\]\(\.\./\.\./|]($url/blob/v$version/|g; s|\]\(\.\./|]($url/blob/v$version/helm/|g" "$readme"
    else
        sed -i -E 's|\[([^]]*)\]\(\.\./[^)]*\)|\1|g' "$readme"
    fi
    if grep -n '](\.\./' "$readme"; then
        echo "$chart/README.md: a link leads out of the chart" >&2
        exit 1
    fi
    # Whatever the umask: all may read.
    chmod -R u=rwX,go=rX "$work/$chart"
    package=$chart-$version.tgz
    pack "$work" "$chart" >"target/dist/$package"
    echo "target/dist/$package"
done

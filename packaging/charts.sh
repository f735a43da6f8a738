#!/bin/sh
# Makes target/dist/CHART-VERSION.tgz of both charts, with their SHA-256: what `helm push` and `helm install` take. The same
# charts make the same files, to the byte.
# usage: packaging/charts.sh [URL], that of the repository, where the version's tag is: Chart.yaml then has it as home and
# sources, and links out of a chart lead there. Without one there is none of these, and such links are plain text.
set -eu
url=${1:-}
url=${url%/}
cd "$(dirname "$0")/.."
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"

mkdir -p target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for chart in litequic litequic-sidecar; do
    cp -R "helm/$chart" "$work/$chart"
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
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --directory "$work" "$chart" | gzip --no-name --best >"target/dist/$package"
    (cd target/dist && sha256sum "$package" >"$package.sha256")
    echo "target/dist/$package"
done

#!/bin/sh
# Makes target/dist/results-VERSION.tar.zst: every run of the laboratory behind docs/results as JSON, with all plots, traces and pages.
# docs/results has a summary of them, and the few plots that other documents show. The same results make the same file, to the byte.
# usage: packaging/results.sh [FOLDER]
# FOLDER is that of a full run (`litequic-lab all --out FOLDER`) of which docs/results was made (`litequic-lab report FOLDER --summary
# --out docs/results --plots …`). Without it (or $LITEQUIC_RESULTS) the results are those of the last run whose JSON is in the history,
# which a shallow clone does not have.
# Where target/release/litequic-lab is built, the summary is made anew and compared with docs/results. Ends with 69 without zstd or history.
set -eu
cd "$(dirname "$0")/.."
. packaging/reproducible.sh
# The last commit whose docs/results has all of them.
measured=6bd571af34b8
needs zstd "the archive of results"
folder=${1:-${LITEQUIC_RESULTS:-}}
name=results-$(version_of_sources)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$folder" ]; then
    git cat-file -e "$measured^{commit}" 2>/dev/null || {
        echo "the archive of results needs the history down to $measured: git fetch --unshallow" >&2
        exit 69
    }
    mkdir "$work/history"
    git archive "$measured" docs/results | tar --extract --directory "$work/history"
    folder=$work/history/docs/results
fi
mkdir "$work/$name"
(cd "$folder" && find . \( -name '*.json' -o -name '*.svg' -o -name '*.csv' -o -name '*.md' \) ! -path './views/*' |
    tar --create --files-from - --file -) | tar --extract --directory "$work/$name"

lab=target/release/litequic-lab
if [ -x "$lab" ]; then
    plots=$(cd docs/results && find . -maxdepth 1 -name '*.svg' | sed 's|^\./||' | sort | paste --serial --delimiters=,)
    "$lab" report "$work/$name" --summary --out "$work/page" ${plots:+--plots "$plots"} 2>/dev/null || {
        echo "$lab does not make the summary: build it anew" >&2
        exit 1
    }
    for file in docs/results/*; do
        cmp "$file" "$work/page/${file##*/}" || {
            echo "$file was made of other results" >&2
            exit 1
        }
    done
fi

chmod -R u=rwX,go=rX "$work/$name"
mkdir -p target/dist
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu --directory "$work" "$name" |
    zstd --quiet -19 --single-thread --force -o "target/dist/$name.tar.zst"
echo "target/dist/$name.tar.zst"

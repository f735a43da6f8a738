#!/usr/bin/env bash
# The gate on instructions: counts by callgrind what benches/replay takes for each case, and compares with
# benches/replay/replay.txt. The same program takes the same number, as far as time does not matter to it; a change by 1 % more or less
# needs its reason there.
# usage: benches/gate.sh [--write]; --write replaces the numbers in benches/replay/replay.txt, and keeps the reasons
# Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly COUNTS=benches/replay/replay.txt
# Of the committed number, in thousandths.
readonly TOLERANCE=10
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As the release is built, and together with it: the libraries have the same features, and are compiled once.
cargo build --quiet --release --locked --package litequic --package litequic-replay --bins
replay=target/release/litequic-replay

# Instructions of the case $1, replayed $2 times.
instructions() {
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$replay" "$1" "$2" 2>"$work/log" || {
        cat "$work/log" >&2
        return 1
    }
    awk '/^(summary|totals):/ { print $2; exit }' "$work/out"
}

failed=0
: >"$work/counts"
while read -r case expected reason; do
    [[ $case != '#'* && -n $case ]] || {
        printf '%s\n' "$case${expected:+ $expected}${reason:+ $reason}" >>"$work/counts"
        continue
    }
    for _ in {1..3}; do
        # What is made before the first replay does not count.
        once=$(instructions "$case" 10)
        count=$((($(instructions "$case" 30) - once) / 20))
        difference=$((1000 * (count - expected) / (expected > 0 ? expected : 1)))
        # A clock is looked at, so that a busy machine may change what waits: such a difference is not there each time.
        ((difference > TOLERANCE || -difference > TOLERANCE)) || break
    done
    printf '%-10s %9d  %s\n' "$case" "$count" "$reason" >>"$work/counts"
    printf '%-10s %9d, %9d expected: %+d.%d %%' "$case" "$count" "$expected" $((difference / 10)) $((difference < 0 ? -difference % 10 : difference % 10))
    if ((difference > TOLERANCE || -difference > TOLERANCE)); then
        printf '  MORE THAN %d %%\n' $((TOLERANCE / 10))
        failed=1
    else
        printf '\n'
    fi
done <"$COUNTS"
if [[ ${1-} == --write ]]; then
    cp "$work/counts" "$COUNTS"
    echo "$COUNTS is written: say why, in the line of each case"
    exit 0
fi
((!failed)) || {
    echo "Does it pay for what it brings? Then benches/gate.sh --write, with the reason in $COUNTS."
    exit 1
}

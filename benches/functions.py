#!/usr/bin/env python3
"""Prints where the instructions between two dumps of callgrind went: by part of the program, then the functions that took most.

usage: functions.py LESS MORE REQUESTS; MORE is the dump of so many requests more than LESS

Instructions are those of a function itself; what is inlined into it counts as its own.
"""

import collections
import re
import sys

# The first pattern that a function's name has decides.
PARTS = [
    ("copying and comparing memory", r"mem(cpy|move|set|cmp|chr)"),
    ("malloc and free", r"^_?mi_|alloc::alloc::"),
    ("AES-128-GCM and header protection", r"aws_lc|aesni|gcm"),
    ("s2n-quic", r"s2n_"),
    ("litequic: HTTP/3 and QPACK", r"litequic::http3"),
    ("litequic: proxy and origin", r"litequic::(proxy|exchange|pool)"),
    ("litequic: the fair queue", r"litequic::sources"),
    ("litequic: datagrams, ACKs, congestion control", r"litequic::(quic|datagram|net)"),
    ("litequic: the rest", r"litequic"),
    ("hyper and httparse", r"hyper|httparse"),
    ("http: header maps, URIs", r"http::"),
    ("tokio", r"tokio"),
    ("core, alloc and others", r""),
]
SHOWN = 25


def costs(path: str) -> collections.Counter:
    """Instructions by function."""
    names, found, current, is_call = {}, collections.Counter(), None, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if match := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
                number, name = match.groups()
                if name:
                    # Without its hash, and the number of a recursion.
                    names[number] = re.sub(r"::h[0-9a-f]{16}$", "", re.sub(r"'\d+$", "", name))
                if line.startswith("fn="):
                    current = number
            elif line.startswith("calls="):
                # The next line has what the callee took.
                is_call = True
            elif line[:1] in "0123456789+-*":
                fields = line.split()
                if not is_call and len(fields) > 1:
                    found[current] += int(fields[1])
                is_call = False
    by_name = collections.Counter()
    for number, count in found.items():
        by_name[names.get(number, "?")] += count
    return by_name


def main() -> None:
    less, more, requests = costs(sys.argv[1]), costs(sys.argv[2]), int(sys.argv[3])
    each = {name: (more[name] - less[name]) / requests for name in more | less}
    parts = collections.Counter()
    for name, count in each.items():
        parts[next(part for part, pattern in PARTS if re.search(pattern, name))] += count
    for part, count in parts.most_common():
        print(f"{count:9.0f}  {part}")
    print()
    for name, count in sorted(each.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{count:9.0f}  {name}")


main()

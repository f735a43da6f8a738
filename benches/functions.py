#!/usr/bin/env python3
"""Prints where the instructions between two dumps of callgrind went: how often the allocator was called and tasks were polled; the
parts of the program; the functions that took most, with how often they were called; and who called the allocator.

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
    ("litequic: HTTP/3 and QPACK", r"litequic_http3"),
    ("litequic: proxy and origin", r"litequic_(proxy|exchange)"),
    ("litequic: the fair queue", r"litequic_resources::fairness"),
    ("litequic: datagrams, ACKs, congestion control", r"litequic_(quic|net)"),
    ("litequic: the rest", r"litequic"),
    ("hyper and httparse", r"hyper|httparse"),
    ("http: header maps, URIs", r"http::"),
    ("tokio", r"tokio"),
    ("core, alloc and others", r""),
]
SHOWN = 40
# What Rust's functions call, and what they call; the first alone is called by others than the allocator.
ALLOCATOR = r"__rust_(alloc|alloc_zeroed|realloc)$|^mi_(heap_)?(malloc|zalloc|realloc)"
WITHIN = r"__rust_|^_?mi_"
# Each poll of a task of tokio's, whatever it is.
POLL = r"^tokio::runtime::task::raw::poll"


class Profile:
    """A dump: instructions and calls by function, and calls by caller and callee."""

    def __init__(self, path: str) -> None:
        self.instructions, self.calls = collections.Counter(), collections.Counter()
        self.edges = collections.Counter()
        names, edges, own = {}, collections.Counter(), collections.Counter()
        current, callee, is_call = None, None, False
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if match := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line):
                    called, number, name = match.groups()
                    if name:
                        # Without its hash, and the number of a recursion.
                        names[number] = re.sub(r"::h[0-9a-f]{16}$", "", re.sub(r"'\d+$", "", name))
                    if called:
                        callee = number
                    else:
                        current = number
                elif line.startswith("calls="):
                    edges[current, callee] += int(line[len("calls=") :].split()[0])
                    # The next line has what the callee took.
                    is_call = True
                elif line[:1] in "0123456789+-*":
                    fields = line.split()
                    if not is_call and len(fields) > 1:
                        own[current] += int(fields[1])
                    is_call = False
        for number, count in own.items():
            self.instructions[names.get(number, "?")] += count
        for (caller, called), count in edges.items():
            caller, called = names.get(caller, "?"), names.get(called, "?")
            self.calls[called] += count
            self.edges[caller, called] += count


def each(less: collections.Counter, more: collections.Counter, requests: int) -> collections.Counter:
    return collections.Counter({key: (more[key] - less[key]) / requests for key in more | less})


def main() -> None:
    less, more, requests = Profile(sys.argv[1]), Profile(sys.argv[2]), int(sys.argv[3])
    instructions = each(less.instructions, more.instructions, requests)
    calls = each(less.calls, more.calls, requests)
    edges = each(less.edges, more.edges, requests)
    # The allocator's functions call each other.
    allocations = collections.Counter()
    for (caller, called), count in edges.items():
        if re.search(ALLOCATOR, called) and not re.search(WITHIN, caller):
            allocations[caller] += count
    polls = sum(count for name, count in calls.items() if re.search(POLL, name))
    print(f"{allocations.total():9.2f}  allocations")
    print(f"{polls:9.2f}  polls of tasks")
    print()
    parts = collections.Counter()
    for name, count in instructions.items():
        parts[next(part for part, pattern in PARTS if re.search(pattern, name))] += count
    for part, count in parts.most_common():
        print(f"{count:9.0f}  {part}")
    print()
    for name, count in instructions.most_common(SHOWN):
        print(f"{count:9.0f}  {calls[name]:7.2f} ×  {name}")
    print()
    for name, count in allocations.most_common(SHOWN):
        if count >= 0.01:
            print(f"{count:9.2f}  allocations  {name}")


main()

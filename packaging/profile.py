#!/usr/bin/env python3
"""How much of a profile fits a program: of the functions that are in both by their paths, those whose symbols differ get
nothing from it, and the compiler says nothing of them.

    profile.py PROGRAM PROFILE [--most PERCENT]

PROFILE is a file of llvm-profdata. Ends with 1 if more than PERCENT (2 unless given) of the functions differ. Needs nm and
llvm-profdata (rustup component add llvm-tools).
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

# A path and the hash behind it (rustc's legacy mangling).
SYMBOL = re.compile(r"(_ZN[\w$.]+?)17h([0-9a-f]{16})E")


def llvm_profdata():
    """The one of the compiler in use: its format changes with LLVM's version."""
    library = subprocess.run(["rustc", "--print", "target-libdir"], check=True, capture_output=True, text=True)
    return pathlib.Path(library.stdout.strip()).parent / "bin" / "llvm-profdata"


def symbols(lines):
    """Hashes by path. A local symbol has its file before a semicolon."""
    found = collections.defaultdict(set)
    for line in lines:
        match = SYMBOL.search(line.rsplit(";", 1)[-1])
        if match:
            found[match[1]].add(match[2])
    return found


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("profile")
    arguments.add_argument("--most", type=float, default=2, metavar="PERCENT")
    options = arguments.parse_args()
    program = symbols(output("nm", options.program))
    shown = output(llvm_profdata(), "show", "--all-functions", options.profile)
    profile = symbols(line.strip().removesuffix(":") for line in shown)
    both = program.keys() & profile.keys()
    strangers = sorted(path for path in both if not program[path] & profile[path])
    if not both:
        sys.exit("the profile has none of the program's functions")
    share = 100 * len(strangers) / len(both)
    print(f"{len(both)} functions are in the program and in the profile, {len(strangers)} ({share:.1f} %) with another hash")
    for path in strangers[:10]:
        print(f"  {path}")
    sys.exit(share > options.most)


if __name__ == "__main__":
    main()

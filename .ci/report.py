"""Reads the JUnit reports of cargo-nextest in a folder: writes how many tests passed and failed to SUMMARY, and the slowest
tests, those that failed once, and those that were skipped to SUMMARY.txt."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SLOWEST = 10


def main(folder: str, summary: str) -> None:
    passed = failed = 0
    times, flaky, skipped = [], [], set()
    for path in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("failure") is None and case.find("error") is None:
                passed += 1
            else:
                failed += 1
            name = f"{path.stem}: {case.get('classname')} {case.get('name')}"
            times.append((float(case.get("time", "0")), name))
            if case.find("flakyFailure") is not None or case.find("flakyError") is not None:
                flaky.append(name)
            output = "".join(element.text or "" for element in case.iter() if element.tag.startswith("system-"))
            skipped.update(f"{line} ({name})" for line in output.splitlines() if line.startswith("skipped: "))
    lines = ["", "=== the slowest tests"]
    lines += [f"{seconds:7.1f} s  {name}" for seconds, name in sorted(times, reverse=True)[:SLOWEST]]
    if flaky:
        lines += ["", "=== flaky: failed, then passed", *flaky]
    if skipped:
        lines += ["", "=== skipped", *sorted(skipped)]
    pathlib.Path(f"{summary}.txt").write_text("\n".join([*lines, ""]))
    pathlib.Path(summary).write_text(f"{passed} {failed}\n")


main(*sys.argv[1:])

#!/usr/bin/env python3
"""Prints a Markdown table of test suites by instruction set, from ctest's JUnit files.

    levels_table.py LEVEL=FILE.xml ...        LEVEL= without a file is a level that the CPU lacks
"""
import sys
import xml.etree.ElementTree


def results(path):
    """Suite -> passed with its seconds, failed, or skipped."""
    found = {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "run":
            found[case.get("name")] = f"{float(case.get('time')):.1f} s"
        else:
            found[case.get("name")] = "skipped" if case.find("skipped") is not None else "FAILED"
    return found


def table(columns):
    suites = sorted({suite for column in columns.values() if column for suite in column})
    lines = ["| suite | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for suite in suites:
        cells = [column.get(suite, "-") if column is not None else "not on this CPU" for column in columns.values()]
        lines.append(f"| {suite} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments):
    columns = {}
    for argument in arguments:
        level, _, path = argument.partition("=")
        columns[level] = results(path) if path else None
    print(table(columns))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])

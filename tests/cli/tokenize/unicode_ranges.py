#!/usr/bin/env python3
"""The letters and numbers of cli/tokenize/unicode_ranges.cc are those of Python's Unicode database.

    unicode_ranges.py          compares; exit code 77 if this Python has another version of Unicode
    unicode_ranges.py --write  writes the file
"""
import pathlib
import re
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILE = ROOT / "cli/tokenize/unicode_ranges.cc"
HEADER = ROOT / "cli/tokenize/unicode_ranges.h"


def ranges(category):
    """The runs of code points whose general category begins with that letter."""
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != category:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, category):
    entries = [f"{{0x{first:X}, 0x{last:X}}}" for first, last in ranges(category)]
    lines, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) > 97:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    lines.append(line)
    body = "\n".join(lines)
    return f"constexpr CodeRange {name}[] = {{\n{body}\n}};\n"


def source():
    return ("// Written by tests/cli/tokenize/unicode_ranges.py --write.\n"
            '#include "cli/tokenize/unicode_ranges.h"\n\nnamespace lockstep::cli {\nnamespace {\n\n'
            "// clang-format off\n"
            + table("kLetters", "L") + "\n" + table("kNumbers", "N") +
            "// clang-format on\n\n}  // namespace\n\n"
            "std::span<const CodeRange> letter_ranges() {\n  return kLetters;\n}\n\n"
            "std::span<const CodeRange> number_ranges() {\n  return kNumbers;\n}\n\n"
            "}  // namespace lockstep::cli\n")


def main(arguments):
    version = re.search(r"Unicode (\d+\.\d+\.\d+)", HEADER.read_text()).group(1)
    if version != unicodedata.unidata_version:
        print(f"Unicode {unicodedata.unidata_version} here, {version} in the table: not compared")
        return 77
    if arguments == ["--write"]:
        FILE.write_text(source())
        return 0
    same = FILE.read_text() == source()
    count = sum(last - first + 1 for category in "LN" for first, last in ranges(category))
    print(f"{count} letters and numbers of Unicode {version}, " + ("as in the table" if same else f"not those of {FILE}"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

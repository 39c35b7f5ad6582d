#!/usr/bin/env python3
"""The programs are hardened as cmake/Hardening.cmake says: this reads their ELF files.

    hardening_test.py PROGRAM...
"""
import os
import re
import subprocess
import sys

# Each property of a program, and a pattern that the output of readelf matches for such programs only.
PRESENT = (
    ("a place that changes with each run (-pie)", r"^\s*Type:\s+DYN \(Position-Independent Executable"),
    ("memory that is read-only after relocation (-z relro)", r"^\s*GNU_RELRO\s"),
    ("all functions bound before it starts (-z now)", r"\(FLAGS_1\)\s+Flags:.*\bNOW\b"),
    ("a stack that cannot be executed (-z noexecstack)", r"^\s*GNU_STACK\s.*\sRW\s+(?:0x)?[0-9a-f]+$"),
    ("checked stack frames (-fstack-protector-strong)", r"\sUND __stack_chk_fail(?:@|$)"),
    ("checked calls of the C library (_FORTIFY_SOURCE)",
     r"\sUND __(?:mem|str|v?s?n?printf|v?fprintf|read|pread|recv|fgets|realpath|readlink)\w*_chk(?:@|$)"),
    ("checked containers (_GLIBCXX_ASSERTIONS)", r"\sUND _ZSt21__glibcxx_assert_fail\w*(?:@|$)"),
)
# Properties that no program may have.
ABSENT = (
    ("memory that is both written and executed", r"^\s*(?:LOAD|GNU_STACK)\s.*\sRWE\s"),
    ("relocations in code", r"\(TEXTREL\)"),
)


def findings(text):
    """What readelf's output shows to be missing, or to be there although it should not."""
    found = [f"without {name}" for name, pattern in PRESENT if not re.search(pattern, text, re.MULTILINE)]
    return found + [f"with {name}" for name, pattern in ABSENT if re.search(pattern, text, re.MULTILINE)]


def main(programs):
    failures = 0
    for program in programs:
        result = subprocess.run(["readelf", "--wide", "--file-header", "--program-headers", "--dynamic", "--dyn-syms",
                                 program], env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=True)
        for finding in findings(result.stdout):
            print(f"{program}: {finding}")
            failures += 1
    print(f"{len(programs)} programs, {failures} findings")
    return 1 if failures or not programs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

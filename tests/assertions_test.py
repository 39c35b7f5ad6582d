#!/usr/bin/env python3
"""Every test can fail: each TEST, TEST_F and TEST_P has an assertion.

An assertion is a macro of GoogleTest (EXPECT_, ASSERT_, FAIL, ADD_FAILURE) or a call of a helper: a
function of tests/ whose name begins with expect_, or one of HELPERS. Helpers have an assertion too.

    assertions_test.py [PATH...]     checks these files or folders, by default all of tests/
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Helpers whose names do not begin with expect_.
HELPERS = ("run_covering_array",)

HELPER = "|".join([r"expect_\w+", *HELPERS])
ASSERTION = re.compile(rf"\b(?:(?:EXPECT|ASSERT)_\w+|FAIL|ADD_FAILURE|{HELPER})\s*(?:<[^()]*>)?\(")
# Where the body of a test or a helper begins; the name is group 1 or 2.
BODY = re.compile(rf"^TEST(?:_F|_P)?\(([^)]*)\)\s*\{{|\bvoid\s+({HELPER})\([^;{{]*\)[\sa-z]*\{{", re.MULTILINE)
# Comments, raw strings, strings and characters: what they contain is not code.
OPAQUE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"
                        |(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.DOTALL | re.VERBOSE)


def code_of(text):
    """The text without comments and strings, each line where it was."""
    return OPAQUE.sub(lambda match: '""' + "\n" * match.group().count("\n"), text)


def body_end(code, begin):
    """Where the brace before `begin` is closed."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(code, begin):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    raise ValueError("a brace is not closed")


def findings(text):
    """The line and the name of each body without an assertion, and how many tests there are."""
    code = code_of(text)
    bare, tests = [], 0
    for body in BODY.finditer(code):
        tests += body[1] is not None
        if not ASSERTION.search(code, body.end(), body_end(code, body.end())):
            name = re.sub(r"\s*,\s*", ".", (body[1] or body[2]).strip())
            bare.append((code.count("\n", 0, body.start()) + 1, name))
    return bare, tests


def sources(arguments):
    for path in [pathlib.Path(a).resolve() for a in arguments] or [ROOT / "tests"]:
        yield from [path] if path.is_file() else sorted(p for p in path.rglob("*")
                                                        if p.suffix in (".cc", ".h"))


def main(arguments):
    failures, tests = [], 0
    for path in sources(arguments):
        bare, count = findings(path.read_text(encoding="utf-8"))
        tests += count
        failures += [f"{path.relative_to(ROOT)}:{line}: {name} has no assertion" for line, name in bare]
    for failure in failures:
        print(failure)
    print(f"{tests} tests, {len(failures)} bodies without an assertion")
    return 1 if failures or tests == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Comments are plain English: none begins a sentence with a word that makes it a fragment.

Reads the comments of every C++, CUDA, Python, shell and CMake file that git tracks or will track. A
comment is a run of adjacent comment lines, or the end of a line of code. The waiver list may only shrink: a waiver that
no longer matches anything fails too.

    comments_test.py [--list] [PATH...]     checks these files or folders, by default all;
                                            --list prints findings without failing
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

FIRST_WORDS = ("Of", "Whose", "Whom", "That", "What", "Who", "Beside", "Behind")
PHRASES = ("beside", "whoever", "whomever", "thereof", "so many", "so much of")

# (file, words with which the sentence begins), each with its reason. At most MAX_WAIVERS, which only shrinks.
WAIVERS: dict[tuple[str, str], str] = {}
MAX_WAIVERS = 0

LINE_COMMENT = {".h": "//", ".cc": "//", ".cu": "//", ".cuh": "//", ".in": "//", ".go": "//",
                ".py": "#", ".sh": "#", ".cmake": "#", ".txt": "#", "": "#"}
SENTENCE = re.compile(r"(?:^|(?<=[.!?:;]\s))(" + "|".join(FIRST_WORDS) + r")\b")
# A word in quotes or code is somebody else's.
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
PHRASE = re.compile(r"\b(" + "|".join(PHRASES) + r")\b", re.IGNORECASE)


def language(path):
    """What begins a comment in this file, or None."""
    if path.name in ("Dockerfile", "CMakeLists.txt") or path.parent.name in ("tools", ".ci"):
        return "#"
    if path.suffix == ".txt":
        return None
    return LINE_COMMENT.get(path.suffix) if path.suffix else None


def comment_of(line, mark):
    """The comment of a line and whether the line has nothing else; None where there is no comment."""
    stripped = line.strip()
    if stripped.startswith(mark):
        return stripped[len(mark):].strip(), True
    if mark == "//":
        code = re.sub(r"\"(\\.|[^\"\\])*\"", '""', line)
        at = code.find("// ")
        if at >= 0:
            return code[at + 2:].strip(), False
    return None


def comments(text, mark):
    """Line number and text of each comment."""
    block, begin = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        found = comment_of(line, mark)
        if found and found[1]:
            begin = begin if block else number
            block.append(found[0])
            continue
        if block:
            yield begin, " ".join(block)
            block = []
        if found:
            yield number, found[0]
    if block:
        yield begin, " ".join(block)


def findings(path, text):
    """Line number and the first words of each sentence that is flagged."""
    mark = language(pathlib.Path(path))
    if mark is None:
        return
    for number, comment in comments(text, mark):
        plain = QUOTED.sub('""', comment)
        for match in [*SENTENCE.finditer(plain), *PHRASE.finditer(plain)]:
            yield number, " ".join(plain[match.start():].split()[:6])


def files_of(arguments):
    """The files of the checkout, also those that git does not track yet."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--",
                             *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in listed if name and not name.startswith("bench/results") and (ROOT / name).exists()]


def self_test():
    source = ('// Of the first kind.\nint a;  // Sum. What is left.\nconst char* b = "// Of";\n'
              "// Returns the sum\n// of all. Whose is it?\n")
    found = list(findings("x.cc", source))
    assert [line for line, _ in found] == [1, 2, 4], found
    assert list(findings("tools/x", "# waits for whoever\n")), "phrases are found in shell scripts too"


def main(arguments):
    self_test()
    only_list = "--list" in arguments
    unused = dict(WAIVERS)
    errors, files = 0, 0
    for path in files_of([one for one in arguments if one != "--list"]):
        try:
            text = (ROOT / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        files += 1
        for number, words in findings(path, text):
            waived = [key for key in WAIVERS if key[0] == path and words.startswith(key[1])]
            for key in waived:
                unused.pop(key, None)
            if not waived:
                errors += 1
                print(f"{path}:{number}: not plain English: {words} ...")
    if len(WAIVERS) > MAX_WAIVERS:
        errors += 1
        print(f"{len(WAIVERS)} waivers, expected at most {MAX_WAIVERS}: rewrite the comment instead")
    if len(arguments) == 0:
        for path, words in unused:
            errors += 1
            print(f"the waiver for {path} ({words}) matches nothing: remove it")
    if errors:
        print(f"Begin a sentence with its subject, not with {', '.join(FIRST_WORDS)}, and leave out "
              f"{', '.join(PHRASES)} (CONTRIBUTING.md, House style)")
    print(f"{files} files, {errors} comments flagged, {len(WAIVERS)} waivers")
    return 1 if (errors and not only_list) or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

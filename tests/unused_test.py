#!/usr/bin/env python3
"""Every function and constant that a header of the programs declares is used by a program or a benchmark.

What only tests use belongs into tests/. Only names are compared, so a used function hides an unused
one of the same name. A function that only unused functions call is unused too.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("common/", "kernels/", "agent/", "controller/", "local/", "cli/")

# Functions that only tests call, each with the reason why it stays. This list only shrinks.
OPERATIONS = "Communicator has every operation, waiting and not waiting"
DEFINITION = "writes the definition of TrainingJob, which tests compare with the chart's"
WAIVERS = {
    "all_policies": "the simulator runs the controller with a mistake in one policy",
    "jump": "ManualClock is a fake, for all folders",
    "restore": "resets a server for the next input of a fuzz target",
    "start_all_to_all": OPERATIONS,
    "start_broadcast": OPERATIONS,
    "training_job_fields": DEFINITION,
    "with_cel_rules": DEFINITION,
}

WORD = re.compile(r"[A-Za-z_]\w*")
OPAQUE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"
                        |(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.DOTALL | re.VERBOSE)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)
ACCESS = re.compile(r"^(?:\s*(?:public|private|protected)\s*:)+")
TEMPLATE = re.compile(r"^\s*template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*")
NAMESPACE = re.compile(r'(?:inline\s+)?namespace\b|extern\s*""')
TYPE = re.compile(r"(?:struct|class|union|enum)\b[^()]*(?:alignas\([^)]*\)[^()]*)?$")
# Their parentheses are not those of a declared function.
SPECIFIER = re.compile(r"\b(?:requires|explicit|alignas|noexcept|decltype|__\w+__)\s*"
                       r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]", re.DOTALL)
CONSTANT = re.compile(r"\bconst(?:expr)?\b[^=({]*\b(k[A-Z]\w*)\s*(?:\[\w*\])?\s*(?:=|$)")
NOT_DECLARED = re.compile(r"\s*(?:using|friend|typedef|static_assert)\b")


def declared_function(statement):
    """The name of the function that a statement outside of bodies declares or defines, else None."""
    statement = SPECIFIER.sub("", statement)
    depth = 0
    for at, character in enumerate(statement):
        depth += (character == "<") - (character == ">" and depth > 0)
        if character == "=" and depth == 0:
            return None
        if character == "(" and depth == 0:
            name = re.search(r"(?<!~)\b([A-Za-z_]\w*)\s*$", statement[:at])
            return name and name.group(1)
    return None


def lines_of(match):
    """Only the line breaks of a match, so that all lines stay where they are."""
    return "\n" * match.group().count("\n")


class Names:
    """The functions and constants that headers declare, and which function uses which name."""

    def __init__(self):
        self.places = {}  # by the name of a function: path and line of its declaration
        self.users = collections.defaultdict(set)  # by name: functions, or "" for other code
        self.constants = {}  # by name: path and line
        self.counts = collections.Counter()  # how often each name is written

    def read(self, path, text):
        text = OPAQUE.sub(lambda match: ("" if match.group()[0] == "/" else '""') + lines_of(match), text)
        for directive, rest in DIRECTIVE.findall(text):
            if directive != "include":
                self.use(rest, "")
        text = DIRECTIVE.sub(lines_of, text)
        is_header = path.startswith(PROGRAMS) and path.endswith((".h", ".cuh"))
        scopes, begin, owner = [], 0, ""  # scopes: whether each open brace begins a body
        for match in re.finditer(r"[{};]", text):
            statement, begin = text[begin:match.start()], match.end()
            if match.group() == "}":
                self.use(statement, owner)
                if scopes:
                    scopes.pop()
                owner = owner if any(scopes) else ""
                continue
            if any(scopes):
                self.use(statement, owner)
            else:
                line = text.count("\n", 0, match.start()) + 1
                place = f"{path}:{line}" if is_header else None
                owner = self.declare(place, statement)
                constant = CONSTANT.search(statement)
                if constant and place:
                    self.constants[constant.group(1)] = place
            if match.group() == "{":
                scopes.append(any(scopes) or not self.is_scope(statement))
            owner = owner if any(scopes) else ""

    def declare(self, place, statement):
        statement = TEMPLATE.sub("", ACCESS.sub("", statement))
        name = None if NOT_DECLARED.match(statement) else declared_function(statement)
        self.use(re.sub(rf"\b{name}\b", "", statement, count=1) if name else statement, name or "")
        if place and name and not re.search(r"\boverride\b|=\s*delete", statement):
            self.places.setdefault(name, place)
        return name or ""

    @staticmethod
    def is_scope(statement):
        statement = TEMPLATE.sub("", ACCESS.sub("", statement)).strip()
        return bool(NAMESPACE.match(statement) or TYPE.match(statement))

    def use(self, text, owner):
        for name in WORD.findall(text):
            self.users[name].add(owner)
            self.counts[name] += 1

    def unused_constants(self):
        return {name for name in self.constants if self.counts[name] == 1}

    def unused(self, waived=()):
        """The functions that nothing uses but themselves and other unused ones."""
        found = set()
        while True:
            more = {name for name in self.places
                    if name not in found and name not in waived and self.users[name] <= found | {name}}
            if not more:
                return found
            found |= more


def self_test():
    names = Names()
    names.read("common/a.h", """
namespace a {
int used(int x);  // unused()
class A final : public B {
 public:
  explicit A(int x) : x_(helper(x)) {}
  int size() const override { return x_; }
  int bare() const { return x_; }
 private:
  int x_ = start();
};
template <class T> requires(sizeof(T) == 4)
std::function<void(int)> unused(const T& x, int y = fallback()) { return unused(x, 1) + only_there(); }
int helper(int);
int start();
int fallback();
int only_there();
constexpr int kUsed = 1;
inline constexpr char kUnused[] = "kUnused";
}
""")
    names.read("common/a.cc", 'int a::used(int x) { return x; }\nnamespace { A a("bare()"); int b = used(kUsed); }\n')
    assert names.unused() == {"unused", "bare", "fallback", "only_there"}, names.unused()
    assert names.unused({"unused"}) == {"bare"}, names.unused({"unused"})
    assert names.unused_constants() == {"kUnused"}, names.unused_constants()


def main():
    self_test()
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc", "*.cu", "*.cuh"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    names = Names()
    for path in listed:
        if path.startswith((*PROGRAMS, "bench/")) and (ROOT / path).exists():
            names.read(path, (ROOT / path).read_text())
    unused = names.unused(WAIVERS)
    for name in sorted(unused):
        print(f"{names.places[name]}: no program uses {name}(): remove it, or move it to tests/")
    constants = names.unused_constants()
    for name in sorted(constants):
        print(f"{names.constants[name]}: no program uses {name}: remove it, or move it to tests/")
    needless = [name for name in WAIVERS if name not in names.unused(WAIVERS.keys() - {name})]
    for name in needless:
        print(f"tests/unused_test.py: {name} needs no waiver any more")
    print(f"{len(names.places)} functions and {len(names.constants)} constants, "
          f"{len(unused) + len(constants)} unused, {len(WAIVERS)} waivers")
    return 1 if unused or constants or needless or min(len(names.places), len(names.constants)) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())

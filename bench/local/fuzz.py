#!/usr/bin/env python3
"""Runs the embedded server's fuzz targets for a while, and reports coverage and findings.

Runs the targets (of a build of the preset `fuzz`) two at a time, each for its share of --seconds.
They run in turns of at most --turn seconds, so that a target that stops is noticed early and the
others still get their time. Inputs that a target finds in a turn stay in --work for its next one.
Prints a table and the findings; exits with 1 if there are any.
"""
import argparse
import concurrent.futures
import dataclasses
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SERVER = ("http", "target", "json", "patch", "apply", "selector", "table", "protobuf", "schema")
# `server` reaches the code of all other targets, so it gets a larger share.
SHARES = {**{name: 1 for name in SERVER}, "server": 3}
FINDINGS_MAX = 5  # per target: more are mostly duplicates
# -entropic=0: with this number of edges, finding the rarest inputs takes half of the time.
LIMITS = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-entropic=0",
          "-print_final_stats=1"]
# Targets that keep state from one input to the next. It is no leak, so leak detection is off.
LEAVES_SOMETHING = ("server",)


@dataclasses.dataclass
class Tally:
    executions: int = 0
    seconds: float = 0
    edges: int = 0
    features: int = 0
    seeds: int = 0
    longest_seconds: int = 0
    memory_mb: int = 0
    findings: list = dataclasses.field(default_factory=list)


def run_turn(name, seconds, seed, options):
    """Runs a target once. Returns the finished process and the seconds it took."""
    folder = options.work / name
    corpus, found = folder / "corpus", folder / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    command = [options.build / "bin" / f"fuzz_{name}", f"-max_total_time={seconds}",
               f"-seed={seed}", f"-artifact_prefix={found}/", *LIMITS,
               f"-detect_leaks={int(name not in LEAVES_SOMETHING)}", corpus,
               ROOT / "tests/fuzz/corpus" / name]
    begun = time.monotonic()
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                           errors="replace", timeout=seconds + 120)
    return ended, time.monotonic() - begun


def add_turn(tally, ended, seconds):
    text = ended.stderr
    number = lambda pattern: max((int(n) for n in re.findall(pattern, text)), default=0)
    tally.executions += number(r"stat::number_of_executed_units: (\d+)")
    tally.seconds += seconds
    tally.edges = max(tally.edges, number(r"cov: (\d+)"))
    tally.features = max(tally.features, number(r"ft: (\d+)"))
    tally.longest_seconds = max(tally.longest_seconds,
                                number(r"stat::slowest_unit_time_sec: (\d+)"))
    tally.memory_mb = max(tally.memory_mb, number(r"stat::peak_rss_mb: *(\d+)"))
    if ended.returncode != 0:
        what = re.findall(r"^(?:SUMMARY: .*|.*CHECK failed.*|.*runtime error: .*)$", text, re.M)
        where = re.findall(r"Test unit written to (\S+)", text)
        tally.findings.append((what[:2] or text.splitlines()[-3:], where))


def fuzz(name, options):
    tally = Tally()
    tally.seeds = len(list((ROOT / "tests/fuzz/corpus" / name).iterdir()))
    left = round(options.seconds * SHARES[name] / sum(SHARES[n] for n in options.targets))
    seed = options.seed
    while left > 0:
        ended, seconds = run_turn(name, min(left, options.turn), seed, options)
        seed += 1
        add_turn(tally, ended, seconds)
        left -= max(1, round(seconds))
        if len(tally.findings) == FINDINGS_MAX:
            break
    return tally


def print_table(tallies, options):
    print("| target | seconds | executions | each second | edges | features | corpus: seeds, new |"
          " longest input | memory | found |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, tally in tallies.items():
        new = len(list((options.work / name / "corpus").iterdir()))
        print(f"| {name} | {tally.seconds:.0f} | {tally.executions:,} |"
              f" {tally.executions / max(tally.seconds, 1e-9):,.0f} | {tally.edges:,} |"
              f" {tally.features:,} | {tally.seeds}, {new} | {longest(tally)} |"
              f" {tally.memory_mb} MB | {len(tally.findings)} |")
    total = sum(tally.executions for tally in tallies.values())
    print(f"| all | {sum(tally.seconds for tally in tallies.values()):.0f} | {total:,} |"
          f" | | | | | | {sum(len(tally.findings) for tally in tallies.values())} |")


def longest(tally):
    return f"{tally.longest_seconds} s" if tally.longest_seconds else "< 1 s"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-fuzz")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build-fuzz/long",
                        help="where corpora grow and findings are put")
    parser.add_argument("--seconds", type=int, default=600, help="of all targets together")
    parser.add_argument("--turn", type=int, default=60, help="seconds of a target without a break")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", default=list(SHARES), metavar="TARGET")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in SHARES]
    if unknown:
        parser.error(f"no such targets: {', '.join(unknown)}; there are {', '.join(SHARES)}")
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        done = pool.map(lambda name: fuzz(name, options), options.targets)
        tallies = dict(zip(options.targets, done))
    print_table(tallies, options)
    for name, tally in tallies.items():
        for what, where in tally.findings:
            print(f"\n{name}: {' '.join(where)}\n  " + "\n  ".join(what))
    return 1 if any(tally.findings for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures how fast workers with slow steps are, by the consistency of their parameter server, and draws it.

  bench/server/consistency.py --bench build-release/bin/bench_consistency --picture FILE.svg

A step pulls 256 KiB, computes for 20 ms, and pushes 256 KiB. Computing is a sleep, so that more workers than CPUs can
be measured. Slow steps compute three times as long: none of them, a random tenth of each worker's, or all of the last
worker's. A rate counts the gradients that were added to parameters: late pushes of synchronous training with backup
workers do not count.

All kinds take turns. Prints a Markdown table with medians over the turns. The picture has the clock of each worker in
one run of a permanently slow one. Exits with 1 if a pull was further ahead of the slowest worker than its bound, or if
staleness 3 kept less than 90 % of the asynchronous rate with random slow steps.
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys

Kind = collections.namedtuple("Kind", "name options bound")
KINDS = (
    Kind("asynchronous", ("--kind", "asynchronous"), None),
    *(Kind(f"bounded staleness {bound}", ("--kind", "boundedStaleness", "--staleness", str(bound)), bound)
      for bound in (10, 3, 1, 0)),
    Kind("synchronous", ("--kind", "synchronous"), 0),
    *(Kind(f"synchronous, {backups} backup", ("--kind", "synchronous", "--backup", str(backups)), None)
      for backups in (1, 2)),
)
SLOWNESSES = {"none": "no slow step", "random": "a random tenth", "one": "one slow worker"}
DRAWN = ("asynchronous", "bounded staleness 3", "synchronous", "synchronous, 1 backup")
SHARE_MIN = 0.9
# The picture, in pixels.
WIDTH, HEIGHT, LEFT, TOP, GAP = 190, 150, 50, 34, 24
DRAWN_SECONDS = 3


def measure(options, kind, slowness, seed):
    command = [options.bench, *kind.options, "--slow", slowness, "--seed", str(seed), "--workers", str(options.workers),
               "--seconds", str(options.seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def lines_of(run, left, height_of):
    """Returns a line for each worker: its steps over time. The slow one is the last."""
    lines = []
    for worker, ends in enumerate(run["ends"]):
        points = [(second, step + 1) for step, second in enumerate(ends) if second <= DRAWN_SECONDS]
        path = " ".join(f"{left + WIDTH * second / DRAWN_SECONDS:.1f},{height_of(step):.1f}" for second, step in points)
        color, width = ("#c0392b", 2) if worker + 1 == len(run["ends"]) else ("#2c6fbb", 1)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>')
    return lines


def picture(runs):
    """Returns an SVG: a panel for each run, with the same scales."""
    top = max(sum(second <= DRAWN_SECONDS for second in ends) for run in runs.values() for ends in run["ends"])
    bottom = TOP + HEIGHT

    def height_of(step):
        return bottom - HEIGHT * step / top
    width = LEFT + len(runs) * (WIDTH + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 40}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for panel, (name, run) in enumerate(runs.items()):
        left = LEFT + panel * (WIDTH + GAP)
        parts += [f'<text x="{left}" y="{TOP - 12}">{name}</text>',
                  f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
        parts += lines_of(run, left, height_of)
        parts += [f'<text x="{left + WIDTH * second / DRAWN_SECONDS}" y="{bottom + 16}" text-anchor="middle">{second}</text>'
                  for second in range(DRAWN_SECONDS + 1)]
    parts += [f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">{top}</text>',
              f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
              f'<text x="{LEFT - 6}" y="{TOP + HEIGHT / 2}" text-anchor="end">steps</text>',
              f'<text x="{LEFT}" y="{bottom + 34}">seconds; red: the worker that is three times slower</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def row_of(kind, found, asynchronous):
    cells, good = [kind.name], True
    for slowness in SLOWNESSES:
        runs = found[kind.name, slowness]
        rate = statistics.median(run["perSecond"] for run in runs)
        share = statistics.median(run["perSecond"] / base["perSecond"]
                                  for run, base in zip(runs, found[asynchronous.name, slowness]))
        ahead = max(run["ahead"] for run in runs)
        cells.append(f"{rate:.0f} | {100 * share:.0f} % | {ahead}")
        good &= kind.bound is None or ahead <= kind.bound
        if kind.bound == 3 and slowness == "random":
            good &= share >= SHARE_MIN
    return f"| {' | '.join(cells)} |", good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", default="build/bin/bench_consistency")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--picture", type=pathlib.Path, help="an SVG file to write")
    options = parser.parse_args()
    found = collections.defaultdict(list)
    for turn in range(options.turns):
        for slowness in SLOWNESSES:
            for kind in KINDS:
                found[kind.name, slowness].append(measure(options, kind, slowness, turn + 1))
    print(f"{options.workers} workers, {options.turns} turns of {options.seconds} s. Gradients per second of all workers, "
          "the share of the asynchronous rate, and the most clocks that a pull was ahead of the slowest worker.\n")
    names = " | ".join(f"{name}: per s | share | ahead" for name in SLOWNESSES.values())
    print(f"| consistency | {names} |\n|" + "---|" * (1 + 3 * len(SLOWNESSES)))
    all_good = True
    for kind in KINDS:
        row, good = row_of(kind, found, KINDS[0])
        print(row)
        all_good &= good
    if options.picture:
        options.picture.write_text(picture({name: found[name, "one"][0] for name in DRAWN}))
    sys.exit(0 if all_good else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what it costs to record the timeline of every step.

  bench/train/timeline_cost.py BIN [--pairs N] [--limit PERCENT] [-- OPTION...]   BIN: the folder with bench_step

Takes turns with and without the recording as same_speed.py does with two builds. OPTIONs go to bench_step. Prints the
ratio of tokens/s, with to without, of each pair, then the median and a confidence interval of 95 % for it. As the
difference is smaller than most noise, it also counts: the records of a step times the measured cost of one, as a part of
the step, and how long the ranks compare clocks and write the file at the end of a recording. --pairs 0 only counts. With
--limit it fails if the records cost more than PERCENT of a step, or the whole interval is below 1 - PERCENT / 100.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from same_speed import OPTIONS, interval, ratios_of


def counted(program, folder, options):
    """Records once. Prints what the records of a step cost, and returns it in percent of the step."""
    output = subprocess.run([*program, *options], stdout=subprocess.PIPE, text=True, check=True).stdout
    numbers = json.loads(output.splitlines()[-1])
    timeline = json.loads(next(pathlib.Path(folder).rglob("*-rank-00000.json")).read_text())
    records = (len(timeline["records"]) + timeline["dropped"]) / len(timeline["steps"])
    step, record = numbers["stepSeconds"], numbers["recordSeconds"]
    percent = 100 * records * record / step
    print(f"{records:.1f} records a step, {1e9 * record:.1f} ns each, {percent:.5f} % of a step of {1000 * step:.2f} ms; "
          f"{1000 * numbers['timelineSeconds']:.2f} ms at the end of a recording of {len(timeline['steps'])} steps")
    return percent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--limit", type=float)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    options = sys.argv[end + 1:] or OPTIONS
    if 0 < arguments.pairs < 6:
        parser.error("--pairs: expected 0 or at least 6, fewer give no interval of 95 %")
    with tempfile.TemporaryDirectory() as folder:
        plain = [f"{arguments.bin}/bench_step"]
        recorded = [*plain, "--timeline", folder]
        percent, high = counted(recorded, folder, options), 1.0
        if arguments.pairs > 0:
            ratios = ratios_of(plain, recorded, arguments.pairs, options)
            low, high = interval(ratios)
            print(f"median ratio {statistics.median(ratios):.4f}, 95 % between {low:.4f} and {high:.4f}, "
                  f"{len(ratios)} pairs")
    limit = arguments.limit
    if limit is not None and (percent > limit or high < 1 - limit / 100):
        sys.exit(f"recording costs more than {limit} %")


main()

#!/usr/bin/env python3
"""Measures what it costs to record the timeline of every step.

  bench/train/timeline_cost.py BIN [--pairs N] [--limit PERCENT] [-- OPTION...]   BIN: the folder with bench_step

Takes turns with and without the recording as same_speed.py does with two builds. OPTIONs go to bench_step. Prints the
ratio of tokens/s, with to without, of each pair, then the median and a confidence interval of 95 % for it, and how long
the ranks compare clocks and write the file of a recording. With --limit it fails if the whole interval is below
1 - PERCENT / 100.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from same_speed import OPTIONS, interval, ratios_of


def seconds_to_write(program, options):
    """Returns the seconds at the end of a recording, and those of a step."""
    output = subprocess.run([*program, *options], stdout=subprocess.PIPE, text=True, check=True).stdout
    numbers = json.loads(output.splitlines()[-1])
    return numbers["timelineSeconds"], numbers["stepSeconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--limit", type=float)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    options = sys.argv[end + 1:] or OPTIONS
    if arguments.pairs < 6:
        parser.error("--pairs: expected at least 6, fewer give no interval of 95 %")
    with tempfile.TemporaryDirectory() as folder:
        plain = [f"{arguments.bin}/bench_step"]
        recorded = [*plain, "--timeline", folder]
        ratios = ratios_of(plain, recorded, arguments.pairs, options)
        low, high = interval(ratios)
        print(f"median ratio {statistics.median(ratios):.4f}, 95 % between {low:.4f} and {high:.4f}, "
              f"{len(ratios)} pairs")
        written, step = seconds_to_write(recorded, options)
        print(f"at the end of a recording: {1000 * written:.2f} ms, with steps of {1000 * step:.2f} ms")
    if arguments.limit is not None and high < 1 - arguments.limit / 100:
        sys.exit(f"recording costs more than {arguments.limit} %")


main()

#!/usr/bin/env python3
"""Compares the speed of two builds so closely that a change of 1 % shows.

  bench/train/same_speed.py OLD NEW [--pairs N] [-- OPTION...]   OLD, NEW: folders with bench_step

The two builds run at the same time, each on a CPU of its own, and change places after every run. What slows the
machine down so slows both, and a faster CPU serves each of them equally often. OPTIONs go to bench_step. Prints the
ratio of tokens/s, new to old, of each pair of runs with exchanged places, then the median and a confidence interval of
95 % for it (order statistics of the sign test).
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

OPTIONS = ["--preset", "kjv", "--threads", "1", "--warmup", "5", "--steps", "40"]


def start(program, cpu, options):
    command = ["taskset", "--cpu-list", str(cpu), *program, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def tokens_per_second(process):
    output, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"bench_step ended with exit code {process.returncode}")
    return json.loads(output.splitlines()[-1])["tokensPerSecond"]


def both(old, new, cpus, options):
    """Returns the speeds of the old and the new command, on these CPUs at the same time."""
    processes = [start(program, cpu, options) for program, cpu in zip((old, new), cpus)]
    return [tokens_per_second(process) for process in processes]


def interval(values):
    """Returns the bounds of the shortest symmetric interval that has the median with 95 %."""
    values, n = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < n // 2:
        outside += 2 * math.comb(n, rank) / 2**n
        if outside > 0.05:
            break
        rank += 1
    return values[max(rank - 1, 0)], values[n - max(rank, 1)]


def ratios_of(old, new, pairs, options):
    """Measures two commands in turns, prints each pair, and returns the ratios of their speeds."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        sys.exit("expected two CPUs, found one")
    ratios = []
    for pair in range(pairs):
        first = both(old, new, cpus, options)
        second = both(old, new, cpus[::-1], options)
        ratios.append(math.sqrt(first[1] / first[0] * second[1] / second[0]))
        print(f"pair {pair + 1}: {first[0]:.0f} and {second[0]:.0f} tokens/s old, {first[1]:.0f} and "
              f"{second[1]:.0f} new, ratio {ratios[-1]:.4f}", flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=12)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    options = sys.argv[end + 1:] or OPTIONS
    if arguments.pairs < 6:
        parser.error("--pairs: expected at least 6, fewer give no interval of 95 %")
    old, new = ([f"{folder}/bench_step"] for folder in (arguments.old, arguments.new))
    ratios = ratios_of(old, new, arguments.pairs, options)
    low, high = interval(ratios)
    print(f"median ratio {statistics.median(ratios):.4f}, 95 % between {low:.4f} and {high:.4f}, {len(ratios)} pairs")


if __name__ == "__main__":
    main()

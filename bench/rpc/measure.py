#!/usr/bin/env python3
"""Runs bench_rpc and PyTorch's RPC in turns, and prints Markdown tables of their medians.

    measure.py --bench build-release/bin/bench_rpc [--torch PYTHON] [--rounds 5] [--servers 1,2,4]
               [--sizes 1048576,16777216,...] [--small 8,...] [--keys 1000,...] [--paths tcp,shm] [--iterations N]

PYTHON is an interpreter that has torch; without it, PyTorch is left out. Each round runs everything once. A figure is
the median of the rounds' medians; ratios are of medians of the same round, with their range.
"""
import argparse
import collections
import pathlib
import statistics
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def lines_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(command)}: exit code {done.returncode}", file=sys.stderr)
    return [line.split() for line in done.stdout.splitlines()]


def one_round(arguments, results, rates):
    shared = ["--sizes", arguments.sizes, "--small", arguments.small, "--keys", arguments.keys, "--iterations", arguments.iterations]
    for servers in arguments.servers.split(","):
        for path in arguments.paths.split(","):
            lines = lines_of([arguments.bench, *shared, "--servers", servers, "--paths", path])
            if arguments.torch and path in ("tcp", "shm"):
                lines += lines_of([arguments.torch, str(FOLDER / "torch_rpc.py"), *shared, "--servers", servers, "--path", path])
            for line in lines:
                if line[0] == "takeover":
                    rates[line[0], line[2]].append(float(line[4]))
                elif line[2] == "echo_rate":
                    rates[line[0], int(line[1]), int(line[3])].append(float(line[4]))
                else:
                    results[line[0], int(line[1]), line[2], int(line[3])].append([float(value) for value in line[4:]])


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


# Columns of a result, after its key.
WALL, LAST, CPU, COPY_WALL, COPY_CPU, PLAIN_WALL, PLAIN_CPU = range(7)


def ratio(rounds, bound, ours):
    found = [each[bound] / each[ours] for each in rounds if each[bound] > 0]
    return spread(found) if found else "-"


def torch_ratio(results, key, ours, column):
    theirs = results.get(("torch-" + key[0], *key[1:]))
    if not theirs:
        return "-"
    return spread([other[column] / own[column] for own, other in zip(ours, theirs)])


def dense_table(results):
    print("| path | servers | operation | bytes | median | GB/s | memcpy's time / ours | in CPU time | plain connection's time / ours "
          "| in CPU time | PyTorch's time / ours | in CPU time |")
    print("|---" * 12 + "|")
    for key in sorted(results):
        path, servers, operation, size = key
        if path.startswith("torch") or operation == "echo":
            continue
        rounds = results[key]
        median = statistics.median(each[WALL] for each in rounds)
        print(f"| {path} | {servers} | {operation} | {size} | {median / 1000:.2f} ms | {size / median / 1000:.2f} | "
              f"{ratio(rounds, COPY_WALL, WALL)} | {ratio(rounds, COPY_CPU, CPU)} | {ratio(rounds, PLAIN_WALL, WALL)} | "
              f"{ratio(rounds, PLAIN_CPU, CPU)} | {torch_ratio(results, key, rounds, WALL)} | {torch_ratio(results, key, rounds, CPU)} |")


def small_table(results, rates):
    print("| path | servers | bytes | p50 | p99 | CPU time | plain connection: p50 | CPU time | calls/s, 64 under way | PyTorch's p50 / ours "
          "| in CPU time | calls/s / PyTorch's |")
    print("|---" * 12 + "|")
    for key in sorted(results):
        path, servers, operation, size = key
        if path.startswith("torch") or operation != "echo":
            continue
        rounds = results[key]
        middle = [statistics.median(each[i] for each in rounds) for i in range(7)]
        ours, theirs = rates[path, servers, size], rates.get(("torch-" + path, servers, size))
        faster = spread([own / other for own, other in zip(ours, theirs)]) if theirs else "-"
        print(f"| {path} | {servers} | {size} | {middle[WALL]:.1f} us | {middle[LAST]:.1f} us | {middle[CPU]:.1f} us | {middle[PLAIN_WALL]:.1f} us | "
              f"{middle[PLAIN_CPU]:.1f} us | {statistics.median(ours):.0f} | {torch_ratio(results, key, rounds, WALL)} | "
              f"{torch_ratio(results, key, rounds, CPU)} | {faster} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", default="0", help="of each operation in a round; 0: by size")
    parser.add_argument("--servers", default="1,2,4")
    parser.add_argument("--sizes", default="1048576,16777216,67108864,268435456")
    parser.add_argument("--small", default="8,512,4096")
    parser.add_argument("--keys", default="1000,100000")
    parser.add_argument("--paths", default="tcp,shm")
    arguments = parser.parse_args()
    results, rates = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(arguments.rounds):
        one_round(arguments, results, rates)
    dense_table(results)
    print()
    small_table(results, rates)
    for name in ("export_import", "call_again"):
        print(f"\ntakeover, {name}: {statistics.median(rates['takeover', name]):.0f} us")


if __name__ == "__main__":
    main()

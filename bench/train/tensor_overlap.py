#!/usr/bin/env python3
"""Compares tensor parallelism of two builds on two ranks: what it gains that sums overlap with computation.

  bench/train/tensor_overlap.py OLD NEW [--pods 2] [--rate 2gbit]     OLD, NEW: folders with bin/lockstep

The builds take turns; every other turn begins with the new one. Each trains a GPT-2 with one thread for each rank. With
--pods 2 the ranks use TCP, with --pods 1 they share memory. --rate limits the loopback interface of a network namespace
of its own (tc-tbf; needs root): both directions of the link share it. Prints the median step of each build (and the
lower quartile, which other load disturbs less), the part of it that ranks wait for communication, CPU seconds of a whole
job, and the median ratio of the turns. Both builds must end with the same loss, to 1e-4.
"""
import argparse
import os
import pathlib
import resource
import statistics
import sys
import tempfile

import local_job

MODEL = {"layers": 8, "width": 256, "heads": 4, "context": 128, "vocabulary": 4096}
TINY = {"layers": 1, "width": 64, "heads": 4, "context": 32, "vocabulary": 512}
RANKS = 2


def limit_network(rate):
    """Starts this program again in a network namespace, whose loopback interface has this rate."""
    script = (f"ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 256kb latency 50ms && "
              'exec "$@"')
    os.environ["LOCKSTEP_LIMITED"] = "1"
    os.execvp("unshare", ["unshare", "-n", "sh", "-ec", script, "sh", sys.executable, *sys.argv])


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def turn(build, options, train, folder):
    """Runs one job. Returns its timed steps, its CPU seconds and its last loss."""
    before = cpu_seconds()
    with tempfile.TemporaryDirectory(dir=folder) as output:
        output = pathlib.Path(output) / "job"
        spec = local_job.job(train, options.pods, RANKS // options.pods,
                             {"tensor": RANKS, "sequenceParallel": options.sequence})
        local_job.run(pathlib.Path(build).resolve() / "bin/lockstep", spec, output, options.limit)
        steps = local_job.steps(output)
    return [step["seconds"] for step in steps[options.warmup:]], cpu_seconds() - before, steps[-1]["loss"]


def all_turns(options, folder):
    """Returns the turns of each build: name -> [(seconds of steps, CPU seconds, loss)]."""
    model = TINY if options.tiny else MODEL
    batch = options.micro * options.micro_batches
    tokens = local_job.write_tokens(folder, model["vocabulary"], batch * model["context"] * 4 + 1)
    train = {"model": model, "data": {"path": str(tokens), "tokenizer": "u16"},
             "steps": options.warmup + options.steps, "batch": {"global": batch, "micro": options.micro},
             "recompute": "none", "optimizer": {"learningRate": 1e-3, "schedule": "constant"}}
    builds = [("old", options.old), ("new", options.new)]
    turns = {"old": [], "new": []}
    for index in range(options.turns):
        for name, build in builds if index % 2 == 0 else builds[::-1]:
            turns[name].append(turn(build, options, train, folder))
    losses = [one[2] for each in turns.values() for one in each]
    if max(losses) - min(losses) > 1e-4 * min(losses):
        sys.exit(f"losses differ: {losses}")
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pods", type=int, default=2, choices=(1, 2))
    parser.add_argument("--rate", help="of the network, as tc writes it; none: not limited")
    parser.add_argument("--sequence", action="store_true", help="sequenceParallel")
    parser.add_argument("--micro", type=int, default=2, help="sequences of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=4, help="of a step")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=6, help="timed in each turn")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds that one turn may take")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the program")
    options = parser.parse_args()
    if options.rate and not os.environ.get("LOCKSTEP_LIMITED"):
        limit_network(options.rate)
    with tempfile.TemporaryDirectory() as folder:
        turns = all_turns(options, pathlib.Path(folder))
    medians = {name: [statistics.median(step["total"] for step in one[0]) for one in each]
               for name, each in turns.items()}
    for name, each in turns.items():
        totals = sorted(step["total"] for one in each for step in one[0])
        waits = statistics.median(step["communication"] for one in each for step in one[0])
        print(f"{name}: step {1e3 * statistics.median(medians[name]):.0f} ms ({1e3 * min(medians[name]):.0f} to "
              f"{1e3 * max(medians[name]):.0f}), lower quartile {1e3 * totals[len(totals) // 4]:.0f} ms, waits "
              f"{1e3 * waits:.0f} ms, {statistics.median(one[1] for one in each):.2f} CPU seconds a job")
    ratios = [old / new for old, new in zip(medians["old"], medians["new"])]
    print(f"speed, new to old: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) in "
          f"{len(ratios)} turns; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Disturbs one rank of a job, and measures how long Lockstep takes to name it, in each layout.

  bench/train/named.py --build build-release
  bench/train/named.py --build build-release --faults stopped --layouts "tensor 2; pipeline 2"
  bench/train/named.py --build build-release --faults none --minutes 30

The jobs are those of recovery.py: 4 processes on 2 nodes of this machine, with `lockstep run`. A rank is named by a
line that `lockstep run` prints, from the job's status. The victim is drawn by a seed. Faults:
- stopped: the rank is stopped (SIGSTOP), as if its GPU hung. Expected: a failure of this rank, for the reason Hang
- slow: the rank is stopped for two thirds of the time, 10 ms in 15, which makes it about twice as slow where ranks
  share cores. Expected: a warning that this rank takes longer. The agents average over a minute, so it is named at the
  end of the first or the second one
- nan: plain SGD with a learning rate of 100, so that the loss is soon not finite. Expected: the job ends, for LossNotFinite.
  No rank is to blame
- none: nothing is disturbed for --minutes; no rank may be named

Prints Markdown; exits with 1 if a fault was not named, or another rank was.
"""
import argparse
import collections
import math
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time

import local_job
from checkpoints import processor
from recovery_jobs import LAYOUTS, NO_LIMIT, LockstepJob

LIMIT_SECONDS = 400
SLICE_SECONDS = 0.005
SETTLED_STEPS = 20  # before a fault
DIVERGES = {"name": "sgd", "learningRate": 100, "clipNorm": 0, "schedule": "constant"}
NAMES = {"stopped": re.compile(r"failure: rank (\d+): Hang"),
         "slow": re.compile(r"warning: rank (\d+)\b.* takes [\d.]+ times as long as its peers"),
         "nan": re.compile(r"LossNotFinite|loss .*(?:nan|inf)", re.I)}
FALSE_ALARM = re.compile(r"failure: .*|warning: .*")
Cell = collections.namedtuple("Cell", "rank seconds step text right")


def wait_for(what, condition, job, seconds=LIMIT_SECONDS):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if (found := condition()) is not None:
            return found
        time.sleep(0.02)
    raise local_job.JobFailed(f"waited in vain for {what}: {errors_of(job)[-1500:]}")


def errors_of(job):
    return pathlib.Path(job.errors.name).read_text(errors="replace")


class SlowedDown:
    """Stops a process for two thirds of the time, while it is a context."""

    def __init__(self, pid):
        self.pid, self.over = pid, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.over.wait(SLICE_SECONDS):
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(2 * SLICE_SECONDS)
                os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def settled(job):
    """Waits until the job trains; returns its ranks and the round."""
    current = wait_for("rank 0", lambda: job.round_after(None), job)
    wait_for("the first steps", lambda: (current.step() >= SETTLED_STEPS) or None, job)
    return job.workers(), current


def line_of(job, pattern):
    """Returns a function that finds the first line with the pattern, or None."""
    return lambda: next((line for line in errors_of(job).splitlines() if pattern.search(line)), None)


def named(job, fault, rank, began):
    line = wait_for(f"the name of {fault}", line_of(job, NAMES[fault]), job)
    found = NAMES[fault].search(line)
    right = rank is None or int(found[1]) == rank
    return line.strip(), right, time.monotonic() - began


def step_seconds(job):
    seconds = job.step_seconds()[5:]
    return statistics.median(seconds) if seconds else math.nan


def disturb(options, fault, job, draw):
    if fault == "nan":
        began = time.monotonic()
        text, right, seconds = named(job, fault, None, began)
        return Cell("-", seconds, math.nan, text, right)
    workers, current = settled(job)
    if fault == "none":
        time.sleep(60 * options.minutes)
        alarm = line_of(job, FALSE_ALARM)()
        return Cell("-", 60 * options.minutes, step_seconds(job), alarm or f"{current.step()} steps", alarm is None)
    rank = draw.choice(sorted(workers))
    median, began = step_seconds(job), time.monotonic()
    if fault == "stopped":
        os.kill(workers[rank], signal.SIGSTOP)
        text, right, seconds = named(job, fault, rank, began)
    else:
        with SlowedDown(workers[rank]):
            text, right, seconds = named(job, fault, rank, began)
    return Cell(rank, seconds, median, text, right)


def measure(options, fault, layout, draw):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        extra = {"optimizer": DIVERGES} if fault == "nan" else {}
        with LockstepJob(options, layout, "stay", NO_LIMIT, output, extra) as job:
            return disturb(options, fault, job, draw)


def row(options, fault, layout, draw):
    try:
        cell = measure(options, fault, layout, draw)
    except local_job.JobFailed as failure:
        cell = Cell("-", math.nan, math.nan, str(failure).replace("\n", " ")[-300:], False)
    text = cell.text.replace("|", "/")
    print(f"| {fault} | {layout} | {cell.rank} | {cell.seconds:.1f} | {1e3 * cell.step:.1f} | {text[:150]} | "
          f"{'yes' if cell.right else 'NO'} |", flush=True)
    return cell.right


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--layouts", default="; ".join(LAYOUTS), help="names, with ; between them")
    parser.add_argument("--faults", default="stopped,slow,nan", help="stopped, slow, nan, none")
    parser.add_argument("--minutes", type=float, default=30, help="of the fault none")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.layouts = [name.strip() for name in options.layouts.split(";")]
    options.faults = [name.strip() for name in options.faults.split(",")]
    options.checkpoint, options.memory, options.copies, options.tiny = 100_000, 1, 0, False
    return options


def main():
    options = parse()
    for given, known in ((options.layouts, LAYOUTS), (options.faults, (*NAMES, "none"))):
        if unknown := [name for name in given if name not in known]:
            sys.exit(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    draw, good = random.Random(options.seed), True
    print(f"{processor()}, {len(os.sched_getaffinity(0))} CPUs\n\n"
          "| fault | layout | rank | named after, s | step, ms | as | right |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        options.text = pathlib.Path(folder) / "text"
        options.text.write_bytes(random.Random(1).randbytes(1 << 20))
        for fault in options.faults:
            for layout in options.layouts:
                good &= row(options, fault, layout, draw)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Kills a process of a training job again and again, and measures what each recovery costs.

  bench/train/recovery.py --build build-release                             # 10 minutes, a kill each 60 s
  bench/train/recovery.py --build build-release --every 30 --minutes 5
  bench/train/recovery.py --build build-release --victim agent
  bench/train/recovery.py --build build-release --layouts all --minutes 1 --every 3

The job trains with 4 processes on 2 nodes, with `lockstep run` on this machine, and keeps its states in
memory. The victim is drawn by a seed: a rank, or the agent of a node, which is what a lost pod looks like.
First the job runs undisturbed. Then it runs again with the kills, and must end with the same losses and the
same bits. Of each kill:
- next step: seconds until the first step that was not done before
- resumed: seconds until training has the state that it resumes from
- lost: steps that were done and are done again
Productive time is the time of all steps, each with the median of the undisturbed run, over the time of the
disturbed run from its first step on. The progress page of rank 0 (docs/formats.md) tells the steps.
Prints Markdown; exits with 1 if bits differ, or if more than one step is lost when a worker was killed.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import local_job
import stored_tensors
from checkpoints import SMALL, TINY, processor
from rank_kills import PHASES, page_of

NODES, PER_NODE = 2, 2
POLL_SECONDS = 0.002
LIMIT_SECONDS = 120
LAYOUTS = {
    "replicated": {},
    "ZeRO-1": {"sharding": "optimizer"},
    "ZeRO-2": {"sharding": "gradients"},
    "ZeRO-3": {"sharding": "parameters"},
    "tensor 2": {"tensor": 2},
    "pipeline 2": {"pipeline": 2},
    "pipeline 2 x tensor 2": {"pipeline": 2, "tensor": 2},
    "pipeline 2, ZeRO-3": {"pipeline": 2, "sharding": "parameters"},
}


def wait_for(what, condition, process):
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        if (found := condition()) is not None:
            return found
        time.sleep(POLL_SECONDS)
    raise local_job.JobFailed(f"waited in vain for {what}")


class Job:
    """A job that runs. With a context manager, it is ended."""

    def __init__(self, options, layout, steps, output):
        self.output = output
        self.program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        train = {"model": TINY if options.tiny else SMALL, "data": {"path": str(options.text), "tokenizer": "bytes"},
                 "steps": steps, "batch": {"global": 16}, "optimizer": {"schedule": "constant"}}
        checkpoint = {"everySteps": options.checkpoint, "keep": 2}
        if options.memory:
            checkpoint["memory"] = {"everySteps": options.memory}
        spec = local_job.job(train, NODES, PER_NODE, LAYOUTS[layout], checkpoint, restarts=1_000_000)
        file = output.with_suffix(".json")
        file.write_text(json.dumps(spec))
        self.errors = open(output.with_suffix(".errors"), "w")
        self.result = open(output.with_suffix(".result"), "w")
        self.process = subprocess.Popen([str(self.program), "run", str(file), "--output", str(output), "-o", "json"],
                                        stdin=subprocess.DEVNULL, stdout=self.result, stderr=self.errors,
                                        start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        local_job.end(self.process)
        self.errors.close()
        self.result.close()

    def workers(self):
        """Returns the pid of each rank."""
        found = {}
        for pid in local_job.below(self.process.pid):
            if (rank := local_job.rank_of(pid)) is not None:
                found[rank] = pid
        return found

    def agents(self):
        found = []
        for pid in local_job.below(self.process.pid):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue
            if words[0].endswith("lockstep-agent"):
                found.append(pid)
        return found

    def wait(self):
        if self.process.wait() != 0:
            text = pathlib.Path(self.errors.name).read_text(errors="replace")
            raise local_job.JobFailed(f"exit code {self.process.returncode}: {text[-1500:]}")


def steps_of(pages):
    return max((page.step_and_phase()[0] for page in pages), default=0)


class Disturbed:
    """Kills processes of a job, and takes the times."""

    def __init__(self, options, job, draw):
        self.options, self.job, self.draw = options, job, draw
        self.kills = []  # next step, resumed, lost
        self.first_step_at = None

    def page_of_first(self, old=None):
        """Returns the page of rank 0's process, of a new one if `old` is given, once it trains."""
        pid = self.job.workers().get(0)
        if pid is None or pid == old:
            return None
        page = page_of(pid)
        return (pid, page) if page else None

    def run(self):
        pid, page = wait_for("rank 0", self.page_of_first, self.job.process)
        wait_for("the first step", lambda: page.step_and_phase()[0] or None, self.job.process)
        self.first_step_at = last = time.monotonic()
        while self.job.process.poll() is None:
            if time.monotonic() - last < self.options.every:
                time.sleep(0.05)
                continue
            last = time.monotonic()
            if not self.kill(pid, page):
                break
            pid, page = self.pid, self.page
        self.job.wait()
        self.ended_at = time.monotonic()

    def kill(self, first, page):
        """Returns whether the job goes on."""
        workers = self.job.workers()
        pages = [found for pid in workers.values() if (found := page_of(pid))]
        if len(workers) < NODES * PER_NODE or page.step_and_phase()[1] != PHASES["training"]:
            self.pid, self.page = first, page
            return True  # it ends, or saves just now
        victims = self.job.agents() if self.options.victim == "agent" else list(workers.values())
        os.kill(self.draw.choice(sorted(victims)), signal.SIGKILL)
        killed = time.monotonic()
        found = wait_for("the next round", lambda: self.page_of_first(first), self.job.process)
        self.pid, self.page = found
        reached = steps_of(pages)
        resumed = wait_for("the state to resume from", self.resumed_step, self.job.process)
        resumed_at = time.monotonic()
        if self.options.steps and reached >= self.options.steps:
            return False
        wait_for("the next step", lambda: (self.page.step_and_phase()[0] > reached) or None, self.job.process)
        self.kills.append((time.monotonic() - killed, resumed_at - killed, reached - resumed))
        return True

    def resumed_step(self):
        step = self.page.notes().resumed_step
        return step if step >= 0 and self.page.step_and_phase()[1] >= PHASES["training"] else None


def result_of(job):
    losses = [(numbers["step"], numbers["loss"]) for numbers in local_job.steps(job.output)]
    newest = max(job.output.glob("checkpoints/step-*"))
    tensors = stored_tensors.read_checkpoint(newest)
    return losses, {name: hashlib.sha256(tensor.data).hexdigest() for name, tensor in tensors.items()}


def step_seconds(output):
    return [numbers["seconds"]["total"] for numbers in local_job.steps(output) if "seconds" in numbers]


def percentile(values, ratio):
    values = sorted(values)
    return values[min(len(values) - 1, int(ratio * len(values)))]


def measure(options, layout, folder):
    steps = options.steps
    if not steps:
        with Job(options, layout, 60, folder / "calibration") as job:
            job.wait()
        median = statistics.median(step_seconds(job.output)[10:])
        steps = max(20, int(60 * options.minutes / median))
    with Job(options, layout, steps, folder / "undisturbed") as job:
        job.wait()
        expected = result_of(job)
        median = statistics.median(step_seconds(job.output)[5:])
    with Job(options, layout, steps, folder / "disturbed") as job:
        disturbed = Disturbed(options, job, random.Random(options.seed))
        disturbed.run()
        same = result_of(job) == expected
    wall = disturbed.ended_at - disturbed.first_step_at
    return steps, median, disturbed.kills, same, 100 * (steps - 1) * median / wall


def row(options, layout, folder):
    steps, median, kills, same, productive = measure(options, layout, folder)
    nexts, resumes, losts = zip(*kills) if kills else ([0], [0], [0])
    cells = [layout, f"{steps}", f"{1e3 * median:.1f}", f"{len(kills)}",
             f"{statistics.median(nexts):.2f}, {percentile(nexts, 0.99):.2f}", f"{statistics.median(resumes):.2f}",
             f"{max(losts)}", f"{productive:.1f}", "yes" if same else "NO"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return same and len(kills) > 0 and (options.victim == "agent" or max(losts) <= options.memory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--every", type=float, default=60, help="seconds between kills")
    parser.add_argument("--minutes", type=float, default=10, help="of the undisturbed run of each layout")
    parser.add_argument("--victim", choices=("worker", "agent"), default="worker")
    parser.add_argument("--layouts", default="replicated", help="names, with ; between them, or all: "
                        + "; ".join(LAYOUTS))
    parser.add_argument("--memory", type=int, default=1, help="spec.checkpoint.memory.everySteps; 0: none")
    parser.add_argument("--checkpoint", type=int, default=500, help="spec.checkpoint.everySteps")
    parser.add_argument("--steps", type=int, default=0, help="of the job; 0: as many as the minutes allow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="a small run that keeps this program working")
    options = parser.parse_args()
    layouts = list(LAYOUTS) if options.layouts == "all" else options.layouts.split("; ")
    if unknown := [name for name in layouts if name not in LAYOUTS]:
        parser.error(f"no layout has the name {unknown[0]!r}")
    print(f"{processor()}. A {options.victim} is killed each {options.every:g} s, seed {options.seed}.\n")
    print("| layout | steps | step, ms | kills | kill to next step, median and p99, s | to resumed state, s "
          "| most steps lost | productive, % | same bits |\n|" + "---|" * 9, flush=True)
    good = True
    for layout in layouts:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            options.text = folder / "text"
            options.text.write_bytes(random.Random(7).randbytes(1 << 20))
            good &= row(options, layout, folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills a process of a training job again and again, and measures what each recovery costs.

  bench/train/recovery.py --build build-release                             # 10 minutes, a kill each 60 s
  bench/train/recovery.py --build build-release --every 30 --minutes 5
  bench/train/recovery.py --build build-release --victim agent
  bench/train/recovery.py --build build-release --layouts all --minutes 1 --every 3
  bench/train/recovery.py --build build-release --layouts all --minutes 1.5 --every 0.7 --results FOLDER
  bench/train/recovery.py --build build-release --survivors both --minutes 1 --turns 3 --every 3

  python3 -m venv env && env/bin/pip install torch numpy    # a current release
  bench/train/recovery.py --build build-release --peer torchrun --python env/bin/python --minutes 5 --turns 2

The job trains with 4 processes on 2 nodes, with `lockstep run` on this machine, and keeps its states in
memory. The victim is drawn by a seed: a rank, or the agent of a node, which is what a lost pod looks like. The
states in an agent's memory are lost with it, so each agent then keeps a copy of the other one's.
First the job runs undisturbed. Then it runs again with the kills, and must end with the same losses and the
same bits. Of each kill:
- next step: seconds until the first step that was not done before
- resumed: seconds until training has the state that it resumes from
- lost: steps that were done and are done again
Productive time is the time of all steps, each with the median of the undisturbed run, over the time of the
disturbed run from its first step on. The same share of the undisturbed run shows what saves cost without
kills. The progress page of rank 0 (docs/formats.md) tells the steps.

With --peer torchrun, PyTorch takes turns with Lockstep: two torchrun agents on loopback train a model of the
same shape with DDP (torch_recovery.py). PyTorch's store listens on all addresses, so everything then runs in a
network namespace of its own, which needs root. They save with torch.distributed.checkpoint in the background. Each
interval of --peer-checkpoint is a job of its own. The default is near the best one by Young's formula,
sqrt(2 x cost of a save x time between kills): a save takes 0.3 s of CPU time of all ranks, on 2 CPUs. With
shorter intervals torchrun loses fewer steps and spends more time on saves. After a restart its losses may
differ in the last bit.

With --results, a layout's row is kept in that folder, and a layout that has one is not run again, so that a long
series can be interrupted. Rows of other options, or of another lockstep-worker, are refused.

Prints Markdown; exits with 1 if Lockstep's bits differ, or if it lost more steps than lie between two states
that survive the victim, and with 77 if --python has no suitable PyTorch.
"""
import argparse
import collections
import hashlib
import json
import math
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
from checkpoints import processor
from recovery_jobs import LAYOUTS, NODES, PER_NODE, LockstepJob, TorchrunJob

POLL_SECONDS = 0.002
LIMIT_SECONDS = 300
CALIBRATION_STEPS = 60
IN_NAMESPACE = "LOCKSTEP_BENCH_IN_NAMESPACE"
TORCH_CHECK = "from torch.distributed.checkpoint import async_save"
# start: a function of steps and output that starts a job; is_ours: whether it has to meet Lockstep's targets.
Program = collections.namedtuple("Program", "name start is_ours")
Kill = collections.namedtuple("Kill", "next_step resumed lost")
# undisturbed, disturbed: seconds of the two runs, from the first step to the end.
Turn = collections.namedtuple("Turn", "steps median undisturbed disturbed kills difference")


def wait_for(what, condition, job):
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit and job.process.poll() is None:
        if (found := condition()) is not None:
            return found
        time.sleep(POLL_SECONDS)
    if job.process.poll():
        job.wait()  # raises with what the job said
    raise local_job.JobFailed(f"waited in vain for {what}")


class Disturbed:
    """Kills a process of a job each `every` seconds until the job ends, and takes the times."""

    def __init__(self, job, every, victim="worker", draw=None):
        self.job, self.every, self.victim, self.draw = job, every, victim, draw
        self.kills = []
        self.round = None

    def run(self):
        """Returns the seconds from the first step to the end."""
        self.round = wait_for("rank 0", lambda: self.job.round_after(None), self.job)
        wait_for("the first step", lambda: self.round.step() or None, self.job)
        first_step_at = last = time.monotonic()
        while self.job.process.poll() is None:
            if time.monotonic() - last < self.every:
                time.sleep(0.05)
                continue
            last = time.monotonic()
            if not self.kill():
                break
        self.job.wait()
        return time.monotonic() - first_step_at

    def kill(self):
        """Returns whether the job goes on."""
        workers, before = self.job.workers(), self.round
        if len(workers) < NODES * PER_NODE or not before.is_training():
            return True  # it ends, or saves just now
        reached, newest = self.job.reached(before), 0

        def next_round():
            nonlocal newest
            newest = max(newest, reached())
            return self.job.round_after(before.id)

        victims = self.job.agents() if self.victim == "agent" else list(workers.values())
        os.kill(self.draw.choice(sorted(victims)), signal.SIGKILL)
        killed = time.monotonic()
        self.round = wait_for("the next round", next_round, self.job)
        reached = max(newest, reached())
        resumed = wait_for("the state to resume from", self.round.resumed_step, self.job)
        resumed_at = time.monotonic()
        if reached >= self.job.steps:
            return False
        wait_for("the next step", lambda: (self.round.step() > reached) or None, self.job)
        self.kills.append(Kill(time.monotonic() - killed, resumed_at - killed, reached - resumed))
        return True


def percentile(values, ratio):
    values = sorted(values)
    return values[min(len(values) - 1, int(ratio * len(values)))]


def difference(found, expected):
    """Compares the losses and digests of two runs. Returns what differs, or an empty text."""
    (losses, digests), (expected_losses, expected_digests) = found, expected
    if len(losses) != len(expected_losses):
        return f"{len(losses)} losses, expected {len(expected_losses)}"
    for (step, loss), (_, expected_loss) in zip(losses, expected_losses):
        if loss != expected_loss:
            return f"losses differ from step {step} on: {loss}, expected {expected_loss}"
    return "" if digests == expected_digests else "only the parameters at the end differ"


def calibrated(options, program, folder):
    """Returns the steps of the job: as many as its minutes allow."""
    if options.steps:
        return options.steps
    with program.start(CALIBRATION_STEPS, folder / "calibration") as job:
        job.wait()
        median = statistics.median(job.step_seconds()[10:])
    return max(20, int(60 * options.minutes / median))


def measure(options, program, steps, seed):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        steps = steps or calibrated(options, program, folder)
        with program.start(steps, folder / "undisturbed") as job:
            undisturbed = Disturbed(job, math.inf).run()
            expected = job.losses(), job.digests()
            median = statistics.median(job.step_seconds()[5:])
        with program.start(steps, folder / "disturbed") as job:
            disturbed = Disturbed(job, options.every, options.victim, random.Random(seed))
            seconds = disturbed.run()
            found = difference((job.losses(), job.digests()), expected)
    return Turn(steps, median, undisturbed, seconds, disturbed.kills, found)


def row(options, program, turns):
    """Returns the row of a program, and whether it met Lockstep's targets."""
    kills = [kill for turn in turns for kill in turn.kills]
    nexts, resumes, losts = zip(*kills) if kills else ([0], [0], [0])
    useful = sum((turn.steps - 1) * turn.median for turn in turns)
    same = not any(turn.difference for turn in turns)
    bound = options.memory if options.copies or options.victim == "worker" else options.checkpoint
    cells = [program.name, f"{sum(turn.steps for turn in turns)}",
             f"{1e3 * statistics.median(turn.median for turn in turns):.1f}", f"{len(kills)}",
             f"{statistics.median(nexts):.2f}, {percentile(nexts, 0.99):.2f}", f"{statistics.median(resumes):.2f}",
             f"{statistics.mean(losts):.1f}, {max(losts)}",
             f"{100 * useful / sum(turn.undisturbed for turn in turns):.1f}",
             f"{100 * useful / sum(turn.disturbed for turn in turns):.1f}", "yes" if same else "NO"]
    return f"| {' | '.join(cells)} |", same and len(kills) > 0 and max(losts) <= bound


def compare(options, programs):
    """Runs the programs in turns. Returns their rows, and whether Lockstep met the targets."""
    turns = {program: [] for program in programs}
    for turn in range(options.turns):
        for program in programs:
            steps = turns[program][0].steps if turn else 0
            done = measure(options, program, steps, options.seed + turn)
            turns[program].append(done)
            print(f"turn {turn}: {program.name}: {done.undisturbed:.1f} s, with kills {done.disturbed:.1f} s: "
                  + ", ".join(f"{kill.next_step:.2f}" for kill in done.kills)
                  + (f"; {done.difference}" if done.difference else ""), file=sys.stderr, flush=True)
    rows, good = [], True
    for program in programs:
        text, is_good = row(options, program, turns[program])
        rows.append(text)
        good &= is_good or not program.is_ours
    return rows, good


class Results:
    """The rows of layouts that were measured before, in a folder; none without one."""

    def __init__(self, options):
        self.folder = options.results and pathlib.Path(options.results)
        worker = pathlib.Path(options.build) / "bin" / "lockstep-worker"
        skipped = ("results", "layouts", "text")
        made_by = {key: value for key, value in vars(options).items() if key not in skipped}
        self.made_by = {**made_by, "worker": hashlib.sha256(worker.read_bytes()).hexdigest()}

    def path(self, layout):
        return self.folder / (layout.replace(" ", "_").replace(",", "") + ".json")

    def find(self, layout):
        if not self.folder or not self.path(layout).exists():
            return None
        found = json.loads(self.path(layout).read_text())
        if found["made_by"] != self.made_by:
            sys.exit(f"{self.path(layout)}: it was made with {found['made_by']}, expected {self.made_by}")
        return found["rows"], found["good"]

    def keep(self, layout, rows, good):
        if not self.folder:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"made_by": self.made_by, "rows": rows, "good": good}, indent=1)
        unfinished = self.path(layout).with_suffix(".tmp")
        unfinished.write_text(text)
        unfinished.rename(self.path(layout))


def lockstep(options, layout, survivors):
    name = layout if len(options.survivors) == 1 else f"{layout}, survivors {survivors}"
    return Program(name, lambda steps, output: LockstepJob(options, layout, survivors, steps, output), True)


def torchrun(options, every):
    return Program(f"torchrun, DDP, saves each {every} steps",
                   lambda steps, output: TorchrunJob(options, every, steps, output), False)


def has_torch(python):
    try:
        return subprocess.run([python, "-c", TORCH_CHECK], capture_output=True).returncode == 0
    except OSError:
        return False  # there is no such interpreter


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--every", type=float, default=60, help="seconds between kills")
    parser.add_argument("--minutes", type=float, default=10, help="of the undisturbed run of each job and turn")
    parser.add_argument("--turns", type=int, default=1, help="of each job")
    parser.add_argument("--victim", choices=("worker", "agent"), default="worker")
    parser.add_argument("--layouts", default="replicated", help="names, with ; between them, or all: "
                        + "; ".join(LAYOUTS))
    parser.add_argument("--survivors", choices=("stay", "respawn", "both"), default="stay",
                        help="what the other ranks do when one is lost; both: in turns")
    parser.add_argument("--memory", type=int, default=1, help="spec.checkpoint.memory.everySteps; 0: none")
    parser.add_argument("--copies", type=int, choices=(0, 1), help="spec.checkpoint.memory.copies. Default: 1 if agents are "
                        "killed, whose memory goes with them, else 0")
    parser.add_argument("--checkpoint", type=int, default=500, help="spec.checkpoint.everySteps")
    parser.add_argument("--peer", choices=("torchrun",), help="takes turns with the layout replicated")
    parser.add_argument("--peer-checkpoint", type=lambda text: [int(item) for item in text.split(",")], default=[50],
                        help="steps between the peer's saves; several with commas")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch, for the peer")
    parser.add_argument("--steps", type=int, default=0, help="of the job; 0: as many as the minutes allow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", help="a folder that keeps the rows; a layout that has one is not run again")
    parser.add_argument("--tiny", action="store_true", help="a small run that keeps this program working")
    options = parser.parse_args()
    options.survivors = ["stay", "respawn"] if options.survivors == "both" else [options.survivors]
    if options.copies is None:
        options.copies = 1 if options.victim == "agent" else 0
    options.layouts = list(LAYOUTS) if options.layouts == "all" else options.layouts.split("; ")
    if unknown := [name for name in options.layouts if name not in LAYOUTS]:
        parser.error(f"no layout has the name {unknown[0]!r}")
    if options.peer and (options.victim != "worker" or "replicated" not in options.layouts):
        parser.error("--peer needs the layout replicated, and --victim worker, as nothing restarts torchrun's agents")
    if min(options.turns, *options.peer_checkpoint) < 1:
        parser.error("expected --turns and --peer-checkpoint from 1")
    return options


def enter_network_namespace():
    """Starts this program again in a network namespace that has only a loopback device."""
    if os.environ.get(IN_NAMESPACE):
        return
    os.environ[IN_NAMESPACE] = "1"
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                          sys.executable, *sys.argv])


def main():
    options = parse()
    if options.peer and not has_torch(options.python):
        print(f"--peer torchrun: no PyTorch with torch.distributed.checkpoint.async_save for {options.python}; "
              "choose another interpreter with --python")
        sys.exit(77)
    if options.peer:
        enter_network_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the jobs
    peers = [torchrun(options, every) for every in options.peer_checkpoint] if options.peer else []
    print(f"{processor()}. A {options.victim} is killed each {options.every:g} s, seed {options.seed}.\n")
    print("| job | steps | step, ms | kills | kill to next step, median and p99, s | to resumed state, s "
          "| steps lost, mean and most | productive without kills, % | productive, % | same bits |\n|" + "---|" * 10,
          flush=True)
    good = True
    results = Results(options)
    with tempfile.TemporaryDirectory() as folder:
        options.text = pathlib.Path(folder) / "text"
        options.text.write_bytes(random.Random(7).randbytes(1 << 20))
        for layout in options.layouts:
            ours = [lockstep(options, layout, survivors) for survivors in options.survivors]
            found = results.find(layout)
            rows, is_good = found or compare(options, ours + (peers if layout == "replicated" else []))
            if not found:
                results.keep(layout, rows, is_good)
            print("\n".join(rows), flush=True)
            good &= is_good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

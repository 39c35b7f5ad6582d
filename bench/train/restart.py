#!/usr/bin/env python3
"""Measures the time from the kill of a rank to the next training step, for Lockstep and torchrun.

  bench/train/restart.py --build build --turns 3 --kills 3

All programs run examples/ddp.py, unchanged, with 4 processes on this machine and the same
checkpoint interval, and take turns. Lockstep runs 2 nodes x 2. torchrun runs one agent with 4
processes, and 2 agents x 2 that meet at a c10d rendezvous. In each turn ranks drawn by a seed are
killed (SIGKILL) at a step halfway between two checkpoints. Two times are measured:
  - until 4 new processes exist, which is the launcher's share;
  - until the first step after that is done. The script's own progress lines show it: the step
    repeats one that was done before.
Prints a Markdown table of medians with their spread. Exits with 77 if this machine has no PyTorch
for --python.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 4
EVERY = 20
POLL_SECONDS = 0.005
LIMIT_SECONDS = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def wait_for(what, condition):
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        found = condition()
        if found:
            return found
        time.sleep(POLL_SECONDS)
    sys.exit(f"waited in vain for {what}")


def rank_processes(program_folder):
    """Returns the pid of each rank of ddp.py that runs in the folder."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or os.readlink(entry / "cwd") != str(program_folder):
                continue
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [item[5:] for item in environment if item.startswith(b"RANK=")]
        if b"ddp.py" in words and ranks:
            found[int(ranks[0])] = int(entry.name)
    return found


class Run:
    """One run of the script; a subclass starts it."""

    def __init__(self, options, steps):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-restart-")).resolve()
        self.options = options
        self.script = ["ddp.py", "--steps", str(steps), "--every", str(EVERY),
                       "--checkpoint", str(self.folder / "checkpoints/ddp.pt")]
        shutil.copy(ROOT / "examples/ddp.py", self.folder)
        self.log = open(self.folder / "log", "w")
        self.started = time.monotonic()
        self.process = self.start()

    def launch(self, command, environment=None):
        return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log,
                                stderr=self.log, start_new_session=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})

    def steps_done(self):
        """Returns the steps in the progress file, in order; skips an unfinished last line."""
        try:
            text = self.progress_file().read_text()
        except (OSError, StopIteration):
            return []
        return [json.loads(line)["step"] for line in text.split("\n")[:-1]]

    def last_step(self):
        return (self.steps_done() or [0])[-1]

    def kill_and_time(self, rank, after_step):
        ranks = rank_processes(self.folder)
        wait_for(f"step {after_step}", lambda: self.last_step() >= after_step)
        self.mark()
        old = set(ranks.values())
        os.kill(ranks[rank], signal.SIGKILL)
        killed = time.monotonic()
        wait_for("new processes",
                 lambda: len(set(rank_processes(self.folder).values()) - old) == RANKS)
        launched = time.monotonic() - killed
        wait_for("a step after the restart", self.has_resumed)
        return launched, time.monotonic() - killed

    def end(self):
        try:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        for pid in rank_processes(self.folder).values():
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


class LockstepRun(Run):
    def start(self):
        command = json.dumps([self.options.python, *self.script])
        (self.folder / "job.yaml").write_text(
            "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: ddp}\nspec:\n"
            f"  nodes: 2\n  processesPerNode: {RANKS // 2}\n  threadsPerProcess: 1\n"
            f"  failure: {{maxRestarts: 1000}}\n  terminationGracePeriodSeconds: 1\n"
            f"  rendezvous: {{port: {free_port()}}}\n  command: {command}\n")
        program = pathlib.Path(self.options.build).resolve() / "bin/lockstep"
        return self.launch([str(program), "run", "job.yaml", "--output", str(self.folder / "out")])

    # Each round has its own progress file, which begins after a newer checkpoint.
    def mark(self):
        self.first_of_round = self.steps_done()[0]

    def has_resumed(self):
        steps = self.steps_done()
        return bool(steps) and steps[0] != self.first_of_round

    def progress_file(self):
        return next((self.folder / "out/node").glob("**/progress/rank-0.jsonl"))


class TorchrunRun(Run):
    def __init__(self, options, steps, interval, nodes):
        self.interval, self.nodes = interval, nodes
        super().__init__(options, steps)

    def agent(self, index, flags):
        # Name the streams: torchrun's own default is broken with Python 3.11.
        flags = ["--redirects", "2", "--tee", "1", "--log_dir", str(self.folder / f"logs-{index}"),
                 "--nnodes", str(self.nodes), "--nproc_per_node", str(RANKS // self.nodes),
                 "--max_restarts", "1000", "--monitor_interval", str(self.interval), *flags]
        return self.launch([self.options.python, "-m", "torch.distributed.run", *flags, *self.script],
                           {"LOCKSTEP_PROGRESS_FILE": str(self.folder / "progress.jsonl")})

    def start(self):
        if self.nodes == 1:
            return self.agent(0, ["--master_port", str(free_port())])
        flags = ["--rdzv_backend", "c10d", "--rdzv_id", "ddp",
                 "--rdzv_endpoint", f"localhost:{free_port()}"]
        self.others = [self.agent(index, flags) for index in range(1, self.nodes)]
        return self.agent(0, flags)

    def end(self):
        for agent in getattr(self, "others", []):
            agent.kill()
            agent.wait()
        super().end()

    def progress_file(self):
        return self.folder / "progress.jsonl"

    # All restarts share one file: steps done since the checkpoint appear again.
    def mark(self):
        self.lines_before = len(self.steps_done())

    def has_resumed(self):
        steps = self.steps_done()[max(self.lines_before - 1, 0):]
        return any(later <= earlier for earlier, later in zip(steps, steps[1:]))


def spread(values):
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def one_turn(start, ranks):
    """Starts a program and kills these ranks one after the other.

    Returns the seconds to the first step, and for each kill those that kill_and_time() returns.
    """
    run = start()
    try:
        wait_for("the first step", run.steps_done)
        first = time.monotonic() - run.started
        return first, [run.kill_and_time(rank, EVERY * (2 * kill + 1) + EVERY // 2)
                       for kill, rank in enumerate(ranks)]
    finally:
        run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3, help="of each turn")
    parser.add_argument("--intervals", default="5,0.1", help="torchrun's --monitor_interval, seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"no PyTorch for {options.python}")
        sys.exit(77)

    steps = 1_000_000  # a turn ends when its kills are done
    programs = [("Lockstep, 2 nodes x 2", lambda: LockstepRun(options, steps))]
    for text in filter(None, options.intervals.split(",")):
        default = ", its default" if float(text) == 5 else ""
        for nodes in (1, 2):
            programs.append((f"torchrun, {nodes} x {RANKS // nodes}, looking every {text} s{default}",
                             lambda i=text, n=nodes: TorchrunRun(options, steps, i, n)))
    firsts = {name: [] for name, _ in programs}
    times = {name: [] for name, _ in programs}
    draw = random.Random(options.seed)
    for turn in range(options.turns):
        ranks = [draw.randrange(RANKS) for _ in range(options.kills)]
        for name, start in programs:
            first, seconds = one_turn(start, ranks)
            firsts[name].append(first)
            times[name] += seconds
            print(f"turn {turn}: {name}: " + ", ".join(f"{a:.2f} {b:.2f}" for a, b in seconds),
                  file=sys.stderr)
    print("| program | kill to new processes | kill to next step | start to first step |")
    print("|---|---|---|---|")
    for name, _ in programs:
        launched, resumed = zip(*times[name])
        print(f"| {name} | {spread(launched)} | {spread(resumed)} | "
              f"{statistics.median(firsts[name]):.2f} s |")
    print(f"\n{len(times[programs[0][0]])} kills of each. Load of the machine at the end: "
          f"{os.getloadavg()[0]:.1f}; seed {options.seed}.")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills and stops processes of jobs with parameter servers, one in each run, and checks how the jobs end.

  bench/server/kills.py --build build-release --runs 200 --results FOLDER
  bench/server/kills.py --build build-release --runs 200 --results OTHER --servers 3 --copies 1

A job has 2 workers and --servers servers, trains a logistic regression on a generated click log, and saves every 25 steps. Each
run draws by its number a consistency, a victim (a worker, a server, the agent of a pod, which is lost with it, or with --victims node a
server's pod that falls silent, as on a lost node: its agent and its server are stopped), a fault (SIGKILL, or SIGSTOP of a rank) and a moment. The job must complete. With synchronous updates its last checkpoint must have the bits of a run
without faults: no push was lost or counted twice. With the others, whose bits depend on timing, the validation loss must
be within 2 % of that of such a run. With --copies, a server that is lost must not end the round.

The longest step is the longest time without a step of rank 0 after the fault.

With --results, what is known of a run is kept in that folder, and such a run is not done again. Prints Markdown; exits
with 1 if a run failed.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train"))
import local_job  # noqa: E402
from checkpoints import processor  # noqa: E402
from rank_kills import PHASES, page_of  # noqa: E402

WORKERS = 2
LIMIT_SECONDS = 180
CONSISTENCIES = {
    "synchronous": {"consistency": "synchronous"},
    "asynchronous": {"consistency": "asynchronous"},
    "bounded staleness 3": {"consistency": "boundedStaleness", "staleness": 3},
    "synchronous, 1 backup": {"consistency": "synchronous", "backupWorkers": 1},
}
VICTIMS = ("worker", "server", "agent", "node")
LOSS_RATIO = 1.02


def job_of(options, consistency, data):
    train = {"model": {"family": "logisticRegression"},
             "data": {"path": str(data), "format": "criteo", "validationFraction": 0.1}, "steps": options.steps,
             "batch": {"global": 2048}, "validation": {"everySteps": 100},
             "optimizer": {"name": "adagrad", "learningRate": 0.1, "schedule": "linear", "weightDecay": 0, "clipNorm": 0}}
    spec = {"nodes": WORKERS, "threadsPerProcess": 1, "train": train, "checkpoint": {"everySteps": 25, "keep": 2},
            "parameterServers": {"nodes": options.servers, "copies": options.copies, **CONSISTENCIES[consistency]},
            "failure": {"maxRestarts": 100, "rules": [{"event": "Hang", "after": "5s", "action": "RestartInPlace"}]}}
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "clicks"}, "spec": spec}


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    except OSError:
        return ""


def units(data):
    """Yields the units of a server's state (docs/formats.md): the ranges, and each row of the tables that was ever updated, without its uses.
    Other rows are functions of their keys, and a copy does not have those that were only pulled."""
    count, = struct.unpack_from("<Q", data, 40)
    at = 48
    for _ in range(count):
        kind, index, first, elements, _, floats = struct.unpack_from("<IIQQQQ", data, at)
        head, at = data[at:at + 40], at + 40
        size = 4 * elements * floats if kind == 1 else elements * (24 + 4 * floats)
        body, at = data[at:at + size], at + size
        if kind == 1:
            yield kind, index, first, head + body
            continue
        length = 24 + 4 * floats
        for i in range(0, size, length):
            row = body[i:i + length]
            if any(row[20:24]):
                yield kind, index, first, row[:8] + row[12:16] + row[20:]


def digest_of(folder):
    """Returns the digest of all parameters and states of a checkpoint. They may be at any server, and rows in any order."""
    digest = hashlib.sha256()
    for *_, unit in sorted(unit for file in folder.glob("server-*.state") for unit in units(file.read_bytes())):
        digest.update(unit)
    return digest.hexdigest()


class Fault:
    """Strikes a process once the job has trained for a while."""

    def __init__(self, draw, options):
        steps, self.servers = options.steps, options.servers
        self.victim = draw.choice(options.victims)
        self.stops = self.victim == "node" or (self.victim != "agent" and draw.random() < 0.25)
        self.after_steps = draw.randrange(5, steps * 4 // 5)
        self.choice = draw.random()
        self.struck_at = None
        self.hits_server = self.victim == "server"
        self.step_at = None
        self.longest_step_seconds = 0

    def text(self):
        return f"{self.victim} {'stopped' if self.stops else 'killed'} after step {self.after_steps}"

    def targets(self, root):
        pids = local_job.below(root)
        agents = sorted(pid for pid in pids if command_of(pid).endswith("lockstep-agent"))
        if self.victim == "agent":
            return agents
        if self.victim == "node":
            return [agent for agent in agents if self.has_server(agent)]
        first, last = (0, WORKERS) if self.victim == "worker" else (WORKERS, WORKERS + self.servers)
        ranks = {local_job.rank_of(pid): pid for pid in pids}
        return [pid for rank, pid in sorted(item for item in ranks.items() if item[0] is not None) if first <= rank < last]

    @staticmethod
    def has_server(agent):
        ranks = [local_job.rank_of(pid) for pid in local_job.below(agent)]
        return any(rank is not None and rank >= WORKERS for rank in ranks)

    def strike(self, target):
        os.kill(target, signal.SIGSTOP if self.stops else signal.SIGKILL)
        for pid in local_job.below(target) if self.victim == "node" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def look(self, root):
        ranks = {local_job.rank_of(pid): pid for pid in local_job.below(root)}
        page = page_of(ranks[0]) if 0 in ranks else None
        if page is None:
            return
        step, phase = page.step_and_phase()
        if self.struck_at is not None:
            now = time.monotonic()
            if self.step_at is None or step != self.step_at[0]:
                if self.step_at is not None:
                    self.longest_step_seconds = max(self.longest_step_seconds, now - self.step_at[1])
                self.step_at = step, now
            return
        if phase != PHASES["training"] or step < self.after_steps:
            return
        targets = self.targets(root)
        if not targets:
            return
        target = targets[int(self.choice * len(targets))]
        if self.victim in ("agent", "node"):
            self.hits_server = self.has_server(target)
        try:
            self.strike(target)
        except ProcessLookupError:
            return
        self.struck_at = step


def run(options, consistency, fault, data):
    """Returns how a job ended."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "job.json").write_text(json.dumps(job_of(options, consistency, data)))
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        began = time.monotonic()
        with open(folder / "result", "w") as result, open(folder / "errors", "w") as errors:
            process = subprocess.Popen([program, "run", folder / "job.json", "--output", folder / "out", "-o", "json"],
                                       stdin=subprocess.DEVNULL, stdout=result, stderr=errors, start_new_session=True)
            try:
                while process.poll() is None and time.monotonic() - began < LIMIT_SECONDS:
                    if fault:
                        fault.look(process.pid)
                    time.sleep(0.005)
                ended = process.poll() is not None
            finally:
                local_job.end(process)
        seconds = time.monotonic() - began
        if not ended or process.returncode != 0:
            return {"error": ("it did not end: " if not ended else f"exit code {process.returncode}: ")
                    + (folder / "errors").read_text(errors="replace")[-800:]}
        told = json.loads((folder / "result").read_text())
        last = max((folder / "out/checkpoints").glob("step-*"))
        return {"state": told["state"], "step": told["step"], "loss": told["validationLoss"], "digest": digest_of(last),
                "seconds": seconds, "rounds": (folder / "errors").read_text(errors="replace").count("\nround "),
                "longest": fault.longest_step_seconds if fault else 0, "server": bool(fault and fault.hits_server)}


def judge(options, consistency, found, expected):
    """Returns what is wrong; an empty text if nothing is."""
    if "error" in found:
        return found["error"]
    if found["state"] != "Complete" or found["step"] != options.steps:
        return f"it ended {found['state']} at step {found['step']}"
    if options.copies > 0 and found.get("server") and found["rounds"] != 1:
        return f"a server was lost, and there were {found['rounds']} rounds"
    if consistency == "synchronous" and found["digest"] != expected["digest"]:
        return "the parameters differ from those of a run without faults"
    if not found["loss"] <= LOSS_RATIO * expected["loss"]:
        return f"validation loss {found['loss']}, without faults {expected['loss']}"
    return ""


def known(options, name, make):
    path = options.results and pathlib.Path(options.results) / f"{name}.json"
    if path and path.exists():
        return json.loads(path.read_text())
    found = make()
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(path)
    return found


def undisturbed(options, consistency, data):
    name = consistency.replace(" ", "_").replace(",", "")
    found = known(options, f"undisturbed-{name}", lambda: run(options, consistency, None, data))
    if wrong := judge(options, consistency, found, found):
        sys.exit(f"{consistency}, without faults: {wrong}")
    return found


def disturbed(options, number, data):
    draw = random.Random(options.seed * 1_000_003 + number)
    consistency = list(CONSISTENCIES)[number % len(CONSISTENCIES)]
    fault = Fault(draw, options)
    found = run(options, consistency, fault, data)
    return {"consistency": consistency, "fault": fault.text(), "victim": fault.victim, "stops": fault.stops,
            "struck": fault.struck_at is not None, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=300, help="of a job")
    parser.add_argument("--rows", type=int, default=200_000, help="of its click log")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--copies", type=int, default=0, help="of each parameter")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS[:3]), help="which are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", help="a folder that keeps what is known of each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "clicks.tsv"
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        subprocess.run([program, "clicks", data, "--rows", str(options.rows), "--keys", str(options.rows // 4)], check=True, capture_output=True)
        expected = {}
        rows, failures = {}, []
        for number in range(options.runs):
            found = known(options, f"run-{options.seed}-{number}", lambda number=number: disturbed(options, number, data))
            key = found["consistency"], f"{found['victim']} {'stopped' if found['stops'] else 'killed'}"
            row = rows.setdefault(key, {"runs": 0, "struck": 0, "failed": 0, "seconds": [], "longest": []})
            row["runs"] += 1
            row["struck"] += found["struck"]
            name = found["consistency"]
            if name not in expected:
                expected[name] = undisturbed(options, name, data)
            wrong = judge(options, name, found, expected[name])
            if wrong:
                row["failed"] += 1
                failures.append(f"run {number}, {found['consistency']}, {found['fault']}: {wrong}")
                print(failures[-1], file=sys.stderr, flush=True)
            else:
                row["seconds"].append(found["seconds"])
                if found["struck"]:
                    row["longest"].append(found["longest"])
        print(f"{processor()}. {options.runs} runs of {options.steps} steps, seed {options.seed}.\n")
        print("| consistency | fault | runs | faults in time | failed | seconds, median | longest step, median | at most |\n|---|---|---|---|---|---|---|---|")
        for (consistency, fault), row in sorted(rows.items()):
            seconds = f"{statistics.median(row['seconds']):.1f}" if row["seconds"] else "-"
            longest = f"{statistics.median(row['longest']):.2f} s | {max(row['longest']):.2f} s" if row["longest"] else "- | -"
            print(f"| {consistency} | {fault} | {row['runs']} | {row['struck']} | {row['failed']} | {seconds} | {longest} |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

"""Runs jobs with `lockstep run`, with a time limit, and reads their numbers, logs and peak memory.

For the measuring programs in this folder. A job that fails raises JobFailed with the reason; nothing
that a job started survives it.
"""
import array
import collections
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import tempfile
import time

from same_bits import children

GRACE_SECONDS = 10
POLL_SECONDS = 0.01
WORKER = "lockstep-worker"
RANK_FILE = re.compile(r"/rank-(\d+)\.json$")
RANK_LINE = re.compile(r"\[rank (\d+)\] \S+ [A-Z]+ (.*)")
Result = collections.namedtuple("Result", "output peaks")  # peaks: rank -> bytes, the kernel's VmHWM


class JobFailed(Exception):
    """A job that failed or exceeded its time; the text says why."""


class JobRefused(JobFailed):
    """A job that `lockstep run` refused before it started anything."""


def job(train, nodes=1, per_node=1, parallelism=None, checkpoint=None, restarts=0):
    """Returns a TrainingJob with one thread for each process."""
    spec = {"nodes": nodes, "processesPerNode": per_node, "threadsPerProcess": 1, "train": train,
            "checkpoint": checkpoint or {"atEnd": False}, "failure": {"maxRestarts": restarts}}
    if parallelism:
        spec["parallelism"] = parallelism
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "measured"},
            "spec": spec}


def write_tokens(folder, vocabulary, count):
    """Writes random tokens, the same ones every time. Returns the file, which the tokenizer u16 reads."""
    draw, path = random.Random(5), folder / "tokens.u16"
    path.write_bytes(array.array("H", (draw.randrange(vocabulary) for _ in range(count))).tobytes())
    return path


def below(pid):
    """Returns the processes that a process started, and those that they started."""
    found = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


def rank_of(pid):
    """Returns the rank of a worker process; None for another one, or while it starts or ends."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return None
    match = RANK_FILE.search(words[2]) if len(words) > 2 and words[0].endswith(WORKER) else None
    return int(match[1]) if match else None


def peak_bytes(pid):
    """Returns the most resident memory that the process had so far, or 0 if it is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def cpu_seconds(pid):
    """Returns the CPU time that the process has used so far, or 0 if it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def look(pid, workers, peaks):
    """Adds the workers below a process to `workers` (pid -> rank), and their memory to `peaks`."""
    for child in below(pid):
        if child not in workers and (rank := rank_of(child)) is not None:
            workers[child] = rank
    for worker, rank in workers.items():
        peaks[rank] = max(peaks.get(rank, 0), peak_bytes(worker))


def end(process):
    """Ends a job as a user would, then with force."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    left = below(process.pid)
    if process.poll() is None:
        process.kill()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def watch(process, limit_seconds, disturb):
    """Waits for a job. Returns the peaks of its workers; raises JobFailed after the limit."""
    limit = time.monotonic() + limit_seconds
    workers, peaks = {}, {}
    while process.poll() is None:
        if time.monotonic() > limit:
            raise JobFailed(f"did not end within {limit_seconds:.0f} s")
        look(process.pid, workers, peaks)
        if disturb:
            disturb(workers)
        time.sleep(POLL_SECONDS)
    return peaks


def run(program, spec, output, limit_seconds=300, disturb=None):
    """Runs a job to its end in the folder `output`, which may have checkpoints to continue from.

    `disturb`, if given, is called again and again with all workers so far: pid -> rank.
    """
    output = pathlib.Path(output)
    file = output.with_name(output.name + ".json")
    file.write_text(json.dumps(spec))
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen([str(program), "run", str(file), "--output", str(output)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                                   start_new_session=True)
        try:
            peaks = watch(process, limit_seconds, disturb)
        finally:
            end(process)
        errors.seek(0)
        if process.returncode == 0:
            return Result(output, peaks)
        kind = JobRefused if process.returncode == 2 else JobFailed
        raise kind(f"exit code {process.returncode}: {errors.read()[-1500:].strip()}")


def steps(output):
    """Returns the numbers of each step, in order, from metrics.jsonl."""
    lines = (pathlib.Path(output) / "checkpoints/metrics.jsonl").read_text().splitlines()
    return [numbers for numbers in map(json.loads, lines) if "loss" in numbers]


def logged(output, message):
    """Returns the fields of a message that ranks logged, of each rank's last one: rank -> name -> text."""
    found = {}
    for log in sorted((pathlib.Path(output) / "logs").glob("*-worker-*.log")):
        for line in log.read_text(errors="replace").splitlines():
            match = RANK_LINE.match(line)
            if not match or "message=" + message not in match[2]:
                continue
            fields = dict(part.split("=", 1) for part in shlex.split(match[2]) if "=" in part)
            if fields.get("message") == message:
                found[int(match[1])] = fields
    return found

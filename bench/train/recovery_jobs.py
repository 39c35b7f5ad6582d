"""The jobs that recovery.py disturbs: one of `lockstep run`, and one of torchrun.

A job says where it is through its rounds. A round begins when the processes start, and ends when one of them is lost.
Lockstep's other processes serve the next round, too.
Each kind of job has the attributes `process` and `steps`, and the same methods.
"""
import hashlib
import json
import os
import pathlib
import socket
import subprocess

import local_job
import stored_tensors
from checkpoints import SMALL, TINY
from rank_kills import PHASES, page_of

HERE = pathlib.Path(__file__).resolve().parent
NODES, PER_NODE = 2, 2
BATCH = 16
VOCABULARY = 256  # of the tokenizer bytes
NO_LIMIT = 1_000_000
# Without the last one, the ranks of a restart may read the addresses of dead ranks, and form no group for minutes:
# agents count restarts differently, and their store is shared by all rounds (pytorch/pytorch issue 135712).
TORCHRUN_VARIABLES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
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


def model_of(options):
    return TINY if options.tiny else SMALL


class Job:
    """Processes that run. With a context manager, they are ended."""

    def __init__(self, steps, output):
        self.steps, self.output = steps, output
        self.errors = open(output.with_suffix(".errors"), "w")
        self.result = open(output.with_suffix(".result"), "w")
        self.processes = []

    def start(self, command, environment=None):
        self.processes.append(subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.result, stderr=self.errors,
            start_new_session=True, env=os.environ | (environment or {})))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            local_job.end(process)
        self.errors.close()
        self.result.close()

    @property
    def process(self):
        return self.processes[0]

    def wait(self):
        for process in self.processes:
            if process.wait() != 0:
                text = pathlib.Path(self.errors.name).read_text(errors="replace")
                raise local_job.JobFailed(f"exit code {process.returncode}: {text[-1500:]}")


class LockstepRound:
    """A round, by the progress page of its rank 0 (docs/formats.md). It is asked no more once there is the next one."""

    def __init__(self, number, page):
        self.id, self.page = number, page

    def step(self):
        return self.page.step_and_phase()[0]

    def is_training(self):
        return self.page.step_and_phase()[1] == PHASES["training"]

    def resumed_step(self):
        """Returns the step of the state that the round resumed from, or None if it does not train yet."""
        step = self.page.notes().resumed_step
        return step if step >= 0 and self.page.step_and_phase()[1] >= PHASES["training"] else None


class LockstepJob(Job):
    def __init__(self, options, layout, survivors, steps, output, changes=None):
        super().__init__(steps, output)
        train = {"model": model_of(options), "data": {"path": str(options.text), "tokenizer": "bytes"},
                 "steps": steps, "batch": {"global": BATCH}, "optimizer": {"schedule": "constant"}} | (changes or {})
        checkpoint = {"everySteps": options.checkpoint, "keep": 2}
        if options.memory:
            checkpoint["memory"] = {"everySteps": options.memory, "copies": options.copies}
        spec = local_job.job(train, NODES, PER_NODE, LAYOUTS[layout], checkpoint, restarts=NO_LIMIT)
        file = output.with_suffix(".json")
        file.write_text(json.dumps(spec))
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        self.start([program, "run", file, "--output", output, "-o", "json"],
                   {"LOCKSTEP_SURVIVORS": survivors})

    def workers(self):
        """Returns the pid of each rank."""
        return {rank: pid for pid in local_job.below(self.process.pid)
                if (rank := local_job.rank_of(pid)) is not None}

    def agents(self):
        return [pid for pid in local_job.below(self.process.pid) if words_of(pid)[0].endswith("lockstep-agent")]

    def round_after(self, old):
        """Returns the round that follows the one with the id `old`, or None while there is none."""
        pid = self.workers().get(0)
        page = page_of(pid) if pid else None
        number = page.round() if page else 0
        return LockstepRound(number, page) if number > (old or 0) else None

    def reached(self, current):
        """Returns a function: the newest step that a rank of this round has done, as long as pages tell."""
        pages = [page for pid in self.workers().values() if (page := page_of(pid))]
        return lambda: max((page.step_and_phase()[0] for page in pages if page.round() == current.id), default=0)

    def losses(self):
        return [(numbers["step"], numbers["loss"]) for numbers in local_job.steps(self.output)]

    def digests(self):
        tensors = stored_tensors.read_checkpoint(max(self.output.glob("checkpoints/step-*")))
        return {name: hashlib.sha256(tensor.data).hexdigest() for name, tensor in tensors.items()}

    def step_seconds(self):
        return [numbers["seconds"]["total"] for numbers in local_job.steps(self.output) if "seconds" in numbers]


def words_of(pid):
    """Returns the command line of a process; one empty word if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return [""]


def torch_rank_of(pid):
    """Returns the rank of a process that torchrun started, or None."""
    words = words_of(pid)
    if "torch.distributed.run" in words or not any(word.endswith("/torch_recovery.py") for word in words):
        return None
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(item[5:]) for item in variables if item.startswith(b"RANK=")), None)


class TorchrunRound:
    """A round, by the lines that its rank 0 wrote."""

    def __init__(self, job, index, resumed):
        self.job, self.id, self.resumed, self.newest = job, index, resumed, 0

    def step(self):
        self.job.read_progress()
        return self.newest

    def is_training(self):
        return 0 < self.step() < self.job.steps

    def resumed_step(self):
        return self.resumed


class TorchrunJob(Job):
    """Two agents on loopback, which meet at a c10d rendezvous. Each starts its ranks of torch_recovery.py."""

    def __init__(self, options, every, steps, output):
        super().__init__(steps, output)
        output.mkdir()
        self.progress, self.offset = output / "progress.jsonl", 0
        self.rounds, self.lines, self.digest = [], {}, None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        script = [HERE / "torch_recovery.py", "--text", options.text, "--progress", self.progress, "--checkpoints",
                  output / "checkpoints", "--steps", steps, "--every", every, "--batch", BATCH]
        for name, value in (model_of(options) | {"vocabulary": VOCABULARY}).items():
            script += [f"--{name}", value]
        for node in range(NODES):
            self.start([options.python, "-m", "torch.distributed.run", "--nnodes", NODES, "--nproc-per-node", PER_NODE,
                        "--max-restarts", NO_LIMIT, "--monitor-interval", 0.1, "--rdzv-backend", "c10d",
                        "--rdzv-id", "recovery", "--rdzv-endpoint", f"127.0.0.1:{port}",
                        "--rdzv-conf", f"is_host={int(node == 0)}", "--local-addr", "127.0.0.1", *script],
                       TORCHRUN_VARIABLES)

    def workers(self):
        """Returns the pid of each rank."""
        return {rank: pid for agent in self.processes for pid in local_job.below(agent.pid)
                if (rank := torch_rank_of(pid)) is not None}

    def read_progress(self):
        """Reads the lines that are new in the file of rank 0; leaves an unfinished one for later."""
        if not self.progress.exists():
            return
        with open(self.progress, "rb") as file:
            file.seek(self.offset)
            new = file.read()
        new = new[:new.rfind(b"\n") + 1]
        self.offset += len(new)
        for line in map(json.loads, new.splitlines()):
            if "resumed" in line:
                self.rounds.append(TorchrunRound(self, len(self.rounds), line["resumed"]))
            elif "step" in line:
                self.rounds[-1].newest = line["step"]
                self.lines[line["step"]] = line  # the last time that the step was done
            else:
                self.digest = line["sha256"]

    def round_after(self, old):
        """Returns the newest round if it follows the one with the id `old`, or None while there is none."""
        self.read_progress()
        return self.rounds[-1] if self.rounds and self.rounds[-1].id != old else None

    def reached(self, current):
        """Returns a function: the newest step that the round has done, also after its end."""
        return current.step

    def losses(self):
        self.read_progress()
        return [(step, self.lines[step]["loss"]) for step in sorted(self.lines)]

    def digests(self):
        self.read_progress()
        return self.digest

    def step_seconds(self):
        self.read_progress()
        return [self.lines[step]["seconds"] for step in sorted(self.lines)]

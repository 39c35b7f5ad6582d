"""Runs the jobs of mesh_scaling.py, and measures the network between this machine's processes."""
import collections
import json
import pathlib
import subprocess

import local_job
import mesh_formulas
import scaling_model
from mesh_formulas import Sizes
from scaling_model import Strategy

STRATEGIES = {one.name: one for one in (
    Strategy("data", "data"),
    Strategy("data, sharding optimizer", "data", "optimizer"),
    Strategy("data, sharding gradients", "data", "gradients"),
    Strategy("data, sharding parameters", "data", "parameters"),
    Strategy("tensor", "tensor"),
    Strategy("tensor, sequenceParallel", "tensor", rows=True),
    Strategy("pipeline, 1f1b", "pipeline"),
    Strategy("pipeline, gpipe", "pipeline", schedule="gpipe"),
    Strategy("pipeline, interleaved", "pipeline", schedule="interleaved", chunks=2),
    Strategy("pipeline, zerobubble", "pipeline", schedule="zerobubble"),
    Strategy("pipeline, pipedream", "pipeline", schedule="pipedream", is_tied=False),
)}
# The samples are those of a step of one process.
FULL = Sizes(layers=16, width=256, heads=8, context=128, vocabulary=4096, samples=16, micro=2)
TINY = Sizes(layers=4, width=64, heads=8, context=32, vocabulary=256, samples=8, micro=2)
OPERATIONS = ("send-receive", "all-reduce", "all-gather", "reduce-scatter")
CLOCK_BYTES = 64  # that a recorded timeline adds to a rank's traffic, to compare clocks with rank 0

# seconds: of each timed step, as metrics.jsonl has them: name -> list. waits: the share of all ranks' time in which
# they compute nothing. cpu: CPU seconds of all workers for each step. sent: bytes of the busiest rank in a step.
Measured = collections.namedtuple("Measured", "seconds waits cpu sent")


def fields_of(strategy, ranks):
    """Returns spec.parallelism."""
    if ranks == 1:
        return {}
    if strategy.kind == "data":
        return {} if strategy.sharding == "none" else {"sharding": strategy.sharding}
    if strategy.kind == "tensor":
        return {"tensor": ranks} | ({"sequenceParallel": True} if strategy.rows else {})
    chunks = {"virtualStages": strategy.chunks} if strategy.chunks > 1 else {}
    return {"pipeline": ranks, "pipelineSchedule": strategy.schedule} | chunks


class CpuWatch:
    """Adds up the CPU seconds of a job's workers from the line `training` of its log on."""

    def __init__(self, output):
        self.output, self.begin, self.latest = output, None, {}

    def __call__(self, workers):
        for pid in workers:
            self.latest[pid] = max(self.latest.get(pid, 0), local_job.cpu_seconds(pid))
        if self.begin is None and local_job.logged(self.output, "training"):
            self.begin = self.total()

    def total(self):
        return sum(self.latest.values())

    def seconds(self):
        return self.total() - (self.begin or 0)


def waiting_share(folder, steps):
    """Returns the share of all ranks' time in the given steps in which they compute nothing, from the timelines."""
    total = computed = 0
    for path in sorted(folder.glob("step-*-rank-*.json")):
        timeline = json.loads(path.read_text())
        if timeline["dropped"]:
            raise local_job.JobFailed(f"{path.name}: {timeline['dropped']} records were dropped, expected none")
        total += sum(end - begin for number, begin, end in timeline["steps"] if number in steps)
        computed += sum(record[7] - record[6] for record in timeline["records"]
                        if record[0] in steps and record[1] != "step" and record[2] != "communication")
    if not total:
        raise local_job.JobFailed("no timelines, expected one for each rank")
    return 1 - computed / total


class Runner:
    """Runs jobs in a folder. `options` has build, warmup, steps, and the limit of a job in seconds."""

    def __init__(self, options, folder, sizes):
        self.options, self.folder, self.sizes = options, folder, sizes
        self.bin = pathlib.Path(options.build).resolve() / "bin"
        self.tokens = local_job.write_tokens(folder, sizes.vocabulary, 1 << 16)
        self.count = 0

    def spec(self, strategy, ranks, samples, steps, output):
        sizes = self.sizes._replace(is_tied=strategy.is_tied)
        # PipeDream is refused with clipping. Its one process does the same work.
        clip = {} if strategy.is_tied else {"clipNorm": 0}
        train = {"model": mesh_formulas.model_of(sizes), "data": {"path": str(self.tokens), "tokenizer": "u16"},
                 "steps": steps, "batch": {"global": samples, "micro": sizes.micro}, "recompute": "none",
                 "optimizer": {"learningRate": 1e-3, "schedule": "constant"} | clip,
                 "timeline": {"everySteps": steps, "steps": steps}}
        return local_job.job(train, 1, ranks, fields_of(strategy, ranks),
                             {"atEnd": False, "path": str(output / "checkpoints")})

    def run(self, strategy, ranks, samples):
        """Returns what a job of a strategy measured."""
        self.count += 1
        output = self.folder / f"job-{self.count}"
        # PipeDream's pipeline empties in the last steps, which are not timed.
        emptying = ranks - 1 if strategy.schedule == "pipedream" else 0
        timed = range(self.options.warmup + 1, self.options.warmup + self.options.steps + 1)
        steps = timed[-1] + emptying
        watch = CpuWatch(output)
        local_job.run(self.bin / "lockstep", self.spec(strategy, ranks, samples, steps, output), output,
                      self.options.limit, watch)
        numbers = [step["seconds"] for step in local_job.steps(output) if step["step"] in timed]
        traffic = local_job.logged(output, "traffic")
        if len(numbers) != len(timed) or len(traffic) != ranks:
            raise local_job.JobFailed(f"{len(numbers)} timed steps, {len(traffic)} ranks with traffic, "
                                      f"expected {len(timed)} and {ranks}")
        clocks = [CLOCK_BYTES * (1 if rank else ranks - 1) for rank in range(ranks)]
        sent = max((int(traffic[rank]["bytesSent"]) - clocks[rank]) / steps for rank in range(ranks))
        return Measured({name: [step[name] for step in numbers] for name in numbers[0]},
                        waiting_share(output / "checkpoints/timeline", timed), watch.seconds() / steps, sent)


def measure_network(runner, ranks):
    """Returns the Network between processes of this machine, which share memory."""
    file = runner.folder / "network.json"
    iterations = "20" if runner.options.tiny else "300"
    command = [str(runner.bin / "lockstep"), "bench", ",".join(OPERATIONS), "--ranks", str(ranks), "--sizes", "8:8M:32",
               "--iterations", iterations, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=runner.options.limit)
    if done.returncode != 0:
        raise local_job.JobFailed(f"lockstep bench: {done.stderr.strip()[-500:]}")
    seconds = collections.defaultdict(dict)
    for line in json.loads(file.read_text()):
        if not line["inPlace"]:
            seconds[line["operation"]][line["bytes"]] = line["p50Us"] / 1e6
    return scaling_model.Network(ranks, seconds)

#!/usr/bin/env python3
"""Compares tensor and pipeline parallelism on this machine's CPUs with PyTorch's, in turns.

  python3 -m venv env && env/bin/pip install torch numpy    # a current release
  bench/train/mesh_peers.py --python env/bin/python --build build --markdown FILE
  bench/train/mesh_peers.py --python env/bin/python --build build --rows 'tensor; 1f1b' --ranks 2 --rounds 1 --eager

Both train the same GPT-2 of 7 M parameters in fp32 on the same tokens, with one thread per process, from the weights
that PyTorch drew, with the same micro-batches, AdamW and clipping. PyTorch uses gloo over TCP: DTensor with
parallelize_module, and the schedules of torch.distributed.pipelining (torch_mesh.py). Lockstep's tensor-parallel ranks
are one pod, which shares memory; pipelines also run as one pod per stage, which use TCP. PyTorch's zero-bubble
schedules have two chunks of the model on each stage; Lockstep's has one.

First, PyTorch tries its settings (fused or foreach AdamW; then, with the fastest of these, torch.compile of the
layers), and the fastest one is kept. Then the programs take turns. Prints Markdown tables of tokens/s, by the median
step of each turn: median (least to most) of the turns, and the median of the ratios of each turn. A second table says
what rank 0 of Lockstep did in a step.

Every turn's losses must be those of the first turn, to 1e-4. What PyTorch cannot run is a row with its error. Exits
with 1 if a program failed, and with 77 if --python has no PyTorch. Nothing else should run on the machine meanwhile.
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

import peer_turns
import report
from peer_turns import Failed, ratio, spread, text_of

MODEL = {"layers": 8, "width": 256, "heads": 4, "context": 128, "vocabulary": 4096}
TINY = {"layers": 8, "width": 64, "heads": 4, "context": 32, "vocabulary": 512}
MICRO_BATCHES_PER_STAGE = 2
OPTIMIZERS = ("fused", "foreach")
# fields: spec.parallelism for a number of ranks; peer: torch_mesh.py's --parallel; is_tcp: one pod per rank too;
# is_split: PyTorch splits the backward, which it does not do in compiled layers.
Row = collections.namedtuple("Row", "name fields peer is_tcp is_split", defaults=(False, False))


def tensor(**more):
    return lambda ranks: {"tensor": ranks} | more


def pipeline(schedule, **more):
    return lambda ranks: {"pipeline": ranks, "pipelineSchedule": schedule} | more


ROWS = {row.name: row for row in (
    Row("tensor", tensor(), "tensor"),
    Row("tensor, sequence", tensor(sequenceParallel=True), "sequence"),
    Row("gpipe", pipeline("gpipe"), "gpipe", is_tcp=True),
    Row("1f1b", pipeline("1f1b"), "1f1b", is_tcp=True),
    Row("interleaved", pipeline("interleaved", virtualStages=2), "interleaved", is_tcp=True),
    Row("zerobubble, interleaved zero-bubble", pipeline("zerobubble"), "interleaved-zero-bubble", is_tcp=True,
        is_split=True),
    Row("zerobubble, zero-bubble V", pipeline("zerobubble"), "zbv", is_tcp=True, is_split=True),
)}
PEERS = {"tensor": "DTensor", "sequence": "DTensor, SequenceParallel", "gpipe": "ScheduleGPipe",
         "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
         "interleaved-zero-bubble": "ScheduleInterleavedZeroBubble", "zbv": "ScheduleZBVZeroBubble"}


def batch_of(options, ranks):
    """Returns spec.train.batch: as many micro-batches for every row, so that each stage gets some."""
    return {"global": options.micro * MICRO_BATCHES_PER_STAGE * ranks, "micro": options.micro}


def ways(row, ranks):
    """Returns how Lockstep runs: name -> nodes and processes per node."""
    return {"one pod": (1, ranks)} | ({f"{ranks} pods": (ranks, 1)} if row.is_tcp else {})


def run_peer(work, ranks, peer, settings):
    """Returns the tokens/s of PyTorch, and the version."""
    options = work.options
    flags = work.model | {"parallel": peer, "ranks": ranks, "batch": work.batch["global"],
                          "micro": work.batch["micro"], "rate": peer_turns.RATE, "warmup": options.warmup,
                          "steps": options.steps, "tokens": work.tokens}
    who = f"PyTorch, {ranks} ranks, {peer}, {text_of(settings)}"
    result = peer_turns.run_python(work, who, "torch_mesh.py", flags | settings)
    print(f"{who}: {result['tokensPerSecond']:,.0f} tokens/s", file=sys.stderr, flush=True)
    return result["tokensPerSecond"], result["peer"]


def fastest(work, ranks, row):
    """Returns PyTorch's fastest settings and its version. A setting that fails is named and left out."""
    found, failures = [], []

    def attempt(settings):
        try:
            found.append((*run_peer(work, ranks, row.peer, settings), settings))
        except Failed as error:
            failures.append(error)
            print(error, file=sys.stderr, flush=True)

    def best():
        return max(found, key=lambda one: one[0])

    for optimizer in OPTIMIZERS:
        attempt({"optimizer": optimizer})
    if not found:
        raise failures[0]
    if not work.options.eager and not row.is_split:
        attempt(best()[2] | {"compile": "layers"})
    return best()[2], best()[1]


def last_line(error):
    """Returns what the program that failed said last, fit for a cell of a table."""
    return str(error).strip().splitlines()[-1].strip().replace("|", "/")[:160]


def compare(work, ranks, row, settings, seconds, table):
    """Runs the programs in turns, and adds rows to the table. `settings` is None if PyTorch cannot run."""
    mine, theirs = {name: [] for name in ways(row, ranks)}, []
    for _ in range(work.options.rounds):
        for name, (nodes, per_node) in ways(row, ranks).items():
            speed, parts = peer_turns.run_ours(work, row.fields(ranks), nodes, per_node)
            mine[name].append(speed)
            seconds[row.name, ranks, name].append(parts)
        if settings is not None:
            theirs.append(run_peer(work, ranks, row.peer, settings)[0])
    for name, speeds in mine.items():
        told = spread(theirs) if theirs else "cannot run"
        table.row(row.name, ranks, name, spread(speeds), f"{PEERS[row.peer]}: {told}",
                  ratio(speeds, theirs) if theirs else "-")


def one_row(work, ranks, row, seconds, table, notes):
    """Adds a row, and a note about PyTorch's settings. Returns the failures."""
    failures, settings = [], None
    try:
        settings, version = fastest(work, ranks, row)
        notes.append(f"{version}, {PEERS[row.peer]}, {ranks} ranks, its fastest settings: {text_of(settings)}.")
    except Failed as error:
        failures.append(error)
        notes.append(f"PyTorch cannot run {PEERS[row.peer]} with {ranks} ranks: {last_line(error)}")
    try:
        compare(work, ranks, row, settings, seconds, table)
    except Failed as error:
        failures.append(error)
        notes.append(f"Failed, {row.name}, {ranks} ranks: {last_line(error)}")
    for error in failures:
        print(error, file=sys.stderr, flush=True)
    return failures


def all_rows(options, seconds, table):
    """Measures everything. Returns notes, and whether something failed."""
    notes, failures = [], []
    for ranks in options.ranks:
        for row in options.rows:
            with tempfile.TemporaryDirectory() as folder:
                work = peer_turns.Work(options, pathlib.Path(folder), TINY if options.tiny else MODEL,
                                       batch_of(options, ranks))
                failures += one_row(work, ranks, row, seconds, table, notes)
    return notes, bool(failures)


def add_parts(seconds, table):
    names = list(next(iter(seconds.values()))[0])
    table.add("\nMilliseconds of a step on rank 0 of Lockstep, medians (least to most) of the turns:")
    table.head("row", "ranks", "as", *names)
    for (row, ranks, pods), turns in seconds.items():
        table.row(row, ranks, pods, *(spread([1e3 * parts[name] for parts in turns]) for name in names))


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=lambda text: [int(item) for item in text.split(",")], default=[2, 4])
    parser.add_argument("--rows", default=";".join(ROWS), help="separated by semicolons: " + "; ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed in each turn")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--micro", type=int, default=2, help="sequences of a micro-batch")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one turn may take")
    parser.add_argument("--eager", action="store_true", help="do not try torch.compile")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the program")
    parser.add_argument("--markdown", help="file for the tables")
    options = parser.parse_args(arguments)
    names = [name.strip() for name in options.rows.split(";")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"--rows: {unknown[0]}: expected some of {'; '.join(ROWS)}")
    options.rows = [ROWS[name] for name in names]
    if not set(options.ranks) <= {2, 4}:
        parser.error("--ranks: expected 2, 4 or both")
    if min(options.rounds, options.steps, options.micro, options.warmup) < 1:
        parser.error("expected --rounds, --steps, --micro and --warmup from 1")
    return options


def main():
    options = parse()
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"no PyTorch for {options.python}")
        return 77
    table = report.Report("Tensor and pipeline parallelism on a CPU, next to PyTorch")
    seconds = collections.defaultdict(list)
    model = TINY if options.tiny else MODEL
    table.add(f"{model}, fp32, micro-batches of {options.micro} x {model['context']} tokens, "
              f"{MICRO_BATCHES_PER_STAGE} for each rank in a step, 1 thread each; "
              f"{options.rounds} rounds of {options.steps} steps after {options.warmup} for warming up.")
    table.head("Lockstep, PyTorch if not the same", "ranks", "Lockstep as", "Lockstep, tokens/s",
               "PyTorch, tokens/s", "ratio")
    notes, is_failed = all_rows(options, seconds, table)
    if seconds:
        add_parts(seconds, table)
    for line in notes:
        table.add("\n" + line)
    if options.markdown:
        table.save(options.markdown)
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures the memory and the traffic of each way of sharding a model.

  bench/train/sharding_memory.py --build build --markdown FILE
  bench/train/sharding_memory.py --build build --modes 'none; parameters' --ranks 1,2

Every job does two steps of a GPT with 39 M parameters on this machine, in fp32, with one thread per process.
- Memory: what rank 0 logs that it allocates, as a multiple of the model's bytes (4 a parameter), next to the formula
  for parameters (with two gathered blocks), gradients and optimizer. Planned: what `lockstep plan` says, with the copy
  of the state for saves. Peak: the kernel's VmHWM of the rank with the most, less that of a tiny model of the same
  mode and ranks, so without the program, libraries and rings.
- Traffic: payload bytes that a rank sent in a step, by its own counters (the line `traffic` of its log), in units of
  model bytes x (N-1)/N for N ranks. With the ring algorithm and m micro-batches a rank sends 2 (none, optimizer), m + 1
  (gradients), 3m (parameters) or 2m (parameters, kept) units. The tables show the ranks that sent least and most, and
  the most that a rank sent and received together. With the first rank as server, that one grows with N.

The exit code is 1 if a job failed, if a rank allocated 2 % more or less than planned, or if traffic differs from its
formula by more than 1 % or is missing.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import local_job
import report
import same_bits
import sharding_modes

STEPS = 2
MICRO_BATCHES = 2
TRAFFIC_TOLERANCE = 0.01
MEMORY_TOLERANCE = 0.02
PLAN_LINE = re.compile(r"  (\S.*?)  +(\d+) bytes  ")
COPY = "host: copy of the state"
MODEL = {"layers": 8, "width": 640, "heads": 10, "context": 32}
SMALL = {"layers": 2, "width": 128, "heads": 4, "context": 32}  # enough for the traffic
TINY = {"layers": 1, "width": 16, "heads": 2, "context": 32}
MEBI = 1 << 20
FORMULA = {"none": 2, "optimizer": 2, "gradients": MICRO_BATCHES + 1, "parameters": 3 * MICRO_BATCHES}


def block_bytes(model):
    """Returns the bytes of a block of GPT-2: 4 matrices of 12 width^2 elements in all, 4 biases, 2 norms."""
    return 4 * (12 * model["width"] ** 2 + 13 * model["width"])


def planned(program, spec, folder):
    """Returns the bytes that `lockstep plan` says for a process: what it allocates, and copies for saves."""
    file = folder / "plan.json"
    # A job that runs here has a path for checkpoints, which the plan has to be told.
    spec = spec | {"spec": spec["spec"] | {"checkpoint": spec["spec"]["checkpoint"] | {"path": str(folder)}}}
    file.write_text(json.dumps(spec))
    done = subprocess.run([str(program), "plan", str(file)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise local_job.JobRefused(f"lockstep plan: {done.stderr.strip()[-500:]}")
    lines = [match.groups() for match in map(PLAN_LINE.match, done.stdout.splitlines()) if match]
    totals = [int(size) for name, size in lines if name == "total"]
    copies = [int(size) for name, size in lines if name.startswith(COPY)]
    if not totals or len(copies) != 1:
        raise local_job.JobFailed(f"lockstep plan: expected a total and '{COPY}', got\n{done.stdout}")
    return totals[0], copies[0]


class Measured:
    """One job: its plan, peaks and traffic."""

    def __init__(self, options, folder, model, mode, ranks):
        self.model = model
        nodes, per_node = sharding_modes.shape(mode, ranks)
        train = {"model": model, "data": {"path": str(options.text), "tokenizer": "bytes"}, "steps": STEPS,
                 "batch": {"global": ranks * MICRO_BATCHES, "micro": 1}}
        spec = local_job.job(train, nodes, per_node, sharding_modes.parallelism(mode, folder))
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        self.planned, self.copies = planned(program, spec, folder)
        result = local_job.run(program, spec, folder / "job", options.limit)
        if len(result.peaks) != ranks:
            raise local_job.JobFailed(f"saw the memory of {len(result.peaks)} ranks, expected {ranks}")
        self.peaks = result.peaks
        fields = local_job.logged(result.output, "memory").get(0, {})
        self.allocated = {name: int(value) for name, value in fields.items() if name.endswith("Bytes")}
        self.traffic = [tuple(int(one[name]) / STEPS for name in ("bytesSent", "bytesReceived"))
                        for one in local_job.logged(result.output, "traffic").values()]
        if not self.allocated:
            raise local_job.JobFailed("rank 0 did not log its memory")


def measure(options, model, mode, ranks):
    with tempfile.TemporaryDirectory() as folder:
        return Measured(options, pathlib.Path(folder), model, mode, ranks)


def states(model, mode, ranks, model_bytes):
    """Returns the formula's bytes of parameters, gradients and optimizer states of one rank.

    Leaves out what is offloaded, and the buffers through which it is streamed.
    """
    fields = sharding_modes.MODES[mode].fields
    sharding, offload = fields.get("sharding", "none"), fields.get("offload", "none")
    group = sharding_modes.shape(mode, ranks)[1]
    stage = ("none", "optimizer", "gradients", "parameters").index(sharding)
    shares = [model_bytes / group if stage >= first else model_bytes for first in (3, 2, 1)]
    if offload == "parameters":
        shares[0] = 0
    if offload != "none":
        shares[2] = 0
    if stage == 3:
        shares[0] += 2 * block_bytes(model)
    return shares[0], shares[1], 2 * shares[2]


def memory_row(table, mode, ranks, found, tiny, model_bytes):
    """Returns whether the rank allocated what was planned."""
    peak = max(found.peaks.values())
    above = peak - max(tiny.peaks.values())
    logged = [found.allocated[name] for name in ("parametersBytes", "gradientsBytes", "optimizerBytes")]
    logged[0] += found.allocated.get("gatheredBytes", 0)
    pairs = [f"{mine / model_bytes:.3f} ({formula / model_bytes:.3f})"
             for mine, formula in zip(logged, states(found.model, mode, ranks, model_bytes))]
    total = found.allocated["totalBytes"]
    is_right = abs(total - found.planned) <= MEMORY_TOLERANCE * found.planned
    whole = found.planned + found.copies
    table.row(mode, ranks, *pairs, f"{total / MEBI:.1f}" if is_right else f"**{total / MEBI:.1f}**",
              f"{found.planned / MEBI:.1f} + {found.copies / MEBI:.1f}", f"{peak / MEBI:.1f}", f"{above / MEBI:.1f}",
              f"{above / whole:.3f}")
    return is_right


def units_expected(mode):
    """Returns the formula's units, or None where ranks differ or several rings take part."""
    fields = sharding_modes.MODES[mode].fields
    if "exchange" in fields or sharding_modes.MODES[mode].by_node:
        return None
    if fields.get("reshardAfterForward") is False:
        return 2 * MICRO_BATCHES
    return FORMULA[fields.get("sharding", "none")]


def traffic_row(table, mode, ranks, found, model_bytes):
    """Returns whether the traffic is as the formula says."""
    unit = model_bytes * (ranks - 1) / ranks
    if len(found.traffic) != ranks:
        table.row(mode, ranks, f"{len(found.traffic)} ranks logged their traffic", "-", "-", "-", "**missing**")
        return False
    sent = [one[0] / unit for one in found.traffic]
    both = max(sum(one) / model_bytes for one in found.traffic)
    expected = units_expected(mode)
    is_right = expected is None or max(abs(value - expected) for value in sent) <= TRAFFIC_TOLERANCE * expected
    table.row(mode, ranks, f"{min(sent):.4f}", f"{max(sent):.4f}", "-" if expected is None else expected,
              f"{both:.3f}", "-" if expected is None else "yes" if is_right else "**no**")
    return is_right


def measure_all(options):
    """Returns the measured pairs of the model and the tiny one by mode and ranks, and the number of failures."""
    found, failures = {}, 0
    for mode in options.modes:
        for ranks in options.ranks:
            try:
                found[mode, ranks] = [measure(options, model, mode, ranks) for model in (options.model, TINY)]
                print(f"{mode}, {ranks} ranks: measured", file=sys.stderr, flush=True)
            except local_job.JobFailed as error:
                failures += 1
                print(f"{mode}, {ranks} ranks: {error}", file=sys.stderr, flush=True)
    return found, failures


def print_tables(found, model_bytes, table):
    """Returns whether all memory is as planned, and all traffic as the formulas say."""
    table.add(f"The model has {model_bytes / MEBI:.1f} MiB of parameters. {STEPS} steps, {MICRO_BATCHES} micro-batches "
              "of 1 x 32 tokens.")
    table.head("mode", "ranks", "parameters, x model (formula)", "gradients", "optimizer", "allocated, MiB",
               "planned + copies for saves, MiB", "peak RSS, MiB", "above a tiny model, MiB", "that / planned")
    memory = [memory_row(table, mode, ranks, large, tiny, model_bytes)
              for (mode, ranks), (large, tiny) in found.items()]
    table.head("mode", "ranks", "units sent a step, least", "most", "formula",
               "busiest rank, sent + received, x model", "as the formula")
    traffic = [traffic_row(table, mode, ranks, large, model_bytes)
               for (mode, ranks), (large, _) in found.items() if ranks > 1]
    return all(memory + traffic)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--modes", type=sharding_modes.chosen, default=list(sharding_modes.MODES),
                        help="separated by semicolons: " + "; ".join(sharding_modes.MODES))
    parser.add_argument("--ranks", type=lambda text: [int(item) for item in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--small", action="store_true", help="a small model, to check the traffic and the plan alone")
    parser.add_argument("--markdown", help="file for the tables")
    options = parser.parse_args()
    options.model = SMALL if options.small else MODEL
    table = report.Report("Memory and traffic of each way of sharding")
    with tempfile.TemporaryDirectory() as folder:
        options.text = same_bits.text_file(pathlib.Path(folder))
        model_bytes = measure(options, options.model, "none", 1).allocated["parametersBytes"]
        found, failures = measure_all(options)
    is_right = print_tables(found, model_bytes, table)
    if options.markdown:
        table.save(options.markdown)
    return 0 if found and is_right and not failures else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures the memory and the traffic of each way of sharding a model, next to the formulas of docs/sharding.md.

  bench/train/sharding_memory.py --build build --markdown FILE
  bench/train/sharding_memory.py --build build --modes 'none; parameters' --ranks 1,2
  bench/train/sharding_memory.py --build build --small --check --models 'gpt, untied; mlp'

Every job does two steps of two micro-batches on this machine, in fp32, with one thread per process.
- Memory: what rank 0 logs that it allocates, as a multiple of the model's bytes (4 a parameter), next to the formula:
  parameters with what is gathered, gradients, and states of the optimizer. Then all of it, next to the formula's sum
  with the activations and workspaces of a single process, and next to what `lockstep plan` says. Peak: the kernel's
  VmHWM of the rank with the most, less that of a tiny model of the same mode and ranks, so without the program,
  libraries and rings. It is compared with the plan and the copy of the state for saves.
- Traffic: payload bytes that a rank sent in a step, by its own counters (the line `traffic` of its log), in units of
  model bytes x (N-1)/N for N ranks. The tables show the ranks that sent least and most, and the most that a rank sent
  and received together. With the first rank as server, that one grows with N.

The exit code is 1 if a job failed. With --check also if the traffic of a rank differs from its formula by a byte, or if
a rank allocated 2 % more or less than the formula or the plan. A ring may cut an all-reduce into unequal parts, so the
traffic of `none` is compared as the sum over the ranks.
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
import sharding_formulas
import sharding_modes
import table_files

STEPS = 2
MICRO_BATCHES = 2
MEMORY_TOLERANCE = 0.02
PLAN_LINE = re.compile(r"  (\S.*?)  +(\d+) bytes  ")
COPY = "host: copy of the state"
MEBI = 1 << 20
TABLE = {"family": "mlp", "inputs": 100, "outputs": 7}
LLAMA = {"family": "llama", "kvHeads": 2}
MODELS = {
    "gpt, tied": {"layers": 8, "width": 640, "heads": 10, "context": 32},
    "gpt, untied": {"layers": 8, "width": 640, "heads": 10, "context": 32, "head": "untied"},
    "llama": LLAMA | {"layers": 8, "width": 640, "heads": 10, "context": 32},
    "mlp": TABLE | {"hidden": [2500, 2000, 2500]},
}
SMALL = {
    "gpt, tied": {"layers": 2, "width": 120, "heads": 4, "context": 32},
    "gpt, untied": {"layers": 2, "width": 120, "heads": 4, "context": 32, "head": "untied"},
    "llama": LLAMA | {"layers": 2, "width": 120, "heads": 4, "context": 32},
    "mlp": TABLE | {"hidden": [300, 200]},
}
TINY = {
    "gpt, tied": {"layers": 1, "width": 16, "heads": 2, "context": 32},
    "gpt, untied": {"layers": 1, "width": 16, "heads": 2, "context": 32, "head": "untied"},
    "llama": LLAMA | {"layers": 1, "width": 16, "heads": 2, "context": 32},
    "mlp": TABLE | {"hidden": [16]},
}


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
        nodes, per_node = sharding_modes.shape(mode, ranks)
        train = {"model": model, "data": options.data[model.get("family") == "mlp"], "steps": STEPS,
                 "batch": {"global": ranks * MICRO_BATCHES, "micro": 1}}
        spec = local_job.job(train, nodes, per_node, sharding_modes.parallelism(mode, folder))
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        self.planned, self.copies = planned(program, spec, folder)
        result = local_job.run(program, spec, folder / "job", options.limit)
        if len(result.peaks) != ranks:
            raise local_job.JobFailed(f"saw the memory of {len(result.peaks)} ranks, expected {ranks}")
        self.peak = max(result.peaks.values())
        fields = local_job.logged(result.output, "memory").get(0, {})
        self.allocated = {name: int(value) for name, value in fields.items() if name.endswith("Bytes")}
        traffic = local_job.logged(result.output, "traffic")
        if not self.allocated or len(traffic) != ranks:
            raise local_job.JobFailed(f"rank 0 logged {len(self.allocated)} sizes of memory, and {len(traffic)} ranks "
                                      f"logged their traffic, expected {ranks}")
        self.traffic = [tuple(int(traffic[rank][name]) / STEPS for name in ("bytesSent", "bytesReceived"))
                        for rank in range(ranks)]


def measure(options, model, mode, ranks):
    with tempfile.TemporaryDirectory() as folder:
        return Measured(options, pathlib.Path(folder), model, mode, ranks)


class Case:
    """A model in a mode: its measurements and its formulas."""

    def __init__(self, options, name, mode, ranks, alone):
        self.name, self.mode, self.ranks = name, mode, ranks
        self.found = measure(options, options.models_by_name[name], mode, ranks)
        self.tiny = None if options.small else measure(options, TINY[name], mode, ranks)
        layout = sharding_formulas.Layout(options.models_by_name[name], mode, ranks)
        self.held = sharding_formulas.held(layout, 0)
        self.sent = [sharding_formulas.sent(layout, rank, MICRO_BATCHES) for rank in range(ranks)]
        self.is_cut_unequally = layout.sharding == "none" and layout.exchange == "allReduce"
        self.model_bytes = alone.allocated["parametersBytes"]
        self.rest = alone.allocated["activationsBytes"] + alone.allocated["workspaceBytes"]

    def parts(self):
        """Returns what rank 0 allocated and the formula: parameters with gathered ones, gradients, optimizer, all."""
        held, one = self.held, self.found.allocated
        mine = [one["parametersBytes"] + one["gatheredBytes"], one["gradientsBytes"], one["optimizerBytes"]]
        formula = [held.parameters + held.gathered, held.gradients, held.optimizer]
        return [*zip(mine, formula), (one["totalBytes"], sum(formula) + held.buffers + self.rest)]

    def has_right_memory(self):
        pairs = [*self.parts(), (self.found.allocated["totalBytes"], self.found.planned),
                 (self.found.allocated["offloadedBytes"], self.held.offloaded)]
        return all(abs(mine - expected) <= MEMORY_TOLERANCE * expected for mine, expected in pairs)

    def has_right_traffic(self):
        sent = [one[0] for one in self.found.traffic]
        return sum(sent) == sum(self.sent) if self.is_cut_unequally else sent == self.sent

    def memory_row(self, table):
        of_model = [f"{mine / self.model_bytes:.3f} ({formula / self.model_bytes:.3f})"
                    for mine, formula in self.parts()[:3]]
        total, formula = self.parts()[3]
        planned_, copies = self.found.planned, self.found.copies
        above = self.found.peak - self.tiny.peak if self.tiny else None
        table.row(self.name, self.mode, self.ranks, *of_model, f"{total / MEBI:.1f} ({formula / MEBI:.1f})",
                  "yes" if self.has_right_memory() else "**no**", f"{planned_ / MEBI:.1f} + {copies / MEBI:.1f}",
                  f"{self.found.peak / MEBI:.1f}", f"{above / MEBI:.1f}" if self.tiny else "-",
                  f"{above / (planned_ + copies):.3f}" if self.tiny else "-")

    def traffic_row(self, table):
        unit = self.model_bytes * (self.ranks - 1) / self.ranks
        sent = [one[0] / unit for one in self.found.traffic]
        formula = [value / unit for value in self.sent]
        both = max(sum(one) / self.model_bytes for one in self.found.traffic)
        table.row(self.name, self.mode, self.ranks, f"{min(sent):.4f} ({min(formula):.4f})",
                  f"{max(sent):.4f} ({max(formula):.4f})", f"{both:.3f}",
                  "yes" if self.has_right_traffic() else "**no**")


def measure_all(options):
    """Returns the cases that were measured, and the number of failures."""
    cases, failures = [], 0
    for name in options.models:
        alone = measure(options, options.models_by_name[name], "none", 1)
        for mode in options.modes:
            for ranks in options.ranks:
                try:
                    cases.append(Case(options, name, mode, ranks, alone))
                    print(f"{name}, {mode}, {ranks} ranks: measured", file=sys.stderr, flush=True)
                except local_job.JobFailed as error:
                    failures += 1
                    print(f"{name}, {mode}, {ranks} ranks: {error}", file=sys.stderr, flush=True)
    return cases, failures


def print_tables(cases, table):
    for name, size in {case.name: case.model_bytes for case in cases}.items():
        table.add(f"{name}: {size / MEBI:.1f} MiB of parameters.")
    table.add(f"{STEPS} steps, {MICRO_BATCHES} micro-batches of 1 sample.")
    table.head("model", "mode", "ranks", "parameters, x model (formula)", "gradients", "optimizer",
               "allocated, MiB (formula)", "as formula and plan", "planned + copies for saves, MiB", "peak RSS, MiB",
               "above a tiny model, MiB", "that / planned")
    for case in cases:
        case.memory_row(table)
    table.head("model", "mode", "ranks", "units sent a step, least (formula)", "most",
               "busiest rank, sent + received, x model", "as the formula")
    for case in cases:
        if case.ranks > 1:
            case.traffic_row(table)


def models_of(text):
    """Returns the models that a user named, separated by semicolons, or all; ValueError if one is unknown."""
    names = list(MODELS) if text == "all" else [name.strip() for name in text.split(";")]
    for name in names:
        if name not in MODELS:
            raise ValueError(f"{name}: expected one of {'; '.join(MODELS)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--models", type=models_of, default=["gpt, tied"],
                        help="all, or separated by semicolons: " + "; ".join(MODELS))
    parser.add_argument("--modes", type=sharding_modes.chosen, default=list(sharding_modes.MODES),
                        help="separated by semicolons: " + "; ".join(sharding_modes.MODES))
    parser.add_argument("--ranks", type=lambda text: [int(item) for item in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--small", action="store_true", help="small models, without those of the program's own memory")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a number differs from its formula")
    parser.add_argument("--markdown", help="file for the tables")
    options = parser.parse_args()
    options.models_by_name = SMALL if options.small else MODELS
    table = report.Report("Memory and traffic of each way of sharding")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options.data = [{"path": str(same_bits.text_file(folder)), "tokenizer": "bytes"},
                        table_files.write(folder, TABLE["inputs"], TABLE["outputs"])]
        cases, failures = measure_all(options)
    print_tables(cases, table)
    if options.markdown:
        table.save(options.markdown)
    wrong = sum(not (case.has_right_memory() and case.has_right_traffic()) for case in cases)
    print(f"{len(cases) - wrong} of {len(cases)} as the formulas say, {failures} failed", file=sys.stderr)
    return 1 if failures or not cases or (options.check and wrong) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures memory and traffic of data, tensor and pipeline parallelism, next to the formulas of docs/parallelism.md.

  bench/train/mesh_costs.py --build build --markdown FILE
  bench/train/mesh_costs.py --build build --check

Every job trains a small GPT-2 with a tied embedding (PipeDream: untied, without clipping) on this machine, in fp32, with one thread per process, and without
recomputation: 4 steps of the same 32 samples, in micro-batches of 2. Traffic is what a rank sent in a step, by its own counters (the line
`traffic` of its log), and memory what it allocated (the line `memory`). The first table has one row for each mesh, the
second one a row for each kind of rank. Idle shares are those of the schedule, computed and not measured.

The exit code is 1 if a job failed. With --check also if a rank's traffic, state or activations differ from the formula
by a byte.
"""
import argparse
import pathlib
import sys
import tempfile

import local_job
import mesh_formulas
import report
import same_bits
from mesh_formulas import PIPEDREAM, SMALL_UNTIED, Mesh

STEPS, KIBI = 4, 1024
MESHES = (Mesh(1, 1, 1), *(Mesh(1, n, 1) for n in (2, 4, 8)), *(Mesh(1, 1, n) for n in (2, 4, 8)),
          *(Mesh(1, 1, n, rows=True) for n in (2, 4, 8)),
          *(Mesh(n, 1, 1, schedule) for schedule in ("1f1b", "gpipe", "naive", "zerobubble") for n in (2, 4, 8)),
          *(Mesh(n, 1, 1, PIPEDREAM, sizes=SMALL_UNTIED) for n in (2, 4, 8)),
          Mesh(2, 2, 2), Mesh(2, 2, 2, rows=True))


def name_of(mesh):
    axes = [f"{axis} {ranks}" for axis, ranks in zip(("pipeline", "data", "tensor"), mesh) if ranks > 1]
    words = [" x ".join(axes) or "one process", mesh.schedule if mesh.pipeline > 1 else ""]
    return ", ".join(filter(None, [*words, "sequence parallel" if mesh.rows else ""]))


def fields_of(mesh):
    """Returns spec.parallelism."""
    fields = {"pipeline": mesh.pipeline, "tensor": mesh.tensor}
    if mesh.pipeline > 1:
        fields["pipelineSchedule"] = mesh.schedule
    return fields | ({"sequenceParallel": True} if mesh.rows else {})


class Case:
    """A mesh and what its ranks logged."""

    def __init__(self, options, data, mesh):
        self.mesh = mesh
        batch = {"global": mesh.sizes.samples, "micro": mesh.sizes.micro}
        train = {"model": mesh_formulas.model_of(mesh.sizes), "data": data, "steps": STEPS, "batch": batch, "recompute": "none"}
        if mesh.schedule == PIPEDREAM:
            train["optimizer"] = {"clipNorm": 0}
        ranks = mesh_formulas.size(mesh)
        program = pathlib.Path(options.build).resolve() / "bin/lockstep"
        with tempfile.TemporaryDirectory() as folder:
            output = local_job.run(program, local_job.job(train, 1, ranks, fields_of(mesh)),
                                   pathlib.Path(folder) / "job", options.limit).output
            memory, traffic = local_job.logged(output, "memory"), local_job.logged(output, "traffic")
        if len(memory) != ranks or len(traffic) != ranks:
            raise local_job.JobFailed(f"{len(memory)} and {len(traffic)} ranks logged, expected {ranks}")
        self.held = [{name: int(value) for name, value in memory[rank].items() if name.endswith("Bytes")}
                     for rank in range(ranks)]
        self.sent = [int(traffic[rank]["bytesSent"]) / STEPS for rank in range(ranks)]

    def stage(self, rank):
        return rank // (mesh_formulas.size(self.mesh) // self.mesh.pipeline)

    def found(self, rank):
        """Returns the numbers of a rank that have formulas."""
        held = self.held[rank]
        state = sum(held[name] for name in ("parametersBytes", "gradientsBytes", "optimizerBytes"))
        return self.sent[rank], state, held["activationsBytes"]

    def expected(self, stage):
        return tuple(formula(self.mesh, stage) for formula in (
            mesh_formulas.sent, mesh_formulas.state_bytes, mesh_formulas.activation_bytes))

    def is_right(self):
        return all(self.found(rank) == self.expected(self.stage(rank)) for rank in range(len(self.held)))

    def add_summary(self, table):
        totals = [held["totalBytes"] for held in self.held]
        table.row(name_of(self.mesh), f"1/{self.mesh.data}", mesh_formulas.micro_batches(self.mesh),
                  f"{max(self.sent) / KIBI:.1f}", f"{sum(self.sent) / KIBI:.1f}", f"{max(totals) / KIBI:.0f}",
                  f"{sum(totals) / KIBI:.0f}", f"{max(totals) * len(totals) / sum(totals):.2f}",
                  f"{mesh_formulas.idle_share(self.mesh):.0%}")

    def add_stages(self, table):
        for stage in range(self.mesh.pipeline):
            first = stage * len(self.held) // self.mesh.pipeline
            pairs = zip(self.found(first), self.expected(stage))
            table.row(name_of(self.mesh), stage, *(f"{value:.0f}" for pair in pairs for value in pair))


def measure(options):
    """Returns the cases that ran."""
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        data = {"path": str(same_bits.text_file(pathlib.Path(folder))), "tokenizer": "bytes"}
        for mesh in options.meshes:
            try:
                cases.append(Case(options, data, mesh))
            except local_job.JobFailed as error:
                print(f"{name_of(mesh)}: {error}", file=sys.stderr, flush=True)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a number differs from its formula")
    parser.add_argument("--markdown", help="file for the tables")
    parser.add_argument("--ranks", type=int, help="only meshes of so many ranks")
    options = parser.parse_args()
    options.meshes = [mesh for mesh in MESHES if options.ranks in (None, mesh_formulas.size(mesh))]
    cases = measure(options)
    table = report.Report("Memory and traffic of data, tensor and pipeline parallelism")
    table.head("mesh", "samples of a step that a rank reads", "micro-batches", "sent in a step, KiB: busiest rank",
               "all ranks", "allocated, KiB: largest rank", "all ranks", "largest rank / mean",
               "idle share of the schedule")
    for case in cases:
        case.add_summary(table)
    table.head("mesh", "stage", "sent in a step, bytes", "formula", "parameters, gradients, states, bytes", "formula",
               "activations, bytes", "formula")
    for case in cases:
        case.add_stages(table)
    if options.markdown:
        table.save(options.markdown)
    wrong = sum(not case.is_right() for case in cases)
    failures = len(options.meshes) - len(cases)
    print(f"{wrong} of {len(cases)} differ from the formulas, {failures} failed", file=sys.stderr)
    return 1 if failures or (options.check and wrong) else 0


if __name__ == "__main__":
    sys.exit(main())

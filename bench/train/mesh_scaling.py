#!/usr/bin/env python3
"""Measures how each way of dividing a job scales, and computes it for more processes than this machine has cores.

  bench/train/mesh_scaling.py --build build-release --markdown FILE      # about 10 minutes on 2 cores
  bench/train/mesh_scaling.py --build build --tiny                       # a short look

Every job trains a GPT-2 in fp32, with one thread per process and without recomputation. Strong scaling has the same
samples in a step for every number N of processes. Weak scaling has as many samples for each process, so a step has N
times as many, for pipelines and tensor parallelism too; the model stays the same. PipeDream needs an untied head and
no clipping, so it is compared with one process that has both as well.

- Measured, for N up to the number of cores: rounds of jobs in turns. Seconds of a step are the median over all timed
  steps. The speed-up is that of tokens/s over one process of the same round: median (least to most) of the rounds.
  Efficiency is the speed-up / N. Communication is the share of rank 0's step in which it waits for messages, sums and
  gathers; in a pipeline that includes its idle time. Waits are the share of all ranks' time in which they compute
  nothing, from their timelines.
- Computed, for larger N: scaling_model.py, from the times of one process and from latencies and bandwidths that
  `lockstep bench` measures in the same run. Communication is then the exposed part with the idle time, on the slowest
  rank. A table compares the model with what was measured.
- CPU seconds of all workers, for every N: what dividing adds to the work, with what waiting processes spin. With more
  processes than cores nothing else is reported of a job, because its wall time means nothing.

Prints Markdown. Nothing else should run on the machine meanwhile. The exit code is 1 if a job failed, or if the busiest
rank of one sent other bytes than the formulas of mesh_formulas.py and sharding_formulas.py say.
"""
import argparse
import collections
import os
import pathlib
import statistics
import sys
import tempfile

import local_job
import mesh_formulas
import report
import scaling_jobs
import scaling_model
from scaling_jobs import STRATEGIES
from scaling_model import Strategy, Times

RANKS = (1, 2, 4, 8)
MEBI = 1 << 20
SENT_TOLERANCE = 1e-3  # a ring may cut an all-reduce into unequal parts
SHOWN_BYTES_MIN = 4096  # smaller messages take a latency
TINY_STRATEGIES = ("data", "data, sharding parameters", "tensor", "pipeline, pipedream")
ALONE = {is_tied: Strategy("one process" if is_tied else "one process, untied head, no clipping", "data",
                           is_tied=is_tied) for is_tied in (True, False)}
Row = collections.namedtuple("Row", "seconds speed_up communication waits sent")
# name: of a scaling; times: how many times the samples of one process a step of N processes has.
Scaling = collections.namedtuple("Scaling", "name times")
SCALINGS = (Scaling("strong", lambda ranks: 1), Scaling("weak", lambda ranks: ranks))


def spread(values):
    middle = statistics.median(values)
    return f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else f"{middle:.2f}"


class Measurements:
    """What all jobs measured, by strategy, ranks and samples of a step: a list with one Measured for each round."""

    def __init__(self, options, runner):
        self.options, self.runner = options, runner
        self.found, self.failures = collections.defaultdict(list), []
        self.network = scaling_jobs.measure_network(runner, max(2, min(options.cores, RANKS[-1])))

    def run(self, strategy, ranks, samples):
        """Runs a job, unless it failed before."""
        key = strategy.name, ranks, samples
        if key in self.failures:
            return
        try:
            one = self.runner.run(strategy, ranks, samples)
        except local_job.JobFailed as error:
            print(f"{strategy.name}, {ranks} processes, {samples} samples: {error}", file=sys.stderr, flush=True)
            self.failures.append(key)
            self.found.pop(key, None)
            return
        self.found[key].append(one)
        print(f"{strategy.name}, {ranks} processes, {samples} samples: "
              f"{statistics.median(one.seconds['total']):.3f} s a step", file=sys.stderr, flush=True)

    def run_all(self):
        samples, strategies = self.runner.sizes.samples, self.options.strategies
        for _ in range(self.options.rounds):
            for alone in self.options.alone:
                self.run(alone, 1, samples)
            for strategy in strategies:
                for ranks in self.options.measured:
                    for scaling in SCALINGS:
                        self.run(strategy, ranks, samples * scaling.times(ranks))
        for strategy in strategies:
            for ranks in self.options.crowded:
                self.run(strategy, ranks, samples)

    def seconds(self, key, part="total"):
        """Returns the median of a part over the steps of all rounds."""
        return statistics.median(second for one in self.found[key] for second in one.seconds[part])

    def is_measured(self, key):
        return bool(self.found.get(key))

    def alone(self, strategy):
        return ALONE[strategy.is_tied].name, 1, self.runner.sizes.samples

    def times(self, strategy):
        """Returns the Times of the strategy's process that is alone."""
        alone, sizes = self.alone(strategy), self.runner.sizes
        whole, *parts = (self.seconds(alone, part) for part in ("total", "forward", "backward", "update"))
        micro_batches = sizes.samples // sizes.micro
        return Times(parts[0] / micro_batches, parts[1] / micro_batches, parts[2], whole - sum(parts))

    def computed(self, strategy, ranks, scaling):
        """Returns the Row of the model."""
        sizes = self.runner.sizes._replace(samples=self.runner.sizes.samples * scaling.times(ranks))
        one = scaling_model.step(strategy, ranks, sizes, self.times(strategy), self.network)
        sent = scaling_model.sent(strategy, scaling_model.mesh_of(strategy, ranks, sizes))
        speed_up = scaling.times(ranks) * self.seconds(self.alone(strategy)) / one.total
        return Row(one.total, [speed_up], (one.exposed + one.idle) / one.total, one.waits, sent)

    def measured(self, strategy, ranks, scaling):
        """Returns the Row of what was measured; None if a job failed."""
        key = strategy.name, ranks, self.runner.sizes.samples * scaling.times(ranks)
        if not self.is_measured(key):
            return None
        pairs = zip(self.found[self.alone(strategy)], self.found[key])
        speed_ups = [scaling.times(ranks) * statistics.median(one.seconds["total"]) /
                     statistics.median(mine.seconds["total"]) for one, mine in pairs]
        communication = self.seconds(key, "communication") / self.seconds(key)
        waits = statistics.median(one.waits for one in self.found[key])
        return Row(self.seconds(key), speed_ups, communication, waits, self.found[key][0].sent)

    def wrong_bytes(self):
        """Returns a line for each measured strategy whose busiest rank did not send what the formulas say."""
        wrong = []
        for strategy in self.options.strategies:
            for ranks in self.options.measured:
                for scaling in SCALINGS:
                    mine = self.measured(strategy, ranks, scaling)
                    formula = self.computed(strategy, ranks, scaling).sent
                    if mine and abs(mine.sent - formula) > SENT_TOLERANCE * formula:
                        wrong.append(f"{strategy.name}, {ranks} processes, {scaling.name}: the busiest rank sent "
                                     f"{mine.sent:.0f} bytes in a step, expected {formula:.0f}")
        return wrong


def add_row(table, measurements, name, ranks, how, row, times):
    if row is None:
        table.row(name, ranks, "failed", *["-"] * 7)
        return
    sizes = measurements.runner.sizes
    tokens = sizes.samples * times * sizes.context / row.seconds
    table.row(name, ranks, how, f"{row.seconds:.3f}", f"{tokens:,.0f}", spread(row.speed_up),
              f"{statistics.median(row.speed_up) / ranks:.0%}", f"{row.communication:.1%}", f"{row.waits:.1%}",
              f"{row.sent / MEBI:.1f}")


def add_scaling(table, measurements, scaling):
    """Adds the rows of strong or weak scaling."""
    options, samples = measurements.options, measurements.runner.sizes.samples
    grows = f"{samples} samples for each process" if scaling.name == "weak" else f"{samples} samples in a step"
    table.add(f"\n## {scaling.name.capitalize()} scaling: {grows}")
    table.head("strategy", "N", "numbers are", "s a step", "tokens/s", "speed-up", "efficiency", "communication",
               "waits, all ranks", "MiB sent, busiest rank")
    for alone in options.alone:
        add_row(table, measurements, alone.name, 1, "measured", measurements.measured(alone, 1, scaling), 1)
    for strategy in options.strategies:
        for ranks in options.measured:
            add_row(table, measurements, strategy.name, ranks, "measured",
                    measurements.measured(strategy, ranks, scaling), scaling.times(ranks))
        for ranks in options.crowded:
            add_row(table, measurements, strategy.name, ranks, "computed",
                    measurements.computed(strategy, ranks, scaling), scaling.times(ranks))


def add_errors(table, measurements):
    """Compares the model with what was measured."""
    table.add("\n## The model, compared with what was measured")
    table.add("\nWith one process the model is exact: that is where its times are from.")
    table.head("strategy", "scaling", "N", "measured, s a step", "computed", "error", "waits, measured", "computed",
               "bytes sent, measured", "formula")
    options = measurements.options
    pairs = [(alone, 1) for alone in options.alone]
    pairs += [(strategy, ranks) for strategy in options.strategies for ranks in options.measured]
    for strategy, ranks in pairs:
        for scaling in SCALINGS[:1 if ranks == 1 else 2]:
            mine = measurements.measured(strategy, ranks, scaling)
            if mine is None:
                continue
            model = measurements.computed(strategy, ranks, scaling)
            table.row(strategy.name, scaling.name, ranks, f"{mine.seconds:.3f}", f"{model.seconds:.3f}",
                      f"{model.seconds / mine.seconds - 1:+.1%}", f"{mine.waits:.1%}", f"{model.waits:.1%}",
                      f"{mine.sent:.0f}", f"{model.sent:.0f}")


def add_work(table, measurements):
    """Compares the CPU time of all workers with that of one process."""
    table.add("\n## Work: CPU seconds of all workers in a step")
    table.add("\nStrong scaling. With more processes than cores this says nothing about speed. Processes that wait "
              "also use some CPU time.")
    table.head("strategy", "N", "CPU seconds a step", "of one process")
    for strategy in measurements.options.strategies:
        alone = statistics.median(one.cpu for one in measurements.found[measurements.alone(strategy)])
        for ranks in (*measurements.options.measured, *measurements.options.crowded):
            key = strategy.name, ranks, measurements.runner.sizes.samples
            if measurements.is_measured(key):
                cpu = statistics.median(one.cpu for one in measurements.found[key])
                table.row(strategy.name, ranks, f"{cpu:.3f}", f"{cpu / alone:.2f}" if alone > 0 else "-")


def add_network(table, network):
    table.add(f"\n## The network of the model: {network.ranks} processes that share memory")
    table.head("operation", "latency of a message, us", "bytes of an operation", "bytes/s sent by a rank, in 10^9")
    for operation, sizes in network.measured.items():
        for size in sizes:
            if size >= SHOWN_BYTES_MIN:
                table.row(operation, f"{network.latency[operation] * 1e6:.1f}", size,
                          f"{network.bandwidth(operation, size) / 1e9:.3f}")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--strategies", default=None, help="separated by semicolons: " + "; ".join(STRATEGIES))
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="up to so many are measured")
    parser.add_argument("--rounds", type=int, default=None, help="3; 1 if tiny")
    parser.add_argument("--steps", type=int, default=2, help="timed in each job")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, few strategies, at most 2 processes")
    parser.add_argument("--markdown", help="file for the tables")
    options = parser.parse_args(arguments)
    known = TINY_STRATEGIES if options.tiny else tuple(STRATEGIES)
    names = [name.strip() for name in options.strategies.split(";")] if options.strategies else known
    if unknown := [name for name in names if name not in STRATEGIES]:
        parser.error(f"--strategies: {unknown[0]}: expected some of {'; '.join(STRATEGIES)}")
    options.strategies = [STRATEGIES[name] for name in names]
    options.alone = [alone for is_tied, alone in ALONE.items()
                     if is_tied in {strategy.is_tied for strategy in options.strategies}]
    options.rounds = options.rounds or (1 if options.tiny else 3)
    if min(options.rounds, options.steps, options.warmup, options.cores) < 1:
        parser.error("expected --rounds, --steps, --warmup and --cores from 1")
    ranks = [one for one in RANKS if one > 1 and (one <= 2 or not options.tiny)]
    options.measured = [one for one in ranks if one <= options.cores]
    options.crowded = [one for one in ranks if one > options.cores]
    return options


def main():
    options = parse()
    sizes = scaling_jobs.TINY if options.tiny else scaling_jobs.FULL
    table = report.Report("Strong and weak scaling of data, tensor and pipeline parallelism")
    with tempfile.TemporaryDirectory() as folder:
        measurements = Measurements(options, scaling_jobs.Runner(options, pathlib.Path(folder), sizes))
        measurements.run_all()
    if not all(measurements.is_measured(measurements.alone(alone)) for alone in options.alone):
        sys.exit("one process failed, so there is nothing to compare with")
    table.add(f"{mesh_formulas.model_of(sizes)}, fp32, micro-batches of {sizes.micro} x {sizes.context} tokens, "
              f"1 thread for each process. Cores: {options.cores}. Rounds: {options.rounds}, each of {options.steps} "
              f"timed steps after {options.warmup} for warming up.")
    for scaling in SCALINGS:
        add_scaling(table, measurements, scaling)
    add_errors(table, measurements)
    add_work(table, measurements)
    add_network(table, measurements.network)
    if options.markdown:
        table.save(options.markdown)
    wrong = measurements.wrong_bytes()
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if measurements.failures or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

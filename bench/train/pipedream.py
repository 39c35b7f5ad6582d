#!/usr/bin/env python3
"""Compares PipeDream with 1F1B: how well a model learns from the same samples, and how fast.

  bench/train/pipedream.py --build build-release                 # the King James job, about 10 minutes on 2 cores
  bench/train/pipedream.py --build build --steps 20 --every 10   # a short look

Both train the GPT of examples/kjv-gpt.yaml with an untied head and without clipping, as two stages, one process each with one
thread, from the same initial values on the same batches. PipeDream runs with weight stashing and with vertical sync. The text
is build/data/kjv.txt, which tools/quickstart writes. Prints a Markdown table: validation losses, and tokens/s as the median
over the steps, without those after which the pipeline was emptied. The programs run one after another, so other load on
the machine shows in the speeds. The exit code is 1 if a final validation loss is above 1F1B's by more than --ratio, 2 %.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import local_job

WAYS = {"1f1b": {"pipelineSchedule": "1f1b"}, "pipedream": {"pipelineSchedule": "pipedream"},
        "pipedream, verticalSync": {"pipelineSchedule": "pipedream", "verticalSync": True}}
CONTEXT, BATCH, MICRO = 128, 16, 2
LIMIT_SECONDS = 3600


def spec(options, parallelism):
    every = {"everySteps": options.every}
    train = {"model": {"layers": 4, "width": 128, "heads": 4, "context": CONTEXT, "head": "untied"},
             "data": {"path": str(options.text.resolve()), "tokenizer": "bytes", "validationFraction": 0.05},
             "steps": options.steps, "batch": {"global": BATCH, "micro": MICRO}, "validation": every,
             "optimizer": {"learningRate": options.rate, "schedule": "cosine", "warmupSteps": min(100, options.steps // 4),
                           "minimumLearningRate": options.rate / 20, "clipNorm": 0}}
    return local_job.job(train, nodes=2, parallelism={"pipeline": 2} | parallelism, checkpoint=every)


def validations(output):
    """Returns the validation losses by step."""
    lines = (output / "checkpoints/metrics.jsonl").read_text().splitlines()
    return {line["step"]: line["validationLoss"] for line in map(json.loads, lines) if "validationLoss" in line}


def tokens_per_second(output, every):
    seconds = [numbers["seconds"]["total"] for numbers in local_job.steps(output) if numbers["step"] % every > 1]
    return BATCH * CONTEXT / statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path("build/data/kjv.txt"))
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--every", type=int, default=500, help="steps between validations")
    parser.add_argument("--rate", type=float, default=2.0e-3, help="the learning rate")
    parser.add_argument("--ways", default="all", help="separated by semicolons: " + "; ".join(WAYS))
    parser.add_argument("--ratio", type=float, default=1.02, help="of the last loss to 1F1B's that fails")
    options = parser.parse_args()
    ways = list(WAYS) if options.ways == "all" else ["1f1b", *options.ways.split("; ")]
    program = options.build.resolve() / "bin/lockstep"
    losses, speeds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ways:
            parallelism = WAYS[name]
            output = pathlib.Path(folder) / name.replace(", ", "-")
            local_job.run(program, spec(options, parallelism), output, LIMIT_SECONDS)
            losses[name], speeds[name] = validations(output), tokens_per_second(output, options.every)
    steps = sorted(losses["1f1b"])
    print(f"| schedule | tokens/s | of 1f1b | {' | '.join(f'loss at {step}' for step in steps)} | last loss, of 1f1b |")
    print("|---" * (len(steps) + 4) + "|")
    worst = 0
    for name in ways:
        ratio = losses[name][steps[-1]] / losses["1f1b"][steps[-1]]
        worst = max(worst, ratio)
        print(f"| {name} | {speeds[name]:,.0f} | {speeds[name] / speeds['1f1b']:.2f} | "
              f"{' | '.join(f'{losses[name][step]:.4f}' for step in steps)} | {ratio:.4f} |")
    return 1 if worst > options.ratio else 0


if __name__ == "__main__":
    sys.exit(main())

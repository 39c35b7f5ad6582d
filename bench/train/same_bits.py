#!/usr/bin/env python3
"""Compares two builds bit by bit: the same jobs, the same checkpoints, losses, texts and exports.

  bench/train/same_bits.py OLD NEW [JOB...]   OLD, NEW: folders with lockstep, lockstep-controller,
                                              lockstep-agent and lockstep-worker

Each job runs on this machine with `lockstep run`, in both builds. NEW also continues a checkpoint of
OLD, trains on from weights that OLD exported, and finishes a run whose worker is killed. Checkpoints
are compared tensor by tensor, so OLD and NEW may divide them into files in different ways. Prints a
line per comparison; the exit code is 1 if any of them differs. Gradient norms are compared to 12
digits: their sum has another order of additions since it does not depend on the layout.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import stored_tensors

STEPS = 24
EVERY = 8
BASE = {"layers": 2, "width": 64, "heads": 4, "context": 64}
JOBS = {
    "gpt2, 2 nodes": {"nodes": 2},
    "gpt2, 1 node, accumulation": {"batch": {"global": 12, "micro": 3}},
    "gpt2, 3 nodes, uneven buckets": {"nodes": 3, "batch": {"global": 12, "micro": 2},
                                      "train": {"bucketBytes": 40000}},
    "gpt2, recomputed": {"train": {"recompute": "blocks"}},
    "gpt2, bf16, stochastic rounding": {"train": {"precision": "bf16", "rounding": "stochastic"}},
    "gpt2, untied, clipped": {"model": {"head": "untied"}, "optimizer": {"clipNorm": 0.5}},
    "llama, 2 nodes": {"nodes": 2, "model": {"family": "llama", "kvHeads": 2, "hiddenWidth": 172}},
}
COMPARED = ("step", "loss", "validationLoss", "learningRate", "gradientNorm")
POSITION = ("step", "samples", "weightsSeed", "dataSeed", "loss")  # members of a manifest


def text_file(folder):
    """Bytes that are worth learning: words of a small vocabulary."""
    words = ["sower", "went", "forth", "to", "sow", "and", "some", "fell", "by", "the", "way"]
    chance = random.Random(7)
    path = folder / "text.txt"
    path.write_text(" ".join(chance.choice(words) for _ in range(20000)))
    return path


def job(text, changes):
    train = {
        "model": BASE | changes.get("model", {}),
        "data": {"path": str(text), "tokenizer": "bytes", "validationFraction": 0.02},
        "steps": changes.get("steps", STEPS),
        "batch": changes.get("batch", {"global": 12}),
        "optimizer": {"learningRate": 2e-3, "schedule": "cosine", "warmupSteps": 4}
        | changes.get("optimizer", {}),
        "validation": {"everySteps": EVERY},
        "sample": {"tokens": 40, "prompt": "the", "temperature": 0.7, "topK": 20},
    } | changes.get("train", {})
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "same-bits"},
        "spec": {"nodes": changes.get("nodes", 1), "train": train,
                 "checkpoint": {"everySteps": EVERY, "keep": 100}},
    }


def command_of(build, spec, output):
    file = output.with_suffix(".json")
    file.write_text(json.dumps(spec))
    return [str(build / "lockstep"), "run", str(file), "--output", str(output)]


def run(build, spec, output):
    done = subprocess.run(command_of(build, spec, output), capture_output=True,
                          text=True, errors="replace")
    if done.returncode != 0:
        raise SystemExit(f"{build}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def children(pid):
    try:
        return [int(c) for t in os.listdir(f"/proc/{pid}/task")
                for c in pathlib.Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:
        return []


def worker_below(pid):
    for child in children(pid):
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text().startswith("lockstep-worke"):
                return child
        except OSError:
            continue
        if found := worker_below(child):
            return found
    return None


def run_with_a_kill(build, spec, output):
    """Kills a worker once the first checkpoint is there. Returns whether one was killed."""
    process = subprocess.Popen(command_of(build, spec, output), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    killed = False
    while process.poll() is None:
        if not killed and list(output.rglob("manifest.json")):
            if worker := worker_below(process.pid):
                os.kill(worker, signal.SIGKILL)
                killed = True
        time.sleep(0.005)
    if process.returncode != 0:
        raise SystemExit(f"{build}: exit code {process.returncode} after a kill")
    return killed


def value_of(name, value):
    return f"{value:.11e}" if name == "gradientNorm" else value


def checkpoint_contents(folder):
    """Returns the state and the position that a checkpoint stores: name -> digest or value."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = {name: manifest[name] for name in POSITION}
    for name, tensor in stored_tensors.read_checkpoint(folder).items():
        found[name] = (tensor.shape, hashlib.sha256(tensor.data).hexdigest())
    return found


def contents(output):
    """Returns what two runs must share: name -> digest or values."""
    found = {}
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        if path.name == "manifest.json":
            of_checkpoint = checkpoint_contents(path.parent)
            found |= {f"{path.parent.name}/{item}": value for item, value in of_checkpoint.items()}
        is_export = path.suffix == ".safetensors" and not (path.parent / "manifest.json").exists()
        if is_export or path.name in ("sample.txt", "config.json"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{k: value_of(k, v) for k, v in line.items() if k in COMPARED} for line in lines]
    return found


class Report:
    def __init__(self):
        self.differ = 0

    def compare(self, what, old, new):
        wrong = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        enough = len(old) > 0
        self.differ += bool(wrong) or not enough
        verdict = "same bits" if enough and not wrong else "DIFFERS: " + (", ".join(wrong) or "empty")
        print(f"{what}: {len(old)} tensors and files, {verdict}", flush=True)


def export(build, output, to):
    subprocess.run([str(build / "lockstep"), "export", str(newest(output)), str(to)], check=True,
                   capture_output=True)
    return contents(to.parent)


def newest(output):
    return max(output.rglob("manifest.json"), key=lambda p: p.parent.name).parent


def compare_job(report, name, changes, builds, folder, text):
    spec = job(text, changes)
    outputs = [folder / side for side in ("old", "new")]
    for build, output in zip(builds, outputs):
        run(build, spec, output)
    report.compare(name, contents(outputs[0]), contents(outputs[1]))
    files = [folder / f"exported-{side}" / "model.safetensors" for side in ("old", "new")]
    for file in files:
        file.parent.mkdir()
    exports = [export(build, outputs[0], file) for build, file in zip(builds, files)]
    report.compare(f"{name}: export of one checkpoint", *exports)
    weights = {"train": changes.get("train", {}),
               "model": changes.get("model", {}) | {"weights": {"path": str(files[0])}}}
    for build, side in zip(builds, ("old", "new")):
        run(build, job(text, changes | weights), folder / f"imported-{side}")
    report.compare(f"{name}: from weights", contents(folder / "imported-old"),
                   contents(folder / "imported-new"))
    longer = job(text, changes | {"steps": 2 * STEPS})
    for first, output in ((builds[0], folder / "resumed-old"), (builds[0], folder / "resumed-new")):
        run(first, spec, output)
    for build, side in zip(builds, ("old", "new")):
        run(build, longer, folder / f"resumed-{side}")
    report.compare(f"{name}: continued from a checkpoint of OLD", contents(folder / "resumed-old"),
                   contents(folder / "resumed-new"))
    killed = run_with_a_kill(builds[1], spec, folder / "killed")
    report.compare(f"{name}: NEW, a worker {'killed' if killed else 'NOT killed, it was too fast'}",
                   contents(outputs[0]), contents(folder / "killed"))


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    builds = [pathlib.Path(p).resolve() for p in sys.argv[1:3]]
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        text = text_file(pathlib.Path(temporary))
        for name in sys.argv[3:] or JOBS:
            folder = pathlib.Path(temporary) / name.replace(" ", "-").replace(",", "")
            folder.mkdir()
            compare_job(report, name, JOBS[name], builds, folder, text)
    return 1 if report.differ else 0


if __name__ == "__main__":
    sys.exit(main())

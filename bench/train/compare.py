#!/usr/bin/env python3
"""Compares training on this CPU with PyTorch: same shapes, threads and precision, interleaved.

  python3 -m venv env && env/bin/pip install torch numpy    # a current release
  bench/train/compare.py --python env/bin/python --build build --rounds 5

For each row it first finds PyTorch's better setting (eager or torch.compile); then the two programs
take turns. Prints a Markdown table of medians with their spread, and the seconds from the start of
each program to its first finished step. Nothing else should run on the machine meanwhile.
"""
import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KJV = {"layers": 4, "width": 128, "heads": 4, "context": 128, "vocabulary": 256}
GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 64, "vocabulary": 50304, "batch": 4}
# name, bench_step's flags, the peer's shape, steps per turn
ROWS = [
    ("kjv-gpt, 1 process x 1 thread, fp32", {"preset": "kjv", "threads": 1, "ranks": 1},
     {**KJV, "batch": 16}, 20),
    ("kjv-gpt, 2 processes x 1 thread, fp32", {"preset": "kjv", "threads": 1, "ranks": 2},
     {**KJV, "batch": 8}, 20),
    ("kjv-gpt, 1 process x 1 thread, bf16",
     {"preset": "kjv", "threads": 1, "ranks": 1, "precision": "bf16"}, {**KJV, "batch": 16}, 20),
    ("GPT-2 124M, 4 x 64, 2 threads, fp32", {"preset": "gpt2-124m", "threads": 2, "ranks": 1}, GPT2, 5),
    ("GPT-2 124M, 4 x 64, 2 threads, bf16",
     {"preset": "gpt2-124m", "threads": 2, "ranks": 1, "precision": "bf16"}, GPT2, 5),
]


def flags(values):
    return [part for key, value in values.items() for part in (f"--{key}", str(value))]


def run_json(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(options, row, steps):
    return run_json([f"{options.build}/bin/bench_step", *flags(row), "--warmup", "2", "--steps", str(steps)])


def peer(options, row, shape, steps, is_compiled):
    settings = {**shape, "threads": row["threads"], "ranks": row["ranks"],
                "precision": row.get("precision", "fp32"), "warmup": 2, "steps": steps}
    command = [options.python, str(ROOT / "bench/train/torch_gpt2.py"), *flags(settings)]
    return run_json(command + (["--compile"] if is_compiled else []))


def spread(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def compare(options, name, row, shape, steps):
    probes = {is_compiled: peer(options, row, shape, steps, is_compiled)["tokensPerSecond"]
              for is_compiled in (False, True)}
    best = max(probes, key=probes.get)
    mine, theirs, percent = [], [], []
    for _ in range(options.rounds):
        result = ours(options, row, steps)
        mine.append(result["tokensPerSecond"])
        percent.append(result["percentOfOneDnn"])
        theirs.append(peer(options, row, shape, steps, best)["tokensPerSecond"])
    ratio = statistics.median(a / b for a, b in zip(mine, theirs))
    setting = "torch.compile" if best else "eager"
    print(f"| {name} | {spread(mine)} | {spread(theirs)}, {setting} | **{ratio:.2f}** | "
          f"{statistics.median(percent):.0f} % |", flush=True)


def first_step_ours(options):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        begin = time.perf_counter()
        run = subprocess.Popen([f"{options.build}/bin/lockstep", "run", str(ROOT / "examples/kjv-gpt.yaml"),
                                "--output", str(output)], stderr=subprocess.DEVNULL)
        metrics = output / "checkpoints/metrics.jsonl"
        while run.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.001)
        seconds = time.perf_counter() - begin
        run.send_signal(signal.SIGINT)
        run.wait()
        return seconds


def first_step_peer(options):
    begin = time.perf_counter()
    run_json([options.python, str(ROOT / "bench/train/torch_gpt2.py"),
              *flags({**KJV, "batch": 8, "ranks": 2, "threads": 1, "warmup": 0, "steps": 1})])
    return time.perf_counter() - begin


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    version = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"],
                             capture_output=True, text=True, check=True).stdout.strip()
    print(f"{cpu_name()}, {os.cpu_count()} CPUs, PyTorch {version}, {options.rounds} rounds; tokens/s: "
          "median (least to most)\n")
    print("| what | Lockstep | PyTorch, its better setting | ratio | products, of oneDNN's own rate |")
    print("|---|---|---|---|---|")
    for row in ROWS:
        compare(options, *row)
    mine = [first_step_ours(options) for _ in range(options.rounds)]
    theirs = [first_step_peer(options) for _ in range(options.rounds)]
    print(f"\nFrom the start of the program to its first finished step, kjv-gpt, 2 processes: "
          f"Lockstep {statistics.median(mine):.2f} s (control plane included), "
          f"PyTorch {statistics.median(theirs):.2f} s (eager).")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Changes the number of a job's parameter servers with kubectl while it trains, and measures how long that takes.

  bench/server/resharding.py --build build-release --kubectl kubectl --results FOLDER

The job has 2 workers and trains a factorization machine on a generated click log. `lockstep up` runs it on this
machine. A change is over when status counts the wanted number of servers. The longest step is rank 0's while the change
goes on. For comparison, the same job begins a new round in the same way: by suspending and resuming it with another
number of servers.

Prints Markdown; exits with 1 if the job began a new round, restarted, or lost a step.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

CHANGES = (3, 4, 2, 1, 2)
STEPS_BETWEEN = 60

JOB = """apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {{name: clicks}}
spec:
  nodes: 2
  parameterServers: {{nodes: 2, consistency: {consistency}{staleness}}}
  train:
    model: {{family: factorizationMachine, factors: 16}}
    data: {{path: {log}, format: criteo, validationFraction: 0.01}}
    steps: 100000
    batch: {{global: 1024}}
    optimizer: {{name: adagrad, learningRate: 0.05, weightDecay: 0, clipNorm: 0}}
  checkpoint: {{path: {folder}, everySteps: 0}}
"""


def run(kubectl, *words):
    return subprocess.run((kubectl, *words), check=True, capture_output=True, text=True).stdout


def status(kubectl):
    return json.loads(run(kubectl, "get", "trainingjob", "clicks", "-o", "json")).get("status", {})


def counted(view):
    """Returns the number of servers that count in the text of a view, and whether it changes."""
    servers = view.split(":")[-1].split(";")[0].split("#")[0].split(",") if view else []
    changing = any(re.match(r"[*+-]", server) or "~" in server for server in servers)
    return sum(not re.match(r"[*!]", server) for server in servers), changing


def steps_in(metrics):
    """Returns (step, seconds of the step) of each line about a step."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines() if line]
    return [(line["step"], line["seconds"]["total"]) for line in lines if "seconds" in line]


def wait_for_step(kubectl, step):
    while True:
        now = status(kubectl)
        if now.get("state") in ("Failed", "Complete"):
            sys.exit(f"the job is {now.get('state')}")
        if now.get("progress", {}).get("step", 0) >= step:
            return now["progress"]["step"]
        time.sleep(0.05)


def change(kubectl, servers):
    """Patches the number of servers; returns the seconds until that many count."""
    began = time.monotonic()
    run(kubectl, "patch", "trainingjob", "clicks", "--type=merge", "-p",
        json.dumps({"spec": {"parameterServers": {"nodes": servers}}}))
    while counted(status(kubectl).get("serversView", "")) != (servers, False):
        time.sleep(0.02)
    return time.monotonic() - began


def begin_anew(kubectl, servers):
    """Suspends the job, changes the number and resumes it; returns the seconds until it trains again."""
    began = time.monotonic()
    run(kubectl, "patch", "trainingjob", "clicks", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    run(kubectl, "wait", "--for=condition=Suspended", "trainingjob/clicks", "--timeout=60s")
    run(kubectl, "patch", "trainingjob", "clicks", "--type=merge", "-p",
        json.dumps({"spec": {"suspend": False, "parameterServers": {"nodes": servers}}}))
    run(kubectl, "wait", "--for=condition=Running", "trainingjob/clicks", "--timeout=60s")
    return time.monotonic() - began


def measure(kubectl, folder, consistency):
    """Returns rows of a table: (consistency, change, seconds, median step, longest step)."""
    rows = []
    metrics = folder / "metrics.jsonl"
    step = wait_for_step(kubectl, STEPS_BETWEEN)
    servers = 2
    for wanted in CHANGES:
        seconds = change(kubectl, wanted)
        after = wait_for_step(kubectl, step + STEPS_BETWEEN)
        during = [took for at, took in steps_in(metrics) if step <= at <= after]
        rows.append((consistency, f"{servers} to {wanted}", seconds, statistics.median(during), max(during)))
        servers = wanted
        step = wait_for_step(kubectl, after + STEPS_BETWEEN)
    end = status(kubectl)
    if end["round"] != 1 or end.get("restarts", 0) != 0:
        sys.exit(f"round {end['round']}, {end.get('restarts', 0)} restarts: the job did not go on")
    numbers = [at for at, _ in steps_in(metrics)]
    if numbers != list(range(1, len(numbers) + 1)):
        sys.exit("a step is missing, or was done twice")
    rows.append((consistency, "2 to 3 by suspending", begin_anew(kubectl, 3), None, None))
    return rows


def inside(arguments):
    """Runs within `lockstep up`, which sets KUBECONFIG."""
    rows = []
    for consistency, staleness in (("synchronous", ""), ("boundedStaleness", ", staleness: 4"), ("asynchronous", "")):
        folder = arguments.results / consistency
        job = arguments.results / f"{consistency}.yaml"
        job.write_text(JOB.format(consistency=consistency, staleness=staleness, folder=folder,
                                  log=arguments.results / "clicks.tsv"))
        run(arguments.kubectl, "apply", "-f", str(job))
        rows += measure(arguments.kubectl, folder, consistency)
        run(arguments.kubectl, "delete", "trainingjob", "clicks")
    print("| consistency | servers | change | median step | longest step |\n|---|---|---|---|---|")
    for consistency, what, seconds, median, longest in rows:
        steps = "- | -" if median is None else f"{1000 * median:.1f} ms | {1000 * longest:.0f} ms"
        print(f"| {consistency} | {what} | {seconds:.2f} s | {steps} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.results = arguments.results.resolve()
    if arguments.inside:
        return inside(arguments)
    arguments.results.mkdir(parents=True, exist_ok=True)
    lockstep = str(arguments.build.resolve() / "bin/lockstep")
    log = arguments.results / "clicks.tsv"
    if not log.exists():
        subprocess.run((lockstep, "clicks", str(log), "--rows", "2000000", "--keys", "100000"), check=True)
    command = (sys.executable, os.path.abspath(__file__), "--inside", "--build", str(arguments.build),
               "--kubectl", arguments.kubectl, "--results", str(arguments.results))
    return subprocess.run((lockstep, "up", "--machines", "4", "--", *command)).returncode


if __name__ == "__main__":
    sys.exit(main())

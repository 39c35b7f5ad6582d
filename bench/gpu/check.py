#!/usr/bin/env python3
"""Builds, tests and measures the GPU worker in one go; tools/gpu-check says more."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

import parts
from runner import CUT, FAILED, PASSED, SKIPPED, Budget, Finding, run

LIMIT = 540  # seconds of all parts
LEAST = 5    # seconds without which no part and no model is begun
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Check:
    """What the parts share."""

    def __init__(self, options, budget):
        self.options, self.budget, self.root = options, budget, ROOT
        self.out = pathlib.Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.build = pathlib.Path(options.build or ROOT / "build-worker").resolve()
        self.python, self.models = options.python, set(options.models.split(",")) - {""}
        self.threads, self.least_seconds = options.threads, LEAST
        self.log = self.out / "facts.log"
        self.gpu = self.text(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
        self.torch = self.text([self.python, "-c", "import torch; print(torch.__version__)"])
        self.device = options.device or ("cuda" if self.gpu else "cpu")

    def program(self, name):
        """Of the build; also where it isn't there, for which its start is the error."""
        for folder in ("bin", "bin/tests"):
            if (self.build / folder / name).exists():
                return self.build / folder / name
        return self.build / "bin" / name

    def run(self, command):
        return run(command, self.budget.left(), self.log)

    def json(self, command):
        """The outcome, and the object that the program printed last; None where it failed."""
        outcome = self.run(command)
        return outcome, outcome.json() if outcome.code == 0 else None

    @staticmethod
    def text(command, having=""):
        """The first line with that word, None where there is none or no such program."""
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60,
                                  check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = [line.strip() for line in done.stdout.splitlines() if having in line and line.strip()]
        return lines[0] if done.returncode == 0 and lines else None


def parse(arguments):
    names = ",".join(name for name, _, _ in parts.PARTS)
    parser = argparse.ArgumentParser(prog="tools/gpu-check", description=__doc__)
    parser.add_argument("--out", default="gpu-check", help="folder of the results")
    parser.add_argument("--only", default=names, metavar="PART,...", help=f"of {names}")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of all parts")
    parser.add_argument("--build", help="build folder (build-worker)")
    parser.add_argument("--no-build", action="store_true", help="the programs are there")
    parser.add_argument("--headers", help="folder of headers that the machine lacks, as -DLOCKSTEP_HEADERS takes it")
    parser.add_argument("--python", default=shutil.which("python3") or sys.executable, help="one that has PyTorch")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="what is trained on; the GPU where there is one")
    parser.add_argument("--models", default="", metavar="PRESET,...", help="of which speed is measured; all")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    unknown = sorted(set(chosen) - {name for name, _, _ in parts.PARTS})
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not of {names}")
    options.parts = [part for part in parts.PARTS if part[0] in chosen]
    return options


def carry_out(check, name, seconds, work):
    check.budget.begin(seconds)
    check.log = check.out / f"{name}.log"
    check.log.write_text("")
    begin = time.monotonic()
    if check.budget.left() < check.least_seconds:
        found = Finding(CUT, "no time was left")
    else:
        try:
            found = work(check)
        except Exception as error:  # a part's mistake costs the others nothing
            found = Finding(FAILED, f"{type(error).__name__}: {error}")
    found.seconds = time.monotonic() - begin
    (check.out / f"{name}.json").write_text(json.dumps(
        {"part": name, "status": found.status, "what": found.what, "seconds": round(found.seconds, 2),
         **found.values}, indent=1) + "\n")
    return found


def exit_code(findings):
    statuses = {found.status for found in findings.values()}
    if statuses & {FAILED, CUT}:
        return 1
    # Who left out the build has built before.
    skipped = any(found.status == SKIPPED for name, found in findings.items() if name != "build")
    return 77 if skipped else 0


def table(findings, check):
    lines = [f"{'part':<10} {'status':<8} {'s':>6}  what"]
    for name, found in findings.items():
        lines.append(f"{name:<10} {found.status:<8} {found.seconds:6.1f}  {found.what}")
    total = sum(found.seconds for found in findings.values())
    lines.append(f"{total:.0f} s of {check.options.limit:.0f} s; results in {check.out}")
    return "\n".join(lines)


def main(arguments=None):
    options = parse(arguments)
    if options.dry_run:
        for name, seconds, work in options.parts:
            print(f"{name:<10} at most {seconds:3d} s  {(work.__doc__ or '').strip()}".rstrip())
        print(f"together at most {options.limit:.0f} s")
        return 0
    check = Check(options, Budget(options.limit))
    findings = {}
    for name, seconds, work in options.parts:
        print(f"==> {name}", file=sys.stderr, flush=True)
        findings[name] = carry_out(check, name, seconds, work)
    code = exit_code(findings)
    text = table(findings, check)
    (check.out / "summary.json").write_text(json.dumps(
        {"exitCode": code, "parts": {name: {"status": found.status, "what": found.what}
                                     for name, found in findings.items()}}, indent=1) + "\n")
    (check.out / "table.txt").write_text(text + "\n")
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())

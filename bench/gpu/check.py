#!/usr/bin/env python3
"""Builds, tests and measures the GPU worker in one go; tools/gpu-check says more."""
import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import parts
from runner import CUT, FAILED, PASSED, SKIPPED, Budget, Finding, Session, run

LIMIT = 540  # seconds for all parts together
LEAST = 5    # with less seconds left, no part and no model is started
LOG_BYTES = 1 << 20  # kept of each part's log, half from each end
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = ROOT / ".gpu-headers"  # where --pack puts them


class Check:
    """State that all parts share."""

    def __init__(self, options, budget, scratch):
        self.options, self.budget, self.root, self.scratch = options, budget, ROOT, pathlib.Path(scratch)
        self.out = pathlib.Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.build = pathlib.Path(options.build or ROOT / "build-worker").resolve()
        self.python, self.models = options.python, set(options.models.split(",")) - {""}
        self.threads, self.least_seconds, self.rehearses = options.threads, LEAST, options.rehearse
        self.log = self.scratch / "facts.log"
        self.gpu = self.text(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
        self.sees_gpu = self.gpu is not None or bool(glob.glob("/dev/nvidiactl") + glob.glob("/dev/nvidia[0-9]*"))
        self.device = options.device or ("cuda" if self.sees_gpu or self.rehearses else "cpu")
        self.torch_device = "cpu" if self.rehearses else self.device
        self.sizes = "cuda" if self.device == "cuda" and not self.rehearses else "cpu"
        self.torch = self.text([self.python, "-c", "import torch; print(torch.__version__)"])
        self.environment = {"LD_LIBRARY_PATH": ":".join(self.library_folders())}

    def library_folders(self):
        """Returns where cuBLASLt, cuDNN and NCCL may be, in addition to the loader's own folders.

        These are the folders of PyTorch's packages and of the CUDA Toolkit.
        """
        where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        site = self.text([self.python, "-c", where]) or ""
        found = [*glob.glob(f"{site}/nvidia/*/lib"), "/usr/local/cuda/lib64", os.environ.get("LD_LIBRARY_PATH")]
        return [folder for folder in found if folder]

    def program(self, name):
        """Returns the path of a program of the build. If it is missing, starting it fails."""
        name = f"emulated_{name}" if self.rehearses else name
        for folder in ("bin", "bin/tests"):
            if (self.build / folder / name).exists():
                return self.build / folder / name
        return self.build / "bin" / name

    def run(self, command):
        outcome = run(command, self.budget.left(), self.log, self.environment)
        outcome.needs_device = self.device == "cuda"
        return outcome

    def session(self, command):
        return Session(command, self.log)

    def json(self, command):
        """Returns the outcome, and the JSON object that was printed last; None if it failed."""
        outcome = self.run(command)
        return outcome, outcome.json() if outcome.code == 0 else None

    @staticmethod
    def text(command, having=""):
        """Returns the first output line that contains `having`; None if there is none."""
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
    parser.add_argument("--limit", type=float, default=LIMIT,
                        help="seconds of all parts; more than the usual gives each more")
    parser.add_argument("--build", help="build folder (build-worker)")
    parser.add_argument("--no-build", action="store_true", help="the programs are there")
    parser.add_argument("--headers", default=str(HEADERS) if HEADERS.exists() else "",
                        help="folder of headers that the machine lacks, as -DLOCKSTEP_HEADERS takes it; .gpu-headers")
    parser.add_argument("--pack", action="store_true", help="copy this machine's headers to .gpu-headers, no more")
    parser.add_argument("--python", default=shutil.which("python3") or sys.executable, help="one that has PyTorch")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="what is trained on; the GPU where there is one")
    parser.add_argument("--rehearse", action="store_true", help="on the emulated GPU: all but speed, tiny")
    parser.add_argument("--models", default="", metavar="PRESET,...", help="of which speed is measured; all")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and what it may cost")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    unknown = sorted(set(chosen) - {name for name, _, _ in parts.PARTS})
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not of {names}")
    options.parts = [part for part in parts.PARTS if part[0] in chosen]
    return options


def carry_out(check, name, seconds, work):
    check.budget.begin(seconds * max(1.0, check.options.limit / LIMIT))
    check.log = check.scratch / f"{name}.log"
    check.log.write_text("")
    begin = time.monotonic()
    if check.budget.left() < check.least_seconds:
        found = Finding(CUT, "no time was left")
    else:
        try:
            found = work(check)
        except Exception as error:  # a bug in one part must not affect the others
            found = Finding(FAILED, f"{type(error).__name__}: {error}")
    found.seconds = time.monotonic() - begin
    return found


def exit_code(findings):
    statuses = {found.status for found in findings.values()}
    if statuses & {FAILED, CUT}:
        return 1
    # A skipped build does not count: --no-build means that the programs exist.
    skipped = any(found.status == SKIPPED for name, found in findings.items() if name != "build")
    return 77 if skipped else 0


def gpu_hours(seconds):
    return f"{seconds / 3600:.3f} GPU h"


def table(findings, check):
    lines = [line for found in findings.values() for line in found.lines]
    lines += [f"{'part':<12} {'status':<8} {'s':>6}  what"]
    for name, found in findings.items():
        lines.append(f"{name:<12} {found.status:<8} {found.seconds:6.1f}  {found.what}")
    total = sum(found.seconds for found in findings.values())
    lines.append(f"{total:.0f} s of {check.options.limit:.0f} s, {gpu_hours(total)}; results in {check.out}")
    return "\n".join(lines)


def cropped(data):
    if len(data) <= LOG_BYTES:
        return data
    half = LOG_BYTES // 2
    return data[:half] + b"\n[left out]\n" + data[-half:]


def keep(check, findings):
    """Rewrites the three small result files after each part, so that results survive any end."""
    results = {"command": sys.argv, "exitCode": exit_code(findings),
               "parts": {name: {"status": found.status, "what": found.what, "seconds": round(found.seconds, 2),
                                **found.values} for name, found in findings.items()}}
    logs = [f"==> {name}\n".encode() + cropped((check.scratch / f"{name}.log").read_bytes()) for name in findings]
    for name, data in (("results.json", json.dumps(results, indent=1).encode() + b"\n"),
                       ("table.txt", table(findings, check).encode() + b"\n"), ("log.txt", b"".join(logs))):
        fresh = check.out / f".{name}"
        fresh.write_bytes(data)
        fresh.replace(check.out / name)


def pack():
    """Packs the headers that a bare machine lacks, to be copied there with the sources."""
    for source, target in (("/usr/include/nlohmann", "nlohmann"), ("/usr/src/googletest/googletest", "googletest")):
        if not pathlib.Path(source).is_dir():
            print(f"{source}: not here; Debian has it in nlohmann-json3-dev or googletest")
            return 1
        shutil.copytree(source, HEADERS / target, dirs_exist_ok=True)
    print(f"packed to {HEADERS}")
    return 0


def main(arguments=None):
    options = parse(arguments)
    if options.pack:
        return pack()
    if options.dry_run:
        for name, seconds, work in options.parts:
            print(f"{name:<12} at most {seconds:3d} s, {gpu_hours(seconds)}  {(work.__doc__ or '').strip()}".rstrip())
        print(f"together at most {options.limit:.0f} s, {gpu_hours(options.limit)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        check = Check(options, Budget(options.limit), scratch)
        findings = {}
        for name, seconds, work in options.parts:
            print(f"==> {name}", file=sys.stderr, flush=True)
            findings[name] = carry_out(check, name, seconds, work)
            keep(check, findings)
        print(table(findings, check))
    return exit_code(findings)


if __name__ == "__main__":
    sys.exit(main())

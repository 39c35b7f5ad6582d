"""Tables of measurements as Markdown, on stdout and on demand in a file."""
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def command():
    return shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])


class Report:
    """Prints lines at once. save() writes all of them, below the machine, the commit and the command."""

    def __init__(self, title):
        self.title = title
        self.lines = []

    def add(self, text=""):
        self.lines.append(text)
        print(text, flush=True)

    def head(self, *names):
        self.add()
        self.row(*names)
        self.row(*("---" for _ in names))

    def row(self, *values):
        self.add("| " + " | ".join(str(value) for value in values) + " |")

    def save(self, path):
        heading = [f"# {self.title}", "",
                   f"{time.strftime('%Y-%m-%d', time.gmtime())}, {cpu_name()}, {os.cpu_count()} CPUs, "
                   f"commit {commit()}.",
                   f"Load of the machine at the end: {os.getloadavg()[0]:.1f}.", "", f"    {command()}", ""]
        pathlib.Path(path).write_text("\n".join(heading + self.lines) + "\n")

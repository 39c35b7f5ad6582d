"""Kills ranks of a running job in phases that their progress pages show (docs/formats.md)."""
import collections
import json
import os
import pathlib
import signal
import time

from checkpoints import ProgressPage

# The numbers of a worker's phases on its progress page.
PHASES = {"forming": 1, "loading": 2, "broadcasting": 3, "training": 4, "saving": 5, "validating": 6, "finishing": 7}
LOOK_SECONDS = 0.05
POLL_SECONDS = 0.0001
Kill = collections.namedtuple("Kill", "rank phase step", defaults=(0,))  # step: or a later one


def page_of(pid):
    """Returns the progress page of a worker, or None while it starts or ends."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return ProgressPage(pid, json.loads(pathlib.Path(words[2]).read_text())["progressFd"])
    except (OSError, IndexError, ValueError):
        return None


class Kills:
    """Carries out kills one after the other, each in a process of its own. For local_job.run()."""

    def __init__(self, kills):
        self.left = list(kills)
        self.killed = set()
        self.page = self.pid = None

    def __call__(self, workers):
        if not self.left:
            return
        new = [pid for pid, rank in workers.items() if rank == self.left[0].rank and pid not in self.killed]
        if not new:
            return
        if self.pid != new[-1]:
            self.pid, self.page = new[-1], page_of(new[-1])
        limit = time.monotonic() + LOOK_SECONDS
        while self.page and time.monotonic() < limit and not self.kill_if_due():
            time.sleep(POLL_SECONDS)

    def kill_if_due(self):
        step, phase = self.page.step_and_phase()
        if phase != PHASES[self.left[0].phase] or step < self.left[0].step:
            return False
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed |= {self.pid}
        self.pid = self.page = None
        self.left.pop(0)
        return True

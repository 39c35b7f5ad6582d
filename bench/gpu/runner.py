"""Runs programs within a time budget, and records how they ended."""
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import time

PASSED, FAILED, SKIPPED, CUT = "passed", "failed", "skipped", "cut"
WORST_LAST = (PASSED, SKIPPED, CUT, FAILED)
NO_DEVICE = 77  # exit code of programs that find no GPU, and of skipped tests
NO_CUDNN = 78  # exit code if cuDNN is missing or does not support what was to be measured


@dataclasses.dataclass
class Finding:
    """A part's result: `what` in one line, `values` for the file, `lines` for the table."""
    status: str
    what: str
    values: dict = dataclasses.field(default_factory=dict)
    lines: list = dataclasses.field(default_factory=list)
    seconds: float = 0.0


@dataclasses.dataclass
class Outcome:
    """How a program ended. code None: it was out of time; -1: it could not be started."""
    code: int | None
    output: str
    seconds: float
    needs_device: bool = False  # it was asked to use a GPU: a missing one is no reason to skip it

    def finding(self, what=""):
        """Returns the finding for a program whose exit code is its verdict."""
        if self.code is None:
            return Finding(CUT, f"ended after {self.seconds:.0f} s")
        if self.code == NO_DEVICE and not self.needs_device:
            return Finding(SKIPPED, last_line(self.output) or "no GPU")
        if self.code == NO_CUDNN:
            return Finding(SKIPPED, last_line(self.output) or "no cuDNN")
        if self.code == 0:
            return Finding(PASSED, what or last_line(self.output))
        return Finding(FAILED, last_line(self.output) or f"exit code {self.code}")

    def json(self):
        """Returns the JSON object on the last line; None if there is none."""
        return json_object(last_line(self.output))


def json_object(line):
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def worst(statuses):
    return max(statuses, key=WORST_LAST.index, default=PASSED)


class Budget:
    """Seconds left of `limit`, and of the current part within it."""

    def __init__(self, limit, clock=time.monotonic):
        self.clock, self.end = clock, clock() + limit
        self.part_end = self.end

    def begin(self, seconds):
        self.part_end = min(self.end, self.clock() + seconds)

    def left(self):
        return max(0.0, self.part_end - self.clock())


def run(command, limit, log, environment=None):
    """Runs a program that prints to `log`.

    Kills it when `limit` seconds are over. Also kills whatever is left in its process group.
    """
    command = [str(part) for part in command]
    begin = time.monotonic()
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        start = file.tell()
        try:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True, env={**os.environ, **(environment or {})})
        except OSError as error:
            file.write(f"{error}\n")
            return Outcome(-1, str(error), 0.0)
        try:
            code = process.wait(timeout=max(limit, 0.01))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    text = pathlib.Path(log).read_bytes()[start:].decode(errors="replace")
    return Outcome(code, text, time.monotonic() - begin)


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Session:
    """A program that keeps running: it answers each input line with a JSON object on one line.

    Leaving the context kills it.
    """

    def __init__(self, command, log, environment=None):
        self.log = open(log, "a", encoding="utf-8")
        self.log.write(f"$ {' '.join(str(part) for part in command)}\n")
        self.log.flush()
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            start_new_session=True, env={**os.environ, **(environment or {})})
        self.unread = b""

    def __enter__(self):
        return self

    def end(self):
        end_group(self.process)

    def __exit__(self, *_):
        self.end()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()

    def answer(self, limit, line=None):
        """Sends `line` if given. Returns the outcome, and the next object printed or None."""
        begin = time.monotonic()
        try:
            if line is not None:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()
        except OSError:
            pass  # it has ended, which the read reports
        words = ""
        while True:
            while b"\n" not in self.unread:
                left = limit - (time.monotonic() - begin)
                if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                    return Outcome(None, words, time.monotonic() - begin), None
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    return Outcome(self.process.wait(), words or self.last_words(), time.monotonic() - begin), None
                self.unread += more
            text, self.unread = self.unread.split(b"\n", 1)
            words = text.decode(errors="replace")
            self.log.write(words + "\n")
            self.log.flush()
            value = json_object(words)
            if value is not None:
                return Outcome(0, words, time.monotonic() - begin), value

    def last_words(self):
        return last_line(pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace"))

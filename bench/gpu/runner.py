"""Runs programs within a budget of seconds, and keeps what came of it."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

PASSED, FAILED, SKIPPED, CUT = "passed", "failed", "skipped", "cut"
NO_DEVICE = 77  # exit code of programs that find no GPU, as of skipped tests


@dataclasses.dataclass
class Finding:
    """What a part has found: `what` in one line, `values` for the file."""
    status: str
    what: str
    values: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


@dataclasses.dataclass
class Outcome:
    """How a program ended. code None: the clock ended it; -1: it isn't there."""
    code: int | None
    output: str
    seconds: float

    def finding(self, what):
        """Of a program that is its own judge."""
        if self.code is None:
            return Finding(CUT, f"ended after {self.seconds:.0f} s")
        if self.code == NO_DEVICE:
            return Finding(SKIPPED, last_line(self.output) or "no GPU")
        return Finding(PASSED if self.code == 0 else FAILED, what or last_line(self.output))

    def json(self):
        """The object on the last line; None where there is none."""
        try:
            value = json.loads(last_line(self.output))
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


class Budget:
    """Seconds until `limit` after the start, and of a part within it."""

    def __init__(self, limit, clock=time.monotonic):
        self.clock, self.end = clock, clock() + limit
        self.part_end = self.end

    def begin(self, seconds):
        self.part_end = min(self.end, self.clock() + seconds)

    def left(self):
        return max(0.0, self.part_end - self.clock())

    def left_of_all(self):
        return max(0.0, self.end - self.clock())


def run(command, limit, log, environment=None):
    """Ends the program with all that it has started when the limit is over. What it prints goes to `log`."""
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

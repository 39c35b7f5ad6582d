#!/usr/bin/env python3
"""Measures how long training waits for saves, and how fast checkpoints are saved and loaded.

  bench/train/checkpoints.py --build build                        # all parts
  bench/train/checkpoints.py --build build "saving, 1 rank"       # parts by name

All jobs run on this machine with `lockstep run`. The progress page of rank 0 (docs/formats.md) tells what
its saves took.
- blocking: the same job with and without a save every 10 steps, in turns. Wait: seconds for which training
  reports that it waited for a save. Between steps: what a save adds to the time between steps, seen from
  outside, so it also has what the report might leave out.
- saving: a job loads a checkpoint, does one step and saves. In turns with it, the bytes of its checkpoint
  are written to a plain file in pieces of 4 MiB, synced and read again. Files leave the page cache before
  they are read. Virtual machines return free memory to their host, and the first use of a page costs
  several times as much after that. So there is a pause before the plain file is written and read, as
  there is in a job.
Prints Markdown: medians (least to most). Exits with 1 if a job fails or does not save as often as it should.
"""
import argparse
import collections
import json
import mmap
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from same_bits import children

EVERY = 10
PIECE_BYTES = 4 << 20
POLL_SECONDS = 0.002
WARM_UP_STEPS = 3
PAUSE_SECONDS = 5
PHASE_BROADCASTING = 3
SMALL = {"layers": 4, "width": 128, "heads": 4, "context": 128}  # examples/kjv-gpt.yaml
MEDIUM = {"layers": 10, "width": 512, "heads": 8, "context": 256}
LARGE = {"layers": 7, "width": 1024, "heads": 16, "context": 64}
TINY = {"layers": 1, "width": 16, "heads": 2, "context": 16}
Part = collections.namedtuple("Part", "kind model batch ranks saves")
PARTS = {
    "blocking, 0.8 M parameters, 1 rank": Part("blocking", SMALL, 16, 1, 20),
    "blocking, 0.8 M parameters, 2 ranks": Part("blocking", SMALL, 16, 2, 20),
    "blocking, 32 M parameters, 1 rank": Part("blocking", MEDIUM, 8, 1, 8),
    "blocking, 32 M parameters, 2 ranks": Part("blocking", MEDIUM, 8, 2, 8),
    "saving, 1 rank": Part("saving", LARGE, 2, 1, None),
    "saving, 2 ranks": Part("saving", LARGE, 2, 2, None),
}
TINY_PARTS = {
    "blocking, tiny": Part("blocking", TINY, 2, 2, 2),
    "saving, tiny": Part("saving", TINY, 2, 2, None),
}
HEADS = {
    "blocking": ("| job | step without saves, s | wait for a save, ms | wait, % of a step | between steps, ms a save "
                 "| step with saves, ratio | whole run with saves, ratio | save, s |"),
    "saving": ("| job | state, GB | save, s/GB | write, s/GB | save / write | save / (write + read) "
               "| load, s/GB | read, s/GB | load / read |"),
}


class ProgressPage:
    """What rank 0 tells its agent; readable after the rank's end. Offsets: docs/formats.md."""

    MAGIC = 0x4c4b5350524f470c
    NUMBERS, STEP, STEP_IS_KNOWN, ROUND, PHASE = 8, 16, 24, 480, 488
    STORAGE = 816
    Notes = collections.namedtuple("Notes", "saved failed failed_step save_seconds blocked_seconds set_aside "
                                            "set_aside_step resumed_step")

    def __init__(self, pid, descriptor):
        with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
            self.page = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
        magic, = struct.unpack_from("<Q", self.page, 0)
        if magic != self.MAGIC:
            sys.exit(f"the progress page of rank 0 has the magic {magic:#x}, this program knows {self.MAGIC:#x}")

    def record(self, sequence_at):
        """A copy of the page in which that record is consistent."""
        while True:
            before = self.page[sequence_at:sequence_at + 8]
            copy = self.page[:]
            if before == self.page[sequence_at:sequence_at + 8] and before[0] % 2 == 0:
                return copy

    def step_and_phase(self):
        copy = self.record(self.NUMBERS)
        step, = struct.unpack_from("<q", copy, self.STEP)
        phase, = struct.unpack_from("<I", copy, self.PHASE)
        return (step if copy[self.STEP_IS_KNOWN] else 0), phase

    def round(self):
        return struct.unpack_from("<Q", self.record(self.NUMBERS), self.ROUND)[0]

    def notes(self):
        return self.Notes(*struct.unpack_from("<3q2d3q", self.record(self.STORAGE), self.STORAGE + 8))


def page_below(pid):
    """The progress page of the rank 0 that the process started, or None."""
    for child in children(pid):
        try:
            words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "lockstep-worker" in words[0] and words[2].endswith("/rank-0.json"):
                return ProgressPage(child, json.loads(pathlib.Path(words[2]).read_text())["progressFd"])
        except (OSError, IndexError, ValueError):
            continue  # it is starting or ending
        if found := page_below(child):
            return found
    return None


class Run:
    """One job, from start to end, and what was seen of it."""

    def __init__(self, options, part, output, steps, checkpoint):
        self.output = output
        self.step_times = {}  # step -> when it was first seen
        self.load_began = self.load_ended = None
        page = None
        process = self.start(options, part, steps, checkpoint)
        while process.poll() is None:
            page = page or page_below(process.pid)
            if page:
                self.look(page)
            time.sleep(POLL_SECONDS)
        if process.returncode != 0 or not page:
            sys.exit(f"lockstep run: exit code {process.returncode}\n{process.stderr.read()}")
        self.notes = page.notes()

    def start(self, options, part, steps, checkpoint):
        spec = {
            "nodes": part.ranks,
            "train": {"model": part.model, "data": {"path": str(options.text), "tokenizer": "bytes"}, "steps": steps,
                      "batch": {"global": part.batch}, "optimizer": {"schedule": "constant"}},
            "checkpoint": checkpoint,
        }
        job = self.output.with_suffix(".json")
        job.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob",
                                   "metadata": {"name": "checkpoints"}, "spec": spec}))
        return subprocess.Popen([f"{options.build}/bin/lockstep", "run", str(job), "--output", str(self.output)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def look(self, page):
        now = time.monotonic()
        step, phase = page.step_and_phase()
        self.step_times.setdefault(step, now)
        if phase >= PHASE_BROADCASTING and self.load_began is None:
            self.load_began = now
        if self.load_ended is None and page.notes().resumed_step > 0:
            self.load_ended = now

    def step_seconds(self):
        """The seconds of each step by its number, as the rank measured them."""
        lines = (self.output / "checkpoints/metrics.jsonl").read_text().splitlines()
        numbers = [json.loads(line) for line in lines]
        return {number["step"]: number["seconds"]["total"] for number in numbers if "seconds" in number}

    def times(self):
        """Median step, time of the whole run a step, and all of the time between steps, in seconds."""
        seconds = self.step_seconds()
        first = min(step for step in self.step_times if step >= WARM_UP_STEPS)
        last = max(self.step_times)
        whole = self.step_times[last] - self.step_times[first]
        within = [seconds[step] for step in range(first + 1, last + 1)]
        return statistics.median(within), whole / (last - first), whole - sum(within)


def figure(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def expect_saves(run, saves):
    if (run.notes.saved, run.notes.failed) != (saves, 0):
        sys.exit(f"expected {saves} saves, found {run.notes.saved} and {run.notes.failed} that failed")


def blocking_row(options, part, folder):
    steps = EVERY * part.saves + EVERY // 2
    rows = []
    for pair in range(options.pairs):
        runs = {}
        for every in ((0, EVERY), (EVERY, 0))[pair % 2]:
            runs[every] = Run(options, part, folder / f"{pair}-every-{every}", steps,
                              {"everySteps": every, "atEnd": False, "keep": 2})
            expect_saves(runs[every], part.saves if every else 0)
        median, whole, between = runs[0].times()
        median_with, whole_with, between_with = runs[EVERY].times()
        wait = runs[EVERY].notes.blocked_seconds / part.saves
        rows.append((median, 1e3 * wait, 100 * wait / median, 1e3 * (between_with - between) / part.saves,
                     median_with / median, whole_with / whole, runs[EVERY].notes.save_seconds))
    return [figure(values, digits) for values, digits in zip(zip(*rows), (3, 2, 2, 2, 3, 3, 2))]


def newest_files(output):
    newest = max(output.glob("checkpoints/step-*"))
    return sorted(newest.iterdir())


def forget(path):
    """Drops a synced file from the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_write(contents, path):
    """The seconds that it takes to write the bytes to a new file and to sync them."""
    began = time.monotonic()
    with open(path, "xb", buffering=0) as file:
        for content in map(memoryview, contents):
            for at in range(0, len(content), PIECE_BYTES):
                file.write(content[at:at + PIECE_BYTES])
        os.fsync(file.fileno())
    return time.monotonic() - began


def plain_read(path):
    """The seconds that it takes to read a file."""
    piece = bytearray(PIECE_BYTES)
    began = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return time.monotonic() - began


def plain_copy(options, files, path):
    """The seconds that it takes to write the contents of the files to one file, and to read it."""
    contents = [file.read_bytes() for file in files]
    time.sleep(options.pause)
    write = plain_write(contents, path)
    forget(path)
    time.sleep(options.pause)
    read = plain_read(path)
    path.unlink()
    return write, read


def saving_row(options, part, folder):
    output, rows = folder / "job", []
    checkpoint = {"everySteps": 0, "atEnd": True, "keep": 2}
    expect_saves(Run(options, part, output, 1, checkpoint), 1)
    for repetition in range(options.repetitions):
        files = newest_files(output)
        gigabytes = sum(path.stat().st_size for path in files) / 1e9
        write, read = plain_copy(options, files, folder / "plain")
        for path in files:
            forget(path)
        run = Run(options, part, output, repetition + 2, checkpoint)
        expect_saves(run, 1)
        save, load = run.notes.save_seconds, run.load_ended - run.load_began
        rows.append((gigabytes, save / gigabytes, write / gigabytes, save / write, save / (write + read),
                     load / gigabytes, read / gigabytes, load / read))
    columns = list(zip(*rows))
    return [f"{columns[0][0]:.2f}", *(figure(values, 2) for values in columns[1:])]


ROWS = {"blocking": blocking_row, "saving": saving_row}


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else 'unknown processor'}, {os.cpu_count()} CPUs"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(PARTS))
    parser.add_argument("--build", default="build")
    parser.add_argument("--folder", help="where checkpoints and plain files are written (default: of temporary files)")
    parser.add_argument("--pairs", type=int, default=3, help="runs with and runs without saves")
    parser.add_argument("--repetitions", type=int, default=7, help="saves and loads of each size")
    parser.add_argument("--tiny", action="store_true", help="a small run that keeps this program working")
    parser.set_defaults(pause=PAUSE_SECONDS)
    options = parser.parse_args()
    parts = TINY_PARTS if options.tiny else PARTS
    if options.tiny:
        options.pairs, options.repetitions, options.pause = 1, 1, 0
    if unknown := [name for name in options.parts if name not in parts]:
        parser.error(f"no part has the name {unknown[0]!r}")
    print(f"{processor()}. Load average at the start: {os.getloadavg()[0]:.1f}.", flush=True)
    shown = None
    for name in options.parts or parts:
        part = parts[name]
        if part.kind != shown:
            shown = part.kind
            print(f"\n{HEADS[shown]}\n|{'---|' * (HEADS[shown].count('|') - 1)}", flush=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            folder = pathlib.Path(folder)
            options.text = folder / "text"
            options.text.write_bytes(random.Random(7).randbytes(1 << 20))
            cells = ROWS[part.kind](options, part, folder)
        print(f"| {' | '.join([name.split(', ', 1)[1], *cells])} |", flush=True)
    print(f"\nLoad average at the end: {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()

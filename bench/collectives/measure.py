#!/usr/bin/env python3
"""Compares collectives with Gloo and Open MPI on this machine: same processes, buffers, protocol.

  apt-get install libgloo-dev libopenmpi-dev openmpi-bin      # then configure and build again
  bench/collectives/measure.py --build build --pin                            # 2 ranks, one per core
  bench/collectives/measure.py --build build --ranks 4                        # oversubscribed
  python3 -m venv env && env/bin/pip install torch numpy      # a current release
  bench/collectives/measure.py --build build --pin --python env/bin/python    # its Gloo too

The ranks of each library are processes that live as long as the measurement and sleep while
another library has its turn. In each round the libraries take turns, operation by operation and
size by size. In a turn each rank warms up and times each operation separately. A turn counts as
the slowest rank's median; a cell of the table is the median of its turns. The first turn of each
cell compares the result with a plain loop. Installs nothing, and lists what is missing. Exits with
1 if a result was wrong or a library failed.
"""
import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import pathlib
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
OPERATIONS = ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "all-reduce-lor"]
SIZES = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
# Our transport with which each library is compared: TCP with TCP, shared memory with shared memory.
COMPARED_WITH = {"gloo": "lockstep-tcp", "torch": "lockstep-tcp", "mpi-tcp": "lockstep-tcp",
          "mpi-shm": "lockstep-shm", "before-tcp": "lockstep-tcp", "before-shm": "lockstep-shm",
          "lent-shm": "lockstep-shm", "copied-shm": "lockstep-shm"}
NAMES = {"lockstep-tcp": "Lockstep tcp", "lockstep-shm": "Lockstep shm", "gloo": "Gloo (Debian)",
         "torch": "Gloo (PyTorch)", "mpi-tcp": "Open MPI tcp", "mpi-shm": "Open MPI shm",
         "before-tcp": "before, tcp", "before-shm": "before, shm",
         "lent-shm": "shm, all lent", "copied-shm": "shm, none lent"}
START_LIMIT_S = 120
TURN_LIMIT_S = 60


BUS_FACTOR = {"all-reduce": lambda n: 2 * (n - 1) / n, "all-reduce-lor": lambda n: 2 * (n - 1) / n,
              "broadcast": lambda n: 1}  # nccl-tests' PERFORMANCE.md; others: (n-1)/n
BUS_FROM_BYTES = 1 << 20  # from this size on the table shows bus bandwidth


def times_of(size, ranks):
    """Returns the samples per turn, which take about 10 to 100 ms, also if ranks share cores.

    Some take Gloo a second.
    """
    for limit, times in ((4 << 10, 300), (64 << 10, 150), (1 << 20, 40), (4 << 20, 15), (16 << 20, 6)):
        if size <= limit:
            return max(3, times // max(1, ranks // os.cpu_count()) ** 2)
    return 3


def mpirun(options, transport):
    yields = ["--mca", "mpi_yield_when_idle", "1"] if options.ranks > os.cpu_count() else []
    network = ["--mca", "btl_tcp_if_include", "lo"] if transport == "tcp" else []
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
            str(options.ranks), "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self",
            *network, *yields]


def rank_commands(options):
    """Returns the command that starts the ranks, by library, and messages about missing ones."""
    program = str(options.build / "bin/bench_collectives_ranks")
    built = subprocess.run([program, "--libraries"], capture_output=True, text=True,
                           check=True).stdout.split()
    own = ["--ranks", str(options.ranks)]
    found = {name: [program, name, *own] for name in ("lockstep-tcp", "lockstep-shm")}
    missing = []
    for name, least in (("lent-shm", "65536"), ("copied-shm", "0")):
        if name in (options.only or []):
            found[name] = [program, "lockstep-shm", *own, "--loans", least]
    if "gloo" in built:
        found["gloo"] = [program, "gloo", *own]
    else:
        missing.append("Gloo: install libgloo-dev, then configure and build again")
    if "mpi" in built and shutil.which("mpirun"):
        found["mpi-tcp"] = [*mpirun(options, "tcp"), program, "mpi"]
        found["mpi-shm"] = [*mpirun(options, "vader"), program, "mpi"]
    else:
        missing.append("Open MPI: install libopenmpi-dev openmpi-bin, then configure and build again")
    if options.python:
        found["torch"] = [options.python, str(HERE / "torch_gloo.py"), *own]
    else:
        missing.append("PyTorch's Gloo: give --python of an environment that has torch")
    if options.before:
        other = str(options.before / "bin/bench_collectives_ranks")
        found |= {"before-tcp": [other, "lockstep-tcp", *own], "before-shm": [other, "lockstep-shm", *own]}
    if options.only:
        found = {name: found[name] for name in options.only if name in found}
    return found, missing


class World:
    """The ranks of one library, connected and idle."""

    def __init__(self, command, options, folder):
        path = str(folder / "socket")
        (folder / "store").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(options.ranks)
            listener.settimeout(START_LIMIT_S)
            self.process = subprocess.Popen(
                [*command, "--socket", path, "--folder", str(folder / "store"),
                 *(["--pin"] if options.pin else [])], stdin=subprocess.DEVNULL, stdout=sys.stderr,
                start_new_session=True)
            self.streams = []
            try:
                self.streams += [self.accept(listener) for _ in range(options.ranks)]
                self.hello = [self.read(stream) for stream in self.streams]
            except BaseException:
                self.end()
                raise

    @staticmethod
    def accept(listener):
        connection, _ = listener.accept()
        connection.settimeout(TURN_LIMIT_S)
        with connection:
            return connection.makefile("rw", encoding="utf-8")

    @staticmethod
    def read(stream):
        line = stream.readline()
        if not line:
            raise RuntimeError("a rank ended unexpectedly")
        return json.loads(line)

    def turn(self, operation, size, times, check):
        for stream in self.streams:
            stream.write(f"{operation} {size} {times} {int(check)}\n")
            stream.flush()
        return [self.read(stream) for stream in self.streams]

    def close(self):
        for stream in self.streams:
            stream.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.end()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def take_turns(worlds, options):
    """Measures round by round.

    Returns (operation, size) -> name -> turns, or why the library can't run the operation.
    """
    cells = {cell: {name: [] for name in worlds} for cell in itertools.product(options.operations, options.sizes)}
    begin = time.monotonic()
    for round_ in range(options.rounds):
        spent = time.monotonic() - begin
        if round_ > 0 and spent * (round_ + 1) / round_ > options.budget:
            break
        print(f"round {round_ + 1} of {options.rounds}, {spent:.0f} s", file=sys.stderr)
        for (operation, size), turns in cells.items():
            names = list(worlds)
            for name in names[round_ % len(names):] + names[:round_ % len(names)]:
                if isinstance(turns[name], str):
                    continue
                answers = worlds[name].turn(operation, size, options.times(size), round_ == 0)
                if "lacks" in answers[0]:
                    turns[name] = answers[0]["lacks"]
                else:
                    turns[name].append({key: max(answer[key] for answer in answers) for key in answers[0]})
    return cells


def bus_gb_s(operation, ranks, size, us):
    factor = BUS_FACTOR.get(operation, lambda n: (n - 1) / n)(ranks)
    return size * factor / us / 1e3


def summed_up(turns, operation, ranks):
    if isinstance(turns, str):
        return {"lacks": turns}
    p50 = sorted(turn["p50Us"] for turn in turns)
    us = statistics.median(p50)
    return {"us": us, "busGbS": bus_gb_s(operation, ranks, turns[0]["bytes"], us),
            "bytes": turns[0]["bytes"], "quartilesUs": [p50[len(p50) // 4], p50[(3 * len(p50)) // 4]],
            "turns": len(turns), "minUs": min(turn["minUs"] for turn in turns),
            "p99Us": statistics.median(turn["p99Us"] for turn in turns), "wrong": turns[0]["wrong"]}


def figure(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:,.0f}"


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def ratio(cell, name):
    """Returns how many times as fast Lockstep is on the same transport; None if not comparable."""
    ours = cell.get(COMPARED_WITH.get(name))
    if not ours or "us" not in ours or "us" not in cell[name]:
        return None
    return cell[name]["us"] / ours["us"]


def table(operation, cells, names):
    lines = [f"\n### {operation}\n", "| size | " + " | ".join(NAMES[name] for name in names) + " |",
             "|---:|" + "---:|" * len(names)]
    lacks = {}
    for size, cell in cells.items():
        row = []
        for name in names:
            if "lacks" in cell[name]:
                lacks[name] = cell[name]["lacks"]
                row.append("-")
                continue
            times = ratio(cell, name)
            bus = cell[name]["busGbS"] if name.startswith("lockstep") and size >= BUS_FROM_BYTES else None
            text = figure(cell[name]["us"]) + (f" ({times:.2f}x)" if times else f", {bus:.1f} GB/s" if bus else "")
            row.append(text + (" WRONG" if cell[name]["wrong"] else ""))
        lines.append(f"| {size_name(size)} | " + " | ".join(row) + " |")
        moved = max((got.get("bytes", size) for got in cell.values()), default=size)
        if moved != size:
            lacks[size_name(size)] = f"{moved} bytes, one element per block"
    lines += [f"\n{NAMES.get(name, name)}: {why}." for name, why in lacks.items()]
    return "\n".join(lines)


def cpu_ticks():
    """Returns CPU ticks since boot: (all, stolen by other virtual machines of the host)."""
    ticks = [int(tick) for tick in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[7]


def stolen_percent(before, after):
    whole = after[0] - before[0]
    return 100 * (after[1] - before[1]) / whole if whole else 0.0


def governor():
    path = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return path.read_text().strip() if path.exists() else "unknown"


def copy_gb_s(size=64 << 20, times=5):
    """Returns how fast one core copies from memory to memory."""
    source, target = bytearray(os.urandom(1 << 20)) * (size >> 20), bytearray(size)
    best = min(timed(lambda: memoryview(target).__setitem__(slice(None), source)) for _ in range(times))
    return size / best / 1e9


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def drain(listener):
    connection, _ = listener.accept()
    into = memoryview(bytearray(1 << 20))
    while connection.recv_into(into):
        pass
    connection.sendall(b"!")


def loopback_gb_s(size=1 << 20, times=512):
    """Returns the one-way TCP rate on this machine, between a writing and a reading process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = multiprocessing.get_context("fork").Process(target=drain, args=(listener,))
        reader.start()
        with socket.create_connection(listener.getsockname()) as writer:
            block = bytes(size)

            def send():
                for _ in range(times):
                    writer.sendall(block)
                writer.shutdown(socket.SHUT_WR)
                writer.recv(1)
            seconds = timed(send)
        reader.join()
    return size * times / seconds / 1e9


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="rank r on core r")
    parser.add_argument("--operations", type=lambda text: text.split(","), default=OPERATIONS)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=3600,
                        help="seconds; a round that would exceed it is not started")
    parser.add_argument("--only", type=lambda text: text.split(","), help="some of " + ", ".join(NAMES))
    parser.add_argument("--python", help="Python of an environment with torch")
    parser.add_argument("--before", type=pathlib.Path,
                        help="another build of Lockstep to compare with, to see what a change does")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--tiny", action="store_true", help="test only that it works, not its speed")
    options = parser.parse_args()
    options.times = lambda size: times_of(size, options.ranks)
    if options.tiny:
        options.rounds, options.sizes, options.ranks = 1, [8, 4 << 10, 1 << 20], 3
        options.times = lambda size: 3
    return options


def main():
    options = parse()
    commands, missing = rank_commands(options)
    ceilings = {"copyGbS": copy_gb_s(), "loopbackGbS": loopback_gb_s()} if not options.tiny else {}
    load, ticks = os.getloadavg(), cpu_ticks()
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        worlds = {}
        try:
            for name, command in commands.items():
                place = pathlib.Path(folder) / name
                place.mkdir()
                worlds[name] = World(command, options, place)
            for (operation, size), turns in take_turns(worlds, options).items():
                cells.setdefault(operation, {})[size] = {
                    name: summed_up(of, operation, options.ranks) for name, of in turns.items()}
        finally:
            for world in worlds.values():
                world.close()
    turns = max((got.get("turns", 0) for by_size in cells.values() for cell in by_size.values()
                 for got in cell.values()), default=0)
    print(f"{options.ranks} ranks{', pinned' if options.pin else ''}, {os.cpu_count()} cores, Linux "
          f"{platform.release()}, load {load[0]:.2f} before and {os.getloadavg()[0]:.2f} after; "
          f"microseconds, medians of {turns} turns; (x): how many times as fast Lockstep is "
          "on the same transport; GB/s: of the bus, as nccl-tests has it")
    stolen = stolen_percent(ticks, cpu_ticks())
    print(f"- {stolen:.2f} % of the time stolen, governor {governor()}"
          + "".join(f", {word} {ceilings[key]:.1f} GB/s" for key, word in
                    (("copyGbS", "one core copies"), ("loopbackGbS", "loopback one way")) if key in ceilings))
    for name, world in worlds.items():
        print(f"- {NAMES[name]}: {world.hello[0]['library']}")
    for text in missing:
        print(f"- missing: {text}")
    for operation, by_size in cells.items():
        print(table(operation, by_size, list(worlds)))
    if options.json:
        options.json.write_text(json.dumps(
            {"ranks": options.ranks, "cores": os.cpu_count(), "pinned": options.pin, "rounds": turns, "load": load,
             "stolenPercent": stolen, "governor": governor(), **ceilings,
             "libraries": {name: world.hello[0]["library"] for name, world in worlds.items()},
             "cells": cells}, indent=1) + "\n")
    wrong = [(operation, size, name) for operation, by_size in cells.items()
             for size, cell in by_size.items() for name, got in cell.items() if got.get("wrong")]
    for operation, size, name in wrong:
        print(f"wrong: {NAMES[name]}, {operation}, {size_name(size)}", file=sys.stderr)
    return 1 if wrong or not cells else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares the three architectures of data parallelism: all-reduce, first rank, and host memory.

  bench/train/exchanges.py --build build --rounds 5 --picture exchanges.svg | tee table.md
  bench/train/exchanges.py --numbers exchanges.json --picture exchanges.svg    # draws it again

Runs bench_step, the worker's own code, on ranks that share memory, for each exchange and number of
ranks, in turns. Each rank has the same micro-batch, so the global batch grows with the ranks. Prints
a Markdown table: medians over the rounds, with their range. Nothing else should run on the machine
meanwhile.

Bytes are those of one step, in units of the gradients (4 bytes for each parameter, padding
included): into and out of the busiest rank, and into and out of the memory that the ranks share.
The expected ones stand next to them: with n ranks, 4 (n-1)/n for the all-reduce (a ring), 2 (n-1)
for the first rank and 2 n for the host's memory. Exits with 1 if the measured ones differ by more
than 2 %. Seconds of communication, which backward does not hide, and of the update count together:
the first rank and the host send the parameters as part of the update.
"""
import argparse
import collections
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

EXCHANGES = ("allReduce", "firstRank", "host")
NAMES = {"allReduce": "all-reduce", "firstRank": "first rank", "host": "host memory"}
RANKS = (1, 2, 4)
Row = collections.namedtuple("Row", "exchange ranks")
# Each but the bytes: least, median, most.
Numbers = collections.namedtuple("Numbers", "bytes seconds step tokens")


def run(row, options):
    """What bench_step reports."""
    command = [f"{options.build}/bin/bench_step", "--exchange", row.exchange, "--transport", "shared",
               "--ranks", str(row.ranks), "--threads", "1", "--warmup", "3", "--steps", str(options.steps),
               "--preset", options.preset, "--batch", str(options.batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(options):
    """Row -> reports of all its runs; the rows take turns."""
    found = collections.defaultdict(list)
    for turn in range(options.rounds):
        for row in (Row(exchange, ranks) for ranks in options.ranks for exchange in EXCHANGES):
            found[row].append(run(row, options))
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
    return found


def expected_bytes(row):
    """In and out of the busiest rank, or of the shared memory, in units of the gradients."""
    n = row.ranks
    return {"allReduce": 4 * (n - 1) / n, "firstRank": 2 * (n - 1), "host": 2 * n}[row.exchange]


def gradients_moved(row, report):
    moved = report["bytesPerStep"]
    moved = moved["shared"] if row.exchange == "host" else moved["sentMax"] + moved["receivedMax"]
    return moved / report["gradientBytes"]


def range_of(values):
    values = list(values)
    return [min(values), statistics.median(values), max(values)]


def numbers_of(found):
    def exposed(report):
        return report["partSeconds"]["communication"] + report["partSeconds"]["update"]
    return {row: Numbers(bytes=statistics.median(gradients_moved(row, report) for report in reports),
                         seconds=range_of(exposed(report) for report in reports),
                         step=range_of(report["stepSeconds"] for report in reports),
                         tokens=range_of(report["tokensPerSecond"] for report in reports))
            for row, reports in found.items()}


def spread(numbers, factor, digits):
    least, median, most = (f"{value * factor:,.{digits}f}" for value in numbers)
    return f"{median} ({least} to {most})"


def print_table(numbers):
    heads = ("exchange", "ranks", "bytes in and out / gradients", "expected", "communication and update, ms",
             "step, ms", "tokens/s")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in sorted(numbers, key=lambda row: (row.ranks, EXCHANGES.index(row.exchange))):
        of = numbers[row]
        print(f"| {NAMES[row.exchange]} | {row.ranks} | {of.bytes:.2f} | {expected_bytes(row):.2f} | "
              f"{spread(of.seconds, 1e3, 1)} | {spread(of.step, 1e3, 1)} | {spread(of.tokens, 1, 0)} |")


def is_expected(row, measured):
    expected = expected_bytes(row)
    return abs(measured - expected) <= 0.02 * max(expected, 1)


COLOURS = {"allReduce": "#2b8a3e", "firstRank": "#c92a2a", "host": "#1864ab"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 240, 56, 44, 90
STYLE = ("text{font:13px sans-serif;fill:#343a40}.title{font-weight:bold}.axis{stroke:#868e96;fill:none}"
         ".grid{stroke:#dee2e6}.line{fill:none;stroke-width:2.5}")


def ceiling(value):
    """A round number at or above the value, for the end of an axis."""
    if value <= 0:
        return 1
    step = 10 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next(step * times for times in (1, 2, 3, 4, 5, 6, 8, 10) if step * times >= value)


def panel(left, title, curves, label_of):
    """SVG of one diagram; curves: exchange -> ranks -> value."""
    top = ceiling(max(value for curve in curves.values() for value in curve.values()))
    ranks = sorted({n for curve in curves.values() for n in curve})
    span = max(ranks[-1] - ranks[0], 1)
    x_of = {n: left + WIDTH * (n - ranks[0]) / span for n in ranks}
    y_of = lambda value: TOP + HEIGHT * (1 - value / top)
    parts = [f'<text class="title" x="{left}" y="{TOP - 18}">{title}</text>']
    for quarter in range(5):
        value = top * quarter / 4
        y = y_of(value)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label_of(value)}</text>')
    for n in ranks:
        parts.append(f'<text x="{x_of[n]:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{n}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">ranks</text>')
    parts.append(f'<path class="axis" d="M{left} {TOP}V{TOP + HEIGHT}H{left + WIDTH}"/>')
    for exchange, curve in curves.items():
        points = [(x_of[n], y_of(curve[n])) for n in sorted(curve)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line" stroke="{COLOURS[exchange]}" points="{path}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[exchange]}"/>' for x, y in points]
    return parts


def picture(numbers):
    def curves(value_of):
        return {exchange: {row.ranks: value_of(of) for row, of in numbers.items() if row.exchange == exchange}
                for exchange in EXCHANGES}
    width, height = LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 84
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
             f"<title>Costs of the three exchanges by the number of ranks</title><style>{STYLE}</style>",
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    parts += panel(LEFT, "Bytes in and out, in sizes of the gradients", curves(lambda of: of.bytes),
                   lambda value: f"{value:g}")
    parts += panel(LEFT + WIDTH + GAP, "Exposed communication and update, ms",
                   curves(lambda of: of.seconds[1] * 1e3), lambda value: f"{value:g}")
    for place, exchange in enumerate(EXCHANGES):
        x, y = LEFT + 140 * place, height - 16
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{COLOURS[exchange]}"/>')
        parts.append(f'<text x="{x + 12}" y="{y}">{NAMES[exchange]}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def stored(numbers):
    return [{"exchange": row.exchange, "ranks": row.ranks, **of._asdict()} for row, of in numbers.items()]


def loaded(path):
    return {Row(one.pop("exchange"), one.pop("ranks")): Numbers(**one)
            for one in json.loads(pathlib.Path(path).read_text())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="that count, of each run")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--preset", default="kjv", help="of bench_step")
    parser.add_argument("--batch", type=int, default=4, help="sequences of each rank")
    parser.add_argument("--numbers", help="reads the numbers from this file instead of measuring")
    parser.add_argument("--keep", help="writes the numbers to this file")
    parser.add_argument("--picture", help="draws them to this SVG file")
    options = parser.parse_args()
    if options.numbers:
        numbers = loaded(options.numbers)
    else:
        numbers = numbers_of(measure(options))
        print(f"{cpu_name()}, {os.cpu_count()} CPUs, bench_step --preset {options.preset} --batch {options.batch}, "
              f"{options.rounds} rounds of {options.steps} steps: median (least to most)\n")
    print_table(numbers)
    if options.keep:
        pathlib.Path(options.keep).write_text(json.dumps(stored(numbers), indent=1) + "\n")
    if options.picture:
        pathlib.Path(options.picture).write_text(picture(numbers))
    wrong = [row for row, of in numbers.items() if not is_expected(row, of.bytes)]
    for row in wrong:
        print(f"{NAMES[row.exchange]}, {row.ranks} ranks: expected {expected_bytes(row):.2f} times the gradients, "
              f"got {numbers[row].bytes:.2f}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
